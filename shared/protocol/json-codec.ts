import { type Json, type JsonObject, unsafeIntegerIn } from '../json.ts'
import { type Delta, toOperations } from '../sync/delta.ts'
import {
  type Codec,
  EncodedState,
  type LayerAt,
  type LayerEncoder,
  type LayerPart,
  type Payload,
  type RoomEncoder,
  type WholeName,
} from './codec.ts'
import { ProtocolError, UnsafeInteger } from './error-codes.ts'
import type { ClientMessage, MemberInfo, PatchHead, ServerMessage, StateAt } from './messages.ts'
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

  roomEncoder(hasLayers = false): RoomEncoder {
    return new JsonRoomEncoder(hasLayers)
  }

  layerEncoder(): LayerEncoder {
    return new JsonLayerEncoder()
  }

  ending(layers: readonly LayerPart[]): Payload {
    if (layers.length === 0) return END
    const parts: Uint8Array[] = []
    for (const { layer, change } of layers) {
      parts.push(Buffer.from(`${parts.length === 0 ? ',"layers":{' : ','}${JSON.stringify(layer)}:`))
      parts.push(change ? change[this.subprotocol]! : NULL)
    }
    return Buffer.concat([...parts, END, END])
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

/** The state stream of a room as JSON. Every frame is independent. */
class JsonRoomEncoder implements RoomEncoder {
  readonly #state = new EncodedState()
  readonly #hasLayers: boolean

  /** `hasLayers`: the frames lack the layers and the last brace. */
  constructor(hasLayers: boolean) {
    this.#hasLayers = hasLayers
  }

  stateChanged(): void {
    this.#state.forget()
  }

  whole(t: WholeName, { state, ...at }: StateAt, members: readonly MemberInfo[]): Payload {
    const head = open({ t, ...pick(at), members: [...members] })
    const json = this.#state.of(state, toJson)
    return Buffer.concat([head, STATE, json, ...(this.#hasLayers ? [] : [END])])
  }

  patch(at: PatchHead, delta: Delta | undefined): Payload {
    return this.replay(at, delta)
  }

  replay(at: PatchHead, delta: Delta | undefined): Payload {
    const message = { t: 'state.patch', ...pick(at), ops: delta ? toOperations(delta) : [] }
    return this.#hasLayers ? open(message) : toJson(message as unknown as Json)
  }
}

/** The changes of a layer as JSON. */
class JsonLayerEncoder implements LayerEncoder {
  stateChanged(): void {}

  state({ state, checksum }: LayerAt): Payload {
    return toJson({ state, checksum })
  }

  patch(checksum: number, delta: Delta): Payload {
    return this.replay(checksum, delta)
  }

  replay(checksum: number, delta: Delta): Payload {
    return toJson({ ops: toOperations(delta), checksum })
  }
}

const toJson = (value: Json): Uint8Array => Buffer.from(JSON.stringify(value))
/** Returns an object as JSON without the last brace, so that further fields can follow. */
const open = (message: object): Uint8Array => Buffer.from(JSON.stringify(message).slice(0, -1))
const STATE = Buffer.from(',"state":')
const NULL = Buffer.from('null')
const END = Buffer.from('}')

const pick = ({ room_id: roomId, epoch, seq, checksum }: PatchHead) => ({
  room_id: roomId,
  epoch,
  seq,
  checksum,
})
