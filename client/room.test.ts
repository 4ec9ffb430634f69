import { expect, onTestFinished, test, vi } from 'vitest'
import { inRoom, online, play, turn } from '../test/support/client/play.ts'
import { RoomfulError } from './errors.ts'
import { connect } from './index.ts'

const code = (value: string) => expect.objectContaining({ name: 'RoomfulError', code: value })

test('join resolves to a room with its id and its state', async () => {
  const { server, room } = await inRoom()
  expect(server.all('join')).toMatchObject([{ room_type: 'arena', options: { key: 'lobby' } }])
  expect([room.id, room.key, room.memberId, room.status, room.state]).toEqual([
    'arena:lobby',
    'lobby',
    'mem_1',
    'joined',
    { players: {} },
  ])
})

test('join without options uses the key default', async () => {
  const { client } = await online()
  expect((await client.join('arena')).id).toBe('arena:default')
})

test('callbacks that are added right after the join get all frames that follow the snapshot', async () => {
  const { client, server, pass } = await online()
  server.onJoin = (join) => {
    server.seat(join)
    const owner = server.room('arena:lobby')
    server.deliver(owner.patch({ n: 1 }), owner.event('hit', 'early'))
  }
  const room = await client.join('arena', { key: 'lobby' })
  const hits: unknown[] = []
  room.on('hit', (data) => hits.push(data))
  await pass(1)
  expect(hits).toEqual(['early'])
  expect(room.state).toEqual({ n: 1 })
})

test('a second join of the same room rejects until the client has left', async () => {
  const { client, room } = await inRoom()
  await expect(client.join('arena', { key: 'lobby' })).rejects.toEqual(code('already_joined'))
  void room.leave()
  expect((await client.join('arena', { key: 'lobby' })).memberId).toBe('mem_2')
})

test('a request resolves to its reply when it is acknowledged, and a reply to an unknown ref is ignored', async () => {
  const { server, room, owner } = await inRoom()
  const asked = room.request('strike', { power: 3 })
  const sent = room.send('move', { x: 1 })
  const ref = server.all('message')[0]!.ref!
  server.send({ t: 'reply', room_id: owner.roomId, ref, data: { hp: 7 } })
  server.send({ t: 'reply', room_id: owner.roomId, ref: 99, data: { hp: 0 } })
  server.ack(owner, 100)
  expect([await asked, await sent]).toEqual([{ hp: 7 }, undefined])
})

test('a refused request rejects, and so does a request without a reply', async () => {
  const { server, room, owner } = await inRoom()
  const asked = [room.request('strike'), room.request('wave')]
  const ref = server.all('message')[0]!.ref!
  server.refuse('room_logic_refused', { ref, room_id: owner.roomId })
  server.ack(owner, 100)
  await expect(asked[0]).rejects.toEqual(code('room_logic_refused'))
  await expect(asked[1]).rejects.toEqual(code('no_reply'))
})

test('a request rejects while 32 others are pending', async () => {
  const { server, room, owner } = await inRoom()
  const asked = Array.from({ length: 32 }, () => room.request('strike'))
  await expect(room.request('strike')).rejects.toEqual(code('too_many_requests'))
  for (const { ref } of server.all('message'))
    server.send({ t: 'reply', room_id: owner.roomId, ref: ref!, data: null })
  server.ack(owner, 100)
  await Promise.all(asked)
  void room.request('strike')
  expect(server.all('message')).toHaveLength(33)
})

test('two rooms of one client have separate states, events and refs', async () => {
  const { client, server, room, owner, pass } = await inRoom()
  const other = await client.join('chat')
  await pass(1)
  const chat = server.room('chat:default')
  const heard: string[] = []
  room.on('say', () => heard.push('arena'))
  other.onMessage('say', () => heard.push('chat'))
  server.deliver(owner.patch({ n: 1 }), chat.patch({ lines: ['hi'] }), chat.event('say', null))
  expect(room.state).toEqual({ n: 1 })
  expect(other.state).toEqual({ lines: ['hi'] })
  expect(heard).toEqual(['chat'])
  const sent = [room.send('a'), other.send('b')]
  server.ack(owner, 100)
  await sent[0]
  server.ack(chat, 100)
  await sent[1]
})

test('a message that is too large uses no ref', async () => {
  const { server, room } = await inRoom()
  void room.send('a')
  await expect(room.send('b', 'x'.repeat(2000))).rejects.toEqual(code('payload_too_large'))
  void room.send('c')
  expect(server.messageRefs).toEqual([1, 2])
})

test('each seat of a room starts with ref 1', async () => {
  const { client, server, room, owner, pass } = await inRoom()
  const other = await client.join('arena', { key: 'other' })
  for (const each of [room, room, other]) void each.send('a').catch(() => {})
  expect(server.messageRefs).toEqual([1, 2, 1])
  server.deliver(owner.ownLeft('session_ended'))
  const queued = room.send('b')
  // It belongs to the previous seat.
  server.ack(owner, 2)
  server.refuse('unknown_type', { ref: 1, room_id: room.id })
  await pass(1000)
  expect(server.messageRefs).toEqual([1, 2, 1, 1])
  server.ack(owner, 1)
  await queued
})

test('a later change of its data does not change a message', async () => {
  const { client, server, room, pass } = await inRoom()
  server.socket.end(1006)
  const data = { x: 1 }
  const sent = room.send('move', data).catch(() => {})
  data.x = 2
  await pass(1000)
  expect(server.all('message')).toMatchObject([{ data: { x: 1 } }])
  client.close()
  await sent
})

test('an unreliable message has no ref, resolves immediately, and is dropped while offline', async () => {
  const { server, room, pass } = await inRoom()
  await room.send('move', { x: 1 }, { reliable: false })
  expect(server.all('message')).toEqual([
    { t: 'message', room_id: 'arena:lobby', type: 'move', data: { x: 1 } },
  ])
  server.socket.end(1006)
  await room.send('move', { x: 2 }, { reliable: false })
  await pass(1000)
  expect(server.all('message')).toHaveLength(1)
})

test('a refused unreliable message goes to onError and is counted', async () => {
  const { client, server, room, errors } = await inRoom()
  await room.send('move', {}, { reliable: false })
  server.refuse('unknown_type', { room_id: room.id })
  expect(errors).toEqual([code('unknown_type')])
  expect(client.stats.errors).toBe(1)
})

test('a refused message that no caller awaits goes to the onError of its room', async () => {
  const { server, room, errors, client } = await inRoom()
  const ignored: unknown[] = []
  const stop = room.onError((error) => ignored.push(error))
  const send = (): void => {
    void room.send('move')
    server.refuse('unknown_type', { ref: server.messageRefs.at(-1)!, room_id: room.id })
  }
  send()
  await turn()
  expect([ignored, errors]).toEqual([[code('unknown_type')], []])
  stop()
  send()
  await turn()
  expect(errors).toEqual([code('unknown_type')])
  expect(client.stats.errors).toBe(2)
})

test('a caller that awaits gets the rejection, and onError does not', async () => {
  const { server, room, errors } = await inRoom()
  const wait = async () => {
    const sent = room.send('move')
    await turn()
    return sent
  }
  const waiting = [room.send('move'), Promise.all([room.send('move')]), wait()].map((sent) =>
    expect(sent).rejects.toEqual(code('unknown_type')),
  )
  await turn()
  for (const ref of server.messageRefs) server.refuse('unknown_type', { ref: ref!, room_id: room.id })
  await Promise.all(waiting)
  expect(errors).toEqual([])
})

test('a caller that awaits after the rejection gets it too', async () => {
  const { server, room, errors } = await inRoom()
  const sent = room.send('move')
  server.refuse('unknown_type', { ref: server.messageRefs[0]!, room_id: room.id })
  await turn()
  expect(errors).toEqual([code('unknown_type')])
  await expect(sent).rejects.toEqual(code('unknown_type'))
})

test('without onError the console shows a rejection that no caller awaits', async () => {
  const { server, options } = play()
  const { onError: _, ...silent } = options
  const warn = vi.spyOn(console, 'warn').mockImplementation(() => {})
  onTestFinished(() => warn.mockRestore())
  const client = await connect('ws://roomful.test', silent)
  server.onJoin = ({ request_id }) => server.refuse('room_full', { request_id, room_id: 'arena:default' })
  void client.join('arena')
  await turn()
  expect(warn).toHaveBeenCalledWith(code('room_full'))
})

test('a message without a type rejects and is not sent', async () => {
  const { server, room } = await inRoom()
  await expect(room.send(undefined as never)).rejects.toMatchObject({
    code: 'invalid_payload',
    message: 'The message type is undefined: pass its name, a string.',
  })
  expect(server.all('message')).toEqual([])
})

test('data that is not JSON rejects and is not sent', async () => {
  const { server, room } = await inRoom()
  const send = room.send('move', { x: [undefined] } as never)
  await expect(send).rejects.toThrow(
    'The data of message "move" cannot be sent: the value at /x/0 is undefined',
  )
  await expect(room.send('move', { x: Number.NaN })).rejects.toEqual(code('invalid_payload'))
  expect(server.all('message')).toEqual([])
})

test('a message above the size limit rejects, and the next one is sent', async () => {
  const { server, room, owner } = await inRoom()
  const large = room.send('move', 'x'.repeat(2000))
  await expect(large).rejects.toEqual(code('payload_too_large'))
  await expect(room.send('move', 'x'.repeat(2000), { reliable: false })).rejects.toEqual(
    code('payload_too_large'),
  )
  const next = room.send('move', 'x')
  server.ack(owner, server.messageRefs[0]!)
  await next
})

test('a message above maxUnacked rejects with queue_full', async () => {
  const { server, room, owner } = await inRoom({ maxUnacked: 2 })
  const kept = [room.send('a'), room.send('b')]
  await expect(room.send('c')).rejects.toEqual(code('queue_full'))
  server.ack(owner, 100)
  await Promise.all(kept)
  void room.send('d').catch(() => {})
  expect(server.all('message').map(({ type }) => type)).toEqual(['a', 'b', 'd'])
})

test('a message above maxUnackedBytes rejects with queue_full, unless it is the only one', async () => {
  const { server, room, owner } = await inRoom({ maxUnackedBytes: 500 })
  const large = room.send('a', 'x'.repeat(600))
  await expect(room.send('b')).rejects.toEqual(code('queue_full'))
  server.ack(owner, 100)
  await large
  const kept = [room.send('c', 'x'.repeat(200)), room.send('d', 'x'.repeat(200))]
  await expect(room.send('e', 'x'.repeat(200))).rejects.toEqual(code('queue_full'))
  server.ack(owner, 200)
  await Promise.all(kept)
  expect(server.all('message').map(({ type }) => type)).toEqual(['a', 'c', 'd'])
})

test('reliable messages are sent immediately, and unreliable ones above the server’s rate are dropped', async () => {
  const { server, room, owner, pass } = await inRoom()
  server.limits = { ...server.limits, message_burst: 10, messages_per_second: 10 }
  server.socket.end(1006)
  await pass(1000)
  for (let n = 0; n < 10; n++) void room.send('aim', n, { reliable: false })
  await pass(1)
  expect(server.all('message')).toHaveLength(8)
  const sends = Array.from({ length: 20 }, () => room.send('move'))
  await pass(1)
  expect(server.all('message')).toHaveLength(28)
  // They count towards the rate, so that unreliable ones do not exceed the limit of the server.
  void room.send('aim', 10, { reliable: false })
  await pass(1)
  expect(server.all('message')).toHaveLength(28)
  server.ack(owner, 1000)
  await Promise.all(sends)
})

test('onLeave gets the reason of a room that removes a client while it is leaving', async () => {
  const { server, room, owner } = await inRoom()
  server.onLeave = () => server.deliver(owner.ownLeft('kicked'))
  const reasons: unknown[] = []
  room.onLeave((reason, error) => reasons.push(reason, error?.message))
  await room.leave()
  expect(reasons).toEqual(['kicked', expect.stringContaining('kicked')])
})

test('leave resolves, calls onLeave, and ends the room', async () => {
  const { server, room } = await inRoom()
  const reasons: unknown[] = []
  room.onLeave((...args) => reasons.push(args))
  const pending = room.send('move')
  const refused = expect(pending).rejects.toEqual(code('not_in_room'))
  await Promise.all([room.leave(), room.leave()])
  await refused
  await room.leave()
  expect(server.all('leave')).toHaveLength(1)
  expect(room.status).toBe('left')
  expect(reasons).toEqual([['left', undefined]])
  await expect(room.send('move')).rejects.toEqual(code('not_in_room'))
})

test.each([
  ['kicked', 'kicked'],
  ['closed', 'closed'],
  ['replaced', 'replaced'],
] as const)(
  'a client whose seat has ended (%s) gets the reason %s, and its messages are refused',
  async (reason, told) => {
    const { server, room, owner } = await inRoom()
    const reasons: unknown[] = []
    room.onLeave((...args) => reasons.push(args))
    const refused = expect(room.send('move')).rejects.toEqual(code('not_in_room'))
    server.deliver(owner.ownLeft(reason))
    await refused
    expect(reasons).toEqual([[told, code('not_in_room')]])
    expect(room.status).toBe('left')
  },
)

test('a seat that the server no longer has is joined again', async () => {
  const { server, room, owner, errors, pass } = await inRoom()
  server.deliver(owner.ownLeft('session_ended'))
  expect(room.status).toBe('rejoining')
  await pass(600)
  expect([room.status, errors]).toEqual(['joined', []])
})

test('a seat that ends before its first state is joined again', async () => {
  const { client, server, pass } = await online()
  let joins = 0
  server.onJoin = (join) => {
    joins += 1
    if (joins > 1) return server.seat(join)
    const room = server.room('arena:lobby')
    server.send({ t: 'joined', request_id: join.request_id, room_id: room.roomId, member_id: 'mem_1' })
    server.deliver(room.ownLeft('session_ended'))
  }
  const joining = client.join('arena', { key: 'lobby' })
  await pass(600)
  expect([joins, (await joining).memberId]).toEqual([2, 'mem_1'])
})

test('select calls its callback only when the result of the selector changes', async () => {
  const { server, room, owner } = await inRoom()
  const seen: unknown[] = []
  const stop = room.onStateChange.select(
    (state) => (state as { n?: number }).n,
    (n, before) => seen.push([n, before]),
  )
  server.deliver(owner.patch({ n: 1 }), owner.patch({ n: 1, m: 1 }), owner.patch({ n: 2 }))
  stop()
  server.deliver(owner.patch({ n: 3 }))
  expect(seen).toEqual([
    [1, undefined],
    [2, 1],
  ])
})

test('a removed callback is not called', async () => {
  const { server, room, owner } = await inRoom()
  const seen: unknown[] = []
  const stops = [
    room.onStateChange(() => seen.push('state')),
    room.on('hit', () => seen.push('hit')),
    room.onMembersChange(() => seen.push('members')),
  ]
  for (const stop of stops) stop()
  server.deliver(owner.patch({ n: 1 }), owner.event('hit', null), owner.came('mem_carol', null))
  expect(seen).toEqual([])
})

test('a callback that throws does not stop other callbacks or the room', async () => {
  const { server, room, owner, errors } = await inRoom()
  const seen: unknown[] = []
  const failure = new Error('mine')
  room.onStateChange(() => {
    throw failure
  })
  room.onStateChange((state) => seen.push(state))
  room.onStateChange.select(
    () => {
      if (seen.length > 0) throw failure
    },
    () => {},
  )
  server.deliver(owner.patch({ n: 1 }), owner.patch({ n: 2 }))
  expect(seen).toEqual([{ n: 1 }, { n: 2 }])
  expect(errors).toEqual([failure, failure, failure, failure])
})

test('without onError an error of a callback is an uncaught error', async () => {
  const scene = play()
  const { server } = scene
  const heard: unknown[] = []
  const others = process.listeners('uncaughtException')
  process.removeAllListeners('uncaughtException')
  process.once('uncaughtException', (error) => heard.push(error))
  try {
    const { onError: _, ...options } = scene.options
    const client = await connect('ws://roomful.test', options)
    const stop = client.onConnectionChange(() => {
      throw new Error('mine')
    })
    server.socket.end(1006)
    await turn()
    expect(heard).toEqual([new Error('mine')])
    stop()
    client.close()
  } finally {
    process.removeAllListeners('uncaughtException')
    for (const other of others) process.on('uncaughtException', other)
  }
})

test('a RoomfulError is an Error with its name', () => {
  const error = new RoomfulError('queue_full', 'full', { retryable: true })
  expect(error).toBeInstanceOf(Error)
  expect(`${error}`).toBe('RoomfulError: full')
})

test('a client with decodeStates: false gets members and events, and detects missing updates', async () => {
  const { server, room, owner, client } = await inRoom({ decodeStates: false })
  const states: unknown[] = []
  const hits: unknown[] = []
  room.onStateChange((state) => states.push(state))
  room.on('hit', (data) => hits.push(data))
  server.deliver(owner.wrongPatch({ n: 1 }), owner.event('hit', 1))
  await turn()
  expect([room.state, states, hits, server.all('state.resync')]).toEqual([null, [], [1], []])
  owner.patch({ n: 2 })
  server.deliver(owner.patch({ n: 3 }))
  await turn()
  expect(server.all('state.resync')).toMatchObject([{ reason: 'sequence' }])
  expect(client.stats.resyncs).toMatchObject({ sequence: 1, checksum: 0 })
})
