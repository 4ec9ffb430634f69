import type { Clock } from '../../shared/clock.ts'

/** Runs a callback after everything that this turn of the event loop still brings, such as the rest of the sockets' input. */
export type Defer = (callback: () => void) => void

/**
 * One wheel for the timers of every room: a heap of absolute deadlines, with at most one callback of the clock outstanding. What is
 * due runs in the order of its deadlines; a timer that throws is reported, and the others run.
 */
export class Scheduler {
  readonly clock: Clock
  readonly #defer: Defer
  readonly #onError: (error: unknown) => void
  readonly #heap: Timer[] = []
  #soon: Timer[] = []
  #order = 0
  #alarm: { readonly due: number; readonly cancel: () => void } | undefined

  constructor(clock: Clock, defer: Defer, onError: (error: unknown) => void) {
    this.clock = clock
    this.#defer = defer
    this.#onError = onError
  }

  /** A timer that runs `run`; not waiting yet. */
  timer(run: () => void): Timer {
    return new Timer(this, run)
  }

  /** How many timers wait. */
  get waiting(): number {
    return this.#heap.length + this.#soon.length
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
  readonly #clock: Clock
  readonly #phase: number
  readonly #slowdown: Slowdown
  readonly #timer: Timer
  #pace: FixedRate | undefined

  /** `phase`, 0–1: where in an interval this room ticks. */
  constructor(
    {
      clock,
      scheduler,
      slowdown,
    }: { readonly clock: Clock; readonly scheduler: Scheduler; readonly slowdown: Slowdown },
    phase: number,
    tick: () => void,
  ) {
    this.#clock = clock
    this.#phase = phase
    this.#slowdown = slowdown
    this.#timer = scheduler.timer(() => {
      this.#wait()
      tick()
    })
  }

  /** So many a second from now on; undefined: none. */
  set(rate: number | undefined): void {
    this.#pace = rate === undefined ? undefined : new FixedRate(rate, this.#phase, this.#slowdown)
    if (this.#pace) this.#wait()
    else this.#timer.cancel()
  }

  /** No more until they are set again. */
  cancel(): void {
    this.#timer.cancel()
  }

  #wait(): void {
    if (this.#pace) this.#timer.at(this.#pace.following(this.#clock.monotonic()))
  }
}

/** How many times as long as asked for the intervals of all rooms are; 1 while the node keeps up. */
export type Slowdown = () => number

/** Slots of rooms begin at least so far apart, or together, in milliseconds: what meets wakes the process up once, and shares a write to the store. */
const APART_MS = 8

/**
 * A rhythm with absolute deadlines: time is cut into slots of equal length, beginning at one of a few phases, so that rooms do not all
 * work at once and nothing drifts. The slots of a node that slows down are longer by one factor for all rooms.
 */
export class FixedRate {
  readonly #intervalMs: number
  readonly #phase: number
  readonly #slowdown: Slowdown
  #doneAt = Number.NEGATIVE_INFINITY

  /** `phase` 0–1: about which part of an interval after monotonic 0 the slots begin. */
  constructor(perSecond: number, phase: number, slowdown: Slowdown) {
    this.#intervalMs = 1000 / perSecond
    const phases = Math.max(1, Math.floor(this.#intervalMs / APART_MS))
    this.#phase = Math.floor(phase * phases) / phases
    this.#slowdown = slowdown
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
    return this.#intervalMs * this.#slowdown()
  }
}
