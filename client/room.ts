import type { Json } from '../shared/json.ts'
import type {
  Immutable,
  RoomEvents,
  RoomMessages,
  RoomOptions,
  RoomReplies,
  TypedRoom,
  UntypedRoom,
  VisibleState,
} from '../shared/room-types.ts'
import { cloneJson, NotJson } from '../shared/sync/check.ts'
import { RoomfulError, type RoomfulErrorCode } from './errors.ts'
import type { RoomQuery } from './finding.ts'
import { Reported, type Unsubscribe } from './listeners.ts'
import type { Member, Replica } from './replica.ts'
import type { LeaveReason, Seat } from './seat.ts'

/**
 * Status of this client in a room.
 * - `joined`: this client is a member.
 * - `rejoining`: the client was offline for too long, or the server lost its session. It is joining again as a new member.
 * - `left`: final.
 */
export type RoomStatus = 'joined' | 'rejoining' | 'left'

/** Options of `send`. */
export interface SendOptions {
  /**
   * True (default): the client sends the message again until the server acknowledges it. False: the client sends the message once. While
   * the client is offline, it drops the message.
   */
  readonly reliable?: boolean
}

/** Arguments of `send` after the message type. The data may be omitted if the data may be null. */
export type SendArguments<Data> = null extends Data
  ? [data?: Data, options?: SendOptions]
  : [data: Data, options?: SendOptions]

/** Arguments of `request` after the message type. The data may be omitted if the data may be null. */
export type RequestArguments<Data> = null extends Data ? [data?: Data] : [data: Data]

/**
 * A room that this client has joined. `R` is the type of the room's definition, such as `typeof arena`. From it, TypeScript infers the
 * types of the state, the messages and the events.
 */
export class Room<R extends TypedRoom = TypedRoom<UntypedRoom>> {
  readonly #seat: Seat
  /**
   * Calls `callback` after each change of the state, with the new and the previous state. `onStateChange.select(selector, callback)` calls
   * `callback` only when the result of `selector` has changed (compared with `Object.is`), with the new and the previous result.
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

  /** Type of the room. */
  get type(): R['type'] {
    return this.#seat.roomType
  }

  /** Key of the room, for `join` and for requests of your backend. */
  get key(): string {
    return this.id.slice(this.type.length + 1)
  }

  /** Code of the room, for `joinByCode`. Undefined: its type has no `codes`. */
  get code(): string | undefined {
    return this.#seat.code
  }

  /** Status of this client in the room. */
  get status(): RoomStatus {
    const { status } = this.#seat
    return status === 'joining' || status === 'resuming' ? 'rejoining' : status
  }

  /** This client's member id. If the client joins again after a long outage, the id changes. */
  get memberId(): string {
    return this.#seat.memberId
  }

  /** True if this client watches (`join` with `watch`). The room may change that. If the client must join again, it asks for its last role. */
  get spectator(): boolean {
    return this.#seat.spectator
  }

  /**
   * The players, including this client if it plays, and the spectators if the room type has `spectators.visible`. Each change creates a new
   * array.
   */
  get members(): readonly Member[] {
    return this.#seat.replica.members
  }

  /** The members who play. */
  get players(): readonly Member[] {
    return this.members.filter(({ spectator }) => !spectator)
  }

  /** Number of members who watch. The server sends it directly after the join, and then at most once a second. */
  get spectators(): number {
    return this.#seat.replica.spectators
  }

  /** The current state, immutable. After the client has left: the last state that it received. */
  get state(): VisibleState<R> {
    return this.#seat.replica.state as VisibleState<R>
  }

  /**
   * True while the client waits for a complete state, because an update was missing. Until it arrives, `state` may lack effects of
   * acknowledged messages.
   */
  get resyncing(): boolean {
    return this.#seat.replica.resyncing
  }

  /**
   * Calls `callback` with the data of each event of this name. The client keeps events that have no callback, at most the latest 64 of the
   * room. When you add the first callback for a name, the client calls it with the kept events of this name, after the current synchronous
   * code.
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

  /** Calls `callback` when a member joins, leaves, disconnects, reconnects or changes its role, and when `spectators` changes. */
  onMembersChange(callback: (members: readonly Member[], previous: readonly Member[]) => void): Unsubscribe {
    return this.#seat.replica.onMembers.add(callback)
  }

  /** Calls `callback` once, when this client is no longer in the room. `error` is undefined if this client called `leave`. */
  onLeave(callback: (reason: LeaveReason, error: RoomfulError | undefined) => void): Unsubscribe {
    return this.#seat.onLeave.add(callback)
  }

  /**
   * Calls `callback` with the error of each rejection that your code does not await, for example of a `send` without `await`. If there is
   * no callback, the error goes to the option `onError` of `connect`, or else to the console.
   */
  onError(callback: (error: unknown) => void): Unsubscribe {
    return this.#seat.onError.add(callback)
  }

  /**
   * Sends a message to the room. The room applies the message exactly once and in order, also if the connection is lost in between.
   *
   * The promise resolves when the room has applied the message. In a room with the default `durability: 'journal'`, the result is then also stored. The promise rejects with
   * a RoomfulError if the room refuses the message, or with `queue_full` if too many messages are unacknowledged. If the client is offline
   * for too long before the answer arrives, the promise rejects with `resume_failed`: the room may or may not have applied the message.
   *
   * With `{ reliable: false }`, the promise resolves immediately. The message is dropped if the client is offline, or if it exceeds the
   * server's rate limit.
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
   * Sends a message whose type declares a reply, and resolves to the reply. If the connection is lost or the server crashes, the client
   * still gets the same reply. Rejects as `send` does, and with `too_many_requests` if 32 requests are pending.
   */
  request<K extends keyof RoomReplies<R> & keyof RoomMessages<R> & string>(
    type: K,
    ...[data]: RequestArguments<RoomMessages<R>[K]>
  ): Promise<RoomReplies<R>[K]> {
    return this.#reported(
      async () => (await this.#seat.send(type, payloadOf(type, data), true)) as RoomReplies<R>[K],
    )
  }

  /** Leaves the room. Resolves when the room has removed this client. Has no effect if the client is no longer in the room. */
  leave(): Promise<void> {
    return this.#reported(() => this.#seat.leave())
  }

  #reported<T>(work: () => Promise<T>): Promise<T> {
    return Reported.of(work(), (error) => this.#seat.failed(error))
  }
}

/** Function that subscribes to the state, with the method `select`. */
export interface StateSubscription<State> {
  (callback: (state: State, previous: State) => void): Unsubscribe
  /** Calls `callback` when the result of `selector` has changed, compared with `Object.is`. */
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

/** Options of a join: `key`, and the options of the room type. */
export type RoomJoinOptions<R extends TypedRoom> = RoomOptions<R> & {
  /** Key of the room, 1 to 128 characters. Default `"default"`. */
  readonly key?: string
}

/** Arguments of `join` after the room type. The options may be omitted if none of them is required. */
export type JoinArguments<R extends TypedRoom> =
  Record<never, never> extends RoomOptions<R> ? [options?: RoomJoinOptions<R>] : [options: RoomJoinOptions<R>]

/** Arguments of `create` after the room type. */
export type CreateArguments<R extends TypedRoom> =
  Record<never, never> extends RoomOptions<R> ? [options?: RoomOptions<R>] : [options: RoomOptions<R>]

/** Arguments of `joinOrCreate` after the room type. */
export type JoinOrCreateArguments<R extends TypedRoom> =
  Record<never, never> extends RoomOptions<R>
    ? [options?: RoomOptions<R>, query?: Pick<RoomQuery<R>, 'where' | 'order'>]
    : [options: RoomOptions<R>, query?: Pick<RoomQuery<R>, 'where' | 'order'>]

/** The room of a definition; of several definitions, one of their rooms. */
export type RoomOf<R extends TypedRoom> = R extends unknown ? Room<R> : never
