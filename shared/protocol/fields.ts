import type { Json, JsonObject } from '../json.ts'
import type { MsgpackReader, MsgpackWriter } from './msgpack.ts'

/**
 * Description of a message field. Its type, its check (schema.ts) and its two encodings follow from it. JSON has the field under its name.
 * MessagePack has it at its position in the table, with the encoding of `write` and `read` if they exist.
 */
export type Field<T = unknown> = (
  | { readonly kind: 'text'; readonly max: number; readonly address?: true }
  | { readonly kind: 'ref' | 'count' | 'number' | 'flag' | 'json' | 'options' }
  | { readonly kind: 'choice'; readonly names: readonly string[] }
  | { readonly kind: 'list'; readonly of: Field; readonly max: number }
  | { readonly kind: 'record'; readonly fields: Fields }
  | { readonly kind: 'optional' | 'nil'; readonly of: Field }
) & { readonly type?: T; readonly write?: Write; readonly read?: Read }

/** One of two fields at one position: text or a record, which MessagePack distinguishes by type. */
export interface Either<T = unknown> {
  readonly kind: 'either'
  readonly text: { readonly name: string; readonly field: Field }
  readonly record: { readonly name: string; readonly field: Field }
  readonly type?: T
  /** Never read: only clients send it. */
  readonly read?: undefined
}

/** Fields of a message or of a record, in their MessagePack order. The name of an `Either` has no meaning. */
export type Fields = { readonly [name: string]: Field | Either }

/** Messages by their `t`. */
export type Table = { readonly [t: string]: { readonly opcode: number; readonly fields: Fields } }

/** Throws a TypeError for a value that is not JSON. */
type Write = (to: MsgpackWriter, value: unknown) => void
/** Throws a ProtocolError, or a TypeError for missing elements. The sender is trusted, so only the shape is checked. */
type Read = (from: MsgpackReader) => unknown
type Named = { [name: string]: unknown }

type Absent = { readonly kind: 'optional' | 'nil' }
type Flat<T> = T extends unknown ? { [N in keyof T]: T[N] } : never
type Chosen<F extends Fields> = {
  [N in keyof F]: F[N] extends { readonly kind: 'either'; readonly type?: infer T } ? T : never
}[keyof F]
type TypeOf<F> = F extends { readonly type?: infer T } ? T : never

/** Type of a message or record with these fields. */
export type Values<F extends Fields> = Flat<
  { [N in keyof F as F[N] extends Absent | Either ? never : N]: TypeOf<F[N]> } & {
    [N in keyof F as F[N] extends Absent ? N : never]?: TypeOf<F[N]>
  } & ([Chosen<F>] extends [never] ? unknown : Chosen<F>)
>

/** A message: its MessagePack opcode, and its fields. */
export const message = <F extends Fields>(opcode: number, fields: F) => ({ opcode, fields })

/** A string. From clients: 1 to `max` UTF-16 code units. */
export const text = (max = Number.POSITIVE_INFINITY): Field<string> => ({ kind: 'text', max })
/** Room of a message. MessagePack omits it if the preceding frame names the room: see `ROOM_OPCODE`. */
export const ADDRESS: Field<string> = { kind: 'text', max: Number.POSITIVE_INFINITY, address: true }
/** A positive integer. */
export const REF: Field<number> = { kind: 'ref' }
/** An integer of at least 0. */
export const COUNT: Field<number> = { kind: 'count' }
export const NUMBER: Field<number> = { kind: 'number' }
export const FLAG: Field<boolean> = { kind: 'flag' }
/** Any JSON value. */
export const VALUE: Field<Json> = { kind: 'json' }
/** Options of a join. Without options: the default instance. */
export const OPTIONS: Field<JsonObject & { readonly key?: string }> = { kind: 'options' }

/** Returns the field with another type, narrower or wider. */
export const typed = <T>(field: Field): Field<T> => field as Field<T>

/** One of several strings. MessagePack has its index. */
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

/** An optional field. Without a value, MessagePack omits it at the end of an array, and has nil elsewhere. */
export const optional = <T>(of: Field<T>) => absent('optional', of)

/** An optional field. Without a value, MessagePack always has nil. */
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

/** The fields that are elements of a MessagePack array. */
export const elementsOf = (fields: Fields): [name: string, Field | Either][] =>
  Object.entries(fields).filter(([, field]) => !('address' in field))

/** Writes the first `length` of these fields of an object in order. */
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

/** Returns a writer of objects with these fields as arrays. The opcode, if any, comes first. */
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

/** Returns a reader of arrays of `length` elements as these fields. The object starts with `t`, if given. */
type ReadFields = (from: MsgpackReader, length: number, t?: string) => object

function recordReader(fields: Fields): ReadFields {
  const elements = elementsOf(fields)
  const names = elements.map(([name]) => name)
  const reads = elements.map(([, { read }]) => read)
  const required = requiredOf(elements)
  return (from, length, t) => {
    if (length < required) throw new TypeError(`${length} of ${required} elements`)
    // Not created as { t }: V8 reserves no space for more properties in such an object.
    const values: Named = {}
    if (t !== undefined) values.t = t
    for (let i = 0; i < length; i++) {
      const read = reads[i]
      const value = read ? read(from) : from.value()
      const name = names[i]
      // Elements of later versions have no field.
      if (value !== undefined && name !== undefined) values[name] = value
    }
    return values
  }
}

/** Returns the number of required elements: those up to the last field that is not optional. */
const requiredOf = (elements: [name: string, Field | Either][]): number =>
  1 + elements.findLastIndex(([, { kind }]) => kind !== 'optional')

/** Returns for each message a writer of the array that starts with its opcode. */
export const messageWriters = <T extends Table>(table: T): { readonly [N in keyof T]: Write } =>
  Object.fromEntries(
    Object.entries(table).map(([t, { opcode, fields }]) => [t, recordWriter(fields, opcode)]),
  ) as { [N in keyof T]: Write }

/** Returns for each opcode a reader of the elements after it. */
export const messageReaders = (
  table: Table,
): ReadonlyMap<unknown, { readonly t: string; readonly read: ReadFields }> =>
  new Map(Object.entries(table).map(([t, { opcode, fields }]) => [opcode, { t, read: recordReader(fields) }]))
