import type { Json } from '../json.ts'
import { DeltaMismatch } from './apply.ts'
import type { Operation } from './operations.ts'

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
