import { describe, expect, it } from 'vitest'
import { RoomBench } from '../../test/support/rooms/room-bench.ts'
import { defineRoom } from './definition.ts'

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

describe('Room that hides its members', () => {
  it('shows a member only itself, after a join, a resync, a resume and a repeated join', async () => {
    const { bench, members } = await hallWith('ada', 'bob', 'cleo')
    for (const member of members) expect(idsOf(member)).toEqual([member.memberId])
    const [ada] = members
    bench.resync('hall', ada!, 'checksum')
    await bench.settle()
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
    await bench.settle()
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
