import { once } from 'node:events'
import { connect } from 'node:net'
import { Worker } from 'node:worker_threads'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { systemClock } from '../../shared/clock.ts'
import { Lookout } from './lookout.ts'

/** A server in a thread of its own: so many milliseconds after it is told it closes its connection, and says when that was. */
const SERVER = `
  const { parentPort } = require('node:worker_threads')
  const { createServer } = require('node:net')
  let socket
  const server = createServer((client) => { socket = client })
  server.listen(0, '127.0.0.1', () => parentPort.postMessage(server.address().port))
  parentPort.on('message', (ms) => setTimeout(() => {
    const closed_at = Date.now()
    socket.destroy()
    parentPort.postMessage(closed_at)
  }, ms))
`

describe('a lookout', () => {
  let server: Worker
  let lookout: Lookout
  beforeEach(() => {
    server = new Worker(SERVER, { eval: true })
    lookout = new Lookout(systemClock)
  })
  afterEach(async () => {
    lookout.close()
    await server.terminate()
  })

  /** A connection is closed after 100 ms, while this thread does nothing else for `blocked_ms`; what is known of it then. */
  async function closing(
    blocked_ms: number,
  ): Promise<{ closed_at: number; seen_at: number; open_at: number }> {
    const [port] = await once(server, 'message')
    const socket = connect(port, '127.0.0.1')
    await once(socket, 'connect')
    const closed = once(server, 'message')
    const seen = once(socket, 'close').then(() => ({ seen_at: Date.now(), open_at: lookout.looked_at }))
    server.postMessage(100)
    await new Promise((resolve) => setTimeout(resolve, 30))
    const end = performance.now() + blocked_ms
    while (performance.now() < end);
    const [closed_at] = await closed
    return { closed_at, ...(await seen) }
  }

  it('knows for how long this thread has not looked, so that its own delay is not taken for that of a service', async () => {
    const { closed_at, seen_at, open_at } = await closing(500)
    expect(seen_at - closed_at).toBeGreaterThan(300)
    expect(open_at).toBeLessThanOrEqual(closed_at)
    expect(seen_at - open_at).toBeGreaterThan(450)
  })

  it('never says later than it was', async () => {
    const { closed_at, seen_at, open_at } = await closing(0)
    expect(open_at).toBeLessThanOrEqual(closed_at + 1)
    expect(open_at).toBeLessThanOrEqual(seen_at)
  })
})
