import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import { memoryStore } from '../../../shared/store/memory/memory.ts'
import { FakeClock } from '../../../test/kit/fake-clock.ts'
import { type BenchOptions, RoomBench } from '../../../test/support/rooms/room-bench.ts'
import { type Durability, defineRoom } from '../../room/definition.ts'
import { ROOM_LIMITS } from '../../room/limits.ts'
import { decodeNotice, type NoticeBody } from './notice.ts'

const ROOM = 'prj_test/duel:a'

const duel = (durability: Durability = 'journal') =>
  defineRoom({
    type: 'duel',
    durability,
    sync: { rate: 0 },
    idleSeconds: 5,
    notices: { won: v.object({ by: v.string() }), over: v.number() },
    create: () => ({ hits: 0 }),
    messages: {
      win: { data: v.string(), handle: (_state, { data }, ctx) => ctx.notify('won', { by: data }) },
      many: {
        data: v.number(),
        handle(_state, { data }, ctx) {
          for (let i = 0; i < data; i++) ctx.notify('over', i)
        },
      },
      fail: {
        data: v.string(),
        handle(_state, { data }, ctx) {
          ctx.notify('won', { by: data })
          throw new Error('half way')
        },
      },
      raw: {
        data: v.any(),
        handle(_state, { data }, ctx) {
          ;(ctx.notify as (name: string, data: unknown) => void)(data.name, data.data)
        },
      },
      hit: {
        data: v.null(),
        handle(state) {
          state.hits++
        },
      },
      end: { data: v.null(), handle: (_state, _input, ctx) => ctx.close() },
    },
    onDispose: (state, ctx) => ctx.notify('over', state.hits),
  })

async function duelOf(durability?: Durability, options: BenchOptions = {}) {
  const bench = new RoomBench([duel(durability)], { revealFailures: true, ...options })
  const ann = await bench.join('duel', 'ann', { sub: 'ann' })
  let ref = 0
  return {
    bench,
    ann,
    say: (type: string, data: unknown = null) => bench.say('duel', 'ann', type, data as never, ++ref),
  }
}

/** Removes and returns all notices of the room in the store, the oldest first. */
async function stored({ store }: RoomBench): Promise<(NoticeBody & { id: string })[]> {
  const { notices } = store.store
  const found: (NoticeBody & { id: string })[] = []
  for (;;) {
    const [bytes] = await notices.oldest(ROOM, 1)
    if (!bytes) return found
    const { id, body } = decodeNotice(bytes)
    found.push({ id, ...JSON.parse(body) })
    await notices.remove(ROOM, bytes)
  }
}

const dataOf = async (bench: RoomBench) => (await stored(bench)).map(({ data }) => data)

describe('ctx.notify', () => {
  it.each(['journal', 'snapshot'] as const)(
    'in a %s room is stored with its turn, with epoch and seq of the update, in the order of the turns',
    async (durability) => {
      const { bench, ann, say } = await duelOf(durability)
      await say('win', 'bob')
      await say('hit')
      await say('many', 2)
      expect([ann.errors, ann.acked]).toEqual([[], 3])
      const notices = await stored(bench)
      const common = { project_id: 'prj_test', room_id: 'duel:a', epoch: ann.epoch }
      expect(notices).toMatchObject([
        { ...common, type: 'won', data: { by: 'bob' } },
        { ...common, type: 'over', data: 0 },
        { ...common, type: 'over', data: 1, seq: ann.seq },
      ])
      expect(notices.map(({ at }) => Date.parse(at))).toEqual(Array(3).fill(bench.clock.now()))
      expect(new Set(notices.map(({ id }) => id)).size).toBe(3)
      expect(notices.every(({ id }) => /^ntc_[\w-]{16}$/.test(id))).toBe(true)
      expect(bench.notices.ready).toEqual([ROOM, ROOM])
    },
  )

  it.each(['journal', 'snapshot'] as const)(
    'in a %s room is in the store before its message is acknowledged, and its room in the index before that',
    async (durability) => {
      const { bench, ann, say } = await duelOf(durability)
      await bench.advance(1000, 50)
      bench.store.mood = 'slow'
      await say('win', 'bob')
      const indexed = await Promise.all([0, 1, 2, 3].map((part) => bench.store.store.notices.rooms(part, 9)))
      expect(indexed.flat()).toEqual([ROOM])
      expect([ann.acked, await dataOf(bench), bench.notices.ready]).toEqual([0, [], []])
      bench.store.let()
      await bench.untilIdle()
      expect([ann.acked, await dataOf(bench), bench.notices.ready]).toEqual([1, [{ by: 'bob' }], [ROOM]])
    },
  )

  it('stores a notice whose turn changes nothing else, and for which no client waits', async () => {
    const { bench } = await duelOf()
    await bench.say('duel', 'ann', 'win', 'bob')
    expect(await dataOf(bench)).toEqual([{ by: 'bob' }])
  })

  it('stores nothing if its turn fails', async () => {
    const { bench, ann, say } = await duelOf()
    await say('fail', 'bob')
    expect([ann.errors.length, await dataOf(bench), bench.notices.ready]).toEqual([1, [], []])
  })

  it('stores nothing if another node owns the room', async () => {
    const { bench, say } = await duelOf()
    await bench.claimed('duel')
    await say('win', 'bob')
    expect([bench.counts.fenced, await dataOf(bench), bench.notices.ready]).toEqual([1, [], []])
  })

  it.each(['journal', 'snapshot'] as const)(
    'stores each notice of a %s room once if the answer to its write is lost',
    async (durability) => {
      const { bench, ann, say } = await duelOf(durability)
      bench.store.mood = 'silent'
      await say('win', 'bob')
      bench.store.mood = 'deaf'
      await say('win', 'eve')
      expect(ann.acked).toBe(0)
      bench.store.mood = 'fine'
      await bench.advance(3000, 50)
      expect([ann.acked, await dataOf(bench)]).toEqual([2, [{ by: 'bob' }, { by: 'eve' }]])
    },
  )

  it('stores notices with the whole room if the store has lost its record', async () => {
    const clock = new FakeClock()
    const [first, second] = [memoryStore({ clock }), memoryStore({ clock })]
    let rooms = first.rooms
    const { bench, ann, say } = await duelOf('journal', { clock, store: first })
    bench.store.follow(() => rooms)
    bench.store.mood = 'deaf'
    await say('win', 'bob')
    rooms = second.rooms
    bench.store.mood = 'fine'
    await bench.advance(3000, 50)
    await say('win', 'eve')
    expect(ann.acked).toBe(2)
    expect(await second.notices.count(ROOM)).toBe(2)
  })

  it('delivers a notice again that the store has lost, and that its owner has written again', async () => {
    const clock = new FakeClock()
    const [first, second] = [memoryStore({ clock }), memoryStore({ clock })]
    let rooms = first.rooms
    const { bench, say } = await duelOf('journal', { clock, store: first })
    bench.store.follow(() => rooms)
    await say('win', 'bob')
    await bench.notices.deliver(ROOM, 1)
    Object.assign(first.notices, {
      count: second.notices.count.bind(second.notices),
      oldest: second.notices.oldest.bind(second.notices),
      remove: second.notices.remove.bind(second.notices),
    })
    rooms = second.rooms
    await say('hit')
    await bench.advance(3000, 50)
    expect(await second.notices.count(ROOM)).toBe(1)
    await bench.notices.deliver(ROOM, 1)
    expect(await second.notices.count(ROOM)).toBe(0)
  })

  it('writes a notice again that the store has lost within 30 s, however long the store was away after that', async () => {
    const clock = new FakeClock()
    const [first, second] = [memoryStore({ clock }), memoryStore({ clock })]
    let rooms = first.rooms
    const { bench, say } = await duelOf('journal', { clock, store: first })
    bench.store.follow(() => rooms)
    await say('win', 'ann')
    await bench.advance(31_000, 50)
    await say('win', 'bob')
    await say('win', 'cyd')
    bench.store.mood = 'deaf'
    await bench.advance(120_000, 1000)
    rooms = second.rooms
    bench.store.mood = 'fine'
    await bench.advance(3000, 50)
    const found = await second.notices.oldest(ROOM, 9)
    expect(found.map((bytes) => JSON.parse(decodeNotice(bytes).body).data.by)).toEqual(['bob', 'cyd'])
  })

  it('in onDispose is stored with the end of the room, and outlives it', async () => {
    const { bench, say } = await duelOf()
    await say('hit')
    await say('win', 'bob')
    await say('end')
    await bench.untilIdle()
    expect([bench.host.rooms.size, await bench.store.store.rooms.inspect(ROOM)]).toMatchObject([
      0,
      { owner: null },
    ])
    expect(await dataOf(bench)).toEqual([{ by: 'bob' }, 1])
    expect(bench.notices.ready).toEqual([ROOM, ROOM, ROOM])
  })

  it('in onDispose is stored once if the answer to the release is lost', async () => {
    const { bench } = await duelOf()
    bench.leave('duel', 'ann')
    await bench.untilIdle()
    bench.store.mood = 'silent'
    await bench.advance(6000, 50)
    bench.store.mood = 'fine'
    await bench.advance(3000, 50)
    expect([bench.host.rooms.size, await dataOf(bench)]).toEqual([0, [0]])
  })

  it.each([
    ['a name that the room type does not have', { name: 'wno', data: 1 }, /"wno".*there are won, over/],
    ['data of the wrong shape', { name: 'won', data: { by: 7 } }, /the data of the notice "won": by/],
    ['more than 16 KiB', { name: 'won', data: { by: 'x'.repeat(16_384) } }, /16393 bytes.*limit: 16384/],
  ])('throws for %s', async (_, call, why) => {
    const { bench, ann, say } = await duelOf()
    await say('raw', call)
    expect(ann.errors).toMatchObject([{ message: expect.stringMatching(why) }])
    expect(await dataOf(bench)).toEqual([])
  })

  it('takes 16 KiB of data', async () => {
    const { bench, ann, say } = await duelOf()
    await say('raw', { name: 'won', data: { by: 'x'.repeat(16_384 - 9) } })
    expect([ann.errors, (await dataOf(bench)).length]).toEqual([[], 1])
  })
})

describe('the limit of 1,000 undelivered notices', () => {
  it('fails turns beyond it, until some notices are delivered', async () => {
    const { bench, ann, say } = await duelOf()
    await say('many', 1001)
    await say('many', 999)
    await say('many', 2)
    await say('many', 1)
    await say('win', 'late')
    expect(ann.errors.map(({ message }) => /\d+ waiting notices/.exec(message)?.[0])).toEqual([
      '1000 waiting notices',
      '1000 waiting notices',
      '1000 waiting notices',
    ])
    expect(bench.counts['limit notices']).toBe(3)
    const { notices } = bench.store.store
    expect(await notices.count(ROOM)).toBe(1000)
    await bench.notices.deliver(ROOM, 2)
    await say('many', 2)
    await say('many', 1)
    expect([ann.errors.length, await notices.count(ROOM)]).toEqual([4, 1000])
  })

  it('is in the index again after a fail-over of the store has lost its room there: at the next owner, and at this owner with the next refresh', async () => {
    const { bench, ann, say } = await duelOf()
    await say('win', 'bob')
    const { notices } = bench.store.store
    const indexed = async () => (await Promise.all([0, 1, 2, 3].map((part) => notices.rooms(part, 9)))).flat()
    const lose = async () => {
      for (const part of [0, 1, 2, 3])
        for (const room of await notices.rooms(part, 9))
          await notices.set(room, { epoch: Number.MAX_SAFE_INTEGER, version: 0 }, undefined)
      expect(await indexed()).toEqual([])
    }
    await lose()
    await bench.advance(ROOM_LIMITS.recordTtlMs / 4, 10_000)
    expect(await indexed()).toEqual([ROOM])
    await lose()
    const heir = bench.successor([ann])
    await heir.resume('duel', ann)
    expect([await indexed(), heir.notices.ready]).toEqual([[ROOM], [ROOM]])
    for (const { notices } of [bench, heir]) await notices.deliver(ROOM, 1)
    await lose()
    await heir.advance(ROOM_LIMITS.recordTtlMs / 2, 10_000)
    expect(await indexed()).toEqual([])
  })

  it('counts the notices of earlier owners', async () => {
    const { bench, ann, say } = await duelOf()
    await say('many', 998)
    const heir = bench.successor([ann])
    await heir.resume('duel', ann)
    await heir.say('duel', 'ann', 'many', 3, 2)
    await heir.say('duel', 'ann', 'many', 2, 3)
    expect([ann.errors.length, await heir.store.store.notices.count(ROOM)]).toEqual([1, 1000])
  })
})

describe('a room type with notices', () => {
  it('does not load with durability none', () => {
    expect(() => duel('none')).toThrow('notices need a room that is stored')
  })

  it('does not load if a notice is not a schema', () => {
    const wrong = { type: 'a', create: () => ({}), notices: { won: { by: 'text' } } }
    expect(() => defineRoom(wrong as never)).toThrow('notices.won is {"by":"text"}; it must be a validator')
  })
})
