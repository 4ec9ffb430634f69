import type { Arrival } from './traffic.ts'

/** Everything but messages is one for each member, or is asked again: of that a room with many members has more. */
const OTHERS_PER_MESSAGE = 10

/**
 * What waits for one room that cannot handle it now, in order. Bounded, since a store may be away for long while members play on: what a
 * later one of the same member makes needless goes, and what has no place is the caller's to answer. `Run`: what else waits its turn.
 */
export class Backlog<Run extends () => void = never> {
  readonly #mostMessages: number
  readonly #waiting = new Map<string | number, Arrival | Run>()
  #messages = 0
  #number = 0

  /** `mostMessages`: how many messages of members may wait; of joins, attaches, resyncs and leaves together ten times as many. */
  constructor(mostMessages: number) {
    this.#mostMessages = mostMessages
  }

  /** False: it has no place. Who has gone always has one: that is at most one for each member, and no one would say it again. */
  add(arrival: Arrival): boolean {
    const { message, from } = arrival
    const { kind, member_id: memberId } = message
    switch (kind) {
      case 'message':
      case 'refuse':
        if (this.#messages >= this.#mostMessages) return false
        this.#messages++
        this.#waiting.set(this.#number++, arrival)
        return true
      // Edges ask again every few seconds, for as long as it takes: the last time counts.
      case 'attach':
      case 'resync':
      case 'renew':
      case 'end':
        return this.#replace(`${kind} ${memberId}`, arrival)
      case 'join':
        return this.#keep(`join ${memberId}`, arrival)
      case 'leave':
        if (message.ref !== undefined) return this.#keep(`leave ${message.ref} ${memberId}`, arrival)
        this.#waiting.set(`leave ${from} ${memberId}`, arrival)
        return true
      case 'detach': {
        const key = `detach ${from} ${memberId}`
        this.#waiting.delete(key)
        this.#waiting.set(key, arrival)
        return true
      }
    }
  }

  /** Something of this node's own, of which there is only so much. */
  defer(run: Run): void {
    this.#waiting.set(this.#number++, run)
  }

  /** All that waits, oldest first. */
  get waiting(): readonly (Arrival | Run)[] {
    return [...this.#waiting.values()]
  }

  get empty(): boolean {
    return this.#waiting.size === 0
  }

  /** Since when the oldest arrival that waits does; undefined: none does, or no one said when it came. */
  get since(): number | undefined {
    for (const waiting of this.#waiting.values()) if (typeof waiting !== 'function') return waiting.at
    return undefined
  }

  /** Takes the oldest of what waits. */
  shift(): Arrival | Run | undefined {
    for (const [key, waiting] of this.#waiting) {
      this.#waiting.delete(key)
      if (
        typeof waiting !== 'function' &&
        (waiting.message.kind === 'message' || waiting.message.kind === 'refuse')
      )
        this.#messages--
      return waiting
    }
    return undefined
  }

  /** Takes all that waits, oldest first. */
  take(): readonly (Arrival | Run)[] {
    const { waiting } = this
    this.#waiting.clear()
    this.#messages = 0
    return waiting
  }

  #replace(key: string, arrival: Arrival): boolean {
    if (!this.#waiting.delete(key) && this.#full) return false
    this.#waiting.set(key, arrival)
    return true
  }

  /** One that was said before keeps its place, and with it what came before and after. */
  #keep(key: string, arrival: Arrival): boolean {
    if (!this.#waiting.has(key) && this.#full) return false
    this.#waiting.set(key, arrival)
    return true
  }

  get #full(): boolean {
    return this.#waiting.size - this.#messages >= OTHERS_PER_MESSAGE * this.#mostMessages
  }
}
