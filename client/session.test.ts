import { expect, test } from 'vitest'
import { inRoom, online, play, turn } from '../test/support/client/play.ts'
import { connect } from './index.ts'

const URL = 'ws://roomful.test'
const code = (value: string) => expect.objectContaining({ name: 'RoomfulError', code: value })

/** Every status a client goes through from now on. */
function statuses(client: {
  onConnectionChange(callback: (...change: unknown[]) => void): unknown
}): unknown[] {
  const seen: unknown[] = []
  client.onConnectionChange((status, error) =>
    seen.push(error === undefined ? status : [status, (error as { code: string }).code]),
  )
  return seen
}

test('connect says hello in MessagePack with the token', async () => {
  const { server, client } = await online()
  expect(server.socket.url).toBe(URL)
  expect(server.socket.protocols).toEqual(['roomful.v1.msgpack'])
  expect(server.all('hello')).toEqual([{ t: 'hello', project_id: 'prj_1', token: 'v4.public.unreadable' }])
  expect(client.status).toBe('online')
})

test('connect rejects at once when the server refuses the token', async () => {
  const { server, options } = play()
  server.onHello = () => server.socket.end(4001, 'bad signature')
  await expect(connect(URL, options)).rejects.toThrow(
    'The server closed the connection (4001): bad signature.',
  )
  await expect(connect(URL, options)).rejects.toEqual(code('unauthenticated'))
  expect(server.sockets).toHaveLength(2)
})

test('connect tries again while the server is away', async () => {
  const { server, options, pass } = play()
  server.onDial = (socket) =>
    queueMicrotask(() => (server.sockets.length < 4 ? socket.end(1006) : socket.accept()))
  const connecting = connect(URL, options)
  await pass(8000)
  expect((await connecting).status).toBe('online')
  expect(server.sockets).toHaveLength(4)
})

test('connect gives up after its time', async () => {
  const { server, options, pass, clock } = play({ connectTimeoutMs: 3000 })
  server.onDial = (socket) => queueMicrotask(() => socket.end(1006))
  const refused = expect(connect(URL, options)).rejects.toThrow(
    'No connection to ws://roomful.test within 3000 ms. No connection to ws://roomful.test could be made (close code 1006).',
  )
  await pass(3000)
  await refused
  expect(clock.pending).toBe(0)
})

test('connect tries once when it may not reconnect', async () => {
  const { server, options } = play({ reconnect: false })
  server.onDial = (socket) => queueMicrotask(() => socket.end(1006))
  await expect(connect(URL, options)).rejects.toEqual(code('connection_failed'))
  expect(server.sockets).toHaveLength(1)
})

test('connect names a bad URL', async () => {
  const { options } = play()
  class Strict {
    constructor(url: string) {
      throw new SyntaxError(`the URL ${url} is invalid`)
    }
  }
  await expect(connect('nonsense', { ...options, WebSocket: Strict as never })).rejects.toThrow(
    'the URL nonsense is invalid',
  )
})

test('connect rejects when the token cannot be had', async () => {
  const { token: _, ...options } = play().options
  const getToken = () => Promise.reject(new Error('backend down'))
  await expect(connect(URL, { ...options, getToken })).rejects.toThrow('getToken failed: Error: backend down')
  await expect(connect(URL, options)).rejects.toEqual(code('token_unavailable'))
})

test('a signal ends a connect that waits', async () => {
  const { server, options, clock } = play()
  server.onDial = () => {}
  const abort = new AbortController()
  const refused = expect(connect(URL, { ...options, signal: abort.signal })).rejects.toEqual(
    code('client_closed'),
  )
  await turn()
  abort.abort()
  await refused
  expect(server.socket.closed_with).toBe(1000)
  expect(clock.pending).toBe(0)
  await expect(connect(URL, { ...options, signal: abort.signal })).rejects.toEqual(code('client_closed'))
})

test('close says goodbye and rejects whatever waits', async () => {
  const { client, server, room, clock } = await inRoom()
  const seen = statuses(client)
  const reasons: unknown[] = []
  room.onLeave((reason, error) => reasons.push([reason, error]))
  const refused = expect(room.send('move')).rejects.toEqual(code('client_closed'))
  client.close()
  client.close()
  await refused
  expect(server.socket.closed_with).toBe(1000)
  expect(seen).toEqual(['closed'])
  expect(reasons).toEqual([['client_closed', code('client_closed')]])
  expect(clock.pending).toBe(0)
  await expect(client.join('arena')).rejects.toEqual(code('client_closed'))
})

test('close while reconnecting ends the attempt', async () => {
  const { client, server, clock, pass } = await online()
  server.onDial = () => {}
  server.socket.end(1006)
  await pass(300)
  expect(server.sockets).toHaveLength(2)
  client.close()
  expect(server.socket.closed_with).toBe(1000)
  expect(clock.pending).toBe(0)
  expect(client.status).toBe('closed')
})

test('a broken connection is resumed from where each room stands', async () => {
  const { client, server, room, owner, pass } = await inRoom()
  const seen = statuses(client)
  server.deliver(owner.patch({ n: 1 }))
  server.socket.end(1006)
  expect(client.status).toBe('reconnecting')
  await pass(300)
  expect(server.all('hello').at(-1)).toEqual({
    t: 'hello',
    project_id: 'prj_1',
    resume: {
      session_id: 'ses_1',
      resume_token: 'resume_1',
      rooms: [{ room_id: 'arena:lobby', epoch: 1000, seq: 8 }],
    },
  })
  expect(seen).toEqual([['reconnecting', 'connection_lost'], 'online'])
  expect(client.stats.reconnects).toBe(1)
  expect(room.memberId).toBe('mem_1')
})

test('each resume uses the token of the welcome before', async () => {
  const { server, pass } = await online()
  for (const _ of [1, 2]) {
    server.socket.end(1006)
    await pass(600)
  }
  expect(
    server.all('hello').map((hello) => ('resume' in hello ? hello.resume.resume_token : 'none')),
  ).toEqual(['none', 'resume_1', 'resume_2'])
})

test('missed frames are replayed, though their keys were announced before the loss', async () => {
  const { server, room, owner, pass, client } = await inRoom()
  const hits: unknown[] = []
  room.onMessage('hit', (data) => hits.push(data))
  server.deliver(owner.patch({ players: { alice: { x: 1 } } }))
  server.socket.end(1006)
  const missed = [
    owner.patch({ players: { alice: { x: 2 } } }),
    owner.event('hit', 1),
    owner.patch({ players: {} }),
  ]
  server.onHello = () => {
    server.welcome()
    server.deliver(...missed)
  }
  await pass(300)
  expect(room.state).toEqual({ players: {} })
  expect(hits).toEqual([1])
  expect(client.stats.resyncs).toEqual({ sequence: 0, checksum: 0, unasked: 0 })
})

test('what cannot be replayed comes as a whole state', async () => {
  const { server, room, owner, pass, client } = await inRoom()
  const seen: unknown[] = []
  room.onStateChange((state) => seen.push(state))
  server.socket.end(1006)
  owner.patch({ n: 1 })
  owner.patch({ n: 2 })
  server.onHello = () => {
    server.welcome({ rooms: [{ room_id: 'arena:lobby', resumed: false }] })
    server.deliver(owner.resync())
  }
  await pass(300)
  expect(seen).toEqual([{ n: 2 }])
  expect(client.stats.resyncs).toEqual({ sequence: 0, checksum: 0, unasked: 1 })
  expect(server.all('state.resync')).toEqual([])
})

test('a resync that was awaited at the loss is not awaited after it', async () => {
  const { server, room, owner, pass } = await inRoom()
  const missed = [owner.patch({ n: 1 }), owner.patch({ n: 2 })]
  server.deliver(missed[1]!)
  expect(server.all('state.resync')).toHaveLength(1)
  server.onHello = () => {
    server.welcome()
    server.deliver(...missed, owner.patch({ n: 3 }))
  }
  server.socket.end(1006)
  await pass(300)
  expect(room.state).toEqual({ n: 3 })
})

test('a loss right behind the join loses nothing of what had arrived', async () => {
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

test('what waits for its turn to be sent is not sent twice after a resume', async () => {
  const { server, room, pass } = await inRoom()
  server.limits = { ...server.limits, message_burst: 10, messages_per_second: 10 }
  server.socket.end(1006)
  await pass(2000)
  for (let n = 0; n < 20; n++) void room.send('move').catch(() => {})
  server.socket.end(1006)
  const before = server.all('message').length
  await pass(5000)
  const again = server.message_refs.slice(before)
  expect(again).toHaveLength(20)
  expect(again).toEqual([...new Set(again)].toSorted((a, b) => a! - b!))
})

test('unacked messages are resent in order after a resume, with those sent meanwhile behind them', async () => {
  const { server, room, owner, pass } = await inRoom()
  const done: string[] = []
  const send = (type: string) => room.send(type).then(() => done.push(type))
  const sends = [send('a'), send('b'), send('c')]
  server.ack(owner, server.message_refs[0]!)
  server.socket.end(1006)
  sends.push(send('d'))
  await pass(300)
  expect(server.all('message').map(({ type }) => type)).toEqual(['a', 'b', 'c', 'b', 'c', 'd'])
  const [, b, c, ...again] = server.message_refs
  expect(again.slice(0, 2)).toEqual([b, c])
  expect(done).toEqual(['a'])
  server.ack(owner, again.at(-1)!)
  await Promise.all(sends)
  expect(done).toEqual(['a', 'b', 'c', 'd'])
})

test('a room that the resumed session has lost is over', async () => {
  const { server, room, errors, pass } = await inRoom()
  const reasons: unknown[] = []
  room.onLeave((reason) => reasons.push(reason))
  server.socket.end(1006)
  const refused = expect(room.send('move')).rejects.toEqual(code('not_in_room'))
  server.onHello = () => server.welcome({ rooms: [] })
  await pass(300)
  await refused
  expect(reasons).toEqual(['seat_lost'])
  expect(errors).toEqual([])
})

test('a room that turns out to be lost behind the welcome is over, whatever was resent', async () => {
  const { server, room, errors, pass } = await inRoom()
  server.socket.end(1006)
  const refused = expect(room.send('move')).rejects.toEqual(code('not_in_room'))
  server.onHello = () => {
    server.welcome({ rooms: [{ room_id: room.id, resumed: false }] })
    server.refuse('not_in_room', { room_id: room.id })
    server.refuse('not_in_room', { room_id: room.id, ref: server.message_refs[0]! })
  }
  await pass(300)
  await refused
  expect(room.status).toBe('left')
  expect(errors).toEqual([])
})

test('a join whose answer was lost is sent again with the same ref', async () => {
  const { client, server, pass } = await online()
  server.onJoin = () => {}
  const joining = client.join('arena', { key: 'lobby' })
  await turn()
  server.socket.end(1006)
  server.onJoin = (join) => server.seat(join)
  await pass(300)
  expect((await joining).id).toBe('arena:lobby')
  const [first, second] = server.all('join')
  expect(second).toEqual(first)
})

test('a join asked for while offline is sent when the client is back', async () => {
  const { client, server, pass } = await online()
  server.socket.end(1006)
  const joining = client.join('arena')
  await pass(300)
  expect((await joining).status).toBe('joined')
})

test('a leave whose answer was lost is sent again with the same ref', async () => {
  const { server, room, pass, errors } = await inRoom()
  server.onLeave = () => {}
  const leaving = room.leave()
  server.socket.end(1006)
  server.onLeave = ({ ref, room_id }) => server.refuse('not_in_room', { ref, room_id })
  await pass(300)
  await leaving
  const [first, second] = server.all('leave')
  expect(second).toEqual(first)
  expect(errors).toEqual([])
})

test.each([4000, 4003, 4005, 4006, 4007, 4008])('close code %i is final', async (number) => {
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

test.each([1001, 1006, 1011, 1013, 4100, 4101])('close code %i is resumed', async (number) => {
  const { client, server, pass } = await online()
  server.socket.end(number)
  await pass(300)
  expect(client.status).toBe('online')
  expect(server.all('hello')[1]).toHaveProperty('resume')
})

test('without reconnect the first loss is the end', async () => {
  const { client, server } = await online({ reconnect: false })
  const seen = statuses(client)
  server.socket.end(1006)
  expect(seen).toEqual([['closed', 'connection_lost']])
})

test('attempts are spread by full jitter over a time that doubles', async () => {
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

test('a connection that breaks soon after the welcome does not start the waits anew', async () => {
  const { server, clock, pass } = await online({
    random: { bytes: () => new Uint8Array(), float: () => 0.5 },
  })
  const waits: number[] = []
  for (const _ of [1, 2, 3]) {
    const lost_at = clock.monotonic()
    server.onDial = (socket) => {
      waits.push(clock.monotonic() - lost_at)
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

test('a draining server is left at the time it names, and the session goes on elsewhere', async () => {
  const { client, server, room, owner, pass } = await inRoom()
  const seen = statuses(client)
  const send = room.send('move')
  server.send({ t: 'draining', reconnect_in_ms: 2000 })
  await pass(1900)
  expect(server.sockets).toHaveLength(1)
  server.deliver(owner.patch({ n: 1 }))
  const [old] = server.sockets
  await pass(200)
  // Not 1000: the session is to stay.
  expect(old?.closed_with).toBe('no code')
  expect(server.all('hello')[1]).toMatchObject({ resume: { rooms: [{ seq: 8 }] } })
  expect(seen).toEqual([['reconnecting', 'draining'], 'online'])
  server.ack(owner, server.message_refs[0]!)
  await send
  expect(room.state).toEqual({ n: 1 })
})

test('when there is nowhere to move to, attempts are spread as after any loss', async () => {
  const { client, server, pass } = await online()
  server.send({ t: 'draining', reconnect_in_ms: 100 })
  server.onDial = (socket) => queueMicrotask(() => socket.end(1006))
  await pass(5000)
  expect(client.status).toBe('reconnecting')
  expect(server.sockets.length).toBeLessThan(12)
})

test('a draining server that closes early is followed at the time it named', async () => {
  const { server, pass } = await online()
  server.send({ t: 'draining', reconnect_in_ms: 2000 })
  server.socket.end(4100)
  await pass(1900)
  expect(server.sockets).toHaveLength(1)
  await pass(200)
  expect(server.sockets).toHaveLength(2)
})

test('a session that is gone is replaced: rooms are joined again, what was not acked is rejected', async () => {
  const { client, server, room, owner, pass } = await inRoom()
  const states: unknown[] = []
  const members: unknown[] = []
  const rooms: unknown[] = []
  room.onStateChange((state, previous) => states.push([state, previous]))
  room.onMembersChange((list) => members.push(list.length))
  room.onLeave((reason) => rooms.push(reason))
  server.deliver(owner.patch({ n: 1 }))
  const refused = expect(room.send('lost')).rejects.toEqual(code('resume_failed'))
  server.onHello = (hello) => ('resume' in hello ? server.socket.end(4009) : server.welcome())
  // The node was restarted: the room is another.
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

test('a resume that is welcomed as a new session counts as one', async () => {
  const { server, room, pass } = await inRoom()
  server.onHello = () => server.welcome({ resumed: false })
  server.socket.end(1006)
  await pass(300)
  expect(server.all('join')).toHaveLength(2)
  expect(room.memberId).toBe('mem_2')
})

test('a rejoin that may succeed later is tried again, and not for ever', async () => {
  const { server, room, pass } = await inRoom()
  const reasons: unknown[] = []
  room.onLeave((reason, error) => reasons.push([reason, error]))
  server.onHello = () => server.welcome({ resumed: false })
  server.onJoin = ({ ref }) => server.refuse('room_full', { ref, room_id: 'arena:lobby', retryable: true })
  server.socket.end(1006)
  await pass(300)
  expect(room.status).toBe('rejoining')
  await pass(30_000)
  expect(server.all('join')).toHaveLength(1 + 6)
  expect(reasons).toEqual([['rejoin_failed', code('room_full')]])
})

test('a rejoin that waits for its next try is sent once when the connection is lost meanwhile', async () => {
  // A long wait for the next try, short ones for the connection.
  const floats = [0, 1]
  const random = { bytes: () => new Uint8Array(), float: () => floats.shift() ?? 0 }
  const { server, room, pass } = await inRoom({ random })
  server.onHello = (hello) =>
    server.welcome('resume' in hello && server.sockets.length === 2 ? { resumed: false } : {})
  server.onJoin = ({ ref }) => server.refuse('room_full', { ref, room_id: 'arena:lobby', retryable: true })
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

test('a rejoin that is refused for good ends the room', async () => {
  const { server, room, pass } = await inRoom()
  server.onHello = () => server.welcome({ resumed: false })
  server.onJoin = ({ ref }) => server.refuse('forbidden', { ref, room_id: 'arena:lobby' })
  server.socket.end(1006)
  await pass(300)
  expect(room.status).toBe('left')
})

test('leaving a room while its session is lost resolves', async () => {
  const { server, room, pass } = await inRoom()
  server.onHello = () => server.welcome({ resumed: false })
  server.socket.end(1006)
  const leaving = room.leave()
  await pass(300)
  await leaving
  expect(server.all('join')).toHaveLength(1)
})

test('a resume whose welcome was lost leads to a new session, not to the end', async () => {
  const { client, server, pass } = await inRoom()
  const resumes: string[] = []
  server.onHello = (hello) => {
    if (!('resume' in hello)) return server.welcome()
    // The first resume takes place, but its welcome never arrives; the second comes with a used token.
    resumes.push(hello.resume.resume_token)
    server.socket.end(resumes.length === 1 ? 1006 : 4005)
  }
  server.socket.end(1006)
  await pass(3000)
  expect(resumes).toEqual(['resume_1', 'resume_1'])
  expect(client.status).toBe('online')
  expect(server.all('join')).toHaveLength(2)
})

test('a server that never welcomes is given up, and tried again', async () => {
  const { client, server, pass } = await online()
  server.onHello = () => {
    if (server.sockets.length > 2) server.welcome()
  }
  server.socket.end(1006)
  await pass(9000)
  expect(server.sockets).toHaveLength(2)
  await pass(4000)
  expect(client.status).toBe('online')
})

test('a frame that cannot be read ends the connection, not the session', async () => {
  const { client, server, pass, errors } = await online()
  server.socket.deliver(new Uint8Array([0xc1]))
  expect(server.socket.closed_with).toBe(4000)
  expect(errors).toEqual([code('protocol_error')])
  await pass(300)
  expect(client.status).toBe('online')
  server.socket.deliver('text')
  await pass(600)
  expect(server.all('hello')).toHaveLength(3)
  expect(server.all('hello')[2]).toHaveProperty('resume')
})

test('pings keep the connection, silence ends it', async () => {
  const { client, server, pass } = await online()
  await pass(60_000)
  expect(server.all('ping').length).toBe(7)
  expect(server.sockets).toHaveLength(1)
  server.onPing = () => {}
  await pass(19_000)
  expect(client.status).toBe('online')
  await pass(1100)
  expect(server.sockets[0]?.closed_with).toBe('no code')
  expect(client.status).not.toBe('closed')
  expect(server.all('hello').at(-1)).toHaveProperty('resume')
})

test('a callback may close the client whenever it is called', async () => {
  for (const lose of ['1006', 'welcome without rooms', '4009'] as const) {
    const { client, server, room, pass, clock } = await inRoom()
    const seen = statuses(client)
    if (lose === '1006') client.onConnectionChange((status) => status === 'reconnecting' && client.close())
    room.onLeave(() => client.close())
    server.onLeave = () => {}
    if (lose === '4009') void room.leave()
    server.onHello = (hello) =>
      lose === '4009' && 'resume' in hello ? server.socket.end(4009) : server.welcome({ rooms: [] })
    server.socket.end(1006)
    await pass(3000)
    expect(client.status).toBe('closed')
    expect(seen.at(-1)).toBe('closed')
    expect(seen.filter((status) => status === 'closed')).toHaveLength(1)
    expect(clock.pending).toBe(0)
  }
})
