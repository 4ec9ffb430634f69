import type { Clock } from '../../shared/clock.ts'

/** So often it is looked at how long a turn of the event loop takes, at most: to look costs as much as a small message. */
const LOOK_MS = 20
/** From then on a turn counts as long. */
const LONG_MS = 10

/**
 * How long the event loop has been reading sockets. It looks at 1,024 of them at once, and looks again for as long as that many had
 * something, up to 48 times, before any timer comes due: of a few thousand clients who all send, that takes seconds, and the node loses its
 * lease. So in a turn that takes long no socket is to be read twice.
 */
export class Polling {
  readonly #clock: Clock
  readonly #defer: (callback: () => void) => void
  #turn = 0
  /** When the turn that is looked at, or was last, began to read. */
  #beganAt = Number.NEGATIVE_INFINITY
  #reading = false

  /** `defer`: runs a callback when this turn has read its sockets. */
  constructor(clock: Clock, defer: (callback: () => void) => void = setImmediate) {
    this.#clock = clock
    this.#defer = defer
  }

  /** A number of this turn's own, once it takes long. To be asked after each read of a socket. */
  get longTurn(): number | undefined {
    const now = this.#clock.monotonic()
    if (this.#reading) return now - this.#beganAt >= LONG_MS ? this.#turn : undefined
    if (now - this.#beganAt < LOOK_MS) return undefined
    this.#turn++
    this.#beganAt = now
    this.#reading = true
    this.#defer(() => {
      this.#reading = false
    })
    return undefined
  }
}
