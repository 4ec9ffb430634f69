import type { Json } from '../shared/json.ts'
import type {
  Immutable,
  RoomEvents,
  RoomMessages,
  RoomReplies,
  TypedRoom,
  UntypedRoom,
  VisibleState,
} from '../shared/room-types.ts'
import { cloneJson, NotJson } from '../shared/sync/check.ts'
import { RoomfulError, type RoomfulErrorCode } from './errors.ts'
import type { Unsubscribe } from './listeners.ts'
import type { Member, Replica } from './replica.ts'
import { Reported } from './reported.ts'
import type { LeaveReason, Seat } from './seat.ts'

/** `joined`; `rejoining`: the session was lost, and a new session is joining the room; `left`: final. */
export type RoomStatus = 'joined' | 'rejoining' | 'left'

/** Options of `send`. */
export interface SendOptions {
  /** Default true: the SDK resends the message until it is acknowledged. False: the SDK sends it once, and drops it while offline. */
  readonly reliable?: boolean
}

/** Arguments of `send` after the message type. The data may be omitted if it may be null. */
export type SendArguments<Data> = null extends Data
  ? [data?: Data, options?: SendOptions]
  : [data: Data, options?: SendOptions]

/** Arguments of `request` after the message type. The data may be omitted if it may be null. */
export type RequestArguments<Data> = null extends Data ? [data?: Data] : [data: Data]

/** A room that this client has joined. `R` is the type of its definition (`typeof arena`), from which the other types are inferred. */
export class Room<R extends TypedRoom = TypedRoom<UntypedRoom>> {
  readonly #seat: Seat
  /**
   * Calls `callback` after each change of the state, with the new and the previous state. `onStateChange.select(selector, callback)` calls it
   * only when the selector's result has changed (by `Object.is`), with both results.
   */
  readonly onStateChange: StateSubscription<VisibleState<R>>

  /** Called by `client.join`. */
  constructor(seat: Seat) {
    this.#seat = seat
    this.onStateChange = stateSubscription(seat.replica)
  }

  /** `type:key`. */
  get id(): string {
    return this.#seat.roomId
  }

  /** Status of this client in the room. */
  get status(): RoomStatus {
    const { status } = this.#seat
    return status === 'joining' || status === 'resuming' ? 'rejoining' : status
  }

  /** This client's member id. It changes after a rejoin. */
  get memberId(): string {
    return this.#seat.memberId
  }

  /** All members, including this client. Each change creates a new array. */
  get members(): readonly Member[] {
    return this.#seat.replica.members
  }

  /** The current state, immutable. After leaving: the last state. */
  get state(): VisibleState<R> {
    return this.#seat.replica.state as VisibleState<R>
  }

  /** True while the client waits for a snapshot. Until then, `state` may lack effects of acknowledged messages. */
  get resyncing(): boolean {
    return this.#seat.replica.resyncing
  }

  /**
   * Calls `callback` with the data of each event of this name. If an event has no listener, the client keeps it (the latest 64 of the room).
   * The first listener of its name gets it at the end of the turn.
   */
  on<K extends keyof RoomEvents<R> & string>(
    name: K,
    callback: (data: Immutable<RoomEvents<R>[K]>) => void,
  ): Unsubscribe {
    return this.#seat.replica.events.on(name, callback as (data: Json) => void)
  }

  /** Alias of `on`. */
  onMessage<K extends keyof RoomEvents<R> & string>(
    name: K,
    callback: (data: Immutable<RoomEvents<R>[K]>) => void,
  ): Unsubscribe {
    return this.on(name, callback)
  }

  /** Calls `callback` when a member joins, leaves, disconnects or reconnects. */
  onMembersChange(callback: (members: readonly Member[], previous: readonly Member[]) => void): Unsubscribe {
    return this.#seat.replica.onMembers.add(callback)
  }

  /** Calls `callback` once, when this client is no longer in the room. `error` is undefined if the client itself left. */
  onLeave(callback: (reason: LeaveReason, error: RoomfulError | undefined) => void): Unsubscribe {
    return this.#seat.onLeave.add(callback)
  }

  /**
   * Calls `callback` with the RoomfulError of each rejection that the caller does not await, such as the rejection of a `send` without
   * `await`. Without such a callback, the error goes to `onError` of `connect`, or else to the console.
   */
  onError(callback: (error: unknown) => void): Unsubscribe {
    return this.#seat.onError.add(callback)
  }

  /**
   * Sends a message to the room. A reliable message is applied exactly once and in order, across reconnects. The promise resolves when the
   * server has applied the message and, in journal rooms, stored the result. It rejects with a RoomfulError if the message is refused, or if
   * too many messages are unacknowledged (`queue_full`). If the session is lost before the ack, it rejects with `resume_failed`: the message
   * may or may not have been applied. With `{ reliable: false }` it resolves immediately, and the message is dropped while offline or above
   * the server's rate limit. Without `await`, a rejection goes to `onError`.
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
   * Sends a message whose type declares a reply, as `send` does, and resolves to the reply. After a lost connection or a crash of the
   * server, the client gets the same reply. Rejects as `send` does, and with `too_many_requests` if 32 requests are pending.
   */
  request<K extends keyof RoomReplies<R> & keyof RoomMessages<R> & string>(
    type: K,
    ...[data]: RequestArguments<RoomMessages<R>[K]>
  ): Promise<RoomReplies<R>[K]> {
    return this.#reported(
      async () => (await this.#seat.send(type, payloadOf(type, data), true)) as RoomReplies<R>[K],
    )
  }

  /** Leaves the room. Resolves when the seat has ended. Has no effect if the client is no longer in the room. */
  leave(): Promise<void> {
    return this.#reported(() => this.#seat.leave())
  }

  #reported<T>(work: () => Promise<T>): Promise<T> {
    return Reported.of(work(), (error) => this.#seat.failed(error))
  }
}

/** Subscription to a state; `select` subscribes to the result of a selector. */
export interface StateSubscription<State> {
  (callback: (state: State, previous: State) => void): Unsubscribe
  /** Calls `callback` when the result of `selector` has changed, by `Object.is`. */
  select<Selected>(
    selector: (state: State) => Selected,
    callback: (selected: Selected, previous: Selected) => void,
  ): Unsubscribe
}

/** Returns the subscription to a replica's state. */
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

/** Returns the data of a message. Throws a RoomfulError (invalid_payload) if the message cannot be sent. */
function payloadOf(type: unknown, data: unknown): Json {
  if (typeof type !== 'string')
    throw new RoomfulError('invalid_payload', `The message type is ${type}: pass its name, a string.`)
  return toJson(data ?? null, 'invalid_payload', `The data of message "${type}"`)
}

/** Returns a copy of `value`, so that later changes by the caller have no effect. Throws a RoomfulError with `code` if it is not JSON. */
export function toJson(value: unknown, code: RoomfulErrorCode, what: string): Json {
  try {
    return cloneJson(value)
  } catch (error) {
    if (!(error instanceof NotJson)) throw error
    throw new RoomfulError(code, `${what} cannot be sent: ${error.message}.`, { cause: error })
  }
}
