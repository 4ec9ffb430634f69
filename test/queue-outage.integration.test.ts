import * as v from 'valibot'
import { afterEach, expect, it, vi } from 'vitest'
import { defineQueue, defineRoom } from '../dataplane/index.ts'
import { StoreUnavailable } from '../shared/store/port.ts'
import { type TestRooms, testRooms } from './kit/index.ts'

const outage = vi.hoisted(() => ({ lasts: false }))

// The store of the test kit is in memory. In an outage, each command fails.
vi.mock('../shared/store/memory/memory.ts', async (load) => {
  const { memoryStore } = await load<typeof import('../shared/store/memory/memory.ts')>()
  const unreliable = <T extends object>(part: T): T =>
    new Proxy(part, {
      get(target, name) {
        const found = Reflect.get(target, name, target)
        if (typeof found === 'object' && found !== null) return unreliable(found)
        if (typeof found !== 'function') return found
        return (...args: unknown[]) =>
          outage.lasts ? Promise.reject(new StoreUnavailable('outage')) : Reflect.apply(found, target, args)
      },
    })
  return { memoryStore: (...args: Parameters<typeof memoryStore>) => unreliable(memoryStore(...args)) }
})

const duel = defineRoom({ type: 'duel', maxPlayers: 2, create: () => ({}) })
const ranked = defineQueue({
  type: 'ranked',
  room: 'duel',
  players: 2,
  ticket: v.object({ elo: v.number() }),
  near: ({ elo }) => elo,
  fits: (a, b) => a.elo === b.elo,
  giveUpSeconds: 50,
})

let t: TestRooms<[typeof duel, typeof ranked]>
afterEach(() => t.close())

it('An outage of the store of 60 s ends no ticket', async () => {
  t = await testRooms([duel, ranked])
  const enter = (sub: string, elo: number, options = {}) => t.queue('ranked', { elo }, { sub }, options)
  const party = `2-${'a'.repeat(32)}`
  const tickets = [await enter('ada', 1200), await enter('bob', 5000, { party })]
  await t.advance(5000)
  outage.lasts = true
  await t.advance(60_000)
  outage.lasts = false
  await t.advance(10_000)
  const others = [await enter('cleo', 1200), await enter('dan', 5000, { party })]
  const [ada, bob, cleo, dan] = await Promise.all([...tickets, ...others].map(({ matched }) => matched))
  expect([ada!.id, bob!.id]).toEqual([cleo!.id, dan!.id])
})
