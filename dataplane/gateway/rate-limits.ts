import type { Clock } from '../../shared/clock.ts'
import type { Limits } from '../../shared/protocol/messages.ts'
import { type Rate, RateLimit, RateLimits } from '../../shared/rate-limit.ts'
import type { TokenClaims } from '../../shared/tokens.ts'
import type { Subscription } from './subscription.ts'

/** How many seconds' worth of messages beyond the limit end the connection. */
const TOLERANCE_SECONDS = 10

/** How many messages too many are refused before the connection ends, where so many a second are allowed. */
const toleranceAt = (perSecond: number): Rate => ({
  perSecond: perSecond / TOLERANCE_SECONDS,
  burst: perSecond * TOLERANCE_SECONDS,
})

/** Whether one more may pass; `tooMany`: this has gone on for so long that the connection should end. */
export type RateVerdict = 'pass' | 'reject' | 'too_many'

/** What a session has left of its rate and of its tolerance (`patience`, as records have it): for whichever node has the session next. */
export interface RateLevel {
  readonly rate: number
  readonly patience: number
  /** When that was so: milliseconds since 1970. */
  readonly at: number
}

/**
 * How many messages a session may send at once after a resume at another node, which does not know what is left: handling them costs
 * about as much as the handshake, so that nothing is won by going from node to node.
 */
const RATE_LEFT_WHILE_CONNECTED = 12

/** The level of a session that is connected: what is left of its rate its client may be using, and almost nothing is there for another node. */
export const whileConnected = (level: RateLevel): RateLevel => ({
  ...level,
  rate: Math.min(level.rate, RATE_LEFT_WHILE_CONNECTED),
})

/** How many times as much as one session all those of one player may send at a node. */
const SESSIONS_AT_FULL_RATE = 4

/** What all sessions of each player may send at a node together, and how long more is tolerated: a new session is no way around either. */
export class PlayerRateLimiters {
  readonly rates: RateLimits
  readonly tolerance: RateLimits
  readonly #clock: Clock
  readonly #limits: Limits

  constructor(clock: Clock, limits: Limits) {
    const { messages_per_second: messagesPerSecond, message_burst: messageBurst } = limits
    this.#clock = clock
    this.#limits = limits
    const perSecond = SESSIONS_AT_FULL_RATE * messagesPerSecond
    this.rates = new RateLimits(clock, { perSecond, burst: SESSIONS_AT_FULL_RATE * messageBurst })
    this.tolerance = new RateLimits(clock, toleranceAt(perSecond))
  }

  /** Of a session with these claims. `level`: where another node left off. */
  limiterOf({ project_id: projectId, sub }: TokenClaims, level?: RateLevel): MessageRateLimiter {
    const shared = sub === undefined ? undefined : { player: `${projectId}/${sub}`, of: this }
    return new MessageRateLimiter(this.#clock, this.#limits, { level, shared })
  }
}

/** What a session has with the other sessions of its player. */
interface Shared {
  readonly player: string
  readonly of: PlayerRateLimiters
}

/** How fast one client may send, and for how long more is tolerated. */
export class MessageRateLimiter {
  readonly #clock: Clock
  readonly #rate: RateLimit
  readonly #tolerance: RateLimit
  readonly #shared: Shared | undefined
  /** Of all sessions of the player, kept for as long as it may be: to look it up costs more than all else here. */
  #sharedRate: RateLimit | undefined

  /** `level`: where another node left off. `shared`: what it has with the other sessions of its player; default nothing. */
  constructor(
    clock: Clock,
    { messages_per_second: messagesPerSecond, message_burst: messageBurst }: Limits,
    { level, shared }: { level?: RateLevel | undefined; shared?: Shared | undefined } = {},
  ) {
    const limit = (rate: Rate, left = rate.burst): RateLimit => {
      const seconds = level ? Math.max(0, clock.now() - level.at) / 1000 : 0
      return new RateLimit(clock, rate, left + seconds * rate.perSecond)
    }
    this.#clock = clock
    this.#rate = limit({ perSecond: messagesPerSecond, burst: messageBurst }, level?.rate)
    this.#tolerance = limit(toleranceAt(messagesPerSecond), level?.patience)
    this.#shared = shared
  }

  /** What is left. */
  get level(): RateLevel {
    return { rate: this.#rate.left, patience: this.#tolerance.left, at: this.#clock.now() }
  }

  /** Milliseconds until one more may pass; 0: now. */
  get waitMs(): number {
    return Math.max(this.#rate.waitMs, this.#rateOfPlayer(this.#clock.monotonic())?.waitMs ?? 0)
  }

  /** Counts one more message, or ping or pong of the websocket; `count`: with those that were dropped before it. */
  admit(count = 1): RateVerdict {
    if (this.take(count)) return 'pass'
    const now = this.#clock.monotonic()
    const tolerated = this.#shared?.of.tolerance.of(this.#shared.player)
    return this.#tolerance.take(now, count) && tolerated?.take(now, count) !== false ? 'reject' : 'too_many'
  }

  /** Counts one more message if the rate allows it; false: it does not. A message that can wait costs no tolerance. */
  take(count = 1): boolean {
    const now = this.#clock.monotonic()
    return this.#rate.take(now, count) && this.#rateOfPlayer(now)?.take(now, count) !== false
  }

  /** Counts one message that is handled whatever the rate is. */
  charge(): void {
    this.#rate.charge(1)
    this.#rateOfPlayer(this.#clock.monotonic())?.charge(1)
  }

  #rateOfPlayer(now: number): RateLimit | undefined {
    if (this.#shared && (!this.#sharedRate || this.#sharedRate.isForgettable(now)))
      this.#sharedRate = this.#shared.of.rates.of(this.#shared.player)
    return this.#sharedRate
  }
}

/** So many seconds' worth of whole states may come at once. */
const STATE_BURST_SECONDS = 8

/** What a state counts as: `charged` when it was asked for, and `least` whatever it turns out to be. */
interface Charge {
  readonly charged: number
  readonly least: number
}

/**
 * How many bytes of whole states and missed updates each player may have from this node: by joins, resumes and resyncs, of all rooms and
 * sessions together. Where the token names no player, each session. What is beyond that is asked for later, in its order: a state may be larger than the
 * whole budget, and no one is refused one for that.
 */
export class StateRateLimiter {
  readonly #clock: Clock
  readonly #perSecond: number
  readonly #budgets: RateLimits
  readonly #onTurn: (subscription: Subscription) => void
  /** Asked for, and not answered. */
  readonly #asked = new Map<Subscription, Charge>()
  /** By player, the oldest first. */
  readonly #waiting = new Map<string, Map<Subscription, Charge>>()

  /** `onTurn`: a subscription that had to wait may ask now. */
  constructor(clock: Clock, bytesPerSecond: number, onTurn: (subscription: Subscription) => void) {
    this.#clock = clock
    this.#perSecond = bytesPerSecond
    this.#budgets = new RateLimits(clock, {
      perSecond: bytesPerSecond,
      burst: bytesPerSecond * STATE_BURST_SECONDS,
    })
    this.#onTurn = onTurn
  }

  /**
   * A subscription is about to ask for a whole state of about so many bytes. False: it has to wait for `onTurn`. A client that asks of its own accord
   * (`askedFor`), which a sound one hardly ever does, has one second's worth used up even by a small state.
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

  /** A subscription was answered with so many bytes of a state or of missed updates, or with none (0). */
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

/** Wrong codes of rooms in a minute of the clock, at a node: of one player, from one address, and in one project. */
const WRONG_CODES = { player: 10, address: 100, project: 1000 }

/** Who tries a code. `address` undefined: it is not known, and not counted. */
interface CodeAttempt {
  readonly projectId: string
  /** See `Session.player`. */
  readonly player: string
  readonly address: string | undefined
}

/**
 * How many wrong codes there were in this minute. At the bound of a project only players and addresses with a wrong code are refused, so that
 * guessing takes the codes of no one else away.
 */
export class WrongCodes {
  readonly #clock: Clock
  #counts = new Map<string, number>()
  #minute = 0

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Counts an attempt as wrong until the returned function says that it was right. Undefined: there are too many. */
  add({ projectId, player, address }: CodeAttempt): (() => void) | undefined {
    const minute = Math.floor(this.#clock.monotonic() / 60_000)
    if (minute !== this.#minute) this.#counts = new Map()
    this.#minute = minute
    const counts = this.#counts
    const of = (who: string): number => counts.get(who) ?? 0
    const [byPlayer, byAddress, byProject] = [
      `player ${player}`,
      `address ${address}`,
      `project ${projectId}`,
    ]
    const fromAddress = address === undefined ? 0 : of(byAddress)
    if (of(byPlayer) >= WRONG_CODES.player || fromAddress >= WRONG_CODES.address) return undefined
    if (of(byProject) >= WRONG_CODES.project && of(byPlayer) + fromAddress > 0) return undefined
    const count = (by: number): void => {
      for (const who of [byPlayer, byAddress, byProject]) counts.set(who, of(who) + by)
    }
    count(1)
    return () => count(-1)
  }
}
