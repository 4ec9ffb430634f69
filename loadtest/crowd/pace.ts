import type { Clock } from '../../shared/clock.ts'

/** How often to look for somebody to say something, while there is nobody. */
const IDLE_MS = 50

const until = (clock: Clock, due: number): Promise<void> =>
  new Promise((resolve) => clock.schedule(due - clock.monotonic(), resolve))

/**
 * Begins `work` with one item after the other, `per_second` of them each second, by absolute deadlines: whatever the work takes, the next
 * one is due when it is due. `offset`: by which part of the distance between two items the first one waits. Resolves when all work is
 * done; begins nothing more once `ended` says so.
 */
export async function ramp<T>(
  clock: Clock,
  items: readonly T[],
  { per_second, offset, ended }: { per_second: number; offset: number; ended: () => boolean },
  work: (item: T, due: number) => Promise<void>,
): Promise<void> {
  const start = clock.monotonic()
  const running: Promise<void>[] = []
  for (const [index, item] of items.entries()) {
    const due = start + ((index + offset) * 1000) / per_second
    if (due > clock.monotonic()) await until(clock, due)
    if (ended()) break
    running.push(work(item, due))
  }
  await Promise.all(running)
}

/**
 * Has a number of speakers say something at the same rate, evenly spread and by absolute deadlines. What could not be said in time, since
 * the process was busy, is said as soon as it can be, and is told when it was due.
 */
export class Rhythm {
  readonly #clock: Clock
  #cancel = () => {}
  /** Says what is due by now. */
  #catchUp = () => {}

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** `count`: how many speakers there are, asked each time; each is called `rate` times per second with when that was due. */
  start(
    rate: number,
    offset: number,
    count: () => number,
    say: (speaker: number, due: number) => void,
  ): void {
    this.stop()
    let due = this.#clock.monotonic() + (offset * 1000) / (rate * Math.max(1, count()))
    let speaker = 0
    const catchUp = (): void => {
      const now = this.#clock.monotonic()
      while (due <= now) {
        const speakers = count()
        if (speakers === 0) {
          due = now + IDLE_MS
          break
        }
        speaker %= speakers
        say(speaker, due)
        speaker += 1
        due += 1000 / (rate * speakers)
      }
    }
    const wait = (): void => {
      this.#cancel = this.#clock.schedule(due - this.#clock.monotonic(), beat)
    }
    const beat = (): void => {
      catchUp()
      wait()
    }
    this.#catchUp = catchUp
    wait()
  }

  /** Has everything said that was due by now, and nothing more: what a busy process is behind with is not left out. */
  stop(): void {
    this.#cancel()
    this.#catchUp()
    this.#cancel = () => {}
    this.#catchUp = () => {}
  }
}
