import { expect, it } from 'vitest'
import type { Findings } from './figure.ts'
import { type Circumstances, figuresPage } from './page.ts'

const circumstances: Circumstances = {
  date: '2026-03-01 14:05',
  cores: 2,
  processor: 'a processor',
  node: 'v20.19.0',
  redis: '7.0.15',
  version: '0.1.0',
  runs: 20,
  built: true,
  load_before: 0.1,
}

const findings = (p99: number, lost: number): Findings => ({
  name: 'kill',
  title: 'SIGKILL of the owner',
  method: 'Somebody kills it.',
  figures: [
    {
      what: 'members elsewhere',
      unit: 'ms',
      runs: 20,
      summary: { n: 80, p50: 412.34, p95: 512, p99, max: 2500 },
      goals: [{ of: 'p99', at_most: 2000 }],
    },
  ],
  facts: [{ what: 'sessions lost', value: lost, unit: '', at_most: 0 }],
  others: 0.123,
})

const row = (page: string, what: string): string =>
  page.split('\n').find((line) => line.includes(what)) ?? 'no such row'

it('says where a goal was met, and where it was missed', () => {
  const good = figuresPage([findings(1900, 0)], circumstances)
  expect(row(good, 'members elsewhere')).toBe(
    '| members elsewhere | ms | 20 | 80 | 412 | 512 | 1,900 | 2,500 | p99 ≤ 2000 | met |',
  )
  expect(row(good, 'sessions lost')).toBe('| sessions lost | 0 | ≤ 0 | met |')
  const bad = figuresPage([findings(2100, 1)], circumstances)
  expect(row(bad, 'members elsewhere')).toContain('**missed**')
  expect(row(bad, 'sessions lost')).toContain('**missed**')
})

it('says where and when it was measured, and how to do it again', () => {
  const page = figuresPage([findings(1, 0)], circumstances)
  for (const part of [
    '2026-03-01 14:05',
    '2 cores',
    'v20.19.0',
    '7.0.15',
    'npm run figures',
    '20 runs',
    'took 12 %',
  ])
    expect(page).toContain(part)
})
