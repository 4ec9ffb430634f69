import type { StandardSchemaV1 } from '@standard-schema/spec'
import * as v from 'valibot'
import type { Json, JsonObject } from '../../shared/json.ts'
import type { TypedRoom } from '../../shared/room-types.ts'
import { checkSpec, RoomDefinitionError } from './definition-check.ts'
import type {
  Admission,
  AdmitContext,
  ByName,
  CallSpecs,
  Draft,
  EventInputs,
  HandlerResult,
  In,
  Input,
  Inputs,
  ListedRoomFacts,
  ListingSpec,
  Matches,
  Member,
  MessageContext,
  MessageRate,
  MessageSpecs,
  Migration,
  Names,
  OnceInputs,
  Out,
  Output,
  Pair,
  ReplyTo,
  RetryInputs,
  RoomInput,
  RoomOrigin,
  RoomSave,
  Schemas,
  SpectatorsSpec,
  TaskRun,
  TaskSpecs,
  TimerSpecs,
  TurnContext,
  Unhandled,
} from './definition-types.ts'
import type { LayerRule, LayerRules } from './layer-rules.ts'

/**
 * The options of room types, with their checks at compile time. `definition-check.ts` checks them at load time. `definition-types.ts` has the
 * types of handlers and contexts.
 */

/** Marks a room definition. The symbol is registered, because a process may load the module more than once. */
export const ROOM: unique symbol = Symbol.for('roomful.room') as never

/** What a crash of the server can lose. `journal`: nothing that a member has seen. `snapshot`: the last second. `none`: the whole state. */
export type Durability = 'journal' | 'snapshot' | 'none'

/** Argument of `defineRoom`. Write `create` before the handlers, so that TypeScript knows the state's type in the handlers. */
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
  Listing extends StandardSchemaV1,
  Given,
  Calls,
  CallReplies,
  Notices extends Schemas,
  Context = TurnContext<
    EventInputs<Events>,
    OnceInputs<Tasks, Given>,
    Inputs<Timers>,
    RetryInputs<Given>,
    Inputs<Notices>
  >,
  Sent extends Pair = EventInputs<Events>,
> {
  /** Name that clients join by: 1 to 64 letters, digits, `_` and `-`. The first character is a letter or digit. */
  readonly type: Type
  /** Maximum number of players. Default: no limit. */
  readonly maxPlayers?: number
  /**
   * Members who watch, and take no player's place. They join with `watch: true`, see the state as players do, and send only messages whose
   * type allows it. Default: joins to watch are refused.
   */
  readonly spectators?: SpectatorsSpec<NoInfer<State>, Options, Context, Sent>
  /**
   * Rule for a player who is a member and joins again with another client, for example on another device. roomful recognizes the player by
   * `sub`.
   * - `allow` (default): the newer client becomes another member. If the room is full, the newer client takes over from a disconnected client
   * of the player.
   * - `replace`: the newer client takes over from the older client, with its member id and layers. The older client leaves with the reason
   * `replaced`. `onJoin` and `onLeave` are not called.
   * - `refuse`: the newer client is rejected with `already_joined`.
   */
  readonly sameSub?: 'allow' | 'replace' | 'refuse'
  /** Schema of the join options other than `key`. Default: any. */
  readonly options?: Options
  /** Messages that members may send, by type. */
  readonly messages?: MessageSpecs<NoInfer<State>, Messages, Replies, Handled, Context, Sent>
  /** Calls that your backends may make through the control API, by name. */
  readonly calls?: CallSpecs<NoInfer<State>, Calls, CallReplies, Context, Sent>
  /** Schemas of the events, by name. Default: any name, any JSON. */
  readonly events?: Events
  /** Tasks for `ctx.task`, by name. */
  readonly tasks?: TaskSpecs<NoInfer<State>, Tasks, Given, Context, Sent>
  /**
   * Hidden parts of the state, by path: `{ 'hands.*': (memberId) => `member:${memberId}`, deck: null }`. `*` matches any key. The value at
   * the path, its key and everything in it belong to a layer, which only some members receive. The right side is the layer's name, or a
   * function that returns the name for the matched keys, or `null` to hide the value from all members. Every member has the layer
   * `member:<its id>`. `ctx.show` gives a member other layers. A function must always return the same name for the same keys.
   */
  readonly layers?: LayersOf<NoInfer<State>, Patterns>
  /** Row of the room in lists of rooms. Default: the room is not listed. */
  readonly listing?: ListingSpec<NoInfer<State>, Listing, NoInfer<Patterns>>
  /**
   * True: each room gets a code of six letters and digits, unique in the project, that players can share and type. Only members and
   * backends see it. The code lives as long as the room. Default: no code.
   */
  readonly codes?: boolean
  /** Timers for `ctx.after`, by name. */
  readonly timers?: TimerSpecs<NoInfer<State>, Timers, Context, Sent>
  /** Schemas of the notices for `ctx.notify`, by name. Not with durability `none`. */
  readonly notices?: Notices
  /**
   * Schema of the state, for development: when you edit the definition, a running room gets the new code only if its state fits the schema.
   */
  readonly state?: StandardSchemaV1
  /** Rate of the room's updates. */
  readonly sync?: {
    /** Updates per second, at most 240. Default 20. If the rate is 0, the room sends each change immediately. */
    readonly rate: number
  }
  /** Rate of `onTick`. Default: no ticks. */
  readonly tick?: {
    /** Calls per second, above 0 and at most 240. */
    readonly rate: number
  }
  /** What a crash of the server can lose. Default `journal`: nothing that a member has seen. */
  readonly durability?: Durability
  /** Seconds for which a room must be without players and reservations before it ends or sleeps. Spectators do not count. Default 30. */
  readonly idleSeconds?: number
  /**
   * What happens to a room that was empty for `idleSeconds`. `dispose` (default) deletes the room. `sleep` keeps the room in the store
   * until a client joins, or for `sleepDays`. Sleeping rooms count toward the project's maximum of rooms (`MAX_ROOMS_PER_PROJECT`).
   * `ctx.close()` deletes a room in both cases.
   */
  readonly onIdle?: 'dispose' | 'sleep'
  /**
   * Days after which a sleeping room is deleted, 0.01 to 3650. The days count from the last leave. If the room has timers, they count from
   * the due time of the next timer, if this is later. No handler is called for the deletion. A room with `save` is deleted only after its
   * last state is saved. Default 30.
   */
  readonly sleepDays?: number
  /**
   * Seconds for which a disconnected client stays a member. 0: the member leaves immediately. Default: `SESSION_RESUME_TTL` of the server
   * (60 s). A larger value has no effect.
   */
  readonly reconnectSeconds?: number
  /** Returns the initial state of a new room. `options` are the join options of the first client. */
  readonly create: (options: Out<Options>) => State & JsonState<NoInfer<State>>
  /**
   * Loads the initial state from your database. Called when a client joins a room that is neither running nor in the store. If `load`
   * returns undefined, `create` is called. `options` are the join options of this client. If `load` throws or takes longer than 10 s, the
   * join is rejected with `room_unavailable`, and the next join calls `load` again.
   */
  load?(
    key: string,
    options: Out<Options>,
    room: RoomOrigin,
  ): Promise<NoInfer<State> | undefined> | NoInfer<State> | undefined
  /** Version of the state's shape, an integer. Default 1. Increase it by one when the shape changes. */
  readonly version?: number
  /**
   * Functions that convert a state to the next version. The key of a function is the version that it converts: `1` converts version 1 to 2.
   * Each function gets the state as plain JSON. It changes the argument or returns a new state. roomful calls the functions when a server
   * process opens a room with an older version. Members receive the changes as an update.
   */
  readonly migrate?: { readonly [from: number]: Migration }
  /** Saves the state to your database while the room runs and when it ends. */
  readonly save?: RoomSave<NoInfer<State>>
  /** Called before a join of a player or a spectator (`member.spectator`). To refuse the join, return a text for the player. May be async, for at most 5 s. */
  admit?(
    member: Member,
    options: Out<Options>,
    ctx: AdmitContext<NoInfer<State>>,
  ): Admission | Promise<Admission>
  /**
   * Called when a member becomes a player: by its join, or by `ctx.seat`. The first state that a new member receives includes the changes of
   * this call. If `onJoin` throws, the join fails, or the turn that has seated the member.
   */
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
  /**
   * Called when a player's connection is lost. The client stays a member for `reconnectSeconds`. The other members see `connected: false`.
   */
  onDisconnect?(
    state: Draft<NoInfer<State>>,
    member: Member,
    ctx: Context,
  ): HandlerResult<NoInfer<State>, Sent>
  /** Called when a disconnected player has reconnected. */
  onReconnect?(
    state: Draft<NoInfer<State>>,
    member: Member,
    ctx: Context,
  ): HandlerResult<NoInfer<State>, Sent>
  /**
   * Called when a member stops being a player: it has left, was kicked, did not reconnect within `reconnectSeconds`, or has become a spectator
   * by `ctx.unseat`.
   */
  onLeave?(state: Draft<NoInfer<State>>, member: Member, ctx: Context): HandlerResult<NoInfer<State>, Sent>
  /** Called at the rate of `tick`. */
  onTick?(state: Draft<NoInfer<State>>, ctx: Context): HandlerResult<NoInfer<State>, Sent>
  /**
   * Called when the room ends, by `ctx.close()` or after `idleSeconds` without players. No client receives the changes of this call. Not
   * called for the room of a match that no player has joined.
   */
  onDispose?(state: Draft<NoInfer<State>>, ctx: Context): HandlerResult<NoInfer<State>, Sent>
}

/** Untyped handler. */
export type Hook = (state: unknown, ...rest: unknown[]) => unknown

/** Message type with defaults filled in. */
export interface MessageType {
  readonly data: StandardSchemaV1
  readonly reply: StandardSchemaV1 | undefined
  readonly rate: Required<MessageRate> | undefined
  /** True: spectators may send it. */
  readonly spectators: boolean
  readonly handle: Hook | undefined
}

/** Call type with defaults filled in. */
export interface CallType {
  readonly data: StandardSchemaV1
  readonly reply: StandardSchemaV1 | undefined
  readonly handle: Hook
}

/** Task type. */
export interface TaskType {
  readonly result: StandardSchemaV1
  /** Schema of the data. Undefined: the task has no `retry`. */
  readonly data: StandardSchemaV1 | undefined
  readonly run: ((data: unknown, task: TaskRun) => unknown) | undefined
  readonly handle: Hook
}

/** Timer type. */
interface TimerType {
  readonly data: StandardSchemaV1
  readonly handle: Hook
}

/** Spectators of a room type, with defaults filled in. */
interface SpectatorRules {
  readonly max: number
  readonly visible: boolean
  readonly onJoin: Hook | undefined
  readonly onLeave: Hook | undefined
}

/** Row of the rooms of a type, untyped. */
export interface RoomListingRules {
  readonly data: StandardSchemaV1
  readonly of: (state: unknown, room: ListedRoomFacts) => unknown
  readonly sleeping?: boolean
}

/** Room type with all defaults filled in. Created only by `defineRoom`. */
export interface RoomDefinition {
  readonly [ROOM]: true
  /** Error whose stack starts at the call of `defineRoom`, for log lines. */
  readonly definedAt: Error
  readonly type: string
  /**
   * Hash of the files of the room type's code. Absent: the room type was not loaded from a file.
   * @internal
   */
  readonly codeHash?: string
  /**
   * The room type is a part of roomful. Its tasks can send requests to other rooms.
   * @internal
   */
  readonly system?: true
  readonly maxPlayers: number
  /** Undefined: no member can watch. */
  readonly spectators: SpectatorRules | undefined
  readonly sameSub: 'allow' | 'replace' | 'refuse'
  readonly options: StandardSchemaV1 | undefined
  readonly messages: { readonly [type: string]: MessageType }
  readonly calls: { readonly [name: string]: CallType }
  readonly events: Schemas | undefined
  readonly tasks: { readonly [name: string]: TaskType }
  readonly layers: LayerRules | undefined
  readonly listing: RoomListingRules | undefined
  readonly codes: boolean
  readonly timers: { readonly [name: string]: TimerType }
  readonly notices: Schemas
  readonly state: StandardSchemaV1 | undefined
  readonly sync: { readonly rate: number }
  readonly tick: { readonly rate: number } | undefined
  readonly durability: Durability
  readonly idleSeconds: number
  readonly sleepDays: number
  readonly onIdle: 'dispose' | 'sleep'
  /** Seconds for which a disconnected client stays a member. Infinity: `SESSION_RESUME_TTL`. */
  readonly reconnectSeconds: number
  readonly create: (options: unknown) => unknown
  readonly load: ((key: string, options: unknown, room: RoomOrigin) => unknown) | undefined
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
  /**
   * True: members do not see each other, and a change of the members sends nothing to the others.
   * @internal
   */
  readonly hidesMembers: boolean
  /**
   * Queue of this room type. Absent: the room type is no queue.
   * @internal
   */
  readonly matches?: Matches
}

/** Types that the client and the contexts infer from a room definition. */
export interface DefinedTypes<
  State,
  Messages,
  Replies,
  Events extends Schemas,
  Options extends StandardSchemaV1,
  Patterns extends string,
  Listing extends StandardSchemaV1,
  Calls,
  CallReplies,
  Notices extends Schemas,
  Context,
> {
  readonly state: State
  readonly layers: Patterns
  readonly listing: [Listing] extends [never] ? never : Out<Listing>
  readonly context: Context
  readonly given: { readonly [K in Names<Replies>]: ReplyTo<Replies, K> }
  readonly messages: { readonly [K in Names<Messages>]: Input<Messages[K]> }
  readonly replies: {
    readonly [K in Names<Replies> as Replies[K] extends StandardSchemaV1
      ? K
      : never]: Replies[K] extends StandardSchemaV1 ? Out<Replies[K]> : never
  }
  readonly calls: {
    readonly [K in Names<Calls>]: {
      readonly data: Input<Calls[K]>
      readonly reply: Output<K extends keyof CallReplies ? CallReplies[K] : undefined>
    }
  }
  readonly events: string extends Names<Events>
    ? { readonly [name: string]: Json }
    : { readonly [K in Names<Events>]: Out<Events[K]> }
  readonly options: In<Options> & object
  readonly notices: { readonly [K in Names<Notices>]: Out<Notices[K]> }
}

/** Schema of the data of a message type or call that declares none. Some clients cannot leave out data, and send an empty object. */
export const NO_DATA = v.pipe(
  v.union(
    [v.null(), v.strictObject({})],
    'no data is expected: send null or {}, or declare `data` in the room type',
  ),
  v.transform(() => null),
)

/** Inferred when a definition omits the property. */
type None = Record<never, never>

/**
 * Defines a room type. Export the result as the module's default. Throws a `RoomDefinitionError` that lists all mistakes. The result
 * contains the types of the room for the client: `client.join<typeof arena>('arena')`.
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
  Listing extends StandardSchemaV1 = never,
  Given extends ByName = None,
  CallNames extends string = never,
  const Calls extends ByName = { readonly [K in CallNames]: unknown },
  CallReplies extends ByName = None,
  const Notices extends Schemas = None,
>(
  spec: RoomSpec<
    Type,
    State,
    Messages,
    Replies,
    Handled,
    Events,
    Tasks,
    Options,
    Timers,
    Patterns,
    Listing,
    Given,
    Calls,
    CallReplies,
    Notices
  > & {
    readonly messages?: { readonly [K in Types]: unknown }
    readonly calls?: { readonly [K in CallNames]: unknown }
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
      Listing,
      Calls,
      CallReplies,
      Notices,
      TurnContext<
        EventInputs<Events>,
        OnceInputs<Tasks, Given>,
        Inputs<Timers>,
        RetryInputs<Given>,
        Inputs<Notices>
      >
    >,
    Type
  > {
  checkSpec(spec)
  const specs = Object.entries(spec.messages ?? {}) as [string, Partial<MessageType>][]
  const messages = specs.map(
    ([type, { data = NO_DATA, reply, rate, spectators = false, handle }]): [string, MessageType] => [
      type,
      {
        data,
        reply,
        rate: rate && { ...rate, burst: rate.burst ?? Math.max(1, Math.ceil(rate.perSecond)) },
        spectators,
        handle,
      },
    ],
  )
  const calls = (Object.entries(spec.calls ?? {}) as [string, Partial<CallType>][]).map(
    ([name, { data = NO_DATA, reply, handle }]): [string, CallType] => [
      name,
      { data, reply, handle: handle! },
    ],
  )
  const definedAt = new Error('defineRoom')
  Error.captureStackTrace(definedAt, defineRoom)
  return Object.freeze({
    [ROOM]: true as const,
    definedAt,
    type: spec.type,
    maxPlayers: spec.maxPlayers ?? Number.POSITIVE_INFINITY,
    spectators: spec.spectators && {
      max: spec.spectators.max,
      visible: spec.spectators.visible ?? false,
      onJoin: spec.spectators.onJoin as Hook | undefined,
      onLeave: spec.spectators.onLeave as Hook | undefined,
    },
    sameSub: spec.sameSub ?? 'allow',
    options: spec.options,
    messages: Object.fromEntries(messages),
    calls: Object.fromEntries(calls),
    events: spec.events,
    tasks: (spec.tasks ?? {}) as RoomDefinition['tasks'],
    layers: spec.layers,
    listing: spec.listing as RoomListingRules | undefined,
    codes: spec.codes ?? false,
    timers: (spec.timers ?? {}) as RoomDefinition['timers'],
    notices: spec.notices ?? {},
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
    hidesMembers: false,
  })
}

/** Returns true if `defineRoom` created the value, in this or another copy of the module. */
export const isRoomDefinition = (value: unknown): value is RoomDefinition =>
  typeof value === 'object' && value !== null && (value as { [ROOM]?: unknown })[ROOM] === true

/** Throws a RoomDefinitionError unless the rooms of a queue's matches can be made, and can keep seats for all players of a match. */
export function checkMatches(
  queue: string,
  { room, players }: Matches,
  types: ReadonlyMap<string, RoomDefinition>,
): void {
  const target = types.get(room)
  const problem = !target
    ? `the room type ${JSON.stringify(room)}, which does not exist: there are ${[...types.keys()].join(', ')}`
    : target.matches
      ? `${JSON.stringify(room)}, which is a queue: name a room type`
      : target.durability === 'none'
        ? `${JSON.stringify(room)}, whose durability none keeps no reservations: use journal or snapshot`
        : target.maxPlayers < players
          ? `${JSON.stringify(room)} with ${players} players, but its maxPlayers is ${target.maxPlayers}`
          : undefined
  if (problem !== undefined)
    throw new RoomDefinitionError(`the queue ${JSON.stringify(queue)} makes matches in ${problem}`)
}

/** Checks of a room type's state that TypeScript makes. Nothing here exists at run time. */

/** True for `any` and `unknown`, and before TypeScript has inferred the type. */
type Unknown<T> = unknown extends T ? true : false

/** A value that is not JSON, with the reason and what to use instead. */
interface NotJson<Reason extends string> {
  readonly 'not JSON': Reason
}

/**
 * Type that `T` can be assigned to if it is JSON. The parts that are not have `NotJson` in their place, so that TypeScript reports each at
 * its line. Class instances that have only data are found at run time.
 */
export type JsonState<T> =
  Unknown<T> extends true
    ? unknown
    : [Json] extends [T]
      ? unknown
      : [T] extends [undefined]
        ? // Intersected with anything else, it would make the whole state `never`.
          never
        : JsonPart<T>

type JsonPart<T> = T extends null | boolean | number | string
  ? T
  : T extends ReadonlyMap<unknown, unknown>
    ? NotJson<'a Map: use an object'>
    : T extends ReadonlySet<unknown>
      ? NotJson<'a Set: use an object with the values as keys, or an array'>
      : T extends Date
        ? NotJson<'a Date: use milliseconds, such as ctx.now'>
        : T extends (...args: never) => unknown
          ? NotJson<'a function, or an object with methods: use plain data'>
          : T extends readonly unknown[]
            ? { [K in keyof T]: JsonState<T[K]> }
            : T extends object
              ? {
                  [K in keyof T]: MayBeAbsent<T, K> extends true
                    ? JsonState<Exclude<T[K], undefined>> | undefined
                    : JsonState<T[K]>
                }
              : NotJson<'use null, booleans, numbers, strings, arrays and plain objects'>

/** True for an optional property, and for an index signature. There `undefined` in the type says that the key may be absent. */
type MayBeAbsent<T, K extends keyof T> = Record<never, never> extends Pick<T, K> ? true : false

/** Layers by path pattern. A pattern whose path is not in the state gets a text as its type. */
export type LayersOf<State, Patterns extends string> = {
  readonly [P in Patterns]: Missing<State, P> extends infer Key extends string
    ? LayerRule & `the state has no part ${Key}`
    : LayerRule
}

/** First key of a pattern that the state does not have; null if there is none. */
type Missing<T, Pattern extends string> =
  Unknown<T> extends true
    ? null
    : string extends Pattern
      ? null
      : Pattern extends `${infer Key}.${infer Rest}`
        ? Below<T, Key> extends infer Value
          ? [Value] extends [never]
            ? Key
            : Missing<Value, Rest>
          : never
        : [Below<T, Pattern>] extends [never]
          ? Pattern
          : null

/** Type of the values that a key of a pattern matches; never if there are none. */
type Below<T, Key extends string> = T extends readonly unknown[]
  ? never
  : T extends object
    ? Key extends '*'
      ? T[keyof T]
      : Key extends keyof T
        ? T[Key]
        : never
    : never
