import type { Json } from '../../shared/json.ts'
import { ProtocolError } from '../../shared/protocol/codec.ts'
import { isArray, isMap, MsgpackReader } from '../../shared/protocol/msgpack-reader.ts'
import { MsgpackWriter } from '../../shared/protocol/msgpack-writer.ts'

/** What nodes send each other: JSON, with bytes in it. */
export type Value = Json | Uint8Array | readonly Value[] | { readonly [key: string]: Value | undefined }

/**
 * Names that stand as integers, by their place in this list; all others are written as strings. It may not change without a new
 * version of the envelope. 0 is no name: a map of that one key is a piece of bytes, and its value their length.
 */
const NAMES: readonly string[] = [
  '',
  'roomful.v1.json',
  'roomful.v1.msgpack',
  'member_id',
  'seq',
  'epoch',
  'patch',
  'rest',
  'personal',
  'joined',
  'events',
  'ack',
  'ref',
  'type',
  'data',
  'after',
  'ask',
  'owner',
  'edge',
  'codec',
  'session_id',
  'sub',
  'options',
  'reason',
  'have_seq',
  'state',
  'resumed',
  'frames',
  'members',
  'snapshot',
  'code',
  'message',
  'farewell',
  't',
  'room_id',
  'name',
]

/** More than the 64 levels a JSON value may have, and what messages put around it. */
const MAX_LEVELS = 100

const NUMBERS: ReadonlyMap<string, number> = new Map(NAMES.slice(1).map((name, index) => [name, index + 1]))

/** Which integer stands for a name. */
const numberOf = (name: string): number | undefined => NUMBERS.get(name)

/** Writes values as MessagePack. Bytes do not go through it: they are set aside, and only their lengths are in it. */
export class FieldWriter {
  readonly #writer = new MsgpackWriter()
  #pieces: Uint8Array[] = []

  begin(): this {
    this.#writer.begin()
    this.#pieces = []
    return this
  }

  /** What was written since `begin`, and the bytes that were set aside, in the order in which they were met. */
  take(): { tree: Uint8Array; pieces: readonly Uint8Array[] } {
    return { tree: this.#writer.take(), pieces: this.#pieces }
  }

  number(value: number): void {
    this.#writer.number(value)
  }

  string(value: string): void {
    this.#writer.string(value)
  }

  /** The fields of an object, without those named in `but` and those that are undefined. */
  fields(object: { readonly [key: string]: Value | undefined }, but: readonly string[] = []): void {
    const names = Object.keys(object)
    let size = 0
    for (const name of names) if (object[name] !== undefined && !but.includes(name)) size++
    this.#writer.map(size)
    for (const name of names) {
      const value = object[name]
      if (value === undefined || but.includes(name)) continue
      this.#writer.key(name, numberOf)
      this.value(value)
    }
  }

  /** A whole value. Throws a TypeError for what is neither JSON nor bytes. */
  value(value: Value): void {
    if (typeof value !== 'object' || value === null) this.#writer.value(value)
    else if (value instanceof Uint8Array) {
      this.#writer.map(1)
      this.#writer.number(0)
      this.#writer.number(value.length)
      this.#pieces.push(value)
    } else if (Array.isArray(value)) {
      this.#writer.array(value.length)
      for (const element of value as readonly Value[]) this.value(element)
    } else this.fields(value as { readonly [key: string]: Value | undefined })
  }
}

/** Reads what a FieldWriter wrote: `tree`, and `bytes`, which begin at `at` and end with the bytes that were set aside. */
export class FieldReader {
  readonly #reader: MsgpackReader
  readonly #bytes: Uint8Array
  readonly #copy: boolean
  #at: number
  #level = 0

  /** `copy`: gives copies of the bytes, instead of views that keep all of `bytes` in memory. */
  constructor(tree: Uint8Array, bytes: Uint8Array, at: number, copy: boolean) {
    this.#reader = new MsgpackReader(tree, NAMES)
    this.#bytes = bytes
    this.#at = at
    this.#copy = copy
  }

  value(): Value {
    const code = this.#reader.peek()
    if (isMap(code)) return this.#map()
    if (isArray(code)) return this.#array()
    return this.#reader.value()
  }

  /** A string. Throws a ProtocolError for anything else, as all methods do. */
  string(): string {
    const value = this.#reader.value()
    if (typeof value !== 'string') throw new ProtocolError(`${typeof value} where a string belongs`)
    return value
  }

  /** Adds the fields of the object that comes next to `object`. */
  fields(object: { [key: string]: Value }): void {
    this.#entries(this.#reader.map(), object)
  }

  /** Throws unless everything was read. */
  end(): void {
    this.#reader.end()
    const left = this.#bytes.length - this.#at
    if (left > 0) throw new ProtocolError(`${left} bytes belong to no field`)
  }

  #map(): Value {
    const size = this.#reader.map()
    if (size === 1 && this.#reader.peek() === 0) return this.#piece()
    const object: { [key: string]: Value } = {}
    this.#down()
    this.#entries(size, object)
    this.#level--
    return object
  }

  #array(): Value[] {
    const length = this.#reader.array()
    const elements: Value[] = []
    this.#down()
    for (let i = 0; i < length; i++) elements.push(this.value())
    this.#level--
    return elements
  }

  #entries(size: number, object: { [key: string]: Value }): void {
    for (let i = 0; i < size; i++) {
      const key = this.#reader.key()
      const value = this.value()
      // As a plain assignment this key would set the prototype.
      if (key === '__proto__')
        Object.defineProperty(object, key, { value, enumerable: true, configurable: true, writable: true })
      else object[key] = value
    }
  }

  #piece(): Uint8Array {
    this.#reader.value()
    const length = this.#reader.value()
    const start = this.#at
    if (typeof length !== 'number' || !(length >= 0) || start + length > this.#bytes.length)
      throw new ProtocolError(
        `bytes of length ${String(length)} where ${this.#bytes.length - start} are left`,
      )
    this.#at += length
    const view = this.#bytes.subarray(start, this.#at)
    return this.#copy ? new Uint8Array(view) : view
  }

  #down(): void {
    if (++this.#level > MAX_LEVELS) throw new ProtocolError(`nested deeper than ${MAX_LEVELS} levels`)
  }
}
