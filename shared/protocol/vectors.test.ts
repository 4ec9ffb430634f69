import { describe, expect, test } from 'vitest'
import type { Json } from '../json.ts'
import { Checksum } from '../sync/checksum.ts'
import { apply, DeltaMismatch } from '../sync/delta.ts'
import { diff } from '../sync/testing/diff.ts'
import { type ClientCodec, type Codec, type LayerEncoder, ReadingCodec, type RoomEncoder } from './codec.ts'
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

describe('the stream of one room', () => {
  test('the encoders write its frames', () => {
    for (const [codec, written] of [
      [new JsonCodec(), (step) => step.json],
      [new MsgpackCodec(), (step) => step.msgpack],
    ] as [Codec, (step: Vectors['stream'][number]) => unknown][]) {
      const encoders = new Map<string, RoomEncoder | LayerEncoder>()
      const states = new Map<string | undefined, Json>()
      for (const step of vectors.stream) {
        const { layer } = step
        const name = `${step.encoder} ${layer}`
        const fresh = () => (layer === undefined ? codec.roomEncoder() : codec.layerEncoder(layer))
        const encoder = encoders.get(name) ?? fresh()
        encoders.set(name, encoder)
        const at = { ...(step.json as StateAt), state: step.state }
        const delta = diff(states.get(layer) ?? null, step.state)
        const { kind } = step
        let frame: Uint8Array
        if (kind === 'patch' || kind === 'replay') frame = encoder[kind](at, delta)
        else if (kind === 'state' || kind === 'gone') frame = (encoder as LayerEncoder)[kind](at)
        else frame = (encoder as RoomEncoder).whole(`state.${kind}`, at, step.json.members as MemberInfo[])
        expect(codec.binary ? hex(frame) : text(frame), step.about).toEqual(written(step))
        states.set(layer, step.state)
      }
    }
  })

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
      const states = new Map<string | undefined, Json>()
      if (codec instanceof MsgpackClientCodec) codec.decode(bytes(vectors.address.msgpack))
      const reading = new ReadingCodec(codec)
      for (const step of vectors.stream) {
        const message = reading.decode(frame(step))
        const { room_id, epoch, seq, members } = step.json
        expect(message, step.about).toMatchObject({ room_id, epoch, seq, ...(members && { members }) })
        const layer = 'layer' in message ? message.layer : undefined
        expect(layer, step.about).toBe(step.layer)
        let state = states.get(layer) ?? null
        if ('delta' in message) state = message.delta ? apply(state, message.delta) : state
        else state = 'state' in message ? (message.state ?? null) : null
        states.set(layer, state)
        expect(state, step.about).toEqual(step.state)
        if (step.kind !== 'gone')
          expect(message, step.about).toMatchObject({ checksum: new Checksum().of(state) })
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
    const table = [...keys]
    const delta = frame.read(table)
    const next = delta ? apply(state, delta) : state
    expect(next).toEqual(state_after)
    expect(table).toEqual(keys_after)
    expect(new Checksum().of(next)).toBe(frame.checksum)
  })
})

describe('a patch that cannot be applied', () => {
  const misfits = vectors.patches.filter((patch) => !patch.applied)
  test.each(misfits)('$about', ({ msgpack, keys, state }) => {
    const frame = codec().decode(bytes(msgpack))
    if (frame.t !== 'state.patch') throw new Error(frame.t)
    expect(() => apply(state, frame.read([...keys])!)).toThrow(DeltaMismatch)
  })
})
