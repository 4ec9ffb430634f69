import { describe, expect, it } from 'vitest'
import type { Matched } from '../clients/matchmaking.ts'
import { matchmakingChecks } from './matchmaking.ts'

const pair = (one: string, other: string, room: string): Matched[] =>
  [one, other].map((player) => ({
    player,
    partner: player === one ? other : one,
    room,
    tickets: [one, other],
    seats: [one, other],
    isMember: true,
  }))

const violated = (change: (matched: Matched[]) => Matched[], { lost = [] as string[], tickets = 3 } = {}) => {
  const matched = change([...pair('ada', 'bob', 'one'), ...pair('cleo', 'dan', 'two')])
  const checks = matchmakingChecks({ matched, lost }, 3, tickets)
  return checks.flatMap(({ name, violations }) => (violations ? [name] : []))
}
const same = (matched: Matched[]) => matched
const first = (change: Partial<Matched>) => (matched: Matched[]) =>
  matched.map((each, i) => (i === 0 ? { ...each, ...change } : each))

describe('The checks of matchmaking', () => {
  it('hold when each pair has its room', () => expect(violated(same)).toEqual([]))

  it('find a ticket in two matches', () => {
    expect(violated((matched) => [...matched, ...pair('ada', 'eve', 'three')])).toEqual([
      'tickets in two matches',
    ])
  })

  it('find a lost ticket, and one that only the queue or only its player has', () => {
    expect(violated(same, { lost: ['ada got no match'] })).toEqual(['lost tickets'])
    for (const tickets of [2, 4]) expect(violated(same, { tickets })).toEqual(['lost tickets'])
  })

  it('find a seat of another player, and one that was given twice', () => {
    expect(violated(first({ seats: ['ada', 'eve'] }))).toEqual(['seats given twice'])
    expect(violated(first({ seats: ['ada', 'bob', 'bob'] }))).toEqual(['seats given twice'])
  })

  it('find a player without a seat, and one in the room of another match', () => {
    expect(violated(first({ isMember: false }))).toEqual(['matched without a seat'])
    expect(violated(first({ room: 'two', tickets: ['cleo', 'dan'], seats: ['cleo', 'dan'] }))).toEqual([
      'matched without a seat',
    ])
  })
})
