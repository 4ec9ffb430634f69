import type { Json, JsonObject } from '../json.ts'

/**
 * What a field of a message is: plain data, from which its type, its check (schema.ts), and what writes and reads it as
 * MessagePack (msgpack-fields.ts) are made. In JSON a field stands under its name, in MessagePack at its place in the table.
 */
export type Field<T = unknown> = (
  | { readonly kind: 'text'; readonly max: number }
  | { readonly kind: 'ref' | 'count' | 'number' | 'flag' | 'json' | 'options' }
  | { readonly kind: 'choice'; readonly names: readonly string[] }
  | { readonly kind: 'list'; readonly of: Field; readonly max: number }
  | { readonly kind: 'record'; readonly fields: Fields }
  | { readonly kind: 'optional' | 'nil'; readonly of: Field }
) & { readonly type?: T }

/** One of several fields, in one place: text, or a record, which tells them apart in MessagePack. */
export interface Either<T = unknown> {
  readonly kind: 'either'
  readonly text: { readonly name: string; readonly field: Field }
  readonly record: { readonly name: string; readonly field: Field }
  readonly type?: T
}

/** The fields of a message or of a record, in their order in MessagePack; an `Either` stands under any name. */
export type Fields = { readonly [name: string]: Field | Either }

/** Messages by their `t`. */
export type Table = { readonly [t: string]: { readonly opcode: number; readonly fields: Fields } }

type Absent = { readonly kind: 'optional' | 'nil' }
type Flat<T> = T extends unknown ? { [N in keyof T]: T[N] } : never
type Chosen<F extends Fields> = {
  [N in keyof F]: F[N] extends { readonly kind: 'either'; readonly type?: infer T } ? T : never
}[keyof F]
type TypeOf<F> = F extends { readonly type?: infer T } ? T : never

/** The type of a message or record with these fields. */
export type Values<F extends Fields> = Flat<
  { [N in keyof F as F[N] extends Absent | Either ? never : N]: TypeOf<F[N]> } & {
    [N in keyof F as F[N] extends Absent ? N : never]?: TypeOf<F[N]>
  } & ([Chosen<F>] extends [never] ? unknown : Chosen<F>)
>

/** A string; of 1 to `max` UTF-16 code units, where a client sends it. */
export const text = (max = Number.POSITIVE_INFINITY): Field<string> => ({ kind: 'text', max })
/** A positive integer. */
export const REF: Field<number> = { kind: 'ref' }
/** An integer from 0. */
export const COUNT: Field<number> = { kind: 'count' }
export const NUMBER: Field<number> = { kind: 'number' }
export const FLAG: Field<boolean> = { kind: 'flag' }
/** Any value of JSON. */
export const VALUE: Field<Json> = { kind: 'json' }
/** A field of a narrower or wider type than what it is made of. */
export const typed = <T>(field: Field): Field<T> => field as Field<T>
/** The options of a join: what is absent becomes the default instance. */
export const OPTIONS: Field<JsonObject & { readonly key?: string }> = { kind: 'options' }
/** One of a few strings; their index stands for them in MessagePack. */
export const choice = <const N extends readonly string[]>(names: N): Field<N[number]> => ({
  kind: 'choice',
  names,
})
export const list = <T>(of: Field<T>, max = Number.POSITIVE_INFINITY): Field<T[]> => ({
  kind: 'list',
  of,
  max,
})
/** An object in JSON, an array in MessagePack. */
export const record = <F extends Fields>(fields: F): Field<Values<F>> => ({ kind: 'record', fields })
/** May be absent. At the end of a MessagePack array it is left out then, elsewhere it is nil. */
export const optional = <T>(of: Field<T>): Field<T> & { readonly kind: 'optional' } => ({
  kind: 'optional',
  of,
})
/** May be absent, and is nil in MessagePack then, wherever it stands. */
export const orNil = <T>(of: Field<T>): Field<T> & { readonly kind: 'nil' } => ({ kind: 'nil', of })
/** Exactly one of two. */
export const either = <N extends string, T, M extends string, R>(
  [name, field]: [N, Field<T>],
  [record_name, record_field]: [M, Field<R>],
): Either<{ [K in N]: T } | { [K in M]: R }> => ({
  kind: 'either',
  text: { name, field },
  record: { name: record_name, field: record_field },
})
