import * as v from 'valibot'
import { describe, expect, it, onTestFinished } from 'vitest'
import type { LeaveReason, Room } from '../client/index.ts'
import { defineRoom } from '../dataplane/index.ts'
import { testRooms } from './kit/index.ts'

const match = defineRoom({
  type: 'match',
  reconnectSeconds: 5,
  layers: { 'hands.*': (id) => `member:${id}` },
  create: () => ({ winner: '', score: 0, hands: {} as Record<string, number[]> }),
  events: { over: v.string() },
  messages: {
    score: {
      data: v.number(),
      handle(state, { data }) {
        state.score += data
      },
    },
    kick: { data: v.string(), handle: (_state, { data }, ctx) => ctx.kick(data, 'no manners') },
    win: {
      data: v.null(),
      handle(state, { member }, ctx) {
        state.winner = member.id
        state.hands[member.id]?.push(1)
        ctx.emit('over', member.id)
        ctx.close()
      },
    },
  },
  onJoin(state, { id }) {
    state.hands[id] = []
  },
})

/** Records the states, events and the end of a client's room, in order. */
function listen(room: Room<typeof match>) {
  const heard: unknown[] = []
  room.onStateChange(({ winner, score }) => heard.push({ winner, score }))
  room.on('over', () => heard.push('over'))
  room.onLeave((reason: LeaveReason, error) => heard.push(reason, error?.message))
  return heard
}

async function game() {
  const t = await testRooms([match])
  onTestFinished(() => t.close())
  const [a, b] = await t.join('match', 2)
  return { t, a, b }
}

describe('the last update of a room', () => {
  it('reaches its players before the end of their seats', async () => {
    const { a, b } = await game()
    const heard = [listen(a), listen(b)]
    const scored = a.send('score', 3).then(() => a.state.score)
    await Promise.all([scored, b.send('win')])
    expect(await scored).toBe(3)
    const end = [{ winner: b.memberId, score: 3 }, 'over', 'closed']
    for (const one of heard) expect(one.slice(0, 3)).toEqual(end)
    expect([a.state.winner, b.state.hands]).toEqual([b.memberId, { [b.memberId]: [1] }])
  })

  it('reaches a player that the same update kicks', async () => {
    const { t, a, b } = await game()
    const heard = listen(a)
    const scored = a.send('score', 3).then(() => a.state.score)
    await Promise.all([scored, b.send('kick', a.memberId)])
    await t.advance(100)
    expect(await scored).toBe(3)
    expect(heard).toEqual([{ winner: '', score: 3 }, 'kicked', 'no manners'])
  })
})

describe('a player whose connection was lost when its seat ended', () => {
  it.each([
    { end: 'kicked', text: 'no manners' },
    { end: 'closed', text: 'This client is not in match:default: closed.' },
  ])('receives the reason $end at its resume', async ({ end, text }) => {
    const { t, a, b } = await game()
    const heard = listen(a)
    await t.drop(a)
    if (end === 'kicked') await b.send('kick', a.memberId)
    else await b.send('win')
    await t.reconnect(a)
    expect(heard.slice(-2)).toEqual([end, text])
    expect(a.status).toBe('left')
  })

  it('is a new member after its resume, if the seat has expired', async () => {
    const { t, a, b } = await game()
    const before = a.memberId
    await t.drop(a)
    await t.advance(6000)
    expect(b.members).toHaveLength(1)
    await t.reconnect(a)
    await t.advance(1000)
    expect([a.status, a.memberId === before]).toEqual(['joined', false])
    expect(b.members).toHaveLength(2)
  })
})

const shared = defineRoom({
  type: 'shared',
  sameSub: 'replace',
  layers: { 'hands.*': (id) => `member:${id}` },
  create: () => ({ joins: 0, leaves: 0, hands: {} as Record<string, number[]> }),
  messages: {
    draw: {
      data: v.number(),
      handle: (state, { data, member }) => void state.hands[member.id]?.push(data),
    },
    ban: {
      data: v.string(),
      handle: (_state, { data }, ctx) => ctx.kick(data, 'no manners', { ban: true }),
    },
    unban: { data: v.string(), handle: (_state, { data }, ctx) => void ctx.unban(data) },
  },
  onJoin(state, { id }) {
    state.joins++
    state.hands[id] = []
  },
  onLeave(state, { id }) {
    state.leaves++
    delete state.hands[id]
  },
})

async function twoPlayers() {
  const t = await testRooms([shared])
  onTestFinished(() => t.close())
  const [phone, bob] = await t.join('shared', [{ sub: 'ada' }, { sub: 'bob' }])
  const join = async (sub: string) => (await t.join('shared', [{ sub }]))[0]
  return { t, phone, bob, join }
}

/** Records the reason and the message of the end of a client's seat. */
function ends(room: Room<typeof shared>): unknown[] {
  const recorded: unknown[] = []
  room.onLeave((reason, error) => recorded.push(reason, error?.message))
  return recorded
}

describe('a player that joins with a second device', () => {
  it('continues with the same seat, and the first device loses the seat', async () => {
    const { t, phone, bob, join } = await twoPlayers()
    const end = ends(phone)
    await phone.send('draw', 1)
    const laptop = await join('ada')
    expect(laptop.memberId).toBe(phone.memberId)
    await laptop.send('draw', 2)
    await t.advance(60_000)
    expect(end).toEqual(['replaced', 'the player has joined with another session'])
    expect(laptop.state).toEqual({ joins: 2, leaves: 0, hands: { [phone.memberId]: [1, 2] } })
    expect(bob.members.map(({ id }) => id)).toEqual([phone.memberId, bob.memberId])
  })

  it('keeps the seat when the owner of the room is killed, and when its connection is lost', async () => {
    const { t, phone, join } = await twoPlayers()
    const laptop = await join('ada')
    await t.killOwner()
    await laptop.send('draw', 3)
    await t.drop(laptop)
    await t.reconnect(laptop)
    await laptop.send('draw', 4)
    await t.drainOwner()
    await laptop.send('draw', 5)
    expect(laptop.state).toEqual({ joins: 2, leaves: 0, hands: { [phone.memberId]: [3, 4, 5] } })
    expect([phone.status, laptop.status]).toEqual(['left', 'joined'])
  })

  it('keeps the seat when the first device reconnects, within its session or after it', async () => {
    for (const awayMs of [1000, 300_000]) {
      const { t, phone, bob, join } = await twoPlayers()
      const end = ends(phone)
      const seat = phone.memberId
      await t.drop(phone)
      const laptop = await join('ada')
      await t.advance(awayMs)
      await t.reconnect(phone)
      await t.advance(60_000)
      expect([end[0], laptop.status, laptop.memberId], `${awayMs} ms`).toEqual(['replaced', 'joined', seat])
      expect(bob.state, `${awayMs} ms`).toMatchObject({ joins: 2, leaves: 0 })
    }
  })
})

describe('a banned player', () => {
  it('cannot join until the room removes the ban, also after the death of the owner', async () => {
    const { t, phone, bob, join } = await twoPlayers()
    const end = ends(phone)
    await bob.send('ban', phone.memberId)
    await t.killOwner(bob)
    expect(end).toEqual(['kicked', 'no manners'])
    await expect(join('ada')).rejects.toMatchObject({ code: 'banned', message: 'no manners' })
    await bob.send('unban', 'ada')
    expect((await join('ada')).status).toBe('joined')
  })
})
