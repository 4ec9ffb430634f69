import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { expect, onTestFinished, test } from 'vitest'
import { WebSocketServer } from 'ws'
import { inRoom, turn } from '../test/support/client/play.ts'
import { connect, RoomfulError } from './index.ts'

const inTurns = { endOfTurn: queueMicrotask }

test('the messages of one turn leave in one frame at the end of the turn, in order', async () => {
  const { server, room, owner } = await inRoom(inTurns)
  const frames = server.frames
  const acked = [room.send('a', 1), room.send('b', { x: 0.01 })]
  room.send('c', null, { reliable: false })
  expect(server.frames).toBe(frames)
  await turn()
  expect(server.frames).toBe(frames + 1)
  expect(server.all('message').map(({ type, data, ref }) => [type, data, ref])).toEqual([
    ['a', 1, 1],
    ['b', { x: 0.01 }, 2],
    ['c', null, undefined],
  ])
  server.ack(owner, 2)
  await Promise.all(acked)
  void room.send('d', 4)
  await turn()
  expect(server.frames).toBe(frames + 2)
  expect(server.messageRefs.at(-1)).toBe(3)
})

test('a frame stays within the server’s limits of messages and bytes', async () => {
  const { server, room } = await inRoom(inTurns)
  const frames = server.frames
  for (let i = 0; i < 70; i++) room.send('n', i, { reliable: false })
  await turn()
  expect(server.frames).toBe(frames + 3)
  // The limit is 1,024 bytes.
  for (const letter of ['a', 'b', 'c']) room.send('text', letter.repeat(450), { reliable: false })
  await turn()
  expect(server.frames).toBe(frames + 5)
  expect(server.all('message').map(({ data }) => data)).toEqual([
    ...Array.from({ length: 70 }, (_, i) => i),
    ...['a', 'b', 'c'].map((letter) => letter.repeat(450)),
  ])
})

test('a goodbye follows the messages of the same turn', async () => {
  const { server, room, client } = await inRoom(inTurns)
  room.send('last', 'words', { reliable: false })
  client.close()
  await turn()
  expect(server.heard.slice(-2)).toMatchObject([{ data: 'words' }, { t: 'goodbye' }])
})

test('messages that a lost connection did not send go out once on the next connection', async () => {
  const { server, room, owner, pass } = await inRoom(inTurns)
  const acked = [room.send('a', 1), room.send('b', 2)]
  server.socket.end(1006)
  await pass(1000)
  expect(server.messageRefs).toEqual([1, 2])
  server.ack(owner, 2)
  await Promise.all(acked)
})

test('closing a real socket that is still connecting reports no error', async () => {
  const server = new WebSocketServer({ port: 0, host: '127.0.0.1' })
  onTestFinished(() => server.close())
  await once(server, 'listening')
  const url = `ws://127.0.0.1:${(server.address() as AddressInfo).port}`
  const abort = new AbortController()
  const refused = expect(
    connect(url, { projectId: 'prj_1', token: 'token', signal: abort.signal }),
  ).rejects.toBeInstanceOf(RoomfulError)
  await turn()
  abort.abort()
  await refused
})
