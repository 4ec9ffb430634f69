import type { Clock } from '../../clock.ts'
import type { Fence, Wakeup, Wakeups } from '../port.ts'
import { wakeupPart } from '../rules.ts'

interface Waiting {
  readonly fence: Fence
  readonly at: number
}

const isLater = (one: Fence, other: Fence): boolean =>
  one.epoch > other.epoch || (one.epoch === other.epoch && one.version > other.version)

/** `Wakeups` in this process' memory, by `clock.now()`. */
export class MemoryWakeups implements Wakeups {
  readonly #clock: Clock
  readonly #requireOpen: () => void
  readonly #waiting = new Map<string, Waiting>()

  constructor(clock: Clock, requireOpen: () => void) {
    this.#clock = clock
    this.#requireOpen = requireOpen
  }

  async set(room: string, fence: Fence, at: number | undefined): Promise<void> {
    this.#requireOpen()
    const last = this.#waiting.get(room)
    if (last && isLater(last.fence, fence)) return
    if (at === undefined) this.#waiting.delete(room)
    else this.#waiting.set(room, { fence: { ...fence }, at })
  }

  async take(part: number, { limit, againMs }: { limit: number; againMs: number }): Promise<Wakeup[]> {
    this.#requireOpen()
    const now = this.#clock.now()
    const due = [...this.#waiting]
      .filter(([room, { at }]) => at <= now && wakeupPart(room) === part)
      .sort(([, one], [, other]) => one.at - other.at)
      .slice(0, limit)
    for (const [room, { fence }] of due) this.#waiting.set(room, { fence, at: now + againMs })
    return due.map(([room, { fence }]) => ({ room, epoch: fence.epoch }))
  }
}
