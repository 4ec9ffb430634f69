import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import { RoomBench } from '../../test/support/rooms/room-bench.ts'
import { TestMember } from '../../test/support/rooms/test-member.ts'
import { defineRoom } from './definition.ts'

/** A room that ends when its first member leaves. Three seats of one player are in it. */
async function threeSeats() {
  const left: string[] = []
  const room = defineRoom({
    type: 'room',
    sync: { rate: 0 },
    reconnectSeconds: 1,
    create: () => ({}),
    messages: {
      out: {
        data: v.null(),
        handle(_state, _input, ctx) {
          for (const member of ctx.members) ctx.kick(member, 'out')
        },
      },
    },
    onLeave(_state, member, ctx) {
      left.push(member.id)
      ctx.close()
    },
  })
  const bench = new RoomBench([room])
  const members: TestMember[] = []
  for (const id of ['ann', 'bob', 'cem']) members.push(await bench.join('room', id, { sub: 'usr_a' }))
  return { bench, left, farewells: () => members.map(({ heard }) => heard.at(-1)) }
}

/** `ctx.close` is a wish, which the room fulfils after the whole message, timer or event. No other member may leave in between. */
describe('a room that ends in onLeave of the first of several members', () => {
  it('closes the others, if one turn kicks all of them', async () => {
    const { bench, left, farewells } = await threeSeats()
    await bench.say('room', 'ann', 'out', null)
    expect([left, farewells()]).toEqual([['ann'], ['-ann kicked: out', '-bob closed', '-cem closed']])
  })

  it('closes the others, if a request kicks all seats of their player', async () => {
    const { bench, left, farewells } = await threeSeats()
    void bench.request('room', { id: 'prj_test/kick', hash: 'kick', do: { op: 'kick', sub: 'usr_a' } })
    await bench.untilIdle()
    expect([left, farewells()]).toEqual([['ann'], ['-ann kicked', '-bob closed', '-cem closed']])
  })

  it('takes no join any more, if the seat ended because its session joins anew', async () => {
    const { bench, left } = await threeSeats()
    const anew = new TestMember('dan', 'roomful.v1.msgpack', 'ses_of_ann')
    bench.members.set('dan', anew)
    await bench.join('room', 'dan')
    expect([left, anew.errors, anew.inRoom]).toEqual([['ann'], [], true])
    expect(anew.members).toMatchObject([{ member_id: 'dan' }])
  })

  it('closes the others, if the connections of all are lost for too long', async () => {
    const { bench, left } = await threeSeats()
    bench.host.edgeGone('node_a')
    await bench.advance(60_000, 1000)
    expect([left, bench.host.rooms.running]).toEqual([['ann'], []])
  })
})
