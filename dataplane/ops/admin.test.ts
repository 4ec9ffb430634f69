import { Registry } from 'prom-client'
import { describe, expect, it } from 'vitest'
import { createLog } from '../../shared/log.ts'
import { SeededRandom } from '../../test/support/seeded-random.ts'
import type { RoomDescription, SessionDescription } from '../descriptions.ts'
import { type AdminOptions, createAdminApp } from './admin.ts'

const TOKEN = 'a token between processes'

const room = (project_id: string, room_type: string, key: string): RoomDescription => ({
  room_id: `${room_type}:${key}`,
  project_id,
  room_type,
  key,
  epoch: 1,
  seq: 2,
  checksum: 3,
  members: [],
})

const session = (session_id: string, project_id: string, rooms: string[]): SessionDescription => ({
  session_id,
  project_id,
  key_id: null,
  sub: null,
  connected_at: '2026-01-01T00:00:00.000Z',
  rooms,
  queued_bytes: 0,
})

function setup(options: Partial<AdminOptions> = {}) {
  const drained: string[] = []
  const logged: string[] = []
  const app = createAdminApp({
    internal_token: TOKEN,
    registry: new Registry(),
    random: new SeededRandom(),
    log: createLog({ level: 'info', format: 'json' }, {}, { write: (line) => void logged.push(line) }),
    ready: async () => [],
    describeNode: () => ({
      node_id: 'node_1',
      version: '1.2.3',
      started_at: '2026-01-01T00:00:00.000Z',
      draining: drained.length > 0,
      load: { event_loop_utilisation: 0.25, event_loop_delay_ms: 1, rss_bytes: 4096 },
    }),
    describeRooms: ({ include_state }) =>
      [room('prj_1', 'arena', 'a'), room('prj_2', 'arena', 'a'), room('prj_1', 'arena', 'b:c')].map((each) =>
        include_state ? { ...each, state: { hp: 9 } } : each,
      ),
    describeSessions: () => [session('ses_1', 'prj_1', ['arena:a']), session('ses_2', 'prj_2', ['arena:a'])],
    drain: () => void drained.push('drained'),
    ...options,
  })
  const get = (path: string, token: string | undefined = TOKEN) =>
    app.request(path, token === undefined ? {} : { headers: { 'x-service-internal-token': token } })
  return { app, get, drained, logged }
}

describe('GET /admin/runtime', () => {
  it('describes the node, its rooms and its sessions, without states', async () => {
    const response = await setup().get('/admin/runtime')
    expect(response.status).toBe(200)
    const body = await response.json()
    expect(body.node).toEqual({
      node_id: 'node_1',
      version: '1.2.3',
      started_at: '2026-01-01T00:00:00.000Z',
      draining: false,
      load: { event_loop_utilisation: 0.25, event_loop_delay_ms: 1, rss_bytes: 4096 },
    })
    expect(body.rooms.map((each: RoomDescription) => each.room_id)).toEqual([
      'arena:a',
      'arena:a',
      'arena:b:c',
    ])
    expect(body.rooms[0]).not.toHaveProperty('state')
    expect(body.sessions).toHaveLength(2)
  })

  it('includes states when asked to', async () => {
    const body = await (await setup().get('/admin/runtime?include_state=1')).json()
    expect(body.rooms[0].state).toEqual({ hp: 9 })
    const without = await (await setup().get('/admin/runtime?include_state=0')).json()
    expect(without.rooms[0]).not.toHaveProperty('state')
  })

  it('keeps to one room and the sessions in it', async () => {
    const ask = async (query: string) => (await setup().get(`/admin/runtime?${query}`)).json()
    expect((await ask('room_id=arena:a')).rooms).toHaveLength(2)
    const one = await ask('room_id=arena:a&project_id=prj_2')
    expect(one.rooms).toEqual([room('prj_2', 'arena', 'a')])
    expect(one.sessions).toEqual([session('ses_2', 'prj_2', ['arena:a'])])
    expect((await ask('room_id=arena:b:c')).rooms).toHaveLength(1)
  })

  it('answers an unknown room with empty lists', async () => {
    const body = await (await setup().get('/admin/runtime?room_id=arena:nowhere')).json()
    expect([body.rooms, body.sessions]).toEqual([[], []])
  })

  it.each([
    ['include_state=yes', 'include_state'],
    ['include_state=', 'include_state'],
    ['room_id=arena', 'room_id'],
    ['project_id=', 'project_id'],
  ])('refuses ?%s and names %s', async (query, path) => {
    const response = await setup().get(`/admin/runtime?${query}`)
    expect(response.status).toBe(400)
    expect(response.headers.get('content-type')).toBe('application/problem+json')
    const body = await response.json()
    expect(body).toMatchObject({ status: 400, code: 'invalid_request', errors: [{ path }] })
    expect(response.headers.get('x-request-id')).toBe(body.request_id)
  })
})

describe('the internal token', () => {
  const paths: [string, string][] = [
    ['GET', '/admin/runtime'],
    ['POST', '/admin/drain'],
  ]

  it.each(paths)(
    '%s %s is refused without it, with another, and when none is configured',
    async (method, path) => {
      const { app, drained } = setup()
      const open = setup({ internal_token: undefined })
      const answers = await Promise.all([
        app.request(path, { method }),
        app.request(path, { method, headers: { 'x-service-internal-token': 'another' } }),
        app.request(path, { method, headers: { 'x-service-internal-token': '' } }),
        open.app.request(path, { method, headers: { 'x-service-internal-token': TOKEN } }),
        open.app.request(path, { method, headers: { 'x-service-internal-token': 'undefined' } }),
      ])
      for (const answer of answers) {
        expect(answer.status).toBe(401)
        expect(answer.headers.get('content-type')).toBe('application/problem+json')
        expect(await answer.json()).toMatchObject({
          code: 'unauthenticated',
          request_id: expect.stringMatching(/^req_/),
        })
      }
      expect(drained).toEqual([])
    },
  )

  it('is not needed for health, metrics and the page itself', async () => {
    const { get } = setup()
    for (const path of ['/healthz', '/readyz', '/metrics', '/admin'])
      expect((await get(path, undefined)).status).toBe(200)
  })
})

describe('POST /admin/drain', () => {
  it('drains the node', async () => {
    const { app, drained } = setup()
    const response = await app.request('/admin/drain', {
      method: 'POST',
      headers: { 'x-service-internal-token': TOKEN },
    })
    expect([response.status, await response.json()]).toEqual([202, { draining: true }])
    expect(drained).toEqual(['drained'])
  })
})

describe('health', () => {
  it('is alive even when it is not ready, and says why it is not', async () => {
    const { get } = setup({
      ready: async () => [{ code: 'store_unavailable', detail: 'the store cannot be reached' }],
    })
    expect((await get('/healthz')).status).toBe(200)
    const response = await get('/readyz')
    expect([response.status, response.headers.get('retry-after')]).toEqual([503, '1'])
    expect(await response.json()).toMatchObject({
      code: 'store_unavailable',
      detail: 'the store cannot be reached',
    })
  })
})

describe('anything else', () => {
  it('is a problem that says what would be right', async () => {
    const { app, get } = setup()
    expect(await (await get('/nothing')).json()).toMatchObject({ status: 404, code: 'not_found' })
    const wrong = await app.request('/admin/drain')
    expect([wrong.status, wrong.headers.get('allow')]).toEqual([405, 'POST'])
  })

  it('never tells a stack trace', async () => {
    const { get, logged } = setup({
      describeNode: () => {
        throw new Error('broken inside')
      },
    })
    const response = await get('/admin/runtime')
    const text = await response.text()
    expect(response.status).toBe(500)
    expect(text).not.toContain('broken inside')
    expect(logged.join()).toContain('broken inside')
  })
})
