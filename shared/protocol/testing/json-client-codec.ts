import type { Json } from '../../json.ts'
import { checkJson } from '../../sync/check.ts'
import { type Delta, DeltaMismatch, type Operation, REMOVE, Replace } from '../../sync/delta.ts'
import { diff } from '../../sync/testing/diff.ts'
import type { ClientCodec, DecodedMessage, LayerChange, Payload } from '../codec.ts'
import { ProtocolError } from '../error-codes.ts'
import type { ClientMessage, ServerMessage } from '../messages.ts'

/** A frame of the state of a room. */
type StateMessage = Extract<ServerMessage, { checksum: number }>

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
      case 'state.patch': {
        const { ops, layers: _, ...head } = message
        return {
          ...head,
          read: () => ({ delta: this.#follow(message, '', ops), layers: this.#layers(message) }),
        }
      }
      case 'state.snapshot':
      case 'state.resync': {
        const { state, members, layers: _, ...head } = message
        return {
          ...head,
          read: () => {
            this.#states.set(message.room_id, new Map([['', state]]))
            return { state, members, layers: this.#layers(message) }
          },
        }
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

  /** Returns the changes of layers. */
  #layers(message: StateMessage): LayerChange[] {
    return Object.entries(message.layers ?? {}).map(([layer, json]) => {
      if (json === null) {
        this.#of(message).delete(layer)
        return { layer, checksum: 0, change: REMOVE }
      }
      const { checksum } = json
      if ('ops' in json)
        return { layer, checksum, change: this.#follow(message, layer, json.ops) ?? new Replace({}) }
      this.#of(message).set(layer, json.state)
      return { layer, checksum, change: new Replace(json.state) }
    })
  }

  /** Returns the delta of operations on the known state of a layer. */
  #follow(message: StateMessage, layer: string, ops: readonly Operation[]): Delta | undefined {
    const states = this.#of(message)
    const known = states.get(layer)
    if (known === undefined) throw new DeltaMismatch('the state is not known')
    try {
      const next = applyOperations(known, ops)
      states.set(layer, next)
      return diff(known, next)
    } catch (error) {
      throw new DeltaMismatch('the patch cannot be applied', { cause: error })
    }
  }

  /** States of a room by layer. */
  #of({ room_id: roomId }: StateMessage): Map<string, Json> {
    const states = this.#states.get(roomId) ?? new Map<string, Json>()
    this.#states.set(roomId, states)
    return states
  }
}

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
