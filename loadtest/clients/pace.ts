import { type Clock, sleep } from '../../shared/clock.ts'

/** How often to look for senders, while there is none. */
const IDLE_MS = 50

/**
 * Begins `work` with one item after the other, `perSecond` of them each second, by absolute deadlines: whatever the work takes, the next
 * one is due when it is due. `offset`: by which part of the distance between two items the first one waits. Resolves when all work is
 * done; begins nothing more once `ended` says so.
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
 * Has a number of senders send at the same rate, evenly spread and by absolute deadlines. What could not be sent in time, since the
 * process was busy, is sent as soon as it can be, and is told when it was due.
 */
export class Pacer {
  readonly #clock: Clock
  #cancel = () => {}
  /** Sends what is due by now. */
  #catchUp = () => {}

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** `count`: how many senders there are, asked each time; each is called `rate` times per second with when that was due. */
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

  /** Sends everything that was due by now, and nothing more: what a busy process is behind with is not left out. */
  stop(): void {
    this.#cancel()
    this.#catchUp()
    this.#cancel = () => {}
    this.#catchUp = () => {}
  }
}
