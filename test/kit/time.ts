import { setImmediate, setTimeout } from 'node:timers'
import { FakeClock } from './fake-clock.ts'

/** So many turns of the event loop in which nothing is said to anyone, and everyone waits for time to pass. */
const QUIET_TURNS = 2

/**
 * Who has waited so long for something to happen may wait for what is outside of the test: a file, a database. Then real time passes too, a
 * little for each step of the test's time, until the nodes give up what takes as long as that.
 */
const LONG_MS = 1000
const TOO_LONG_MS = 12_000
const REAL_MS = 1
const STEP_MS = 50

/** Someone waits for time to pass. */
interface Goal {
  /** On the monotonic clock: then it has waited for long. Infinity: it waits for time alone. */
  readonly longAt: number
  /** On the monotonic clock: then it waits no more. */
  readonly due: number
  /** Whether what it waits for has happened. */
  readonly reached: () => boolean
  readonly resolve: (reached: boolean) => void
}

/**
 * Time that passes only while someone waits for it: from one moment at which something is due to the next, as soon as all has been done that
 * could be done at the one before.
 */
export class TestTime {
  readonly clock = new FakeClock()
  readonly #goals = new Set<Goal>()
  #events = 0
  #passing = false

  /** Something was said to someone, who has a turn to answer. */
  happened(): void {
    this.#events++
  }

  /** Lets time pass until something holds, for `ms` at most: whether it does. */
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
      await this.#settle(quiet)
      // What has waited has a turn before any more time passes; if that does nothing, all is as quiet as before.
      quiet = this.#resolveGoals() ? QUIET_TURNS - 1 : 0
      if (quiet > 0) continue
      const waitsLong = this.#waitsLong
      if (waitsLong) await new Promise((resolve) => setTimeout(resolve, REAL_MS))
      this.#step(waitsLong ? STEP_MS : Number.POSITIVE_INFINITY)
    }
    this.#passing = false
  }

  /** `quiet`: for how many turns nothing has happened. */
  async #settle(quiet: number): Promise<void> {
    for (; quiet < QUIET_TURNS; quiet++) {
      const before = this.#events
      await new Promise((resolve) => setImmediate(resolve))
      if (this.#events !== before) quiet = -1
    }
  }

  /** Whether someone has waited long enough. */
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
