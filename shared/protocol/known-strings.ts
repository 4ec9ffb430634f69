const SLOTS = 1024
/** No room id, type or key that is worth knowing is longer; in bytes. */
const LONGEST = 200
const UTF8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

interface Known {
  readonly bytes: Uint8Array
  readonly text: string
}

/**
 * Strings that come again and again, such as the ids of rooms, types of messages and keys of their data: each is decoded once and then found by its
 * bytes, and as the same string every time, whose hash is known. There is one place for all strings of one hash, so it never holds more than so many,
 * whatever clients send.
 */
export class KnownStrings {
  readonly #slots: (Known | undefined)[] = new Array(SLOTS).fill(undefined)

  /** The text of `bytes` from `start` to `end`. Throws a TypeError for what is not UTF-8. */
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
