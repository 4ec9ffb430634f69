import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import { DUE_PARTS } from '../../shared/store/port.ts'
import { SeededRandom } from '../../test/kit/seeded-random.ts'
import { RoomBench } from '../../test/support/rooms/room-bench.ts'
import { type Durability, defineRoom } from './definition.ts'
import { type TableRows, Tables } from './table.ts'

type Timer = TableRows['timers'][number]
const NONE = new Tables(1).flushed
const timer = (id: string, due: number): Timer => ({ id, due, name: 'rings', data: null })
const idsOf = (rows: readonly { readonly id: string }[]) => rows.map(({ id }) => id)

/** Does with copied arrays what `Tables` does. */
class Model {
  rows: Timer[] = []
  flushed: Timer[] = []
  begun: Timer[] = []

  set(row: Timer): void {
    this.rows = [...this.rows.filter(({ id }) => id !== row.id), row]
  }

  delete(id: string): void {
    this.rows = this.rows.filter((row) => row.id !== id)
  }

  get next(): Timer | undefined {
    return this.rows.toSorted((one, other) => one.due - other.due)[0]
  }
}

describe('Tables', () => {
  it('have the rows, the flushed rows and the next due row of a model that copies, after random turns', () => {
    const random = new SeededRandom(11)
    const any = (n: number) => Math.floor(random.float() * n)
    for (let run = 0; run < 40; run++) {
      const tables = new Tables(1)
      const [model, heir] = [new Model(), new Tables(2)]
      for (let step = 0; step < 60; step++) {
        const id = `t${any(5)}`
        const action = any(8)
        if (action < 3) {
          const row = timer(id, any(4))
          tables.timers.set(row)
          model.set(row)
        } else if (action < 5) {
          expect(tables.timers.delete(id)).toBe(model.rows.some((row) => row.id === id))
          model.delete(id)
        } else if (action === 5) {
          tables.commit()
          model.begun = model.rows
        } else if (action === 6) {
          tables.rollback()
          model.rows = model.begun
        } else {
          tables.commit()
          const changes = tables.flush()
          if (changes) heir.apply(changes)
          model.begun = model.rows
          model.flushed = model.rows
          expect(heir.timers.rows).toEqual(model.rows)
        }
        const { timers, due } = tables
        expect([timers.rows, timers.flushed, timers.size]).toEqual([
          model.rows,
          model.flushed,
          model.rows.length,
        ])
        expect([timers.next, due]).toEqual([model.next, model.next?.due])
      }
    }
  })

  it('have no changes to flush after a turn that was rolled back, or that undid its own writes', () => {
    const tables = new Tables(1, { ...NONE, timers: [timer('a', 1)] })
    tables.commit()
    tables.timers.delete('a')
    tables.bans.set({ id: 'eve' })
    tables.rollback()
    expect([tables.flush(), tables.flushedDue]).toEqual([undefined, 1])
    tables.bans.set({ id: 'eve' })
    tables.bans.delete('eve')
    expect(tables.flush()).toBeUndefined()
  })

  it('flush only the rows that were written, for each table separately', () => {
    const tables = new Tables(1, { ...NONE, timers: [timer('a', 1)], bans: [{ id: 'eve' }] })
    tables.timers.set(timer('c', 9))
    tables.timers.set(timer('b', 9))
    tables.timers.set(timer('c', 9))
    tables.timers.delete('a')
    const changes = tables.flush()
    expect([idsOf(changes!.timers!.set), changes!.timers!.removed, changes!.bans]).toEqual([
      ['b', 'c'],
      ['a'],
      undefined,
    ])
    expect(idsOf(tables.flushed.bans)).toEqual(['eve'])
  })

  it('create ids that no other owner of the room creates', () => {
    expect([new Tables(70).newId('tmr'), new Tables(71).newId('tmr')]).toEqual(['tmr_1y_1', 'tmr_1z_1'])
  })
})

describe('reservations', () => {
  interface Rules {
    durability?: Durability
    maxPlayers?: number
    onIdle?: 'sleep' | 'dispose'
    /** Promise that `admit` awaits. */
    admit?: Promise<string | undefined>
  }

  const table = ({ durability = 'journal', maxPlayers = 2, onIdle = 'dispose', admit }: Rules = {}) =>
    defineRoom({
      type: 'table',
      sync: { rate: 0 },
      durability,
      maxPlayers,
      onIdle,
      idleSeconds: 10,
      create: () => ({}),
      ...(admit && { admit: (member) => (member.sub === 'host' ? undefined : admit) }),
      messages: {
        reserve: {
          data: v.object({ sub: v.any(), seconds: v.any(), fail: v.optional(v.boolean()) }),
          reply: v.boolean(),
          handle(_state, { data: { sub, seconds, fail } }, ctx) {
            ctx.reply(ctx.reserve(sub, seconds))
            if (fail) throw new Error('half way')
          },
        },
        many: {
          data: v.number(),
          reply: v.number(),
          handle(_state, { data }, ctx) {
            ctx.reply(Array.from({ length: data }, (_, i) => ctx.reserve(`p${i}`, 5)).filter(Boolean).length)
          },
        },
        ban: { data: v.string(), handle: (_state, { data }, ctx) => ctx.kick(data, 'out', { ban: true }) },
      },
      onJoin(_state, member, ctx) {
        if (member.data?.refused) ctx.refuse('not now')
      },
    })

  async function tableOf(rules?: Rules) {
    const bench = new RoomBench([table(rules)], { revealFailures: true })
    const host = await bench.join('table', 'host', { sub: 'host' })
    let ref = 0
    const ask = async (type: string, data: unknown) => {
      await bench.say('table', 'host', type, data as never, ++ref)
      return host.replies.find((reply) => reply.ref === ref)?.reply
    }
    return {
      bench,
      host,
      ask,
      reserve: (sub: unknown, seconds: unknown = 30, fail = false) => ask('reserve', { sub, seconds, fail }),
    }
  }

  let joins = 0
  /** Joins with a new session. Returns the error code of the answer. */
  const join = async (bench: RoomBench, sub: string, data = {}) =>
    (await bench.join('table', `${sub}-${joins++}`, { sub, data })).errors[0]?.code

  const reserved = (bench: RoomBench) => bench.describe('table')?.reservations.map(({ sub }) => sub)

  /** Rooms that the store reports as due. */
  async function woken({ store }: RoomBench) {
    const parts = Array.from({ length: DUE_PARTS }, (_, part) =>
      store.store.wakeups.take(part, { limit: 10, againMs: 1 }),
    )
    return (await Promise.all(parts)).flat().map(({ room }) => room)
  }

  /** The owner crashes. Returns a node that opens the room when `host` resumes. */
  async function heirOf({ bench, host }: Awaited<ReturnType<typeof tableOf>>) {
    bench.mayAct = false
    const heir = bench.successor([host])
    await heir.resume('table', host)
    return heir
  }

  describe('ctx.reserve', () => {
    it('keeps a free seat for the player: others are refused with room_full, and the player takes the seat', async () => {
      const { bench, reserve } = await tableOf()
      expect(await reserve('ada')).toBe(true)
      expect(reserved(bench)).toEqual(['ada'])
      expect(await join(bench, 'bob')).toBe('room_full')
      expect(await join(bench, 'ada')).toBeUndefined()
      expect(reserved(bench)).toEqual([])
      expect(await join(bench, 'ada')).toBe('room_full')
    })

    it('keeps a seat for the session of a player without sub, by the name that a queue gives', async () => {
      const { bench, reserve } = await tableOf()
      await reserve('session:ses_of_ada')
      expect(await join(bench, 'bob')).toBe('room_full')
      expect((await bench.join('table', 'cleo')).errors[0]?.code).toBe('room_full')
      expect((await bench.join('table', 'ada')).errors).toEqual([])
      expect(reserved(bench)).toEqual([])
    })

    it('returns false when no seat is free, and keeps nothing', async () => {
      const { bench, reserve } = await tableOf()
      expect([await reserve('ada'), await reserve('bob')]).toEqual([true, false])
      expect(reserved(bench)).toEqual(['ada'])
    })

    it('returns true and keeps nothing for a member', async () => {
      const { bench, reserve } = await tableOf()
      expect([await reserve('host'), reserved(bench)]).toEqual([true, []])
    })

    it('ends the reservation at its time, not earlier', async () => {
      const { bench, reserve } = await tableOf()
      await reserve('ada', 30)
      await bench.advance(29_900, 100)
      expect(await join(bench, 'bob')).toBe('room_full')
      await bench.advance(200, 100)
      expect([reserved(bench), await join(bench, 'bob')]).toEqual([[], undefined])
    })

    it('makes the time longer for a player that has a reservation, and never shorter', async () => {
      const { bench, reserve } = await tableOf()
      expect([await reserve('ada', 30), await reserve('ada', 60), await reserve('ada', 10)]).toEqual([
        true,
        true,
        true,
      ])
      await bench.advance(59_000, 100)
      expect(reserved(bench)).toEqual(['ada'])
      await bench.advance(1100, 100)
      expect(reserved(bench)).toEqual([])
    })

    it('has no effect if its turn fails', async () => {
      const { bench, reserve } = await tableOf()
      await reserve('ada', 30, true)
      expect([reserved(bench), await join(bench, 'bob')]).toEqual([[], undefined])
    })

    it('still lets admit and onJoin refuse the player, who keeps the reservation then', async () => {
      const { bench, reserve } = await tableOf({ admit: Promise.resolve('not you') })
      await reserve('ada')
      expect([await join(bench, 'ada'), reserved(bench)]).toEqual(['join_refused', ['ada']])
      const open = await tableOf()
      await open.reserve('ada')
      expect([await join(open.bench, 'ada', { refused: true }), reserved(open.bench)]).toEqual([
        'room_logic_refused',
        ['ada'],
      ])
      expect(await join(open.bench, 'bob')).toBe('room_full')
    })

    it('gives one seat to a player that joins with two sessions while admit runs', async () => {
      let admit = (_: undefined) => {}
      const { bench, reserve } = await tableOf({ admit: new Promise((done) => (admit = done)) })
      await reserve('ada')
      const one = bench.askToJoin('table', 'one', { sub: 'ada' })
      const other = await bench.join('table', 'other', { sub: 'ada' })
      expect(other.errors).toMatchObject([{ code: 'room_full' }])
      admit(undefined)
      await bench.untilIdle()
      expect([one.inRoom, reserved(bench)]).toEqual([true, []])
    })

    it('counts one seat for a player while admit runs for the join', async () => {
      const { bench, reserve } = await tableOf({ maxPlayers: 3, admit: new Promise(() => {}) })
      await reserve('ada')
      const ada = await bench.join('table', 'ada', { sub: 'ada' })
      const bob = await bench.join('table', 'bob', { sub: 'bob' })
      const carol = await bench.join('table', 'carol', { sub: 'carol' })
      expect([ada, bob, carol].map(({ errors }) => errors[0]?.code)).toEqual([
        undefined,
        undefined,
        'room_full',
      ])
    })

    it('ends with a ban of the player, for whom no seat can be reserved then', async () => {
      const { bench, ask, reserve } = await tableOf({ maxPlayers: 3 })
      const eve = await bench.join('table', 'eve', { sub: 'eve' })
      bench.leave('table', 'eve')
      await bench.untilIdle()
      expect([eve.inRoom, await reserve('eve')]).toEqual([false, true])
      await bench.join('table', 'eve2', { sub: 'eve' })
      await ask('ban', 'eve2')
      expect([reserved(bench), await reserve('eve')]).toEqual([[], false])
    })

    it('keeps at most 1,000 reservations in a room without maxPlayers', async () => {
      const { ask, bench } = await tableOf({ maxPlayers: 10_000 })
      expect(await ask('many', 1200)).toBe(1000)
      expect(bench.counts['limit reservations']).toBe(200)
    })

    it.each([
      ['no text', 7, 30, 'got 7; it must be the sub of a player'],
      ['a text that is too long', 'x'.repeat(257), 30, 'got "xxx'],
      ['no time', 'ada', 0, 'got 0 as its seconds; it must be a number above 0'],
      ['a time that is no number', 'ada', '30', 'got "30" as its seconds'],
    ])('throws for %s', async (_, sub, seconds, text) => {
      const { host, reserve } = await tableOf()
      await reserve(sub, seconds)
      expect(host.errors).toMatchObject([
        { code: 'room_logic_failed', message: expect.stringContaining(text) },
      ])
    })

    it("throws in a room with durability 'none'", async () => {
      const { host, reserve } = await tableOf({ durability: 'none' })
      await reserve('ada')
      expect(host.errors).toMatchObject([{ message: expect.stringContaining("durability 'none'") }])
    })
  })

  describe('a reservation', () => {
    it.each(['journal', 'snapshot'] as const)(
      'in a %s room holds at the next owner, also if the owner dies right after the reply, and ends there',
      async (durability) => {
        const one = await tableOf({ durability })
        await one.bench.advance(1000, 50)
        expect(await one.reserve('ada', 30)).toBe(true)
        const heir = await heirOf(one)
        expect([await join(heir, 'bob'), reserved(heir)]).toEqual(['room_full', ['ada']])
        await heir.advance(31_000, 100)
        expect([reserved(heir), await join(heir, 'bob')]).toEqual([[], undefined])
      },
    )

    it('that its player has used is gone at the next owner', async () => {
      const one = await tableOf({ maxPlayers: 3 })
      await one.reserve('ada')
      await join(one.bench, 'ada')
      const heir = await heirOf(one)
      expect([reserved(heir), await join(heir, 'bob')]).toEqual([[], undefined])
    })

    it('in a snapshot room is answered after the write of the snapshot', async () => {
      const { bench, host, reserve } = await tableOf({ durability: 'snapshot' })
      await bench.advance(1000, 50)
      bench.store.mood = 'slow'
      await reserve('ada')
      expect(host.replies).toEqual([])
      bench.store.let()
      await bench.untilIdle()
      expect(host.replies).toMatchObject([{ reply: true }])
    })

    it.each(['dispose', 'sleep'] as const)(
      'outlives the owner of an empty room (onIdle: %s), and the store wakes the room at its end',
      async (onIdle) => {
        const { bench, reserve } = await tableOf({ onIdle })
        await reserve('ada', 300)
        bench.leave('table', 'host')
        await bench.advance(12_000, 100)
        expect(bench.host.rooms.size).toBe(0)
        bench.clock.advance(287_000)
        expect(await woken(bench)).toEqual([])
        bench.clock.advance(1100)
        expect(await woken(bench)).toEqual(['prj_test/table:a'])
      },
    )

    it('in an empty sleeping room is kept until a player joins', async () => {
      const { bench, reserve } = await tableOf()
      await reserve('ada', 300)
      bench.leave('table', 'host')
      await bench.advance(12_000, 100)
      expect(bench.host.rooms.size).toBe(0)
      expect(await join(bench, 'bob')).toBeUndefined()
      expect(await join(bench, 'carol')).toBe('room_full')
      expect(await join(bench, 'ada')).toBeUndefined()
    })
  })
})
