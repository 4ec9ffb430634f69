import type { Socket } from 'node:net'
import type { Clock } from '../../shared/clock.ts'

/** What an outbox needs of a TCP socket. */
export interface ByteSink {
  /** False: some of what was handed over waits; `onceDrained` tells when it does not any more. */
  write(bytes: Uint8Array): boolean
  /** As `write`, for several buffers that the kernel gathers. */
  writev(frames: readonly Uint8Array[]): boolean
  onceDrained(drained: () => void): void
  /** Bytes handed over that the kernel has not taken yet. */
  readonly writableLength: number
}

/** What one write is to Node. It can be used again unless the write had to wait. */
interface WriteRequest {
  /** `status`: negative where it failed. */
  oncomplete?: (status: number) => void
  /** Kept alive until it is written. */
  held?: unknown
}

/** What Node's sockets read and write with. */
interface StreamBinding {
  readonly WriteWrap: new () => WriteRequest
  readonly streamBaseState: ArrayLike<number>
  /** Where that says how many bytes were read, or the number of an error. */
  readonly kReadBytesOrError: number
  /** Where that says whether some of the last write waits for the kernel. */
  readonly kLastWriteWasAsync: number
}

/**
 * A TCP connection below its stream. Writes give 0 or the number of an error, and waiting bytes go out in the order of all writes, also
 * of the stream's.
 */
interface TcpHandle {
  /** Called after each read, with the bytes unless the handle has a buffer to read into. */
  onread(this: TcpHandle, bytes?: ArrayBuffer): unknown
  /** From now on everything is read into this buffer, which has to live as long as the handle. */
  useUserBuffer(buffer: Uint8Array): void
  writeBuffer(request: WriteRequest, bytes: Uint8Array): number
  writev(request: WriteRequest, frames: readonly Uint8Array[], allAreBytes: true): number
  /** Bytes that the kernel has not taken. */
  readonly writeQueueSize: number
  /** Whether the stream wants data: it stops the handle itself when it is paused and holds enough, and starts it again. */
  readonly reading?: boolean
  readStart?(): void
  readStop?(): void
}

type SocketWithHandle = Socket & { readonly _handle?: TcpHandle | null }

/** As much as Node reads at once. */
const READ_BYTES = 64 * 1024

/** Takes what one read of a socket brought, the first `length` bytes of a buffer that the next read overwrites. False: it is for the stream. */
type ReadListener = (buffer: Buffer, length: number) => boolean

/**
 * Reads from TCP sockets, and writes to them, past their streams: of what it costs to take a client's message, or to give it a room's frame, the
 * bookkeeping of the stream was more than all that this project does, and each read allocated 64 KiB. Node has no public way for sockets that
 * were accepted; where it has no such binding, or a socket is none of TCP, its stream is used.
 */
export class Sockets {
  readonly #binding: StreamBinding | undefined = streamBinding()
  /** For all sockets: nearly every write is taken at once. */
  #request = this.#binding && new this.#binding.WriteWrap()
  /** For all sockets: what was read is handled before the next read. */
  readonly #read = Buffer.allocUnsafeSlow(READ_BYTES)

  /** Where to write what goes to this socket, as long as nothing else but whole frames is written to its stream. */
  to(socket: SocketWithHandle): ByteSink {
    const handle = this.#handleOf(socket)
    return handle ? new DirectSink(socket, handle, this) : new StreamSink(socket)
  }

  /** Gives what comes to `take`, and what that does not want to the stream, as a copy. Where it cannot be had all goes to the stream as before. */
  onRead(socket: SocketWithHandle, take: ReadListener): void {
    const handle = this.#handleOf(socket)
    if (!handle) return
    const { streamBaseState, kReadBytesOrError } = this.#binding!
    const buffer = this.#read
    const toStream = handle.onread
    // biome-ignore lint/correctness/useHookAtTopLevel: it is no hook of React.
    handle.useUserBuffer(buffer)
    handle.onread = () => {
      const length = streamBaseState[kReadBytesOrError]!
      // Errors and the end are the stream's as well.
      if (length <= 0) toStream.call(handle)
      else if (!take(buffer, length)) toStream.call(handle, new Uint8Array(buffer.subarray(0, length)).buffer)
    }
  }

  #handleOf(socket: SocketWithHandle): TcpHandle | undefined {
    const handle = socket._handle
    return this.#binding && handle?.constructor.name === 'TCP' ? handle : undefined
  }

  /** One buffer, or several, as one write. Returns the request where some of it waits; a write that fails ends the connection. */
  write(
    socket: Socket,
    handle: TcpHandle,
    bytes: Uint8Array | readonly Uint8Array[],
  ): WriteRequest | undefined {
    const { streamBaseState, kLastWriteWasAsync, WriteWrap } = this.#binding!
    const request = this.#request!
    const failed =
      bytes instanceof Uint8Array ? handle.writeBuffer(request, bytes) : handle.writev(request, bytes, true)
    if (failed === 0 && streamBaseState[kLastWriteWasAsync] === 0) return undefined
    this.#request = new WriteWrap()
    if (failed !== 0) {
      socket.destroy()
      return undefined
    }
    request.held = bytes
    return request
  }
}

/** A TCP connection, past its stream. */
class DirectSink implements ByteSink {
  readonly #socket: Socket
  readonly #handle: TcpHandle
  readonly #sockets: Sockets
  /** Writes of which some waits. */
  #waiting = 0
  #drained: (() => void)[] | undefined

  constructor(socket: Socket, handle: TcpHandle, sockets: Sockets) {
    this.#socket = socket
    this.#handle = handle
    this.#sockets = sockets
  }

  write(bytes: Uint8Array): boolean {
    return this.#wrote(this.#sockets.write(this.#socket, this.#handle, bytes))
  }

  writev(frames: readonly Uint8Array[]): boolean {
    return this.#wrote(this.#sockets.write(this.#socket, this.#handle, frames))
  }

  onceDrained(drained: () => void): void {
    this.#drained ??= []
    this.#drained.push(drained)
  }

  get writableLength(): number {
    return this.#waiting > 0 ? this.#handle.writeQueueSize : 0
  }

  #wrote(request: WriteRequest | undefined): boolean {
    if (request) {
      this.#waiting++
      request.oncomplete = (status) => this.#completed(status)
    }
    return this.#waiting === 0
  }

  #completed(status: number): void {
    this.#waiting--
    if (status < 0) this.#socket.destroy()
    else if (this.#waiting === 0) for (const drained of this.#drained?.splice(0) ?? []) drained()
  }
}

/** A socket's stream. */
class StreamSink implements ByteSink {
  readonly #socket: Socket

  constructor(socket: Socket) {
    this.#socket = socket
  }

  write(bytes: Uint8Array): boolean {
    return this.#socket.write(bytes)
  }

  writev(frames: readonly Uint8Array[]): boolean {
    let taken = true
    this.#socket.cork()
    for (const frame of frames) taken = this.#socket.write(frame)
    this.#socket.uncork()
    return taken
  }

  onceDrained(drained: () => void): void {
    this.#socket.once('drain', drained)
  }

  get writableLength(): number {
    return this.#socket.writableLength
  }
}

/** Deprecated in Node's documentation, for what it is to others who use it; undefined where it is gone or looks different. */
function streamBinding(): StreamBinding | undefined {
  const { binding } = process as { readonly binding?: (name: string) => Partial<StreamBinding> }
  try {
    const found = binding?.('stream_wrap')
    if (!found) return undefined
    const { WriteWrap, streamBaseState, kReadBytesOrError, kLastWriteWasAsync } = found
    if (!WriteWrap || !streamBaseState) return undefined
    if (kReadBytesOrError === undefined || kLastWriteWasAsync === undefined) return undefined
    return { WriteWrap, streamBaseState, kReadBytesOrError, kLastWriteWasAsync }
  } catch {
    return undefined
  }
}

/** So often it is looked at how long a turn of the event loop takes, at most: to look costs as much as a small message. */
const LOOK_MS = 20
/** From then on a turn counts as long. */
const LONG_MS = 10
/** Sockets that rest are read again in groups, one for so many milliseconds: a timer for each would cost as much as to read it. */
const SLOT_MS = 20

/** A socket that is read when its data comes, unless it rests. */
export interface PolledSocket {
  /** The long turn in which it was read last; for `Polling` only. */
  readIn: number | undefined
  /** Nothing is to be read until `goOn`. */
  rest(): void
  goOn(): void
}

/**
 * When sockets are read. The event loop looks at 1,024 of them at once, and looks again for as long as that many had something, up to 48
 * times, before any timer comes due: of a few thousand clients who all send, that takes seconds, and the node loses its lease. So in a turn
 * that takes long no socket is read twice.
 *
 * To read a socket costs more than most messages. So a node that is overloaded reads each only every so many milliseconds, and gets several
 * messages at once.
 */
export class Polling {
  readonly #clock: Clock
  readonly #intervalMs: () => number
  readonly #defer: (callback: () => void) => void
  /** By the number of their slot. */
  readonly #resting = new Map<number, PolledSocket[]>()
  /** Until this turn ends. */
  #waiting: PolledSocket[] = []
  #turn = 0
  /** When the turn that is looked at, or was last, began to read. */
  #beganAt = Number.NEGATIVE_INFINITY
  #reading = false

  /**
   * `intervalMs`: how often each socket is read at most; 0: whenever its data comes. `defer`: runs a callback when this turn has read its
   * sockets.
   */
  constructor(
    clock: Clock,
    intervalMs: () => number,
    defer: (callback: () => void) => void = (callback) => setImmediate(callback),
  ) {
    this.#clock = clock
    this.#intervalMs = intervalMs
    this.#defer = defer
  }

  /** A socket was read, and may have to rest. */
  read(socket: PolledSocket): void {
    const now = this.#clock.monotonic()
    const intervalMs = this.#intervalMs()
    if (intervalMs > 0) {
      socket.rest()
      this.#group(Math.ceil((now + intervalMs) / SLOT_MS)).push(socket)
      return
    }
    const turn = this.#longTurn(now)
    if (turn !== undefined && socket.readIn === turn) {
      socket.rest()
      if (this.#waiting.push(socket) === 1) this.#defer(this.#endWait)
    }
    socket.readIn = turn
  }

  #group(slot: number): PolledSocket[] {
    const known = this.#resting.get(slot)
    if (known) return known
    const group: PolledSocket[] = []
    this.#resting.set(slot, group)
    this.#clock.schedule(slot * SLOT_MS - this.#clock.monotonic(), () => {
      this.#resting.delete(slot)
      for (const socket of group) socket.goOn()
    })
    return group
  }

  readonly #endWait = (): void => {
    const waiting = this.#waiting
    this.#waiting = []
    for (const socket of waiting) socket.goOn()
  }

  /** A number of this turn's own, once it takes long. */
  #longTurn(now: number): number | undefined {
    if (this.#reading) return now - this.#beganAt >= LONG_MS ? this.#turn : undefined
    if (now - this.#beganAt < LOOK_MS) return undefined
    this.#turn++
    this.#beganAt = now
    this.#reading = true
    this.#defer(() => {
      this.#reading = false
    })
    return undefined
  }
}

/**
 * Nothing is read of the socket, as far as that can be had: the stream's own `pause` reads on into memory, and that is most of what it costs
 * to read. Node has no public way; where there is no handle of this kind, messages come as they did.
 */
export const stopReading = (socket: SocketWithHandle): void => socket._handle?.readStop?.()
/** Not where the stream has stopped: it would find that it cannot start what is started, and end the connection. */
export const startReading = ({ _handle: handle }: SocketWithHandle): void => {
  if (handle?.reading) handle.readStart?.()
}

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
