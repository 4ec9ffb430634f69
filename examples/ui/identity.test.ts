import { expect, test } from 'vitest'
import { hueOf, nameOf } from './identity.ts'

test('a member has the same name and colour in every tab', () => {
  expect(nameOf('mem_abc')).toBe(nameOf('mem_abc'))
  expect(nameOf('mem_abc')).toMatch(/^[A-Z][a-z]+ [A-Z][a-z]+$/)
  expect(hueOf('mem_abc')).toBe(hueOf('mem_abc'))
})

test('a chosen name goes before a made-up one', () => {
  expect(nameOf('mem_abc', 'Ada~x1')).toBe('Ada')
  expect(nameOf('mem_abc', '~x1')).toBe(nameOf('mem_abc'))
})

test('fifty members are told apart', () => {
  const ids = Array.from({ length: 50 }, (_, index) => `mem_${(index * 7919).toString(36).padStart(16, 'q')}`)
  expect(new Set(ids.map((id) => nameOf(id))).size).toBeGreaterThan(42)
  const hues = ids.map(hueOf)
  for (let sixth = 0; sixth < 360; sixth += 60) {
    const here = hues.filter((hue) => hue >= sixth && hue < sixth + 60).length
    expect(here).toBeGreaterThan(2)
  }
})
