import type { DecodedMessage } from '../shared/protocol/codec.ts'
import type { ClientMessage, ListedRoom as ListedRow } from '../shared/protocol/messages.ts'
import type { RoomListing, RoomWhere, TypedRoom, UntypedRoom } from '../shared/room-types.ts'
import { RoomfulError } from './errors.ts'
import type { Unsubscribe } from './listeners.ts'
import type { SeatLink } from './seat.ts'

/** Filter, order and length of a list of rooms. */
export interface RoomQuery<R extends TypedRoom = TypedRoom<UntypedRoom>> {
  /** Conditions on fields of `data`, such as `{ map: 'desert', level: { min: 3, max: 6 } }`. All must hold. Default: none. */
  readonly where?: RoomWhere<R>
  /** Default: `fullest`. */
  readonly order?: 'fullest' | 'emptiest' | 'newest' | 'oldest'
  /** Maximum number of rooms, 1 to 100. Default 20. */
  readonly limit?: number
  /** True: also rooms without a free seat. */
  readonly full?: boolean
}

/** One room in a list. It may be out of date: only a join takes a seat. */
export interface ListedRoom<R extends TypedRoom = TypedRoom<UntypedRoom>> {
  /** `type:key`. */
  readonly roomId: string
  /** Key for `join`. */
  readonly key: string
  /** Number of players. */
  readonly players: number
  /** Maximum number of players. Undefined: no limit. */
  readonly maxPlayers: number | undefined
  /** Number of members who watch, up to 10 s old. */
  readonly spectators: number
  /** Seats that are kept for players who have not joined yet. */
  readonly reserved: number
  /** Time of the room's creation, RFC 3339. */
  readonly createdAt: string
  /** Result of the room type's `listing.of`. */
  readonly data: RoomListing<R>
}

/** A message without its request id. */
type Unnumbered<M> = M extends unknown ? Omit<M, 'request_id'> : never
type Ask = Unnumbered<Extract<ClientMessage, { t: 'rooms' | 'find' }>>
/** Content of a `find` that names no code. */
export type Finding = Extract<ClientMessage, { room: unknown }>['room']
export type Answer = Extract<DecodedMessage, { t: 'rooms' | 'found' }>
export type ListAnswer = Extract<Answer, { t: 'rooms' }>
export type FoundAnswer = Extract<Answer, { t: 'found' }>
export type { ListedRow }

interface Request {
  readonly message: Ask
  readonly answered: (answer: Answer) => void
  readonly failed: (error: RoomfulError) => void
}

/** Time until the client repeats a watch after a retryable error. */
const RETRY_MS = 2000

/** Requests about rooms that the client is not in. They end with their connection, so the client sends them again after each welcome. */
export class Requests {
  readonly #link: SeatLink
  readonly #pending = new Map<number, Request>()

  constructor(link: SeatLink) {
    this.#link = link
  }

  /** Resolves to the answer. */
  ask(message: Ask): Promise<Answer> {
    return new Promise((answered, failed) => this.#add({ message, answered, failed }))
  }

  /** Calls `changed` with each list, or change of it, until the returned function is called. `failed`: the watch has ended. */
  watch(message: Ask, changed: (answer: Answer) => void, failed: (error: RoomfulError) => void): Unsubscribe {
    const id = this.#add({ message: { ...message, watch: true } as Ask, answered: changed, failed })
    return () => {
      if (this.#pending.delete(id)) this.#link.send({ t: 'rooms.end', request_id: id })
    }
  }

  /** The client is connected. Sends all pending requests and watches. */
  connected(): void {
    for (const id of this.#pending.keys()) this.#send(id)
  }

  receive(answer: Answer): void {
    const { request_id: id } = answer
    const request = this.#pending.get(id)
    if (request && !isWatch(request)) this.#pending.delete(id)
    request?.answered(answer)
  }

  /** Handles an error of the server. Returns false if it answers none of these requests. */
  refused(id: number | undefined, error: RoomfulError): boolean {
    const request = this.#pending.get(id!)
    if (!request) return false
    if (isWatch(request) && error.retryable) {
      this.#link.clock.schedule(RETRY_MS, () => this.#send(id!))
      return true
    }
    this.#pending.delete(id!)
    request.failed(error)
    return true
  }

  /** Rejects all requests and ends all watches, because the client is closed. */
  end(error: RoomfulError): void {
    for (const id of this.#pending.keys()) this.refused(id, new RoomfulError(error.code, error.message))
  }

  #add(request: Request): number {
    const id = this.#link.nextRequestId()
    this.#pending.set(id, request)
    this.#send(id)
    return id
  }

  #send(id: number): void {
    const request = this.#pending.get(id)
    try {
      if (request) this.#link.send({ ...request.message, request_id: id } as ClientMessage)
    } catch (error) {
      this.refused(id, error as RoomfulError)
    }
  }
}

/** Returns a watched list after a message of the server, which has the whole list or what has changed. */
export function listAfter(
  rows: readonly ListedRow[],
  { rooms, set = [], gone = [], at = [] }: ListAnswer,
): ListedRow[] {
  const list = [...(rooms ?? rows)]
  for (const index of gone) list.splice(index, 1)
  for (const [i, index] of at.entries()) list.splice(index, 0, set[i]!)
  return list
}

const isWatch = ({ message }: Request): boolean => 'watch' in message
