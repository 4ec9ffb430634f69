import { type KeyReader, readValue } from './key-table.ts'
import { type Json, ProtocolFault, type WireValue } from './messages.ts'

/** docs/protocol.md §4, "Changes". `GONE` is what a removed key becomes. */
const GONE = Symbol('gone')

/** Applies the change of a MessagePack patch to `state`; throws ProtocolFault when it does not fit. */
export function applyChange(state: Json, change: WireValue | undefined, key: KeyReader): Json {
  if (change === undefined) return state
  const changed = changeOf(state, change, key)
  if (changed === GONE)
    throw new ProtocolFault('a change of nil removes a key, but the state itself has none')
  return changed
}

function changeOf(value: Json | undefined, change: WireValue, key: KeyReader): Json | typeof GONE {
  if (change === null) return GONE
  if (typeof change !== 'object') return change
  if (Array.isArray(change)) {
    if (change.length === 1) return readValue(change[0]!, key)
    if (change.length === 2) return changeArray(value, change[0]!, change[1]!, key)
    throw new ProtocolFault(`a change is an array of 1 or 2 elements, not of ${change.length}`)
  }
  return changeObject(value, change, key)
}

function changeObject(
  value: Json | undefined,
  change: Record<string, WireValue>,
  key: KeyReader,
): Record<string, Json> {
  if (value === undefined || value === null || typeof value !== 'object' || Array.isArray(value)) {
    throw new ProtocolFault(`a map of changes for ${JSON.stringify(value)}, which is no object`)
  }
  const result = { ...value }
  for (const [tagged, entry] of Object.entries(change)) {
    const name = key(tagged)
    const before = Object.hasOwn(value, name) ? value[name] : undefined
    const after = changeOf(before, entry, key)
    if (after === GONE) {
      if (before === undefined)
        throw new ProtocolFault(`key ${JSON.stringify(name)} goes, but was never there`)
      delete result[name]
    } else result[name] = after
  }
  return result
}

function changeArray(value: Json | undefined, edits: WireValue, splices: WireValue, key: KeyReader): Json[] {
  if (!Array.isArray(value)) throw new ProtocolFault(`an array's change for ${JSON.stringify(value)}`)
  if (edits === null || typeof edits !== 'object' || Array.isArray(edits) || !Array.isArray(splices)) {
    throw new ProtocolFault(`an array's change is a map and a list, not ${JSON.stringify([edits, splices])}`)
  }
  const result = [...value]
  for (const [tagged, entry] of Object.entries(edits)) {
    const index = Number(tagged.slice(1))
    if (!tagged.startsWith('#') || index >= result.length) {
      throw new ProtocolFault(`no element ${tagged} in an array of ${result.length}`)
    }
    const after = changeOf(result[index], entry, key)
    if (after === GONE) throw new ProtocolFault(`nil for element ${index}: elements go by splices`)
    result[index] = after
  }
  if (splices.length % 3 !== 0)
    throw new ProtocolFault(`${splices.length} splice elements: not groups of three`)
  for (let group = 0; group < splices.length; group += 3) {
    const [at, remove, values] = splices.slice(group, group + 3)
    if (
      typeof at !== 'number' ||
      typeof remove !== 'number' ||
      !Array.isArray(values) ||
      at + remove > result.length
    ) {
      throw new ProtocolFault(`splice ${JSON.stringify([at, remove, values])} of ${result.length} elements`)
    }
    result.splice(at, remove, ...values.map((element) => readValue(element, key)))
  }
  return result
}
