import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import type { Subprotocol } from '../../shared/protocol/messages.ts'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { type BenchOptions, RoomBench, type TestMember } from '../../test/support/rooms/room-bench.ts'
import { defineRoom } from './definition.ts'
import { Departures } from './memberships.ts'

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
  it('reaches everyone whose room closes: state, shown layers, events, replies and acks, then the farewell', async () => {
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
      // What is written into a layer of others from the kick on is not for the member any more.
      'team:red': { plans: { red: 'attack at dawn' } },
    })
    expect(ann.heard).toEqual(['noted "before"', '-ann kicked: no manners'])
    expect([ann.acked, ann.replies, ann.faults]).toEqual([2, [{ ref: 1, reply: 3 }], []])
    expect(Buffer.concat(ann.received.slice(atKick)).includes('noon')).toBe(false)
    expect([bob.heard, bob.faults]).toEqual([['noted "before"', 'noted "after"', '-ann kicked'], []])
  })

  it('reaches one that leaves by itself', async () => {
    const { bench, ann } = await begun(codec)
    bench.message('match', 'ann', 'score', 3, 1)
    bench.send('match', 'ann', { kind: 'leave', reason: 'left', request_id: 2 })
    await bench.advance(200)
    expect(ann.state).toMatchObject({ score: { ann: -1 } })
    expect([ann.acked, ann.heard, ann.faults]).toEqual([1, ['-ann left'], []])
  })

  it('reaches one that comes back before it is sent, behind what it missed', async () => {
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

  it('is that of its departure, though an earlier one is still being committed', async () => {
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

describe('a member that comes back by another edge after its seat has ended', () => {
  const comeBack = async (bench: RoomBench, member: TestMember) => {
    member.heard.length = 0
    bench.attach('match', member, 1, 'node_c')
    await bench.settle()
    return [...member.heard, ...member.errors.map(({ code }) => code)]
  }

  it.each([
    ['kicked', 'kick', 'ann', '-ann kicked: no manners'],
    ['closed', 'win', null, '-ann closed'],
  ])('hears that it was %s, for as long as a session may be resumed', async (_, type, data, farewell) => {
    const { bench, ann } = await begun('roomful.v1.msgpack', { limits: { detachedMs: 20_000 } })
    bench.detach('match', ann)
    await bench.say('match', 'bob', type, data)
    await bench.advance(200)
    expect(await comeBack(bench, ann)).toEqual([farewell])
    await bench.advance(19_000, 1000)
    expect(await comeBack(bench, ann)).toEqual([farewell])
    await bench.advance(2000, 1000)
    expect(await comeBack(bench, ann)).toEqual(['no_seat'])
  })

  it('hears that the room has not waited any longer', async () => {
    const { bench, ann } = await begun('roomful.v1.msgpack')
    bench.detach('match', ann)
    await bench.advance(6000, 500)
    const farewell = '-ann session_ended: the connection was not back within 5 s: join again'
    // Its edge has the session, if it lives.
    expect(ann.heard.at(-1)).toBe(farewell)
    expect(await comeBack(bench, ann)).toEqual([farewell])
  })

  it('hears nothing of it where its session was over', async () => {
    const { bench, ann } = await begun('roomful.v1.msgpack')
    bench.send('match', 'ann', { kind: 'leave', reason: 'session_ended' })
    await bench.advance(200)
    expect(bench.sentOf('left')).toEqual([])
    expect(await comeBack(bench, ann)).toEqual(['no_seat'])
  })
})

it('the memory of departures keeps the latest 4096', () => {
  const departures = new Departures(new FakeClock(), 1000)
  const farewell = (seq: number) => ({ epoch: 1, seq, reason: 'closed' as const })
  for (let i = 0; i <= 4096; i++) departures.add(`mem_${i}`, farewell(i))
  expect([0, 1, 4096].map((i) => departures.of(`mem_${i}`)?.seq)).toEqual([undefined, 1, 4096])
})
