import { describe, expect, it } from 'vitest'
import { Problem } from '../../shared/problem.ts'
import { type CountedRoom, StoreUnavailable } from '../../shared/store/port.ts'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { SeededRandom } from '../../test/kit/seeded-random.ts'
import { answerOf } from '../../test/support/gateway/test-gateway.ts'
import { InvalidQuery, readQuery, type StoredRow } from '../features/lists/rows.ts'
import type { RequestAnswer } from '../traffic.ts'
import { newAdminApp } from './http.ts'
import { type InternalCallsSource, internalCalls } from './internal.ts'

const unexpected = () => Promise.reject(new Error('unexpected'))

function setup(source: Partial<InternalCallsSource>) {
  const app = newAdminApp(new SeededRandom(), () => new Problem('internal_error', 'unexpected'))
  internalCalls(app, (_, next) => next(), {
    ownerlessRooms: unexpected,
    listedRooms: unexpected,
    countedRooms: unexpected,
    endSession: unexpected,
    describeRoom: unexpected,
    requestRoom: async () => ({ reply: { ended: true }, epoch: 1, seq: 1 }),
    notices: { describe: unexpected, resend: unexpected, removeAll: unexpected },
    clock: new FakeClock(),
    random: new SeededRandom(),
    ...source,
  })
  return { app, get: (path: string) => app.request(path) }
}

describe('GET /internal/listings', () => {
  const row = (key: string, players: number): StoredRow => ({
    room_id: `duel:${key}`,
    room_type: 'duel',
    key,
    players,
    max_players: 4,
    reserved: 1,
    created_at: `2026-01-0${players}T00:00:00.000Z`,
    data: { map: 'desert' },
    node_id: 'node_1~x',
    code: 'K7QX2M',
  })

  it('answers with the rows, their codes and a cursor, but without node ids', async () => {
    const asked: unknown[] = []
    const { get } = setup({
      listedRooms: async (...query) => {
        asked.push(query)
        return answerOf(query[2] ? [] : [row('a', 2), row('b', 1)])
      },
    })
    const path = '/internal/listings?project_id=prj_1&room_type=duel&limit=2&order=fullest&full=1'
    const page = await (await get(`${path}&where=${encodeURIComponent('{"map":["desert"]}')}`)).json()
    const { node_id: _, ...shown } = row('a', 2)
    expect(page.rooms[0]).toEqual(shown)
    expect(await (await get(`${path}&cursor=${page.next_cursor}`)).json()).toEqual({
      rooms: [],
      next_cursor: null,
    })
    const query = { order: 'fullest', full: true, limit: 2 }
    expect(asked).toEqual([
      [{ projectId: 'prj_1', roomType: 'duel' }, { where: { map: ['desert'] }, ...query }, undefined],
      [
        { projectId: 'prj_1', roomType: 'duel' },
        query,
        { players: 2, reserved: 0, created_at: '2026-01-01T00:00:00.000Z', room_id: 'duel:b' },
      ],
    ])
  })

  it('answers with a cursor behind the last row that a query looked at, if it stopped', async () => {
    const asked: unknown[] = []
    const { get } = setup({
      listedRooms: async (...query) => {
        asked.push(query[2])
        return { ...answerOf([row('a', 2)]), stoppedAt: query[2] ? undefined : row('z', 1) }
      },
    })
    const path = '/internal/listings?project_id=prj_1&room_type=duel&limit=2'
    const page = await (await get(path)).json()
    expect(page.rooms).toHaveLength(1)
    expect(await (await get(`${path}&cursor=${page.next_cursor}`)).json()).toMatchObject({
      next_cursor: null,
    })
    expect(asked).toMatchObject([undefined, { players: 2, room_id: 'duel:z' }])
  })

  it('returns no rooms for an unknown type, and refuses an invalid query or cursor', async () => {
    const { get } = setup({
      listedRooms: async ({ roomType }, query) => {
        if (roomType === 'none') throw new InvalidQuery('there is no such room type', 'unknown_room_type')
        readQuery(query)
        throw new StoreUnavailable('the store is away')
      },
    })
    const ask = (query: string) => get(`/internal/listings?project_id=prj_1&${query}`)
    expect(await (await ask('room_type=none')).json()).toEqual({ rooms: [], next_cursor: null })
    expect(await (await ask('room_type=duel&where=map')).json()).toMatchObject({
      code: 'invalid_request',
      detail: 'where is "map": it must be an object of at most 32 fields.',
    })
    for (const wrong of [
      'room_type=duel&cursor=x',
      'room_type=duel&limit=0',
      'room_type=duel&limit=101',
      'x=1',
    ])
      expect(await (await ask(wrong)).json()).toMatchObject({ status: 400, code: 'invalid_request' })
    expect((await ask('room_type=duel')).status).toBe(503)
  })
})

describe('POST /internal/rooms/requests', () => {
  const post = (app: ReturnType<typeof setup>['app'], body: object) =>
    app.request('/internal/rooms/requests', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    })
  const caller = { key_id: 'key_1', call_id: 'order_1' }
  const grant = { op: 'call', name: 'grant', data: { gold: 5 }, caller }
  const request = { id: 'key_1/order_1', hash: 'h', create: {}, do: grant }
  const body = { project_id: 'prj_a', room_id: 'bank:a', request }

  it('sends the request to the room, which is created for the principal of the key', async () => {
    const sent: unknown[] = []
    const { app } = setup({
      requestRoom: async (...asked) => {
        sent.push(asked)
        return { reply: { total: 5 }, epoch: 3, seq: 9 }
      },
    })
    const answer = await post(app, body)
    expect([answer.status, await answer.json()]).toEqual([200, { reply: { total: 5 }, epoch: 3, seq: 9 }])
    const create = { principal: 'backend:key_1', options: {} }
    expect(sent).toEqual([['prj_a', 'bank:a', { ...request, create }]])
  })

  it.each([
    ['room_logic_refused', 409, 'room_logic_refused'],
    ['room_logic_failed', 500, 'room_logic_failed'],
    ['invalid_request', 400, 'invalid_request'],
    ['room_full', 409, 'room_full'],
    ['room_not_found', 404, 'room_not_found'],
    ['conflict', 409, 'conflict'],
    ['cancelled', 409, 'conflict'],
    ['project_full', 409, 'project_full'],
    ['too_many_rooms', 409, 'too_many_rooms'],
    ['rate_limited', 429, 'rate_limited'],
    ['overloaded', 503, 'room_unavailable'],
    ['timeout', 504, 'timeout'],
  ] as const)('answers %s of a room with %i %s', async (code, status, problem) => {
    const { app } = setup({ requestRoom: async () => ({ code, message: 'so it is' }) })
    const answer = await post(app, body)
    expect([answer.status, await answer.json()]).toMatchObject([
      status,
      { code: problem, detail: 'so it is' },
    ])
    expect(answer.headers.has('retry-after')).toBe(status === 429 || status === 503)
  })

  it('returns the seconds after which a room with too many outcomes accepts another request', async () => {
    const full = { code: 'rate_limited', message: 'full', retry_after_seconds: 423 } as const
    const { app } = setup({ requestRoom: async () => full })
    expect((await post(app, body)).headers.get('retry-after')).toBe('423')
  })

  it('accepts 200 reads of a project in a second, and fewer of large rooms', async () => {
    const clock = new FakeClock()
    let state = 'x'
    const { get } = setup({
      clock,
      describeRoom: async () => ({ reply: { state }, epoch: 1, seq: 1 }),
      listedRooms: async () => answerOf([]),
    })
    const room = (project: string) =>
      get(`/internal/room?project_id=${project}&room_id=bank:a&include_state=1`)
    const list = (project: string) => get(`/internal/listings?project_id=${project}&room_type=bank`)
    for (let n = 0; n < 99; n++)
      expect([(await room('prj_a')).status, (await list('prj_a')).status]).toEqual([200, 200])
    const refused = await Promise.all([room('prj_a'), room('prj_a'), list('prj_a')])
    expect(refused.map(({ status }) => status)).toContain(429)
    expect((await room('prj_b')).status).toBe(200)
    clock.advance(4000)
    state = 'x'.repeat(10 * 1024 * 1024)
    const large = await room('prj_a')
    expect([large.status, (await large.json()).state.length]).toEqual([200, state.length])
    clock.advance(500)
    expect((await list('prj_a')).status).toBe(429)
    clock.advance(1000)
    expect((await list('prj_a')).status).toBe(200)
  })

  it('accepts 200 requests of a project in a second', async () => {
    const clock = new FakeClock()
    const { app } = setup({ clock })
    for (let n = 0; n < 200; n++) expect((await post(app, body)).status).toBe(200)
    expect((await post(app, body)).status).toBe(429)
    expect((await post(app, { ...body, project_id: 'prj_b' })).status).toBe(200)
    await clock.advance(5)
    expect((await post(app, body)).status).toBe(200)
  })

  it.each([
    [{ ...request, id: 'key_1' }, /request.id: must be <key id>/],
    [{ ...request, do: { op: 'reserve', subs: [], seconds: 30 } }, /request.do.subs: must not be empty/],
    [{ ...request, do: { op: 'describe', state: true, layers: true } }, /request.do.op/],
  ])('refuses an invalid request: %j', async (bad, text) => {
    const { app } = setup({})
    const answer = await post(app, { ...body, request: bad })
    expect([answer.status, (await answer.json()).detail]).toEqual([400, expect.stringMatching(text)])
  })
})

describe('a project', () => {
  /** A node whose store counts 120 rooms of prj_1. */
  function setupProject(answers: Readonly<Record<string, RequestAnswer>> = {}) {
    const rooms: CountedRoom[] = Array.from({ length: 120 }, (_, n) => ({
      roomId: `arena:${n}`,
      until: 1000 + n,
    }))
    const ended: string[] = []
    const { app } = setup({
      countedRooms: async (projectId, limit, after) =>
        projectId === 'prj_1' ? rooms.filter(({ until }) => until > (after?.until ?? 0)).slice(0, limit) : [],
      requestRoom: async (_, roomId, request) => {
        if (request.do.op === 'close') ended.push(roomId)
        return answers[roomId] ?? { reply: { ended: true }, epoch: 1, seq: 1 }
      },
      endSession: async (_, sessionId) => sessionId === 'ses_1',
      notices: {
        describe: unexpected,
        resend: unexpected,
        removeAll: async (projectId) => void ended.push(projectId),
      },
    })
    const call = async (path: string) => {
      const response = await app.request(path, { method: 'DELETE' })
      return { status: response.status, body: await response.json() }
    }
    return { call, ended }
  }

  it('has its rooms ended, 50 per call and each once, and then its notices deleted', async () => {
    const { call, ended } = setupProject({ 'arena:7': { code: 'room_not_found', message: 'it is nowhere' } })
    const counts: number[] = []
    for (let cursor: string | null = ''; cursor !== null; ) {
      const { body } = await call(`/internal/project-rooms?project_id=prj_1${cursor && `&cursor=${cursor}`}`)
      counts.push(body.ended_rooms)
      cursor = body.next_cursor
    }
    expect(counts).toEqual([50, 50, 20])
    expect(ended.pop()).toBe('prj_1')
    expect(new Set(ended).size).toBe(120)
    expect(ended).toHaveLength(120)
  })

  it.each([
    ['timeout' as const, 'no answer within 10 s'],
    ['room_unavailable' as const, 'its code fails'],
  ])('has a room that has not ended named in the error: %s', async (code, reason) => {
    const { call } = setupProject({ 'arena:3': { code, message: reason } })
    const { status, body } = await call('/internal/project-rooms?project_id=prj_1')
    expect([status, body.code, body.detail]).toEqual([
      503,
      'room_unavailable',
      `arena:3 has not ended: ${reason}. Try again.`,
    ])
  })

  it('gets the answer whether it had the session', async () => {
    const { call } = setupProject()
    const query = '/internal/sessions?project_id=prj_1&session_id='
    expect((await call(`${query}ses_1`)).body).toEqual({
      project_id: 'prj_1',
      session_id: 'ses_1',
      ended: true,
    })
    expect(await call(`${query}ses_2`)).toMatchObject({ status: 404, body: { code: 'session_not_found' } })
  })
})
