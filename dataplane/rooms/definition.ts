export type {
  RoomEvents,
  RoomMessages,
  RoomOptions,
  RoomReplies,
  RoomState,
  VisibleState,
} from '../../shared/room-types.ts'

import type { StandardSchemaV1 } from '@standard-schema/spec'
import * as v from 'valibot'
import type { Json, JsonObject } from '../../shared/json.ts'
import type { Immutable, TypedRoom } from '../../shared/room-types.ts'
import { checkSpec, RoomDefinitionError } from './definition-check.ts'
import type { LayerRules } from './layer-rules.ts'
import type { JsonState, LayersOf } from './state-types.ts'

export type { LayerRule, LayerRules } from './layer-rules.ts'

/** Marks a room definition. The symbol is registered, because a process may load the module more than once. */
export const ROOM: unique symbol = Symbol.for('roomful.room') as never

/** How a room's updates reach the store. `journal`: before members receive them; `snapshot`: within a second; `none`: never. */
export type Durability = 'journal' | 'snapshot' | 'none'

/** Rate limit of one message type for one player. */
export interface MessageRate {
  /** Messages per second over a long time. */
  readonly perSecond: number
  /** Maximum number of messages at one moment. Default: the messages of one second. */
  readonly burst?: number
}

type Schemas = { readonly [name: string]: StandardSchemaV1 }
/** Inferred properties by name; `unknown` for names without the property. */
type ByName = { readonly [name: string]: unknown }
type In<S extends StandardSchemaV1> = StandardSchemaV1.InferInput<S>
type Out<S extends StandardSchemaV1> = StandardSchemaV1.InferOutput<S>
/** Input of an optional schema. Without one: `null`. */
type Input<S> = S extends StandardSchemaV1 ? In<S> : null
/** Output of an optional schema. Without one: `null`. */
type Output<S> = S extends StandardSchemaV1 ? Out<S> : null
/** A name with a value. Unions of pairs, unlike objects, let a context with more names stand for one with fewer. */
export type Pair = readonly [name: string, value: unknown]
/** Schemas by name as pairs with their inputs. */
type Inputs<T> = { [K in Names<T>]: readonly [name: K, value: Input<T[K]>] }[Names<T>]
/** The same for events. Without declared events: any name, any value. */
type EventInputs<Events extends Schemas> = string extends Names<Events> ? Pair : Inputs<Events>
/** Value of the pair with a name. */
type ValueOf<P extends Pair, Name> = P extends readonly [infer N, infer Value]
  ? Name extends N
    ? Value
    : never
  : never
type Names<T> = keyof T & string

/** A member as room logic sees it. */
export interface Member {
  /** Id of the member's seat in this room. A player who leaves and joins again gets another id. */
  readonly id: string
  /** Player's id from the token; null if the token has none. */
  readonly sub: string | null
  /** True while the member's client is connected. A disconnected client may reconnect within `reconnectSeconds`. */
  readonly connected: boolean
  /** Claim `data` of the player's current token, or null. Only room code gets `data`; other members do not. */
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

/**
 * Outcome of a task: the output of its `result` schema, or the reason why there is no result. The reason is the text of the exception or of
 * the validation error, or `moved`.
 */
export type TaskOutcome<T> =
  | {
      /** The work succeeded. */
      readonly ok: true
      /** Result of the work, as the output of the schema. */
      readonly value: T
    }
  | {
      /** The work failed or was lost. */
      readonly ok: false
      /** Reason as a text. `moved`: another node has taken over the room, and the work may or may not have been done. */
      readonly error: string
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
type ReplyTo<Replies, K> = K extends keyof Replies
  ? Replies[K] extends StandardSchemaV1
    ? In<Replies[K]>
    : never
  : never

/**
 * Messages that members may send, by type. Three mapped types let TypeScript infer data, reply and the result of `handle` for each
 * type before it checks the handlers.
 */
export type MessageSpecs<State, Messages, Replies, Handled, Context, Sent extends Pair> = {
  readonly [K in keyof Messages]: {
    /** Schema of the data. Default: the message has no data; it is `null`. */
    readonly data?: Messages[K]
    /** Schema of the reply. With it, the handler must reply to each message, and `room.request` resolves to the reply. */
    readonly reply?: StandardSchemaV1
    /** Rate limit for one player. Default: only the session's limit. */
    readonly rate?: MessageRate
    /** Handles messages of this type. Default: `onMessage` does. */
    handle?(
      state: Draft<State>,
      input: MessageInput<K & string, Output<Messages[K]>>,
      ctx: MessageContext<Context, ReplyTo<Replies, K>>,
    ): HandlerResult<State, Sent>
  }
} & {
  readonly [K in keyof Replies]: {
    /** Schema of the reply. With it, the handler must reply to each message, and `room.request` resolves to the reply. */
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

/** A text for a result with other keys than `state` and `event`, such as a promise. In intersections TypeScript accepts any object there. */
type ExactResult<Result> = Result extends object
  ? [Exclude<keyof Result, 'state' | 'event'>] extends [never]
    ? unknown
    : 'return nothing, or an object with state, event or both'
  : unknown

/** Timers for `ctx.after`, by name. */
export type TimerSpecs<State, Timers extends Schemas, Context, Sent extends Pair> = {
  readonly [K in keyof Timers]: {
    /** Schema of the timer's data, at most 4 KiB of JSON. */
    readonly data: Timers[K]
    /**
     * Called when the timer fires, as a turn. If the handler throws, its changes are undone and the error is logged. The timer is not
     * retried.
     */
    handle(state: Draft<State>, input: TimerInput<Out<Timers[K]>>, ctx: Context): HandlerResult<State, Sent>
  }
}

/** Tasks for `ctx.task`, by name. */
export type TaskSpecs<State, Tasks extends Schemas, Context, Sent extends Pair> = {
  readonly [K in keyof Tasks]: {
    /** Schema of the work's result. */
    readonly result: Tasks[K]
    /** Handles the outcome in a new turn. The state may have changed since the task started. */
    handle(state: Draft<State>, outcome: TaskOutcome<Out<Tasks[K]>>, ctx: Context): HandlerResult<State, Sent>
  }
}

/** Message types for `onMessage`: those without `handle`, whose result is not known. */
type Unhandled<Messages, Handled> = {
  [K in Names<Messages>]: K extends keyof Handled ? (unknown extends Handled[K] ? K : never) : K
}[Names<Messages>]

/** Input of `onMessage`: a message whose type has no `handle`. Narrow it by `type`. */
export type RoomInput<Messages, Types extends Names<Messages>> = {
  [K in Types]: MessageInput<K, Output<Messages[K]>>
}[Types]

/** Recipients of an event: one or several members or member ids, or the members with a layer. Unknown members are ignored. */
export type Recipients =
  | string
  | Member
  | readonly (string | Member)[]
  | {
      /** Name of the layer. */
      readonly layer: string
    }

/** Event in a handler's result. `Events`: pairs of its name and its data. */
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

/** Result of a handler, instead of or in addition to changing the state in place. */
export type HandlerResult<State, Events extends Pair> =
  | {
      /** Replaces the whole state. */
      readonly state?: State | Draft<State> | undefined
      /** Event to send, as `ctx.emit` does. */
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
 * Context of a handler, for functions that work in every room: `function deal(state: Table, ctx: RoomContext)`. A function that calls `emit`,
 * `task`, `after` or `reply` takes a `ContextOf`. Its calls take effect only if the handler returns normally.
 */
export interface RoomContext {
  /** `type:key`. */
  readonly roomId: string
  /** Key of the room, with which clients join it. */
  readonly key: string
  /** Start of this turn, in milliseconds since 1970. */
  readonly now: number
  /** All members in the order they joined. `onJoin` includes the new member; `onLeave` does not include the leaving one. */
  readonly members: readonly Member[]
  /** Writes to the log of the node, with the room's id. */
  readonly log: RoomLog
  /** Returns a random number in [0, 1). */
  random(): number
  /**
   * Gives a member a layer: from the next flush on, its client receives the layer's content and changes. The member keeps the layer until
   * `hide` or until it leaves, also with the next owner of the room. Layer names come from the room type's `layers`. Unknown members are
   * ignored.
   */
  show(member: string | Member, layer: string): void
  /** Takes a shown layer away from a member with the next flush. The player may remember what the layer contained. */
  hide(member: string | Member, layer: string): void
  /** Ends the room: all members leave with the reason `closed`. Then `onDispose` runs. `onLeave` does not run. */
  close(): void
  /**
   * Removes a member: `onLeave` runs, and the member leaves with the reason `kicked`. Only this member also gets `reason`, a text
   * for the player, cut to 300 characters. `ban` also removes the player's other seats, and rejects later joins of the player with `banned`,
   * until `unban`. Bans are part of the room's state: the next owner has them, too, and they end with the room. Throws if the member has no
   * `sub`, or if the room has 1,000 bans.
   */
  kick(member: string | Member, reason?: string, options?: { readonly ban?: boolean }): void
  /** Ends the ban of the player with this `sub`. Returns false if the player was not banned. */
  unban(sub: string): boolean
  /** Cancels the timer with this id. Returns false if there is no such timer, for example because it has fired. */
  cancel(id: string): boolean
  /**
   * Refuses the message or join. Throws, which ends the turn: the state does not change and other calls of `ctx` have no effect. The sender
   * gets `room_logic_refused` with `message`, a text for the player, cut to 300 characters. Refusals are not logged.
   */
  refuse(message: string): never
}

/** Context of a handler of one room type. Its parameters are pairs of a name and what goes with it. `ContextOf` takes it from the definition. */
// The functions are properties, because TypeScript compares the parameters of methods too loosely: a helper of another room type would pass.
export interface TurnContext<in Events extends Pair, in Tasks extends Pair, in Timers extends Pair>
  extends RoomContext {
  /** Sends an event with the next flush, to all members or to those in `to`. */
  readonly emit: <K extends Events[0]>(name: K, data: ValueOf<Events, K>, to?: Recipients) => void
  /**
   * Starts slow work. `work` is called at most once, after the update of this turn is committed. The task's `handle` gets the outcome. If
   * the room changes its node first, the outcome is `{ ok: false, error: 'moved' }`. Throws if the room has 100 tasks in flight
   * (`maxRoomTasks`).
   */
  readonly task: <K extends Tasks[0]>(work: () => PromiseLike<ValueOf<Tasks, K>>, name: K) => void
  /**
   * Sets a timer and returns its id. The handler runs once, `ms` milliseconds after `now`, or in the next turn if `ms` is 0 or less. If the
   * turn fails, no timer is set. Timers are part of the room's state and move with the room. A timer with the same `id` (1 to 96 bytes) is
   * replaced. Throws if the room has 1,000 timers (`maxRoomTimers`).
   */
  readonly after: <K extends Timers[0]>(
    ms: number,
    timer: K,
    data: ValueOf<Timers, K>,
    options?: { readonly id?: string },
  ) => string
}

/** Context of a message's handler. */
export type MessageContext<Context, Reply> = Context & {
  /**
   * Replies to the message, if its type declares a `reply`: exactly once per turn, with at most 4 KiB of JSON. The sender gets the reply
   * after the turn is committed, and the same reply again if it resends the message.
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
 * Context of the handlers of a definition, for functions that they call: `function endTurn(ctx: ContextOf<typeof duel>)`. With a message
 * type, as in `ContextOf<typeof duel, 'strike'>`, it has `reply`. Do not return the result of such a function from a handler: write
 * `{ endTurn(ctx) }`. The type of the definition would depend on itself.
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
  /** Current members in the order they joined, without the joining one. */
  readonly members: readonly Member[]
  /** State of the room. It may change before the player joins. */
  readonly state: Immutable<State>
  /** Writes to the log of the node, with the room's id. */
  readonly log: RoomLog
}

/** Result of `admit`. Return nothing to admit the player. Return a string to refuse the join, with this text, with the string as the reason. */
// biome-ignore lint/suspicious/noConfusingVoidType: an admit that returns nothing admits
export type Admission = string | undefined | void

/** Converts a state of one version to the next. Declare the old type: `(state: StateOfVersion1) => …`. */
// biome-ignore lint/suspicious/noExplicitAny: the state of an old version is what its author says it was
export type Migration = (state: any) => unknown

/** Identification of a saved state. */
export interface SavedAs {
  /** Key of the room. */
  readonly key: string
  /**
   * Epoch of the owner. Of two saves, the one with the larger epoch is newer. If the epochs are equal, the one with the larger `seq` is newer.
   * Saves may arrive in any order, also a save of a former owner after a save of the next owner. The database must reject older saves.
   */
  readonly epoch: number
  /** Number of the update that produced the state. */
  readonly seq: number
  /** Project of the room. Rooms of two projects may have the same key. */
  readonly projectId: string
  /**
   * True if the room ends with this state. No other save follows, except a retry of this save. If a room ends without a change since its
   * last save, it is not saved again. To get a save with `last` at each end, change the state in `onDispose`.
   */
  readonly last: boolean
}

/** Options for saving a room's state to a database. */
export interface RoomSave<State> {
  /** Maximum time between a change and its save, and minimum time between two saves, in seconds: 1 to 86,400. */
  readonly everySeconds: number
  /**
   * Saves a frozen copy of the committed state. If the promise rejects or takes longer than 30 s, roomful calls `to` again after a pause, with
   * the state of that time.
   */
  readonly to: (state: Immutable<State>, room: SavedAs) => PromiseLike<unknown> | undefined
}

/** Argument of `defineRoom`. Write `create` before the handlers, so that TypeScript knows the state's type there. */
export interface RoomSpec<
  Type extends string,
  State,
  Messages,
  Replies,
  Handled,
  Events extends Schemas,
  Tasks extends Schemas,
  Options extends StandardSchemaV1,
  Timers extends Schemas,
  Patterns extends string,
  Context = TurnContext<EventInputs<Events>, Inputs<Tasks>, Inputs<Timers>>,
  Sent extends Pair = EventInputs<Events>,
> {
  /** Name that clients join by: 1 to 64 letters, digits, `_` and `-`. The first character is a letter or digit. */
  readonly type: Type
  /** Maximum number of members. Default: no limit. */
  readonly maxMembers?: number
  /**
   * Rule for a player (`sub`) who has a seat and joins with another session, for example on another device. `allow`, the default: the new
   * session gets another seat; if the room is full, it gets the seat of a disconnected session of the player. `replace`: the new session gets
   * the seat, with the seat's member id and layers, and the older session leaves with the reason `replaced`. `onJoin` and `onLeave` do not
   * run. `refuse`: the join is rejected with `already_joined`. Players without `sub`: always `allow`.
   */
  readonly sameSub?: 'allow' | 'replace' | 'refuse'
  /** Schema of the join options other than `key`. Default: any. */
  readonly options?: Options
  /** Messages that members may send, by type. */
  readonly messages?: MessageSpecs<NoInfer<State>, Messages, Replies, Handled, Context, Sent>
  /** Schemas of the events, by name. Default: any name, any JSON. */
  readonly events?: Events
  /** Tasks for `ctx.task`, by name. */
  readonly tasks?: TaskSpecs<NoInfer<State>, Tasks, Context, Sent>
  /**
   * Hidden parts of the state, by path pattern: `{ 'hands.*': (memberId) => `member:${memberId}`, deck: null }`. The value at the path, its
   * key and everything in it belong to that layer. Every member has the layer `member:<its id>`; `ctx.show` gives a member other layers. The
   * functions get only the keys and must always return the same name for the same keys.
   */
  readonly layers?: LayersOf<NoInfer<State>, Patterns>
  /** Timers for `ctx.after`, by name. */
  readonly timers?: TimerSpecs<NoInfer<State>, Timers, Context, Sent>
  /** Schema that a running room's state must fit before an edited definition replaces the old one (development). */
  readonly state?: StandardSchemaV1
  /** Rate of the room's updates. */
  readonly sync?: {
    /** Updates per second, at most 240. Default 20. With 0, the room sends each change immediately. */
    readonly rate: number
  }
  /** Rate of `onTick`. Default: no ticks. */
  readonly tick?: {
    /** Calls per second, above 0 and at most 240. */
    readonly rate: number
  }
  /** Durability of the state across crashes. Default `journal`. */
  readonly durability?: Durability
  /** Seconds for which a room must be empty before it ends or sleeps. Default 30. */
  readonly idleSeconds?: number
  /**
   * What happens to a room that was empty for `idleSeconds`. `dispose`, the default, deletes the room. `sleep` keeps it in the store until
   * a client joins, or for `sleepDays`. A sleeping room counts as one of its project's rooms. `ctx.close()` deletes any room.
   */
  readonly onIdle?: 'dispose' | 'sleep'
  /**
   * Days after which a room that no node runs is deleted, 0.01 to 3650. The days count from the last leave or the due time of the next
   * timer, whichever is later. The deletion calls no hook. A room with `save` is not deleted while its last state is not saved. Default 30.
   */
  readonly sleepDays?: number
  /**
   * Seconds for which the room keeps the seat of a disconnected member. Default and maximum: `SESSION_RESUME_TTL`. 0: the member leaves
   * immediately.
   */
  readonly reconnectSeconds?: number
  /** Returns the initial state. `options` come from the first join. */
  readonly create: (options: Out<Options>) => State & JsonState<NoInfer<State>>
  /**
   * Loads the initial state from a database, if neither a node nor the store has the room. If `load` returns undefined, `create` is called.
   * `options` come from the first join. If `load` throws or takes longer than 10 s, joins are rejected with `room_unavailable`, and the next
   * join calls `load` again.
   */
  load?(
    key: string,
    options: Out<Options>,
    room: { readonly projectId: string },
  ): Promise<NoInfer<State> | undefined> | NoInfer<State> | undefined
  /** Version of the state's shape, an integer. Default 1. Increase it by one when the shape changes. */
  readonly version?: number
  /**
   * Functions that convert a state to the next version. The key of each function is the earlier version. A function gets the state as plain
   * JSON. It changes the argument or returns a new state. When a node opens an older room, the migration is the first turn, and members
   * receive its changes as an update.
   */
  readonly migrate?: { readonly [from: number]: Migration }
  /** Saves the state to a database while the room runs and when it ends. */
  readonly save?: RoomSave<NoInfer<State>>
  /** Refuses a join by returning a reason. May be async, for at most 5 s. */
  admit?(
    member: Member,
    options: Out<Options>,
    ctx: AdmitContext<NoInfer<State>>,
  ): Admission | Promise<Admission>
  /** Called when a member joins. The new member's first state includes the changes of this call. If it throws, the join is rejected. */
  onJoin?(
    state: Draft<NoInfer<State>>,
    member: Member,
    ctx: Context,
    options: Out<Options>,
  ): HandlerResult<NoInfer<State>, Sent>
  /** Called for each message whose type has no `handle`. */
  onMessage?(
    state: Draft<NoInfer<State>>,
    input: RoomInput<Messages, Unhandled<Messages, Handled>>,
    ctx: MessageContext<Context, ReplyTo<Replies, Unhandled<Messages, Handled>>>,
  ): HandlerResult<NoInfer<State>, Sent>
  /** Alias of `onMessage`. */
  on_message?(
    state: Draft<NoInfer<State>>,
    input: RoomInput<Messages, Unhandled<Messages, Handled>>,
    ctx: MessageContext<Context, ReplyTo<Replies, Unhandled<Messages, Handled>>>,
  ): HandlerResult<NoInfer<State>, Sent>
  /** Called when a member's connection is lost. The room keeps the seat for `reconnectSeconds`. Members see `connected: false`. */
  onDisconnect?(
    state: Draft<NoInfer<State>>,
    member: Member,
    ctx: Context,
  ): HandlerResult<NoInfer<State>, Sent>
  /** Called when a disconnected member has reconnected. */
  onReconnect?(
    state: Draft<NoInfer<State>>,
    member: Member,
    ctx: Context,
  ): HandlerResult<NoInfer<State>, Sent>
  /** Called when a member has left, was kicked, or did not reconnect within `reconnectSeconds`. */
  onLeave?(state: Draft<NoInfer<State>>, member: Member, ctx: Context): HandlerResult<NoInfer<State>, Sent>
  /** Called at the rate of `tick`. */
  onTick?(state: Draft<NoInfer<State>>, ctx: Context): HandlerResult<NoInfer<State>, Sent>
  /** Called when the room ends, by `ctx.close()` or after `idleSeconds` without members. This is its last turn. */
  onDispose?(state: Draft<NoInfer<State>>, ctx: Context): HandlerResult<NoInfer<State>, Sent>
}

/** Untyped handler. */
export type Hook = (state: unknown, ...rest: unknown[]) => unknown

/** Message type with defaults filled in. */
export interface MessageType {
  readonly data: StandardSchemaV1
  readonly reply: StandardSchemaV1 | undefined
  readonly rate: Required<MessageRate> | undefined
  readonly handle: Hook | undefined
}

/** Task type. */
export interface TaskType {
  readonly result: StandardSchemaV1
  readonly handle: Hook
}

/** Timer type. */
export interface TimerType {
  readonly data: StandardSchemaV1
  readonly handle: Hook
}

/** A checked room type with all defaults filled in. Created only by `defineRoom`. */
export interface RoomDefinition {
  readonly [ROOM]: true
  /** Its stack starts at the call of `defineRoom`. */
  readonly definedAt: Error
  readonly type: string
  /**
   * Hash of the files of its code. Absent: it was not loaded from a file.
   * @internal
   */
  readonly codeHash?: string
  readonly maxMembers: number
  readonly sameSub: 'allow' | 'replace' | 'refuse'
  readonly options: StandardSchemaV1 | undefined
  readonly messages: { readonly [type: string]: MessageType }
  readonly events: Schemas | undefined
  readonly tasks: { readonly [name: string]: TaskType }
  readonly layers: LayerRules | undefined
  readonly timers: { readonly [name: string]: TimerType }
  readonly state: StandardSchemaV1 | undefined
  readonly sync: { readonly rate: number }
  readonly tick: { readonly rate: number } | undefined
  readonly durability: Durability
  readonly idleSeconds: number
  readonly sleepDays: number
  readonly onIdle: 'dispose' | 'sleep'
  /** Infinity: as long as the session can be resumed. */
  readonly reconnectSeconds: number
  readonly create: (options: unknown) => unknown
  readonly load:
    | ((key: string, options: unknown, room: { readonly projectId: string }) => unknown)
    | undefined
  readonly save: RoomSave<Json> | undefined
  readonly version: number
  readonly migrate: { readonly [from: number]: (state: unknown) => unknown }
  readonly admit: ((member: Member, options: unknown, ctx: AdmitContext) => unknown) | undefined
  readonly onJoin: Hook | undefined
  readonly onMessage: Hook | undefined
  readonly onDisconnect: Hook | undefined
  readonly onReconnect: Hook | undefined
  readonly onLeave: Hook | undefined
  readonly onTick: Hook | undefined
  readonly onDispose: Hook | undefined
}

/** Types that the client and the contexts infer from a room definition. */
export interface DefinedTypes<
  State,
  Messages,
  Replies,
  Events extends Schemas,
  Options extends StandardSchemaV1,
  Patterns extends string,
  Context,
> {
  readonly state: State
  readonly layers: Patterns
  readonly context: Context
  readonly given: { readonly [K in Names<Replies>]: ReplyTo<Replies, K> }
  readonly messages: { readonly [K in Names<Messages>]: Input<Messages[K]> }
  readonly replies: {
    readonly [K in Names<Replies> as Replies[K] extends StandardSchemaV1
      ? K
      : never]: Replies[K] extends StandardSchemaV1 ? Out<Replies[K]> : never
  }
  readonly events: string extends Names<Events>
    ? { readonly [name: string]: Json }
    : { readonly [K in Names<Events>]: Out<Events[K]> }
  readonly options: In<Options> & object
}

/** Schema of the data of a message type that declares none. */
const NO_DATA = v.null('this message has no data: send null, or declare `data` in the room type')

/** Inferred when a definition omits the property. */
type None = Record<never, never>

/**
 * Defines a room type. Export the result as the module's default. Throws a `RoomDefinitionError` that lists every mistake. The result is
 * frozen and has the room's types for the client: `client.join<typeof arena>('arena')`.
 */
export function defineRoom<
  const Type extends string,
  State,
  // Names of messages. Without a schema in any of them, TypeScript infers nothing for `Messages`.
  Types extends string = never,
  const Messages extends ByName = { readonly [K in Types]: unknown },
  Replies extends ByName = None,
  Handled extends ByName = None,
  const Events extends Schemas = Schemas,
  const Tasks extends Schemas = None,
  Options extends StandardSchemaV1 = StandardSchemaV1<JsonObject, JsonObject>,
  const Timers extends Schemas = None,
  Patterns extends string = never,
>(
  spec: RoomSpec<Type, State, Messages, Replies, Handled, Events, Tasks, Options, Timers, Patterns> & {
    readonly messages?: { readonly [K in Types]: unknown }
  },
): RoomDefinition &
  TypedRoom<
    DefinedTypes<
      State,
      Messages,
      Replies,
      Events,
      Options,
      Patterns,
      TurnContext<EventInputs<Events>, Inputs<Tasks>, Inputs<Timers>>
    >,
    Type
  > {
  checkSpec(spec)
  const specs = Object.entries(spec.messages ?? {}) as [string, Partial<MessageType>][]
  const messages = specs.map(([type, { data = NO_DATA, reply, rate, handle }]): [string, MessageType] => [
    type,
    {
      data,
      reply,
      rate: rate && { ...rate, burst: rate.burst ?? Math.max(1, Math.ceil(rate.perSecond)) },
      handle,
    },
  ])
  const definedAt = new Error('defineRoom')
  Error.captureStackTrace(definedAt, defineRoom)
  return Object.freeze({
    [ROOM]: true as const,
    definedAt,
    type: spec.type,
    maxMembers: spec.maxMembers ?? Number.POSITIVE_INFINITY,
    sameSub: spec.sameSub ?? 'allow',
    options: spec.options,
    messages: Object.fromEntries(messages),
    events: spec.events,
    tasks: (spec.tasks ?? {}) as RoomDefinition['tasks'],
    layers: spec.layers,
    timers: (spec.timers ?? {}) as RoomDefinition['timers'],
    state: spec.state,
    sync: spec.sync ?? { rate: 20 },
    tick: spec.tick,
    durability: spec.durability ?? 'journal',
    idleSeconds: spec.idleSeconds ?? 30,
    sleepDays: spec.sleepDays ?? 30,
    onIdle: spec.onIdle ?? 'dispose',
    reconnectSeconds: spec.reconnectSeconds ?? Number.POSITIVE_INFINITY,
    create: spec.create as RoomDefinition['create'],
    load: spec.load as RoomDefinition['load'],
    save: spec.save as RoomDefinition['save'],
    version: spec.version ?? 1,
    migrate: spec.migrate ?? {},
    admit: spec.admit as RoomDefinition['admit'],
    onJoin: spec.onJoin as Hook | undefined,
    onMessage: (spec.onMessage ?? spec.on_message) as Hook | undefined,
    onDisconnect: spec.onDisconnect as Hook | undefined,
    onReconnect: spec.onReconnect as Hook | undefined,
    onLeave: spec.onLeave as Hook | undefined,
    onTick: spec.onTick as Hook | undefined,
    onDispose: spec.onDispose as Hook | undefined,
  })
}

/** Returns true if `defineRoom` created the value, in this or another copy of the module. */
export const isRoomDefinition = (value: unknown): value is RoomDefinition =>
  typeof value === 'object' && value !== null && (value as { [ROOM]?: unknown })[ROOM] === true

/** Room types of a node, by name. Throws RoomDefinitionError for a duplicate name, and for a value that `defineRoom` did not create. */
export function roomTypes(definitions: readonly RoomDefinition[]): Map<string, RoomDefinition> {
  const types = new Map<string, RoomDefinition>()
  for (const definition of definitions) {
    if (!isRoomDefinition(definition))
      throw new RoomDefinitionError('a room type is not what defineRoom returns: pass it through defineRoom')
    if (types.has(definition.type))
      throw new RoomDefinitionError(
        `two room types are called ${JSON.stringify(definition.type)}: rename one`,
      )
    types.set(definition.type, definition)
  }
  return types
}
