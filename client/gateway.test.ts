import { afterEach, beforeEach, expect, test } from 'vitest'
import { WebSocket } from 'ws'
import { FakeClock } from '../test/support/fake-clock.ts'
import { TestGateway } from '../test/support/gateway/test-gateway.ts'
import { type Client, type ConnectOptions, connect, type Room } from './index.ts'
import { tokenLife } from './token.ts'

/** The SDK and a real gateway, over real sockets. */
let gateway: TestGateway
const clients: Client[] = []
const sockets: WebSocket[] = []

class RecordedSocket extends WebSocket {
  constructor(url: string, protocols: string[]) {
    super(url, protocols)
    sockets.push(this)
  }
}

beforeEach(async () => {
  gateway = await TestGateway.start()
})

afterEach(async () => {
  for (const client of clients.splice(0)) client.close()
  await gateway.close()
})

/** A client that comes back only when its clock is advanced. */
async function connected(
  options: Partial<ConnectOptions> = {},
): Promise<{ client: Client; clock: FakeClock }> {
  const clock = new FakeClock()
  const client = await connect(gateway.url, {
    projectId: 'prj_one',
    token: await gateway.token(),
    WebSocket: RecordedSocket,
    clock,
    ...options,
  })
  clients.push(client)
  return { client, clock }
}

/** A client in `arena:one`. */
async function seated(): Promise<{ client: Client; clock: FakeClock; room: Room }> {
  const { client, clock } = await connected()
  const room = await client.join('arena', { key: 'one' })
  clock.advance(0)
  return { client, clock, room }
}

/** Resolves with the error of the status when the client gets there. */
const reached = (client: Client, wanted: string): Promise<unknown> =>
  new Promise((resolve) => {
    client.onConnectionChange((status, error) => status === wanted && resolve(error))
  })

const change = (room: Room): Promise<unknown> => new Promise((resolve) => room.onStateChange(resolve))

/** Breaks the newest connection as a network would; resolves when both ends know. */
async function cut(client: Client): Promise<void> {
  const lost = reached(client, 'reconnecting')
  const detached = gateway.owner.next('detach')
  sockets.at(-1)?.terminate()
  await lost
  await detached
}

/** Lets the client's time pass until it is there again. */
async function comesBack(clock: FakeClock, online: Promise<unknown>): Promise<void> {
  let over = false
  void online.then(() => {
    over = true
  })
  await expect.poll(() => clock.advance(100) ?? over).toBe(true)
}

test('join, send, hear, leave', async () => {
  const { room } = await seated()
  expect([room.id, room.state, room.members]).toEqual([
    'arena:one',
    { count: 0 },
    [{ memberId: room.memberId, sub: 'ada' }],
  ])
  const heard: unknown[] = []
  room.onMessage('shouted', (data) => heard.push(['all', data]))
  room.onMessage('heard', (data) => heard.push(['me', data]))
  await room.send('shout', 'hello')
  await room.send('whisper', 'psst')
  await room.send('move', null, { reliable: false })
  await change(room)
  expect(room.state).toEqual({ count: 3 })
  expect(heard).toEqual([
    ['all', 'hello'],
    ['me', 'psst'],
  ])
  await room.leave()
  expect(gateway.owner.room('one').members.size).toBe(0)
})

test('a refused join, and a token that is not accepted', async () => {
  const { client } = await connected()
  await expect(client.join('chess')).rejects.toMatchObject({ code: 'unknown_room_type' })
  await expect(connected({ token: 'nonsense' })).rejects.toMatchObject({ code: 'unauthenticated' })
})

test('a cut connection is resumed: missed frames come, what was not acked is resent', async () => {
  const { client, clock, room } = await seated()
  await room.send('shout', 1)
  const heard: unknown[] = []
  room.onMessage('shouted', (data) => heard.push(data))
  gateway.owner.silent.add('message')
  const sent = [room.send('shout', 2), room.send('shout', 3)]
  await gateway.owner.next('message')
  await cut(client)
  gateway.owner.room('one').flush({ state: { count: 10 }, events: [['shouted', 'missed']] })
  gateway.owner.silent.delete('message')
  clock.advance(250)
  await Promise.all(sent)
  expect(heard).toEqual(['missed', 2, 3])
  expect(room.state).toEqual({ count: 12 })
  expect(client.stats).toMatchObject({ reconnects: 1, resyncs: { sequence: 0, checksum: 0, unasked: 0 } })
})

test('a client that is in no room when its connection is cut says hello again, and nothing is missing', async () => {
  const { client, clock } = await connected()
  const statuses: string[] = []
  client.onConnectionChange((status) => statuses.push(status))
  const lost = reached(client, 'reconnecting')
  sockets.at(-1)?.terminate()
  await lost
  await expect.poll(() => gateway.gateway.sessions).toBe(0)
  const joining = client.join('arena', { key: 'one' })
  const online = reached(client, 'online')
  // The resume is refused, for there is nothing to resume, and hello follows.
  await comesBack(clock, online)
  const room = await joining
  await room.send('shout', 1)
  expect(statuses).toEqual(['reconnecting', 'online'])
  expect([room.state, client.stats.errors]).toEqual([{ count: 1 }, 0])
})

test('a join whose answer is lost with the connection succeeds after the resume', async () => {
  const { client, clock } = await connected()
  gateway.owner.silent.add('join')
  const joining = client.join('arena', { key: 'one' })
  await gateway.owner.next('join')
  gateway.owner.silent.delete('join')
  await cut(client)
  clock.advance(250)
  expect((await joining).state).toEqual({ count: 0 })
  expect(gateway.owner.room('one').members.size).toBe(1)
})

test('a missed patch is healed by the owner', async () => {
  const { room } = await seated()
  const owner = gateway.owner.room('one')
  const { seq } = owner
  owner.seq += 1
  owner.flush({ state: { count: 5 } })
  await change(room)
  expect(room.state).toEqual({ count: 5 })
  expect(gateway.owner.of('resync')).toMatchObject([{ have_seq: seq, reason: 'sequence' }])
})

test('a session that came back too late is replaced', async () => {
  const { client, clock, room } = await seated()
  const { memberId } = room
  await cut(client)
  gateway.clock.advance(62_000)
  const fresh = change(room)
  while (room.memberId === memberId) {
    clock.advance(250)
    await new Promise((resolve) => setImmediate(resolve))
  }
  await fresh
  expect(room.status).toBe('joined')
  expect(gateway.owner.room('one').members.size).toBe(1)
})

test('a draining node is left at the time it names, without losing the session', async () => {
  const { client, clock } = await connected()
  const drained = gateway.gateway.drain(10_000)
  const lost = reached(client, 'reconnecting')
  clock.advance(0)
  while (client.status === 'online') {
    clock.advance(1000)
    await new Promise((resolve) => setImmediate(resolve))
  }
  expect(await lost).toMatchObject({ code: 'draining' })
  gateway.clock.advance(11_000)
  await drained
})

test('a revoked key is the end', async () => {
  const { client } = await connected()
  const closed = reached(client, 'closed')
  gateway.gateway.revokeKey('prj_one', 'key_a')
  expect(await closed).toMatchObject({ code: 'key_revoked', retryable: false })
})

test('the times of a real token can be read', async () => {
  const now = gateway.clock.now()
  expect(tokenLife(await gateway.token())).toEqual({ issued_at: now, expires_at: now + 300_000 })
  expect(tokenLife(await gateway.tokenWithoutKey())).toEqual({ issued_at: now, expires_at: now + 300_000 })
})
