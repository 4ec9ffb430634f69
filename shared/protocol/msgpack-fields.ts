import type { Json } from '../json.ts'
import { ProtocolError } from './codec.ts'
import type { Either, Field, Fields, Table } from './fields.ts'
import { type MsgpackReader, NIL } from './msgpack-reader.ts'
import type { MsgpackWriter } from './msgpack-writer.ts'

type Named = { readonly [name: string]: unknown }
type Write<T> = (to: MsgpackWriter, value: T) => void
type Read = (from: MsgpackReader) => unknown

/** Of each message, what writes it as a MessagePack array that begins with the opcode. */
export const messageWriters = <T extends Table>(table: T): { readonly [N in keyof T]: Write<object> } =>
  Object.fromEntries(
    Object.entries(table).map(([t, { opcode, fields }]) => [t, recordWriter(fields, opcode)]),
  ) as { [N in keyof T]: Write<object> }

/** Writes a record as an array, with the opcode before the fields where there is one. Throws a TypeError for what is not JSON. */
function recordWriter(fields: Fields, opcode?: number): Write<object> {
  const names = Object.keys(fields)
  const required = 1 + Object.values(fields).findLastIndex(({ kind }) => kind !== 'optional')
  const write = valuesWriter(fields)
  return (to, values) => {
    let length = names.length
    while (length > required && (values as Named)[names[length - 1]!] === undefined) length--
    if (opcode === undefined) to.array(length)
    else {
      to.array(length + 1)
      to.number(opcode)
    }
    write(to, values, length)
  }
}

/** Writes the values of the first `length` of these fields, one after the other. */
export function valuesWriter(fields: Fields): (to: MsgpackWriter, values: object, length?: number) => void {
  const names = Object.keys(fields)
  const writers = Object.entries(fields).map(([name, field]) => fieldWriter(name, field))
  return (to, values, length = names.length) => {
    for (let i = 0; i < length; i++) {
      const write = writers[i]
      if (write) write(to, values as Named)
      else to.value((values as Named)[names[i]!] as Json)
    }
  }
}

/** What writes a field of an object; undefined where that is its value as it is. */
function fieldWriter(name: string, field: Field | Either): Write<Named> | undefined {
  if (field.kind === 'either') {
    const { text, record } = field
    const write = writerOf(record.field)
    return (to, values) =>
      text.name in values ? to.value(values[text.name] as Json) : write(to, values[record.name])
  }
  if (isPlain(field)) return undefined
  const write = writerOf(field)
  return (to, values) => write(to, values[name])
}

/** Whether the value of a field is the same in MessagePack. */
const isPlain = ({ kind }: Field): boolean => !['choice', 'list', 'record', 'optional', 'nil'].includes(kind)

/** Writes the value of a field. */
export function writerOf(field: Field): Write<unknown> {
  switch (field.kind) {
    case 'choice':
      return (to, value) => to.number(field.names.indexOf(value as string))
    case 'list': {
      const write = writerOf(field.of)
      return (to, value) => {
        const elements = value as readonly unknown[]
        to.array(elements.length)
        for (const element of elements) write(to, element)
      }
    }
    case 'record':
      return recordWriter(field.fields) as Write<unknown>
    case 'optional':
    case 'nil': {
      const write = writerOf(field.of)
      return (to, value) => (value === undefined ? to.nil() : write(to, value))
    }
    default:
      return (to, value) => to.value(value as Json)
  }
}

/** Reads the fields of a record: `length` elements of an array. `t`: what the object begins with. */
type ReadFields = (from: MsgpackReader, length: number, t?: string) => object

/** By their opcodes, what reads messages behind the opcode. */
export const messageReaders = (
  table: Table,
): ReadonlyMap<unknown, { readonly t: string; readonly read: ReadFields }> =>
  new Map(Object.entries(table).map(([t, { opcode, fields }]) => [opcode, { t, read: recordReader(fields) }]))

/** Reads the values of these fields, one after the other, into an object that begins with `t`. */
export function valuesReader(fields: Fields): (from: MsgpackReader, t: string) => object {
  const { length } = Object.keys(fields)
  const read = recordReader(fields)
  return (from, t) => read(from, length, t)
}

/**
 * The sender is trusted: nothing but the shape is checked, and elements behind those that are known are skipped. What it reads throws a
 * ProtocolError where some are missing.
 */
function recordReader(fields: Fields): ReadFields {
  const entries = Object.entries(fields).map(([name, field]) => {
    if (field.kind === 'either') throw new TypeError(`${name}: only clients send one of two fields`)
    return {
      name,
      read: isPlain(field) ? undefined : readerOf(field),
      required: field.kind !== 'optional',
    }
  })
  return (from, length, t) => {
    // Not begun as { t }: that one has no room for more.
    const values: { [name: string]: unknown } = {}
    if (t !== undefined) values.t = t
    let i = 0
    for (const { name, read, required } of entries) {
      if (i++ < length) {
        const value = read ? read(from) : from.value()
        if (value !== undefined) values[name] = value
      } else if (required) throw new ProtocolError(`a frame ends before ${name}`)
    }
    for (; i < length; i++) from.value()
    return values
  }
}

export function readerOf(field: Field): Read {
  switch (field.kind) {
    case 'choice':
      return (from) => field.names[from.value() as number]
    case 'list': {
      const read = readerOf(field.of)
      return (from) => {
        const elements: unknown[] = []
        for (let left = from.array(); left > 0; left--) elements.push(read(from))
        return elements
      }
    }
    case 'record': {
      const read = recordReader(field.fields)
      return (from) => read(from, from.array())
    }
    case 'optional':
    case 'nil': {
      const read = readerOf(field.of)
      return (from) => (from.peek() === NIL ? void from.value() : read(from))
    }
    default:
      return (from) => from.value()
  }
}
