import { crc32 } from 'node:zlib'
import fc from 'fast-check'
import { pino } from 'pino'
import * as v from 'valibot'
import { beforeAll, describe, expect, it } from 'vitest'
import type { Json } from '../../shared/json.ts'
import { memoryStore } from '../../shared/store/memory/memory.ts'
import type { Store } from '../../shared/store/port.ts'
import { Checksum } from '../../shared/sync/checksum.ts'
import { apply, ObjectDelta, REMOVE, Replace } from '../../shared/sync/delta.ts'
import { diff } from '../../shared/sync/testing/diff.ts'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { json } from '../../test/support/json-arbitrary.ts'
import { counting, NO_CHANGES } from '../../test/support/rooms/counter-room.ts'
import { RoomBench, roomWith } from '../../test/support/rooms/room-bench.ts'
import { TestMember } from '../../test/support/rooms/test-member.ts'
import { runLength } from '../../test/support/run-length.ts'
import { type Durability, defineRoom } from './definition.ts'
import { JournalFormat, type RoomSnapshot, type Update } from './journal.ts'
import { restore } from './restore.ts'

const format = new JournalFormat()

const board = defineRoom({
  type: 'board',
  messages: {
    put: { data: v.object({ at: v.string(), value: v.any() }) },
    tell: { data: v.object({ to: v.optional(v.string()) }) },
  },
  sync: { rate: 0 },
  create: (): { cells: Record<string, Json> } => ({ cells: {} }),
  onMessage(state, input, ctx) {
    if (input.type === 'put') state.cells[`at ${input.data.at}`] = input.data.value
    else ctx.emit('told', state.cells, input.data.to)
  },
})

const teams = defineRoom({
  type: 'teams',
  messages: { add: { data: v.any() } },
  sync: { rate: 0 },
  create: (): { teams: Json[] } => ({ teams: [] }),
  onMessage(state, input) {
    state.teams.push(input.data)
  },
})

it('a recorded delta does what the delta did', () => {
  const at = { epoch: 1, seq: 1, checksum: 0 }
  fc.assert(
    fc.property(json(), json(), (previous, next) => {
      const delta = diff(previous, next)
      if (!delta) return
      const read = format.readEntry(format.entry({ ...NO_CHANGES, ...at, delta }))
      const checksum = new Checksum()
      expect(checksum.of(apply(previous, read.delta!))).toBe(checksum.of(next))
    }),
  )
})

describe('a restored room', () => {
  // Names that clients choose become keys. With these two keys, an object once looked like an instance of a class with a toJSON method:
  // writing the journal entry threw, the update was never committed, and the room stopped.
  it('may have keys of any name, such as those with a meaning in JavaScript', async () => {
    const { bench, ann } = await roomWith(teams, ['ann'])
    const players = { constructor: 1, toJSON: 1, length: 1 }
    await bench.say('teams', 'ann', 'add', players)
    expect(ann.state).toEqual({ teams: [players] })
    expect(
      restore(await bench.claimed('teams'), format)?.state(Number.POSITIVE_INFINITY, undefined).base,
    ).toEqual(ann.state)
  })

  it('equals the committed room: state, checksum, seats, refs and replayed updates', async () => {
    const step = fc.oneof(
      fc.record({
        do: fc.constant('put' as const),
        who: fc.nat({ max: 2 }),
        at: fc.nat({ max: 5 }),
        value: json(),
      }),
      fc.record({
        do: fc.constant('tell' as const),
        who: fc.nat({ max: 2 }),
        to: fc.option(fc.nat({ max: 2 })),
      }),
      fc.record({ do: fc.constant('leave' as const), who: fc.constant(2) }),
    )
    await fc.assert(
      fc.asyncProperty(
        fc.array(step, { maxLength: 20 }),
        fc.nat({ max: 8 }),
        async (steps, journalEntries) => {
          const owner = new RoomBench([board], { limits: { journalEntries } })
          for (const id of ['m0', 'm1', 'm2']) await owner.join('board', id, { sub: `sub of ${id}` })
          const away = owner.members.get('m1')!
          owner.detach('board', away, true)
          const refs = [0, 0, 0]
          for (const taken of steps) {
            const id = `m${taken.who}`
            const ref = ++refs[taken.who]!
            if (taken.do === 'put')
              owner.message('board', id, 'put', { at: `${taken.at}`, value: taken.value }, ref)
            else if (taken.do === 'tell')
              owner.message('board', id, 'tell', taken.to === null ? {} : { to: `m${taken.to}` }, ref)
            else owner.leave('board', id)
            await owner.untilIdle()
          }
          const before = owner.describe('board')!
          const heir = owner.successor([away])
          // The old owner would have sent this.
          owner.attach('board', away)
          const oldAnswer = owner.sentOf('attached').at(-1)!
          const newAnswer = await heir.resume('board', away)
          const after = heir.describe('board')!
          expect(after).toMatchObject({ seq: before.seq, checksum: before.checksum, state: before.state })
          expect(after.epoch).toBeGreaterThan(before.epoch)
          const seats = (room: typeof before) => room.members.map(({ connected: _, ...seat }) => seat)
          expect(seats(after)).toEqual(seats(before))
          expect([away.state, away.faults, away.resyncs, away.acked]).toEqual([before.state, [], 0, refs[1]])
          const { resumed, ack, frames } = oldAnswer
          expect([newAnswer.resumed, newAnswer.ack, newAnswer.frames.length]).toEqual([
            resumed,
            ack,
            frames.length,
          ])
          // Applied messages are not applied again.
          if (refs[1]! > 0) heir.message('board', 'm1', 'put', { at: 'again', value: 1 }, refs[1]!)
          await heir.untilIdle()
          expect(away.state).toEqual(before.state)
        },
      ),
      { numRuns: runLength(50, 150) },
    )
  })
})

describe('damaged record', () => {
  const ROOM = 'prj_test/board:a'
  const LONG_MS = 600_000

  const board = defineRoom({
    type: 'board',
    messages: { put: { data: v.any() }, tell: { data: v.nullable(v.string()) } },
    sync: { rate: 0 },
    create: (): { cells: Json[]; last: Json } => ({ cells: [], last: null }),
    onMessage(state, { type, data }, ctx) {
      if (type === 'put') {
        state.cells.push(data)
        state.last = data
      } else ctx.emit('told', state.cells.length, data ?? undefined)
    },
  })

  /** The record of a room in the store. */
  interface Record {
    readonly snapshot: Uint8Array
    readonly journal: readonly Uint8Array[]
  }

  /** The room whose record is damaged below: its record, and the position of a member that has seen little of it. */
  let sound: Record
  let stands: Pick<TestMember, 'epoch' | 'seq' | 'state' | 'checksum'>

  // A snapshot with a history, and a journal with all kinds of entries: every kind of delta, events for all members and for one, joins,
  // leaves, acks and refusals.
  beforeAll(async () => {
    const bench = new RoomBench([board], { limits: { journalEntries: 7 } })
    const ann = await bench.join('board', 'ann', { codec: 'roomful.v1.json', sub: 'ann of the board' })
    await bench.join('board', 'bob')
    bench.detach('board', ann)
    stands = { epoch: ann.epoch, seq: ann.seq, state: ann.state, checksum: ann.checksum }
    let ref = 0
    for (let round = 0; round < 2; round++) {
      const said: [string, Json][] = [
        ['put', { x: [1.5, 'text'], y: null }],
        ['tell', null],
        ['tell', 'ann'],
        ['unknown', null],
        ['put', -7],
      ]
      for (const [type, data] of said) await bench.say('board', 'bob', type, data, ++ref)
      await bench.join('board', `cid${round}`)
      bench.leave('board', `cid${round}`)
      await bench.untilIdle()
    }
    const { snapshot, journal } = await bench.claimed('board')
    sound = { snapshot: snapshot!, journal }
    expect(format.readSnapshot(sound.snapshot).updates.length).toBeGreaterThan(3)
    expect(journal.length).toBeGreaterThan(2)
  })

  async function stored({ snapshot, journal }: Record): Promise<{ store: Store; clock: FakeClock }> {
    const clock = new FakeClock()
    clock.advance(10_000)
    const store = memoryStore({ clock })
    const { fence } = (await store.rooms.claim(ROOM, 'node_a', 0, LONG_MS))!
    let { version } = fence
    await store.rooms.snapshot(ROOM, { ...fence, version: version++ }, snapshot, LONG_MS)
    for (const entry of journal)
      await store.rooms.commit(ROOM, { ...fence, version: version++ }, entry, LONG_MS)
    await store.rooms.release(ROOM, { ...fence, version }, { forget: false, ttlMs: LONG_MS })
    return { store, clock }
  }

  /** Opens a room with this record: `ann` resumes, `dan` joins, and another room runs beside it. */
  async function opened(record: Record) {
    const { store, clock } = await stored(record)
    const bench = new RoomBench([board, counting('journal')], { store, clock, nodeId: 'node_b' })
    const eve = await bench.join('counter', 'eve')
    const ann = Object.assign(new TestMember('ann', 'roomful.v1.json'), stands, { inRoom: true, room: ROOM })
    bench.members.set('ann', ann)
    bench.attach('board', ann)
    const dan = await bench.join('board', 'dan')
    bench.message('board', 'dan', 'tell', 'ann', 1)
    await bench.say('counter', 'eve', 'inc', null, 1)
    expect([eve.state, eve.faults]).toEqual([{ count: 1 }, []])
    const { state, members, heard, faults, errors, inRoom } = ann
    const outcome = {
      ann: { state, members, heard, faults, errors, in_room: inRoom },
      dan: { state: dan.state, members: dan.members, errors: dan.errors, in_room: dan.inRoom },
    }
    return { bench, dan, outcome, quarantined: bench.counts.quarantined ?? 0 }
  }

  /** The parts of the record with one changed byte, for each byte at a multiple of `step`. */
  function* damages(step: number): IterableIterator<[where: string, damaged: Record]> {
    const parts = [sound.snapshot, ...sound.journal]
    for (const [n, part] of parts.entries())
      for (let at = 0; at < part.length; at += step) {
        const bytes = part.slice()
        bytes[at]! ^= 1 << (at % 8)
        yield [`byte ${at} of part ${n}`, withPart(n, bytes)]
      }
  }

  const withPart = (n: number, bytes: Uint8Array): Record => ({
    snapshot: n === 0 ? bytes : sound.snapshot,
    journal: sound.journal.map((entry, i) => (i + 1 === n ? bytes : entry)),
  })

  /** A record or an entry with the head that fits its content. */
  function sealed(bytes: Uint8Array, version = bytes[0]!): Uint8Array {
    const copy = bytes.slice()
    copy[0] = version
    new DataView(copy.buffer).setUint32(1, crc32(copy.subarray(5), version))
    return copy
  }

  // An unhandled rejection would end the test run, as it once ended the process.
  describe('a damaged record', () => {
    it('harms its room only, whichever byte it is: waiting joins are refused, and the next join creates the room again', async () => {
      const { outcome, quarantined } = await opened(sound)
      expect([outcome.dan.in_room, outcome.ann.faults, quarantined]).toEqual([true, [], 0])
      for (const [where, damaged] of damages(runLength(12, 4))) {
        const { bench, dan, quarantined } = await opened(damaged)
        expect(quarantined, where).toBe(1)
        expect(dan.errors, where).toMatchObject([{ code: 'room_unavailable' }, { code: 'no_seat' }])
        const fay = await bench.join('board', 'fay')
        expect([fay.state, fay.members.length], where).toEqual([{ cells: [], last: null }, 1])
      }
    })

    // The CRC detects changed bytes. Records like these come from a bug in the code that wrote them.
    it('with a correct CRC is read to the last field before the room runs: it works, or goes to quarantine', async () => {
      const { snapshot } = sound
      const { updates } = format.readSnapshot(snapshot)
      let aside = 0
      const open = async (record: Record) => {
        aside += (await opened(record)).quarantined
      }
      for (const [, { snapshot, journal }] of damages(runLength(15, 5)))
        await open({ snapshot: sealed(snapshot, 3), journal: journal.map((entry) => sealed(entry, 3)) })
      for (const [n, entry] of updates.entries())
        for (let at = 5; at < entry.length; at += runLength(9, 3)) {
          const bytes = entry.slice()
          bytes[at]! ^= 1 << (at % 8)
          const changed = updates.map((update, i) => (i === n ? sealed(bytes) : update))
          await open({
            ...sound,
            snapshot: format.snapshot({ ...format.readSnapshot(snapshot), updates: changed }),
          })
        }
      expect(aside).toBeGreaterThan(runLength(30, 100))
    })

    it('goes to quarantine with the reason', async () => {
      const { snapshot, journal } = sound
      const whole = format.readSnapshot(snapshot)
      const fence = { epoch: 9, version: 0 }
      const broken = (damaged: Partial<Record>) => () =>
        restore({ fence, snapshot, journal, ...damaged }, format)!.state(Number.POSITIVE_INFINITY, undefined)
      expect(broken({ snapshot: format.snapshot({ ...whole, checksum: 1 }), journal: [] })).toThrow(
        /checksum .*, but 1 was committed/,
      )
      const layers = { checksum: 1, states: [{ layer: 'red', state: { plan: 1 } }], grants: [] }
      expect(broken({ snapshot: format.snapshot({ ...whole, layers }), journal: [] })).toThrow(
        /layers have the checksum .*, but 1 was committed/,
      )
      expect(broken({ snapshot: snapshot.slice(0, 20) })).toThrow(/20 bytes is damaged: its CRC/)
      expect(broken({ snapshot: Uint8Array.of(3) })).toThrow(/has 1 bytes; the shortest has 5/)
      expect(broken({ snapshot: sealed(snapshot, 3) })).toThrow(/version 3; this node reads versions 9 to 10/)
      expect(broken({ journal: journal.slice(1) })).toThrow(/a journal entry has seq \d+ behind seq \d+/)
      const holed = format.snapshot({ ...whole, updates: whole.updates.slice(1) })
      expect(broken({ snapshot: holed })).toThrow(/the history of a snapshot has seq/)
      const short = format.snapshot({ ...whole, updates: whole.updates.slice(0, -1) })
      expect(broken({ snapshot: short })).toThrow(/the history of a snapshot ends at seq/)
    })

    it('stays in place if the store does not answer, and its room is refused', async () => {
      const damaged = withPart(0, sound.snapshot.slice(0, 20))
      const { store, clock } = await stored(damaged)
      const bench = new RoomBench([board], { store, clock, nodeId: 'node_b' })
      bench.store.mood = 'deaf'
      const dan = await bench.join('board', 'dan')
      expect(dan.errors).toMatchObject([{ code: 'room_unavailable' }])
      expect(bench.counts.quarantined).toBeUndefined()
      bench.store.mood = 'fine'
      await bench.join('board', 'dan')
      expect(bench.counts.quarantined).toBe(1)
    })
  })

  describe('a record of a newer version', () => {
    it.each([
      ['its snapshot', () => withPart(0, sealed(sound.snapshot, 11))],
      ['a journal entry', () => withPart(2, sealed(sound.journal[1]!, 11))],
      [
        'an entry of its history',
        () => {
          const whole = format.readSnapshot(sound.snapshot)
          const updates = whole.updates.map((entry, i) => (i === 1 ? sealed(entry, 11) : entry))
          return withPart(0, format.snapshot({ ...whole, updates }))
        },
      ],
    ])('in %s is refused and left for a newer node, and logged once', async (_, newer) => {
      const record = newer()
      const { store, clock } = await stored(record)
      const lines: { level: number; room?: string; err: { message: string } }[] = []
      const log = pino({}, { write: (line: string) => void lines.push(JSON.parse(line)) })
      const bench = new RoomBench([board], { store, clock, nodeId: 'node_b', log })
      for (const name of ['dan', 'fay']) {
        const member = await bench.join('board', name)
        expect(member.errors).toMatchObject([
          { code: 'room_unavailable', message: expect.stringContaining('a newer node') },
        ])
      }
      const told = lines.filter(({ level }) => level >= 50)
      expect(told).toMatchObject([{ room: ROOM, err: { message: expect.stringContaining('version 11') } }])
      const { epoch, owner } = (await store.rooms.inspect(ROOM))!
      expect(owner).toBeNull()
      expect(await store.rooms.claim(ROOM, 'node_c', epoch, LONG_MS)).toMatchObject(record)
    })
  })
})

describe('whole state', () => {
  const cards = (durability: Durability = 'journal') =>
    defineRoom({
      type: 'cards',
      messages: { deal: { data: v.null() }, misdeal: { data: v.null() } },
      sync: { rate: 0 },
      durability,
      create: () => ({
        rules: 'x'.repeat(20_000),
        deck: [1, 2, 3, 4, 5].map((n) => ({ n, by: '' })),
        hand: [] as { n: number; by: string }[],
      }),
      onMessage(state, { type, member }) {
        const card = state.deck.pop()!
        card.by = member.id
        state.hand.push(card)
        if (type === 'misdeal') throw new Error('misdeal')
      },
    })

  const hand = (state: unknown) => (state as { hand: { n: number }[] }).hand.map(({ n }) => n)

  /** A room whose first deal is being committed. A failed deal and a successful one have followed. */
  async function committing() {
    const { bench, ann, bob } = await roomWith(cards(), ['ann', 'bob'])
    bench.store.mood = 'slow'
    await bench.say('cards', 'ann', 'deal', null, 1)
    await bench.say('cards', 'ann', 'misdeal', null, 2)
    await bench.say('cards', 'ann', 'deal', null, 3)
    expect([bench.store.held, hand(ann.state)]).toEqual([1, []])
    return { bench, ann, bob }
  }

  async function answered(bench: RoomBench): Promise<void> {
    bench.store.mood = 'fine'
    bench.store.let()
    await bench.advance(3000, 50)
  }

  describe('the whole state that members request during a commit', () => {
    it('is that of the update, once it is committed', async () => {
      const { bench, ann, bob } = await committing()
      bench.resync('cards', bob, 'checksum')
      await bench.untilIdle()
      expect(bob.resyncs).toBe(0)
      bench.store.let()
      await bench.untilIdle()
      expect([bob.resyncs, hand(bob.state), bob.faults]).toEqual([1, [5], []])
      await answered(bench)
      expect([hand(ann.state), hand(bob.state), ann.acked]).toEqual([[5, 4], [5, 4], 3])
      expect([ann.faults, bob.faults]).toEqual([[], []])
    })

    it('goes to a member that resumes from an epoch outside of the history, and to one that repeats its join', async () => {
      const { bench, ann, bob } = await committing()
      bench.detach('cards', bob)
      bob.epoch = 1
      bench.attach('cards', bob)
      bench.send('cards', 'ann', {
        kind: 'join',
        request_id: 1,
        edge: 'node_a',
        turn: 0,
        codec: ann.codec,
        session_id: ann.sessionId,
        sub: null,
        principal: 'token',
        options: {},
      })
      await bench.untilIdle()
      expect(bench.sentOf('attached')).toEqual([])
      await answered(bench)
      expect(bench.sentOf('attached')).toHaveLength(1)
      expect([hand(ann.state), hand(bob.state), bob.resyncs, ann.faults]).toEqual([[5, 4], [5, 4], 1, []])
      expect(bob.checksum).toBe(ann.checksum)
    })

    // The room writes lost data from memory: with the update in flight, and without the turns after it.
    it.each(['lost the room', 'gone back to before the last updates'])(
      'is written to a store that has %s',
      async (loss) => {
        const { bench, ann } = await roomWith(cards(), ['ann'])
        await bench.say('cards', 'ann', 'deal', null, 1)
        const other = memoryStore({ clock: bench.clock })
        const name = 'prj_test/cards:a'
        if (loss !== 'lost the room') {
          const { epoch } = (await bench.store.store.rooms.inspect(name))!
          await other.rooms.claim(name, 'node_a', epoch - 1, 60_000)
        }
        bench.clock.advance(10)
        bench.store.mood = 'slow'
        await bench.say('cards', 'ann', 'deal', null, 2)
        await bench.say('cards', 'ann', 'misdeal', null, 3)
        await bench.say('cards', 'ann', 'deal', null, 4)
        bench.store.follow(() => other.rooms)
        bench.store.mood = 'fine'
        bench.store.let()
        await bench.advance(3000, 50)
        expect([hand(ann.state), ann.acked, ann.faults]).toEqual([[5, 4, 3], 4, []])
        const heir = bench.successor([ann], { store: other })
        expect(await heir.resume('cards', ann)).toMatchObject({ resumed: true })
        await heir.say('cards', 'ann', 'deal', null, 5)
        expect([hand(ann.state), ann.faults]).toEqual([[5, 4, 3, 2], []])
      },
    )
  })

  describe('the whole state of a large room', () => {
    it.each(['journal', 'snapshot', 'none'] as const)(
      'is up to date for the first member that joins with a subprotocol that no member used until then: %s',
      async (durability) => {
        const { bench, ann } = await roomWith(cards(durability), ['ann'])
        const join = (name: string) => bench.join('cards', name, { codec: 'roomful.v1.json' })
        await join('bob')
        bench.leave('cards', 'bob')
        await bench.say('cards', 'ann', 'deal', null)
        const carl = await join('carl')
        expect([hand(carl.state), carl.checksum, carl.faults]).toEqual([[5], ann.checksum, []])
      },
    )
  })
})

describe('the record of a room', () => {
  /** The leaf as deep in arrays as a state may have it. */
  function nested(leaf: number): unknown {
    let value: unknown = leaf
    for (let level = 0; level < 63; level++) value = [value]
    return value
  }

  const before = {
    deep: nested(1),
    list: [1, { a: 2 }, 'three'],
    gone: true,
    players: { anna: { hp: 3 } },
  } as never
  const after = {
    deep: nested(2),
    list: [{ a: 3 }, 'three', null, -1.5, 1e300],
    players: { anna: { hp: 300 }, 'bért 🎲': { hp: -70000, bag: [1795181400123, 'x'.repeat(40)] } },
    constructor: { toJSON: 1 },
    '': 0.1,
  } as never
  const refusal = { ref: 9, code: 'room_full', message: 'full' } as const
  const reply = { ref: 10, reply: { hp: [1, 'two'] } } as const
  const membership = {
    member: { id: 'mem_a', sub: 'anna', connected: false, spectator: true, data: { level: 3 } },
    sessionId: 'ses_1',
    joinRequest: 1,
    edge: 'node-1~f3Kx9a_Q',
    codec: 'roomful.v1.msgpack',
    lastRef: 70_000,
    outcomes: [refusal, reply],
    forgotten: 4,
    joinedSeq: 69_000,
    options: { colour: 'red' },
  } as const
  const timer = { id: 'turn', due: 1_795_181_420_123, name: 'turnEnds', data: { turn: 3 } } as const
  const task = { id: 'tsk_1_2', name: 'question', data: null } as const
  const at = { epoch: 1_795_181_400_123, seq: 70_001, checksum: 0xfedcba98 }
  const update: Update = {
    ...at,
    visible: true,
    delta: diff(before, after),
    events: [
      { name: 'hit', data: { by: 'mem_a' }, to: undefined },
      { name: 'told', data: null, to: ['mem_a'] },
    ],
    joined: [membership],
    replaced: [{ ...membership, subscriptionId: 'mem_c' }],
    left: [
      { member: { id: 'mem_b', sub: null, connected: true, spectator: false, data: null }, reason: 'kicked' },
    ],
    presence: [{ memberId: 'mem_a', connected: false, sub: 'anna', spectator: true }],
    roles: [{ memberId: 'mem_a', sub: 'anna', spectator: true }],
    renewed: [{ memberId: 'mem_a', data: { level: 3 } }],
    acks: [{ memberId: 'mem_a', ref: 70_000, forgotten: 4 }],
    outcomes: [
      { memberId: 'mem_a', ...refusal },
      { memberId: 'mem_a', ...reply },
    ],
    tables: {
      timers: { set: [timer], removed: ['tmr_1'] },
      tasks: { set: [task], removed: ['tsk_1_1'] },
      bans: { set: [{ id: 'mallory' }], removed: ['bo'] },
    },
    layers: {
      checksum: 17,
      changed: [
        {
          layer: 'member:mem_a',
          change: new Replace({ hands: { mem_a: [7] } }, true),
          checksum: 18,
        },
      ],
      unseen: new ObjectDelta(['deck'], [REMOVE]),
      grants: [{ memberId: 'mem_a', layer: 'staff', shown: false }],
    },
  }
  const grants = [{ memberId: 'mem_a', layers: ['team:red'] }]
  const base = { epoch: 1_795_181_400_000, seq: 70_000 }

  /** The record of a version before spectators, which is version 9. It is `update` without spectators in a snapshot. */
  const BEFORE = Buffer.from(
    `CSt0pbUAAAIhm8tCeh+SZQOwAM4AARFxzv7cupiFpGRlZXCRkZGRkZGRkZGRkZGRkZGRkZGRkZGRkZGRkZGRkZGRkZGRkZGRkZGRkZ
     GRkZGRkZGRkZGRkZGRkZGRkZGRkZECpGxpc3SVgaFhA6V0aHJlZcDUD/HLfjfkPIgAdZyncGxheWVyc4KkYW5uYYGiaHDNASyqYsOp
     cnQg8J+OsoKiaHDS//7ukKNiYWeSy0J6H5JlA7AA2Sh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4q2Nvbn
     N0cnVjdG9ygaZ0b0pTT04BoNQAAZGcpW1lbV9hpGFubmHCgaVsZXZlbAOlc2VzXzHAAa9ub2RlLTF+ZjNLeDlhX1Gycm9vbWZ1bC52
     MS5tc2dwYWNrzgABEXCSkwmpcm9vbV9mdWxspGZ1bGySCoGiaHCSAaN0d28EkstCeh+SZPwAAM4AARFwkxMUkZKlbWVtX2GRqHRlYW
     06cmVkA5WRlKR0dXJuy0J6H5Jp5bAAqHR1cm5FbmRzgaR0dXJuA5GUp3Rza18xXzKocXVlc3Rpb27AwJKRp21hbGxvcnmRo2V2ZZGS
     o2FkYctCeh+SbE8AAJKUp2tleV8xL2GhaMtCeh+SbsAAAJOBpXRvdGFsBwMJlKdrZXlfMS9ioWnLQnofknExAACSqXJvb21fZnVsbK
     Jub8tCebLc18AAAKZLN1FYMk0AAAQWCWZB5Hify0J6H5JlA7AAzgABEXHDzv7cupidA6RkZWVwkwSSAJMEkgCTBJIAkwSSAJMEkgCT
     BJIAkwSSAJMEkgCTBJIAkwSSAJMEkgCTBJIAkwSSAJMEkgCTBJIAkwSSAJMEkgCTBJIAkwSSAJMEkgCTBJIAkwSSAJMEkgCTBJIAkw
     SSAJMEkgCTBJIAkwSSAJMEkgCTBJIAkwSSAJMEkgCTBJIAkwSSAJMEkgCTBJIAkwSSAJMEkgCTBJIAkwSSAJMEkgCTBJIAkwSSAJME
     kgCTBJIAkwSSAJMEkgCTBJIAkwSSAJMEkgCTBJIAkwSSAJMEkgCTBJIAkwSSAJMEkgCTBJIAkwSSAJMEkgCTBJIAkwSSAJMEkgCTBJ
     IAkgECkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQpGxpc3STBJYA
     kgGBoWEDAZIBpXRocmVlApIBwJMDAJLUD/HLfjfkPIgAdZyncGxheWVyc5UDpGFubmGTA6JocJIBzQEsqmLDqXJ0IPCfjrKSAoKiaH
     DS//7ukKNiYWeSy0J6H5JlA7AA2Sh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4q2NvbnN0cnVjdG9ykgKB
     pnRvSlNPTgGgkgLUAAGkZ29uZQCSk6NoaXSBomJ5pW1lbV9hwJOkdG9sZMCRpW1lbV9hkZylbWVtX2GkYW5uYcKBpWxldmVsA6VzZX
     NfMcABr25vZGUtMX5mM0t4OWFfUbJyb29tZnVsLnYxLm1zZ3BhY2vOAAERcJKTCalyb29tX2Z1bGykZnVsbJIKgaJocJIBo3R3bwSR
     nKVtZW1fYaRhbm5hwoGlbGV2ZWwDpXNlc18xpW1lbV9jAa9ub2RlLTF+ZjNLeDlhX1Gycm9vbWZ1bC52MS5tc2dwYWNrzgABEXCSkw
     mpcm9vbV9mdWxspGZ1bGySCoGiaHCSAaN0d28EkZWlbWVtX2LAw8Cma2lja2VkkZOlbWVtX2HCpGFubmGRkqVtZW1fYYGlbGV2ZWwD
     kZOlbWVtX2HOAAERcASSlKVtZW1fYQmpcm9vbV9mdWxspGZ1bGyTpW1lbV9hCoGiaHCSAaN0d2+VEc7wAAABkpSsbWVtYmVyOm1lbV
     9hkqVoYW5kc6VtZW1fYZICkQcAlMCRpGRlY2sAAJGTrG1lbWJlcjptZW1fYRLDkZOlbWVtX2Glc3RhZmbClZKRlKR0dXJuy0J6H5Jp
     5bAAqHR1cm5FbmRzgaR0dXJuA5GldG1yXzGSkZSndHNrXzFfMqhxdWVzdGlvbsDAkad0c2tfMV8xkpGRp21hbGxvcnmRomJvwMA=`,
    'base64',
  )

  /** `update` in a snapshot, as version 10 has it in stores since the first release that wrote it. */
  const STORED = Buffer.from(
    `Cu4CCoAAAAJSnMtCeh+SZQOwAM4AARFxzv7cupiFpGRlZXCRkZGRkZGRkZGRkZGRkZGRkZGRkZGRkZGRkZGRkZGRkZGRkZGRkZGRkZGRkZ
     GRkZGRkZGRkZGRkZGRkZGRkZECpGxpc3SVgaFhA6V0aHJlZcDUD/HLfjfkPIgAdZyncGxheWVyc4KkYW5uYYGiaHDNASyqYsOpcnQg8J+O
     soKiaHDS//7ukKNiYWeSy0J6H5JlA7AA2Sh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4q2NvbnN0cnVjdG9yga
     Z0b0pTT04BoNQAAZGfpW1lbV9hpGFubmHCgaVsZXZlbAPDpXNlc18xwAGvbm9kZS0xfmYzS3g5YV9RsnJvb21mdWwudjEubXNncGFja84A
     ARFwkpMJqXJvb21fZnVsbKRmdWxskgqBomhwkgGjdHdvBM4AAQ2IgaZjb2xvdXKjcmVkkstCeh+SZPwAAM4AARFwkxORkqxtZW1iZXI6bW
     VtX2GBpWhhbmRzgaVtZW1fYZEHkZKlbWVtX2GRqHRlYW06cmVkA5WRlKR0dXJuy0J6H5Jp5bAAqHR1cm5FbmRzgaR0dXJuA5GUp3Rza18x
     XzKocXVlc3Rpb27AwJKRp21hbGxvcnmRo2V2ZZGSo2FkYctCeh+SbE8AAJKUp2tleV8xL2GhaMtCeh+SbsAAAJOBpXRvdGFsBwMJlKdrZX
     lfMS9ioWnLQnofknExAACSqXJvb21fZnVsbKJub8tCebLc18AAAKZLN1FYMk3DAAAENQr0GuV03AAQy0J6H5JlA7AAzgABEXHDzv7cupid
     A6RkZWVwkwSSAJMEkgCTBJIAkwSSAJMEkgCTBJIAkwSSAJMEkgCTBJIAkwSSAJMEkgCTBJIAkwSSAJMEkgCTBJIAkwSSAJMEkgCTBJIAkw
     SSAJMEkgCTBJIAkwSSAJMEkgCTBJIAkwSSAJMEkgCTBJIAkwSSAJMEkgCTBJIAkwSSAJMEkgCTBJIAkwSSAJMEkgCTBJIAkwSSAJMEkgCT
     BJIAkwSSAJMEkgCTBJIAkwSSAJMEkgCTBJIAkwSSAJMEkgCTBJIAkwSSAJMEkgCTBJIAkwSSAJMEkgCTBJIAkwSSAJMEkgCTBJIAkwSSAJ
     MEkgCTBJIAkwSSAJMEkgCTBJIAkgECkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQkJCQ
     kJCQkJCQpGxpc3STBJYAkgGBoWEDAZIBpXRocmVlApIBwJMDAJLUD/HLfjfkPIgAdZyncGxheWVyc5UDpGFubmGTA6JocJIBzQEsqmLDqX
     J0IPCfjrKSAoKiaHDS//7ukKNiYWeSy0J6H5JlA7AA2Sh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4q2NvbnN0
     cnVjdG9ykgKBpnRvSlNPTgGgkgLUAAGkZ29uZQCSk6NoaXSBomJ5pW1lbV9hwJOkdG9sZMCRpW1lbV9hkZ+lbWVtX2GkYW5uYcKBpWxldm
     VsA8Olc2VzXzHAAa9ub2RlLTF+ZjNLeDlhX1Gycm9vbWZ1bC52MS5tc2dwYWNrzgABEXCSkwmpcm9vbV9mdWxspGZ1bGySCoGiaHCSAaN0
     d28EzgABDYiBpmNvbG91cqNyZWSRn6VtZW1fYaRhbm5hwoGlbGV2ZWwDw6VzZXNfMaVtZW1fYwGvbm9kZS0xfmYzS3g5YV9RsnJvb21mdW
     wudjEubXNncGFja84AARFwkpMJqXJvb21fZnVsbKRmdWxskgqBomhwkgGjdHdvBM4AAQ2IgaZjb2xvdXKjcmVkkZalbWVtX2LAw8DCpmtp
     Y2tlZJGUpW1lbV9hwqRhbm5hw5GTpW1lbV9hpGFubmHDkZKlbWVtX2GBpWxldmVsA5GTpW1lbV9hzgABEXAEkpSlbWVtX2EJqXJvb21fZn
     VsbKRmdWxsk6VtZW1fYQqBomhwkgGjdHdvlBGRk6xtZW1iZXI6bWVtX2GSAoGlaGFuZHOBpW1lbV9hkQcSkwOkZGVjawCRk6VtZW1fYaVz
     dGFmZsKVkpGUpHR1cm7LQnofkmnlsACodHVybkVuZHOBpHR1cm4DkaV0bXJfMZKRlKd0c2tfMV8yqHF1ZXN0aW9uwMCRp3Rza18xXzGSkZ
     GnbWFsbG9yeZGiYm/AwA==`,
    'base64',
  )

  const snapshot: Omit<RoomSnapshot, 'updates'> = {
    ...at,
    state: after,
    memberships: [membership],
    base,
    tables: {
      timers: [timer],
      tasks: [task],
      bans: [{ id: 'mallory' }, { id: 'eve' }],
      reservations: [{ id: 'ada', due: 1_795_181_430_000 }],
      outcomes: [
        {
          id: 'key_1/a',
          hash: 'h',
          due: 1_795_181_440_000,
          answer: { reply: { total: 7 }, epoch: 3, seq: 9 },
        },
        { id: 'key_1/b', hash: 'i', due: 1_795_181_450_000, answer: { code: 'room_full', message: 'no' } },
      ],
    },
    layers: { checksum: 19, states: [{ layer: 'member:mem_a', state: { hands: { mem_a: [7] } } }], grants },
    stateVersion: 3,
    createdAt: 1_766_000_000_000,
    code: 'K7QX2M',
    showsSpectators: true,
    awaited: undefined,
  }

  /** Expects a record, and the update in it. */
  function expectRecord(bytes: Uint8Array, right: Omit<RoomSnapshot, 'updates'>, rightUpdate: Update) {
    const { updates, ...read } = new JournalFormat().readSnapshot(bytes)
    expect(read).toEqual(right)
    const { delta, ...rest } = new JournalFormat().readEntry(updates[0]!)
    expect({ ...rest, delta: update.delta }).toEqual(rightUpdate)
    expect(apply(before, delta!)).toEqual(after)
  }

  // A release reads the records of the release before.
  it('is read and written in version 10 to the byte', () => {
    const format = new JournalFormat()
    expectRecord(STORED, snapshot, update)
    const written = format.snapshot({ ...snapshot, updates: [format.entry(update)] })
    expect(Buffer.from(written).equals(STORED)).toBe(true)
  })

  it('of version 9 is read: all members are players, it is not known when they joined, and hidden values have their paths', () => {
    const player = { ...membership, member: { ...membership.member, spectator: false } }
    const { joinedSeq: _, options: __, ...earlier } = player
    expectRecord(
      BEFORE,
      {
        ...snapshot,
        memberships: [earlier],
        showsSpectators: false,
        layers: { checksum: 19, sum: 20, states: undefined, grants } as never,
      },
      {
        ...update,
        layers: {
          checksum: 17,
          sum: 0xf0000001,
          values: [
            { layer: 'member:mem_a', path: ['hands', 'mem_a'], change: new Replace([7], true), at: 0 },
            { layer: null, path: ['deck'], change: REMOVE, at: 0 },
          ],
          changed: [{ layer: 'member:mem_a', checksum: 18, created: true }],
          unseen: undefined,
          grants: update.layers!.grants,
        } as never,
        joined: [earlier],
        replaced: [{ ...earlier, subscriptionId: 'mem_c' }],
        presence: [{ memberId: 'mem_a', connected: false, sub: 'anna', spectator: false }],
        roles: [],
      },
    )
    // The next owner keeps it in the present version.
    const [entry] = new JournalFormat().readSnapshot(BEFORE).updates
    const renewed = new JournalFormat().renewed(new JournalFormat().readEntry(entry!), entry!)
    const { joined, replaced } = new JournalFormat().readEntry(renewed)
    expect([...joined, ...replaced].map(({ joinedSeq }) => joinedSeq)).toEqual([update.seq, update.seq])
  })

  /**
   * The record of a room with layers, as version 9 has written it: a snapshot, and updates that create, change, remove and replace hidden
   * values and the objects around them.
   */
  const WITH_LAYERS = {
    snapshot: `CVxFwSIAAACgm8tCebdtqoAAAAHO0tuVnYSkdHVybgCkZGVja5MBAgOlaGFuZHOBo2FubpCldGVhbXOBo3JlZIKkc2l6ZQGkcGxh
     bqFhkZyjYW5uwMPAqnNlc19vZl9hbm7AAaZub2RlX2Gycm9vbWZ1bC52MS5tc2dwYWNrAJAAkstCebdtqoAAAACTztSTqdjOoJSe
     XZABlZCQkJCQy0J5t22qgAAAwAAAAI0JPd04hp/LQnm3baqAAAABw87Uk6nYwJCRnKNhbm7Aw8Cqc2VzX29mX2FubsABpm5vZGVf
     YbJyb29tZnVsLnYxLm1zZ3BhY2sAkACQkJCQkJCVztLblZ3OoJSeXZGUqm1lbWJlcjphbm6SpWhhbmRzo2FubpICkACRk6ptZW1i
     ZXI6YW5uzmIDYGPDkMA=`,
    journal: [
      `CRUb/cefy0J5t22qgAAAAsPO1JOp2MCQkZyjYm9iwMPAqnNlc19vZl9ib2LAAqZub2RlX2Gycm9vbWZ1bC52MS5tc2dwYWNrAJAA
     kJCQkJCQlc7X7rfXzotQBu6RlKptZW1iZXI6Ym9ikqVoYW5kc6Nib2KSApAAkZOqbWVtYmVyOmJvYs4SdJ7vw5DA`,
      `Caf+w0ify0J5t22qgAAAA8PO1HhD95MDpHR1cm6SAQGQkJCQkJCQkJXOqxWh984w95GNkpTAkaRkZWNrkwSQkwIBkACUqm1lbWJl
     cjphbm6SpWhhbmRzo2FubpMEkJMAAJEDAZGTqm1lbWJlcjphbm7OmeVkO8KQwA==`,
      `CS+ct6efy0J5t22qgAAABMPO9lXai5UDpHR1cm6SAQKldGVhbXOVA6NyZWQApGJsdWWSAoGkc2l6ZQKQkJCQkJCQkJXOi0leWM56
     3X+ekpSodGVhbTpyZWSTpXRlYW1zo3JlZKRwbGFuAACUqXRlYW06Ymx1ZZOldGVhbXOkYmx1ZaRwbGFukgKBoXgBAJKTqHRlYW06
     cmVkzoDXVLzCk6l0ZWFtOmJsdWXOWDiuScOQwA==`,
      `CUJMWiufy0J5t22qgAAABcPOper5w5MDpHR1cm6SAQOQkJCQkJCQkJXOqr9MI85aHPT6kpSqbWVtYmVyOmFubpKlaGFuZHOjYW5u
     AACUqm1lbWJlcjpjaWSSpWhhbmRzo2NpZJICgaNhY2XDAJKTqm1lbWJlcjphbm7OgNdUvMKTqm1lbWJlcjpjaWTOK9u1+8ORk6Ni
     b2KpdGVhbTpibHVlw8A=`,
      `Cb9rLN6fy0J5t22qgAAABsPO1Wlql5UDpHR1cm6SAQSldGVhbXOTA6NyZWSSAoGkc2l6ZQOQkJCQkJCQkJXOez4Kic5R2VbOkpSp
     dGVhbTpibHVlk6V0ZWFtc6RibHVlpHBsYW4AAJSodGVhbTpyZWSTpXRlYW1zo3JlZKRwbGFukgKRpWFnYWluAJKTqXRlYW06Ymx1
     Zc6A11S8wpOodGVhbTpyZWTOdgXFNcOQwA==`,
      `CW9aSW6fy0J5t22qgAAAB8POOTRFN5MDpHR1cm6SAQWQkJCQkJCQkJXOSfXxds7sBLyQkpSqbWVtYmVyOmNpZJKlaGFuZHOjY2lk
     kwOjYWNlkgHCAZTAkaRkZWNrkwSQkwACkACRk6ptZW1iZXI6Y2lkziBJIizCkMA=`,
    ],
  }

  it('of version 9 with layers restores hidden values and shown layers, without past updates', () => {
    const bytes = (text: string) => Buffer.from(text, 'base64')
    const { snapshot, journal } = WITH_LAYERS
    const record = { snapshot: bytes(snapshot), journal: journal.map(bytes), fence: { epoch: 9 } }
    const { base, epoch, grants, seq, state, updates } = restore(record, new JournalFormat())!
    expect(state(Number.POSITIVE_INFINITY, undefined).base).toEqual({
      turn: 5,
      deck: [],
      hands: { bob: [], cid: { ace: false } },
      teams: { blue: { size: 2 }, red: { size: 3, plan: ['again'] } },
    })
    expect(grants.record()).toEqual([{ memberId: 'bob', layers: ['team:blue'] }])
    expect([seq, base, updates]).toEqual([7, { epoch, seq: 7 }, []])
  })
})
