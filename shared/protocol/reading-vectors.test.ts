import { describe, expect, test } from 'vitest'
import { apply, DeltaMismatch } from '../sync/apply.ts'
import { Checksum } from '../sync/checksum.ts'
import { MsgpackClientCodec } from './msgpack-client-codec.ts'
import { vectors } from './testing/vectors.ts'

const bytes = (hex: string) => Uint8Array.from(Buffer.from(hex, 'hex'))
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
