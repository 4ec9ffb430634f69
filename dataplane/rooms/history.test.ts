import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import type { Codec } from '../../shared/protocol/codec.ts'
import type { Subprotocol } from '../../shared/protocol/messages.ts'
import { MsgpackCodec } from '../../shared/protocol/msgpack-codec.ts'
import { Replace } from '../../shared/sync/delta.ts'
import { counting } from '../../test/support/rooms/counter-room.ts'
import { RoomBench, TestMember } from '../../test/support/rooms/room-bench.ts'
import { defineRoom } from './definition.ts'
import { History, HistoryBudget } from './history.ts'
import { JournalFormat, type Update } from './journal.ts'
import { RoomFrames } from './room-frames.ts'

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
  replaced: [],
  left: [],
  presence: [],
  renewed: [],
  acks: [],
  outcomes: [],
  tables: undefined,
  layers: undefined,
})

const codecs = new Map<Subprotocol, Codec>([[MSGPACK, new MsgpackCodec()]])

const emptyHistory = (frames: RoomFrames) => {
  const budget = new HistoryBudget(Number.POSITIVE_INFINITY, { inc: () => undefined })
  return new History({ entries: 10, bytes: 10_000 }, budget, frames, new JournalFormat(), BASE)
}

it('replays the frames that were sent, as many as it may keep', () => {
  const frames = new RoomFrames('arena:a', codecs)
  const history = emptyHistory(frames)
  const sent: Buffer[] = []
  for (let seq = 1; seq <= 11; seq++) {
    const made = frames.update(update(seq), [MSGPACK])
    history.add(update(seq), undefined, made)
    sent.push(Buffer.concat([made.patch[MSGPACK]!, made.rest![MSGPACK]!]))
  }
  const missed = history.replay({ epoch: 7, seq: 1 }, 7, 'mem_1', MSGPACK)
  expect(missed?.missed.map((each) => Buffer.from(each[MSGPACK]!))).toEqual(sent.slice(1))
  expect(history.replay(BASE, 7, 'mem_1', MSGPACK)).toBeUndefined()
})

/**
 * An idle room keeps a few hundred bytes of history. As slices of the 8 KiB blocks that Node takes small buffers from they would keep a
 * whole block for each room.
 */
it('keeps no more memory than its frames have bytes', () => {
  const frames = new RoomFrames('arena:a', codecs)
  const history = emptyHistory(frames)
  const { patch } = frames.update(update(1), [MSGPACK])
  history.add(update(1), undefined, { patch, rest: undefined })
  const [kept] = history.replay(BASE, 7, 'mem_1', MSGPACK)!.missed
  expect(kept![MSGPACK]!.buffer.byteLength).toBe(patch[MSGPACK]!.length)
})

describe('the histories of all rooms of a node', () => {
  it('stay within their bound: who was away from a quiet room gets its whole state, who was away from a busy one what they missed', async () => {
    const bench = new RoomBench([counting('journal')], { limits: { historyBytes: 6000 } })
    const rooms = [
      { key: 'quiet', member: await bench.join('counter', 'ann', { key: 'quiet' }) },
      { key: 'busy', member: await bench.join('counter', 'bob', { key: 'busy' }) },
    ]
    for (const { key, member } of rooms) {
      bench.send('counter', member.memberId, { kind: 'detach' }, key)
      for (let ref = 1; ref <= 12; ref++) {
        await bench.say('counter', member.memberId, 'inc', null, ref, key)
        expect(bench.host.historyBytes).toBeLessThanOrEqual(6000)
      }
    }
    expect(bench.counts.history_dropped).toBeGreaterThan(3)
    for (const { key, member } of rooms) {
      const { codec, epoch, seq, sessionId } = member
      const asked = {
        ask: 1,
        edge: 'node_a',
        turn: 0,
        session_id: sessionId,
        codec,
        epoch,
        seq,
        settled: 0,
        through: 0,
      }
      bench.send('counter', member.memberId, { kind: 'attach', ...asked }, key)
      await bench.settle()
      expect([member.state, member.faults]).toEqual([{ count: 12 }, []])
    }
    expect(bench.sentOf('attached').map(({ resumed }) => resumed)).toEqual([false, true])
    expect(bench.counts['resync resume']).toBe(1)
    await bench.host.close()
    expect(bench.host.historyBytes).toBe(0)
  })
})

/** Whoever holds a seat names the seq to resume from: one from before its join would bring events and values that are gone since. */
describe('a resume from before the own join', () => {
  const secrets = defineRoom({
    type: 'secrets',
    messages: { say: { data: v.string() } },
    sync: { rate: 0 },
    create: () => ({ said: '' }),
    onMessage(state, { data }, ctx) {
      state.said = data
      ctx.emit('said', data)
    },
  })
  const told = async (bench: RoomBench) => {
    await bench.join('secrets', 'ann')
    await bench.say('secrets', 'ann', 'say', 'before', 1)
    await bench.say('secrets', 'ann', 'say', 'now', 2)
    const bob = await bench.join('secrets', 'bob')
    const joinedAt = bob.seq
    await bench.say('secrets', 'ann', 'say', 'after', 3)
    return { bob, joinedAt }
  }
  const textOf = ({ received }: { readonly received: readonly Uint8Array[] }) =>
    received.map((payload) => Buffer.from(payload).toString('latin1')).join()

  it.each(['at the same owner', 'at the next owner'])(
    'brings the whole state and nothing older, %s',
    async (where) => {
      const bench = new RoomBench([secrets])
      const { bob, joinedAt } = await told(bench)
      const { epoch } = bob
      let owner = bench
      if (where === 'at the next owner') {
        owner = bench.successor([...bench.members.values()])
        await bench.host.close()
      }
      for (let seq = joinedAt - 1; seq > 0; seq--) {
        bob.received.length = 0
        Object.assign(bob, { seq, epoch })
        const { resumed } = await owner.resume('secrets', bob)
        expect(resumed, `seq ${seq}, joined at ${joinedAt}`).toBe(false)
        expect(textOf(bob)).not.toContain('before')
        expect(textOf(bob)).not.toContain('now')
        expect(bob.state).toEqual({ said: 'after' })
      }
      Object.assign(bob, { seq: joinedAt, epoch })
      expect(await owner.resume('secrets', bob)).toMatchObject({ resumed: true })
    },
  )

  it('is no replay either for who has left and joined again', async () => {
    const bench = new RoomBench([secrets])
    const { bob, joinedAt } = await told(bench)
    bench.send('secrets', 'bob', { kind: 'leave', reason: 'left', request_id: 9 })
    await bench.say('secrets', 'ann', 'say', 'unheard', 4)
    await bench.say('secrets', 'ann', 'say', 'later', 5)
    // The same session and another seat, as an edge asks for it.
    const again = new TestMember('bob_again', bob.codec)
    Object.assign(again, { sessionId: bob.sessionId })
    bench.members.set('bob_again', again)
    await bench.join('secrets', 'bob_again')
    Object.assign(again, { seq: joinedAt })
    again.received.length = 0
    expect(await bench.resume('secrets', again)).toMatchObject({ resumed: false })
    expect(textOf(again)).not.toContain('unheard')
  })
})
