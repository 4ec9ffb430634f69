/**
 * Types that connect a room definition with the client. `defineRoom` returns a `TypedRoom`, from which `client.join<typeof arena>(…)` infers
 * the room's types. Nothing here exists at run time.
 */
import type { Json, JsonObject } from './json.ts'

/** Types of a room type that the client needs. */
export interface RoomTypes {
  /** State of the room, hidden parts included. */
  readonly state: unknown
  /** Paths of the hidden parts. Absent: nothing is hidden. */
  readonly layers?: string
  /** Data of the room in lists of rooms. Absent or never: the room is not listed. */
  readonly listing?: unknown
  /** Data that a client sends, by message type. This is the input of the schema, without defaults. */
  readonly messages: { readonly [type: string]: unknown }
  /** Results of `room.request`, by message type. Absent: no message has a reply. */
  readonly replies?: { readonly [type: string]: unknown }
  /** Data and replies of the calls of backends, by name. Absent: the room type has no calls. */
  readonly calls?: {
    readonly [name: string]: {
      /** Data of the call. */
      readonly data: unknown
      /** Reply to the call. */
      readonly reply: unknown
    }
  }
  /** Data that members receive, by event name. */
  readonly events: { readonly [name: string]: unknown }
  /** Join options other than `key`. This is the input of the schema, without defaults. */
  readonly options: object
  /** Data of the notices that a backend receives, by name. Absent: the room sends none. */
  readonly notices?: { readonly [name: string]: unknown }
}

/** Types of a room whose definition is unknown: any JSON. */
export interface UntypedRoom extends RoomTypes {
  readonly state: Json
  readonly listing: Json
  readonly messages: { readonly [type: string]: Json }
  readonly replies: { readonly [type: string]: Json }
  readonly calls: {
    readonly [name: string]: {
      /** Data of the call. */
      readonly data: Json
      /** Reply to the call. */
      readonly reply: Json
    }
  }
  readonly events: { readonly [name: string]: Json }
  readonly options: JsonObject
  readonly notices: { readonly [name: string]: Json }
}

/** A room definition as the client needs it: its name, and its types in a property that exists only for the compiler. */
export interface TypedRoom<T extends RoomTypes = RoomTypes, Type extends string = string> {
  /** Room type that clients join. */
  readonly type: Type
  /** Exists only for the compiler. */
  readonly '~types'?: T
}

/**
 * Room of a call without a type argument, in overloads that need one. No text is its type, so the overload does not apply. If no other one
 * does, the compiler takes this for the result: because nothing is known of it, a wrong option is one error, and not one for each later line.
 */
// biome-ignore lint/suspicious/noExplicitAny: every use of it compiles
export type NoRoom = TypedRoom<any, never>

/** List or object of room definitions, for `connect<typeof rooms>`. */
export type RoomCollection = readonly TypedRoom[] | { readonly [name: string]: TypedRoom }

/** Union of the definitions in a collection. */
export type RoomIn<Rooms extends RoomCollection> = Rooms extends readonly (infer R)[] ? R : Rooms[keyof Rooms]

/** The definition of a room type in a collection. */
export type RoomOfType<Rooms extends RoomCollection, Type extends string> = OfType<RoomIn<Rooms>, Type>
type OfType<R, Type extends string> = R extends TypedRoom ? (Type extends R['type'] ? R : never) : never

type TypesOf<R extends TypedRoom> = NonNullable<R['~types']>

/** State of the room definition `R`, as its handlers see it. */
export type RoomState<R extends TypedRoom> = TypesOf<R>['state']
/** Types of a room with hidden parts. */
interface WithLayers<Patterns extends string> {
  /** Path patterns of the hidden parts. */
  readonly layers: Patterns
}
/** State of `R`, as a client sees it. Hidden values are optional. */
export type VisibleState<R extends TypedRoom> =
  TypesOf<R> extends WithLayers<infer Patterns> ? Visible<RoomState<R>, Patterns> : Immutable<RoomState<R>>
/** Data of the messages of `R`, by message type. */
export type RoomMessages<R extends TypedRoom> = TypesOf<R>['messages']
/** Replies of `R`, by message type. */
export type RoomReplies<R extends TypedRoom> = NonNullable<TypesOf<R>['replies']>
/** Calls of `R` for backends, by name, each with its `data` and `reply`. */
export type RoomCalls<R extends TypedRoom> = NonNullable<TypesOf<R>['calls']>
/** Data of the events of `R`, by event name. */
export type RoomEvents<R extends TypedRoom> = TypesOf<R>['events']
/** Data of the notices of `R`, by name. */
export type RoomNotices<R extends TypedRoom> = NonNullable<TypesOf<R>['notices']>
/** Join options of `R` other than `key`. */
export type RoomOptions<R extends TypedRoom> = TypesOf<R>['options']
/** Data of the rooms of `R` in lists. */
export type RoomListing<R extends TypedRoom> = Exclude<TypesOf<R>['listing'], undefined>

/** A value that lists of rooms can be searched by. */
type Scalar = string | number | boolean | null
/** Range of numbers. */
export interface NumberRange {
  /** Smallest number. Default: no limit. */
  readonly min?: number
  /** Largest number. Default: no limit. */
  readonly max?: number
}

/** Condition on a field: this value, one of these values, or for a number a range. */
export type Condition<Value> = Value | readonly Value[] | ([Value] extends [number] ? NumberRange : never)
/** Conditions on fields of a room's `data` in lists. All must hold. Only fields with a text, number, boolean or null can have one. */
export type RoomWhere<R extends TypedRoom> = Conditions<RoomListing<R>>
type Conditions<Data> = string extends keyof Data | ([Json] extends [Data] ? string : never)
  ? { readonly [field: string]: Condition<string> | Condition<number> | Condition<boolean | null> }
  : {
      readonly [K in keyof Data as Exclude<Data[K], undefined> extends Scalar ? K : never]?: Condition<
        Exclude<Data[K], undefined>
      >
    }

/** `T`, readonly at every depth, with the values that `Patterns` match optional. */
export type Visible<T, Patterns extends string> = [Patterns] extends [never]
  ? Immutable<T>
  : T extends readonly unknown[]
    ? Immutable<T>
    : T extends object
      ? Flat<
          {
            readonly [K in keyof T as Matches<Patterns, K> extends true ? never : K]: Visible<
              T[K],
              Below<Patterns, K>
            >
          } & { readonly [K in keyof T as Matches<Patterns, K> extends true ? K : never]?: Immutable<T[K]> }
        >
      : T

/** One object type instead of an intersection. */
type Flat<T> = { [K in keyof T]: T[K] }

/** True if one of the patterns is the key, or `*`. */
type Matches<Patterns extends string, K> = true extends (Patterns extends '*' | (K & string) ? true : never)
  ? true
  : false

/** The patterns behind a key. */
type Below<Patterns extends string, K> = Patterns extends `${infer Key}.${infer Rest}`
  ? Key extends '*' | (K & string)
    ? Rest
    : never
  : never

/** `T` with all properties readonly, at every depth. `Json` is unchanged. */
export type Immutable<T> = [Json] extends [T]
  ? T
  : T extends object
    ? { readonly [K in keyof T]: Immutable<T[K]> }
    : T
