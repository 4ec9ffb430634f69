import { mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pino } from 'pino'
import * as v from 'valibot'
import { describe, expect, it, onTestFinished } from 'vitest'
import { codeOf, ROOT } from '../../test/support/pages.ts'
import { type BenchOptions, RoomBench, roomWith } from '../../test/support/rooms/room-bench.ts'
import { Inbox } from '../inbox.ts'
import { defineRoom, type RoomDefinition } from './definition.ts'
import { JournalFormat } from './journal.ts'
import type { RoomLimits } from './limits.ts'
import { LiveState } from './state.ts'
import { Tables } from './table.ts'

describe('the state of a room', () => {
  let kept: { x: number } | undefined
  const mine = { x: 7 }
  const keeper = defineRoom({
    type: 'keeper',
    messages: { keep: { data: v.boolean() }, wait: { data: v.null() }, own: { data: v.null() } },
    sync: { rate: 0 },
    durability: 'none',
    create: () => ({ at: { x: 1 }, put: [] as { x: number }[], heard: '' }),
    tasks: {
      read: {
        result: v.number(),
        handle(state, outcome) {
          state.heard = outcome.ok ? 'read' : outcome.error
        },
      },
    },
    onMessage(state, input, ctx) {
      if (input.type === 'own') state.put.push(mine)
      else if (input.type === 'wait') ctx.task(async () => state.at.x, 'read')
      else {
        kept = state.at
        kept.x++
        if (input.data) throw new Error('no')
      }
    },
  })

  // If the view stayed usable, the state would change outside of turns: no patch would contain the change, and no checksum would fit.
  it.each(['throws', 'succeeds'])('cannot be used after a turn that %s', async (ends) => {
    const { bench, ann } = await roomWith(keeper, ['ann'])
    await bench.say('keeper', 'ann', 'keep', ends === 'throws')
    const before = ann.state
    expect(before).toMatchObject({ at: { x: ends === 'throws' ? 1 : 2 } })
    for (const use of [
      () => kept!.x,
      () => {
        kept!.x = 9
      },
      () => JSON.stringify(kept),
      () => 'x' in kept!,
      () => Object.keys(kept!),
      () => delete (kept as Partial<typeof kept>)!.x,
    ])
      expect(use).toThrow(/state_outside_turn: .*read from it what is needed later/)
    const bob = await bench.join('keeper', 'bob')
    expect([bob.state, bob.faults]).toEqual([before, []])
  })

  it('cannot be used by tasks, which get an error', async () => {
    const { bench, ann } = await roomWith(keeper, ['ann'])
    await bench.say('keeper', 'ann', 'wait', null)
    await bench.untilIdle()
    expect(ann.state).toMatchObject({ heard: expect.stringMatching(/^state_outside_turn/) })
  })

  it('does not change with a value that was put into it', async () => {
    const { bench, ann } = await roomWith(keeper, ['ann'])
    await bench.say('keeper', 'ann', 'own', null)
    mine.x = 8
    await bench.say('keeper', 'ann', 'keep', false)
    expect(ann.state).toMatchObject({ at: { x: 2 }, put: [{ x: 7 }] })
    expect(ann.faults).toEqual([])
  })
})

describe('first state', () => {
  type State = { notes: string[] }

  /** A board whose states are in a database. The test answers each call: with a state, with nothing, or with an error. */
  function database() {
    const calls: {
      readonly asked: unknown[]
      readonly answer: (state: unknown) => void
      readonly fail: () => void
    }[] = []
    const board: RoomDefinition = defineRoom({
      type: 'board',
      create: (): State => ({ notes: ['new'] }),
      load: (...asked) =>
        new Promise<State | undefined>((resolve, reject) => {
          calls.push({
            asked,
            answer: (state) => resolve(state as State),
            fail: () => reject(new Error('the secret of the database')),
          })
        }),
    })
    return { board, calls }
  }

  const REFUSED = { code: 'room_unavailable' }

  describe('load', () => {
    it('returns the first state of a room for all waiting joins, and without one the room is created', async () => {
      const { board, calls } = database()
      const bench = new RoomBench([board])
      const ann = await bench.join('board', 'ann', { options: { size: 3 } })
      const bob = await bench.join('board', 'bob')
      const cat = await bench.join('board', 'cat', { key: 'other' })
      expect(calls.map(({ asked }) => asked)).toEqual([
        ['a', { size: 3 }, { projectId: 'prj_test', roomType: 'board' }],
        ['other', {}, { projectId: 'prj_test', roomType: 'board' }],
      ])
      calls[1]!.answer(undefined)
      await bench.untilIdle()
      expect([ann.inRoom, cat.state]).toEqual([false, { notes: ['new'] }])
      calls[0]!.answer({ notes: ['kept'] })
      await bench.untilIdle()
      expect([ann.state, bob.state]).toEqual([{ notes: ['kept'] }, { notes: ['kept'] }])
      expect([bench.counts['load loaded'], bench.counts['load none']]).toEqual([1, 1])
    })

    it('that does not return refuses the waiting joins, which may try again, and does not affect other rooms', async () => {
      const { board, calls } = database()
      const bench = new RoomBench([board], { quota: { maxRooms: 2 } })
      const ann = await bench.join('board', 'ann')
      const bob = await bench.join('board', 'bob')
      await bench.join('board', 'cat', { key: 'other' })
      calls[1]!.answer(undefined)
      await bench.advance(10_000, 500)
      for (const { errors } of [ann, bob])
        expect(errors).toMatchObject([
          { ...REFUSED, message: expect.stringContaining('could not be loaded') },
        ])
      expect([bench.host.rooms.size, bench.counts['load timed_out']]).toEqual([1, 1])

      await bench.join('board', 'bob')
      calls[0]!.answer({ notes: ['too late'] })
      calls[2]!.answer({ notes: ['kept'] })
      await bench.untilIdle()
      expect(bob.state).toEqual({ notes: ['kept'] })
    })

    it.each<[string, (call: ReturnType<typeof database>['calls'][number]) => void]>([
      ['throws', ({ fail }) => fail()],
      ['brings what is not JSON', ({ answer }) => answer({ notes: [Number.NaN] })],
      ['brings a function', ({ answer }) => answer(() => 1)],
      ['brings null', ({ answer }) => answer(null)],
    ])(
      'that %s refuses the join, tells nothing of why, and takes no place in the project',
      async (_, end) => {
        const { board, calls } = database()
        const bench = new RoomBench([board], { quota: { maxRooms: 1 } })
        const ann = await bench.join('board', 'ann')
        end(calls[0]!)
        await bench.untilIdle()
        expect(ann.errors).toMatchObject([REFUSED])
        expect(JSON.stringify(ann.errors)).not.toContain('secret')
        expect(bench.counts['load failed']).toBe(1)
        await bench.join('board', 'ann', { key: 'other' })
        calls[1]!.answer(undefined)
        await bench.untilIdle()
        expect(ann.inRoom).toBe(true)
      },
    )

    it('leaves the room to other nodes if its node closes before it returns', async () => {
      const { board, calls } = database()
      const bench = new RoomBench([board])
      await bench.join('board', 'ann')
      bench.host.rooms.refuseMore()
      calls[0]!.answer({ notes: ['kept'] })
      await bench.untilIdle()
      expect(bench.redirected.map(({ message }) => message)).toMatchObject([
        { kind: 'join', member_id: 'ann' },
      ])
      expect(await bench.store.store.rooms.inspect('prj_test/board:a')).toMatchObject({ owner: null })
    })
  })

  describe('a join that may not create a room', () => {
    const NOT_FOUND = [{ code: 'room_not_found' }]
    const plain = (onIdle: 'dispose' | 'sleep' = 'dispose') =>
      defineRoom({
        type: 'board',
        onIdle,
        idleSeconds: 1,
        sync: { rate: 0 },
        create: (): State => ({ notes: ['new'] }),
      })
    const finding = { create: false } as const
    const leave = (bench: RoomBench) => bench.leave('board', 'ann')

    it('is refused if there is none: nothing is claimed, created or counted', async () => {
      const bench = new RoomBench([plain()], { quota: { maxRooms: 1, perMinute: 1 } })
      const ann = await bench.join('board', 'ann', finding)
      expect(ann.errors).toMatchObject(NOT_FOUND)
      const { rooms } = bench.store.store
      expect([await rooms.inspect('prj_test/board:a'), bench.host.rooms.claimed]).toEqual([undefined, 0])
      const bob = await bench.join('board', 'bob', { key: 'other' })
      expect(bob.inRoom).toBe(true)
    })

    it('is refused if the room has ended, and leaves it without an owner', async () => {
      const bench = new RoomBench([plain()])
      await bench.join('board', 'ann')
      leave(bench)
      await bench.advance(2000, 100)
      const bob = await bench.join('board', 'bob', finding)
      expect(bob.errors).toMatchObject(NOT_FOUND)
      expect(await bench.store.store.rooms.inspect('prj_test/board:a')).toMatchObject({ owner: null })
      expect((await bench.join('board', 'cat')).inRoom).toBe(true)
    })

    it('opens a sleeping room', async () => {
      const bench = new RoomBench([plain('sleep')])
      await bench.join('board', 'ann')
      leave(bench)
      await bench.advance(2000, 100)
      expect(bench.host.rooms.size).toBe(0)
      const bob = await bench.join('board', 'bob', finding)
      expect(bob.state).toEqual({ notes: ['new'] })
    })

    it('gets a seat in a room that another join creates, whichever of them came first', async () => {
      const bench = new RoomBench([plain()])
      const inbox = new Inbox(10)
      const seat = {
        edge: 'node_a',
        turn: 0,
        codec: 'roomful.v1.msgpack',
        sub: null,
        principal: 'p',
      } as const
      const room = bench.address('board')
      for (const [member_id, create] of [
        ['ann', finding],
        ['bob', {}],
        ['cat', finding],
      ] as const)
        inbox.add({
          message: {
            kind: 'join',
            room,
            member_id,
            request_id: 1,
            session_id: member_id,
            options: {},
            ...seat,
            ...create,
          },
          from: 'node_a',
        })
      bench.router.redirect(room, inbox, undefined)
      await bench.untilIdle()
      const joined = bench
        .sentOf('update')
        .flatMap((update) => update.joined.map(({ member_id }) => member_id))
      expect(joined).toEqual(['ann', 'bob', 'cat'])
    })

    it('gets a seat in a room that load returns, and is refused without being counted if load returns none', async () => {
      const { board, calls } = database()
      const bench = new RoomBench([board], { quota: { maxRooms: 1 } })
      const ann = await bench.join('board', 'ann', finding)
      calls[0]!.answer(undefined)
      await bench.untilIdle()
      expect([ann.errors, bench.host.rooms.claimed]).toMatchObject([NOT_FOUND, 0])
      const bob = await bench.join('board', 'bob', { ...finding, key: 'other' })
      calls[1]!.answer({ notes: ['kept'] })
      await bench.untilIdle()
      expect(bob.state).toEqual({ notes: ['kept'] })
    })

    it('leaves the room to a join that arrives during load and may create it', async () => {
      const { board, calls } = database()
      const bench = new RoomBench([board])
      const ann = await bench.join('board', 'ann', finding)
      const bob = await bench.join('board', 'bob')
      calls[0]!.answer(undefined)
      await bench.untilIdle()
      expect([ann.errors, calls.length]).toMatchObject([NOT_FOUND, 2])
      calls[1]!.answer(undefined)
      await bench.untilIdle()
      expect([bob.state, bob.errors]).toEqual([{ notes: ['new'] }, []])
    })
  })
})

describe('migration', () => {
  const count = { inc: { data: v.null() } }

  /** Three versions of one room type: a count, a list of counts, a count by name. */
  const first = defineRoom({
    type: 'counts',
    sync: { rate: 0 },
    messages: count,
    create: () => ({ count: 0 }),
    onMessage: (state) => void state.count++,
  })
  const TO_LIST = (state: { count: number }) => ({ counts: [state.count] })
  const second = defineRoom({
    type: 'counts',
    sync: { rate: 0 },
    version: 2,
    migrate: { 1: TO_LIST },
    messages: count,
    create: () => ({ counts: [0] }),
    onMessage: (state) => void state.counts[0]!++,
  })
  const third = (toNames: (state: { counts: number[]; by_name?: object }) => unknown): RoomDefinition =>
    defineRoom({
      type: 'counts',
      sync: { rate: 0 },
      version: 3,
      migrate: { 1: TO_LIST, 2: toNames },
      messages: count,
      create: () => ({ by_name: { all: 0 } }),
      onMessage: (state) => void state.by_name.all++,
    })
  const inPlace = third((state) => {
    state.by_name = { all: state.counts[0] }
    delete (state as { counts?: unknown }).counts
  })

  /** A room of the first version, in which ann has counted to two. Then its node has died. */
  async function orphan(options: BenchOptions = {}) {
    const bench = new RoomBench([first], options)
    const ann = await bench.join('counts', 'ann')
    await bench.say('counts', 'ann', 'inc', null, 1)
    await bench.say('counts', 'ann', 'inc', null, 2)
    bench.store.mood = 'deaf'
    const { store } = bench.successor()
    /** Another node with other code, on the same store. */
    const node = (definition: RoomDefinition, nodeId = 'node_b') => {
      const other = new RoomBench([definition], { clock: bench.clock, store: store.store, nodeId })
      other.members.set('ann', ann)
      bench.members.delete('ann')
      return other
    }
    const inspect = () => store.store.rooms.inspect('prj_test/counts:a')
    return { ann, node, inspect }
  }

  it('docs/guides/changing-state.md shows two versions, of which the second continues a room of the first', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'roomful-versions-'))
    onTestFinished(() => rm(folder, { recursive: true }))
    await symlink(join(ROOT, 'node_modules'), join(folder, 'node_modules'), 'junction')
    const codes = codeOf('docs/guides/changing-state.md', 'ts').slice(0, 2)
    const [before, after] = await Promise.all(
      codes.map(async (code, index) => {
        const file = join(folder, `version-${index + 1}.ts`)
        await writeFile(file, code)
        return (await import(/* @vite-ignore */ file)).default as RoomDefinition
      }),
    )
    const bench = new RoomBench([before!])
    const ann = await bench.join('duel', 'ann')
    await bench.say('duel', 'ann', 'strike', { target: 'ann' }, 1)
    await bench.host.close()
    const heir = new RoomBench([after!], { clock: bench.clock, store: bench.store.store, nodeId: 'node_b' })
    heir.members.set('ann', ann)
    await heir.resume('duel', ann)
    await heir.advance(100)
    expect([ann.state, ann.resyncs]).toEqual([{ fighters: { ann: { hp: 90, shield: 0 } } }, 0])
  })

  describe('a room type with a newer version of its state', () => {
    it('migrates the state through every version between, which members see as the next update', async () => {
      const { ann, node, inspect } = await orphan()
      const { seq } = ann
      const owner = node(inPlace)
      await owner.resume('counts', ann)
      expect([ann.state, ann.seq, ann.resyncs, ann.faults]).toEqual([{ by_name: { all: 2 } }, seq + 1, 0, []])
      expect([owner.counts.migrated, (await inspect())?.stateVersion]).toEqual([1, 3])
      await owner.say('counts', 'ann', 'inc', null, 3)
      expect([ann.state, ann.acked]).toEqual([{ by_name: { all: 3 } }, 3])
    })

    it('migrates once: the next owner continues with the new state', async () => {
      const { ann, node } = await orphan()
      const owner = node(second)
      await owner.resume('counts', ann)
      await owner.host.close()
      const heir = node(second, 'node_c')
      heir.members.set('ann', ann)
      await heir.resume('counts', ann)
      await heir.say('counts', 'ann', 'inc', null, 3)
      expect([ann.state, ann.resyncs, heir.counts.migrated]).toEqual([{ counts: [3] }, 0, undefined])
    })

    it('keeps its rooms from nodes with older code, whether they look for the room or get it before they know its version', async () => {
      const { ann, node, inspect } = await orphan()
      const owner = node(second)
      await owner.resume('counts', ann)
      await owner.host.close()
      const before = await inspect()
      const old = node(first, 'node_c')
      const bob = await old.join('counts', 'bob')
      expect(bob.errors).toMatchObject([
        { code: 'room_unavailable', message: expect.stringContaining('too old') },
      ])
      expect(await inspect()).toEqual(before)
    })

    it.each<[string, RoomDefinition]>([
      [
        'throws',
        third(() => {
          throw new Error('a secret')
        }),
      ],
      ['makes what is no state', third(() => ({ by_name: { all: Number.NaN } }))],
      ['returns a promise', third(() => Promise.resolve({}))],
      ['returns what it assigns', third((state) => (state.counts.length = 3))],
      ['returns null', third(() => null)],
    ])('refuses joins to a room whose migrate %s, and loses nothing of the room', async (_, broken) => {
      const { ann, node, inspect } = await orphan()
      const shut = node(broken)
      const bob = await shut.join('counts', 'bob')
      expect(bob.errors).toMatchObject([
        {
          code: 'room_unavailable',
          message: expect.stringMatching(/version 1 could not be brought to version 3/),
        },
      ])
      expect(JSON.stringify(bob.errors)).not.toContain('secret')
      expect([shut.host.rooms.size, shut.counts.failed]).toEqual([0, 1])
      expect(await inspect()).toMatchObject({ owner: null })
      const owner = node(second, 'node_c')
      owner.members.set('ann', ann)
      await owner.resume('counts', ann)
      expect(ann.state).toEqual({ counts: [2] })
    })

    it('migrates running rooms when a file is replaced, and leaves those unchanged that it cannot migrate', async () => {
      const bench = new RoomBench([second])
      const ann = await bench.join('counts', 'ann')
      bench.host.replaceRoom(
        third(() => {
          throw new Error('not yet')
        }),
      )
      await bench.say('counts', 'ann', 'inc', null, 1)
      expect(ann.state).toEqual({ counts: [1] })
      bench.host.replaceRoom(inPlace)
      await bench.say('counts', 'ann', 'inc', null, 2)
      expect(ann.state).toEqual({ by_name: { all: 2 } })
      // A successor does not migrate again if the node dies now.
      expect((await bench.store.store.rooms.inspect('prj_test/counts:a'))?.stateVersion).toBe(3)
      bench.host.replaceRoom(second)
      await bench.say('counts', 'ann', 'inc', null, 3)
      expect([ann.state, ann.faults]).toEqual([{ by_name: { all: 3 } }, []])
    })
  })
})

describe('room limits', () => {
  const shelf = (rate: number) =>
    defineRoom({
      type: 'shelf',
      messages: {
        put: { data: v.object({ at: v.string(), bytes: v.number() }) },
        take: { data: v.string() },
        start: { data: v.number() },
      },
      options: v.object({ bytes: v.optional(v.number(), 0) }),
      sync: { rate },
      create: ({ bytes }): { items: Record<string, string>; done: number } => ({
        items: bytes > 0 ? { first: 'x'.repeat(bytes) } : {},
        done: 0,
      }),
      tasks: { done: { result: v.null(), handle: (state) => void state.done++ } },
      onMessage(state, { type, data }, ctx) {
        if (type === 'put') state.items[data.at] = 'x'.repeat(data.bytes)
        else if (type === 'take') delete state.items[data]
        else
          for (let i = 0; i < data; i++)
            ctx.task(() => new Promise<null>((done) => endings.push(() => done(null))), 'done')
      },
    })

  let endings: (() => void)[] = []

  describe('the size of a state', () => {
    it('is approximately that of a snapshot', () => {
      const state = Array.from({ length: 1000 }, (_, n) => ({
        id: n,
        name: `item ${n}`,
        at: [n / 7, true, null],
      }))
      const nothing = {
        epoch: 1,
        seq: 1,
        checksum: 1,
        memberships: [],
        base: { epoch: 1, seq: 1 },
        tables: new Tables(1).flushed,
        layers: undefined,
        updates: [],
        stateVersion: 1,
        createdAt: 1,
        code: undefined,
        awaited: undefined,
        showsSpectators: false,
      }
      const { length } = new JournalFormat().snapshot({ ...nothing, state })
      expect(Math.abs(new LiveState(state, Number.POSITIVE_INFINITY).bytes / length - 1)).toBeLessThan(0.25)
    })
  })

  describe('a state at its limit', () => {
    const limits: Partial<RoomLimits> = { stateBytes: 10_000 }

    // Below half of the limit, turns were counted only at their flush. One turn, or many before a flush, could exceed the limit.
    it.each([
      ['at each turn', 0],
      ['ten times a second', 10],
    ])(
      'grows no further, by one turn or by many: the turn fails, the state is as before, and what makes it smaller goes on, flushed %s',
      async (_, rate) => {
        const { bench, ann } = await roomWith(shelf(rate), ['ann'], { limits })
        await bench.advance(1000)
        const held = () => Object.keys((ann.state as { items: object }).items)
        let ref = 0
        const say = async (type: string, data: object | string) => {
          bench.message('shelf', 'ann', type, data as never, ++ref)
          if (rate === 0) await bench.untilIdle()
        }
        await say('put', { at: 'huge', bytes: 11_000 })
        for (let n = 0; n < 20; n++) await say('put', { at: `${n}`, bytes: 900 })
        await bench.advance(1000)
        const full = held()
        expect(full).toHaveLength(11)
        expect(ann.errors.map(({ code }) => code)).toEqual(Array(10).fill('room_logic_failed'))
        expect(bench.counts['limit state']).toBe(10)
        // A value that replaces another is not counted twice.
        for (let n = 0; n < 40; n++) await say('put', { at: '0', bytes: 900 - n })
        await say('take', '3')
        await say('put', { at: 'last', bytes: 900 })
        await bench.advance(1000)
        expect(held()).toEqual([...full.filter((name) => name !== '3'), 'last'])
        expect([ann.errors.length, ann.faults]).toEqual([10, []])
      },
    )

    it('is logged once when it is near, and again only after it was small', async () => {
      const warned: string[] = []
      const log = pino({ level: 'warn' }, { write: (line: string) => void warned.push(JSON.parse(line).msg) })
      const { bench } = await roomWith(shelf(0), ['ann'], { limits, log })
      const say = async (type: string, data: object | string) => {
        await bench.say('shelf', 'ann', type, data as never)
      }
      await say('put', { at: 'a', bytes: 7900 })
      expect(warned).toEqual([])
      for (const at of ['b', 'c']) await say('put', { at, bytes: 500 })
      expect(warned).toEqual(['the state of the room comes near its limit'])
      await say('take', 'a')
      await say('put', { at: 'a', bytes: 8000 })
      expect(warned).toHaveLength(2)
    })

    it('applies to the first state, too', async () => {
      const bench = new RoomBench([shelf(0)], { limits })
      const ann = await bench.join('shelf', 'ann', { options: { bytes: 11_000 } })
      expect(ann.errors).toMatchObject([{ code: 'room_logic_failed' }])
    })
  })

  describe('tasks of a room', () => {
    it('are limited: the turn that starts one more fails, until an outcome has arrived', async () => {
      endings = []
      const { bench, ann } = await roomWith(shelf(0), ['ann'], { limits: { tasks: 3 } })
      for (const count of [2, 2, 1, 1]) bench.message('shelf', 'ann', 'start', count)
      await bench.untilIdle()
      expect(ann.errors).toMatchObject([{ code: 'room_logic_failed' }, { code: 'room_logic_failed' }])
      expect([endings.length, bench.counts['limit tasks']]).toEqual([3, 2])
      for (const end of endings) end()
      await bench.untilIdle()
      expect(ann.state).toEqual({ items: {}, done: 3 })
      await bench.say('shelf', 'ann', 'start', 3)
      expect(ann.errors).toHaveLength(2)
    })
  })
})
