import type { Json, JsonObject } from '../json.ts'

/** Which integer stands for an object key; undefined: the key is written as a string. */
export type KeyIndex = (key: string) => number | undefined

const SMALLEST = 512
/** A buffer that one large frame needed is not kept. */
const LARGEST_KEPT = 1 << 18

/** Writes JSON values as standard MessagePack, each in its shortest form. */
export class MsgpackWriter {
  #bytes = new Uint8Array(SMALLEST)
  #view = new DataView(this.#bytes.buffer)
  #length = 0
  readonly #utf8 = new TextEncoder()

  /** Begins a frame; what a failed one left is dropped. */
  begin(): this {
    this.#length = 0
    return this
  }

  /** A copy of what was written since the frame began. Ends it. */
  take(): Uint8Array {
    const taken = this.#bytes.slice(0, this.#length)
    this.#length = 0
    if (this.#bytes.length > LARGEST_KEPT) this.#grow(SMALLEST)
    return taken
  }

  /** How many bytes the frame has so far. */
  get length(): number {
    return this.#length
  }

  /** Drops what was written behind the first `length` bytes. */
  cut(length: number): void {
    this.#length = length
  }

  nil(): void {
    this.#byte(0xc0)
  }

  /** Bytes as they are, outside MessagePack. */
  raw(bytes: Uint8Array): void {
    this.#reserve(bytes.length)
    this.#bytes.set(bytes, this.#length)
    this.#length += bytes.length
  }

  /** Bytes as a value. */
  bin(bytes: Uint8Array): void {
    if (bytes.length < 0x100) this.#sized(0xc4, 1, (at) => this.#view.setUint8(at, bytes.length))
    else this.#header(bytes.length, 0, 0, 0xc5)
    this.raw(bytes)
  }

  /** The header of an array; its elements follow. */
  array(length: number): void {
    this.#header(length, 0x90, 16, 0xdc)
  }

  /** The header of a map; `size` times a key and a value follow. */
  map(size: number): void {
    this.#header(size, 0x80, 16, 0xde)
  }

  /**
   * Integers that fit 32 bits as integers, all others as float64, so that every reader gets a plain number. Throws a TypeError for
   * NaN and infinities.
   */
  number(value: number): void {
    // -0 becomes 0 here.
    if (value >= -0x80000000 && value <= 0xffffffff && Math.floor(value) === value) this.#integer(value)
    else if (!Number.isFinite(value)) throw new TypeError(`${value} is not JSON; numbers are finite`)
    else this.#sized(0xcb, 8, (at) => this.#view.setFloat64(at, value))
  }

  string(value: string): void {
    const length = value.length
    this.#reserve(length * 3 + 5)
    let at = this.#length + stringHeader(length)
    for (let i = 0; i < length; i++) {
      const c = value.charCodeAt(i)
      if (c >= 0x80 || length > 64) {
        this.#longString(value)
        return
      }
      this.#bytes[at++] = c
    }
    this.#stringHeader(length)
    this.#length = at
  }

  /** A whole value. Throws a TypeError for what is not JSON. */
  value(value: Json, keys?: KeyIndex): void {
    if (typeof value === 'string') this.string(value)
    else if (typeof value === 'number') this.number(value)
    else if (typeof value === 'boolean') this.#byte(value ? 0xc3 : 0xc2)
    else if (value === null) this.nil()
    else if (Array.isArray(value)) {
      this.array(value.length)
      for (const element of value) this.value(element, keys)
    } else if (typeof value === 'object') {
      const object = value as JsonObject
      const names = Object.keys(object)
      this.map(names.length)
      for (const name of names) {
        this.key(name, keys)
        this.value(object[name]!, keys)
      }
    } else throw new TypeError(`a ${typeof value} is not JSON`)
  }

  key(name: string, keys?: KeyIndex): void {
    const index = keys?.(name)
    if (index === undefined) this.string(name)
    else this.#integer(index)
  }

  #integer(value: number): void {
    if (value >= 0) {
      if (value < 0x80) this.#byte(value)
      else if (value < 0x100) this.#sized(0xcc, 1, (at) => this.#view.setUint8(at, value))
      else if (value < 0x10000) this.#sized(0xcd, 2, (at) => this.#view.setUint16(at, value))
      else this.#sized(0xce, 4, (at) => this.#view.setUint32(at, value))
    } else if (value >= -0x20) this.#byte(value & 0xff)
    else if (value >= -0x80) this.#sized(0xd0, 1, (at) => this.#view.setInt8(at, value))
    else if (value >= -0x8000) this.#sized(0xd1, 2, (at) => this.#view.setInt16(at, value))
    else this.#sized(0xd2, 4, (at) => this.#view.setInt32(at, value))
  }

  #longString(value: string): void {
    // The length in bytes decides how long the header is, so the text goes where the longest header would let it begin.
    const start = this.#length + 5
    const { written } = this.#utf8.encodeInto(value, this.#bytes.subarray(start))
    const header = stringHeader(written)
    this.#bytes.copyWithin(this.#length + header, start, start + written)
    this.#stringHeader(written)
    this.#length += written
  }

  /** Writes the header of a string of `length` bytes; the room is reserved. */
  #stringHeader(length: number): void {
    if (length < 32) this.#bytes[this.#length++] = 0xa0 | length
    else if (length < 0x100) this.#sized(0xd9, 1, (at) => this.#view.setUint8(at, length))
    else this.#header(length, 0, 0, 0xda)
  }

  #header(length: number, short: number, shorterThan: number, code: number): void {
    if (length < shorterThan) this.#byte(short | length)
    else if (length < 0x10000) this.#sized(code, 2, (at) => this.#view.setUint16(at, length))
    else this.#sized(code + 1, 4, (at) => this.#view.setUint32(at, length))
  }

  #byte(value: number): void {
    this.#reserve(1)
    this.#bytes[this.#length++] = value
  }

  #sized(code: number, size: number, write: (at: number) => void): void {
    this.#reserve(1 + size)
    this.#bytes[this.#length] = code
    write(this.#length + 1)
    this.#length += 1 + size
  }

  #reserve(size: number): void {
    const needed = this.#length + size
    if (needed > this.#bytes.length) this.#grow(Math.max(needed, this.#bytes.length * 2))
  }

  #grow(size: number): void {
    const bytes = new Uint8Array(size)
    bytes.set(this.#bytes.subarray(0, this.#length))
    this.#bytes = bytes
    this.#view = new DataView(bytes.buffer)
  }
}

/** The bytes before a string of `length` bytes. */
const stringHeader = (length: number): number =>
  length < 32 ? 1 : length < 0x100 ? 2 : length < 0x10000 ? 3 : 5
