import { expect, test } from 'vitest'
import { Walker } from './walker.ts'

const STILL = { x: 0, y: 0 }

test('a walker sent somewhere arrives there and stops', () => {
  const walker = new Walker({ x: 100, y: 100 })
  walker.walkTo({ x: 200, y: 100 })
  for (let now = 0; now < 1000; now += 16) walker.step(STILL, 0.016, now)
  expect(walker.goal).toBeUndefined()
  expect(walker.place.x).toBeCloseTo(200, -1)
  expect(walker.place.y).toBe(100)
})

test('keys go before a goal, and two of them are no faster than one', () => {
  const [straight, diagonal] = [new Walker({ x: 500, y: 500 }), new Walker({ x: 500, y: 500 })]
  straight.walkTo({ x: 0, y: 0 })
  straight.step({ x: 1, y: 0 }, 0.1, 0)
  diagonal.step({ x: 1, y: 1 }, 0.1, 0)
  expect(straight.goal).toBeUndefined()
  const far = (place: { x: number; y: number }) => Math.hypot(place.x - 500, place.y - 500)
  expect(far(straight.place)).toBeCloseTo(far(diagonal.place))
})

test('no one walks through a wall, and what is sent fits the room', () => {
  const walker = new Walker({ x: 990, y: 5 })
  for (let now = 0; now < 2000; now += 16) walker.step({ x: 1, y: -1 }, 0.016, now)
  expect(walker.report(2000)).toEqual({ x: 1000, y: 0 })
})

test('positions are sent at most 20 times a second, and only when they change', () => {
  const walker = new Walker({ x: 100, y: 100 })
  let sent = 0
  for (let now = 1000; now < 2000; now += 4) {
    walker.step({ x: 1, y: 0 }, 0.004, now)
    if (walker.report(now)) sent++
  }
  expect(sent).toBeGreaterThan(15)
  expect(sent).toBeLessThanOrEqual(20)
  walker.report(2100)
  expect(walker.report(2200)).toBeUndefined()
})

test('a walker that stands believes the server, one that walks does not', () => {
  const walker = new Walker({ x: 100, y: 100 })
  walker.step({ x: 1, y: 0 }, 0.016, 1000)
  const here = { ...walker.place }
  walker.believe({ x: 300, y: 300 }, 0.016, 1016)
  expect(walker.place).toEqual(here)
  for (let now = 2000; now < 3000; now += 16) walker.believe({ x: 300, y: 300 }, 0.016, now)
  expect(walker.place.x).toBeCloseTo(300, 0)
  expect(walker.report(3000)).toBeUndefined()
})
