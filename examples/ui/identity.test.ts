import { expect, test } from 'vitest'
import { coloursOf, nameOf } from './identity.ts'

test('a member has the same name in every tab', () => {
  expect(nameOf('mem_abc')).toBe(nameOf('mem_abc'))
  expect(nameOf('mem_abc')).toMatch(/^[A-Z][a-z]+ [A-Z][a-z]+$/)
})

test('a chosen name takes precedence over a generated one', () => {
  expect(nameOf('mem_abc', 'Ada~x1')).toBe('Ada')
  expect(nameOf('mem_abc', '~x1')).toBe(nameOf('mem_abc'))
})

test('fifty members have nearly fifty different names', () => {
  const ids = Array.from({ length: 50 }, (_, index) => `mem_${(index * 7919).toString(36).padStart(16, 'q')}`)
  expect(new Set(ids.map((id) => nameOf(id))).size).toBeGreaterThan(42)
})

test('twelve members have twelve colours, and keep them when others join', () => {
  const ids = Array.from({ length: 30 }, (_, index) => `mem_${(index * 7919).toString(36)}`)
  const colours = coloursOf(ids)
  for (let count = 1; count <= 12; count++) {
    const few = coloursOf(ids.slice(0, count))
    expect(new Set(few.values()).size).toBe(count)
    for (const [id, colour] of few) expect(colours.get(id)).toBe(colour)
  }
  expect(colours.size).toBe(30)
})
