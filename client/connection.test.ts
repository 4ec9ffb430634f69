import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { expect, onTestFinished, test } from 'vitest'
import { WebSocketServer } from 'ws'
import { inRoom, turn } from '../test/support/client/play.ts'
import { connect, RoomfulError } from './index.ts'

test('a goodbye follows the messages of the same turn', async () => {
  const { server, room, client } = await inRoom()
  room.send('last', 'words', { reliable: false })
  client.close()
  await turn()
  expect(server.heard.slice(-2)).toMatchObject([{ data: 'words' }, { t: 'goodbye' }])
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
