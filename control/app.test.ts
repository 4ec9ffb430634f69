import { pino } from 'pino'
import { beforeEach, describe, expect, it, vi } from 'vitest'
import { notifyKeys } from '../shared/notify-keys.ts'
import { systemRandom } from '../shared/random.ts'
import { memoryStore } from '../shared/store/memory/memory.ts'
import { type Store, StoreUnavailable } from '../shared/store/port.ts'
import { FakeClock } from '../test/kit/fake-clock.ts'
import { controlDeps } from '../test/support/control-deps.ts'
import { RecordingTracer } from '../test/support/tracing.ts'
import { type ControlDeps, createControlApp } from './app.ts'
import { Keyring } from './keyring.ts'

const OPERATOR = 'operator-token'
/** Origin of the `ADMIN_URL` of a node. */
const ADMIN_PAGE = 'http://node-1.internal:9100'

let clock: FakeClock
let store: Store
let logged: string[]

beforeEach(() => {
  clock = new FakeClock()
  store = memoryStore({ clock })
  logged = []
})

function rawAppWith(changes: Partial<ControlDeps> = {}) {
  return createControlApp({
    ...controlDeps({ store, clock }),
    log: pino({ level: 'debug' }, { write: (line) => logged.push(line) }),
    operatorTokens: [OPERATOR],
    nodes: { call: async () => ({}), adminPages: async () => [ADMIN_PAGE] },
    ...changes,
  })
}

function appWith(changes: Partial<ControlDeps> = {}) {
  const app = rawAppWith(changes)
  return async (
    line: string,
    body?: object,
    headers: Record<string, string> = { authorization: `Bearer ${OPERATOR}` },
  ) => {
    const [method, path] = line.split(' ')
    const response = await app.request(path!, {
      method: method!,
      headers: { host: '127.0.0.1:3000', ...(body && { 'content-type': 'application/json' }), ...headers },
      ...(body && { body: JSON.stringify(body) }),
    })
    return { status: response.status, headers: response.headers, body: JSON.parse(await response.text()) }
  }
}

describe('the notify key of a project', () => {
  it('is that of the project, and needs NOTIFY_SECRET at control', async () => {
    const secret = `whsec_${Buffer.alloc(32, 7).toString('base64')}`
    const call = appWith({ notifySecrets: [secret] })
    const { id } = (await call('POST /projects', { name: 'game' })).body
    const other = (await call('POST /projects', { name: 'another' })).body.id
    const keyOf = async (project: string) =>
      (await call(`GET /projects/${project}/notify-key`)).body.notify_key
    expect([await keyOf(id), await keyOf(other)]).toEqual([
      notifyKeys([secret], id)[0],
      notifyKeys([secret], other)[0],
    ])
    expect(await appWith()(`GET /projects/${id}/notify-key`)).toMatchObject({
      status: 409,
      body: { code: 'conflict', detail: expect.stringContaining('NOTIFY_SECRET is not set at control') },
    })
  })
})

describe('when the store cannot be reached', () => {
  it('every call answers 503 with retry-after, and the process is alive but not ready', async () => {
    const call = appWith({ internalToken: 'internal' })
    await store.close()
    const lines: [string, (object | undefined)?, Record<string, string>?][] = [
      ['POST /projects', { name: 'a' }],
      ['GET /projects'],
      ['POST /projects/prj_a/keys', {}],
      ['GET /projects/prj_a/keys'],
      ['POST /projects/prj_a/keys/key_a/revoke', {}],
      ['POST /projects/prj_a/keys/key_a/rotate', {}],
      ['POST /projects/prj_a/subs/ada/revoke', {}],
      ['POST /tokens', { project_id: 'prj_a' }],
      ['GET /internal/key-status?project_id=prj_a', undefined, { 'x-service-internal-token': 'internal' }],
      ['GET /readyz'],
    ]
    for (const [line, body, headers] of lines) {
      const answer = await call(line, body, headers)
      expect({ line, status: answer.status, code: answer.body.code }).toEqual({
        line,
        status: 503,
        code: 'store_unreachable',
      })
      expect(answer.headers.get('retry-after')).toBe('1')
    }
    expect((await call('GET /healthz')).status).toBe(200)
  })

  it.each([
    ['OOM', 'store_full', 'no memory left'],
    ['NOPERM', 'store_refused', '(NOPERM)'],
  ])('a store that answers %s causes the code %s', async (reply, code, detail) => {
    const call = appWith()
    store.ping = () => Promise.reject(new StoreUnavailable('as it says', reply))
    expect((await call('GET /readyz')).body).toMatchObject({
      status: 503,
      code,
      detail: expect.stringContaining(detail),
    })
  })

  it('the log has each kind of failure once in 10 s, with the number of suppressed lines', async () => {
    const call = appWith()
    store.ping = () => Promise.reject(new StoreUnavailable('as it says', 'OOM'))
    const lines = () =>
      logged
        .map((text) => JSON.parse(text))
        .filter(({ level }) => level === 40)
        .map(({ msg, failure, suppressed }) => [msg, failure, suppressed])
    const full = (suppressed: number) => ['the store failed a request', 'store_full', suppressed]
    for (let n = 0; n < 40; n++) await call('GET /readyz')
    expect(lines()).toEqual([full(0)])
    clock.advance(10_000)
    await call('GET /readyz')
    expect(lines()).toEqual([full(0), full(39)])
  })

  it('a request with a key’s secret gets 503, not 401', async () => {
    const call = appWith()
    const project = (await call('POST /projects', { name: 'a' })).body
    const key = (await call(`POST /projects/${project.id}/keys`, {})).body
    await store.close()
    const answer = await call(
      'POST /tokens',
      { project_id: project.id },
      { authorization: `Bearer ${key.secret}` },
    )
    expect(answer.status).toBe(503)
  })
})

describe('DELETE /projects/:id', () => {
  /** A project with two keys, and nodes with `batches` batches of rooms. The end of each batch takes `passes` ms. */
  async function setup(batches: number, passes = 0, meanwhile?: (id: string) => Promise<unknown>) {
    const asked: unknown[] = []
    const app = appWith({
      internalToken: 'internal',
      nodes: {
        adminPages: async () => [],
        call: async ({ method, path, query }) => {
          asked.push([method, path, query?.cursor])
          clock.advance(passes)
          await meanwhile?.(String(query?.project_id))
          return { ended_rooms: 50, next_cursor: asked.length < batches ? `page ${asked.length}` : null }
        },
      },
    })
    const { id } = (await app('POST /projects', { name: 'a' })).body
    const keys = [await app(`POST /projects/${id}/keys`, {}), await app(`POST /projects/${id}/keys`, {})]
    await app(`POST /projects/${id}/subs/ada/revoke`, {})
    return { app, asked, id: id as string, keys: keys.map(({ body }) => body) }
  }

  it('refuses an enabled project', async () => {
    const { app, asked, id } = await setup(1)
    const refused = await app(`DELETE /projects/${id}`)
    expect([refused.status, refused.body.code]).toEqual([409, 'conflict'])
    expect((await app(`GET /projects/${id}`)).status).toBe(200)
    expect(asked).toEqual([])
  })

  it('ends the rooms batch by batch, and leaves only a note of the project in the store', async () => {
    const { app, asked, id, keys } = await setup(3)
    const { id: other } = (await app('POST /projects', { name: 'other' })).body
    await app(`POST /projects/${id}/disable`, {})
    expect((await app(`DELETE /projects/${id}`)).body).toEqual({ id, deleted: true, ended_rooms: 150 })
    const batch = ['DELETE', '/internal/project-rooms']
    expect(asked).toEqual([
      [...batch, undefined],
      [...batch, 'page 1'],
      [...batch, 'page 2'],
    ])
    expect((await app(`GET /projects/${id}`)).body.code).toBe('project_not_found')
    expect((await app('GET /projects')).body.projects).toMatchObject([{ id: other }])
    for (const { secret } of keys) {
      const answer = await app('POST /tokens', { project_id: id }, { authorization: `Bearer ${secret}` })
      expect(answer.body.code).toBe('unauthenticated')
    }
    const left = ['{control}:projects', `{control}:keys:${id}`].map((index) =>
      store.records.page(index, { limit: 10 }),
    )
    expect((await Promise.all(left)).map(({ length }) => length)).toEqual([1, 0])
    const records = [`{control}:project:${id}`, `{control}:revoked-subs:${id}`]
    expect(await store.records.read(records)).toEqual([undefined, undefined])
  })

  it('reports the project as disabled to nodes for 48 h, for every key', async () => {
    const { app, id, keys } = await setup(1)
    const disabled = async (keyId?: string) => {
      const query = `project_id=${id}${keyId === undefined ? '' : `&key_id=${keyId}`}`
      const headers = { 'x-service-internal-token': 'internal' }
      const { body } = await app(`GET /internal/key-status?${query}`, undefined, headers)
      return [body.exists, body.project_disabled]
    }
    expect(await disabled('key_nobody')).toEqual([false, false])
    await app(`POST /projects/${id}/disable`, {})
    expect(await disabled('key_nobody')).toEqual([false, true])
    await app(`DELETE /projects/${id}`)
    for (const keyId of [keys[0].id, undefined]) expect(await disabled(keyId)).toEqual([false, true])
    clock.advance(48 * 3_600_000)
    expect(await disabled()).toEqual([false, false])
  })

  it('keeps the keys of a project that is enabled while its rooms end, also if it is disabled again', async () => {
    for (const actions of [['enable'], ['enable', 'disable']]) {
      const { app, id } = await setup(1, 1, async (project) => {
        for (const action of actions) await app(`POST /projects/${project}/${action}`, {})
      })
      await app(`POST /projects/${id}/disable`, {})
      expect((await app(`DELETE /projects/${id}`)).body).toMatchObject({ status: 409, code: 'conflict' })
      expect((await app(`GET /projects/${id}/keys`)).body.keys).toHaveLength(2)
    }
  })

  it('refuses to enable a project after the first key was removed, and can be repeated', async () => {
    const { app, id } = await setup(1)
    await app(`POST /projects/${id}/disable`, {})
    const down = vi.spyOn(store.records, 'page').mockRejectedValueOnce(new StoreUnavailable('down'))
    expect((await app(`DELETE /projects/${id}`)).status).toBe(503)
    expect(down).toHaveBeenCalledOnce()
    expect((await app(`POST /projects/${id}/enable`, {})).body).toMatchObject({
      status: 409,
      code: 'conflict',
    })
    expect((await app(`DELETE /projects/${id}`)).body.deleted).toBe(true)
  })

  it('answers after 15 s with deleted: false if rooms remain, and keeps the project and its keys', async () => {
    const { app, id } = await setup(10, 8000)
    await app(`POST /projects/${id}/disable`, {})
    expect((await app(`DELETE /projects/${id}`)).body).toEqual({ id, deleted: false, ended_rooms: 100 })
    expect((await app(`GET /projects/${id}/keys`)).body.keys).toHaveLength(2)
  })
})

describe('when a request fails with an unexpected error', () => {
  it('the answer has no internal details, and the log has the error with the same request id', async () => {
    const project = (await appWith()('POST /projects', { name: 'a' })).body
    const call = appWith({ keyring: new Keyring('some other secret', systemRandom) })
    const answer = await call('POST /tokens', { project_id: project.id })
    expect(answer.status).toBe(500)
    expect(answer.body.code).toBe('internal_error')
    expect(JSON.stringify(answer.body)).not.toMatch(/wrapped|keyring|\.[jt]s\b|stack/i)
    const line = logged.map((text) => JSON.parse(text)).find(({ level }) => level === 50)
    expect(line).toMatchObject({
      request_id: answer.body.request_id,
      err: { message: expect.stringContaining('wrapping key') },
    })
  })
})

describe('a caller that requests tokens above the rate', () => {
  it('gets 429 with retry-after, and tokens after that time, while other callers are served', async () => {
    const call = appWith({ tokenRate: { perSecond: 0.5, burst: 2 } })
    const projectId = (await call('POST /projects', { name: 'a' })).body.id
    const key = (await call(`POST /projects/${projectId}/keys`, {})).body
    const ask = async (credential: string) =>
      call('POST /tokens', { project_id: projectId }, { authorization: `Bearer ${credential}` })
    expect((await ask(OPERATOR)).status).toBe(200)
    expect((await ask(OPERATOR)).status).toBe(200)
    const refused = await ask(OPERATOR)
    expect(refused).toMatchObject({ status: 429, body: { code: 'rate_limited' } })
    expect(refused.headers.get('retry-after')).toBe('2')
    expect((await ask(key.secret)).status).toBe(200)
    clock.advance(2000)
    expect((await ask(OPERATOR)).status).toBe(200)
  })
})

describe('with REQUIRE_KEY_ID', () => {
  it('no token is issued without a key, and the error names the missing field', async () => {
    const call = appWith({ requireKeyId: true })
    const projectId = (await call('POST /projects', { name: 'a' })).body.id
    const key = (await call(`POST /projects/${projectId}/keys`, {})).body
    const refused = await call('POST /tokens', { project_id: projectId })
    expect(refused).toMatchObject({
      status: 400,
      body: { code: 'invalid_request', errors: [{ path: 'key_id' }] },
    })
    expect((await call('POST /tokens', { project_id: projectId, key_id: key.id })).status).toBe(200)
    const own = await call(
      'POST /tokens',
      { project_id: projectId },
      { authorization: `Bearer ${key.secret}` },
    )
    expect(own).toMatchObject({ status: 200, body: { claims: { key_id: key.id } } })
  })
})

describe('CORS', () => {
  const ask = { 'access-control-request-method': 'DELETE', 'access-control-request-headers': 'authorization' }
  const WRONG = [
    'http://evil.example',
    'https://node-1.internal:9100',
    'http://node-1.internal',
    'http://localhost.evil.example:9100',
    'null',
  ]

  it('lets admin pages of nodes, also through a tunnel, read answers and problems', async () => {
    const call = appWith()
    for (const origin of [ADMIN_PAGE, 'http://localhost:9100', 'http://127.0.0.1:1'])
      for (const [credential, status] of [
        [OPERATOR, 200],
        ['wrong', 401],
      ] as const) {
        const answer = await call('GET /projects', undefined, {
          origin,
          authorization: `Bearer ${credential}`,
        })
        expect([answer.status, answer.headers.get('access-control-allow-origin')]).toEqual([status, origin])
      }
  })

  it('allows these pages only the headers and methods of the admin page in preflights', async () => {
    const headers = { host: 'control:3000', origin: ADMIN_PAGE, ...ask }
    const answer = await rawAppWith().request('/projects/prj_a/sessions/ses_a', {
      method: 'OPTIONS',
      headers,
    })
    expect([answer.status, await answer.text()]).toEqual([204, ''])
    expect(answer.headers.get('access-control-allow-origin')).toBe(ADMIN_PAGE)
    expect(answer.headers.get('access-control-allow-headers')).toBe('authorization, content-type')
    expect(answer.headers.get('access-control-allow-methods')).toBe('GET, POST, PUT, DELETE')
    expect(answer.headers.has('access-control-allow-credentials')).toBe(false)
  })

  it('sends no CORS headers to pages of other origins', async () => {
    const call = appWith()
    for (const origin of WRONG)
      for (const [line, headers] of [
        ['OPTIONS /projects/prj_a/sessions/ses_a', ask],
        ['GET /projects', { authorization: `Bearer ${OPERATOR}` }],
      ] as const) {
        const answer = await call(line, undefined, { ...headers, origin })
        expect(answer.headers.has('access-control-allow-origin')).toBe(false)
      }
    expect((await call('OPTIONS /projects', undefined, { ...ask, origin: WRONG[0]! })).status).toBe(405)
  })

  it('while the API is open, sends CORS headers only to pages of this machine at the port of an ADMIN_URL', async () => {
    const adminPages = async () => [ADMIN_PAGE, 'http://127.0.0.1:9101', 'http://127.0.0.1']
    const call = appWith({ operatorTokens: [], nodes: { call: async () => ({}), adminPages } })
    expect((await call('GET /projects', undefined, { origin: ADMIN_PAGE })).status).toBe(403)
    for (const [origin, isAllowed] of [
      ['http://localhost:9100', true],
      ['http://127.0.0.1:9101', true],
      ['http://localhost:9101', true],
      ['http://localhost', true],
      ['http://localhost:5173', false],
      ['https://localhost:9101', false],
      ['http://127.0.0.1:1', false],
    ] as const) {
      const headers = { origin, 'sec-fetch-site': 'cross-site' }
      const answer = await call('GET /projects', undefined, headers)
      const allowed = answer.headers.get('access-control-allow-origin')
      expect([answer.status, origin, allowed]).toEqual([200, origin, isAllowed ? origin : null])
    }
  })
})

describe('with no operator token', () => {
  it('the API is open, and a key’s secret still has only the rights of its key', async () => {
    const call = appWith({ operatorTokens: [] })
    const projectId = (await call('POST /projects', { name: 'a' }, {})).body.id
    const key = (await call(`POST /projects/${projectId}/keys`, {}, {})).body
    const asKey = { authorization: `Bearer ${key.secret}` }
    expect((await call('POST /tokens', { project_id: projectId }, asKey)).body.claims.key_id).toBe(key.id)
    expect((await call('GET /projects', undefined, asKey)).status).toBe(403)
    const wrong = { authorization: `Bearer ${key.secret.slice(0, -4)}AAAA` }
    expect((await call('POST /tokens', { project_id: projectId }, wrong)).status).toBe(401)
  })

  it('a wrong credential gets 401', async () => {
    const call = appWith({ operatorTokens: [] })
    for (const authorization of ['Bearer operator-token', 'Bearer ', 'Basic b3BlbjpvcGVu', ''])
      expect((await call('GET /projects', undefined, { authorization })).status).toBe(401)
  })

  const LOCAL = [
    'localhost',
    'localhost:3000',
    'LOCALHOST:1',
    '127.0.0.1:3000',
    '127.8.9.1',
    '[::1]',
    '[::1]:3000',
  ]
  const FOREIGN = [
    'evil.example',
    'evil.example:3000',
    '192.168.1.7:3000',
    'localhost.evil.example',
    '127.0.0.1.evil.example',
    '[2001:db8::1]:3000',
    '',
  ]

  it('requests with a host other than this machine get 403', async () => {
    const call = appWith({ operatorTokens: [] })
    for (const host of LOCAL) expect((await call('GET /projects', undefined, { host })).status).toBe(200)
    for (const host of FOREIGN)
      for (const line of ['GET /projects', 'GET /metrics', 'GET /docs', 'GET /nothing'])
        expect(await call(line, undefined, { host })).toMatchObject({
          status: 403,
          body: { code: 'cross_origin' },
        })
    const refused = await call('POST /projects', { name: 'a' }, { host: 'evil.example' })
    expect(refused).toMatchObject({ status: 403, headers: expect.any(Headers) })
    expect(refused.headers.get('content-type')).toBe('application/problem+json')
    expect((await call('GET /projects', undefined, {})).body.projects).toEqual([])
  })

  it('an API that is open to everyone accepts any host, but no page of another origin', async () => {
    const call = appWith({ operatorTokens: [], openTo: 'everyone' })
    const host = 'control.internal:3000'
    expect((await call('GET /projects', undefined, { host })).status).toBe(200)
    expect((await call('GET /projects', undefined, { host, origin: `http://${host}` })).status).toBe(200)
    expect((await call('GET /projects', undefined, { host, origin: 'http://evil.example' })).status).toBe(403)
  })

  it('requests of pages of another origin get 403', async () => {
    const call = appWith({ operatorTokens: [] })
    const foreign = [
      ...[
        'http://evil.example',
        'https://localhost.evil.example',
        'null',
        'file://',
        'http://evil.example#localhost',
      ].map((origin) => ({ origin })),
      { 'sec-fetch-site': 'cross-site' },
    ]
    for (const headers of foreign)
      for (const line of ['GET /projects', 'POST /projects'])
        expect(await call(line, line.startsWith('POST') ? { name: 'a' } : undefined, headers)).toMatchObject({
          status: 403,
          body: { code: 'cross_origin' },
        })
    for (const headers of [
      { origin: 'http://localhost:8080' },
      { 'sec-fetch-site': 'same-origin' },
      { 'sec-fetch-site': 'none' },
    ])
      expect((await call('POST /projects', { name: 'a' }, headers)).status).toBe(201)
  })

  it('requests of other pages without a body get 403 too, because browsers send them without a preflight', async () => {
    const call = appWith({ operatorTokens: [] })
    const projectId = (await call('POST /projects', { name: 'a' }, {})).body.id
    const key = (await call(`POST /projects/${projectId}/keys`, {}, {})).body
    for (const type of [undefined, 'text/plain', 'application/x-www-form-urlencoded'])
      for (const from of [
        { origin: 'http://evil.example' },
        { origin: 'null' },
        { 'sec-fetch-site': 'cross-site' },
      ])
        for (const what of ['keys', `keys/${key.id}/revoke`, `keys/${key.id}/rotate`]) {
          const headers = { ...from, ...(type !== undefined && { 'content-type': type }) }
          const answer = await call(`POST /projects/${projectId}/${what}`, undefined, headers)
          expect(answer).toMatchObject({ status: 403, body: { code: 'cross_origin' } })
        }
    expect((await call(`GET /projects/${projectId}/keys`, undefined, {})).body.keys).toMatchObject([
      { status: 'active' },
    ])
  })
})

describe('with no internal token', () => {
  it('/internal answers 401 to every caller', async () => {
    const call = appWith({ operatorTokens: [] })
    for (const token of ['', 'undefined', 'anything']) {
      const answer = await call('GET /internal/key-status?project_id=prj_a', undefined, {
        'x-service-internal-token': token,
      })
      expect(answer.status).toBe(401)
    }
  })
})

describe('a process whose clock is wrong', () => {
  it('is not ready, and reports the difference', async () => {
    const call = appWith({ clockWrong: () => 'the clock of this process is 31 s ahead' })
    expect(await call('GET /readyz')).toMatchObject({
      status: 503,
      body: { code: 'clock_wrong', detail: expect.stringContaining('31 s ahead') },
    })
  })
})

describe('a process that is shutting down', () => {
  it('is not ready, answers requests, and asks to close the connection', async () => {
    const call = appWith({ draining: () => true })
    expect(await call('GET /readyz')).toMatchObject({ status: 503, body: { code: 'draining' } })
    const answer = await call('POST /projects', { name: 'a' })
    expect(answer.status).toBe(201)
    expect(answer.headers.get('connection')).toBe('close')
  })
})

describe('the store', () => {
  it('contains no key’s secret and no private key in plain text', async () => {
    const values: string[] = []
    const write = store.records.write.bind(store.records)
    store.records.write = (writes) => {
      for (const one of writes) if ('value' in one) values.push(Buffer.from(one.value).toString('latin1'))
      return write(writes)
    }
    const call = appWith()
    const project = (await call('POST /projects', { name: 'a' })).body
    const headers = { authorization: `Bearer ${OPERATOR}`, 'idempotency-key': 'once' }
    const key = (await call(`POST /projects/${project.id}/keys`, {}, headers)).body
    const all = values.join('\n')
    expect(all).toContain(key.id)
    expect(all).not.toContain(key.secret)
    expect(all).not.toContain('k4.secret.')
    expect(all).toContain('k4.secret-wrap.pie.')
  })
})

describe('the log', () => {
  it('has a line for each request with its caller, and no credential, token or body', async () => {
    const call = appWith()
    const project = (await call('POST /projects', { name: 'a very private name' })).body
    const key = (await call(`POST /projects/${project.id}/keys`, {})).body
    const { token } = (
      await call('POST /tokens', { project_id: project.id }, { authorization: `Bearer ${key.secret}` })
    ).body
    const text = logged.join('')
    const last = JSON.parse(logged.at(-1)!)
    expect(last).toMatchObject({
      method: 'POST',
      route: '/tokens',
      status: 200,
      caller_id: key.id,
      msg: 'request',
    })
    for (const hidden of [OPERATOR, key.secret, token, 'a very private name'])
      expect(text).not.toContain(hidden)
  })
})

describe('the trace', () => {
  const CALLER = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'
  const headers = { authorization: `Bearer ${OPERATOR}`, traceparent: CALLER }

  it('of a caller includes its requests, and the log has its id', async () => {
    const tracer = new RecordingTracer(clock)
    const call = appWith({ tracer })
    const answer = await call('POST /projects', { name: 'a' }, headers)
    await call(`GET /projects/${answer.body.id}/keys?limit=1`, undefined, headers)
    expect(tracer.spans).toMatchObject([
      { name: 'POST /projects', parent: CALLER, attributes: { 'http.response.status_code': 201 } },
      {
        name: 'GET /projects/:id/keys',
        parent: CALLER,
        attributes: { 'http.route': '/projects/:id/keys', 'url.path': `/projects/${answer.body.id}/keys` },
      },
    ])
    expect(JSON.parse(logged[0]!).trace_id).toBe('0af7651916cd43dd8448eb211c80319c')
  })

  it('is absent from the log and from tokens if the request is not traced', async () => {
    const call = appWith()
    const project = (await call('POST /projects', { name: 'a' }, headers)).body
    const { claims } = (await call('POST /tokens', { project_id: project.id }, headers)).body
    expect(claims).not.toHaveProperty('traceparent')
    expect(logged.join('')).not.toContain('trace_id')
  })

  it('marks spans as failed for errors of the service, not for errors of the caller', async () => {
    const tracer = new RecordingTracer(clock)
    const call = appWith({ tracer })
    await call('POST /tokens', { project_id: 'prj_a' }, { ...headers, authorization: 'Bearer wrong' })
    await store.close()
    await call('POST /tokens', { project_id: 'prj_a' }, headers)
    expect(tracer.spans).toMatchObject([
      {
        failed: undefined,
        attributes: { 'http.response.status_code': 401, 'error.type': 'unauthenticated' },
      },
      { failed: 'store_unreachable', attributes: { 'http.response.status_code': 503 } },
    ])
  })

  it('has no spans of health checks and metrics, and no unknown paths', async () => {
    const tracer = new RecordingTracer(clock)
    const call = appWith({ tracer })
    await call('GET /healthz')
    await call('GET /readyz')
    await call('GET /a-secret-that-was-put-here')
    expect(tracer.spans).toMatchObject([{ name: 'GET', took: 0 }])
    expect(JSON.stringify(tracer.spans)).not.toContain('a-secret')
  })

  it('goes into the token with its tracestate, unless the token would become too long', async () => {
    const call = appWith({ tracer: new RecordingTracer(clock) })
    const projectId = (await call('POST /projects', { name: 'a' })).body.id
    const traced = { ...headers, tracestate: `vendor=${'x'.repeat(200)}` }
    const ask = async (length: number) => {
      const rooms = Array.from({ length: 62 }, () => `a:${'x'.repeat(length)}`)
      const { status, body } = await call('POST /tokens', { project_id: projectId, rooms }, traced)
      return {
        status,
        code: body.code,
        carried: Object.keys(body.claims ?? {}).filter((name) => /^trace/.test(name)),
      }
    }
    expect(await ask(10)).toMatchObject({ status: 200, carried: ['traceparent', 'tracestate'] })
    expect(await ask(87)).toMatchObject({ status: 200, carried: ['traceparent'] })
    expect(await ask(90)).toMatchObject({ status: 200, carried: [] })
    expect(await ask(91)).toMatchObject({ status: 400, code: 'invalid_request' })
  })
})
