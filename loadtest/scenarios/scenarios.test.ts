import { describe, expect, it } from 'vitest'
import { effects } from './backends.ts'
import { lobbyChecks, p99 } from './lobby.ts'
import { type Matched, matchmakingChecks } from './matchmaking.ts'
import { revocation } from './play.ts'

const violations = (answers: readonly number[], unanswered: number, applied: number) =>
  effects('calls', [{ roomId: 'load-calls:a', answers, unanswered, applied }]).violations

it('a room that has applied each answered call once has no violation, whether unanswered calls were applied or not', () => {
  expect(violations([2, 1, 3], 0, 3)).toBe(0)
  expect(violations([1, 3], 2, 3)).toBe(0)
  expect(violations([1, 2], 2, 2)).toBe(0)
})

it.each([
  ['twice', [1, 2], 0, 3],
  ['not at all', [1, 2], 0, 1],
  ['with the answer of another', [1, 1], 1, 2],
  ['and lost later, though one without an answer was applied', [1, 3], 1, 2],
] as const)('a call that was applied %s is a violation', (_, answers, unanswered, applied) => {
  expect(violations(answers, unanswered, applied)).toBe(1)
})

const found = { lists: 100, ghosts: [], refused: [] }
const lobbyViolated = (findings: Parameters<typeof lobbyChecks>[0], used: readonly number[]) =>
  lobbyChecks(findings, used, 200).flatMap(({ name, violations }) => (violations ? [name] : []))

describe('the checks of the lobby', () => {
  it('allow 60 rooms of 4 for 200 players, and not 61', () => {
    expect(lobbyViolated(found, [50, 60])).toEqual([])
    expect(lobbyViolated(found, [50, 61])).toEqual(['scattered players'])
  })

  it('count rooms that were listed after their end, and failed calls', () => {
    expect(lobbyViolated({ ...found, ghosts: ['load-lobby:a'] }, [50])).toEqual(['ended rooms in lists'])
    expect(lobbyViolated({ ...found, refused: ['room_full'] }, [50])).toEqual(['refused players'])
  })
})

it('the 99th percentile is the bound that 99 of 100 new values do not exceed', () => {
  const before = new Map([
    [0.001, 10],
    [0.01, 20],
    [Number.POSITIVE_INFINITY, 20],
  ])
  const after = (fast: number) =>
    new Map([
      [0.001, 10 + fast],
      [0.01, 120],
      [Number.POSITIVE_INFINITY, 120],
    ])
  expect(p99(before, after(99))).toBe(1)
  expect(p99(before, after(98))).toBe(10)
  expect(p99(before, before)).toBe(1)
})

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
  it('hold if each pair has its room', () => expect(violated(same)).toEqual([]))

  it('find a ticket in two matches', () => {
    expect(violated((matched) => [...matched, ...pair('ada', 'eve', 'three')])).toEqual([
      'tickets in two matches',
    ])
  })

  it('find a lost ticket, and one that only the queue or only its player has', () => {
    expect(violated(same, { lost: ['ada got no match'] })).toEqual(['lost tickets'])
    for (const tickets of [2, 4]) expect(violated(same, { tickets })).toEqual(['lost tickets'])
  })

  it('find a seat of another player, and a seat that was given twice', () => {
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

describe('the check of a revocation', () => {
  it('holds if every session closes within a second', () => {
    expect(revocation([180, 1000], 2)).toMatchObject({ violations: 0, note: '2 of 2 sessions closed' })
  })

  it('counts sessions that close late or never', () => {
    expect(revocation([400, 1220, 1310], 5)).toMatchObject({
      violations: 4,
      note: '3 of 5 sessions closed, 2 late',
      examples: [
        '2 sessions were not closed within 10 s',
        'a session was closed after 1220 ms',
        'a session was closed after 1310 ms',
      ],
    })
  })
})
