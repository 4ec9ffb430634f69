import type { Clock } from '../../shared/clock.ts'

/** When the service closed a session, milliseconds since 1970. */
export interface Closing {
  /** When the client saw it. */
  readonly seen_at: number
  /** Until then it was open for certain: what is between the two may be the generator's own delay. */
  readonly open_at: number
}

const EVERY_MS = 10

/**
 * Knows when the thread it is made in has last looked at its sockets. A thread that is busy, or that the machine does not let run, finds
 * late what came in time: what it sees came after it had looked the last time, but it cannot tell by how much.
 */
export class Lookout {
  readonly #clock: Clock
  #looked_at: number
  #cancel = () => {}
  #over = false

  constructor(clock: Clock) {
    this.#clock = clock
    this.#looked_at = clock.now()
    this.#look()
  }

  /** Milliseconds since 1970: all that had arrived by then has been taken notice of. */
  get looked_at(): number {
    return this.#looked_at
  }

  close(): void {
    this.#over = true
    this.#cancel()
  }

  /** The event loop asks for what has arrived between its timers and its immediates, and hands all of it out before the latter. */
  #look(): void {
    const began_at = this.#clock.now()
    setImmediate(() => {
      this.#looked_at = began_at
      if (!this.#over) this.#cancel = this.#clock.schedule(EVERY_MS, () => this.#look())
    })
  }
}
