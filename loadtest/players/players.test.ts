import { beforeEach, describe, expect, it } from 'vitest'
import type { Room } from '../../client/index.ts'
import { MsgpackCodec } from '../../shared/protocol/msgpack-codec.ts'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import type { LoadRoom } from '../rooms/load.ts'
import { newestOf, peek } from './client.ts'
import { AckCheck, Member } from './member.ts'
import { Pacer, ramp } from './pace.ts'
import { addressOf } from './sdk.ts'
import { Tally } from './tally.ts'

const server = new MsgpackCodec()
const at = { room_id: 'load:load-3', epoch: 1_795_181_400_000, seq: 70_000 }
const { room_id: roomId, epoch, seq: number } = at

function inRoom(): Parameters<typeof peek>[1] {
  const context = {}
  expect(peek(server.address(roomId), context)).toBeUndefined()
  return context
}

describe('addressOf', () => {
  it('starts evenly at all addresses, and each client tries all of them in turn', () => {
    for (const count of [1, 2, 3, 4]) {
      const clients = [...Array(12).keys()].map((client) =>
        [...Array(count).keys()].map((connection) => addressOf(client, connection, count)),
      )
      expect(clients.map(([first]) => first)).toEqual(clients.map((_, client) => client % count))
      for (const tried of clients) expect(new Set(tried).size).toBe(count)
    }
  })

  it('spreads the clients of a failed address over the others', () => {
    const seconds = [0, 4, 8, 12, 16, 20].map((client) => addressOf(client, 1, 4))
    expect(seconds.toSorted()).toEqual([1, 1, 2, 2, 3, 3])
  })
})

describe('peek', () => {
  const room = server.roomEncoder()
  it.each([
    ['patch', room.patch({ ...at, checksum: 7 }, undefined)],
    ['full', room.whole('state.snapshot', { ...at, checksum: 7, state: { a: [1, 2] } }, [])],
    ['full', room.whole('state.resync', { ...at, checksum: 7, state: null }, [])],
  ])('reads the position of a %s', (kind, frame) => {
    expect(peek(frame, inRoom())).toEqual({ kind, roomId, epoch, number })
  })

  it('reads a patch that omits its epoch', () => {
    const context = inRoom()
    peek(room.whole('state.snapshot', { ...at, checksum: 7, state: null }, []), context)
    const patch = server.roomEncoder().patch({ room_id: roomId, seq: 70_001, checksum: 7 }, undefined)
    expect(peek(patch, context)).toEqual({ kind: 'patch', roomId, epoch, number: 70_001 })
  })

  it('reads an event, the ref of an ack, and a move', () => {
    const event = server.encode({ t: 'event', room_id: roomId, name: 'milestone', data: { count: 10 } })
    expect(peek(event, inRoom())).toMatchObject({ kind: 'event', roomId })
    const ack = server.encode({ t: 'ack', room_id: roomId, ref: 513 })
    expect(peek(ack, inRoom())).toMatchObject({ kind: 'ack', roomId, number: 513 })
    const move = server.encode({ t: 'move', in_ms: 1500 })
    expect(peek(move, inRoom())).toMatchObject({ kind: 'move' })
  })

  it('ignores other frames', () => {
    const pong = server.encode({ t: 'pong', at: 1, server_time: '2026-01-01T00:00:00.000Z' })
    expect(peek(pong, inRoom())).toBeUndefined()
  })
})

describe('AckCheck', () => {
  let lost: string[]
  let check: AckCheck
  let now: number
  beforeEach(() => {
    lost = []
    now = 10_000
    check = new AckCheck((text) => lost.push(text))
  })

  /** An update 150 ms after the last one, which shows own messages up to `n`. */
  function update(seq: number, n?: number, waitedMs = 150): void {
    now += waitedMs
    check.update(seq, now)
    if (n !== undefined) check.shown(n, seq, now)
  }

  /** Reports every suspicion. */
  function verdict(): string[] {
    check.review(now + 5000)
    return lost
  }

  it('accepts acks after the updates that show their messages', () => {
    for (let n = 1; n <= 3; n++) {
      check.sent(n, n)
      update(n, n)
      check.acked(n)
    }
    expect(verdict()).toEqual([])
  })

  // The ack follows the events of its flush. A busy machine may suspend the client between two messages of one write.
  it('accepts an ack after an event of the same flush, however late the client reads the event', () => {
    check.sent(1, 1)
    update(1, 1)
    update(1, undefined, 10_000)
    check.acked(1)
    update(2)
    expect(verdict()).toEqual([])
  })

  it('reports a missing ack, although the next one covers it', () => {
    for (const n of [1, 2]) check.sent(n, n)
    update(1, 1)
    update(2)
    update(3, 2)
    check.acked(2)
    expect(verdict()).toEqual([
      'message 1 was in the state at seq 1, but its ack had not come before a later update',
    ])
  })

  it('reports it to a single member, whose next update brings the covering ack', () => {
    for (const n of [1, 2]) check.sent(n, n)
    update(1, 1)
    update(2, 2)
    check.acked(2)
    expect(verdict()).toHaveLength(1)
  })

  it('accepts one ack for missed updates that arrive in one write', () => {
    for (const n of [1, 2, 3]) check.sent(n, n)
    for (const n of [1, 2, 3]) update(n, n, 1)
    check.acked(3)
    update(4)
    expect(verdict()).toEqual([])
  })

  it.each([
    ['before', -500],
    ['after', 500],
  ])('accepts a missing ack shortly %s a disturbance', (_, distance) => {
    check.sent(1, 1)
    if (distance < 0) check.disturbed(now + distance)
    update(1, 1)
    update(2)
    if (distance > 0) check.disturbed(now + distance)
    expect(verdict()).toEqual([])
  })

  it('reports a missing ack long after a disturbance and long before another', () => {
    check.sent(1, 1)
    check.disturbed(now - 5000)
    update(1, 1)
    update(2)
    check.disturbed(now + 5000)
    expect(verdict()).toHaveLength(1)
  })
})

describe('Member', () => {
  const join = () => {
    const state = {
      players: {} as Record<string, { count: number; last: number; text: string }>,
      milestones: 6,
    }
    const room = { id: 'load:a', status: 'joined', memberId: 'mem_1', state } as unknown as Room<LoadRoom>
    const log = new Tally()
    return { state, log, member: new Member(room, 'client 0', log, true) }
  }
  const lostEvents = (log: Tally): number => log.findings.violations.lostEvent.count

  it('accepts events without gaps, from the number in the state on', () => {
    const { state, log, member } = join()
    for (const number of [7, 8, 9]) member.event(number)
    state.milestones = 9
    member.judge(0, true)
    expect(lostEvents(log)).toBe(0)
  })

  it('reports the number of missing events, between two events and at the end', () => {
    const { state, log, member } = join()
    for (const number of [7, 10]) member.event(number)
    expect(lostEvents(log)).toBe(2)
    state.milestones = 11
    member.judge(0, true)
    member.judge(0, true)
    expect(lostEvents(log)).toBe(3)
  })

  it('accepts any event after a disturbance', () => {
    const { log, member } = join()
    member.event(7)
    member.disturbed(0)
    for (const number of [12, 13]) member.event(number)
    expect(lostEvents(log)).toBe(0)
  })

  it('reports a message that was applied twice, once', () => {
    const { state, log, member } = join()
    state.players.mem_1 = { count: 3, last: 2, text: '' }
    member.stateChanged(0)
    member.stateChanged(0)
    expect(log.findings.violations.twice.count).toBe(1)
  })
})

it('newestOf returns the highest seq of each room', () => {
  expect(newestOf([{ a: 5 }, { a: 9, b: 2 }, { a: 7 }])).toEqual({ a: 9, b: 2 })
})

/** Lets resolved promises run their callbacks. */
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

describe('a ramp', () => {
  it('starts work when it is due, however long the work takes, and resolves when all of it is done', async () => {
    const clock = new FakeClock()
    const begun: [string, number, number][] = []
    const ends: (() => void)[] = []
    let done = false
    const ramped = ramp(
      clock,
      ['a', 'b', 'c'],
      { perSecond: 10, offset: 0.5, ended: () => false },
      (item, due) => {
        begun.push([item, due, clock.monotonic()])
        return new Promise((resolve) => ends.push(resolve))
      },
    ).then(() => {
      done = true
    })
    for (let ms = 0; ms < 400; ms += 10) {
      clock.advance(10)
      await turn()
    }
    expect(begun).toEqual([
      ['a', 50, 50],
      ['b', 150, 150],
      ['c', 250, 250],
    ])
    expect(done).toBe(false)
    for (const end of ends) end()
    await ramped
  })

  it('passes the time at which work was due, although it starts late', async () => {
    const clock = new FakeClock()
    const late: number[] = []
    const ramped = ramp(
      clock,
      [1, 2, 3],
      { perSecond: 100, offset: 0, ended: () => false },
      async (_, due) => {
        late.push(clock.monotonic() - due)
        clock.pause(50)
      },
    )
    await ramped
    expect(late).toEqual([0, 40, 80])
  })

  it('starts nothing more after its end', async () => {
    const clock = new FakeClock()
    const begun: number[] = []
    await ramp(
      clock,
      [1, 2, 3],
      { perSecond: 1, offset: 0, ended: () => begun.length === 1 },
      async (item) => {
        begun.push(item)
        clock.pause(1000)
      },
    )
    expect(begun).toEqual([1])
  })
})

describe('a pacer', () => {
  it('lets all senders send at the rate, one after the other, evenly spread', () => {
    const clock = new FakeClock()
    const said: [sender: number, due: number][] = []
    new Pacer(clock).start(
      5,
      0,
      () => 4,
      (sender, due) => said.push([sender, due]),
    )
    clock.advance(999)
    expect(said).toHaveLength(4 * 5)
    expect(said.slice(0, 5)).toEqual([
      [0, 0],
      [1, 50],
      [2, 100],
      [3, 150],
      [0, 200],
    ])
  })

  it('sends all due messages after a time in which the process was blocked', () => {
    const clock = new FakeClock()
    const late: number[] = []
    new Pacer(clock).start(
      10,
      0,
      () => 1,
      (_, due) => late.push(clock.monotonic() - due),
    )
    clock.advance(1)
    clock.pause(349)
    clock.advance(1)
    expect(late).toEqual([0, 250, 150, 50])
  })

  it('sends all due messages when it is stopped, however late', () => {
    const clock = new FakeClock()
    const late: number[] = []
    const pacer = new Pacer(clock)
    pacer.start(
      10,
      0,
      () => 1,
      (_, due) => late.push(clock.monotonic() - due),
    )
    clock.advance(1)
    clock.pause(349)
    pacer.stop()
    clock.advance(1000)
    expect(late).toEqual([0, 250, 150, 50])
  })

  it('includes senders that come later, and sends nothing after its stop', () => {
    const clock = new FakeClock()
    let senders = 0
    const said: number[] = []
    const pacer = new Pacer(clock)
    pacer.start(
      1,
      0,
      () => senders,
      (sender) => said.push(sender),
    )
    clock.advance(1000)
    expect(said).toEqual([])
    senders = 2
    clock.advance(2000)
    expect(said.length).toBeGreaterThanOrEqual(3)
    expect(new Set(said)).toEqual(new Set([0, 1]))
    pacer.stop()
    const before = said.length
    clock.advance(5000)
    expect(said).toHaveLength(before)
  })
})
