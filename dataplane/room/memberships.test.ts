import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import type { Subprotocol } from '../../shared/protocol/messages.ts'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { type BenchOptions, RoomBench, roomWith } from '../../test/support/rooms/room-bench.ts'
import type { TestMember } from '../../test/support/rooms/test-member.ts'
import { type Durability, defineRoom } from './definition.ts'
import { Departures } from './departures.ts'
import { JournalFormat } from './journal.ts'
import { ROOM_LIMITS } from './limits.ts'
import { Membership, Memberships } from './memberships.ts'
import { restore } from './restore.ts'

/** Records what happens to its members. */
const lounge = ({
  durability = 'journal',
  reconnectSeconds,
}: {
  durability?: Durability
  reconnectSeconds?: number
} = {}) =>
  defineRoom({
    type: 'lounge',
    durability,
    sync: { rate: 0 },
    ...(reconnectSeconds !== undefined && { reconnectSeconds }),
    create: () => ({ diary: [] as string[] }),
    messages: {
      look: {
        data: undefinedSchema,
        handle(state, { member }, ctx) {
          for (const { id, connected, data } of ctx.members)
            state.diary.push(`${id} ${connected} ${JSON.stringify(data)}`)
          state.diary.push(JSON.stringify(member.data))
        },
      },
      out: {
        data: undefinedSchema,
        handle: (_state, { member }, ctx) => ctx.kick(member, 'no shoes in here'),
      },
    },
    onJoin(_state, member, ctx) {
      if (member.sub === 'barred') ctx.kick(member, 'you are barred')
    },
    onDisconnect(state, member, ctx) {
      state.diary.push(
        `lost ${member.id}, of ${ctx.members.filter(({ connected }) => connected).length} here`,
      )
    },
    onReconnect: (state, member) => void state.diary.push(`back ${member.id} ${member.connected}`),
    onLeave: (state, member) => void state.diary.push(`left ${member.id}`),
  })

const undefinedSchema = {
  '~standard': { version: 1, vendor: 'test', validate: () => ({ value: null }) },
} as const

const inLounge = (settings?: Parameters<typeof lounge>[0]) => roomWith(lounge(settings), ['ann', 'bob'])
const connected = (member: { members: readonly { member_id: string; connected: boolean }[] }) =>
  Object.fromEntries(member.members.map(({ member_id: id, connected }) => [id, connected]))
const RESUMES_MS = ROOM_LIMITS.movesMs

describe('a member whose connection is lost', () => {
  it('is announced with the update of its turn, and again when it is back', async () => {
    const { bench, ann, bob } = await inLounge()
    bench.detach('lounge', ann)
    await bench.untilIdle()
    expect([bob.state, connected(bob)]).toEqual([
      { diary: ['lost ann, of 1 here'] },
      { ann: false, bob: true },
    ])
    await bench.resume('lounge', ann)
    expect([bob.state, connected(bob), connected(ann)]).toEqual([
      { diary: ['lost ann, of 1 here', 'back ann true'] },
      { ann: true, bob: true },
      { ann: true, bob: true },
    ])
    expect([ann.faults, bob.faults]).toEqual([[], []])
  })

  it('is shown as disconnected to members that join later', async () => {
    const { bench, ann } = await inLounge()
    bench.detach('lounge', ann)
    const cem = await bench.join('lounge', 'cem')
    expect(connected(cem)).toEqual({ ann: false, bob: true, cem: true })
  })

  it.each([
    [undefined, ROOM_LIMITS.detachedMs],
    [5, 5000],
    [0, 0],
    [86_400, ROOM_LIMITS.detachedMs],
  ])('keeps its seat for %s reconnectSeconds', async (reconnectSeconds, ms) => {
    const { bench, ann, bob } = await inLounge(reconnectSeconds === undefined ? {} : { reconnectSeconds })
    bench.detach('lounge', ann)
    if (ms > 0) {
      await bench.advance(ms - 10, 1000)
      expect(bob.state).toEqual({ diary: ['lost ann, of 1 here'] })
    }
    await bench.advance(20)
    expect(bob.state).toEqual({ diary: ['lost ann, of 1 here', 'left ann'] })
    expect(connected(bob)).toEqual({ bob: true })
  })

  it('is disconnected in the record: the next owner does not announce it again, and announces its return', async () => {
    const { bench, ann, bob } = await inLounge()
    bench.detach('lounge', ann)
    await bench.untilIdle()
    const heir = bench.successor([ann, bob])
    await heir.resume('lounge', bob)
    await heir.advance(RESUMES_MS + 100, 1000)
    expect(bob.state).toEqual({ diary: ['lost ann, of 1 here'] })
    await heir.resume('lounge', ann)
    expect([bob.state, connected(bob)]).toEqual([
      { diary: ['lost ann, of 1 here', 'back ann true'] },
      { ann: true, bob: true },
    ])
  })
})

describe('a member whose session moves to another edge', () => {
  const ways = [
    ['whose edge has ended', (bench: RoomBench) => bench.host.edgeGone('node_a')],
    [
      'whose session has moved',
      (bench: RoomBench) => bench.send('lounge', 'ann', { kind: 'detach', moves: true }),
    ],
  ] as const

  it.each(ways)('%s counts as connected for a while', async (_, go) => {
    const { bench, ann, bob } = await inLounge()
    go(bench)
    await bench.advance(RESUMES_MS - 10, 1000)
    for (const member of [ann, bob]) await bench.resume('lounge', member, 1)
    await bench.advance(2 * RESUMES_MS, 1000)
    expect([bob.state, bob.heard.filter((line) => /away|back/.test(line))]).toEqual([{ diary: [] }, []])
  })

  it.each(ways)('%s counts as disconnected after two heartbeats', async (_, go) => {
    const { bench, bob } = await inLounge({ reconnectSeconds: 1 })
    go(bench)
    await bench.resume('lounge', bob, 1)
    await bench.advance(RESUMES_MS - 10, 1000)
    expect(bob.state).toEqual({ diary: [] })
    await bench.advance(20)
    expect(bob.state).toEqual({ diary: ['lost ann, of 1 here', 'left ann'] })
  })

  it('counts so at the next owner, too', async () => {
    const { bench, ann, bob } = await inLounge()
    const heir = bench.successor([ann, bob])
    await heir.resume('lounge', bob)
    await heir.advance(RESUMES_MS - 10, 1000)
    expect(bob.state).toEqual({ diary: [] })
    await heir.advance(20)
    expect([bob.state, connected(bob)]).toEqual([
      { diary: ['lost ann, of 1 here'] },
      { ann: false, bob: true },
    ])
  })
})

describe('the claim `data` of a token', () => {
  const join = async () => {
    const bench = new RoomBench([lounge()])
    const ann = await bench.join('lounge', 'ann', { data: { level: 3 } })
    return { bench, ann }
  }
  const look = (bench: RoomBench) => bench.say('lounge', 'ann', 'look', null)

  it('is passed to room code, and stored in the record', async () => {
    const { bench, ann } = await join()
    const bob = await bench.join('lounge', 'bob')
    await look(bench)
    const seen = ['ann true {"level":3}', 'bob true null', '{"level":3}']
    expect(ann.state).toEqual({ diary: seen })
    expect(JSON.stringify([ann.members, bob.members])).not.toContain('level')
    const heir = bench.successor([ann])
    await heir.resume('lounge', ann, 0, 'node_a', 0, { level: 3 })
    await look(heir)
    expect(ann.state).toEqual({ diary: [...seen, ...seen] })
  })

  it.each([
    ['is said', (bench: RoomBench) => bench.send('lounge', 'ann', { kind: 'renew', data: { level: 4 } })],
    [
      'comes with a resume',
      (bench: RoomBench) =>
        bench.resume('lounge', bench.members.get('ann')!, 1, 'node_a', 0, { level: 4 }).then(() => {}),
    ],
  ])('is replaced when a fresh token %s, without a turn, and for the next owner, too', async (_, renew) => {
    const { bench, ann } = await join()
    const { seq } = ann
    await renew(bench)
    await bench.untilIdle()
    expect([ann.seq, ann.faults]).toEqual([seq, []])
    await look(bench)
    expect(ann.state).toMatchObject({ diary: { 1: '{"level":4}' } })
    const heir = bench.successor([ann])
    const claim = await heir.claimed('lounge')
    expect(JSON.stringify(restore(claim, new JournalFormat())!.memberships)).toContain('"data":{"level":4}')
  })

  it('is not written again with other changes of the member', async () => {
    const { bench, ann } = await join()
    bench.detach('lounge', ann)
    await bench.untilIdle()
    const { journal } = await bench.successor().claimed('lounge')
    const { presence, renewed } = new JournalFormat().readEntry(journal.at(-1)!)
    expect([presence, renewed]).toMatchObject([[{ memberId: 'ann', connected: false }], []])
  })
})

describe('a removed member', () => {
  it('gets the reason, and the others do not', async () => {
    const { bench, ann, bob } = await inLounge()
    await bench.say('lounge', 'ann', 'out', null)
    expect(ann.errors.concat(ann.heard.at(-1) as never)).toEqual(['-ann kicked: no shoes in here'])
    expect(bob.heard.at(-1)).toBe('-ann')
  })

  it('gets the reason if it is removed during its join', async () => {
    const bench = new RoomBench([lounge()])
    const ann = await bench.join('lounge', 'ann', { sub: 'barred' })
    expect(ann.errors).toMatchObject([{ code: 'join_refused', message: 'you are barred' }])
  })
})

describe('Memberships', () => {
  const limits = { messages: 8, bytes: 1024 }

  /** A membership of the subscription `mem_a`. */
  const membership = (joinRequest: number) =>
    new Membership(
      {
        member: { id: 'mem_a', sub: 'ann', connected: true, spectator: false, data: null },
        sessionId: 'ses_a',
        joinRequest,
        edge: 'node_a',
        codec: 'roomful.v1.json',
        lastRef: 0,
        outcomes: [],
        forgotten: 0,
      },
      limits,
    )

  it('keep the next membership of a subscription when an earlier departure is delivered', () => {
    const memberships = new Memberships()
    const first = membership(1)
    memberships.add(first)
    memberships.remove(first)
    const second = membership(2)
    memberships.add(second)
    memberships.release(first)
    expect(memberships.ofSubscription('mem_a')).toBe(second)
  })
})

describe('departures', () => {
  interface Match {
    winner: string
    score: Record<string, number>
    hands: Record<string, number[]>
    plans: Record<string, string>
  }

  /** A match with hands that their players see, plans of teams, and an end. */
  const match = (rate = 20) =>
    defineRoom({
      type: 'match',
      sync: { rate },
      reconnectSeconds: 5,
      layers: { 'hands.*': (id) => `member:${id}`, 'plans.*': (team) => `team:${team}` },
      events: { over: v.string(), noted: v.string() },
      messages: {
        score: {
          data: v.number(),
          reply: v.number(),
          handle(state, { data, member }, ctx) {
            state.score[member.id] = (state.score[member.id] ?? 0) + data
            ctx.reply(state.score[member.id]!)
          },
        },
        draw: { data: v.number() },
        plan: { data: v.string() },
        ally: { data: v.string() },
        note: { data: v.string() },
        kick: { data: v.string() },
        win: { data: v.null() },
      },
      create: (): Match => ({ winner: '', score: {}, hands: {}, plans: {} }),
      onJoin(state, { id }) {
        state.hands[id] = []
      },
      onLeave(state, { id }) {
        state.score[id] = -1
      },
      onMessage(state, { type, data, member }, ctx) {
        if (type === 'draw') state.hands[member.id]?.push(data)
        if (type === 'plan') state.plans.red = data
        if (type === 'ally') ctx.show(data, 'team:red')
        if (type === 'note') ctx.emit('noted', data)
        if (type === 'kick') ctx.kick(data, 'no manners')
        if (type === 'win') {
          state.winner = member.id
          for (const { id } of ctx.members) for (const other of ctx.members) ctx.show(other, `member:${id}`)
          ctx.emit('over', member.id)
          ctx.close()
        }
      },
    })

  const CODECS: readonly Subprotocol[] = ['roomful.v1.msgpack', 'roomful.v1.json']

  async function begun(codec: Subprotocol, options: BenchOptions = {}) {
    const bench = new RoomBench([match()], options)
    const ann = await bench.join('match', 'ann', { codec })
    const bob = await bench.join('match', 'bob', { codec: 'roomful.v1.msgpack' })
    await bench.advance(200)
    for (const { heard } of [ann, bob]) heard.length = 0
    return { bench, ann, bob }
  }

  const held = ({ layers }: TestMember) => Object.fromEntries(layers)

  describe.each(CODECS)('the update that a member leaves with (%s)', (codec) => {
    it('reaches all members of a room that closes: state, shown layers, events, replies and acks, and then left', async () => {
      const { bench, ann, bob } = await begun(codec)
      bench.message('match', 'ann', 'score', 3, 1)
      bench.message('match', 'ann', 'draw', 7, 2)
      bench.message('match', 'bob', 'draw', 9, 1)
      bench.message('match', 'bob', 'win', null, 2)
      await bench.advance(200)
      for (const member of [ann, bob]) {
        expect(member.state).toEqual({ winner: 'bob', score: { ann: 3 }, hands: {}, plans: {} })
        expect(held(member)).toMatchObject({
          'member:ann': { hands: { ann: [7] } },
          'member:bob': { hands: { bob: [9] } },
        })
        expect(member.heard).toEqual(['over "bob"', `-${member.memberId} closed`])
        expect([member.acked, member.inRoom, member.faults]).toEqual([2, false, []])
      }
      expect(ann.replies).toEqual([{ ref: 1, reply: 3 }])
    })

    it('reaches one that is kicked: public state, its own layer, and events until then', async () => {
      const { bench, ann, bob } = await begun(codec)
      await bench.say('match', 'bob', 'ally', 'ann')
      await bench.say('match', 'bob', 'plan', 'attack at dawn')
      await bench.advance(200)
      bench.message('match', 'ann', 'score', 3, 1)
      bench.message('match', 'ann', 'draw', 7, 2)
      bench.message('match', 'bob', 'note', 'before')
      bench.message('match', 'bob', 'kick', 'ann')
      bench.message('match', 'bob', 'plan', 'attack at noon')
      bench.message('match', 'bob', 'note', 'after')
      const atKick = ann.received.length
      await bench.advance(200)
      expect(ann.state).toMatchObject({ score: { ann: -1 } })
      expect(held(ann)).toEqual({
        'member:ann': { hands: { ann: [7] } },
        // After the kick, the member gets nothing that is written into the layers of others.
        'team:red': { plans: { red: 'attack at dawn' } },
      })
      expect(ann.heard).toEqual(['noted "before"', '-ann kicked: no manners'])
      expect([ann.acked, ann.replies, ann.faults]).toEqual([2, [{ ref: 1, reply: 3 }], []])
      expect(Buffer.concat(ann.received.slice(atKick)).includes('noon')).toBe(false)
      expect([bob.heard, bob.faults]).toEqual([['noted "before"', 'noted "after"', '-ann'], []])
    })

    it('reaches one that leaves', async () => {
      const { bench, ann } = await begun(codec)
      bench.message('match', 'ann', 'score', 3, 1)
      bench.leave('match', 'ann')
      await bench.advance(200)
      expect(ann.state).toMatchObject({ score: { ann: -1 } })
      expect([ann.acked, ann.heard, ann.faults]).toEqual([1, ['-ann left'], []])
    })

    it('reaches one that resumes before it is sent, after the updates that it missed', async () => {
      const { bench, ann, bob } = await begun(codec)
      bench.detach('match', ann)
      await bench.say('match', 'bob', 'note', 'missed')
      await bench.advance(200)
      bench.message('match', 'bob', 'win', null, 1)
      bench.attach('match', ann)
      await bench.advance(200)
      expect(ann.state).toMatchObject({ winner: 'bob' })
      expect(ann.heard).toEqual(['noted "missed"', 'away ann', 'over "bob"', '-ann closed'])
      expect([ann.faults, bob.faults]).toEqual([[], []])
    })

    it('is that of its departure, even if an earlier one is still being committed', async () => {
      const { bench, ann, bob } = await begun(codec)
      bench.store.mood = 'slow'
      bench.message('match', 'ann', 'draw', 7, 1)
      await bench.advance(60)
      bench.message('match', 'bob', 'win', null, 1)
      for (let i = 0; i < 10; i++) {
        await bench.advance(20)
        bench.store.let()
      }
      await bench.advance(200)
      expect(held(ann)).toMatchObject({ 'member:ann': { hands: { ann: [7] } } })
      expect(ann.state).toMatchObject({ winner: 'bob' })
      expect([ann.acked, ann.faults, bob.faults]).toEqual([1, [], []])
    })
  })

  describe('a member that resumes at another edge after its seat has ended', () => {
    const comeBack = async (bench: RoomBench, member: TestMember) => {
      member.heard.length = 0
      bench.attach('match', member, 1, 'node_c')
      await bench.untilIdle()
      return [...member.heard, ...member.errors.map(({ code }) => code)]
    }

    it.each([
      ['kicked', 'kick', 'ann', '-ann kicked: no manners'],
      ['closed', 'win', null, '-ann closed'],
    ])(
      'gets the end of its seat (%s) for as long as a session can be resumed',
      async (_, type, data, farewell) => {
        const { bench, ann } = await begun('roomful.v1.msgpack', { limits: { detachedMs: 20_000 } })
        bench.detach('match', ann)
        await bench.say('match', 'bob', type, data)
        await bench.advance(200)
        expect(await comeBack(bench, ann)).toEqual([farewell])
        await bench.advance(19_000, 1000)
        expect(await comeBack(bench, ann)).toEqual([farewell])
        await bench.advance(2000, 1000)
        expect(await comeBack(bench, ann)).toEqual(['no_seat'])
      },
    )

    it.each([
      ['leave', { kind: 'leave', reason: 'left', request_id: 2 }],
      ['message', { kind: 'message', type: 'note', data: 'late' }],
      ['resync', { kind: 'resync', reason: 'sequence' }],
    ] as const)(
      'gets the end of its seat as the answer to a %s that arrives before its attach',
      async (_, sent) => {
        const { bench, ann } = await begun('roomful.v1.msgpack')
        bench.detach('match', ann)
        await bench.say('match', 'bob', 'kick', 'ann')
        await bench.advance(200)
        ann.heard.length = 0
        bench.send('match', 'ann', sent)
        await bench.untilIdle()
        expect([ann.heard, ann.errors]).toEqual([['-ann kicked: no manners'], []])
      },
    )

    it('gets the text that the room has not waited any longer', async () => {
      const { bench, ann } = await begun('roomful.v1.msgpack')
      bench.detach('match', ann)
      await bench.advance(6000, 500)
      const farewell = '-ann session_ended: the connection was not back within 5 s: join again'
      // If its edge lives, that edge has the session.
      expect(ann.heard.at(-1)).toBe(farewell)
      expect(await comeBack(bench, ann)).toEqual([farewell])
    })

    it('gets nothing if its session had ended', async () => {
      const { bench, ann } = await begun('roomful.v1.msgpack')
      bench.send('match', 'ann', { kind: 'leave', reason: 'session_ended' })
      await bench.advance(200)
      expect(bench.sentOf('left')).toEqual([])
      expect(await comeBack(bench, ann)).toEqual(['no_seat'])
    })
  })

  it('Departures keeps the latest 4096', () => {
    const departures = new Departures(new FakeClock(), 1000)
    for (let i = 0; i <= 4096; i++)
      departures.add(`mem_${i}`, { reason: 'closed', message: `${i}` }, 'node_a')
    expect([0, 1, 4096].map((i) => departures.of(`mem_${i}`)?.farewell.message)).toEqual([
      undefined,
      '1',
      '4096',
    ])
  })
})

describe('Room that hides its members', () => {
  const hall = Object.freeze({
    ...defineRoom({
      type: 'hall',
      sync: { rate: 0 },
      layers: { tickets: null },
      create: () => ({ waiting: 0, tickets: {} as Record<string, number> }),
      onJoin(state, member) {
        state.tickets[member.id] = 1
      },
      onLeave(state, member) {
        delete state.tickets[member.id]
      },
      messages: {
        count: {
          handle(state, _input, ctx) {
            state.waiting = ctx.members.length
          },
        },
        out: { handle: (_state, { member }, ctx) => ctx.kick(member, 'matched') },
      },
    }),
    hidesMembers: true,
  })

  async function hallWith(...subs: string[]) {
    const bench = new RoomBench([hall])
    const members = []
    for (const sub of subs) members.push(await bench.join('hall', sub, { sub }))
    return { bench, members }
  }

  const idsOf = (member: { members: readonly { member_id: string }[] }) =>
    member.members.map(({ member_id: id }) => id)

  it('shows a member only itself, after a join, a resync, a resume and a repeated join', async () => {
    const { bench, members } = await hallWith('ada', 'bob', 'cleo')
    for (const member of members) expect(idsOf(member)).toEqual([member.memberId])
    const [ada] = members
    bench.resync('hall', ada!, 'checksum')
    await bench.untilIdle()
    expect(idsOf(ada!)).toEqual(['ada'])
    ada!.epoch = 0
    await bench.resume('hall', ada!)
    expect(idsOf(ada!)).toEqual(['ada'])
    await bench.join('hall', 'ada', { sub: 'ada', requestId: 1 })
    expect(idsOf(ada!)).toEqual(['ada'])
  })

  it('sends nothing to members that stay when others join, disconnect, reconnect and leave', async () => {
    const { bench, members } = await hallWith('ada', 'bob')
    const [ada, bob] = members
    const before = { frames: ada!.received.length, seq: ada!.seq }
    await bench.join('hall', 'cleo', { sub: 'cleo' })
    bench.detach('hall', bob!)
    await bench.untilIdle()
    await bench.resume('hall', bob!)
    await bench.say('hall', 'cleo', 'out', null, 1)
    expect(bench.describe('hall')?.members.map(({ sub }) => sub)).toEqual(['ada', 'bob'])
    expect({ frames: ada!.received.length, seq: ada!.seq }).toEqual(before)
  })

  it('never sends the name of another member', async () => {
    const { bench, members } = await hallWith('ada', 'bob')
    await bench.say('hall', 'ada', 'count', null, 1)
    await bench.join('hall', 'secret', { sub: 'secret' })
    await bench.say('hall', 'secret', 'out', null, 1)
    await bench.say('hall', 'bob', 'count', null, 1)
    for (const { received } of members)
      for (const payload of received) expect(Buffer.from(payload).toString('latin1')).not.toContain('secret')
  })

  it('still sends changes of the visible state to all members', async () => {
    const { bench, members } = await hallWith('ada', 'bob')
    await bench.say('hall', 'ada', 'count', null, 1)
    for (const member of members) expect(member.state).toEqual({ waiting: 2 })
  })

  it('ends the seat of a member with a text for it', async () => {
    const { bench, members } = await hallWith('ada', 'bob')
    const [ada] = members
    await bench.say('hall', 'ada', 'out', null, 1)
    expect(ada!.inRoom).toBe(false)
    expect(bench.sentOf('left').at(-1)?.farewell).toMatchObject({ reason: 'kicked', message: 'matched' })
  })

  it('keeps members and hidden state when its owner dies', async () => {
    const { bench, members } = await hallWith('ada', 'bob')
    await bench.say('hall', 'bob', 'out', null, 1)
    await bench.join('hall', 'cleo', { sub: 'cleo' })
    const heir = new RoomBench([hall], { store: bench.store.store, clock: bench.clock, nodeId: 'node_b' })
    heir.members.set('ada', members[0]!)
    await heir.resume('hall', members[0]!)
    const described = heir.describe('hall')
    expect(described?.members.map(({ sub }) => sub)).toEqual(['ada', 'cleo'])
    expect(described?.state).toEqual({ waiting: 0, tickets: { ada: 1, cleo: 1 } })
  })
})
