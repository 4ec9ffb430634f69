import { expect, test } from 'vitest'
import { diff } from '../sync/testing/diff.ts'
import { LayerNumbers } from './codec.ts'
import { MsgpackClientCodec } from './msgpack-client-codec.ts'
import { MsgpackCodec } from './msgpack-codec.ts'

/** Sizes of frames. A change that makes frames longer fails here. */

const ROOM = 'arena:lobby'
const AT = { room_id: ROOM, checksum: 0xfedcba98 }
const PLAYERS = Array.from({ length: 25 }, (_, i) => `mem_${String(i).padStart(22, '0')}`)

/**
 * Returns an arena of 25 players, with coordinates from 0 to 1000 rounded to 0.01 and none of them an integer, after the move `n` of every
 * other player.
 */
const arena = (n: number) => ({
  players: Object.fromEntries(
    PLAYERS.map((id, i) => {
      const moves = i % 2 === 0 ? 0 : n
      return [id, { x: (2051 + 4000 * i + 12 * moves) / 100, y: (97_549 - 3500 * i - 24 * moves) / 100 }]
    }),
  ),
})

test('the patch of an arena of 25 in which 12 have moved has 128 bytes', () => {
  const room = new MsgpackCodec().roomEncoder()
  room.whole('state.snapshot', { ...AT, epoch: 1_795_181_400_123, seq: 999, state: arena(0) }, [])
  // The first patch announces the keys.
  room.patch({ ...AT, seq: 1000 }, diff(arena(0), arena(1)))
  const head = 4 + 3 + 5
  const table = 8
  const player = 1 + 4 + 4
  expect(room.patch({ ...AT, seq: 1001 }, diff(arena(1), arena(2)))).toHaveLength(head + table + 12 * player)
  // A flush with events only.
  expect(room.patch({ ...AT, seq: 1002 }, undefined)).toHaveLength(head - 1)
})

test('a flush that changes a number in the layer of a member has 13 bytes, and 18 for the layer', () => {
  const codec = new MsgpackCodec()
  const [room, layer, numbers] = [codec.roomEncoder(true), codec.layerEncoder(), new LayerNumbers()]
  const hand = (cards: number) => ({ hands: { [PLAYERS[0]!]: { cards } } })
  const flush = (seq: number) => {
    const change = layer.patch(0xfedcba98, diff(hand(seq), hand(seq + 1))!)
    const part = { layer: `member:${PLAYERS[0]}`, change: { 'roomful.v1.msgpack': change } }
    return [room.patch({ ...AT, seq }, undefined).length, codec.ending([part], numbers).length]
  }
  // The first one has the keys and the name of the layer.
  flush(1000)
  const head = 4 + 3 + 5 + 1
  const part = 1 + 1 + 5 + 1 + (2 + 2 + 2 + 3)
  expect(flush(1001)).toEqual([head, 1 + part])
})

test.each([
  [3, 100],
  [4, 200],
  [5, 1000],
  [7, 70_000],
])('an ack has %i bytes for the ref %i', (bytes, ref) => {
  expect(new MsgpackCodec().encode({ t: 'ack', room_id: ROOM, ref })).toHaveLength(bytes)
})

test('an event for all members has 2 bytes plus its name and its data', () => {
  const event = new MsgpackCodec().encode({ t: 'event', room_id: ROOM, name: 'hit', data: { by: 3 } })
  expect(event).toHaveLength(2 + (1 + 3) + (1 + 1 + 2 + 1))
})

test('a move has 32 bytes, and a reliable one 36', () => {
  const move = { t: 'message', room_id: ROOM, type: 'move', data: { x: 123.45, y: 999.99 } } as const
  const client = new MsgpackClientCodec()
  expect(client.encode(move)).toHaveLength(2 + 12 + 5 + (1 + 2 + 4 + 2 + 4))
  expect(client.encode({ ...move, ref: 200, settled: 199 })).toHaveLength(36)
})

test('a room frame has 2 bytes plus the room id, and a client in one room gets one', () => {
  expect(new MsgpackCodec().address(ROOM)).toHaveLength(2 + 12)
})
