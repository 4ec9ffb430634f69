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

/** What marks a value as a room definition. Registered, because a module may be loaded more than once in a process. */
export const ROOM: unique symbol = Symbol.for('roomful.room') as never

/** When and how a room's updates reach the store. */
export type Durability = 'journal' | 'snapshot' | 'none'

/** How often one member may send one message type: `perSecond` in the long run, `burst` at once (default: one second's worth). */
export interface MessageRate {
  /** Messages per second in the long run. */
  readonly perSecond: number
  /** And so many at once; default: one second's worth. */
  readonly burst?: number
}

type Schemas = { readonly [name: string]: StandardSchemaV1 }
/** By message type, what is inferred of something that not every type has; `unknown` for those that have none. */
type ByType = { readonly [type: string]: unknown }
type In<S extends StandardSchemaV1> = StandardSchemaV1.InferInput<S>
type Out<S extends StandardSchemaV1> = StandardSchemaV1.InferOutput<S>
type Names<T> = keyof T & string

/** A member as room logic sees it. */
export interface Member {
  /** One client's place in this room: another one after it has left and joined again. */
  readonly id: string
  /** The player's id from the token; null: it carries none. */
  readonly sub: string | null
  /** Whether its client is connected; one that is not may come back within `reconnectSeconds`. */
  readonly connected: boolean
  /** The claim `data` of the token in force, for room code only: other members never get it. Null: it carries none. */
  readonly data: JsonObject | null
}

/** `T`, changeable all the way down: the state a handler may change in place. */
export type Draft<T> = unknown extends T
  ? T
  : Json extends T
    ? DraftJson
    : T extends object
      ? { -readonly [K in keyof T]: Draft<T[K]> }
      : T

/** Any JSON, changeable: a state may have parts of no particular shape. */
export type DraftJson = null | boolean | number | string | DraftJson[] | { [key: string]: DraftJson }

/** What the handler of a timer is called with. */
export interface TimerInput<Data extends StandardSchemaV1> {
  /** What was given to `ctx.after`, as the schema of the timer makes it. */
  readonly data: Out<Data>
}

/**
 * How the work of a task ended: with what its `result` schema makes of it, or with why there is none: what was thrown, what does not fit,
 * or `moved`: it was lost with the node that had begun it, or was about to.
 */
export type TaskOutcome<T> =
  | {
      /** The work is done. */
      readonly ok: true
      /** What it resolved to, as the schema makes it. */
      readonly value: T
    }
  | {
      /** The work has failed, or was lost. */
      readonly ok: false
      /** Why, in words; `moved`: it was lost with its node. */
      readonly error: string
    }

/** A member's message of the type `K`, with the data that its schema has made. */
export interface MessageInput<K extends string, Data extends StandardSchemaV1> {
  /** Its type. */
  readonly type: K
  /** What was sent, as the schema of the type makes it. */
  readonly data: Out<Data>
  /** Who has sent it. */
  readonly member: Member
}

/** What a handler gives `ctx.reply` for the message type `K`; `never` where that declares no reply. */
type ReplyTo<Replies, K> = K extends keyof Replies
  ? Replies[K] extends StandardSchemaV1
    ? In<Replies[K]>
    : never
  : never

/**
 * The messages that members may send, by type. It is three mapped types, so that TypeScript infers for each type its data, its reply and
 * whether it has a `handle`, before it looks into the handlers.
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
    /** What its data must look like. */
    readonly data: Messages[K]
    /** What its reply must look like. Each message is to be answered then: `room.request` resolves to the reply. */
    readonly reply?: StandardSchemaV1
    /** How often a member may send it; absent: as often as the session may. */
    readonly rate?: MessageRate
    /** Handles messages of this type; absent: `onMessage` does. */
    handle?(
      state: Draft<State>,
      input: MessageInput<K & string, Messages[K]>,
      ctx: MessageContext<Events, Tasks, ReplyTo<Replies, K>, Timers>,
    ): HandlerResult<State, Events>
  }
} & {
  readonly [K in keyof Replies]: {
    /** As above: what it infers. */
    readonly reply?: Replies[K]
  }
} & {
  readonly [K in keyof Handled]: {
    /** As above: whether there is one. */
    readonly handle?: Handled[K]
  }
}

/** The timers that room logic may set by `ctx.after`, by name. */
export type TimerSpecs<State, Timers extends Schemas, Events extends Schemas, Tasks extends Schemas> = {
  readonly [K in keyof Timers]: {
    /** What `ctx.after` gives it must look like. At most 4 KiB of JSON. */
    readonly data: Timers[K]
    /**
     * The timer fires: a turn of the room, once. Where it throws, nothing it did has happened, and the timer is gone all the same: that is logged,
     * and not tried again.
     */
    handle(
      state: Draft<State>,
      input: TimerInput<Timers[K]>,
      ctx: RoomContext<Events, Tasks, Timers>,
    ): HandlerResult<State, Events>
  }
}

/** The tasks that room logic may start by `ctx.task`, by name. */
export type TaskSpecs<State, Tasks extends Schemas, Events extends Schemas, Timers extends Schemas> = {
  readonly [K in keyof Tasks]: {
    /** What the work resolves to has to look like. */
    readonly result: Tasks[K]
    /** The work has ended: a turn of the room, in which things have happened since. */
    handle(
      state: Draft<State>,
      outcome: TaskOutcome<Out<Tasks[K]>>,
      ctx: RoomContext<Events, Tasks, Timers>,
    ): HandlerResult<State, Events>
  }
}

/** The message types that `onMessage` gets: those without `handle`. */
type Unhandled<Messages, Handled> = {
  [K in Names<Messages>]: K extends keyof Handled ? (unknown extends Handled[K] ? K : never) : K
}[Names<Messages>]

/** What `onMessage` is called with: a member's message whose type has no `handle`. Narrow it by `type`. */
export type RoomInput<Messages extends Schemas, Types extends Names<Messages>> = {
  [K in Types]: MessageInput<K, Messages[K]>
}[Types]

/** Who gets an event: absent everyone, otherwise these member ids, or who has the layer then. Ids of no member are skipped. */
export type Recipients =
  | string
  | readonly string[]
  | {
      /** The name of the layer. */
      readonly layer: string
    }

/** The data room logic gives an event: anything JSON, unless the room type declares its events. */
type EventData<Events extends Schemas, K extends Names<Events>> =
  string extends Names<Events> ? unknown : In<Events[K]>

/** An event as a handler returns it. */
export type OutgoingEvent<Events extends Schemas> = {
  [K in Names<Events>]: {
    /** Its name. */
    readonly name: K
    /** What members get. */
    readonly data: EventData<Events, K>
    /** Who gets it; default: everyone. */
    readonly to?: Recipients
  }
}[Names<Events>]

/** What a handler may return instead of (or besides) changing the draft. */
export type HandlerResult<State, Events extends Schemas> =
  | {
      /** Takes the place of the whole state. */
      readonly state?: State | Draft<State> | undefined
      /** Is sent as by `ctx.emit`. */
      readonly event?: OutgoingEvent<Events> | undefined
    }
  // biome-ignore lint/suspicious/noConfusingVoidType: a handler that returns nothing is one
  | void

/** Where room logic writes its own log lines; they carry the room's id. Keep tokens and what players say out of `fields`. */
export interface RoomLog {
  /** For who looks for a mistake: shown with `LOG_LEVEL=debug`. */
  debug(fields: object, message: string): void
  /** What happens. */
  info(fields: object, message: string): void
  /** What should not happen, and is dealt with. */
  warn(fields: object, message: string): void
  /** What someone has to look at. */
  error(fields: object, message: string): void
}

/** What a handler can do besides changing the state. Everything takes effect only when the handler returns normally. */
export interface RoomContext<
  Events extends Schemas = Schemas,
  Tasks extends Schemas = Schemas,
  Timers extends Schemas = Schemas,
> {
  /** `type:key`. */
  readonly roomId: string
  /** When this turn began: milliseconds since 1970. */
  readonly now: number
  /** Everyone in the room, in the order they joined. In `onJoin` the newcomer is among them, in `onLeave` the leaver is not. */
  readonly members: readonly Member[]
  /** Writes to the log of the node, with the room's id. */
  readonly log: RoomLog
  /** A number in [0, 1). */
  random(): number
  /**
   * Gives a member a layer from this flush on: all that is in it, and what becomes of it. It lasts until `hide`, or until the member
   * leaves, wherever the room goes. A layer's name is that which the room type's `layers` say or make; what is of no member is skipped.
   */
  show(member: string | Member, layer: string): void
  /** Takes a layer that was shown to a member away with this flush. What the member has seen of it, it has seen. */
  hide(member: string | Member, layer: string): void
  /** Sends an event with this flush, to everyone or only to the members named by `to`. */
  emit<K extends Names<Events>>(name: K, data: EventData<Events, K>, to?: Recipients): void
  /** Ends the room: everyone gets `room.left` with reason `closed`, then `onDispose` runs. `onLeave` does not. */
  close(): void
  /**
   * Removes a member: `onLeave` runs, and the member gets `room.left` with reason `kicked`, and with `reason`, a text for the player (cut to
   * 300 characters); the others are not told that.
   */
  kick(member: string | Member, reason?: string): void
  /**
   * Slow work: `work` is called, at most once, when the update of this turn is committed, and what comes of it is given to the task's
   * `handle`. Its name rests in the record: work that was lost with its node ends as `{ ok: false, error: 'moved' }` at the next. Throws
   * where the room has `MAX_ROOM_TASKS` in flight.
   */
  task<K extends Names<Tasks>>(work: () => PromiseLike<In<Tasks[K]>>, name: K): void
  /**
   * Sets a timer: its handler runs once, `ms` milliseconds after `now`; not at all when the turn fails, and in the next turn for 0 or
   * less. It is part of the room's state: set, fired and cancelled with the update that says so, whichever node has the room then. `id`,
   * a text of 1 to 96 bytes: a timer of the room that has it is replaced. Returns the id. Throws where the room has `MAX_ROOM_TIMERS`
   * timers.
   */
  after<K extends Names<Timers>>(
    ms: number,
    timer: K,
    data: In<Timers[K]>,
    options?: { readonly id?: string },
  ): string
  /** Cancels the timer that `after` gave this id. False: there is none; it may have fired. */
  cancel(id: string): boolean
  /**
   * Refuses what was asked, out of the turn: the state is as before, nothing that was asked of `ctx` happens, and the sender gets
   * `room_logic_refused` with `message` (for players, cut to 300 characters). No failure: nothing is logged.
   */
  refuse(message: string): never
}

/** The context of a member's message. */
export interface MessageContext<
  Events extends Schemas = Schemas,
  Tasks extends Schemas = Schemas,
  Reply = unknown,
  Timers extends Schemas = Schemas,
> extends RoomContext<Events, Tasks, Timers> {
  /**
   * Answers the message, of a type that declares a `reply`: exactly once in its turn, with at most 4 KiB of JSON. The sender gets it when the
   * turn is committed, and the same one however often it asks again.
   */
  reply(value: Reply): void
}

/** What `admit` sees of the room. */
export interface AdmitContext<State = unknown> {
  /** `type:key`. */
  readonly roomId: string
  /** When it was called: milliseconds since 1970. */
  readonly now: number
  /** Who is in the room, in the order they joined; without the one who wants to join. */
  readonly members: readonly Member[]
  /** The state of the room. It may be another one when the player is let in. */
  readonly state: Immutable<State>
  /** Writes to the log of the node, with the room's id. */
  readonly log: RoomLog
}

/** The verdict of `admit`: nothing admits, a text refuses and says why. */
// biome-ignore lint/suspicious/noConfusingVoidType: an admit that returns nothing admits
export type Admission = string | undefined | void

/** Makes of a state of one version one of the next. Write what you know of the old one: `(state: StateOfVersion1) => …`. */
// biome-ignore lint/suspicious/noExplicitAny: the state of an old version is what its author says it was
export type Migration = (state: any) => unknown

/** What `save` is told of a room besides its state. */
export interface SavedAs {
  /** The key that players joined the room by. */
  readonly key: string
  /**
   * A save is newer than another when its epoch is larger, or the same and its `seq` larger: saves may arrive in any order, and those of an owner
   * that was replaced after those of its successor. A database has to refuse an older one.
   */
  readonly epoch: number
  /** The number of the update that the state is of. */
  readonly seq: number
  /** The project that the room is of: rooms of two projects may have the same key. */
  readonly projectId: string
  /**
   * True when the room ends with this state, so that no later save follows unless this one fails. A room that ends without a change since its
   * last save is not saved again; a change in `onDispose` makes sure that it is.
   */
  readonly last: boolean
}

/** How the state of a room is taken to a database. */
export interface RoomSave<State> {
  /** A room that changes is saved at most so often; 1 to 86,400. */
  readonly everySeconds: number
  /**
   * Saves a frozen copy of the state, as of an update that stands. One that rejects, or takes longer than 30 s, is tried again after a pause,
   * with what the state is by then.
   */
  readonly to: (state: Immutable<State>, room: SavedAs) => PromiseLike<unknown> | undefined
}

/** A room type, as its author writes it. `create` comes before the handlers, so that they know the state's type. */
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
  /** What clients join by: letters, digits, `_` and `-`, at most 64. */
  readonly type: Type
  /** Default: no limit. */
  readonly maxMembers?: number
  /** Join options besides `key`. Absent: any. */
  readonly options?: Options
  /** The messages members may send. */
  readonly messages?: MessageSpecs<NoInfer<State>, Messages, Replies, Handled, Events, Tasks, Timers>
  /** The events room logic may emit, with the data members get. Absent: any name, any JSON. */
  readonly events?: Events
  /** The tasks of `ctx.task`: what the work of each resolves to, and what happens then. */
  readonly tasks?: TaskSpecs<NoInfer<State>, Tasks, Events, Timers>
  /**
   * What of the state not everyone sees, by patterns of paths: `{ 'hands.*': (memberId) => `member:${memberId}`, deck: null }`. The value
   * there, with all that is in it and its own key, is in that layer; every member has the layer `member:<its id>`, and others by
   * `ctx.show`. The functions are called with keys alone, whenever and as often as need be: they have to make the same of the same keys.
   */
  readonly layers?: LayerRules
  /** The timers of `ctx.after`: what each is given, and what happens when it fires. */
  readonly timers?: TimerSpecs<NoInfer<State>, Timers, Events, Tasks>
  /** Checks the state of running rooms when the definition is replaced during development. */
  readonly state?: StandardSchemaV1
  /** State flushes per second, at most 240 (default 20); 0: as soon as something changed. */
  readonly sync?: {
    /** Flushes per second. */
    readonly rate: number
  }
  /** `onTick` calls per second, above 0 and at most 240. */
  readonly tick?: {
    /** Calls per second. */
    readonly rate: number
  }
  /** Default `journal`. */
  readonly durability?: Durability
  /** An empty room ends, or sleeps, after this; default 30. */
  readonly idleSeconds?: number
  /**
   * What becomes of a room that was empty for `idleSeconds`. `dispose`, the default: it ends. `sleep`: it rests in the store, where it counts as
   * one of its project's, until it is joined; `ctx.close()` ends it for good.
   */
  readonly onIdle?: 'dispose' | 'sleep'
  /**
   * So long a lost connection keeps its seat: at most, and by default, `SESSION_RESUME_TTL`. 0: who loses the connection leaves.
   */
  readonly reconnectSeconds?: number
  /** The state of a new room; `options` are those of the first join. */
  readonly create: (options: Out<Options>) => State
  /**
   * Brings the first state of a room that is nowhere yet, from a database; undefined: there is none, and `create` makes it. `options` are those
   * of the first join. It may take 10 s; when it takes longer, or throws, joins are refused with `room_unavailable`, and the next calls it again.
   */
  load?(
    key: string,
    options: Out<Options>,
    room: { readonly projectId: string },
  ): Promise<NoInfer<State> | undefined> | NoInfer<State> | undefined
  /** The version of the state's shape: a whole number, default 1. One more whenever the shape changes. */
  readonly version?: number
  /**
   * What to do to a state of each version below `version`: by that version, a function which gets it as plain JSON, and changes it or returns
   * another, of the next version. It runs as the first turn where a room of an older version is opened, and members see what it changes as an update.
   */
  readonly migrate?: { readonly [from: number]: Migration }
  /** Takes the state to a database while the room lives, and at its end. */
  readonly save?: RoomSave<NoInfer<State>>
  /** May refuse a join by returning a reason; it may take 5 s. */
  admit?(
    member: Member,
    options: Out<Options>,
    ctx: AdmitContext<NoInfer<State>>,
  ): Admission | Promise<Admission>
  /** A member has joined. What it changes is in the first state that the newcomer sees. Where it throws, the join is refused. */
  onJoin?(
    state: Draft<NoInfer<State>>,
    member: Member,
    ctx: RoomContext<Events, Tasks, Timers>,
    options: Out<Options>,
  ): HandlerResult<NoInfer<State>, Events>
  /** A member has sent a message whose type has no `handle`. */
  onMessage?(
    state: Draft<NoInfer<State>>,
    input: RoomInput<Messages, Unhandled<Messages, Handled>>,
    ctx: MessageContext<Events, Tasks, ReplyTo<Replies, Unhandled<Messages, Handled>>, Timers>,
  ): HandlerResult<NoInfer<State>, Events>
  /** Another name of `onMessage`. */
  on_message?(
    state: Draft<NoInfer<State>>,
    input: RoomInput<Messages, Unhandled<Messages, Handled>>,
    ctx: MessageContext<Events, Tasks, ReplyTo<Replies, Unhandled<Messages, Handled>>, Timers>,
  ): HandlerResult<NoInfer<State>, Events>
  /** A member has lost its connection; its seat is kept for `reconnectSeconds`. Members are told (`room.presence`). */
  onDisconnect?(
    state: Draft<NoInfer<State>>,
    member: Member,
    ctx: RoomContext<Events, Tasks, Timers>,
  ): HandlerResult<NoInfer<State>, Events>
  /** A member that had lost its connection is back. */
  onReconnect?(
    state: Draft<NoInfer<State>>,
    member: Member,
    ctx: RoomContext<Events, Tasks, Timers>,
  ): HandlerResult<NoInfer<State>, Events>
  /** A member is gone: it left, was kicked, or did not come back within `reconnectSeconds`. */
  onLeave?(
    state: Draft<NoInfer<State>>,
    member: Member,
    ctx: RoomContext<Events, Tasks, Timers>,
  ): HandlerResult<NoInfer<State>, Events>
  /** Called as often as `tick` says. */
  onTick?(
    state: Draft<NoInfer<State>>,
    ctx: RoomContext<Events, Tasks, Timers>,
  ): HandlerResult<NoInfer<State>, Events>
  /** The room ends: by `ctx.close()`, or because it was empty for `idleSeconds`. The last turn that it has. */
  onDispose?(
    state: Draft<NoInfer<State>>,
    ctx: RoomContext<Events, Tasks, Timers>,
  ): HandlerResult<NoInfer<State>, Events>
}

/** A handler as the engine calls it. */
export type Hook = (state: unknown, ...rest: unknown[]) => unknown

/** One message type with its defaults filled in. */
export interface MessageType {
  readonly data: StandardSchemaV1
  readonly reply: StandardSchemaV1 | undefined
  readonly rate: Required<MessageRate> | undefined
  readonly handle: Hook | undefined
}

/** One kind of task. */
export interface TaskType {
  readonly result: StandardSchemaV1
  readonly handle: Hook
}

/** One kind of timer. */
export interface TimerType {
  readonly data: StandardSchemaV1
  readonly handle: Hook
}

/** A checked room type with every default filled in: what the engine runs. Made by `defineRoom` only. */
export interface RoomDefinition {
  readonly [ROOM]: true
  readonly type: string
  readonly maxMembers: number
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
  readonly onIdle: 'dispose' | 'sleep'
  /** Infinity: as long as the session may be resumed. */
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

/** What a client can know of a room type from its definition. */
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

/** A message type that limits nothing and a room without messages: what is inferred where an author says nothing. */
type None = Record<never, never>

/**
 * Defines a room type; the module's default export. Throws a `RoomDefinitionError` that names every mistake. The result is frozen and
 * carries its types for the client: `client.join<typeof arena>('arena')`.
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

/** Whether a value came from `defineRoom`, of this or another copy of this module. */
export const isRoomDefinition = (value: unknown): value is RoomDefinition =>
  typeof value === 'object' && value !== null && (value as { [ROOM]?: unknown })[ROOM] === true

/** The room types a node has installed, by name. Throws RoomDefinitionError for two of a name, and for what `defineRoom` did not make. */
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
