import { Registry } from 'prom-client'
import { afterEach, describe, expect, it, vi } from 'vitest'
import { registerMetrics } from '../../shared/metrics.ts'
import type { ClientMessage } from '../../shared/protocol/messages.ts'
import { MsgpackClientCodec } from '../../shared/protocol/msgpack-client-codec.ts'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { type TestClient, TestControl, TestGateway } from '../../test/support/gateway/test-gateway.ts'
import { TestOwner, testCodecs } from '../../test/support/gateway/test-owner.ts'
import { RawClient } from '../../test/support/raw-client.ts'
import type { Frame } from '../frame.ts'
import { Lane, type LaneMember } from './lane.ts'
import { GATEWAY_METRICS } from './metrics.ts'
import { Flusher, Outbox } from './outbox.ts'

describe('Lane', () => {
  const frame = (byte: number): Frame => Uint8Array.of(byte)

  /** A lane with members, and the frames that each has been sent. */
  function laneOf(names: readonly string[]) {
    const metrics = registerMetrics(new Registry(), GATEWAY_METRICS)
    const atEnd: (() => void)[] = []
    const flusher = new Flusher((callback) => void atEnd.push(callback), metrics)
    const apart = new Set<LaneMember>()
    const lane = new Lane(apart)
    const members = names.map((name) => {
      const frames: number[] = []
      const write = (bytes: Frame): boolean => frames.push(...bytes) > 0
      const sink = { write, writev: () => true, onceDrained: () => {}, writableLength: 0 }
      const bounds = { outboxHighWaterBytes: 1000, outboxLimitBytes: 2000 }
      const outbox = new Outbox(sink, flusher, bounds, { overflowed: () => {}, hasRoom: () => {} })
      outbox.open(frame(0))
      const member: LaneMember & { name: string; has: number } = {
        name,
        lane: undefined,
        place: 0,
        has: -1,
        busy: () => member.lane?.busy(),
        leave: () => member.lane?.remove(member),
        leftLane: (seq: number) => void Object.assign(member, { has: seq }),
      }
      apart.add(member)
      return { member, outbox, frames }
    })
    const endTurn = (): void => {
      for (const callback of atEnd.splice(0)) callback()
    }
    endTurn()
    return {
      lane,
      apart,
      members,
      metrics,
      endTurn,
      sent: () => members.map(({ frames }) => frames.slice(1)),
    }
  }

  it('sends an update to its members, except those with queued frames, which leave as of the update before', () => {
    const { lane, apart, members, endTurn, sent } = laneOf(['ada', 'bob', 'cyd'])
    for (const { member, outbox } of members) lane.add(member, outbox, 7)
    const [ada, bob] = members
    bob!.outbox.push(frame(9))
    lane.flush(frame(1), 8, true)
    endTurn()
    expect(sent()).toEqual([[1], [9], [1]])
    expect([...apart]).toEqual([bob!.member])
    expect(bob!.member.has).toBe(7)
    lane.remove(ada!.member)
    expect(ada!.member.has).toBe(8)
    lane.flush(frame(2), 9, true)
    endTurn()
    expect(sent()).toEqual([[1], [9], [1, 2]])
  })

  it('keeps a member whose frames have left before the next update', () => {
    const { lane, apart, members, endTurn, sent } = laneOf(['ada', 'bob'])
    for (const { member, outbox } of members) lane.add(member, outbox, 1)
    for (let seq = 2; seq <= 3; seq++) {
      members[0]!.outbox.push(frame(9))
      endTurn()
      lane.flush(frame(seq), seq, true)
      endTurn()
    }
    expect(sent()).toEqual([
      [9, 2, 9, 3],
      [2, 3],
    ])
    expect(apart.size).toBe(0)
  })

  it('sends an update before everything that happens to its members in the same turn', () => {
    const { lane, members, endTurn, sent } = laneOf(['ada', 'bob', 'cyd', 'dan'])
    for (const { member, outbox } of members) lane.add(member, outbox, 1)
    const [ada, bob, cyd] = members
    const flush = (seq: number) => lane.flush(frame(seq), seq, true)
    flush(2)
    expect(sent()).toEqual([[], [], [], []])
    ada!.outbox.push(frame(9))
    expect(sent()).toEqual([[2], [2], [2], [2]])
    flush(3)
    lane.remove(bob!.member)
    flush(4)
    cyd!.outbox.close()
    flush(5)
    flush(6)
    endTurn()
    expect(sent()).toEqual([
      [2, 9],
      [2, 3],
      [2, 3, 4],
      [2, 3, 4, 5, 6],
    ])
  })

  it('queues an update that other frames follow, so that all leave in one write', () => {
    const { lane, members, endTurn, sent } = laneOf(['ada', 'bob'])
    for (const { member, outbox } of members) lane.add(member, outbox, 1)
    lane.flush(frame(1), 2, false)
    members[0]!.outbox.push(frame(2))
    expect(sent()).toEqual([[], []])
    endTurn()
    expect(sent()).toEqual([[1, 2], [1]])
  })

  it('sends the updates of one turn in groups of 16 rooms', () => {
    const { members, endTurn, sent } = laneOf(Array.from({ length: 17 }, (_, i) => `player${i}`))
    for (const { member, outbox } of members) {
      const lane = new Lane(new Set([member]))
      lane.add(member, outbox, 1)
      lane.flush(frame(2), 2, true)
    }
    expect(sent()).toEqual([...Array.from({ length: 16 }, () => [2]), []])
    endTurn()
    expect(sent()[16]).toEqual([2])
  })

  it('finds what is queued for a member that enters with it, or that comes from another lane', () => {
    const { lane, members, endTurn, sent } = laneOf(['ada', 'bob'])
    const [ada, bob] = members
    ada!.outbox.push(frame(9))
    lane.add(ada!.member, ada!.outbox, 1)
    lane.add(bob!.member, bob!.outbox, 1)
    lane.flush(frame(2), 2, true)
    expect(ada!.member.has).toBe(1)
    bob!.outbox.push(frame(3))
    lane.remove(bob!.member)
    const other = new Lane(new Set())
    other.add(bob!.member, bob!.outbox, 5)
    endTurn()
    bob!.outbox.push(frame(4))
    other.flush(frame(6), 6, true)
    endTurn()
    expect(bob!.member.has).toBe(5)
    expect(sent()).toEqual([[9], [2, 3, 4]])
  })

  it('counts its writes, and leaves out a member with frames that are held elsewhere', () => {
    const { lane, members, endTurn, sent, metrics } = laneOf(['ada', 'bob'])
    const writes = vi.spyOn(metrics.socketWrites, 'inc')
    for (const { member, outbox } of members) lane.add(member, outbox, 1)
    lane.flush(frame(2), 2, true)
    endTurn()
    members[0]!.outbox.hold(5)
    lane.flush(frame(3), 3, true)
    endTurn()
    expect(sent()).toEqual([[2], [2, 3]])
    expect(writes.mock.calls.reduce((sum, [count = 1]) => sum + count, 0)).toBe(3)
  })

  it('takes no member that has another update than its members', () => {
    const { lane, apart, members } = laneOf(['ada', 'bob'])
    const [ada, bob] = members
    lane.add(ada!.member, ada!.outbox, 3)
    lane.add(bob!.member, bob!.outbox, 4)
    expect([...apart]).toEqual([bob!.member])
    lane.clear()
    lane.add(bob!.member, bob!.outbox, 4)
    expect([...apart]).toEqual([ada!.member])
  })
})

describe('a client in a lane', () => {
  let test: TestGateway
  afterEach(() => test.close())

  it('gets no update that was lost before a whole state', async () => {
    test = await TestGateway.start()
    const { client, joined } = await test.join()
    const { owner } = test
    const room = owner.room('one')
    for (let count = 1; count <= 2; count++) room.flush({ state: { count } })
    const { deliver } = owner
    owner.deliver = () => {}
    room.flush({ state: { count: 3 } })
    owner.deliver = deliver
    client.send({ t: 'state.resync', room_id: joined.room_id, reason: 'checksum' })
    const { seq } = await client.next('state.resync')
    room.flush({ state: { count: 4 } })
    await client.roundTrip()
    const patches = client.received.flatMap((message) => (message.t === 'state.patch' ? [message.seq] : []))
    expect(patches).toEqual([seq - 2, seq - 1, seq + 1])
  })
})

describe('a client in two rooms', () => {
  let test: TestGateway
  afterEach(() => test.close())

  it('gets each update of both once, beside members who leave, join, and are in one of them', async () => {
    test = await TestGateway.start()
    const ada = await test.join('one')
    ada.client.send({ t: 'join', request_id: 2, room_type: 'arena', options: { key: 'two' } })
    await ada.client.next('state.snapshot', ({ room_id }) => room_id === 'arena:two')
    const bob = await test.join('one')
    const [one, two] = [test.owner.room('one'), test.owner.room('two')]
    const start = { one: one.seq, two: two.seq }
    for (let count = 1; count <= 3; count++) one.flush({ state: { count } })
    two.flush({ state: { count: 1 } })
    one.flush({ personal: [{ member_id: bob.joined.member_id, events: [], ack: 1 }], state: { count: 4 } })
    two.flush({ state: { count: 2 } })
    const cyd = await test.join('one')
    one.flush({ state: { count: 5 } })
    await Promise.all([ada, bob, cyd].map(({ client }) => client.roundTrip()))
    const seqs = ({ client }: typeof ada, room: string) =>
      client.received.flatMap((message) =>
        message.t === 'state.patch' && message.room_id === room ? [message.seq] : [],
      )
    const from = (first: number, last: number) =>
      Array.from({ length: last - first }, (_, i) => first + 1 + i)
    expect(seqs(ada, one.roomId).slice(-(one.seq - start.one))).toEqual(from(start.one, one.seq))
    expect(seqs(ada, two.roomId)).toEqual(from(start.two, two.seq))
    expect(seqs(bob, one.roomId)).toEqual(from(start.one, one.seq))
    expect(seqs(cyd, one.roomId)).toEqual([one.seq])
  })
})

describe('a client that was in a lane', () => {
  let test: TestGateway
  afterEach(() => test.close())

  const patches = ({ received }: TestClient) =>
    received.flatMap((message) => (message.t === 'state.patch' ? [message.seq] : []))

  it('gets no update after it has left', async () => {
    test = await TestGateway.start()
    await test.join()
    const { client, joined } = await test.join()
    const room = test.owner.room('one')
    for (let count = 1; count <= 2; count++) room.flush({ state: { count } })
    client.send({ t: 'leave', request_id: 2, room_id: joined.room_id })
    await client.next('left')
    room.flush({ state: { count: 3 } })
    await client.roundTrip()
    expect(patches(client)).toEqual([room.seq - 2, room.seq - 1])
  })

  it('attaches again from its last update, and gets none until the owner has answered', async () => {
    test = await TestGateway.start()
    const { client } = await test.join()
    const { owner } = test
    const room = owner.room('one')
    for (let count = 1; count <= 2; count++) room.flush({ state: { count } })
    const { seq } = room
    owner.silent.add('attach')
    room.send({ kind: 'resend' })
    room.flush({ state: { count: 3 } })
    await client.roundTrip()
    expect(owner.of('attach')).toMatchObject([{ seq }])
    expect(patches(client)).toEqual([seq - 1, seq])
    owner.answer(owner.of('attach')[0]!)
    await client.roundTrip()
    expect(patches(client)).toEqual([seq - 1, seq, seq + 1])
  })
})

describe('a MessagePack client in two rooms', () => {
  let test: TestGateway
  afterEach(() => test.close())

  it('gets the name of the room before its first frame after one of the other room', async () => {
    test = await TestGateway.start()
    const codec = new MsgpackClientCodec()
    const client = await RawClient.open(test.url, codec.subprotocol)
    const patches: string[] = []
    const seen: string[] = []
    client.ws.on('message', (data: Buffer) => {
      const message = codec.decode(new Uint8Array(data))
      if (!message || !('t' in message)) return
      seen.push(message.t)
      if (message.t === 'state.patch') patches.push(message.room_id)
    })
    const say = (message: ClientMessage) => client.ws.send(codec.encode(message))
    say({ t: 'hello', project_id: 'prj_one', token: await test.token() })
    await vi.waitUntil(() => seen.includes('welcome'))
    for (const [i, key] of ['one', 'two'].entries())
      say({ t: 'join', request_id: i + 1, room_type: 'arena', options: { key } })
    await vi.waitUntil(() => seen.filter((t) => t === 'state.snapshot').length === 2)
    const asked = ['one', 'one', 'two', 'one', 'two', 'two', 'one']
    for (const [count, key] of asked.entries()) {
      test.owner.room(key).flush({ state: { count: count + 1 } })
      // A client with queued frames is in no lane.
      await new Promise((resolve) => setImmediate(resolve))
    }
    say({ t: 'ping', at: 1 })
    await vi.waitUntil(() => seen.includes('pong'))
    expect(patches).toEqual(asked.map((key) => `arena:${key}`))
  })
})

describe('a client whose room is at the same node', () => {
  let test: TestGateway
  afterEach(() => test.close())

  it('sends its messages to its seat, and to the router if the seat does not take them or the room has moved', async () => {
    const took: unknown[] = []
    let takes = true
    const receive = (message: { readonly data: unknown }): boolean => takes && took.push(message.data) > 0
    const clock = new FakeClock()
    const owner = new TestOwner(testCodecs())
    const router = { send: owner.send, seat: () => ({ receive }), forget: () => {} }
    const world = { clock, owner, control: await TestControl.start() }
    test = await TestGateway.start({}, { cluster: { router } }, world)
    const { client, joined } = await test.join()
    const say = async (data: number) => {
      client.send({ t: 'message', room_id: joined.room_id, type: 'move', data })
      await client.roundTrip()
    }
    await say(1)
    takes = false
    await say(2)
    takes = true
    await say(3)
    test.owner.silent.add('attach')
    test.owner.room('one').send({ kind: 'redirect', owner: 'node_b' })
    await say(4)
    expect(took).toEqual([1, 3])
    expect(test.owner.of('message').map(({ data }) => data)).toEqual([2, 4])
  })
})
