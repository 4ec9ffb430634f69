import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest'
import { expectClose, type TestClient, TestPair } from '../../test/support/gateway/test-gateway.ts'
import { ServerSocket } from './connection.ts'

let pair: TestPair
beforeEach(async () => {
  pair = await TestPair.start()
})
afterEach(() => pair.close())

describe('a session that lost its connection, at another node', () => {
  it('exists only there, and its first node sends the rooms nothing, then or later', async () => {
    const { client, welcome, snapshot } = await pair.a.join()
    await pair.owner.lose(client)
    const again = await pair.b.resume(welcome, [snapshot])
    await again.next('welcome')
    await pair.pass(120_000, 1000)
    expect(pair.a.gateway.sessions).toBe(0)
    expect([...pair.b.gateway.describeSessions().items]).toMatchObject([
      { session_id: welcome.session_id, rooms: ['arena:one'] },
    ])
    expect(pair.owner.of('leave')).toEqual([])
    expect(pair.owner.of('detach')).toHaveLength(1)
  })

  it('keeps its token, rooms and key, and each node enforces them', async () => {
    const token = await pair.a.token({ rooms: ['arena:one'], sub: 'eve' })
    const { client, welcome, snapshot } = await pair.a.join('one', token)
    client.ws.terminate()
    const again = await pair.b.resume(welcome, [snapshot])
    await again.next('welcome')
    again.send({ t: 'join', request_id: 2, room_type: 'arena', options: { key: 'two' } })
    expect(await again.next('error')).toMatchObject({ code: 'forbidden' })
    expect([...pair.b.gateway.describeSessions().items]).toMatchObject([{ sub: 'eve', key_id: 'key_a' }])
  })

  it('leaves a room that it does not name, if its client is known to have the answer to the join', async () => {
    const { client, welcome, joined } = await pair.a.join()
    client.send({ t: 'message', room_id: joined.room_id, type: 'count', data: 1 })
    await client.next('state.patch')
    // The next join writes the record again.
    client.send({ t: 'join', request_id: 2, room_type: 'arena', options: { key: 'two' } })
    await client.next('joined')
    await pair.owner.lose(client)
    const leaving = pair.owner.next('leave')
    await (await pair.b.resume(welcome)).next('welcome')
    expect(await leaving).toMatchObject({ member_id: joined.member_id, reason: 'left' })
  })

  describe('whose join was never answered', () => {
    /** The owner has the seat, or (`asked`) only the join. The client has no answer. */
    const unanswered = async (how: 'seated' | 'asked') => {
      const { client, welcome, snapshot } = await pair.a.join()
      pair.owner.silent.add('join')
      const asking = pair.owner.next('join')
      client.send({ t: 'join', request_id: 2, room_type: 'arena', options: { key: 'two' } })
      const asked = await asking
      pair.owner.silent.delete('join')
      await pair.owner.lose(client)
      if (how === 'seated') pair.owner.answer(asked)
      const again = await pair.b.resume(welcome, [snapshot])
      await again.next('welcome')
      return { again, memberId: asked.member_id }
    }
    const join = (requestId: number) =>
      ({ t: 'join', request_id: requestId, room_type: 'arena', options: { key: 'two' } }) as const

    it.each(['seated', 'asked'] as const)('gets the same seat by the same join (%s)', async (how) => {
      const { again, memberId } = await unanswered(how)
      again.send(join(2))
      expect(await again.next('joined')).toMatchObject({ request_id: 2, member_id: memberId })
      await pair.pass(10_000, 1000)
      expect(pair.owner.of('leave')).toEqual([])
      again.send({ t: 'message', room_id: 'arena:two', type: 'count', data: 1 })
      await again.next('state.patch', ({ room_id: roomId }) => roomId === 'arena:two')
    })

    it('gets another seat by another join, and leaves the first', async () => {
      const { again, memberId } = await unanswered('seated')
      again.send(join(3))
      const { member_id: second } = await again.next('joined')
      expect(second).not.toBe(memberId)
      expect(pair.owner.of('leave')).toMatchObject([{ member_id: memberId, reason: 'left' }])
    })

    it('leaves it if the client has not repeated the join within 5 s, and is not in the room until then', async () => {
      const { again, memberId } = await unanswered('seated')
      again.send({ t: 'message', room_id: 'arena:two', type: 'count', data: 1, ref: 3, settled: 0 })
      expect(await again.next('error')).toMatchObject({ code: 'not_in_room', ref: 3 })
      await pair.pass(4999)
      expect(pair.owner.of('leave')).toEqual([])
      await pair.pass(1)
      expect(pair.owner.of('leave')).toMatchObject([{ member_id: memberId, reason: 'left' }])
    })
  })

  describe('is notified how a seat has ended', () => {
    const KICKED = { reason: 'kicked', code: 'join_refused', message: 'no manners' } as const
    const farewell = (roomId: string) => ({ t: 'left', room_id: roomId, ...KICKED })

    it.each(['known', 'not known'])(
      'if its connection was lost before, which was %s to its node',
      async (when) => {
        const { client, welcome, snapshot, joined } = await pair.a.join()
        const { room_id: roomId, member_id: memberId } = joined
        const told = farewell(roomId)
        const room = pair.owner.room('one')
        if (when === 'known') await pair.owner.lose(client)
        room.members.delete(memberId)
        room.send({ kind: 'left', member_id: memberId, farewell: KICKED })
        if (client.ws.readyState === client.ws.OPEN) {
          expect(await client.next('left')).toEqual(told)
          client.ws.terminate()
        }
        await expect
          .poll(async () => [...pair.a.gateway.describeSessions().items].map(({ rooms }) => rooms))
          .toEqual([[]])
        let { session_id, resume_token } = welcome
        for (let times = 0; times < 2; times++) {
          const again = await pair.b.resume({ session_id, resume_token }, [
            { ...snapshot, member_id: memberId },
          ])
          ;({ session_id, resume_token } = await again.next('welcome'))
          expect(await again.next('left')).toEqual(told)
          again.ws.terminate()
        }
        // A client that knows of the end does not name the room.
        const knows = await pair.a.resume({ session_id, resume_token }, [])
        ;({ session_id, resume_token } = await knows.next('welcome'))
        await knows.roundTrip()
        expect(knows.received.map(({ t }) => t)).toEqual(['welcome', 'pong'])
      },
    )

    it('by the owner, if its node crashed before it could write that down', async () => {
      const { client, welcome, snapshot, joined } = await pair.a.join()
      const told = farewell(joined.room_id)
      await pair.owner.lose(client)
      pair.owner.silent.add('attach')
      const asked = pair.owner.next('attach')
      const { member_id: memberId } = joined
      const again = await pair.b.resume(welcome, [{ ...snapshot, member_id: memberId }])
      await asked
      pair.owner.room('one').send({ kind: 'left', member_id: joined.member_id, farewell: KICKED })
      await again.next('welcome')
      expect(await again.next('left')).toEqual(told)
    })

    it('of at most 16 rooms, the latest ones, and of none that it has joined again', async () => {
      const { client, welcome } = await pair.a.hello()
      const positions = []
      for (let i = 1; i <= 18; i++) {
        client.send({ t: 'join', request_id: i, room_type: 'arena', options: { key: `r${i}` } })
        const { room_id: roomId, member_id: memberId } = await client.next('joined')
        positions.push({ room_id: roomId, member_id: memberId, epoch: 1, seq: 1 })
        const room = pair.owner.room(`r${i}`)
        room.members.delete(memberId)
        room.send({ kind: 'left', member_id: memberId, farewell: KICKED })
      }
      client.send({ t: 'join', request_id: 19, room_type: 'arena', options: { key: 'r18' } })
      await client.next('joined')
      await pair.owner.lose(client)
      const again = await pair.b.resume(welcome, positions)
      await again.next('welcome')
      await again.roundTrip()
      const of = (why: string) =>
        again.received.flatMap((message) =>
          message.t === 'left' && message.reason === why ? message.room_id : [],
        )
      expect(of('session_ended')).toEqual(positions.slice(0, 2).map(({ room_id: roomId }) => roomId))
      expect(of('kicked')).toEqual(positions.slice(2, 17).map(({ room_id: roomId }) => roomId))
    })
  })

  it('can move away and back, and a late message about an earlier move does no harm', async () => {
    const { client, welcome, snapshot } = await pair.a.join()
    await pair.owner.lose(client)
    pair.deaf = true
    const second = await pair.b.resume(welcome, [snapshot])
    const moved = await second.next('welcome')
    await pair.owner.lose(second)
    const third = await pair.a.resume(moved, [snapshot])
    await third.next('welcome')
    await pair.a.gateway.sessionTaken(welcome.session_id)
    await third.roundTrip()
  })

  describe('has its remaining rate, and not a full one', () => {
    const flood = (client: TestClient, count: number): void => {
      for (let at = 0; at < count; at++) client.send({ t: 'ping', at })
    }
    /** Returns how many of `count` messages pass. */
    const passing = async (client: TestClient, count: number): Promise<number> => {
      const before = client.received.length
      const answers = (t: 'pong' | 'error'): number =>
        client.received.slice(before).filter((answer) => answer.t === t).length
      flood(client, count)
      // Messages behind the first that does not pass wait unread.
      await expect.poll(() => answers('pong') === count || answers('error') > 0).toBe(true)
      return answers('pong')
    }

    it('after its connection was lost', async () => {
      const { client, welcome, snapshot } = await pair.a.join()
      // The join was one of the 240 messages of a burst.
      expect(await passing(client, 200)).toBe(200)
      await pair.owner.lose(client)
      const again = await pair.b.resume(welcome, [snapshot])
      await again.next('welcome')
      expect(await passing(again, 50)).toBe(39)
    })

    it('and has regained rate for the time without a connection', async () => {
      const { client, welcome, snapshot } = await pair.a.join()
      // All that it may send, and not one more: the end of a connection that is not read is noticed later.
      expect(await passing(client, 239)).toBe(239)
      await pair.owner.lose(client)
      pair.clock.advance(1000)
      const again = await pair.b.resume(welcome, [snapshot])
      await again.next('welcome')
      expect(await passing(again, 200)).toBe(120)
    })

    it('also if it moves back and forth between nodes while connected', async () => {
      const { client, welcome, snapshot } = await pair.a.join()
      expect(await passing(client, 300)).toBe(239)
      let token = welcome
      let passed = 0
      for (const node of ['b', 'a', 'b', 'a'] as const) {
        const next = await pair[node].resume(token, [snapshot])
        token = await next.next('welcome')
        passed += await passing(next, 100)
      }
      // Far less than one burst, though it was resumed four times.
      expect(passed).toBeLessThan(60)
    })
  })

  it('can be resumed until the resume time has passed', async () => {
    const first = await pair.a.join()
    const second = await pair.a.join()
    first.client.ws.terminate()
    second.client.ws.terminate()
    await expect.poll(() => pair.a.gateway.connections).toBe(0)
    // A node that never had the session knows only the record.
    await pair.pass(59_000)
    await (await pair.b.resume(first.welcome, [first.snapshot])).next('welcome')
    await pair.pass(1000)
    await expectClose(await pair.b.resume(second.welcome), 'resume_failed', /no such session/)
  })

  it('can be resumed with a fresh token that its first node accepted', async () => {
    const { client, welcome, snapshot } = await pair.a.join('one', await pair.a.token({}, 15_000))
    client.send({ t: 'token', token: await pair.a.token({}, 300_000) }, { t: 'token', token: 'rubbish' })
    await client.next('error')
    client.ws.terminate()
    await pair.pass(16_000)
    const again = await pair.b.resume(welcome, [snapshot])
    await again.next('welcome')
    await pair.pass(10_000)
    await again.roundTrip()
  })
})

describe('a node that crashes', () => {
  it('leaves its sessions to other nodes, for at least the resume time', async () => {
    const { client, welcome, snapshot } = await pair.a.join()
    // Connected for so long that the record was written several times.
    for (let minute = 0; minute < 4; minute++) {
      await pair.pass(60_000, 1000)
      await client.roundTrip()
    }
    pair.records.down = true
    client.ws.terminate()
    await pair.a.gateway.close()
    await pair.pass(60_000)
    pair.records.down = false
    expect(await (await pair.b.resume(welcome, [snapshot])).next('welcome')).toMatchObject({ resumed: true })
  })
})

describe('a session that is taken while it has a connection', () => {
  it('leaves no member behind from its first node, if the second node cannot attach it to its rooms', async () => {
    const { client, welcome, joined, snapshot } = await pair.a.join()
    pair.owner.silent.add('join').add('leave')
    const asked = pair.owner.next('join')
    client.send({ t: 'join', request_id: 2, room_type: 'arena', options: { key: 'two' } })
    const { member_id: memberId } = await asked
    const told = pair.owner.next('detach')
    await pair.b.resume(welcome, [snapshot])
    expect(await told).toMatchObject({ member_id: joined.member_id })
    // Behind the join, which may still be under way: the seat is left in time, or taken by the second node.
    const detached = expect.objectContaining({ member_id: memberId, moves: true })
    await expect.poll(() => pair.owner.of('detach')).toContainEqual(detached)
    expect(pair.owner.of('leave')).toEqual([])
    // The attach wins if the two arrive in the wrong order.
    expect(pair.owner.of('join').map(({ turn }) => turn)).toEqual([0, 0])
    await expect.poll(() => pair.owner.of('attach')).toMatchObject([{ edge: 'node_b', turn: 1 }])
  })

  it('loses that connection to the newer one', async () => {
    const { client, welcome, snapshot } = await pair.a.join()
    const newer = await pair.b.resume(welcome, [snapshot])
    await newer.next('welcome')
    await expectClose(client, 'session_taken_over', /newer connection/)
    expect(pair.a.gateway.sessions).toBe(0)
    pair.owner.room('one').flush({ state: { count: 1 } })
    expect(await newer.next('state.patch')).toMatchObject({ seq: 2 })
    expect(pair.owner.of('leave')).toEqual([])
  })

  it('is detected by the next write of its record if the message was lost', async () => {
    pair.deaf = true
    const { client, welcome, snapshot } = await pair.a.join()
    const newer = await pair.b.resume(welcome, [snapshot])
    await newer.next('welcome')
    await client.roundTrip()
    // A join writes the record; so does time.
    client.send({ t: 'join', request_id: 2, room_type: 'arena', options: { key: 'two' } })
    await expectClose(client, 'session_taken_over', /newer connection/)
    expect(pair.owner.of('join')).toHaveLength(1)

    const again = await pair.a.resume(newestWelcome(newer))
    await again.next('welcome')
    for (let second = 0; second < 75; second++) await pair.pass(1000)
    await expectClose(newer, 'session_taken_over', /newer connection/)
    await again.roundTrip()
  })

  it('is not ended by the goodbye of its former connection', async () => {
    pair.deaf = true
    const { client, welcome, snapshot } = await pair.a.join()
    const newer = await pair.b.resume(welcome, [snapshot])
    await newer.next('welcome')
    client.send({ t: 'goodbye' })
    await expect.poll(() => pair.a.gateway.sessions).toBe(0)
    await newer.roundTrip()
    expect(pair.owner.of('leave')).toEqual([])
    await pair.owner.lose(newer)
    await (await pair.a.resume(newestWelcome(newer))).next('welcome')
  })
})

describe('a resume that fails half-way', () => {
  /** Another client with the same token, after node_b has read its hello. */
  async function retry(welcome: { session_id: string; resume_token: string }): Promise<TestClient> {
    const { reads } = pair.records
    const client = await pair.b.resume(welcome)
    await expect.poll(() => pair.records.reads).toBeGreaterThan(reads)
    return client
  }

  it('can be repeated immediately with the same token when the node knows that the client is gone', async () => {
    const { client, welcome, snapshot } = await pair.a.join()
    await pair.owner.lose(client)
    pair.owner.silent.add('attach')
    const attaching = pair.owner.next('attach')
    const second = await pair.a.resume(welcome, [snapshot])
    await attaching
    await pair.owner.lose(second)
    pair.owner.silent.clear()
    await (await pair.b.resume(welcome, [snapshot])).next('welcome')
  })

  it('can be repeated by a page that was reloaded before it read its welcome, although its browser had read it', async () => {
    const { client, welcome, snapshot } = await pair.a.join()
    await pair.owner.lose(client)
    const page = await pair.a.resume(welcome, [snapshot])
    await page.next('welcome')
    await pair.pass(2000, 100)
    await pair.owner.lose(page)
    await (await pair.b.resume(welcome, [snapshot])).next('welcome')
  })

  it('can be repeated after its node has ended', async () => {
    const { client, welcome, snapshot } = await pair.a.join()
    await pair.owner.lose(client)
    pair.owner.silent.add('attach')
    const attaching = pair.owner.next('attach')
    await pair.a.resume(welcome, [snapshot])
    await attaching
    pair.owner.silent.clear()
    const third = await retry(welcome)
    await pair.pass(400, 100)
    expect(third.received).toEqual([])
    pair.gone.add('node_a')
    await pair.pass(100)
    await third.next('welcome')
  })

  it('cannot be repeated after a silent client has answered a regular ping', async () => {
    const { client, welcome, snapshot } = await pair.a.join()
    await pair.owner.lose(client)
    const silent = await pair.a.resume(welcome, [snapshot])
    await silent.next('welcome')
    const pinged = new Promise((resolve) => silent.ws.once('ping', resolve))
    await pair.pass(7000, 1000)
    await pinged
    const late = await pair.b.resume(welcome, [snapshot])
    await pair.meanwhile(expectClose(late, 'session_taken_over', /used already/))
  })

  it('is replaced by another client with the token if its client sends nothing for 5 s', async () => {
    const { client, welcome } = await pair.a.join()
    await pair.owner.lose(client)
    // Its welcome is sent into a broken network, without an error.
    const second = await pair.a.resume(welcome)
    second.ws.pause()
    await expect.poll(() => [pair.a.gateway.connections, pair.a.gateway.pending]).toEqual([1, 0])
    const third = await retry(welcome)
    await pair.pass(4900, 100)
    expect(third.received).toEqual([])
    await pair.pass(200, 100)
    await third.next('welcome')
    second.ws.resume()
    await expectClose(second, 'session_taken_over', /newer connection/)
  })

  it('does not read what its client sends behind hello, until welcome', async () => {
    const { client, welcome } = await pair.a.join()
    await pair.owner.lose(client)
    const second = await pair.a.resume(welcome)
    second.ws.pause()
    await expect.poll(() => [pair.a.gateway.connections, pair.a.gateway.pending]).toEqual([1, 0])
    const { client: other } = await pair.b.hello()
    const emit = vi.spyOn(ServerSocket.prototype, 'emit')
    onTestFinished(() => emit.mockRestore())
    const third = await retry(welcome)
    const [socket] = emit.mock.contexts as ServerSocket[]
    third.send({ t: 'join', request_id: 2, room_type: 'arena', options: { key: 'two' } })
    await expect.poll(() => socket?.isPaused).toBe(true)
    third.send({ t: 'ping', at: 1 })
    for (let times = 0; times < 20; times++) await other.roundTrip()
    expect(socket?.isPaused).toBe(true)
    await pair.pass(5000, 100)
    await third.next('welcome')
    await third.next('joined')
    await third.next('pong')
    second.ws.resume()
  })
})

describe('a resume token', () => {
  const bad = (welcome: { session_id: string; resume_token: string }) => [
    { ...welcome, resume_token: 'none' },
    { ...welcome, resume_token: ' '.repeat(32) },
    { ...welcome, session_id: 'prj_one' },
    { ...welcome, session_id: `${welcome.session_id}:x` },
  ]

  it('costs no read of the store if it, or its session id, does not have the right form', async () => {
    const { welcome } = await pair.a.hello()
    const { reads } = pair.records
    for (const wrong of bad(welcome))
      await expectClose(await pair.b.resume(wrong), 'resume_failed', /no such session/)
    expect(pair.records.reads).toBe(reads)
  })

  it('costs one read of the store if it is wrong', async () => {
    const { welcome } = await pair.a.hello()
    const { reads } = pair.records
    const wrong = { ...welcome, resume_token: 'x'.repeat(32) }
    const clients = await Promise.all(Array.from({ length: 20 }, () => pair.b.resume(wrong)))
    for (const client of clients) await expectClose(client, 'resume_failed', /not its resume token/)
    expect(pair.records.reads - reads).toBe(20)
  })

  it('that was used has at most one waiting connection, which reads less and less often; others read once', async () => {
    const { client, welcome } = await pair.a.join()
    await pair.owner.lose(client)
    const holder = await pair.a.resume(welcome)
    holder.ws.pause()
    await expect.poll(() => [pair.a.gateway.connections, pair.a.gateway.pending]).toEqual([1, 0])
    const { reads } = pair.records
    const many = await Promise.all(Array.from({ length: 20 }, () => pair.b.resume(welcome)))
    await expect.poll(() => many.filter(({ ws }) => ws.readyState === ws.CLOSED)).toHaveLength(19)
    const refused = many.filter(({ ws }) => ws.readyState === ws.CLOSED)
    for (const one of refused) await expectClose(one, 'overloaded', /may not have arrived yet: try again/)
    expect(pair.records.reads - reads).toBe(20)
    await pair.pass(4900, 100)
    expect(pair.records.reads - reads).toBeLessThan(30)
    holder.ws.resume()
  })

  it('that was used does not keep a waiting connection that is lost, also if it has sent a join', async () => {
    const { client, welcome } = await pair.a.join()
    await pair.owner.lose(client)
    const holder = await pair.a.resume(welcome)
    holder.ws.pause()
    await expect.poll(() => [pair.a.gateway.connections, pair.a.gateway.pending]).toEqual([1, 0])
    const emit = vi.spyOn(ServerSocket.prototype, 'emit')
    onTestFinished(() => emit.mockRestore())
    const waiting = await pair.b.resume(welcome)
    waiting.send({ t: 'join', request_id: 2, room_type: 'arena', options: { key: 'two' } })
    const paused = (): boolean => (emit.mock.contexts as ServerSocket[]).some(({ isPaused }) => isPaused)
    await expect.poll(paused).toBe(true)
    expect(pair.b.gateway.pending).toBe(1)
    waiting.ws.terminate()
    await expect.poll(() => pair.b.gateway.pending).toBe(0)
    holder.ws.resume()
  })
})

/** The last `welcome` that a client got. */
function newestWelcome(client: TestClient) {
  const welcome = client.received.findLast((message) => message.t === 'welcome')
  if (welcome?.t !== 'welcome') throw new Error('the client was never welcome')
  return welcome
}
