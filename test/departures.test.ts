import * as v from 'valibot'
import { describe, expect, it, onTestFinished } from 'vitest'
import type { LeaveReason, Room } from '../client/index.ts'
import { defineRoom } from '../dataplane/index.ts'
import { testRooms } from './kit/index.ts'

/** How seats end, as real clients hear of it: each at another node than the one before. */

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

/** Everything that a client hears from now on, in order. */
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
  it('reaches its players before they hear that it has closed', async () => {
    const { a, b } = await game()
    const heard = [listen(a), listen(b)]
    const scored = a.send('score', 3).then(() => a.state.score)
    await Promise.all([scored, b.send('win')])
    expect(await scored).toBe(3)
    const end = [{ winner: b.memberId, score: 3 }, 'over', 'closed']
    for (const one of heard) expect(one.slice(0, 3)).toEqual(end)
    expect([a.state.winner, b.state.hands]).toEqual([b.memberId, { [b.memberId]: [1] }])
  })

  it('reaches a player who is kicked with it', async () => {
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
  ])('hears at its return that it was $end', async ({ end, text }) => {
    const { t, a, b } = await game()
    const heard = listen(a)
    await t.drop(a)
    if (end === 'kicked') await b.send('kick', a.memberId)
    else await b.send('win')
    await t.reconnect(a)
    expect(heard.slice(-2)).toEqual([end, text])
    expect(a.status).toBe('left')
  })

  it('is a new member at its return, if the seat has expired', async () => {
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
