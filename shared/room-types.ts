/**
 * The types that a room definition carries for the client. `defineRoom` returns a `TypedRoom`, so that `client.join<typeof arena>(…)`
 * infers everything without the client knowing anything of rooms. Nothing here exists at run time.
 */
import type { Json, JsonObject } from './json.ts'

/** What a client sees of one room type. */
export interface RoomTypes {
  /** The room's state. */
  readonly state: unknown
  /** By message type: the data a client sends (the schema's input, before its defaults). */
  readonly messages: { readonly [type: string]: unknown }
  /** By message type: what `room.request` resolves to. Absent: no message is answered. */
  readonly replies?: { readonly [type: string]: unknown }
  /** By event name: the data members receive. */
  readonly events: { readonly [name: string]: unknown }
  /** Join options besides `key` (the schema's input, before its defaults). */
  readonly options: object
}

/** What is known of a room whose definition is not: JSON everywhere. */
export interface UntypedRoom extends RoomTypes {
  readonly state: Json
  readonly messages: { readonly [type: string]: Json }
  readonly replies: { readonly [type: string]: Json }
  readonly events: { readonly [name: string]: Json }
  readonly options: JsonObject
}

/** A room definition as the client needs it: its name, and its types in a property that no definition ever sets. */
export interface TypedRoom<T extends RoomTypes = RoomTypes, Type extends string = string> {
  /** What clients join by. */
  readonly type: Type
  /** For the compiler alone: no definition ever has it. */
  readonly '~types'?: T
}

/** Room definitions, as a list or by any names: what `connect<typeof rooms>` takes. */
export type RoomCollection = readonly TypedRoom[] | { readonly [name: string]: TypedRoom }

/** Each definition in a collection. */
export type RoomIn<Rooms extends RoomCollection> = Rooms extends readonly (infer R)[] ? R : Rooms[keyof Rooms]

/** The definition of a room type in a collection. */
export type RoomOfType<Rooms extends RoomCollection, Type extends string> = OfType<RoomIn<Rooms>, Type>
type OfType<R, Type extends string> = R extends TypedRoom ? (Type extends R['type'] ? R : never) : never

type TypesOf<R extends TypedRoom> = NonNullable<R['~types']>

/** The state of room definition `R`. */
export type RoomState<R extends TypedRoom> = TypesOf<R>['state']
/** The data of each message of `R`, by message type. */
export type RoomMessages<R extends TypedRoom> = TypesOf<R>['messages']
/** The reply to each message of `R` that is answered, by message type. */
export type RoomReplies<R extends TypedRoom> = NonNullable<TypesOf<R>['replies']>
/** The data of each event of `R`, by event name. */
export type RoomEvents<R extends TypedRoom> = TypesOf<R>['events']
/** The join options of `R` besides `key`. */
export type RoomOptions<R extends TypedRoom> = TypesOf<R>['options']

/** `T` with everything in it readonly, all the way down. `Json` is that already. */
export type Immutable<T> = [Json] extends [T]
  ? T
  : T extends object
    ? { readonly [K in keyof T]: Immutable<T[K]> }
    : T
