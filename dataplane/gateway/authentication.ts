import { hash } from 'node:crypto'
import { timestamp } from '../../shared/clock.ts'
import type { CloseName } from '../../shared/protocol/error-codes.ts'
import { type Rate, RateLimit, RateLimits } from '../../shared/rate-limit.ts'
import {
  isSigned,
  readToken,
  requireClaims,
  type TokenClaims,
  TokenError,
  type TokenExpectation,
  type UnverifiedToken,
  type VerifyKey,
} from '../../shared/tokens.ts'
import type { GatewayContext } from './context.ts'
import { IssuerUnavailable, JwtIssuers, type UnverifiedJwt } from './jwt.ts'
import { KEY_REVOKED, type KeyCache, KeyStatusUnavailable } from './key-cache.ts'
import { principalOf } from './session.ts'

/** Why a client is not let in: the close code to say it with, and a sentence. */
export interface Rejection {
  readonly close: CloseName
  readonly reason: string
}

/** So many seconds' worth of tokens may come at once. */
const BURST_SECONDS = 3
/** Many clients may come with one token that names no player: a load test, or guests. */
const CLIENTS_PER_TOKEN = 10

/** Tokens that are refused for their time are counted, and one of each kind in 10 s is logged. */
const TIME_LOG_RATE: Rate = { perSecond: 0.1, burst: 1 }

/** How many tokens are remembered that were verified; the one that came least lately goes. */
const MAX_VERIFIED = 10_000

/**
 * Judges client tokens: signature, project, audience, time, whether the key still stands, and whether the player comes too often. What comes too
 * often is refused before its signature is checked.
 */
export class Authenticator {
  readonly #context: GatewayContext
  readonly #keys: KeyCache
  readonly #jwts: JwtIssuers
  readonly #playerRates: RateLimits
  readonly #tokenRates: RateLimits
  readonly #timeLogs: { readonly [fault in 'expired' | 'not_yet_valid']: RateLimit }
  /** The tokens whose signature was found good, by their SHA-256, with the key it is of. */
  readonly #verified = new Map<string, VerifyKey>()

  constructor(context: GatewayContext, keys: KeyCache) {
    this.#context = context
    this.#keys = keys
    const { hellosPerSecond, authJwks = [] } = context.options
    this.#jwts = new JwtIssuers(context, authJwks)
    const rates = (perSecond: number): RateLimits =>
      new RateLimits(context.clock, { perSecond, burst: perSecond * BURST_SECONDS })
    const timeLog = (): RateLimit => new RateLimit(context.clock, TIME_LOG_RATE)
    this.#timeLogs = { expired: timeLog(), not_yet_valid: timeLog() }
    this.#playerRates = rates(hellosPerSecond)
    this.#tokenRates = rates(hellosPerSecond * CLIENTS_PER_TOKEN)
  }

  /** The claims of a token that may be used for `projectId` now, or why it may not. */
  async check(projectId: string, token: string): Promise<TokenClaims | Rejection> {
    try {
      // All that costs nothing comes before control is asked about a key that may be made up.
      const jwt = this.#jwts.read(projectId, token)
      const unverified = jwt ?? readToken(token)
      const { claims } = unverified
      // The audience of a JWT is its issuer's.
      const expect = (): TokenExpectation => this.#expect(projectId, !jwt)
      requireClaims(claims, expect())
      if (!jwt && claims.key_id === undefined && this.#context.options.requireKeyId)
        return refuse('unauthenticated', 'this service takes only tokens issued under a key (key_id)')
      const rates = claims.sub === undefined ? this.#tokenRates : this.#playerRates
      const who = `${projectId}/${principalOf(claims)}`
      if (rates.of(who).waitMs > 0) return this.#tooMany()
      const key = await this.#keyOf(claims)
      if ('close' in key) return key
      await this.#requireSignature(token, unverified, key.verifyKey)
      // Control may have taken its time.
      requireClaims(claims, expect())
      const revoked = this.revoked(claims)
      if (revoked) return revoked
      // Only now: a token that was made up takes nothing from the player it names.
      return rates.take(who) ? claims : this.#tooMany()
    } catch (error) {
      if (error instanceof TokenError && (error.fault === 'expired' || error.fault === 'not_yet_valid'))
        this.#untimely(error.fault, error)
      if (error instanceof TokenError)
        return refuse(error.fault === 'expired' ? 'token_expired' : 'unauthenticated', error.message)
      if (error instanceof IssuerUnavailable) return tryAgain(UNCHECKED)
      throw error
    }
  }

  /** A token is refused for its time, which may be the fault of the clock here. */
  #untimely(fault: 'expired' | 'not_yet_valid', error: TokenError): void {
    const { clock, log, metrics } = this.#context
    metrics.tokensUntimely.inc({ fault })
    if (this.#timeLogs[fault].take())
      log.warn({ fault, now: timestamp(clock.now()), reason: error.message }, 'token refused for its time')
  }

  /** Undefined when the key of a session still stands, or why the session may not be resumed. */
  async checkKey(claims: TokenClaims): Promise<Rejection | undefined> {
    const key = await this.#keyOf(claims)
    return 'close' in key ? key : this.revoked(claims)
  }

  /** Why no client may come in under the key of these claims, if that is known at this very moment. */
  revoked(claims: TokenClaims): Rejection | undefined {
    const reason = this.#keys.revocation(claims)
    return reason === undefined ? undefined : refuse('revoked', reason)
  }

  /**
   * Rejects with a `TokenError` (bad signature) unless `token`, which reads as `unverified`, carries the signature of its key: `ours`, or
   * of a JWT its issuer's. Who comes again with a token costs no verification. What is remembered says nothing about whether the token is
   * still good: its claims, and whether its key stands, are looked at each time it comes.
   */
  async #requireSignature(
    token: string,
    unverified: UnverifiedToken | UnverifiedJwt,
    ours: VerifyKey,
  ): Promise<void> {
    const { tokenChecks } = this.#context.metrics
    const key = 'key' in unverified ? await unverified.key() : ours
    const digest = hash('sha256', token, 'base64url')
    const known = this.#verified.get(digest)?.equals(key) === true
    const isGood = async () => ('key' in unverified ? unverified.isSigned(key) : isSigned(unverified, key))
    if (!known && !(await isGood())) {
      tokenChecks.inc({ result: 'wrong' })
      throw new TokenError('bad_signature', 'The signature of the token is not the one of its key.')
    }
    tokenChecks.inc({ result: known ? 'remembered' : 'verified' })
    this.#verified.delete(digest)
    this.#verified.set(digest, key)
    if (this.#verified.size <= MAX_VERIFIED) return
    for (const oldest of this.#verified.keys()) {
      this.#verified.delete(oldest)
      break
    }
  }

  #tooMany(): Rejection {
    this.#context.metrics.rateLimited.inc({ by: 'hello' })
    return tryAgain('the player comes too often')
  }

  #expect(projectId: string, ours: boolean): TokenExpectation {
    const { clock, options } = this.#context
    const audience = ours ? options.tokenAudience : undefined
    return { project_id: projectId, now: clock.now(), ...(audience === undefined ? {} : { audience }) }
  }

  /** Of a JWT, too: that its project is there comes with the project's built-in pair. */
  async #keyOf({
    project_id: projectId,
    key_id: keyId,
  }: TokenClaims): Promise<{ readonly verifyKey: VerifyKey } | Rejection> {
    try {
      const state = await this.#keys.state({ projectId, keyId })
      if (state.kind === 'usable') return state
      if (state.kind === 'revoked') return refuse('revoked', KEY_REVOKED)
      return refuse('unauthenticated', 'the project or key of the token does not exist')
    } catch (error) {
      if (error instanceof KeyStatusUnavailable) return tryAgain(UNCHECKED)
      throw error
    }
  }
}

const UNCHECKED = 'the token cannot be checked at the moment'

const refuse = (close: CloseName, reason: string): Rejection => ({ close, reason })

/** Something here, or the moment, is in the way. */
export const tryAgain = (why: string): Rejection => refuse('overloaded', `${why}: try again`)
