import * as v from 'valibot'
import { expect, it, vi } from 'vitest'
import type { LayerEncoder, RoomEncoder } from '../../shared/protocol/codec.ts'
import { MsgpackCodec } from '../../shared/protocol/msgpack-codec.ts'
import { RoomBench } from '../../test/support/rooms/room-bench.ts'
import type { Frame } from '../frame.ts'
import { FlushFrames, Subscription } from '../gateway/subscription.ts'
import { defineRoom } from './definition.ts'

const ENTITIES = 300
const MEMBERS = 300
const SEEN = 60

/** Fog of war: each member sees the entities near to it. */
const fog = defineRoom({
  type: 'fog',
  sync: { rate: 0 },
  layers: { 'entities.*': (id) => `entity:${id}` },
  messages: { move: { data: v.number() } },
  create: () => ({
    entities: Object.fromEntries(Array.from({ length: ENTITIES }, (_, i) => [`e${i}`, { x: i, y: 0 }])),
    joined: 0,
  }),
  onJoin(state, member, ctx) {
    const first = state.joined++
    for (let i = 0; i < SEEN; i++) ctx.show(member, `entity:e${(first + i) % ENTITIES}`)
  },
  onMessage(state, { data }) {
    for (let i = 0; i < data; i++) state.entities[`e${i}`]!.y++
  },
})

/** How often anything is encoded from now on. */
function countEncodes() {
  const count = { encodes: 0 }
  const counting = <E extends Partial<RoomEncoder & LayerEncoder>>(encoder: E): E => {
    for (const name of ['patch', 'whole', 'state', 'replay'] as const) {
      const encode = encoder[name]
      if (encode)
        encoder[name] = ((...args: Parameters<typeof encode>) => {
          count.encodes++
          return (encode as (...all: unknown[]) => Frame).apply(encoder, args)
        }) as never
    }
    return encoder
  }
  const { layerEncoder, roomEncoder } = MsgpackCodec.prototype
  vi.spyOn(MsgpackCodec.prototype, 'layerEncoder').mockImplementation(function (this: MsgpackCodec, layer) {
    return counting(layerEncoder.call(this, layer))
  })
  vi.spyOn(MsgpackCodec.prototype, 'roomEncoder').mockImplementation(function (this: MsgpackCodec) {
    return counting(roomEncoder.call(this))
  })
  return count
}

it('300 members who see 60 of 300 entities each: a flush encodes what has changed once, and each member costs one write', async () => {
  const count = countEncodes()
  const bench = new RoomBench([fog])
  for (let i = 0; i < MEMBERS; i++) bench.askToJoin('fog', `m${i}`)
  await bench.settle()
  for (const moved of [ENTITIES, 1, 0]) {
    count.encodes = 0
    bench.sent.length = 0
    await bench.say('fog', 'm0', 'move', moved)
    expect(count.encodes).toBe(moved === 0 ? 0 : moved + 1)
  }
  await bench.say('fog', 'm0', 'move', ENTITIES)
  const update = bench.sentOf('update').at(-1)!
  expect(update.layers!.members.map(({ own }) => own.length)).toEqual(Array(MEMBERS).fill(SEEN))
  expect([...bench.members.values()].flatMap(({ faults }) => faults)).toEqual([])

  const writes: Frame[] = []
  const outbox = {
    congested: false,
    write: (frame: Frame) => writes.push(frame),
    push: (frame: Frame) => writes.push(frame),
  }
  const connection = {
    codec: new MsgpackCodec(),
    outbox: { ...outbox, pushState: () => {} },
    address: () => {},
    send: () => {},
  }
  const flush = new FlushFrames(update.seq, update.patch, update.rest, true, update.layers)
  for (const memberId of bench.members.keys()) {
    const session = { connection, subscriptions: new Map(), right: { turn: 0 } } as never
    const join = { kind: 'join' } as never
    const subscription = new Subscription(session, update.room, memberId, {} as never, 0, join)
    const joined = { member_id: memberId, request_id: 1, members: [], snapshot: {} }
    subscription.joined(joined, update.epoch, update.seq - 1)
    expect(subscription.flush(flush, update.epoch)).toBe('passed')
  }
  expect(writes.length).toBe(MEMBERS)
})
