import { expect, it } from 'vitest'
import type { Codec } from '../../shared/protocol/codec.ts'
import type { Subprotocol } from '../../shared/protocol/messages.ts'
import { MsgpackCodec } from '../../shared/protocol/msgpack-codec.ts'
import { Replace } from '../../shared/sync/delta.ts'
import { type Codecs, RoomFrames } from './delivery.ts'
import { HistoryBudget, Ring } from './history.ts'
import { JournalFormat } from './journal.ts'
import type { Update } from './update.ts'

const MSGPACK = 'roomful.v1.msgpack'
const BASE = { epoch: 7, seq: 0 }

const update = (seq: number): Update => ({
  epoch: 7,
  seq,
  visible: true,
  checksum: 1,
  delta: new Replace(seq, false),
  events: [{ name: 'moved', data: seq, to: undefined }],
  joined: [],
  left: [],
  acks: [],
  refused: [],
})

const codecs: Codecs = new Map<Subprotocol, Codec>([[MSGPACK, new MsgpackCodec()]])

const unlimited = () => new HistoryBudget(Number.POSITIVE_INFINITY, () => undefined)

it('replays the frames that were sent', () => {
  const frames = new RoomFrames('arena:a', codecs)
  const ring = new Ring({ entries: 10, bytes: 10_000 }, unlimited(), BASE)
  const sent = [1, 2].map((seq) => {
    const made = frames.update(update(seq), [MSGPACK])
    ring.add(update(seq), undefined, made)
    return Buffer.concat([made.patch[MSGPACK]!, made.rest![MSGPACK]!])
  })
  const missed = ring.replay(BASE, 7, 'mem_1', MSGPACK, frames, new JournalFormat())
  expect(missed?.map((each) => Buffer.from(each[MSGPACK]!))).toEqual(sent)
})

/**
 * An idle room keeps a few hundred bytes of history. As slices of the 8 KiB blocks that Node takes small buffers from they would keep a
 * whole block for each room.
 */
it('keeps no more memory than its frames have bytes', () => {
  const frames = new RoomFrames('arena:a', codecs)
  const ring = new Ring({ entries: 10, bytes: 10_000 }, unlimited(), BASE)
  const { patch } = frames.update(update(1), [MSGPACK])
  ring.add(update(1), undefined, { patch, rest: undefined })
  const [kept] = ring.replay(BASE, 7, 'mem_1', MSGPACK, frames, new JournalFormat())!
  expect(kept![MSGPACK]!.buffer.byteLength).toBe(patch[MSGPACK]!.length)
})
