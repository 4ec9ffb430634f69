import { Registry } from 'prom-client'
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { registerMetrics } from '../../shared/metrics.ts'
import { type Ban, playerKey } from '../../shared/players.ts'
import { memoryStore } from '../../shared/store/memory/memory.ts'
import { StoreUnavailable } from '../../shared/store/port.ts'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import {
  expectClose,
  type TestClient,
  TestControl,
  TestGateway,
} from '../../test/support/gateway/test-gateway.ts'
import { TestOwner, testCodecs } from '../../test/support/gateway/test-owner.ts'
import { TestRecords } from '../../test/support/test-store.ts'
import { GATEWAY_METRICS } from './metrics.ts'

let test: TestGateway
let records: TestRecords
let registry: Registry

beforeEach(async () => {
  const clock = new FakeClock()
  records = new TestRecords(memoryStore({ clock }).records, clock)
  registry = new Registry()
  const metrics = registerMetrics(registry, GATEWAY_METRICS)
  const world = { clock, control: await TestControl.start(), owner: new TestOwner(testCodecs()) }
  test = await TestGateway.start({}, { records, metrics }, world)
})
afterEach(() => {
  records.delayMs = 0
  return test.close()
})

const ban = (changes: Partial<Ban> = {}) => ({
  ban: { until: null, room_types: null, reason: null, ...changes },
})
const CHEATING = ban({ reason: 'cheating' })

/** Lets time pass, in steps of 5 ms. */
async function pass(ms: number): Promise<void> {
  for (let passed = 0; passed < ms; passed += 5) {
    test.clock.advance(5)
    await new Promise(setImmediate)
  }
}

/** A client whose session is being written. */
async function arriving(token?: string): Promise<TestClient> {
  const client = await test.present(token)
  await vi.waitUntil(() => records.writing > 0, { interval: 1 })
  return client
}

/** Number of handshakes with this result. */
async function handshakes(result: string): Promise<number> {
  const text = await registry.metrics()
  return Number(
    new RegExp(`^service_handshakes_total\\{result="${result}"\\} (\\d+)`, 'm').exec(text)?.[1] ?? 0,
  )
}

const WITHOUT_REASON = /^banned: the player is banned from this game$/
const DOWN = new StoreUnavailable('the store is down')

describe('A banned player', () => {
  it('loses every session when the ban is announced, with the reason, and other players keep theirs', async () => {
    const sessions = [await test.join(), await test.hello(await test.jwt())]
    const others = [
      await test.hello(await test.token({ sub: 'eve' })),
      await test.hello(await test.token({ sub: undefined })),
    ]
    const left = test.owner.next('leave')
    await test.decide(CHEATING)
    for (const { client } of sessions) await expectClose(client, 'banned', /^banned: cheating$/)
    expect(await left).toMatchObject({ reason: 'session_ended' })
    for (const { client } of others) await client.roundTrip()
  })

  it('gets no new session and no resume, at a node that missed the message', async () => {
    const { client, welcome } = await test.join()
    await test.owner.lose(client)
    await test.record(ban())
    const left = test.owner.next('leave')
    await expectClose(await test.resume(welcome), 'banned', WITHOUT_REASON)
    await expectClose(await test.present(), 'banned', WITHOUT_REASON)
    expect(await left).toMatchObject({ reason: 'session_ended' })
    expect(test.gateway.sessions).toBe(0)
  })

  it('is counted as a refused handshake', async () => {
    await test.record(ban())
    await expectClose(await test.present(), 'banned', WITHOUT_REASON)
    expect(await handshakes('banned')).toBe(1)
    expect(await handshakes('revoked')).toBe(0)
  })

  it('loses its session when it sends a fresh token to a node that missed the message', async () => {
    const { client } = await test.hello()
    await test.record(CHEATING)
    client.send({ t: 'token', token: await test.token() })
    await expectClose(client, 'banned', /^banned: cheating$/)
  })

  it('can connect again when the ban has ended', async () => {
    const until = test.clock.now() + 10_000
    await test.record(ban({ until }))
    test.clock.advance(9_999)
    await expectClose(await test.present(), 'banned', WITHOUT_REASON)
    test.clock.advance(1)
    await test.hello()
  })

  it('is found if messages may be lost', async () => {
    const { client } = await test.hello()
    await test.record(ban())
    await client.roundTrip()
    test.gateway.newsMissed()
    await expectClose(client, 'banned', WITHOUT_REASON)
  })

  it('is found a second after the store answers again, if it did not answer when the message arrived', async () => {
    const { client } = await test.hello()
    await test.record(ban())
    records.down = true
    test.gateway.playerChanged('prj_one', 'ada')
    test.clock.advance(1000)
    await client.roundTrip()
    records.down = false
    test.clock.advance(1000)
    await expectClose(client, 'banned', WITHOUT_REASON)
  })

  it('is found although the record of another player, read with it, cannot be decoded', async () => {
    const other = await test.hello(await test.token({ sub: 'eve' }))
    const { client } = await test.hello()
    const value = new TextEncoder().encode('{')
    await records.write([{ put: playerKey('prj_one', 'eve'), value }])
    await test.record(ban())
    test.gateway.newsMissed()
    await expectClose(client, 'banned', WITHOUT_REASON)
    await other.client.roundTrip()
  })

  it('is found if the ban is written between the read of a handshake and its welcome', async () => {
    records.delayMs = 10
    const client = await arriving()
    // The store has executed the read, and its answer is under way.
    await pass(15)
    records.delayMs = 0
    await test.decide(ban())
    records.delayMs = 10
    await pass(60)
    await expectClose(client, 'banned', WITHOUT_REASON)
    expect(test.gateway.sessions).toBe(0)
  })
})

describe('A handshake', () => {
  it('reads the record of the player in the round trip in which it writes the session', async () => {
    const before = { reads: records.reads, writes: records.writes }
    await test.hello()
    expect({ reads: records.reads - before.reads, writes: records.writes - before.writes }).toEqual({
      reads: 1,
      writes: 1,
    })
    records.delayMs = 100
    const client = await arriving(await test.token({ sub: 'eve' }))
    await pass(200)
    await client.next('welcome')
  })

  it('reads nothing for a token without sub', async () => {
    const { reads } = records
    await test.hello(await test.token({ sub: undefined }))
    expect(records.reads).toBe(reads)
  })

  it('is refused as retryable while the record of the player cannot be read', async () => {
    const read = records.read.bind(records)
    records.read = (keys) => (keys[0]!.includes(':player:') ? Promise.reject(DOWN) : read(keys))
    await expectClose(await test.present(), 'overloaded', /try again/)
    expect(test.gateway.sessions).toBe(0)
    records.read = read
    const { client, welcome, snapshot } = await test.join()
    await test.owner.lose(client)
    records.read = (keys) => (keys[0]!.includes(':player:') ? Promise.reject(DOWN) : read(keys))
    await expectClose(await test.resume(welcome, [snapshot]), 'overloaded', /try again/)
    records.read = read
    const again = await test.resume(welcome, [snapshot])
    expect(await again.next('welcome')).toMatchObject({ resumed: true })
  })

  it('keeps a session without seats, if it is refused as retryable', async () => {
    const { welcome } = await test.hello()
    const read = records.read.bind(records)
    records.read = (keys) => (keys[0]!.includes(':player:') ? Promise.reject(DOWN) : read(keys))
    await expectClose(await test.resume(welcome), 'overloaded', /try again/)
    records.read = read
    expect(await (await test.resume(welcome)).next('welcome')).toMatchObject({ resumed: true })
  })
})

describe('A ban from room types', () => {
  const FROM_ARENA = ban({ room_types: ['arena'], reason: 'rude' })

  it('ends the seats there as kicked with the reason, and refuses joins; the session and other seats stay', async () => {
    const { client } = await test.join()
    await test.decide(ban({ room_types: ['lobby'] }))
    await client.roundTrip()
    expect([...test.gateway.describeSessions().items]).toMatchObject([{ rooms: ['arena:one'] }])
    const left = test.owner.next('leave')
    await test.decide(FROM_ARENA)
    const told = { room_id: 'arena:one', reason: 'kicked', message: 'rude' }
    expect(await client.next('left')).toMatchObject(told)
    expect(await left).toMatchObject({ room: { roomType: 'arena' }, reason: 'kicked' })
    client.send({ t: 'join', request_id: 3, room_type: 'arena', options: { key: 'two' } })
    expect(await client.next('error')).toMatchObject({ request_id: 3, code: 'banned', message: 'rude' })
    client.send({ t: 'find', request_id: 4, room: { room_type: 'arena' } })
    expect(await client.next('error')).toMatchObject({ request_id: 4, code: 'banned', message: 'rude' })
    expect([...test.gateway.describeSessions().items]).toMatchObject([{ rooms: [] }])
  })

  it('also applies to queues whose matches have these types', async () => {
    const { client } = await test.join()
    await test.decide(ban({ room_types: ['duel'], reason: 'rude' }))
    const left = { room_id: 'arena:one', reason: 'kicked', message: 'rude' }
    expect(await client.next('left')).toMatchObject(left)
    client.send({ t: 'join', request_id: 2, room_type: 'arena', options: {} })
    expect(await client.next('error')).toMatchObject({ request_id: 2, code: 'banned', message: 'rude' })
  })

  it('refuses an unanswered join', async () => {
    const { client } = await test.hello()
    test.owner.silent.add('join')
    const asked = test.owner.next('join')
    client.send({ t: 'join', request_id: 1, room_type: 'arena', options: {} })
    await asked
    await test.decide(FROM_ARENA)
    expect(await client.next('error')).toMatchObject({ request_id: 1, code: 'banned' })
  })

  it('is reported to a client that was disconnected when its seat ended', async () => {
    const { client, welcome, snapshot, joined } = await test.join()
    await test.owner.lose(client)
    await test.record(FROM_ARENA)
    const left = test.owner.next('leave')
    const again = await test.resume(welcome, [{ ...snapshot, member_id: joined.member_id }])
    expect(await again.next('welcome')).toMatchObject({ resumed: true })
    expect(await again.next('left')).toMatchObject({ reason: 'kicked', message: 'rude' })
    expect(await left).toMatchObject({ reason: 'kicked' })
  })

  it('ends at its time', async () => {
    const until = test.clock.now() + 1000
    await test.record(ban({ room_types: ['arena'], until }))
    const { client } = await test.hello()
    client.send({ t: 'join', request_id: 1, room_type: 'arena', options: {} })
    expect(await client.next('error')).toMatchObject({ code: 'banned' })
    test.clock.advance(1000)
    client.send({ t: 'join', request_id: 2, room_type: 'arena', options: {} })
    await client.next('joined')
  })
})

describe('The data of a player', () => {
  it('replaces that of the token in live seats and new ones, until it is deleted', async () => {
    const { client } = await test.join('one', await test.token({ data: { name: 'Ada' } }))
    const set = test.owner.next('renew')
    await test.decide({ data: { name: 'Lady' } })
    expect(await set).toMatchObject({ room: { key: 'one' }, data: { name: 'Lady' } })
    // A fresh token changes nothing.
    await test.renew(client, await test.token({ data: { name: 'Byron' } }))
    client.send({ t: 'join', request_id: 2, room_type: 'arena', options: { key: 'two' } })
    await client.next('joined')
    expect(test.owner.of('join').at(-1)).toMatchObject({ data: { name: 'Lady' } })
    expect(test.owner.of('renew')).toHaveLength(1)
    const deleted = test.owner.next('renew')
    await test.decide({})
    expect(await deleted).toMatchObject({ data: { name: 'Byron' } })
  })

  it('replaces that of the token in a seat whose player is disconnected', async () => {
    const { client } = await test.join('one', await test.token({ data: { name: 'Ada' } }))
    await test.owner.lose(client)
    const set = test.owner.next('renew')
    await test.decide({ data: { name: 'Lady' } })
    expect(await set).toMatchObject({ room: { key: 'one' }, data: { name: 'Lady' } })
  })

  it('is that of a session that resumes at a node that missed the message', async () => {
    const { client, welcome, snapshot } = await test.join()
    await test.owner.lose(client)
    await test.record({ data: { name: 'Lady' } })
    const attach = test.owner.next('attach')
    await test.resume(welcome, [snapshot])
    expect(await attach).toMatchObject({ data: { name: 'Lady' } })
  })
})
