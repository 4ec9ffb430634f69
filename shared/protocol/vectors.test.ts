import { describe, expect, test } from 'vitest'
import type { Json } from '../json.ts'
import { Checksum } from '../sync/checksum.ts'
import { apply, DeltaMismatch, REMOVE } from '../sync/delta.ts'
import { diff } from '../sync/testing/diff.ts'
import {
  type ClientCodec,
  type Codec,
  type LayerEncoder,
  LayerNumbers,
  type LayerPart,
  newTables,
  ReadingCodec,
  type RoomEncoder,
} from './codec.ts'
import { JsonCodec } from './json-codec.ts'
import {
  CLIENT_MESSAGES,
  type ClientMessage,
  type MemberInfo,
  SERVER_MESSAGES,
  STREAM_MESSAGES,
  type StateAt,
} from './messages.ts'
import { MsgpackClientCodec } from './msgpack-client-codec.ts'
import { MsgpackCodec } from './msgpack-codec.ts'
import { JsonClientCodec } from './testing/json-client-codec.ts'
import { type Vectors, vectors } from './testing/vectors.ts'

const bytes = (hex: string) => Uint8Array.from(Buffer.from(hex, 'hex'))
const hex = (payload: Uint8Array) => Buffer.from(payload).toString('hex')
const utf8 = (value: Json) => new TextEncoder().encode(JSON.stringify(value))
const text = (payload: Uint8Array) => JSON.parse(new TextDecoder().decode(payload)) as Json

test.each(vectors.checksums)('the checksum of $value is $checksum', ({ value, checksum }) => {
  expect(new Checksum().of(value)).toBe(checksum)
})

describe('messages', () => {
  const sent = vectors.messages.filter(({ from }) => from === 'client')
  const answered = vectors.messages.filter(({ from }) => from === 'server')

  test.each(sent)('a client sends $json', ({ json, msgpack }) => {
    expect(hex(new MsgpackClientCodec().encode(json as ClientMessage))).toBe(msgpack)
    expect(text(new JsonClientCodec().encode(json as ClientMessage))).toEqual(json)
    expect(new MsgpackCodec().decode(bytes(msgpack))).toEqual(json)
    expect(new JsonCodec().decode(utf8(json))).toEqual(json)
  })

  test.each(answered)('the server sends $json', ({ json, msgpack }) => {
    expect(hex(new MsgpackCodec().encode(json as never))).toBe(msgpack)
    expect(text(new JsonCodec().encode(json as never))).toEqual(json)
    const roomId = json.room_id as string | undefined
    expect(new MsgpackClientCodec(roomId).decode(bytes(msgpack))).toEqual(json)
    expect(new JsonClientCodec().decode(utf8(json))).toEqual(json)
  })

  test('every message has a vector', () => {
    const names = (table: object) => new Set(Object.keys(table))
    expect(new Set(sent.map(({ json }) => json.t))).toEqual(names(CLIENT_MESSAGES))
    expect(new Set(answered.map(({ json }) => json.t))).toEqual(names(SERVER_MESSAGES))
    expect(new Set(vectors.stream.map(({ json }) => json.t))).toEqual(names(STREAM_MESSAGES))
  })
})

/** Returns what an encoder of a layer writes, in the subprotocol of the codec. */
const partOf = (codec: Codec, layer: string, change: Uint8Array | null): LayerPart => ({
  layer,
  change: change && { [codec.subprotocol]: change },
})

describe('the streams of a room without layers and of one with layers', () => {
  test.each([new JsonCodec(), new MsgpackCodec()])(
    'the encoders of $subprotocol write the frames',
    (codec) => {
      const rooms = new Map<string, RoomEncoder>()
      const encoders = new Map<string, LayerEncoder>()
      const numbers = new LayerNumbers()
      let before: { state: Json; layers?: { [name: string]: Json } } = { state: null }
      for (const { about, encoder: owner, kind, state, layers, json, msgpack } of vectors.stream) {
        const name = `${owner} ${layers !== undefined}`
        const room = rooms.get(name) ?? codec.roomEncoder(layers !== undefined)
        rooms.set(name, room)
        const isPatch = kind === 'patch' || kind === 'replay'
        const at = { ...(json as StateAt), state }
        const delta = diff(before.state, state)
        const frame = isPatch
          ? room[kind](at, delta)
          : room.whole(`state.${kind}`, at, json.members as MemberInfo[])
        if (!isPatch) numbers.restart()
        const parts: LayerPart[] = []
        for (const layer of Object.keys({ ...before.layers, ...layers })) {
          const next = layers?.[layer]
          const known = isPatch ? before.layers?.[layer] : undefined
          const change = next === undefined ? undefined : diff(known ?? null, next)
          if (next === undefined && isPatch) parts.push(partOf(codec, layer, null))
          if (next === undefined) encoders.delete(layer)
          if (next === undefined || !change) continue
          const encoder = encoders.get(layer) ?? codec.layerEncoder()
          encoders.set(layer, encoder)
          const checksum = new Checksum().of(next)
          const isWhole = known === undefined
          const part = isWhole
            ? encoder.state({ state: next, checksum })
            : encoder[kind === 'replay' ? 'replay' : 'patch'](checksum, change)
          parts.push(partOf(codec, layer, part))
        }
        const whole = layers ? Buffer.concat([frame, codec.ending(parts, numbers)]) : frame
        expect(codec.binary ? hex(whole) : text(whole), about).toEqual(codec.binary ? msgpack : json)
        before = { state, ...(layers && { layers }) }
      }
    },
  )

  test('a frame before it names its room', () => {
    const { room_id: roomId, msgpack } = vectors.address
    expect(hex(new MsgpackCodec().address(roomId))).toBe(msgpack)
    expect(new JsonCodec().address()).toBe(undefined)
  })

  test('a client that reads it has every state and every checksum', () => {
    for (const [codec, frame] of [
      [new JsonClientCodec(), (step) => utf8(step.json)],
      [new MsgpackClientCodec(), (step) => bytes(step.msgpack)],
    ] as [ClientCodec, (step: Vectors['stream'][number]) => Uint8Array][]) {
      let state: Json = null
      let layers = new Map<string, Json>()
      if (codec instanceof MsgpackClientCodec) codec.decode(bytes(vectors.address.msgpack))
      const reading = new ReadingCodec(codec)
      for (const step of vectors.stream) {
        const message = reading.decode(frame(step))
        const { room_id, epoch, seq, members } = step.json
        expect(message, step.about).toMatchObject({ room_id, seq, ...(members && { members }) })
        if (!('layers' in message)) throw new Error(message.t)
        expect(message.epoch, step.about).toBe(epoch)
        if ('state' in message) {
          layers = new Map()
          state = message.state
        } else if (message.delta) state = apply(state, message.delta)
        for (const { layer, checksum, change } of message.layers) {
          if (change === REMOVE) layers.delete(layer)
          else {
            layers.set(layer, apply(layers.get(layer) ?? null, change))
            expect(checksum, step.about).toBe(new Checksum().of(layers.get(layer)!))
          }
        }
        expect([state, Object.fromEntries(layers)], step.about).toEqual([step.state, step.layers ?? {}])
        expect(message.checksum, step.about).toBe(new Checksum().of(state))
      }
    }
  })
})

const codec = () => new MsgpackClientCodec(vectors.address.room_id)

test.each(vectors.frames)('a client reads $about', ({ msgpack, json }) => {
  expect(codec().decode(bytes(msgpack))).toEqual(json ?? { t: 'unknown' })
})

describe('a patch that is applied', () => {
  const applied = vectors.patches.filter((patch) => patch.applied)
  test.each(applied)('$about', ({ msgpack, keys, state, keys_after, state_after }) => {
    const frame = codec().decode(bytes(msgpack))
    if (frame.t !== 'state.patch') throw new Error(frame.t)
    const tables = { ...newTables(), keys: [...keys] }
    const { delta } = frame.read(tables)
    const next = delta ? apply(state, delta) : state
    expect(next).toEqual(state_after)
    expect(tables.keys).toEqual(keys_after)
    expect(new Checksum().of(next)).toBe(frame.checksum)
  })
})

describe('a patch that cannot be applied', () => {
  const misfits = vectors.patches.filter((patch) => !patch.applied)
  test.each(misfits)('$about', ({ msgpack, keys, state }) => {
    const frame = codec().decode(bytes(msgpack))
    if (frame.t !== 'state.patch') throw new Error(frame.t)
    expect(() => apply(state, frame.read({ ...newTables(), keys: [...keys] }).delta!)).toThrow(DeltaMismatch)
  })
})
