import type { Socket } from 'node:net'
import type { Clock } from '../../shared/clock.ts'
import { Slices } from '../../shared/slices.ts'

/** The interface of a TCP socket that an outbox uses. */
export interface ByteSink {
  /** Writes bytes. Returns false if some of them are queued; `onceDrained` reports when all are written. */
  write(bytes: Uint8Array): boolean
  /** `write` for several buffers, which the kernel gathers. */
  writev(frames: readonly Uint8Array[]): boolean
  onceDrained(drained: () => void): void
  /** Bytes that the kernel has not taken yet. */
  readonly writableLength: number
  /** For `Sockets.write`, whose result `wrote` takes. Undefined: only the methods of the sink write. */
  readonly handle?: TcpHandle
  /** Returns what `write` returns. */
  wrote?(request: Written): boolean
}

/** Node's request object for one write. It can be reused, unless the write was queued. */
interface WriteRequest {
  /** `status`: negative if the write failed. */
  oncomplete?: (status: number) => void
  /** Keeps the bytes alive until they are written. */
  held?: unknown
}

/** The request of a write if some bytes are queued, false if the write failed, and undefined if all bytes are written. */
export type Written = WriteRequest | false | undefined

/** Node's internal binding for reads and writes of sockets. */
interface StreamBinding {
  readonly WriteWrap: new () => WriteRequest
  readonly streamBaseState: ArrayLike<number>
  /** Index in `streamBaseState` of the number of bytes read, or of the error number. */
  readonly kReadBytesOrError: number
  /** Index in `streamBaseState` of whether the last write was queued. */
  readonly kLastWriteWasAsync: number
}

/**
 * Node's handle of a TCP connection, below its stream. Writes return 0 or an error number. Queued bytes are written in the order of all
 * writes, including those of the stream.
 */
export interface TcpHandle {
  /** Receives the reads of the handle, if they bypass the stream. */
  [READER]?: Reader
  /** Called after each read. `bytes` is absent if the handle has a user buffer. */
  onread(this: TcpHandle, bytes?: ArrayBuffer): unknown
  /** Sets the buffer for all further reads. It has to live as long as the handle. */
  useUserBuffer(buffer: Uint8Array): void
  writeBuffer(request: WriteRequest, bytes: Uint8Array): number
  writev(request: WriteRequest, frames: readonly Uint8Array[], allAreBytes: true): number
  /** Bytes that the kernel has not taken. */
  readonly writeQueueSize: number
  /** True if the stream wants data. A paused stream with enough data stops the handle itself, and starts it again. */
  readonly reading?: boolean
  readStart?(): void
  readStop?(): void
}

type SocketWithHandle = Socket & { readonly _handle?: TcpHandle | null }

/** Receives the end of a connection that has no closing handshake. */
interface LossListener {
  /** The peer has closed the TCP connection, or it broke. False: the stream of the socket handles it. */
  lost(): boolean
}

/** Node's size of one read. */
const READ_BYTES = 64 * 1024

/** Receives the reads of a socket before its stream. */
interface Reader {
  /** Takes the data of one read: the first `length` bytes of a buffer that the next read overwrites. False: the stream should get it. */
  readAhead(buffer: Buffer, length: number): boolean
  /** The peer has closed the connection, or it broke. False: the stream should get that. */
  ended(): boolean
}

const READER = Symbol('reader')

/**
 * Reads and writes TCP sockets below their streams. For a client's message or a room's frame, the stream's bookkeeping cost more CPU than all of
 * this project's code, and each read allocated 64 KiB. Node has no public API for this on accepted sockets. If the internal binding is missing, or
 * the socket is not TCP, the stream is used.
 */
export class Sockets {
  readonly #binding: StreamBinding | undefined = streamBinding()
  /** Shared by all sockets, because nearly every write completes immediately. */
  #request = this.#binding && new this.#binding.WriteWrap()
  /** Shared by all sockets, because the data of a read is handled before the next read. */
  readonly #read = Buffer.allocUnsafeSlow(READ_BYTES)
  /** `onread` of all sockets whose reads bypass their streams. */
  #onread: TcpHandle['onread'] | undefined

  /**
   * Returns the sink for a socket. Only whole frames may be written to the socket's stream by others. A failed write destroys the socket, unless
   * `on` takes the loss of the connection.
   */
  to(socket: SocketWithHandle, on: LossListener): ByteSink {
    const handle = this.#handleOf(socket)
    return handle ? new DirectSink(socket, handle, this, on) : new StreamSink(socket)
  }

  /** Passes each read of a socket to `reader`, and a copy to the stream if the reader does not take it. Without the binding, the stream gets everything. */
  onRead(socket: SocketWithHandle, reader: Reader): void {
    const handle = this.#handleOf(socket)
    if (!handle) return
    this.#onread ??= passingOn(this.#binding!, this.#read, handle.onread)
    // biome-ignore lint/correctness/useHookAtTopLevel: it is no hook of React.
    handle.useUserBuffer(this.#read)
    handle[READER] = reader
    handle.onread = this.#onread
  }

  #handleOf(socket: SocketWithHandle): TcpHandle | undefined {
    const handle = socket._handle
    return this.#binding && handle?.constructor.name === 'TCP' ? handle : undefined
  }

  /** Writes one or several buffers in one write. */
  write(handle: TcpHandle, bytes: Uint8Array | readonly Uint8Array[]): Written {
    const { streamBaseState, kLastWriteWasAsync, WriteWrap } = this.#binding!
    const request = this.#request!
    const failed =
      bytes instanceof Uint8Array ? handle.writeBuffer(request, bytes) : handle.writev(request, bytes, true)
    if (failed === 0 && streamBaseState[kLastWriteWasAsync] === 0) return undefined
    this.#request = new WriteWrap()
    if (failed !== 0) return false
    request.held = bytes
    return request
  }
}

/**
 * Returns an `onread` that passes each read to the reader of its handle, or else to `toStream`, Node's own. All handles share it: separate closures would be
 * memory that no cache has when a client sends.
 */
function passingOn(
  { streamBaseState, kReadBytesOrError }: StreamBinding,
  buffer: Buffer,
  toStream: TcpHandle['onread'],
): TcpHandle['onread'] {
  return function () {
    const length = streamBaseState[kReadBytesOrError]!
    const reader = this[READER]!
    if (length < 0 && reader.ended()) return
    if (length <= 0) toStream.call(this)
    else if (!reader.readAhead(buffer, length))
      toStream.call(this, new Uint8Array(buffer.subarray(0, length)).buffer)
  }
}

/** Sink below a socket's stream. */
class DirectSink implements ByteSink {
  readonly #socket: Socket
  readonly handle: TcpHandle
  readonly #sockets: Sockets
  readonly #on: LossListener
  /** Number of queued writes. */
  #waiting = 0
  #drained: (() => void)[] | undefined

  constructor(socket: Socket, handle: TcpHandle, sockets: Sockets, on: LossListener) {
    this.#socket = socket
    this.handle = handle
    this.#sockets = sockets
    this.#on = on
  }

  write(bytes: Uint8Array): boolean {
    return this.wrote(this.#sockets.write(this.handle, bytes))
  }

  writev(frames: readonly Uint8Array[]): boolean {
    return this.wrote(this.#sockets.write(this.handle, frames))
  }

  onceDrained(drained: () => void): void {
    this.#drained ??= []
    this.#drained.push(drained)
  }

  get writableLength(): number {
    return this.#waiting > 0 ? this.handle.writeQueueSize : 0
  }

  wrote(request: Written): boolean {
    if (request === false) this.#failed()
    else if (request) {
      this.#waiting++
      request.oncomplete = (status) => this.#completed(status)
    }
    return this.#waiting === 0
  }

  #completed(status: number): void {
    this.#waiting--
    if (status < 0) this.#failed()
    else if (this.#waiting === 0) for (const drained of this.#drained?.splice(0) ?? []) drained()
  }

  #failed(): void {
    if (!this.#on.lost()) this.#socket.destroy()
  }
}

/** Sink that uses a socket's stream. */
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

/** Returns Node's internal binding. Node deprecates it for general use. Undefined: it is missing or looks different. */
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

/** Minimum time between two measurements of a turn of the event loop. A measurement costs as much as a small message. */
const LOOK_MS = 20
/** Duration from which a turn counts as long. */
const LONG_MS = 10
/** Sockets that wait for a time are woken in groups, one per slot of this length. A timer for each would cost as much as to read it. */
const SLOT_MS = 20

/** Bytes of one socket that are handled in one turn, before other sockets are read. */
export const TURN_BYTES = 32 * 1024

/** A socket that is read when data arrives, unless it is paused. */
export interface PolledSocket {
  /** Bytes that may still be handled in this turn. The socket counts them down, and sets them to `TURN_BYTES` when it wakes. */
  turnBytes: number
  /** The latest long turn in which it was read. Used by `Polling` only. */
  readIn: number | undefined
  /** Nothing is read or handled until `wake`. `reason`: for the metric. */
  pause(reason?: 'turn'): void
  wake(): void
}

/**
 * Decides when a socket is read again, so that each gets its share of the event loop:
 *
 * - A socket that has sent `TURN_BYTES` waits until the others had their turn. Otherwise Node reads up to 2 MiB of one socket before it looks at
 *   another.
 * - No socket is read twice in a long turn. The event loop polls 1,024 sockets together. While that many have data, it polls again, up to 48
 *   times, before any timer fires. With a few thousand clients that all send, this takes seconds, and the node loses its lease.
 * - An overloaded node reads each socket only at an interval, and gets several messages with one read, because a read costs more than most
 *   messages.
 * - The ends of connections run in slices. When a network fails, the event loop reports the end of every connection in one turn, and each
 *   takes 0.2 ms.
 */
export class Polling {
  /** Ends of connections. */
  readonly ends: Slices
  readonly #clock: Clock
  readonly #load: { readonly inputIntervalMs: number }
  readonly #defer: (callback: () => void) => void
  /** Sockets that wait for a time, by slot number. */
  readonly #slots = new Map<number, PolledSocket[]>()
  /** Sockets that wait until this turn ends. */
  #waiting: PolledSocket[] = []
  #turn = 0
  /** Start of the measured turn, or of the latest one. */
  #beganAt = Number.NEGATIVE_INFINITY
  #reading = false

  /**
   * `load`: has the minimum time between two reads of a socket; 0: none. `defer`: runs a callback after this turn has read its
   * sockets.
   */
  constructor(
    clock: Clock,
    load: { readonly inputIntervalMs: number },
    defer: (callback: () => void) => void = (callback) => setImmediate(callback),
  ) {
    this.#clock = clock
    this.#load = load
    this.#defer = defer
    this.ends = new Slices(clock)
  }

  /** A socket was read. It may have to pause. */
  read(socket: PolledSocket): void {
    const now = this.#clock.monotonic()
    const intervalMs = this.#load.inputIntervalMs
    if (intervalMs > 0) {
      socket.pause()
      this.#inSlot(Math.ceil((now + intervalMs) / SLOT_MS)).push(socket)
      return
    }
    socket.turnBytes = TURN_BYTES
    const turn = this.#longTurn(now)
    if (turn !== undefined && socket.readIn === turn) this.nextTurn(socket)
    socket.readIn = turn
  }

  /** Pauses a socket until the others had their turn. */
  nextTurn(socket: PolledSocket): void {
    socket.pause('turn')
    if (this.#waiting.push(socket) === 1) this.#defer(this.#endWait)
  }

  #inSlot(slot: number): PolledSocket[] {
    const known = this.#slots.get(slot)
    if (known) return known
    const group: PolledSocket[] = []
    this.#slots.set(slot, group)
    this.#clock.schedule(slot * SLOT_MS - this.#clock.monotonic(), () => {
      this.#slots.delete(slot)
      for (const socket of group) socket.wake()
    })
    return group
  }

  readonly #endWait = (): void => {
    const waiting = this.#waiting
    this.#waiting = []
    for (const socket of waiting) socket.wake()
  }

  /** Returns the number of this turn if it takes long. */
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
 * Stops the reads of a websocket's handle. The stream's own `pause` still reads into memory, and that is most of a read's cost. Node has no public
 * API for this. Without such a handle, or if the stream has stopped it and would start it again, the stream is paused.
 */
export function stopReading(ws: Pausable, { _handle: handle }: SocketWithHandle): void {
  if (handle?.readStop && handle.reading) handle.readStop()
  else ws.pause()
}

/** Starts the reads again, unless the stream has stopped the handle: it would later fail to start a started handle, and end the connection. */
export function startReading(ws: Pausable, { _handle: handle }: SocketWithHandle): void {
  if (ws.isPaused) ws.resume()
  if (handle?.reading) handle.readStart?.()
}

interface Pausable {
  readonly isPaused: boolean
  pause(): void
  resume(): void
}

/** Maximum number of bytes that `ws` parses in one step. */
const SLICE_BYTES = 4096

// First bytes of whole frames without extensions, RFC 6455, section 5.2.
const BINARY = 0x82
const PING = 0x89
const PONG = 0x8a
const MASKED = 0x80

/** Bytes of a frame's header with its length, unless the length has 64 bits. */
const HEADER_BYTES = 4

/** The frame's length is unknown, because its header is incomplete. */
const UNKNOWN = 0
/** Not a whole binary frame, ping or pong: `ws` gets it, and everything behind it. */
const OTHER = -1

/** Receives the frames of a reader. */
export interface FrameListener extends LossListener {
  /** The payload of a message. It is part of the read buffer, so a listener that keeps it must copy it. */
  message(payload: Buffer, binary: boolean): void
  /** All data of one read has been passed on. */
  read(): void
}

/**
 * Takes whole binary messages of a websocket's client before `ws` parses them, which costs more CPU than all later steps. `ws` gets all other
 * data, in order: pings, pongs, and frames that a read cuts. From the first other frame on (a fragment, text, a close frame, one that is too
 * large or invalid), `ws` gets everything.
 *
 * `ws` gets small slices, and only while it listens. One read has up to 64 KiB, which can be ten thousand pings. Otherwise `ws` would parse
 * all of them although the first few end the connection.
 */
export class FrameReader implements Reader {
  /** True while the stream would pass on a read immediately. It costs less to read than the state of the stream. False: unknown. */
  #passesOn = false
  readonly #mostBytes: number
  readonly #on: FrameListener
  readonly #socket: Socket
  readonly #parse: (bytes: Buffer) => void
  readonly #listener: (bytes: Buffer) => void
  #ahead = true
  /** Start of a frame that `ws` has, while its length is unknown. */
  #begun: Buffer | undefined
  /** Remaining bytes of a frame whose start `ws` has. */
  #owed = 0

  /** `socket`: one with `ws` as its only listener. `mostBytes`: maximum size of a message. */
  constructor(socket: Socket, mostBytes: number, on: FrameListener, sockets: Sockets) {
    const [parse] = socket.listeners('data') as [(bytes: Buffer) => void]
    this.#socket = socket
    this.#mostBytes = mostBytes
    this.#on = on
    this.#parse = parse
    // With the property that `once` sets, so that `ws` can remove its listener.
    this.#listener = Object.assign((bytes: Buffer) => this.#read(bytes), { listener: parse })
    socket.off('data', parse).on('data', this.#listener)
    // An event instead of a listener count at each read, which would be a hundredth of an input's total cost.
    socket.on('removeListener', (event) => {
      if (event === 'data') this.stop()
    })
    socket.on('pause', () => {
      this.#passesOn = false
    })
    sockets.onRead(socket, this)
  }

  /** From now on all data goes to the listeners of the socket. */
  stop(): void {
    this.#ahead = false
    this.#passesOn = false
  }

  /** True if the stream has passed on all data so far, and would pass on further data immediately. */
  get #isPassedOn(): boolean {
    return this.#socket.readableFlowing === true && this.#socket.readableLength === 0
  }

  ended(): boolean {
    return this.#isPassedOn && this.#on.lost()
  }

  /** Takes a read before the stream, if the stream would pass it on immediately. */
  readAhead(buffer: Buffer, length: number): boolean {
    this.#passesOn ||= this.#ahead && !this.#begun && this.#owed === 0 && this.#isPassedOn
    if (!this.#passesOn) return false
    let at = 0
    while (at < length && buffer[at] === BINARY) {
      const size = this.#sizeOf(buffer, at, length)
      if (size <= 0 || at + size > length) break
      this.#on.message(payloadOf(buffer, at, at + size), true)
      at += size
    }
    // A copy, because `ws` may keep it.
    if (at < length) this.#read(Buffer.from(buffer.subarray(at, length)))
    else this.#on.read()
    return true
  }

  #read(bytes: Buffer): void {
    let at = this.#begun || this.#owed > 0 ? this.#continueFrame(bytes) : 0
    while (at < bytes.length) {
      const size = this.#ahead ? this.#sizeOf(bytes, at, bytes.length) : OTHER
      const end = at + size
      if (size <= 0 || end > bytes.length) {
        if (size === OTHER) this.#ahead = false
        else if (size === UNKNOWN) this.#begun = Buffer.from(bytes.subarray(at))
        else this.#owed = end - bytes.length
        this.#passOn(bytes, at, bytes.length)
        break
      }
      if (bytes[at] === BINARY) this.#on.message(payloadOf(bytes, at, end), true)
      else this.#passOn(bytes, at, end)
      at = end
    }
    this.#on.read()
  }

  /** Passes on the remainder of a frame whose start `ws` has. Returns the position of the next frame. */
  #continueFrame(bytes: Buffer): number {
    if (this.#begun) {
      const begun = Buffer.concat([this.#begun, bytes.subarray(0, HEADER_BYTES)])
      const size = this.#sizeOf(begun, 0, begun.length)
      if (size > 0) this.#owed = size - this.#begun.length
      else this.#ahead = size !== OTHER
      // So few bytes are only part of the header.
      if (size === UNKNOWN) this.#owed = bytes.length
      this.#begun = size === UNKNOWN ? begun : undefined
    }
    const end = Math.min(this.#owed, bytes.length)
    this.#owed -= end
    this.#passOn(bytes, 0, end)
    return end
  }

  #passOn(bytes: Buffer, start: number, end: number): void {
    this.#passesOn = false
    for (
      let at = start;
      at < end && this.#socket.rawListeners('data').includes(this.#listener);
      at += SLICE_BYTES
    )
      this.#parse.call(this.#socket, bytes.subarray(at, Math.min(end, at + SLICE_BYTES)))
  }

  /** Returns the length of the frame at `at`, with its header; or `UNKNOWN`, or `OTHER`. `end`: end of the data. */
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

/** Unmasks the payload of the frame from `at` to `end` in place, and returns it. */
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
