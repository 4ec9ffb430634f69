import { expect, test } from 'vitest'
import type { Json } from '../../shared/json.ts'
import { compare } from './compare.ts'

const compared = (alice: Json, bob: Json) => {
  const { state, marks } = compare([
    { player: 'alice', state: alice },
    { player: 'bob', state: bob },
  ])
  return { state, marks: Object.fromEntries(marks) }
}

test('equal states are one state without marks', () => {
  const state = { turn: 'ada', cards: [1, { suit: 'hearts' }], none: null }
  expect(compared(state, structuredClone(state))).toEqual({ state, marks: {} })
})

test('the state has all that any player sees, and the marks name who sees it', () => {
  expect(compared({ hands: { ada: ['7'] }, pot: 3 }, { hands: { bob: ['8'] }, pot: 3 })).toEqual({
    state: { hands: { ada: ['7'], bob: ['8'] }, pot: 3 },
    marks: { '/hands/ada': 'only alice', '/hands/bob': 'only bob' },
  })
})

test('a value that differs is that of the first player, with a mark for the other', () => {
  expect(compared({ count: 6, list: [1, 2], 'a/b': null }, { count: 5, list: [1], 'a/b': { c: 1 } })).toEqual(
    {
      state: { count: 6, list: [1, 2], 'a/b': null },
      marks: { '/count': 'bob: 5', '/list/1': 'only alice', '/a~1b': 'bob: {"c":1}' },
    },
  )
})

test('the state of one player has no marks', () => {
  const { state, marks } = compare([{ player: 'alice', state: { hands: { ada: [] } } }])
  expect([state, marks.size]).toEqual([{ hands: { ada: [] } }, 0])
})
