import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { memoryStore } from '../../shared/store/memory/memory.ts'
import type { TestGateway } from '../../test/support/gateway/test-gateway.ts'
import { expectClose, type TestClient, TestPair } from '../../test/support/gateway/test-gateway.ts'
import type { GatewayOptions } from './context.ts'

let pair: TestPair
const start = async (options: Partial<GatewayOptions> = {}): Promise<void> => {
  pair = await TestPair.start(options)
}
afterEach(() => pair.close())

describe('the record of a session', () => {
  beforeEach(() => start())

  it('is written before the client gets welcome', async () => {
    pair.records.delayMs = 50
    const client = await pair.a.present()
    await expect.poll(() => pair.records.writing).toBe(1)
    expect(client.received).toEqual([])
    await pair.meanwhile(client.next('welcome'))
    expect(pair.records.written).toHaveLength(1)
  })

  it('contains a subscription before the owner of the room gets the join', async () => {
    const { client } = await pair.a.hello()
    pair.records.delayMs = 50
    client.send({ t: 'join', request_id: 1, room_type: 'arena', options: { key: 'one' } })
    await expect.poll(() => pair.records.writing).toBe(1)
    expect(pair.owner.of('join')).toEqual([])
    await pair.meanwhile(client.next('joined'))
    expect(pair.records.written).toHaveLength(2)
  })

  it('is written once for many joins, and never twice at the same time', async () => {
    const { client } = await pair.a.hello()
    pair.records.delayMs = 50
    for (let id = 1; id <= 10; id++)
      client.send({ t: 'join', request_id: id, room_type: 'arena', options: { key: `room-${id}` } })
    await pair.meanwhile(client.next('joined', ({ request_id: id }) => id === 10))
    // The first join without delay, the other nine together.
    expect(pair.records.written.length).toBeLessThanOrEqual(1 + 3)
    expect(pair.records.mostWriting).toBe(1)
  })

  it('is written again about once a minute, and records of many sessions at different times', async () => {
    const clients: TestClient[] = []
    for (let i = 0; i < 50; i++)
      clients.push((await pair.a.hello(await pair.a.token({ sub: `${i}` }))).client)
    const perSecond: number[] = []
    for (let second = 0; second < 240; second++) {
      const before = pair.records.written.length
      await pair.pass(1000)
      perSecond.push(pair.records.written.length - before)
      if (second % 10 === 5) await Promise.all(clients.map((client) => client.roundTrip()))
    }
    const total = perSecond.reduce((sum, writes) => sum + writes, 0)
    expect(total).toBeGreaterThan(50 * 2)
    expect(total).toBeLessThan(50 * 6)
    expect(Math.max(...perSecond)).toBeLessThan(15)
  })

  it('is written again as soon as the store is back, if the store has lost it', async () => {
    const { welcome, snapshot } = await pair.a.join()
    pair.records.replace(memoryStore({ clock: pair.clock }).records)
    await expectClose(await pair.b.resume(welcome), 'resume_failed', /no such session/)
    pair.a.gateway.storeReturned()
    const again = await pair.b.resume(welcome, [snapshot])
    expect(await again.next('welcome')).toMatchObject({ resumed: true })
  })

  it('is written again once when the store is back. At most 100 records are written at the same time', async () => {
    for (let i = 0; i < 250; i++) await pair.a.hello(await pair.a.token({ sub: `${i}` }))
    pair.records.replace(memoryStore({ clock: pair.clock }).records)
    const before = pair.records.written.length
    // The writes last longer than the time between two sweeps, which must not queue a record again.
    pair.records.delayMs = 300
    pair.records.mostWriting = 0
    pair.a.gateway.storeReturned()
    await pair.pass(7000, 100)
    expect(pair.records.mostWriting).toBe(100)
    const written = pair.records.written.slice(before)
    expect([written.length, new Set(written).size]).toEqual([250, 250])
  })

  it('that the store has lost does not end a session at its node, and elsewhere only for a while', async () => {
    const one = await pair.a.join('one')
    const two = await pair.a.join('two')
    for (const { client } of [one, two]) client.ws.terminate()
    await expect.poll(() => pair.a.gateway.connections).toBe(0)
    pair.records.replace(memoryStore({ clock: pair.clock }).records)
    await (await pair.a.resume(one.welcome, [one.snapshot])).next('welcome')

    // The node of the other session has not found the store again for 8 s.
    for (pair.storeUptimeMs = 0; pair.storeUptimeMs <= 8000; pair.storeUptimeMs += 4000)
      await expectClose(await pair.b.resume(two.welcome), 'overloaded', /has restarted .* try again/)
    pair.a.gateway.storeReturned()
    await pair.pass(4000, 1000)
    await (await pair.b.resume(two.welcome, [two.snapshot])).next('welcome')
    pair.storeUptimeMs = 20_000
    const nobody = { session_id: 'ses_nobody', resume_token: 'x'.repeat(32) }
    await expectClose(await pair.b.resume(nobody), 'resume_failed', /no such session/)
  })

  describe('that the store has lost, and that an outdated holder writes first', () => {
    /** A session that node_a had before node_b. */
    const moved = async () => {
      pair.deaf = true
      const { client, welcome, snapshot } = await pair.a.join()
      await pair.owner.lose(client)
      const again = await pair.b.resume(welcome, [snapshot])
      const { resume_token: resumeToken } = await again.next('welcome')
      await again.roundTrip()
      return { again, welcome: { ...welcome, resume_token: resumeToken }, snapshot }
    }
    const isWrittenBy = async (node: TestGateway) => {
      node.gateway.storeReturned()
      await pair.pass(4000, 1000)
    }
    const loseAll = () => pair.records.replace(memoryStore({ clock: pair.clock }).records)

    it('goes to the latest holder', async () => {
      const { again, welcome, snapshot } = await moved()
      loseAll()
      for (const node of [pair.a, pair.b]) await isWrittenBy(node)
      await again.roundTrip()
      again.ws.terminate()
      await (await pair.a.resume(welcome, [snapshot])).next('welcome')
    })

    it('is resumed by the client with the latest token: immediately at the latest holder, and soon elsewhere', async () => {
      for (const place of ['b', 'a'] as const) {
        const { again, welcome, snapshot } = await moved()
        again.ws.terminate()
        await expect.poll(() => pair.b.gateway.connections).toBe(0)
        loseAll()
        pair.storeUptimeMs = 0
        await isWrittenBy(pair.a)
        if (place === 'a') {
          await expectClose(await pair.a.resume(welcome), 'overloaded', /has restarted .* try again/)
          await isWrittenBy(pair.b)
        }
        const back = await pair[place].resume(welcome, [snapshot])
        await back.next('welcome')
        back.ws.terminate()
        await expect.poll(() => pair[place].gateway.connections).toBe(0)
        pair.storeUptimeMs = Number.POSITIVE_INFINITY
      }
    })
  })

  it('goes to the client that resumes, if the store has lost it and two sessions were resumed equally often', async () => {
    pair.deaf = true
    const { client, welcome, snapshot } = await pair.a.join()
    await pair.owner.lose(client)
    const lost = await pair.b.resume(welcome, [snapshot])
    await lost.next('welcome')
    await lost.roundTrip()
    pair.records.replace(memoryStore({ clock: pair.clock }).records)
    pair.a.gateway.storeReturned()
    await pair.pass(4000, 1000)
    // With its previous token, because the other resume never reached this client.
    const back = await pair.a.resume(welcome, [snapshot])
    await back.next('welcome')
    await back.roundTrip()
    pair.b.gateway.storeReturned()
    await pair.pass(4000, 1000)
    await expectClose(lost, 'session_taken_over', /newer connection/)
    await back.roundTrip()
    expect(pair.b.gateway.sessions).toBe(0)
  })
})

describe('while the store does not answer', () => {
  beforeEach(() => start())

  it('a new session is refused as retryable, and the node continues', async () => {
    const { client } = await pair.a.hello()
    pair.records.down = true
    await expectClose(await pair.a.present(), 'overloaded', /the store does not answer: try again/)
    expect(pair.a.gateway.sessions).toBe(1)
    await client.roundTrip()
    pair.records.down = false
    await (await pair.a.present()).next('welcome')
  })

  it('a resume is refused as retryable, and its token stays valid', async () => {
    const { client, welcome, snapshot } = await pair.a.join()
    await pair.owner.lose(client)
    pair.records.down = true
    for (const node of [pair.a, pair.b])
      await expectClose(await node.resume(welcome), 'overloaded', /try again/)
    pair.records.down = false
    await (await pair.b.resume(welcome, [snapshot])).next('welcome')
  })

  it('a join is refused for now, and the owner gets nothing', async () => {
    const { client } = await pair.a.hello()
    pair.records.down = true
    client.send({ t: 'join', request_id: 1, room_type: 'arena', options: { key: 'one' } })
    expect(await client.next('error')).toMatchObject({
      request_id: 1,
      code: 'room_unavailable',
      retryable: true,
    })
    expect(pair.owner.of('join')).toEqual([])
    pair.records.down = false
    client.send({ t: 'join', request_id: 2, room_type: 'arena', options: { key: 'one' } })
    await client.next('joined')
  })

  it('a session keeps its connection, and its record is written when the store is back', async () => {
    const { client, welcome, snapshot } = await pair.a.join()
    pair.records.down = true
    for (let minute = 0; minute < 4; minute++) {
      for (let second = 0; second < 60; second++) await pair.pass(1000)
      await client.roundTrip()
    }
    pair.records.down = false
    pair.a.gateway.storeReturned()
    await pair.pass(5000, 1000)
    await (await pair.b.resume(welcome, [snapshot])).next('welcome')
  })

  it('a session that another node has taken stays, and is dropped within seconds when the store answers', async () => {
    pair.deaf = true
    const { client, welcome, snapshot } = await pair.a.join()
    await client.roundTrip()
    await (await pair.b.resume(welcome, [snapshot])).next('welcome')
    pair.records.down = true
    await pair.a.gateway.sessionTaken(welcome.session_id)
    await client.roundTrip()
    pair.records.down = false
    await pair.pass(5000, 1000)
    await expectClose(client, 'session_taken_over', /newer connection/)
    expect(pair.a.gateway.sessions).toBe(0)
  })

  it('a session that an operator has ended at another node is not written again', async () => {
    pair.deaf = true
    const { client, welcome } = await pair.a.join()
    await pair.b.gateway.endSession('prj_one', welcome.session_id)
    await pair.pass(1000)
    pair.records.down = true
    await pair.a.gateway.sessionTaken(welcome.session_id, true)
    pair.records.down = false
    pair.a.gateway.storeReturned()
    await pair.pass(5000, 1000)
    await expectClose(client, 'revoked', /operator/)
    await expectClose(await pair.a.resume(welcome), 'resume_failed', /no such session/)
  })

  it.each(['write', 'read'] as const)(
    'a session that an operator ends at another node during a %s of its record is not written again',
    async (call) => {
      pair.deaf = true
      const { client, welcome } = await pair.a.join()
      const { gateway } = pair.a
      const original = pair.records[call].bind(pair.records) as (argument: never) => Promise<never>
      let go = () => {}
      const held = new Promise<void>((resolve) => {
        go = resolve
      })
      vi.spyOn(pair.records, call).mockImplementationOnce(async (argument: unknown) => {
        // The record of the write is replaced before it arrives, and that of the read is outdated when its answer arrives.
        if (call === 'write') await held
        const answer = await original(argument as never)
        await held
        return answer
      })
      if (call === 'write') gateway.storeReturned()
      // An outdated report: this node has taken the session back.
      else void gateway.sessionTaken(welcome.session_id)
      await pair.pass(1)
      await pair.b.gateway.endSession('prj_one', welcome.session_id)
      await pair.pass(1000)
      const reported = gateway.sessionTaken(welcome.session_id, true)
      go()
      await reported
      await expectClose(client, 'revoked', /operator/)
      await expectClose(await pair.a.resume(welcome), 'resume_failed', /no such session/)
    },
  )

  it('rooms get the leaves of a session that ends when the store is back', async () => {
    const { client } = await pair.a.join()
    pair.records.down = true
    client.send({ t: 'goodbye' })
    await expect.poll(() => pair.a.gateway.sessions).toBe(0)
    await pair.pass(10_000, 1000)
    expect(pair.owner.of('leave')).toEqual([])
    pair.records.down = false
    await pair.pass(5000, 1000)
    expect(pair.owner.of('leave')).toMatchObject([{ reason: 'left' }])
  })
})

describe('a write whose answer is lost', () => {
  beforeEach(() => start())

  it('still gives its session to the resume', async () => {
    const { client, welcome, snapshot } = await pair.a.join()
    await pair.owner.lose(client)
    pair.records.answersLost = 1
    const again = await pair.b.resume(welcome, [snapshot])
    const { resume_token: resumeToken } = await again.next('welcome')
    again.ws.terminate()
    await (await pair.a.resume({ ...welcome, resume_token: resumeToken })).next('welcome')
  })
})

describe('a node with MAX_SESSIONS_PER_PROJECT', () => {
  beforeEach(() => start({ maxSessionsPerProject: 1 }))

  it('refuses new sessions of a full project as retryable, and accepts its moved sessions and other projects', async () => {
    const elsewhere = await pair.b.join()
    elsewhere.client.ws.terminate()
    await pair.a.hello()
    await expectClose(await pair.a.present(), 'overloaded', /1 sessions of this project/)
    await (await pair.a.resume(elsewhere.welcome, [elsewhere.snapshot])).next('welcome')
    expect(pair.a.gateway.sessions).toBe(2)
  })

  it('does not exceed its limit if many sessions start at the same time', async () => {
    pair.records.delayMs = 30
    const clients = await Promise.all([pair.a.present(), pair.a.present()])
    const outcomes = await pair.meanwhile(Promise.allSettled(clients.map((client) => client.next('welcome'))))
    expect(outcomes.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected'])
  })
})

describe('a session whose player record is still being read', () => {
  it.each([{ maxSessionsPerProject: 2 }, { maxSessions: 2 }])('counts once for %j', async (limit) => {
    await start(limit)
    const { records } = pair
    const read = records.read.bind(records)
    let answer = () => {}
    const held = new Promise<void>((resolve) => {
      answer = resolve
    })
    records.read = async (keys) => {
      await held
      return read(keys)
    }
    const first = await pair.a.present()
    await expect.poll(() => pair.a.gateway.sessions).toBe(1)
    const second = await pair.a.present()
    const welcomes = Promise.all([first.next('welcome'), second.next('welcome')])
    await Promise.race([expect.poll(() => pair.a.gateway.sessions).toBe(2), welcomes])
    answer()
    await welcomes
  })
})

describe('a full node', () => {
  beforeEach(() => start({ maxSessions: 2 }))

  it('takes a tenth more sessions of projects with less than half of its places, also those of other nodes', async () => {
    await start({ maxSessions: 11 })
    const other = { project_id: 'prj_two' }
    const present = async (): Promise<TestClient> => {
      const client = await pair.a.open()
      client.send({ t: 'hello', ...other, token: await pair.a.token(other) })
      return client
    }
    for (let count = 0; count < 11; count++) await pair.a.hello()
    await expectClose(await pair.a.present(), 'overloaded', /maximum number of sessions/)
    const first = await present()
    await first.next('welcome')
    await (await present()).next('welcome')
    await expectClose(await present(), 'overloaded', /maximum number of sessions/)
    // A place that becomes free is for the project with less.
    first.send({ t: 'goodbye' })
    await first.closed
    await expectClose(await pair.a.present(), 'overloaded', /maximum number of sessions/)
    await (await present()).next('welcome')
    expect(pair.a.gateway.sessions).toBe(13)
  })

  it('refuses new sessions and those of other nodes as retryable, and accepts resumes of its own', async () => {
    const elsewhere = await pair.b.join()
    elsewhere.client.ws.terminate()
    const { client, welcome, snapshot } = await pair.a.join()
    await pair.a.hello()
    await expectClose(await pair.a.present(), 'overloaded', /maximum number of sessions/)
    await expectClose(await pair.a.resume(elsewhere.welcome), 'overloaded', /maximum number of sessions/)
    client.ws.terminate()
    await (await pair.a.resume(welcome, [snapshot])).next('welcome')
    // The refusal has used up nothing.
    await (await pair.b.resume(elsewhere.welcome, [elsewhere.snapshot])).next('welcome')
  })

  it('does not exceed its limit if many sessions start at the same time', async () => {
    pair.records.delayMs = 30
    const clients = await Promise.all([
      pair.a.present(),
      pair.a.present(),
      pair.a.present(),
      pair.a.present(),
    ])
    const outcomes = await pair.meanwhile(Promise.allSettled(clients.map((client) => client.next('welcome'))))
    expect(outcomes.map(({ status }) => status).sort()).toEqual([
      'fulfilled',
      'fulfilled',
      'rejected',
      'rejected',
    ])
    expect(pair.a.gateway.sessions).toBe(2)
  })

  it('accepts a session again when another has ended', async () => {
    const { client } = await pair.a.hello()
    await pair.a.hello()
    client.send({ t: 'goodbye' })
    await expect.poll(() => pair.a.gateway.sessions).toBe(1)
    await (await pair.a.present()).next('welcome')
  })
})
