import { describe, expect, it } from 'vitest'
import { select, textFinder } from './descriptions.ts'

it('select describes the first of the matching items, in order, and only when the iteration reaches them', () => {
  const described: number[] = []
  const { items, found, total } = select([5, 1, 3, 4], {
    fits: (n) => n > 2,
    order: (a, b) => b - a,
    limit: 2,
    describe: (n) => {
      described.push(n)
      return `${n}`
    },
  })
  const reader = items[Symbol.iterator]()
  expect([reader.next().value, described]).toEqual(['5', [5]])
  expect([[...items], found, total]).toEqual([['5', '4'], 3, 4])
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
  ])('of %j in %j returns %j', (q, text, has) => {
    expect(textFinder(q)?.(text)).toBe(has)
  })

  it('is undefined without a text', () => {
    expect([textFinder(undefined), textFinder('')]).toEqual([undefined, undefined])
  })
})
