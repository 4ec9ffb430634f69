import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import { RoomBench } from '../../test/support/rooms/room-bench.ts'
import { type Durability, defineRoom } from './definition.ts'

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

describe('ctx.kick with ban', () => {
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
    'in a %s room holds at the next owner, also if the owner dies right after the ack',
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
