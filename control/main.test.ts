import { request } from 'node:http'
import { connect } from 'node:net'
import { pino } from 'pino'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { systemRandom } from '../shared/random.ts'
import { memoryStore } from '../shared/store/memory/memory.ts'
import type { Store } from '../shared/store/port.ts'
import { FakeClock } from '../test/kit/fake-clock.ts'
import { rawHttp } from '../test/support/raw-client.ts'
import { type ControlOptions, type RunningControl, startControl, UnsafeControl } from './main.ts'

const safe: ControlOptions = {
  controlPort: 0,
  controlApiTokens: ['operator-token'],
  keyringSecret: 'the secret of the keyring',
}

let clock: FakeClock
let store: Store
let logged: string[]
let running: RunningControl[]

beforeEach(() => {
  clock = new FakeClock()
  store = memoryStore({ clock })
  logged = []
  running = []
})
afterEach(async () => {
  for (const control of running) await control.close()
})

async function start(changes: Partial<ControlOptions> = {}): Promise<RunningControl> {
  const log = pino({ level: 'info' }, { write: (line) => logged.push(JSON.parse(line).msg) })
  const control = await startControl({
    config: { ...safe, ...changes },
    store,
    log,
    clock,
    random: systemRandom,
  })
  running.push(control)
  return control
}

describe('a control process', () => {
  it('answers at its url on a free port', async () => {
    const { url } = await start()
    expect(url).toMatch(/^http:\/\/127\.0\.0\.1:\d+$/)
    expect((await fetch(`${url}/readyz`)).status).toBe(200)
    expect(logged).toEqual([])
  })

  it('reports a loss of data of the store in the log and in a metric', async () => {
    const { registry } = await start()
    await expect.poll(() => store.records.read(['{control}:data'])).not.toEqual([undefined])
    expect(await registry.metrics()).toContain('service_store_data_lost 0')
    await store.records.write([{ remove: '{control}:data' }])
    clock.advance(10_000)
    await expect.poll(() => registry.metrics()).toContain('service_store_data_lost 1')
    expect(logged).toEqual(['the store lost its data'])
  })

  it('does not report a key as missing to a node while the store has lost its data', async () => {
    const { url } = await start({ internalToken: 'internal' })
    const status = async () => {
      const answer = await fetch(`${url}/internal/key-status?project_id=prj_a&key_id=key_a`, {
        headers: { 'x-service-internal-token': 'internal' },
      })
      return [answer.status, (await answer.json()).code]
    }
    await expect.poll(() => store.records.read(['{control}:data'])).not.toEqual([undefined])
    expect(await status()).toEqual([200, undefined])
    // No regular check has run since then.
    await store.records.write([{ remove: '{control}:data' }])
    expect(await status()).toEqual([503, 'store_data_lost'])
    clock.advance(3_600_000)
    await expect.poll(status).toEqual([200, undefined])
  })

  it('answers backends and operators with a temporary error instead of an absence while the store has lost its data', async () => {
    const first = await start()
    const ask = async (credential: string, path: string, url = first.url) => {
      const answer = await fetch(`${url}${path}`, { headers: { authorization: `Bearer ${credential}` } })
      const { code } = await answer.json()
      return [answer.status, code, answer.headers.get('retry-after')]
    }
    const unknownKey = () => ask('rfsk_unknown', '/projects/prj_a/keys')
    const unknownProject = () => ask('operator-token', '/projects/prj_a')
    await expect.poll(() => store.records.read(['{control}:data'])).not.toEqual([undefined])
    expect(await unknownKey()).toEqual([401, 'unauthenticated', null])
    expect(await unknownProject()).toEqual([404, 'project_not_found', null])

    await store.records.write([{ remove: '{control}:data' }])
    expect(await unknownKey()).toEqual([503, 'store_data_lost', '5'])
    expect(await unknownProject()).toEqual([503, 'store_data_lost', '5'])
    expect(await ask('another-token', '/projects/prj_a')).toEqual([401, 'unauthenticated', null])
    const second = await start()
    await expect
      .poll(() => ask('operator-token', '/projects/prj_a', second.url))
      .toEqual([503, 'store_data_lost', '5'])

    await store.records.write([{ remove: '{control}:data-lost' }])
    expect(await unknownKey()).toEqual([401, 'unauthenticated', null])
    expect(await unknownProject()).toEqual([404, 'project_not_found', null])
  })

  it('keeps an idle connection open for longer than load balancers do', async () => {
    const { headers } = await fetch(`${(await start()).url}/healthz`)
    expect(headers.get('keep-alive')).toBe('timeout=75')
  })

  it('logs that the API is open, and that private keys are stored in plain', async () => {
    const { url } = await start({ controlApiTokens: undefined, keyringSecret: undefined })
    expect((await fetch(`${url}/projects`)).status).toBe(200)
    expect(logged.join(' ')).toContain('open to everyone')
    expect(logged.join(' ')).toContain('in plain')
  })

  it.each(['0.0.0.0', '::', '192.0.2.1', 'control.example'])('refuses to be open on %s', async (host) => {
    await expect(start({ controlHost: host, controlApiTokens: [] })).rejects.toThrow(UnsafeControl)
    await expect(start({ controlHost: host, controlApiTokens: [] })).rejects.toThrow('CONTROL_API_TOKENS')
  })

  it('refuses to store private keys in plain on an address other than loopback', async () => {
    await expect(start({ controlHost: '0.0.0.0', keyringSecret: undefined })).rejects.toThrow(
      'KEYRING_SECRET',
    )
  })

  it('is open on another address if the configuration allows it', async () => {
    const { url } = await start({
      controlHost: '0.0.0.0',
      controlApiTokens: 'none',
    })
    expect((await fetch(`${url}/projects`)).status).toBe(200)
  })

  it('rejects when its address is in use', async () => {
    const { url } = await start()
    await expect(start({ controlPort: Number(new URL(url).port) })).rejects.toMatchObject({
      code: 'EADDRINUSE',
    })
  })

  it('starts while its store is not reachable, and becomes ready when it is', async () => {
    await store.close()
    const { url } = await start()
    expect((await fetch(`${url}/readyz`)).status).toBe(503)
    expect((await fetch(`${url}/healthz`)).status).toBe(200)
  })

  it('answers pending requests before it exits', async () => {
    const control = await start()
    const { hostname, port } = new URL(control.url)
    const answer = new Promise<number>((resolve, reject) => {
      const headers = {
        authorization: 'Bearer operator-token',
        'content-type': 'application/json',
        expect: '100-continue',
      }
      const slow = request({ hostname, port, method: 'POST', path: '/projects', headers })
      slow.on('response', (response) => resolve(response.resume().statusCode!))
      slow.on('error', reject)
      slow.flushHeaders()
      // Control has received the request.
      slow.on('continue', () => {
        slow.write('{"name":')
        const closing = control.close()
        slow.end('"late"}')
        closing.catch(reject)
      })
    })
    expect(await answer).toBe(201)
    await control.close()
    await expect(fetch(`${control.url}/healthz`)).rejects.toThrow()
  })

  it('exits in time although a request never ends', async () => {
    const control = await start()
    const { hostname, port } = new URL(control.url)
    const socket = connect(Number(port), hostname)
    const dropped = new Promise((resolve) => socket.on('close', resolve).on('error', resolve).resume())
    await new Promise<void>((resolve) =>
      socket.write(
        'POST /projects HTTP/1.1\r\nhost: a\r\nauthorization: Bearer operator-token\r\ncontent-length: 5\r\n\r\n',
        () => resolve(),
      ),
    )
    await fetch(`${control.url}/healthz`)
    const closing = control.close()
    clock.advance(10_000)
    await closing
    await dropped
  })

  it.each([
    ['that is open to this machine', { controlApiTokens: undefined }],
    ['that is not open', {}],
  ])('%s answers a health check by HTTP/1.0 without a host', async (_, changes) => {
    const { url } = await start(changes)
    expect(await rawHttp(url, 'GET /readyz HTTP/1.0\r\n\r\n')).toMatch(/^HTTP\/1\.1 200 /)
  })

  it('answers a malformed request with a problem', async () => {
    const { url } = await start()
    const text = await rawHttp(url, 'GET /projects HTTP/1.1\r\nhost: a b\r\nconnection: close\r\n\r\n')
    expect(text).toContain('HTTP/1.1 400')
    expect(text).toContain('application/problem+json')
    expect(text).not.toContain('.js')
  })
})
