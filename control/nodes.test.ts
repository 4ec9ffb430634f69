import { EventEmitter, once } from 'node:events'
import { createServer, type RequestListener, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { json } from 'node:stream/consumers'
import { setImmediate } from 'node:timers/promises'
import { pino } from 'pino'
import { describe, expect, it, onTestFinished } from 'vitest'
import { encodeNodeInfo, leaseKey, NODES, type NodeInfo } from '../shared/node-registry.ts'
import { memoryStore } from '../shared/store/memory/memory.ts'
import type { Records } from '../shared/store/port.ts'
import { FakeClock } from '../test/kit/fake-clock.ts'
import { SeededRandom } from '../test/kit/seeded-random.ts'
import { type NodeCall, Nodes } from './nodes.ts'

const CALL: NodeCall = {
  method: 'DELETE',
  path: '/internal/rooms',
  query: { room_id: 'a:b c', cursor: undefined },
}

async function listening(answer: RequestListener): Promise<string> {
  const server: Server = createServer(answer)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

const answering =
  (status: number, body: object): RequestListener =>
  (_, response) =>
    void response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body))

/** Control, and nodes with these addresses. Undefined: the node has no address. */
async function setup(urls: readonly (string | undefined)[], draining: readonly boolean[] = []) {
  return (await setupStore(urls, draining)).nodes
}

async function setupStore(
  urls: readonly (string | undefined)[],
  draining: readonly boolean[] = [],
  failure?: Error,
) {
  const clock = new FakeClock()
  const store = memoryStore({ clock })
  for (const [i, adminUrl] of urls.entries()) {
    const name = `node-${i}`
    const info: NodeInfo = {
      node_id: `${name}~1`,
      started_at: '2026-01-01T00:00:00.000Z',
      version: '1.0.0',
      draining: draining[i] ?? false,
      rooms: 0,
      sessions: 0,
      load: 0,
      max_rooms: 0,
      max_sessions: 0,
      ...(adminUrl !== undefined && { admin_url: adminUrl }),
    }
    const lease = { key: leaseKey(name), holder: `${name}~1`, value: encodeNodeInfo(info), ttlMs: 60_000 }
    await store.records.renewLease({ ...lease, listed: { index: NODES, member: name } })
  }
  let reads = 0
  const records: Pick<Records, 'page' | 'read'> = {
    page: async (...query) => {
      reads++
      if (failure) throw failure
      return store.records.page(...query)
    },
    read: (keys) => store.records.read(keys),
  }
  const nodes = new Nodes({
    records,
    clock,
    random: new SeededRandom(),
    log: pino({ level: 'silent' }),
    internalToken: 'first,second',
  })
  const failing = (error: Error) => {
    failure = error
  }
  return { nodes, clock, reads: () => reads, records: store.records, failing }
}

/** An address at which nothing listens. */
const NOWHERE = 'http://127.0.0.1:9'

describe('Nodes', () => {
  it('calls a node at its ADMIN_URL with the internal token, and resolves with the answer', async () => {
    const seen: unknown[] = []
    const url = await listening((request, response) => {
      seen.push([request.method, request.url, request.headers['x-service-internal-token']])
      response.end('{"ended":true}')
    })
    expect(await (await setup([`${url}/worker/1`])).call(CALL)).toEqual({ ended: true })
    expect(seen).toEqual([['DELETE', '/worker/1/internal/rooms?room_id=a%3Ab+c', 'first']])
  })

  it('sends the JSON of a POST, and resolves with the answer', async () => {
    const seen: unknown[] = []
    const url = await listening(async (request, response) => {
      const { method, headers } = request
      seen.push([method, request.url, headers['content-type'], await json(request)])
      response.end('{"reply":1}')
    })
    const call = { method: 'POST', path: '/internal/rooms/requests', body: { text: 'Käfer' } } as const
    expect(await (await setup([url])).call(call)).toEqual({ reply: 1 })
    expect(seen).toEqual([['POST', '/internal/rooms/requests', 'application/json', { text: 'Käfer' }]])
  })

  it('sends a call again if the only node closes a kept connection', async () => {
    const requests: number[] = []
    const url = await listening((request, response) => {
      requests.push(request.socket.remotePort!)
      if (requests.length === 2) request.socket.destroy()
      else response.end('{"ok":true}')
    })
    const nodes = await setup([url])
    for (let i = 0; i < 2; i++) expect(await nodes.call(CALL)).toEqual({ ok: true })
    expect(requests).toHaveLength(3)
    expect([requests[1] === requests[0], requests[2] === requests[0]]).toEqual([true, false])
  })

  it('reads the list of nodes once a second, and again after a node was unreachable', async () => {
    const good = await listening(answering(200, {}))
    const { nodes, clock, reads } = await setupStore([good])
    await Promise.all([nodes.call(CALL), nodes.call(CALL)])
    await nodes.call(CALL)
    expect(reads()).toBe(1)
    clock.advance(1000)
    await nodes.call(CALL)
    expect(reads()).toBe(2)
    const lonely = await setupStore([NOWHERE])
    for (let i = 0; i < 2; i++) await lonely.nodes.call(CALL).catch(() => undefined)
    expect(lonely.reads()).toBe(2)
  })

  it('calls another node if one is unreachable or closes the connection', async () => {
    const broken = await listening((request) => void request.socket.destroy())
    const good = await listening(answering(200, { ok: true }))
    for (let i = 0; i < 5; i++)
      expect(await (await setup([NOWHERE, broken, good])).call(CALL)).toEqual({ ok: true })
  })

  it('returns the origins of the admin pages of living nodes, also of workers below a path', async () => {
    const nodes = await setup([undefined, 'http://node-1:9100', 'https://games.example:443/worker/1'])
    expect([...(await nodes.adminPages())].sort()).toEqual(['http://node-1:9100', 'https://games.example'])
    expect(await (await setup([])).adminPages()).toEqual([])
  })

  it.each([
    ['is empty', undefined],
    ['cannot be read', new Error('the store is away')],
  ])(
    'reads the registry for admin pages once a second while it %s, and for calls each time',
    async (_, failure) => {
      const { nodes, clock, reads } = await setupStore([], [], failure)
      const call = () => nodes.call(CALL).catch(() => undefined)
      for (let i = 0; i < 3; i++) expect(await nodes.adminPages()).toEqual([])
      expect(reads()).toBe(1)
      clock.advance(1000)
      await nodes.adminPages()
      expect(reads()).toBe(2)
      await call()
      await call()
      expect(reads()).toBe(4)
    },
  )

  it('calls draining nodes last', async () => {
    const leaving = await listening(answering(200, { leaving: true }))
    const staying = await listening(answering(200, { leaving: false }))
    const nodes = await setup([leaving, staying], [true, false])
    for (let i = 0; i < 10; i++) expect(await nodes.call(CALL)).toEqual({ leaving: false })
  })

  it.each([
    ['no node is alive', [], 'node_unavailable', 'No node is alive.'],
    ['no node tells an address', [undefined], 'node_unavailable', 'No node is alive.'],
    ['none can be reached', [NOWHERE, NOWHERE], 'node_unavailable', 'ADMIN_URL'],
  ] as const)('rejects where %s', async (_, urls, code, detail) => {
    const nodes = await setup(urls)
    await expect(nodes.call(CALL)).rejects.toMatchObject({ code, message: expect.stringContaining(detail) })
  })

  it.each([
    [404, { code: 'room_not_found', detail: 'there is no room' }, 'room_not_found', 'there is no room'],
    [409, { code: 'room_logic_refused', detail: 'no gold' }, 'room_logic_refused', 'no gold'],
    [503, { code: 'store_full', detail: 'try again' }, 'store_full', 'try again'],
    [401, { code: 'unauthenticated', detail: 'x' }, 'node_unavailable', 'INTERNAL_TOKEN must be the same'],
    [404, { code: 'not_found', detail: 'an older node' }, 'node_unavailable', 'it answered 404'],
    [500, { code: 'internal_error', detail: 'x' }, 'node_unavailable', 'it answered 500'],
  ] as const)('turns a %i with %j into its own problem', async (status, body, code, detail) => {
    const nodes = await setup([await listening(answering(status, body))])
    await expect(nodes.call(CALL)).rejects.toMatchObject({ code, message: expect.stringContaining(detail) })
  })

  it('passes on the invalid fields and retry-after', async () => {
    const errors = [{ path: 'data.gold', message: 'is required' }]
    const url = await listening((_, response) => {
      const body = { code: 'rate_limited', detail: 'slow down', errors }
      response.writeHead(429, { 'retry-after': '7' }).end(JSON.stringify(body))
    })
    const nodes = await setup([url])
    await expect(nodes.call(CALL)).rejects.toMatchObject({ errors, headers: { 'retry-after': '7' } })
  })

  it('rejects with timeout if a node does not answer, and calls no other', async () => {
    const asked = new EventEmitter()
    const silent = () => listening(() => void asked.emit('asked'))
    const { nodes, clock } = await setupStore([await silent(), await silent()])
    const rejected = expect(nodes.call(CALL)).rejects.toMatchObject({ code: 'timeout' })
    await once(asked, 'asked')
    clock.advance(12_000)
    await rejected
  })

  it('calls another node if one loses its lease before it answers, and gives both 12 s', async () => {
    const asked = new EventEmitter()
    const hanging = await listening(() => void asked.emit('first'))
    const slow = await listening(() => void asked.emit('second'))
    const { nodes, clock, records } = await setupStore([hanging, slow], [false, true])
    const rejected = expect(nodes.call(CALL)).rejects.toMatchObject({ code: 'timeout' })
    await once(asked, 'first')
    const [lease] = await records.read([leaseKey('node-0')])
    await records.write([{ remove: leaseKey('node-0'), ifVersion: lease!.version }])
    clock.advance(1000)
    await once(asked, 'second')
    clock.advance(11_000)
    await rejected
  })

  it('waits for a node while the registry cannot be read', async () => {
    const asked = new EventEmitter()
    const url = await listening((_, response) => void asked.emit('asked', response))
    const { nodes, clock, failing } = await setupStore([url])
    const answered = nodes.call(CALL)
    const [response] = await once(asked, 'asked')
    failing(new Error('the store is away'))
    clock.advance(1000)
    await setImmediate()
    response.end('{"ok":true}')
    expect(await answered).toEqual({ ok: true })
  })
})
