import type { Clock } from '../shared/clock.ts'

/** Hands out members of an ordered set that sort by time of creation, also within one millisecond of one process. */
export class CreationOrder {
  readonly #clock: Clock
  #ms = 0
  #count = 0

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** `<milliseconds, 15 digits>.<count, 6 digits>:<id>`. */
  member(id: string): string {
    const now = this.#clock.now()
    this.#count = now === this.#ms ? this.#count + 1 : 0
    this.#ms = now
    return `${String(now).padStart(15, '0')}.${String(this.#count).padStart(6, '0')}:${id}`
  }
}

/** What a member of such a set looks like. */
export const MEMBER_PATTERN = /^\d{15}\.\d{6}:[\w-]+$/

/** The id inside a member. */
export const idOf = (member: string): string => member.slice(member.indexOf(':') + 1)
