import { expect, test } from 'vitest'
import { code, inRoom, online, play, statuses, URL } from '../test/support/client/play.ts'
import { closeError } from './errors.ts'
import { connect } from './index.ts'

test.each([4000, 4001, 4003, 4005, 4006, 4008, 4099])('close code %i is final', async (number) => {
  const { client, server, room, clock, pass } = await inRoom()
  const seen = statuses(client)
  const refused = expect(room.send('move')).rejects.toMatchObject({ retryable: false })
  server.socket.end(number, 'because')
  await refused
  await pass(5000)
  expect(seen).toEqual([['closed', expect.any(String)]])
  expect(server.sockets).toHaveLength(1)
  expect(clock.pending).toBe(0)
  await expect(client.join('arena')).rejects.toThrow(`(${number}): because`)
})

test.each([1000, 1001, 1006, 1011, 1013, 4101, 4103, 4104, 4199])(
  'the client resumes after close code %i',
  async (number) => {
    const { client, server, pass } = await online()
    server.socket.end(number)
    await pass(300)
    expect(client.status).toBe('online')
    expect(server.all('hello')[1]).toHaveProperty('resume')
  },
)

test.each([4001, 4042])('close code %i in answer to a hello is final', async (number) => {
  const { client, server, pass } = await online()
  server.onHello = () => server.socket.end(number, 'because')
  server.socket.end(1006)
  await pass(10_000)
  expect(client.status).toBe('closed')
  expect(server.sockets).toHaveLength(2)
})

test('with reconnect: false, the first loss closes the client', async () => {
  const { client, server } = await online({ reconnect: false })
  const seen = statuses(client)
  server.socket.end(1006)
  expect(seen).toEqual([['closed', 'connection_lost']])
})

test('attempts have full jitter over a wait that doubles', async () => {
  const { client, server, clock, pass } = await online({
    random: { bytes: () => new Uint8Array(), float: () => 0.5 },
  })
  const dials: number[] = []
  server.onDial = (socket) => {
    dials.push(clock.monotonic())
    queueMicrotask(() => socket.end(1006))
  }
  server.socket.end(1006)
  const start = clock.monotonic()
  await pass(25_000)
  const waits = dials.map((at, i) => at - (dials[i - 1] ?? start))
  expect(waits).toEqual([125, 250, 500, 1000, 2000, 4000, 5000, 5000, 5000].slice(0, waits.length))
  expect(client.status).toBe('reconnecting')
})

test('a connection that breaks within 5 s of the welcome does not reset the backoff', async () => {
  const { server, clock, pass } = await online({
    random: { bytes: () => new Uint8Array(), float: () => 0.5 },
  })
  const waits: number[] = []
  for (const _ of [1, 2, 3]) {
    const lostAt = clock.monotonic()
    server.onDial = (socket) => {
      waits.push(clock.monotonic() - lostAt)
      queueMicrotask(() => socket.accept())
    }
    server.socket.end(1006)
    await pass(2000)
  }
  expect(waits).toEqual([125, 250, 500])
  await pass(6000)
  server.socket.end(1006)
  await pass(126)
  expect(server.sockets).toHaveLength(5)
})

test('a lost session is replaced: the client joins its rooms again and rejects unacknowledged messages', async () => {
  const { client, server, room, owner, pass } = await inRoom()
  const states: unknown[] = []
  const members: unknown[] = []
  const rooms: unknown[] = []
  room.onStateChange((state, previous) => states.push([state, previous]))
  room.onMembersChange((list) => members.push(list.length))
  room.onLeave((reason) => rooms.push(reason))
  server.deliver(owner.patch({ n: 1 }))
  const refused = expect(room.send('lost')).rejects.toEqual(code('resume_failed'))
  server.onHello = (hello) => ('resume' in hello ? server.socket.end(4300) : server.welcome())
  // The node was restarted, and the room is a new one.
  server.rooms.clear()
  const fresh = server.room('arena:lobby')
  fresh.state = { fresh: true }
  fresh.epoch = 10
  server.onJoin = () => {}
  server.socket.end(1006)
  await pass(2000)
  await refused
  expect(room.status).toBe('rejoining')
  const kept = room.send('kept')
  server.seat(server.all('join').at(-1)!)
  expect(room.status).toBe('joined')
  expect(room.memberId).toBe('mem_2')
  expect(states.at(-1)).toEqual([{ fresh: true }, { n: 1 }])
  expect(members).toEqual([2])
  expect(rooms).toEqual([])
  expect(server.all('join').at(-1)).toMatchObject({ room_type: 'arena', options: { key: 'lobby' } })
  expect(server.all('message').map(({ type }) => type)).toEqual(['lost', 'kept'])
  server.deliver(fresh.patch({ fresh: true, score: 1 }), fresh.patch({ fresh: true, score: 2 }))
  expect(room.state).toEqual({ fresh: true, score: 2 })
  server.ack(fresh, 100)
  await kept
  expect(client.status).toBe('online')
})

test('after a long loss, a lost session is replaced without a long wait', async () => {
  const { client, server, pass } = await online({
    random: { bytes: () => new Uint8Array(), float: () => 0.9 },
  })
  server.onDial = (socket) => queueMicrotask(() => socket.end(1013))
  server.socket.end(1006)
  await pass(40_000)
  server.onDial = (socket) => queueMicrotask(() => socket.accept())
  server.onHello = (hello) => ('resume' in hello ? server.socket.end(4300) : server.welcome())
  while (!('resume' in server.all('hello').at(-1)!)) await pass(25)
  await pass(250)
  expect(client.status).toBe('online')
})

test('a resume that the server answers with a new session counts as a lost session', async () => {
  const { server, room, pass } = await inRoom()
  server.onHello = () => server.welcome({ resumed: false })
  server.socket.end(1006)
  await pass(300)
  // A seat that another session of the player has taken over stays there.
  expect(server.all('join').map(({ rejoin }) => rejoin)).toEqual([undefined, true])
  expect(room.memberId).toBe('mem_2')
})

test.each([
  ['room_full', 'rejoin_failed'],
  ['replaced', 'replaced'],
] as const)('a rejoin that is refused with %s is tried again, and ends as %s', async (refusal, reason) => {
  const { server, room, pass } = await inRoom()
  const reasons: unknown[] = []
  room.onLeave((reason, error) => reasons.push([reason, error]))
  server.onHello = () => server.welcome({ resumed: false })
  server.onJoin = ({ request_id }) =>
    server.refuse(refusal, { request_id, room_id: 'arena:lobby', retryable: true })
  server.socket.end(1006)
  await pass(300)
  expect(room.status).toBe('rejoining')
  await pass(30_000)
  expect(server.all('join')).toHaveLength(1 + 6)
  expect(reasons).toEqual([[reason, code(refusal)]])
})

test('a pending rejoin is sent once if the connection is lost before it', async () => {
  // A long wait for the next rejoin, and short ones for the connection.
  const floats = [0, 1]
  const random = { bytes: () => new Uint8Array(), float: () => floats.shift() ?? 0 }
  const { server, room, pass } = await inRoom({ random })
  server.onHello = (hello) =>
    server.welcome('resume' in hello && server.sockets.length === 2 ? { resumed: false } : {})
  server.onJoin = ({ request_id }) =>
    server.refuse('room_full', { request_id, room_id: 'arena:lobby', retryable: true })
  server.socket.end(1006)
  while (server.sockets.length < 2) await pass(25)
  await pass(0)
  server.onJoin = () => {}
  const before = server.all('join').length
  server.socket.end(1006)
  await pass(5000)
  expect(server.all('join').slice(before)).toHaveLength(1)
  server.seat(server.all('join').at(-1)!)
  expect(room.status).toBe('joined')
})

test('a rejoin with a final refusal ends the room', async () => {
  const { server, room, pass } = await inRoom()
  server.onHello = () => server.welcome({ resumed: false })
  server.onJoin = ({ request_id }) => server.refuse('forbidden', { request_id, room_id: 'arena:lobby' })
  server.socket.end(1006)
  await pass(300)
  expect(room.status).toBe('left')
})

test('a leave resolves when the session is lost', async () => {
  const { server, room, pass } = await inRoom()
  server.onHello = () => server.welcome({ resumed: false })
  server.socket.end(1006)
  const leaving = room.leave()
  await pass(300)
  await leaving
  expect(server.all('join')).toHaveLength(1)
})

test('after a resume whose welcome was lost, the client starts a new session', async () => {
  const { client, server, pass } = await inRoom()
  const resumes: string[] = []
  server.onHello = (hello) => {
    if (!('resume' in hello)) return server.welcome()
    // The first resume succeeds, but its welcome never arrives. The second has a used token.
    resumes.push(hello.resume.resume_token)
    server.socket.end(resumes.length === 1 ? 1006 : 4005)
  }
  server.socket.end(1006)
  await pass(3000)
  expect(resumes).toEqual(['resume_1', 'resume_1'])
  expect(client.status).toBe('online')
  expect(server.all('join')).toHaveLength(2)
})

test('an invalid frame ends the connection, not the session', async () => {
  const { client, server, pass, errors } = await online()
  server.socket.deliver(new Uint8Array([0xc1]))
  expect(server.socket.closed).toBe(true)
  expect(errors).toEqual([code('protocol_error')])
  await pass(300)
  expect(client.status).toBe('online')
  server.socket.deliver('text')
  await pass(600)
  expect(server.all('hello')).toHaveLength(3)
  expect(server.all('hello')[2]).toHaveProperty('resume')
})

test('refusals of a new session (4300) do not reset the backoff', async () => {
  const { server, clock, options, pass } = play({
    connectTimeoutMs: 60_000,
    random: { bytes: () => new Uint8Array(), float: () => 0.5 },
  })
  const hellos: number[] = []
  server.onHello = () => {
    hellos.push(clock.monotonic())
    if (hellos.length < 5) server.socket.end(4300)
    else server.welcome()
  }
  const connecting = connect(URL, options)
  await pass(5000)
  await connecting
  expect(hellos.slice(1).map((at, i) => at - hellos[i]!)).toEqual([125, 250, 500, 1000])
})

test('a callback may close the client at any call', async () => {
  for (const lose of ['1006', 'without its seat', '4300'] as const) {
    const { client, server, room, owner, pass, clock } = await inRoom()
    const seen = statuses(client)
    if (lose === '1006') client.onConnectionChange((status) => status === 'reconnecting' && client.close())
    room.onLeave(() => client.close())
    server.onLeave = () => {}
    if (lose !== '1006') void room.leave()
    server.onHello = (hello) => {
      if (lose === '4300' && 'resume' in hello) server.socket.end(4300)
      else server.welcome()
      if (lose === 'without its seat') server.deliver(owner.ownLeft('session_ended'))
    }
    server.socket.end(1006)
    await pass(3000)
    expect(client.status).toBe('closed')
    expect(seen.at(-1)).toBe('closed')
    expect(seen.filter((status) => status === 'closed')).toHaveLength(1)
    expect(clock.pending).toBe(0)
  }
})

test('the error of a close with 4003 is banned, with the text for the player, if its reason starts with it, and else revoked', () => {
  expect(closeError(4003, 'banned: cheating')).toMatchObject({
    code: 'banned',
    message: 'cheating',
    retryable: false,
  })
  expect(closeError(4003, 'the tokens of the player were revoked')).toMatchObject({ code: 'revoked' })
})

test.each([
  [4099, { code: 'connection_lost', retryable: false }],
  [4199, { code: 'connection_lost', retryable: true }],
  [4299, { code: 'token_expired', retryable: true }],
  [4399, { code: 'resume_failed', retryable: true }],
])('close code %i of a later version has the meaning of its hundred', (number, error) => {
  expect(closeError(number, '')).toMatchObject(error)
})
