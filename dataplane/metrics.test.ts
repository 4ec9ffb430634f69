import { expect, it } from 'vitest'
import { ProjectCounts } from './metrics.ts'

it('has a series for each of the 50 largest projects, and one for the sum of the others', () => {
  const counts = new ProjectCounts()
  for (let project = 1; project <= 60; project++)
    for (let n = 0; n < project; n++) counts.add(`prj_${project}`, 1)
  const { series } = counts
  expect(series).toHaveLength(51)
  expect(series[0]).toEqual([{ project_id: 'prj_60' }, 60])
  expect(series.at(-1)).toEqual([{ project_id: 'other' }, 55])
})

it('has no series for a project whose last item is gone', () => {
  const counts = new ProjectCounts()
  counts.add('prj_one', 1)
  counts.add('prj_one', -1)
  expect(counts.series).toEqual([])
  expect(counts.of('prj_one')).toBe(0)
})
