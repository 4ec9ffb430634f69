import type { Json } from '../../../shared/json.ts'

/** Players who queue for matches. */
export interface Queue {
  /** In the order of their times. */
  readonly records: readonly QueueRecord[]
  readonly end: QueueEnd
}

export interface QueueEnd {
  readonly at: number
  /** What nodes run of the queue, each with its state. */
  readonly queues: readonly { readonly node: string; readonly state: Json }[]
  /** Tickets of the players who wait. */
  readonly waiting: readonly WaitingTicket[]
  /** Players who are neither in a queue nor in the room of a match. */
  readonly outside: readonly string[]
}

export interface WaitingTicket {
  readonly client: string
  readonly ticket: string
  readonly level: number
}

/** One observation of a player of the queue. The client is the `sub` of its player. */
export type QueueRecord = { readonly at: number; readonly client: string } & (
  | { readonly kind: 'connected' | 'lost_connection' }
  /** The player has loaded its page, which knows no earlier match. */
  | { readonly kind: 'loaded' }
  /** A ticket was asked for, or asked for again after a reload. */
  | { readonly kind: 'asked'; readonly ticket: string }
  /** The queue has said that the ticket waits. */
  | { readonly kind: 'placed'; readonly ticket: string }
  /** A frame, or a refusal, named the room of the player's match. */
  | { readonly kind: 'heard'; readonly room: string; readonly tickets: readonly string[] }
  /** The player has joined the room of its match. */
  | {
      readonly kind: 'matched'
      readonly ticket: string
      readonly room: string
      readonly tickets: readonly string[]
      /** Its seat is in the state of the room. */
      readonly seated: boolean
    }
  /** The ticket has ended without a match. `cancelled`: the player wanted that. */
  | { readonly kind: 'ended'; readonly ticket: string; readonly code: string; readonly cancelled: boolean }
  /** The player joined the room of a match of others. */
  | {
      readonly kind: 'intruded'
      readonly room: string
      readonly tickets: readonly string[]
      /** Members of the room. */
      readonly seats: readonly string[]
      /** Players who have had a seat. */
      readonly came: readonly string[]
    }
  | { readonly kind: 'kept_out'; readonly room: string; readonly code: string }
)
