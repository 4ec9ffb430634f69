import { type Frame, joinFrames } from '../frame.ts'
import { type ByteSink, Sockets, type TcpHandle, type Written } from './fast-socket.ts'
import type { GatewayMetrics } from './metrics.ts'

/** Bounds of the bytes queued for one client: above the first it counts as congested, above the second no frame is accepted. */
interface OutboxBounds {
  readonly outboxHighWaterBytes: number
  readonly outboxLimitBytes: number
}

/** Receives the events of an outbox. */
export interface OutboxListener {
  /** The limit is exceeded, and the frame was not accepted. */
  overflowed(): void
  /** The client has caught up. Called once for each `awaitRoom`. */
  hasRoom(): void
}

/** A subscription that gets the updates of its room without a look at its outbox (`Lane`). */
export interface InStep {
  /** The outbox will queue or count something, or close. Updates of this turn that are not written yet must be written before. */
  busy(): void
  /** The next frames are about another room. */
  leave(): void
}

/**
 * Up to this size, several frames are copied into one buffer. Above it, the kernel gathers them (writev). Measured on Node 20 with patch and
 * ack to 200 sockets: equal from 500 bytes to 2 KB (9–10 CPU-µs), and gathering is faster from 8 KB on. Two separate writes cost 15 CPU-µs.
 */
const COPY_BYTES = 4096

/** Number of lanes whose updates wait for each other. With more, the first would wait too long, and no cache would hold them. */
const LANES_TOGETHER = 16

/** If the frames of one turn exceed this size, they are written immediately, so that the limit counts only what the kernel has not taken. */
const EAGER_BYTES = 64 * 1024

/**
 * Queue of all frames for one client, in order. The frames of one turn leave in one write; a single frame is written without a copy. Until
 * `open`, frames are only queued.
 *
 * The game decides the size of a full state. Therefore the largest queued state does not count against the client, and neither do the updates
 * that it missed before a resume: both bounds are added to these sizes. At most the limit, these sizes and one frame are queued.
 */
export class Outbox {
  // The fields that each write needs come first, as in `Connection`.
  readonly #socket: ByteSink
  /** The flusher of all clients of the node. */
  readonly flusher: Flusher
  /** Frames to write, in order. Most turns have one frame for a client: a field instead of an array saves memory reads for each client. */
  #frame: Frame | undefined
  #bytes = 0
  #held = 0
  /** Bytes that the kernel had not taken after the last write. Cached, because asking the socket costs more than the rest of a push. */
  #behind = 0
  #allowance = 0
  #gated = true
  #awaited = false
  #closed = false
  #more: Frame[] | undefined
  /** The subscription that last entered a lane, until the next frames are about another room. Set while any is in a lane. */
  inStep: InStep | undefined
  #draining = false
  readonly #bounds: OutboxBounds
  readonly #listener: OutboxListener

  constructor(socket: ByteSink, flusher: Flusher, bounds: OutboxBounds, listener: OutboxListener) {
    this.#socket = socket
    this.flusher = flusher
    this.#bounds = bounds
    this.#listener = listener
  }

  /** Bytes queued for the client: here, in held frames, and in the socket. */
  get queued(): number {
    return this.#bytes + this.#held + this.#socket.writableLength
  }

  /** True if the client is so far behind that it should get no more patches. */
  get congested(): boolean {
    const waiting = this.#bytes + this.#behind
    // The common case, without a look at the bounds.
    if (waiting === 0) return false
    return !this.#gated && waiting > this.#bounds.outboxHighWaterBytes + this.#allowance
  }

  /** True if nothing is queued for the client, and frames may be written. */
  get idle(): boolean {
    return !this.#frame && !this.#gated && !this.#closed && this.#held + this.#behind === 0
  }

  /** Handle for `Flusher.writeAll`. Undefined: there is none. */
  get handle(): TcpHandle | undefined {
    return this.#socket.handle
  }

  /** `push` for a frame that is probably the only one of this turn: an idle outbox writes it immediately. */
  write(frame: Frame): void {
    if (!this.idle) {
      this.push(frame)
      return
    }
    if (!this.#socket.write(frame)) this.#fallBehind()
    this.#wrote()
    this.flusher.count(1, frame.length)
  }

  /** Queues one frame. It is written at the end of this turn. */
  push(frame: Frame): void {
    if (this.#closed) return
    if (this.#full) {
      this.#listener.overflowed()
      return
    }
    if (!this.#frame) this.inStep?.busy()
    this.#bytes += frame.length
    if (this.#frame) {
      this.#more ??= []
      this.#more.push(frame)
    } else {
      this.#frame = frame
      if (!this.#gated) this.flusher.add(this)
    }
    if (this.#bytes > EAGER_BYTES && !this.#gated) this.flusher.now(this)
  }

  /** Queues a frame with a full state. */
  pushState(frame: Frame): void {
    if (!this.#closed && !this.#full) this.#allowance = Math.max(this.#allowance, frame.length)
    this.push(frame)
  }

  /** Queues a frame with updates that the client missed before its resume. */
  pushMissed(frame: Frame): void {
    if (!this.#closed) this.#allowance += frame.length
    this.push(frame)
  }

  /** Counts `bytes` that are queued for this client elsewhere. Returns false if the limit is exceeded. */
  hold(bytes: number): boolean {
    if (this.#closed) return false
    if (this.#full) {
      this.#listener.overflowed()
      return false
    }
    this.inStep?.busy()
    this.#held += bytes
    return true
  }

  /** Ends the count of `bytes` that `hold` counted. */
  release(bytes: number): void {
    if (!this.#closed) this.#held -= bytes
  }

  /** Starts writing, with `first` before the frames that are already queued. They count as one full state. */
  open(first: Frame): void {
    if (this.#closed || !this.#gated) return
    this.#gated = false
    this.#allowance = Math.max(this.#allowance, this.#bytes)
    if (this.#frame) this.#more = [this.#frame, ...(this.#more ?? [])]
    this.#frame = first
    this.#bytes += first.length
    this.flusher.add(this)
  }

  /** Calls the listener's `hasRoom` once, when no more than a quarter of the high-water mark is queued. */
  awaitRoom(): void {
    this.#awaited = true
  }

  /** Writes all queued frames. Returns their size in bytes. */
  flush(): number {
    const frame = this.#frame
    if (!frame || this.#gated || this.#closed) return 0
    const more = this.#more
    const bytes = this.#bytes
    this.#bytes = 0
    this.#frame = undefined
    this.#more = undefined
    let isTaken: boolean
    if (!more) isTaken = this.#socket.write(frame)
    else {
      const frames = [frame, ...more]
      isTaken = bytes <= COPY_BYTES ? this.#socket.write(joinFrames(frames)) : this.#socket.writev(frames)
    }
    if (isTaken) this.#behind = 0
    else this.#fallBehind()
    this.#wrote()
    return bytes
  }

  /** Drops all queued frames, and accepts no more. */
  close(): void {
    this.inStep?.busy()
    this.#closed = true
    this.#frame = undefined
    this.#more = undefined
    this.#bytes = 0
    this.#held = 0
  }

  /** The socket has taken a frame of `Flusher.writeAll` only in part, or has failed. */
  wroteInPart(request: Written): void {
    if (!this.#socket.wrote!(request)) this.#fallBehind()
  }

  #fallBehind(): void {
    if (!this.#draining)
      this.#socket.onceDrained(() => {
        this.#draining = false
        this.#behind = 0
        this.#wrote()
      })
    this.#draining = true
    this.inStep?.busy()
    this.#behind = this.#socket.writableLength
  }

  get #full(): boolean {
    const waiting = this.#bytes + this.#held + this.#behind
    return waiting > 0 && !this.#gated && waiting > this.#bounds.outboxLimitBytes + this.#allowance
  }

  #wrote(): void {
    const waiting = this.#bytes + this.#behind
    if (waiting === 0) this.#allowance = 0
    if (!this.#awaited || this.#closed || waiting > this.#bounds.outboxHighWaterBytes / 4) return
    this.#awaited = false
    this.#listener.hasRoom()
  }
}

/** Frames for a stalled subscription, held until its client has the full state. They count as queued in the outbox. */
export class HeldFrames {
  #frames: Frame[] = []
  #bytes = 0

  /** Holds a frame, in order. If the outbox is over its limit, its connection closes and the frame is dropped. */
  add(frame: Frame, outbox: Outbox): void {
    if (this.reserve(frame.length, outbox)) this.#frames.push(frame)
  }

  /** Counts `bytes` that follow the frames. Returns false if the outbox is over its limit; its connection then closes. */
  reserve(bytes: number, outbox: Outbox): boolean {
    if (!outbox.hold(bytes)) return false
    this.#bytes += bytes
    return true
  }

  /** Pushes all held frames to the outbox. */
  release(outbox: Outbox): void {
    const frames = this.#frames
    this.drop(outbox)
    for (const frame of frames) outbox.push(frame)
  }

  /** Drops all held frames. `outbox`: the one that counted them, unless it is closed. */
  drop(outbox?: Outbox): void {
    outbox?.release(this.#bytes)
    this.#frames = []
    this.#bytes = 0
  }
}

/**
 * Runs `callback` at the end of the current turn of the event loop: after all its promise continuations, and before other input or output.
 * Everything that rooms and the edge send in one turn is thus in one write, and none of it waits for other sockets.
 */
export const endOfTurn = (callback: () => void): void => queueMicrotask(() => process.nextTick(callback))

/** Writes the updates of lanes, and then the queued frames of each outbox, once per turn. */
export class Flusher {
  readonly sockets = new Sockets()
  readonly #defer: typeof endOfTurn
  readonly #metrics: GatewayMetrics
  #waiting: Outbox[] = []
  #lanes: { send(): void }[] = []

  constructor(defer: typeof endOfTurn, metrics: GatewayMetrics) {
    this.#defer = defer
    this.#metrics = metrics
  }

  /** Schedules a flush of the outbox at the end of this turn. */
  add(outbox: Outbox): void {
    if (this.#waiting.push(outbox) + this.#lanes.length === 1) this.#defer(this.#run)
  }

  /**
   * Schedules the update of a lane for the end of this turn. Rooms that flush in one turn thus make their updates together: the writes of one
   * room take the others out of the caches.
   */
  addLane(lane: { send(): void }): void {
    if (this.#lanes.push(lane) + this.#waiting.length === 1) this.#defer(this.#run)
    if (this.#lanes.length >= LANES_TOGETHER) this.#sendLanes()
  }

  #sendLanes(): void {
    const lanes = this.#lanes
    this.#lanes = []
    for (const lane of lanes) lane.send()
  }

  /** Flushes one outbox immediately. */
  now(outbox: Outbox): void {
    const bytes = outbox.flush()
    if (bytes > 0) this.count(1, bytes)
  }

  #run = (): void => {
    const waiting = this.#waiting
    this.#waiting = []
    this.#sendLanes()
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

  /**
   * `Outbox.write` for idle outboxes, without a look at those with a handle: in a process with many clients, the objects of a client are in
   * no cache. `handles`: their handles, in the same order.
   */
  writeAll(frame: Frame, outboxes: readonly Outbox[], handles: readonly (TcpHandle | undefined)[]): void {
    let writes = 0
    // From the end: if a client left the list now, its last one would take that place.
    for (let i = outboxes.length - 1; i >= 0; i--) {
      const handle = handles[i]
      if (handle) {
        writes++
        const request = this.sockets.write(handle, frame)
        if (request !== undefined) outboxes[i]!.wroteInPart(request)
      } else outboxes[i]!.write(frame)
    }
    this.count(writes, writes * frame.length)
  }

  /** Counts writes and their bytes. */
  count(writes: number, bytes: number): void {
    this.#metrics.socketWrites.inc(writes)
    this.#metrics.writtenBytes.inc(bytes)
  }
}
