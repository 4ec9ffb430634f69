import { expect, it } from 'vitest'
import { addressesBy } from './doors.ts'

const slots = ['ws://a', 'ws://b', 'ws://c'].map((ws_url) => ({ ws_url }))
const [a, b, c] = slots as [(typeof slots)[0], (typeof slots)[0], (typeof slots)[0]]

it('leads home while home is open, and to the others in turn when it is not', () => {
  const closed = new Set<object>()
  const next = addressesBy({ slots, isOpen: (door) => !closed.has(door) }, b)
  expect([next(), next()]).toEqual(['ws://b', 'ws://b'])
  closed.add(b)
  expect([next(), next(), next()]).toEqual(['ws://c', 'ws://a', 'ws://c'])
  closed.add(a)
  expect([next(), next()]).toEqual(['ws://c', 'ws://c'])
  closed.add(c)
  expect(next()).toBe('ws://b')
})
