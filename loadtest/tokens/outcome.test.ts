import { expect, it } from 'vitest'
import { summarizeRounds, type Way, type Window } from './outcome.ts'

const window = (way: Way, tokens: number, cpu_ms: number): Window & { way: Way } => ({
  way,
  tokens,
  cpu_ms,
  seconds: 2,
  latency: { n: tokens, p50: 1, p95: 2, p99: 3, max: 4 },
  callers_busy: 0.5,
})

it('compares each window with the bare one of its own round, also when the machine is slower in one of them', () => {
  const windows = [
    window('bare', 100, 10),
    window('key', 100, 30),
    // Three times as slow; the order of a round does not matter.
    window('key', 50, 45),
    window('bare', 50, 15),
    window('bare', 100, 10),
    window('key', 100, 40),
  ]
  const key = summarizeRounds('key', windows)
  expect(key).toMatchObject({ way: 'key', tokens_per_second: 50, cpu_ms_per_token: 0.4, p99_ms: 3 })
  expect(key.ratio_to_bare).toBeCloseTo(3)
  expect([key.ratio_min, key.ratio_max]).toEqual([expect.closeTo(3), expect.closeTo(4)])
  expect(summarizeRounds('bare', windows)).toMatchObject({ ratio_to_bare: 1, cpu_ms_per_token: 0.1 })
})
