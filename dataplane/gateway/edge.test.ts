import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { JsonCodec } from '../../shared/protocol/json-codec.ts'
import type { TestClient } from '../../test/support/gateway/test-gateway.ts'
import { TestGateway } from '../../test/support/gateway/test-gateway.ts'
import { frame } from '../frame.ts'
import type { Acknowledgement } from '../traffic.ts'

let test: TestGateway
beforeEach(async () => {
  test = await TestGateway.start()
})
afterEach(() => test.close())

const move = (ref: number, settled = 0, data: string | null = null) =>
  ({ t: 'message', room_id: 'arena:one', type: 'move', data, ref, settled }) as const

/** The answers that a client got to its messages. */
const answers = ({ received }: TestClient): string[] =>
  received.flatMap((told) => {
    if (told.t === 'error') return [`${told.code} ${told.ref}`]
    return told.t === 'ack' || told.t === 'reply' ? [`${told.t} ${told.ref}`] : []
  })

/** The store gets writes of sessions, and answers them when the test calls `answer`. */
function holdWrites() {
  const write = test.records.write.bind(test.records)
  let answer = (): void => {}
  const answered = new Promise<void>((resolve) => {
    answer = resolve
  })
  const writes = vi.spyOn(test.records, 'write').mockImplementation(async (...args) => {
    await answered
    return write(...args)
  })
  return { writes, answer }
}

const errors = ({ received }: TestClient) => received.filter(({ t }) => t === 'error')

describe('a join', () => {
  it('sends the owner the options without the key, and whether the client supports hidden layers', async () => {
    const { client } = await test.hello(undefined, ['layers'])
    client.send({ t: 'join', request_id: 1, room_type: 'arena', options: { key: 'one', map: 'desert' } })
    await client.next('joined')
    await test.join('two', undefined, ['reroute'])
    expect(test.owner.of('join').map(({ options, layers }) => [options, layers])).toEqual([
      [{ map: 'desert' }, true],
      [{}, undefined],
    ])
  })

  it('to watch creates no room', async () => {
    const { client } = await test.hello()
    client.send({ t: 'join', request_id: 1, room_type: 'arena', options: { key: 'one' }, watch: true })
    await client.next('joined')
    expect(test.owner.of('join')).toMatchObject([{ watch: true, create: false }])
  })

  it('is not sent to the owner if its client is gone before the record of the session is written', async () => {
    const { client } = await test.hello()
    const { writes, answer } = holdWrites()
    client.send({ t: 'join', request_id: 1, room_type: 'arena', options: { key: 'one' } })
    await vi.waitFor(() => expect(writes).toHaveBeenCalled(), 60_000)
    await test.owner.lose(client)
    answer()
    await test.join('two')
    expect(test.owner.of('join').map(({ room }) => room.key)).toEqual(['two'])
  })

  it('waits for the record of the session, and fails if the record takes too long', async () => {
    const { client } = await test.hello()
    const { writes, answer } = holdWrites()
    client.send({ t: 'join', request_id: 1, room_type: 'arena', options: { key: 'one' } })
    await vi.waitFor(() => expect(writes).toHaveBeenCalled(), 60_000)
    test.clock.advance(6000)
    test.clock.advance(4000)
    expect(await client.next('error')).toMatchObject({
      code: 'room_unavailable',
      message: 'the store does not answer: try again',
      request_id: 1,
    })
    expect(test.owner.received).toEqual([])
    client.send({ t: 'join', request_id: 2, room_type: 'arena', options: { key: 'one' } })
    answer()
    expect(await client.next('joined')).toMatchObject({ request_id: 2 })
    expect(test.owner.received.map(({ kind }) => kind)).toEqual(['join'])
  })

  it('cannot address another room by a colon in its type', async () => {
    const { client } = await test.hello(await test.token({ rooms: ['arena:one'] }))
    client.send({ t: 'join', request_id: 1, room_type: 'arena:one', options: { key: 'x' } })
    expect(await client.next('error')).toMatchObject({ code: 'unknown_room_type' })
    expect(test.owner.received).toEqual([])
  })

  it('cannot create a room that no path of the control API can name', async () => {
    const { client } = await test.hello()
    client.send({ t: 'join', request_id: 1, room_type: 'arena', options: { key: '..' } })
    expect(await client.next('error')).toMatchObject({ code: 'invalid_options', request_id: 1 })
    expect(test.owner.received).toEqual([])
  })

  it('fails if no owner answers, and can be repeated', async () => {
    const { client } = await test.hello()
    test.owner.silent.add('join')
    const asked = test.owner.next('join')
    client.send({ t: 'join', request_id: 1, room_type: 'arena', options: { key: 'one' } })
    await asked
    test.clock.advance(10_000)
    expect(await client.next('error')).toMatchObject({
      code: 'room_unavailable',
      request_id: 1,
      retryable: true,
    })
    test.owner.silent.clear()
    client.send({ t: 'join', request_id: 2, room_type: 'arena', options: { key: 'one' } })
    expect(await client.next('joined')).toMatchObject({ request_id: 2 })
  })
})

describe('a join that is sent again after its seat has ended', () => {
  // Its client does not know the member id, so the end of the seat would not be an answer.
  it.each([
    ['kicked', 'join_refused'],
    ['closed', 'room_unavailable'],
  ] as const)('is refused (%s)', async (reason, code) => {
    const { client } = await test.hello()
    test.owner.silent.add('join')
    const asked = test.owner.next('join')
    client.send({ t: 'join', request_id: 1, room_type: 'arena', options: { key: 'one' } })
    const { member_id: memberId } = await asked
    test.owner.room('one').send({ kind: 'left', member_id: memberId, farewell: { reason } })
    expect(await client.next('error')).toMatchObject({ code, request_id: 1, room_id: 'arena:one' })
    expect(client.received.some(({ t }) => t === 'left')).toBe(false)
  })
})

describe('a reliable message without an ack', () => {
  it('is repeated after 5 s, if the owner has not received it', async () => {
    const { client, joined } = await test.join()
    test.owner.silent.add('message')
    const sent = test.owner.next('message')
    client.send({ t: 'message', room_id: joined.room_id, type: 'count', data: null, ref: 1, settled: 0 })
    await sent
    test.owner.silent.clear()
    for (let second = 1; second < 5; second++) test.clock.advance(1000)
    expect(test.owner.of('attach')).toEqual([])
    test.clock.advance(2000)
    expect(await client.next('ack')).toMatchObject({ ref: 1 })
    expect(test.owner.of('attach')).toHaveLength(1)
    expect(test.owner.of('message').map(({ ref }) => ref)).toEqual([1, 1])
    for (let second = 0; second < 10; second++) test.clock.advance(1000)
    expect(test.owner.of('attach')).toHaveLength(1)
  })
})

describe('a join that is answered when its client is gone', () => {
  it('is followed by a detach, so that the owner knows that the subscription waits for a resume', async () => {
    const { client } = await test.hello()
    test.owner.silent.add('join')
    const asked = test.owner.next('join')
    client.send({ t: 'join', request_id: 1, room_type: 'arena', options: { key: 'one' } })
    const { member_id: memberId } = await asked
    await test.owner.lose(client)
    const room = test.owner.room('one')
    room.members.set(memberId, { sub: 'ada', ref: 0 })
    room.flush({ joined: [{ member_id: memberId, request_id: 1 }] })
    expect(test.owner.of('detach')).toMatchObject([{ member_id: memberId }, { member_id: memberId }])
  })
})

describe('a leave', () => {
  it('can be followed immediately by a join of the same room', async () => {
    const { client, joined } = await test.join()
    test.owner.silent.add('leave')
    client.send(
      { t: 'leave', request_id: 2, room_id: joined.room_id },
      { t: 'join', request_id: 3, room_type: 'arena', options: { key: 'one' } },
    )
    expect(await client.next('left')).toMatchObject({ reason: 'left' })
    const again = await client.next('joined')
    expect(again.member_id).not.toBe(joined.member_id)
    await client.next('state.snapshot')
    // The owner has not ended the old subscription yet: its frames are not delivered twice.
    test.owner.room('one').flush({ state: { count: 5 } })
    await client.roundTrip()
    expect(client.received.filter(({ t }) => t === 'state.patch')).toHaveLength(1)
  })
})

describe('a leave that failed', () => {
  // During a leave the edge counts the subscription as ended: it forwards nothing, and sends no leave at the end of the session. A leave whose
  // room could not be reached once stayed open forever.
  it('leaves the subscription unchanged, so that it can be left again or end with the session', async () => {
    const { client, joined } = await test.join()
    const { room_id: roomId, member_id: memberId } = joined
    test.owner.silent.add('leave')
    const asked = test.owner.next('leave')
    client.send({ t: 'leave', request_id: 2, room_id: roomId })
    await asked
    const room = test.owner.room('one')
    room.send({
      kind: 'error',
      member_id: memberId,
      request_id: 2,
      code: 'room_unavailable',
      message: 'try again',
    })
    expect(await client.next('error')).toMatchObject({
      code: 'room_unavailable',
      request_id: 2,
      retryable: true,
    })
    client.send({ t: 'message', room_id: roomId, type: 'move', data: null, ref: 1, settled: 0 })
    expect(await client.next('ack')).toMatchObject({ ref: 1 })
    const gone = test.owner.next('leave')
    client.send({ t: 'goodbye' })
    expect(await gone).toMatchObject({ member_id: memberId, reason: 'left' })
  })

  // The edge drops a subscription with an open leave, so no other leave would follow.
  it.each([
    ['the connection is lost', ({ ws }: TestClient) => ws.terminate()],
    ['the client says goodbye', (client: TestClient) => client.send({ t: 'goodbye' })],
    [
      'the client joins again',
      (client: TestClient) =>
        client.send({ t: 'join', request_id: 3, room_type: 'arena', options: { key: 'one' } }),
    ],
  ])('keeps no member in the room if %s before its answer', async (_, end) => {
    const { client, joined } = await test.join()
    const { room_id: roomId, member_id: memberId } = joined
    test.owner.silent.add('leave')
    const asked = test.owner.next('leave')
    client.send({ t: 'leave', request_id: 2, room_id: roomId })
    await asked
    // A room that refuses the leave with an error. It never refuses a leave without a request id.
    const certain = test.owner.next('leave')
    end(client)
    expect(await certain).toEqual({
      ...{ kind: 'leave', room: test.owner.room('one').address, member_id: memberId, reason: 'left' },
    })
  })
})

it('the end of a seat reaches the client once, also if the owner repeats it when the client has joined again', async () => {
  const { client, joined } = await test.join()
  const end = () =>
    test.owner.room('one').send({
      ...{ kind: 'left', member_id: joined.member_id, farewell: { reason: 'kicked' } },
    })
  end()
  await client.next('left')
  end()
  client.send({ t: 'join', request_id: 2, room_type: 'arena', options: { key: 'one' } })
  await client.next('joined')
  end()
  await client.roundTrip()
  expect(client.received.filter(({ t }) => t === 'left')).toHaveLength(1)
})

describe('a message', () => {
  it('for a seat that the owner does not know is answered with the end of the seat', async () => {
    const { client, joined } = await test.join()
    test.owner.room('one').members.clear()
    client.send({ t: 'message', room_id: joined.room_id, type: 'move', data: null, ref: 1, settled: 0 })
    const { room_id } = joined
    expect(await client.next('left')).toEqual({ t: 'left', room_id, reason: 'session_ended' })
    client.send({ t: 'join', request_id: 2, room_type: 'arena', options: { key: 'one' } })
    await client.next('joined')
  })
})

describe('Edge', () => {
  it('drops messages of an owner with a lower epoch than the latest', async () => {
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

  it('attaches again if a flush is missing', async () => {
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

  it('sends the owner the highest ref whose outcomes the client knows: with messages, at a resume, and with a repeated attach', async () => {
    const { client, joined, welcome } = await test.join()
    const { room_id: roomId } = joined
    for (const ref of [1, 2]) client.send(move(ref, ref - 1))
    await client.roundTrip()
    expect(test.owner.of('message').map(({ settled }) => settled)).toEqual([0, 1])
    test.owner.room('one').send({ kind: 'redirect', owner: 'node_b' })
    expect(test.owner.of('attach').map(({ settled }) => settled)).toEqual([1])
    await test.owner.lose(client)
    const back = await test.resume(welcome, [{ room_id: roomId, epoch: 1, seq: 1, settled: 2 }])
    await back.next('welcome')
    expect(test.owner.of('attach').map(({ settled, through }) => [settled, through])).toEqual([
      [1, 2],
      [2, 2],
    ])
  })

  it.each([{ maxUnackedMessages: 2 }, { maxUnackedBytes: 1000 }])(
    'refuses messages beyond the limit of unacknowledged ones as one range, answered in order: %o',
    async (limits) => {
      await test.close()
      test = await TestGateway.start(limits)
      const { client, joined } = await test.join()
      const room = test.owner.room('one')
      test.owner.silent.add('message').add('refuse')
      for (const ref of [1, 2, 3, 4, 5]) client.send(move(ref, 0, 'x'.repeat(400)))
      await client.roundTrip()
      const given = () =>
        test.owner.received.flatMap((sent): (number | string | undefined)[] => {
          if (sent.kind === 'message') return [sent.ref]
          return sent.kind === 'refuse' ? [`${sent.from}-${sent.through}`] : []
        })
      expect(given()).toEqual([1, 2, '3-3', '4-4', '5-5'])
      expect(errors(client)).toEqual([])
      test.owner.received.length = 0
      room.send({ kind: 'redirect', owner: 'node_b' })
      expect(given()).toEqual([1, 2, '3-5'])
      test.owner.silent.clear()
      for (const sent of test.owner.received.splice(0)) if (sent.kind !== 'attach') test.owner.answer(sent)
      client.send(move(6))
      expect(await client.next('ack', ({ ref }) => ref === 6)).toBeDefined()
      expect(answers(client)).toEqual([
        'ack 1',
        'ack 2',
        'room_unavailable 3',
        'room_unavailable 4',
        'room_unavailable 5',
        'ack 6',
      ])
      expect(room.members.get(joined.member_id)!.ref).toBe(6)
    },
  )

  it('sends a member that leaves with a flush all of it, except presence and events for others', async () => {
    const { client, joined } = await test.join()
    const { client: other } = await test.join('one')
    const { room_id: roomId, member_id: memberId } = joined
    const room = test.owner.room('one')
    const { deliver } = test.owner
    test.owner.deliver = (message) =>
      deliver(message.kind === 'update' ? { ...message, leaving: [memberId] } : message)
    const event = { t: 'event', room_id: roomId, name: 'over', data: null } as const
    room.flush({
      state: { count: 7 },
      events: [['over', null]],
      personal: [{ member_id: memberId, events: [event], ack: 4 }],
    })
    room.send({ kind: 'left', member_id: memberId, farewell: { reason: 'left' } })
    await Promise.all([client.roundTrip(), other.roundTrip()])
    const seen = ({ received }: TestClient) => received.map(({ t }) => t).slice(-5, -1)
    expect(seen(client)).toEqual(['state.patch', 'event', 'ack', 'left'])
    expect(seen(other)).toEqual(['joined', 'state.snapshot', 'state.patch', 'event'])
  })

  describe('a request for a full state', () => {
    const ask = async (client: TestClient): Promise<void> => {
      client.send({ t: 'state.resync', room_id: 'arena:one', reason: 'checksum' })
      await client.roundTrip()
    }
    const asked = (): number => test.owner.of('resync').length

    it('is repeated to the next owner, even if that owner has all missed updates', async () => {
      const { client } = await test.join()
      test.owner.silent.add('resync')
      await ask(client)
      test.owner.silent.clear()
      test.owner.room('one').send({ kind: 'redirect', owner: 'node_b' })
      await client.next('state.resync')
      expect([test.owner.of('attach').length, asked()]).toEqual([1, 2])
    })

    it('is answered once if the next owner has not all missed updates', async () => {
      const { client } = await test.join()
      const room = test.owner.room('one')
      test.owner.silent.add('resync')
      await ask(client)
      room.epoch = 2
      room.flush({ state: { count: 1 } })
      expect(await client.next('state.resync')).toMatchObject({ epoch: 2 })
      test.clock.advance(9000)
      await client.roundTrip()
      expect(asked()).toBe(1)
    })

    it('is repeated after 2 s without an answer, even if the client is leaving', async () => {
      const { client, joined } = await test.join()
      test.owner.silent.add('resync').add('leave')
      client.send({ t: 'leave', request_id: 2, room_id: joined.room_id })
      await ask(client)
      const { member_id: memberId } = joined
      const refusal = { code: 'room_unavailable', message: 'busy', request_id: 2 } as const
      test.owner.room('one').send({ kind: 'error', member_id: memberId, ...refusal })
      test.owner.silent.clear()
      test.clock.advance(2000)
      await client.next('state.resync')
      expect(errors(client)).toMatchObject([{ request_id: 2 }])
      expect(asked()).toBe(2)
    })

    it('that is made during an attach is sent after it', async () => {
      const { client } = await test.join()
      test.owner.silent.add('attach')
      test.owner.room('one').send({ kind: 'redirect', owner: 'node_b' })
      await ask(client)
      expect(asked()).toBe(0)
      test.owner.silent.clear()
      test.owner.answer(test.owner.of('attach')[0]!)
      await client.next('state.resync')
    })
  })

  describe('full states, for a client that requests them again and again,', () => {
    const ask = (client: TestClient, count = 1): Promise<void> => {
      for (let i = 0; i < count; i++)
        client.send({ t: 'state.resync', room_id: 'arena:one', reason: 'checksum' })
      return client.roundTrip()
    }
    const asked = (): number => test.owner.of('resync').length

    it('arrive once a second after the first few, however small they are', async () => {
      const { client } = await test.join()
      const beganAt = test.clock.monotonic()
      let isOver = false
      const asking = (async () => {
        while (asked() < 20) await ask(client)
        isOver = true
      })()
      while (!isOver) {
        test.clock.advance(20)
        await new Promise((resolve) => setImmediate(resolve))
      }
      await asking
      expect(asked()).toBe(20)
      expect(test.clock.monotonic() - beganAt).toBeGreaterThan(10_000)
    })

    it('are sent one at a time: requests until the answer share that answer', async () => {
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
  })
})

describe('the refs of a seat', () => {
  it('start with 1 again in a new seat', async () => {
    const { client, joined } = await test.join()
    client.send(move(1), { t: 'leave', request_id: 2, room_id: joined.room_id })
    await client.next('left')
    client.send({ t: 'join', request_id: 3, room_type: 'arena', options: { key: 'one' } })
    await client.next('joined')
    client.send(move(1))
    await client.roundTrip()
    expect(answers(client)).toEqual(['ack 1', 'ack 1'])
  })

  it('are higher than settled: otherwise the connection closes with 4000', async () => {
    const { client } = await test.join()
    client.send(move(1, 1))
    expect(await client.closed).toMatchObject({
      code: 4000,
      reason: 'a message to arena:one has ref 1 and settled 1, which must be lower',
    })
    expect(test.owner.of('message')).toEqual([])
  })

  it('continue during a leave, which may fail', async () => {
    const { client, joined } = await test.join()
    const room = test.owner.room('one')
    test.owner.silent.add('leave')
    client.send(move(1), { t: 'leave', request_id: 2, room_id: joined.room_id }, move(2))
    await client.roundTrip()
    const { member_id: memberId } = joined
    const failed = { code: 'room_unavailable', message: 'later', request_id: 2 } as const
    room.send({ kind: 'error', member_id: memberId, ...failed })
    client.send(move(3))
    await client.next('ack', ({ ref }) => ref === 3)
    expect(answers(client)).toEqual(['ack 1', 'not_in_room 2', 'room_unavailable undefined', 'ack 3'])
  })

  it('of refusals beyond the limit share one entry, whatever their texts', async () => {
    await test.close()
    test = await TestGateway.start({ maxUnackedMessages: 2 })
    const { client } = await test.join()
    test.owner.silent.add('message').add('refuse')
    const invalid = (ref: number, type: unknown) => ({ ...move(ref), type }) as ReturnType<typeof move>
    client.send(move(1), move(2))
    for (let ref = 3; ref <= 8; ref += 1) client.send(invalid(ref, ref % 2 === 0 ? 'x'.repeat(65) : ''))
    await client.roundTrip()
    test.owner.received.length = 0
    test.owner.room('one').send({ kind: 'redirect', owner: 'node_b' })
    expect(test.owner.of('refuse').map(({ from, through }) => [from, through])).toEqual([[3, 8]])
  })
})

describe('the outcome of messages', () => {
  const refused = (ref: number) => ({ ref, code: 'room_logic_refused', message: 'no' }) as const

  /** A client that has sent refs 1 to 6, which its owner has not acknowledged. */
  async function sent() {
    const { client, joined, snapshot, welcome } = await test.join()
    test.owner.silent.add('message').add('attach')
    for (let ref = 1; ref <= 6; ref++) client.send(move(ref))
    await client.roundTrip()
    const room = test.owner.room('one')
    const { member_id: memberId } = joined
    const attached = (acknowledgement: Acknowledgement) => {
      const { ask } = test.owner.of('attach').at(-1)!
      const { seq } = room
      room.send({
        kind: 'attached',
        member_id: memberId,
        ask,
        seq,
        resumed: true,
        frames: [],
        ...acknowledgement,
      })
    }
    return { client, room, memberId, snapshot, welcome, attached }
  }

  it('is sent once per connection, also by the next owner', async () => {
    const { client, room, memberId, attached } = await sent()
    const outcomes = [refused(1), { ref: 2, reply: 7 }]
    room.flush({ personal: [{ member_id: memberId, events: [], ack: 3, outcomes }] })
    room.epoch = 2
    room.send({ kind: 'redirect', owner: 'node_b' })
    attached({ ack: 4, outcomes: [...outcomes, refused(4)] })
    await client.roundTrip()
    const before = ['room_logic_refused 1', 'reply 2', 'ack 3']
    expect(answers(client)).toEqual([...before, 'room_logic_refused 4'])
  })

  it('is sent to a client that resumes, above the refs that it has confirmed', async () => {
    const { client, welcome, snapshot, attached } = await sent()
    await test.owner.lose(client)
    const back = await test.resume(welcome, [{ ...snapshot, settled: 2 }])
    await expect.poll(() => test.owner.of('attach')).toHaveLength(1)
    attached({ ack: 6, outcomes: [refused(2), refused(4)] })
    await back.next('welcome')
    back.send(move(3, 2), move(4, 2), move(5, 2), move(6, 2))
    await back.roundTrip()
    expect(answers(back)).toEqual(['ack 3', 'room_logic_refused 4', 'ack 6'])
  })

  it('is unknown if it is forgotten: each such message is answered when it is repeated, and later outcomes follow', async () => {
    const { client, welcome, snapshot, attached } = await sent()
    await test.owner.lose(client)
    const back = await test.resume(welcome, [{ ...snapshot, settled: 1 }])
    await expect.poll(() => test.owner.of('attach')).toHaveLength(1)
    attached({ ack: 6, outcomes: [refused(5)], forgotten: 3 })
    await back.next('welcome')
    await back.roundTrip()
    expect(answers(back)).toEqual([])
    back.send(move(2, 1))
    await back.roundTrip()
    expect(answers(back)).toEqual(['outcome_unknown 2'])
    back.send(move(3, 1), move(4, 1))
    await back.roundTrip()
    const unknown = ['outcome_unknown 2', 'outcome_unknown 3']
    expect(answers(back)).toEqual([...unknown, 'ack 4', 'room_logic_refused 5', 'ack 6'])
  })

  it('is sent immediately if the client has confirmed the forgotten outcomes', async () => {
    const { client, room, memberId } = await sent()
    room.flush({
      personal: [{ member_id: memberId, events: [], ack: 6, forgotten: 2, outcomes: [refused(3)] }],
    })
    await client.roundTrip()
    const unknown = ['outcome_unknown 1', 'outcome_unknown 2']
    expect(answers(client)).toEqual([...unknown, 'room_logic_refused 3', 'ack 6'])
    client.send(move(7, 6))
    await client.roundTrip()
    expect(errors(client)).toHaveLength(3)
  })
})

describe('the number of spectators', () => {
  const codec = new JsonCodec()
  const count = (spectators: number) => {
    const message = { t: 'spectators', room_id: 'arena:one', count: spectators } as const
    return { 'roomful.v1.json': frame(codec.encode(message), codec.binary) }
  }
  const counts = ({ received }: TestClient) =>
    received.flatMap((message) => (message.t === 'spectators' ? [message.count] : []))

  it('goes to all members of the room at this edge that have its state, and to no others', async () => {
    const [{ client: ann }, { client: bob }] = [await test.join('one'), await test.join('two')]
    const { client: cem } = await test.join('one')
    const room = test.owner.room('one')
    room.send({ kind: 'spectators', frames: count(7) })
    await cem.next('spectators')
    await test.owner.lose(cem)
    room.send({ kind: 'spectators', frames: count(8) })
    await vi.waitFor(() => expect(counts(ann)).toEqual([7, 8]), 60_000)
    expect([counts(bob), counts(cem)]).toEqual([[], [7]])
  })
})
