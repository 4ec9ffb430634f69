import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import type { TestClient } from '../../test/support/gateway/test-client.ts'
import { TestGateway } from '../../test/support/gateway/test-gateway.ts'

let test: TestGateway
beforeEach(async () => {
  test = await TestGateway.start()
})
afterEach(() => test.close())

describe('a join', () => {
  it('tells the owner the options without the key, and whether the client can put hidden layers together', async () => {
    const { client } = await test.hello(undefined, ['layers'])
    client.send({ t: 'join', ref: 1, room_type: 'arena', options: { key: 'one', map: 'desert' } })
    await client.next('joined')
    await test.join('two', undefined, ['reroute'])
    expect(test.owner.of('join').map(({ options, layers }) => [options, layers])).toEqual([
      [{ map: 'desert' }, true],
      [{}, undefined],
    ])
  })

  it('cannot pass one room off as another by a colon in its type', async () => {
    const { client } = await test.hello(await test.token({ rooms: ['arena:one'] }))
    client.send({ t: 'join', ref: 1, room_type: 'arena:one', options: { key: 'x' } })
    expect(await client.next('error')).toMatchObject({ code: 'unknown_room_type' })
    expect(test.owner.received).toEqual([])
  })

  it('is refused when the session is there, or on its way there', async () => {
    const { client } = await test.join()
    client.send({ t: 'join', ref: 2, room_type: 'arena', options: { key: 'one' } })
    expect(await client.next('error')).toMatchObject({ code: 'already_joined', ref: 2 })
    test.owner.silent.add('join')
    client.send(
      { t: 'join', ref: 3, room_type: 'arena', options: { key: 'two' } },
      { t: 'join', ref: 4, room_type: 'arena', options: { key: 'two' } },
    )
    expect(await client.next('error')).toMatchObject({ code: 'already_joined', ref: 4 })
  })

  it('fails when no owner answers, and can be tried again', async () => {
    const { client } = await test.hello()
    test.owner.silent.add('join')
    const asked = test.owner.next('join')
    client.send({ t: 'join', ref: 1, room_type: 'arena', options: { key: 'one' } })
    await asked
    test.clock.advance(10_000)
    expect(await client.next('error')).toMatchObject({ code: 'room_unavailable', ref: 1, retryable: true })
    test.owner.silent.clear()
    client.send({ t: 'join', ref: 2, room_type: 'arena', options: { key: 'one' } })
    expect(await client.next('joined')).toMatchObject({ ref: 2 })
  })
})

describe('a reliable message without an ack', () => {
  it('is asked about after 5 s, and given to the owner again if that has not got it', async () => {
    const { client, joined } = await test.join()
    test.owner.silent.add('message')
    const sent = test.owner.next('message')
    client.send({ t: 'message', room_id: joined.room_id, type: 'count', data: null, ref: 2 })
    await sent
    test.owner.silent.clear()
    for (let second = 1; second < 5; second++) test.clock.advance(1000)
    expect(test.owner.of('attach')).toEqual([])
    test.clock.advance(2000)
    expect(await client.next('ack')).toMatchObject({ ref: 2 })
    expect(test.owner.of('attach')).toHaveLength(1)
    expect(test.owner.of('message').map(({ ref }) => ref)).toEqual([2, 2])
    for (let second = 0; second < 10; second++) test.clock.advance(1000)
    expect(test.owner.of('attach')).toHaveLength(1)
  })
})

describe('a join that is answered when its client is gone', () => {
  it('leaves a subscription that waits for a resume, as its owner is told', async () => {
    const { client } = await test.hello()
    test.owner.silent.add('join')
    const asked = test.owner.next('join')
    client.send({ t: 'join', ref: 1, room_type: 'arena', options: { key: 'one' } })
    const { member_id: memberId } = await asked
    await test.owner.lose(client)
    const room = test.owner.room('one')
    room.members.set(memberId, { sub: 'ada', ref: 0 })
    room.flush({ joined: [{ member_id: memberId, ref: 1 }] })
    expect(test.owner.of('detach')).toMatchObject([{ member_id: memberId }, { member_id: memberId }])
  })
})

describe('a leave', () => {
  it('may be followed by a join of the same room at once', async () => {
    const { client, joined } = await test.join()
    test.owner.silent.add('leave')
    client.send(
      { t: 'leave', ref: 2, room_id: joined.room_id },
      { t: 'join', ref: 3, room_type: 'arena', options: { key: 'one' } },
    )
    const { member_id: memberId } = joined
    expect(await client.next('member')).toMatchObject({ member_id: memberId, status: 'left', reason: 'left' })
    const again = await client.next('joined')
    expect(again.member_id).not.toBe(joined.member_id)
    await client.next('state.snapshot')
    // The owner has not let the old subscription go yet: its frames are not delivered twice.
    test.owner.room('one').flush({ state: { count: 5 } })
    await client.roundTrip()
    expect(client.received.filter(({ t }) => t === 'state.patch')).toHaveLength(1)
  })
})

describe('a leave that failed', () => {
  // While a leave is under way the edge takes the subscription for given up: it passes nothing on, and does not say at the session's end that
  // the member is gone. A leave whose room could not be reached stayed under way for ever.
  it('leaves the subscription as it was, to be left again or to end with the session', async () => {
    const { client, joined } = await test.join()
    const { room_id: roomId, member_id: memberId } = joined
    test.owner.silent.add('leave')
    const asked = test.owner.next('leave')
    client.send({ t: 'leave', ref: 2, room_id: roomId })
    await asked
    const room = test.owner.room('one')
    room.send({ kind: 'error', member_id: memberId, ref: 2, code: 'room_unavailable', message: 'try again' })
    expect(await client.next('error')).toMatchObject({ code: 'room_unavailable', ref: 2, retryable: true })
    client.send({ t: 'message', room_id: roomId, type: 'move', data: null, ref: 3 })
    expect(await client.next('ack')).toMatchObject({ ref: 3 })
    const gone = test.owner.next('leave')
    client.send({ t: 'goodbye' })
    expect(await gone).toMatchObject({ member_id: memberId, reason: 'left' })
  })
})

describe('a message', () => {
  it('for a seat the owner does not know tells the client that its seat is gone', async () => {
    const { client, joined } = await test.join()
    test.owner.room('one').members.clear()
    client.send({ t: 'message', room_id: joined.room_id, type: 'move', data: null, ref: 1 })
    expect(await client.next('member')).toEqual({
      ...{ t: 'member', room_id: joined.room_id, member_id: joined.member_id, sub: 'ada', status: 'left' },
      ...{ epoch: 0, seq: 0, reason: 'session_ended' },
    })
    client.send({ t: 'join', ref: 2, room_type: 'arena', options: { key: 'one' } })
    await client.next('joined')
  })
})

describe('what an owner sends', () => {
  it('is dropped when it comes from an epoch before the last', async () => {
    const { client } = await test.join()
    const room = test.owner.room('one')
    room.epoch = 3
    room.flush({ state: { count: 1 } })
    room.epoch = 2
    room.flush({ state: { count: 666 } })
    room.epoch = 3
    await client.roundTrip()
    expect(client.received.filter(({ t }) => t === 'state.patch')).toEqual([])
    expect(client.received.filter(({ t }) => t === 'state.resync')).toMatchObject([
      { epoch: 3, state: { count: 1 } },
    ])
  })

  it('under a new epoch is for those who have asked the new owner what they missed', async () => {
    const { client, joined } = await test.join()
    const { member_id: memberId } = joined
    const room = test.owner.room('one')
    test.owner.silent.add('attach')
    room.epoch = 2
    room.flush({ state: { count: 7 } })
    await client.roundTrip()
    expect(test.owner.of('attach')).toMatchObject([{ member_id: memberId, epoch: 1, seq: 1 }])
    expect(client.received.some(({ t }) => t === 'state.patch')).toBe(false)
    const { ask } = test.owner.of('attach')[0]!
    room.send({
      kind: 'attached',
      member_id: memberId,
      ask,
      seq: 2,
      resumed: true,
      frames: room.missed(1)!,
      outcomes: [],
    })
    expect(await client.next('state.patch')).toMatchObject({ epoch: 2, ops: [{ value: 7 }] })
    room.flush({ state: { count: 8 } })
    expect(await client.next('state.patch')).toMatchObject({ epoch: 2, ops: [{ value: 8 }] })
  })

  it('is asked for again when some of it is missing', async () => {
    const { client } = await test.join()
    const room = test.owner.room('one')
    const deliver = test.owner.deliver
    test.owner.deliver = () => {}
    room.flush({ state: { count: 1 } })
    test.owner.deliver = deliver
    room.flush({ state: { count: 2 } })
    expect(await client.next('state.patch')).toMatchObject({ seq: 2, ops: [{ value: 1 }] })
    expect(await client.next('state.patch')).toMatchObject({ seq: 3, ops: [{ value: 2 }] })
  })

  it('brings what the owner before has not settled to the new one, in order, each behind the one before', async () => {
    const { client, joined } = await test.join()
    const room = test.owner.room('one')
    test.owner.silent.add('message')
    for (const ref of [3, 5, 8])
      client.send({ t: 'message', room_id: 'arena:one', type: 'move', data: ref, ref })
    await client.roundTrip()
    expect(test.owner.of('message').map(({ ref, after }) => [ref, after])).toEqual([
      [3, undefined],
      [5, 3],
      [8, 5],
    ])
    // The new owner has the first of them only.
    room.members.get(joined.member_id)!.ref = 3
    test.owner.received.length = 0
    room.send({ kind: 'redirect', owner: 'node_b' })
    client.send({ t: 'message', room_id: 'arena:one', type: 'move', data: 9, ref: 9 })
    await client.roundTrip()
    expect(test.owner.of('message').map(({ ref, after }) => [ref, after])).toEqual([
      [5, 3],
      [8, 5],
      [9, 8],
    ])
    expect(client.received.filter(({ t }) => t === 'ack')).toMatchObject([{ ref: 3 }])
  })

  it('brings what the owner before has refused to the new one as refused, until an ack covers it', async () => {
    const { client, joined } = await test.join()
    const { member_id: memberId, room_id: roomId } = joined
    const room = test.owner.room('one')
    test.owner.silent.add('message')
    test.owner.silent.add('refuse')
    for (const ref of [2, 3, 5]) client.send({ t: 'message', room_id: roomId, type: 'move', data: ref, ref })
    await client.roundTrip()
    // The owner ends before it has written the second down, and before it has the last.
    for (const ref of [2, 3])
      room.send({ kind: 'error', member_id: memberId, ref, code: 'room_logic_refused', message: 'not now' })
    room.members.get(memberId)!.ref = 2
    test.owner.received.length = 0
    room.epoch = 2
    room.send({ kind: 'redirect', owner: 'node_b' })
    await client.roundTrip()
    expect(test.owner.received.filter(({ kind }) => kind !== 'attach')).toMatchObject([
      { kind: 'refuse', ref: 3, code: 'room_logic_refused', message: 'not now' },
      { kind: 'message', ref: 5, after: 3 },
    ])
  })

  it('hears what the client knows, with its messages, at a resume, and when the edge asks again', async () => {
    const { client, joined, welcome } = await test.join()
    const { room_id: roomId } = joined
    client.send({ t: 'message', room_id: roomId, type: 'move', data: null, ref: 9, settled: 7 })
    client.send({ t: 'message', room_id: roomId, type: 'move', data: null, settled: 5 })
    await client.roundTrip()
    expect(test.owner.of('message').map(({ settled }) => settled)).toEqual([7, 7])
    test.owner.room('one').send({ kind: 'redirect', owner: 'node_b' })
    expect(test.owner.of('attach').map(({ settled }) => settled)).toEqual([7])
    await test.owner.lose(client)
    const back = await test.resume(welcome, [{ room_id: roomId, epoch: 1, seq: 1, settled: 9 }])
    await back.next('welcome')
    expect(test.owner.of('attach').map(({ settled }) => settled)).toEqual([7, 9])
  })

  it('settles a message whose fields are wrong, so that no ack of a later one stands for it', async () => {
    const { client, joined } = await test.join()
    client.ws.send(JSON.stringify({ t: 'message', room_id: joined.room_id, type: 'move', ref: 3 }))
    expect(await client.next('error')).toMatchObject({ code: 'invalid_message', ref: 3 })
    expect(test.owner.of('refuse')).toMatchObject([{ ref: 3, code: 'invalid_message' }])
  })

  it.each([{ maxUnackedMessages: 2 }, { maxUnackedBytes: 1000 }])(
    'is spared more than may wait for it, and hears what was turned away: %o',
    async (limits) => {
      await test.close()
      test = await TestGateway.start(limits)
      const { client, joined } = await test.join()
      const { room_id: roomId } = joined
      test.owner.silent.add('message')
      const send = (ref: number) =>
        client.send({ t: 'message', room_id: roomId, type: 'move', data: 'x'.repeat(400), ref })
      const refusal = { code: 'room_unavailable', ref: 4, retryable: true }
      const given = async () => {
        await client.roundTrip()
        const sent = test.owner.of('message').map(({ ref, after, skipped }) => [ref, after, skipped])
        test.owner.received.length = 0
        return sent
      }
      for (const ref of [2, 3, 4]) send(ref)
      expect(await client.next('error')).toMatchObject(refusal)
      const [first] = test.owner.of('message')
      // It waits already: a client that sends it again is not to be told that it was refused.
      send(3)
      expect(await given()).toEqual([
        [2, undefined, undefined],
        [3, 2, undefined],
        [3, 2, undefined],
      ])
      test.owner.answer(first!)
      await client.next('ack')
      // What was refused stays so.
      send(4)
      expect(await client.next('error')).toMatchObject(refusal)
      send(5)
      expect(await given()).toEqual([[5, 3, 4]])
      test.owner.room('one').send({ kind: 'redirect', owner: 'node_b' })
      expect(await given()).toEqual([
        [3, 2, undefined],
        [5, 3, 4],
      ])
      test.owner.room('one').members.get(joined.member_id)!.ref = 5
      test.owner.room('one').send({ kind: 'redirect', owner: 'node_a' })
      send(6)
      expect(await given()).toEqual([[6, 5, undefined]])
    },
  )

  it('reaches a member that leaves with it, but for what everyone else hears of that', async () => {
    const { client, joined } = await test.join()
    const { client: other } = await test.join('one')
    const { room_id: roomId, member_id: memberId } = joined
    const room = test.owner.room('one')
    const { deliver } = test.owner
    test.owner.deliver = (message) =>
      deliver(message.kind === 'update' ? { ...message, leaving: [memberId] } : message)
    const event = { t: 'event', room_id: roomId, epoch: 1, seq: 3, name: 'over', data: null } as const
    room.flush({
      state: { count: 7 },
      events: [['over', null]],
      personal: [{ member_id: memberId, events: [event], ack: 4 }],
    })
    room.send({ kind: 'left', member_id: memberId, farewell: { epoch: 1, seq: 3, reason: 'left' } })
    await Promise.all([client.roundTrip(), other.roundTrip()])
    const seen = ({ received }: TestClient) => received.map(({ t }) => t).slice(-5, -1)
    expect(seen(client)).toEqual(['state.patch', 'event', 'ack', 'member'])
    expect(seen(other)).toEqual(['joined', 'state.snapshot', 'state.patch', 'event'])
  })

  it('can end a seat, and says so to its client', async () => {
    const { client, joined } = await test.join()
    const { room_id: roomId, member_id: memberId } = joined
    const farewell = { epoch: 1, seq: 2, reason: 'kicked' } as const
    test.owner.room('one').send({ kind: 'left', member_id: memberId, farewell })
    const about = { t: 'member', room_id: roomId, member_id: memberId, sub: 'ada', status: 'left' }
    expect(await client.next('member')).toEqual({ ...about, ...farewell })
    client.send({ t: 'message', room_id: roomId, type: 'move', data: null })
    expect(await client.next('error')).toMatchObject({ code: 'not_in_room' })
  })

  describe('whole states, for a client that asks again and again,', () => {
    const ask = (client: TestClient, count = 1): Promise<void> => {
      for (let i = 0; i < count; i++)
        client.send({ t: 'state.resync', room_id: 'arena:one', reason: 'checksum' })
      return client.roundTrip()
    }
    const asked = (): number => test.owner.of('resync').length

    it('come one in a second after the first few, however small they are, and at once again when it has been quiet', async () => {
      const { client } = await test.join()
      const count = async (asks: number): Promise<number> => {
        for (let i = 0; i < asks; i++) await ask(client)
        return asked()
      }
      expect(await count(50)).toBe(8)
      test.clock.advance(1000)
      expect(await count(50)).toBe(9)
      for (let seconds = 0; seconds < 10; seconds++) {
        test.clock.advance(1000)
        await client.roundTrip()
      }
      expect(await count(50)).toBe(10 + 8)
    })

    it('are one at a time: what it asks until the answer is here is answered by that', async () => {
      const { client } = await test.join()
      const room = test.owner.room('one')
      test.owner.silent.add('resync')
      await ask(client, 5)
      const { member_id: memberId } = test.owner.of('resync')[0]!
      room.send({ kind: 'state', member_id: memberId, seq: room.seq, state: room.resync() })
      await client.next('state.resync')
      test.clock.advance(9000)
      await client.roundTrip()
      expect(asked()).toBe(1)
    })

    it('are not asked for any more when its subscription or its connection is gone', async () => {
      const { client } = await test.join()
      for (let i = 0; i < 9; i++) await ask(client)
      client.ws.terminate()
      await expect.poll(() => test.owner.of('detach').length).toBe(1)
      test.clock.advance(60_000)
      expect(asked()).toBe(8)
    })
  })
})
