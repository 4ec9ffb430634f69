import { expect, test } from 'vitest'
import type { Json } from '../json.ts'
import { Checksum } from './checksum.ts'
import { diff } from './testing/diff.ts'

const of = (state: Json) => new Checksum().of(state)

test('the sign of zero does not change a checksum', () => {
  expect(of([-0])).toBe(of([0]))
})

test('100,000 neighbouring states collide no more than by chance', () => {
  const seen = new Set<number>()
  for (let i = 0; i < 100_000; i++) seen.add(of({ x: i % 317, y: Math.floor(i / 317) }))
  // Expected: n² / 2^33 ≈ 1.2 collisions.
  expect(seen.size).toBeGreaterThan(99_992)
})

test('the checksum after a change reads only the changed parts, in a state of any size', () => {
  let read = 0
  const counted = (object: Record<string, Json>) =>
    new Proxy(object, {
      get: (target, key) => {
        read++
        return target[key as string]
      },
    })
  const players = Object.fromEntries(Array.from({ length: 10_000 }, (_, i) => [`p${i}`, { x: i, y: 0 }]))
  const previous = { players: counted(players), log: ['start'] }
  const next = { players: counted({ ...players, p7: { x: 7, y: 1 } }), log: ['start', 'moved'] }
  const sums = new Checksum()
  sums.of(previous)
  const delta = diff(previous, next)!
  read = 0
  expect(sums.after(previous, next, delta)).toBe(of(next))
  // `of` in the comparison above reads every player once, and `after` a few.
  expect(read - 10_000).toBeLessThan(10)
})
