import type { Json } from '../json.ts'
import { ArrayDelta, type Delta, REMOVE, Replace } from './delta.ts'

/** One RFC 6902 (JSON Patch) operation; `path` is an RFC 6901 pointer. roomful uses these three only. */
export type Operation =
  | { op: 'add'; path: string; value: Json }
  | { op: 'replace'; path: string; value: Json }
  | { op: 'remove'; path: string }

/** A key or index as the next part of an RFC 6901 pointer. */
export const pointerPart = (key: string | number): string =>
  typeof key === 'number' ? `/${key}` : `/${key.replaceAll('~', '~0').replaceAll('/', '~1')}`

/** The delta as a JSON Patch: operations to be applied in order. */
export function toOperations(delta: Delta): Operation[] {
  const operations: Operation[] = []
  write(delta, '', operations)
  return operations
}

function write(delta: Delta, path: string, to: Operation[]): void {
  if (delta instanceof Replace) {
    to.push({ op: delta.added ? 'add' : 'replace', path, value: delta.value })
    return
  }
  for (const [i, change] of delta.changes.entries()) {
    const below = path + pointerPart(delta.keys[i]!)
    if (change === REMOVE) to.push({ op: 'remove', path: below })
    else write(change, below, to)
  }
  if (delta instanceof ArrayDelta) writeSplices(delta, path, to)
}

function writeSplices(delta: ArrayDelta, path: string, to: Operation[]): void {
  for (const { at, remove, insert } of delta.splices) {
    const replaced = Math.min(remove, insert.length)
    for (const [i, value] of insert.entries())
      to.push({ op: i < replaced ? 'replace' : 'add', path: `${path}/${at + i}`, value })
    for (let i = replaced; i < remove; i++) to.push({ op: 'remove', path: `${path}/${at + replaced}` })
  }
}
