import { describe, expect, it, test } from 'vitest'
import { code, inRoom, online } from '../test/support/client/play.ts'

test('a resume without the missed updates brings a complete state', async () => {
  const { server, room, owner, pass, client } = await inRoom()
  const seen: unknown[] = []
  room.onStateChange((state) => seen.push(state))
  server.socket.end(1006)
  owner.patch({ n: 1 })
  owner.patch({ n: 2 })
  server.onHello = () => {
    server.welcome()
    server.deliver(owner.resync())
  }
  await pass(300)
  expect(seen).toEqual([{ n: 2 }])
  expect(client.stats.resyncs).toEqual({ sequence: 0, checksum: 0, unasked: 1 })
  expect(server.all('state.resync')).toEqual([])
})

test('frames that arrived before a loss right after the join are applied', async () => {
  const { client, server, pass } = await online()
  server.onJoin = (join) => {
    server.seat(join)
    server.deliver(server.room('arena:default').patch({ n: 1 }))
    server.socket.end(1006)
  }
  const room = await client.join('arena')
  await pass(300)
  expect(room.state).toEqual({ n: 1 })
  expect(server.all('hello')[1]).toMatchObject({ resume: { rooms: [{ seq: 8 }] } })
})

describe('a seat that ended while the client was offline', () => {
  /** The server's messages for it, after the welcome of a resumed session. */
  const gone: [string, (world: Awaited<ReturnType<typeof inRoom>>) => void][] = [
    [
      'away for longer than reconnectSeconds',
      ({ server, owner }) => {
        server.welcome()
        server.deliver(owner.ownLeft('session_ended'))
      },
    ],
    [
      'with a refusal of what was resent behind it',
      ({ server, room, owner }) => {
        server.welcome()
        server.deliver(owner.ownLeft('session_ended'))
        server.refuse('not_in_room', { room_id: room.id })
        server.refuse('not_in_room', { room_id: room.id, ref: server.messageRefs[0]! })
      },
    ],
  ]

  it.each(gone)('is joined again as a new member: %s', async (_, say) => {
    const world = await inRoom()
    const { client, server, room, errors, pass } = world
    const reasons: unknown[] = []
    room.onLeave((reason) => reasons.push(reason))
    const before = room.memberId
    server.socket.end(1006)
    const refused = expect(room.send('move')).rejects.toEqual(code('not_in_room'))
    server.onHello = () => say(world)
    await pass(1000)
    await refused
    expect([room.status, room.memberId !== before]).toEqual(['joined', true])
    expect(server.all('join')).toHaveLength(2)
    expect([client.stats.seatsLost, reasons, errors]).toEqual([1, [], []])
  })

  it.each(['kicked', 'closed'] as const)(
    'is not joined again when the room has removed the player: %s',
    async (how) => {
      const { server, room, owner, pass } = await inRoom()
      const reasons: unknown[] = []
      room.onLeave((reason) => reasons.push(reason))
      server.socket.end(1006)
      server.onHello = () => {
        server.welcome()
        server.deliver(owner.ownLeft(how))
      }
      await pass(5000)
      expect([room.status, reasons]).toEqual(['left', [how]])
      expect(server.all('join')).toHaveLength(1)
    },
  )
})

test('a join that was called while offline is sent after the reconnect', async () => {
  const { client, server, pass } = await online()
  server.socket.end(1006)
  const joining = client.join('arena')
  await pass(300)
  expect((await joining).status).toBe('joined')
})
