import type { Clock } from '../../shared/clock.ts'
import { RateLimits } from '../../shared/rate-limit.ts'
import type { Subscription } from './subscription.ts'

/** So many seconds' worth of whole states may come at once. */
const BURST_SECONDS = 8

/** What a state counts as: `charged` when it was asked for, and `least` whatever it turns out to be. */
interface Charge {
  readonly charged: number
  readonly least: number
}

/**
 * How many bytes of whole states each player may have from this node: by joins, resumes and resyncs, of all rooms and sessions together.
 * Where the token names no player, each session. What is beyond that is asked for later, in its order: a state may be larger than the
 * whole budget, and no one is refused one for that.
 */
export class StatePace {
  readonly #clock: Clock
  readonly #perSecond: number
  readonly #budgets: RateLimits
  readonly #onTurn: (subscription: Subscription) => void
  /** Asked for, and not answered. */
  readonly #asked = new Map<Subscription, Charge>()
  /** By player, the oldest first. */
  readonly #waiting = new Map<string, Map<Subscription, Charge>>()

  /** `on_turn`: a subscription that had to wait may ask now. */
  constructor(clock: Clock, bytesPerSecond: number, onTurn: (subscription: Subscription) => void) {
    this.#clock = clock
    this.#perSecond = bytesPerSecond
    this.#budgets = new RateLimits(clock, {
      perSecond: bytesPerSecond,
      burst: bytesPerSecond * BURST_SECONDS,
    })
    this.#onTurn = onTurn
  }

  /**
   * A subscription is about to ask for a whole state of about so many bytes. False: it has to wait for `on_turn`. A client that asks of its own accord
   * (`asked_for`), which a sound one hardly ever does, has one second's worth used up even by a small state.
   */
  ask(subscription: Subscription, bytes: number, askedFor: boolean): boolean {
    if (this.#asked.has(subscription)) return true
    if (this.waits(subscription)) return false
    const least = askedFor ? this.#perSecond : 0
    const charge = { charged: Math.max(bytes, least), least }
    const { player } = subscription.session
    const queue = this.#waiting.get(player)
    if (!queue?.size && this.#budgets.of(player).left >= 1) {
      this.#charge(subscription, charge)
      return true
    }
    if (queue) queue.set(subscription, charge)
    else {
      this.#waiting.set(player, new Map([[subscription, charge]]))
      this.#wait(player)
    }
    return false
  }

  /** Whether a subscription has to wait before it asks. */
  waits(subscription: Subscription): boolean {
    return this.#waiting.get(subscription.session.player)?.has(subscription) ?? false
  }

  /** A subscription was answered with a state of so many bytes, or with none (0). */
  answered(subscription: Subscription, bytes: number): void {
    const { charged, least } = this.#asked.get(subscription) ?? { charged: 0, least: 0 }
    this.forget(subscription)
    const { player } = subscription.session
    this.#budgets.of(player).charge(Math.max(bytes, least) - charged)
    this.#next(player)
  }

  /** A subscription waits for nothing any more. What it has asked for stays charged: its owner has made it. */
  forget(subscription: Subscription): void {
    this.#asked.delete(subscription)
    this.#waiting.get(subscription.session.player)?.delete(subscription)
  }

  #charge(subscription: Subscription, charge: Charge): void {
    this.#budgets.of(subscription.session.player).charge(charge.charged)
    this.#asked.set(subscription, charge)
  }

  /** Lets those of a player ask whose turn it is. */
  #next(player: string): void {
    const queue = this.#waiting.get(player)
    for (const [subscription, charge] of queue ?? []) {
      if (this.#budgets.of(player).left < 1) return
      queue!.delete(subscription)
      this.#charge(subscription, charge)
      this.#onTurn(subscription)
    }
  }

  #wait(player: string): void {
    this.#clock.schedule(this.#budgets.of(player).waitMs, () => {
      this.#next(player)
      if (this.#waiting.get(player)!.size > 0) this.#wait(player)
      else this.#waiting.delete(player)
    })
  }
}
