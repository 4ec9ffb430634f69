import { testRooms } from 'roomful/test'
import { expect, test } from 'vitest'
import arena from './room.ts'

async function duel() {
  const t = await testRooms([arena])
  const [ada, bob] = await t.join('arena', 2)
  const hits: unknown[] = []
  bob.on('hit', (hit) => hits.push(hit))
  return { ada, bob, hits }
}

test('a new player stands somewhere on the floor with full health, and is removed after leaving', async () => {
  const { ada, bob } = await duel()
  const { x, y, hp } = bob.state.players[ada.memberId] ?? {}
  expect(hp).toBe(100)
  for (const value of [x, y]) {
    expect(value).toBeGreaterThan(0)
    expect(value).toBeLessThan(1000)
  }
  expect(bob.state.players[ada.memberId]).not.toEqual(bob.state.players[bob.memberId])
  await ada.leave()
  expect(Object.keys(bob.state.players)).toEqual([bob.memberId])
})

test('a move reaches any place on the floor, and none outside', async () => {
  const { ada, bob } = await duel()
  await ada.send('move', { x: 0, y: 1000 })
  for (const place of [
    { x: -0.1, y: 5 },
    { x: 5, y: 1000.1 },
  ])
    await expect(ada.send('move', place)).rejects.toMatchObject({ code: 'invalid_payload' })
  expect(bob.state.players[ada.memberId]).toEqual({ x: 0, y: 1000, hp: 100 })
})

test('a hit takes ten health, and all members get the event', async () => {
  const { ada, bob, hits } = await duel()
  await ada.send('hit', { target: bob.memberId })
  expect(bob.state.players[bob.memberId]?.hp).toBe(90)
  expect(hits).toEqual([{ by: ada.memberId, target: bob.memberId, hp: 90 }])
})

test('at zero health the event has 0 hp, and the player is moved and healed', async () => {
  const { ada, bob, hits } = await duel()
  await bob.send('move', { x: 3, y: 3 })
  await Promise.all(Array.from({ length: 10 }, () => ada.send('hit', { target: bob.memberId })))
  expect(hits.at(-1)).toEqual({ by: ada.memberId, target: bob.memberId, hp: 0 })
  expect(ada.state.players[bob.memberId]?.hp).toBe(100)
  expect(ada.state.players[bob.memberId]).not.toMatchObject({ x: 3, y: 3 })
})

test.each(['carl', '__proto__', 'toString'])('a hit on %s is refused with a reason', async (target) => {
  const { ada, hits } = await duel()
  const before = ada.state
  await expect(ada.send('hit', { target })).rejects.toThrow(`no player "${target}"`)
  await expect(ada.send('hit', { target: ada.memberId })).rejects.toThrow('cannot hit yourself')
  expect(ada.state).toEqual(before)
  expect(hits).toEqual([])
})
