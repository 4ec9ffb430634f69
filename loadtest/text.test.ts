import { expect, it } from 'vitest'
import { bytes, clock, digits, duration, inUnit, oneLine, percent } from './text.ts'

it.each([
  [digits, 0, '0'],
  [digits, 0.4231, '0.42'],
  [digits, 42.71, '42.7'],
  [digits, 81_204.4, '81,204'],
  [duration, 0.42, '0.42 ms'],
  [duration, 999.4, '999 ms'],
  [duration, 999.6, '1.00 s'],
  [duration, 42_700, '42.7 s'],
  [duration, 725_000, '12:05 min'],
  [duration, 3_723_000, '1:02:03 h'],
  [clock, 7, '0:07'],
  [clock, 59.7, '1:00'],
  [clock, 3599.8, '1:00:00'],
  [bytes, 0, '0 B'],
  [bytes, 12_595, '12.3 KB'],
  [bytes, 148 * 1024 ** 2, '148 MB'],
  [bytes, 1.5 * 1024 ** 3, '1.50 GB'],
  [percent, 0, '0%'],
  [percent, 0.05, '5%'],
  [percent, 0.0823, '8.2%'],
  [percent, 1.4, '140%'],
] as const)('%o writes %d as %s', (write, value, text) => {
  expect(write(value)).toBe(text)
})

it('writes a figure in the unit it is given in', () => {
  expect([inUnit(150, 'ms'), inUnit(80, '%'), inUnit(2, 's'), inUnit(3, ''), inUnit(12, 'sessions')]).toEqual(
    ['150 ms', '80%', '2 s', '3', '12 sessions'],
  )
})

it('takes from foreign text what a terminal would obey', () => {
  expect(oneLine(' gone\n\u001b[2Jaway\u0007\u009b31m ')).toBe('gone [2Jaway 31m')
})
