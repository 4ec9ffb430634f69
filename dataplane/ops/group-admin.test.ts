import type { AddressInfo } from 'node:net'
import { expect, it, onTestFinished } from 'vitest'
import { createLog } from '../../shared/log.ts'
import { SeededRandom } from '../../test/kit/seeded-random.ts'
import { adminOptions, nodeDescription } from '../../test/support/admin-options.ts'
import { roomDescription, sessionDescription } from '../../test/support/descriptions.ts'
import type { Query, QueueDescription, RoomDescription, SessionDescription } from '../descriptions.ts'
import { createAdminApp } from './admin.ts'
import { createGroupAdminApp } from './group-admin.ts'
import { listen } from './http.ts'

const TOKEN = 'a token between processes'
const HEADERS = { 'x-service-internal-token': TOKEN }

interface Worker {
  readonly rooms?: readonly RoomDescription[]
  readonly sessions?: readonly SessionDescription[]
  readonly ready?: boolean
  readonly load?: number
  readonly queue?: QueueDescription
}

const room = (key: string, members: number) => roomDescription(`arena:${key}`, { member_count: members })

/** A group whose workers answer like nodes, each on a separate port. `drained`: numbers of the workers that got a drain. */
async function group(...workers: readonly Worker[]) {
  const drained: number[] = []
  const cordoned: number[] = []
  const log = createLog({ logLevel: 'silent' }, {})
  const addresses = await Promise.all(
    workers.map(async ({ rooms = [], sessions = [], ready = true, load = 0, queue }, i) => {
      const found = <T>(items: readonly T[], { limit }: Query) => ({
        items: items.slice(0, limit),
        found: items.length,
        total: items.length,
      })
      const app = createAdminApp({
        ...adminOptions(),
        setCordoned: async () => void cordoned.push(i + 1),
        internalToken: TOKEN,
        ready: async () => (ready ? [] : [{ code: 'draining', detail: 'the node is draining' }]),
        describeNode: () =>
          nodeDescription({
            node_id: `machine-${i + 1}`,
            started_at: `2026-01-01T00:00:0${9 - i}.000Z`,
            draining: !ready,
            load: { event_loop_utilisation: load, event_loop_delay_ms: 10 * load, rss_bytes: 1000 },
          }),
        problems: async () => (ready ? [] : [{ code: 'draining', detail: 'the node is draining' }]),
        describeRooms: (query) => found(rooms, query),
        describeSessions: (query) => found(sessions, query),
        members: () => rooms.reduce((sum, each) => sum + each.member_count, 0),
        describeQueues: () => (queue ? [queue] : []),
        drain: () => void drained.push(i + 1),
      })
      const server = await listen(app.fetch, new SeededRandom(), '127.0.0.1', 0)
      const end = () => void server.close()
      onTestFinished(end)
      const admin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
      return { number: i + 1, addresses: { admin }, end }
    }),
  )
  const app = createGroupAdminApp({
    name: 'machine',
    workers: () => addresses,
    metrics: async () => 'service_workers 2\n',
    random: new SeededRandom(),
    log,
  })
  const get = (path: string, headers: Record<string, string> = HEADERS) => app.request(path, { headers })
  return { app, get, drained, cordoned, workers: addresses }
}

it('shows the rooms and sessions of all workers like one node: one order, one limit, sums and the highest load', async () => {
  const { get } = await group(
    { rooms: [room('b', 9), room('a', 1)], sessions: [sessionDescription('ses_1')], load: 0.25 },
    { rooms: [room('c', 5), room('d', 3)], sessions: [sessionDescription('ses_2')], load: 0.75 },
  )
  const answer = await (await get('/admin/runtime?limit=3')).json()
  expect(answer.rooms.map((each: RoomDescription) => each.room_id)).toEqual(['arena:b', 'arena:c', 'arena:d'])
  expect(answer.sessions).toHaveLength(2)
  expect(answer.found).toEqual({ rooms: 4, sessions: 2 })
  expect(answer.totals).toEqual({ rooms: 4, members: 18, sessions: 2 })
  expect(answer.node).toEqual({
    node_id: 'machine',
    version: '1.2.3',
    commit: '0123456789ab',
    rooms_hash: 'a1b2c3d4e5f6',
    started_at: '2026-01-01T00:00:08.000Z',
    draining: false,
    cordoned: false,
    listed_types: ['duel'],
    load: { event_loop_utilisation: 0.75, event_loop_delay_ms: 7.5, rss_bytes: 2000 },
  })
})

it('shows the queues of all workers', async () => {
  const queue = (room_id: string): QueueDescription => ({
    room_id,
    project_id: 'prj_1',
    waiting: 3,
    oldest_since: null,
    pending_matches: 0,
    matches: 1,
    failures: 0,
  })
  const { get } = await group({ queue: queue('ranked:default') }, { queue: queue('casual:default') }, {})
  expect(await (await get('/admin/queues')).json()).toEqual({
    queues: [queue('ranked:default'), queue('casual:default')],
  })
})

it('refuses like a worker: without the token, and a query that no worker accepts', async () => {
  const { get } = await group({}, {})
  expect((await get('/admin/runtime', {})).status).toBe(401)
  expect((await get('/worker/1/admin/runtime', {})).status).toBe(401)
  const refused = await get('/admin/runtime?limit=many')
  expect(refused.status).toBe(400)
  expect((await refused.json()).errors).toMatchObject([{ path: 'limit' }])
})

it('a group is ready while one of its workers is, and not without a worker', async () => {
  expect((await (await group({ ready: false }, {})).get('/readyz')).status).toBe(200)
  expect((await (await group({ ready: false }, { ready: false })).get('/readyz')).status).toBe(503)
  const none = await group()
  for (const path of ['/readyz', '/admin/runtime', '/admin']) {
    const answer = await none.get(path)
    expect([answer.status, (await answer.json()).code]).toEqual([503, 'no_worker'])
  }
  expect((await none.get('/healthz')).status).toBe(200)
})

it('forwards to one worker by its number, and names the existing ones', async () => {
  const { get } = await group({ rooms: [room('a', 1)] }, { rooms: [room('b', 2), room('c', 3)] })
  const second = await (await get('/worker/2/admin/runtime?limit=1')).json()
  expect(second.node.node_id).toBe('machine-2')
  expect(second.rooms).toHaveLength(1)
  const unknown = await get('/worker/7/admin/runtime')
  expect(unknown.status).toBe(404)
  expect((await unknown.json()).detail).toBe('There is no worker 7 that serves; there are 1, 2.')
})

it('cordons every worker', async () => {
  const { app, cordoned } = await group({}, {})
  const answer = await app.request('/admin/cordon', { method: 'POST', headers: HEADERS })
  expect(await answer.json()).toEqual({ cordoned: true })
  expect(cordoned.toSorted()).toEqual([1, 2])
})

it('drains every worker, and reports if one was not reached', async () => {
  const { app, drained, workers } = await group({}, {})
  const server = await listen(app.fetch, new SeededRandom(), '127.0.0.1', 0)
  onTestFinished(() => void server.close())
  const drain = (init: RequestInit) =>
    fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}/admin/drain`, {
      method: 'POST',
      ...init,
    })
  expect((await drain({})).status).toBe(401)
  expect(drained).toEqual([])
  for (const body of [undefined, '{}']) {
    expect((await drain({ headers: HEADERS, ...(body && { body }) })).status).toBe(202)
    expect(drained.splice(0).toSorted()).toEqual([1, 2])
  }
  workers[0]!.end()
  expect((await drain({ headers: HEADERS })).status).toBe(502)
  expect(drained).toEqual([2])
})

it('answers for the others when a worker has just ended, and reports it for that worker', async () => {
  const { get, workers } = await group({ rooms: [room('a', 1)] }, { rooms: [room('b', 2)] })
  workers[0]!.end()
  const { rooms } = await (await get('/admin/runtime')).json()
  expect(rooms.map((each: RoomDescription) => each.room_id)).toEqual(['arena:b'])
  const ended = await get('/worker/1/admin/runtime')
  expect([ended.status, (await ended.json()).code]).toEqual([502, 'worker_unavailable'])
})

it('answers with problems that have the id of the request, whichever process they are from', async () => {
  const { get } = await group({ ready: false })
  const headers = { ...HEADERS, 'x-request-id': 'of-the-caller' }
  for (const path of ['/worker/7/admin', '/worker/1/nothing', '/admin/runtime?limit=many', '/readyz']) {
    const answer = await get(path, headers)
    const { request_id: requestId } = await answer.json()
    expect([path, answer.headers.get('x-request-id'), requestId]).toEqual([
      path,
      'of-the-caller',
      'of-the-caller',
    ])
  }
})

it('returns the metrics of all workers', async () => {
  const { get } = await group({})
  const answer = await get('/metrics', {})
  expect(await answer.text()).toBe('service_workers 2\n')
  expect(answer.headers.get('content-type')).toBe('text/plain; version=0.0.4; charset=utf-8')
})
