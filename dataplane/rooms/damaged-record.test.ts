import { crc32 } from 'node:zlib'
import { pino } from 'pino'
import * as v from 'valibot'
import { beforeAll, describe, expect, it } from 'vitest'
import type { Json } from '../../shared/json.ts'
import { memoryStore } from '../../shared/store/memory/memory.ts'
import type { Store } from '../../shared/store/port.ts'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { counting } from '../../test/support/rooms/counter-room.ts'
import { RoomBench, TestMember } from '../../test/support/rooms/room-bench.ts'
import { defineRoom } from './definition.ts'
import { JournalFormat } from './journal.ts'
import { restore } from './restore.ts'

const ROOM = 'prj_test/board:a'
const LONG_MS = 600_000
const format = new JournalFormat()

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

/** What the store holds of a room. */
interface Record {
  readonly snapshot: Uint8Array
  readonly journal: readonly Uint8Array[]
}

/** The room whose record is damaged below: its record, and where a member stands who has seen little of it. */
let sound: Record
let stands: Pick<TestMember, 'epoch' | 'seq' | 'state' | 'checksum'>

// A snapshot with a history in it, and a journal behind it, with all that an entry can have: deltas of every kind, events for everyone and
// for one, joins, leaves, acks and refusals.
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
    bench.send('board', `cid${round}`, { kind: 'leave', reason: 'left', request_id: 1 })
    await bench.settle()
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

/** What comes of a room with this record: `ann` comes back to it, `dan` joins it, and another room runs beside it. */
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

/** Every part of the record with one byte of it changed, and what the record is then. */
function* damages(step = 1): IterableIterator<[where: string, damaged: Record]> {
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

// A rejection that is not handled would end the test run, as it ended the process.
describe('a damaged record', () => {
  it('harms its room only, whichever byte it is: those who wait are refused, and the next join makes the room again', async () => {
    const { outcome, quarantined } = await opened(sound)
    expect([outcome.dan.in_room, outcome.ann.faults, quarantined]).toEqual([true, [], 0])
    for (const [where, damaged] of damages(4)) {
      const { bench, dan, quarantined } = await opened(damaged)
      expect(quarantined, where).toBe(1)
      expect(dan.errors, where).toMatchObject([{ code: 'room_unavailable' }, { code: 'no_seat' }])
      const fay = await bench.join('board', 'fay')
      expect([fay.state, fay.members.length], where).toEqual([{ cells: [], last: null }, 1])
    }
  })

  // The CRC finds what happens to bytes. This is what a mistake in the code that wrote them would be.
  it('whose CRC is right is read to the last field before there is a room: it works, or is put aside', async () => {
    const { snapshot } = sound
    const { updates } = format.readSnapshot(snapshot)
    let aside = 0
    const open = async (record: Record) => {
      aside += (await opened(record)).quarantined
    }
    for (const [, { snapshot, journal }] of damages(5))
      await open({ snapshot: sealed(snapshot, 3), journal: journal.map((entry) => sealed(entry, 3)) })
    for (const [n, entry] of updates.entries())
      for (let at = 5; at < entry.length; at += 3) {
        const bytes = entry.slice()
        bytes[at]! ^= 1 << (at % 8)
        const changed = updates.map((update, i) => (i === n ? sealed(bytes) : update))
        await open({
          ...sound,
          snapshot: format.snapshot({ ...format.readSnapshot(snapshot), updates: changed }),
        })
      }
    expect(aside).toBeGreaterThan(100)
  })

  it('is put aside with what is wrong with it', async () => {
    const { snapshot, journal } = sound
    const whole = format.readSnapshot(snapshot)
    const fence = { epoch: 9, version: 0 }
    const broken = (damaged: Partial<Record>) => () =>
      restore({ fence, snapshot, journal, ...damaged }, format)
    expect(broken({ snapshot: format.snapshot({ ...whole, checksum: 1 }), journal: [] })).toThrow(
      /checksum .*, but 1 was committed/,
    )
    expect(broken({ snapshot: snapshot.slice(0, 20) })).toThrow(/20 bytes is damaged: its CRC/)
    expect(broken({ snapshot: Uint8Array.of(3) })).toThrow(/has 1 bytes; the shortest has 5/)
    expect(broken({ snapshot: sealed(snapshot, 3) })).toThrow(/version 3; this node reads version 9/)
    expect(broken({ journal: journal.slice(1) })).toThrow(/a journal entry has seq \d+ behind seq \d+/)
    const holed = format.snapshot({ ...whole, updates: whole.updates.slice(1) })
    expect(broken({ snapshot: holed })).toThrow(/the history of a snapshot has seq/)
    const short = format.snapshot({ ...whole, updates: whole.updates.slice(0, -1) })
    expect(broken({ snapshot: short })).toThrow(/the history of a snapshot ends at seq/)
  })

  it('that cannot be put aside, since the store does not answer, stays where it is, and its room is refused', async () => {
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
    ['its snapshot', () => withPart(0, sealed(sound.snapshot, 10))],
    ['a journal entry', () => withPart(2, sealed(sound.journal[1]!, 10))],
    [
      'an entry of its history',
      () => {
        const whole = format.readSnapshot(sound.snapshot)
        const updates = whole.updates.map((entry, i) => (i === 1 ? sealed(entry, 10) : entry))
        return withPart(0, format.snapshot({ ...whole, updates }))
      },
    ],
  ])('in %s is refused and left for a newer node, and told of once', async (_, newer) => {
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
    expect(told).toMatchObject([{ room: ROOM, err: { message: expect.stringContaining('version 10') } }])
    const { epoch, owner } = (await store.rooms.inspect(ROOM))!
    expect(owner).toBeNull()
    expect(await store.rooms.claim(ROOM, 'node_c', epoch, LONG_MS)).toMatchObject(record)
  })
})
