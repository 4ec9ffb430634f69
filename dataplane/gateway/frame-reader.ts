import type { Socket } from 'node:net'
import type { Sockets } from './sockets.ts'

/** How many bytes `ws` gets to parse at once. */
const SLICE_BYTES = 4096

// The first byte of whole frames, RFC 6455, section 5.2: no extension has a part in them.
const BINARY = 0x82
const PING = 0x89
const PONG = 0x8a
const MASKED = 0x80

/** What of a frame's header tells its length, unless that takes 64 bits. */
const HEADER_BYTES = 4

/** Where a frame ends cannot be told: its header has not come whole. */
const UNKNOWN = 0
/** A frame that is for `ws` to judge, with all that follows. */
const OTHER = -1

/** What a reader tells of. */
export interface FrameListener {
  /** The payload of a binary message. It is part of what was read: whoever keeps it longer than this call keeps a copy. */
  frame(payload: Buffer): void
  /** What one read of the socket brought has been handed on. */
  read(): void
}

/**
 * Takes the frames of a websocket's client that are whole binary messages before `ws` gets them, which spends more on one than all that follows.
 * What else comes goes to `ws` as it is and in its place: pings, pongs, and frames that a read of the socket brings in parts. From the first
 * frame on that is anything else (a fragment, text, a close frame, one that is too large, or wrong), `ws` gets everything.
 *
 * `ws` gets no more than a slice at a time, and only for as long as it listens: one read brings up to 64 KiB, in which there are ten thousand
 * pings, and all of them would be parsed though the first few end the connection.
 */
export class FrameReader {
  readonly #socket: Socket
  readonly #mostBytes: number
  readonly #on: FrameListener
  readonly #parse: (bytes: Buffer) => void
  readonly #listener: (bytes: Buffer) => void
  #ahead = true
  /** The beginning of a frame that `ws` has, while that does not tell where it ends. */
  #begun: Buffer | undefined
  /** What `ws` is to have of the frame that it has the beginning of. */
  #owed = 0

  /** `socket`: one on which `ws` listens, and no one else. `mostBytes`: the largest message. */
  constructor(socket: Socket, mostBytes: number, on: FrameListener, sockets: Sockets) {
    const [parse] = socket.listeners('data') as [(bytes: Buffer) => void]
    this.#socket = socket
    this.#mostBytes = mostBytes
    this.#on = on
    this.#parse = parse
    // As `once` does it, so that `ws` can remove its listener.
    this.#listener = Object.assign((bytes: Buffer) => this.#read(bytes), { listener: parse })
    socket.off('data', parse).on('data', this.#listener)
    // Asked for each read, how many listen would be a hundredth of all that an input costs.
    socket.on('removeListener', (event) => {
      if (event === 'data') this.stop()
    })
    sockets.onRead(socket, (buffer, length) => this.#readAhead(buffer, length))
  }

  /** From now on everything goes to whoever listens on the socket. */
  stop(): void {
    this.#ahead = false
  }

  /** Past the stream, as long as that would hand on at once what it gets. False: the stream is to have it. */
  #readAhead(buffer: Buffer, length: number): boolean {
    const socket = this.#socket
    if (!this.#ahead || this.#begun || this.#owed > 0) return false
    if (!socket.readableFlowing || socket.readableLength > 0) return false
    let at = 0
    while (at < length && buffer[at] === BINARY) {
      const size = this.#sizeOf(buffer, at, length)
      if (size <= 0 || at + size > length) break
      this.#on.frame(payloadOf(buffer, at, at + size))
      at += size
    }
    // What `ws` gets it may keep.
    if (at < length) this.#read(Buffer.from(buffer.subarray(at, length)))
    else this.#on.read()
    return true
  }

  #read(bytes: Buffer): void {
    let at = this.#begun || this.#owed > 0 ? this.#goOn(bytes) : 0
    while (at < bytes.length) {
      const size = this.#ahead ? this.#sizeOf(bytes, at, bytes.length) : OTHER
      const end = at + size
      if (size <= 0 || end > bytes.length) {
        if (size === OTHER) this.#ahead = false
        else if (size === UNKNOWN) this.#begun = Buffer.from(bytes.subarray(at))
        else this.#owed = end - bytes.length
        this.#handOn(bytes, at, bytes.length)
        break
      }
      if (bytes[at] === BINARY) this.#on.frame(payloadOf(bytes, at, end))
      else this.#handOn(bytes, at, end)
      at = end
    }
    this.#on.read()
  }

  /** Hands on what belongs to the frame that `ws` has the beginning of; where the next one begins. */
  #goOn(bytes: Buffer): number {
    if (this.#begun) {
      const begun = Buffer.concat([this.#begun, bytes.subarray(0, HEADER_BYTES)])
      const size = this.#sizeOf(begun, 0, begun.length)
      if (size > 0) this.#owed = size - this.#begun.length
      else this.#ahead = size !== OTHER
      // With so few bytes nothing but the header is there.
      if (size === UNKNOWN) this.#owed = bytes.length
      this.#begun = size === UNKNOWN ? begun : undefined
    }
    const end = Math.min(this.#owed, bytes.length)
    this.#owed -= end
    this.#handOn(bytes, 0, end)
    return end
  }

  #handOn(bytes: Buffer, start: number, end: number): void {
    for (
      let at = start;
      at < end && this.#socket.rawListeners('data').includes(this.#listener);
      at += SLICE_BYTES
    )
      this.#parse.call(this.#socket, bytes.subarray(at, Math.min(end, at + SLICE_BYTES)))
  }

  /** The length of the frame that begins at `at`, with its header; or `UNKNOWN`, or `OTHER`. `end`: where what was read ends. */
  #sizeOf(bytes: Buffer, at: number, end: number): number {
    const left = end - at
    const kind = bytes[at]
    if (kind !== BINARY && kind !== PING && kind !== PONG) return OTHER
    if (left < 2) return UNKNOWN
    const masked = bytes[at + 1]! - MASKED
    if (masked < 0 || masked === 127) return OTHER
    if (masked < 126) return masked <= this.#mostBytes ? 6 + masked : OTHER
    if (kind !== BINARY) return OTHER
    if (left < HEADER_BYTES) return UNKNOWN
    const length = bytes.readUInt16BE(at + 2)
    return length <= this.#mostBytes ? 8 + length : OTHER
  }
}

/** The payload of the frame from `at` to `end`, unmasked where it lies. */
function payloadOf(bytes: Buffer, at: number, end: number): Buffer {
  const start = at + (bytes[at + 1] === (MASKED | 126) ? 8 : 6)
  const first = bytes[start - 4]!
  const second = bytes[start - 3]!
  const third = bytes[start - 2]!
  const fourth = bytes[start - 1]!
  const fours = end - ((end - start) & 3)
  let i = start
  for (; i < fours; i += 4) {
    bytes[i]! ^= first
    bytes[i + 1]! ^= second
    bytes[i + 2]! ^= third
    bytes[i + 3]! ^= fourth
  }
  if (i < end) bytes[i]! ^= first
  if (i + 1 < end) bytes[i + 1]! ^= second
  if (i + 2 < end) bytes[i + 2]! ^= third
  return bytes.subarray(start, end)
}
