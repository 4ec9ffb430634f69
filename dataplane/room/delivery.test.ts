import * as v from 'valibot'
import { afterEach, describe, expect, it, vi } from 'vitest'
import type { Codec, RoomEncoder } from '../../shared/protocol/codec.ts'
import { JsonCodec } from '../../shared/protocol/json-codec.ts'
import type { PatchHead, Subprotocol } from '../../shared/protocol/messages.ts'
import { MsgpackClientCodec } from '../../shared/protocol/msgpack-client-codec.ts'
import { MsgpackCodec } from '../../shared/protocol/msgpack-codec.ts'
import { Replace } from '../../shared/sync/delta.ts'
import { counter, counting, NO_CHANGES } from '../../test/support/rooms/counter-room.ts'
import { RoomBench, roomWith } from '../../test/support/rooms/room-bench.ts'
import { TestMember } from '../../test/support/rooms/test-member.ts'
import { payloadsOf } from '../frame.ts'
import { type Durability, defineRoom } from './definition.ts'
import { History, HistoryBudget } from './history.ts'
import { JournalFormat, type Update } from './journal.ts'
import { RoomFrames } from './room-frames.ts'

afterEach(() => vi.restoreAllMocks())

/** Counts encodings from now on, in rooms that are created from now on. */
function countEncoded() {
  const counts: Record<string, number> = {}
  const count = (what: string) => {
    counts[what] = (counts[what] ?? 0) + 1
  }
  for (const { prototype } of [JsonCodec, MsgpackCodec] as readonly { prototype: Codec }[]) {
    const { encode, roomEncoder } = prototype
    vi.spyOn(prototype, 'encode').mockImplementation(function (this: Codec, message) {
      count(`${this.subprotocol} ${message.t}`)
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
      return encoder
    })
  }
  return counts
}

it('a flush encodes the parts for all members once for each subprotocol, however many members there are', async () => {
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
    // Ten members joined, each with a greeting of the room.
    'roomful.v1.json event': 10,
    'roomful.v1.msgpack event': 10,
    'roomful.v1.json member': 10,
    'roomful.v1.msgpack member': 10,
  })
})

describe('replies', () => {
  /** Sells numbered tickets. */
  const office = (durability: Durability = 'journal') =>
    defineRoom({
      type: 'office',
      durability,
      sync: { rate: 0 },
      create: () => ({ sold: 0, notes: [] as string[] }),
      messages: {
        buy: {
          data: v.object({ bytes: v.optional(v.number(), 0) }),
          reply: v.object({ ticket: v.number(), text: v.optional(v.string(), '') }),
          handle(state, { data }, ctx) {
            state.sold++
            ctx.emit('sold', state.sold)
            ctx.reply({ ticket: state.sold, text: 'x'.repeat(data.bytes) })
          },
        },
        wrong: {
          data: v.null(),
          reply: v.number(),
          handle(state, _input, ctx) {
            state.sold = 1000
            ctx.reply('many' as never)
          },
        },
        twice: {
          data: v.null(),
          reply: v.number(),
          handle(state, _input, ctx) {
            state.sold = 1000
            ctx.reply(1)
            ctx.reply(2)
          },
        },
        silent: {
          data: v.null(),
          reply: v.number(),
          handle(state) {
            state.sold = 1000
          },
        },
        undeclared: {
          data: v.null(),
          handle(state, _input, ctx) {
            state.sold = 1000
            ctx.reply(1 as never)
          },
        },
        leave: {
          data: v.null(),
          reply: v.string(),
          handle(_state, { member }, ctx) {
            ctx.reply('bye')
            ctx.kick(member)
          },
        },
        ask: { data: v.string(), reply: v.string() },
        note: {
          data: v.string(),
          handle: (state, { data, member }) => {
            state.notes.push(`${member.id} ${data}`)
          },
        },
      },
      onMessage(_state, input, ctx) {
        ctx.reply(`${input.data}?`)
      },
    })

  /** A message of `ann`, as its edge sends it. */
  const say = (
    bench: RoomBench,
    type: string,
    data: never | object | string | null,
    ref?: number,
    settled = 0,
  ) =>
    bench.send('office', 'ann', { kind: 'message', type, data: data as never, settled, ...(ref && { ref }) })

  const ticket = (ref: number, number = ref, text = '') => ({ ref, reply: { ticket: number, text } })
  const range = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, i) => from + i)

  describe('a message type with a handler', () => {
    it('is handled by it, and other types by onMessage', async () => {
      const { bench, ann } = await roomWith(office(), ['ann'])
      say(bench, 'note', 'hi', 1)
      say(bench, 'ask', 'who', 2)
      await bench.untilIdle()
      expect(ann.state).toEqual({ sold: 0, notes: ['ann hi'] })
      expect(ann.replies).toEqual([{ ref: 2, reply: 'who?' }])
    })
  })

  describe('a reply', () => {
    it('waits for the commit of a journal, also if other members send requests until then', async () => {
      const { bench, ann } = await roomWith(office(), ['ann'])
      bench.store.mood = 'slow'
      say(bench, 'buy', {}, 1)
      await bench.untilIdle()
      say(bench, 'buy', {}, 1)
      const attached = await bench.resume('office', ann)
      expect([ann.replies, attached.outcomes]).toEqual([[], undefined])
      bench.store.let()
      await bench.untilIdle()
      expect(ann.replies).toEqual([ticket(1)])
    })

    it('is kept until its client confirms it', async () => {
      const { bench, ann } = await roomWith(office(), ['ann'])
      for (const ref of [1, 2]) say(bench, 'buy', {}, ref)
      await bench.untilIdle()
      expect((await bench.resume('office', ann, 0, 'node_a', 1)).outcomes).toEqual([ticket(2)])
      expect((await bench.resume('office', ann, 0, 'node_a', 2)).outcomes).toBeUndefined()
    })

    it('reaches a member whom its own message removes', async () => {
      const { bench, ann } = await roomWith(office(), ['ann'])
      say(bench, 'leave', null, 1)
      await bench.untilIdle()
      expect([ann.replies, ann.heard.at(-1)]).toEqual([[{ ref: 1, reply: 'bye' }], '-ann kicked'])
    })

    it.each([
      ['wrong', 'the reply has the wrong shape'],
      ['twice', 'ctx.reply was called twice'],
      ['silent', 'its handler gave none'],
      ['undeclared', 'declares no reply'],
    ])('%s: undoes the turn, with an error that gives the reason', async (type, text) => {
      const bench = new RoomBench([office()], { revealFailures: true })
      const ann = await bench.join('office', 'ann')
      say(bench, type, null, 1)
      await bench.untilIdle()
      expect(ann.state).toMatchObject({ sold: 0 })
      expect(ann.errors).toEqual([
        { code: 'room_logic_failed', message: expect.stringContaining(text), ref: 1 },
      ])
    })

    it('has at most 4 KiB', async () => {
      const { bench, ann } = await roomWith(office(), ['ann'])
      say(bench, 'buy', { bytes: 4096 - '{"ticket":1,"text":""}'.length }, 1)
      say(bench, 'buy', { bytes: 4097 - '{"ticket":2,"text":""}'.length }, 2)
      await bench.untilIdle()
      expect([ann.replies.length, ann.errors.map(({ code }) => code)]).toEqual([1, ['room_logic_failed']])
    })
  })

  describe('replies that a client may not know', () => {
    it('have at most the bytes of all outcomes of a member', async () => {
      const limits = { unconfirmed: { messages: 1000, bytes: 12_000 } }
      const { bench, ann } = await roomWith(office(), ['ann'], { limits })
      for (const ref of range(1, 3)) say(bench, 'buy', { bytes: 4000 }, ref)
      await bench.untilIdle()
      expect(ann.replies.map(({ ref }) => ref)).toEqual([1, 2])
      expect(ann.errors).toEqual([expect.objectContaining({ ref: 3, code: 'too_many_requests' })])
      for (const ref of range(4, 5)) say(bench, 'buy', { bytes: 4000 }, ref, 3)
      await bench.untilIdle()
      expect(ann.replies.map(({ ref }) => ref)).toEqual([1, 2, 4, 5])
    })

    it('may be one in a room of so many members that the share of each is less than a reply', async () => {
      const limits = { unconfirmed: { messages: 1000, bytes: 4000 } }
      const { bench, ann } = await roomWith(office(), ['ann'], { limits })
      say(bench, 'buy', { bytes: 100 }, 1)
      say(bench, 'buy', { bytes: 100 }, 2)
      await bench.untilIdle()
      expect(ann.replies.map(({ ref }) => ref)).toEqual([1])
      expect(ann.errors).toEqual([expect.objectContaining({ ref: 2, code: 'too_many_requests' })])
    })

    it('are forgotten, the oldest first, if the client never confirms, and never count as messages without a reply', async () => {
      const { bench, ann } = await roomWith(office(), ['ann'])
      for (const ref of range(1, 40)) {
        say(bench, 'buy', {}, ref)
        await bench.untilIdle()
      }
      expect([ann.replies.length, ann.acked]).toEqual([40, 40])
      const answer = await bench.resume('office', ann)
      expect(answer).toMatchObject({ ack: 40, forgotten: 8 })
      expect(answer.outcomes?.map(({ ref }) => ref)).toEqual(range(9, 40))
    })
  })
})

it('a patch has an epoch only if the patch before had another one', () => {
  const subprotocols = ['roomful.v1.json', 'roomful.v1.msgpack'] as const
  const [json, msgpack] = subprotocols
  const frames = new RoomFrames(
    'arena:a',
    new Map<Subprotocol, Codec>([
      [json, new JsonCodec()],
      [msgpack, new MsgpackCodec()],
    ]),
  )
  const client = new MsgpackClientCodec('arena:a')
  const epochs = (epoch: number, seq: number) => {
    const update = { ...NO_CHANGES, epoch, seq, checksum: 1, delta: undefined }
    const { patch } = frames.update(update, subprotocols)
    const [text, bytes] = subprotocols.map((of) => payloadsOf(patch[of]!)[0]!)
    const messages = [JSON.parse(new TextDecoder().decode(text)), client.decode(bytes!) as PatchHead]
    return messages.map((message) => message.epoch)
  }
  expect([7, 7, 8, 8].map((epoch, i) => epochs(epoch, i + 1))).toEqual([
    [7, 7],
    [undefined, undefined],
    [8, 8],
    [undefined, undefined],
  ])
})

describe('history', () => {
  const MSGPACK = 'roomful.v1.msgpack'
  const BASE = { epoch: 7, seq: 0 }

  const update = (seq: number): Update => ({
    ...NO_CHANGES,
    epoch: 7,
    seq,
    checksum: 1,
    delta: new Replace(seq, false),
    events: [{ name: 'moved', data: seq, to: undefined }],
  })

  const codecs = new Map<Subprotocol, Codec>([[MSGPACK, new MsgpackCodec()]])

  const emptyHistory = (frames: RoomFrames) => {
    const budget = new HistoryBudget(Number.POSITIVE_INFINITY, { inc: () => undefined })
    return new History({ entries: 100, bytes: 100_000 }, budget, frames, new JournalFormat(), BASE)
  }

  it('replays the sent frames, as many as it may keep', () => {
    const frames = new RoomFrames('arena:a', codecs)
    const history = emptyHistory(frames)
    const sent: Buffer[] = []
    for (let seq = 1; seq <= 300; seq++) {
      const made = frames.update(update(seq), [MSGPACK])
      history.add(update(seq), undefined, made)
      sent.push(Buffer.concat([made.patch[MSGPACK]!, made.rest![MSGPACK]!]))
    }
    const missed = history.replay({ epoch: 7, seq: 200 }, 7, 'mem_1', MSGPACK)
    const bytes = missed?.missed.map(({ patch, rest }) => Buffer.concat([patch![MSGPACK]!, rest![MSGPACK]!]))
    expect(bytes).toEqual(sent.slice(200))
    expect(history.replay({ epoch: 7, seq: 199 }, 7, 'mem_1', MSGPACK)).toBeUndefined()
  })

  /** An idle room keeps a few hundred bytes. Slices of the 8 KiB blocks that Node uses for small buffers would keep a whole block for each. */
  it.each([1, 300])('takes little more memory than the frames that it keeps of %d updates', (updates) => {
    const history = emptyHistory(new RoomFrames('arena:a', codecs))
    for (let seq = 1; seq <= updates; seq++) {
      history.add(update(seq), undefined, { patch: { [MSGPACK]: Buffer.alloc(150) }, rest: undefined })
    }
    const first = { epoch: 7, seq: Math.max(0, updates - 100) }
    const missed = history.replay(first, 7, 'mem_1', MSGPACK)!.missed.map(({ patch }) => patch![MSGPACK]!)
    const kept = missed.reduce((sum, { length }) => sum + length, 0)
    const buffers = [...new Set(missed.map(({ buffer }) => buffer))]
    const held = buffers.reduce((sum, { byteLength }) => sum + byteLength, 0)
    expect(history.bytes).toBeGreaterThan(held)
    expect(history.bytes).toBeLessThan(700 + 1.5 * kept)
  })

  it('takes little more memory than the changes of layers with long names', () => {
    const history = emptyHistory(new RoomFrames('arena:a', codecs, { hasLayers: true }))
    const layers = Array.from({ length: 20 }, (_, i) => ({
      layer: `member:mem_${'x'.repeat(22)}${i}`,
      change: i === 7 ? null : { [MSGPACK]: Buffer.alloc(20, i) },
    }))
    for (let seq = 1; seq <= 100; seq++)
      history.add(update(seq), undefined, { patch: { [MSGPACK]: Buffer.alloc(9) }, rest: undefined, layers })
    expect(history.bytes).toBeLessThan(1.6 * 100 * 20 * 30)
    for (const { frames } of history.latest) {
      expect(frames.layers?.map(({ layer }) => layer)).toEqual(layers.map(({ layer }) => layer))
      expect(frames.layers?.[7]?.change).toBe(null)
      expect(frames.layers?.[8]?.change?.[MSGPACK]?.[0]).toBe(8)
    }
  })

  it('counts the names of layers, also if each update has others', () => {
    const history = emptyHistory(new RoomFrames('arena:a', codecs, { hasLayers: true }))
    for (let seq = 1; seq <= 100; seq++) {
      const layers = [{ layer: `${seq}`.padEnd(128, 'x'), change: { [MSGPACK]: Buffer.alloc(1) } }]
      history.add(update(seq), undefined, { patch: { [MSGPACK]: Buffer.alloc(1) }, rest: undefined, layers })
    }
    expect(history.bytes).toBeGreaterThan(100 * 128)
    while (history.dropOldest()) {}
    expect(history.bytes).toBe(0)
  })

  it('counts the data of events for single members', () => {
    const history = emptyHistory(new RoomFrames('arena:a', codecs))
    const events = [{ name: 'map', data: 'x'.repeat(30_000), to: ['mem_1'] }]
    for (let seq = 1; seq <= 10; seq++) history.add({ ...update(seq), events }, undefined)
    expect(history.latest.map(({ seq }) => seq)).toEqual([10, 9, 8])
    while (history.dropOldest());
    expect(history.bytes).toBe(0)
  })

  describe('the histories of all rooms of a node', () => {
    it('stay within their limit: a member of a quiet room gets the whole state, and one of a busy room the updates that it missed', async () => {
      const bench = new RoomBench([counting('journal')], { limits: { historyBytes: 5000 } })
      const rooms = [
        { key: 'quiet', member: await bench.join('counter', 'ann', { key: 'quiet' }) },
        { key: 'busy', member: await bench.join('counter', 'bob', { key: 'busy' }) },
      ]
      for (const { key, member } of rooms) {
        bench.send('counter', member.memberId, { kind: 'detach' }, key)
        for (let ref = 1; ref <= 12; ref++) {
          await bench.say('counter', member.memberId, 'inc', null, ref, key)
          expect(bench.host.historyBytes).toBeLessThanOrEqual(5000)
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
        await bench.untilIdle()
        expect([member.state, member.faults]).toEqual([{ count: 12 }, []])
      }
      expect(bench.sentOf('attached').map(({ resumed }) => resumed)).toEqual([false, true])
      expect(bench.counts['resync resume']).toBe(1)
      await bench.host.close()
      expect(bench.host.historyBytes).toBe(0)
    })
  })

  /** A client names the seq to resume from. Updates from before its join would bring events and values that are gone. */
  describe('a resume from before the join', () => {
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

    it('is not replayed for a member that has left and joined again, either', async () => {
      const bench = new RoomBench([secrets])
      const { bob, joinedAt } = await told(bench)
      bench.leave('secrets', 'bob')
      await bench.say('secrets', 'ann', 'say', 'unheard', 4)
      await bench.say('secrets', 'ann', 'say', 'later', 5)
      // The same session with another seat, as an edge requests it.
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
})
