import { type Json, type JsonObject, unsafeIntegerIn } from '../json.ts'
import { type Delta, toOperations } from '../sync/delta.ts'
import {
  type Codec,
  EncodedState,
  type LayerEncoder,
  type Payload,
  type RoomEncoder,
  type WholeName,
} from './codec.ts'
import { ProtocolError, UnsafeInteger } from './error-codes.ts'
import type { ClientMessage, FlushMessage, MemberInfo, PatchAt, ServerMessage, StateAt } from './messages.ts'
import { parseNamed, unsafeInteger } from './schema.ts'

const encodeJson = (message: ServerMessage): Payload => Buffer.from(JSON.stringify(message))

const LIST_HEAD = '{"t":"rooms","request_id":'

/** `roomful.v1.json`: each message is one text frame with an object that has `t`. */
export class JsonCodec implements Codec {
  readonly subprotocol = 'roomful.v1.json'
  readonly binary = false
  readonly #utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

  encode(message: ServerMessage): Payload {
    return encodeJson(message)
  }

  listFor(requestId: number, encoded: Payload): Payload {
    return Buffer.concat([Buffer.from(`${LIST_HEAD}${requestId}`), encoded.subarray(LIST_HEAD.length + 1)])
  }

  decode(payload: Payload): ClientMessage {
    const text = this.#text(payload)
    const found = parseText(text, payload.length)
    if (typeof found !== 'object' || found === null || Array.isArray(found))
      throw new ProtocolError('a frame is not a JSON object; send {"t": …}')
    const message = parseNamed(found as JsonObject)
    const unsafe = unsafeIntegerIn(text)
    if (unsafe !== undefined) throw unsafeInteger(new UnsafeInteger(Number(unsafe)), message)
    return message
  }

  address(): undefined {}

  isUnreliable(payload: Payload): boolean {
    const bytes = Buffer.from(payload.buffer, payload.byteOffset, payload.length)
    return bytes.includes('"t":"message"') && !bytes.includes('"ref"')
  }

  roomEncoder(): RoomEncoder {
    return new JsonRoomEncoder()
  }

  layerEncoder(layer: string): LayerEncoder {
    return new JsonRoomEncoder(layer)
  }

  #text(payload: Payload): string {
    try {
      return this.#utf8.decode(payload)
    } catch {
      throw notJson(payload.length)
    }
  }
}

const notJson = (bytes: number): ProtocolError =>
  new ProtocolError(`a frame of ${bytes} bytes is not JSON; send one JSON object a frame`)

function parseText(text: string, bytes: number): Json {
  try {
    return JSON.parse(text) as Json
  } catch {
    throw notJson(bytes)
  }
}

/** The state stream of a room, or of one of its layers, as JSON. Every frame is independent. */
class JsonRoomEncoder implements RoomEncoder, LayerEncoder {
  readonly #state = new EncodedState()
  readonly #layer: string | undefined

  constructor(layer?: string) {
    this.#layer = layer
  }

  stateChanged(): void {
    this.#state.forget()
  }

  state({ state, ...at }: StateAt): Payload {
    return this.#withState({ t: 'layer.state', ...pick(at), layer: this.#layer! }, state)
  }

  gone({ room_id, epoch, seq }: Omit<PatchAt, 'checksum'>): Payload {
    return encodeJson({ t: 'layer.state', room_id, epoch, seq, layer: this.#layer! })
  }

  whole(t: WholeName, { state, ...at }: StateAt, members: readonly MemberInfo[]): Payload {
    return this.#withState({ t, ...pick(at), members: [...members] }, state)
  }

  patch(at: PatchAt, delta: Delta | undefined): Payload {
    return this.replay(at, delta)
  }

  replay(at: PatchAt, delta: Delta | undefined): Payload {
    const ops = delta ? toOperations(delta) : []
    const layer = this.#layer
    return encodeJson(
      layer === undefined
        ? { t: 'state.patch', ...pick(at), ops }
        : { t: 'layer.patch', ...pick(at), layer, ops },
    )
  }

  behindPatch(message: FlushMessage): Payload {
    return encodeJson(message)
  }

  /** Appends `state` as the last field of a message. */
  #withState(message: WithoutState<WholeName | 'layer.state'>, state: Json): Payload {
    const json = this.#state.of(state, toJson)
    return Buffer.concat([Buffer.from(`${JSON.stringify(message).slice(0, -1)},"state":`), json, END])
  }
}

type WithoutState<T extends ServerMessage['t']> = T extends unknown
  ? Omit<Extract<ServerMessage, { t: T }>, 'state'>
  : never

const toJson = (value: Json): Uint8Array => Buffer.from(JSON.stringify(value))
const END = Buffer.from('}')

const pick = ({ room_id: roomId, epoch, seq, checksum }: PatchAt): PatchAt => ({
  room_id: roomId,
  epoch,
  seq,
  checksum,
})
