import { createServer, type IncomingHttpHeaders } from 'node:http'
import type { AddressInfo } from 'node:net'
import { json } from 'node:stream/consumers'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { encodeNodeInfo, leaseKey, NODES } from '../shared/node-registry.ts'
import { ControlUnderTest, expectProblem, type Request } from '../test/support/control-api.ts'

/** HTTP server that answers as a node with a set answer, and keeps its requests. */
class FakeNode {
  readonly requests: { line: string; headers: IncomingHttpHeaders; body: unknown }[] = []
  answer: { status: number; body: object; headers?: Record<string, string> } = { status: 200, body: {} }
  readonly #server = createServer(async (request, response) => {
    const { method, url, headers } = request
    const body = method === 'POST' ? await json(request) : undefined
    this.requests.push({ line: `${method} ${url}`, headers, body })
    const { status, body: answer, headers: more } = this.answer
    response.writeHead(status, { 'content-type': 'application/json', ...more }).end(JSON.stringify(answer))
  })

  async start({ store, clock }: ControlUnderTest): Promise<void> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve))
    const value = encodeNodeInfo({
      node_id: 'fake~1',
      started_at: new Date(clock.now()).toISOString(),
      version: '1.0.0',
      draining: false,
      rooms: 0,
      sessions: 0,
      load: 0,
      max_rooms: 0,
      max_sessions: 0,
      admin_url: `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`,
    })
    const lease = { key: leaseKey('fake'), holder: 'fake~1', value, ttlMs: 3_600_000 }
    await store.records.renewLease({ ...lease, listed: { index: NODES, member: 'fake' } })
  }

  close(): void {
    this.#server.closeAllConnections()
    this.#server.close()
  }
}

describe('requests of a backend to a room', () => {
  const control = new ControlUnderTest()
  const node = new FakeNode()
  let projectId: string
  let key: { id: string; secret: string }
  let room: string

  beforeAll(async () => {
    await control.start()
    await node.start(control)
    projectId = await control.newProject()
    const scopes = ['room:call', 'room:read', 'player:manage']
    key = await control.newKey(projectId, { scopes })
    room = `/projects/${projectId}/rooms/duel/table-7`
  })
  beforeEach(() => {
    node.requests.length = 0
    node.answer = { status: 200, body: { reply: { total: 5 }, epoch: 1, seq: 2 } }
  })
  afterAll(async () => {
    node.close()
    await control.close()
  })

  const api = (line: string, request: Request = {}) => control.call(line, { as: key.secret, ...request })
  /** Sends a request and returns the body that the node received. */
  const sent = async (line: string, request?: Request) => {
    const answer = await api(line, request)
    expect(answer.status).toBe(200)
    return node.requests.at(-1)!.body as { readonly request: { readonly id: string; readonly hash: string } }
  }

  it('a call goes to a node with the id of its key, and the answer has the reply', async () => {
    const answer = await api(`POST ${room}/calls/grant`, {
      body: { sub: 'ada', gold: 5 },
      headers: { 'idempotency-key': 'order-1' },
    })
    expect(answer).toMatchObject({ status: 200, body: { reply: { total: 5 }, epoch: 1, seq: 2 } })
    expect(node.requests).toMatchObject([
      {
        line: 'POST /internal/rooms/requests',
        headers: { 'x-service-internal-token': 'internal-token-of-the-tests' },
        body: {
          project_id: projectId,
          room_id: 'duel:table-7',
          request: {
            id: `${key.id}/order-1`,
            hash: expect.stringMatching(/^[\w-]{43}$/),
            do: {
              op: 'call',
              name: 'grant',
              data: { sub: 'ada', gold: 5 },
              caller: { key_id: key.id, call_id: 'order-1' },
            },
          },
        },
      },
    ])
    expect(node.requests[0]!.body).not.toHaveProperty('request.create')
  })

  it.each([
    [
      'open',
      'PUT',
      '',
      { options: { map: 'desert' } },
      { do: { op: 'open' }, create: { options: { map: 'desert' } } },
    ],
    ['open', 'PUT', '', undefined, { do: { op: 'open' }, create: {} }],
    [
      'reserve',
      'POST',
      '/reserve',
      { subs: ['ada', 'bob'], seconds: 30 },
      { do: { op: 'reserve', subs: ['ada', 'bob'], seconds: 30 } },
    ],
    [
      'kick',
      'POST',
      '/kick',
      { sub: 'ada', reason: 'foul play' },
      { do: { op: 'kick', sub: 'ada', reason: 'foul play' } },
    ],
    ['close', 'POST', '/close', undefined, { do: { op: 'close' } }],
    [
      'a call that opens',
      'POST',
      '/calls/grant?open=1',
      { gold: 1 },
      { do: { op: 'call', data: { gold: 1 } }, create: {} },
    ],
    [
      'a call without data',
      'POST',
      '/calls/tick',
      undefined,
      { do: { op: 'call', name: 'tick', data: null } },
    ],
    [
      'a call with a list',
      'POST',
      '/calls/set%20all',
      [1, null],
      { do: { op: 'call', name: 'set all', data: [1, null] } },
    ],
  ])('%s is a request of its room', async (_, method, path, body, request) => {
    expect(await sent(`${method} ${room}${path}`, { body })).toMatchObject({
      room_id: 'duel:table-7',
      request,
    })
  })

  it('the hash differs for different requests with one idempotency-key, and is the same for the same request', async () => {
    const headers = { 'idempotency-key': 'one' }
    const hashOf = async (path: string, body?: object) =>
      (await sent(`POST ${room}${path}`, { body, headers })).request.hash
    const hashes = [
      await hashOf('/calls/grant', { gold: 1 }),
      await hashOf('/calls/grant', { gold: 2 }),
      await hashOf('/calls/take', { gold: 1 }),
      await hashOf('/calls/grant?open=1', { gold: 1 }),
      await hashOf('/close'),
    ]
    expect(new Set(hashes).size).toBe(hashes.length)
    expect(await hashOf('/calls/grant', { gold: 1 })).toBe(hashes[0])
  })

  it('a request without idempotency-key gets a random one', async () => {
    const ids = [await sent(`POST ${room}/close`), await sent(`POST ${room}/close`)].map(
      (body) => body.request.id,
    )
    expect(ids[0]).not.toBe(ids[1])
    expect(ids[0]).toMatch(new RegExp(`^${key.id}/[\\w-]{21}$`))
  })

  it('a key and an operator cannot get each other’s outcomes', async () => {
    const headers = { 'idempotency-key': 'one' }
    const mine = await sent(`POST ${room}/close`, { headers })
    const theirs = (await control.call(`POST ${room}/close`, { headers })).status
    expect(theirs).toBe(200)
    expect(node.requests.at(-1)!.body).not.toMatchObject({ request: { id: mine.request.id } })
  })

  it('a read of a room names the wanted parts, and layers are for operators', async () => {
    await api(`GET ${room}`)
    await api(`GET ${room}?include_state=1`)
    expectProblem(await api(`GET ${room}?include_layers=1`), 403, 'forbidden')
    await control.call(`GET ${room}?include_state=1&include_layers=1`)
    const at = `GET /internal/room?project_id=${projectId}&room_id=duel%3Atable-7`
    expect(node.requests.map(({ line }) => line)).toEqual([
      at,
      `${at}&include_state=1`,
      `${at}&include_state=1&include_layers=1`,
    ])
  })

  it.each([
    [404, 'room_not_found'],
    [409, 'room_logic_refused'],
    [409, 'room_full'],
    [409, 'conflict'],
    [429, 'rate_limited'],
    [500, 'room_logic_failed'],
    [503, 'room_unavailable'],
    [504, 'timeout'],
  ])('a node’s %i %s is passed on with its text and retry-after', async (status, code) => {
    node.answer = { status, body: { code, detail: 'the text' }, headers: { 'retry-after': '3' } }
    const answer = await api(`POST ${room}/calls/grant`)
    expectProblem(answer, status, code)
    expect(answer.body.detail).toBe('the text')
    expect(answer.headers.get('retry-after')).toBe('3')
  })

  it.each([
    ['a body that is not JSON', '/calls/grant', '{', 400, 'invalid_request'],
    ['data of 65 levels', '/calls/grant', '['.repeat(65) + ']'.repeat(65), 400, 'invalid_request'],
    [
      'data of 30,000 levels',
      '/calls/grant',
      '['.repeat(30_000) + ']'.repeat(30_000),
      400,
      'invalid_request',
    ],
    [
      'data of more than 64 KiB',
      '/calls/grant',
      JSON.stringify('x'.repeat(65_536)),
      413,
      'payload_too_large',
    ],
    ['an unknown parameter', '/calls/grant?opened=1', '1', 400, 'invalid_request'],
    ['no subs', '/reserve', '{"subs":[],"seconds":1}', 400, 'invalid_request'],
    ['an unknown field', '/kick', '{"sub":"ada","ban":true}', 400, 'invalid_request'],
    ['a body', '/close', '{"force":true}', 400, 'invalid_request'],
  ])('%s is refused before a node is asked', async (_, path, body, status, code) => {
    expectProblem(await api(`POST ${room}${path}`, { body }), status, code)
    expect(node.requests).toEqual([])
  })

  it('an idempotency-key must be printable, and options an object', async () => {
    const headers = { 'idempotency-key': 'x'.repeat(256) }
    expectProblem(await api(`POST ${room}/calls/grant`, { headers }), 400, 'invalid_request')
    expectProblem(await api(`PUT ${room}`, { body: { options: [] } }), 400, 'invalid_request')
    expect(node.requests).toEqual([])
  })

  it('answers an operator with project_not_found if there is no such project', async () => {
    const line = 'POST /projects/prj_none/rooms/duel/a/close'
    expectProblem(await control.call(line), 404, 'project_not_found')
  })

  it('keys of a disabled project reach no rooms, and an operator reaches rooms but creates none', async () => {
    const id = await control.newProject()
    const scopes = ['room:call', 'room:read', 'player:manage']
    const { secret: as } = await control.newKey(id, { scopes })
    await control.call(`POST /projects/${id}/disable`)
    const at = `/projects/${id}/rooms/duel/a`
    const reserve = { subs: ['ada'], seconds: 30 }
    for (const [line, body] of [
      [`PUT ${at}`],
      [`POST ${at}/calls/grant`],
      [`POST ${at}/reserve`, reserve],
      [`POST ${at}/kick`, { sub: 'ada' }],
      [`POST ${at}/close`],
      [`GET ${at}`],
      [`GET /projects/${id}/rooms?type=duel`],
    ] as const)
      expectProblem(await api(line, { as, ...(body && { body }) }), 403, 'project_disabled')
    expectProblem(await control.call(`PUT ${at}`), 403, 'project_disabled')
    expect(node.requests).toEqual([])
    expect((await control.call(`POST ${at}/close`)).status).toBe(200)
  })
})
