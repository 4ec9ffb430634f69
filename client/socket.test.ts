import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { expect, onTestFinished, test } from 'vitest'
import { WebSocketServer } from 'ws'
import { turn } from '../test/support/client/play.ts'
import { connect, RoomfulError } from './index.ts'

test('closing while a real socket is still connecting is quiet', async () => {
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
