import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { Matcher, type MatchRules, NEIGHBOURS, type RuleFailures, type Unit } from './tickets.ts'

/** A matcher for two players, unless `given` says otherwise. */
const matcherOf = (given: Partial<MatchRules<number>> = {}, failures: RuleFailures = new Map()) =>
  new Matcher({ matchSize: { min: 2, max: 2 }, waitMs: 0, ...given }, failures)

const unitOf = (id: string, since: number, ...tickets: number[]): Unit<number> => ({
  id,
  tickets: tickets.map((ticket, i) => ({ id: `${id}.${i}`, ticket, since })),
})

const idsOf = (match: readonly Unit<number>[] | undefined) => match?.map(({ id }) => id)

const within = (a: number, b: number) => Math.abs(a - b) <= 10

/** Returns all matches of one round. */
function round(matcher: Matcher<number>, now: number): string[][] {
  const found: string[][] = []
  for (let before = -1; before !== matcher.comparisons; ) {
    before = matcher.comparisons
    found.push(...matcher.search(now, 64).map((match) => idsOf(match)!))
    // The next call would start another round.
    if (matcher.comparisons - before < 64) break
  }
  return found
}

describe('Matcher', () => {
  it('matches the oldest ticket first, with the oldest ticket that fits', () => {
    const matcher = matcherOf({ fits: within })
    for (const [id, since, ticket] of [
      ['young', 30, 0],
      ['old', 10, 0],
      ['middle', 20, 5],
      ['stranger', 5, 500],
    ] as const)
      matcher.add(unitOf(id, since, ticket))
    expect(round(matcher, 100)).toEqual([['old', 'middle']])
  })

  it('matches a ticket that arrives with the oldest ticket that fits, and leaves the others', () => {
    const matcher = matcherOf({ near: (elo) => elo, fits: within })
    matcher.add(unitOf('old', 10, 100))
    matcher.add(unitOf('nearer', 20, 119))
    matcher.add(unitOf('new', 30, 110))
    expect(idsOf(matcher.arrived('new', 40))).toEqual(['old', 'new'])
    expect(matcher.arrived('nearer', 40)).toBeUndefined()
  })

  it.each([
    ['a promise', () => Promise.reject(new Error('late'))],
    ['number', () => 1],
    ['undefined', () => undefined],
  ])('counts a result of fits as failed that is %s', async (what, fits) => {
    const failures: RuleFailures = new Map()
    const matcher = matcherOf({ fits: fits as never }, failures)
    matcher.add(unitOf('a', 10, 0))
    matcher.add(unitOf('b', 20, 0))
    expect(round(matcher, 100)).toEqual([])
    expect([...failures]).toEqual([
      ['fits', { count: 1, error: new TypeError(`fits returned ${what}; it must return true or false`) }],
    ])
    await new Promise((resolve) => setImmediate(resolve))
  })

  it('passes the older ticket first, with the time that it has waited', () => {
    const calls: unknown[] = []
    const matcher = matcherOf({
      fits: (a, b, { waitedMs }) => {
        calls.push([a, b, waitedMs])
        return false
      },
    })
    matcher.add(unitOf('b', 200, 2))
    matcher.add(unitOf('a', 100, 1))
    round(matcher, 1000)
    expect(calls).toEqual([[1, 2, 900]])
  })

  it('skips a pair for which fits throws, reports the error and matches the others', () => {
    const failures: RuleFailures = new Map()
    const bad = new Error('no rank')
    const fits = (a: number, b: number) => {
      if (a + b === 3) throw bad
      return true
    }
    const matcher = matcherOf({ fits }, failures)
    for (const ticket of [1, 2, 4]) matcher.add(unitOf(`t${ticket}`, ticket, ticket))
    expect(round(matcher, 10)).toEqual([['t1', 't4']])
    expect([...failures]).toEqual([['fits', { count: 1, error: bad }]])
  })

  it('keeps a ticket for which near throws or returns no number', () => {
    const failures: RuleFailures = new Map()
    const near = (ticket: number) => {
      if (ticket === 1) throw new Error('no elo')
      return ticket === 2 ? Number.NaN : 0
    }
    const matcher = matcherOf({ near }, failures)
    for (const ticket of [1, 2]) matcher.add(unitOf(`t${ticket}`, ticket, ticket))
    expect(round(matcher, 10)).toEqual([['t1', 't2']])
    expect([...failures]).toEqual([['near', { count: 2, error: new Error('no elo') }]])
  })

  it('waits for the maximum of players until the oldest ticket has waited long enough', () => {
    const matcher = matcherOf({ matchSize: { min: 2, max: 4 }, waitMs: 10_000 })
    for (const id of ['a', 'b', 'c']) matcher.add(unitOf(id, 0, 0))
    expect(round(matcher, 9_999)).toEqual([])
    expect(round(matcher, 11_000)).toEqual([['a', 'b', 'c']])
  })

  it('fills a match with parties that fit beside each other', () => {
    const matcher = matcherOf({ matchSize: { min: 4, max: 4 } })
    matcher.add(unitOf('pair', 0, 1, 1))
    matcher.add(unitOf('single', 1, 1))
    matcher.add(unitOf('other pair', 2, 1, 1))
    expect(round(matcher, 10)).toEqual([['pair', 'other pair']])
  })

  it('matches a party that fills the match without others', () => {
    const matcher = matcherOf()
    matcher.add(unitOf('pair', 0, 1, 900))
    expect(idsOf(matcher.arrived('pair', 0))).toEqual(['pair'])
  })

  it('finds the same matches, whatever earlier owners have done', () => {
    const units = Array.from({ length: 100 }, (_, i) => unitOf(`t${i}`, i % 7, (i * 37) % 101))
    const rules = { near: (elo: number) => elo, fits: within }
    const [one, other] = [matcherOf(rules), matcherOf(rules)]
    for (const unit of units) one.add(unit)
    for (const unit of units.toReversed()) other.add(unit)
    expect(round(one, 100)).toEqual(round(other, 100))
  })

  it('starts a round at most once a second', () => {
    const matcher = matcherOf({ fits: () => false })
    for (const id of ['a', 'b']) matcher.add(unitOf(id, 0, 0))
    round(matcher, 5000)
    const before = matcher.comparisons
    matcher.search(5999, 1000)
    expect(matcher.comparisons).toBe(before)
    matcher.search(6000, 1000)
    expect(matcher.comparisons).toBeGreaterThan(before)
  })

  it('does bounded work in each call, and compares each of 5,000 tickets with at most its neighbours in a round', () => {
    let calls = 0
    const matcher = matcherOf({
      near: (elo) => elo,
      fits: () => {
        calls++
        return false
      },
    })
    for (let i = 0; i < 5000; i++) matcher.add(unitOf(`t${i}`, i, (i * 7919) % 5003))
    let most = 0
    for (let i = 0; i < 1000; i++) {
      const before = calls
      matcher.search(10_000, 1000)
      most = Math.max(most, calls - before)
    }
    expect(most).toBeLessThanOrEqual(1000 + NEIGHBOURS)
    expect(calls).toBe(5000 * NEIGHBOURS)
  })

  it('keeps its guarantees for random tickets and parties', () => {
    const unit = fc.record({
      since: fc.integer({ min: 0, max: 50 }),
      tickets: fc.array(fc.integer({ min: 0, max: 60 }), { minLength: 1, maxLength: 3 }),
      arrives: fc.boolean(),
    })
    fc.assert(
      fc.property(
        fc.array(unit, { maxLength: 60 }),
        fc.integer({ min: 1, max: 4 }),
        fc.integer({ min: 0, max: 2 }),
        fc.boolean(),
        (given, min, more, sorted) => {
          const max = Math.max(min + more, 3)
          const matcher = matcherOf({
            matchSize: { min, max },
            waitMs: 30,
            fits: within,
            ...(sorted && { near: (elo) => elo }),
          })
          const now = 60
          const units = new Map<string, Unit<number>>()
          const matches: Unit<number>[][] = []
          given.forEach(({ since, tickets, arrives }, i) => {
            const made = unitOf(`u${i}`, since, ...tickets)
            units.set(made.id, made)
            matcher.add(made)
            if (arrives)
              matches.push(...[matcher.arrived(made.id, now)].filter((match) => match !== undefined))
          })
          for (let i = 0; i < 200; i++) matches.push(...matcher.search(now, 100))
          const matched = matches.flat().map(({ id }) => id)
          // No ticket is in two matches, and all others still wait.
          expect(new Set(matched).size).toBe(matched.length)
          for (const id of units.keys()) expect(matcher.remove(id)).toBe(!matched.includes(id))
          for (const match of matches) {
            const size = match.flatMap(({ tickets }) => tickets).length
            expect(size).toBeLessThanOrEqual(max)
            const oldest = Math.min(...match.map(({ tickets }) => tickets[0]!.since))
            const waited = match.some(({ tickets }) => now - tickets[0]!.since >= 30)
            expect(size).toBeGreaterThanOrEqual(waited ? min : max)
            expect(oldest).toBeGreaterThanOrEqual(0)
            for (const one of match)
              for (const other of match)
                if (one !== other)
                  for (const a of one.tickets)
                    for (const b of other.tickets) expect(within(a.ticket, b.ticket)).toBe(true)
          }
        },
      ),
    )
  })

  it('leaves no two tickets of a small queue that fit each other', () => {
    fc.assert(
      fc.property(
        fc.array(fc.integer({ min: 0, max: 200 }), { maxLength: NEIGHBOURS }),
        fc.boolean(),
        (elos, sorted) => {
          const matcher = matcherOf({ fits: within, ...(sorted && { near: (elo: number) => elo }) })
          elos.forEach((elo, i) => {
            matcher.add(unitOf(`u${i}`, i, elo))
          })
          const matched = new Set(round(matcher, 100).flat())
          const left = elos.filter((_, i) => !matched.has(`u${i}`))
          left.forEach((a, i) => {
            for (const b of left.slice(i + 1)) expect(within(a, b)).toBe(false)
          })
        },
      ),
    )
  })
})
