import { expect, test } from 'vitest'
import { Play } from '../play.suite.ts'
import arena from './room.ts'

function duel() {
  const room = new Play(arena)
  return { room, ada: room.join('ada'), bob: room.join('bob') }
}

test('a player who joins stands somewhere on the floor in full health, and is gone after leaving', () => {
  const { room, ada, bob } = duel()
  const { x, y, hp } = room.state.players[ada] ?? {}
  expect(hp).toBe(100)
  for (const value of [x, y]) {
    expect(value).toBeGreaterThan(0)
    expect(value).toBeLessThan(1000)
  }
  expect(room.state.players[ada]).not.toEqual(room.state.players[bob])
  room.leave(ada)
  expect(Object.keys(room.state.players)).toEqual([bob])
})

test('a move goes anywhere on the floor and nowhere else', () => {
  const { room, ada } = duel()
  room.send(ada, 'move', { x: 0, y: 1000 })
  expect(room.state.players[ada]).toEqual({ x: 0, y: 1000, hp: 100 })
  for (const place of [{ x: -0.1, y: 5 }, { x: 5, y: 1000.1 }, { x: '5', y: 5 }, { x: 5 }]) {
    expect(() => room.send(ada, 'move', place)).toThrow()
  }
  expect(room.state.players[ada]).toEqual({ x: 0, y: 1000, hp: 100 })
})

test('a hit takes ten and everyone is told', () => {
  const { room, ada, bob } = duel()
  room.send(ada, 'hit', { target: bob })
  expect(room.state.players[bob]?.hp).toBe(90)
  expect(room.events).toEqual([{ name: 'hit', data: { by: ada, target: bob, hp: 90 }, to: undefined }])
})

test('at no health a player is told of as 0 and stands elsewhere, healed', () => {
  const { room, ada, bob } = duel()
  room.send(bob, 'move', { x: 3, y: 3 })
  for (let blow = 0; blow < 10; blow++) room.send(ada, 'hit', { target: bob })
  expect(room.events.at(-1)?.data).toEqual({ by: ada, target: bob, hp: 0 })
  expect(room.state.players[bob]?.hp).toBe(100)
  expect(room.state.players[bob]).not.toMatchObject({ x: 3, y: 3 })
})

test.each(['ada', 'carl', '__proto__', 'toString'])('a hit on %s is refused with a reason', (target) => {
  const { room, ada } = duel()
  const before = room.state
  expect(() => room.send(ada, 'hit', { target })).toThrow(
    target === ada ? 'cannot hit yourself' : `no player "${target}"`,
  )
  expect(room.state).toBe(before)
  expect(room.events).toEqual([])
})
