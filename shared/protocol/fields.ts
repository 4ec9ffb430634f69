import type { Json, JsonObject } from '../json.ts'
import type { MsgpackReader, MsgpackWriter } from './msgpack.ts'

/**
 * What a field of a message is: from it its type, its check (schema.ts) and its two forms follow. In JSON a field stands under its name
 * and as it is; in MessagePack at its place in the table, and as `write` and `read` say, where it has them.
 */
export type Field<T = unknown> = (
  | { readonly kind: 'text'; readonly max: number; readonly address?: true }
  | { readonly kind: 'ref' | 'count' | 'number' | 'flag' | 'json' | 'options' }
  | { readonly kind: 'choice'; readonly names: readonly string[] }
  | { readonly kind: 'list'; readonly of: Field; readonly max: number }
  | { readonly kind: 'record'; readonly fields: Fields }
  | { readonly kind: 'optional' | 'nil'; readonly of: Field }
) & { readonly type?: T; readonly write?: Write; readonly read?: Read }

/** One of two fields, in one place: text, or a record, which tells them apart in MessagePack. */
export interface Either<T = unknown> {
  readonly kind: 'either'
  readonly text: { readonly name: string; readonly field: Field }
  readonly record: { readonly name: string; readonly field: Field }
  readonly type?: T
  /** Only clients send it. */
  readonly read?: undefined
}

/** The fields of a message or of a record, in their order in MessagePack; an `Either` stands under any name. */
export type Fields = { readonly [name: string]: Field | Either }

/** Messages by their `t`. */
export type Table = { readonly [t: string]: { readonly opcode: number; readonly fields: Fields } }

/** Throws a TypeError for what is not JSON. */
type Write = (to: MsgpackWriter, value: unknown) => void
/** Throws a ProtocolError, or a TypeError where elements are missing. The sender is trusted: nothing but the shape is checked. */
type Read = (from: MsgpackReader) => unknown
type Named = { [name: string]: unknown }

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

/** A message: its opcode in MessagePack, and its fields. */
export const message = <F extends Fields>(opcode: number, fields: F) => ({ opcode, fields })

/** A string; of 1 to `max` UTF-16 code units, where a client sends it. */
export const text = (max = Number.POSITIVE_INFINITY): Field<string> => ({ kind: 'text', max })
/** The room that a message is about. No element in MessagePack, where the frame before says it: see `ROOM_OPCODE`. */
export const ADDRESS: Field<string> = { kind: 'text', max: Number.POSITIVE_INFINITY, address: true }
/** A positive integer. */
export const REF: Field<number> = { kind: 'ref' }
/** An integer from 0. */
export const COUNT: Field<number> = { kind: 'count' }
export const NUMBER: Field<number> = { kind: 'number' }
export const FLAG: Field<boolean> = { kind: 'flag' }
/** Any value of JSON. */
export const VALUE: Field<Json> = { kind: 'json' }
/** The options of a join: what is absent becomes the default instance. */
export const OPTIONS: Field<JsonObject & { readonly key?: string }> = { kind: 'options' }

/** A field of a narrower or wider type than what it is made of. */
export const typed = <T>(field: Field): Field<T> => field as Field<T>

/** One of a few strings; their index stands for them in MessagePack. */
export const choice = <const N extends readonly string[]>(names: N): Field<N[number]> => ({
  kind: 'choice',
  names,
  write: (to, value) => to.number(names.indexOf(value as string)),
  read: (from) => names[from.value() as number],
})

export const list = <T>(of: Field<T>, max = Number.POSITIVE_INFINITY): Field<T[]> => ({
  kind: 'list',
  of,
  max,
  write(to, value) {
    const elements = value as readonly unknown[]
    to.array(elements.length)
    for (const element of elements) writeField(of, to, element)
  },
  read(from) {
    const elements: unknown[] = []
    for (let left = from.array(); left > 0; left--) elements.push(readField(of, from))
    return elements
  },
})

/** An object in JSON, an array in MessagePack. */
export function record<F extends Fields>(fields: F): Field<Values<F>> {
  const read = recordReader(fields)
  return { kind: 'record', fields, write: recordWriter(fields), read: (from) => read(from, from.array()) }
}

/** May be absent. At the end of a MessagePack array it is left out then, elsewhere it is nil. */
export const optional = <T>(of: Field<T>) => absent('optional', of)

/** May be absent, and is nil in MessagePack then, wherever it stands. */
export const orNil = <T>(of: Field<T>) => absent('nil', of)

const absent = <T, K extends 'optional' | 'nil'>(kind: K, of: Field<T>): Field<T> & { readonly kind: K } => ({
  kind,
  of,
  write: (to, value) => (value === undefined ? to.nil() : writeField(of, to, value)),
  read: (from) => (from.nil() ? undefined : readField(of, from)),
})

/** Exactly one of two. */
export const either = <N extends string, T, M extends string, R>(
  [name, field]: [N, Field<T>],
  [recordName, recordField]: [M, Field<R>],
): Either<{ [K in N]: T } | { [K in M]: R }> => ({
  kind: 'either',
  text: { name, field },
  record: { name: recordName, field: recordField },
})

export function writeField(field: Field, to: MsgpackWriter, value: unknown): void {
  if (field.write) field.write(to, value)
  else to.value(value as Json)
}

export const readField = (field: Field, from: MsgpackReader): unknown =>
  field.read ? field.read(from) : from.value()

/** The fields that are elements of the array that they are in MessagePack. */
export const elementsOf = (fields: Fields): [name: string, Field | Either][] =>
  Object.entries(fields).filter(([, field]) => !('address' in field))

/** Writes the first `length` of these fields of an object, one after the other. */
function valuesWriter(fields: Fields): (to: MsgpackWriter, values: object, length: number) => void {
  const elements = elementsOf(fields)
  const names = elements.map(([name]) => name)
  const writers = elements.map(([name, field]): Write | undefined => {
    if (field.kind === 'either') return (to, values) => writeEither(field, to, values as Named)
    const { write } = field
    return write && ((to, values) => write(to, (values as Named)[name]))
  })
  return (to, values, length) => {
    for (let i = 0; i < length; i++) {
      const write = writers[i]
      if (write) write(to, values)
      else to.value((values as Named)[names[i]!] as Json)
    }
  }
}

function writeEither({ text, record }: Either, to: MsgpackWriter, values: Named): void {
  const { name, field } = text.name in values ? text : record
  writeField(field, to, values[name])
}

/** Writes objects with these fields as arrays, with an opcode before the fields where there is one. */
function recordWriter(fields: Fields, opcode?: number): Write {
  const elements = elementsOf(fields)
  const required = requiredOf(elements)
  const write = valuesWriter(fields)
  return (to, values) => {
    let length = elements.length
    while (length > required && (values as Named)[elements[length - 1]![0]] === undefined) length--
    if (opcode === undefined) to.array(length)
    else {
      to.array(length + 1)
      to.number(opcode)
    }
    write(to, values as object, length)
  }
}

/** Reads `length` elements of an array as these fields, into an object that begins with `t` where it is given. */
type ReadFields = (from: MsgpackReader, length: number, t?: string) => object

function recordReader(fields: Fields): ReadFields {
  const elements = elementsOf(fields)
  const names = elements.map(([name]) => name)
  const reads = elements.map(([, { read }]) => read)
  const required = requiredOf(elements)
  return (from, length, t) => {
    if (length < required) throw new TypeError(`${length} of ${required} elements`)
    // Not begun as { t }: that one has no room for more.
    const values: Named = {}
    if (t !== undefined) values.t = t
    for (let i = 0; i < length; i++) {
      const read = reads[i]
      const value = read ? read(from) : from.value()
      const name = names[i]
      // There is none for what a later version adds.
      if (value !== undefined && name !== undefined) values[name] = value
    }
    return values
  }
}

/** How many of the fields are always there: those up to the last that is not optional. */
const requiredOf = (elements: [name: string, Field | Either][]): number =>
  1 + elements.findLastIndex(([, { kind }]) => kind !== 'optional')

/** Of each message, what writes it as an array that begins with the opcode. */
export const messageWriters = <T extends Table>(table: T): { readonly [N in keyof T]: Write } =>
  Object.fromEntries(
    Object.entries(table).map(([t, { opcode, fields }]) => [t, recordWriter(fields, opcode)]),
  ) as { [N in keyof T]: Write }

/** By their opcodes, what reads messages behind the opcode. */
export const messageReaders = (
  table: Table,
): ReadonlyMap<unknown, { readonly t: string; readonly read: ReadFields }> =>
  new Map(Object.entries(table).map(([t, { opcode, fields }]) => [opcode, { t, read: recordReader(fields) }]))
