import type { Arrival } from '../traffic.ts'

/** Something that waits for the thaw. */
export interface Waiting {
  readonly run: () => void
  /** The message it stands for, if it is one. */
  readonly arrival: Arrival | undefined
}

/** What a frozen room has to do when it may act again, in order. Bounded, since a store may be away for long while members play on. */
export class Backlog {
  readonly #most_messages: number
  #waiting: Waiting[] = []
  readonly #unheard = new Set<string>()

  /** `most_messages`: how many may wait; who comes, goes and comes back always waits, since there are only so many of them. */
  constructor(most_messages: number) {
    this.#most_messages = most_messages
  }

  /**
   * Adds something. `unheard`: a reliable message that has no place, so that its edge has to give it again. `refused`: one that is not
   * reliable, and is lost.
   */
  add(waiting: Waiting): 'added' | 'unheard' | 'refused' {
    const { arrival } = waiting
    const message = arrival?.message
    // Edges ask again every few seconds, for as long as it takes: the last time counts.
    if (message?.kind === 'attach' || message?.kind === 'join')
      this.#waiting = this.#waiting.filter(
        ({ arrival: earlier }) =>
          earlier?.message.kind !== message.kind || earlier.message.member_id !== message.member_id,
      )
    if (message?.kind !== 'message' || this.#waiting.length < this.#most_messages) {
      this.#waiting.push(waiting)
      return 'added'
    }
    if (message.ref === undefined) return 'refused'
    this.#unheard.add(arrival!.from)
    return 'unheard'
  }

  /** Takes everything that waits. */
  take(): readonly Waiting[] {
    const waiting = this.#waiting
    this.#waiting = []
    return waiting
  }

  /** Takes the edges whose reliable messages had no place. */
  takeUnheard(): readonly string[] {
    const unheard = [...this.#unheard]
    this.#unheard.clear()
    return unheard
  }
}
