import fc from 'fast-check'
import { PasetoError, PublicProtocol } from 'paseto'
import {
  ExportPublicKeyFactory,
  GenerateKeyPairFactory,
  ImportPublicKeyFactory,
  ImportSecretKeyFactory,
  type PublicKey,
  SignFactory,
  VerifyFactory,
} from 'paseto/v4/public'
import { beforeAll, describe, expect, it } from 'vitest'
import { runLength } from '../test/support/run-length.ts'
import { timestamp } from './clock.ts'
import {
  ISSUED_AHEAD_MS,
  importVerifyKey,
  isSigned,
  issueToken,
  MAX_TOKEN_LENGTH,
  readToken,
  requireClaims,
  type SigningKey,
  type TokenClaims,
  TokenError,
  type TokenExpectation,
  type TokenFault,
  type VerifyKey,
} from './tokens.ts'

const protocol = new PublicProtocol(
  GenerateKeyPairFactory,
  ExportPublicKeyFactory,
  ImportPublicKeyFactory,
  ImportSecretKeyFactory,
  SignFactory,
  VerifyFactory,
)
const now = Date.parse('2026-01-01T00:00:00.000Z')
const base: TokenClaims = {
  project_id: 'prj_one',
  issued_at: timestamp(now),
  expires_at: timestamp(now + 300_000),
}
const full: TokenClaims = {
  ...base,
  key_id: 'key_a',
  aud: 'game',
  sub: 'ü-player',
  rooms: ['arena', 'chess:7'],
}
const expected = { project_id: 'prj_one', now }

let signing: SigningKey
let verifying: VerifyKey
let reference: PublicKey
let other: SigningKey

beforeAll(async () => {
  const pair = await protocol.GenerateKeyPair()
  signing = pair.secretKey
  reference = pair.publicKey
  verifying = await importVerifyKey(await protocol.ExportPublicKey(pair.publicKey))
  other = (await protocol.GenerateKeyPair()).secretKey
})

/** Returns claims of a token that is valid for `expect` under `key`. */
async function verifyToken(token: string, key: VerifyKey, expect: TokenExpectation): Promise<TokenClaims> {
  const unverified = readToken(token)
  if (!isSigned(unverified, key)) throw new TokenError('bad_signature', 'of another key')
  requireClaims(unverified.claims, expect)
  return unverified.claims
}

async function faultOf(attempt: Promise<unknown>): Promise<TokenFault> {
  const error = await attempt.then(
    () => undefined,
    (reason: unknown) => reason,
  )
  if (!(error instanceof TokenError)) throw new Error(`expected a TokenError, got ${String(error)}`)
  return error.fault
}

describe('a token', () => {
  it('carries exactly its claims, with and without the optional ones', async () => {
    for (const claims of [base, full]) {
      const token = await issueToken(signing, claims)
      expect(token).toMatch(/^v4\.public\.[\w-]+\.[\w-]+$/)
      expect(await verifyToken(token, verifying, expected)).toEqual(claims)
      const payload = Buffer.from(token.split('.')[2]!, 'base64url').subarray(0, -64)
      expect(JSON.parse(payload.toString())).toEqual(claims)
    }
  })

  it('names its key in the footer: the key id, or the project for its built-in pair', async () => {
    const footer = (token: string) => JSON.parse(Buffer.from(token.split('.')[3]!, 'base64url').toString())
    expect(footer(await issueToken(signing, full))).toEqual({ kid: 'key_a' })
    expect(footer(await issueToken(signing, base))).toEqual({ kid: 'prj_one' })
  })

  it('shows its key before it is verified', async () => {
    expect(readToken(await issueToken(other, full)).claims.key_id).toBe('key_a')
    expect(readToken(await issueToken(other, base)).claims.key_id).toBeUndefined()
  })

  it('is equal to the official vector 4-S-2', async () => {
    // paseto-standard/test-vectors, v4.json: the signature is deterministic, so signing must give the same token.
    const secret =
      'b4cbfb43df4ce210727d953e4a713307fa19bb7d9f85041438d9e11b942a3774' +
      '1eb9dbbbbc047c03fd70604e0071f0987e16b28b757225c11f00415d0e20b1a2'
    const key = await protocol.ImportSecretKey(
      `k4.secret.${Buffer.from(secret, 'hex').toString('base64url')}`,
    )
    const token = await protocol.Sign(
      key,
      { data: 'this is a signed message', exp: '2022-01-01T00:00:00+00:00' },
      {
        footer: new TextEncoder().encode('{"kid":"zVhMiPBP9fRf2snEcT7gFTioeA9COcNy9DfgL1W60haN"}'),
        addIssuedAt: false,
      },
    )
    expect(token).toBe(
      'v4.public.eyJkYXRhIjoidGhpcyBpcyBhIHNpZ25lZCBtZXNzYWdlIiwiZXhwIjoiMjAyMi0wMS0wMVQwMDowMDowMCswMDowMCJ9v3Jt8mx_TdM2ceTGoqwrh4yDFn0XsHvvV_D0DtwQxVrJEBMl0F2caAdgnpKlt4p7xBnx1HcO-SPo8FPp214HDw.eyJraWQiOiJ6VmhNaVBCUDlmUmYyc25FY1Q3Z0ZUaW9lQTlDT2NOeTlEZmdMMVc2MGhhTiJ9',
    )
  })
})

describe('a token is refused', () => {
  it('for another audience, or without one where one is expected', async () => {
    const check = async (claims: TokenClaims, audience: string) =>
      verifyToken(await issueToken(signing, claims), verifying, { ...expected, audience })
    expect(await faultOf(check(full, 'shop'))).toBe('wrong_audience')
    expect(await faultOf(check(base, 'game'))).toBe('wrong_audience')
    expect(await check(full, 'game')).toEqual(full)
  })

  it('from the millisecond of its expiry', async () => {
    const token = await issueToken(signing, base)
    const at = (time: number) => verifyToken(token, verifying, { ...expected, now: time })
    expect(await at(now + 299_999)).toEqual(base)
    expect(await faultOf(at(now + 300_000))).toBe('expired')
  })

  it('before its issue, beyond the tolerance for clocks', async () => {
    const token = await issueToken(signing, base)
    const at = (time: number) => verifyToken(token, verifying, { ...expected, now: time })
    expect(await at(now - ISSUED_AHEAD_MS)).toEqual(base)
    expect(await faultOf(at(now - ISSUED_AHEAD_MS - 1))).toBe('not_yet_valid')
  })

  // The library also reads and verifies tokens. It must refuse the same tokens, and read the same claims in ours.
  it('exactly if the paseto library refuses it', async () => {
    const good = await Promise.all(
      [base, full, { ...full, sub: 'x'.repeat(300) }].map((claims) => issueToken(signing, claims)),
    )
    const foreign = await issueToken(other, full)
    const character = fc.constantFrom(...'AQgwz09-_.=+/ %\u00e9\ud83d')
    const at = fc.nat(700)
    const damage = fc.oneof(
      fc.constant((token: string) => token),
      fc.tuple(at, character).map(([i, by]) => (token: string) => {
        const place = i % token.length
        return token.slice(0, place) + by + token.slice(place + 1)
      }),
      fc.tuple(at, character).map(
        ([i, by]) =>
          (token: string) =>
            token.slice(0, i) + by + token.slice(i),
      ),
      fc.tuple(at, at).map(
        ([i, n]) =>
          (token: string) =>
            token.slice(0, i) + token.slice(i + 1 + n),
      ),
      fc.tuple(at, fc.nat(7)).map(([i, bit]) => (token: string) => {
        const [version, purpose, payload = '', footer = ''] = token.split('.')
        const bytes = Buffer.from(payload, 'base64url')
        bytes[i % bytes.length]! ^= 1 << bit
        return [version, purpose, bytes.toString('base64url'), footer].join('.')
      }),
      fc.constant((token: string) => [...token.split('.').slice(0, 3), foreign.split('.')[3]].join('.')),
    )
    let taken = 0
    await fc.assert(
      fc.asyncProperty(fc.constantFrom(...good, foreign), damage, async (token, damaged) => {
        const text = damaged(token)
        const theirs = await protocol.Verify(reference, text, { allowNonExpiring: true }).catch((error) => {
          if (error instanceof PasetoError) return undefined
          throw error
        })
        const claims = await verifyToken(text, verifying, expected).catch((error) => {
          if (error instanceof TokenError) return undefined
          throw error
        })
        expect(claims).toEqual(theirs?.claims)
        if (claims) taken += 1
      }),
      { numRuns: runLength(500, 4000) },
    )
    expect(taken).toBeGreaterThan(runLength(30, 300))
  })

  it.each([
    ['nothing', ''],
    ['something else', 'eyJhbGciOiJub25lIn0.e30.'],
    ['another version', 'v2.public.AAAA.BBBB'],
    ['a local token', 'v4.local.AAAA.BBBB'],
    ['no payload', 'v4.public..e30'],
    ['a payload without room for a signature', 'v4.public.e30.e30'],
    ['far too long', `v4.public.${'A'.repeat(MAX_TOKEN_LENGTH)}`],
  ])('as malformed: %s', async (_what, token) => {
    expect(await faultOf(verifyToken(token, verifying, expected))).toBe('malformed')
  })

  it('as malformed if it is signed but its claims or its footer are not valid', async () => {
    const sign = (claims: object, footer: object | undefined) =>
      protocol.Sign(signing, claims, {
        ...(footer && { footer: new TextEncoder().encode(JSON.stringify(footer)) }),
        addIssuedAt: false,
        nonExpiring: true,
      })
    const bad = [
      await sign(full, undefined),
      await sign(full, {}),
      await sign(full, { kid: 'key_b' }),
      await sign({ ...full, expires_at: 'soon' }, { kid: 'key_a' }),
      await sign({ ...full, rooms: 'arena' }, { kid: 'key_a' }),
      await sign({ ...full, data: ['vip'] }, { kid: 'key_a' }),
      await sign({ ...full, data: { text: 'x'.repeat(2048) } }, { kid: 'key_a' }),
      await sign({ ...full, nbf: '2030-01-01T00:00:00.000Z' }, { kid: 'key_a' }),
      await sign({ project_id: 'prj_one' }, { kid: 'prj_one' }),
    ]
    for (const token of bad) expect(await faultOf(verifyToken(token, verifying, expected))).toBe('malformed')
  })

  it('and so is an invalid public key', async () => {
    for (const text of ['', 'k4.public.', 'k4.public.AAAA', 'k4.secret.AAAA', 'hello'])
      expect(await faultOf(importVerifyKey(text))).toBe('malformed')
  })
})
