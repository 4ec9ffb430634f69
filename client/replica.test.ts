import { expect, test } from 'vitest'
import { inRoom } from '../test/support/client/play.ts'

test('each patch changes the state, and calls listeners with the new and the previous state', async () => {
  const { server, room, owner, client } = await inRoom()
  const seen: unknown[] = []
  room.onStateChange((state, previous) => seen.push([state, previous]))
  server.deliver(owner.patch({ players: { a: { x: 1 } } }), owner.patch({ players: { a: { x: 2 } } }))
  expect(room.state).toEqual({ players: { a: { x: 2 } } })
  expect(seen).toEqual([
    [{ players: { a: { x: 1 } } }, { players: {} }],
    [{ players: { a: { x: 2 } } }, { players: { a: { x: 1 } } }],
  ])
  expect(client.stats.patches).toBe(2)
})

test('a patch without a change calls no listener and advances the position', async () => {
  const { server, room, owner, client } = await inRoom()
  let calls = 0
  room.onStateChange(() => calls++)
  server.deliver(owner.patch(owner.state), owner.patch({ n: 1 }))
  expect(calls).toBe(1)
  expect(client.stats.resyncs.sequence).toBe(0)
})

test('a resync with a wrong checksum is shown, counted, and requested again after a wait', async () => {
  const { server, room, owner, client, pass } = await inRoom()
  server.deliver(owner.wrongPatch({ n: 1 }), owner.wrongResync())
  expect(room.state).toEqual({ n: 1 })
  expect(server.all('state.resync')).toHaveLength(1)
  await pass(2100)
  expect(server.all('state.resync')).toHaveLength(2)
  expect(client.stats.resyncs.checksum).toBe(2)
  server.deliver(owner.resync(), owner.patch({ n: 2 }))
  expect(room.state).toEqual({ n: 2 })
})

test('members disconnect and reconnect', async () => {
  const { server, room, owner } = await inRoom()
  const seen: boolean[] = []
  room.onMembersChange(([bob]) => seen.push(bob!.connected))
  const [before] = room.members
  server.deliver(owner.patch({ n: 1 }), owner.presence('mem_bob', false), owner.presence('mem_bob', false))
  expect(room.members[0]).toEqual({ id: 'mem_bob', sub: 'bob', connected: false, spectator: false })
  server.deliver(owner.patch({ n: 2 }), owner.presence('mem_bob', true), owner.presence('mem_nobody', true))
  expect([seen, before!.connected]).toEqual([[false, true], true])
  server.deliver(owner.resync())
  expect(room.members[0]!.connected).toBe(true)
})

test('members join and leave', async () => {
  const { server, room, owner } = await inRoom()
  const seen: unknown[] = []
  room.onMembersChange((members, previous) => seen.push([members.length, previous.length]))
  expect(room.members).toEqual([
    { id: 'mem_bob', sub: 'bob', connected: true, spectator: false },
    { id: room.memberId, sub: 'alice', connected: true, spectator: false },
  ])
  server.deliver(owner.patch({ n: 1 }), owner.came('mem_carol', null), owner.went('mem_bob'))
  expect(room.members.map(({ id }) => id)).toEqual([room.memberId, 'mem_carol'])
  expect(seen).toEqual([
    [3, 2],
    [2, 3],
  ])
})
