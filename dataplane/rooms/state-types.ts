/** Checks of a room type's state that TypeScript makes. Nothing here exists at run time. */
import type { Json } from '../../shared/json.ts'
import type { LayerRule } from './layer-rules.ts'

/** True for `any` and `unknown`, and before TypeScript has inferred the type. */
type Unknown<T> = unknown extends T ? true : false

/** A value that is not JSON, with the reason and what to use instead. */
interface NotJson<Reason extends string> {
  readonly 'not JSON': Reason
}

/**
 * Type that `T` can be assigned to if it is JSON. The parts that are not have `NotJson` in their place, so that TypeScript reports each at its
 * line. Class instances that have only data are found at run time.
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
