import * as v from 'valibot'
import { afterEach, describe, expect, expectTypeOf, it, vi } from 'vitest'
import { webhook } from '../dataplane/features/notices/notice.ts'
import { defineRoom } from '../dataplane/index.ts'
import { notifyKeys } from '../shared/notify-keys.ts'
import { FakeClock } from '../test/kit/fake-clock.ts'
import { InvalidNotice, type Notice, verifyNotice } from './notices.ts'

/** Key, content and signature of https://github.com/standard-webhooks/standard-webhooks, also computed with `openssl dgst -mac HMAC`. */
const STANDARD = {
  secret: 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw',
  id: 'msg_p5jXN8AQM9LWM0D4loKWxJek',
  seconds: 1614265330,
  body: '{"test": 2432232314}',
  signature: 'v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=',
}

/** A notice, signed with `printf '%s' "$ID.$SECONDS.$BODY" | openssl dgst -sha256 -mac HMAC -macopt hexkey:$KEY -binary | base64`. */
const NOTICE = {
  secret: 'whsec_MDEyMzQ1Njc4OWFiY2RlZmdoaWprbG1ub3BxcnN0dXY=',
  id: 'ntc_abc',
  seconds: 1767225600,
  body: '{"type":"won","project_id":"prj_a","room_id":"duel:1","epoch":7,"seq":3,"at":"2026-01-01T00:00:00.000Z","data":{"by":"ada"}}',
  signature: 'v1,M/PGVkWByt2O0viYPINNIgJ7JJHPSsXLGi1gbQUFlP8=',
}

type Signed = typeof NOTICE

const request = ({ id, seconds, body, signature }: Omit<Signed, 'secret'>) =>
  new Request('https://api.example.com/notices', {
    method: 'POST',
    headers: { 'webhook-id': id, 'webhook-timestamp': String(seconds), 'webhook-signature': signature },
    body,
  })

function at(seconds: number): void {
  vi.useFakeTimers({ toFake: ['Date'], now: seconds * 1000 })
}

afterEach(() => void vi.useRealTimers())

describe('verifyNotice', () => {
  it('returns a notice with a valid signature', async () => {
    at(NOTICE.seconds)
    expect(await verifyNotice(request(NOTICE), NOTICE.secret)).toEqual({
      id: 'ntc_abc',
      type: 'won',
      projectId: 'prj_a',
      roomId: 'duel:1',
      epoch: 7,
      seq: 3,
      at: '2026-01-01T00:00:00.000Z',
      data: { by: 'ada' },
    })
  })

  it('accepts the vector of Standard Webhooks', async () => {
    at(STANDARD.seconds)
    expect(await verifyNotice(request(STANDARD), STANDARD.secret)).toMatchObject({ id: STANDARD.id })
  })

  it('accepts one valid signature among several, and any of several secrets', async () => {
    at(NOTICE.seconds)
    const signature = `v1a,abc ${STANDARD.signature} ${NOTICE.signature}`
    const secrets = `${STANDARD.secret},${NOTICE.secret}`
    expect(await verifyNotice(request({ ...NOTICE, signature }), secrets)).toMatchObject({ id: 'ntc_abc' })
  })

  it.each([
    ['another body', { body: NOTICE.body.replace('ada', 'eve') }],
    ['another id', { id: 'ntc_abd' }],
    ['another time', { seconds: NOTICE.seconds + 1 }],
    ['the signature of another secret', { signature: STANDARD.signature }],
    ['a signature of another scheme', { signature: NOTICE.signature.replace('v1', 'v2') }],
    ['a signature that is no base64', { signature: 'v1,???' }],
    ['a signature of a wrong length', { signature: NOTICE.signature.slice(0, -4) }],
    ['a signature of one character', { signature: 'v1,a' }],
  ])('rejects %s', async (_, change) => {
    at(NOTICE.seconds)
    const wrong = verifyNotice(request({ ...NOTICE, ...change }), NOTICE.secret)
    await expect(wrong).rejects.toThrow(InvalidNotice)
  })

  it.each([-301, 301])('rejects a request that was sent %i s from now', async (seconds) => {
    at(NOTICE.seconds - seconds)
    await expect(verifyNotice(request(NOTICE), NOTICE.secret)).rejects.toThrow('within five minutes')
    at(NOTICE.seconds - Math.sign(seconds) * 300)
    expect(await verifyNotice(request(NOTICE), NOTICE.secret)).toMatchObject({ id: 'ntc_abc' })
  })

  it.each(['webhook-id', 'webhook-timestamp', 'webhook-signature'])(
    'rejects a request without %s',
    async (name) => {
      const unsigned = request(NOTICE)
      unsigned.headers.delete(name)
      await expect(verifyNotice(unsigned, NOTICE.secret)).rejects.toThrow(`no header ${name}`)
    },
  )

  it.each([
    ['is empty', ''],
    ['has no whsec_', NOTICE.secret.slice('whsec_'.length)],
    ['is no base64', `${NOTICE.secret}!`],
    ['is too short', `whsec_${btoa('x'.repeat(23))}`],
    ['is too long', `whsec_${btoa('x'.repeat(65))}`],
    ['ends with a comma', `${NOTICE.secret},`],
  ])('rejects with InvalidNotice if the notify key %s', async (_, notifyKey) => {
    at(NOTICE.seconds)
    const wrong = verifyNotice(request(NOTICE), notifyKey)
    await expect(wrong).rejects.toThrow(InvalidNotice)
    await expect(verifyNotice(request(NOTICE), notifyKey)).rejects.toThrow('roomful admin notify-key')
  })

  it('has the types of the notices of its room types', () => {
    const duel = defineRoom({
      type: 'duel',
      create: () => ({}),
      notices: { won: v.object({ by: v.string() }), over: v.number() },
    })
    type Received = Awaited<ReturnType<typeof verifyNotice<typeof duel>>>
    expectTypeOf<Received>().toEqualTypeOf<Notice<'won', { by: string }> | Notice<'over', number>>()
    expectTypeOf<Awaited<ReturnType<typeof verifyNotice>>>().toEqualTypeOf<Notice>()
  })
})

describe('webhook', () => {
  it('signs a notice with the key of its project from each secret, as Standard Webhooks says', async () => {
    const clock = new FakeClock(NOTICE.seconds * 1000 + 999)
    const sent: Request[] = []
    vi.spyOn(globalThis, 'fetch').mockImplementation(async (url, init) => {
      sent.push(new Request(url as string, init))
      return new Response(null, { status: 204 })
    })
    const post = webhook({
      url: 'https://api.example.com/notices',
      secrets: [NOTICE.secret, STANDARD.secret],
      clock,
    })
    const { signal } = new AbortController()
    const notice = { projectId: 'prj_a', id: NOTICE.id, body: NOTICE.body }
    expect(await post(notice, signal)).toEqual({ status: 204 })
    const [request] = sent as [Request]
    // `printf %s prj_a | openssl dgst -sha256 -mac HMAC -macopt hexkey:$SECRET -binary`, and that as the key of NOTICE.
    expect(request.headers.get('webhook-signature')?.split(' ')).toEqual([
      'v1,52Dqs8BjHsqC3XcGifquhHd5UhVHQokOv1G+z6pAH/Y=',
      expect.any(String),
    ])
    expect(request.headers.get('webhook-timestamp')).toBe(String(NOTICE.seconds))
    expect(await request.clone().text()).toBe(NOTICE.body)
    expect(clock.pending).toBe(0)
    at(NOTICE.seconds)
    for (const secret of [NOTICE.secret, STANDARD.secret])
      expect(await verifyNotice(request.clone(), notifyKeys([secret], 'prj_a')[0]!)).toMatchObject({
        id: NOTICE.id,
      })
    for (const foreign of [NOTICE.secret, notifyKeys([NOTICE.secret], 'prj_b')[0]!])
      await expect(verifyNotice(request.clone(), foreign)).rejects.toThrow(InvalidNotice)
  })

  it('needs a secret', () => {
    expect(() => webhook({ url: 'https://api.example.com', secrets: [], clock: new FakeClock() })).toThrow(
      'notifySecret is not',
    )
  })
})
