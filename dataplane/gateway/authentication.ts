import { hash, KeyObject } from 'node:crypto'
import {
  compactVerify,
  createLocalJWKSet,
  createRemoteJWKSet,
  customFetch,
  decodeJwt,
  decodeProtectedHeader,
  errors,
} from 'jose'
import { timestamp } from '../../shared/clock.ts'
import type { JwtIssuer } from '../../shared/config/kinds.ts'
import { isWellFormed, type JsonObject } from '../../shared/json.ts'
import { setNewest } from '../../shared/newest.ts'
import { type Rate, RateLimit } from '../../shared/rate-limit.ts'
import {
  dataFault,
  ISSUED_AHEAD_MS,
  isSigned,
  MAX_SUB_LENGTH,
  MAX_TOKEN_LENGTH,
  MAX_TOKEN_LIFE_MS,
  readToken,
  requireClaims,
  subFault,
  type TokenClaims,
  TokenError,
  type TokenExpectation,
  type UnverifiedToken,
  type VerifyKey,
} from '../../shared/tokens.ts'
import type { ClientAddress } from './connection.ts'
import type { GatewayContext } from './context.ts'
import { KEY_REVOKED, type KeyCache, type KeyContext, KeyStatusUnavailable } from './key-cache.ts'
import { clientsOf } from './principal.ts'
import { type Rejection, reject, tryAgain } from './refusals.ts'

/** Tokens with an invalid time are counted, and at most one of each kind in 10 s is logged. */
const TIME_LOG_RATE: Rate = { perSecond: 0.1, burst: 1 }

/** Size of the cache of verified tokens. The least recently used one is evicted. */
const MAX_VERIFIED = 10_000

/** Checks client tokens: signature, project, audience, times, and the state of their key. */
export class Authenticator {
  readonly #context: GatewayContext
  readonly #keys: KeyCache
  readonly #jwts: JwtIssuers
  readonly #timeLogs: { readonly [fault in 'expired' | 'not_yet_valid']: RateLimit }
  /** Cache of tokens with a valid signature: key by the SHA-256 of the token. */
  readonly #verified = new Map<string, VerifyKey>()

  constructor(context: GatewayContext, keys: KeyCache) {
    this.#context = context
    this.#keys = keys
    this.#jwts = new JwtIssuers(context, context.options.authJwks ?? [])
    const timeLog = (): RateLimit => new RateLimit(context.clock, TIME_LOG_RATE)
    this.#timeLogs = { expired: timeLog(), not_yet_valid: timeLog() }
  }

  /**
   * Returns the claims of a token that is valid for `projectId` now, or the reason for its rejection. `hello`: connection of a hello, which the
   * player pays. A player without points is rejected before the signature is checked. Undefined: the message with the token is already paid.
   */
  async check(
    projectId: string,
    token: string,
    hello?: { readonly from: ClientAddress | undefined },
  ): Promise<TokenClaims | Rejection> {
    try {
      // All cheap checks come before the question to control: the key id may be invented.
      const jwt = this.#jwts.read(projectId, token)
      const unverified = jwt ?? readToken(token)
      const { claims } = unverified
      // A JWT must have its issuer's audience instead.
      const expect = (): TokenExpectation => this.#expect(projectId, !jwt)
      requireClaims(claims, expect())
      if (!jwt && claims.key_id === undefined && this.#context.options.requireKeyId)
        return reject('unauthenticated', 'this service accepts only tokens issued under a key (key_id)')
      const { budgets } = this.#context
      const payer = hello && clientsOf(claims, hello.from)
      if (payer !== undefined && budgets.refusesHello(claims, payer)) return this.#tooMany()
      const key = await this.#keyOf(claims)
      if ('close' in key) return key
      await this.#requireSignature(token, unverified, key.verifyKey)
      // Control may have taken long, so the token may have expired.
      requireClaims(claims, expect())
      const revoked = this.revoked(claims)
      if (revoked) return revoked
      // Paid last, so that a forged token takes no points from the player that it names.
      return payer === undefined || budgets.payHello(claims, payer) ? claims : this.#tooMany()
    } catch (error) {
      if (error instanceof TokenError && (error.fault === 'expired' || error.fault === 'not_yet_valid'))
        this.#untimely(error.fault, error)
      if (error instanceof TokenError)
        return reject(error.fault === 'expired' ? 'token_expired' : 'unauthenticated', error.message)
      if (error instanceof IssuerUnavailable) return tryAgain(UNCHECKED)
      throw error
    }
  }

  /** Counts and logs a token with an invalid time. The reason may be a wrong clock of this node. */
  #untimely(fault: 'expired' | 'not_yet_valid', error: TokenError): void {
    const { clock, log, metrics } = this.#context
    metrics.tokensUntimely.inc({ fault })
    if (this.#timeLogs[fault].take())
      log.warn({ fault, now: timestamp(clock.now()), reason: error.message }, 'token refused for its time')
  }

  /** Returns the reason why a session with these claims may not be resumed. Undefined: its key is valid. */
  async checkKey(claims: TokenClaims): Promise<Rejection | undefined> {
    const key = await this.#keyOf(claims)
    return 'close' in key ? key : this.revoked(claims)
  }

  /** Returns the rejection if the key of these claims is known to be revoked, without a question to control. */
  revoked(claims: TokenClaims): Rejection | undefined {
    const reason = this.#keys.revocation(claims)
    return reason === undefined ? undefined : reject('revoked', reason)
  }

  /**
   * Rejects with a `TokenError` (bad signature) unless `token` has a valid signature: of the key `ours`, or of its issuer's key if it is a JWT.
   * A cached token is not verified again. The cache covers the signature only: the claims, and the state of the key, are checked each time.
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
    setNewest(this.#verified, digest, key, MAX_VERIFIED)
  }

  #tooMany(): Rejection {
    this.#context.metrics.rateLimited.inc({ by: 'hello' })
    return tryAgain('the player connects too often')
  }

  #expect(projectId: string, ours: boolean): TokenExpectation {
    const { clock, options } = this.#context
    const audience = ours ? options.tokenAudience : undefined
    return { project_id: projectId, now: clock.now(), ...(audience === undefined ? {} : { audience }) }
  }

  /** Returns the state of a token's key. For a JWT it is that of the project's built-in pair, so that the project must exist. */
  async #keyOf({
    project_id: projectId,
    key_id: keyId,
  }: TokenClaims): Promise<{ readonly verifyKey: VerifyKey } | Rejection> {
    try {
      const state = await this.#keys.state({ projectId, keyId })
      if (state.kind === 'usable') return state
      if (state.kind === 'revoked') return reject('revoked', KEY_REVOKED)
      return reject('unauthenticated', 'the project or key of the token does not exist')
    } catch (error) {
      if (error instanceof KeyStatusUnavailable) return tryAgain(UNCHECKED)
      throw error
    }
  }
}

const UNCHECKED = 'the token cannot be checked at the moment'

/** Algorithms in which only the issuer has the signing key: not `none`, and no shared secret. */
const ALGORITHMS = ['RS256', 'ES256', 'EdDSA']
/** Claim with the optional fields `{ data, rooms }`, as in roomful's own tokens. */
const OWN_CLAIM = 'roomful'
const MAX_ROOMS = 64
/** Age at which an issuer's keys are fetched again, in the background. */
const REFRESH_MS = 600_000
/** Fetches of an issuer's keys. An unknown `kid` makes one necessary, and any client can invent one. */
const FETCH_RATE: Rate = { perSecond: 1 / 30, burst: 1 }
/** Minimum time between a failed fetch and the next one. */
const PAUSE_MS = 1000
const TIMEOUT_MS = 3000
/** Maximum size of a key set in bytes. */
const MAX_KEY_SET_BYTES = 1 << 20

/** The keys of an issuer are not available, so its tokens cannot be checked now. */
export class IssuerUnavailable extends Error {
  override readonly name = 'IssuerUnavailable'
}

/** A decoded JWT, without any verification. */
interface UnverifiedJwt {
  readonly claims: TokenClaims
  /** Returns the key that its header names. Rejects with a `TokenError`, or with `IssuerUnavailable`. */
  key(): Promise<VerifyKey>
  /** Resolves to true if the token has the signature of `key`. */
  isSigned(key: VerifyKey): Promise<boolean>
}

/** The issuers of `AUTH_JWKS` with their keys. */
export class JwtIssuers {
  readonly #context: KeyContext
  readonly #issuers: readonly { readonly expect: JwtIssuer; readonly keys: IssuerKeys }[]

  constructor(context: KeyContext, issuers: readonly JwtIssuer[], fetchKeys: typeof fetch = fetch) {
    this.#context = context
    this.#issuers = issuers.map((expect) => ({ expect, keys: new IssuerKeys(context, expect, fetchKeys) }))
  }

  /** Decodes a JWT of a project with issuers. Undefined: the project has none, or the token is roomful's own. Throws a `TokenError`. */
  read(projectId: string, token: string): UnverifiedJwt | undefined {
    const issuers = this.#issuers.filter(({ expect }) => expect.project === projectId)
    if (issuers.length === 0 || token.startsWith('v4.')) return undefined
    if (token.length > MAX_TOKEN_LENGTH)
      throw new TokenError('malformed', `The token is longer than ${MAX_TOKEN_LENGTH} characters.`)
    const { header, payload } = decode(token)
    if (header.alg === undefined || !ALGORITHMS.includes(header.alg))
      throw new TokenError('malformed', `The alg of the token is none of ${ALGORITHMS.join(', ')}.`)
    const issuer = issuers.find(({ expect }) => expect.issuer === payload.iss)
    if (!issuer)
      throw new TokenError('wrong_issuer', 'The iss of the token is no issuer of this project (AUTH_JWKS).')
    const { expect, keys } = issuer
    if (![payload.aud].flat().includes(expect.audience))
      throw new TokenError('wrong_audience', `The token is not for the audience ${expect.audience}.`)
    if (
      payload.nbf !== undefined &&
      !(Number(payload.nbf) * 1000 <= this.#context.clock.now() + ISSUED_AHEAD_MS)
    )
      throw new TokenError('not_yet_valid', 'The nbf of the token lies ahead.')
    return {
      claims: claimsOf(payload, expect),
      key: () => keys.find(header),
      isSigned: (key) =>
        compactVerify(token, key, { algorithms: ALGORITHMS }).then(
          () => true,
          () => false,
        ),
    }
  }
}

function decode(token: string) {
  try {
    return { header: decodeProtectedHeader(token), payload: decodeJwt(token) }
  } catch {
    throw new TokenError('malformed', 'The token is not a PASETO v4.public, nor a JWT.')
  }
}

/** Converts claims of a JWT to those of roomful's own tokens. Throws a `TokenError` (malformed) that names the claim, never its value. */
function claimsOf(payload: ReturnType<typeof decodeJwt>, { project, sub: subClaim }: JwtIssuer): TokenClaims {
  const malformed = (claim: string, fault: string) =>
    new TokenError('malformed', `The claim ${claim} of the token ${fault}.`)
  const timeOf = (claim: 'iat' | 'exp'): number => {
    const seconds = payload[claim]
    if (typeof seconds !== 'number' || !(seconds >= 0 && seconds < 1e11))
      throw malformed(claim, 'must be a time in seconds since 1970')
    return Math.floor(seconds * 1000)
  }
  const [issuedAt, expiresAt] = [timeOf('iat'), timeOf('exp')]
  if (expiresAt - issuedAt > MAX_TOKEN_LIFE_MS)
    throw malformed('exp', `is more than ${MAX_TOKEN_LIFE_MS / 1000} s behind iat`)
  const { [subClaim]: sub, [OWN_CLAIM]: own = {} } = payload
  if (typeof sub !== 'string' || sub === '' || [...sub].length > MAX_SUB_LENGTH || !isWellFormed(sub))
    throw malformed(subClaim, `must be text of 1 to ${MAX_SUB_LENGTH} characters`)
  const fault = subFault(sub)
  if (fault !== undefined) throw malformed(subClaim, fault)
  if (typeof own !== 'object' || own === null) throw malformed(OWN_CLAIM, 'must be an object')
  const { data, rooms } = own as { data?: unknown; rooms?: unknown }
  const dataIsWrong = data === undefined ? undefined : dataFault(data)
  if (dataIsWrong !== undefined) throw malformed(`${OWN_CLAIM}.data`, dataIsWrong)
  if (rooms !== undefined && !isRooms(rooms))
    throw malformed(`${OWN_CLAIM}.rooms`, `must be at most ${MAX_ROOMS} texts`)
  return {
    project_id: project,
    issued_at: timestamp(issuedAt),
    expires_at: timestamp(expiresAt),
    sub,
    ...(data !== undefined && { data: data as JsonObject }),
    ...(rooms !== undefined && { rooms }),
  }
}

const isRooms = (rooms: unknown): rooms is string[] =>
  Array.isArray(rooms) &&
  rooms.length <= MAX_ROOMS &&
  rooms.every((room) => typeof room === 'string' && isWellFormed(room))

/**
 * The keys of one issuer. They are fetched for the first token, every ten minutes in the background, and for an unknown `kid`, at most once in 30 s.
 * Between those fetches a token with an unknown `kid` cannot be checked, because the issuer may have published its key. While a fetch
 * fails, the known keys stay valid.
 */
class IssuerKeys {
  readonly #context: KeyContext
  readonly #issuer: string
  readonly #set: ReturnType<typeof createRemoteJWKSet>
  readonly #fetches: RateLimit
  /** The `kid` of each malformed key that was logged. */
  readonly #malformed = new Set<string | undefined>()
  #refreshAt: number
  #failedAt: number | undefined

  constructor(context: KeyContext, { issuer, jwks }: JwtIssuer, fetchKeys: typeof fetch) {
    this.#context = context
    this.#issuer = issuer
    this.#refreshAt = context.clock.monotonic() + REFRESH_MS
    this.#fetches = new RateLimit(context.clock, FETCH_RATE)
    this.#set = createRemoteJWKSet(new URL(jwks), {
      timeoutDuration: TIMEOUT_MS,
      // `#fetch` has its own limit.
      cooldownDuration: 0,
      // `find` refreshes the set. If it expired here, there would be no keys while the issuer is unreachable.
      cacheMaxAge: Number.POSITIVE_INFINITY,
      [customFetch]: (url, options) => this.#fetch(() => fetchKeys(url, options)),
    })
  }

  async find(header: ReturnType<typeof decodeProtectedHeader>): Promise<VerifyKey> {
    const now = this.#context.clock.monotonic()
    if (now >= this.#refreshAt) {
      this.#refreshAt = now + REFRESH_MS
      this.#set.reload().catch(() => {})
    }
    try {
      return KeyObject.from(await this.#set(header))
    } catch (error) {
      if (error instanceof errors.JWKSNoMatchingKey || error instanceof errors.JWKSMultipleMatchingKeys)
        throw new TokenError(
          'bad_signature',
          'The issuer has no key, or several, of the kid and alg of the token.',
        )
      if (error instanceof IssuerUnavailable) throw error
      this.#logMalformed(header.kid, error)
      throw new TokenError('bad_signature', 'The key of the token is malformed at its issuer.')
    }
  }

  /** Logs a malformed key once. The other keys stay valid. */
  #logMalformed(kid: string | undefined, err: unknown): void {
    if (this.#malformed.has(kid)) return
    this.#malformed.add(kid)
    const text = 'a key of an issuer (AUTH_JWKS) is malformed: its tokens are refused'
    this.#context.log.warn({ err, issuer: this.#issuer, kid }, text)
  }

  /** Fetches a key set. A failure is counted, logged once, and cached for a second, so that many clients cause few requests. */
  async #fetch(fetchKeys: () => Promise<Response>): Promise<Response> {
    const { clock, metrics, log } = this.#context
    if (this.#failedAt !== undefined && clock.monotonic() - this.#failedAt < PAUSE_MS)
      throw new IssuerUnavailable('the issuer could not be reached a moment ago')
    if (this.#fetches.waitMs() > 0)
      throw new IssuerUnavailable('the issuer may have published the key since its keys were fetched')
    try {
      const response = await fetchKeys()
      if (response.status !== 200) throw new Error(`it answered ${response.status}`)
      const text = await textOf(response)
      // Throws for anything but a key set, such as an HTML page about maintenance.
      createLocalJWKSet(JSON.parse(text))
      metrics.jwksFetches.inc({ result: 'ok' })
      this.#failedAt = undefined
      this.#fetches.take()
      return new Response(text)
    } catch (error) {
      metrics.jwksFetches.inc({ result: 'failed' })
      if (this.#failedAt === undefined)
        log.warn(
          { err: error, issuer: this.#issuer },
          'the keys of an issuer (AUTH_JWKS) could not be fetched',
        )
      this.#failedAt = clock.monotonic()
      throw new IssuerUnavailable('the keys of the issuer are not available', { cause: error })
    }
  }
}

/** Returns the body of an answer. Throws, and ends the download, if it exceeds the maximum size. */
async function textOf({ body }: Response): Promise<string> {
  const parts: Uint8Array[] = []
  let bytes = 0
  for await (const part of body ?? []) {
    bytes += part.byteLength
    if (bytes > MAX_KEY_SET_BYTES) throw new Error(`its answer is larger than ${MAX_KEY_SET_BYTES} bytes`)
    parts.push(part)
  }
  return Buffer.concat(parts).toString()
}
