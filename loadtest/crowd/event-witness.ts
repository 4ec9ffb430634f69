/**
 * Looks whether every event of one room arrives, by the numbers they carry: from one to the next, one more each time. Where missed updates
 * are made up for (after a resume, when the room has moved, by a whole state) it begins anew with the next event.
 */
export class EventWitness {
  readonly #lost: (text: string, times: number) => void
  /** The number of the last event; undefined: the next one may have any. */
  #last: number | undefined

  /** `lost` is told each time, with how many. */
  constructor(lost: (text: string, times: number) => void) {
    this.#lost = lost
  }

  /** An event arrives, or everything up to it came before somebody looked. */
  came(number: number): void {
    this.shown(number - 1)
    this.#last = number
  }

  /** Everything up to event `number` has happened, and should be here. */
  shown(number: number): void {
    if (this.#last === undefined || number <= this.#last) return
    this.#lost(
      `event ${number} has happened, but event ${this.#last} was the last to arrive`,
      number - this.#last,
    )
    this.#last = number
  }

  /** What is missed from here on is made up for in another way. */
  disturbed(): void {
    this.#last = undefined
  }
}
