/**
 * Client tokens: PASETO v4.public (https://github.com/paseto-standard/paseto-spec), signed by control, verified by nodes. The claims
 * are the contract's own: no `iat` or `exp` besides them. The footer `{"kid": …}` names the key, which has to be found first.
 */
import { InspectFooter, PasetoError, PublicProtocol } from 'paseto'
import {
  ImportPublicKeyFactory,
  type PublicKey,
  type SecretKey,
  SignFactory,
  VerifyFactory,
} from 'paseto/v4/public'
import * as v from 'valibot'
import { idPattern } from './ids.ts'
import { isWellFormed } from './json.ts'

/** What a client token says. Times are RFC 3339 UTC with milliseconds. */
export interface TokenClaims {
  readonly project_id: string
  readonly issued_at: string
  readonly expires_at: string
  /** The key the token was issued under and dies with; absent: the project's built-in pair. */
  readonly key_id?: string
  readonly aud?: string
  /** The player's id in the game's own world. */
  readonly sub?: string
  /** Room types, or `type:key`, that the bearer may join; absent: all. */
  readonly rooms?: readonly string[]
  /** The span that issued the token (W3C `traceparent`), for the handshake to go on with; only where that is recorded. */
  readonly traceparent?: string
  /** What came with that trace (W3C `tracestate`, 512 characters at most), for the process that goes on with it. */
  readonly tracestate?: string
}

/** A private Ed25519 key, ready to sign. */
export type SigningKey = SecretKey
/** A public Ed25519 key, ready to verify; make it with `importVerifyKey` and keep it: importing costs as much as verifying. */
export type VerifyKey = PublicKey

/** Why a token was not accepted. */
export type TokenFault =
  | 'malformed'
  | 'bad_signature'
  | 'wrong_project'
  | 'wrong_audience'
  | 'not_yet_valid'
  | 'expired'

/** A token that was not accepted, and why. The message never quotes the token. */
export class TokenError extends Error {
  override readonly name = 'TokenError'
  readonly fault: TokenFault

  constructor(fault: TokenFault, message: string) {
    super(message)
    this.fault = fault
  }
}

/** The longest token, in characters; control issues none longer and nodes read none longer. */
export const MAX_TOKEN_LENGTH = 8192
/** How far in the future `issued_at` may lie, in milliseconds: clocks of two machines differ. */
export const CLOCK_TOLERANCE_MS = 5000

const HEADER = 'v4.public.'
const SIGNATURE_BYTES = 64

const Time = v.pipe(
  v.string(),
  v.check((text) => !Number.isNaN(Date.parse(text))),
)
const Text = v.pipe(v.string(), v.check(isWellFormed))
const Claims = v.object({
  project_id: v.pipe(v.string(), v.regex(idPattern('prj'))),
  issued_at: Time,
  expires_at: Time,
  key_id: v.exactOptional(v.pipe(v.string(), v.regex(idPattern('key')))),
  aud: v.exactOptional(Text),
  sub: v.exactOptional(Text),
  rooms: v.exactOptional(v.array(Text)),
  traceparent: v.exactOptional(Text),
  tracestate: v.exactOptional(Text),
})
const Footer = v.object({ kid: v.string() })

const signer = new PublicProtocol(SignFactory)
const verifier = new PublicProtocol(VerifyFactory, ImportPublicKeyFactory)

/** The footer's `kid` of a token with these claims: the key's id, or the project's id for its built-in pair. */
export const keyIdentifier = (claims: TokenClaims): string => claims.key_id ?? claims.project_id

/** Signs `claims` with a private key whose public half is known under `keyIdentifier(claims)`. */
export function issueToken(key: SigningKey, claims: TokenClaims): Promise<string> {
  const footer = new TextEncoder().encode(JSON.stringify({ kid: keyIdentifier(claims) }))
  return signer.Sign(key, { ...claims }, { footer, addIssuedAt: false, nonExpiring: true })
}

/** Reads a public key from its PASERK form, `k4.public.…`. Rejects with a `TokenError` (malformed) when it is none. */
export async function importVerifyKey(paserk: string): Promise<VerifyKey> {
  try {
    return await verifier.ImportPublicKey(paserk as `k4.public.${string}`)
  } catch (error) {
    if (!(error instanceof PasetoError)) throw error
    throw new TokenError('malformed', 'The public key is not a PASERK k4.public key.')
  }
}

/**
 * The claims of a token **before** anything is verified: only for finding the key to verify with. Throws a `TokenError` (malformed) for
 * what cannot be a token of ours.
 */
export function peekToken(token: string): TokenClaims {
  if (token.length > MAX_TOKEN_LENGTH)
    throw new TokenError('malformed', `The token is longer than ${MAX_TOKEN_LENGTH} characters.`)
  if (!token.startsWith(HEADER)) throw new TokenError('malformed', 'The token is not a PASETO v4.public.')
  const payload = Buffer.from(token.slice(HEADER.length).split('.', 1)[0]!, 'base64url')
  const claims = parse(Claims, payload.subarray(0, -SIGNATURE_BYTES), 'claims')
  if (footerKid(token) !== keyIdentifier(claims))
    throw new TokenError('malformed', 'The kid in the footer is not the key of the claims.')
  return claims
}

/** What a token must fit besides its signature. */
export interface TokenExpectation {
  readonly project_id: string
  /** The time to judge by, milliseconds since 1970. */
  readonly now: number
  /** When given, `aud` must be this. */
  readonly audience?: string
}

/**
 * Throws a `TokenError` when claims are not for the expected project (and audience), or not valid at `now`. A token is expired from
 * `expires_at` on; `issued_at` may be `CLOCK_TOLERANCE_MS` ahead.
 */
export function requireClaims(claims: TokenClaims, expect: TokenExpectation): void {
  if (claims.project_id !== expect.project_id)
    throw new TokenError('wrong_project', 'The token is for another project.')
  if (expect.audience !== undefined && claims.aud !== expect.audience)
    throw new TokenError('wrong_audience', `The token is not for the audience ${expect.audience}.`)
  if (Date.parse(claims.issued_at) > expect.now + CLOCK_TOLERANCE_MS)
    throw new TokenError('not_yet_valid', `The token is valid from ${claims.issued_at} on.`)
  if (Date.parse(claims.expires_at) <= expect.now)
    throw new TokenError('expired', `The token expired at ${claims.expires_at}.`)
}

/** The claims of a token that carries the signature of `key` and fits `expect`. Rejects with a `TokenError` otherwise. */
export async function verifyToken(
  token: string,
  key: VerifyKey,
  expect: TokenExpectation,
): Promise<TokenClaims> {
  peekToken(token)
  const claims = await signedClaims(token, key)
  requireClaims(claims, expect)
  return claims
}

/** The claims under the signature: read from what was verified, not from what was peeked at. */
async function signedClaims(token: string, key: VerifyKey): Promise<TokenClaims> {
  try {
    const { claims } = await verifier.Verify(key, token, { allowNonExpiring: true })
    return v.parse(Claims, claims)
  } catch (error) {
    if (!(error instanceof PasetoError)) throw error
    throw new TokenError('bad_signature', 'The signature of the token is not the one of its key.')
  }
}

function footerKid(token: string): string {
  try {
    return parse(Footer, InspectFooter(token), 'footer').kid
  } catch (error) {
    if (!(error instanceof PasetoError)) throw error
    throw new TokenError('malformed', 'The token is not framed as a PASETO v4.public with a footer.')
  }
}

function parse<Schema extends v.GenericSchema>(
  schema: Schema,
  bytes: Uint8Array,
  part: string,
): v.InferOutput<Schema> {
  try {
    const result = v.safeParse(schema, JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes)))
    if (result.success) return result.output
  } catch {
    // Not text, or not JSON: malformed like anything else that does not fit.
  }
  throw new TokenError('malformed', `The ${part} of the token cannot be read.`)
}
