import type { Clock } from '../../clock.ts'

interface Entry<V> {
  readonly value: V
  /** Monotonic milliseconds; Infinity for ever. */
  readonly expiresAt: number
}

/** How many entries a write looks at, so that what no one reads again goes away at a bounded cost and without a timer. */
const SWEEP = 8

/** A map whose entries end: an expired one is never returned, and writes sweep up what no one asks for. */
export class ExpiringMap<V> {
  readonly #clock: Clock
  readonly #entries = new Map<string, Entry<V>>()
  #hand = this.#entries.entries()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  get(key: string): V | undefined {
    const entry = this.#entries.get(key)
    if (!entry) return undefined
    if (entry.expiresAt > this.#clock.monotonic()) return entry.value
    this.#entries.delete(key)
    return undefined
  }

  /** What is left of the life of an entry, milliseconds; 0: there is none. */
  leftMs(key: string): number {
    return Math.max(0, (this.#entries.get(key)?.expiresAt ?? 0) - this.#clock.monotonic())
  }

  /** Every entry that has not expired. */
  *entries(): Iterable<readonly [string, V]> {
    const now = this.#clock.monotonic()
    for (const [key, entry] of this.#entries) if (entry.expiresAt > now) yield [key, entry.value]
  }

  /** Stores `value` for `ttlMs` from now; undefined: for ever. */
  set(key: string, value: V, ttlMs: number | undefined): void {
    const expiresAt = ttlMs === undefined ? Number.POSITIVE_INFINITY : this.#clock.monotonic() + ttlMs
    this.#entries.set(key, { value, expiresAt })
    this.#sweepSome()
  }

  delete(key: string): void {
    this.#entries.delete(key)
  }

  /** Entries held, expired ones that no sweep has met included. */
  get size(): number {
    return this.#entries.size
  }

  /** Drops every expired entry; gives how many are left. */
  sweep(): number {
    const now = this.#clock.monotonic()
    for (const [key, entry] of this.#entries) if (entry.expiresAt <= now) this.#entries.delete(key)
    return this.#entries.size
  }

  /** Walks on from where the last one stopped, and so meets every entry once in `size / SWEEP` writes. */
  #sweepSome(): void {
    const now = this.#clock.monotonic()
    for (let looked = 0; looked < SWEEP; looked++) {
      const next = this.#hand.next()
      if (next.done) {
        this.#hand = this.#entries.entries()
        return
      }
      const [key, entry] = next.value
      if (entry.expiresAt <= now) this.#entries.delete(key)
    }
  }
}
