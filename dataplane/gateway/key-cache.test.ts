import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { PublicProtocol } from 'paseto'
import { ExportPublicKeyFactory, GenerateKeyPairFactory } from 'paseto/v4/public'
import { pino } from 'pino'
import { Registry } from 'prom-client'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { registerMetrics } from '../../shared/metrics.ts'
import { PROBLEMS, type ProblemCode } from '../../shared/problem.ts'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import {
  type AskKeyStatus,
  askControl,
  askUnlessLost,
  KEY_REVOKED,
  KeyCache,
  type KeyName,
  KeyStatusUnavailable,
  keyName,
} from './key-cache.ts'
import { GATEWAY_METRICS } from './metrics.ts'

const protocol = new PublicProtocol(GenerateKeyPairFactory, ExportPublicKeyFactory)
const pair = await protocol.GenerateKeyPair()
const publicKey = await protocol.ExportPublicKey(pair.publicKey)

const projectId = 'prj_one'
const GOOD: KeyName = { projectId, keyId: 'key_good' }
const madeUp = (i: number): KeyName => ({ projectId, keyId: `key_made_up_${i}` })

/** A cache, and a control plane that knows the built-in pair and `key_good`. It answers immediately, or when the test says so. */
class Bench {
  readonly clock = new FakeClock()
  readonly results: string[] = []
  readonly logged: string[] = []
  /** Key ids of all questions to control, in order. */
  readonly asked: (string | undefined)[] = []
  /** Open questions: each function answers one. */
  readonly open: (() => void)[] = []
  /** True: control answers only when `answer` is called. */
  slow = false
  fault: KeyStatusUnavailable | undefined
  readonly keys: KeyCache

  constructor(maxKeyLookups = 256) {
    const ask: AskKeyStatus = async (_, keyId) => {
      this.asked.push(keyId)
      if (this.slow) await new Promise<void>((resolve) => this.open.push(resolve))
      if (this.fault) throw this.fault
      if (keyId !== undefined && keyId !== 'key_good') return { exists: false }
      return { exists: true, status: 'active', public_key: publicKey }
    }
    const metrics = {
      ...registerMetrics(new Registry(), GATEWAY_METRICS),
      keyChecks: { inc: ({ result }: { result: string }) => this.results.push(result) },
    }
    const log = pino({ base: null }, { write: (line) => void this.logged.push(JSON.parse(line).msg) })
    this.keys = new KeyCache({ clock: this.clock, metrics, log }, ask, maxKeyLookups)
  }

  /** Lets control answer all open questions. */
  async answer(): Promise<void> {
    for (const answer of this.open.splice(0)) answer()
    for (let i = 0; i < 10; i++) await Promise.resolve()
  }

  /** Lets control answer until no question is open. */
  async answerAll(): Promise<void> {
    while (this.open.length > 0) await this.answer()
  }
}

const kindOf = async (state: Promise<{ kind: string }>): Promise<string> =>
  state.then(
    ({ kind }) => kind,
    (error: unknown) => (error instanceof KeyStatusUnavailable ? error.fault : String(error)),
  )

describe('keyName', () => {
  it('returns different names for different keys, whatever characters the ids contain', () => {
    const ids = ['', 'a', 'a/b', '/', 'b', '","', 'null', '\ud800', '\\ud800']
    const keys = ids.flatMap((projectId) =>
      [undefined, ...ids].map((keyId): KeyName => ({ projectId, keyId })),
    )
    expect(new Set(keys.map(keyName)).size).toBe(keys.length)
  })
})

const revocation = ({ keys }: Bench) => keys.revocation({ project_id: projectId, key_id: 'key_good' })

it('KeyCache does not import a key again if control answers with the same public key', async () => {
  const bench = new Bench()
  const first = await bench.keys.state(GOOD)
  bench.clock.advance(30_000)
  expect(await bench.keys.state(GOOD)).toBe(first)
  expect(bench.asked).toHaveLength(2)
})

it('KeyCache refuses a revoked key immediately, and asks control again after 30 s', async () => {
  const bench = new Bench()
  expect(await kindOf(bench.keys.state(GOOD))).toBe('usable')
  bench.keys.revoke(GOOD)
  bench.clock.advance(29_000)
  expect([await kindOf(bench.keys.state(GOOD)), revocation(bench)]).toEqual(['revoked', KEY_REVOKED])
  expect(bench.asked).toHaveLength(1)
  bench.clock.advance(1000)
  expect([await kindOf(bench.keys.state(GOOD)), revocation(bench)]).toEqual(['usable', undefined])
})

describe('KeyCache during a flood of made-up keys', () => {
  it('has 8 open questions, lets others wait up to maxKeyLookups, and refuses the rest as busy', async () => {
    const bench = new Bench(40)
    bench.slow = true
    const states = Array.from({ length: 100 }, (_, i) => kindOf(bench.keys.state(madeUp(i))))
    expect(bench.open).toHaveLength(8)
    expect(await Promise.all(states.slice(40))).toEqual(Array(60).fill('busy'))
    await bench.answer()
    expect(bench.open).toHaveLength(8)
    await bench.answerAll()
    expect(await Promise.all(states.slice(0, 40))).toEqual(Array(40).fill('unknown'))
    expect(bench.asked).toHaveLength(40)
    expect(bench.results.filter((result) => result === 'busy')).toHaveLength(60)
  })

  it('answers for a cached key without waiting, also when it must ask control again', async () => {
    const bench = new Bench()
    expect(await kindOf(bench.keys.state(GOOD))).toBe('usable')
    bench.slow = true
    const flood = Array.from({ length: 1500 }, (_, i) => kindOf(bench.keys.state(madeUp(i))))
    expect(await kindOf(bench.keys.state(GOOD))).toBe('usable')
    bench.clock.advance(30_000)
    const again = kindOf(bench.keys.state(GOOD))
    expect(bench.asked.at(-1)).toBe('key_good')
    bench.open.at(-1)?.()
    expect(await again).toBe('usable')
    await bench.answerAll()
    await Promise.all(flood)
  })

  it('asks about an existing key that is not cached in its turn', async () => {
    const bench = new Bench()
    bench.slow = true
    const flood = Array.from({ length: 200 }, (_, i) => kindOf(bench.keys.state(madeUp(i))))
    const good = kindOf(bench.keys.state(GOOD))
    await bench.answerAll()
    expect(await good).toBe('usable')
    await Promise.all(flood)
  })

  it('evicts no existing key', async () => {
    const bench = new Bench()
    await bench.keys.state(GOOD)
    for (let i = 0; i < 12_000; i++) await bench.keys.state(madeUp(i))
    expect(await kindOf(bench.keys.state(GOOD))).toBe('usable')
    expect(bench.asked.filter((keyId) => keyId === 'key_good')).toHaveLength(1)
  })

  it('asks about each made-up key once, and again after 2 s', async () => {
    const bench = new Bench()
    await Promise.all(Array.from({ length: 50 }, () => bench.keys.state(madeUp(1))))
    await bench.keys.state(madeUp(1))
    expect(bench.asked).toHaveLength(1)
    bench.clock.advance(2000)
    await bench.keys.state(madeUp(1))
    expect(bench.asked).toHaveLength(2)
  })
})

describe('KeyCache while control is away', () => {
  it('does not send questions that have waited while another failed', async () => {
    const bench = new Bench()
    bench.slow = true
    bench.fault = new KeyStatusUnavailable('unreachable', 'control did not answer')
    const states = Array.from({ length: 100 }, (_, i) => kindOf(bench.keys.state(madeUp(i))))
    bench.clock.advance(5000)
    await bench.answer()
    expect(await Promise.all(states)).toEqual(Array(100).fill('unreachable'))
    expect(bench.asked).toHaveLength(8)
  })

  it.each([
    ['refused', 'INTERNAL_TOKEN'],
    ['foreign', 'another server answers'],
    ['unreachable', 'control cannot be asked about keys'],
  ] as const)('logs the fault %s once in 10 s, and logs that control answers again', async (fault, text) => {
    const bench = new Bench()
    const fail = async (i: number): Promise<void> => {
      bench.fault = new KeyStatusUnavailable(fault, 'control answered')
      expect(await kindOf(bench.keys.state(madeUp(i)))).toBe(fault)
    }
    for (let i = 0; i < 3; i++) await fail(i)
    expect(bench.logged).toEqual([expect.stringContaining(text)])
    bench.fault = undefined
    await bench.keys.state(GOOD)
    expect(bench.logged.slice(1)).toEqual(['control answers again'])
    await fail(3)
    bench.clock.advance(10_000)
    await fail(4)
    expect(bench.logged.slice(2)).toEqual([expect.stringContaining(text)])
    expect(bench.results).toEqual([fault, fault, fault, 'ok', fault, fault])
  })
})

describe('askUnlessLost', () => {
  it.each([
    ['an unknown key while the store has lost its data', { exists: false }, true, 'unreachable'],
    ['an unknown key', { exists: false }, false, { exists: false }],
    [
      'a deleted project, whose note is in the store',
      { exists: false, project_disabled: true },
      true,
      { exists: false, project_disabled: true },
    ],
  ] as const)('answers for %s', async (_, answer, isLost, expected) => {
    const ask = askUnlessLost(
      async () => answer,
      async () => isLost,
    )
    const outcome = await ask(projectId, 'key_a').catch((error: KeyStatusUnavailable) => error.fault)
    expect(outcome).toEqual(expected)
  })
})

describe('askControl', () => {
  let server: Server
  let status = 200
  let body = '{}'
  beforeEach(async () => {
    server = createServer((_, response) => response.writeHead(status).end(body))
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  })
  afterEach(() => new Promise((resolve) => server.close(resolve)))

  const ask = () => {
    const { port } = server.address() as AddressInfo
    const address = { controlUrl: `http://127.0.0.1:${port}`, internalToken: undefined }
    return askControl(address, 5000)('prj_one', 'key_a')
  }
  const problem = (code: ProblemCode): string =>
    JSON.stringify({ type: `urn:roomful:problem:${code}`, status: PROBLEMS[code].status, code })

  it('resolves to no such key if control answers that, or does not accept the name', async () => {
    status = 200
    body = '{"exists":false}'
    expect(await ask()).toEqual({ exists: false })
    status = 400
    body = problem('invalid_request')
    expect(await ask()).toEqual({ exists: false })
  })

  it.each([
    ['unauthenticated', 'refused'],
    ['forbidden', 'refused'],
    ['not_found', 'unreachable'],
    ['rate_limited', 'unreachable'],
    ['internal_error', 'unreachable'],
    ['store_unreachable', 'unreachable'],
    ['store_full', 'unreachable'],
    ['store_refused', 'unreachable'],
  ] as const)('rejects if control answers with the problem %s', async (code, fault) => {
    status = PROBLEMS[code].status
    body = problem(code)
    await expect(ask()).rejects.toMatchObject({ name: 'KeyStatusUnavailable', fault })
  })

  it.each([200, 301, 400, 401, 403, 404, 405, 407, 421])(
    'rejects with status and URL if another server answers %i',
    async (code) => {
      status = code
      for (const other of ['{}', '<html>Not here</html>', '{"status":404}']) {
        body = other
        await expect(ask()).rejects.toMatchObject({
          fault: 'foreign',
          message: expect.stringMatching(
            `another server answered ${code} at http://127.0.0.1:\\d+/internal/key-status`,
          ),
        })
      }
    },
  )

  it.each([408, 500, 502, 503])('rejects as unreachable if a load balancer answers %i', async (code) => {
    status = code
    body = '<html>no server</html>'
    await expect(ask()).rejects.toMatchObject({
      fault: 'unreachable',
      message: expect.stringContaining(`a server in front of control answered ${code} at http://`),
    })
  })
})
