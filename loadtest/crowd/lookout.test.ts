import { once } from 'node:events'
import { connect } from 'node:net'
import { Worker } from 'node:worker_threads'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { systemClock } from '../../shared/clock.ts'
import { Lookout } from './lookout.ts'

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

describe('a lookout', () => {
  let server: Worker
  let lookout: Lookout
  /** 1 once the goodbye is said. */
  let is_said: Int32Array
  beforeEach(() => {
    is_said = new Int32Array(new SharedArrayBuffer(4))
    server = new Worker(SERVER, { eval: true, workerData: is_said })
    lookout = new Lookout(systemClock)
  })
  afterEach(async () => {
    lookout.close()
    await server.terminate()
  })

  /** A goodbye is said, while this thread does nothing else until `blocked_ms` later; 0: while it waits. What is known of it then. */
  async function goodbye(blocked_ms: number): Promise<{ said_at: number; seen_at: number; open_at: number }> {
    const [port] = await once(server, 'message')
    const socket = connect(port, '127.0.0.1')
    await once(socket, 'connect')
    const said = once(server, 'message')
    // As of a websocket: its goodbye is a frame. That a socket has closed is told later, after whatever else was to be done.
    const seen = once(socket, 'data').then(() => ({ seen_at: Date.now(), open_at: lookout.looked_at }))
    server.postMessage(100)
    if (blocked_ms > 0) {
      // From here timers are next, and only then what has arrived.
      await new Promise((resolve) => setTimeout(() => setImmediate(resolve), 30))
      Atomics.wait(is_said, 0, 0)
      Atomics.wait(is_said, 0, 1, blocked_ms)
    }
    const [said_at] = await said
    const known = await seen
    socket.destroy()
    return { said_at, ...known }
  }

  it('knows for how long this thread has not looked, so that its own delay is not taken for that of a service', async () => {
    const { said_at, seen_at, open_at } = await goodbye(400)
    expect(seen_at - said_at).toBeGreaterThanOrEqual(390)
    expect(open_at).toBeLessThanOrEqual(said_at)
  })

  it('never says later than it was', async () => {
    const { said_at, seen_at, open_at } = await goodbye(0)
    expect(open_at).toBeLessThanOrEqual(said_at)
    expect(open_at).toBeLessThanOrEqual(seen_at)
  })
})
