import { expect, test } from 'vitest'
import { Wins } from './wins.ts'

test('counts the games that the tables say a player has won, once each, however often a page asks', async () => {
  const tables: { [key: string]: object } = {
    a: { mem_1: { sub: 'ada', wins: 2 }, mem_2: { sub: null, wins: 1 }, mem_3: { sub: 'bob', wins: 0 } },
    b: { mem_1: { sub: 'ada', wins: 1 } },
  }
  const wins = new Wins({ stateOf: async (type, key) => ({ phase: 'over', players: tables[key], type }) })
  for (const key of ['a', 'b', 'a']) await wins.look(key)
  expect([wins.of('ada'), wins.of('bob')]).toEqual([3, 0])
  tables.a = { mem_4: { sub: 'ada', wins: 1 } }
  await wins.look('a')
  expect(wins.of('ada')).toBe(3)
})
