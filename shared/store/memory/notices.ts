import type { Clock } from '../../clock.ts'
import type { Fence, Notices, TakenNotices } from '../port.ts'
import { noticePart, requireLimit, requireTtl } from '../rules.ts'

/** A room in the index. */
type Indexed = Omit<TakenNotices, 'room'>

/** `Notices` in this process' memory, by `clock.now()`. */
export class MemoryNotices implements Notices {
  readonly #clock: Clock
  readonly #requireOpen: () => void
  readonly #index = new Map<string, Indexed>()
  /** By room, the oldest notice first. */
  readonly #lists = new Map<string, Uint8Array[]>()

  constructor(clock: Clock, requireOpen: () => void) {
    this.#clock = clock
    this.#requireOpen = requireOpen
  }

  /** Adds what the owner of a room writes. A notice that the room has already is not added again. */
  add(room: string, notices: readonly Uint8Array[]): void {
    if (notices.length === 0) return
    const list = this.#lists.get(room) ?? []
    for (const notice of notices) if (indexOf(list, notice) < 0) list.push(new Uint8Array(notice))
    this.#lists.set(room, list)
  }

  async announce(room: string, fence: Fence): Promise<void> {
    this.#requireOpen()
    const indexed = this.#index.get(room)
    const { announced = 0, failures = 0, until = this.#now } = indexed ?? {}
    const isOld = indexed && indexed.fence.epoch > fence.epoch
    this.#index.set(room, {
      fence: isOld ? indexed.fence : { ...fence },
      announced: announced + 1,
      failures,
      until,
    })
  }

  async take(part: number, { limit, leaseMs }: { limit: number; leaseMs: number }): Promise<TakenNotices[]> {
    this.#requireOpen()
    requireLimit(limit)
    requireTtl(leaseMs)
    const due = this.#part(part).filter(({ until }) => until <= this.#now)
    return due.slice(0, limit).map((taken) => this.#lease(taken, leaseMs, taken.failures))
  }

  async putOff(taken: TakenNotices, delayMs: number, failures: number): Promise<TakenNotices | undefined> {
    this.#requireOpen()
    const indexed = this.#index.get(taken.room)
    if (indexed?.until !== taken.until) return undefined
    return this.#lease({ ...indexed, room: taken.room }, delayMs, failures)
  }

  async done({ room, until, announced }: TakenNotices): Promise<boolean> {
    this.#requireOpen()
    const indexed = this.#index.get(room)
    if (indexed?.until !== until || indexed.announced !== announced) return false
    return this.#index.delete(room)
  }

  async oldest(room: string): Promise<Uint8Array | undefined> {
    this.#requireOpen()
    return this.#lists.get(room)?.[0]?.slice()
  }

  async count(room: string): Promise<number> {
    this.#requireOpen()
    return this.#lists.get(room)?.length ?? 0
  }

  async remove(room: string, notice: Uint8Array): Promise<void> {
    this.#requireOpen()
    const list = this.#lists.get(room) ?? []
    const at = indexOf(list, notice)
    if (at >= 0) list.splice(at, 1)
    if (list.length === 0) this.#lists.delete(room)
  }

  async rooms(part: number, limit: number, skip = 0): Promise<string[]> {
    this.#requireOpen()
    requireLimit(limit)
    return this.#part(part)
      .slice(skip, skip + limit)
      .map(({ room }) => room)
  }

  async drop(room: string): Promise<void> {
    this.#requireOpen()
    this.#lists.delete(room)
    this.#index.delete(room)
  }

  get #now(): number {
    return Math.floor(this.#clock.now())
  }

  #part(part: number): TakenNotices[] {
    return [...this.#index]
      .filter(([room]) => noticePart(room) === part)
      .map(([room, indexed]) => ({ room, ...indexed }))
      .sort((one, other) => one.until - other.until)
  }

  #lease(taken: TakenNotices, leaseMs: number, failures: number): TakenNotices {
    const { room, ...indexed } = { ...taken, failures, until: this.#now + leaseMs }
    this.#index.set(room, indexed)
    return { room, ...indexed }
  }
}

const indexOf = (list: readonly Uint8Array[], notice: Uint8Array): number =>
  list.findIndex((one) => Buffer.compare(one, notice) === 0)
