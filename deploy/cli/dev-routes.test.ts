import { request } from 'node:http'
import { fileURLToPath } from 'node:url'
import { pino } from 'pino'
import { connect } from 'roomful/client'
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest'
import { startDataplane } from '../../dataplane/main.ts'
import type counter from '../../examples/counter/room.ts'
import { systemClock } from '../../shared/clock.ts'
import { parseConfig } from '../../shared/config.ts'
import { memoryStore } from '../../shared/store/memory/memory.ts'
import { startDev } from './dev.ts'
import type { RoomsToPlay } from './dev-routes.ts'
import type { Service } from './service.ts'

let service: Service
let wsUrl = ''
let tokenUrl = ''
const OPERATOR = 'an-operator-token-of-the-tests'
const EXAMPLES = fileURLToPath(new URL('../../examples', import.meta.url))
const CLUSTER_ROOMS = fileURLToPath(new URL('../../test/support/cluster-rooms', import.meta.url))

async function start(env: Record<string, string>, beside?: readonly string[]): Promise<Service> {
  const ports = { EXAMPLES_PORT: '0', CONTROL_PORT: '0', WS_PORT: '0', ADMIN_PORT: '0' }
  const parsed = parseConfig('dev', { ...ports, CONTROL_API_TOKENS: OPERATOR, ...env })
  if (!parsed.ok) throw new Error('this configuration should be valid')
  return startDev({ config: parsed.config, log: pino({ level: 'silent' }), tell: () => undefined, beside })
}

beforeAll(async () => {
  service = await start({})
  wsUrl = service.addresses.websocket!
  tokenUrl = `${wsUrl.replace('ws', 'http')}/dev/token`
})
afterAll(() => service.close())

const ask = async (body: unknown, headers: Record<string, string> = {}) => {
  const text = typeof body === 'string' ? body : JSON.stringify(body)
  const response = await fetch(tokenUrl, { method: 'POST', body: text, headers })
  return { status: response.status, headers: response.headers, body: await response.json() }
}

it('accepts a player by name only, with the name as sub', async () => {
  const clients = await Promise.all(['alice', 'bob'].map((dev) => connect(wsUrl, { dev })))
  const rooms = await Promise.all(
    clients.map((client) => client.join<typeof counter>('counter', { key: 'a' })),
  )
  await rooms[0]!.send('inc', { by: 2 })
  await expect.poll(() => rooms[1]!.state.count).toBe(2)
  expect(rooms[0]!.members.map(({ sub }) => sub).sort()).toEqual(['alice', 'bob'])
  for (const client of clients) client.close()
})

it('suggests a room type to a client with a misspelt one', async () => {
  const client = await connect(wsUrl, { dev: 'alice' })
  await expect(client.join('conter')).rejects.toMatchObject({
    code: 'unknown_room_type',
    message: 'no room type "conter" is installed; did you mean "counter"?',
  })
  await expect(client.join('chess')).rejects.toThrow('no room type "chess" is installed')
  client.close()
})

it('returns tokens of one project to pages of this machine, and rejects invalid names with a reason', async () => {
  const page = await ask({ sub: 'alice' }, { origin: 'http://localhost:5173' })
  expect(page.status).toBe(200)
  expect(page.headers.get('access-control-allow-origin')).toBe('http://localhost:5173')
  expect((await ask({ sub: 'bob', data: { elo: 1200 } })).body.project_id).toBe(page.body.project_id)
})

it.each<[unknown, string]>([
  ['', 'the body is "": send a JSON object such as {"sub":"ada"'],
  ['7', 'the body is "7": send a JSON object such as'],
  [{}, 'sub is undefined: '],
  [{ sub: '' }, 'sub is "": must have 1 to 256 characters'],
  [{ sub: 'x'.repeat(257) }, 'must have 1 to 256 characters'],
  [{ sub: 'constructor' }, 'sub is "constructor": must not be a name that every object has'],
  [{ sub: 'ada', data: 7 }, 'data is 7: must be an object'],
  [{ sub: 'ada', data: { long: 'x'.repeat(3000) } }, 'limit: 2048'],
  [{ sub: 'ada', elo: 7 }, 'elo is 7: '],
  [{ sub: 'ada', data: { long: 'x'.repeat(9000) } }, 'the body has more than 8192 bytes'],
])('rejects a token for %j with the reason', async (body, detail) => {
  expect(await ask(body)).toMatchObject({ status: 400, body: { detail: expect.stringContaining(detail) } })
})

it('gives room code the data of the player', async () => {
  const data = { elo: 1200, guild: { name: 'red' } }
  const { token } = (await ask({ sub: 'ada', data })).body
  expect(JSON.parse(Buffer.from(token.split('.')[2], 'base64url').subarray(0, -64).toString())).toMatchObject(
    {
      sub: 'ada',
      data,
    },
  )
  const client = await connect(wsUrl, { dev: { sub: 'ada', data } })
  client.close()
  await expect(connect(wsUrl, { dev: { sub: '' } })).rejects.toMatchObject({
    code: 'token_unavailable',
    message: expect.stringContaining('sub is ""'),
  })
})

it('returns no tokens to pages of other machines, nor after DNS rebinding', async () => {
  // A browser extension or another program may use this machine as the host of its pages.
  for (const origin of [
    'https://games.example',
    'http://localhost.games.example',
    'null',
    'chrome-extension://localhost',
    'app://127.0.0.1',
  ])
    expect((await ask({ sub: 'alice' }, { origin })).status).toBe(403)
  const status = await new Promise((resolve) =>
    request(tokenUrl, { method: 'POST', headers: { host: 'games.example:4000' } }, (answer) =>
      resolve(answer.resume().statusCode),
    ).end('{"sub":"alice"}'),
  )
  expect(status).toBe(403)
})

it('brings players into rooms of the newest project if a folder has other room types', async () => {
  const own = await start({ ROOMS_DIR: EXAMPLES })
  onTestFinished(() => own.close())
  const { api, websocket } = own.addresses
  const join = async (options: { dev: string } | { token: string }) => {
    const client = await connect(websocket!, options)
    onTestFinished(() => client.close())
    return client.join<typeof counter>('counter')
  }
  const before = await Promise.all(['alice', 'bob'].map((dev) => join({ dev })))
  await before[0]!.send('inc', { by: 1 })
  await expect.poll(() => before[1]!.state.count).toBe(1)

  const post = async (path: string, body: object) => {
    const headers = { 'content-type': 'application/json', authorization: `Bearer ${OPERATOR}` }
    const answer = await fetch(api + path, { method: 'POST', headers, body: JSON.stringify(body) })
    return answer.json()
  }
  const { id } = await post('/projects', { name: 'my game' })
  const { token } = await post('/tokens', { project_id: id, sub: 'carol', ttl_seconds: 60 })
  const carol = await join({ token })
  const dave = await join({ dev: 'dave' })
  await carol.send('inc', { by: 5 })
  await expect.poll(() => dave.state.count).toBe(5)
})

it('passes to the command that runs next to it the addresses that its backend needs', async () => {
  const backend = `
    const { CONTROL_URL, PROJECT_ID } = process.env
    const headers = { authorization: 'Bearer ${OPERATOR}' }
    const { status } = await fetch(\`\${CONTROL_URL}/projects/\${PROJECT_ID}\`, { headers })
    process.exit(status === 200 ? 0 : 1)`
  const words = [process.execPath, '--input-type=module', '--eval', backend]
  const own = await start({ ROOMS_DIR: CLUSTER_ROOMS }, words)
  onTestFinished(() => own.close())
  await own.ended
})

it('returns the room types with the schemas of their options and messages', async () => {
  const { rooms } = (await (await fetch(`${tokenUrl}/../rooms`)).json()) as RoomsToPlay
  const counter = rooms.find(({ type }) => type === 'counter')
  expect(counter?.messages[0]).toMatchObject({
    name: 'inc',
    replies: false,
    data: { type: 'object', properties: { by: { type: 'integer', minimum: 1, maximum: 100 } } },
  })
})

it('runs calls of rooms, and returns the notices of a room with the answer of the backend', async () => {
  const own = await start({ ROOMS_DIR: CLUSTER_ROOMS })
  onTestFinished(() => own.close())
  const url = own.addresses.websocket!.replace('ws', 'http')
  const call = async (name: string) => {
    const body = JSON.stringify({ room: 'bank:a', name })
    const response = await fetch(`${url}/dev/call`, { method: 'POST', body })
    return { status: response.status, ...(await response.json()) }
  }
  const client = await connect(own.addresses.websocket!, { dev: 'ada' })
  await client.join('bank', { key: 'a' })
  expect(await call('grant')).toEqual({ status: 200, reply: 1 })
  expect(await call('report')).toEqual({ status: 200, reply: null })
  expect(await call('missing')).toEqual({ status: 422, detail: expect.stringContaining('missing') })
  const noticesOf = async (room: string) =>
    (await (await fetch(`${url}/dev/notices?room=${room}`)).json()).notices
  await expect
    .poll(() => noticesOf('bank:a'))
    .toMatchObject([{ type: 'granted', data: { gold: 2 }, answer: 'NOTIFY_URL is not set' }])
  expect(await noticesOf('bank:b')).toEqual([])
  client.close()
})

it('exists only in development', async () => {
  const parsed = parseConfig('dataplane', {
    WS_PORT: '0',
    ADMIN_PORT: '0',
    REDIS_URL: 'redis://127.0.0.1:1',
    ROOMS_DIR: CLUSTER_ROOMS,
  })
  if (!parsed.ok) throw new Error('this configuration should be valid')
  const store = memoryStore({ clock: systemClock })
  const node = await startDataplane({ config: parsed.config, store, log: pino({ level: 'silent' }) })
  const { websocket, admin } = node.addresses
  for (const path of [
    '/playground',
    '/dev/rooms',
    '/dev/token',
    '/dev/call',
    '/dev/notices?room=counter:a',
    '/dev/kill?room=counter:a',
    '/dev/drain?room=counter:a',
  ]) {
    expect((await fetch(websocket.replace('ws', 'http') + path)).status).toBe(426)
    expect((await fetch(admin + path)).status).toBe(404)
  }
  await node.close()
  await store.close()
})
