import { afterEach, expect, it, vi } from 'vitest'
import type { Codec, RoomEncoder } from '../../shared/protocol/codec.ts'
import { JsonCodec } from '../../shared/protocol/json-codec.ts'
import { MsgpackCodec } from '../../shared/protocol/msgpack-codec.ts'
import { counter } from '../../test/support/rooms/counter-room.ts'
import { RoomBench } from '../../test/support/rooms/room-bench.ts'

afterEach(() => vi.restoreAllMocks())

/** Counts what is encoded from now on, in rooms that are made from now on. */
function countEncoded() {
  const counts: Record<string, number> = {}
  const count = (what: string) => {
    counts[what] = (counts[what] ?? 0) + 1
  }
  for (const { prototype } of [JsonCodec, MsgpackCodec] as readonly { prototype: Codec }[]) {
    const { encode, roomEncoder } = prototype
    let within = false
    vi.spyOn(prototype, 'encode').mockImplementation(function (this: Codec, message) {
      if (!within) count(`${this.subprotocol} ${message.t}`)
      return encode.call(this, message)
    })
    vi.spyOn(prototype, 'roomEncoder').mockImplementation(function (this: Codec): RoomEncoder {
      const encoder = roomEncoder.call(this)
      for (const kind of ['patch', 'whole'] as const) {
        const method = encoder[kind].bind(encoder) as (...values: unknown[]) => Uint8Array
        encoder[kind] = (...values: unknown[]) => {
          count(`${this.subprotocol} ${kind}`)
          return method(...values)
        }
      }
      // A room's encoder may or may not leave this to its codec.
      const behindPatch = encoder.behindPatch.bind(encoder)
      encoder.behindPatch = (message) => {
        count(`${this.subprotocol} ${message.t}`)
        within = true
        const bytes = behindPatch(message)
        within = false
        return bytes
      }
      return encoder
    })
  }
  return counts
}

it('what a flush has for everyone is encoded once for each subprotocol, however many members there are', async () => {
  const counts = countEncoded()
  const bench = new RoomBench([counter({ rate: 20, durability: 'none' })])
  for (let i = 0; i < 30; i++)
    await bench.join('counter', `m${i}`, { codec: i % 3 ? 'roomful.v1.msgpack' : 'roomful.v1.json' })
  await bench.advance(100)
  for (const what in counts) delete counts[what]

  for (let i = 0; i < 30; i++) bench.message('counter', `m${i}`, 'inc', { by: 1 }, 1)
  for (let i = 30; i < 40; i++)
    bench.askToJoin('counter', `m${i}`, { codec: i % 2 ? 'roomful.v1.msgpack' : 'roomful.v1.json' })
  const { seq } = bench.members.get('m0')!
  await bench.advance(100)
  expect(bench.members.get('m0')!.seq).toBe(seq + 1)
  expect(counts).toEqual({
    'roomful.v1.json patch': 1,
    'roomful.v1.msgpack patch': 1,
    'roomful.v1.json whole': 1,
    'roomful.v1.msgpack whole': 1,
    // Ten came, each with a greeting of the room.
    'roomful.v1.json event': 10,
    'roomful.v1.msgpack event': 10,
    'roomful.v1.json member': 10,
    'roomful.v1.msgpack member': 10,
  })
})
