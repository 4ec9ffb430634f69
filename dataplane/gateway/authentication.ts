import { hash } from 'node:crypto'
import type { CloseName } from '../../shared/protocol/close-codes.ts'
import { RateLimits } from '../../shared/rate-limit.ts'
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
import { type KeyCache, KeyStatusUnavailable } from './key-cache.ts'
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

/** How many tokens are remembered that were verified; the one that came least lately goes. */
const MAX_VERIFIED = 10_000

/**
 * Judges client tokens: signature, project, audience, time, whether the key still stands, and whether the player comes too often. What comes too
 * often is refused before its signature is checked.
 */
export class Authenticator {
  readonly #context: GatewayContext
  readonly #keys: KeyCache
  readonly #playerRates: RateLimits
  readonly #tokenRates: RateLimits
  /** The tokens whose signature was found good, by their SHA-256, with the key it is of. */
  readonly #verified = new Map<string, VerifyKey>()

  constructor(context: GatewayContext, keys: KeyCache) {
    this.#context = context
    this.#keys = keys
    const { hellosPerSecond } = context.options
    const rates = (perSecond: number): RateLimits =>
      new RateLimits(context.clock, { perSecond, burst: perSecond * BURST_SECONDS })
    this.#playerRates = rates(hellosPerSecond)
    this.#tokenRates = rates(hellosPerSecond * CLIENTS_PER_TOKEN)
  }

  /** The claims of a token that may be used for `projectId` now, or why it may not. */
  async check(projectId: string, token: string): Promise<TokenClaims | Rejection> {
    try {
      // All that costs nothing comes before control is asked about a key that may be made up.
      const unverified = readToken(token)
      const { claims } = unverified
      requireClaims(claims, this.#expect(projectId))
      const { key_id: keyId } = claims
      if (keyId === undefined && this.#context.options.requireKeyId)
        return refuse('unauthenticated', 'this service takes only tokens issued under a key (key_id)')
      const rates = claims.sub === undefined ? this.#tokenRates : this.#playerRates
      const who = `${projectId}/${principalOf(claims)}`
      if (rates.of(who).waitMs > 0) return this.#tooMany()
      const key = await this.#keyOf(projectId, keyId)
      if ('close' in key) return key
      this.#requireSignature(token, unverified, key.verifyKey)
      // Control may have taken its time.
      requireClaims(claims, this.#expect(projectId))
      // Only now: a token that was made up takes nothing from the player it names.
      return rates.take(who) ? claims : this.#tooMany()
    } catch (error) {
      if (error instanceof TokenError)
        return refuse(error.fault === 'expired' ? 'token_expired' : 'unauthenticated', error.message)
      throw error
    }
  }

  /** Undefined when the key of a session still stands, or why the session may not be resumed. */
  async checkKey(projectId: string, keyId: string | undefined): Promise<Rejection | undefined> {
    const key = await this.#keyOf(projectId, keyId)
    return 'close' in key ? key : undefined
  }

  /** Why no client may come in under a key, if that is known at this very moment. */
  revoked(projectId: string, keyId: string | undefined): Rejection | undefined {
    return this.#keys.isRevoked({ projectId, keyId }) ? refuse('key_revoked', REVOKED) : undefined
  }

  /**
   * Throws a `TokenError` (bad signature) unless `token`, which reads as `unverified`, carries the signature of `key`. Who comes again with a
   * token costs no verification. What is remembered says nothing about whether the token is still good: its claims, and whether its key
   * stands, are looked at each time it comes.
   */
  #requireSignature(token: string, unverified: UnverifiedToken, key: VerifyKey): void {
    const { tokenChecks } = this.#context.metrics
    const digest = hash('sha256', token, 'base64url')
    const known = this.#verified.get(digest)?.equals(key) === true
    if (!known && !isSigned(unverified, key)) {
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
    return refuse('overloaded', 'the player comes too often: try again')
  }

  #expect(projectId: string): TokenExpectation {
    const { clock, options } = this.#context
    const audience = options.tokenAudience
    return { project_id: projectId, now: clock.now(), ...(audience === undefined ? {} : { audience }) }
  }

  async #keyOf(
    projectId: string,
    keyId: string | undefined,
  ): Promise<{ readonly verifyKey: VerifyKey } | Rejection> {
    try {
      const state = await this.#keys.state({ projectId, keyId })
      if (state.kind === 'usable') return state
      if (state.kind === 'revoked') return refuse('key_revoked', REVOKED)
      return refuse('unauthenticated', 'the project or key of the token does not exist')
    } catch (error) {
      if (error instanceof KeyStatusUnavailable)
        return refuse('overloaded', 'the token cannot be checked at the moment: try again')
      throw error
    }
  }
}

const REVOKED = 'the key of the token was revoked'

const refuse = (close: CloseName, reason: string): Rejection => ({ close, reason })
