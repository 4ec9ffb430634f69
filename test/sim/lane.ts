import type { Clock } from '../../shared/clock.ts'
import type { Random } from '../../shared/random.ts'

/** The least that anything takes on its way, and how much more it may take, in milliseconds. */
const LEAST_MS = 0.05
const MORE_MS = 0.4

/** What a network does to all that is on its way. */
export interface Conditions {
  /** Milliseconds that everything takes longer. */
  delayMs: number
  /** Nothing arrives while this is true. */
  held: boolean
}

/** One direction of a connection: what is sent arrives later, in order, unless the connection is cut before. */
export class Lane {
  readonly #clock: Clock
  readonly #random: Random
  readonly #conditions: Conditions
  readonly #sent: { readonly at: number; readonly arrive: () => void }[] = []
  #arming = false
  #lastAt = 0

  constructor(clock: Clock, random: Random, conditions: Conditions = { delayMs: 0, held: false }) {
    this.#clock = clock
    this.#random = random
    this.#conditions = conditions
  }

  send(arrive: () => void): void {
    const takesMs = LEAST_MS + MORE_MS * this.#random.float() + this.#conditions.delayMs
    this.#lastAt = Math.max(this.#lastAt, this.#clock.monotonic() + takesMs)
    this.#sent.push({ at: this.#lastAt, arrive })
    this.#arm()
  }

  /** What is on its way never arrives. */
  cut(): void {
    this.#sent.length = 0
  }

  /** To be called when the conditions have changed. */
  release(): void {
    this.#arm()
  }

  #arm(): void {
    const [first] = this.#sent
    if (!first || this.#arming || this.#conditions.held) return
    this.#arming = true
    this.#clock.schedule(first.at - this.#clock.monotonic(), () => {
      this.#arming = false
      while (!this.#conditions.held && this.#sent[0] && this.#sent[0].at <= this.#clock.monotonic())
        this.#sent.shift()!.arrive()
      this.#arm()
    })
  }
}
