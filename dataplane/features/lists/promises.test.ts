import { Registry } from 'prom-client'
import { beforeEach, describe, expect, it } from 'vitest'
import { registerMetrics } from '../../../shared/metrics.ts'
import { FakeClock } from '../../../test/kit/fake-clock.ts'
import type { Session } from '../../gateway/session.ts'
import { LIST_METRICS } from './metrics.ts'
import { SeatPromises } from './promises.ts'

let clock: FakeClock
let promises: SeatPromises
let registry: Registry
beforeEach(() => {
  clock = new FakeClock()
  registry = new Registry()
  promises = new SeatPromises(clock, registerMetrics(registry, LIST_METRICS))
})

type Who = Pick<Session, 'player' | 'guests' | 'sessionId'>
const player = (name: string): Session =>
  ({ player: name, guests: undefined, sessionId: `ses_${name}` }) as Session
const guest = (name: string, address = 'home'): Session =>
  ({ player: `ses_${name}`, guests: `token@${address}`, sessionId: `ses_${name}` }) as Session

let lastId = 0
/** A player asks for a room, and gets one. Returns true if its seat was promised. */
function find(who: Who, roomType = 'duel', roomId = 'duel:one'): boolean {
  const id = ++lastId
  const { isPromised } = promises.ask(who as Session, id, roomType)
  promises.answered(who as Session, id, roomId)
  return isPromised
}
const finds = (count: number, who: Who): boolean[] => Array.from({ length: count }, () => find(who))
/** Advances the clock, with a sweep each second. */
function pass(seconds: number): void {
  for (let second = 0; second < seconds; second++) {
    clock.advance(1000)
    promises.sweep()
  }
}
const counted = async (): Promise<Record<string, number>> => {
  const { values } = await registry.getSingleMetric('service_seat_promises_total')!.get()
  return Object.fromEntries(values.map(({ labels, value }) => [labels.result, value]))
}

describe('A promise of a seat', () => {
  it('is kept by a join of its room within 3 s', async () => {
    const ada = player('ada')
    for (let times = 0; times < 10; times++) {
      expect(find(ada)).toBe(true)
      pass(2)
      promises.joins(ada, 'duel:one')
      pass(2)
    }
    expect(await counted()).toEqual({ kept: 10, broken: 0, withheld: 0 })
  })

  it('is broken by the end of 3 s, and a join of another room does not keep it', async () => {
    const ada = player('ada')
    for (let times = 0; times < 3; times++) {
      expect(find(ada)).toBe(true)
      promises.joins(ada, 'duel:two')
      pass(3)
      promises.joins(ada, 'duel:one')
    }
    expect(find(ada)).toBe(false)
    expect(await counted()).toEqual({ kept: 0, broken: 3, withheld: 1 })
  })

  it('is broken by the next request of the player, also from another session', () => {
    expect(finds(3, player('ada'))).toEqual([true, true, true])
    expect(find({ player: 'ada', guests: undefined, sessionId: 'ses_other' })).toBe(false)
    expect(find(player('ben'))).toBe(true)
  })

  it('is given back by the next request for the same room type only', () => {
    const ada = player('ada')
    promises.ask(ada, 1, 'duel')
    expect(promises.ask(ada, 2, 'chess').instead).toBe(undefined)
    expect(promises.ask(ada, 3, 'chess').instead).toEqual({ sessionId: ada.sessionId, requestId: 2 })
  })

  it('is the same for a repeated request', async () => {
    const ada = player('ada')
    for (let times = 0; times < 5; times++)
      expect(promises.ask(ada, 1, 'duel')).toEqual({ isPromised: true, instead: undefined })
    expect(await counted()).toEqual({ kept: 0, broken: 0, withheld: 0 })
  })

  it('does not count if the placer names no room', () => {
    const ada = player('ada')
    for (let id = 1; id <= 5; id++) {
      expect(promises.ask(ada, id, 'duel').isPromised).toBe(true)
      promises.answered(ada, id, undefined)
    }
  })

  it('is withheld for a minute after three that were broken, and then again after each', () => {
    const ada = player('ada')
    expect(finds(4, ada)).toEqual([true, true, true, false])
    pass(59)
    expect(find(ada)).toBe(false)
    pass(1)
    expect(finds(2, ada)).toEqual([true, false])
  })
})

describe('Promises to clients with one token without sub', () => {
  it('are at most one for each session, and eight for each address', () => {
    const crowd = Array.from({ length: 10 }, (_, index) => guest(`${index}`))
    expect(crowd.map((who) => find(who))).toEqual([...Array(8).fill(true), false, false])
    expect(find(guest('elsewhere', 'office'))).toBe(true)
    promises.joins(crowd[0]!, 'duel:one')
    expect(find(crowd[9]!)).toBe(true)
  })

  it('are withheld from new sessions when 24 were broken', () => {
    const fresh = (): boolean => find(guest(`${++lastId}`))
    for (let times = 0; times < 3; times++) {
      expect(Array.from({ length: 8 }, fresh)).toEqual(Array(8).fill(true))
      pass(3)
    }
    expect([fresh(), find(guest('elsewhere', 'office'))]).toEqual([false, true])
    pass(2)
    expect(fresh()).toBe(true)
  })
})
