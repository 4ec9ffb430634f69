import { existsSync, readFileSync } from 'node:fs'
import { pino } from 'pino'
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest'
import { closeError } from '../../client/errors.ts'
import { type ControlDeps, createControlApp } from '../../control/app.ts'
import type { GatewayOptions } from '../../dataplane/gateway/context.ts'
import { createAdminApp } from '../../dataplane/ops/admin.ts'
import { devRoutes } from '../../deploy/cli/dev-routes.ts'
import { codeKey } from '../../shared/ids.ts'
import { CLIENT_MESSAGES, type ClientMessage, type ServerMessage } from '../../shared/protocol/messages.ts'
import { memoryStore } from '../../shared/store/memory/memory.ts'
import { FakeClock } from '../kit/fake-clock.ts'
import { adminOptions } from '../support/admin-options.ts'
import { controlDeps } from '../support/control-deps.ts'
import type { TestClient } from '../support/gateway/test-gateway.ts'
import { TestGateway } from '../support/gateway/test-gateway.ts'
import {
  ADMIN,
  ADMIN_CREDENTIALS,
  type AdminCredential,
  CONTROL,
  CONTROL_CREDENTIALS,
  CONTROL_ROUTES,
  type ControlCredential,
  DEV,
  DEV_CALLERS,
  type DevCaller,
  HELLO,
  MESSAGES,
  STATES,
  type State,
} from './matrix.ts'

const OPERATOR = 'the-operator-of-the-matrix'
const INTERNAL = 'the-internal-token-of-the-matrix'
const log = pino({ level: 'silent' })

const keysOf = <K extends string>(record: Readonly<Record<K, unknown>>) => Object.keys(record) as K[]

/** Returns the routes of an app, such as `GET /path`. */
const routesOf = (app: { routes: readonly { method: string; path: string }[] }): string[] => [
  ...new Set(
    app.routes.filter(({ method }) => method !== 'ALL').map(({ method, path }) => `${method} ${path}`),
  ),
]

/** Returns `yes`, or the code of the problem in the answer. */
async function verdict(response: Response): Promise<string> {
  if (response.ok) return 'yes'
  expect(response.headers.get('content-type')).toBe('application/problem+json')
  return ((await response.json()) as { code: string }).code
}

describe('the control API', () => {
  const clock = new FakeClock()
  const store = memoryStore({ clock })
  const deps = controlDeps({ store, clock })
  const appWith = (operatorTokens: ControlDeps['operatorTokens']) =>
    createControlApp({
      ...deps,
      operatorTokens,
      nodes: {
        call: async () => ({ rooms: [], ended_rooms: 0, next_cursor: null }),
        adminPages: async () => [],
      },
      internalToken: INTERNAL,
      notifySecrets: [`whsec_${Buffer.alloc(32, 7).toString('base64')}`],
    })
  const closed = appWith([OPERATOR])
  const open = appWith([])

  const send = (line: string, body: object | undefined, headers: Record<string, string>, app = closed) => {
    const [method, path] = line.split(' ')
    return app.request(path!, {
      method: method!,
      headers: { host: 'localhost:3000', 'content-type': 'application/json', ...headers },
      ...(method !== 'GET' && method !== 'DELETE' && { body: JSON.stringify(body ?? {}) }),
    })
  }
  const create = async (line: string, body: object) =>
    (await send(line, body, { authorization: `Bearer ${OPERATOR}` })).json()
  const newProject = async (): Promise<string> => (await create('POST /projects', { name: 'matrix' })).id
  const newKey = (projectId: string, scopes?: string[]): Promise<{ id: string; secret: string }> =>
    create(`POST /projects/${projectId}/keys`, { scopes })

  /** Query and body of the routes that need them. */
  const REQUESTS: Readonly<Record<string, (projectId: string) => { query?: string; body?: object }>> = {
    'POST /projects': () => ({ body: { name: 'a game' } }),
    'PATCH /projects/:id': () => ({ body: { name: 'a game' } }),
    'POST /tokens': (projectId) => ({ body: { project_id: projectId } }),
    'POST /projects/:id/rooms/:type/:key/reserve': () => ({ body: { subs: ['ada'], seconds: 30 } }),
    'POST /projects/:id/rooms/:type/:key/kick': () => ({ body: { sub: 'ada' } }),
    'PUT /projects/:id/subs/:sub/data': () => ({ body: { data: { name: 'Ada' } } }),
    'PUT /admin/log-level': () => ({ body: { level: 'debug' } }),
    'GET /internal/key-status': (projectId) => ({ query: `?project_id=${projectId}` }),
  }

  let projectId: string
  const headers = {} as Record<ControlCredential, readonly Record<string, string>[]>
  beforeAll(async () => {
    projectId = await newProject()
    const scopes = ['token:mint', 'room:read', 'room:call', 'player:manage']
    const own = (await newKey(projectId, scopes)).secret
    const revoked = await newKey(projectId)
    await create(`POST /projects/${projectId}/keys/${revoked.id}/revoke`, {})
    const bearer = (credential: string) => ({ authorization: `Bearer ${credential}` })
    const other = own.endsWith('a') ? 'b' : 'a'
    Object.assign(headers, {
      none: [{}],
      wrong: [
        bearer('wrong'),
        bearer(`${OPERATOR}x`),
        bearer(own.replace(/.$/, other)),
        bearer(`${own.slice(0, -1)}!`),
        bearer(INTERNAL),
        { authorization: OPERATOR },
        { authorization: '' },
      ],
      operator: [bearer(OPERATOR)],
      own_key: [bearer(own)],
      foreign_key: [bearer((await newKey(await newProject(), scopes)).secret)],
      scopeless_key: [bearer((await newKey(projectId, ['reports:read'])).secret)],
      revoked_key: [bearer(revoked.secret)],
      internal: [{ 'x-service-internal-token': INTERNAL }],
      open: [{}],
    })
  })

  it('has a row for each route', () => {
    expect(routesOf(closed).sort()).toEqual([...CONTROL_ROUTES].sort())
  })

  describe.each(keysOf(CONTROL))('%s', (route) => {
    it.each(keysOf(CONTROL_CREDENTIALS))(`answers a request with %s as in the matrix`, async (credential) => {
      for (const shown of headers[credential]) {
        const { query = '', body } = REQUESTS[route]?.(projectId) ?? {}
        const keyId = route.includes(':keyId') ? (await newKey(projectId)).id : ''
        const isDeletion = route === 'DELETE /projects/:id'
        const id = isDeletion ? await newProject() : projectId
        if (isDeletion) await create(`POST /projects/${id}/disable`, {})
        const line = `${route.replace(':id', id).replace(':keyId', keyId).replace(':sub', 'ada').replace(':type', 'arena').replace(':key', 'one').replace(':name', 'grant').replace(':sessionId', 'ses_one')}${query}`
        const answer = await send(line, body, shown, credential === 'open' ? open : closed)
        const challenge = answer.headers.get('www-authenticate')
        expect(await verdict(answer)).toBe(CONTROL[route]![credential])
        if (answer.status === 401 && !route.includes('/internal/')) expect(challenge).toContain('Bearer')
      }
    })
  })
})

describe('the admin side of a node', () => {
  let drained = 0
  const appWith = (internalToken: string | undefined) =>
    createAdminApp({
      ...adminOptions(),
      internalToken,
      findOwner: async () => ({ epoch: 1, owner: null, ended: true }),
      drain: () => {
        drained += 1
      },
    })
  const node = appWith(INTERNAL)
  const unset = appWith(undefined)

  const HEADERS: Readonly<Record<AdminCredential, readonly Record<string, string>[]>> = {
    none: [{}],
    wrong: [
      { 'x-service-internal-token': 'wrong' },
      { 'x-service-internal-token': '' },
      { 'x-service-internal-token': `${INTERNAL},${INTERNAL}` },
    ],
    bearer: [{ authorization: `Bearer ${INTERNAL}` }],
    internal: [{ 'x-service-internal-token': INTERNAL }],
    unset: [{ 'x-service-internal-token': 'undefined' }],
  }
  const QUERIES: Readonly<Record<string, string>> = {
    'GET /admin/owner': '?project_id=prj_one&room_id=arena:one',
    'GET /admin/search': '?q=ada',
    'GET /admin/notices': '?project_id=prj_one',
    'GET /internal/rooms': '?project_id=prj_one',
    'DELETE /internal/project-rooms': '?project_id=prj_one',
    'DELETE /internal/sessions': '?project_id=prj_one&session_id=ses_one',
    'DELETE /internal/rooms': '?project_id=prj_one&room_id=arena:one&id=operator/1',
    'GET /internal/listings': '?project_id=prj_one&room_type=arena',
    'GET /internal/room': '?project_id=prj_one&room_id=arena:one',
  }

  const BODIES: Readonly<Record<string, string>> = {
    'PUT /admin/log-level': '{"level":"debug"}',
    'POST /admin/notices/resend': '{"project_id":"prj_one"}',
    'POST /internal/rooms/requests': JSON.stringify({
      project_id: 'prj_one',
      room_id: 'arena:one',
      request: { id: 'key_one/1', hash: '1', do: { op: 'close' } },
    }),
  }

  it('has a row for each route', () => {
    expect(routesOf(node).sort()).toEqual(keysOf(ADMIN).sort())
  })

  describe.each(keysOf(ADMIN))('%s', (route) => {
    it.each(keysOf(ADMIN_CREDENTIALS))('answers a request with %s as in the matrix', async (credential) => {
      const [method, path] = route.split(' ')
      for (const headers of HEADERS[credential]) {
        const before = drained
        const app = credential === 'unset' ? unset : node
        const body = BODIES[route]
        const answer = await app.request(`${path}${QUERIES[route] ?? ''}`, {
          method: method!,
          headers: { 'content-type': 'application/json', ...headers },
          ...(body !== undefined && { body }),
        })
        expect(await verdict(answer)).toBe(ADMIN[route]![credential])
        expect(drained - before).toBe(answer.status === 202 ? 1 : 0)
      }
    })
  })
})

describe('the routes for development', () => {
  const routes = devRoutes({
    issue: async () => ({ project_id: 'prj_1', token: 'a token' }),
    rooms: () => [],
    wsUrl: () => 'ws://127.0.0.1:4000',
    end: async (how) => how,
    call: async () => null,
    notices: () => [],
    log,
  })
  const FROM: Readonly<Record<DevCaller, { host?: string; origin?: string; remoteAddress?: string }>> = {
    program: {},
    page: { origin: 'http://localhost:5173' },
    extension: { origin: 'chrome-extension://localhost' },
    elsewhere: { origin: 'https://games.example' },
    renamed: { host: 'games.example:4000' },
    network: { host: '10.0.0.7:4000', remoteAddress: '10.0.0.8' },
  }

  it('has a row for each route', () => {
    expect([...routes.routes].sort()).toEqual(keysOf(DEV).sort())
  })

  describe.each(keysOf(DEV))('%s', (route) => {
    it.each(keysOf(DEV_CALLERS))('answers a request from %s as in the matrix', async (caller) => {
      const [method, path] = route.split(' ')
      const { host = 'localhost:4000', origin, remoteAddress = '127.0.0.1' } = FROM[caller]
      const status = await new Promise<number>((resolve) => {
        const request = {
          method,
          url: path,
          headers: { host, origin },
          socket: { remoteAddress },
          async *[Symbol.asyncIterator]() {
            yield Buffer.from(path === '/dev/call' ? '{"room":"duel:a","name":"end"}' : '{"sub":"ada"}')
          },
        }
        const response = { setHeader: () => undefined, writeHead: resolve, end: () => undefined }
        routes(request as never, response as never)
      })
      expect(status === 200 ? 'yes' : status).toBe(DEV[route]![caller])
    })
  })
})

/** Sends a message. Returns `yes` after the message `answer` (or after a pong, if there is none), or the refusal. */
async function verdictOf(client: TestClient, message: ClientMessage, answer: ServerMessage['t'] | undefined) {
  const before = client.received.length
  let closed: { readonly code: number; readonly reason: string } | undefined
  void client.closed.then((end) => {
    closed = end
  })
  client.send(message)
  if (!answer) client.send({ t: 'ping', at: -1 })
  const answers = () => client.received.slice(before)
  const refused = () => answers().find((each) => each.t === 'error')
  await vi.waitUntil(() => closed || refused() || answers().some(({ t }) => t === (answer ?? 'pong')), {
    interval: 2,
    timeout: 60_000,
  })
  if (closed) return { close: closeError(closed.code, closed.reason).code }
  const error = refused()
  return error?.t === 'error' ? { error: error.code } : 'yes'
}

describe('a hello', () => {
  type Hello = Extract<ClientMessage, { t: 'hello' }>
  const withToken = (token: string, projectId = 'prj_one'): Hello => ({
    t: 'hello',
    project_id: projectId,
    token,
  })
  const HELLOS: Readonly<Record<string, (test: TestGateway) => Promise<Hello>>> = {
    'a token': async (test) => withToken(await test.token()),
    'a token of the project’s own pair': async (test) => withToken(await test.token({ key_id: undefined })),
    'a token of the project’s own pair, where keys are required': async (test) =>
      withToken(await test.token({ key_id: undefined })),
    'no token': async () => withToken('letmein'),
    'a token with another key’s signature': async (test) => withToken(await test.forged()),
    'a token whose claims were changed': async (test) => {
      const [version, purpose, payload, footer] = (await test.token()).split('.')
      const bytes = Buffer.from(payload!, 'base64url')
      const text = bytes.subarray(0, -64).toString().replace('"ada"', '"eve"')
      const changed = Buffer.concat([Buffer.from(text), bytes.subarray(-64)]).toString('base64url')
      return withToken([version, purpose, changed, footer].join('.'))
    },
    'a token of another project': async (test) => withToken(await test.token(), 'prj_two'),
    'a token for another audience': async (test) => withToken(await test.token({ aud: 'game-us' })),
    'a token of a key that does not exist': async (test) =>
      withToken(await test.forged({ key_id: 'key_zzz' })),
    'a token with an empty key id': async (test) => withToken(await test.forged({ key_id: '' })),
    'a token of a revoked key': async (test) => {
      test.control.setStatus('revoked', 'prj_one', 'key_a')
      return withToken(await test.token())
    },
    'a token of a disabled project': async (test) => {
      test.gateway.setProjectDisabled('prj_one', true)
      return withToken(await test.token())
    },
    'a token that has expired': async (test) => withToken(await test.token({}, -1)),
    'a token that is not valid yet': async (test) =>
      withToken(await test.token({ issued_at: '2026-01-01T00:01:00.000Z' })),
    'a token of a player whose tokens were revoked': async (test) => {
      const token = await test.token()
      await test.record({ revoked_at: test.clock.now() })
      return withToken(token)
    },
    'a token of a banned player': async (test) => {
      await test.record({ ban: { until: null, room_types: null, reason: null } })
      return withToken(await test.token())
    },
    'a JWT of the project’s own login': async (test) => withToken(await test.jwt()),
    'a JWT that is not signed': async (test) => withToken((await test.jwt()).replace(/[^.]+$/, '')),
    'a resume token': async (test) => resumed(await away(test)),
    'a resume token that was used': async (test) => {
      const welcome = await away(test)
      const again = await test.resume(welcome)
      await again.next('welcome')
      await again.roundTrip()
      return resumed(welcome)
    },
    'a wrong resume token': async (test) => resumed({ ...(await away(test)), resume_token: 'x'.repeat(32) }),
    'a resume token under another project': async (test) => resumed(await away(test), 'prj_two'),
    'a resume token of another session': async (test) => {
      const [one, two] = [await away(test), await away(test)]
      return resumed({ ...one, resume_token: two.resume_token })
    },
    'a resume token of a session whose key was revoked': async (test) => {
      const welcome = await away(test)
      test.control.setStatus('revoked', 'prj_one', 'key_a')
      test.gateway.forgetKey('prj_one', 'key_a')
      return resumed(welcome)
    },
    'a resume token of a disabled project': async (test) => {
      const welcome = await away(test)
      // The node has received no message about it, and asks control.
      test.control.disabled = true
      test.gateway.forgetKey('prj_one', 'key_a')
      return resumed(welcome)
    },
    'a resume token of a player whose tokens were revoked': async (test) => {
      const welcome = await away(test)
      // The node has received no message about it, and reads the record.
      await test.record({ revoked_at: test.clock.now() })
      return resumed(welcome)
    },
    'a resume token of a banned player': async (test) => {
      const welcome = await away(test)
      await test.record({ ban: { until: null, room_types: null, reason: null } })
      return resumed(welcome)
    },
  }
  const OPTIONS: Readonly<Record<string, Partial<GatewayOptions>>> = {
    'a token of the project’s own pair, where keys are required': { requireKeyId: true },
    'a token for another audience': { tokenAudience: 'game-eu' },
  }

  /** Returns the `welcome` of a disconnected session with a seat. */
  async function away(test: TestGateway) {
    const { client, welcome } = await test.join()
    await test.owner.lose(client)
    return welcome
  }

  const resumed = (
    { session_id: sessionId, resume_token: resumeToken }: { session_id: string; resume_token: string },
    projectId = 'prj_one',
  ): Hello => ({
    t: 'hello',
    project_id: projectId,
    resume: { session_id: sessionId, resume_token: resumeToken, rooms: [] },
  })

  it.each(keysOf(HELLO))('with %s is answered as in the matrix', async (shown) => {
    const test = await TestGateway.start(OPTIONS[shown])
    try {
      const hello = await HELLOS[shown]!(test)
      const answer = await verdictOf(await test.open(), hello, 'welcome')
      expect(answer).toEqual(HELLO[shown] === 'yes' ? 'yes' : { close: HELLO[shown] })
    } finally {
      await test.close()
    }
  })
})

describe('a message', () => {
  let test: TestGateway
  beforeAll(async () => {
    const { records } = memoryStore({ clock: new FakeClock() })
    await records.write([{ put: codeKey('prj_one', 'K7QX2M'), value: Buffer.from('arena:one') }])
    test = await TestGateway.start({}, { records })
  })
  afterAll(() => test.close())

  /** Returns a client in the state. */
  const ENTER: Readonly<Record<State, () => Promise<TestClient>>> = {
    new: () => test.open(),
    outside: async () => (await test.hello()).client,
    inside: async () => (await test.join('one')).client,
    elsewhere: async () => (await test.join('two')).client,
    denied: async () => (await test.hello(await test.token({ rooms: ['arena:two'] }))).client,
    expired: async () => {
      const { client } = await test.join('one', await test.token({}, 5000))
      test.clock.advance(7000)
      return client
    },
    revoked: async () => {
      const keyId = `key_${test.clock.pending}_${test.owner.received.length}`
      await test.control.addKey('prj_one', keyId)
      const { client } = await test.join('one', await test.token({ key_id: keyId }))
      test.gateway.revokeKey('prj_one', keyId)
      return client
    },
    taken_over: async () => {
      const { client, welcome } = await test.join('one')
      await (await test.resume(welcome)).next('welcome')
      return client
    },
  }

  const roomId = 'arena:one'
  const SAMPLES: {
    readonly [T in ClientMessage['t']]: () => Promise<{ message: ClientMessage; answer?: ServerMessage['t'] }>
  } = {
    hello: async () => ({
      message: { t: 'hello', project_id: 'prj_one', token: await test.token() },
      answer: 'welcome',
    }),
    join: async () => ({
      message: { t: 'join', request_id: 7, room_type: 'arena', options: { key: 'one' } },
      answer: 'joined',
    }),
    leave: async () => ({ message: { t: 'leave', request_id: 7, room_id: roomId }, answer: 'left' }),
    message: async () => ({
      message: { t: 'message', room_id: roomId, type: 'move', data: null, ref: 1, settled: 0 },
      answer: 'ack',
    }),
    'state.resync': async () => ({
      message: { t: 'state.resync', room_id: roomId, reason: 'sequence' },
      answer: 'state.resync',
    }),
    ping: async () => ({ message: { t: 'ping', at: 1 }, answer: 'pong' }),
    token: async () => ({ message: { t: 'token', token: await test.token() } }),
    move: async () => ({ message: { t: 'move' }, answer: 'moved' }),
    goodbye: async () => ({ message: { t: 'goodbye' } }),
    rooms: async () => ({ message: { t: 'rooms', request_id: 7, room_type: 'arena' }, answer: 'rooms' }),
    'rooms.end': async () => ({ message: { t: 'rooms.end', request_id: 7 } }),
    find: async () => ({ message: { t: 'find', request_id: 7, code: 'K7QX2M' }, answer: 'found' }),
  }

  it('of each kind has a row', () => {
    expect(keysOf(MESSAGES).sort()).toEqual(Object.keys(CLIENT_MESSAGES).sort())
  })

  describe.each(keysOf(MESSAGES))('%s', (t) => {
    it.each(keysOf(STATES))('of a client in the state %s is answered as in the matrix', async (state) => {
      const { message, answer } = await SAMPLES[t]()
      const client = await ENTER[state]()
      const forwarded = test.owner.of('message').length
      const outcome = await verdictOf(client, message, answer)
      expect(outcome).toEqual(MESSAGES[t][state])
      const passed = t === 'message' && outcome === 'yes'
      expect(test.owner.of('message').length - forwarded).toBe(passed ? 1 : 0)
      client.ws.terminate()
    })
  })
})

describe('test/attack/README.md', () => {
  const page = readFileSync(new URL('../attack/README.md', import.meta.url), 'utf8')
  const groupsOf = (text: string, mark: string): string[] =>
    text
      .split(`\n${mark} `)
      .slice(1)
      .map((section) => section.split('\n')[0]!)

  it('has each group of threats of docs/security.md', () => {
    const security = readFileSync(new URL('../../docs/security.md', import.meta.url), 'utf8')
    const [threats = ''] = security.split('\n## Threats and defences\n')[1]!.split('\n## ')
    expect(groupsOf(page, '##')).toEqual(groupsOf(threats, '###'))
  })

  it('names tests that exist for each group', () => {
    for (const section of page.split('\n## ').slice(1)) {
      const paths = [...section.matchAll(/`([\w./-]+\.test\.ts)`/g)].map(([, path]) => path!)
      expect(paths, section).not.toEqual([])
      for (const path of paths) expect(existsSync(new URL(`../../${path}`, import.meta.url)), path).toBe(true)
    }
  })
})
