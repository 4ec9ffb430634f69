import { once } from 'node:events'
import { connect } from 'node:net'
import { Worker } from 'node:worker_threads'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { systemClock } from '../../shared/clock.ts'
import { PollWatch } from './loop.ts'

/** A server in a thread of its own: waits until it may, says goodbye to who connects, and then tells here when it had. */
const SERVER = `
  const { parentPort, workerData } = require('node:worker_threads')
  const { createServer } = require('node:net')
  const server = createServer((socket) => {
    Atomics.wait(workerData, 0, 0)
    socket.write('goodbye')
    parentPort.postMessage(Date.now())
    Atomics.store(workerData, 0, 2)
    Atomics.notify(workerData, 0)
  })
  server.listen(0, '127.0.0.1', () => parentPort.postMessage(server.address().port))
`

describe('the watch of polls', () => {
  let server: Worker
  let polls: PollWatch
  /** 1: the goodbye may be said; 2: it is. */
  let step: Int32Array
  beforeEach(() => {
    step = new Int32Array(new SharedArrayBuffer(4))
    server = new Worker(SERVER, { eval: true, workerData: step })
    polls = new PollWatch(systemClock)
  })
  afterEach(async () => {
    polls.close()
    await server.terminate()
  })

  /** A goodbye is said, while this thread does nothing else until `blockedMs` later; 0: while it polls. What is known of it then. */
  async function goodbye(blockedMs: number): Promise<{ saidAt: number; seenAt: number; openAt: number }> {
    const [port] = await once(server, 'message')
    const socket = connect(port, '127.0.0.1')
    await once(socket, 'connect')
    const said = once(server, 'message')
    // As of a websocket: its goodbye is a frame. That a socket has closed is told later, after whatever else was to be done.
    const seen = once(socket, 'data').then(() => ({ seenAt: Date.now(), openAt: polls.polledAt }))
    // From an immediate on timers are next, and only then what has arrived.
    await new Promise(setImmediate)
    Atomics.store(step, 0, 1)
    Atomics.notify(step, 0)
    if (blockedMs > 0) {
      Atomics.wait(step, 0, 1)
      Atomics.wait(step, 0, 2, blockedMs)
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
