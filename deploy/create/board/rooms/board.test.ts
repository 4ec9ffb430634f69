import { testRooms } from 'roomful/test'
import { expect, test } from 'vitest'
import board from './board.ts'

test('a dot appears for all players and scores for its author', async () => {
  const t = await testRooms([board], { seed: 1 })
  const [ada, bob] = await t.join('board', 2)
  await ada.send('dot', { x: 0.5, y: 0.25 })
  expect(bob.state.dots).toHaveLength(1)
  expect(bob.state.players[ada.memberId]?.score).toBe(1)
  expect(bob.state.players[bob.memberId]?.score).toBe(0)
})

test('a dot outside the board is rejected', async () => {
  const t = await testRooms([board], { seed: 1 })
  const [ada] = await t.join('board', 1)
  await expect(ada.send('dot', { x: 2, y: 0 })).rejects.toMatchObject({
    code: 'invalid_payload',
  })
  expect(ada.state.dots).toHaveLength(0)
})
