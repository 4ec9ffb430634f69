import { beforeEach, describe, expect, it } from 'vitest'
import { subscribeKeyNews } from '../shared/key-news.ts'
import { decodePlayer, playerKey } from '../shared/players.ts'
import { memoryStore } from '../shared/store/memory/memory.ts'
import type { Store } from '../shared/store/port.ts'
import { FakeClock } from '../test/kit/fake-clock.ts'
import { controlDeps } from '../test/support/control-deps.ts'
import { type ControlDeps, createControlApp } from './app.ts'
import { Players } from './players.ts'

const OPERATOR = { authorization: 'Bearer operator-token' }
const HOUR_MS = 3_600_000

let clock: FakeClock
let store: Store
let deps: ControlDeps
let app: ReturnType<typeof createControlApp>
let projectId: string
let key: { readonly authorization: string }
/** Players in the messages to nodes. */
let told: string[]

beforeEach(async () => {
  clock = new FakeClock()
  store = memoryStore({ clock })
  deps = {
    ...controlDeps({ store, clock }),
    operatorTokens: ['operator-token'],
    nodes: { call: async () => ({ ended_rooms: 0, next_cursor: null }), adminPages: async () => [] },
  }
  app = createControlApp(deps)
  projectId = (await call('POST /projects', { name: 'a' }, OPERATOR)).body.id
  const { secret } = (await call(`POST /projects/${projectId}/keys`, { scopes: ['player:manage'] }, OPERATOR))
    .body
  key = { authorization: `Bearer ${secret}` }
  told = []
  const onNews = (news: object) => void ('sub' in news && told.push(news.sub as string))
  const broken = (error: unknown) => {
    throw error
  }
  await subscribeKeyNews(store.bus, onNews, () => {}, broken)
})

async function call(line: string, body?: object, headers: Record<string, string> = key) {
  const [method = '', path = ''] = line.split(' ')
  const response = await app.request(path, {
    method,
    headers: { host: '127.0.0.1', ...(body && { 'content-type': 'application/json' }), ...headers },
    ...(body && { body: JSON.stringify(body) }),
  })
  return { status: response.status, body: await response.json() }
}

const onSub = (method: string, sub: string, what: string, body?: object, headers = {}) =>
  call(`${method} /projects/${projectId}/subs/${encodeURIComponent(sub)}/${what}`, body, {
    ...(what === 'revoke' ? OPERATOR : key),
    ...headers,
  })
const stored = async (sub: string) => decodePlayer((await store.records.read([playerKey(projectId, sub)]))[0])
const inMs = (ms: number): string => new Date(clock.now() + ms).toISOString()

/** Returns all bans, read in pages of `limit`. */
async function listed(limit = 200) {
  const bans: { readonly sub: string }[] = []
  for (let cursor: string | null = ''; cursor !== null; ) {
    const page = await call(`GET /projects/${projectId}/bans?limit=${limit}${cursor && `&cursor=${cursor}`}`)
    expect(page.status).toBe(200)
    bans.push(...page.body.bans)
    cursor = page.body.next_cursor
  }
  return bans
}

describe('A ban', () => {
  it('is written where nodes read it, and each node gets a message', async () => {
    const until = inMs(HOUR_MS)
    const wish = { until, room_types: ['arena'], reason: 'rude' }
    const answer = await onSub('PUT', 'ada/ü', 'ban', wish)
    expect(answer).toEqual({
      status: 200,
      body: { project_id: projectId, sub: 'ada/ü', revoked_at: null, ban: wish, data: null },
    })
    expect(await stored('ada/ü')).toEqual({ ban: { ...wish, until: Date.parse(until) } })
    expect(told).toEqual(['ada/ü'])
    expect(await deps.exposition.metrics()).toContain('service_player_changes_total{change="banned"} 1')
  })

  it('is listed until it ends or is deleted, in pages, with the latest end first', async () => {
    await onSub('PUT', 'short', 'ban', { until: inMs(HOUR_MS) })
    await onSub('PUT', 'long', 'ban', { until: inMs(2 * HOUR_MS) })
    await onSub('PUT', 'a:ever', 'ban', {})
    await onSub('PUT', 'Zoe', 'ban', { reason: 'x' })
    const subs = async () => (await listed(1)).map(({ sub }) => sub)
    expect(await subs()).toEqual(['a:ever', 'Zoe', 'long', 'short'])
    expect(await listed()).toContainEqual({ sub: 'Zoe', until: null, room_types: null, reason: 'x' })
    clock.advance(HOUR_MS)
    expect(await subs()).toEqual(['a:ever', 'Zoe', 'long'])
    expect(await stored('short')).toEqual({})
    expect((await onSub('DELETE', 'a:ever', 'ban')).body.ban).toBeNull()
    expect(await subs()).toEqual(['Zoe', 'long'])
    expect(await stored('a:ever')).toEqual({})
  })

  it('replaces an earlier ban, and removes ended bans from the index', async () => {
    await onSub('PUT', 'ada', 'ban', { until: inMs(HOUR_MS) })
    await onSub('PUT', 'ada', 'ban', { until: inMs(3 * HOUR_MS) })
    await onSub('PUT', 'bob', 'ban', { until: inMs(HOUR_MS) })
    const index = `{control}:bans:${projectId}`
    expect(await store.records.page(index, { limit: 9 })).toHaveLength(2)
    clock.advance(HOUR_MS + 1)
    await onSub('PUT', 'eve', 'ban', {})
    expect(await store.records.page(index, { limit: 9 })).toHaveLength(2)
  })

  it('is refused if its reason or its end is invalid', async () => {
    const refused = async (wish: object) => (await onSub('PUT', 'ada', 'ban', wish)).body
    const field = (path: string) => ({ code: 'invalid_request', errors: [{ path }] })
    expect(await refused({ until: inMs(0) })).toMatchObject(field('until'))
    expect(await refused({ until: 'tomorrow' })).toMatchObject(field('until'))
    expect(await refused({ room_types: [] })).toMatchObject(field('room_types'))
    expect(await refused({ room_types: ['arena:one'] })).toMatchObject(field('room_types.0'))
    expect(await refused({ reason: 'ü'.repeat(51) })).toMatchObject(field('reason'))
    expect(await refused({ forever: true })).toMatchObject(field('forever'))
    expect((await onSub('PUT', 'x'.repeat(257), 'ban', {})).status).toBe(400)
    expect((await call('PUT /projects/prj_a/subs/ada/ban', {}, OPERATOR)).status).toBe(404)
    expect(await stored('ada')).toEqual({})
    expect(await onSub('PUT', 'ada', 'ban', { reason: 'ü'.repeat(50) })).toMatchObject({ status: 200 })
  })

  it('is set once for an idempotency key, which a request with another body cannot use', async () => {
    const named = { 'idempotency-key': 'one' }
    const first = await onSub('PUT', 'ada', 'ban', { reason: 'one' }, named)
    await onSub('DELETE', 'ada', 'ban')
    expect(await onSub('PUT', 'ada', 'ban', { reason: 'one' }, named)).toEqual(first)
    expect(await stored('ada')).toEqual({})
    expect(await onSub('PUT', 'ada', 'ban', { reason: 'two' }, named)).toMatchObject({
      status: 409,
      body: { code: 'conflict' },
    })
  })

  it('gets 503 while the store is not reachable', async () => {
    await store.close()
    expect(await onSub('PUT', 'ada', 'ban', {}, OPERATOR)).toMatchObject({
      status: 503,
      body: { code: 'store_unreachable' },
    })
  })
})

describe('A revocation', () => {
  it('is kept for 48 hours, for any number of players, also with a ban', async () => {
    const players = new Players({ ...store, clock })
    for (let n = 0; n < 1001; n++) {
      const { writes } = await players.draft(projectId, `other${n}`, (record) => ({
        ...record,
        revoked_at: clock.now(),
      }))
      expect(await store.records.write(writes)).toBe(true)
    }
    await onSub('POST', 'p0', 'revoke')
    await onSub('POST', 'p1', 'revoke')
    const revokedAt = clock.now()
    expect(await stored('p0')).toEqual({ revoked_at: revokedAt })
    await onSub('PUT', 'p1', 'ban', { until: inMs(HOUR_MS) })
    expect(await stored('p1')).toMatchObject({ revoked_at: revokedAt, ban: { reason: null } })
    await onSub('DELETE', 'p1', 'ban')
    clock.advance(48 * HOUR_MS - 1)
    expect(await stored('p0')).toEqual({ revoked_at: revokedAt })
    clock.advance(1)
    expect([await stored('p0'), await stored('p1')]).toEqual([{}, {}])
  })

  it('needs an operator token', async () => {
    expect((await onSub('POST', 'ada', 'revoke', undefined, key)).status).toBe(403)
  })
})

describe('The data of a player', () => {
  it('is kept until it is deleted, also after a ban or a revocation has ended', async () => {
    await onSub('PUT', 'ada', 'data', { data: { name: 'Ada' } })
    await onSub('PUT', 'ada', 'ban', { until: inMs(HOUR_MS) })
    clock.advance(1000 * HOUR_MS)
    expect((await onSub('POST', 'ada', 'revoke')).body).toMatchObject({ ban: null, data: { name: 'Ada' } })
    expect((await onSub('DELETE', 'ada', 'data')).body.data).toBeNull()
    clock.advance(48 * HOUR_MS)
    expect(await stored('ada')).toEqual({})
    expect(told).toEqual(['ada', 'ada', 'ada', 'ada'])
  })

  it('is deleted with its project, as bans are', async () => {
    await onSub('PUT', 'ada', 'data', { data: { name: 'Ada' } })
    await onSub('PUT', 'bo:b', 'ban', {})
    await call(`POST /projects/${projectId}/disable`, undefined, OPERATOR)
    const answer = await call(`DELETE /projects/${projectId}`, undefined, OPERATOR)
    expect(answer.body).toMatchObject({ deleted: true })
    expect([await stored('ada'), await stored('bo:b')]).toEqual([{}, {}])
    for (const index of ['bans', 'player-data'])
      expect(await store.records.page(`{control}:${index}:${projectId}`, { limit: 9 })).toEqual([])
  })

  it('is an object of at most 2 KiB', async () => {
    for (const data of [[], null, { text: 'x'.repeat(2048) }, undefined])
      expect((await onSub('PUT', 'ada', 'data', { data })).body).toMatchObject({ code: 'invalid_request' })
  })
})
