import type { Json } from '../../../shared/json.ts'
import type { Refusal } from '../room-logic.ts'
import type { Durability } from './history.ts'

/** What backends, their webhook and the players that they manage have seen. Times are those of the history. */
export interface BackendHistory {
  readonly rooms: readonly { readonly room: string; readonly durability: Durability }[]
  /** In the order of their times. */
  readonly records: readonly BackendRecord[]
  readonly end: {
    readonly at: number
    /** The banks that the nodes run at the end. */
    readonly rooms: readonly { readonly room: string; readonly node: string; readonly state: Json }[]
    /** Players that have no seat although no one keeps them out. */
    readonly seatless: readonly string[]
  }
}

/** One observation. `call` is an idempotency key, `sub` a player, `notice` the id of a notice. */
export type BackendRecord = { readonly at: number } & (
  | {
      /** Before the first request of this call leaves. `close`: it ends the room. */
      readonly kind: 'called'
      readonly call: string
      readonly room: string
      readonly what: 'grant' | 'close'
      readonly refuse: Refusal | null
    }
  /** One request of a call was answered, and not only put off. `answer`: reply, epoch and seq as JSON, or code and text of the refusal. */
  | {
      readonly kind: 'answered'
      readonly call: string
      readonly code: string | null
      readonly answer: string
    }
  /** A kick was answered. */
  | {
      readonly kind: 'kicked'
      readonly sub: string
      readonly room: string
      readonly sent: number
      readonly seats: number
    }
  /** A ban was answered; the end of a ban is sent. */
  | { readonly kind: 'banned' | 'unbanning'; readonly sub: string }
  /** The webhook got a notice. `accepted`: it answers in time that it has taken it. */
  | {
      readonly kind: 'received'
      readonly notice: string
      readonly body: string
      readonly accepted: boolean
    }
  | { readonly kind: 'online'; readonly sub: string; readonly node: string }
  | { readonly kind: 'offline'; readonly sub: string }
  | { readonly kind: 'seated'; readonly sub: string; readonly room: string; readonly member: string }
  | { readonly kind: 'unseated'; readonly sub: string; readonly room: string; readonly member: string }
)

/** A notice as the owner of its room has written it. */
export interface WrittenNotice {
  readonly id: string
  readonly body: string
}
