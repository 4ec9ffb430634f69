/**
 * Client tokens: PASETO v4.public (https://github.com/paseto-standard/paseto-spec), signed by control and verified by nodes. The claims are
 * defined by roomful and do not include `iat` or `exp`. The footer `{"kid": …}` names the key, which a node must find first.
 *
 * Control signs with the package `paseto`. Nodes read and verify tokens with their own code, in one pass and with a cached key object: the
 * package takes twice the CPU, and a node verifies a token for every client.
 */
import { KeyObject, verify } from 'node:crypto'
import { PasetoError, PublicProtocol } from 'paseto'
import { ImportPublicKeyFactory, PublicKeyToCryptoKey, type SecretKey, SignFactory } from 'paseto/v4/public'
import * as v from 'valibot'
import { idPattern } from './ids.ts'
import { isWellFormed, type JsonObject } from './json.ts'
import { checkJson } from './sync/check.ts'

/** Claims of a client token. Times are RFC 3339 UTC with milliseconds. */
export interface TokenClaims {
  readonly project_id: string
  readonly issued_at: string
  readonly expires_at: string
  /** Key that issued the token. Its revocation ends the token. Absent: the project's built-in pair. */
  readonly key_id?: string
  readonly aud?: string
  /** The player's id in the game. */
  readonly sub?: string
  /** Data of the player for rooms, at most `MAX_DATA_BYTES`. */
  readonly data?: JsonObject
  /** Room types, or `type:key`, that the bearer may join. Absent: all. */
  readonly rooms?: readonly string[]
  /** Span that issued the token (W3C `traceparent`), which the handshake continues. Only if the span is recorded. */
  readonly traceparent?: string
  /** `tracestate` of that trace (W3C, at most 512 characters), for the process that continues it. */
  readonly tracestate?: string
}

/** Returns true if the `rooms` claim of a token covers a room. Undefined: the token covers all rooms. */
export const covers = (claim: readonly string[] | undefined, roomType: string, roomId: string): boolean =>
  claim === undefined || claim.includes(roomType) || claim.includes(roomId)

/** A private Ed25519 key for signing. */
export type SigningKey = SecretKey
/** A public Ed25519 key for verifying, from `importVerifyKey`. Cache it: importing costs as much as verifying. */
export type VerifyKey = KeyObject

/** Reason why a token was not accepted. */
export type TokenFault =
  | 'malformed'
  | 'bad_signature'
  | 'wrong_project'
  | 'wrong_issuer'
  | 'wrong_audience'
  | 'not_yet_valid'
  | 'expired'

/** Error of a token that was not accepted, with the reason. The message never quotes the token. */
export class TokenError extends Error {
  override readonly name = 'TokenError'
  readonly fault: TokenFault

  constructor(fault: TokenFault, message: string) {
    super(message)
    this.fault = fault
  }
}

/** Maximum length of a token in characters. Control issues no longer tokens, and nodes read none. */
export const MAX_TOKEN_LENGTH = 8192
/** Maximum size of the claim `data` as JSON text in UTF-8 bytes. Control issues no larger one, and nodes read none. */
const MAX_DATA_BYTES = 2048
/** Maximum time in milliseconds by which `issued_at` may lie in the future: the clock of a node may be behind that of the issuer. */
export const ISSUED_AHEAD_MS = 30_000
/** Usual difference in milliseconds between well synchronized clocks of two machines. */
export const CLOCK_TOLERANCE_MS = 5000

/** Maximum lifetime of a token in milliseconds. Control issues none with a longer one. */
export const MAX_TOKEN_LIFE_MS = 86_400_000
/** Time for which a revocation is kept: the maximum lifetime of a token, plus that of a session to be resumed (`SESSION_RESUME_TTL`). */
export const REVOCATION_KEPT_MS = 2 * MAX_TOKEN_LIFE_MS

const HEADER = 'v4.public.'
const HEADER_BYTES = Buffer.from(HEADER)
const NOTHING = Buffer.alloc(0)
const SIGNATURE_BYTES = 64
const COUNT_BYTES = 8

const Time = v.pipe(
  v.string(),
  v.check((text) => !Number.isNaN(Date.parse(text))),
)
const Text = v.pipe(v.string(), v.check(isWellFormed))
/** PASETO's claims of time. They are refused, because the token would have two expiry times. */
const NOT_OURS = {
  exp: v.exactOptional(v.never()),
  nbf: v.exactOptional(v.never()),
  iat: v.exactOptional(v.never()),
}
/** Maximum length of a `sub`, in characters. */
export const MAX_SUB_LENGTH = 256

/** Returns true if a path of the control API can name this player or room. `.` and `..` are path steps in every spelling. */
export const isNameable = (name: string): boolean => name !== '.' && name !== '..'

/** Returns what is wrong with a `sub`, in words. Undefined: nothing. */
export function subFault(sub: string): string | undefined {
  if (!isNameable(sub)) return 'must not be . or .., which no path can name'
  if (sub in Object.prototype)
    return 'must not be a name that every object has, such as constructor or __proto__: rooms use it as a key'
  return undefined
}

/** Returns what a claim `data` must be, in words. Undefined: it is valid. */
export function dataFault(data: unknown): string | undefined {
  if (typeof data !== 'object' || data === null || Array.isArray(data)) return 'must be an object'
  try {
    checkJson(data)
  } catch (error) {
    return `must be plain JSON: ${(error as Error).message}`
  }
  let isRounded = false
  const json = JSON.stringify(data, (_, value: unknown) => {
    isRounded ||= Number.isInteger(value) && !Number.isSafeInteger(value)
    return value
  })
  if (isRounded) return 'has an integer beyond 2^53 - 1, which would be rounded; send it as a string'
  const bytes = Buffer.byteLength(json)
  return bytes > MAX_DATA_BYTES ? `has ${bytes} bytes of JSON; limit: ${MAX_DATA_BYTES}` : undefined
}

const Claims = v.object({
  project_id: v.pipe(v.string(), v.regex(idPattern('prj'))),
  issued_at: Time,
  expires_at: Time,
  key_id: v.exactOptional(v.pipe(v.string(), v.regex(idPattern('key')))),
  aud: v.exactOptional(Text),
  sub: v.exactOptional(Text),
  data: v.exactOptional(v.custom<JsonObject>((data) => dataFault(data) === undefined)),
  rooms: v.exactOptional(v.array(Text)),
  traceparent: v.exactOptional(Text),
  tracestate: v.exactOptional(Text),
  ...NOT_OURS,
})
const Footer = v.object({ kid: v.string() })

const paseto = new PublicProtocol(SignFactory, ImportPublicKeyFactory)
const utf8 = new TextDecoder('utf-8', { fatal: true })

/** Returns the footer's `kid` of a token with these claims: the key's id, or the project's id for its built-in pair. */
const keyIdentifier = (claims: TokenClaims): string => claims.key_id ?? claims.project_id

/** Signs `claims` with a private key. Nodes find its public half by `keyIdentifier(claims)`. */
export function issueToken(key: SigningKey, claims: TokenClaims): Promise<string> {
  const footer = new TextEncoder().encode(JSON.stringify({ kid: keyIdentifier(claims) }))
  return paseto.Sign(key, { ...claims }, { footer, addIssuedAt: false, nonExpiring: true })
}

/** Reads a public key in its PASERK form, `k4.public.…`. Rejects with a `TokenError` (malformed). */
export async function importVerifyKey(paserk: string): Promise<VerifyKey> {
  try {
    return KeyObject.from(PublicKeyToCryptoKey(await paseto.ImportPublicKey(paserk as `k4.public.${string}`)))
  } catch (error) {
    if (!(error instanceof PasetoError)) throw error
    throw new TokenError('malformed', 'The public key is not a PASERK k4.public key.')
  }
}

/** An unverified token. Until it is verified, use the claims only to find the key. */
export interface UnverifiedToken {
  readonly claims: TokenClaims
  /** The signed claims. */
  readonly message: Buffer
  readonly footer: Buffer
  readonly signature: Buffer
}

/** Reads a token. Throws a `TokenError` (malformed) for any other text. */
export function readToken(text: string): UnverifiedToken {
  if (text.length > MAX_TOKEN_LENGTH)
    throw new TokenError('malformed', `The token is longer than ${MAX_TOKEN_LENGTH} characters.`)
  if (!text.startsWith(HEADER)) throw new TokenError('malformed', 'The token is not a PASETO v4.public.')
  const [payload = '', footer = '', ...more] = text.slice(HEADER.length).split('.')
  const signed = bytesOf(payload)
  const token = {
    message: signed.subarray(0, -SIGNATURE_BYTES),
    signature: signed.subarray(-SIGNATURE_BYTES),
    footer: bytesOf(footer),
  }
  if (footer === '' || more.length > 0)
    throw new TokenError('malformed', 'The token is not framed as a PASETO v4.public with a footer.')
  const claims = parse(Claims, token.message, 'claims')
  if (parse(Footer, token.footer, 'footer').kid !== keyIdentifier(claims))
    throw new TokenError('malformed', 'The kid in the footer is not the key of the claims.')
  return { claims, ...token }
}

/** Returns the bytes of a base64url text in its canonical form, so that each token has only one form. */
function bytesOf(text: string): Buffer {
  const bytes = Buffer.from(text, 'base64url')
  if (bytes.toString('base64url') !== text)
    throw new TokenError('malformed', 'The token is not written in base64url without padding.')
  return bytes
}

/** Requirements for a token besides its signature. */
export interface TokenExpectation {
  readonly project_id: string
  /** Time of the check, milliseconds since 1970. */
  readonly now: number
  /** Required value of `aud`, if present. */
  readonly audience?: string
}

/**
 * Throws a `TokenError` if claims are for another project or audience, or not valid at `now`. A token expires at `expires_at`. `issued_at`
 * may be `ISSUED_AHEAD_MS` in the future.
 */
export function requireClaims(claims: TokenClaims, expect: TokenExpectation): void {
  if (claims.project_id !== expect.project_id)
    throw new TokenError('wrong_project', 'The token is for another project.')
  if (expect.audience !== undefined && claims.aud !== expect.audience)
    throw new TokenError('wrong_audience', `The token is not for the audience ${expect.audience}.`)
  if (Date.parse(claims.issued_at) > expect.now + ISSUED_AHEAD_MS)
    throw new TokenError('not_yet_valid', `The token is valid from ${claims.issued_at} on.`)
  if (Date.parse(claims.expires_at) <= expect.now)
    throw new TokenError('expired', `The token expired at ${claims.expires_at}.`)
}

/** Returns true if `key` has signed the token. */
export const isSigned = ({ message, footer, signature }: UnverifiedToken, key: VerifyKey): boolean =>
  verify(null, preAuthEncoding(message, footer), key, signature)

/**
 * Returns the signed bytes: the pre-authentication encoding of header, message, footer and an empty implicit assertion.
 * https://github.com/paseto-standard/paseto-spec/blob/master/docs/01-Protocol-Versions/Common.md#authentication-padding
 */
function preAuthEncoding(message: Buffer, footer: Buffer): Buffer {
  const pieces = [HEADER_BYTES, message, footer, NOTHING]
  const length = pieces.reduce((sum, piece) => sum + COUNT_BYTES + piece.length, COUNT_BYTES)
  const encoded = Buffer.alloc(length)
  // Counts have 64 bits, little-endian. None here needs more than 32.
  let at = encoded.writeUInt32LE(pieces.length) + COUNT_BYTES - 4
  for (const piece of pieces) {
    encoded.writeUInt32LE(piece.length, at)
    encoded.set(piece, at + COUNT_BYTES)
    at += COUNT_BYTES + piece.length
  }
  return encoded
}

function parse<Schema extends v.GenericSchema>(
  schema: Schema,
  bytes: Uint8Array,
  part: string,
): v.InferOutput<Schema> {
  try {
    const result = v.safeParse(schema, JSON.parse(utf8.decode(bytes)))
    if (result.success) return result.output
  } catch {
    // Not text or not JSON: malformed, as any other invalid content.
  }
  throw new TokenError('malformed', `The ${part} of the token cannot be read.`)
}
