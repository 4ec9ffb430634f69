import { createServer, type RequestListener, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { pino } from 'pino'
import { describe, expect, it, onTestFinished } from 'vitest'
import { encodeNodeInfo, leaseKey, NODES, type NodeInfo } from '../shared/node-registry.ts'
import { memoryStore } from '../shared/store/memory/memory.ts'
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

/** Control beside nodes at these addresses; undefined: the node tells none. */
async function setup(urls: readonly (string | undefined)[], draining: readonly boolean[] = []) {
  const store = memoryStore({ clock: new FakeClock() })
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
  return new Nodes({
    records: store.records,
    random: new SeededRandom(),
    log: pino({ level: 'silent' }),
    internalToken: 'first,second',
    answerMs: 200,
  })
}

/** An address at which nothing listens. */
const NOWHERE = 'http://127.0.0.1:9'

describe('Nodes', () => {
  it('calls a node below its ADMIN_URL with the internal token, and resolves with its answer', async () => {
    const seen: unknown[] = []
    const url = await listening((request, response) => {
      seen.push([request.method, request.url, request.headers['x-service-internal-token']])
      response.end('{"ended":true}')
    })
    expect(await (await setup([`${url}/worker/1`])).call(CALL)).toEqual({ ended: true })
    expect(seen).toEqual([['DELETE', '/worker/1/internal/rooms?room_id=a%3Ab+c', 'first']])
  })

  it('asks another node when one cannot be reached, or ends the connection', async () => {
    const broken = await listening((request) => void request.socket.destroy())
    const good = await listening(answering(200, { ok: true }))
    for (let i = 0; i < 5; i++)
      expect(await (await setup([NOWHERE, broken, good])).call(CALL)).toEqual({ ok: true })
  })

  it('asks nodes that drain last', async () => {
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
    [503, { code: 'store_full', detail: 'try again' }, 'store_full', 'try again'],
    [401, { code: 'unauthenticated', detail: 'x' }, 'node_unavailable', 'INTERNAL_TOKEN must be the same'],
    [404, { code: 'not_found', detail: 'an older node' }, 'node_unavailable', 'it answered 404'],
    [500, { code: 'internal_error', detail: 'x' }, 'node_unavailable', 'it answered 500'],
  ] as const)('turns a %i with %j into its own problem', async (status, body, code, detail) => {
    const nodes = await setup([await listening(answering(status, body))])
    await expect(nodes.call(CALL)).rejects.toMatchObject({ code, message: expect.stringContaining(detail) })
  })

  it('rejects with timeout when a node does not answer, and asks no other', async () => {
    let asked = 0
    const silent = () => listening(() => void asked++)
    const nodes = await setup([await silent(), await silent()])
    await expect(nodes.call(CALL)).rejects.toMatchObject({ code: 'timeout' })
    expect(asked).toBe(1)
  })
})
