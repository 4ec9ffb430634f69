import { type Clock, MOMENT_MS } from '../../shared/clock.ts'

/** Runs a callback after everything that this turn of the event loop still brings, such as the rest of the sockets' input. */
export type Defer = (callback: () => void) => void

/**
 * One wheel for the timers of every room: a heap of absolute deadlines, with at most one callback of the clock outstanding. What is
 * due runs in the order of its deadlines; a timer that throws is reported, and the others run.
 */
export class Scheduler {
  readonly clock: Clock
  /** Wall-clock time at monotonic 0, milliseconds: the slots of rooms are counted from there, so that those of all nodes begin together. */
  readonly wallAtZero: number
  readonly #defer: Defer
  readonly #onError: (error: unknown) => void
  readonly #heap: Timer[] = []
  #soon: Timer[] = []
  #order = 0
  #alarm: { readonly due: number; readonly cancel: () => void } | undefined

  constructor(clock: Clock, defer: Defer, onError: (error: unknown) => void) {
    this.clock = clock
    this.wallAtZero = clock.now() - clock.monotonic()
    this.#defer = defer
    this.#onError = onError
  }

  /** A timer that runs `run`; not waiting yet. */
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
      this.#onError(error)
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

/** One recurring need of one room, such as its flushes. Costs nothing while it waits for nothing. */
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

  /** Runs once at `due` (monotonic milliseconds), instead of whenever it was to run before. */
  at(due: number): void {
    if (this.state === 'at' && this.due === due) return
    this.cancel()
    this.state = 'at'
    this.#scheduler.add(this, due)
  }

  /** Runs once when this turn of the event loop has brought everything, instead of whenever it was to run before. */
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

/** The ticks of a room: at a steady rate, with absolute deadlines, none while it is not set. */
export class TickTimer {
  readonly #scheduler: Scheduler
  readonly #phase: number
  readonly #load: Pick<NodeLoad, 'slowdown'>
  readonly #timer: Timer
  #pace: FixedRate | undefined

  /** `phase`, 0–1: where in an interval this room ticks. */
  constructor(
    { scheduler, load }: { readonly scheduler: Scheduler; readonly load: Pick<NodeLoad, 'slowdown'> },
    phase: number,
    tick: () => void,
  ) {
    this.#scheduler = scheduler
    this.#phase = phase
    this.#load = load
    this.#timer = scheduler.timer(() => {
      this.#wait()
      tick()
    })
  }

  /** So many a second from now on; undefined: none. */
  set(rate: number | undefined): void {
    const { wallAtZero } = this.#scheduler
    this.#pace = rate === undefined ? undefined : new FixedRate(rate, this.#phase, this.#load, wallAtZero)
    if (this.#pace) this.#wait()
    else this.#timer.cancel()
  }

  /** No more until they are set again. */
  cancel(): void {
    this.#timer.cancel()
  }

  #wait(): void {
    if (this.#pace) this.#timer.at(this.#pace.following(this.#scheduler.clock.monotonic()))
  }
}

/** How busy a node is at this moment. */
export interface NodeLoad {
  /** How many times as long as asked for the intervals of flushes and ticks are; 1 while the node keeps up. */
  readonly slowdown: number
  /** True if the node is asked for more than it can do, so that inputs which have waited for long are not handled any more. */
  readonly overloaded: boolean
}

/**
 * A rhythm with absolute deadlines: time is cut into slots of equal length, beginning at one of a few phases, so that rooms do not all
 * work at once and nothing drifts. Phases are `MOMENT_MS` apart or a little more: what meets wakes the process up once, and shares a write
 * to the store and to each other node. The slots of a node that slows down are longer by one factor for all rooms.
 */
export class FixedRate {
  readonly #intervalMs: number
  /** Where slots begin on the monotonic clock, in intervals: between -1 and 1. */
  readonly #phase: number
  readonly #load: Pick<NodeLoad, 'slowdown'>
  #doneAt = Number.NEGATIVE_INFINITY

  /** `phase` 0–1: about which part of an interval after a whole number of them since 1970 the slots begin. */
  constructor(perSecond: number, phase: number, load: Pick<NodeLoad, 'slowdown'>, wallAtZero: number) {
    this.#intervalMs = 1000 / perSecond
    const phases = Math.max(1, Math.floor(this.#intervalMs / MOMENT_MS + 1e-9))
    this.#phase = Math.floor(phase * phases) / phases - (wallAtZero % this.#intervalMs) / this.#intervalMs
    this.#load = load
  }

  /** When to act, at most once per slot: `now` while nothing was done in this slot, otherwise when the next one begins. */
  next(now: number): number {
    const lengthMs = this.#lengthMs
    const acted = this.#slot(this.#doneAt, lengthMs)
    return this.#slot(now, lengthMs) > acted ? now : (acted + 1 + this.#phase) * lengthMs
  }

  /** Something was done at `now`. */
  done(now: number): void {
    this.#doneAt = now
  }

  /** The first beginning of a slot after `now`: slots that were missed are skipped. */
  following(now: number): number {
    const lengthMs = this.#lengthMs
    return (this.#slot(now, lengthMs) + 1 + this.#phase) * lengthMs
  }

  /** A time that is the beginning of a slot, give or take rounding, belongs to that slot. */
  #slot(now: number, lengthMs: number): number {
    return Math.floor(now / lengthMs - this.#phase + 1e-9)
  }

  get #lengthMs(): number {
    return this.#intervalMs * this.#load.slowdown
  }
}

/**
 * What the inputs of all rooms together may take of one turn of the event loop, in milliseconds: flushes, sockets and the lease have
 * theirs in between.
 */
const SHARE_MS = 10

/** Less than this is not worth a callback of its own at the end of the turn. */
const COUNTED_FROM_MS = 1

/** A room that waits is let on for this long at least before the next one is. */
const QUANTUM_MS = 0.25

/** A room that waits for its share of the event loop; `since`: the oldest of what waits with it, on the monotonic clock. */
interface WaitingRoom {
  readonly run: () => void
  readonly since: number
}

/** A turn of room logic that takes this long is reported, and its room pauses. */
const SLOW_MS = 100

/** After a slow turn a room pauses so many times as long as the turn took: it gets at most a quarter of the event loop. */
const PAUSE_PER_TURN = 3

/**
 * What the inputs of the rooms of a node take of each turn of the event loop. While they ask for more than their share, rooms wait, and are
 * let on one after the other, each for as long as the others: flushes, sockets, timers and the lease of the node have theirs in between,
 * however many messages come and however long each takes.
 */
export class LoopShare {
  readonly #clock: Clock
  readonly #defer: Defer
  readonly #onSlow: (ms: number) => void
  #waiting: WaitingRoom[] = []
  #usedMs = 0
  /** Up to where the room that is let on may go. */
  #mostMs = SHARE_MS
  #deferred = false

  /** Calls `onSlow` with the milliseconds of a slow turn. */
  constructor(clock: Clock, defer: Defer, onSlow: (ms: number) => void) {
    this.#clock = clock
    this.#defer = defer
    this.#onSlow = onSlow
  }

  /** Whether what can wait shall wait. */
  get used(): boolean {
    return this.#usedMs >= this.#mostMs
  }

  /** For how long the inputs that are next have waited, milliseconds. */
  get waitedMs(): number {
    const [first] = this.#waiting
    return first ? this.#clock.monotonic() - first.since : 0
  }

  /** Handling something took a room so long. */
  use(ms: number): void {
    if (ms >= SLOW_MS) this.#onSlow(ms)
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

/** The part of one room in `LoopShare`. */
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

  /** Whether the room pauses after a slow turn. */
  get pauses(): boolean {
    return this.#pause.waiting
  }

  /** Whether the room may act now. */
  get may(): boolean {
    return !this.#waits && !this.pauses && !this.#loop.used
  }

  /** Calls `go` when the room may act again. `since`: when the oldest of what waits came, on the monotonic clock. */
  wait(since: number): void {
    if (this.#waits || this.pauses) return
    this.#waits = true
    this.#loop.wait(() => {
      this.#waits = false
      this.#go()
    }, since)
  }

  /** The room has acted since `began`, on the monotonic clock. `goesOn`: it may have to pause. */
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
