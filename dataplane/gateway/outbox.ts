import { type Frame, joinFrames } from '../frame.ts'
import type { GatewayOptions } from './context.ts'
import { type ByteSink, Sockets } from './fast-socket.ts'
import type { GatewayMetrics } from './metrics.ts'

/** How much may wait for one client: above the first it is congested, above the second nothing more is taken. */
type OutboxBounds = Pick<GatewayOptions, 'outboxHighWaterBytes' | 'outboxLimitBytes'>

/** Whom an outbox tells. */
export interface OutboxListener {
  /** The limit is reached; the frame at hand was not taken. */
  overflowed(): void
  /** The client has read again; once for each `awaitRoom`. */
  hasRoom(): void
}

/**
 * Up to this size several frames are copied into one buffer; above it the kernel gathers them (writev). Measured on Node 20, patch and
 * ack to 200 sockets: equal at 500 bytes to 2 KB (9–10 CPU-µs), gathering ahead from 8 KB on; two separate writes cost 15.
 */
const COPY_BYTES = 4096

/** Frames of one turn beyond this are written at once, so that the kernel gets its share before the limit is judged. */
const EAGER_BYTES = 64 * 1024

/**
 * Everything that goes to one client, in order: the frames of one turn leave in one write, a single frame as the very buffer it is.
 * Knows how far the client is behind. Until `open`, frames gather.
 *
 * A whole state is as large as the game made it, so the largest one under way is not held against the client: both bounds are meant
 * on top of it, and of what the client has missed before it came. What waits for one client is at most the limit, that and one frame.
 */
export class Outbox {
  readonly #socket: ByteSink
  readonly #flusher: Flusher
  readonly #bounds: OutboxBounds
  readonly #listener: OutboxListener
  /** What is to be written, in order. Most turns have one frame for a client: with one field instead of a list, less is read for each client. */
  #frame: Frame | undefined
  #more: Frame[] | undefined
  #bytes = 0
  #held = 0
  /** What the kernel had not taken after the last write. Kept, because asking the socket costs more than the rest of a push. */
  #behind = 0
  #draining = false
  #allowance = 0
  #gated = true
  #awaited = false
  #closed = false

  constructor(socket: ByteSink, flusher: Flusher, bounds: OutboxBounds, listener: OutboxListener) {
    this.#socket = socket
    this.#flusher = flusher
    this.#bounds = bounds
    this.#listener = listener
  }

  /** Bytes that wait for the client, wherever they are. */
  get queued(): number {
    return this.#bytes + this.#held + this.#socket.writableLength
  }

  /** Whether the client is so far behind that it should get no more patches. */
  get congested(): boolean {
    const waiting = this.#bytes + this.#behind
    // What is nearly always so needs no look at the bounds.
    if (waiting === 0) return false
    return !this.#gated && waiting > this.#bounds.outboxHighWaterBytes + this.#allowance
  }

  /** As push, for what is most likely all that the client gets in this turn: unless something waits it is written at once. */
  write(frame: Frame): void {
    if (this.#frame || this.#gated || this.#closed || this.#held + this.#behind > 0) {
      this.push(frame)
      return
    }
    if (!this.#socket.write(frame)) this.#fallBehind()
    this.#settle()
    this.#flusher.count(1, frame.length)
  }

  /** Takes one frame; it is written at the end of this turn. */
  push(frame: Frame): void {
    if (this.#closed) return
    if (this.#full) {
      this.#listener.overflowed()
      return
    }
    this.#bytes += frame.length
    if (this.#frame) {
      this.#more ??= []
      this.#more.push(frame)
    } else {
      this.#frame = frame
      if (!this.#gated) this.#flusher.add(this)
    }
    if (this.#bytes > EAGER_BYTES && !this.#gated) this.#flusher.now(this)
  }

  /** Takes a frame that carries a whole state. */
  pushState(frame: Frame): void {
    if (!this.#closed && !this.#full) this.#allowance = Math.max(this.#allowance, frame.length)
    this.push(frame)
  }

  /** Takes a frame with what the client has missed before its resume. */
  pushMissed(frame: Frame): void {
    if (!this.#closed) this.#allowance += frame.length
    this.push(frame)
  }

  /** Counts `bytes` that wait for this client elsewhere. False: the limit is reached. */
  hold(bytes: number): boolean {
    if (this.#closed) return false
    if (this.#full) {
      this.#listener.overflowed()
      return false
    }
    this.#held += bytes
    return true
  }

  /** The `bytes` counted by `hold` wait there no more. */
  release(bytes: number): void {
    if (!this.#closed) this.#held -= bytes
  }

  /** Begins to write: first `first`, then what was pushed before, which counts as one whole state. */
  open(first: Frame): void {
    if (this.#closed || !this.#gated) return
    this.#gated = false
    this.#allowance = Math.max(this.#allowance, this.#bytes)
    if (this.#frame) this.#more = [this.#frame, ...(this.#more ?? [])]
    this.#frame = first
    this.#bytes += first.length
    this.#flusher.add(this)
  }

  /** Tells the listener, once, when most of what waits has been read. */
  awaitRoom(): void {
    this.#awaited = true
  }

  /** Writes what has gathered; returns how many bytes. */
  flush(): number {
    const frame = this.#frame
    if (!frame || this.#gated || this.#closed) return 0
    const more = this.#more
    const bytes = this.#bytes
    this.#bytes = 0
    this.#frame = undefined
    this.#more = undefined
    const taken = more ? this.#gather([frame, ...more], bytes) : this.#socket.write(frame)
    if (taken) this.#behind = 0
    else this.#fallBehind()
    this.#settle()
    return bytes
  }

  /** Drops what has not been written and takes nothing more. */
  close(): void {
    this.#closed = true
    this.#frame = undefined
    this.#more = undefined
    this.#bytes = 0
    this.#held = 0
  }

  /** Several frames in one write. */
  #gather(frames: readonly Frame[], bytes: number): boolean {
    return bytes <= COPY_BYTES ? this.#socket.write(joinFrames(frames)) : this.#socket.writev(frames)
  }

  #fallBehind(): void {
    if (!this.#draining)
      this.#socket.onceDrained(() => {
        this.#draining = false
        this.#behind = 0
        this.#settle()
      })
    this.#draining = true
    this.#behind = this.#socket.writableLength
  }

  get #full(): boolean {
    const waiting = this.#bytes + this.#held + this.#behind
    return waiting > 0 && !this.#gated && waiting > this.#bounds.outboxLimitBytes + this.#allowance
  }

  #settle(): void {
    const waiting = this.#bytes + this.#behind
    if (waiting === 0) this.#allowance = 0
    if (!this.#awaited || this.#closed || waiting > this.#bounds.outboxHighWaterBytes / 4) return
    this.#awaited = false
    this.#listener.hasRoom()
  }
}

/** Frames that wait until the client of a stalled subscription has its state; they count towards what its outbox may hold. */
export class HeldFrames {
  #frames: Frame[] = []
  #bytes = 0

  /** Keeps a frame, in order; when the outbox's limit is reached, the connection is over and nothing is kept. */
  add(frame: Frame, outbox: Outbox): void {
    if (this.reserve(frame.length, outbox)) this.#frames.push(frame)
  }

  /** Counts so many bytes that follow the frames. False: the outbox's limit is reached, and the connection is over. */
  reserve(bytes: number, outbox: Outbox): boolean {
    if (!outbox.hold(bytes)) return false
    this.#bytes += bytes
    return true
  }

  /** Gives everything to the outbox. */
  release(outbox: Outbox): void {
    const frames = this.#frames
    this.drop(outbox)
    for (const frame of frames) outbox.push(frame)
  }

  /** Forgets everything. `outbox`: the one it was counted by, unless that is closed. */
  drop(outbox?: Outbox): void {
    outbox?.release(this.#bytes)
    this.#frames = []
    this.#bytes = 0
  }
}

/**
 * Runs `callback` when the present turn of the event loop is over, behind every promise continuation of it and before any other input or
 * output: what rooms, acks and answers say in one turn is in one write, and none of it waits for other sockets.
 */
export const endOfTurn = (callback: () => void): void => queueMicrotask(() => process.nextTick(callback))

/** Writes each outbox that got something, once per turn. */
export class Flusher {
  readonly sockets = new Sockets()
  readonly #defer: typeof endOfTurn
  readonly #metrics: GatewayMetrics
  #waiting: Outbox[] = []

  constructor(defer: typeof endOfTurn, metrics: GatewayMetrics) {
    this.#defer = defer
    this.#metrics = metrics
  }

  /** To be flushed at the end of this turn. */
  add(outbox: Outbox): void {
    if (this.#waiting.push(outbox) === 1) this.#defer(this.#run)
  }

  /** Flushes one outbox without waiting for the end of the turn. */
  now(outbox: Outbox): void {
    const bytes = outbox.flush()
    if (bytes > 0) this.count(1, bytes)
  }

  #run = (): void => {
    const waiting = this.#waiting
    this.#waiting = []
    let bytes = 0
    let writes = 0
    for (const outbox of waiting) {
      const written = outbox.flush()
      if (written === 0) continue
      bytes += written
      writes += 1
    }
    if (writes > 0) this.count(writes, bytes)
  }

  /** So much was written. */
  count(writes: number, bytes: number): void {
    this.#metrics.socketWrites.inc(writes)
    this.#metrics.writtenBytes.inc(bytes)
  }
}
