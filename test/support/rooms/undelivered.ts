import { NoticeQueue } from '../../../dataplane/features/notices/queue.ts'
import type { Clock } from '../../../shared/clock.ts'
import type { Fence, Notices } from '../../../shared/store/port.ts'

/** Notices of rooms without a backend: they are delivered when a test says so. */
export class Undelivered {
  /** Rooms in the order in which they had notices to deliver. */
  readonly ready: string[] = []
  readonly #queues = new Map<string, NoticeQueue>()
  readonly #notices: Notices
  readonly #clock: Clock

  constructor(notices: Notices, clock: Clock) {
    this.#notices = notices
    this.#clock = clock
  }

  open(room: string, fence: Fence, mayAct: () => boolean): NoticeQueue {
    const queue = new NoticeQueue(room, fence, mayAct, {
      recover: async (queue) => {
        queue.counted(await this.#notices.count(room))
        if (queue.size === 0) return
        await this.#list(queue)
        this.ready.push(room)
      },
      list: () => this.#list(queue),
      ready: () => void this.ready.push(room),
      leave: async () => void (queue.size > 0 && this.ready.push(room)),
    })
    this.#queues.set(room, queue)
    return queue
  }

  #list({ room, fence }: NoticeQueue): Promise<void> {
    return this.#notices.set(room, fence, this.#clock.now())
  }

  /** The backend accepts the oldest notices of a room. */
  async deliver(room: string, number: number): Promise<void> {
    const queue = this.#queues.get(room)!
    for (let i = 0; i < number; i++) {
      const notice = (await queue.next(this.#notices))!
      await this.#notices.remove(room, notice)
      queue.removed(notice)
    }
  }
}
