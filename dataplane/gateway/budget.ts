import type { Clock } from '../../shared/clock.ts'
import { RateLimit, RateLimits } from '../../shared/rate-limit.ts'
import type { TokenClaims } from '../../shared/tokens.ts'
import type { GatewayOptions } from './context.ts'

/** Points that a request costs its player, in addition to the message that carries it. */
export const COST = {
  /** Also a fresh token: a signature check and writes to the store. */
  hello: 100,
  /** Calls to the store. */
  join: 100,
  /** A list of rooms, or a search for one: up to a millisecond, or a call to the store. */
  query: 100,
} as const

/** Bytes of full states and missed updates for one point. */
const BYTES_PER_POINT = 4096

/** Points of states that a client pays at least if it requests one with `state.resync`: a working client hardly ever does. */
export const RESYNC_COST = 1000

/** A budget holds the points of so many seconds for requests, and of so many for states: a player may resume in many rooms. */
const BURST_SECONDS = 3
const STATES_BURST_SECONDS = 8

/** A player owes no more than the points of so many seconds, however large the states are that came: nothing of it waits for longer. */
const DEBT_SECONDS = 3

/** The sessions of one player together may send so many times as much as one session. */
const SESSIONS_AT_FULL_RATE = 4

/** Clients that may share a token without `sub`, such as guests or a load test: each hello costs the token this share. */
const CLIENTS_PER_TOKEN = 10

/** A client that floods is disconnected after so many seconds' worth of refused messages. */
const TOLERANCE_SECONDS = 10

/** Longest pause of a socket whose player has nothing left. A client counts as silent while its socket is not read. */
const LONGEST_PAUSE_MS = 1000

/**
 * Messages that a session may send at once after a resume at another node, which does not know what is left: handling them costs about as much as the
 * handshake, so that going from node to node gains nothing.
 */
const RATE_LEFT_WHILE_CONNECTED = 12

/** What a session has left, for the node that has it next. Records call the tolerance `patience`. */
export interface RateLevel {
  readonly rate: number
  readonly patience: number
  /** Time of the values, in milliseconds since 1970. */
  readonly at: number
}

/** Returns the level of a connected session: its client may be using its rate, so another node counts on almost nothing. */
export const whileConnected = (level: RateLevel): RateLevel => ({
  ...level,
  rate: Math.min(level.rate, RATE_LEFT_WHILE_CONNECTED),
})

/** Returns the points that so many bytes of a full state cost. */
export const stateCost = (bytes: number): number => bytes / BYTES_PER_POINT

/**
 * The budgets of all players of a node. Each player has two token buckets, one for requests and one for the bytes of states. All sessions of the player
 * pay from them: a new session, a resume or another room is no way around it. If the token names no player, each session has a budget.
 *
 * If nothing is left for requests, the sockets of the player are not read until there are points again. If nothing is left for states, only states
 * wait. They are a bucket apart since nobody knows how large a state is before it is there: in one bucket, a player in a large room could not play.
 */
export class PlayerBudgets {
  readonly #clock: Clock
  readonly #requests: RateLimits
  readonly #states: RateLimits
  readonly #messagesPerSecond: number
  readonly #messageBurst: number
  /** Points that a message costs. */
  readonly #message: number

  constructor(
    clock: Clock,
    { limits, playerPointsPerSecond: perSecond }: Pick<GatewayOptions, 'limits' | 'playerPointsPerSecond'>,
  ) {
    this.#clock = clock
    const debt = perSecond * DEBT_SECONDS
    this.#requests = new RateLimits(clock, { perSecond, burst: perSecond * BURST_SECONDS, debt })
    this.#states = new RateLimits(clock, { perSecond, burst: perSecond * STATES_BURST_SECONDS, debt })
    this.#messagesPerSecond = limits.messages_per_second
    this.#messageBurst = limits.message_burst
    this.#message = perSecond / (SESSIONS_AT_FULL_RATE * limits.messages_per_second)
  }

  /** True: nothing is left to pay a hello with. Asked before the signature is checked. */
  refusesHello(claims: TokenClaims, principal: string): boolean {
    return this.#requests.of(this.#payer(claims, principal)).waitMs() > 0
  }

  /** Pays a hello with a good signature. False: nothing is left. */
  payHello(claims: TokenClaims, principal: string): boolean {
    const cost = claims.sub === undefined ? COST.hello / CLIENTS_PER_TOKEN : COST.hello
    return spend(this.#requests.of(this.#payer(claims, principal)), cost) > 0
  }

  /** Returns the budget of a session. `level`: what it had left at another node; default all. */
  ofSession(claims: TokenClaims, sessionId: string, level?: RateLevel): SessionBudget {
    const payer = this.#payer(claims, sessionId)
    const seconds = level ? Math.max(0, this.#clock.now() - level.at) / 1000 : 0
    const bucket = (perSecond: number, burst: number, left = burst): RateLimit =>
      new RateLimit(this.#clock, { perSecond, burst }, left + seconds * perSecond)
    const perSecond = this.#messagesPerSecond
    return new SessionBudget(
      this.#clock,
      () => this.#requests.of(payer),
      () => this.#states.of(payer),
      this.#message,
      bucket(perSecond, this.#messageBurst, level?.rate),
      bucket(perSecond / TOLERANCE_SECONDS, perSecond * TOLERANCE_SECONDS, level?.patience),
    )
  }

  #payer({ project_id: projectId, sub }: TokenClaims, other: string): string {
    return sub === undefined ? `${projectId}/token/${other}` : `${projectId}/sub/${sub}`
  }
}

/** `over_rate`: nothing was paid, since the session sends faster than it may. `empty`: nothing was paid, since its player has nothing left. */
type Payment = 'paid' | 'over_rate' | 'empty'

/** What a session pays with: the budget of its player, of which it may use as much for messages as its `limits` in `welcome` say. */
export class SessionBudget {
  readonly #clock: Clock
  readonly #findPlayer: () => RateLimit
  readonly #states: () => RateLimit
  readonly #message: number
  readonly #messages: RateLimit
  readonly #tolerance: RateLimit
  /** The bucket of the player's requests. Kept as long as it is valid: finding it costs more than everything else here. */
  #player: RateLimit

  /** `payer` and `states` return the buckets of the player, for requests and states. `message`: points of a message. `messages`, `tolerance`: of the session. */
  constructor(
    clock: Clock,
    payer: () => RateLimit,
    states: () => RateLimit,
    message: number,
    messages: RateLimit,
    tolerance: RateLimit,
  ) {
    this.#clock = clock
    this.#findPlayer = payer
    this.#states = states
    this.#player = payer()
    this.#message = message
    this.#messages = messages
    this.#tolerance = tolerance
  }

  /** What is left of the session's rate. */
  get level(): RateLevel {
    return { rate: this.#messages.left, patience: this.#tolerance.left, at: this.#clock.now() }
  }

  /** Milliseconds until one more message can be paid, at most a second; 0: now. */
  get waitMs(): number {
    const player = this.#playerAt(this.#clock.monotonic())
    return Math.min(LONGEST_PAUSE_MS, Math.max(this.#messages.waitMs(), player.waitMs(this.#message)))
  }

  /** Pays `count` messages, and `points` for what they ask. */
  spend(points = 0, count = 1): Payment {
    const now = this.#clock.monotonic()
    const player = this.#playerAt(now)
    const cost = points + count * this.#message
    // Without the points of a message nothing passes, and `waitMs` waits for them. What costs more owes the others.
    if (!player.take(now, this.#message)) return 'empty'
    const passes = this.#messages.take(now, count)
    if (!passes) player.charge(-this.#message)
    else if (cost !== this.#message) player.charge(cost - this.#message)
    return passes ? 'paid' : 'over_rate'
  }

  /** Pays a state with `points`, which the player may owe then. Returns how many it paid; 0: nothing is left. */
  payState(points: number): number {
    return spend(this.#states(), points)
  }

  /** Pays one message, which its player may owe. False: the session sends faster than it may. */
  spendOwing(): boolean {
    if (!this.#messages.take()) return false
    this.#owe(this.#message)
    return true
  }

  /** Pays `points` for a state that has come; a negative number gives points back. */
  oweState(points: number): void {
    this.#states().charge(points)
  }

  /** Pays as `spend` for messages that are handled although nothing may be left. */
  charge(points: number, count: number): void {
    this.#messages.charge(count)
    this.#owe(points + count * this.#message)
  }

  /** Counts messages that were refused. False: there were so many that the connection has to end. */
  refuse(count = 1): boolean {
    this.#owe(count * this.#message)
    return this.#tolerance.take(this.#clock.monotonic(), count)
  }

  #owe(points: number): void {
    this.#playerAt(this.#clock.monotonic()).charge(points)
  }

  #playerAt(now: number): RateLimit {
    if (this.#player.isForgettable(now)) this.#player = this.#findPlayer()
    return this.#player
  }
}

/** Takes `points` if there is one, and owes the others. Returns how many it took; 0: there is none. */
function spend(budget: RateLimit, points: number): number {
  return budget.take() ? 1 + budget.charge(points - 1) : 0
}
