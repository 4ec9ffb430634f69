import { applyPatch } from 'rfc6902'
import { type Json, type Operation, ProtocolFault } from './messages.ts'

const KINDS: ReadonlySet<string> = new Set(['add', 'replace', 'remove'])

/** Applies a JSON Patch with `rfc6902`; `state` stays as it is. The wrapper makes the pointer `""` an ordinary one. */
export function applyOperations(state: Json, ops: readonly Operation[]): Json {
  const wrapped = { state: structuredClone(state) }
  const moved = ops.map((operation) => {
    if (!KINDS.has(operation.op)) throw new ProtocolFault(`a patch has no operation ${operation.op}`)
    return { ...operation, path: `/state${operation.path}` }
  })
  const failure = applyPatch(wrapped, moved).find((result) => result !== null)
  if (failure) throw new ProtocolFault(`the patch cannot be applied: ${failure.message}`)
  return wrapped.state
}
