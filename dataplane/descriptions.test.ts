import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { choose, type Ranking, textFinder } from './descriptions.ts'

interface Thing {
  readonly name: string
  readonly size: number | null
}

const things = fc.uniqueArray(
  fc.record({ name: fc.string({ minLength: 1, maxLength: 5 }), size: fc.option(fc.nat(5)) }),
  { selector: ({ name }) => name, maxLength: 400, size: 'max' },
)

/** By size, then by name. */
const ranking = (descending: boolean): Ranking<Thing> => ({
  key: ({ size }) => size,
  descending,
  name: ({ name }) => name,
})

describe('choose', () => {
  it('gives the same first ones as sorting everything would', () => {
    const byHand = (descending: boolean) => (a: Thing, b: Thing) => {
      const byName = a.name < b.name ? -1 : 1
      if (a.size === b.size) return byName
      if (a.size === null || b.size === null) return a.size === null ? 1 : -1
      return descending ? b.size - a.size : a.size - b.size
    }
    fc.assert(
      fc.property(things, fc.boolean(), fc.nat(12), (all: Thing[], descending, limit) => {
        const choice = { fits: undefined, ranking: ranking(descending), limit }
        const { chosen, found } = choose(all, choice)
        expect(chosen).toEqual(all.toSorted(byHand(descending)).slice(0, limit))
        expect(found).toBe(all.length)
      }),
    )
  })

  it('keeps the order in which things come when none is asked for, and counts what fits beyond the limit', () => {
    const options = { fits: (n: number) => n > 2, ranking: undefined }
    expect(choose([5, 1, 3, 4], { ...options, limit: 2 })).toEqual({ chosen: [5, 3], found: 3 })
    expect(choose([5, 1, 3, 4], { ...options, limit: undefined })).toEqual({ chosen: [5, 3, 4], found: 3 })
  })

  it('puts what has no value last either way, and what is equal in the order of its name', () => {
    const all: Thing[] = [
      { name: 'c', size: 1 },
      { name: 'n', size: null },
      { name: 'a', size: 1 },
      { name: 'b', size: 7 },
    ]
    const names = (descending: boolean) =>
      choose(all, { fits: () => true, ranking: ranking(descending), limit: undefined })
        .chosen.map(({ name }) => name)
        .join('')
    expect(names(false)).toBe('acbn')
    expect(names(true)).toBe('bacn')
  })
})

describe('textFinder', () => {
  it.each([
    ['LOBBY', 'arena:lobby-1', true],
    ['größe', 'arena:GRÖSSE', false],
    ['ÉTÉ', 'arena:l’été', true],
    ['東京', 'arena:東京-1', true],
    ['a.*b', 'arena:a.*b', true],
    ['a.*b', 'arena:aXb', false],
    ['[x](y)|{z}\\-^$/?+', 'arena:[x](y)|{z}\\-^$/?+', true],
    ['lobby-2', 'arena:lobby-1', false],
  ])('of %j in %j says %j', (q, text, has) => {
    expect(textFinder(q)?.(text)).toBe(has)
  })

  it('has nothing to look for without a text', () => {
    expect([textFinder(undefined), textFinder('')]).toEqual([undefined, undefined])
  })
})
