import type { Json } from '../json.ts'
import { DeltaMismatch } from './apply.ts'
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
  for (const [key, change] of delta.changes) {
    const below = path + pointerPart(key)
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

/** The state after a JSON Patch of add, replace and remove (RFC 6902). `state` stays as it is. Throws DeltaMismatch when one does not fit. */
export function applyOperations(state: Json, operations: readonly Operation[]): Json {
  return operations.reduce((current, operation) => {
    const [root, ...parts] = operation.path.split('/')
    if (root !== '') throw misfit(operation)
    return applyAt(
      current,
      parts.map((part) => part.replaceAll('~1', '/').replaceAll('~0', '~')),
      operation,
    )
  }, state)
}

const misfit = (operation: Operation) =>
  new DeltaMismatch(`the state has no place for ${operation.op} ${JSON.stringify(operation.path)}`)

function applyAt(value: Json, [part, ...below]: string[], operation: Operation): Json {
  if (part === undefined) {
    if (operation.op === 'remove') throw misfit(operation)
    return operation.value
  }
  if (typeof value !== 'object' || value === null) throw misfit(operation)
  if (Array.isArray(value)) return applyToArray(value, part, below, operation)
  const next = new Map(Object.entries(value))
  if (part === '__proto__' || ((below.length > 0 || operation.op !== 'add') && !next.has(part)))
    throw misfit(operation)
  if (below.length === 0 && operation.op === 'remove') next.delete(part)
  else next.set(part, applyAt(next.get(part) ?? null, below, operation))
  return Object.fromEntries(next)
}

function applyToArray(array: readonly Json[], part: string, below: string[], operation: Operation): Json {
  const adds = operation.op === 'add' && below.length === 0
  const index = adds && part === '-' ? array.length : /^(0|[1-9][0-9]*)$/.test(part) ? Number(part) : -1
  if (index < 0 || index >= array.length + (adds ? 1 : 0)) throw misfit(operation)
  if (adds) return array.toSpliced(index, 0, operation.value)
  if (below.length === 0 && operation.op === 'remove') return array.toSpliced(index, 1)
  return array.with(index, applyAt(array[index]!, below, operation))
}
