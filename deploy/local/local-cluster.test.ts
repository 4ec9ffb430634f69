import { connect, createServer, type Server } from 'node:net'
import { afterEach, expect, it } from 'vitest'
import { freePort } from '../../test/support/redis-server.ts'
import { startForwarder } from './local-cluster.ts'

const servers: Server[] = []
afterEach(() => {
  for (const server of servers.splice(0)) server.close()
})

/** A server that sends its name to each client and closes the connection. */
async function named(name: string): Promise<{ server: Server; port: number }> {
  const server = createServer((socket) => void socket.end(name))
  const port = await freePort()
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve))
  servers.push(server)
  return { server, port }
}

async function forwarderTo(...ports: number[]): Promise<() => Promise<string>> {
  const port = await freePort()
  servers.push(await startForwarder(port, ports))
  return () =>
    new Promise((resolve) => {
      let heard = ''
      const socket = connect({ host: '127.0.0.1', port })
      socket.on('data', (chunk) => {
        heard += chunk.toString()
      })
      socket.on('error', () => undefined)
      socket.once('close', () => resolve(heard))
    })
}

it('forwards connections to its servers in turn', async () => {
  const ask = await forwarderTo((await named('a')).port, (await named('b')).port)
  expect([await ask(), await ask(), await ask()]).toEqual(['a', 'b', 'a'])
})

it('forwards to the next server after a refused connection, and back when the server has returned', async () => {
  const first = await named('a')
  const ask = await forwarderTo(first.port, (await named('b')).port)
  first.server.close()
  expect([await ask(), await ask(), await ask()]).toEqual(['b', 'b', 'b'])
  await new Promise<void>((resolve) => first.server.listen(first.port, '127.0.0.1', resolve))
  expect([await ask(), await ask()]).toEqual(['b', 'a'])
})

it('closes the connection when no server accepts it', async () => {
  const ask = await forwarderTo(await freePort())
  expect(await ask()).toBe('')
})
