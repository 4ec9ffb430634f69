import { expect, test } from 'vitest'
import { move, type Point } from './move.ts'
import { Walker } from './walker.ts'

const STILL = { x: 0, y: 0 }

/** A walker at a place, and the messages that it sends. */
function at(x: number, y: number) {
  const value = { x, y, hp: 100 }
  const sent: Point[] = []
  const walker = new Walker({
    value,
    preview: (_type, ...[data]) => move(value, data as Point),
    async send(_type, ...[data]) {
      move(value, data as Point)
      sent.push(data as Point)
    },
  })
  return { walker, place: value, sent }
}

test('a walker with a goal arrives there and stops', () => {
  const { walker, place } = at(100, 100)
  walker.walkTo({ x: 200, y: 100 })
  for (let now = 0; now < 1000; now += 16) walker.step(STILL, 0.016, now)
  expect(walker.goal).toBeUndefined()
  expect(place.x).toBeCloseTo(200, -1)
  expect(place.y).toBe(100)
})

test('keys take precedence over a goal, and two keys are no faster than one', () => {
  const [straight, diagonal] = [at(500, 500), at(500, 500)]
  straight.walker.walkTo({ x: 0, y: 0 })
  straight.walker.step({ x: 1, y: 0 }, 0.1, 0)
  diagonal.walker.step({ x: 1, y: 1 }, 0.1, 0)
  expect(straight.walker.goal).toBeUndefined()
  const far = (place: Point) => Math.hypot(place.x - 500, place.y - 500)
  expect(far(straight.place)).toBeCloseTo(far(diagonal.place), 0)
})

test('a walker stops at walls, and its messages fit the room', () => {
  const { walker, sent } = at(990, 5)
  for (let now = 0; now < 2000; now += 16) walker.step({ x: 1, y: -1 }, 0.016, now)
  expect(sent.at(-1)).toEqual({ x: 1000, y: 0 })
})

test('positions are sent at most 20 times a second, only after a change, and the last one always', async () => {
  const { walker, place, sent } = at(100, 100)
  for (let now = 1000; now < 2000; now += 4) {
    walker.step({ x: 1, y: 0 }, 0.004, now)
    await Promise.resolve()
  }
  expect(sent.length).toBeGreaterThan(15)
  expect(sent.length).toBeLessThanOrEqual(20)
  for (let now = 2000; now < 3000; now += 4) walker.step(STILL, 0.004, now)
  expect(sent.length).toBeLessThanOrEqual(21)
  expect(sent.at(-1)).toEqual({ x: place.x, y: place.y })
})
