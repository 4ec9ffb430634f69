import fc from 'fast-check'
import { expect, test } from 'vitest'
import { KnownStrings } from './known-strings.ts'

test('a string is what its bytes say, whatever was looked up before', () => {
  const known = new KnownStrings()
  const texts = fc.oneof(
    fc.string({ unit: 'binary', maxLength: 3 }),
    fc.string({ unit: 'grapheme', maxLength: 90 }),
  )
  fc.assert(
    fc.property(texts, fc.nat(5), (text, before) => {
      const utf8 = new TextEncoder().encode(text)
      const bytes = new Uint8Array(before + utf8.length + 1).fill(0x2d)
      bytes.set(utf8, before)
      expect(known.text(bytes, before, before + utf8.length)).toBe(new TextDecoder().decode(utf8))
    }),
    { numRuns: 1_000 },
  )
})

test('what is looked up keeps nothing of the bytes it was found in', () => {
  const known = new KnownStrings()
  const bytes = new TextEncoder().encode('arena:1')
  expect(known.text(bytes, 0, 7)).toBe('arena:1')
  bytes[6] = 0x32
  expect(known.text(bytes, 0, 7)).toBe('arena:2')
  bytes[6] = 0x31
  expect(known.text(bytes, 0, 7)).toBe('arena:1')
})
