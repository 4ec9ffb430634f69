import type { Json, JsonArray, JsonObject } from '../../json.ts'
import { type Gap, gaps } from '../align.ts'
import { ArrayDelta, type Change, type Delta, ObjectDelta, REMOVE, Replace, type Splice } from '../delta.ts'

/**
 * Returns the change from `previous` to `next`. Undefined: they are equal. Identical subtrees are skipped, so the cost is the size of the
 * changed objects and arrays, not of the state. -0 equals 0.
 */
export function diff(previous: Json, next: Json): Delta | undefined {
  if (previous === next) return undefined
  if (isContainer(previous) && isContainer(next)) {
    if (Array.isArray(previous)) return Array.isArray(next) ? diffArrays(previous, next) : new Replace(next)
    if (!Array.isArray(next)) return diffObjects(previous as JsonObject, next as JsonObject)
  }
  return new Replace(next)
}

const isContainer = (value: Json): value is JsonArray | JsonObject =>
  typeof value === 'object' && value !== null

function diffObjects(previous: JsonObject, next: JsonObject): ObjectDelta | undefined {
  const changed: string[] = []
  const changes: Change[] = []
  const change = (key: string, change: Change) => {
    changed.push(key)
    changes.push(change)
  }
  const keys = Object.keys(next)
  let kept = keys.length
  for (const key of keys) {
    const after = next[key]!
    // Inherited properties (`toString`) are functions, so they never equal a value.
    if (previous[key] === after) continue
    if (!Object.hasOwn(previous, key)) {
      kept--
      change(key, new Replace(after, true))
      continue
    }
    const below = diff(previous[key]!, after)
    if (below) change(key, below)
  }
  const before = Object.keys(previous)
  if (before.length > kept) for (const key of before) if (!Object.hasOwn(next, key)) change(key, REMOVE)
  return changes.length > 0 ? new ObjectDelta(changed, changes) : undefined
}

function diffArrays(previous: JsonArray, next: JsonArray): ArrayDelta | undefined {
  const indexes: number[] = []
  const changes: Delta[] = []
  const splices: Splice[] = []
  for (const gap of gaps(previous, next)) {
    const pairs = Math.min(gap.previousEnd - gap.previous, gap.nextEnd - gap.next)
    for (let i = 0; i < pairs; i++) {
      const change = diff(previous[gap.previous + i]!, next[gap.next + i]!)
      if (!change) continue
      indexes.push(gap.previous + i)
      changes.push(change)
    }
    const splice = spliceOf(gap, pairs, next)
    if (splice) splices.push(splice)
  }
  // From the end to the start, so that every index is that of the old array.
  splices.reverse()
  return changes.length > 0 || splices.length > 0 ? new ArrayDelta(indexes, changes, splices) : undefined
}

function spliceOf(gap: Gap, pairs: number, next: JsonArray): Splice | undefined {
  const at = gap.previous + pairs
  const remove = gap.previousEnd - at
  const insert = next.slice(gap.next + pairs, gap.nextEnd)
  return remove > 0 || insert.length > 0 ? { at, remove, insert } : undefined
}
