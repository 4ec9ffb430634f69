import { describe, expect, it, vi } from 'vitest'
import { createLog } from '../../shared/log.ts'
import { PROBLEMS } from '../../shared/problem.ts'
import { StoreUnavailable } from '../../shared/store/port.ts'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { adminOptions, nodeDescription } from '../../test/support/admin-options.ts'
import { nodeInfo, roomDescription, sessionDescription } from '../../test/support/descriptions.ts'
import type { ClusterNodeDescription, Found, Query, RoomDescription, RoomQuery } from '../descriptions.ts'
import { type AdminOptions, createAdminApp, readiness } from './admin.ts'

const TOKEN = 'a token between processes'

const room = (projectId: string, roomType: string, key: string) =>
  roomDescription(`${roomType}:${key}`, { project_id: projectId })

const session = (sessionId: string, projectId: string, rooms: string[]) =>
  sessionDescription(sessionId, { project_id: projectId, rooms })

const node = (nodeId: string, self: boolean, alive: boolean): ClusterNodeDescription => ({
  ...nodeInfo(nodeId, {
    rooms: 1,
    sessions: 2,
    load: 0.5,
    max_rooms: 10,
    max_sessions: 20,
    admin_url: `http://${nodeId}:9100`,
  }),
  self,
  alive,
})

const OWNERS: Record<string, { epoch: number; owner: string | null; ended: boolean }> = {
  'prj_1/arena:there': { epoch: 7, owner: 'node_2', ended: false },
  'prj_1/arena:orphan': { epoch: 7, owner: 'node_3', ended: false },
  'prj_1/arena:unknown': { epoch: 7, owner: 'node_9', ended: false },
  'prj_1/arena:free': { epoch: 7, owner: null, ended: false },
  'prj_1/arena:ended': { epoch: 7, owner: null, ended: true },
}

/** The first items of a source, up to the limit. */
function found<T>(items: readonly T[], { limit }: Query, dress: (item: T) => T = (item) => item): Found<T> {
  return { items: items.slice(0, limit).map(dress), found: items.length, total: items.length }
}

describe('/admin/notices', () => {
  const headers = { 'x-service-internal-token': TOKEN, 'content-type': 'application/json' }
  const setupNotices = (fail?: Error) => {
    const calls: unknown[] = []
    const answer = <T>(value: T) =>
      vi.fn(async (...args: unknown[]): Promise<T> => {
        calls.push(args)
        if (fail) throw fail
        return value
      })
    const described = { pending: { rooms: 1, notices: 3 }, dead_letters: [], next_cursor: 'next' }
    const notices = {
      describe: answer(described),
      resend: answer({ delivered: 2 }),
      removeAll: answer(undefined),
    }
    return { ...setup({ notices }), calls, described }
  }

  it('describes the notices of a project page by page', async () => {
    const { app, calls, described } = setupNotices()
    const answer = await app.request('/admin/notices?project_id=prj_1&limit=7&cursor=c', { headers })
    expect([answer.status, await answer.json()]).toEqual([200, described])
    await app.request('/admin/notices?project_id=prj_1', { headers })
    expect(calls).toEqual([
      ['prj_1', 7, 'c'],
      ['prj_1', 50, undefined],
    ])
  })

  it('resends all dead letters of a project, or one', async () => {
    const { app, calls } = setupNotices()
    const send = (body: object) =>
      app.request('/admin/notices/resend', { method: 'POST', headers, body: JSON.stringify(body) })
    expect(await (await send({ project_id: 'prj_1' })).json()).toEqual({ delivered: 2 })
    await send({ project_id: 'prj_1', id: 'ntc_1' })
    expect(calls).toEqual([
      ['prj_1', undefined],
      ['prj_1', 'ntc_1'],
    ])
  })

  it.each([
    ['GET', '/admin/notices', undefined],
    ['GET', '/admin/notices?project_id=prj_1&limit=0', undefined],
    ['GET', '/admin/notices?project_id=prj_1&page=2', undefined],
    ['POST', '/admin/notices/resend', '{}'],
    ['POST', '/admin/notices/resend', '{"project_id":"prj_1","ids":[]}'],
  ])('answers 400 to %s %s %s', async (method, path, body) => {
    const { app } = setupNotices()
    const answer = await app.request(path, { method, headers, ...(body !== undefined && { body }) })
    expect([answer.status, (await answer.json()).code]).toEqual([400, 'invalid_request'])
  })

  it('answers 503 while the store is unavailable', async () => {
    const { app } = setupNotices(new StoreUnavailable('down'))
    expect((await app.request('/admin/notices?project_id=prj_1', { headers })).status).toBe(503)
  })
})

function setup(changes: Partial<AdminOptions> = {}) {
  const drained: string[] = []
  const levels: string[] = []
  const logged: string[] = []
  const searched: [string, number][] = []
  const asked: RoomQuery[] = []
  const nothing = adminOptions()
  const app = createAdminApp({
    ...nothing,
    internalToken: TOKEN,
    log: createLog({ logLevel: 'info' }, {}, { write: (line) => void logged.push(line) }),
    describeNode: () => nodeDescription({ draining: drained.length > 0 }),
    problems: async () => [{ code: 'rooms_frozen', detail: 'rooms that can do nothing' }],
    describeRooms: (query) => {
      asked.push(query)
      const { include_state: includeState } = query
      const rooms = [room('prj_1', 'arena', 'a'), room('prj_2', 'arena', 'a'), room('prj_1', 'arena', 'b:c')]
      return found(
        rooms.filter((each) => !query.room_id || each.room_id === query.room_id),
        query,
        (each) => (includeState ? { ...each, state: { hp: 9 } } : each),
      )
    },
    describeSessions: (query) =>
      found([session('ses_1', 'prj_1', ['arena:a']), session('ses_2', 'prj_2', ['arena:a'])], query),
    members: () => 5,
    controlUrl: 'http://control:3000/api',
    describeCluster: () => [
      node('node_1', true, true),
      node('node_2', false, true),
      node('node_3', false, false),
    ],
    findOwner: async (projectId, roomId) => {
      if (roomId === 'arena:silent') throw new StoreUnavailable('the store is silent')
      return OWNERS[`${projectId}/${roomId}`]
    },
    search: {
      ...nothing.search,
      find: async (q, limit) => {
        searched.push([q, limit])
        return { rooms: [], sessions: [], found: { rooms: 0, sessions: 0 }, silent: ['node_2'] }
      },
    },
    drain: () => void drained.push('drained'),
    setLogLevel: (level) => void levels.push(level),
    ...changes,
  })
  const get = (path: string, token: string | undefined = TOKEN) =>
    app.request(path, token === undefined ? {} : { headers: { 'x-service-internal-token': token } })
  return { app, get, drained, levels, logged, searched, asked }
}

describe('GET /admin/runtime', () => {
  it('describes the node, its problems, its rooms and its sessions, without states', async () => {
    const response = await setup().get('/admin/runtime')
    expect(response.status).toBe(200)
    const body = await response.json()
    expect(body.node).toEqual(nodeDescription())
    expect(body.problems).toEqual([{ code: 'rooms_frozen', detail: 'rooms that can do nothing' }])
    expect(body.rooms.map((each: RoomDescription) => each.room_id)).toEqual([
      'arena:a',
      'arena:a',
      'arena:b:c',
    ])
    expect(body.rooms[0]).not.toHaveProperty('state')
    expect(body.sessions).toHaveLength(2)
  })

  it('includes states if asked to', async () => {
    const body = await (await setup().get('/admin/runtime?include_state=1')).json()
    expect(body.rooms[0].state).toEqual({ hp: 9 })
    const without = await (await setup().get('/admin/runtime?include_state=0')).json()
    expect(without.rooms[0]).not.toHaveProperty('state')
  })

  it('passes the query on, and returns the number of matches', async () => {
    const { get, asked } = setup()
    const body = await (await get('/admin/runtime?room_id=arena:a&q=%20bob%20&limit=1')).json()
    expect(asked).toEqual([{ include_state: false, room_id: 'arena:a', q: 'bob', limit: 1 }])
    expect(body.rooms).toEqual([room('prj_1', 'arena', 'a')])
    expect(body.sessions).toEqual([session('ses_1', 'prj_1', ['arena:a'])])
    const whole = await (await get('/admin/runtime?limit=1')).json()
    expect(whole.rooms).toHaveLength(1)
    expect(whole.found).toEqual({ rooms: 3, sessions: 2 })
    expect(whole.totals).toEqual({ rooms: 3, members: 5, sessions: 2 })
  })

  it('describes the rooms one after the other, and lets other work run in between', async () => {
    const state = 'x'.repeat(20_000)
    let described = 0
    const { get } = setup({
      describeRooms: () => ({
        items: (function* () {
          for (; described < 100; described++) yield { ...room('prj_1', 'arena', `${described}`), state }
        })(),
        found: 100,
        total: 100,
      }),
    })
    const response = await get('/admin/runtime?include_state=1')
    expect(described).toBeLessThan(10)
    const body = await response.json()
    expect(body.rooms).toHaveLength(100)
    expect(body.rooms[99]).toEqual({ ...room('prj_1', 'arena', '99'), state })
    expect(body.found).toEqual({ rooms: 100, sessions: 2 })
  })

  it.each([
    ['include_state=yes', 'include_state'],
    ['include_state=', 'include_state'],
    ['room_id=arena', 'room_id'],
    ['sort_rooms=members', 'sort_rooms'],
    ['limit=-1', 'limit'],
    ['limit=1001', 'limit'],
    ['limit=ten', 'limit'],
    [`q=${'x'.repeat(201)}`, 'q'],
  ])('refuses ?%s and names %s', async (query, path) => {
    const response = await setup().get(`/admin/runtime?${query}`)
    expect(response.status).toBe(400)
    expect(response.headers.get('content-type')).toBe('application/problem+json')
    const body = await response.json()
    expect(body).toMatchObject({
      status: 400,
      code: 'invalid_request',
      title: PROBLEMS.invalid_request.title,
      detail: `${path}: ${body.errors[0].message}`,
      errors: [{ path }],
    })
    expect(response.headers.get('x-request-id')).toBe(body.request_id)
  })
})

describe('GET /admin', () => {
  it('lets the page connect only to its node, to control and to loopback, and contains the address of control', async () => {
    const answer = await setup().app.request('/admin')
    expect(answer.headers.get('content-security-policy')).toContain(
      "connect-src 'self' http://control:3000 http://localhost:* http://127.0.0.1:*;",
    )
    expect(await answer.text()).toContain('<div id="page" data-control="http://control:3000/api"></div>')
  })
})

describe('GET /admin/cluster', () => {
  it('returns all known nodes', async () => {
    const body = await (await setup().get('/admin/cluster')).json()
    const ready = { not_ready: [] }
    expect(body).toEqual({
      nodes: [
        { ...node('node_1', true, true), ...ready },
        { ...node('node_2', false, true), ...ready },
        { ...node('node_3', false, false), ...ready },
      ],
    })
  })

  it('says why nodes are not ready: this one as /readyz does, the others by their leases', async () => {
    const detail = 'the store cannot be reached'
    const described = [
      node('node_1', true, true),
      { ...node('node_2', false, true), draining: true, cordoned: true },
      { ...node('node_3', false, true), lease_lost: true, clock_wrong: 'it is ahead', outdated: true },
      { ...node('node_4', false, false), draining: true },
    ] as const
    const source = {
      ready: async () => [{ code: 'store_unreachable', detail } as const],
      describeCluster: () => described,
    }
    const { nodes } = await (await setup(source).get('/admin/cluster')).json()
    const codes = nodes.map(({ not_ready: reasons }: { not_ready: { code: string }[] }) =>
      reasons.map(({ code }) => code),
    )
    expect(codes).toEqual([
      ['store_unreachable'],
      ['draining', 'cordoned'],
      ['lease_lost', 'clock_wrong', 'unknown'],
      [],
    ])
    expect(nodes[0].not_ready).toEqual([{ code: 'store_unreachable', detail }])
    expect(nodes[2]).not.toHaveProperty('outdated')
  })
})

const NO_ROOM = 'must be type:key, with a type of at most 64 and a key of at most 128 characters'

describe('GET /admin/owner', () => {
  const ask = async (roomId: string) =>
    (await setup().get(`/admin/owner?project_id=prj_1&room_id=arena:${roomId}`)).json()

  it('returns the node of a room, and the address of its page', async () => {
    expect(await ask('there')).toEqual({
      project_id: 'prj_1',
      room_id: 'arena:there',
      epoch: 7,
      ended: false,
      owner: { node_id: 'node_2', self: false, alive: true, admin_url: 'http://node_2:9100' },
    })
  })

  it('returns whether the owner is dead or unknown, or has released the room, and whether the room exists or has ended', async () => {
    expect(await ask('orphan')).toMatchObject({ owner: { node_id: 'node_3', alive: false } })
    expect((await ask('unknown')).owner).toEqual({ node_id: 'node_9', self: false, alive: false })
    expect(await ask('free')).toMatchObject({ epoch: 7, ended: false, owner: null })
    expect(await ask('ended')).toMatchObject({ epoch: 7, ended: true, owner: null })
    expect(await ask('nowhere')).toMatchObject({ epoch: null, ended: false, owner: null })
  })

  it('answers 503 while the store is unavailable', async () => {
    const { get, logged } = setup()
    const response = await get('/admin/owner?project_id=prj_1&room_id=arena:silent')
    expect(response.status).toBe(503)
    expect(await response.json()).toMatchObject({ code: 'store_unreachable' })
    expect(logged).toEqual([])
  })

  it.each([
    ['room_id=arena:a', 'project_id', 'is required'],
    ['project_id=&room_id=arena:a', 'project_id', 'must not be empty; got 0'],
    ['project_id=prj_1', 'room_id', 'is required'],
    ['project_id=prj_1&room_id=arena', 'room_id', `${NO_ROOM}; got "arena"`],
    [`project_id=prj_1&room_id=arena:${'a'.repeat(129)}`, 'room_id', expect.stringContaining(NO_ROOM)],
  ])('refuses ?%s and names %s', async (query, path, message) => {
    const response = await setup().get(`/admin/owner?${query}`)
    expect(response.status).toBe(400)
    expect(await response.json()).toMatchObject({ errors: [{ path, message }] })
  })
})

describe('GET /admin/search', () => {
  it('searches a text at every node', async () => {
    const { get, searched } = setup()
    const body = await (await get('/admin/search?q=%20bob%20')).json()
    expect(body).toEqual({ rooms: [], sessions: [], found: { rooms: 0, sessions: 0 }, silent: ['node_2'] })
    await get('/admin/search?q=lobby&limit=200')
    expect(searched).toEqual([
      ['bob', 50],
      ['lobby', 200],
    ])
  })

  it.each([
    ['', 'q', 'is required'],
    ['q=', 'q', 'must have 1 to 200 characters; got 0'],
    ['q=%20', 'q', 'must have 1 to 200 characters; got 0'],
    [`q=${'x'.repeat(201)}`, 'q', 'must be 200 characters or fewer; got 201'],
    ['q=x&limit=201', 'limit', 'must be a whole number from 0 to 200; got 201'],
  ])('refuses ?%s and names %s', async (query, path, message) => {
    const { get, searched } = setup()
    const response = await get(`/admin/search?${query}`)
    expect(response.status).toBe(400)
    expect(await response.json()).toMatchObject({ errors: [{ path, message }] })
    expect(searched).toEqual([])
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

it('POST /admin/cordon and /admin/uncordon set whether the node accepts more', async () => {
  const set: boolean[] = []
  const { app } = setup({ setCordoned: async (cordoned) => void set.push(cordoned) })
  for (const action of ['cordon', 'uncordon']) {
    const response = await app.request(`/admin/${action}`, {
      method: 'POST',
      headers: { 'x-service-internal-token': TOKEN },
    })
    expect([response.status, await response.json()]).toEqual([200, { cordoned: action === 'cordon' }])
  }
  expect(set).toEqual([true, false])
})

describe('PUT /admin/log-level', () => {
  const put = async (body: string) => {
    const { app, levels } = setup()
    const answer = await app.request('/admin/log-level', {
      method: 'PUT',
      headers: { 'x-service-internal-token': TOKEN, 'content-type': 'application/json' },
      body,
    })
    return { status: answer.status, body: await answer.json(), levels }
  }

  it('sets the level', async () => {
    expect(await put('{"level":"debug"}')).toEqual({
      status: 200,
      body: { level: 'debug' },
      levels: ['debug'],
    })
  })

  it.each(['{"level":"loud"}', '{}', '{"level":"debug","for":60}'])('refuses %s', async (body) => {
    const answer = await put(body)
    expect([answer.status, answer.body.code, answer.levels]).toEqual([400, 'invalid_request', []])
  })
})

describe('health', () => {
  it('is alive even if the node is not ready, and readiness has the reasons', async () => {
    const { get } = setup({
      ready: async () => [{ code: 'store_unreachable', detail: 'the store cannot be reached' }],
    })
    expect((await get('/healthz')).status).toBe(200)
    const response = await get('/readyz')
    expect([response.status, response.headers.get('retry-after')]).toEqual([503, '1'])
    expect(await response.json()).toMatchObject({
      code: 'store_unreachable',
      title: PROBLEMS.store_unreachable.title,
      detail: 'The node cannot serve: the store cannot be reached.',
    })
  })
})

describe('any other request', () => {
  it('gets a problem that says what would be right', async () => {
    const { app, get } = setup()
    expect(await (await get('/nothing')).json()).toMatchObject({ status: 404, code: 'not_found' })
    const wrong = await app.request('/admin/drain')
    expect([wrong.status, wrong.headers.get('allow')]).toEqual([405, 'POST'])
  })

  it('has the id that the caller gave, in the header and in the problem', async () => {
    const response = await setup().app.request('/nothing', { headers: { 'x-request-id': 'of-the-caller' } })
    expect(response.headers.get('x-request-id')).toBe('of-the-caller')
    expect(await response.json()).toMatchObject({
      request_id: 'of-the-caller',
      title: PROBLEMS.not_found.title,
    })
  })

  it('never returns a stack trace', async () => {
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

const serving = {
  draining: () => false,
  cordoned: () => false,
  leaseValid: () => true,
  clockWrong: () => undefined,
  clock: new FakeClock(),
}

describe('readiness', () => {
  it('has no reasons while the store answers', async () => {
    expect(await readiness({ ...serving, ping: async () => {} })()).toEqual([])
  })

  it.each([
    ['store_unreachable', undefined, 'the store cannot be reached'],
    ['store_full', 'OOM', 'the store has no memory left and refuses writes (OOM)'],
    ['store_refused', 'NOPERM', 'the store refuses commands (NOPERM)'],
  ])(
    'has reasons for draining, a cordon, the store (%s), a lost lease, and a wrong clock',
    async (code, reply, detail) => {
      const ready = readiness({
        ...serving,
        draining: () => true,
        cordoned: () => true,
        ping: () => Promise.reject(new StoreUnavailable('no', reply)),
        leaseValid: () => false,
        clockWrong: () => 'the clock of this process is 31 s ahead',
      })
      expect(await ready()).toEqual([
        { code: 'draining', detail: 'the node is draining' },
        { code: 'cordoned', detail: 'the node is cordoned: it accepts no new rooms and sessions' },
        { code, detail },
        { code: 'lease_lost', detail: 'the lease of the node has run out' },
        { code: 'clock_wrong', detail: 'the clock of this process is 31 s ahead' },
      ])
    },
  )

  it('asks a hanging store only once, and stops waiting for it', async () => {
    const clock = new FakeClock()
    let asked = 0
    const ready = readiness({
      ...serving,
      clock,
      ping: () => {
        asked += 1
        return new Promise(() => {})
      },
    })
    const answers = [ready(), ready()]
    clock.advance(1000)
    expect(await Promise.all(answers)).toEqual(
      Array(2).fill([{ code: 'store_unreachable', detail: 'the store did not answer within 1000 ms' }]),
    )
    expect(asked).toBe(1)
  })

  it('has the cause of an outage that the store reports after the time limit, until the store answers', async () => {
    const clock = new FakeClock()
    let answered: (error?: Error) => void = () => {}
    const ping = () =>
      new Promise<void>((resolve, reject) => {
        answered = (error) => (error ? reject(error) : resolve())
      })
    const ready = readiness({ ...serving, clock, ping })
    const late = () => {
      const answer = ready()
      clock.advance(1000)
      return answer
    }
    expect(await late()).toMatchObject([{ code: 'store_unreachable' }])
    answered(new StoreUnavailable('no connection to the store: WRONGPASS', 'WRONGPASS'))
    await Promise.resolve()
    expect(await late()).toMatchObject([{ code: 'store_refused' }])
    answered()
    await Promise.resolve()
    expect(await late()).toMatchObject([{ code: 'store_unreachable' }])
  })

  it('asks again for a later request', async () => {
    const outcomes = [Promise.reject(new StoreUnavailable('no connection')), Promise.resolve()]
    const ready = readiness({ ...serving, ping: () => outcomes.shift()! })
    expect(await ready()).not.toEqual([])
    expect(await ready()).toEqual([])
  })
})
