import { createHook } from 'node:async_hooks'
import { once } from 'node:events'
import type { Socket } from 'node:net'
import * as v from 'valibot'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { WebSocket } from 'ws'
import type { ClientMessage } from '../shared/protocol/messages.ts'
import { MsgpackClientCodec } from '../shared/protocol/msgpack-client-codec.ts'
import { startService, type TestService } from '../test/support/cluster.ts'
import { defineRoom } from './index.ts'

const INPUTS = 60
/** Promises and microtasks of the read and of the flush, independent of the number of messages. */
const OF_ONE_READ = 30
/** On a busy machine other work of this process, such as due timers, runs in most rounds. */
const MAX_ROUNDS = 50

let handled = 0
let allHandled: () => void = () => {}

const room = defineRoom({
  type: 'nudged',
  messages: { nudge: { data: v.object({ x: v.number(), y: v.number() }) } },
  create: () => ({ nudges: 0 }),
  onMessage(state) {
    handled += 1
    if (handled % INPUTS === 0) allHandled()
    // Changes the state from time to time, so that a flush is pending.
    if (handled % 10 === 0) state.nudges += 1
  },
})

let service: TestService
beforeAll(async () => {
  service = await startService({ rooms: [room] })
})
afterAll(() => service.close())

async function join(codec: MsgpackClientCodec): Promise<WebSocket> {
  const { projectId, token } = await service.login()
  const ws = new WebSocket(service.wsUrl, codec.subprotocol)
  const send = (message: ClientMessage) => ws.send(codec.encode(message))
  await once(ws, 'open')
  await new Promise<void>((resolve) => {
    ws.on('message', (data: Buffer) => {
      const { t } = codec.decode(data)
      if (t === 'welcome') send({ t: 'join', request_id: 1, room_type: 'nudged', options: {} })
      if (t === 'state.snapshot') resolve()
    })
    send({ t: 'hello', project_id: projectId, token })
  })
  return ws
}

test('an input that needs no answer creates no promise, microtask or timer on its way to room code', async () => {
  const codec = new MsgpackClientCodec()
  const ws = await join(codec)
  const nudge = codec.encode({
    t: 'message',
    room_id: 'nudged:default',
    type: 'nudge',
    data: { x: 1, y: 2.5 },
  })
  const tcp = Reflect.get(ws, '_socket') as Socket
  const counts: number[] = []
  while (counts.length < MAX_ROUNDS && !counts.some((made) => made < OF_ONE_READ)) {
    let made = 0
    const hook = createHook({ init: () => void made++ })
    // All messages are in one write, and therefore in one read.
    tcp.cork()
    for (let i = 0; i < INPUTS; i++) ws.send(nudge)
    const done = new Promise<void>((resolve) => {
      allHandled = () => {
        hook.disable()
        resolve()
      }
    })
    setImmediate(() => {
      hook.enable()
      tcp.uncork()
    })
    await done
    counts.push(made)
  }
  ws.terminate()
  // In at least one round, nothing else ran in this process.
  expect(Math.min(...counts)).toBeLessThan(OF_ONE_READ)
  expect(handled).toBe(counts.length * INPUTS)
})
