import fc from 'fast-check'
import { applyPatch } from 'rfc6902'
import { expect, test } from 'vitest'
import { statePair } from '../../test/support/json-arbitrary.ts'
import { apply } from './apply.ts'
import { Checksum } from './checksum.ts'
import { diff } from './diff.ts'
import { toOperations } from './operations.ts'

test('10,000 random pairs', () => {
  const sums = new Checksum()
  fc.assert(
    fc.property(statePair(), ([previous, next]) => {
      const delta = diff(previous, next)
      if (!delta) {
        expect(previous).toEqual(next)
        return
      }
      const applied = apply(previous, delta)
      expect(applied).toEqual(next)
      expect(sums.after(previous, next, delta)).toBe(new Checksum().of(next))
      expect(sums.after(previous, applied, delta)).toBe(new Checksum().of(next))
      const document = { root: structuredClone(previous) as unknown }
      const ops = toOperations(delta).map((o) => ({ ...structuredClone(o), path: `/root${o.path}` }))
      expect(applyPatch(document, ops)).toEqual(ops.map(() => null))
      expect(document.root).toEqual(next)
    }),
    { numRuns: 10_000 },
  )
})
