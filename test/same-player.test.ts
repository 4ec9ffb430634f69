import * as v from 'valibot'
import { describe, expect, it, onTestFinished } from 'vitest'
import type { Room } from '../client/index.ts'
import { defineRoom } from '../dataplane/index.ts'
import { testRooms } from './kit/index.ts'

/** A player with two devices, and a player that a room keeps out, as real clients on two nodes meet it. */

const match = defineRoom({
  type: 'match',
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

async function game() {
  const t = await testRooms([match])
  onTestFinished(() => t.close())
  const [phone, bob] = await t.join('match', [{ sub: 'ada' }, { sub: 'bob' }])
  const join = async (sub: string) => (await t.join('match', [{ sub }]))[0]
  return { t, phone, bob, join }
}

/** Why a client has left, as it was told. */
function ends(room: Room<typeof match>): unknown[] {
  const told: unknown[] = []
  room.onLeave((reason, error) => told.push(reason, error?.message))
  return told
}

describe('a player that joins with a second device', () => {
  it('plays on with the same seat, and the first device is out for good', async () => {
    const { t, phone, bob, join } = await game()
    const told = ends(phone)
    await phone.send('draw', 1)
    const laptop = await join('ada')
    expect(laptop.memberId).toBe(phone.memberId)
    await laptop.send('draw', 2)
    await t.advance(60_000)
    expect(told).toEqual(['replaced', 'the player has joined with another session'])
    expect(laptop.state).toEqual({ joins: 2, leaves: 0, hands: { [phone.memberId]: [1, 2] } })
    expect(bob.members.map(({ id }) => id)).toEqual([phone.memberId, bob.memberId])
  })

  it('keeps the seat when the owner of the room is killed, and when its own connection is lost', async () => {
    const { t, phone, join } = await game()
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

  it('keeps the seat when the first device comes back, within its session or after it', async () => {
    for (const awayMs of [1000, 300_000]) {
      const { t, phone, bob, join } = await game()
      const told = ends(phone)
      const seat = phone.memberId
      await t.drop(phone)
      const laptop = await join('ada')
      await t.advance(awayMs)
      await t.reconnect(phone)
      await t.advance(60_000)
      expect([told[0], laptop.status, laptop.memberId], `${awayMs} ms`).toEqual(['replaced', 'joined', seat])
      expect(bob.state, `${awayMs} ms`).toMatchObject({ joins: 2, leaves: 0 })
    }
  })
})

describe('a banned player', () => {
  it('is out until the room takes the ban back, also after the death of the owner', async () => {
    const { t, phone, bob, join } = await game()
    const told = ends(phone)
    await bob.send('ban', phone.memberId)
    await t.killOwner(bob)
    expect(told).toEqual(['kicked', 'no manners'])
    await expect(join('ada')).rejects.toMatchObject({ code: 'banned' })
    await bob.send('unban', 'ada')
    expect((await join('ada')).status).toBe('joined')
  })
})
