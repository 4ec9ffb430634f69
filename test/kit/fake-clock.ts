import { setImmediate, setTimeout } from 'node:timers'
import type { Clock } from '../../shared/clock.ts'

interface Timer {
  readonly due: number
  /** Number of timers that were added before. */
  readonly order: number
  readonly callback: () => void
}

/** Scheduled callbacks. */
export class Timers {
  #order = 0
  readonly #timers = new Set<Timer>()

  /** Adds a callback. The returned function removes it. */
  add(due: number, callback: () => void): () => void {
    const timer = { due, order: this.#order++, callback }
    this.#timers.add(timer)
    return () => void this.#timers.delete(timer)
  }

  /** First timer that is due. Among timers with the same time, the one that was added first. */
  get next(): Timer | undefined {
    let next: Timer | undefined
    for (const timer of this.#timers)
      if (!next || timer.due < next.due || (timer.due === next.due && timer.order < next.order)) next = timer
    return next
  }

  get size(): number {
    return this.#timers.size
  }

  /** Removes a timer, and runs its callback. */
  run(timer: Timer): void {
    this.#timers.delete(timer)
    timer.callback()
  }
}

/** A clock that advances only on request. It runs due callbacks in order of their time. */
export class FakeClock implements Clock {
  #elapsed = 0
  readonly #start: number
  readonly #timers = new Timers()

  constructor(start = Date.parse('2026-01-01T00:00:00.000Z')) {
    this.#start = start
  }

  now(): number {
    return this.#start + this.#elapsed
  }

  monotonic(): number {
    return this.#elapsed
  }

  schedule(delayMs: number, callback: () => void): () => void {
    return this.#timers.add(this.#elapsed + Math.max(0, delayMs), callback)
  }

  /** Advances time and runs each due callback at its time. */
  advance(ms: number): void {
    const end = this.#elapsed + ms
    for (;;) {
      const { next } = this.#timers
      if (!next || next.due > end) break
      this.#elapsed = Math.max(this.#elapsed, next.due)
      this.#timers.run(next)
    }
    this.#elapsed = end
  }

  /** Advances time without running callbacks, as if the process hung. Due callbacks run late, in the next `advance`. */
  pause(ms: number): void {
    this.#elapsed += ms
  }

  /** Monotonic time of the next callback; Infinity if there is none. */
  get due(): number {
    return this.#timers.next?.due ?? Number.POSITIVE_INFINITY
  }

  /** Number of scheduled callbacks. */
  get pending(): number {
    return this.#timers.size
  }
}

/** Number of event-loop turns without any message after which all parties wait for time to pass. */
const QUIET_TURNS = 2

/**
 * A caller that has waited this long may wait for something outside the test, such as a file or a database. Then real time passes too, a
 * little for each step of the simulated time, until the nodes time out.
 */
const LONG_MS = 1000
const TOO_LONG_MS = 12_000
const REAL_MS = 1
const STEP_MS = 50

/** A caller that waits for time to pass. */
interface Goal {
  /** Monotonic time after which it has waited for long. Infinity: it waits only for time. */
  readonly longAt: number
  /** Monotonic time at which it stops waiting. */
  readonly due: number
  /** Returns true when the awaited condition holds. */
  readonly reached: () => boolean
  readonly resolve: (reached: boolean) => void
}

/**
 * Simulated time that passes only while a caller waits for it. It jumps to the next due moment when everything possible at the current one is
 * done.
 */
export class TestTime {
  readonly clock = new FakeClock()
  readonly #goals = new Set<Goal>()
  readonly #busy: () => boolean
  #events = 0
  #passing = false

  /** `busy`: true while work is under way that real time must finish, such as cryptography on another thread. */
  constructor(busy: () => boolean = () => false) {
    this.#busy = busy
  }

  /** Reports a message, whose receiver gets an event-loop turn to answer. */
  happened(): void {
    this.#events++
  }

  /** Advances time until a condition holds, for at most `ms`. Returns whether it holds. */
  pass(ms: number, reached?: () => boolean): Promise<boolean> {
    const now = this.clock.monotonic()
    const longAt = reached ? now + LONG_MS : Number.POSITIVE_INFINITY
    return new Promise((resolve) => {
      this.#goals.add({ due: now + ms, longAt, reached: reached ?? (() => false), resolve })
      if (!this.#passing) void this.#pass()
    })
  }

  async #pass(): Promise<void> {
    this.#passing = true
    let quiet = 0
    while (this.#goals.size > 0) {
      await this.#becomeQuiet(quiet)
      // A waiting caller gets a turn before more time passes. If the turn does nothing, the quiet state continues.
      quiet = this.#resolveGoals() ? QUIET_TURNS - 1 : 0
      if (quiet > 0) continue
      const waitsLong = this.#waitsLong
      if (waitsLong) await new Promise((resolve) => setTimeout(resolve, REAL_MS))
      this.#step(waitsLong ? STEP_MS : Number.POSITIVE_INFINITY)
    }
    this.#passing = false
  }

  /** Resolves after `QUIET_TURNS` turns without a message. `quiet`: number of such turns so far. */
  async #becomeQuiet(quiet: number): Promise<void> {
    for (; quiet < QUIET_TURNS; quiet++) {
      const before = this.#events
      await new Promise((resolve) => setImmediate(resolve))
      if (this.#events !== before || this.#busy()) quiet = -1
    }
  }

  /** Returns true if a caller has waited long enough. */
  #resolveGoals(): boolean {
    const now = this.clock.monotonic()
    let some = false
    for (const goal of this.#goals) {
      const reached = goal.reached()
      if (!reached && goal.due > now) continue
      this.#goals.delete(goal)
      goal.resolve(reached)
      some = true
    }
    return some
  }

  get #waitsLong(): boolean {
    const now = this.clock.monotonic()
    return [...this.#goals].some(({ longAt }) => now >= longAt && now < longAt + TOO_LONG_MS)
  }

  #step(atMost: number): void {
    const { clock } = this
    const next = Math.min(clock.due, ...[...this.#goals].map(({ due }) => due))
    clock.advance(Math.min(atMost, Math.max(0, next - clock.monotonic())))
  }
}
