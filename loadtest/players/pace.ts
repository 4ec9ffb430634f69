import { type Clock, sleep } from '../../shared/clock.ts'

/** Time limit of an answer of the service. */
const ANSWER_SECONDS = 30
/** Delay before the next look for senders while there is none. */
const IDLE_MS = 50

/** Waits for an answer. After 30 s it calls `late`, which must make the answer reject. */
export async function withinTimeLimit<T>(
  clock: Clock,
  answer: Promise<T>,
  late: (within: string) => void,
): Promise<T> {
  const cancel = clock.schedule(ANSWER_SECONDS * 1000, () => late(`within ${ANSWER_SECONDS} s`))
  try {
    return await answer
  } finally {
    cancel()
  }
}

/**
 * Starts `work` for one item after the other, `perSecond` each second, with absolute deadlines: slow work does not delay later items.
 * `offset`: delay of the first item, as a fraction of the interval. Resolves when all work is done. Starts nothing more when `ended`
 * returns true.
 */
export async function ramp<T>(
  clock: Clock,
  items: readonly T[],
  { perSecond, offset, ended }: { perSecond: number; offset: number; ended: () => boolean },
  work: (item: T, due: number) => Promise<void>,
): Promise<void> {
  const start = clock.monotonic()
  const running: Promise<void>[] = []
  for (const [index, item] of items.entries()) {
    const due = start + ((index + offset) * 1000) / perSecond
    if (due > clock.monotonic()) await sleep(clock, due - clock.monotonic())
    if (ended()) break
    running.push(work(item, due))
  }
  await Promise.all(running)
}

/**
 * Lets a number of senders send at the same rate, evenly spread and with absolute deadlines. A busy process sends late messages as soon as
 * it can, with the time at which they were due.
 */
export class Pacer {
  readonly #clock: Clock
  #cancel = () => {}
  /** Sends every message that is due. */
  #catchUp = () => {}

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** `count` returns the current number of senders. Calls `send` `rate` times per second for each. */
  start(
    rate: number,
    offset: number,
    count: () => number,
    send: (sender: number, due: number) => void,
  ): void {
    this.stop()
    let due = this.#clock.monotonic() + (offset * 1000) / (rate * Math.max(1, count()))
    let sender = 0
    this.#catchUp = (): void => {
      const now = this.#clock.monotonic()
      while (due <= now) {
        const senders = count()
        if (senders === 0) {
          due = now + IDLE_MS
          break
        }
        sender %= senders
        send(sender, due)
        sender += 1
        due += 1000 / (rate * senders)
      }
    }
    const wait = (): void => {
      this.#cancel = this.#clock.schedule(due - this.#clock.monotonic(), () => {
        this.#catchUp()
        wait()
      })
    }
    wait()
  }

  /** Sends every due message, then stops. Omitting late messages would hide that the process was busy. */
  stop(): void {
    this.#cancel()
    this.#catchUp()
    this.#cancel = () => {}
    this.#catchUp = () => {}
  }
}
