import type { Clock } from '../shared/clock.ts'

/** So many round trips are compared; the shortest tells the server's time best. */
const SAMPLES = 8
/** The weight of a new round trip in the smoothed latency. */
const WEIGHT = 0.2

/**
 * The server's time and the way to it, from round trips. The server's stamp is taken to be from the middle of the trip (D. Mills, RFC
 * 5905, section 8); the shortest of the last few trips bounds the error best. Kept against the monotonic clock, so that a jump of the
 * machine's own time does no harm.
 */
export class ServerClock {
  readonly #clock: Clock
  #samples: { readonly rtt: number; readonly offset: number }[] = []
  #latency: number | undefined
  #offset: number

  constructor(clock: Clock) {
    this.#clock = clock
    this.#offset = clock.now() - clock.monotonic()
  }

  /**
   * A connection begins, perhaps to another machine or after a sleep: what was measured before says nothing. `hello` was sent at
   * `sentAt` (monotonic milliseconds), `server_time` (RFC 3339) is that of the answer.
   */
  welcome(sentAt: number, serverTime: string): void {
    this.#samples = []
    this.#latency = undefined
    this.#measure(sentAt, serverTime)
  }

  /** A ping sent at `sentAt` was answered. */
  pong(sentAt: number, serverTime: string): void {
    const rtt = this.#measure(sentAt, serverTime)
    this.#latency = this.#latency === undefined ? rtt : this.#latency + WEIGHT * (rtt - this.#latency)
  }

  #measure(sentAt: number, serverTime: string): number {
    const rtt = Math.max(0, this.#clock.monotonic() - sentAt)
    this.#samples.push({ rtt, offset: Date.parse(serverTime) - sentAt - rtt / 2 })
    if (this.#samples.length > SAMPLES) this.#samples.shift()
    this.#offset = this.#samples.reduce((best, sample) => (sample.rtt < best.rtt ? sample : best)).offset
    return rtt
  }

  /** The smoothed round trip in milliseconds; before the first pong that of the handshake, and 0 before that. */
  get latency(): number {
    return this.#latency ?? this.#samples[0]?.rtt ?? 0
  }

  /** The server's time now, milliseconds since 1970; the machine's own before the first round trip. */
  now(): number {
    return this.#clock.monotonic() + this.#offset
  }
}
