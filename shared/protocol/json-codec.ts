import type { Json, JsonObject } from '../json.ts'
import { checkJson } from '../sync/check.ts'
import type { Delta } from '../sync/delta.ts'
import { diff } from '../sync/diff.ts'
import { applyOperations, toOperations } from '../sync/operations.ts'
import type { ClientCodec, Codec, DecodedMessage, Payload, RoomEncoder } from './codec.ts'
import { ProtocolError } from './error-codes.ts'
import type { ClientMessage, MemberInfo, PatchAt, ServerMessage, StateAt } from './messages.ts'
import { parseNamed } from './schema.ts'

const encodeJson = (message: ServerMessage): Payload => Buffer.from(JSON.stringify(message))

/** `roomful.v1.json`: one text frame a message, an object with `t`. */
export class JsonCodec implements Codec {
  readonly subprotocol = 'roomful.v1.json'
  readonly binary = false
  readonly #utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

  encode(message: ServerMessage): Payload {
    return encodeJson(message)
  }

  decode(payload: Payload): ClientMessage {
    const message = this.#parse(payload)
    if (typeof message !== 'object' || message === null || Array.isArray(message))
      throw new ProtocolError('a frame is not a JSON object; send {"t": …}')
    return parseNamed(message as JsonObject)
  }

  roomEncoder(): RoomEncoder {
    return new JsonRoomEncoder()
  }

  #parse(payload: Payload): Json {
    try {
      return JSON.parse(this.#utf8.decode(payload)) as Json
    } catch {
      throw new ProtocolError(`a frame of ${payload.length} bytes is not JSON; send one JSON object a frame`)
    }
  }
}

/** The state stream of a room as JSON: every frame stands by itself. */
class JsonRoomEncoder implements RoomEncoder {
  snapshot(at: StateAt): Payload {
    return encodeJson({ t: 'state.snapshot', ...pick(at), state: at.state })
  }

  resync(at: StateAt, members: readonly MemberInfo[]): Payload {
    return encodeJson({ t: 'state.resync', ...pick(at), members: [...members], state: at.state })
  }

  patch(at: PatchAt, delta: Delta | undefined): Payload {
    return encodeJson({ t: 'state.patch', ...pick(at), ops: delta ? toOperations(delta) : [] })
  }

  replay(at: PatchAt, delta: Delta | undefined): Payload {
    return this.patch(at, delta)
  }
}

const pick = ({ room_id: roomId, epoch, seq, checksum }: PatchAt): PatchAt => ({
  room_id: roomId,
  epoch,
  seq,
  checksum,
})

interface KnownState {
  readonly epoch: number
  readonly seq: number
  readonly state: Json
}

type Patch = Extract<ServerMessage, { t: 'state.patch' }>

/**
 * `roomful.v1.json`, the client's half, for tests and tools. A JSON Patch does not tell arrays from objects, so this codec follows each
 * room's state to turn patches into deltas; that is why the SDK speaks MessagePack.
 */
export class JsonClientCodec implements ClientCodec {
  readonly subprotocol = 'roomful.v1.json'
  readonly #utf8 = new TextEncoder()
  readonly #text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })
  readonly #states = new Map<string, KnownState>()

  encode(message: ClientMessage): Payload {
    checkJson(undefined, message)
    return this.#utf8.encode(JSON.stringify(message))
  }

  decode(payload: Payload): DecodedMessage {
    const message = this.#parse(payload)
    if (message.t === 'state.patch') {
      const { ops, ...at } = message
      return { ...at, delta: this.#follow(message) }
    }
    if (message.t === 'joined' || message.t === 'left') this.#states.delete(message.room_id)
    if (message.t === 'state.snapshot' || message.t === 'state.resync') {
      const known = this.#states.get(message.room_id)
      if (!known || known.epoch <= message.epoch) this.#states.set(message.room_id, message)
    }
    return message
  }

  #parse(payload: Payload): ServerMessage {
    try {
      const message = JSON.parse(this.#text.decode(payload)) as ServerMessage
      if (typeof message?.t === 'string') return message
    } catch {}
    throw new ProtocolError(`a frame of ${payload.length} bytes is not a JSON object with t`)
  }

  /** The delta of a patch that follows what is known; undefined for any other. */
  #follow({ room_id: roomId, epoch, seq, ops }: Patch): Delta | undefined {
    const known = this.#states.get(roomId)
    if (!known || epoch < known.epoch || (epoch === known.epoch && seq <= known.seq)) return undefined
    try {
      const state = applyOperations(known.state, ops)
      this.#states.set(roomId, { epoch, seq, state })
      return diff(known.state, state)
    } catch {
      // Patches before this one are missing.
      return undefined
    }
  }
}
