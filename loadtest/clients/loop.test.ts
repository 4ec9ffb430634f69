import { once } from 'node:events'
import { connect } from 'node:net'
import { Worker } from 'node:worker_threads'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { systemClock } from '../../shared/clock.ts'
import { PollWatch } from './loop.ts'

/** A server in a thread of its own: so many milliseconds after it is told it says goodbye, and then tells here by when it had. */
const SERVER = `
  const { parentPort, workerData } = require('node:worker_threads')
  const { createServer } = require('node:net')
  let socket
  const server = createServer((client) => { socket = client })
  server.listen(0, '127.0.0.1', () => parentPort.postMessage(server.address().port))
  parentPort.on('message', (ms) => setTimeout(() => {
    socket.write('goodbye')
    parentPort.postMessage(Date.now())
    Atomics.store(workerData, 0, 1)
    Atomics.notify(workerData, 0)
  }, ms))
`

describe('the watch of polls', () => {
  let server: Worker
  let polls: PollWatch
  /** 1 once the goodbye is said. */
  let isSaid: Int32Array
  beforeEach(() => {
    isSaid = new Int32Array(new SharedArrayBuffer(4))
    server = new Worker(SERVER, { eval: true, workerData: isSaid })
    polls = new PollWatch(systemClock)
  })
  afterEach(async () => {
    polls.close()
    await server.terminate()
  })

  /** A goodbye is said, while this thread does nothing else until `blocked_ms` later; 0: while it waits. What is known of it then. */
  async function goodbye(blockedMs: number): Promise<{ saidAt: number; seenAt: number; openAt: number }> {
    const [port] = await once(server, 'message')
    const socket = connect(port, '127.0.0.1')
    await once(socket, 'connect')
    const said = once(server, 'message')
    // As of a websocket: its goodbye is a frame. That a socket has closed is told later, after whatever else was to be done.
    const seen = once(socket, 'data').then(() => ({ seenAt: Date.now(), openAt: polls.polledAt }))
    server.postMessage(100)
    if (blockedMs > 0) {
      // From here timers are next, and only then what has arrived.
      await new Promise((resolve) => setTimeout(() => setImmediate(resolve), 30))
      Atomics.wait(isSaid, 0, 0)
      Atomics.wait(isSaid, 0, 1, blockedMs)
    }
    const [saidAt] = await said
    const known = await seen
    socket.destroy()
    return { saidAt, ...known }
  }

  it('knows for how long this thread has not polled, so that its own delay is not taken for that of a service', async () => {
    const { saidAt, seenAt, openAt } = await goodbye(400)
    expect(seenAt - saidAt).toBeGreaterThanOrEqual(390)
    expect(openAt).toBeLessThanOrEqual(saidAt)
  })

  it('never says later than it was', async () => {
    const { saidAt, seenAt, openAt } = await goodbye(0)
    expect(openAt).toBeLessThanOrEqual(saidAt)
    expect(openAt).toBeLessThanOrEqual(seenAt)
  })
})
