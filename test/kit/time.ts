import { setImmediate, setTimeout } from 'node:timers'
import { FakeClock } from './fake-clock.ts'

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
