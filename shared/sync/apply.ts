import type { Json, JsonArray, JsonObject } from '../json.ts'
import { ArrayDelta, type Delta, ObjectDelta, REMOVE, Replace } from './delta.ts'

/** A delta was made for another state than the one it was applied to; the state is unchanged. */
export class DeltaMismatch extends Error {
  override readonly name = 'DeltaMismatch'
}

/**
 * The state after `delta`. `state` stays as it is; whatever the delta does not touch is shared with it. Throws DeltaMismatch when the
 * delta does not fit.
 */
export function apply(state: Json, delta: Delta): Json {
  if (delta instanceof Replace) return delta.value
  if (typeof state !== 'object' || state === null || Array.isArray(state) !== delta instanceof ArrayDelta)
    throw new DeltaMismatch(`no ${delta instanceof ArrayDelta ? 'array' : 'object'} to change`)
  return delta instanceof ObjectDelta
    ? applyToObject(state as JsonObject, delta)
    : applyToArray(state as JsonArray, delta)
}

function applyToObject(state: JsonObject, delta: ObjectDelta): JsonObject {
  const next: Record<string, Json> = { ...state }
  for (const [i, key] of delta.keys.entries()) {
    const change = delta.changes[i]!
    // As a plain assignment this key would set the prototype.
    if (key === '__proto__' || (!(change instanceof Replace) && !Object.hasOwn(next, key)))
      throw new DeltaMismatch(`no key ${key} to change`)
    if (change === REMOVE) delete next[key]
    else next[key] = apply(next[key]!, change)
  }
  return next
}

function applyToArray(state: JsonArray, delta: ArrayDelta): JsonArray {
  let next = state.slice()
  for (const [i, index] of delta.keys.entries()) {
    if (!(index >= 0 && Object.hasOwn(next, index)))
      throw new DeltaMismatch(`no element ${index} of ${next.length} to change`)
    next[index] = apply(next[index]!, delta.changes[i]!)
  }
  for (const { at, remove, insert } of delta.splices) {
    if (!(at >= 0 && remove >= 0 && at + remove <= next.length))
      throw new DeltaMismatch(`no ${remove} elements at ${at} of ${next.length} to remove`)
    next = next.slice(0, at).concat(insert, next.slice(at + remove))
  }
  return next
}
