import { afterEach, expect, onTestFinished, test, vi } from 'vitest'
import { FakePage } from '../test/support/client/fake-browser.ts'
import {
  code,
  inRoom,
  online,
  play,
  statuses,
  turn,
  URL,
  unsignedToken,
} from '../test/support/client/play.ts'
import { connect, type RoomfulError } from './index.ts'
import { watchPage } from './page.ts'

test('connect sends a hello in MessagePack with the token', async () => {
  const { server, client } = await online()
  expect(server.socket.url).toBe(URL)
  expect(server.socket.protocols).toEqual(['roomful.v1.msgpack'])
  expect(server.all('hello')).toMatchObject([{ project_id: 'prj_1', token: 'v4.public.unreadable' }])
  expect(client.status).toBe('online')
})

test('connect rejects without a retry when the server refuses the token', async () => {
  const { server, options } = play()
  server.onHello = () => server.socket.end(4001, 'bad signature')
  await expect(connect(URL, options)).rejects.toThrow(
    'The server closed the connection (4001): bad signature',
  )
  await expect(connect(URL, options)).rejects.toEqual(code('unauthenticated'))
  expect(server.sockets).toHaveLength(2)
})

test('the error of a close adds no second dot to the server’s reason', async () => {
  const { server, options } = play()
  server.onHello = () => server.socket.end(4001, 'the token has expired.')
  await expect(connect(URL, options)).rejects.toThrow(/: the token has expired\.$/)
})

test('connect tries again while the server is not reachable', async () => {
  const { server, options, pass } = play()
  server.onDial = (socket) =>
    queueMicrotask(() => (server.sockets.length < 4 ? socket.end(1006) : socket.accept()))
  const connecting = connect(URL, options)
  await pass(8000)
  expect((await connecting).status).toBe('online')
  expect(server.sockets).toHaveLength(4)
})

test('connect rejects after connectTimeoutMs', async () => {
  const { server, options, pass, clock } = play({ connectTimeoutMs: 3000 })
  server.onDial = (socket) => queueMicrotask(() => socket.end(1006))
  const refused = expect(connect(URL, options)).rejects.toThrow(
    'No connection to ws://roomful.test within 3000 ms. No connection to ws://roomful.test (1006).',
  )
  await pass(3000)
  await refused
  expect(clock.pending).toBe(0)
})

test.each([
  { message: 'certificate has expired' },
  { message: '', error: new TypeError('network error', { cause: new Error('certificate has expired') }) },
])('connect rejects with the platform’s reason for a failed socket (%j)', async (event) => {
  const { server, options } = play({ reconnect: false })
  server.onDial = (socket) => queueMicrotask(() => socket.end(1006, '', event))
  await expect(connect(URL, options)).rejects.toThrow(
    'No connection to ws://roomful.test (certificate has expired).',
  )
})

test('connect tries once with reconnect: false', async () => {
  const { server, options } = play({ reconnect: false })
  server.onDial = (socket) => queueMicrotask(() => socket.end(1006))
  await expect(connect(URL, options)).rejects.toEqual(code('connection_failed'))
  expect(server.sockets).toHaveLength(1)
})

test('connect rejects a bad URL, and names it', async () => {
  const { options } = play()
  class Strict {
    constructor(url: string) {
      throw new SyntaxError(`the URL ${url} is invalid`)
    }
  }
  await expect(connect('ws://nonsense', { ...options, WebSocket: Strict as never })).rejects.toThrow(
    'the URL ws://nonsense is invalid',
  )
})

test('connect rejects when getToken fails', async () => {
  const { token: _, ...options } = play().options
  await expect(connect(URL, options)).rejects.toEqual(code('token_unavailable'))
})

const answer = { project_id: 'prj_1', token: 'v4.public.unreadable' }

test.each<[unknown, unknown, string]>([
  ['is rejected with an Error', new Error('backend down'), 'getToken failed: backend down'],
  ['is rejected with a problem document', { detail: 'ada is banned' }, 'getToken failed: ada is banned'],
  [
    'is rejected with a response',
    new Response('{"detail":"ada is banned"}', { status: 403 }),
    'getToken failed: ada is banned',
  ],
  ['is rejected with a text', 'sign in first', 'getToken failed: sign in first'],
])('the error of connect has the text of the backend when getToken %s', async (_, rejection, message) => {
  const { token: _token, ...options } = play().options
  const getToken = () => Promise.reject(rejection)
  await expect(connect(URL, { ...options, getToken })).rejects.toMatchObject({
    code: 'token_unavailable',
    message,
  })
})

test.each<[string, unknown, string]>([
  ['the object', answer, 'pass `answer.token`'],
  ['its text', JSON.stringify(answer), 'pass `answer.token`'],
  ['the text of a problem', '{"detail":"ada is banned"}', 'ada is banned'],
  ['nothing', undefined, 'it is undefined'],
])('connect rejects with a reason when getToken returns %s instead of a token', async (_, given, message) => {
  const { token: _token, ...options } = play().options
  const getToken = async () => given as string
  const refused = await connect(URL, { ...options, getToken }).catch((error: RoomfulError) => error)
  expect(refused).toEqual(code('token_unavailable'))
  expect((refused as RoomfulError).message).toContain(message)
})

test('connect reads the project from the token', async () => {
  const { server, options } = play({ token: unsignedToken() })
  const { projectId: _, ...without } = options
  await connect(URL, without)
  expect(server.all('hello')).toMatchObject([{ project_id: 'prj_1' }])
  await expect(connect(URL, { ...without, token: 'e30.e30.' })).rejects.toThrow('give projectId')
})

test('connect with dev and no address uses the default port of roomful dev', async () => {
  const { server, options } = play()
  const { projectId: _, token: _token, getToken: _get, ...others } = options
  vi.stubGlobal('fetch', async (address: globalThis.URL, { method, body }: RequestInit) => {
    expect([String(address), method, body]).toEqual([
      'http://localhost:4000/dev/token',
      'POST',
      '{"sub":"alice"}',
    ])
    return Response.json({ project_id: 'prj_1', token: unsignedToken() })
  })
  onTestFinished(() => void vi.unstubAllGlobals())
  await connect({ ...others, dev: 'alice' })
  expect(server.socket.url).toBe('ws://localhost:4000')
})

test('connect with dev and no address uses ROOMFUL_URL', async () => {
  const { server, options } = play()
  const { projectId: _, token: _token, getToken: _get, ...others } = options
  vi.stubEnv('ROOMFUL_URL', 'ws://localhost:4001')
  vi.stubGlobal('fetch', async () => Response.json({ token: unsignedToken() }))
  onTestFinished(() => {
    vi.unstubAllEnvs()
    vi.unstubAllGlobals()
  })
  await connect({ ...others, dev: 'alice' })
  expect(server.socket.url).toBe('ws://localhost:4001')
})

test.each([
  ['where nothing answers', () => Promise.reject(new TypeError('fetch failed')), 'nothing answers'],
  [
    'where something else answers',
    async () => Response.json({ detail: 'there is no such route' }, { status: 404 }),
    'http://localhost:3000 is something else',
  ],
])('connect with dev rejects with connection_failed at a port %s', async (_, answers, message) => {
  const { options, pass } = play()
  const { projectId: _id, token: _token, getToken: _get, ...others } = options
  vi.stubGlobal('fetch', answers)
  onTestFinished(() => void vi.unstubAllGlobals())
  const refused = connect('ws://localhost:3000', { ...others, dev: 'alice' }).catch(
    (error: RoomfulError) => error,
  )
  await pass(10_000)
  expect(await refused).toEqual(code('connection_failed'))
  expect(((await refused) as RoomfulError).message).toContain(message)
})

test('connect with dev rejects immediately on a page of another machine', async () => {
  const { options } = play()
  const { projectId: _id, token: _token, getToken: _get, ...others } = options
  vi.stubGlobal('location', new globalThis.URL('http://192.168.1.5:5173/'))
  vi.stubGlobal('fetch', () => Promise.reject(new TypeError('Failed to fetch')))
  onTestFinished(() => void vi.unstubAllGlobals())
  await expect(connect('ws://localhost:4000', { ...others, dev: 'alice' })).rejects.toMatchObject({
    code: 'connection_failed',
    message:
      '`dev` needs `roomful dev`, and http://localhost:4000 answers only pages of localhost, not http://192.168.1.5:5173: other devices need `--lan`.',
  })
})

test.each(['http://localhost:4000', 'localhost:4000'])('connect rejects the address %s', async (address) => {
  await expect(connect(address, play().options)).rejects.toMatchObject({
    code: 'invalid_options',
    message: `The address is "${address}": it must begin with ws:// or wss://.`,
  })
})

test('an aborted signal rejects a pending connect', async () => {
  const { server, options, clock } = play()
  server.onDial = () => {}
  const abort = new AbortController()
  const refused = expect(connect(URL, { ...options, signal: abort.signal })).rejects.toEqual(
    code('client_closed'),
  )
  await turn()
  abort.abort()
  await refused
  expect(server.socket.closed).toBe(true)
  expect(clock.pending).toBe(0)
  await expect(connect(URL, { ...options, signal: abort.signal })).rejects.toEqual(code('client_closed'))
})

test('close sends a goodbye and rejects all pending promises', async () => {
  const { client, server, room, clock } = await inRoom()
  const seen = statuses(client)
  const reasons: unknown[] = []
  room.onLeave((reason, error) => reasons.push([reason, error]))
  const refused = expect(room.send('move')).rejects.toEqual(code('client_closed'))
  client.close()
  client.close()
  await refused
  expect(server.all('goodbye')).toHaveLength(1)
  expect(server.socket.closed).toBe(true)
  expect(seen).toEqual(['closed'])
  expect(reasons).toEqual([['client_closed', code('client_closed')]])
  expect(clock.pending).toBe(0)
  await expect(client.join('arena')).rejects.toEqual(code('client_closed'))
})

test('close while reconnecting stops the attempt', async () => {
  const { client, server, clock, pass } = await online()
  server.onDial = () => {}
  server.socket.end(1006)
  await pass(300)
  expect(server.sockets).toHaveLength(2)
  client.close()
  expect(server.socket.closed).toBe(true)
  expect(clock.pending).toBe(0)
  expect(client.status).toBe('closed')
})

test('a close between hello and welcome sends a goodbye, because the server may have the session by then', async () => {
  const { client, server, pass } = await online()
  server.onHello = () => {}
  server.socket.end(1006)
  await pass(300)
  client.close()
  expect(server.socket.said.map(({ t }) => t)).toEqual(['hello', 'goodbye'])
  const controller = new AbortController()
  const scene = play({ signal: controller.signal })
  scene.server.onHello = () => {}
  const refused = expect(connect(URL, scene.options)).rejects.toEqual(code('client_closed'))
  await turn()
  controller.abort()
  await refused
  expect(scene.server.socket.said.map(({ t }) => t)).toEqual(['hello', 'goodbye'])
})

test('a close before the socket is open sends nothing', async () => {
  const controller = new AbortController()
  const { server, options } = play({ signal: controller.signal })
  server.onDial = () => {}
  const refused = expect(connect(URL, options)).rejects.toEqual(code('client_closed'))
  await turn()
  controller.abort()
  await refused
  expect(server.socket.said).toEqual([])
})

test('watchPage distinguishes a page that is closed from one in the back/forward cache', () => {
  const page = new FakePage()
  const seen: string[] = []
  const stop = watchPage(page, {
    leaves: (forGood) => seen.push(forGood ? 'leaves' : 'hides'),
    returns: () => seen.push('returns'),
    online: () => seen.push('online'),
  })
  page.fire('pageshow', { persisted: false })
  page.fire('pagehide', { persisted: true })
  page.fire('pageshow', { persisted: true })
  page.fire('online')
  page.fire('pagehide', { persisted: false })
  expect(seen).toEqual(['hides', 'returns', 'online', 'leaves'])
  stop()
  page.fire('pagehide', { persisted: false })
  page.fire('pageshow')
  page.fire('online')
  expect(seen).toHaveLength(4)
})

afterEach(() => vi.unstubAllGlobals())

test('in a browser, a client sends a goodbye when its page is closed', async () => {
  const page = new FakePage()
  vi.stubGlobal('window', page)
  const { client, server } = await online()
  page.fire('pagehide', { persisted: true })
  expect(client.status).toBe('online')
  page.fire('pagehide', { persisted: false })
  expect(client.status).toBe('closed')
  expect(server.heard.at(-1)).toEqual({ t: 'goodbye' })
  expect(server.socket.closed).toBe(true)
  expect(page.listeners).toBe(0)
})

test('in a browser, a client reconnects immediately when the network is back', async () => {
  const page = new FakePage()
  vi.stubGlobal('window', page)
  const { client, server, pass } = await online({ random: { bytes: () => new Uint8Array(), float: () => 1 } })
  server.onDial = (socket) => queueMicrotask(() => socket.end(1006))
  server.socket.end(1006)
  await pass(12_000)
  server.onDial = (socket) => queueMicrotask(() => socket.accept())
  page.fire('online')
  page.fire('online')
  await pass(1)
  expect(client.status).toBe('online')
  expect(server.all('hello')).toHaveLength(2)
})
