import { beforeEach, describe, expect, it } from 'vitest'
import type { Room } from '../../client/index.ts'
import { FindingsLog } from '../checks.ts'
import type { LoadRoom } from '../rooms/load.ts'
import { newestOf } from './client.ts'
import { AckCheck, Member } from './member.ts'

describe('AckCheck', () => {
  let lost: string[]
  let check: AckCheck
  let now: number
  beforeEach(() => {
    lost = []
    now = 10_000
    check = new AckCheck((text) => lost.push(text))
  })

  /** An update 150 ms after the last one, after which the state shows own messages up to `n`. */
  function update(seq: number, n?: number, waitedMs = 150): void {
    now += waitedMs
    check.update(now)
    if (n !== undefined) check.shown(n, seq, now)
  }

  /** Reports every suspicion. */
  function verdict(): string[] {
    check.review(now + 5000)
    return lost
  }

  it('accepts acks behind the updates that show their messages', () => {
    for (let n = 1; n <= 3; n++) {
      check.sent(n, n)
      update(n, n)
      check.acked(n)
    }
    expect(verdict()).toEqual([])
  })

  it('reports an ack that never comes, although the next one covers it', () => {
    for (const n of [1, 2]) check.sent(n, n)
    update(1, 1)
    update(2)
    update(3, 2)
    check.acked(2)
    expect(verdict()).toEqual([
      'message 1 was in the state at seq 1, but its ack had not come before a later update',
    ])
  })

  it('reports it to a member that is alone, whose next update brings the covering ack', () => {
    for (const n of [1, 2]) check.sent(n, n)
    update(1, 1)
    update(2, 2)
    check.acked(2)
    expect(verdict()).toHaveLength(1)
  })

  it('accepts one ack for missed updates that come in one write', () => {
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
    const log = new FindingsLog()
    return { state, log, member: new Member(room, 'client 0', log, true) }
  }
  const lostEvents = (log: FindingsLog): number => log.all.violations.lostEvent.count

  it('accepts events that are numbered without gaps, from those that the state counts', () => {
    const { state, log, member } = join()
    for (const number of [7, 8, 9]) member.event(number)
    state.milestones = 9
    member.judge(0, true)
    expect(lostEvents(log)).toBe(0)
  })

  it('reports how many events are missing, between two and at the end', () => {
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
    expect(log.all.violations.twice.count).toBe(1)
  })
})

it('newestOf takes the highest seq of each room', () => {
  expect(newestOf([{ a: 5 }, { a: 9, b: 2 }, { a: 7 }])).toEqual({ a: 9, b: 2 })
})
