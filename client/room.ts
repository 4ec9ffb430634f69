import type { Json } from '../shared/json.ts'
import type {
  Immutable,
  RoomEvents,
  RoomMessages,
  RoomReplies,
  RoomState,
  TypedRoom,
  UntypedRoom,
} from '../shared/room-types.ts'
import { cloneJson, NotJson } from '../shared/sync/check.ts'
import { RoomfulError, type RoomfulErrorCode } from './errors.ts'
import type { Unsubscribe } from './listeners.ts'
import type { Member, Replica } from './replica.ts'
import { Reported } from './reported.ts'
import type { LeaveReason, Seat } from './seat.ts'

/** `joined`; `rejoining`: the session was lost and the room is being joined again under a new one; `left`: for good. */
export type RoomStatus = 'joined' | 'rejoining' | 'left'

/** How a message is sent. */
export interface SendOptions {
  /** Default true: kept, resent and applied once. False: sent once, or not at all while offline; never acked. */
  readonly reliable?: boolean
}

/** What follows the message type in `send`; the data may be left out where it may be null. */
export type SendArguments<Data> = null extends Data
  ? [data?: Data, options?: SendOptions]
  : [data: Data, options?: SendOptions]

/** What follows the message type in `request`; the data may be left out where it may be null. */
export type RequestArguments<Data> = null extends Data ? [data?: Data] : [data: Data]

/** A room this client is in. `R`: the type of its definition (`typeof arena`), from which everything else is inferred. */
export class Room<R extends TypedRoom = TypedRoom<UntypedRoom>> {
  readonly #seat: Seat
  /**
   * Calls back after every change of the state, with the state before. `onStateChange.select(selector, callback)` does so when what the
   * selector finds in the state has changed (by `Object.is`), with the two findings.
   */
  readonly onStateChange: StateSubscription<Immutable<RoomState<R>>>

  /** Made by `client.join`. */
  constructor(seat: Seat) {
    this.#seat = seat
    this.onStateChange = stateSubscription(seat.replica)
  }

  /** `type:key`. */
  get id(): string {
    return this.#seat.roomId
  }

  /** Whether this client is in the room now. */
  get status(): RoomStatus {
    const { status } = this.#seat
    return status === 'joining' || status === 'resuming' ? 'rejoining' : status
  }

  /** This client's own id in the room; another one after a rejoin. */
  get memberId(): string {
    return this.#seat.memberId
  }

  /** Everyone in the room, this client included. A new array after each change. */
  get members(): readonly Member[] {
    return this.#seat.replica.members
  }

  /** The current state; never changed in place. After the room is left: the last one. */
  get state(): Immutable<RoomState<R>> {
    return this.#seat.replica.state as Immutable<RoomState<R>>
  }

  /** Whether `state` is behind, and a whole one on its way: until then it lacks what messages did that have been acked meanwhile. */
  get resyncing(): boolean {
    return this.#seat.replica.resyncing
  }

  /**
   * Calls back with the data of every event of this name. Events that came before the first listener of their name are kept, the latest 64 of
   * the room, and given to it at the end of the turn.
   */
  on<K extends keyof RoomEvents<R> & string>(
    name: K,
    callback: (data: Immutable<RoomEvents<R>[K]>) => void,
  ): Unsubscribe {
    return this.#seat.replica.events.on(name, callback as (data: Json) => void)
  }

  /** Another name of `on`. */
  onMessage<K extends keyof RoomEvents<R> & string>(
    name: K,
    callback: (data: Immutable<RoomEvents<R>[K]>) => void,
  ): Unsubscribe {
    return this.on(name, callback)
  }

  /** Calls back after a member has come or gone, or has lost its connection or is back. */
  onMembersChange(callback: (members: readonly Member[], previous: readonly Member[]) => void): Unsubscribe {
    return this.#seat.replica.onMembers.add(callback)
  }

  /** Calls back once, when the room is over for this client. `error`: undefined when it was the client's own wish. */
  onLeave(callback: (reason: LeaveReason, error: RoomfulError | undefined) => void): Unsubscribe {
    return this.#seat.onLeave.add(callback)
  }

  /**
   * Calls back with the RoomfulError of each promise of this room that was rejected before the caller waited for it, such as the one of a
   * `send` without `await`. Without such a callback the `onError` of `connect` takes it, or else the console.
   */
  onError(callback: (error: unknown) => void): Unsubscribe {
    return this.#seat.onError.add(callback)
  }

  /**
   * Sends a message to the room's logic. Reliable: applied exactly once and in order, across reconnects; resolves when the server has
   * applied (and, in journal rooms, stored) it; rejects with a RoomfulError when it was refused, when the session was lost before the
   * ack (`resume_failed`: it may or may not have been applied), or at once when too many wait already (`queue_full`). With
   * `{ reliable: false }`: resolves at once, and silently drops the message while offline or at the server's rate limit. Without `await`,
   * a rejection goes to `onError`.
   */
  send<K extends keyof RoomMessages<R> & string>(
    type: K,
    ...[data, options]: SendArguments<RoomMessages<R>[K]>
  ): Promise<void> {
    return this.#reported(async () => {
      const json = payloadOf(type, data)
      if (options?.reliable === false) this.#seat.sendUnreliable(type, json)
      else await this.#seat.send(type, json)
    })
  }

  /**
   * Sends a message whose type declares a reply, as `send` does, and resolves to that reply: one, and the same one, whatever happens to
   * connections and nodes meanwhile. Rejects as `send` does; and at once with `too_many_requests` when 32 requests wait already.
   */
  request<K extends keyof RoomReplies<R> & keyof RoomMessages<R> & string>(
    type: K,
    ...[data]: RequestArguments<RoomMessages<R>[K]>
  ): Promise<RoomReplies<R>[K]> {
    return this.#reported(
      async () => (await this.#seat.send(type, payloadOf(type, data), true)) as RoomReplies<R>[K],
    )
  }

  /** Leaves; resolves when the seat is given up. Leaving a room that is over does nothing. */
  leave(): Promise<void> {
    return this.#reported(() => this.#seat.leave())
  }

  #reported<T>(work: () => Promise<T>): Promise<T> {
    return Reported.of(work(), (error) => this.#seat.failed(error))
  }
}

/** Subscribes to changes of a state; `select` to changes of what a selector finds in it. */
export interface StateSubscription<State> {
  (callback: (state: State, previous: State) => void): Unsubscribe
  /** Calls back when what `selector` finds in the state has become another value, by `Object.is`. */
  select<Selected>(
    selector: (state: State) => Selected,
    callback: (selected: Selected, previous: Selected) => void,
  ): Unsubscribe
}

/** The subscription to the state of a replica. */
function stateSubscription<State>(replica: Pick<Replica, 'onState' | 'state'>): StateSubscription<State> {
  const subscribe = (callback: (state: State, previous: State) => void): Unsubscribe =>
    replica.onState.add(callback as (state: unknown, previous: unknown) => void)
  return Object.assign(subscribe, {
    select<Selected>(
      selector: (state: State) => Selected,
      callback: (selected: Selected, previous: Selected) => void,
    ): Unsubscribe {
      let current = selector(replica.state as State)
      return subscribe((state) => {
        const previous = current
        current = selector(state)
        if (!Object.is(current, previous)) callback(current, previous)
      })
    },
  })
}

/** The data of a message. Throws a RoomfulError (invalid_payload) when the message cannot be sent. */
function payloadOf(type: unknown, data: unknown): Json {
  if (typeof type !== 'string')
    throw new RoomfulError('invalid_payload', `The message type is ${type}: pass its name, a string.`)
  return toJson(data ?? null, 'invalid_payload', `The data of message "${type}"`)
}

/** A copy of what a caller handed over, so that later changes of it do no harm. Throws a RoomfulError with `code` when it is not JSON. */
export function toJson(value: unknown, code: RoomfulErrorCode, what: string): Json {
  try {
    return cloneJson(value)
  } catch (error) {
    if (!(error instanceof NotJson)) throw error
    throw new RoomfulError(code, `${what} cannot be sent: ${error.message}.`, { cause: error })
  }
}
