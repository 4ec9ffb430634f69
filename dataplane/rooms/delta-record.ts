import type { Json } from '../../shared/json.ts'
import { checkJson } from '../../shared/sync/check.ts'
import {
  ArrayDelta,
  type Change,
  type Delta,
  ObjectDelta,
  REMOVE,
  Replace,
  type Splice,
} from '../../shared/sync/delta.ts'

/**
 * A delta as plain data, for the journal: 0 removes; [1, value] replaces; [2, value] adds; [3, key, change, …] changes an object;
 * [4, [index, change, …], [at, remove, insert, …]] changes an array.
 */
export type DeltaRecord = 0 | readonly unknown[]

export function recordOf(change: Change): DeltaRecord {
  if (change === REMOVE) return 0
  if (change instanceof Replace) return [change.added ? 2 : 1, change.value]
  if (change instanceof ObjectDelta) {
    const record: unknown[] = [3]
    for (const [key, below] of change.changes) record.push(key, recordOf(below))
    return record
  }
  const changes: unknown[] = []
  for (const [index, below] of change.changes) changes.push(index, recordOf(below))
  return [4, changes, change.splices.flatMap(({ at, remove, insert }) => [at, remove, insert])]
}

/** The delta of a record. Throws on anything that `recordOf` does not make. */
export function deltaOf(record: unknown): Delta {
  const change = changeOf(record)
  if (change === REMOVE) throw new Error('a recorded delta removes what cannot be removed')
  return change
}

function changeOf(record: unknown): Change {
  if (record === 0) return REMOVE
  const [kind, ...rest] = listOf(record)
  if (kind === 1 || kind === 2) return new Replace(jsonOf(rest[0]), kind === 2)
  if (kind === 3) {
    const changes = new Map<string, Change>()
    for (let i = 0; i < rest.length; i += 2) {
      const key = rest[i]
      if (typeof key !== 'string') throw new Error(`a recorded delta changes a key that is a ${typeof key}`)
      changes.set(key, changeOf(rest[i + 1]))
    }
    return new ObjectDelta(changes)
  }
  if (kind === 4) return arrayDeltaOf(listOf(rest[0]), listOf(rest[1]))
  throw new Error(`a recorded delta is of the unknown kind ${String(kind)}`)
}

function arrayDeltaOf(recorded: readonly unknown[], spliced: readonly unknown[]): ArrayDelta {
  const changes = new Map<number, Delta>()
  for (let i = 0; i < recorded.length; i += 2) changes.set(indexOf(recorded[i]), deltaOf(recorded[i + 1]))
  const splices: Splice[] = []
  for (let i = 0; i < spliced.length; i += 3)
    splices.push({
      at: indexOf(spliced[i]),
      remove: indexOf(spliced[i + 1]),
      insert: listOf(spliced[i + 2]).map(jsonOf),
    })
  return new ArrayDelta(changes, splices)
}

function listOf(value: unknown): readonly unknown[] {
  if (!Array.isArray(value)) throw new Error(`a recorded delta has a ${typeof value} where an array belongs`)
  return value
}

function indexOf(value: unknown): number {
  if (typeof value === 'number' && Number.isSafeInteger(value) && value >= 0) return value
  throw new Error(`a recorded delta has ${String(value)} where an index or a number of elements belongs`)
}

function jsonOf(value: unknown): Json {
  checkJson(undefined, value)
  return value
}
