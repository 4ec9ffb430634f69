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
  maxMembers: 2,
  onIdle: 'sleep',
  idleSeconds: 0.05,
  options: v.object({ gold: v.optional(v.number(), 0) }),
  create: ({ gold }) => ({ gold, secrets: { pin: 1234 }, callIds: [] as string[] }),
  layers: { 'secrets.*': null },
  calls: {
    grant: {
      data: v.object({ gold: v.number() }),
      reply: v.object({ gold: v.number(), key: v.string() }),
      handle(state, { data, caller }, ctx) {
        if (data.gold < 0) return ctx.refuse('gold is never taken')
        if (data.gold === 13) throw new Error('unlucky')
        state.gold += data.gold
        state.callIds.push(caller.callId)
        ctx.reply({ gold: state.gold, key: caller.keyId })
      },
    },
    length: {
      data: v.string(),
      reply: v.number(),
      handle(_state, { data }, ctx) {
        ctx.reply(data.length)
      },
    },
    reset: {
      handle(state) {
        state.gold = 0
      },
    },
  },
})

const NOTIFY_SECRET = 'whsec_bm90aWNlcy1vZi10aGUtYmFja2VuZC10ZXN0cw=='

const cluster = sharedCluster({ redis: 'none', leaseMs: 2000, notifySecret: [NOTIFY_SECRET] })
let nodes: readonly ClusterNode[]
let projectId: string
let keyId: string
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
  keyId = key.id!
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
  it('calls a room on any node, once for each id', async () => {
    const { client, room } = await enter('ada', 'bank', 'calls')
    const calls = Array.from({ length: 20 }, (_, at) =>
      bankOf('calls').call('grant', { gold: 1 }, { id: `call-${at % 10}` }),
    )
    const replies = await Promise.all(calls)
    expect(replies.slice(0, 10)).toEqual(replies.slice(10))
    expect(replies.every(({ key }) => key === keyId)).toBe(true)
    await expect.poll(() => room.state).toMatchObject({ gold: 10 })
    const { callIds } = room.state as unknown as { callIds: string[] }
    expect([...callIds].sort()).toEqual(Array.from({ length: 10 }, (_, at) => `call-${at}`))
    client.close()
  })

  it('gets an error for a refused, a failed and an invalid call', async () => {
    const room = bankOf('errors')
    await expect(room.call('grant', { gold: 1 })).rejects.toMatchObject({
      code: 'room_not_found',
      status: 404,
    })
    await room.call('grant', { gold: 1 }, { open: true })
    await expect(room.call('grant', { gold: -1 })).rejects.toMatchObject({
      code: 'room_logic_refused',
      status: 409,
      message: 'gold is never taken',
    })
    await expect(room.call('grant', { gold: 13 })).rejects.toMatchObject({
      code: 'room_logic_failed',
      status: 500,
    })
    await expect(room.call('grant', { gold: '1' as never })).rejects.toMatchObject({
      code: 'invalid_request',
      status: 400,
      message: expect.stringContaining('gold'),
    })
    await expect(room.call('steal' as 'reset')).rejects.toMatchObject({
      code: 'invalid_request',
      status: 400,
    })
    await room.call('grant', { gold: 1 }, { id: 'one' })
    await expect(room.call('grant', { gold: 2 }, { id: 'one' })).rejects.toMatchObject({ code: 'conflict' })
    expect(await room.call('grant', { gold: 0 })).toMatchObject({ gold: 2 })
  })

  it('gets an error for an integer that would be rounded, and can send large floating-point numbers', async () => {
    await bankOf('rounded').open()
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

  it('sends data of up to 64 KiB', async () => {
    const room = bankOf('large')
    await room.open()
    expect(await room.call('length', 'x'.repeat(65_534))).toBe(65_534)
    await expect(room.call('length', 'x'.repeat(65_535))).rejects.toMatchObject({ code: 'payload_too_large' })
  })

  it('opens a room once, with checked options', async () => {
    const room = bankOf('open')
    expect([await room.open({ gold: 7 }), await room.open({ gold: 8 })]).toEqual([true, false])
    expect(await room.call('grant', { gold: 0 })).toMatchObject({ gold: 7 })
    await expect(bankOf('mistaken').open({ gold: 'x' as never })).rejects.toMatchObject({
      code: 'invalid_request',
    })
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
      state: { gold: 0, callIds: [] },
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

  it('gets the same answer for an id after the room has ended', async () => {
    const room = bankOf('ended')
    const reply = await room.call('grant', { gold: 5 }, { id: 'last', open: true })
    await room.close()
    expect(await room.call('grant', { gold: 5 }, { id: 'last', open: true })).toEqual(reply)
    await expect(room.describe()).rejects.toMatchObject({ code: 'room_not_found' })
  })

  it('reserves seats, kicks a player, and closes the room', async () => {
    const { client, room } = await enter('ada', 'bank', 'seats', nodes[1])
    const seats = bankOf('seats')
    await seats.reserve(['bob'], { seconds: 30 })
    await expect(enter('eve', 'bank', 'seats')).rejects.toMatchObject({ code: 'room_full' })
    await expect(seats.reserve(['eve', 'dan'], { seconds: 30 })).rejects.toMatchObject({ code: 'room_full' })
    const left = new Promise((resolve) => room.onLeave((reason) => resolve(reason)))
    expect(await seats.kick('ada', { reason: 'foul play' })).toBe(1)
    expect(await left).toBe('kicked')
    await seats.close()
    await expect(seats.call('grant', { gold: 5 })).rejects.toMatchObject({ code: 'room_not_found' })
    client.close()
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
