import { expect, test } from 'vitest'
import { DELAY_MS, Motion } from './motion.ts'

/** Where the player is drawn when `shown` ms of its own time have passed. */
const drawn = (motion: Motion, shown: number) => motion.at('p', shown + DELAY_MS)

test('between two updates a player is drawn on the way', () => {
  const motion = new Motion()
  motion.see('p', { x: 0, y: 0 }, 1000)
  motion.see('p', { x: 10, y: 20 }, 1050)
  expect(drawn(motion, 1025)).toEqual({ x: 5, y: 10 })
  expect(drawn(motion, 1050)).toEqual({ x: 10, y: 20 })
})

test('a player who has stood sets off when it does, and not in slow motion from when it was last seen to move', () => {
  const motion = new Motion()
  motion.see('p', { x: 0, y: 0 }, 1000)
  motion.see('p', { x: 10, y: 0 }, 5000)
  expect(drawn(motion, 3000)).toEqual({ x: 0, y: 0 })
  expect(drawn(motion, 4975)).toEqual({ x: 5, y: 0 })
})

test('a late update never makes a player run beyond what was seen', () => {
  const motion = new Motion()
  motion.see('p', { x: 0, y: 0 }, 1000)
  motion.see('p', { x: 10, y: 0 }, 1050)
  expect(drawn(motion, 9000)).toEqual({ x: 10, y: 0 })
})

test('a respawn is a leap, not a walk across the floor', () => {
  const motion = new Motion()
  motion.see('p', { x: 0, y: 0 }, 1000)
  motion.see('p', { x: 900, y: 900 }, 1050)
  expect(drawn(motion, 1025)).toEqual({ x: 900, y: 900 })
})

test('who is not in the room any more is not drawn', () => {
  const motion = new Motion()
  motion.see('p', { x: 1, y: 1 }, 1000)
  motion.keep({ other: true })
  expect(drawn(motion, 1000)).toBeUndefined()
})
