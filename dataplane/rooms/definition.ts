export type {
  RoomEvents,
  RoomMessages,
  RoomOptions,
  RoomReplies,
  RoomState,
} from '../../shared/room-types.ts'

import type { StandardSchemaV1 } from '@standard-schema/spec'
import type { Json, JsonObject } from '../../shared/json.ts'
import type { Immutable, TypedRoom } from '../../shared/room-types.ts'
import { checkSpec, RoomDefinitionError } from './definition-check.ts'
import type { LayerRules } from './layer-rules.ts'

export type { LayerRule, LayerRules } from './layer-rules.ts'

/** Marks a room definition. The symbol is registered, because a process may load the module more than once. */
export const ROOM: unique symbol = Symbol.for('roomful.room') as never

/** When and how a room's updates reach the store. */
export type Durability = 'journal' | 'snapshot' | 'none'

/** Rate limit of one message type for one player. */
export interface MessageRate {
  /** Long-term messages per second. */
  readonly perSecond: number
  /** Messages at one moment. Default: one second's worth. */
  readonly burst?: number
}

type Schemas = { readonly [name: string]: StandardSchemaV1 }
/** Inferred properties by message type; `unknown` for types without the property. */
type ByType = { readonly [type: string]: unknown }
type In<S extends StandardSchemaV1> = StandardSchemaV1.InferInput<S>
type Out<S extends StandardSchemaV1> = StandardSchemaV1.InferOutput<S>
type Names<T> = keyof T & string

/** A member as room logic sees it. */
export interface Member {
  /** Id of the member's seat in this room. It changes when the player leaves and joins again. */
  readonly id: string
  /** Player's id from the token; null if the token has none. */
  readonly sub: string | null
  /** True while the member's client is connected. It may reconnect within `reconnectSeconds`. */
  readonly connected: boolean
  /** Claim `data` of the current token, or null. Only room code gets it; other members do not. */
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
export interface TimerInput<Data extends StandardSchemaV1> {
  /** Data from `ctx.after`, as the output of the timer's schema. */
  readonly data: Out<Data>
}

/**
 * Outcome of a task: the output of its `result` schema, or the reason for having none: the text of the exception or of the schema's
 * complaint, or `moved`.
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
      /** Reason as a text. `moved`: the room changed its node, and the work may or may not have been done. */
      readonly error: string
    }

/** A member's message of type `K`. */
export interface MessageInput<K extends string, Data extends StandardSchemaV1> {
  /** Message type. */
  readonly type: K
  /** Data of the message, as the output of its schema. */
  readonly data: Out<Data>
  /** Sender. */
  readonly member: Member
}

/** Argument of `ctx.reply` for message type `K`; `never` if the type declares no reply. */
type ReplyTo<Replies, K> = K extends keyof Replies
  ? Replies[K] extends StandardSchemaV1
    ? In<Replies[K]>
    : never
  : never

/**
 * Messages that members may send, by type. Three mapped types let TypeScript infer data, reply and the presence of `handle` for each type
 * before it checks the handlers.
 */
export type MessageSpecs<
  State,
  Messages extends Schemas,
  Replies,
  Handled,
  Events extends Schemas,
  Tasks extends Schemas,
  Timers extends Schemas,
> = {
  readonly [K in keyof Messages]: {
    /** Schema of the data. */
    readonly data: Messages[K]
    /** Schema of the reply. With it, the handler must reply to each message, and `room.request` resolves to the reply. */
    readonly reply?: StandardSchemaV1
    /** Rate limit for one player. Default: only the session's limit. */
    readonly rate?: MessageRate
    /** Handles messages of this type. Default: `onMessage` does. */
    handle?(
      state: Draft<State>,
      input: MessageInput<K & string, Messages[K]>,
      ctx: MessageContext<Events, Tasks, ReplyTo<Replies, K>, Timers>,
    ): HandlerResult<State, Events>
  }
} & {
  readonly [K in keyof Replies]: {
    /** As above, for type inference. */
    readonly reply?: Replies[K]
  }
} & {
  readonly [K in keyof Handled]: {
    /** As above, for type inference. */
    readonly handle?: Handled[K]
  }
}

/** Timers for `ctx.after`, by name. */
export type TimerSpecs<State, Timers extends Schemas, Events extends Schemas, Tasks extends Schemas> = {
  readonly [K in keyof Timers]: {
    /** Schema of the timer's data, at most 4 KiB of JSON. */
    readonly data: Timers[K]
    /**
     * Runs once, as a turn, when the timer fires. If it throws, its changes are undone and the error is logged. The timer is not retried.
     */
    handle(
      state: Draft<State>,
      input: TimerInput<Timers[K]>,
      ctx: RoomContext<Events, Tasks, Timers>,
    ): HandlerResult<State, Events>
  }
}

/** Tasks for `ctx.task`, by name. */
export type TaskSpecs<State, Tasks extends Schemas, Events extends Schemas, Timers extends Schemas> = {
  readonly [K in keyof Tasks]: {
    /** Schema of the work's result. */
    readonly result: Tasks[K]
    /** Handles the outcome in a new turn. The state may have changed since the task started. */
    handle(
      state: Draft<State>,
      outcome: TaskOutcome<Out<Tasks[K]>>,
      ctx: RoomContext<Events, Tasks, Timers>,
    ): HandlerResult<State, Events>
  }
}

/** Message types for `onMessage`: those without `handle`. */
type Unhandled<Messages, Handled> = {
  [K in Names<Messages>]: K extends keyof Handled ? (unknown extends Handled[K] ? K : never) : K
}[Names<Messages>]

/** Input of `onMessage`: a message whose type has no `handle`. Narrow it by `type`. */
export type RoomInput<Messages extends Schemas, Types extends Names<Messages>> = {
  [K in Types]: MessageInput<K, Messages[K]>
}[Types]

/** Recipients of an event: one or several member ids, or the members with a layer. Unknown ids are ignored. */
export type Recipients =
  | string
  | readonly string[]
  | {
      /** Name of the layer. */
      readonly layer: string
    }

/** Data of an event: any JSON, unless the room type declares its events. */
type EventData<Events extends Schemas, K extends Names<Events>> =
  string extends Names<Events> ? unknown : In<Events[K]>

/** Event in a handler's result. */
export type OutgoingEvent<Events extends Schemas> = {
  [K in Names<Events>]: {
    /** Name of the event. */
    readonly name: K
    /** Data for the members. */
    readonly data: EventData<Events, K>
    /** Recipients. Default: all members. */
    readonly to?: Recipients
  }
}[Names<Events>]

/** Result of a handler, instead of or in addition to changing the state in place. */
export type HandlerResult<State, Events extends Schemas> =
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

/** Context of a handler. Its calls take effect only if the handler returns normally. */
export interface RoomContext<
  Events extends Schemas = Schemas,
  Tasks extends Schemas = Schemas,
  Timers extends Schemas = Schemas,
> {
  /** `type:key`. */
  readonly roomId: string
  /** Start of this turn, in milliseconds since 1970. */
  readonly now: number
  /** All members in the order they joined. `onJoin` includes the new member; `onLeave` does not include the leaving one. */
  readonly members: readonly Member[]
  /** Writes to the log of the node, with the room's id. */
  readonly log: RoomLog
  /** Returns a random number in [0, 1). */
  random(): number
  /**
   * Gives a member a layer: from the next flush on, its client receives the layer's content and changes. It lasts until `hide`, or until
   * the member leaves, also when the room moves. Layer names come from the room type's `layers`. Unknown members are ignored.
   */
  show(member: string | Member, layer: string): void
  /** Takes a shown layer away from a member with the next flush. It cannot undo what the player has seen. */
  hide(member: string | Member, layer: string): void
  /** Sends an event with the next flush, to all members or to those in `to`. */
  emit<K extends Names<Events>>(name: K, data: EventData<Events, K>, to?: Recipients): void
  /** Ends the room: all members get `room.left` with the reason `closed`, then `onDispose` runs. `onLeave` does not run. */
  close(): void
  /**
   * Removes a member: `onLeave` runs, and the member gets `room.left` with the reason `kicked`. Only this member also gets `reason`, a text
   * for the player, cut to 300 characters. `ban` also removes the player's other seats, and rejects its later joins with `banned`, until
   * `unban`. Bans are part of the room's state: they move with the room and end with it. Throws if the member has no `sub`, or if the room
   * has 1,000 bans.
   */
  kick(member: string | Member, reason?: string, options?: { readonly ban?: boolean }): void
  /** Ends the ban of the player with this `sub`. Returns false if the player was not banned. */
  unban(sub: string): boolean
  /**
   * Starts slow work. `work` is called at most once, after the update of this turn is committed. The task's `handle` gets the outcome. If
   * the room changes its node first, the outcome is `{ ok: false, error: 'moved' }`. Throws if the room has `MAX_ROOM_TASKS` tasks in
   * flight.
   */
  task<K extends Names<Tasks>>(work: () => PromiseLike<In<Tasks[K]>>, name: K): void
  /**
   * Sets a timer and returns its id. The handler runs once, `ms` milliseconds after `now`, or in the next turn if `ms` is 0 or less. If the
   * turn fails, no timer is set. Timers are part of the room's state and move with the room. A timer with the same `id` (1 to 96 bytes) is
   * replaced. Throws if the room has `MAX_ROOM_TIMERS` timers.
   */
  after<K extends Names<Timers>>(
    ms: number,
    timer: K,
    data: In<Timers[K]>,
    options?: { readonly id?: string },
  ): string
  /** Cancels the timer with this id. Returns false if there is none; it may have fired. */
  cancel(id: string): boolean
  /**
   * Refuses the message or join by throwing out of the turn: the state does not change and other calls of `ctx` have no effect. The sender
   * gets `room_logic_refused` with `message`, a text for the player, cut to 300 characters. Nothing is logged.
   */
  refuse(message: string): never
}

/** Context of a message's handler. */
export interface MessageContext<
  Events extends Schemas = Schemas,
  Tasks extends Schemas = Schemas,
  Reply = unknown,
  Timers extends Schemas = Schemas,
> extends RoomContext<Events, Tasks, Timers> {
  /**
   * Replies to the message, if its type declares a `reply`: exactly once per turn, with at most 4 KiB of JSON. The sender gets the reply
   * after the turn is committed, and the same reply again if it resends the message.
   */
  reply(value: Reply): void
}

/** Context of `admit`. */
export interface AdmitContext<State = unknown> {
  /** `type:key`. */
  readonly roomId: string
  /** Time of the call, in milliseconds since 1970. */
  readonly now: number
  /** Current members in the order they joined, without the joining one. */
  readonly members: readonly Member[]
  /** State of the room. It may change before the player joins. */
  readonly state: Immutable<State>
  /** Writes to the log of the node, with the room's id. */
  readonly log: RoomLog
}

/** Result of `admit`: nothing admits, a string refuses with that reason. */
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
   * Epoch of the owner. A save is newer if its epoch is larger, or equal with a larger `seq`. Saves may arrive in any order, and saves of a
   * former owner after those of its successor. The database must reject older ones.
   */
  readonly epoch: number
  /** Number of the update that produced the state. */
  readonly seq: number
  /** Project of the room. Rooms of two projects may have the same key. */
  readonly projectId: string
  /**
   * True if the room ends with this state. No other save follows, except a retry of this one. A room that ends without a change since its
   * last save is not saved again. To get a save with `last` each time, change the state in `onDispose`.
   */
  readonly last: boolean
}

/** Options for saving a room's state to a database. */
export interface RoomSave<State> {
  /** Maximum time between a change and its save, and minimum time between two saves, in seconds: 1 to 86,400. */
  readonly everySeconds: number
  /**
   * Saves a frozen copy of the committed state. If it rejects or takes longer than 30 s, it is retried after a pause, with the state of that
   * time.
   */
  readonly to: (state: Immutable<State>, room: SavedAs) => PromiseLike<unknown> | undefined
}

/** Argument of `defineRoom`. Write `create` before the handlers, so that TypeScript knows the state's type there. */
export interface RoomSpec<
  Type extends string,
  State,
  Messages extends Schemas,
  Replies,
  Handled,
  Events extends Schemas,
  Tasks extends Schemas,
  Options extends StandardSchemaV1,
  Timers extends Schemas,
> {
  /** Name that clients join by: 1 to 64 letters, digits, `_` and `-`. */
  readonly type: Type
  /** Maximum number of members. Default: no limit. */
  readonly maxMembers?: number
  /**
   * Rule for a player (`sub`) who has a seat and joins with another session, for example on another device. `allow`, the default: the player
   * gets another seat; if the room is full, the seat of a disconnected session of the player. `replace`: the new session gets the seat, with its
   * member id and layers. The session before leaves with the reason `replaced`. `onJoin` and `onLeave` do not run. `refuse`: the join is
   * rejected with `already_joined`. Players without `sub`: always `allow`.
   */
  readonly sameSub?: 'allow' | 'replace' | 'refuse'
  /** Schema of the join options other than `key`. Default: any. */
  readonly options?: Options
  /** Messages that members may send, by type. */
  readonly messages?: MessageSpecs<NoInfer<State>, Messages, Replies, Handled, Events, Tasks, Timers>
  /** Schemas of the events, by name. Default: any name, any JSON. */
  readonly events?: Events
  /** Tasks for `ctx.task`, by name. */
  readonly tasks?: TaskSpecs<NoInfer<State>, Tasks, Events, Timers>
  /**
   * Hidden parts of the state, by path pattern: `{ 'hands.*': (memberId) => `member:${memberId}`, deck: null }`. The value at the path, its
   * key and everything in it belong to that layer. Every member has the layer `member:<its id>`; `ctx.show` gives it others. The functions
   * get only the keys and must always return the same name for the same keys.
   */
  readonly layers?: LayerRules
  /** Timers for `ctx.after`, by name. */
  readonly timers?: TimerSpecs<NoInfer<State>, Timers, Events, Tasks>
  /** Schema that a running room's state must fit before an edited definition replaces the old one (development). */
  readonly state?: StandardSchemaV1
  /** Rate of the room's updates. */
  readonly sync?: {
    /** Flushes per second, at most 240. Default 20; 0: immediately after a change. */
    readonly rate: number
  }
  /** Rate of `onTick`. Default: no ticks. */
  readonly tick?: {
    /** Calls per second, above 0 and at most 240. */
    readonly rate: number
  }
  /** Durability of the state across crashes. Default `journal`. */
  readonly durability?: Durability
  /** Seconds until an empty room ends or sleeps. Default 30. */
  readonly idleSeconds?: number
  /**
   * End of a room that was empty for `idleSeconds`. `dispose`, the default, deletes it. `sleep` keeps it in the store until a client
   * joins, or for `sleepDays`; it counts as one of its project's rooms. `ctx.close()` ends a room for good.
   */
  readonly onIdle?: 'dispose' | 'sleep'
  /**
   * Days after which a room without an owner is deleted, 0.01 to 3650. They count from the last leave or the due time of the next timer, whichever
   * is later. No hook runs. A room whose last state is not in its database (`save`) is not deleted. Default 30.
   */
  readonly sleepDays?: number
  /**
   * Seconds that a lost connection keeps its seat. Default and maximum: `SESSION_RESUME_TTL`. 0: the member leaves immediately.
   */
  readonly reconnectSeconds?: number
  /** Returns the initial state. `options` come from the first join. */
  readonly create: (options: Out<Options>) => State
  /**
   * Loads the initial state from a database, when neither a node nor the store has the room. If it returns undefined, `create` is called.
   * `options` come from the first join. If it throws or takes longer than 10 s, joins are rejected with `room_unavailable`, and the next
   * join calls it again.
   */
  load?(
    key: string,
    options: Out<Options>,
    room: { readonly projectId: string },
  ): Promise<NoInfer<State> | undefined> | NoInfer<State> | undefined
  /** Version of the state's shape, an integer. Default 1. Increase it by one when the shape changes. */
  readonly version?: number
  /**
   * Functions that convert a state of each earlier version to the next, by the earlier version. A function gets the state as plain JSON. It
   * changes the argument or returns a new state. It runs as the first turn when a node opens an older room, and members receive its changes
   * as an update.
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
  /** Called when a member joins. The new member's first state includes its changes. If it throws, the join is rejected. */
  onJoin?(
    state: Draft<NoInfer<State>>,
    member: Member,
    ctx: RoomContext<Events, Tasks, Timers>,
    options: Out<Options>,
  ): HandlerResult<NoInfer<State>, Events>
  /** Called for each message whose type has no `handle`. */
  onMessage?(
    state: Draft<NoInfer<State>>,
    input: RoomInput<Messages, Unhandled<Messages, Handled>>,
    ctx: MessageContext<Events, Tasks, ReplyTo<Replies, Unhandled<Messages, Handled>>, Timers>,
  ): HandlerResult<NoInfer<State>, Events>
  /** Alias of `onMessage`. */
  on_message?(
    state: Draft<NoInfer<State>>,
    input: RoomInput<Messages, Unhandled<Messages, Handled>>,
    ctx: MessageContext<Events, Tasks, ReplyTo<Replies, Unhandled<Messages, Handled>>, Timers>,
  ): HandlerResult<NoInfer<State>, Events>
  /** Called when a member loses its connection. Its seat is kept for `reconnectSeconds`. Members receive `room.presence`. */
  onDisconnect?(
    state: Draft<NoInfer<State>>,
    member: Member,
    ctx: RoomContext<Events, Tasks, Timers>,
  ): HandlerResult<NoInfer<State>, Events>
  /** Called when a disconnected member has reconnected. */
  onReconnect?(
    state: Draft<NoInfer<State>>,
    member: Member,
    ctx: RoomContext<Events, Tasks, Timers>,
  ): HandlerResult<NoInfer<State>, Events>
  /** Called when a member has left, was kicked, or did not reconnect within `reconnectSeconds`. */
  onLeave?(
    state: Draft<NoInfer<State>>,
    member: Member,
    ctx: RoomContext<Events, Tasks, Timers>,
  ): HandlerResult<NoInfer<State>, Events>
  /** Called at the rate of `tick`. */
  onTick?(
    state: Draft<NoInfer<State>>,
    ctx: RoomContext<Events, Tasks, Timers>,
  ): HandlerResult<NoInfer<State>, Events>
  /** Called when the room ends, by `ctx.close()` or after `idleSeconds` without members. This is its last turn. */
  onDispose?(
    state: Draft<NoInfer<State>>,
    ctx: RoomContext<Events, Tasks, Timers>,
  ): HandlerResult<NoInfer<State>, Events>
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
  readonly type: string
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

/** Types that a client infers from a room definition. */
export interface DefinedTypes<
  State,
  Messages extends Schemas,
  Replies,
  Events extends Schemas,
  Options extends StandardSchemaV1,
> {
  readonly state: State
  readonly messages: { readonly [K in Names<Messages>]: In<Messages[K]> }
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

/** Inferred when a definition omits the property. */
type None = Record<never, never>

/**
 * Defines a room type. Export the result as the module's default. Throws a `RoomDefinitionError` that lists every mistake. The result is
 * frozen and has the room's types for the client: `client.join<typeof arena>('arena')`.
 */
export function defineRoom<
  const Type extends string,
  State,
  const Messages extends Schemas = None,
  Replies extends ByType = None,
  Handled extends ByType = None,
  const Events extends Schemas = Schemas,
  const Tasks extends Schemas = None,
  Options extends StandardSchemaV1 = StandardSchemaV1<JsonObject, JsonObject>,
  const Timers extends Schemas = None,
>(
  spec: RoomSpec<Type, State, Messages, Replies, Handled, Events, Tasks, Options, Timers>,
): RoomDefinition & TypedRoom<DefinedTypes<State, Messages, Replies, Events, Options>, Type> {
  checkSpec(spec)
  const specs = Object.entries(spec.messages ?? {}) as [
    string,
    Partial<MessageType> & { data: StandardSchemaV1 },
  ][]
  const messages = specs.map(([type, { data, reply, rate, handle }]): [string, MessageType] => [
    type,
    {
      data,
      reply,
      rate: rate && { ...rate, burst: rate.burst ?? Math.max(1, Math.ceil(rate.perSecond)) },
      handle,
    },
  ])
  return Object.freeze({
    [ROOM]: true as const,
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
