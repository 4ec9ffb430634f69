import type { Clock } from '../shared/clock.ts'

/** Number of compared round trips. The shortest gives the best estimate of the server's time. */
const SAMPLES = 8
/** Weight of a new round trip in the smoothed latency. */
const WEIGHT = 0.2

/**
 * Estimates the server's time and the latency from round trips. The server's stamp counts as the middle of the trip (D. Mills, RFC 5905,
 * section 8). The shortest of the latest trips has the smallest error. The offset refers to the monotonic clock, so a jump of the machine's
 * wall clock has no effect.
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
   * Starts a connection. Earlier measurements are discarded: it may be another machine, or the device may have slept. `sentAt` (monotonic
   * milliseconds) is the time of the `hello`, `server_time` (RFC 3339) that of the answer.
   */
  welcome(sentAt: number, serverTime: string): void {
    this.#samples = []
    this.#latency = undefined
    this.#measure(sentAt, serverTime)
  }

  /** Records the answer to a ping that was sent at `sentAt`. */
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

  /** Smoothed round trip in milliseconds. Before the first pong: that of the handshake. Before the handshake: 0. */
  get latency(): number {
    return this.#latency ?? this.#samples[0]?.rtt ?? 0
  }

  /** Returns the server's time in milliseconds since 1970; before the first round trip, the machine's time. */
  now(): number {
    return this.#clock.monotonic() + this.#offset
  }
}

/** The machine's clock. Unlike the server's, its timers keep a Node process alive until the client is closed. */
export const machineClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  schedule: (delayMs, callback) => {
    const timer = setTimeout(callback, delayMs)
    return () => clearTimeout(timer)
  },
}
