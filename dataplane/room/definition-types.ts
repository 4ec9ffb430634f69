import type { StandardSchemaV1 } from '@standard-schema/spec'
import type { Json, JsonObject } from '../../shared/json.ts'
import type { Immutable, TypedRoom, Visible } from '../../shared/room-types.ts'
import type { RequestAnswer, RoomRequest } from '../traffic.ts'

/** Rate limit of one message type for one player. */
export interface MessageRate {
  /** Average number of messages per second over a long time. */
  readonly perSecond: number
  /** Maximum number of messages that the player can send at one moment. Default: the messages of one second. */
  readonly burst?: number
}

export type Schemas = { readonly [name: string]: StandardSchemaV1 }
/** Inferred properties by name; `unknown` for names without the property. */
export type ByName = { readonly [name: string]: unknown }
export type In<S extends StandardSchemaV1> = StandardSchemaV1.InferInput<S>
export type Out<S extends StandardSchemaV1> = StandardSchemaV1.InferOutput<S>
/** Input of an optional schema. Without one: `null`. */
export type Input<S> = S extends StandardSchemaV1 ? In<S> : null
/** Output of an optional schema. Without one: `null`. */
export type Output<S> = S extends StandardSchemaV1 ? Out<S> : null
/**
 * A name with a value. A union of pairs lists the events, tasks or timers of a room type. A context with a larger union can be passed where
 * a smaller one is expected.
 */
export type Pair = readonly [name: string, value: unknown]
/** Schemas by name as pairs with their inputs. */
export type Inputs<T> = { [K in Names<T>]: readonly [name: K, value: Input<T[K]>] }[Names<T>]
/** Tasks without `retry`, as pairs with the inputs of their `result` schemas. */
export type OnceInputs<Tasks, Given> = {
  [K in Names<Tasks>]: DataOf<Given, K> extends StandardSchemaV1
    ? never
    : readonly [name: K, value: Input<Tasks[K]>]
}[Names<Tasks>]
/** Tasks with `retry`, as pairs with the inputs of their `data` schemas. */
export type RetryInputs<Given> = {
  [K in Names<Given>]: Given[K] extends StandardSchemaV1 ? readonly [name: K, value: In<Given[K]>] : never
}[Names<Given>]
type DataOf<Given, K> = K extends keyof Given ? Given[K] : undefined
/** The same for events. Without declared events: any name, any value. */
export type EventInputs<Events extends Schemas> = string extends Names<Events> ? Pair : Inputs<Events>
/** Value of the pair with a name. */
type ValueOf<P extends Pair, Name> = P extends readonly [infer N, infer Value]
  ? Name extends N
    ? Value
    : never
  : never
export type Names<T> = keyof T & string

/** A member as room logic sees it. */
export interface Member {
  /** Id of the member in this room. A player who leaves and joins again gets another id. */
  readonly id: string
  /** Player's id from the token; null if the token has none. */
  readonly sub: string | null
  /** True while the member's client is connected. A disconnected client may reconnect within `reconnectSeconds`. */
  readonly connected: boolean
  /** True for a spectator, false for a player. */
  readonly spectator: boolean
  /** Data from your backend about the player: the claim `data` of the player's token, or null. Other members do not get it. */
  readonly data: JsonObject | null
}

/** `T` with all properties writable, at every depth: the state that a handler may change in place. */
export type Draft<T> = unknown extends T
  ? T
  : Json extends T
    ? DraftJson
    : T extends object
      ? { -readonly [K in keyof T]: Draft<T[K]> }
      : T

/** Any JSON, writable. */
export type DraftJson = null | boolean | number | string | DraftJson[] | { [key: string]: DraftJson }

/** Input of a timer's handler. */
export interface TimerInput<Data> {
  /** Data from `ctx.after`, as the output of the timer's schema. */
  readonly data: Data
}

/** Outcome of a task. */
export type TaskOutcome<T> =
  | {
      /** The work succeeded. */
      readonly ok: true
      /** Result of the work, as the output of the task's `result` schema. */
      readonly value: T
    }
  | {
      /** The work has failed, or its result was lost. */
      readonly ok: false
      /**
       * Text of the exception or of the validation error. Or `moved`: another server process has taken over the room, and the work may be
       * done, partly done, or not done.
       */
      readonly error: string
    }

/** Information about one run of a task with `retry`. */
export interface TaskRun {
  /**
   * Id of the task: that of `ctx.task`. It is the same each time the task runs. Give it to your database or backend, so that it does the
   * work once.
   */
  readonly id: string
  /**
   * Sends a request to another room of the project, for room types of roomful itself (`system`). Resolves with the code `timeout` after
   * `waitMs`. Does not reject.
   * @internal
   */
  readonly ask?: (
    roomType: string,
    key: string,
    request: RoomRequest,
    waitMs: number,
  ) => Promise<RequestAnswer>
  /**
   * State of the room as of its last flush, for the same types. Use it immediately: the next flush changes it.
   * @internal
   */
  readonly state?: unknown
  /**
   * Returns a member of the room, for the same types. Undefined: no member has the id.
   * @internal
   */
  readonly memberOf?: (id: string) => Member | undefined
}

/** Id and data of a task with `retry`. */
export interface StartedTask<Data> {
  /** Id of the task, as in `TaskRun`. */
  readonly id: string
  /** Data from `ctx.task`, as the output of the task's schema. */
  readonly data: Data
}

/** A member's message of type `K`. */
export interface MessageInput<K extends string, Data> {
  /** Message type. */
  readonly type: K
  /** Data of the message, as the output of its schema; null if the type has no schema. */
  readonly data: Data
  /** Member that sent the message. */
  readonly member: Member
}

/** Argument of `ctx.reply` for message type `K`; `never` if the type declares no reply. */
export type ReplyTo<Replies, K> = K extends keyof Replies
  ? Replies[K] extends StandardSchemaV1
    ? In<Replies[K]>
    : never
  : never

/**
 * Messages that members may send, by type. The three mapped types let TypeScript infer data, reply and the result of `handle` for each type
 * before it checks the handlers.
 */
export type MessageSpecs<State, Messages, Replies, Handled, Context, Sent extends Pair> = {
  readonly [K in keyof Messages]: {
    /** Schema of the data. Default: the message has no data, and `data` is `null`. */
    readonly data?: Messages[K]
    /** Schema of the reply. If it is given, the handler must reply to each message, and `room.request` resolves to the reply. */
    readonly reply?: StandardSchemaV1
    /** Rate limit for one player. Default: only the limit for all messages of a client. */
    readonly rate?: MessageRate
    /** True: spectators may send it, too. Default: they are refused with `not_a_player`. */
    readonly spectators?: true
    /** Handles messages of this type. Default: `onMessage` does. */
    handle?(
      state: Draft<State>,
      input: MessageInput<K & string, Output<Messages[K]>>,
      ctx: MessageContext<Context, ReplyTo<Replies, K>>,
    ): HandlerResult<State, Sent>
  }
} & {
  readonly [K in keyof Replies]: {
    /** Schema of the reply. If it is given, the handler must reply to each message, and `room.request` resolves to the reply. */
    readonly reply?: Replies[K]
    /** Schema of the data. */
    readonly data?: StandardSchemaV1
  }
} & {
  readonly [K in keyof Handled]: {
    /** Handles messages of this type. Default: `onMessage` does. */
    readonly handle?: (...args: never) => Handled[K] & ExactResult<Handled[K]>
  }
}

/**
 * Turns a result with other keys than `state` and `event`, such as a promise, into an error text. TypeScript accepts any object in
 * intersections.
 */
type ExactResult<Result> = Result extends object
  ? [Exclude<keyof Result, 'state' | 'event'>] extends [never]
    ? unknown
    : 'return nothing, or an object with state, event or both'
  : unknown

/** Spectators of a room type: members who watch, and take no player's place. */
export interface SpectatorsSpec<State, Options extends StandardSchemaV1, Context, Sent extends Pair> {
  /** Maximum number of spectators. With `visible`: at most 50. */
  readonly max: number
  /**
   * Called when a member becomes a spectator: by its join, or by `ctx.unseat`. `options` are those of the member's own join. If it throws, the
   * join, or the turn that has changed the role, fails.
   */
  onJoin?(
    state: Draft<State>,
    member: Member,
    ctx: Context,
    options: Out<Options>,
  ): HandlerResult<State, Sent>
  /** Called when a member stops being a spectator: it has left, or `ctx.seat` has made it a player. */
  onLeave?(state: Draft<State>, member: Member, ctx: Context): HandlerResult<State, Sent>
  /** True: spectators are in the list of members that every client gets. Default: no list has them, and clients get only their number. */
  readonly visible?: boolean
}

/** Timers for `ctx.after`, by name. */
export type TimerSpecs<State, Timers extends Schemas, Context, Sent extends Pair> = {
  readonly [K in keyof Timers]: {
    /** Schema of the timer's data, at most 4 KiB of JSON. */
    readonly data: Timers[K]
    /**
     * Called when the timer fires. If the handler throws, its changes are undone, the error is logged, and the handler is not called again.
     */
    handle(state: Draft<State>, input: TimerInput<Out<Timers[K]>>, ctx: Context): HandlerResult<State, Sent>
  }
}

/** Tasks for `ctx.task`, by name. */
export type TaskSpecs<State, Tasks extends Schemas, Given, Context, Sent extends Pair> = {
  readonly [K in keyof Tasks]: {
    /** Schema of the work's result. */
    readonly result: Tasks[K]
    /** True: the task runs at least once. If another server process takes over the room, it runs again there. Needs `data` and `run`. */
    readonly retry?: true
    /** Schema of the data of a task with `retry`, at most 16 KiB of JSON. */
    readonly data?: StandardSchemaV1
    /** The work of a task with `retry`. It may run more than once, also at the same time on two server processes, always with the same `id`. */
    run?(data: Output<DataOf<Given, K>>, task: TaskRun): PromiseLike<In<Tasks[K]>> | In<Tasks[K]>
    /** Called when the work has ended. The state may have changed since the task started. */
    handle(
      state: Draft<State>,
      outcome: DataOf<Given, K> extends StandardSchemaV1
        ? TaskOutcome<Out<Tasks[K]>> & StartedTask<Output<DataOf<Given, K>>>
        : TaskOutcome<Out<Tasks[K]>>,
      ctx: Context,
    ): HandlerResult<State, Sent>
  }
} & {
  readonly [K in keyof Given]: {
    /** Schema of the data of a task with `retry`, at most 16 KiB of JSON. */
    readonly data?: Given[K]
  }
}

/** A call of a backend. */
export interface CallInput<Data> {
  /** Data of the call, as the output of its schema; null if the call has no schema. */
  readonly data: Data
  /** Sender of the call. */
  readonly caller: {
    /** Id of the API key. */
    readonly keyId: string
    /** `Idempotency-Key` of the call. roomful knows it for 10 minutes. To know it for longer, store it in the state. */
    readonly callId: string
  }
}

/** Calls that backends may make, by name. */
export type CallSpecs<State, Calls, Replies, Context, Sent extends Pair> = {
  readonly [K in keyof Calls]: {
    /** Schema of the data. Default: the call has no data, and `data` is `null`. */
    readonly data?: Calls[K]
    /** Schema of the reply. If it is given, the handler must reply to each call. Default: the reply is `null`. */
    readonly reply?: StandardSchemaV1
    /**
     * Handles the call, in one turn. roomful stores the outcome with the changes of the handler, so that a repeated call has no further
     * effect and gets the same answer.
     */
    handle(
      state: Draft<State>,
      input: CallInput<Output<Calls[K]>>,
      ctx: MessageContext<Context, ReplyTo<Replies, K>>,
    ): HandlerResult<State, Sent>
  }
} & {
  readonly [K in keyof Replies]: {
    /** Schema of the reply. If it is given, the handler must reply to each call. Default: the reply is `null`. */
    readonly reply?: Replies[K]
    /** Schema of the data. */
    readonly data?: StandardSchemaV1
  }
}

/** Message types for `onMessage`: those without `handle`, whose result is not known. */
export type Unhandled<Messages, Handled> = {
  [K in Names<Messages>]: K extends keyof Handled ? (unknown extends Handled[K] ? K : never) : K
}[Names<Messages>]

/** Input of `onMessage`: a message whose type has no `handle`. Narrow it by `type`. */
export type RoomInput<Messages, Types extends Names<Messages>> = {
  [K in Types]: MessageInput<K, Output<Messages[K]>>
}[Types]

/** Recipients of an event: one or several members or member ids, or the members that have a layer. Ids that no member has are ignored. */
export type Recipients =
  | string
  | Member
  | readonly (string | Member)[]
  | {
      /** Name of the layer. */
      readonly layer: string
    }

/** Event in a handler's result. `Events`: names of the room type's events, each with its data. */
export type OutgoingEvent<Events extends Pair> = Events extends readonly [infer Name, infer Data]
  ? {
      /** Name of the event. */
      readonly name: Name
      /** Data for the members. */
      readonly data: Data
      /** Recipients. Default: all members. */
      readonly to?: Recipients
    }
  : never

/** Result of a handler. A handler that changes the state in place needs none, unless it also returns an event. */
export type HandlerResult<State, Events extends Pair> =
  | {
      /** New state, which replaces the whole state. */
      readonly state?: State | Draft<State> | undefined
      /** Event that the room sends, as with `ctx.emit`. */
      readonly event?: OutgoingEvent<Events> | undefined
    }
  // biome-ignore lint/suspicious/noConfusingVoidType: a handler that returns nothing is one
  | void

/** Logger for room code. Each line has the room's id. Do not log tokens or chat texts. */
export interface RoomLog {
  /** Logs a detail for debugging, shown with `LOG_LEVEL=debug`. */
  debug(fields: object, message: string): void
  /** Logs a normal occurrence. */
  info(fields: object, message: string): void
  /** Logs a problem that the code has handled. */
  warn(fields: object, message: string): void
  /** Logs a problem that a person must handle. */
  error(fields: object, message: string): void
}

/**
 * Context of a handler, for helper functions that work in every room type: `function deal(state: Table, ctx: RoomContext)`. It lacks
 * `emit`, `notify`, `task`, `after` and `reply`. If a function calls one of these, use `ContextOf`. If the handler throws, its calls of the
 * context have no effect.
 */
export interface RoomContext {
  /** `type:key`. */
  readonly roomId: string
  /** Key of the room, with which clients join it. */
  readonly key: string
  /** Time at which this call of the handler started, in milliseconds since 1970. */
  readonly now: number
  /**
   * Milliseconds for which no server process ran the room, in its first call of a handler after that: while it slept, after a crash, or while
   * it moved in a deployment (a few milliseconds). Counts until a call does not throw; in all later calls, and in new rooms, it is 0. So a
   * handler can write `state.endsAt += ctx.awayMs`.
   */
  readonly awayMs: number
  /**
   * All members, players and spectators, in the order they joined. In `onJoin`, the new member is included. In `onLeave`, a member that leaves
   * the room is not included.
   */
  readonly members: readonly Member[]
  /** The players among the members. */
  readonly players: readonly Member[]
  /** The spectators among the members. */
  readonly spectators: readonly Member[]
  /** Logger. Each log line has the room's id. */
  readonly log: RoomLog
  /** Returns a random number from 0 up to, but not including, 1. */
  random(): number
  /**
   * Gives a member a layer, which is a hidden part of the state. With the next update, the member's client receives the layer's content,
   * and later its changes. The member keeps the layer until `hide` is called or the member leaves, also if another server process takes
   * over the room. `layer` is a name from the room type's `layers`. Ids that no member has are ignored.
   */
  show(member: string | Member, layer: string): void
  /** Takes a layer away from a member with the next update. The player may remember what the layer contained. */
  hide(member: string | Member, layer: string): void
  /** Ends the room. All members leave with the reason `closed`. Then `onDispose` is called. `onLeave` is not called. */
  close(): void
  /**
   * Removes a member, who leaves with the reason `kicked`. `onLeave` is called. Only this member gets `reason`, a text for the player, cut
   * to 300 characters. If `ban` is true, the player's other clients are removed, too, and later joins of the player are rejected with
   * `banned` until `unban` is called. Bans are stored with the state and end with the room. With `ban`, the call throws if the member has
   * no `sub`, or if the room already has 1,000 bans.
   */
  kick(member: string | Member, reason?: string, options?: { readonly ban?: boolean }): void
  /** Ends the ban of the player with this `sub`. Returns false if the player was not banned. */
  unban(sub: string): boolean
  /**
   * Keeps a seat for the player with this `sub`, for so many seconds or until the player joins. The seat counts as taken (`maxPlayers`):
   * only this player can join in its place, and `admit` still decides. Returns false if the room has no free seat or has banned the player,
   * and true without effect if the player is a member. Another call for the same player can make the time longer, not shorter. Reservations
   * are stored with the state. A room has at most 1,000. Throws if the durability is `none`.
   */
  reserve(sub: string, seconds: number): boolean
  /**
   * Makes a spectator a player. The member has the place from this call on. After the handler, in the same turn, `spectators.onLeave` and
   * `onJoin` are called for the member. If one of them throws or refuses, the turn fails as a whole. The layers that were shown to the
   * member end between the two calls. A reservation of the player is used up.
   *
   * Returns false, without effect, if no place is free (reservations of other players and joins whose `admit` is running count), if the
   * player is a player here already and `sameSub` is not `allow`, if the member is no spectator or not connected, or if the options of its
   * join no longer fit the schema. Throws if the member has changed its role in this turn, after 100 changes of roles in a turn, and in a room
   * type without `spectators`.
   */
  seat(member: string | Member): boolean
  /**
   * Makes a player a spectator, as `seat` does the opposite: `onLeave` and `spectators.onJoin` are called. Returns false, without effect, if the
   * room has `spectators.max` spectators, if the member is no player, or if the options of its join no longer fit the schema.
   */
  unseat(member: string | Member): boolean
  /** Cancels the timer with this id. Returns false if there is no such timer, for example because it has fired. */
  cancel(id: string): boolean
  /**
   * Refuses the message or join. Throws an exception that ends the handler: the state does not change, and other calls of `ctx` have no
   * effect. The sender's promise rejects with `room_logic_refused` and `message`, a text for the player, cut to 300 characters. roomful
   * does not log refusals.
   */
  refuse(message: string): never
}

/** Context of a handler of one room type. To name this type in your code, use `ContextOf`. */
// The functions are properties, because TypeScript compares the parameters of methods too loosely: a helper of another room type would pass.
export interface TurnContext<
  in Events extends Pair,
  in Tasks extends Pair,
  in Timers extends Pair,
  in Retries extends Pair,
  in Notices extends Pair,
> extends RoomContext {
  /** Sends an event with the next update, to all members or to those in `to`. */
  readonly emit: <K extends Events[0]>(name: K, data: ValueOf<Events, K>, to?: Recipients) => void
  /**
   * Starts slow work, such as a database query. `work` is called at most once, after the changes of this handler are stored (with
   * durability `snapshot` or `none`: after they are sent). The handler of the task `name` gets the outcome. If another server process takes
   * over the room before the work has ended, the outcome is `{ ok: false, error: 'moved' }`. Throws if the room has 100 unfinished tasks
   * (`maxRoomTasks`).
   *
   * `ctx.task(name, data, { id })` starts a task with `retry`, which calls the task's `run`. It runs at least once: if another server
   * process takes over the room before the work has ended, the task runs again there, with the same `id` (1 to 96 bytes; default: a new
   * one). With durability `none` the task ends with its server process. Throws if the room has an unfinished task with this id.
   */
  readonly task: StartTask<Tasks, Retries>
  /**
   * Sets a timer and returns its id. The handler of `timer` is called once, `ms` milliseconds after `now`. If `ms` is 0 or less, it is
   * called soon after the current handler. If a timer with this `id` (1 to 96 bytes) exists, the new timer replaces it. If the current
   * handler throws, no timer is set. Timers are stored with the state. Throws if the room has 1,000 timers (`maxRoomTimers`).
   */
  readonly after: <K extends Timers[0]>(
    ms: number,
    timer: K,
    data: ValueOf<Timers, K>,
    options?: { readonly id?: string },
  ) => string
  /**
   * Sends a notice to your backend (`NOTIFY_URL`). The notice is stored together with the changes of this handler, and then sent until the
   * backend accepts it, also if the server crashes or the room ends. The backend may receive it more than once, with the same id. `data`:
   * at most 16 KiB of JSON. Throws if 1,000 notices of the room wait.
   */
  readonly notify: <K extends Notices[0]>(name: K, data: ValueOf<Notices, K>) => void
}

/** `ctx.task`. */
export interface StartTask<in Tasks extends Pair, in Retries extends Pair> {
  <K extends Tasks[0]>(work: () => PromiseLike<ValueOf<Tasks, K>>, name: K): void
  <K extends Retries[0]>(name: K, data: ValueOf<Retries, K>, options?: { readonly id?: string }): void
}

/** Context of a message's handler. */
export type MessageContext<Context, Reply> = Context & {
  /**
   * Replies to the message, if the message type declares a `reply`. Call it exactly once, with at most 4 KiB of JSON. The sender gets the
   * reply together with the changes of the handler. If the connection is lost, the sender gets the same reply after the reconnect.
   */
  readonly reply: (value: Reply) => void
}

/** Contexts that a definition's handlers get. */
interface Contexts<Context, Given> {
  /** Context of handlers without `reply`. */
  readonly context: Context
  /** Value that `reply` takes, by message type. */
  readonly given: Given
}

/**
 * Context of the handlers of one room type, for helper functions that they call: `function endTurn(ctx: ContextOf<typeof duel>)`. With a
 * message type, as in `ContextOf<typeof duel, 'strike'>`, the context has `reply`. Do not return the result of such a function from a
 * handler, because the type of the definition would depend on itself. Write `(state, _input, ctx) => { endTurn(ctx) }` with braces.
 */
export type ContextOf<R extends TypedRoom, Message extends string = never> =
  NonNullable<R['~types']> extends Contexts<infer Context, infer Given>
    ? [Message] extends [never]
      ? Context
      : MessageContext<Context, Message extends keyof Given ? Given[Message] : never>
    : never

/** Context of `admit`. */
export interface AdmitContext<State = unknown> {
  /** `type:key`. */
  readonly roomId: string
  /** Key of the room, with which clients join it. */
  readonly key: string
  /** Time of the call, in milliseconds since 1970. */
  readonly now: number
  /** Current members in the order they joined. The join that `admit` decides about is not included; another client of the same player may be. */
  readonly members: readonly Member[]
  /** The players among the members. */
  readonly players: readonly Member[]
  /** The spectators among the members. */
  readonly spectators: readonly Member[]
  /** State of the room. The state may change before the player joins. */
  readonly state: Immutable<State>
  /** Logger. Each log line has the room's id. */
  readonly log: RoomLog
}

/** Result of `admit`. To admit the player, return nothing. To refuse the join, return a text for the player. */
// biome-ignore lint/suspicious/noConfusingVoidType: an admit that returns nothing admits
export type Admission = string | undefined | void

/**
 * Function that converts a state of one version to the next version. Declare the type of the old state: `(state: StateOfVersion1) => …`.
 */
// biome-ignore lint/suspicious/noExplicitAny: the state of an old version is what its author says it was
export type Migration = (state: any) => unknown

/** Project and type of a room. */
export interface RoomOrigin {
  /** Project of the room. Rooms of two projects may have the same key. */
  readonly projectId: string
  /** Type of the room. */
  readonly roomType: string
}

/** Key and age of a saved state. */
export interface SavedAs extends RoomOrigin {
  /** Key of the room. */
  readonly key: string
  /**
   * Number that grows each time a server process opens the room. Saves may arrive in the wrong order. Of two saves, the save with the
   * larger `epoch` is newer. If the epochs are equal, the save with the larger `seq` is newer. Your database must reject a save that is
   * older than the stored row.
   */
  readonly epoch: number
  /** Number that grows with each update of the room. */
  readonly seq: number
  /**
   * True if the room ends with this state. No other save follows, except a retry of this save. If nothing has changed since the previous
   * save, the room ends without another save. To get a save with `last: true` at each end, change the state in `onDispose`.
   */
  readonly last: boolean
}

/** Options for saving a room's state to a database. */
export interface RoomSave<State> {
  /** roomful saves a change at the latest this many seconds later, and not more often than once in this time. 1 to 86,400. */
  readonly everySeconds: number
  /**
   * Writes the state to your database. `state` is a frozen copy of the stored state. If the promise rejects or takes longer than 30 s,
   * roomful calls `to` again after a pause, with the newest state.
   */
  readonly to: (state: Immutable<State>, room: SavedAs) => PromiseLike<unknown> | undefined
}

/** Facts about a room besides its state, for its row in lists. */
export interface ListedRoomFacts {
  /** Key of the room, with which clients join it. */
  readonly key: string
  /** Number of players. */
  readonly players: number
  /** Maximum number of players. Infinity: no limit. */
  readonly maxPlayers: number
}

/** Data of a row. Without `data`, any: then the only type error is the missing property, and not also the result of `of`. */
type RowOf<Data extends StandardSchemaV1> = [Data] extends [never] ? Json : In<Data>

/** Row of a room in lists of rooms (`client.rooms`). */
export interface ListingSpec<State, Data extends StandardSchemaV1, Patterns extends string> {
  /** Schema of the row's data. Clients can search by its scalar fields. */
  readonly data: Data
  /**
   * Returns the row's data, at most 1 KiB of JSON, or null: the room is not listed. `state` is what every member sees, without hidden
   * parts. It is read-only, and invalid after the call. The function must be pure. roomful calls it after stored changes, at most once a
   * second. If it throws, or if its result does not fit `data`, the previous row stays and roomful logs the error.
   */
  readonly of: (state: Visible<State, Patterns>, room: ListedRoomFacts) => RowOf<Data> | null
  /** True: the room stays in lists while it sleeps (`onIdle: 'sleep'`). Default: it does not. */
  readonly sleeping?: boolean
}

/** Queue of a room type, as its nodes see it. */
export interface Matches {
  /** Room type of the matches. */
  readonly room: string
  /** Maximum number of players of a match. */
  readonly players: number
  /** Describes the queue of a room. `log`: logger of the room. `state`: its state as of the last flush. */
  figures(log: RoomLog, state: unknown): QueueFigures
}

/** Figures of a queue for operators. */
export interface QueueFigures {
  /** Tickets that wait for a match. */
  readonly waiting: number
  /** Unix time in milliseconds since which the oldest of them waits; undefined: none waits. */
  readonly oldestSince: number | undefined
  /** Matches whose room has not answered yet. */
  readonly pendingMatches: number
  /** Matches since this node has the queue. */
  readonly matches: number
  /** Rules that failed and matches that were cancelled, since then. */
  readonly failures: number
}
