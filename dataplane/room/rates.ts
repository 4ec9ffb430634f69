import type { Clock } from '../../shared/clock.ts'
import { setNewest } from '../../shared/newest.ts'
import { type Rate, RateLimit } from '../../shared/rate-limit.ts'

/** Remaining rate of each message type. */
type Buckets = Map<string, RateLimit>

/** Number of departed players whose remaining rates are remembered. */
const DEPARTED_KEPT = 256

/**
 * Remaining rates of the members' messages, by player, or by session if the token names no player (`principal`). All memberships of a player
 * share them, also with those of an earlier stay.
 */
export class Rates {
  readonly #present = new Map<string, { readonly buckets: Buckets; memberships: number }>()
  /** Remaining rates of players that have left, the latest last. A player that joins again continues with them. */
  readonly #departed = new Map<string, Buckets>()

  /** A membership of the player was added. */
  join(principal: string): void {
    const shared = this.#present.get(principal) ?? {
      buckets: this.#departed.get(principal) ?? new Map(),
      memberships: 0,
    }
    this.#departed.delete(principal)
    this.#present.set(principal, shared)
    shared.memberships += 1
  }

  /** A membership of the player was removed. */
  leave(principal: string): void {
    const shared = this.#present.get(principal)
    if (!shared || --shared.memberships > 0) return
    this.#present.delete(principal)
    if (shared.buckets.size === 0) return
    setNewest(this.#departed, principal, shared.buckets, DEPARTED_KEPT)
  }

  /** Returns true if a member of the player may send one more message of `type` now, and counts it. */
  take(principal: string, type: string, rate: Rate, clock: Clock): boolean {
    const { buckets } = this.#present.get(principal)!
    let bucket = buckets.get(type)
    if (!bucket) {
      bucket = new RateLimit(clock, rate)
      buckets.set(type, bucket)
    }
    return bucket.take()
  }

  /** The rates have changed: every bucket starts again. */
  forget(): void {
    for (const { buckets } of this.#present.values()) buckets.clear()
    this.#departed.clear()
  }
}
