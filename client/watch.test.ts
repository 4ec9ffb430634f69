import { expect, test } from 'vitest'
import { inRoom, online } from '../test/support/client/play.ts'

const watching = async (options: Parameters<typeof online>[0] = {}) => {
  const scene = await online(options)
  const room = await scene.client.join('arena', { key: 'lobby' }, { watch: true })
  await scene.pass(1)
  return { ...scene, room, owner: scene.server.room('arena:lobby') }
}

test('a spectator is in no list of a room that does not show its spectators, and becomes a player there', async () => {
  const { server, room, owner } = await watching()
  expect([room.spectator, room.members.map(({ id }) => id)]).toEqual([true, ['mem_bob']])
  const roles: boolean[] = []
  room.onMembersChange(() => roles.push(room.spectator))
  server.deliver(owner.role(room.memberId, 'seated', owner.seq + 1))
  expect(room.players.map(({ id }) => id)).toEqual(['mem_bob', room.memberId])
  server.deliver(owner.role(room.memberId, 'unseated', owner.seq + 2))
  expect(room.players.map(({ id }) => id)).toEqual(['mem_bob'])
  expect(roles).toEqual([false, true])
})

test('players are the members who do not watch', async () => {
  const { server, room, owner } = await inRoom()
  owner.members = [...owner.members, { member_id: 'mem_eve', sub: 'eve', connected: true, spectator: true }]
  server.deliver(owner.resync())
  expect(room.members.map(({ id, spectator }) => [id, spectator])).toEqual([
    ['mem_bob', false],
    [room.memberId, false],
    ['mem_eve', true],
  ])
  expect(room.players.map(({ id }) => id)).toEqual(['mem_bob', room.memberId])
})

test('onMembersChange reports each new number of spectators', async () => {
  const { server, room } = await inRoom()
  const counts: unknown[] = []
  room.onMembersChange((members, previous) => counts.push([room.spectators, members === previous]))
  for (const count of [3, 3, 2]) server.send({ t: 'spectators', room_id: room.id, count })
  expect(counts).toEqual([
    [3, true],
    [2, true],
  ])
})

test('a client that only watches reconnects later, so that the players of a lost node are back first', async () => {
  const { client, clock, server, pass } = await watching({
    random: { bytes: () => new Uint8Array(), float: () => 0.5 },
  })
  const waitOf = async () => {
    const lostAt = clock.monotonic()
    let dialledAt = lostAt
    server.onDial = (socket) => {
      dialledAt = clock.monotonic()
      queueMicrotask(() => socket.accept())
    }
    server.socket.end(1006)
    await pass(7000)
    return dialledAt - lostAt
  }
  expect(await waitOf()).toBe(125 + 875)
  await client.join('arena', { key: 'other' })
  await pass(7000)
  expect(await waitOf()).toBe(125)
})

test('a code leads to a room to watch', async () => {
  const { client, server, pass } = await online()
  const joined = client.joinByCode('K7QX2M', {}, { watch: true })
  await pass(1)
  const [find] = server.all('find')
  server.send({ t: 'found', request_id: find!.request_id, room_type: 'arena', key: 'lobby', create: false })
  expect((await joined).spectator).toBe(true)
  expect(server.all('join')).toMatchObject([{ create: false, watch: true }])
})

test('a spectator that lost its seat is still a spectator while it joins again', async () => {
  const { server, room, owner, pass } = await watching()
  server.onJoin = () => {}
  server.deliver(owner.ownLeft('session_ended'))
  expect([room.status, room.spectator]).toEqual(['rejoining', true])
  await pass(1000)
  expect(server.all('join').at(-1)).toMatchObject({ rejoin: true, watch: true })
})
