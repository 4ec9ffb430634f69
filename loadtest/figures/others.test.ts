import { expect, it } from 'vitest'
import { parseTimes, shareOfOthers } from './others.ts'

const system = (user: number, idle: number): string =>
  `cpu  ${user} 0 0 ${idle} 0 0 0 0 0 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n`
/** pid, name, state, ten fields, then the four times. */
const self = (times: string): string => `42 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 ${times} 20 0 11\n`

it('takes from all that the machine did what this process and its children did', () => {
  const before = parseTimes(system(1000, 5000), self('100 50 200 50'))
  expect(before).toEqual({ busy: 1000, total: 6000, own: 400 })
  const after = parseTimes(system(1500, 5500), self('150 100 400 50'))
  expect(shareOfOthers(before, after)).toBeCloseTo(0.2)
})
