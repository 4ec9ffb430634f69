import { expect, test } from 'vitest'
import { inRoom, online } from '../test/support/client/play.ts'

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

test('a resync with a wrong checksum is not shown: the client requests another one, and resumes from position 0 until it has one', async () => {
  const { server, room, owner, client, pass } = await inRoom()
  server.deliver(owner.wrongPatch({ n: 1 }), owner.wrongResync(), owner.patch({ n: 2 }))
  expect([room.state, room.resyncing]).toEqual([{ players: {} }, true])
  expect(server.all('state.resync')).toHaveLength(2)
  server.onHello = () => {
    server.welcome()
    server.deliver(owner.resync(), owner.patch({ n: 3 }))
  }
  server.socket.end(1006)
  await pass(300)
  expect(server.all('hello')[1]).toMatchObject({ resume: { rooms: [{ epoch: 0, seq: 0 }] } })
  expect([room.state, room.resyncing]).toEqual([{ n: 3 }, false])
  expect(client.stats.resyncs).toEqual({ sequence: 0, checksum: 2, unasked: 0 })
})

test('a snapshot with a wrong checksum joins no room: the client requests the whole state', async () => {
  const { client, server, pass } = await online()
  const owner = server.room('arena:lobby')
  server.onJoin = ({ request_id }) => {
    server.send({ t: 'joined', request_id, room_id: 'arena:lobby', member_id: 'mem_1' })
    server.deliver(owner.wrongSnapshot())
  }
  const joining = client.join('arena', { key: 'lobby' })
  await pass(300)
  expect(server.all('state.resync')).toMatchObject([{ reason: 'checksum' }])
  server.deliver(owner.resync())
  expect((await joining).state).toEqual({ players: {} })
})

test('a request for the whole state is made once, however long the answer takes, also after a refusal', async () => {
  const { server, owner, room, pass } = await inRoom()
  server.deliver(owner.wrongPatch({ n: 1 }))
  server.refuse('not_in_room', { room_id: room.id })
  await pass(20_000)
  server.deliver(owner.patch({ n: 2 }))
  expect(server.all('state.resync')).toHaveLength(1)
  server.deliver(owner.resync())
  expect(room.state).toEqual({ n: 2 })
})

test('members disconnect and reconnect', async () => {
  const { server, room, owner } = await inRoom()
  const seen: boolean[] = []
  room.onMembersChange(([bob]) => seen.push(bob!.connected))
  const [before] = room.members
  server.deliver(owner.patch({ n: 1 }), owner.presence('mem_bob', false), owner.presence('mem_bob', false))
  expect(room.members[0]).toEqual({ id: 'mem_bob', sub: 'bob', connected: false, spectator: false })
  server.deliver(owner.patch({ n: 2 }), owner.presence('mem_bob', true), owner.went('mem_nobody'))
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
