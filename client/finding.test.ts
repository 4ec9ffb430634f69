import { describe, expect, it } from 'vitest'
import { code, online, type Play } from '../test/support/client/play.ts'
import type { Client } from './index.ts'

type Scene = Play & { client: Client }

const DESERT = {
  room_id: 'arena:one',
  players: 1,
  max_players: 4,
  reserved: 0,
  created_at: '2026-10-01T12:00:00.000Z',
  data: { map: 'desert' },
  spectators: 7,
}
const ROW = {
  roomId: 'arena:one',
  key: 'one',
  players: 1,
  maxPlayers: 4,
  spectators: 7,
  reserved: 0,
  createdAt: '2026-10-01T12:00:00.000Z',
  data: { map: 'desert' },
}

/** Answers the latest `find`. */
const found = ({ server }: Scene, roomId: string): void => {
  const [room_type, ...key] = roomId.split(':') as [string, ...string[]]
  server.send({
    t: 'found',
    request_id: server.all('find').at(-1)!.request_id,
    room_type,
    key: key.join(':'),
  })
}

/** Breaks the connection and waits until the client has reconnected. */
async function reconnect({ server, pass }: Scene): Promise<void> {
  server.socket.end(1006)
  await pass(1000)
}

describe('client.rooms', () => {
  it('resolves to the rows of the answer', async () => {
    const { client, server } = await online()
    const rooms = client.rooms('arena', { where: { map: 'desert' }, order: 'newest', limit: 5 })
    const [asked] = server.all('rooms')
    expect(asked).toEqual({
      t: 'rooms',
      request_id: 1,
      room_type: 'arena',
      query: { where: { map: 'desert' }, order: 'newest', limit: 5 },
    })
    server.send({ t: 'rooms', request_id: 1, rooms: [DESERT] })
    expect(await rooms).toEqual([ROW])
  })

  it('returns a room without a limit and without spectators', async () => {
    const { client, server } = await online()
    const rooms = client.rooms('arena')
    const { max_players: _, spectators: __, ...unlimited } = DESERT
    server.send({ t: 'rooms', request_id: 1, rooms: [unlimited] })
    expect(await rooms).toEqual([{ ...ROW, maxPlayers: undefined, spectators: 0 }])
  })

  it('rejects a query that is not JSON', async () => {
    const { client } = await online()
    const rooms = client.rooms('arena', { where: { map: 1n as never } })
    await expect(rooms).rejects.toEqual(code('invalid_options'))
  })

  it('rejects when the client is closed, before and after the call', async () => {
    const { client } = await online()
    const waiting = client.rooms('arena')
    client.close()
    await expect(waiting).rejects.toEqual(code('client_closed'))
    await expect(client.rooms('arena')).rejects.toEqual(code('client_closed'))
  })
})

describe('client.watchRooms', () => {
  it('continues after a lost connection, and does not repeat an unchanged list', async () => {
    const scene = await online()
    const seen: unknown[] = []
    scene.client.watchRooms('arena', {}, (rooms) => seen.push(rooms.length))
    scene.server.send({ t: 'rooms', request_id: 1, rooms: [DESERT] })
    await reconnect(scene)
    expect(scene.server.all('rooms')).toHaveLength(2)
    scene.server.send({ t: 'rooms', request_id: 1, rooms: [DESERT] })
    scene.server.send({ t: 'rooms', request_id: 1, rooms: [] })
    expect(seen).toEqual([1, 0])
  })

  it('applies the changes of a list, in its order', async () => {
    const { client, server } = await online()
    const seen: unknown[] = []
    client.watchRooms('arena', { order: 'oldest' }, (rooms) =>
      seen.push(rooms.map(({ key, players }) => `${key} ${players}`)),
    )
    const row = (key: string, players = 1) => ({ ...DESERT, room_id: `arena:${key}`, players })
    server.send({ t: 'rooms', request_id: 1, rooms: [row('b'), row('c')] })
    server.send({ t: 'rooms', request_id: 1, set: [row('a'), row('c', 2)], gone: [1], at: [0, 2] })
    server.send({ t: 'rooms', request_id: 1, set: [], gone: [1], at: [] })
    server.send({ t: 'rooms', request_id: 1, rooms: [row('d')] })
    expect(seen).toEqual([['b 1', 'c 1'], ['a 1', 'b 1', 'c 2'], ['a 1', 'c 2'], ['d 1']])
  })

  it('requests no list again after it was stopped', async () => {
    const scene = await online()
    scene.client.watchRooms('arena', {}, () => {})()
    await reconnect(scene)
    expect(scene.server.all('rooms')).toHaveLength(1)
  })

  it('tries again after a retryable refusal', async () => {
    const { client, server, pass, errors } = await online()
    const seen: unknown[] = []
    client.watchRooms('arena', {}, (rooms) => seen.push(rooms.length))
    server.refuse('rate_limited', { request_id: 1, retryable: true })
    await pass(2000)
    expect(server.all('rooms')).toHaveLength(2)
    server.send({ t: 'rooms', request_id: 1, rooms: [] })
    expect([seen, errors]).toEqual([[0], []])
  })

  it('reports a final refusal to the callback, or to onError', async () => {
    const { client, server, errors } = await online()
    const failures: unknown[] = []
    client.watchRooms(
      'arena',
      {},
      () => {},
      (error) => failures.push(error.code),
    )
    client.watchRooms('arena', {}, () => {})
    server.refuse('invalid_options', { request_id: 1 })
    server.refuse('unknown_room_type', { request_id: 2 })
    expect(failures).toEqual(['invalid_options'])
    expect(errors).toEqual([code('unknown_room_type')])
  })

  it('reports no error when the client is closed', async () => {
    const { client, errors } = await online()
    client.watchRooms('arena', {}, () => {})
    client.close()
    expect(errors).toEqual([])
  })
})

describe('client.joinOrCreate', () => {
  it('joins the room that the server has chosen, with the options', async () => {
    const scene = await online()
    const joining = scene.client.joinOrCreate('arena', { map: 'desert' }, { where: { map: 'desert' } })
    await scene.pass(1)
    expect(scene.server.all('find')).toEqual([
      {
        t: 'find',
        request_id: 1,
        room: {
          room_type: 'arena',
          query: { where: { map: 'desert' } },
          options: { map: 'desert' },
        },
      },
    ])
    found(scene, 'arena:a:b')
    const room = await joining
    expect([room.id, room.type]).toEqual(['arena:a:b', 'arena'])
    const [join] = scene.server.all('join')
    expect(join).toEqual({
      t: 'join',
      request_id: 2,
      room_type: 'arena',
      options: { map: 'desert', key: 'a:b' },
    })
  })

  it.each(['room_full', 'banned', 'already_joined'] as const)(
    'tries another room after %s',
    async (refusal) => {
      const scene = await online()
      const joining = scene.client.joinOrCreate('arena')
      scene.server.onJoin = ({ request_id }) =>
        scene.server.refuse(refusal, { request_id, room_id: 'arena:full' })
      await scene.pass(1)
      found(scene, 'arena:full')
      await scene.pass(1)
      expect(scene.server.all('find')).toHaveLength(2)
      scene.server.onJoin = (join) => scene.server.seat(join)
      found(scene, 'arena:free')
      expect((await joining).id).toBe('arena:free')
    },
  )

  it('rejects after a refusal that would be the same in another room', async () => {
    const scene = await online()
    const joining = scene.client.joinOrCreate('arena')
    scene.server.onJoin = ({ request_id }) =>
      scene.server.refuse('join_refused', { request_id, room_id: 'arena:x' })
    await scene.pass(1)
    found(scene, 'arena:x')
    await expect(joining).rejects.toEqual(code('join_refused'))
  })

  it('rejects after 10 seconds of full rooms with room_unavailable', async () => {
    const scene = await online()
    const outcome = scene.client.joinOrCreate('arena').catch((error: unknown) => error)
    scene.server.onJoin = ({ request_id, options }) =>
      scene.server.refuse('room_full', { request_id, room_id: `arena:${options.key}`, retryable: true })
    for (let at = 0; at <= 10; at++) {
      await scene.pass(1000)
      found(scene, `arena:${at}`)
    }
    expect(await outcome).toMatchObject({ code: 'room_unavailable', retryable: true })
  })
})

describe('client.create', () => {
  it('joins a room with a key of 128 random bits', async () => {
    const { client } = await online()
    const rooms = [await client.create('arena', { map: 'ice' }), await client.create('arena')]
    for (const { id } of rooms) expect(id).toMatch(/^arena:[0-9a-f]{32}$/)
    expect(rooms[0]!.id).not.toBe(rooms[1]!.id)
  })

  it('has the code that the server gives the room', async () => {
    const { client, server } = await online()
    server.code = 'K7QX2M'
    expect((await client.create('arena')).code).toBe('K7QX2M')
    server.code = undefined
    expect((await client.create('arena')).code).toBe(undefined)
  })
})

describe('client.joinByCode', () => {
  it.each(['', '  ', 'x'.repeat(33)])(
    'rejects %j, which cannot be a code, with room_not_found, without a request',
    async (typed) => {
      const { client, server } = await online()
      await expect(client.joinByCode(typed)).rejects.toEqual(code('room_not_found'))
      expect(server.all('find')).toEqual([])
    },
  )
})

describe('client.join with create: false', () => {
  it('creates no room, also when it joins again after the seat was lost', async () => {
    const { client, server, pass } = await online()
    const room = await client.join('arena', { key: 'one' }, { create: false })
    const left: unknown[] = []
    room.onLeave((reason, error) => left.push(reason, error?.code))
    server.onJoin = ({ request_id }) => server.refuse('room_not_found', { request_id, room_id: 'arena:one' })
    server.deliver(server.room('arena:one').ownLeft('session_ended'))
    await pass(1000)
    expect(server.all('join').map(({ create, rejoin }) => [create, rejoin])).toEqual([
      [false, undefined],
      [false, true],
    ])
    expect(left).toEqual(['rejoin_failed', 'room_not_found'])
  })
})
