import type { Json, JsonArray, JsonObject } from '../json.ts'
import { ArrayDelta, type Delta, type ObjectDelta, REMOVE, Replace } from './delta.ts'

const NULL = 1
const BOOLEAN = 2
const NUMBER = 3
const STRING = 4
const ARRAY = 5
const OBJECT = 6

/** Containers with at most this many scalars are not cached. */
const FEW = 8

/**
 * Mixes two 32-bit integers into one. Every input bit changes about half of the result's bits. The finalizer is that of MurmurHash3 (A.
 * Appleby, public domain), and the multiplier is 2^32 / golden ratio.
 */
function mix(a: number, b: number): number {
  let h = (Math.imul(a, 0x9e3779b1) + b) | 0
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b)
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35)
  return h ^ (h >>> 16)
}

/** FNV-1a, 32 bits, of the UTF-8 bytes of a well-formed string. */
function fnv1a(text: string): number {
  let h = 0x811c9dc5 | 0
  let i = 0
  // Most texts are pure ASCII, for which this loop is faster. It has no calls, so it is also fast before V8 optimizes it.
  for (; i < text.length; i++) {
    const c = text.charCodeAt(i)
    if (c >= 0x80) break
    h = Math.imul(h ^ c, 0x01000193)
  }
  for (; i < text.length; i++) {
    const c = text.charCodeAt(i)
    if (c < 0x80) h = step(h, c)
    else if (c < 0x800) h = step(step(h, 0xc0 | (c >> 6)), 0x80 | (c & 0x3f))
    else if (c < 0xd800 || c > 0xdbff) h = tail(step(h, 0xe0 | (c >> 12)), c)
    else {
      const point = text.codePointAt(i++)!
      h = tail(step(step(h, 0xf0 | (point >> 18)), 0x80 | ((point >> 12) & 0x3f)), point)
    }
  }
  return h
}

const step = (h: number, byte: number): number => Math.imul(h ^ byte, 0x01000193)

/** Hashes the last two bytes of a code point. */
const tail = (h: number, point: number): number =>
  step(step(h, 0x80 | ((point >> 6) & 0x3f)), 0x80 | (point & 0x3f))

const STRING_SEED = mix(STRING, 0)
const hashString = (text: string): number => mix(STRING_SEED, fnv1a(text))

const scratch = new DataView(new ArrayBuffer(8))

/** Returns the hash of a value that is not a container. */
export function hashScalar(value: null | boolean | number | string): number {
  switch (typeof value) {
    case 'string':
      return hashString(value)
    case 'number':
      // + 0 turns -0 into 0.
      scratch.setFloat64(0, value + 0)
      return mix(mix(NUMBER, scratch.getInt32(0)), scratch.getInt32(4))
    case 'boolean':
      return mix(BOOLEAN, value ? 1 : 0)
    default:
      return mix(NULL, 0)
  }
}

/** Returns the number for an object key in `hashEntry`. */
export const hashKey = hashString

/** Returns the summand of one entry in its container's sum, from an index or `hashKey`, and the hash of the value. */
export const hashEntry = mix

/** Returns the hash of a container, from the sum of its entries modulo 2^32. */
export const hashContainer = (isArray: boolean, sum: number): number => mix(isArray ? ARRAY : OBJECT, sum)

/**
 * 32-bit checksums of states, as docs/protocol.md specifies. The hash of a container is a sum over its entries, cached by object. So the
 * checksum of the next state costs only the changed entries, however large the objects around them are. States must be immutable.
 */
export class Checksum {
  /** Sum of the entries of each known object and array. */
  readonly #sums = new WeakMap<object, number>()

  /** Returns the checksum of a complete state, 0 … 2^32 - 1. */
  of(state: Json): number {
    return this.#hash(state) >>> 0
  }

  /** Same as `of(next)`, if `delta` leads from `previous` to `next`. If `previous` is known, it costs only the changes. */
  after(previous: Json, next: Json, delta: Delta): number {
    return this.#hashAfter(previous, next, delta) >>> 0
  }

  #hash(value: Json): number {
    return typeof value === 'object' && value !== null
      ? hashContainer(Array.isArray(value), this.#sum(value))
      : hashScalar(value)
  }

  #sum(value: JsonArray | JsonObject): number {
    const known = this.#sums.get(value)
    if (known !== undefined) return known
    let sum = 0
    let size = 0
    let flat = true
    if (Array.isArray(value)) {
      for (; size < value.length; size++) {
        const element: Json = value[size]
        if (typeof element === 'object') flat = false
        sum = (sum + hashEntry(size, this.#hash(element))) | 0
      }
    } else {
      const object = value as JsonObject
      for (const key of Object.keys(object)) {
        const element = object[key]!
        if (typeof element === 'object') flat = false
        sum = (sum + hashEntry(hashKey(key), this.#hash(element))) | 0
        size++
      }
    }
    // Adding a few scalars again is cheaper than caching their sum.
    if (!flat || size > FEW) this.#sums.set(value, sum)
    return sum
  }

  #hashAfter(previous: Json, next: Json, delta: Delta): number {
    // For a container without a cached sum, only the sums of shared parts can be reused.
    const sum =
      delta instanceof Replace || typeof previous !== 'object' || previous === null
        ? undefined
        : this.#sums.get(previous)
    if (sum !== undefined)
      this.#sums.set(
        next as object,
        delta instanceof ArrayDelta
          ? this.#sumArray(sum, previous as JsonArray, next as JsonArray, delta)
          : this.#sumObject(sum, previous as JsonObject, next as JsonObject, delta as ObjectDelta),
      )
    return this.#hash(next)
  }

  #sumObject(known: number, previous: JsonObject, next: JsonObject, delta: ObjectDelta): number {
    let sum = known
    for (const [i, key] of delta.keys.entries()) {
      const change = delta.changes[i]!
      const name = hashString(key)
      const before = previous[key]
      // Inherited properties are functions.
      if (before !== undefined && typeof before !== 'function') sum -= mix(name, this.#hash(before))
      if (change !== REMOVE) sum += mix(name, this.#hashAfter(before!, next[key]!, change))
      sum |= 0
    }
    return sum
  }

  #sumArray(known: number, previous: JsonArray, next: JsonArray, delta: ArrayDelta): number {
    let sum = known
    let spliced = previous.length
    for (const { at } of delta.splices) spliced = Math.min(spliced, at)
    for (const [at, i] of delta.keys.entries()) {
      if (i >= spliced) continue
      const change = delta.changes[at]!
      sum += mix(i, this.#hashAfter(previous[i]!, next[i]!, change)) - mix(i, this.#hash(previous[i]!))
      sum |= 0
    }
    // From the first splice on, elements have moved.
    for (let i = spliced; i < previous.length; i++) sum = (sum - mix(i, this.#hash(previous[i]!))) | 0
    for (let i = spliced; i < next.length; i++) sum = (sum + mix(i, this.#hash(next[i]!))) | 0
    return sum
  }
}
