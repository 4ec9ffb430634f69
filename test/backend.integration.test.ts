import { once } from 'node:events'
import { symlink, writeFile } from 'node:fs/promises'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { serve } from '@hono/node-server'
import type { Hono } from 'hono'
import { connect } from 'roomful/client'
import { type Backend, roomful } from 'roomful/server'
import * as v from 'valibot'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { defineRoom, type RoomDefinition } from '../dataplane/index.ts'
import { type ClusterNode, sharedCluster } from './support/cluster.ts'
import { codeOf, ROOT } from './support/pages.ts'
import { newFolder } from './support/run-folder.ts'

const bank = defineRoom({
  type: 'bank',
  maxPlayers: 2,
  onIdle: 'sleep',
  idleSeconds: 0.05,
  create: () => ({ gold: 0, secrets: { pin: 1234 } }),
  layers: { 'secrets.*': null },
  calls: {
    grant: {
      data: v.object({ gold: v.number() }),
      reply: v.object({ gold: v.number() }),
      handle(state, { data }, ctx) {
        state.gold += data.gold
        ctx.reply({ gold: state.gold })
      },
    },
  },
})

const NOTIFY_SECRET = 'whsec_bm90aWNlcy1vZi10aGUtYmFja2VuZC10ZXN0cw=='

const cluster = sharedCluster({ redis: 'none', leaseMs: 2000, notifySecret: [NOTIFY_SECRET] })
let nodes: readonly ClusterNode[]
let projectId: string
let game: Backend
let app: Hono
let server: ReturnType<typeof serve>

beforeAll(async () => {
  const folder = await newFolder()
  await symlink(join(ROOT, 'node_modules'), join(folder, 'node_modules'), 'junction')
  const blocks = codeOf('docs/backend.md', 'ts')
  const room = blocks.find((code) => code.includes('defineRoom'))!
  const backend = blocks.find((code) => code.includes('new Hono'))!
  expect(backend.trim().split('\n').length).toBeLessThanOrEqual(80)
  await writeFile(join(folder, 'duel.ts'), room)
  await writeFile(join(folder, 'backend.ts'), backend)
  const { default: duel }: { default: RoomDefinition } = await import(join(folder, 'duel.ts'))

  projectId = (await cluster.call('POST', '/projects', { name: 'game' })).id!
  const scopes = ['token:mint', 'room:read', 'room:call', 'player:manage']
  const key = await cluster.call('POST', `/projects/${projectId}/keys`, { scopes })
  game = roomful({ url: cluster.control.url, projectId, key: key.secret! })
  Object.assign(process.env, {
    CONTROL_URL: cluster.control.url,
    PROJECT_ID: projectId,
    ROOMFUL_KEY: key.secret,
    NOTIFY_KEY: (await cluster.call('GET', `/projects/${projectId}/notify-key`)).notify_key,
  })
  app = (await import(join(folder, 'backend.ts'))).app
  server = serve({ fetch: app.fetch, port: 0, hostname: '127.0.0.1' })
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  nodes = await cluster.local(2, {
    drainSeconds: 0,
    rooms: [duel, bank],
    notifyUrl: `http://127.0.0.1:${port}/notices`,
    notifySecret: [NOTIFY_SECRET],
  })
})
afterAll(() => {
  server?.close()
  for (const name of ['CONTROL_URL', 'PROJECT_ID', 'ROOMFUL_KEY', 'NOTIFY_KEY']) delete process.env[name]
})

/** Connects a player to a node, and joins a room. */
async function enter(sub: string, type: string, key: string, node = nodes[0]!) {
  const client = await connect(node.wsUrl, { projectId, token: await game.token({ sub }) })
  return { client, room: await client.join(type, { key }) }
}

/** Returns the rooms that no node runs. */
const ownerless = async () =>
  (await cluster.call('GET', `/projects/${projectId}/rooms?sleeping=1`)) as unknown as {
    readonly rooms: readonly { readonly key: string }[]
  }

const bankOf = (key: string) => game.room<typeof bank>('bank', key)

describe('a backend', () => {
  it('gets an error for an integer that would be rounded, and can send large floating-point numbers', async () => {
    await bankOf('rounded').open({})
    const send = async (data: string) => {
      const url = `${cluster.control.url}/projects/${projectId}/rooms/bank/rounded/calls/grant`
      const headers = {
        authorization: `Bearer ${process.env.ROOMFUL_KEY}`,
        'content-type': 'application/json',
      }
      return (await fetch(url, { method: 'POST', headers, body: data })).json()
    }
    expect(await send('{"gold":9007199254740993}')).toMatchObject({
      code: 'invalid_request',
      detail: expect.stringContaining('9007199254740993 is beyond 2^53 - 1'),
    })
    expect(await send('{"gold":1e16}')).toMatchObject({ reply: { gold: 1e16 } })
  })

  it('reads the state of a running and of a sleeping room, without hidden parts', async () => {
    const room = bankOf('looked')
    await expect(room.describe()).rejects.toMatchObject({ code: 'room_not_found', status: 404 })
    const { client } = await enter('ada', 'bank', 'looked')
    await room.reserve(['bob'], { seconds: 30 })
    const seen = await room.state()
    expect(seen).toMatchObject({
      roomId: 'bank:looked',
      members: [{ sub: 'ada', connected: true }],
      reservations: [{ sub: 'bob', expiresAt: expect.stringMatching(/^2\d{3}-.*Z$/) }],
      state: { gold: 0 },
    })
    expect(JSON.stringify(seen)).not.toContain('1234')
    client.close()
    const asleep = bankOf('asleep')
    await asleep.call('grant', { gold: 5 }, { open: true })
    await expect.poll(async () => (await ownerless()).rooms.map(({ key }) => key)).toContain('asleep')
    expect(await asleep.state()).toMatchObject({ members: [], state: { gold: 5 } })
    expect(await asleep.describe()).not.toHaveProperty('state')
    expect((await ownerless()).rooms.map(({ key }) => key)).toContain('asleep')
  })

  it('of docs/backend.md signs a player in, takes an order once, and closes a table', async () => {
    const post = (path: string, body?: object, headers = {}) =>
      app.request(path, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...headers },
        ...(body && { body: JSON.stringify(body) }),
      })
    const order = { id: 'order-1', table: 'table-7', player: 'ada', gold: 5 }
    const early = await post('/orders', order)
    expect([early.status, await early.json()]).toMatchObject([409, { code: 'room_not_found' }])
    const token = await (await post('/token', undefined, { 'x-player': 'ada' })).text()
    const client = await connect(nodes[0]!.wsUrl, { projectId, token })
    const room = await client.join('duel', { key: 'table-7' })
    for (let times = 0; times < 2; times++)
      expect(await (await post('/orders', order)).json()).toEqual({ total: 5 })
    await expect.poll(() => room.state).toMatchObject({ gold: { ada: 5 } })
    await room.send('win', null)
    await expect.poll(async () => (await app.request('/wins')).json()).toEqual(['ada'])
    expect((await post('/notices', { type: 'matchOver', data: { winner: 'eve' } })).status).toBe(401)
    const left = new Promise((resolve) => room.onLeave((reason) => resolve(reason)))
    expect((await app.request('/tables/table-7', { method: 'DELETE' })).status).toBe(204)
    expect(await left).toBe('closed')
    client.close()
  })
})
