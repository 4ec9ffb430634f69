import type { Json } from '../../json.ts'
import { checkJson } from '../../sync/check.ts'
import { type Delta, DeltaMismatch, type Operation } from '../../sync/delta.ts'
import { diff } from '../../sync/testing/diff.ts'
import type { ClientCodec, DecodedMessage, Payload } from '../codec.ts'
import { ProtocolError } from '../error-codes.ts'
import type { ClientMessage, ServerMessage } from '../messages.ts'

type Patch = Extract<ServerMessage, { t: 'state.patch' | 'layer.patch' }>

/**
 * The client's half of `roomful.v1.json`, for tests. A JSON Patch does not distinguish arrays from objects, so this codec follows each
 * room's state, and that of each layer, to convert patches into deltas. This is a reason why the SDK uses MessagePack.
 */
export class JsonClientCodec implements ClientCodec {
  readonly subprotocol = 'roomful.v1.json'
  readonly #utf8 = new TextEncoder()
  readonly #text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })
  /** States by room, and in each room by layer. The base is the layer ''. */
  readonly #states = new Map<string, Map<string, Json>>()

  encode(message: ClientMessage): Payload {
    checkJson(message)
    return this.#utf8.encode(JSON.stringify(message))
  }

  decode(payload: Payload): DecodedMessage {
    const message = this.#parse(payload)
    switch (message.t) {
      case 'state.patch':
      case 'layer.patch': {
        const { ops: _, ...head } = message
        return { ...head, read: () => this.#follow(message) }
      }
      case 'state.snapshot':
      case 'state.resync': {
        const { state, members, ...head } = message
        return { ...head, read: () => ({ state: this.#keep(message, state), members }) }
      }
      case 'layer.state': {
        const { state, ...head } = message
        return { ...head, read: () => (state === undefined ? state : this.#keep(message, state)) }
      }
      default:
        if (message.t === 'joined') this.#states.delete(message.room_id)
        return message
    }
  }

  #parse(payload: Payload): ServerMessage {
    try {
      const message = JSON.parse(this.#text.decode(payload)) as ServerMessage
      if (typeof message?.t === 'string') return message
    } catch {}
    throw new ProtocolError(`a frame of ${payload.length} bytes is not a JSON object with t`)
  }

  /** Returns the delta of a patch of the known state. */
  #follow(patch: Patch): Delta | undefined {
    const known = this.#states.get(patch.room_id)?.get(streamOf(patch))
    if (known === undefined) throw new DeltaMismatch('the state is not known')
    try {
      return diff(known, this.#keep(patch, applyOperations(known, patch.ops)))
    } catch (error) {
      throw new DeltaMismatch('the patch cannot be applied', { cause: error })
    }
  }

  #keep(message: { readonly room_id: string }, state: Json): Json {
    const states = this.#states.get(message.room_id) ?? new Map<string, Json>()
    this.#states.set(message.room_id, states)
    states.set(streamOf(message), state)
    return state
  }
}

const streamOf = (message: object): string => ('layer' in message ? String(message.layer) : '')

/**
 * Returns the state after a JSON Patch of add, replace and remove (RFC 6902). `state` is not changed. Throws DeltaMismatch if an operation
 * does not fit.
 */
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
  const next = { ...(value as Record<string, Json>) }
  if (part === '__proto__' || ((below.length > 0 || operation.op !== 'add') && !Object.hasOwn(next, part)))
    throw misfit(operation)
  if (below.length === 0 && operation.op === 'remove') delete next[part]
  else next[part] = applyAt(next[part] ?? null, below, operation)
  return next
}

function applyToArray(array: readonly Json[], part: string, below: string[], operation: Operation): Json {
  const adds = operation.op === 'add' && below.length === 0
  const index = adds && part === '-' ? array.length : /^(0|[1-9][0-9]*)$/.test(part) ? Number(part) : -1
  if (index < 0 || index >= array.length + (adds ? 1 : 0)) throw misfit(operation)
  if (adds) return array.toSpliced(index, 0, operation.value)
  if (below.length === 0 && operation.op === 'remove') return array.toSpliced(index, 1)
  return array.with(index, applyAt(array[index]!, below, operation))
}
