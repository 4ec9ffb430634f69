import { pino } from 'pino'
import * as v from 'valibot'
import { describe, expect, it, vi } from 'vitest'
import { type RoomBench, roomWith } from '../../../test/support/rooms/room-bench.ts'
import { defineRoom } from '../../room/definition.ts'
import type { SavedAs } from '../../room/definition-types.ts'
import { RoomSaves } from './saves.ts'

interface State {
  readonly notes: string[]
}

/** A database that keeps the newest save, and answers by its mood. */
class Database {
  mood: 'fine' | 'fails' | 'hangs' = 'fine'
  readonly rows = new Map<string, { readonly state: State } & SavedAs>()
  /** Times of its calls in seconds, whatever their outcome. */
  readonly asked: number[] = []
  readonly refused: SavedAs[] = []
  readonly hung: (() => void)[] = []

  async put(state: State, as: SavedAs, seconds: number): Promise<void> {
    this.asked.push(seconds)
    const { mood } = this
    if (mood === 'hangs') await new Promise<void>((go) => this.hung.push(go))
    if (mood === 'fails') throw new Error('the disk is full')
    const row = this.rows.get(as.key)
    if (row && (row.epoch > as.epoch || (row.epoch === as.epoch && row.seq > as.seq))) this.refused.push(as)
    else this.rows.set(as.key, { ...as, state })
  }

  get notes(): readonly string[] | undefined {
    return this.rows.get('a')?.state.notes
  }
}

/** A board that is saved every 10 s, and ann in it. */
async function saved(settings: { onIdle?: 'sleep'; durability?: 'none' | 'snapshot' } = {}) {
  const database = new Database()
  let bench: RoomBench | undefined
  const board = defineRoom({
    type: 'board',
    sync: { rate: 0 },
    idleSeconds: 5,
    ...settings,
    messages: { add: { data: v.string() }, end: { data: v.null() } },
    create: (): { notes: string[] } => ({ notes: [] }),
    save: {
      everySeconds: 10,
      to: (state, as) => {
        expect(Object.isFrozen(state) && Object.isFrozen(state.notes)).toBe(true)
        return database.put(state as State, as, bench!.clock.monotonic() / 1000)
      },
    },
    onMessage(state, input, ctx) {
      if (input.type === 'end') ctx.close()
      else state.notes.push(input.data)
    },
    onDispose(state) {
      state.notes.push('the end')
    },
  })
  const lines: string[] = []
  const log = pino({ level: 'warn' }, { write: (line: string) => lines.push(line) })
  const made = await roomWith(board, ['ann'], { log })
  bench = made.bench
  let ref = 0
  const say = (type: 'add' | 'end', data: string | null) => made.bench.say('board', 'ann', type, data, ++ref)
  const add = (note: string) => say('add', note)
  const leave = async () => {
    made.bench.leave('board', 'ann')
    await made.bench.untilIdle()
  }
  return { ...made, database, lines, add, leave, end: () => say('end', null) }
}

const HOUR_MS = 3_600_000

describe('save', () => {
  it('has last: true for the state that the room ends with, and for no state before', async () => {
    const { bench, database, add, end } = await saved()
    await add('one')
    await bench.advance(10_000, 1000)
    expect(database.rows.get('a')).toMatchObject({ last: false, state: { notes: ['one'] } })
    await end()
    await bench.untilIdle()
    expect(database.rows.get('a')).toMatchObject({ last: true, state: { notes: ['one', 'the end'] } })
  })

  it('writes a changing room at most once in everySeconds, and an unchanged room never', async () => {
    const { bench, database, add } = await saved()
    await bench.advance(60_000, 1000)
    expect(database.asked).toEqual([])
    const began = bench.clock.monotonic() / 1000
    for (let second = 0; second < 25; second++) {
      await add(`${second}`)
      await bench.advance(1000, 500)
    }
    await bench.advance(60_000, 1000)
    expect(database.asked.map((at) => at - began)).toEqual([10, 20, 30])
    expect(database.notes).toHaveLength(25)
    const { epoch, seq } = bench.describe('board')!
    expect(database.rows.get('a')).toMatchObject({ key: 'a', projectId: 'prj_test', epoch, seq })
  })

  it('is repeated after a change at any moment of its end', async () => {
    const changed = vi.spyOn(RoomSaves.prototype, 'changed')
    for (let steps = 0; steps < 20; steps++) {
      const { bench, database, add } = await saved()
      database.mood = 'hangs'
      await add('one')
      await bench.advance(10_000, 1000)
      database.mood = 'fine'
      database.hung.shift()!()
      for (let step = 0; step < steps; step++) await null
      const saves = changed.mock.contexts.at(-1) as RoomSaves
      saves.changed()
      await bench.advance(10_000, 1000)
      expect([steps, database.asked.length]).toEqual([steps, 2])
    }
  })

  it('writes only committed states', async () => {
    const { bench, database, add } = await saved()
    await add('one')
    bench.store.mood = 'slow'
    await add('two')
    await bench.advance(10_000, 500)
    expect(database.asked).toEqual([])
    bench.store.mood = 'fine'
    bench.store.let()
    await bench.untilIdle()
    expect(database.notes).toEqual(['one', 'two'])
  })

  it('that fails for an hour loses nothing: the room continues and is kept, and the database gets the whole state in the end', async () => {
    const { bench, database, add } = await saved()
    database.mood = 'fails'
    await add('one')
    await bench.advance(HOUR_MS, 10_000)
    await add('two')
    expect(database.asked.length).toBeLessThan(120)
    expect(database.asked.length).toBeGreaterThan(50)
    expect(bench.counts['save failed']).toBe(database.asked.length)
    // Its node dies, and no client joins for a day.
    bench.store.mood = 'deaf'
    bench.clock.advance(24 * HOUR_MS)
    const heir = bench.successor()
    database.mood = 'fine'
    const bob = await heir.join('board', 'bob')
    expect(bob.state).toEqual({ notes: ['one', 'two'] })
    await heir.advance(10_000, 500)
    expect(database.notes).toEqual(['one', 'two'])
    // From now on, the store need not keep it.
    heir.store.mood = 'deaf'
    heir.clock.advance(24 * HOUR_MS)
    expect((await bench.successor([], { nodeId: 'node_c' }).join('board', 'cat')).state).toEqual({
      notes: [],
    })
  })

  it('that fails keeps the room in the store, however long it has no owner', async () => {
    const { bench, database, add } = await saved({ onIdle: 'sleep' })
    database.mood = 'fails'
    await add('one')
    bench.clock.advance(100 * 24 * HOUR_MS)
    const heir = bench.successor()
    expect((await heir.join('board', 'bob')).state).toEqual({ notes: ['one'] })
  })

  it('that hangs delays neither the room nor the next save, is logged, and cannot overwrite the next save', async () => {
    const { bench, ann, database, add, lines } = await saved()
    database.mood = 'hangs'
    await add('one')
    await bench.advance(20_000, 500)
    await add('two')
    expect([ann.state, database.asked.length]).toEqual([{ notes: ['one', 'two'] }, 1])
    database.mood = 'fine'
    await bench.advance(60_000, 500)
    expect([database.notes, bench.counts['save timed_out']]).toEqual([['one', 'two'], 1])
    expect(lines.map((line) => JSON.parse(line))).toMatchObject([
      {
        failed: 'save of board',
        room: expect.stringMatching(/^prj_test\/board:/),
        err: { message: 'save.to did not end within 30 seconds' },
      },
    ])
    database.hung[0]!()
    await bench.untilIdle()
    expect([database.notes, database.refused.length]).toEqual([['one', 'two'], 1])
  })

  it.each(['dispose', 'sleep'] as const)(
    'comes before an empty room ends (%s), which can be joined until then',
    async (onIdle) => {
      const { bench, database, add, leave } = await saved(onIdle === 'sleep' ? { onIdle } : {})
      database.mood = 'fails'
      await add('one')
      await leave()
      await bench.advance(HOUR_MS, 10_000)
      expect(bench.host.rooms.size).toBe(1)
      const bob = await bench.join('board', 'bob')
      expect(bob.state).toEqual({ notes: ['one'] })
      bench.leave('board', 'bob')
      database.mood = 'fine'
      await bench.advance(6000, 500)
      expect([bench.host.rooms.size, database.notes]).toEqual([
        0,
        onIdle === 'sleep' ? ['one'] : ['one', 'the end'],
      ])
    },
  )

  it('comes before the deletion of a room that closes itself, which cannot be joined until then', async () => {
    const { bench, ann, database, add, end } = await saved()
    database.mood = 'fails'
    await add('one')
    await end()
    await bench.advance(HOUR_MS, 10_000)
    expect([ann.inRoom, bench.host.rooms.size]).toEqual([false, 1])
    const bob = await bench.join('board', 'bob')
    expect(bob.errors).toMatchObject([
      { code: 'room_unavailable', message: expect.stringContaining('has ended') },
    ])
    database.mood = 'fine'
    await bench.advance(60_000, 1000)
    expect([bench.host.rooms.size, database.notes]).toEqual([0, ['one', 'the end']])
    expect((await bench.join('board', 'bob')).state).toEqual({ notes: [] })
  })

  it('is repeated by the next owner, so that the database can reject a late save of the earlier owner', async () => {
    const { bench, ann, database, add } = await saved()
    database.mood = 'hangs'
    await add('one')
    await bench.advance(10_000, 500)
    database.mood = 'fine'
    await add('two')
    await bench.host.rooms.running[0]!.handOver('node_b')
    expect(database.asked).toHaveLength(1)
    const heir = bench.successor([ann])
    await heir.resume('board', ann)
    await heir.advance(10_000, 500)
    expect(database.notes).toEqual(['one', 'two'])
    database.hung[0]!()
    await bench.untilIdle()
    expect([database.notes, database.refused.length]).toEqual([['one', 'two'], 1])
  })

  it.each(['fine', 'fails', 'hangs'] as const)(
    'is tried once when the process ends and no other node takes the room (the database: %s)',
    async (mood) => {
      const { bench, database, add } = await saved()
      await add('one')
      database.mood = mood
      const closed = bench.host.close(5000)
      await bench.advance(6000, 500)
      await closed
      expect([database.asked.length, database.notes]).toEqual([1, mood === 'fine' ? ['one'] : undefined])
      bench.clock.advance(24 * HOUR_MS)
      expect((await bench.successor().join('board', 'bob')).state).toEqual({
        notes: mood === 'fine' ? [] : ['one'],
      })
    },
  )

  it('that is running when the room type loses the option does not keep the empty room awake', async () => {
    const { bench, database, add, leave } = await saved()
    database.mood = 'hangs'
    await add('one')
    await bench.advance(10_000, 1000)
    await add('two')
    bench.host.replaceRoom({ ...bench.host.types.get('board')!, save: undefined })
    database.hung.shift()!()
    await leave()
    await bench.advance(6000, 1000)
    expect(bench.host.rooms.size).toBe(0)
  })

  it('that is running when the room type loses the option and gets it again does not count as a save of later changes', async () => {
    const { bench, database, add, leave } = await saved({ onIdle: 'sleep' })
    const board = bench.host.types.get('board')!
    database.mood = 'hangs'
    await add('one')
    await bench.advance(10_000, 1000)
    bench.host.replaceRoom({ ...board, save: undefined })
    bench.host.replaceRoom(board)
    await add('two')
    database.mood = 'fine'
    database.hung.shift()!()
    await bench.untilIdle()
    await leave()
    await bench.advance(6000, 1000)
    expect(database.notes).toEqual(['one', 'two'])
  })

  it('writes a state that the store does not keep', async () => {
    const { bench, database, add, leave } = await saved({ durability: 'none' })
    await add('one')
    await bench.advance(10_000, 500)
    expect(database.notes).toEqual(['one'])
    await leave()
    await bench.advance(6000, 500)
    expect(database.notes).toEqual(['one', 'the end'])
  })
})
