import { generateKeyPairSync, type KeyObject } from 'node:crypto'
import { type JWTPayload, SignJWT } from 'jose'
import { pino } from 'pino'
import { beforeEach, describe, expect, it } from 'vitest'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { gatewayContext } from '../../test/support/gateway/test-gateway.ts'
import { IssuerUnavailable, JwtIssuers } from './authentication.ts'

const PAIRS = {
  RS256: generateKeyPairSync('rsa', { modulusLength: 2048 }),
  ES256: generateKeyPairSync('ec', { namedCurve: 'P-256' }),
  EdDSA: generateKeyPairSync('ed25519'),
}
const issuer = {
  issuer: 'https://login.example',
  jwks: 'https://login.example/keys',
  audience: 'game',
  project: 'prj_one',
  sub: 'uid',
}

const clock = new FakeClock()
const now = clock.now() / 1000
const GOOD = { iss: issuer.issuer, aud: ['else', 'game'], uid: 'ada', iat: now, exp: now + 300 }
/** Answer of the endpoint: the public keys by their `kid`; undefined: none. */
let published: Readonly<Record<string, KeyObject>> | undefined
/** Another answer instead: a page that is not a key set. */
let page: string | undefined
let fetches = 0
let jwts: JwtIssuers
let logged: { readonly msg: string; readonly kid?: string }[]

beforeEach(() => {
  published = Object.fromEntries(Object.entries(PAIRS).map(([alg, { publicKey }]) => [alg, publicKey]))
  page = undefined
  fetches = 0
  logged = []
  const log = pino({ base: null }, { write: (line) => void logged.push(JSON.parse(line)) })
  jwts = new JwtIssuers(gatewayContext({ clock, log }), [issuer], async () => {
    fetches += 1
    if (!published) throw new Error('away')
    if (page !== undefined) return new Response(page)
    const keys = Object.entries(published).map(([kid, key]) => ({ ...key.export({ format: 'jwk' }), kid }))
    return Response.json({ keys })
  })
})

const sign = (claims: JWTPayload, alg: keyof typeof PAIRS = 'EdDSA', kid: string = alg): Promise<string> =>
  new SignJWT(claims).setProtectedHeader({ alg, kid }).sign(PAIRS[alg].privateKey)

/** Returns true if its signature is valid. */
async function check(token: string): Promise<boolean> {
  const jwt = jwts.read('prj_one', token)!
  return jwt.isSigned(await jwt.key())
}

it.each(Object.keys(PAIRS) as (keyof typeof PAIRS)[])(
  'a JWT with a signature by %s is valid',
  async (alg) => {
    const token = await sign({ ...GOOD, roomful: { data: { name: 'Ada' }, rooms: ['duel'] } }, alg)
    expect(jwts.read('prj_one', token)!.claims).toEqual({
      project_id: 'prj_one',
      sub: 'ada',
      data: { name: 'Ada' },
      rooms: ['duel'],
      issued_at: '2026-01-01T00:00:00.000Z',
      expires_at: '2026-01-01T00:05:00.000Z',
    })
    expect(await check(token)).toBe(true)
    const [header, , signature] = token.split('.')
    const [, payload] = (await sign({ ...GOOD, uid: 'eve' }, alg)).split('.')
    expect(await check([header, payload, signature].join('.'))).toBe(false)
  },
)

it('only a token with claims that its issuer may set reaches the signature check, and no error contains the token', async () => {
  const { uid: _, exp: __, iat: ___, ...rest } = GOOD
  const bad: [JWTPayload, RegExp][] = [
    [{ ...GOOD, iss: 'https://evil.example' }, /iss .* is no issuer/],
    [{ ...GOOD, aud: 'another' }, /not for the audience game/],
    [{ ...GOOD, nbf: now + 31 }, /nbf/],
    [{ ...rest, uid: 'ada', iat: now }, /claim exp/],
    [{ ...rest, uid: 'ada', exp: now + 1 }, /claim iat/],
    [{ ...GOOD, exp: now + 86_401 }, /exp .* more than 86400 s/],
    [{ ...rest, sub: 'ada', iat: now, exp: now + 1 }, /claim uid/],
    [{ ...GOOD, uid: 'x'.repeat(257) }, /claim uid/],
    [{ ...GOOD, uid: '..' }, /claim uid .* must not be \. or \.\./],
    [{ ...GOOD, uid: '__proto__' }, /claim uid .* must not be a name that every object has/],
    [{ ...GOOD, uid: 'constructor' }, /claim uid .* must not be a name that every object has/],
    [{ ...GOOD, roomful: 'all' }, /claim roomful/],
    [{ ...GOOD, roomful: { data: { text: 'x'.repeat(2048) } } }, /roomful\.data .* 2048/],
    [{ ...GOOD, roomful: { data: { elo: [2 ** 53] } } }, /roomful\.data .* integer beyond 2\^53/],
    [{ ...GOOD, roomful: { rooms: 'duel' } }, /roomful\.rooms/],
    [{ ...GOOD, pad: 'x'.repeat(8192) }, /longer than 8192/],
  ]
  for (const [claims, says] of bad) {
    const token = await sign(claims)
    expect(() => jwts.read('prj_one', token)).toThrow(says)
    expect(() => jwts.read('prj_one', token)).not.toThrow(token.split('.')[1])
  }
  const encode = (part: object) => Buffer.from(JSON.stringify(part)).toString('base64url')
  for (const alg of ['none', 'HS256', 'PS256', undefined])
    expect(() => jwts.read('prj_one', `${encode({ alg })}.${encode(GOOD)}.`)).toThrow(/alg of the token/)
  expect(() => jwts.read('prj_one', 'letmein')).toThrow(/not a PASETO v4.public, nor a JWT/)
  expect(jwts.read('prj_two', await sign(GOOD))).toBeUndefined()
  expect(fetches).toBe(0)
})

describe('the keys of an issuer', () => {
  it('are fetched once for all tokens, and once in 30 s for an unknown kid, whose tokens are not refused until then', async () => {
    const token = await sign(GOOD)
    expect(await Promise.all([check(token), check(token), check(token)])).toEqual([true, true, true])
    const rotated = await sign(GOOD, 'EdDSA', 'next')
    published = { next: PAIRS.EdDSA.publicKey }
    for (let i = 0; i < 5; i++) await expect(check(rotated)).rejects.toThrow(IssuerUnavailable)
    expect(fetches).toBe(1)
    clock.advance(30_000)
    expect(await check(rotated)).toBe(true)
    await expect(check(token)).rejects.toThrow(IssuerUnavailable)
    expect(fetches).toBe(2)
    clock.advance(30_000)
    await expect(check(token)).rejects.toMatchObject({
      fault: 'bad_signature',
      message: expect.stringMatching(/no key.* of the kid/),
    })
    expect(fetches).toBe(3)
  })

  it('are not read beyond 1 MiB', async () => {
    let sent = 0
    const endless = new ReadableStream<Uint8Array>({
      pull: (controller) => {
        sent += 65_536
        controller.enqueue(new Uint8Array(65_536).fill(0x20))
      },
    })
    const context = gatewayContext({ clock, log: pino({ level: 'silent' }) })
    const large = new JwtIssuers(context, [issuer], async () => new Response(endless))
    await expect(large.read('prj_one', await sign(GOOD))!.key()).rejects.toMatchObject({
      name: 'IssuerUnavailable',
      cause: { message: 'its answer is larger than 1048576 bytes' },
    })
    expect(sent).toBeLessThan(2 ** 21)
  })

  it('stay valid while the issuer is unreachable, which is tried about once a second', async () => {
    published = undefined
    const token = await sign(GOOD)
    for (let i = 0; i < 3; i++) await expect(check(token)).rejects.toThrow(IssuerUnavailable)
    expect(fetches).toBe(1)
    published = { EdDSA: PAIRS.EdDSA.publicKey }
    clock.advance(1000)
    expect(await check(token)).toBe(true)
    published = undefined
    for (let hour = 0; hour < 48; hour++) {
      clock.advance(3_600_000)
      expect(await check(token)).toBe(true)
    }
    expect(fetches).toBe(50)
  })

  it.each([
    ['has no coordinates', {}],
    ['has coordinates of no point', { x: 'AAAA', y: 'AAAA' }],
  ])(
    'stay valid beside one that %s: its tokens are refused for good, and it is logged once',
    async (_, wrong) => {
      const good = PAIRS.EdDSA.publicKey.export({ format: 'jwk' })
      page = JSON.stringify({
        keys: [
          { kty: 'EC', crv: 'P-256', kid: 'ES256', ...wrong },
          { ...good, kid: 'EdDSA' },
        ],
      })
      const [token, refused] = [await sign(GOOD), await sign(GOOD, 'ES256')]
      for (let i = 0; i < 3; i++) {
        const error = { fault: 'bad_signature', message: expect.stringMatching(/malformed at its issuer/) }
        await expect(check(refused)).rejects.toMatchObject(error)
        expect(await check(token)).toBe(true)
      }
      expect(logged).toMatchObject([{ kid: 'ES256', msg: expect.stringMatching(/is malformed/) }])
      expect(fetches).toBe(1)
    },
  )

  it.each(['<h1>Back soon</h1>', '{}', '{"keys":[1]}'])(
    'are unavailable if the issuer answers %s',
    async (answer) => {
      page = answer
      const token = await sign(GOOD)
      for (let i = 0; i < 3; i++) await expect(check(token)).rejects.toThrow(IssuerUnavailable)
      expect(fetches).toBe(1)
      page = undefined
      clock.advance(1000)
      expect(await check(token)).toBe(true)
    },
  )
})
