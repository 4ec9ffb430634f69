import { expect, test } from 'vitest'
import { Backoff } from './backoff.ts'

test('delays are short again after a reset, and never overflow', () => {
  const backoff = new Backoff({ bytes: () => new Uint8Array(), float: () => 1 }, 100, 1000)
  for (let i = 0; i < 2000; i++) expect(backoff.next()).toBeLessThanOrEqual(1000)
  backoff.reset()
  expect(backoff.next()).toBe(100)
})
