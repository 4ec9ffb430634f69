import type { Json, JsonObject } from '../json.ts'
import { ProtocolError, UnsafeInteger } from './error-codes.ts'

/** Returns the integer of an interned object key. Undefined: the key is written as a string. */
export type KeyIndex = (key: string) => number | undefined

const SMALLEST = 512
/** Larger buffers are not kept for the next frame. */
const LARGEST_KEPT = 1 << 18

/**
 * Decimal numbers are the extension types 0 to 63: a mantissa divided by 10, 100, 1,000 or 10,000. The type contains the number of decimal
 * places minus 1 (type >> 4) and the four highest bits of the mantissa (type & 15). 1, 2 or 4 bytes of data contain the rest of the
 * mantissa, big-endian, in two's complement. Mantissa and power of ten are exact as doubles, so their quotient is rounded once, to exactly
 * the double that was written.
 */
const DECIMAL_TYPES = 64
const HIGH_BITS = 4
const HIGH = 0xf
const POWERS = [10, 100, 1000, 10_000]

/** Writes JSON values as standard MessagePack, each in its shortest form. */
export class MsgpackWriter {
  #bytes = new Uint8Array(SMALLEST)
  #view = new DataView(this.#bytes.buffer)
  #length = 0
  readonly #utf8 = new TextEncoder()

  /** Starts a frame. Drops the rest of a failed one. */
  begin(): this {
    this.#length = 0
    return this
  }

  /** Ends the frame and returns a copy of its bytes. */
  take(): Uint8Array {
    const taken = this.#bytes.slice(0, this.#length)
    this.#length = 0
    if (this.#bytes.length > LARGEST_KEPT) this.#grow(SMALLEST)
    return taken
  }

  /** Number of bytes in the frame so far. */
  get length(): number {
    return this.#length
  }

  /** Drops all bytes after the first `length`. */
  cut(length: number): void {
    this.#length = length
  }

  nil(): void {
    this.#byte(0xc0)
  }

  /** Writes bytes as they are, outside MessagePack. */
  raw(bytes: Uint8Array): void {
    this.#reserve(bytes.length)
    this.#bytes.set(bytes, this.#length)
    this.#length += bytes.length
  }

  /** Writes bytes as a MessagePack value. */
  bin(bytes: Uint8Array): void {
    this.binHeader(bytes.length)
    this.raw(bytes)
  }

  /** Writes the header of a value of this many bytes. */
  binHeader(length: number): void {
    if (length < 0x100) this.#sized(0xc4, 1, length)
    else this.#header(length, 0, 0, 0xc5)
  }

  /** Writes the header of an array. Its elements follow. */
  array(length: number): void {
    this.#header(length, 0x90, 16, 0xdc)
  }

  /** Writes the header of a map. `size` pairs of key and value follow. */
  map(size: number): void {
    this.#header(size, 0x80, 16, 0xde)
  }

  /**
   * Writes a number in its shortest exact form: a 32-bit integer if possible, otherwise the shortest of a decimal (an extension, see
   * `DECIMAL_TYPES`), float32 and float64. Throws a TypeError for NaN and infinities.
   */
  number(value: number): void {
    // -0 becomes 0 here.
    if (value >= -0x80000000 && value <= 0xffffffff && Math.floor(value) === value) this.#integer(value)
    else if (!Number.isFinite(value)) throw new TypeError(`${value} is not JSON; numbers are finite`)
    else if (!this.#decimal(value)) this.#float(value)
  }

  /** Returns false and writes nothing if the number is not a decimal, or if its decimal is longer than a float. */
  #decimal(value: number): boolean {
    // Most decimals have two places, so they cost one division. A number that does not fit four places does not fit fewer.
    let places = 2
    let mantissa = Math.round(value * 100)
    if (mantissa / 100 !== value) {
      places = 4
      mantissa = Math.round(value * 10_000)
      if (mantissa / 10_000 !== value) return false
    }
    if (mantissa % 10 === 0) {
      places--
      mantissa /= 10
    }
    const type = (places - 1) << HIGH_BITS
    if (mantissa >= -0x80000 && mantissa < 0x80000) {
      this.#reserve(4)
      const bytes = this.#bytes
      let at = this.#length
      if (mantissa >= -0x800 && mantissa < 0x800) {
        bytes[at++] = 0xd4
        bytes[at++] = type | ((mantissa >> 8) & HIGH)
      } else {
        bytes[at++] = 0xd5
        bytes[at++] = type | ((mantissa >> 16) & HIGH)
        bytes[at++] = mantissa >> 8
      }
      bytes[at++] = mantissa
      this.#length = at
      return true
    }
    if (mantissa < -0x800000000 || mantissa >= 0x800000000 || Math.fround(value) === value) return false
    this.#reserve(6)
    const at = this.#length
    this.#bytes[at] = 0xd6
    this.#bytes[at + 1] = type | (Math.floor(mantissa / 0x100000000) & HIGH)
    this.#view.setUint32(at + 2, mantissa)
    this.#length = at + 6
    return true
  }

  #float(value: number): void {
    const short = Math.fround(value) === value
    this.#reserve(9)
    const at = this.#length
    this.#bytes[at] = short ? 0xca : 0xcb
    if (short) this.#view.setFloat32(at + 1, value)
    else this.#view.setFloat64(at + 1, value)
    this.#length = at + (short ? 5 : 9)
  }

  string(value: string): void {
    const length = value.length
    this.#reserve(length * 3 + 5)
    const bytes = this.#bytes
    const start = this.#length
    let at = start + (length < 32 ? 1 : 2)
    for (let i = 0; i < length; i++) {
      const c = value.charCodeAt(i)
      if (c >= 0x80 || length > 64) {
        this.#longString(value)
        return
      }
      bytes[at++] = c
    }
    if (length < 32) bytes[start] = 0xa0 | length
    else {
      bytes[start] = 0xd9
      bytes[start + 1] = length
    }
    this.#length = at
  }

  /** Writes any value. Throws a TypeError for a value that is not JSON. */
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
      else if (value < 0x100) this.#sized(0xcc, 1, value)
      else if (value < 0x10000) this.#sized(0xcd, 2, value)
      else this.#sized(0xce, 4, value)
    } else if (value >= -0x20) this.#byte(value & 0xff)
    else if (value >= -0x80) this.#sized(0xd0, 1, value)
    else if (value >= -0x8000) this.#sized(0xd1, 2, value)
    else this.#sized(0xd2, 4, value)
  }

  #longString(value: string): void {
    // The length in bytes determines the length of the header, so the text is first written after the longest possible header.
    const start = this.#length + 5
    const { written } = this.#utf8.encodeInto(value, this.#bytes.subarray(start))
    const header = stringHeader(written)
    this.#bytes.copyWithin(this.#length + header, start, start + written)
    this.#stringHeader(written)
    this.#length += written
  }

  /** Writes the header of a string of `length` bytes, for which space is reserved. */
  #stringHeader(length: number): void {
    if (length < 32) this.#bytes[this.#length++] = 0xa0 | length
    else if (length < 0x100) this.#sized(0xd9, 1, length)
    else this.#header(length, 0, 0, 0xda)
  }

  #header(length: number, short: number, shorterThan: number, code: number): void {
    if (length < shorterThan) this.#byte(short | length)
    else if (length < 0x10000) this.#sized(code, 2, length)
    else this.#sized(code + 1, 4, length)
  }

  #byte(value: number): void {
    this.#reserve(1)
    this.#bytes[this.#length++] = value
  }

  /** Writes a code and `size` bytes of a number, big-endian. */
  #sized(code: number, size: 1 | 2 | 4, value: number): void {
    this.#reserve(1 + size)
    let at = this.#length
    this.#bytes[at++] = code
    for (let shift = 8 * (size - 1); shift >= 0; shift -= 8) this.#bytes[at++] = value >>> shift
    this.#length = at
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

/** Returns the length of the header of a string of `length` bytes. */
const stringHeader = (length: number): number =>
  length < 32 ? 1 : length < 0x100 ? 2 : length < 0x10000 ? 3 : 5

/** JSON that may contain bytes. */
export type Data = Json | Uint8Array | readonly Data[] | { readonly [key: string]: Data | undefined }

/** Maximum depth of arrays and maps in one frame: that of a value, plus the levels of the frame around it. */
export const FRAME_LEVELS = 100
const UTF8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

/** Options of a reader, for other input than a client's frame. */
export interface Reading {
  /** Strings for integers as map keys. Undefined: such keys are an error. */
  readonly keys?: readonly string[]
  /** Offset of the first value. Default 0. */
  readonly at?: number
  /** Maximum depth of arrays and maps. Default 100. */
  readonly levels?: number
  /**
   * How `bin` is read: as a view, which keeps the whole input in memory, or as a copy unless it is most of the input. Undefined: `bin` is
   * an error.
   */
  readonly bin?: 'view' | 'copy'
  /** Cache for keys and `text`. */
  readonly known?: KnownStrings
  /** True: the key __proto__ is an error. */
  readonly noProto?: boolean
}

const FRAME: Reading = {}
/** Used only during the read of one float. */
const FLOAT = new DataView(new ArrayBuffer(8))

/**
 * Reads values from standard MessagePack. It accepts every form of a number. It throws ProtocolError for anything that JSON does not have
 * (other extensions, NaN, infinities, integers above 2^53, keys that are not strings, and `bin` without the option), and for truncated,
 * trailing or too deep data. It never allocates more than the available bytes can fill.
 */
export class MsgpackReader {
  #bytes: Uint8Array
  /** Strings for integers as map keys (`Reading.keys`). */
  keys: readonly string[] | undefined
  readonly #levels: number
  readonly #bin: 'view' | 'copy' | undefined
  readonly #known: KnownStrings | undefined
  readonly #noProto: boolean
  #at: number
  #level = 0

  constructor(bytes: Uint8Array, reading: Reading = FRAME) {
    this.#bytes = bytes
    this.keys = reading.keys
    this.#levels = reading.levels ?? FRAME_LEVELS
    this.#bin = reading.bin
    this.#known = reading.known
    this.#noProto = reading.noProto ?? false
    this.#at = reading.at ?? 0
  }

  /** Reads `bytes` from `at` on. */
  restart(bytes: Uint8Array, at: number): void {
    this.#bytes = bytes
    this.#at = at
    this.#level = 0
  }

  /** Offset of the next value. At the end: the number of bytes. */
  get at(): number {
    return this.#at
  }

  /** First byte of the next value. */
  peek(): number {
    return this.#bytes[this.#at] ?? this.#endsEarly()
  }

  /** Reads nil and returns true if it is next. */
  nil(): boolean {
    const comes = this.peek() === NIL
    if (comes) this.#at++
    return comes
  }

  /** Reads the header of an array and returns its declared length. The elements may be missing. */
  array(): number {
    const code = this.#byte()
    if (code >> 4 === 0x9) return code & 0xf
    if (code === 0xdc) return this.#uint(2)
    if (code === 0xdd) return this.#uint(4)
    throw this.#unexpected(code, 'an array')
  }

  /** Reads the header of a map and returns its declared size. */
  map(): number {
    const code = this.#byte()
    if (code >> 4 === 0x8) return code & 0xf
    if (code === 0xde) return this.#uint(2)
    if (code === 0xdf) return this.#uint(4)
    throw this.#unexpected(code, 'a map')
  }

  /** Reads a string that was probably read before. Undefined: another value is next. */
  text(): string | undefined {
    const code = this.peek()
    if (code >> 5 !== 0x5 && code !== 0xd9) return undefined
    this.#at++
    return this.#string(code === 0xd9 ? this.#byte() : code & 0x1f, this.#known)
  }

  /** Reads a key of an object: a string, or an integer for one. */
  key(): string {
    const key = (this.#known && this.text()) ?? this.value()
    if (typeof key === 'string') return key
    if (typeof key !== 'number' || !this.keys)
      throw new ProtocolError(`a ${typeof key} is a key; keys are strings`)
    const name = this.keys[key]
    if (name === undefined) throw new ProtocolError(`key ${key} of ${this.keys.length} is unknown`)
    return name
  }

  /** The values that follow, until `up`, are one level deeper. */
  down(): void {
    if (++this.#level > this.#levels)
      throw new ProtocolError(`a value lies deeper than ${this.#levels} levels`)
  }

  up(): void {
    this.#level--
  }

  /** Reads any value. A reader with the option `bin` returns bytes in it, as a `Data`. */
  value(): Json {
    const code = this.peek()
    if (isArray(code)) return this.#elements()
    if (isMap(code)) return this.#entries()
    this.#at++
    if (code < 0x80) return code
    if (code >= 0xe0) return code - 0x100
    if (code >> 5 === 0x5) return this.#string(code & 0x1f)
    switch (code) {
      case 0xc0:
        return null
      case 0xc2:
        return false
      case 0xc3:
        return true
      case 0xc4:
      case 0xc5:
      case 0xc6:
        if (!this.#bin) break
        return this.#binary(this.#uint(1 << (code - 0xc4))) as Data as Json
      case 0xca:
        return this.#float(4)
      case 0xcb:
        return this.#float(8)
      case 0xcc:
      case 0xcd:
      case 0xce:
        return this.#uint(1 << (code - 0xcc))
      case 0xd0:
        return (this.#uint(1) << 24) >> 24
      case 0xd1:
        return (this.#uint(2) << 16) >> 16
      case 0xd2:
        return this.#uint(4) | 0
      case 0xcf:
      case 0xd3: {
        const high = code === 0xcf ? this.#uint(4) : this.#uint(4) | 0
        return this.#safe(high * 2 ** 32 + this.#uint(4))
      }
      case 0xd4:
      case 0xd5:
      case 0xd6:
        return this.#decimal(1 << (code - 0xd4))
      case 0xd9:
      case 0xda:
      case 0xdb:
        return this.#string(this.#uint(1 << (code - 0xd9)))
    }
    throw this.#unexpected(code, 'a JSON value')
  }

  /** Throws unless everything was read. */
  end(): void {
    const left = this.#bytes.length - this.#at
    if (left > 0) throw new ProtocolError(`${left} bytes follow the message`)
  }

  #elements(): Json[] {
    this.down()
    const length = this.array()
    const elements: Json[] = []
    for (let i = 0; i < length; i++) elements.push(this.value())
    this.#level--
    return elements
  }

  #entries(): Record<string, Json> {
    this.down()
    const size = this.map()
    const object: Record<string, Json> = {}
    for (let i = 0; i < size; i++) {
      const key = this.key()
      // An ordinary assignment of this key would set the prototype.
      if (key === '__proto__' && this.#noProto) throw new ProtocolError('a value has the key __proto__')
      else if (key === '__proto__')
        Object.defineProperty(object, key, { value: this.value(), enumerable: true, configurable: true })
      else object[key] = this.value()
    }
    this.#level--
    return object
  }

  /** `size`: number of bytes after the type. */
  #decimal(size: number): number {
    const type = this.#byte()
    if (type >= DECIMAL_TYPES) throw new ProtocolError(`extension type ${type}: use 0 to 63`)
    // The highest of the four bits is the sign.
    const high = ((type & HIGH) << 28) >> 28
    const above = size === 4 ? high * 0x100000000 : high << (8 * size)
    const mantissa = above + this.#uint(size)
    return mantissa / POWERS[type >> HIGH_BITS]!
  }

  #binary(length: number): Uint8Array {
    const start = this.#skip(length)
    const view = this.#bytes.subarray(start, this.#at)
    return this.#bin === 'copy' && 2 * length < this.#bytes.length ? new Uint8Array(view) : view
  }

  #string(length: number, known?: KnownStrings): string {
    const start = this.#skip(length)
    const end = this.#at
    if (length < 32 && !known) {
      let text = ''
      let i = start
      for (; i < end && this.#bytes[i]! < 0x80; i++) text += String.fromCharCode(this.#bytes[i]!)
      if (i === end) return text
    }
    try {
      return known?.text(this.#bytes, start, end) ?? UTF8.decode(this.#bytes.subarray(start, end))
    } catch {
      throw new ProtocolError(`the string at byte ${start} is not UTF-8`)
    }
  }

  #safe(value: number): number {
    if (!Number.isSafeInteger(value)) throw new UnsafeInteger(value)
    return value
  }

  #byte(): number {
    return this.#bytes[this.#skip(1)]!
  }

  #uint(size: number): number {
    let at = this.#skip(size)
    let value = this.#bytes[at]!
    while (++at < this.#at) value = value * 0x100 + this.#bytes[at]!
    return value
  }

  /** Reads a float through eight shared bytes, because a DataView of each frame costs more than the frame. */
  #float(size: 4 | 8): number {
    const start = this.#skip(size)
    for (let i = 0; i < size; i++) FLOAT.setUint8(i, this.#bytes[start + i]!)
    const value = size === 4 ? FLOAT.getFloat32(0) : FLOAT.getFloat64(0)
    if (!Number.isFinite(value)) throw new ProtocolError(`${value} is not JSON; numbers are finite`)
    return value
  }

  /** Advances by `size` bytes and returns their offset. */
  #skip(size: number): number {
    const at = this.#at
    if (at + size > this.#bytes.length) this.#endsEarly()
    this.#at = at + size
    return at
  }

  #endsEarly(): never {
    throw new ProtocolError(`the frame of ${this.#bytes.length} bytes ends within a value`)
  }

  #unexpected(code: number, wanted: string): ProtocolError {
    const at = this.#at - 1
    return new ProtocolError(`byte 0x${code.toString(16)} at ${at} is not ${wanted}`)
  }
}

/**
 * Returns the end of the value at `at`. Throws ProtocolError for a truncated value. It does not check that a reader accepts the content.
 */
export function endOfValue(bytes: Uint8Array, at: number): number {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const size = (from: number, width: number): number =>
    width === 1 ? view.getUint8(from) : width === 2 ? view.getUint16(from) : view.getUint32(from)
  let end = at
  try {
    // A counter instead of recursion. The code that reads the values checks their depth.
    for (let left = 1; left > 0; left--) {
      const code = view.getUint8(end++)
      if (code >= 0xe0 || code < 0x80) continue
      // Number of bytes that contain the length, and the part of it that follows.
      let width = 0
      let length = code & 0x0f
      if (code >= 0xc0) {
        const form = FORMS[code - 0xc0]!
        width = form >> 5
        length = (width > 0 ? size(end, width) : 0) + (form & 0x1f)
      } else if (code >= 0xa0) length = code & 0x1f
      end += width
      if (isMap(code)) left += 2 * length
      else if (isArray(code)) left += length
      else end += length
    }
  } catch {
    end = Number.POSITIVE_INFINITY
  }
  if (end <= bytes.length) return end
  throw new ProtocolError(`the frame of ${bytes.length} bytes ends within a value`)
}

/** For the codes from 0xc0 to 0xdf: 32 times the number of length bytes, plus the number of further bytes. */
const FORMS = /* @__PURE__ */ Uint8Array.of(
  ...[0, 0, 0, 0, 0x20, 0x40, 0x80, 0x21, 0x41, 0x81, 4, 8, 1, 2, 4, 8],
  ...[1, 2, 4, 8, 2, 3, 5, 9, 17, 0x20, 0x40, 0x80, 0x40, 0x80, 0x40, 0x80],
)

export const isArray = (code: number): boolean => code >> 4 === 0x9 || code === 0xdc || code === 0xdd
export const isMap = (code: number): boolean => code >> 4 === 0x8 || code === 0xde || code === 0xdf
export const NIL = 0xc0

const SLOTS = 1024
/** Maximum length in bytes of a cached string: longer than ids, types and usual keys. */
const LONGEST = 200

interface Known {
  readonly bytes: Uint8Array
  readonly text: string
}

/**
 * Cache for repeated strings, such as ids of rooms, types of messages and keys of their data. Each is decoded once. Later it is found by
 * its bytes and returned as the same string, whose hash V8 already knows. Each hash has one slot, so the size is bounded, whatever clients
 * send.
 */
export class KnownStrings {
  readonly #slots: (Known | undefined)[] = new Array(SLOTS).fill(undefined)

  /** Returns the text of `bytes` from `start` to `end`. Throws a TypeError for invalid UTF-8. */
  text(bytes: Uint8Array, start: number, end: number): string {
    const length = end - start
    if (length > LONGEST) return UTF8.decode(bytes.subarray(start, end))
    let hash = length
    for (let i = start; i < end; i++) hash = (Math.imul(hash, 31) + bytes[i]!) | 0
    const slot = (hash ^ (hash >>> 15)) & (SLOTS - 1)
    const known = this.#slots[slot]
    if (known?.bytes.length === length && isAt(bytes, start, known.bytes)) return known.text
    const text = UTF8.decode(bytes.subarray(start, end))
    this.#slots[slot] = { bytes: new Uint8Array(bytes.subarray(start, end)), text }
    return text
  }
}

function isAt(bytes: Uint8Array, start: number, part: Uint8Array): boolean {
  for (let i = 0; i < part.length; i++) if (bytes[start + i] !== part[i]) return false
  return true
}
