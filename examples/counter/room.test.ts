import { expect, test } from 'vitest'
import { Play } from '../play.suite.ts'
import counter from './room.ts'

test('everyone raises the same number, by one unless they say otherwise', () => {
  const room = new Play(counter)
  const [ada, bob] = [room.join('ada'), room.join('bob')]
  room.send(ada, 'inc', {})
  room.send(bob, 'inc', { by: 5 })
  expect(room.state).toEqual({ count: 6 })
})

test('each who takes a number has one of their own', () => {
  const room = new Play(counter)
  const [ada, bob] = [room.join('ada'), room.join('bob')]
  expect([room.send(ada, 'take', null), room.send(bob, 'take', null)]).toEqual([{ count: 1 }, { count: 2 }])
})

test.each([0, 101, 1.5, -1, '3', null])('a step of %j is refused and changes nothing', (by) => {
  const room = new Play(counter)
  const ada = room.join('ada')
  expect(() => room.send(ada, 'inc', { by })).toThrow()
  expect(room.state).toEqual({ count: 0 })
})

test('every multiple of ten is celebrated once, whether the count stops on it or passes it', () => {
  const room = new Play(counter)
  const ada = room.join('ada')
  const celebrated = (by: number) => {
    room.events.length = 0
    room.send(ada, 'inc', { by })
    return room.events
  }
  expect(celebrated(9)).toEqual([])
  expect(celebrated(1)).toMatchObject([{ name: 'milestone', data: { count: 10 } }])
  expect(celebrated(5)).toEqual([])
  expect(celebrated(17).map((event) => event.data)).toEqual([{ count: 20 }, { count: 30 }])
  expect(celebrated(100)).toHaveLength(10)
})
