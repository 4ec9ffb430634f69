import { describe, expect, it } from 'vitest'
import { lobbyChecks, p99 } from './lobby.ts'

const found = { lists: 100, ghosts: [], refused: [] }
const violated = (findings: Parameters<typeof lobbyChecks>[0], used: readonly number[]) =>
  lobbyChecks(findings, used, 200).flatMap(({ name, violations }) => (violations ? [name] : []))

describe('the checks of the lobby', () => {
  it('allow 60 rooms of 4 for 200 players, and not 61', () => {
    expect(violated(found, [50, 60])).toEqual([])
    expect(violated(found, [50, 61])).toEqual(['scattered players'])
  })

  it('count rooms that were listed after their end, and calls that failed', () => {
    expect(violated({ ...found, ghosts: ['load-lobby:a'] }, [50])).toEqual(['ended rooms in lists'])
    expect(violated({ ...found, refused: ['room_full'] }, [50])).toEqual(['refused players'])
  })
})

it('the 99th percentile is the bound below which 99 of 100 new values are', () => {
  const before = new Map([
    [0.001, 10],
    [0.01, 20],
    [Number.POSITIVE_INFINITY, 20],
  ])
  const after = (fast: number) =>
    new Map([
      [0.001, 10 + fast],
      [0.01, 120],
      [Number.POSITIVE_INFINITY, 120],
    ])
  expect(p99(before, after(99))).toBe(1)
  expect(p99(before, after(98))).toBe(10)
  expect(p99(before, before)).toBe(1)
})
