import { expect, test } from 'vitest'
import { code, inRoom, online, play, statuses, turn, URL } from '../test/support/client/play.ts'
import { connect } from './index.ts'

test('connect says hello in MessagePack with the token', async () => {
  const { server, client } = await online()
  expect(server.socket.url).toBe(URL)
  expect(server.socket.protocols).toEqual(['roomful.v1.msgpack'])
  expect(server.all('hello')).toMatchObject([{ project_id: 'prj_1', token: 'v4.public.unreadable' }])
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

test('the server’s words are one sentence, with or without a dot of their own', async () => {
  const { server, options } = play()
  server.onHello = () => server.socket.end(4001, 'the token has expired.')
  await expect(connect(URL, options)).rejects.toThrow(/: the token has expired\.$/)
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
  expect(server.socket.closedWith).toBe(1000)
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
  expect(server.socket.closedWith).toBe(1000)
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
  expect(server.socket.closedWith).toBe(1000)
  expect(clock.pending).toBe(0)
  expect(client.status).toBe('closed')
})
