import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import type { Json } from '../../shared/json.ts'
import { RoomBench } from '../../test/support/rooms/room-bench.ts'
import type { TestMember } from '../../test/support/rooms/test-member.ts'
import { type Durability, defineRoom } from './definition.ts'
import type { Member, RoomContext } from './definition-types.ts'

interface Rules {
  maxPlayers?: number
  max?: number
  visible?: boolean
  sameSub?: 'allow' | 'replace' | 'refuse'
  durability?: Durability
  sync?: { rate: number }
  onIdle?: 'dispose' | 'sleep'
  idleSeconds?: number
  admit?: (member: Member) => Promise<string | undefined>
  /** Called in the hooks, to change more roles, to refuse or to throw. */
  hook?: (name: string, member: Member, ctx: RoomContext) => void
}

/** A room that writes down the calls of its hooks. Its secret is for players. */
const quiz = ({ max = 2, visible = false, hook, ...rules }: Rules = {}) => {
  const called = (name: string) =>
    function (this: void, state: { log: string[] }, member: Member, ctx: RoomContext, options?: unknown) {
      const more = options === undefined ? '' : ` ${JSON.stringify(options)}`
      state.log.push(`${name} ${member.id}${more}`)
      if (name === 'onJoin') ctx.show(member, 'players')
      hook?.(name, member, ctx)
    }
  const by = { data: v.object({ id: v.string() }), reply: v.boolean() }
  return defineRoom({
    type: 'quiz',
    maxPlayers: 2,
    options: v.object({ colour: v.optional(v.string(), 'grey') }),
    spectators: { max, visible, onJoin: called('watches'), onLeave: called('stops') },
    layers: { secret: 'players' },
    sync: { rate: 0 },
    create: () => ({ log: [] as string[], secret: 'hidden' }),
    messages: {
      seat: { ...by, handle: (_, { data }, ctx) => ctx.reply(ctx.seat(data.id)) },
      unseat: { ...by, handle: (_, { data }, ctx) => ctx.reply(ctx.unseat(data.id)) },
      reserve: { data: v.string(), handle: (_, { data }, ctx) => void ctx.reserve(data, 300) },
      keep: {
        data: v.string(),
        handle(state, { data }) {
          state.secret = data
        },
      },
      cheer: { spectators: true, handle: (state, { member }) => void state.log.push(`cheer ${member.id}`) },
    },
    onJoin: called('onJoin'),
    onLeave: called('onLeave'),
    onDisconnect: called('onDisconnect'),
    onReconnect: called('onReconnect'),
    ...rules,
  })
}

/** Ann and Bob play, and Cem watches. */
async function room(rules?: Rules, { players = ['ann', 'bob'], watch = ['cem'] } = {}) {
  const bench = new RoomBench([quiz(rules)])
  const members: Record<string, TestMember> = {}
  for (const id of players) members[id] = await bench.join('quiz', id, { sub: id })
  for (const id of watch) members[id] = await bench.join('quiz', id, { sub: id, watch: true })
  return { bench, ...members } as { bench: RoomBench } & Record<'ann' | 'bob' | 'cem' | 'dan', TestMember>
}

/** Sends a message that has a reply, and returns the reply. */
async function ask(bench: RoomBench, member: TestMember, name: string, data: Json): Promise<unknown> {
  const asked = member.acked + 1
  await bench.say('quiz', member.memberId, name, data, asked)
  return member.replies.find(({ ref }) => ref === asked)?.reply
}

const codes = ({ errors }: TestMember) => errors.map(({ code }) => code)
const ids = ({ members }: TestMember) => members.map(({ member_id: id }) => id)
const log = ({ state }: TestMember) => (state as { log: string[] }).log
const roles = (bench: RoomBench) =>
  Object.fromEntries(
    bench
      .describe('quiz')!
      .members.map(({ member_id: id, spectator }) => [id, spectator ? 'watches' : 'plays']),
  )
const faults = (bench: RoomBench) => [...bench.members.values()].flatMap((member) => member.faults)

describe('a spectator', () => {
  it('takes no place of a player, and no player takes its place', async () => {
    const { bench, cem } = await room({}, { watch: ['cem', 'dan'] })
    const eve = await bench.join('quiz', 'eve', { watch: true })
    const fay = await bench.join('quiz', 'fay')
    expect([codes(cem), codes(eve), codes(fay)]).toEqual([[], ['room_full'], ['room_full']])
    expect(roles(bench)).toEqual({ ann: 'plays', bob: 'plays', cem: 'watches', dan: 'watches' })
  })

  it('is in no list, and its join and leave move no seq when they change no state', async () => {
    const silent = defineRoom({
      type: 'silent',
      sync: { rate: 0 },
      spectators: { max: 5 },
      create: () => ({}),
    })
    const bench = new RoomBench([silent])
    const ann = await bench.join('silent', 'ann')
    const { seq, received } = ann
    const frames = received.length
    const cem = await bench.join('silent', 'cem', { watch: true })
    expect([ids(cem), cem.spectators, cem.seq]).toEqual([['ann'], 1, seq])
    bench.leave('silent', 'cem')
    await bench.advance(1100)
    // Only the number of spectators is sent: 1, and 0 again.
    expect([ann.seq, ids(ann), ann.received.length - frames, ann.spectators]).toEqual([seq, ['ann'], 2, 0])
    for (const watching of [0, 1]) {
      if (watching) await bench.join('silent', 'dan', { watch: true })
      bench.resync('silent', ann, 'checksum')
      await bench.untilIdle()
      expect(ann.spectators).toBe(watching)
    }
    expect(faults(bench)).toEqual([])
  })

  it('gets the updates of the room in the same bytes as the players', async () => {
    const { bench, ann, cem } = await room()
    const seen = [ann.received.length, cem.received.length]
    await bench.say('quiz', 'cem', 'cheer', null)
    expect(cem.received.slice(seen[1])).toEqual(ann.received.slice(seen[0]))
    expect(log(cem).at(-1)).toBe('cheer cem')
  })

  it('sends only messages whose type allows it', async () => {
    const { bench, cem } = await room()
    await bench.say('quiz', 'cem', 'keep', 'mine', 1)
    await bench.say('quiz', 'cem', 'cheer', null, 2)
    expect([codes(cem), cem.acked, log(cem).at(-1)]).toEqual([['not_a_player'], 2, 'cheer cem'])
  })

  it('has no hooks for its connection', async () => {
    const { bench, ann, cem } = await room()
    bench.detach('quiz', cem)
    await bench.untilIdle()
    await bench.resume('quiz', cem, 1)
    expect(log(ann)).toEqual(log(cem))
    expect(log(ann).filter((line) => line.includes('connect'))).toEqual([])
  })

  it('is refused by a room type without spectators, and makes no room', async () => {
    const plain = defineRoom({ type: 'plain', create: () => ({}) })
    const bench = new RoomBench([plain, quiz()])
    await bench.join('plain', 'ann')
    const cem = await bench.join('plain', 'cem', { watch: true })
    const dan = await bench.join('quiz', 'dan', { watch: true })
    expect([codes(cem), codes(dan)]).toEqual([['invalid_options'], ['room_not_found']])
  })

  it('is asked by admit, and holds a place while admit decides', async () => {
    let admit: ((verdict: string | undefined) => void) | undefined
    const decide = ({ spectator }: Member) =>
      spectator
        ? new Promise<string | undefined>((resolve) => {
            admit = resolve
          })
        : Promise.resolve(undefined)
    const bench = new RoomBench([quiz({ max: 1, admit: decide })])
    await bench.join('quiz', 'ann')
    await bench.join('quiz', 'cem', { watch: true })
    const dan = await bench.join('quiz', 'dan', { watch: true })
    expect(codes(dan)).toEqual(['room_full'])
    admit?.('no watchers today')
    await bench.untilIdle()
    expect(bench.members.get('cem')!.errors).toMatchObject([
      { code: 'join_refused', message: 'no watchers today' },
    ])
  })

  it('may join with at most 1 KiB of options, because the room keeps them', async () => {
    const bench = new RoomBench([quiz()])
    const ann = await bench.join('quiz', 'ann', { options: { colour: 'x'.repeat(1024) } })
    const bob = await bench.join('quiz', 'bob', { options: { colour: 'x'.repeat(1000) } })
    expect([codes(ann), codes(bob)]).toEqual([['invalid_options'], []])
  })

  it.each([
    ['options of more than 1 KiB', { options: { colour: 'x'.repeat(1024) } }, 'invalid_options'],
    ['a client that does not understand its layers', { layers: false }, 'client_outdated'],
  ])('makes no room with %s', async (_what, options, code) => {
    const bench = new RoomBench([quiz()])
    expect(codes(await bench.join('quiz', 'ann', options))).toEqual([code])
    expect(bench.host.rooms.claimed).toBe(0)
  })
})

describe('the number of spectators', () => {
  it('follows each whole state and each resume, and then each change at most once a second', async () => {
    const { bench, ann, cem } = await room({ max: 50 })
    expect(cem.spectators).toBe(1)
    await bench.advance(2000)
    const before = bench.sentOf('spectators').length
    for (let i = 0; i < 10; i++) {
      await bench.join('quiz', `dan${i}`, { watch: true })
      await bench.advance(100)
    }
    expect([bench.sentOf('spectators').length - before, ann.spectators]).toEqual([2, 11])
    bench.detach('quiz', ann)
    await bench.join('quiz', 'eve', { watch: true })
    ann.spectators = undefined
    await bench.resume('quiz', ann, 1)
    expect([ann.spectators, ann.faults]).toEqual([12, []])
    ann.spectators = undefined
    bench.resync('quiz', ann, 'checksum')
    await bench.untilIdle()
    expect(ann.spectators).toBe(12)
  })
})

describe('what a spectator may see', () => {
  it('begins with its join: a resume from before it gets a whole state', async () => {
    const { bench, ann } = await room({}, { players: ['ann'], watch: [] })
    await bench.say('quiz', 'ann', 'cheer', null)
    const seq = ann.seq
    const cem = await bench.join('quiz', 'cem', { watch: true })
    await bench.say('quiz', 'ann', 'cheer', null)
    const [heir] = [bench.successor([ann, cem])]
    for (const [owner, turn] of [
      [bench, 1],
      [heir, 2],
    ] as const) {
      if (owner === bench) bench.members.set('cem', cem)
      cem.seq = seq
      expect((await owner.resume('quiz', cem, turn)).resumed, owner.nodeId).toBe(false)
    }
  })
})

describe('ctx.seat', () => {
  it('makes a spectator a player in the turn of the handler: leave hook, then join hook with the options of its join', async () => {
    const { bench, ann } = await room({ maxPlayers: 3 }, { watch: [] })
    const dan = await bench.join('quiz', 'dan', { watch: true, options: { colour: 'red' } })
    const { seq } = ann
    expect(await ask(bench, ann, 'seat', { id: 'dan' })).toBe(true)
    expect(log(ann).slice(-2)).toEqual(['stops dan', 'onJoin dan {"colour":"red"}'])
    expect([ann.seq, dan.seq]).toEqual([seq + 1, seq + 1])
    expect([ids(ann), ids(dan)]).toEqual([
      ['ann', 'bob', 'dan'],
      ['ann', 'bob', 'dan'],
    ])
    await bench.say('quiz', 'dan', 'keep', 'mine', 1)
    expect([codes(dan), faults(bench)]).toEqual([[], []])
  })

  it('returns false without a free place: reservations of others count, the own is used up', async () => {
    const { bench, ann } = await room({ maxPlayers: 3 })
    await bench.say('quiz', 'ann', 'reserve', 'eve')
    expect(await ask(bench, ann, 'seat', { id: 'cem' })).toBe(false)
    expect(roles(bench).cem).toBe('watches')
    const other = await room({ maxPlayers: 3 })
    await other.bench.say('quiz', 'ann', 'reserve', 'cem')
    expect(await ask(other.bench, other.ann, 'seat', { id: 'cem' })).toBe(true)
    expect(other.bench.describe('quiz')!.reservations).toEqual([])
  })

  it('returns false while joins whose admit runs hold the last places', async () => {
    const admit = ({ id }: Member) =>
      id === 'eve' ? new Promise<undefined>(() => {}) : Promise.resolve(undefined)
    const { bench, ann } = await room({ maxPlayers: 3, admit })
    bench.askToJoin('quiz', 'eve')
    await bench.untilIdle()
    expect(await ask(bench, ann, 'seat', { id: 'cem' })).toBe(false)
  })

  it('returns false for a player, and for an id that no member has', async () => {
    const { bench, ann } = await room({ maxPlayers: 9 })
    for (const id of ['bob', 'nobody']) expect(await ask(bench, ann, 'seat', { id }), id).toBe(false)
  })

  it('returns false for a player who has a seat, unless sameSub is allow', async () => {
    const { bench, ann } = await room({ maxPlayers: 9 })
    const phone = await bench.join('quiz', 'phone', { sub: 'ann', watch: true })
    // Since a deployment, a player may have only one seat.
    const next = new RoomBench([quiz({ maxPlayers: 9, sameSub: 'refuse' })], {
      clock: bench.clock,
      store: bench.store.store,
      nodeId: 'node_b',
    })
    for (const member of [ann, phone]) {
      next.members.set(member.memberId, member)
      await next.resume('quiz', member, 1)
    }
    expect(await ask(next, ann, 'seat', { id: 'phone' })).toBe(false)
  })

  it('shows the others a player that has lost its connection again since the last update', async () => {
    const { bench, ann, cem } = await room({ maxPlayers: 3, sync: { rate: 1 } })
    bench.detach('quiz', cem)
    await bench.advance(3000)
    await bench.say('quiz', 'ann', 'keep', 'mine', 1)
    await bench.resume('quiz', cem, 1)
    await bench.say('quiz', 'ann', 'seat', { id: 'cem' }, 2)
    bench.detach('quiz', cem)
    await bench.advance(1000)
    expect(ann.members).toContainEqual({ member_id: 'cem', sub: 'cem', connected: false })
  })

  it('returns false for a spectator that is not connected', async () => {
    const { bench, ann, cem } = await room({ maxPlayers: 3 })
    bench.detach('quiz', cem)
    await bench.untilIdle()
    expect(await ask(bench, ann, 'seat', { id: 'cem' })).toBe(false)
  })

  it('fails the whole turn if a hook throws or refuses', async () => {
    for (const hook of [
      (name: string, _: Member, ctx: RoomContext) => {
        if (name === 'stops') ctx.refuse('not now')
      },
      (name: string, member: Member) => {
        if (name === 'onJoin' && member.id === 'cem') throw new Error('broken')
      },
    ]) {
      const { bench, ann } = await room({ maxPlayers: 3, hook })
      await bench.say('quiz', 'ann', 'reserve', 'cem')
      const before = log(ann)
      expect(await ask(bench, ann, 'seat', { id: 'cem' })).toBeUndefined()
      expect(codes(ann)).toMatchObject([expect.stringMatching(/room_logic_(refused|failed)/)])
      expect([log(ann), roles(bench).cem, bench.describe('quiz')!.reservations.length]).toEqual([
        before,
        'watches',
        1,
      ])
      // Nothing of the failed turn counts later.
      expect(ids((await bench.join('quiz', 'dan', { watch: true })) as TestMember)).toEqual(['ann', 'bob'])
    }
  })

  it('may be called for other members in a hook: a player leaves, and a spectator gets the place', async () => {
    const hook = (name: string, _: Member, ctx: RoomContext) => {
      if (name === 'onLeave') for (const { id } of ctx.spectators) if (!ctx.seat(id)) break
    }
    const { bench, ann, cem, dan } = await room({ hook }, { watch: ['cem', 'dan'] })
    bench.leave('quiz', 'bob')
    await bench.untilIdle()
    expect(roles(bench)).toEqual({ ann: 'plays', cem: 'plays', dan: 'watches' })
    expect([ids(ann), ids(cem), ids(dan), faults(bench)]).toEqual([
      ['ann', 'cem'],
      ['ann', 'cem'],
      ['ann', 'cem'],
      [],
    ])
  })

  it('may be called in the hook of the join: the others see a player join, and no change of a role', async () => {
    const hook = (name: string, member: Member, ctx: RoomContext) => {
      if (name === 'watches') ctx.seat(member)
    }
    const { bench, ann, cem } = await room({ maxPlayers: 3, hook })
    expect([ann.heard.slice(-1), ids(ann), ids(cem)]).toEqual([
      ['+cem'],
      ['ann', 'bob', 'cem'],
      ['ann', 'bob', 'cem'],
    ])
    const heir = bench.successor([ann, cem])
    await heir.resume('quiz', cem, 1)
    expect([roles(heir).cem, faults(heir)]).toEqual(['plays', []])
  })

  it('throws for a second change of one member in a turn, and after 100 changes', async () => {
    const twice = (name: string, member: Member, ctx: RoomContext) => {
      if (name === 'onJoin' && ctx.players.length > 2) ctx.unseat(member)
    }
    const { bench, ann } = await room({ maxPlayers: 3, hook: twice })
    await ask(bench, ann, 'seat', { id: 'cem' })
    expect([codes(ann), roles(bench).cem]).toEqual([['room_logic_failed'], 'watches'])

    const all = (name: string, _: Member, ctx: RoomContext) => {
      if (name === 'onLeave') for (const { id } of ctx.spectators) ctx.seat(id)
    }
    const many = await room(
      { maxPlayers: 500, max: 101, hook: all },
      { watch: Array.from({ length: 101 }, (_, i) => `w${i}`) },
    )
    many.bench.leave('quiz', 'bob')
    await many.bench.untilIdle()
    expect(Object.values(roles(many.bench)).filter((role) => role === 'plays')).toHaveLength(1)
  })

  it('is kept by the next owner, with the options for later hooks', async () => {
    const { bench, ann } = await room({ maxPlayers: 3 }, { watch: [] })
    const dan = await bench.join('quiz', 'dan', { watch: true, options: { colour: 'red' } })
    await ask(bench, ann, 'seat', { id: 'dan' })
    const heir = bench.successor([ann, dan])
    await heir.resume('quiz', ann, 1)
    await heir.resume('quiz', dan, 1)
    expect(await ask(heir, ann, 'unseat', { id: 'dan' })).toBe(true)
    expect(log(ann).slice(-2)).toEqual(['onLeave dan', 'watches dan {"colour":"red"}'])
    expect([ids(ann), roles(heir).dan, ann.faults, dan.faults]).toEqual([['ann', 'bob'], 'watches', [], []])
  })
})

describe('ctx.unseat', () => {
  it('makes a player a spectator, unless spectators.max is reached', async () => {
    const { bench, ann, bob } = await room({ max: 2 })
    expect(await ask(bench, ann, 'unseat', { id: 'bob' })).toBe(true)
    expect([ids(ann), ids(bob), log(ann).slice(-2)]).toEqual([
      ['ann'],
      ['ann'],
      ['onLeave bob', 'watches bob {"colour":"grey"}'],
    ])
    expect(await ask(bench, ann, 'unseat', { id: 'ann' })).toBe(false)
  })
})

describe('hidden layers', () => {
  it('that were shown to a member end with its role: it gets no byte of them afterwards', async () => {
    const { bench, ann, bob } = await room()
    expect(bob.layers.get('players')).toEqual({ secret: 'hidden' })
    await ask(bench, ann, 'unseat', { id: 'bob' })
    expect(bob.layers.has('players')).toBe(false)
    const seen = bob.received.length
    await bench.say('quiz', 'ann', 'keep', 'canary')
    bench.detach('quiz', bob)
    await bench.untilIdle()
    await bench.resume('quiz', bob, 1)
    const bytes = bob.received.slice(seen).map((payload) => Buffer.from(payload).toString('latin1'))
    expect(bytes.filter((text) => text.includes('canary'))).toEqual([])
    expect([ann.layers.get('players'), faults(bench)]).toEqual([{ secret: 'canary' }, []])
  })

  it('that the join hook of the new role shows are there', async () => {
    const { bench, ann, cem } = await room({ maxPlayers: 3 })
    expect(cem.layers.has('players')).toBe(false)
    await ask(bench, ann, 'seat', { id: 'cem' })
    expect([cem.layers.get('players'), faults(bench)]).toEqual([{ secret: 'hidden' }, []])
  })

  it('of the old role do not count for the most that a member may be shown', async () => {
    const hook = (name: string, member: Member, ctx: RoomContext) => {
      if (name === 'watches') ctx.show(member, 'players')
    }
    const bench = new RoomBench([quiz({ hook })], { limits: { layers: 1 } })
    const ann = await bench.join('quiz', 'ann')
    await bench.join('quiz', 'cem', { watch: true })
    expect(await ask(bench, ann, 'seat', { id: 'cem' })).toBe(true)
  })
})

describe('the same player in both roles', () => {
  const twice = async (sameSub: NonNullable<Rules['sameSub']>, watch: boolean, rules: Rules = {}) => {
    const bench = new RoomBench([quiz({ sameSub, ...rules })])
    const host = await bench.join('quiz', 'host')
    const phone = await bench.join('quiz', 'phone', { sub: 'ada', watch })
    const laptop = await bench.join('quiz', 'laptop', { sub: 'ada', watch: !watch })
    return { bench, host, phone, laptop }
  }

  it('may watch and play with allow, and is refused with refuse', async () => {
    const allowed = await twice('allow', false)
    expect([codes(allowed.laptop), roles(allowed.bench)]).toEqual([
      [],
      { host: 'plays', phone: 'plays', laptop: 'watches' },
    ])
    const refused = await twice('refuse', true)
    expect([codes(refused.laptop), refused.phone.inRoom]).toEqual([['already_joined'], true])
  })

  it('leaves its seat with replace, whose leave hook runs, and gets a new one in the other role', async () => {
    const { bench, host, phone, laptop } = await twice('replace', true)
    expect(phone.heard.at(-1)).toBe('-phone replaced: the player has joined with another session')
    expect(log(host).slice(-2)).toEqual(['stops phone', 'onJoin laptop {"colour":"grey"}'])
    expect([roles(bench), ids(host), laptop.faults]).toEqual([
      { host: 'plays', laptop: 'plays' },
      ['host', 'laptop'],
      [],
    ])
  })

  it('keeps with replace the role that its seat has got since the last update', async () => {
    const { bench, ann, cem } = await room({ maxPlayers: 3, sameSub: 'replace', sync: { rate: 1 } })
    await bench.say('quiz', 'ann', 'seat', { id: 'cem' }, 1)
    const phone = await bench.join('quiz', 'phone', { sub: 'cem' })
    await bench.advance(1000)
    expect([cem.inRoom, ids(ann), ids(phone)]).toEqual([false, ['ann', 'bob', 'cem'], ['ann', 'bob', 'cem']])
    const heir = bench.successor([ann, phone])
    await heir.resume('quiz', ann, 1)
    expect([roles(heir).cem, faults(heir)]).toEqual(['plays', []])
  })

  it('keeps its seat with replace if there is no place in the other role', async () => {
    const { bench, phone, laptop } = await twice('replace', true, { maxPlayers: 1 })
    expect([codes(laptop), phone.inRoom, roles(bench).phone]).toEqual([['room_full'], true, 'watches'])
  })
})

describe('a room with spectators and no player', () => {
  it('ends after idleSeconds: its spectators leave with closed', async () => {
    const { bench, cem } = await room({ idleSeconds: 10 })
    for (const id of ['ann', 'bob']) bench.leave('quiz', id)
    await bench.advance(9_000, 500)
    expect(cem.inRoom).toBe(true)
    await bench.advance(2_000, 500)
    expect([cem.heard.at(-1), bench.describe('quiz')]).toEqual(['-cem closed', undefined])
  })

  it('stays while it keeps a seat for a player', async () => {
    const { bench, cem } = await room({ maxPlayers: 3, idleSeconds: 10, onIdle: 'sleep' })
    await bench.say('quiz', 'ann', 'reserve', 'eve')
    for (const id of ['ann', 'bob']) bench.leave('quiz', id)
    await bench.advance(200_000, 500)
    expect(cem.inRoom).toBe(true)
    await bench.advance(120_000, 500)
    expect(cem.heard.at(-1)).toBe('-cem closed')
  })

  it('sleeps after idleSeconds, and their leave hook runs; a join to watch wakes it, and it sleeps again', async () => {
    const { bench, cem } = await room({ idleSeconds: 10, onIdle: 'sleep' })
    for (const id of ['ann', 'bob']) bench.leave('quiz', id)
    await bench.advance(11_000, 500)
    expect([cem.heard.at(-1), bench.describe('quiz')]).toEqual(['-cem closed', undefined])
    const dan = await bench.join('quiz', 'dan', { watch: true })
    expect(log(dan).slice(-2)).toEqual(['stops cem', 'watches dan {"colour":"grey"}'])
    await bench.advance(11_000, 500)
    expect([dan.heard.at(-1), bench.describe('quiz')]).toEqual(['-dan closed', undefined])
  })

  it('keeps its other spectators if a leave hook makes one of them a player', async () => {
    const hook = (name: string, _: Member, ctx: RoomContext) => {
      if (name === 'stops' && ctx.players.length === 0) ctx.seat('dan')
    }
    const rules: Rules = { max: 3, idleSeconds: 10, onIdle: 'sleep', hook }
    const { bench } = await room(rules, { players: ['ann'], watch: ['cem', 'dan', 'eve'] })
    bench.leave('quiz', 'ann')
    await bench.advance(11_000, 500)
    expect(roles(bench)).toEqual({ dan: 'plays', eve: 'watches' })
  })
})

describe('visible spectators', () => {
  it('are in the list of all members, with their role', async () => {
    const { bench, ann, cem } = await room({ visible: true, maxPlayers: 3 })
    const role = (member: TestMember) =>
      Object.fromEntries(member.members.map(({ member_id: id, spectator = false }) => [id, spectator]))
    expect([role(ann), role(cem)]).toEqual(Array(2).fill({ ann: false, bob: false, cem: true }))
    await ask(bench, ann, 'seat', { id: 'cem' })
    expect([role(ann), role(cem)]).toEqual(Array(2).fill({ ann: false, bob: false, cem: false }))
    await ask(bench, ann, 'unseat', { id: 'bob' })
    expect([role(ann), role(cem)]).toEqual(Array(2).fill({ ann: false, bob: true, cem: false }))
    bench.leave('quiz', 'bob')
    await bench.untilIdle()
    expect([role(ann), faults(bench)]).toEqual([{ ann: false, cem: false }, []])
  })

  it('are there with a whole state after a deployment that makes them visible', async () => {
    const { bench, ann } = await room()
    ann.seq--
    const next = new RoomBench([quiz({ visible: true })], {
      clock: bench.clock,
      store: bench.store.store,
      nodeId: 'node_b',
    })
    next.members.set('ann', ann)
    expect((await next.resume('quiz', ann, 1)).resumed).toBe(false)
    expect(ids(ann)).toEqual(['ann', 'bob', 'cem'])
  })

  it('cannot become visible in a running room, whose members know whom they see', async () => {
    const { bench } = await room()
    const running = bench.host.rooms.running[0]!
    expect(running.redefine(quiz({ visible: true }))).toMatch(/spectators.visible of quiz:a is another now/)
    expect(running.redefine(quiz({ max: 7 }))).toBeUndefined()
  })
})
