import { afterEach, describe, expect, it } from 'vitest'
import { memoryStore } from '../../shared/store/memory/memory.ts'
import { hashTag } from '../../shared/store/port.ts'
import { slotOf } from '../../shared/store/redis/cluster.ts'
import { expectClose, type TestClient } from '../../test/support/gateway/test-client.ts'
import { TestPair } from '../../test/support/gateway/test-pair.ts'
import type { GatewayOptions } from './context.ts'
import { quotaSets, sessionKey } from './session-record.ts'

let pair: TestPair
const start = async (options: Partial<GatewayOptions>): Promise<void> => {
  pair = await TestPair.start(options)
}
afterEach(() => pair.close())

const refusal = /2 sessions of this player \(sub\) already/

/** Its connection is lost, and its node knows. */
async function lose({ ws }: TestClient): Promise<void> {
  const before = pair.a.gateway.connections + pair.b.gateway.connections
  ws.terminate()
  await expect.poll(() => pair.a.gateway.connections + pair.b.gateway.connections).toBe(before - 1)
  await pair.pass(1000)
}

describe('a player', () => {
  it('has as many sessions as one may have, at all nodes together; other players do not count', async () => {
    await start({ maxSessionsPerSub: 2 })
    const first = await pair.a.hello()
    const second = await pair.b.hello()
    await expectClose(await pair.a.present(), 'rate_limited', refusal)
    await expectClose(await pair.b.present(), 'rate_limited', refusal)
    await pair.a.hello(await pair.a.token({ sub: 'eve' }))
    await Promise.all([first.client.roundTrip(), second.client.roundTrip()])
  })

  it('has room for another one when one has said goodbye, or was in no room when it lost its connection', async () => {
    await start({ maxSessionsPerSub: 2 })
    const goodbye = await pair.a.join()
    const withoutRooms = await pair.b.hello()
    goodbye.client.send({ t: 'goodbye' })
    withoutRooms.client.ws.terminate()
    await expect.poll(() => pair.a.gateway.sessions + pair.b.gateway.sessions).toBe(0)
    await (await pair.a.present()).next('welcome')
    await (await pair.a.present()).next('welcome')
    await expectClose(await pair.b.present(), 'rate_limited', refusal)
  })

  it('loses the oldest session without a connection to a new one, wherever it is, and its room hears of it', async () => {
    await start({ maxSessionsPerSub: 3 })
    const older = await pair.a.join('one')
    await pair.pass(1)
    const connected = await pair.a.join('two')
    await pair.pass(1)
    const newer = await pair.a.join('three')
    await lose(newer.client)
    await lose(older.client)
    const left = pair.owner.next('leave')
    pair.deaf = true
    pair.owner.deliver = (message) => pair.b.gateway.receive(message)
    await (await pair.b.present()).next('welcome')
    expect(await left).toMatchObject({ member_id: older.joined.member_id, reason: 'session_ended' })
    // The node that had it hears of that when its record is gone already.
    await pair.a.gateway.sessionTaken(older.welcome.session_id)
    expect(pair.a.gateway.sessions).toBe(2)
    pair.owner.deliver = (message) => pair.a.gateway.receive(message)
    await expectClose(
      await pair.a.resume(older.welcome, [older.snapshot]),
      'resume_failed',
      /no such session/,
    )
    const back = await pair.a.resume(newer.welcome, [newer.snapshot])
    await back.next('welcome')
    await connected.client.roundTrip()
  })

  it('is not shut out by sessions that ended with their node', async () => {
    await start({ maxSessionsPerSub: 2 })
    await pair.a.join('one')
    await pair.a.join('two')
    await pair.pass(1000)
    await expectClose(await pair.b.present(), 'rate_limited', refusal)
    // It says nothing for a moment: its sessions may well be connected.
    pair.gone.add('node_a')
    await expectClose(await pair.b.present(), 'rate_limited', refusal)
    pair.dead.add('node_a')
    await (await pair.b.present()).next('welcome')
  })

  it('is not shut out by places whose sessions are no more', async () => {
    await start({ maxSessionsPerSub: 1 })
    const records = memoryStore({ clock: pair.clock }).records
    const { client } = await pair.a.hello()
    const page = pair.records.page.bind(pair.records)
    await pair.pass(20_000)
    await client.roundTrip()
    // The store has lost the record, and not the place.
    pair.records.read = (keys) => records.read(keys)
    pair.records.page = page
    await (await pair.b.present()).next('welcome')
  })

  it('is not shut out by the record of a session that is damaged', async () => {
    await start({ maxSessionsPerSub: 1 })
    const { client, welcome } = await pair.a.join()
    await lose(client)
    await pair.pass(20_000)
    const { session_id: sessionId } = welcome
    await pair.records.write([{ put: sessionKey(sessionId), value: Uint8Array.of(1, 0x7b) }])
    await (await pair.b.present()).next('welcome')
    await expectClose(await pair.b.resume(welcome), 'resume_failed', /no such session/)
  })

  it('has no more than that when many come at once', async () => {
    await start({ maxSessionsPerSub: 2 })
    const clients = await Promise.all(Array.from({ length: 8 }, (_, i) => pair[i % 2 ? 'a' : 'b'].present()))
    const results = await Promise.allSettled(clients.map((client) => client.next('welcome')))
    expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(2)
  })
})

describe('a token without a player', () => {
  const most = 100

  it('has a hundred times as many sessions as a player, in several slots of a Redis Cluster; another token has its own', async () => {
    await start({ maxSessionsPerSub: 1, hellosPerSecond: 1000 })
    const shared = await pair.a.token({ sub: undefined })
    const slots = new Map<string, number>()
    for (let i = 0; i < most; i++) {
      const { welcome } = await pair[i % 2 ? 'a' : 'b'].hello(shared)
      const slot = hashTag(sessionKey(welcome.session_id))
      slots.set(slot, (slots.get(slot) ?? 0) + 1)
    }
    expect([...slots.values()]).toEqual([50, 50])
    await expectClose(await pair.a.present(shared), 'rate_limited', /100 sessions of this token already/)
    await pair.a.hello(await pair.a.token({ sub: undefined }, 200_000))
    // Of the same millisecond, and good for as long.
    await pair.a.hello(await pair.a.token({ sub: undefined, rooms: ['arena'] }))
  })

  it('loses its oldest session, which has no connection, to a new one, whichever slot it is in', async () => {
    await start({ maxSessionsPerSub: 1, hellosPerSecond: 1000 })
    const shared = await pair.a.token({ sub: undefined })
    const lost = await pair.a.join('one', shared)
    await pair.pass(1)
    for (let i = 1; i < most; i++) await pair.a.hello(shared)
    await lose(lost.client)
    await (await pair.b.present(shared)).next('welcome')
    await expectClose(await pair.b.resume(lost.welcome), 'resume_failed', /no such session/)
    await expectClose(await pair.b.present(shared), 'rate_limited', /100 sessions of this token already/)
  })

  it.each([1, 10, 64, 65, 1000, 1_000_000])('may have exactly %i, in 16 slots at most', (max) => {
    const sets = quotaSets('prj_a/token:b', max)
    expect(sets.reduce((sum, set) => sum + set.max, 0)).toBe(max)
    expect(new Set(sets.map(({ set }) => slotOf(set))).size).toBe(Math.min(16, Math.ceil(max / 64)))
  })
})
