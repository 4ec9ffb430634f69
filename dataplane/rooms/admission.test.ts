import { pino } from 'pino'
import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import { WAKEUP_PARTS } from '../../shared/store/port.ts'
import { counter } from '../../test/support/rooms/counter-room.ts'
import { RoomBench, roomWith } from '../../test/support/rooms/room-bench.ts'
import { type Durability, defineRoom } from './definition.ts'

describe('a join', () => {
  it('is answered again when it is repeated, and a second join of the session is refused', async () => {
    const bench = new RoomBench([counter()])
    const ann = await bench.join('counter', 'ann', { requestId: 5 })
    ann.state = null
    await bench.join('counter', 'ann', { requestId: 5 })
    expect(ann.state).toEqual({ count: 0, seen: ['ann'] })
    await bench.join('counter', 'ann', { requestId: 6 })
    expect(ann.errors).toMatchObject([{ code: 'already_joined', ref: 6 }])
    expect(bench.describe('counter')?.members).toHaveLength(1)
  })

  /** Edges of the members' sockets, and number of answers to the join. */
  const answered = (bench: RoomBench) => ({
    edges: ['node_a', 'node_b'].filter((edge) => bench.host.rooms[0]!.hasMembersAt(edge)),
    joined: bench.sentOf('update').flatMap(({ joined }) => joined.map(({ member_id: id }) => id)),
  })

  it('is answered again with the same seat at the edge where the session has resumed', async () => {
    const bench = new RoomBench([counter()])
    const ann = await bench.join('counter', 'ann', { requestId: 5 })
    bench.detach('counter', ann)
    await bench.join('counter', 'ann', { requestId: 5, edge: 'node_b', turn: 1 })
    expect(answered(bench)).toEqual({ edges: ['node_b'], joined: ['ann', 'ann'] })
    expect(bench.describe('counter')?.members).toMatchObject([{ member_id: 'ann', connected: true }])
    // The first edge is outdated: its messages have no effect.
    bench.detach('counter', ann)
    await bench.settle()
    expect(answered(bench).edges).toEqual(['node_b'])
  })

  it('that may not create the room is refused, and other waiting joins are not', async () => {
    const bench = new RoomBench([counter()], { quota: { perMinute: 1 } })
    await bench.join('counter', 'ann', { sub: 'ann' })
    const eager = bench.askToJoin('counter', 'eager', { sub: 'ann', key: 'b', requestId: 7 })
    const bob = bench.askToJoin('counter', 'bob', { sub: 'bob', key: 'b' })
    await bench.settle()
    expect(eager.errors).toMatchObject([{ code: 'rate_limited', ref: 7 }])
    expect(bob.state).toEqual({ count: 0, seen: ['bob'] })
    expect(await bench.join('counter', 'eager', { sub: 'ann', key: 'b' })).toMatchObject({ inRoom: true })
  })

  it('is refused if the project has its maximum of rooms, also after its rooms were busy for an hour', async () => {
    const { bench } = await roomWith(counter(), ['ann'], { quota: { maxRooms: 1 } })
    for (let minute = 1; minute <= 60; minute++) {
      bench.message('counter', 'ann', 'inc', { by: 1 }, minute)
      await bench.advance(60_000, 30_000)
    }
    expect(await bench.join('counter', 'bob', { key: 'b' })).toMatchObject({
      inRoom: false,
      errors: [{ code: 'project_full' }],
    })
  })

  // The record of an ended room stays for a while, and former members may attach to the room.
  it('is refused then, too, while a former member attaches to a room that has ended', async () => {
    const { bench, ann } = await roomWith(counter(), ['ann'], { quota: { maxRooms: 1 } })
    bench.send('counter', 'ann', { kind: 'leave', reason: 'left', request_id: 9 })
    await bench.advance(60_000, 1000)
    expect(await bench.join('counter', 'bob', { key: 'b' })).toMatchObject({ inRoom: true })
    bench.attach('counter', ann)
    const eve = bench.askToJoin('counter', 'eve')
    await bench.settle()
    expect(ann.errors).toMatchObject([{ code: 'no_seat' }])
    expect(eve.errors).toMatchObject([{ code: 'project_full' }])
  })

  it.each([
    ['options that do not fit', 'moon', 'invalid_options', /map:/],
    ['a create that throws', 'none', 'room_logic_failed', /^the room's logic failed$/],
    ['an onJoin that refuses', 'closed', 'room_logic_refused', /^this map is closed$/],
  ])('is refused for %s, and no room is left behind', async (_, map, code, message) => {
    const picky = defineRoom({
      type: 'picky',
      options: v.object({ map: v.picklist(['none', 'closed', 'open']) }),
      create: (options): { map: string } => {
        if (options.map === 'none') throw new Error('no such map')
        return options
      },
      onJoin(state, _member, ctx) {
        if (state.map === 'closed') ctx.refuse('this map is closed')
      },
    })
    const bench = new RoomBench([picky])
    const ann = await bench.join('picky', 'ann', { options: { map } })
    expect(ann.errors).toMatchObject([{ code, message: expect.stringMatching(message) }])
    await bench.advance(31_000, 1000)
    expect(bench.host.size).toBe(0)
    const eve = await bench.join('picky', 'eve', { options: { map: 'open' } })
    expect(eve.state).toEqual({ map: 'open' })
  })
})

describe('admit', () => {
  const gates: ((answer: string | undefined) => void)[] = []
  const guarded = defineRoom({
    type: 'guarded',
    maxMembers: 2,
    create: () => ({ here: 0 }),
    admit: (_member, options) => {
      if (options.now) return options.now === 'yes' ? undefined : 'not today'
      return new Promise<string | undefined>((answer) => gates.push(answer))
    },
    onJoin(state) {
      state.here++
    },
  })

  it('refuses a join with a reason, immediately or within 5 s', async () => {
    const bench = new RoomBench([guarded])
    const ann = await bench.join('guarded', 'ann', { options: { now: 'no' } })
    expect(ann.errors).toMatchObject([{ code: 'join_refused', message: 'not today' }])
    const bob = await bench.join('guarded', 'bob')
    expect(bob.errors).toEqual([])
    gates.shift()!('come back tomorrow')
    await bench.settle()
    expect(bob.errors).toMatchObject([{ code: 'join_refused', message: 'come back tomorrow' }])
    const eve = await bench.join('guarded', 'eve')
    await bench.advance(5000, 500)
    const message = expect.stringContaining('5 seconds')
    expect(eve.errors).toMatchObject([{ code: 'join_refused', message }])
    gates.shift()!(undefined)
    await bench.settle()
    expect(eve.inRoom).toBe(false)
  })

  /** In Colyseus and Nakama, a hook that decides on a join returns `false` to refuse it. */
  it.each<[string, unknown, string]>([
    ['false', false, 'false'],
    ['true', true, 'true'],
    ['null', null, 'null'],
    ['0', 0, '0'],
    ['an object', { ok: false }, 'an object with the keys ok'],
    ['a promise of false', Promise.resolve(false), 'false'],
  ])('that returns %s admits nobody, and the log names the valid values', async (_, answer, shown) => {
    const lines: string[] = []
    const log = pino({}, { write: (line) => void lines.push(line) })
    const room = defineRoom({ type: 'gate', create: () => ({ here: 0 }), admit: () => answer as never })
    const { bench, ann } = await roomWith(room, ['ann'], { log })
    expect([ann.inRoom, ann.errors]).toMatchObject([false, [{ code: 'room_logic_failed' }]])
    expect(bench.describe('gate')?.members ?? []).toEqual([])
    expect(lines.join('')).toContain(
      `admit returned ${shown}; return nothing to admit, or a text for the player to refuse`,
    )
  })

  it('is called once for a join that is repeated from the edge where its session has resumed', async () => {
    const bench = new RoomBench([guarded])
    await bench.join('guarded', 'ann', { requestId: 5 })
    await bench.join('guarded', 'ann', { requestId: 5, edge: 'node_b', turn: 1 })
    expect(gates).toHaveLength(1)
    gates.shift()!(undefined)
    await bench.settle()
    const room = bench.host.rooms[0]!
    expect([room.hasMembersAt('node_a'), room.hasMembersAt('node_b')]).toEqual([false, true])
    expect(bench.describe('guarded')?.state).toEqual({ here: 1 })
    expect(bench.sentOf('update').at(-1)?.joined).toMatchObject([{ member_id: 'ann', request_id: 5 }])
  })

  it('counts as a taken place while it runs, so that simultaneous joins respect maxMembers', async () => {
    const { bench, ann, bob, eve } = await roomWith(guarded, ['ann', 'bob', 'eve'])
    expect(eve.errors).toMatchObject([{ code: 'room_full' }])
    for (const gate of gates.splice(0)) gate(undefined)
    await bench.advance(100)
    expect([ann.inRoom, bob.inRoom, eve.inRoom]).toEqual([true, true, false])
    expect(bench.describe('guarded')?.state).toEqual({ here: 2 })
  })

  it('delays no other member, and is cancelled when the session ends', async () => {
    const { bench, ann } = await roomWith(guarded, ['ann'])
    const bob = await bench.join('guarded', 'bob', { options: { now: 'yes' } })
    await bench.advance(100)
    expect([ann.inRoom, bob.inRoom]).toEqual([false, true])
    bench.send('guarded', 'ann', { kind: 'leave', reason: 'session_ended' })
    gates.shift()!(undefined)
    await bench.advance(100)
    expect(ann.inRoom).toBe(false)
    expect((await bench.join('guarded', 'eve', { options: { now: 'yes' } })).errors).toEqual([])
  })

  // The socket was lost while `admit` ran, and then its edge died, so the session's end was never reported. A
  // membership that starts without a socket was not checked again: the member stayed, and so did the room.
  it('leaves no membership of a session that has ended while it ran', async () => {
    const { bench, ann } = await roomWith(guarded, ['ann'], { limits: { detachedMs: 2000 } })
    bench.detach('guarded', ann)
    gates.shift()!(undefined)
    await bench.advance(100)
    expect(bench.describe('guarded')?.members).toMatchObject([{ member_id: 'ann', connected: false }])
    await bench.advance(3000, 100)
    expect(bench.describe('guarded')?.members).toEqual([])
  })
})

describe('a departure', () => {
  it('acks earlier messages, sends left to the member, and is announced to the others', async () => {
    const { bench, ann, bob } = await roomWith(counter(), ['ann', 'bob'])
    bench.message('counter', 'bob', 'inc', { by: 2 }, 1)
    bench.send('counter', 'bob', { kind: 'leave', reason: 'left', request_id: 7 })
    await bench.settle()
    expect([bob.acked, bob.heard.at(-1), bob.inRoom]).toEqual([1, '-bob left', false])
    expect(ann.state).toEqual({ count: 2, seen: ['ann'] })
    expect(ann.heard.slice(-2)).toEqual(['bye 1', '-bob left'])
    expect(ann.members.map(({ member_id: memberId }) => memberId)).toEqual(['ann'])
    bench.message('counter', 'bob', 'inc', { by: 2 }, 2)
    expect(bob.errors).toMatchObject([{ code: 'no_seat' }])
  })

  it('by a kick sends the member its events until then, and then left', async () => {
    const { bench, ann, bob } = await roomWith(counter(), ['ann', 'bob'])
    await bench.say('counter', 'ann', 'out', { who: 'bob' })
    expect(bob.heard.slice(-2)).toEqual(['you_are_out null', '-bob kicked'])
    expect([bob.inRoom, bob.faults]).toEqual([false, []])
    expect([ann.heard.at(-1), ann.faults]).toEqual(['-bob kicked', []])
  })

  it('in the flush of the join is not announced to the others', async () => {
    const { bench, ann } = await roomWith(counter({ rate: 10 }), ['ann'])
    await bench.advance(200)
    await bench.say('counter', 'ann', 'inc', { by: 1 })
    bench.askToJoin('counter', 'bob')
    bench.send('counter', 'bob', { kind: 'leave', reason: 'left', request_id: 3 })
    await bench.advance(200)
    expect(bench.members.get('bob')!.heard).toEqual([])
    expect(ann.heard.filter((news) => news.startsWith('+') || news.startsWith('-'))).toEqual([])
    expect([ann.state, ann.faults]).toEqual([{ count: 1, seen: ['ann'] }, []])
  })

  it('of all members by ctx.close ends the room, and the next join creates a new one', async () => {
    const { bench, ann, bob } = await roomWith(counter(), ['ann', 'bob'])
    bench.message('counter', 'ann', 'inc', { by: 5 })
    bench.message('counter', 'bob', 'end', null, 1)
    bench.message('counter', 'bob', 'inc', { by: 5 }, 2)
    const eve = bench.askToJoin('counter', 'eve')
    await bench.settle()
    expect(ann.heard.slice(-2)).toEqual(['over null', '-ann closed'])
    expect(bob.heard.slice(-2)).toEqual(['over null', '-bob closed'])
    expect(bob.acked).toBe(1)
    expect(eve.state).toEqual({ count: 0, seen: ['eve'] })
    expect(bench.host).toMatchObject({ size: 1, members: 1 })
  })

  it('of a player who is banned from the room type runs onLeave, and others see it as kicked', async () => {
    const left: string[] = []
    const { bench, bob } = await roomWith(
      { ...counter(), onLeave: (_, member) => void left.push((member as { id: string }).id) },
      ['ann', 'bob'],
    )
    bench.send('counter', 'ann', { kind: 'leave', reason: 'kicked' })
    await bench.settle()
    expect(left).toEqual(['ann'])
    expect(bob.heard.at(-1)).toBe('-ann kicked')
    expect(bench.host.members).toBe(1)
  })

  it('of the last member disposes the room after its idle time, and deletes its record', async () => {
    const { bench } = await roomWith(counter(), ['ann'])
    bench.send('counter', 'ann', { kind: 'leave', reason: 'session_ended' })
    await bench.advance(9000, 500)
    // A room with a silent member is not idle.
    await bench.join('counter', 'bob')
    await bench.advance(60_000, 1000)
    expect(bench.host.size).toBe(1)
    bench.send('counter', 'bob', { kind: 'leave', reason: 'session_ended' })
    await bench.advance(9000, 500)
    expect(bench.host.size).toBe(1)
    await bench.advance(2000, 500)
    expect(bench.host).toMatchObject({ size: 0, members: 0 })
    const { rooms } = bench.store.store
    expect(await rooms.inspect('prj_test/counter:a')).toMatchObject({ owner: null })
    const ann = await bench.join('counter', 'ann2')
    expect(ann.state).toEqual({ count: 0, seen: ['ann2'] })
  })
})

describe('a member', () => {
  it('that asks for the state gets the same frame as others that ask for it', async () => {
    const { bench, ann, bob } = await roomWith(counter(), ['ann', 'bob'])
    ann.state = null
    bench.resync('counter', ann, 'checksum')
    bench.resync('counter', bob, 'sequence')
    const [first, second] = bench.sentOf('state')
    expect(ann.state).toEqual(bob.state)
    expect(first!.state['roomful.v1.msgpack']).toBe(second!.state['roomful.v1.msgpack'])
    expect(bench.counts).toMatchObject({ 'resync checksum': 1, 'resync sequence': 1 })
  })

  it('without a socket is removed after two minutes, if no edge reports the end of its session', async () => {
    const { bench, ann } = await roomWith(counter(), ['ann'])
    bench.detach('counter', ann)
    await bench.advance(100_000, 1000)
    expect(bench.describe('counter')?.members).toMatchObject([{ connected: false }])
    await bench.advance(40_000, 1000)
    expect(bench.host.size).toBe(0)
    ann.heard.length = 0
    await bench.resume('counter', ann)
    expect(ann.heard).toEqual(['-ann session_ended: the connection was not back within 120 s: join again'])
    await bench.advance(120_000, 1000)
    await bench.resume('counter', ann)
    expect(ann.errors).toMatchObject([{ code: 'no_seat' }])
  })
})

describe('ctx.kick with ban', () => {
  const hall = (durability: Durability = 'journal') =>
    defineRoom({
      type: 'hall',
      sync: { rate: 0 },
      durability,
      messages: {
        ban: { data: v.string() },
        unban: { data: v.string(), reply: v.boolean() },
        many: { data: v.number() },
        fail: { data: v.string() },
      },
      create: () => ({}),
      onMessage(_state, input, ctx) {
        if (input.type === 'unban') return ctx.reply(ctx.unban(input.data))
        if (input.type === 'many')
          for (let i = 0; i < input.data; i++)
            ctx.kick({ id: `m${i}`, sub: `p${i}`, connected: true, data: null }, 'out', { ban: true })
        else ctx.kick(input.data, 'no manners', { ban: true })
        if (input.type === 'fail') throw new Error('half way')
      },
    })

  async function hallOf(durability?: Durability, seats: Record<string, string | undefined> = {}) {
    const bench = new RoomBench([hall(durability)], { revealFailures: true })
    const host = await bench.join('hall', 'host', { sub: 'host' })
    for (const [name, sub] of Object.entries(seats)) await bench.join('hall', name, sub ? { sub } : {})
    return { bench, host }
  }

  const joinCodes = async (bench: RoomBench, sub: string) =>
    (await bench.join('hall', `again-${sub}-${bench.clock.now()}-${bench.sent.length}`, { sub })).errors.map(
      ({ code }) => code,
    )

  it('removes every seat of the player, and refuses its joins until ctx.unban', async () => {
    const { bench, host } = await hallOf('journal', { eve: 'eve', eve2: 'eve', bob: 'bob' })
    await bench.say('hall', 'host', 'ban', 'eve', 1)
    expect(host.members.map(({ member_id: id }) => id)).toEqual(['host', 'bob'])
    expect(await joinCodes(bench, 'eve')).toEqual(['banned'])
    expect(await joinCodes(bench, 'ann')).toEqual([])
    bench.message('hall', 'host', 'unban', 'eve', 2)
    await bench.say('hall', 'host', 'unban', 'eve', 3)
    expect(host.replies.map(({ reply }) => reply)).toEqual([true, false])
    expect(await joinCodes(bench, 'eve')).toEqual([])
  })

  it('does not ban if the turn fails', async () => {
    const { bench } = await hallOf('journal', { eve: 'eve' })
    await bench.say('hall', 'host', 'fail', 'eve', 1)
    expect(await joinCodes(bench, 'eve')).toEqual([])
  })

  it.each([
    ['a member without sub', 'nameless', /nameless, whose token has no sub/],
    ['an id that no member has', 'gone', /"gone", which no member has/],
  ])('throws for %s', async (_, id, why) => {
    const { bench, host } = await hallOf('journal', { nameless: undefined })
    await bench.say('hall', 'host', 'ban', id, 1)
    expect(host.errors).toMatchObject([{ message: expect.stringMatching(why) }])
  })

  it('throws at the 1,001st ban', async () => {
    const { bench, host } = await hallOf()
    await bench.say('hall', 'host', 'many', 1001, 1)
    expect(host.errors).toMatchObject([{ message: expect.stringContaining('1000 bans') }])
    host.errors.length = 0
    await bench.say('hall', 'host', 'many', 1000, 2)
    expect([host.errors, await joinCodes(bench, 'p999')]).toEqual([[], ['banned']])
  })

  it.each(['journal', 'snapshot'] as const)(
    'in a %s room is kept by the next owner, also if the owner dies right after the ack',
    async (durability) => {
      const { bench, host } = await hallOf(durability, { eve: 'eve', mallory: 'mallory' })
      await bench.advance(1000, 50)
      bench.message('hall', 'host', 'ban', 'mallory', 1)
      await bench.say('hall', 'host', 'ban', 'eve', 2)
      await bench.say('hall', 'host', 'unban', 'mallory', 3)
      expect(host.acked).toBe(3)
      const heir = bench.successor([host])
      heir.attach('hall', host)
      await heir.settle()
      expect([await joinCodes(heir, 'eve'), await joinCodes(heir, 'mallory')]).toEqual([['banned'], []])
    },
  )

  it('in a snapshot room is acked after the write of the snapshot', async () => {
    const { bench, host } = await hallOf('snapshot', { eve: 'eve' })
    await bench.advance(1000, 50)
    bench.store.mood = 'slow'
    await bench.say('hall', 'host', 'ban', 'eve', 1)
    expect(host.acked).toBe(0)
    bench.store.let()
    await bench.settle()
    expect(host.acked).toBe(1)
  })
})

describe('reservations', () => {
  interface Rules {
    durability?: Durability
    maxMembers?: number
    onIdle?: 'sleep' | 'dispose'
    /** Promise that `admit` awaits. */
    admit?: Promise<string | undefined>
  }

  const table = ({ durability = 'journal', maxMembers = 2, onIdle = 'dispose', admit }: Rules = {}) =>
    defineRoom({
      type: 'table',
      sync: { rate: 0 },
      durability,
      maxMembers,
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
    const parts = Array.from({ length: WAKEUP_PARTS }, (_, part) =>
      store.store.wakeups.take(part, { limit: 10, againMs: 1 }),
    )
    return (await Promise.all(parts)).flat().map(({ room }) => room)
  }

  /** The owner crashes. Returns a node that opens the room when `host` resumes. */
  async function heirOf({ bench, host }: Awaited<ReturnType<typeof tableOf>>) {
    bench.mayAct = false
    await bench.die()
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
      await bench.settle()
      expect([one.inRoom, reserved(bench)]).toEqual([true, []])
    })

    it('counts one seat for a player while admit runs for the join', async () => {
      const { bench, reserve } = await tableOf({ maxMembers: 3, admit: new Promise(() => {}) })
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
      const { bench, ask, reserve } = await tableOf({ maxMembers: 3 })
      const eve = await bench.join('table', 'eve', { sub: 'eve' })
      bench.send('table', 'eve', { kind: 'leave', request_id: 1, reason: 'left' })
      await bench.settle()
      expect([eve.inRoom, await reserve('eve')]).toEqual([false, true])
      await bench.join('table', 'eve2', { sub: 'eve' })
      await ask('ban', 'eve2')
      expect([reserved(bench), await reserve('eve')]).toEqual([[], false])
    })

    it('keeps at most 1,000 reservations in a room without maxMembers', async () => {
      const { ask } = await tableOf({ maxMembers: 10_000 })
      expect(await ask('many', 1200)).toBe(1000)
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
      const one = await tableOf({ maxMembers: 3 })
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
      await bench.settle()
      expect(host.replies).toMatchObject([{ reply: true }])
    })

    it.each(['dispose', 'sleep'] as const)(
      'outlives the owner of an empty room (onIdle: %s), and the store wakes the room at its end',
      async (onIdle) => {
        const { bench, reserve } = await tableOf({ onIdle })
        await reserve('ada', 300)
        bench.send('table', 'host', { kind: 'leave', request_id: 1, reason: 'left' })
        await bench.advance(12_000, 100)
        expect(bench.host.size).toBe(0)
        bench.clock.advance(287_000)
        expect(await woken(bench)).toEqual([])
        bench.clock.advance(1100)
        expect(await woken(bench)).toEqual(['prj_test/table:a'])
      },
    )

    it('in an empty sleeping room is kept until a player joins', async () => {
      const { bench, reserve } = await tableOf()
      await reserve('ada', 300)
      bench.send('table', 'host', { kind: 'leave', request_id: 1, reason: 'left' })
      await bench.advance(12_000, 100)
      expect(bench.host.size).toBe(0)
      expect(await join(bench, 'bob')).toBeUndefined()
      expect(await join(bench, 'carol')).toBe('room_full')
      expect(await join(bench, 'ada')).toBeUndefined()
    })
  })
})
