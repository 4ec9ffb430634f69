import { testRooms } from 'roomful/test'
import { expect, test } from 'vitest'
import { QUESTIONS } from './questions.ts'
import quick from './queue.ts'
import quiz from './room.ts'

const ADA = { sub: 'ada', data: { name: 'Ada', coins: 5 } }
const BOB = { sub: 'bob', data: { name: 'Bob', coins: 8 } }

test('the winner of a quiz is in the notice, also if the server crashes in a round', async () => {
  const t = await testRooms([quiz])
  const [ada, bob] = await t.join('quiz', [ADA, BOB])
  await ada.send('start')
  for (let round = 1; round <= 5; round++) {
    const { text, choices } = ada.state.question!
    const [, right] = QUESTIONS.find(([asked]) => asked === text)!
    const index = choices.indexOf(right)
    await ada.send('choose', index)
    if (round === 3) await t.killOwner()
    await bob.send('choose', (index + 1) % 4)
    expect(bob.state.right).toBe(index)
    await t.advance(5000)
  }
  expect(ada.state.phase).toBe('over')
  await t.advance(2000)
  expect(t.notices()).toMatchObject([{ type: 'matchOver', data: { ada: 5, bob: 0 } }])
})

test('a player sees neither the choices of others nor the questions to come', async () => {
  const t = await testRooms([quiz])
  const [ada, bob] = await t.join('quiz', [ADA, BOB])
  await ada.send('start')
  await ada.send('choose', 2)
  expect(bob.state.chosen).toEqual({ [ada.memberId]: true })
  expect(bob.state.choices).toEqual({})
  expect(bob.state.secret).toBeUndefined()
})

test('a question without an answer ends after 15 seconds', async () => {
  const t = await testRooms([quiz])
  const [ada] = await t.join('quiz', [ADA, BOB])
  await expect(ada.send('choose', 1)).rejects.toMatchObject({ message: 'the time is up' })
  await ada.send('start')
  await t.advance(15_100)
  expect(ada.state.phase).toBe('answer')
})

test('the queue starts a match of two players with about as many coins', async () => {
  const t = await testRooms([quiz, quick])
  const ada = await t.queue('quick', {}, ADA)
  await t.queue('quick', {}, { sub: 'eve', data: { coins: 5000 } })
  const bob = await t.queue('quick', {}, BOB)
  await t.advance(3000)
  const [room] = await Promise.all([ada.matched, bob.matched])
  expect(room.state.phase).toBe('question')
})
