import fc from 'fast-check'
import { applyPatch } from 'rfc6902'
import { expect, test } from 'vitest'
import { statePair } from '../../test/support/json-arbitrary.ts'
import { runLength } from '../../test/support/run-length.ts'
import type { Json } from '../json.ts'
import { applyOperations } from '../protocol/testing/json-client-codec.ts'
import { Checksum } from './checksum.ts'
import { ArrayDelta, apply, type Delta, ObjectDelta, toOperations } from './delta.ts'
import { diff } from './testing/diff.ts'

test('for random pairs of states, the difference leads from one to the other in every way there is', () => {
  fc.assert(
    fc.property(statePair(), ([previous, next]) => {
      const delta = diff(previous, next)
      if (!delta) {
        expect(previous).toEqual(next)
        return
      }
      const applied = apply(previous, delta)
      expect(applied).toEqual(next)
      expectShared(previous, applied, delta)

      const checksum = new Checksum().of(next)
      for (const state of [next, applied]) {
        const sums = new Checksum()
        sums.of(previous)
        expect(sums.after(previous, state, delta)).toBe(checksum)
        expect(sums.of(state)).toBe(checksum)
      }

      const operations = toOperations(delta)
      expect(applyOperations(previous, operations)).toEqual(next)
      // That library cannot replace the whole document, so it gets the state as a part of one.
      const document = structuredClone({ root: previous })
      const below = operations.map((operation) => ({
        ...structuredClone(operation),
        path: `/root${operation.path}`,
      }))
      expect(applyPatch(document, below)).toEqual(below.map(() => null))
      expect(document.root).toEqual(next)
    }),
    { numRuns: runLength(500, 3_000) },
  )
})

test('checksums stay right along a chain of states', () => {
  fc.assert(
    fc.property(fc.array(statePair(), { minLength: 2, maxLength: 5 }), (pairs) => {
      const [first, ...states] = pairs.flat()
      const sums = new Checksum()
      let state: Json = first ?? null
      sums.of(state)
      for (const next of states) {
        const delta = diff(state, next)
        if (!delta) continue
        const applied = apply(state, delta)
        expect(sums.after(state, applied, delta)).toBe(new Checksum().of(next))
        state = applied
      }
    }),
    { numRuns: 500 },
  )
})

/** What the delta does not name is the same object before and after. */
function expectShared(previous: Json, next: Json, delta: Delta): void {
  if (delta instanceof ObjectDelta) {
    const [before, after] = [previous, next] as Record<string, Json>[]
    for (const key of Object.keys(after!)) {
      const change = delta.changes[delta.keys.indexOf(key)]
      if (!change) expect(after![key]).toBe(before![key])
      else if (typeof change !== 'symbol') expectShared(before![key]!, after![key]!, change)
    }
  } else if (delta instanceof ArrayDelta) {
    const kept = (previous as Json[]).filter(
      (element, i) => typeof element === 'object' && !delta.keys.includes(i),
    )
    const removed = delta.splices.reduce((sum, { remove }) => sum + remove, 0)
    expect(kept.filter((element) => (next as Json[]).includes(element)).length).toBeGreaterThanOrEqual(
      kept.length - removed,
    )
  }
}
