import type { Json } from '../../shared/json.ts'
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
export function deltaOf(record: DeltaRecord): Delta {
  const change = changeOf(record)
  if (change === REMOVE) throw new Error('a recorded delta removes the state itself')
  return change
}

function changeOf(record: DeltaRecord): Change {
  if (record === 0) return REMOVE
  const [kind, ...rest] = record
  if (kind === 1 || kind === 2) return new Replace(rest[0] as Json, kind === 2)
  if (kind === 3) {
    const changes = new Map<string, Change>()
    for (let i = 0; i < rest.length; i += 2)
      changes.set(rest[i] as string, changeOf(rest[i + 1] as DeltaRecord))
    return new ObjectDelta(changes)
  }
  if (kind === 4) return arrayDeltaOf(rest[0] as unknown[], rest[1] as unknown[])
  throw new Error(`a recorded delta is of the unknown kind ${String(kind)}`)
}

function arrayDeltaOf(recorded: unknown[], spliced: unknown[]): ArrayDelta {
  const changes = new Map<number, Delta>()
  for (let i = 0; i < recorded.length; i += 2)
    changes.set(recorded[i] as number, deltaOf(recorded[i + 1] as DeltaRecord))
  const splices: Splice[] = []
  for (let i = 0; i < spliced.length; i += 3)
    splices.push({
      at: spliced[i] as number,
      remove: spliced[i + 1] as number,
      insert: spliced[i + 2] as Json[],
    })
  return new ArrayDelta(changes, splices)
}
