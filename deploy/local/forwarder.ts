import { once } from 'node:events'
import { connect, createServer, type Server } from 'node:net'

const HOST = '127.0.0.1'

/**
 * One address for servers of this machine where haproxy is not installed, for development only. Each connection goes to the next of `ports`
 * that accepts it. There are no health checks: a client that reaches a paused or draining node tries again and reaches another. Resolves
 * when it listens. Rejects when another process has the port.
 */
export async function startForwarder(port: number, ports: readonly number[]): Promise<Server> {
  let turn = 0
  const server = createServer({ noDelay: true }, (client) => {
    const first = turn++ % ports.length
    const order = [...ports.slice(first), ...ports.slice(0, first)]
    client.on('error', () => client.destroy())
    const forward = ([next, ...others]: readonly number[]): void => {
      if (next === undefined || client.destroyed) return void client.destroy()
      let connected = false
      const server = connect({ host: HOST, port: next, noDelay: true }, () => {
        connected = true
        client.pipe(server).pipe(client)
      })
      client.once('close', () => server.destroy())
      server.on('error', () => server.destroy())
      server.once('close', () => (connected ? client.destroy() : forward(others)))
    }
    forward(order)
  })
  server.listen(port, HOST)
  await once(server, 'listening')
  return server.unref()
}
