import { type Clock, MOMENT_MS } from '../../shared/clock.ts'
import type { Logger } from '../../shared/log.ts'

/** Calls a callback after all that this turn of the event loop still does, such as reading other sockets. */
export type Defer = (callback: () => void) => void

/**
 * The timers of all rooms: a heap of absolute deadlines, with at most one pending callback of the clock. Due timers run in the order of
 * their deadlines. If a timer throws, the error is logged and the others run.
 */
export class Scheduler {
  readonly clock: Clock
  /** Wall-clock time at monotonic 0, milliseconds. The slots of rooms are counted from it, so that those of all nodes start together. */
  readonly wallAtZero: number
  readonly #defer: Defer
  readonly #log: Pick<Logger, 'error'>
  readonly #heap: Timer[] = []
  #soon: Timer[] = []
  #order = 0
  #alarm: { readonly due: number; readonly cancel: () => void } | undefined

  constructor(clock: Clock, defer: Defer, log: Pick<Logger, 'error'>) {
    this.clock = clock
    this.wallAtZero = clock.now() - clock.monotonic()
    this.#defer = defer
    this.#log = log
  }

  /** Returns a timer that calls `run`. It does not wait yet. */
  timer(run: () => void): Timer {
    return new Timer(this, run)
  }

  /** For timers only. */
  add(entry: Timer, due: number): void {
    entry.due = due
    entry.order = this.#order++
    this.#heap.push(entry)
    this.#rise(this.#heap.length - 1, entry)
    if (entry.index === 0) this.#arm()
  }

  /** For timers only. */
  addSoon(entry: Timer): void {
    if (this.#soon.push(entry) === 1) this.#defer(this.#runSoon)
  }

  /** For timers only. */
  remove(entry: Timer): void {
    const last = this.#heap.pop()!
    if (last === entry) return
    this.#rise(entry.index, last)
    this.#sink(last.index, last)
  }

  readonly #runSoon = (): void => {
    const entries = this.#soon
    this.#soon = []
    for (const entry of entries) if (entry.state === 'soon') this.#run(entry)
  }

  readonly #runDue = (): void => {
    this.#alarm = undefined
    const now = this.clock.monotonic()
    for (let first = this.#heap[0]; first && first.due <= now; first = this.#heap[0]) {
      this.remove(first)
      this.#run(first)
    }
    this.#arm()
  }

  #run(entry: Timer): void {
    entry.state = 'idle'
    try {
      entry.run()
    } catch (error) {
      this.#log.error({ err: error }, 'a timer of a room failed')
    }
  }

  #arm(): void {
    const first = this.#heap[0]
    if (!first || (this.#alarm && this.#alarm.due <= first.due)) return
    this.#alarm?.cancel()
    const delayMs = Math.max(0, Math.ceil(first.due - this.clock.monotonic()))
    this.#alarm = { due: first.due, cancel: this.clock.schedule(delayMs, this.#runDue) }
  }

  #rise(index: number, entry: Timer): void {
    let at = index
    while (at > 0) {
      const parent = this.#heap[(at - 1) >> 1]!
      if (!entry.before(parent)) break
      this.#place(at, parent)
      at = (at - 1) >> 1
    }
    this.#place(at, entry)
  }

  #sink(index: number, entry: Timer): void {
    let at = index
    for (;;) {
      const left = 2 * at + 1
      const right = left + 1
      let child = this.#heap[left]
      let next = left
      if (!child) break
      const other = this.#heap[right]
      if (other?.before(child)) {
        child = other
        next = right
      }
      if (!child.before(entry)) break
      this.#place(at, child)
      at = next
    }
    this.#place(at, entry)
  }

  #place(index: number, entry: Timer): void {
    this.#heap[index] = entry
    entry.index = index
  }
}

/** A recurring job of one room, such as its flushes. It costs nothing while it does not wait. */
export class Timer {
  readonly #scheduler: Scheduler
  /** For Scheduler only, as `due`, `order`, `index` and `before`. */
  readonly run: () => void
  state: 'idle' | 'at' | 'soon' = 'idle'
  due = 0
  order = 0
  index = 0

  constructor(scheduler: Scheduler, run: () => void) {
    this.#scheduler = scheduler
    this.run = run
  }

  get waiting(): boolean {
    return this.state !== 'idle'
  }

  /** Runs once at `due` (monotonic milliseconds). Replaces an earlier deadline. */
  at(due: number): void {
    if (this.state === 'at' && this.due === due) return
    this.cancel()
    this.state = 'at'
    this.#scheduler.add(this, due)
  }

  /** Runs once at the end of this turn of the event loop. Replaces an earlier deadline. */
  soon(): void {
    if (this.state === 'soon') return
    this.cancel()
    this.state = 'soon'
    this.#scheduler.addSoon(this)
  }

  cancel(): void {
    if (this.state === 'at') this.#scheduler.remove(this)
    this.state = 'idle'
  }

  before(other: Timer): boolean {
    return this.due < other.due || (this.due === other.due && this.order < other.order)
  }
}

/**
 * Asynchronous work that a room repeats, such as its saves: one run at a time, each with the latest data. Changes during a run are the work
 * of the next run.
 */
export class PacedWork {
  readonly #clock: Clock
  readonly #timer: Timer
  readonly #run: () => Promise<void> | undefined
  #due = Number.POSITIVE_INFINITY
  #running: Promise<void> | undefined
  #ended = false

  /**
   * `run` must not reject: that is an unhandled error, but does not prevent later runs. If it throws or returns undefined, it has not started,
   * and the next `by` or `start` runs it.
   */
  constructor(scheduler: Scheduler, run: () => Promise<void> | undefined) {
    this.#clock = scheduler.clock
    this.#timer = scheduler.timer(() => this.start())
    this.#run = run
  }

  /** The run in progress. Never rejects. */
  get running(): Promise<void> | undefined {
    return this.#running
  }

  get ended(): boolean {
    return this.#ended
  }

  /** Runs once at `due` (monotonic milliseconds), or after the run in progress if that takes longer. An earlier deadline stays. */
  by(due: number): void {
    if (due >= this.#due || this.#ended) return
    this.#due = due
    this.#wait()
  }

  /** Runs now, unless a run is in progress. Cancels the deadline. */
  start(): void {
    if (this.#running || this.#ended) return
    this.cancel()
    this.#running = this.#run()?.finally(() => {
      this.#running = undefined
      this.#wait()
    })
  }

  /** Cancels the deadline. A run in progress continues. */
  cancel(): void {
    this.#due = Number.POSITIVE_INFINITY
    this.#timer.cancel()
  }

  /** Starts no more runs. A run in progress continues. */
  end(): void {
    this.#ended = true
    this.cancel()
  }

  #wait(): void {
    if (this.#due <= this.#clock.monotonic()) this.#timer.soon()
    else if (this.#due < Number.POSITIVE_INFINITY) this.#timer.at(this.#due)
  }
}

/** The parts of a node that pace its rooms. */
interface Pacing {
  readonly scheduler: Scheduler
  readonly load: Pick<NodeLoad, 'slowdown'>
}

/** The ticks of a room: a steady rate with absolute deadlines. There are none until `set`. */
export class TickTimer {
  readonly #clock: Clock
  readonly #pace: FixedRate
  readonly #timer: Timer

  /** `phase` (0–1): where in an interval this room ticks. */
  constructor(pacing: Pacing, phase: number, tick: () => void) {
    this.#clock = pacing.scheduler.clock
    this.#pace = new FixedRate(pacing, phase)
    this.#timer = pacing.scheduler.timer(() => {
      this.#wait()
      tick()
    })
  }

  /** Sets the ticks per second. Undefined: no ticks. */
  set(rate: number | undefined): void {
    this.#pace.set(rate ?? 0)
    if (rate === undefined) this.#timer.cancel()
    else this.#wait()
  }

  /** Stops the ticks until the next `set`. */
  cancel(): void {
    this.#timer.cancel()
  }

  #wait(): void {
    this.#timer.at(this.#pace.following(this.#clock.monotonic()))
  }
}

/** The flushes of a room: at most one for each slot of its rate, if a flush is wanted. */
export class FlushTimer extends Timer {
  readonly #pace: FixedRate
  #doneAt = Number.NEGATIVE_INFINITY

  /** `phase` (0–1): where in an interval this room flushes. */
  constructor(pacing: Pacing, phase: number, flush: () => void) {
    super(pacing.scheduler, flush)
    this.#pace = new FixedRate(pacing, phase)
  }

  /** Sets the flushes per second. 0: no limit. */
  set(rate: number): void {
    this.#pace.set(rate)
  }

  /** Flushes at the rate, unless a flush waits already. */
  paced(now: number): void {
    if (this.waiting) return
    const due = this.#pace.next(now, this.#doneAt)
    if (due <= now) this.soon()
    else this.at(due)
  }

  /** A flush takes place. */
  done(now: number): void {
    this.#doneAt = now
  }
}

/** Load of a node at this moment. */
export interface NodeLoad {
  /** Factor by which flushes and ticks are less frequent than configured. 1: the node keeps up. */
  readonly slowdown: number
  /** True if the node cannot keep up, so that messages which have waited for long are dropped or refused. */
  readonly overloaded: boolean
}

/**
 * A rate with absolute deadlines. Time is divided into slots of equal length. The slots of a room start at one of several phases, so that
 * the rooms of a busy node do not all work at the same moment, and nothing drifts. Phases are `MOMENT_MS` or a little more apart: rooms with
 * the same phase wake the process once, find code and data in the caches, and share a write to the store and to each other node. On a node
 * that slows down, the slots of all rooms are longer by the same factor.
 */
class FixedRate {
  readonly #pacing: Pacing
  readonly #share: number
  /** 0: there is no limit. */
  #intervalMs = 0
  /** Start of the slots on the monotonic clock, in intervals: between -1 and 1. */
  #phase = 0

  /** `share` (0–1): part of an interval by which slots start after a whole number of intervals since 1970, rounded to one of the phases. */
  constructor(pacing: Pacing, share: number) {
    this.#pacing = pacing
    this.#share = share
  }

  /** Sets the number of slots per second. 0: no limit. */
  set(perSecond: number): void {
    this.#intervalMs = perSecond > 0 ? 1000 / perSecond : 0
    if (this.#intervalMs === 0) return
    const phases = Math.max(1, Math.floor(this.#intervalMs / MOMENT_MS + 1e-9))
    const { wallAtZero } = this.#pacing.scheduler
    this.#phase =
      Math.floor(this.#share * phases) / phases - (wallAtZero % this.#intervalMs) / this.#intervalMs
  }

  /** Returns when to act, at most once per slot: `now`, or the start of the next slot if `doneAt` is in this slot. */
  next(now: number, doneAt: number): number {
    const lengthMs = this.#lengthMs
    if (lengthMs === 0) return now
    const acted = this.#slot(doneAt, lengthMs)
    return this.#slot(now, lengthMs) > acted ? now : (acted + 1 + this.#phase) * lengthMs
  }

  /** Returns the start of the first slot after `now`. Missed slots are skipped. */
  following(now: number): number {
    const lengthMs = this.#lengthMs
    return (this.#slot(now, lengthMs) + 1 + this.#phase) * lengthMs
  }

  /** Returns the slot of a time. The start of a slot belongs to it, also with rounding errors. */
  #slot(now: number, lengthMs: number): number {
    return Math.floor(now / lengthMs - this.#phase + 1e-9)
  }

  get #lengthMs(): number {
    return this.#intervalMs * this.#pacing.load.slowdown
  }
}

/**
 * Time in milliseconds that the inputs of all rooms may take in one turn of the event loop. Flushes, sockets and the lease run in between.
 */
const SHARE_MS = 10

/** Below this, a callback at the end of the turn is not worth its cost. */
const COUNTED_FROM_MS = 1

/** A waiting room may act for at least this long before the next one. */
const QUANTUM_MS = 0.25

/** A room that waits for its share of the event loop. `since`: arrival of its oldest waiting message (monotonic clock). */
interface WaitingRoom {
  readonly run: () => void
  readonly since: number
}

/** Reports turns that are too slow. */
interface SlowTurns {
  /** The last turn took `ms` milliseconds. */
  wasSlow(ms: number): void
}

/** A turn of room logic that takes this long is reported, and its room pauses. */
const SLOW_MS = 100

/** After a slow turn, the room pauses this many times as long as the turn took. So it gets at most a quarter of the event loop. */
const PAUSE_PER_TURN = 3

/**
 * The share that the inputs of a node's rooms have of each turn of the event loop. If they need more, rooms wait, and act one after the
 * other, each for the same time. In between, the node runs flushes, sockets, timers and its lease, however many messages arrive and however
 * long each takes.
 */
export class LoopShare {
  readonly #clock: Clock
  readonly #defer: Defer
  readonly #code: SlowTurns
  #waiting: WaitingRoom[] = []
  #usedMs = 0
  /** Limit of `#usedMs` for the room that acts at present. */
  #mostMs = SHARE_MS
  #deferred = false

  constructor(clock: Clock, defer: Defer, code: SlowTurns) {
    this.#clock = clock
    this.#defer = defer
    this.#code = code
  }

  /** True if the rooms have used their time in this turn. */
  get used(): boolean {
    return this.#usedMs >= this.#mostMs
  }

  /** How long the next inputs have waited, in milliseconds. */
  get waitedMs(): number {
    const [first] = this.#waiting
    return first ? this.#clock.monotonic() - first.since : 0
  }

  /** A room has acted for `ms` milliseconds. */
  use(ms: number): void {
    if (ms >= SLOW_MS) this.#code.wasSlow(ms)
    this.#usedMs += ms
    if (this.#usedMs >= COUNTED_FROM_MS) this.#nextTurn()
  }

  /** Runs `run` in one of the next turns, after the rooms that wait already. */
  wait(run: () => void, since: number): void {
    this.#waiting.push({ run, since })
    this.#nextTurn()
  }

  #nextTurn(): void {
    if (this.#deferred) return
    this.#deferred = true
    this.#defer(() => {
      this.#deferred = false
      this.#usedMs = 0
      const quantumMs = Math.max(QUANTUM_MS, SHARE_MS / this.#waiting.length)
      while (this.#usedMs < SHARE_MS && this.#waiting.length > 0) {
        this.#mostMs = Math.min(SHARE_MS, this.#usedMs + quantumMs)
        this.#waiting.shift()!.run()
      }
      this.#mostMs = SHARE_MS
      if (this.#waiting.length > 0) this.#nextTurn()
    })
  }
}

/** The share of one room. */
export class RoomShare {
  readonly #loop: LoopShare
  readonly #scheduler: Scheduler
  readonly #go: () => void
  readonly #pause: Timer
  #waits = false

  /** Calls `go` when the room may act again. */
  constructor(
    { loopShare, scheduler }: { readonly loopShare: LoopShare; readonly scheduler: Scheduler },
    go: () => void,
  ) {
    this.#loop = loopShare
    this.#scheduler = scheduler
    this.#go = go
    this.#pause = scheduler.timer(go)
  }

  /** True if the room pauses after a slow turn. */
  get pauses(): boolean {
    return this.#pause.waiting
  }

  /** True if the room may act now. */
  get may(): boolean {
    return !this.#waits && !this.#pause.waiting && !this.#loop.used
  }

  /** Calls `go` when the room may act again. `since`: arrival of the oldest waiting message (monotonic clock). */
  wait(since: number): void {
    if (this.#waits || this.pauses) return
    this.#waits = true
    this.#loop.wait(() => {
      this.#waits = false
      this.#go()
    }, since)
  }

  /** The room has acted since `began` (monotonic clock). `goesOn`: the room has not ended, and may have to pause. */
  use(began: number, goesOn: boolean): void {
    const now = this.#scheduler.clock.monotonic()
    const ms = now - began
    if (ms >= SLOW_MS && goesOn) this.#pause.at(now + PAUSE_PER_TURN * ms)
    this.#loop.use(ms)
  }

  /** Ends the pause without a call of `go`. */
  cancel(): void {
    this.#pause.cancel()
  }
}
