import type { Json } from './messages.ts'

/** docs/protocol.md §6, line by line and without any shortcut: the whole state every time. */

function mix(a: number, b: number): number {
  let h = (Math.imul(a, 0x9e3779b1) + b) >>> 0
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b) >>> 0
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35) >>> 0
  return (h ^ (h >>> 16)) >>> 0
}

function fnv(bytes: Uint8Array): number {
  let h = 0x811c9dc5
  for (const byte of bytes) h = Math.imul(h ^ byte, 0x01000193) >>> 0
  return h
}

const utf8 = new TextEncoder()

function hashString(value: string): number {
  return mix(mix(4, 0), fnv(utf8.encode(value)))
}

function hashNumber(value: number): number {
  const halves = new DataView(new ArrayBuffer(8))
  halves.setFloat64(0, value === 0 ? 0 : value)
  return mix(mix(3, halves.getUint32(0)), halves.getUint32(4))
}

/** The checksum of a state: an integer from 0 to 2^32 − 1. */
export function checksum(value: Json): number {
  if (value === null) return mix(1, 0)
  if (value === false) return mix(2, 0)
  if (value === true) return mix(2, 1)
  if (typeof value === 'number') return hashNumber(value)
  if (typeof value === 'string') return hashString(value)
  let sum = 0
  if (Array.isArray(value)) {
    for (const [index, element] of value.entries()) sum = (sum + mix(index, checksum(element))) >>> 0
    return mix(5, sum)
  }
  for (const [key, entry] of Object.entries(value)) {
    sum = (sum + mix(hashString(key), checksum(entry))) >>> 0
  }
  return mix(6, sum)
}
