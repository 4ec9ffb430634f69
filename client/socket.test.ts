import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { WebSocketServer } from 'ws'
import { MsgpackCodec } from '../shared/protocol/msgpack-codec.ts'
import { turn } from '../test/support/client/play.ts'
import { connect, RoomfulError } from './index.ts'

/** A real websocket server that welcomes every client that says hello. */
const server = new WebSocketServer({ port: 0, host: '127.0.0.1' })
const codec = new MsgpackCodec()
let url = ''

beforeAll(async () => {
  server.on('connection', (ws) => {
    ws.on('message', (data: Buffer) => {
      const message = codec.decode(data)
      const serverTime = new Date().toISOString()
      if (message.t === 'ping') ws.send(codec.encode({ t: 'pong', at: message.at, server_time: serverTime }))
      if (message.t !== 'hello') return
      ws.send(
        codec.encode({
          t: 'welcome',
          session_id: 'ses_1',
          resume_token: 'resume_1',
          resumed: false,
          resume_ttl_seconds: 60,
          heartbeat_seconds: 10,
          node_id: 'node_1',
          server_time: serverTime,
          limits: { max_message_bytes: 1024, messages_per_second: 10, message_burst: 10, max_rooms: 1 },
        }),
      )
    })
  })
  if (!server.address()) await once(server, 'listening')
  url = `ws://127.0.0.1:${(server.address() as AddressInfo).port}`
})

afterAll(() => server.close())

test('the WebSocket of the platform speaks with a real server and says goodbye', async () => {
  const client = await connect(url, { projectId: 'prj_1', token: 'token' })
  const [ws] = server.clients
  expect(ws?.protocol).toBe('roomful.v1.msgpack')
  expect(Math.abs(client.serverTime() - Date.now())).toBeLessThan(1000)
  const closed = once(ws!, 'close')
  client.close()
  expect((await closed)[0]).toBe(1000)
})

test('a server that closes a real socket is come back to', async () => {
  const client = await connect(url, { projectId: 'prj_1', token: 'token' })
  const back = new Promise<void>((resolve) => {
    client.onConnectionChange((status) => status === 'online' && resolve())
  })
  for (const ws of server.clients) ws.terminate()
  await back
  client.close()
})

test('closing while a real socket is still connecting is quiet', async () => {
  const abort = new AbortController()
  const refused = expect(
    connect(url, { projectId: 'prj_1', token: 'token', signal: abort.signal }),
  ).rejects.toBeInstanceOf(RoomfulError)
  await turn()
  abort.abort()
  await refused
})
