import { request } from 'node:http'
import { stop } from 'esbuild'
import { pino } from 'pino'
import { afterAll, afterEach, expect, test } from 'vitest'
import { type RunningControl, startControl } from '../../control/main.ts'
import { systemClock } from '../../shared/clock.ts'
import { systemRandom } from '../../shared/random.ts'
import { memoryStore } from '../../shared/store/memory/memory.ts'
import type { Store } from '../../shared/store/port.ts'
import { readToken } from '../../shared/tokens.ts'
import { noTracer, type Tracer } from '../../shared/tracing/tracer.ts'
import { RecordingTracer } from '../../test/support/tracing.ts'
import { type Backend, type BackendOptions, startBackend } from './backend.ts'

const log = pino({ level: 'silent' })
const opened: { close(): Promise<void> }[] = []

// Bundling leaves a process behind.
afterAll(() => stop())

afterEach(async () => {
  for (const service of opened.splice(0).reverse()) await service.close()
})

async function control(
  port = 0,
  store: Store = memoryStore({ clock: systemClock }),
  tracer: Tracer = noTracer,
): Promise<RunningControl> {
  const running = await startControl({
    config: {
      controlPort: port,
      controlApiTokens: ['operator'],
      internalToken: 'internal',
      requireKeyId: true,
    },
    store,
    log,
    tracer,
    clock: systemClock,
    random: systemRandom,
  })
  opened.push(running)
  return running
}

async function backend(controlUrl: string, more: Partial<BackendOptions> = {}): Promise<Backend> {
  const running = await startBackend({
    host: '127.0.0.1',
    port: 0,
    control_url: controlUrl,
    control_token: 'operator',
    ws_url: 'ws://127.0.0.1:4000',
    log,
    ...more,
  })
  opened.push(running)
  return running
}

interface Answer {
  status: number
  body: {
    project_id: string
    token: string
    ws_url: string
    player: { player_id: string; ticket: string }
    code: string
    detail: string
  }
}

async function login(url: string, body: unknown, headers: Record<string, string> = {}): Promise<Answer> {
  const response = await fetch(`${url}/api/session`, { method: 'POST', headers, body: JSON.stringify(body) })
  return { status: response.status, body: (await response.json()) as Answer['body'] }
}

async function operator(url: string, path: string, method = 'GET') {
  const response = await fetch(url + path, {
    method,
    headers: { authorization: 'Bearer operator', 'content-type': 'application/json' },
    ...(method === 'POST' ? { body: '{}' } : {}),
  })
  return (await response.json()) as { projects: { id: string }[]; keys: { id: string; status: string }[] }
}

test('a backend for this machine only refuses a login with another host', async () => {
  const { url } = await backend((await control()).url)
  const asked = (host: string) =>
    new Promise<number | undefined>((resolve) => {
      const headers = { host, 'content-type': 'application/json' }
      request(`${url}/api/session`, { method: 'POST', headers }, (answer) =>
        resolve(answer.resume().statusCode),
      ).end('{"game":"arena"}')
    })
  expect([await asked('localhost:8080'), await asked('games.example:8080')]).toEqual([200, 403])
})

test('a login returns a token of five minutes, with the key of the backend, for that game only', async () => {
  const api = await control()
  const { url } = await backend(api.url)

  const { status, body } = await login(url, { game: 'arena', name: 'Ada' })

  expect(status).toBe(200)
  expect(body.ws_url).toBe('ws://127.0.0.1:4000')
  const { projects } = await operator(api.url, '/projects')
  const { keys } = await operator(api.url, `/projects/${body.project_id}/keys`)
  expect(projects.map((project) => project.id)).toEqual([body.project_id])
  const claims = readToken(body.token).claims
  expect(claims).toMatchObject({
    project_id: body.project_id,
    key_id: keys[0]?.id,
    sub: body.player.player_id,
    rooms: ['arena'],
  })
  expect(Date.parse(claims.expires_at) - Date.parse(claims.issued_at)).toBe(300_000)
  expect(claims.sub).toMatch(/^Ada~/)
})

test('a tab with its ticket stays the same player, and no other tab can be that player', async () => {
  const { url } = await backend((await control()).url)
  const first = (await login(url, { game: 'counter' })).body

  const again = (await login(url, { game: 'counter', player: first.player })).body
  const thief = { player_id: first.player.player_id, ticket: 'AAAA' }
  const stranger = (await login(url, { game: 'counter', player: thief })).body

  expect(readToken(again.token).claims.sub).toBe(first.player.player_id)
  expect(readToken(stranger.token).claims.sub).not.toBe(first.player.player_id)
})

test('a restarted backend finds its project and key again', async () => {
  const api = await control()
  const before = (await login((await backend(api.url)).url, { game: 'arena' })).body
  const after = (await login((await backend(api.url)).url, { game: 'arena' })).body

  expect(after.project_id).toBe(before.project_id)
  expect(readToken(after.token).claims.key_id).toBe(readToken(before.token).claims.key_id)
})

test('a rotated key is replaced, and a revoked one stops logins until a restart', async () => {
  const api = await control()
  const { url } = await backend(api.url)
  const { project_id: projectId, token } = (await login(url, { game: 'arena' })).body
  const keyId = readToken(token).claims.key_id
  const keys = `/projects/${projectId}/keys`

  await operator(api.url, `${keys}/${keyId}/rotate`, 'POST')
  await operator(api.url, `${keys}/${keyId}/revoke`, 'POST')
  const rotated = readToken((await login(url, { game: 'arena' })).body.token).claims.key_id
  expect(rotated).not.toBe(keyId)

  await operator(api.url, `${keys}/${rotated}/revoke`, 'POST')
  const refused = await login(url, { game: 'arena' })
  expect(refused.status).toBe(502)
  expect(refused.body.detail).toContain('was revoked')

  const restarted = await login((await backend(api.url)).url, { game: 'arena' })
  expect(restarted.status).toBe(200)
})

test('without control, pages are served and a login reports the missing API; when control is back, logins work', async () => {
  const store = memoryStore({ clock: systemClock })
  const first = await control(0, store)
  const port = Number(new URL(first.url).port)
  await first.close()
  const { url } = await backend(first.url)

  const refused = await login(url, { game: 'arena' })
  expect(refused.status).toBe(503)
  expect(refused.body.detail).toContain(`control does not answer at ${first.url}`)
  expect((await fetch(url)).status).toBe(200)

  await control(port, store)
  expect((await login(url, { game: 'arena' })).status).toBe(200)
})

test('a backend does not start if control refuses its token or does not know its project', async () => {
  const api = await control()
  await expect(backend(api.url, { control_token: 'wrong' })).rejects.toThrow('with 401')
  await expect(backend(api.url, { project_id: 'prj_0123456789abcdef' })).rejects.toThrow('with 404')
})

test('a given project is used, and gets a key', async () => {
  const api = await control()
  const projectId = (await login((await backend(api.url)).url, { game: 'arena' })).body.project_id
  const { url } = await backend(api.url, { project_id: projectId })
  expect((await login(url, { game: 'tictactoe' })).body.project_id).toBe(projectId)
  expect((await operator(api.url, '/projects')).projects).toHaveLength(1)
})

test.each([
  [{}, 'game'],
  [{ game: 'chess' }, 'arena, cards, tictactoe, counter'],
  [{ game: 'arena', name: '<b>' }, 'letters, digits'],
  [{ game: 'arena', admin: true }, 'admin'],
])('a login with %j is refused with a reason', async (request, reason) => {
  const { url } = await backend((await control()).url)
  const { status, body } = await login(url, request)
  expect(status).toBe(400)
  expect(body.detail).toContain(reason)
})

test('pages load nothing from other origins and connect to the data plane only', async () => {
  const { url } = await backend((await control()).url)
  for (const path of ['/', '/arena/', '/counter/', '/tictactoe/', '/arena/source']) {
    const page = await fetch(url + path)
    const html = await page.text()
    expect(page.status).toBe(200)
    expect(page.headers.get('content-security-policy')).toContain("connect-src 'self' ws://127.0.0.1:4000")
    expect(html).not.toMatch(/(?:src|href)="https?:/)
    for (const [, asset] of html.matchAll(/(?:src|href)="(\/[^"?]+)/g)) {
      // Scripts are bundled on demand and tested separately. The playground is that of `roomful dev`.
      if (asset?.endsWith('.js') || asset === '/playground') continue
      expect((await fetch(url + asset)).status, asset).toBe(200)
    }
  }
})

test('a browser that uses another name of this machine gets the data plane at the same name', async () => {
  const { url } = await backend((await control()).url)
  const named = url.replace('127.0.0.1', 'localhost')
  expect((await login(named, { game: 'arena' })).body.ws_url).toBe('ws://localhost:4000')
})

test.each(['/front.js', '/arena/page.js', '/tictactoe/page.js', '/counter/page.js'])(
  '%s is a script for browsers, without the room logic',
  async (path) => {
    const { url } = await backend((await control()).url)
    const script = await fetch(url + path)
    expect(script.status).toBe(200)
    expect(script.headers.get('content-type')).toBe('text/javascript; charset=utf-8')
    const code = (await script.text()).split('//# sourceMappingURL')[0] ?? ''
    expect(code).not.toMatch(/onJoin|defineRoom|from ["']/)
  },
)

test('the source of a room is shown in numbered lines, and as plain text', async () => {
  const { url } = await backend((await control()).url)
  const plain = await fetch(`${url}/counter/room.ts`)
  expect(plain.headers.get('content-type')).toBe('text/plain; charset=utf-8')
  const source = await plain.text()
  expect(source).toContain('export default defineRoom(')

  const shown = await (await fetch(`${url}/counter/source`)).text()
  const lines = [...shown.matchAll(/<li><code>(.*?)<\/code><\/li>/g)].map(([, line]) =>
    (line ?? '')
      .replace(/<[^>]+>/g, '')
      .replaceAll('&lt;', '<')
      .replaceAll('&gt;', '>')
      .replaceAll('&#39;', "'")
      .replaceAll('&amp;', '&'),
  )
  expect(lines.map((line) => line.trimEnd())).toEqual(source.trimEnd().split('\n'))
})

test('the trace of a login continues in the request for the token, and in the token', async () => {
  const tracer = new RecordingTracer(systemClock)
  const { url } = await backend((await control(0, undefined, tracer)).url)
  const traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'
  const { body } = await login(url, { game: 'arena' }, { traceparent, tracestate: 'vendor=value' })
  const request = tracer.spans.find(({ name }) => name === 'POST /tokens')!
  expect(request.parent).toBe(traceparent)
  expect(readToken(body.token).claims).toMatchObject({
    traceparent: request.traceparent,
    tracestate: 'vendor=value',
  })
  await login(url, { game: 'arena' })
  expect(tracer.spans.filter(({ name }) => name === 'POST /tokens')[1]!.parent).toBeUndefined()
  const odd = await login(url, { game: 'arena' }, { traceparent: 'nonsense', tracestate: '?' })
  expect(odd.status).toBe(200)
})
