import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import { RoomBench } from '../../test/support/rooms/room-bench.ts'
import type { TestMember } from '../../test/support/rooms/test-member.ts'
import { defineRoom } from './definition.ts'

const duel = (
  settings: {
    sameSub?: 'allow' | 'replace' | 'refuse'
    maxPlayers?: number
    admit?: () => Promise<undefined>
    sync?: { rate: number }
  } = {},
) =>
  defineRoom({
    type: 'duel',
    maxPlayers: 2,
    sync: { rate: 0 },
    layers: { 'hands.*': (id) => `member:${id}`, plan: 'plan' },
    messages: {
      draw: { data: v.number() },
      tell: { data: v.string() },
      out: { data: v.object({ id: v.string(), ban: v.boolean() }) },
    },
    create: () => ({ log: [] as string[], plan: 0, hands: {} as Record<string, number[]> }),
    onJoin(state, { id }, ctx) {
      state.log.push(`joined ${id}`)
      state.hands[id] = []
      ctx.show(id, 'plan')
    },
    onMessage(state, input, ctx) {
      const { member } = input
      if (input.type === 'draw') state.hands[member.id]?.push(input.data)
      else if (input.type === 'tell') ctx.emit('told', input.data, member.id)
      else ctx.kick(input.data.id, 'out', { ban: input.data.ban })
    },
    onReconnect: (state, { id, data }) => void state.log.push(`back ${id} ${JSON.stringify(data)}`),
    onLeave: (state, { id }) => void state.log.push(`left ${id}`),
    ...settings,
  })

const ada = { sub: 'ada' }

/** Ada with one session, Bob, and the second device of Ada, which has sent its join. */
async function twice(sameSub: 'allow' | 'replace' | 'refuse', { away = false } = {}) {
  const bench = new RoomBench([duel({ sameSub })])
  const phone = await bench.join('duel', 'phone', { ...ada, data: { device: 1 } })
  const bob = await bench.join('duel', 'bob', { sub: 'bob' })
  if (away) {
    bench.detach('duel', phone)
    await bench.untilIdle()
  }
  const laptop = await bench.join('duel', 'laptop', { ...ada, data: { device: 2 } })
  return { bench, phone, bob, laptop }
}

const members = (bench: RoomBench) => bench.describe('duel')?.members.map(({ member_id: id }) => id)
const codes = ({ errors }: TestMember) => errors.map(({ code }) => code)

describe('sameSub: replace', () => {
  it('gives the seat with its member id, place and layers to the newer session, and notifies only the older one', async () => {
    const { bench, phone, bob, laptop } = await twice('replace')
    expect(members(bench)).toEqual(['phone', 'bob'])
    expect(laptop.members.map(({ member_id: id }) => id)).toEqual(['phone', 'bob'])
    expect([...laptop.layers]).toEqual([
      ['member:phone', { hands: { phone: [] } }],
      ['plan', { plan: 0 }],
    ])
    expect(phone.heard.at(-1)).toBe('-phone replaced: the player has joined with another session')
    expect(bob.heard).toEqual([])
    expect(bob.state).toEqual({ log: ['joined phone', 'joined bob'], hands: {} })
    expect([phone, bob, laptop].flatMap(({ faults, errors }) => [...faults, ...errors])).toEqual([])
  })

  it('serves the newer session: messages, events, layers and acks', async () => {
    const { bench, laptop, bob } = await twice('replace')
    bench.message('duel', 'laptop', 'draw', 7, 1)
    await bench.say('duel', 'laptop', 'tell', 'hi', 2)
    expect(laptop.layers.get('member:phone')).toEqual({ hands: { phone: [7] } })
    expect([laptop.heard, laptop.acked, bob.faults, laptop.faults]).toEqual([['told "hi"'], 2, [], []])
  })

  it('answers late messages of the older session with the end of its seat', async () => {
    const { bench, phone, laptop } = await twice('replace')
    const ended = phone.heard.at(-1)
    phone.heard.length = 0
    bench.message('duel', 'phone', 'draw', 9, 1)
    bench.leave('duel', 'phone')
    bench.send('duel', 'phone', { kind: 'detach' })
    await bench.untilIdle()
    expect([phone.heard, codes(phone)]).toEqual([[ended, ended], []])
    expect([members(bench), laptop.inRoom]).toEqual([['phone', 'bob'], true])
    expect(laptop.layers.get('member:phone')).toEqual({ hands: { phone: [] } })
  })

  it('answers the older session with the end of its seat when it resumes', async () => {
    const { bench, phone } = await twice('replace', { away: true })
    phone.heard.length = 0
    bench.attach('duel', phone)
    await bench.untilIdle()
    expect(phone.heard).toEqual(['-phone replaced: the player has joined with another session'])
  })

  it('reconnects a player that was disconnected: presence, onReconnect and the new token’s data', async () => {
    const { bob } = await twice('replace', { away: true })
    expect(bob.heard).toEqual(['away phone', 'back phone'])
    expect(bob.state).toMatchObject({ log: ['joined phone', 'joined bob', 'back phone {"device":2}'] })
  })

  it('tells the others of a reconnect since the last update', async () => {
    const bench = new RoomBench([duel({ sameSub: 'replace', sync: { rate: 1 } })])
    const phone = await bench.join('duel', 'phone', ada)
    await bench.advance(1000)
    const bob = await bench.join('duel', 'bob')
    bench.detach('duel', phone)
    await bench.advance(2000)
    await bench.say('duel', 'bob', 'draw', 7)
    bench.attach('duel', phone, 1)
    await bench.join('duel', 'laptop', ada)
    await bench.advance(1000)
    expect(bob.heard).toEqual(['away phone', 'back phone'])
  })

  it('answers a repeated join of the newer session', async () => {
    const { bench } = await twice('replace')
    const { request_id: requestId } = bench
      .sentOf('update')
      .flatMap(({ joined }) => joined)
      .at(-1)!
    bench.askToJoin('duel', 'laptop', { ...ada, requestId })
    await bench.untilIdle()
    const answers = bench.sentOf('update').flatMap(({ joined }) => joined)
    expect(answers.slice(-2)).toMatchObject(
      Array(2).fill({ member_id: 'laptop', seat: 'phone', request_id: requestId }),
    )
  })

  it('gives the seat to the last of three sessions in one update, and does not notify the other members', async () => {
    const bench = new RoomBench([duel({ sameSub: 'replace' })])
    const bob = await bench.join('duel', 'bob', { sub: 'bob' })
    const all = ['one', 'two', 'three'].map((name) => bench.askToJoin('duel', name, ada))
    await bench.untilIdle()
    expect(members(bench)).toEqual(['bob', 'one'])
    expect(bob.heard).toEqual(['+one'])
    expect(all.map(({ inRoom }) => inRoom)).toEqual([false, false, true])
    expect(all.map(codes)).toEqual([['join_refused'], ['join_refused'], []])
    expect(bob.faults).toEqual([])
  })

  it('announces the departure of a member that is kicked before the join of the newer session is answered', async () => {
    const bench = new RoomBench([duel({ sameSub: 'replace' })])
    const phone = await bench.join('duel', 'phone', ada)
    const bob = await bench.join('duel', 'bob', { sub: 'bob' })
    const laptop = bench.askToJoin('duel', 'laptop', ada)
    await bench.say('duel', 'bob', 'out', { id: 'phone', ban: false })
    expect(bob.heard).toEqual(['-phone'])
    expect([members(bench), codes(laptop), phone.inRoom]).toEqual([['bob'], ['join_refused'], false])
    const heir = bench.successor([bob])
    heir.attach('duel', bob)
    await heir.untilIdle()
    expect(members(heir)).toEqual(['bob'])
  })

  it('takes no place of a full room while admit runs', async () => {
    const gates: (() => void)[] = []
    const admit = () => new Promise<undefined>((go) => gates.push(() => go(undefined)))
    const bench = new RoomBench([duel({ sameSub: 'replace', admit })])
    const join = async (name: string, sub: string) => {
      const member = await bench.join('duel', name, { sub })
      gates.shift()?.()
      await bench.untilIdle()
      return member
    }
    await join('phone', 'ada')
    const laptop = await bench.join('duel', 'laptop', ada)
    const bob = await bench.join('duel', 'bob', { sub: 'bob' })
    const eve = await bench.join('duel', 'eve', { sub: 'eve' })
    for (const open of gates.splice(0)) open()
    await bench.untilIdle()
    expect([laptop.inRoom, bob.inRoom, codes(eve)]).toEqual([true, true, ['room_full']])
    expect(members(bench)).toEqual(['phone', 'bob'])
  })

  it('gives a client that joins again automatically no seat of a connected session', async () => {
    const { bench, laptop } = await twice('replace')
    const phone = await bench.join('duel', 'phone again', { ...ada, rejoin: true })
    expect([codes(phone), laptop.inRoom]).toEqual([['replaced'], true])
    bench.detach('duel', laptop)
    await bench.untilIdle()
    const again = await bench.join('duel', 'phone once more', { ...ada, rejoin: true })
    expect([again.inRoom, members(bench)]).toEqual([true, ['phone', 'bob']])
  })

  it('does not apply to players without sub', async () => {
    const bench = new RoomBench([duel({ sameSub: 'replace' })])
    for (const name of ['one', 'two']) await bench.join('duel', name)
    expect(members(bench)).toEqual(['one', 'two'])
  })
})

describe.each(['journal', 'snapshot'] as const)('a seat that was taken over in a %s room', (durability) => {
  it('belongs to the newer session, in the same place, at the next owner', async () => {
    const bench = new RoomBench([{ ...duel({ sameSub: 'replace' }), durability }])
    const phone = await bench.join('duel', 'phone', ada)
    const bob = await bench.join('duel', 'bob', { sub: 'bob' })
    const laptop = await bench.join('duel', 'laptop', ada)
    await bench.say('duel', 'laptop', 'draw', 7, 1)
    await bench.advance(1000, 50)
    const heir = bench.successor([phone, bob, laptop])
    for (const member of [phone, laptop, bob]) heir.attach('duel', member)
    await heir.untilIdle()
    expect(members(heir)).toEqual(['phone', 'bob'])
    expect(codes(phone)).toEqual(['no_seat'])
    await heir.say('duel', 'laptop', 'draw', 8, 2)
    expect(laptop.layers.get('member:phone')).toEqual({ hands: { phone: [7, 8] } })
    expect([laptop.errors, laptop.faults, bob.faults]).toEqual([[], [], []])
  })
})

describe('sameSub: refuse', () => {
  it.each([false, true])('refuses a second session, with the first one disconnected: %s', async (away) => {
    const { bench, laptop, bob } = await twice('refuse', { away })
    expect([codes(laptop), members(bench)]).toEqual([['already_joined'], ['phone', 'bob']])
    bench.leave('duel', 'phone')
    expect(await bench.join('duel', 'tablet', ada)).toMatchObject({ inRoom: true })
    expect(bob.faults).toEqual([])
  })

  it('admits one of two sessions whose admit runs at the same time', async () => {
    const gates: (() => void)[] = []
    const admit = () => new Promise<undefined>((go) => gates.push(() => go(undefined)))
    const bench = new RoomBench([duel({ sameSub: 'refuse', admit })])
    const both = ['phone', 'laptop'].map((name) => bench.askToJoin('duel', name, ada))
    await bench.untilIdle()
    for (const open of gates) open()
    await bench.untilIdle()
    expect(both.map(codes)).toEqual([[], ['already_joined']])
  })
})

describe('sameSub: allow', () => {
  it('gives a player a second seat', async () => {
    const bench = new RoomBench([duel()])
    for (const name of ['phone', 'laptop']) await bench.join('duel', name, ada)
    expect(members(bench)).toEqual(['phone', 'laptop'])
  })

  describe('with a player who has four seats', () => {
    async function four(admit?: () => Promise<undefined>) {
      const bench = new RoomBench([duel({ maxPlayers: 10, ...(admit && { admit }) })])
      const seats = ['one', 'two', 'three', 'four'].map((name) => bench.askToJoin('duel', name, ada))
      await bench.untilIdle()
      return { bench, seats }
    }

    it('refuses a fifth, and gives seats to other players', async () => {
      const { bench } = await four()
      const fifth = await bench.join('duel', 'five', ada)
      expect(fifth.errors).toMatchObject([
        { code: 'too_many_rooms', message: expect.stringMatching(/has 4 seats in duel:a, .*another sub/) },
      ])
      expect(members(bench)).toEqual(['one', 'two', 'three', 'four'])
      expect(await bench.join('duel', 'bob', { sub: 'bob' })).toMatchObject({ inRoom: true })
      expect(await bench.join('duel', 'guest')).toMatchObject({ inRoom: true })
    })

    it('gives the seat of a disconnected client to the fifth', async () => {
      const { bench, seats } = await four()
      bench.detach('duel', seats[1]!)
      await bench.untilIdle()
      expect(await bench.join('duel', 'five', ada)).toMatchObject({ inRoom: true, errors: [] })
      expect(members(bench)).toEqual(['one', 'two', 'three', 'four'])
    })

    it('counts joins whose admit is running', async () => {
      const gates: (() => void)[] = []
      const { bench } = await four(() => new Promise((open) => gates.push(() => open(undefined))))
      const fifth = await bench.join('duel', 'five', ada)
      expect(codes(fifth)).toEqual(['too_many_rooms'])
      for (const open of gates) open()
      await bench.untilIdle()
      expect(members(bench)).toEqual(['one', 'two', 'three', 'four'])
    })
  })

  it('gives the seat of a disconnected player to the same player when the room is full', async () => {
    const { bench, laptop, bob } = await twice('allow', { away: true })
    expect([members(bench), laptop.inRoom]).toEqual([['phone', 'bob'], true])
    expect(bob.heard).toEqual(['away phone', 'back phone'])
  })

  it('refuses a second session of a connected player when the room is full', async () => {
    const { laptop } = await twice('allow')
    expect(codes(laptop)).toEqual(['room_full'])
  })
})
