import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs'
import { request as ask, createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { runInNewContext } from 'node:vm'
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { WebSocket, WebSocketServer } from 'ws'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { newFolder } from '../../test/support/run-folder.ts'
import { type Lan, lanText, openLan } from './lan.ts'

const SECRET = 'a-secret-of-22-letters'
const clock = new FakeClock()

/** Paths that the server of the page got. */
const paths: string[] = []
const page = createServer((request, response) => {
  paths.push(request.url!)
  response.setHeader('content-type', 'text/html')
  response.end(`the page, asked as ${request.headers.host} from ${request.headers.origin}`)
})
const sockets = { page: new WebSocketServer({ server: page }), rooms: new WebSocketServer({ port: 0 }) }
const issued: object[] = []

const options = () => ({
  page: `http://127.0.0.1:${portOf(page.address())}`,
  websocket: `ws://127.0.0.1:${portOf(sockets.rooms.address())}`,
  root,
  secret: SECRET,
  issue: async (player: object) => {
    issued.push(player)
    return { project_id: 'prj_1', token: 'a token' }
  },
  clock,
  hosts: ['127.0.0.1'],
})

let lan: Lan
let origin: string
let host: string
let root: string

const portOf = (address: unknown): number => (address as AddressInfo).port

beforeAll(async () => {
  await new Promise<void>((resolve) => page.listen(0, '127.0.0.1', resolve))
  for (const [name, server] of Object.entries(sockets))
    server.on('connection', (socket) => socket.send(`here is ${name}`))
  root = await newFolder()
  mkdirSync(join(root, 'src'))
  writeFileSync(join(root, 'src/main.ts'), 'main')
  symlinkSync('/etc/passwd', join(root, 'src/link.ts'))
  lan = await openLan(options())
  origin = lan.origins[0]!
  host = new URL(origin).host
})
afterAll(async () => {
  await lan.close()
  for (const server of Object.values(sockets)) server.close()
  page.close()
})
beforeEach(() => {
  paths.length = 0
  // Wrong secrets of earlier tests are forgotten.
  clock.advance(60_000)
})

/** Cookies of a device that has opened the printed address. */
const KNOWN = `theme=dark; roomful_lan=${SECRET}`

/** Sends a request whose path `fetch` would change, with the secret in its cookies. */
function send(path: string, headers: Record<string, string> = {}, method = 'GET', body = '') {
  return new Promise<{ status: number; text: string }>((resolve, reject) => {
    const { hostname, port } = new URL(origin)
    const all = { host, cookie: KNOWN, ...headers }
    const sent = ask({ host: hostname, port, path, method, headers: all }, (response) => {
      let text = ''
      response.on('data', (chunk) => (text += chunk))
      response.on('end', () => resolve({ status: response.statusCode!, text }))
    })
    sent.on('error', reject)
    sent.end(body)
  })
}

const signIn = (body: object) => send('/dev/token', { origin, cookie: '' }, 'POST', JSON.stringify(body))

describe('roomful dev --lan', () => {
  it('serves the page without its origin, which the server of the page does not know', async () => {
    const answer = await send('/src/main.ts?t=1', { origin })
    expect(answer).toEqual({ status: 200, text: `the page, asked as ${host} from undefined` })
    for (const path of ['/', '/lobby/ABCD', '/@vite/client', '/node_modules/.vite/deps/react.js', '/home'])
      expect([path, (await send(path)).status]).toEqual([path, 200])
    expect(paths).toContain('/src/main.ts?t=1')
  })

  it.each([
    '/.env',
    '/.env.local?raw??',
    '/.env/.',
    '/%2eenv',
    '/src/../.env',
    '/.git/config',
    '/etc/passwd',
    '//etc/passwd?raw',
    '/@fs/etc/passwd',
    '/@fs//etc/passwd?import&raw',
    '/@fs/%65tc/passwd',
    '/base/@fs/etc/passwd',
    '/@id//etc/passwd',
    '/src/link.ts',
    '/%252e%252e/etc/passwd',
    '/src/..%5c..%5cetc/passwd',
    '/a%00b',
    '/%',
    '/deploy/backend.env',
    '/game.db?raw',
    '/game.db-wal',
    '/__open-in-editor?file=/etc/passwd',
    '/base/__open-in-editor?file=x',
    '/dev/rooms',
    '/dev/token',
    '/dev/kill?room=a:b',
    '/playground',
  ])('refuses %s before the server of the page sees it', async (path) => {
    expect((await send(path)).status).toBe(403)
    expect(paths).toEqual([])
  })

  it.each([
    ['GET', '/'],
    ['GET', '/src/main.ts'],
    ['GET', '/api/coins'],
    ['POST', '/api/session'],
  ])(
    'answers %s %s without the secret with a page that takes it from the address, and asks no other server',
    async (method, path) => {
      for (const cookie of ['', 'roomful_lan=of-an-earlier-start']) {
        const answer = await send(path, { origin, cookie }, method)
        expect(answer).toEqual({ status: 403, text: expect.stringContaining('scan the code again') })
        expect(answer.text).toContain('location.hash')
        expect(answer.text).not.toContain(SECRET)
      }
      expect(paths).toEqual([])
    },
  )

  it('answers a browser that opens the address with this page, and with no error', async () => {
    const browser = { cookie: '', accept: 'text/html,application/xhtml+xml,*/*;q=0.8' }
    expect(await send('/', browser)).toEqual({ status: 200, text: expect.stringContaining('location.hash') })
    expect(paths).toEqual([])
  })

  // A browser may write cookies in the background: the game's first request then came without the secret, and its tab showed this page for good.
  it('opens the game when the browser has stored the secret, and not if it blocks cookies', async () => {
    const { text } = await send('/', { cookie: '', accept: 'text/html' })
    const [, script] = /<script>([\s\S]*)<\/script>/.exec(text)!
    for (const blocks of [false, true]) {
      let written = ''
      let stored = ''
      const opened: string[] = []
      const document = {
        set cookie(cookie: string) {
          if (!blocks) written = cookie
        },
        get cookie() {
          stored = written
          return stored
        },
      }
      const replace = (path: string) => opened.push(`${path} with ${stored}`)
      const location = { hash: `#lan=${SECRET}`, pathname: '/', search: '?code=K7QX2M', replace }
      runInNewContext(script!, { document, location, addEventListener: () => undefined })
      const known = `/?code=K7QX2M with roomful_lan=${SECRET}; path=/; samesite=strict`
      expect(opened).toEqual(blocks ? [] : [known])
    }
  })

  it('serves files of the project by their path', async () => {
    expect((await send(`/@fs${root}/src/main.ts`)).status).toBe(200)
  })

  it('refuses another host, and pages of other origins', async () => {
    expect((await send('/', { host: 'games.example:5173' })).status).toBe(403)
    expect((await send('/', { host: `localhost:${new URL(origin).port}` })).status).toBe(403)
    expect((await send('/', { origin: 'http://games.example' })).status).toBe(403)
    expect((await send('/dev/token', { origin: 'null' }, 'POST', '{"sub":"ada"}')).status).toBe(403)
    expect(paths).toEqual([])
  })

  it('issues tokens for the secret', async () => {
    const player = { sub: 'ada', data: { elo: 1200 } }
    const answer = await signIn({ ...player, lan: SECRET })
    expect([answer.status, JSON.parse(answer.text)]).toEqual([200, { project_id: 'prj_1', token: 'a token' }])
    expect(issued).toEqual([player])
    expect(await signIn({ lan: SECRET })).toMatchObject({
      status: 400,
      text: expect.stringContaining('sub is'),
    })
  })

  it('closes an address for a minute after ten wrong secrets, wherever they were sent', async () => {
    for (const wrong of '12345') expect((await signIn({ sub: 'eve', lan: wrong })).status).toBe(403)
    for (const wrong of '6789a')
      expect((await send('/', { cookie: `roomful_lan=${wrong}` })).status).toBe(403)
    expect((await signIn({ sub: 'eve', lan: SECRET })).status).toBe(429)
    expect(await send('/')).toMatchObject({ status: 429, text: expect.stringContaining('wait a minute') })
    clock.advance(59_000)
    expect((await signIn({ sub: 'eve', lan: SECRET })).status).toBe(429)
    clock.advance(1000)
    expect((await signIn({ sub: 'eve', lan: SECRET })).status).toBe(200)
  })

  it('does not count the same secret twice, because a tab of an earlier start repeats it', async () => {
    for (let n = 0; n < 20; n++) expect((await send('/', { cookie: 'roomful_lan=old' })).status).toBe(403)
    for (let n = 0; n < 20; n++) expect((await send('/', { cookie: '' })).status).toBe(403)
    expect((await send('/')).status).toBe(200)
  })

  /** Returns the first message of a socket, or the status of the refusal. */
  const open = (protocols: string[], from?: string, cookie = KNOWN) =>
    new Promise<string | number>((resolve) => {
      const headers = { cookie, ...(from && { origin: from }) }
      const socket = new WebSocket(origin.replace('http', 'ws'), protocols, { headers })
      socket.on('message', (text) => {
        resolve(String(text))
        socket.close()
      })
      socket.on('unexpected-response', (_, response) => resolve(response.statusCode!))
      socket.on('error', () => undefined)
    })

  it('connects sockets of its page to the rooms, and those of Vite to the page', async () => {
    expect(await open(['roomful.msgpack.1'], origin)).toBe('here is rooms')
    expect(await open(['vite-hmr'], origin)).toBe('here is page')
    for (const other of ['http://games.example', 'http://localhost:5173', undefined])
      expect(await open(['roomful.msgpack.1'], other)).toBe(403)
    for (const protocol of ['roomful.msgpack.1', 'vite-hmr', 'vite-ping, roomful.msgpack.1'])
      expect(await open(protocol.split(', '), origin, '')).toBe(403)
  })

  it('lets a page without the secret ask whether Vite runs again, so that it loads itself and says what is wrong', async () => {
    expect(await open(['vite-ping'], origin, '')).toBe('here is page')
  })

  it('ends with the websockets of devices that still play', async () => {
    const other = await openLan(options())
    const [at] = other.origins
    const headers = { cookie: KNOWN, origin: at! }
    const socket = new WebSocket(at!.replace('http', 'ws'), ['roomful.msgpack.1'], { headers })
    await new Promise((resolve) => socket.once('message', resolve))
    const ended = new Promise((resolve) => socket.once('close', resolve))
    await other.close()
    await ended
  })

  it('prints the address of the default route first, with its QR code', () => {
    const text = lanText(['http://10.0.0.7:5173', 'http://192.168.1.5:5173'], SECRET, '192.168.1.5')
    const [, , first, second, , code] = text.split('\n')
    expect([first, second]).toEqual([
      `  http://192.168.1.5:5173/#lan=${SECRET}`,
      `  http://10.0.0.7:5173/#lan=${SECRET}`,
    ])
    expect(code).toMatch(/^[█▀▄ ]+$/)
    expect(lanText([], SECRET, undefined)).toContain('this machine has no address in a network')
  })
})
