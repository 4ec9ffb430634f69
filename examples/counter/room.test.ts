import { testRooms } from 'roomful/test'
import { expect, test } from 'vitest'
import counter from './room.ts'

async function two() {
  const t = await testRooms([counter])
  return t.join('counter', 2)
}

test('all members raise the same number, by one unless they send another step', async () => {
  const [ada, bob] = await two()
  await ada.send('inc', {})
  await bob.send('inc', { by: 5 })
  for (const { state } of [ada, bob]) expect(state).toEqual({ count: 6 })
})

test('each member who takes a number gets a different one', async () => {
  const [ada, bob] = await two()
  const taken = await Promise.all([ada.request('take'), bob.request('take')])
  expect(taken.map(({ count }) => count).sort()).toEqual([1, 2])
})

test.each([0, 101, 1.5, -1])('a step of %j is refused and changes nothing', async (by) => {
  const [ada] = await two()
  await expect(ada.send('inc', { by })).rejects.toMatchObject({ code: 'invalid_payload' })
  expect(ada.state).toEqual({ count: 0 })
})

test('every multiple of ten is celebrated once, whether the count stops on it or passes it', async () => {
  const [ada, bob] = await two()
  let heard: number[] = []
  bob.on('milestone', ({ count }) => heard.push(count))
  const celebrated = async (by: number) => {
    heard = []
    await ada.send('inc', { by })
    return heard
  }
  expect(await celebrated(9)).toEqual([])
  expect(await celebrated(1)).toEqual([10])
  expect(await celebrated(5)).toEqual([])
  expect(await celebrated(17)).toEqual([20, 30])
  expect(await celebrated(100)).toHaveLength(10)
})
