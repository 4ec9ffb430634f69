import { pino } from 'pino'
import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { counter } from '../../test/support/rooms/counter-room.ts'
import { RoomBench, roomWith } from '../../test/support/rooms/room-bench.ts'
import { RecordingTracer } from '../../test/support/tracing.ts'
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
    edges: ['node_a', 'node_b'].filter((edge) =>
      bench.host.rooms.running[0]!.core.memberships.edges.has(edge),
    ),
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
    await bench.untilIdle()
    expect(answered(bench).edges).toEqual(['node_b'])
  })

  it('that is repeated gets no new seat while the `left` of its seat is on the way, which would end it', async () => {
    const bench = new RoomBench([counter({ rate: 20 })])
    await bench.join('counter', 'ann', { requestId: 5 })
    await bench.advance(100)
    bench.sent.length = 0
    bench.send('counter', 'ann', { kind: 'leave', reason: 'kicked' })
    await bench.join('counter', 'ann', { requestId: 5 })
    await bench.advance(100)
    await bench.join('counter', 'ann', { requestId: 5 })
    await bench.advance(100)
    const answers = bench.sent.filter(({ kind }) => kind !== 'update')
    expect(answers.map(({ kind }) => kind)).toEqual(['no_seat', 'left', 'left'])
    expect(bench.describe('counter')?.members).toEqual([])
  })

  it('that may not create the room is refused, and other waiting joins are not', async () => {
    const bench = new RoomBench([counter()], { quota: { perMinute: 1 } })
    await bench.join('counter', 'ann', { sub: 'ann' })
    const eager = bench.askToJoin('counter', 'eager', { sub: 'ann', key: 'b', requestId: 7 })
    const bob = bench.askToJoin('counter', 'bob', { sub: 'bob', key: 'b' })
    await bench.untilIdle()
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
    bench.leave('counter', 'ann')
    await bench.advance(60_000, 1000)
    expect(await bench.join('counter', 'bob', { key: 'b' })).toMatchObject({ inRoom: true })
    bench.attach('counter', ann)
    const eve = bench.askToJoin('counter', 'eve')
    await bench.untilIdle()
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
    expect(bench.host.rooms.size).toBe(0)
    const eve = await bench.join('picky', 'eve', { options: { map: 'open' } })
    expect(eve.state).toEqual({ map: 'open' })
  })
})

describe('admit', () => {
  const gates: ((answer: string | undefined) => void)[] = []
  const guarded = defineRoom({
    type: 'guarded',
    maxPlayers: 2,
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
    await bench.untilIdle()
    expect(bob.errors).toMatchObject([{ code: 'join_refused', message: 'come back tomorrow' }])
    const eve = await bench.join('guarded', 'eve')
    await bench.advance(5000, 500)
    const message = expect.stringContaining('5 seconds')
    expect(eve.errors).toMatchObject([{ code: 'join_refused', message }])
    gates.shift()!(undefined)
    await bench.untilIdle()
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
    await bench.untilIdle()
    const { edges } = bench.host.rooms.running[0]!.core.memberships
    expect([edges.has('node_a'), edges.has('node_b')]).toEqual([false, true])
    expect(bench.describe('guarded')?.state).toEqual({ here: 1 })
    expect(bench.sentOf('update').at(-1)?.joined).toMatchObject([{ member_id: 'ann', request_id: 5 }])
  })

  it('counts as a taken place while it runs, so that simultaneous joins respect maxPlayers', async () => {
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

  // The socket was lost while `admit` ran, and then its edge died, so the session's end was never reported. A membership that starts
  // without a socket was not checked again: the member stayed, and so did the room.
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
    bench.leave('counter', 'bob')
    await bench.untilIdle()
    expect([bob.acked, bob.heard.at(-1), bob.inRoom]).toEqual([1, '-bob left', false])
    expect(ann.state).toEqual({ count: 2, seen: ['ann'] })
    expect(ann.heard.slice(-2)).toEqual(['bye 1', '-bob'])
    expect(ann.members.map(({ member_id: memberId }) => memberId)).toEqual(['ann'])
    bench.message('counter', 'bob', 'inc', { by: 2 }, 2)
    expect(bob.errors).toMatchObject([{ code: 'no_seat' }])
  })

  it('by a kick sends the member its events until then, and then left', async () => {
    const { bench, ann, bob } = await roomWith(counter(), ['ann', 'bob'])
    await bench.say('counter', 'ann', 'out', { who: 'bob' })
    expect(bob.heard.slice(-2)).toEqual(['you_are_out null', '-bob kicked'])
    expect([bob.inRoom, bob.faults]).toEqual([false, []])
    expect([ann.heard.at(-1), ann.faults]).toEqual(['-bob', []])
  })

  it('in the flush of the join is not announced to the others', async () => {
    const { bench, ann } = await roomWith(counter({ rate: 10 }), ['ann'])
    await bench.advance(200)
    await bench.say('counter', 'ann', 'inc', { by: 1 })
    bench.askToJoin('counter', 'bob')
    bench.leave('counter', 'bob')
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
    await bench.untilIdle()
    expect(ann.heard.slice(-2)).toEqual(['over null', '-ann closed'])
    expect(bob.heard.slice(-2)).toEqual(['over null', '-bob closed'])
    expect(bob.acked).toBe(1)
    expect(eve.state).toEqual({ count: 0, seen: ['eve'] })
    expect(bench.host.rooms).toMatchObject({ size: 1, members: 1 })
  })

  it('of a player who is banned from the room type runs onLeave, and others see it as kicked', async () => {
    const left: string[] = []
    const { bench, bob } = await roomWith(
      { ...counter(), onLeave: (_, member) => void left.push((member as { id: string }).id) },
      ['ann', 'bob'],
    )
    bench.send('counter', 'ann', { kind: 'leave', reason: 'kicked' })
    await bench.untilIdle()
    expect(left).toEqual(['ann'])
    expect(bob.heard.at(-1)).toBe('-ann')
    expect(bench.host.rooms.members).toBe(1)
  })

  it('of the last member disposes the room after its idle time, and deletes its record', async () => {
    const { bench } = await roomWith(counter(), ['ann'])
    bench.send('counter', 'ann', { kind: 'leave', reason: 'session_ended' })
    await bench.advance(9000, 500)
    // A room with a silent member is not idle.
    await bench.join('counter', 'bob')
    await bench.advance(60_000, 1000)
    expect(bench.host.rooms.size).toBe(1)
    bench.send('counter', 'bob', { kind: 'leave', reason: 'session_ended' })
    await bench.advance(9000, 500)
    expect(bench.host.rooms.size).toBe(1)
    await bench.advance(2000, 500)
    expect(bench.host.rooms).toMatchObject({ size: 0, members: 0 })
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
    expect(first!.state.patch?.['roomful.v1.msgpack']).toBe(second!.state.patch?.['roomful.v1.msgpack'])
    expect(bench.counts).toMatchObject({ 'resync checksum': 1, 'resync sequence': 1 })
  })

  it('without a socket is removed after two minutes, if no edge reports the end of its session', async () => {
    const { bench, ann } = await roomWith(counter(), ['ann'])
    bench.detach('counter', ann)
    await bench.advance(100_000, 1000)
    expect(bench.describe('counter')?.members).toMatchObject([{ connected: false }])
    await bench.advance(40_000, 1000)
    expect(bench.host.rooms.size).toBe(0)
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
            ctx.kick({ id: `m${i}`, sub: `p${i}`, connected: true, spectator: false, data: null }, 'out', {
              ban: true,
            })
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

  const refusals = async (bench: RoomBench, sub: string) =>
    (await bench.join('hall', `again-${sub}-${bench.clock.now()}-${bench.sent.length}`, { sub })).errors.map(
      ({ code, message }) => `${code}: ${message}`,
    )

  it('removes every seat of the player, and refuses its joins until ctx.unban', async () => {
    const { bench, host } = await hallOf('journal', { eve: 'eve', eve2: 'eve', bob: 'bob' })
    await bench.say('hall', 'host', 'ban', 'eve', 1)
    expect(host.members.map(({ member_id: id }) => id)).toEqual(['host', 'bob'])
    expect(await refusals(bench, 'eve')).toEqual(['banned: no manners'])
    expect(await refusals(bench, 'ann')).toEqual([])
    bench.message('hall', 'host', 'unban', 'eve', 2)
    await bench.say('hall', 'host', 'unban', 'eve', 3)
    expect(host.replies.map(({ reply }) => reply)).toEqual([true, false])
    expect(await refusals(bench, 'eve')).toEqual([])
  })

  it('does not ban if the turn fails', async () => {
    const { bench } = await hallOf('journal', { eve: 'eve' })
    await bench.say('hall', 'host', 'fail', 'eve', 1)
    expect(await refusals(bench, 'eve')).toEqual([])
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
    expect([host.errors, await refusals(bench, 'p999')]).toEqual([[], ['banned: out']])
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
      await heir.untilIdle()
      expect([await refusals(heir, 'eve'), await refusals(heir, 'mallory')]).toEqual([
        ['banned: no manners'],
        [],
      ])
    },
  )

  it('in a snapshot room is acked after the write of the snapshot', async () => {
    const { bench, host } = await hallOf('snapshot', { eve: 'eve' })
    await bench.advance(1000, 50)
    bench.store.mood = 'slow'
    await bench.say('hall', 'host', 'ban', 'eve', 1)
    expect(host.acked).toBe(0)
    bench.store.let()
    await bench.untilIdle()
    expect(host.acked).toBe(1)
  })
})

describe('spans', () => {
  const EDGE = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'

  /** A room whose `admit` waits for the test. */
  function guarded() {
    const gates: ((answer: string | undefined) => void)[] = []
    const room = defineRoom({
      type: 'guarded',
      maxPlayers: 2,
      create: () => ({}),
      durability: 'journal',
      admit: () => new Promise<string | undefined>((answer) => gates.push(answer)),
    })
    return { room, gates }
  }

  function traced(rooms: ConstructorParameters<typeof RoomBench>[0]) {
    const clock = new FakeClock()
    const tracer = new RecordingTracer(clock)
    return { tracer, bench: new RoomBench(rooms, { clock, tracer }) }
  }

  describe('the span of a join at the owner of the room', () => {
    it('lasts from the arrival of the join to the delivery of its flush', async () => {
      const { room, gates } = guarded()
      const { tracer, bench } = traced([room])
      await bench.join('guarded', 'ann', { traceparent: EDGE })
      await bench.advance(200)
      bench.store.mood = 'slow'
      gates.shift()!(undefined)
      await bench.untilIdle()
      await bench.advance(70)
      expect(tracer.open).toEqual(['room.join'])
      bench.store.let()
      await bench.untilIdle()
      expect(tracer.ended).toEqual(['room.join joined'])
      expect(tracer.spans).toMatchObject([
        {
          parent: EDGE,
          took: 270,
          attributes: {
            'roomful.room_id': 'guarded:a',
            'roomful.room_type': 'guarded',
            'roomful.session_id': 'ses_of_ann',
          },
        },
      ])
    })

    it('does not exist if the edge records none, or does not know traces', async () => {
      const { tracer, bench } = traced([counter()])
      await bench.join('counter', 'ann')
      expect(tracer.spans).toEqual([])
    })

    it('starts once, however often the edge sends the join', async () => {
      const { room, gates } = guarded()
      const { tracer, bench } = traced([room])
      for (let i = 0; i < 3; i++) await bench.join('guarded', 'ann', { requestId: 1, traceparent: EDGE })
      gates.shift()!(undefined)
      await bench.advance(200)
      await bench.join('guarded', 'ann', { requestId: 1, traceparent: EDGE })
      expect(tracer.spans).toHaveLength(1)
      expect(tracer.open).toEqual([])
    })

    it('has the reason why there was no membership', async () => {
      const { room, gates } = guarded()
      const { tracer, bench } = traced([room])
      for (const name of ['ann', 'bob', 'eve']) await bench.join('guarded', name, { traceparent: EDGE })
      gates.shift()!('not today')
      bench.send('guarded', 'bob', { kind: 'leave', reason: 'session_ended' })
      await bench.join('guarded', 'late', { traceparent: EDGE })
      await bench.host.close()
      expect(tracer.open).toEqual([])
      expect(tracer.ended).toEqual([
        'room.join join_refused',
        'room.join session_ended',
        'room.join room_full',
        'room.join late',
      ])
    })

    it.each(['left', 'fenced'])('ends if the join fails behind a commit: %s', async (ending) => {
      const { room, gates } = guarded()
      const { tracer, bench } = traced([room])
      await bench.join('guarded', 'bob')
      bench.store.mood = 'slow'
      gates.shift()!(undefined)
      await bench.untilIdle()
      // It waits behind the flush with bob, which is in flight.
      await bench.join('guarded', 'ann', { traceparent: EDGE })
      gates.shift()!(undefined)
      await bench.untilIdle()
      expect(tracer.open).toEqual(['room.join'])
      if (ending === 'left') bench.leave('guarded', 'ann')
      // Another node owns the room.
      else await bench.claimed('guarded')
      bench.store.mood = 'fine'
      bench.store.let()
      await bench.advance(200)
      expect(tracer.open).toEqual([])
      expect(tracer.ended).toContain(`room.join ${ending}`)
    })
  })
})
