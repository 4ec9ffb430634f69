import type { Clock } from '../../shared/clock.ts'
import type { Limits } from '../../shared/protocol/messages.ts'
import { type Rate, RateLimit, RateLimits } from '../../shared/rate-limit.ts'
import type { TokenClaims } from '../../shared/tokens.ts'

/** The budget of a player, and the rate of a session. The rates of message types are in `room/rates.ts`. */

/** Points that a request costs its player, in addition to the message that carries it. */
export const COST = {
  /** Also a fresh token: a signature check and writes to the store. */
  hello: 100,
  /** Calls to the store. */
  join: 100,
  /** A list of rooms, or a search for one: a call to the store, or a query, whose comparisons cost more. Bytes of lists: see `Lists`. */
  query: 100,
} as const

/** Comparisons of a query for one point: 100 points are about a millisecond. */
const COMPARISONS_PER_POINT = 250

/** Returns the price of the comparisons of a query (`QueryResult`), in points. */
export const comparisonsCost = (comparisons: number): number => comparisons / COMPARISONS_PER_POINT

/** Bytes of full states and missed updates for one point. */
const BYTES_PER_POINT = 4096

/** Minimum price of a state that a client requests with `state.resync`, in points. A correct client hardly ever requests one. */
export const RESYNC_COST = 1000

/** Capacity of a player's bucket for requests, in seconds. The bucket for states is larger, because a player may resume in many rooms. */
const BURST_SECONDS = 3
const STATES_BURST_SECONDS = 8

/** Maximum debt of a player, in seconds, however large the states were. It bounds how long a player waits. */
const DEBT_SECONDS = 3

/** Number of sessions of one player that can send at their full rate at the same time. */
const SESSIONS_AT_FULL_RATE = 4

/** Number of clients that may share a token without `sub` and an address, such as guests or a load test. A hello costs them this fraction. */
const CLIENTS_PER_TOKEN = 10

/** A client that floods is disconnected after this many seconds' worth of refused messages. */
const TOLERANCE_SECONDS = 10

/** Longest pause of a socket whose player has no points. A client counts as silent while its socket is not read. */
const LONGEST_PAUSE_MS = 1000

/**
 * Messages that a session may send in one burst after a resume at another node, which does not know the remaining rate. They cost about as much
 * as the handshake itself, so a client gains nothing when it changes nodes.
 */
const RATE_LEFT_WHILE_CONNECTED = 12

/** Remaining rate of a session, for the node at which it resumes. `patience` is the remaining tolerance. */
export interface RateLevel {
  readonly rate: number
  readonly patience: number
  /** Time of the values, in milliseconds since 1970. */
  readonly at: number
}

/** Returns the level that another node may assume for a connected session: almost nothing, because its client may be using the rate. */
export const whileConnected = (level: RateLevel): RateLevel => ({
  ...level,
  rate: Math.min(level.rate, RATE_LEFT_WHILE_CONNECTED),
})

/** Returns the price of this many bytes of a full state, in points. */
export const stateCost = (bytes: number): number => bytes / BYTES_PER_POINT

/** Options of `PlayerBudgets`. */
interface BudgetOptions {
  /** Limits of each session. */
  readonly limits: Limits
  /** Points of each player. */
  readonly playerPointsPerSecond: number
}

/**
 * The budgets of all players of a node. Each player has two token buckets: for requests, and for the bytes of states. All sessions of the player
 * pay from them, so a new session, a resume or another room does not bypass them. If the token names no player, each session has a budget.
 *
 * If the bucket for requests is empty, the player's sockets are not read until it has points again. If the bucket for states is empty, only
 * states wait. The buckets are separate because the size of a state is unknown until it arrives: with one bucket, a player in a large room
 * could not play.
 */
export class PlayerBudgets {
  readonly #shared: SharedBudgets
  readonly #messages: Rate
  readonly #tolerance: Rate

  constructor(clock: Clock, { limits, playerPointsPerSecond: perSecond }: BudgetOptions) {
    const debt = perSecond * DEBT_SECONDS
    const messages = limits.messages_per_second
    this.#shared = {
      clock,
      requests: new RateLimits(clock, { perSecond, burst: perSecond * BURST_SECONDS, debt }),
      states: new RateLimits(clock, { perSecond, burst: perSecond * STATES_BURST_SECONDS, debt }),
      message: perSecond / (SESSIONS_AT_FULL_RATE * messages),
    }
    this.#messages = { perSecond: messages, burst: limits.message_burst }
    this.#tolerance = { perSecond: messages / TOLERANCE_SECONDS, burst: messages * TOLERANCE_SECONDS }
  }

  /** Returns true if a hello cannot be paid. Called before the signature is checked. `clients`: see `clientsOf`. */
  refusesHello(claims: TokenClaims, clients: string): boolean {
    return this.#shared.requests.of(this.#payer(claims, clients)).waitMs() > 0
  }

  /** Pays a hello with a valid signature. Returns false if the bucket is empty. */
  payHello(claims: TokenClaims, clients: string): boolean {
    const cost = claims.sub === undefined ? COST.hello / CLIENTS_PER_TOKEN : COST.hello
    return spend(this.#shared.requests.of(this.#payer(claims, clients)), cost) > 0
  }

  /** Returns the budget of a session. `level`: its remaining rate at another node. Default: the full rate. */
  ofSession(claims: TokenClaims, sessionId: string, level?: RateLevel): SessionBudget {
    const { clock } = this.#shared
    const seconds = level ? Math.max(0, clock.now() - level.at) / 1000 : 0
    const bucket = (rate: Rate, left = rate.burst): RateLimit =>
      new RateLimit(clock, rate, left + seconds * rate.perSecond)
    return new SessionBudget(
      this.#shared,
      this.#payer(claims, sessionId),
      bucket(this.#messages, level?.rate),
      bucket(this.#tolerance, level?.patience),
    )
  }

  #payer({ project_id: projectId, sub }: TokenClaims, other: string): string {
    return sub === undefined ? `${projectId}/token/${other}` : `${projectId}/sub/${sub}`
  }
}

/** Dependencies of the budgets of all sessions of a node. */
interface SharedBudgets {
  readonly clock: Clock
  /** Buckets of the players. */
  readonly requests: RateLimits
  readonly states: RateLimits
  /** Points that a message costs. */
  readonly message: number
}

/** `over_rate`: not paid, because the session exceeds its rate. `empty`: not paid, because the player has no points. */
type Payment = 'paid' | 'over_rate' | 'empty'

/** Budget of a session: it pays from the player's buckets. For messages it uses at most the rate in `limits` of `welcome`. */
export class SessionBudget {
  readonly #shared: SharedBudgets
  readonly #payer: string
  readonly #messages: RateLimit
  readonly #tolerance: RateLimit
  /** The player's bucket for requests. Cached while it is valid, because the lookup costs more than everything else here. */
  #player: RateLimit

  /** `payer`: name of the player's buckets. `messages`, `tolerance`: buckets of the session. */
  constructor(shared: SharedBudgets, payer: string, messages: RateLimit, tolerance: RateLimit) {
    this.#shared = shared
    this.#payer = payer
    this.#player = shared.requests.of(payer)
    this.#messages = messages
    this.#tolerance = tolerance
  }

  /** Remaining rate and tolerance. */
  get level(): RateLevel {
    return { rate: this.#messages.left, patience: this.#tolerance.left, at: this.#shared.clock.now() }
  }

  /** Time until one more message can be paid, at most 1,000 ms; 0: now. */
  get waitMs(): number {
    const player = this.#playerAt(this.#shared.clock.monotonic())
    return Math.min(LONGEST_PAUSE_MS, Math.max(this.#messages.waitMs(), player.waitMs(this.#shared.message)))
  }

  /** Pays for `count` messages, plus `points` for their requests. */
  spend(points = 0, count = 1): Payment {
    const now = this.#shared.clock.monotonic()
    const player = this.#playerAt(now)
    const cost = points + count * this.#shared.message
    // A message passes only if its own points are there, and `waitMs` waits for them. The remaining points may become a debt.
    if (!player.take(now, this.#shared.message)) return 'empty'
    const passes = this.#messages.take(now, count)
    if (!passes) player.charge(-this.#shared.message)
    else if (cost !== this.#shared.message) player.charge(cost - this.#shared.message)
    return passes ? 'paid' : 'over_rate'
  }

  /** Pays `points` for a state; part of them may become a debt. Returns how many were paid; 0: the bucket is empty. */
  payState(points: number): number {
    return spend(this.#shared.states.of(this.#payer), points)
  }

  /** Pays for one message, with a debt if needed. Returns false if the session exceeds its rate. */
  spendOwing(): boolean {
    if (!this.#messages.take()) return false
    this.owe(this.#shared.message)
    return true
  }

  /** Pays `points` for a state that has arrived. A negative number returns points. */
  oweState(points: number): void {
    this.#shared.states.of(this.#payer).charge(points)
  }

  /** Pays as `spend` does, with a debt if needed, for messages that must be handled. */
  charge(points: number, count: number): void {
    this.#messages.charge(count)
    this.owe(points + count * this.#shared.message)
  }

  /** True if the player has points for requests. */
  get hasPoints(): boolean {
    return this.#playerAt(this.#shared.clock.monotonic()).waitMs() === 0
  }

  /** Points for requests that the player owes. */
  get debt(): number {
    return Math.max(0, -this.#playerAt(this.#shared.clock.monotonic()).left)
  }

  /** Pays `points` for a request that was answered, with a debt if needed. */
  owe(points: number): void {
    this.#playerAt(this.#shared.clock.monotonic()).charge(points)
  }

  /** Counts refused messages. Returns false if the tolerance is used up, so that the connection has to end. */
  refuse(count = 1): boolean {
    this.owe(count * this.#shared.message)
    return this.#tolerance.take(this.#shared.clock.monotonic(), count)
  }

  #playerAt(now: number): RateLimit {
    if (this.#player.isForgettable(now)) this.#player = this.#shared.requests.of(this.#payer)
    return this.#player
  }
}

/** Takes `points` if at least one is there; the others become a debt. Returns how many were taken; 0: none. */
function spend(budget: RateLimit, points: number): number {
  return budget.take() ? 1 + budget.charge(points - 1) : 0
}
