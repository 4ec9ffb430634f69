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
  /** By event name: the data members receive. */
  readonly events: { readonly [name: string]: unknown }
  /** Join options besides `key` (the schema's input, before its defaults). */
  readonly options: object
}

/** What is known of a room whose definition is not: JSON everywhere. */
export interface UntypedRoom extends RoomTypes {
  readonly state: Json
  readonly messages: { readonly [type: string]: Json }
  readonly events: { readonly [name: string]: Json }
  readonly options: JsonObject
}

/** A room definition as the client needs it: its name, and its types in a property that no definition ever sets. */
export interface TypedRoom<T extends RoomTypes = RoomTypes> {
  readonly type: string
  readonly '~types'?: T
}

type TypesOf<R extends TypedRoom> = NonNullable<R['~types']>

/** The state of room definition `R`. */
export type RoomState<R extends TypedRoom> = TypesOf<R>['state']
/** The data of each message of `R`, by message type. */
export type RoomMessages<R extends TypedRoom> = TypesOf<R>['messages']
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
