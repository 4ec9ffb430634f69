import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { describe, expect, it } from 'vitest'
import { counting } from '../test/support/rooms/counter-room.ts'
import { RoomBench } from '../test/support/rooms/room-bench.ts'
import { Inbox } from './inbox.ts'
import { roomAddress, type ToOwner } from './traffic.ts'

const room = roomAddress('prj_test', 'counter', 'a')
type Said = ToOwner extends infer M ? (M extends ToOwner ? Omit<M, 'room' | 'member_id'> : never) : never

const arrival = (memberId: string, said: Said, from = 'node_b') => ({
  message: { room, member_id: memberId, ...said } as ToOwner,
  from,
})

const message = (ref?: number): Said => ({
  kind: 'message',
  type: 'inc',
  data: null,
  ...(ref === undefined ? {} : { ref }),
})
const resync: Said = { kind: 'resync', reason: 'checksum' }
const attach = (ask: number): Said => ({
  kind: 'attach',
  ask,
  edge: 'node_b',
  turn: 0,
  codec: 'roomful.v1.msgpack',
  session_id: 'ses_1',
  epoch: 1,
  seq: 1,
  settled: 0,
  through: 0,
})

describe('Inbox', () => {
  it('leaves no message in memory until a major garbage collection', () => {
    setFlagsFromString('--expose-gc')
    const collect: (options?: { type: 'minor' }) => void = runInNewContext('gc')
    const inbox = new Inbox(10)
    const pass = (times: number) => {
      for (let i = 0; i < times; i++) {
        inbox.add(arrival('ann', { ...message(), data: Array.from({ length: 100 }, () => i) } as Said))
        inbox.shift()
        if (i % 50 === 0) collect({ type: 'minor' })
      }
      collect({ type: 'minor' })
      collect({ type: 'minor' })
    }
    pass(1000)
    collect()
    const before = process.memoryUsage().heapUsed
    pass(20_000)
    // Each message takes more than 800 bytes.
    expect(process.memoryUsage().heapUsed - before).toBeLessThan(1024 * 1024)
  })

  it('keeps only the latest message of each kind and member, in its position behind earlier messages', () => {
    const inbox = new Inbox(3)
    for (let ask = 1; ask <= 1000; ask++)
      for (const said of [resync, attach(ask), { kind: 'detach' } as const, message()])
        inbox.add(arrival('ann', said))
    expect(inbox.take().map(({ message }) => message.kind)).toEqual([
      'message',
      'message',
      'message',
      'resync',
      'attach',
      'detach',
    ])
    expect(inbox.add(arrival('ann', message()))).toBe(true)
  })

  it('accepts detaches and leaves, and repeated messages of queued members, however full it is', () => {
    const inbox = new Inbox(1)
    for (let n = 0; n < 10; n++) expect(inbox.add(arrival(`m${n}`, resync))).toBe(true)
    expect(inbox.add(arrival('late', resync))).toBe(false)
    expect(inbox.add(arrival('m1', resync))).toBe(true)
    expect(inbox.add(arrival('lost', { kind: 'detach' }))).toBe(true)
    expect(inbox.add(arrival('over', { kind: 'leave', reason: 'session_ended' }))).toBe(true)
    expect(inbox.take()).toHaveLength(12)
  })

  // The client sends its join again, to another edge. After it has left, the first join would take its seat again.
  it.each([
    { kind: 'detach', moves: true },
    { kind: 'leave', reason: 'session_ended' },
  ] as const)('drops the waiting join of a client that is gone from its edge ($kind)', (gone) => {
    const join: Said = {
      kind: 'join',
      request_id: 1,
      edge: 'node_b',
      turn: 0,
      codec: 'roomful.v1.json',
      session_id: 'ses_1',
      sub: null,
      principal: 'token',
      options: {},
    }
    const inbox = new Inbox(3)
    for (const [memberId, from] of [
      ['ann', 'node_b'],
      ['bob', 'node_b'],
      ['cat', 'node_c'],
    ] as const)
      inbox.add(arrival(memberId, join, from))
    for (const memberId of ['ann', 'cat']) inbox.add(arrival(memberId, gone))
    expect(inbox.take().map(({ message }) => [message.kind, message.member_id])).toEqual([
      ['join', 'bob'],
      ['join', 'cat'],
      [gone.kind, 'ann'],
      [gone.kind, 'cat'],
    ])
  })
})

// A room that waited for its store once queued resyncs, joins and leaves without a bound.
describe('a room that cannot act', () => {
  it('has a bounded inbox for every kind, answers messages that do not fit, and requests the others again', async () => {
    const bench = new RoomBench([counting('journal')], { limits: { waitingMessages: 2 } })
    const ann = await bench.join('counter', 'ann')
    bench.mayAct = false
    for (let n = 0; n < 30; n++) bench.askToJoin('counter', `new${n}`)
    bench.send('counter', 'ann', { kind: 'leave', reason: 'left', request_id: 7 })
    for (let ref = 1; ref <= 5; ref++)
      bench.send('counter', 'ann', {
        kind: 'refuse',
        from: ref,
        through: ref,
        code: 'forbidden',
        message: 'no',
      })
    expect(ann.errors).toMatchObject([{ code: 'room_unavailable', ref: 7 }])
    expect(bench.members.get('new29')!.errors).toMatchObject([{ code: 'room_unavailable' }])
    expect(bench.counts.backlog_full).toBe(10 + 1 + 3)
    bench.mayAct = true
    bench.host.recheck()
    await bench.untilIdle()
    expect([...bench.members.values()].filter(({ inRoom }) => inRoom)).toHaveLength(21)
    expect(bench.sentOf('resend')).toHaveLength(1)
  })

  it('drops unreliable messages that do not fit, and refuses them once a second to each client', async () => {
    const bench = new RoomBench([counting('journal')], { limits: { waitingMessages: 2 } })
    const members = [await bench.join('counter', 'ann'), await bench.join('counter', 'bob')]
    bench.mayAct = false
    const refusals: number[][] = []
    for (const waitMs of [0, 990, 10]) {
      await bench.advance(waitMs)
      for (let n = 0; n < 10; n++)
        for (const name of ['ann', 'bob']) bench.message('counter', name, 'inc', { by: 1 })
      refusals.push(members.map(({ errors }) => errors.length))
    }
    expect(refusals).toEqual([
      [1, 1],
      [1, 1],
      [2, 2],
    ])
    expect(members[0]!.errors[0]).toMatchObject({ code: 'room_unavailable' })
    expect(bench.counts.backlog_full).toBe(3 * 20 - 2)
  })

  it('has the same bound while it is being opened', async () => {
    const bench = new RoomBench([counting('journal')], { limits: { waitingMessages: 2 } })
    for (let n = 0; n < 30; n++) bench.askToJoin('counter', `new${n}`)
    for (let n = 0; n < 100; n++)
      bench.send('counter', 'new1', { kind: 'refuse', from: n, through: n, code: 'forbidden', message: 'no' })
    await bench.untilIdle()
    expect([...bench.members.values()].filter(({ inRoom }) => inRoom)).toHaveLength(20)
    expect(bench.members.get('new20')!.errors).toMatchObject([{ code: 'room_unavailable' }])
    expect(bench.counts.backlog_full).toBe(10 + 98)
  })
})
