import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { connect } from 'node:net'
import { closer } from '../../shared/http-server.ts'

interface FrontOptions {
  readonly host: string
  readonly port: number
  /** Address of the websocket behind it. */
  readonly wsUrl: string
  /** Handles a request. Returns false if it has no such route. */
  readonly routes: (request: IncomingMessage, response: ServerResponse) => boolean
}

/**
 * Starts the address of a cluster for the pages of a game: the websocket, and the development routes, which `connect({ dev })` asks at the
 * same address. Resolves when it listens. Rejects if another process has the port.
 */
export async function startFront({ host, port, wsUrl, routes }: FrontOptions) {
  const server = createServer((request, response) => {
    if (routes(request, response)) return
    response.writeHead(404, { 'content-type': 'text/plain; charset=utf-8' })
    response.end(
      'This is the websocket of roomful cluster; a page to play rooms by hand is at /playground.\n',
    )
  })
  const close = closer(server)
  const behind = new URL(wsUrl)
  server.on('upgrade', ({ method, url, rawHeaders }, socket, head) => {
    const upstream = connect({ host: behind.hostname, port: Number(behind.port), noDelay: true })
    const lines = rawHeaders.map((text, i) => (i % 2 === 0 ? `${text}: ` : `${text}\r\n`))
    upstream.write(`${method} ${url} HTTP/1.1\r\n${lines.join('')}\r\n`)
    upstream.write(head)
    for (const [one, other] of [
      [socket, upstream],
      [upstream, socket],
    ] as const) {
      one.on('error', () => undefined)
      one.on('close', () => other.destroy())
      one.pipe(other)
    }
  })
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen(port, host, resolve)
  })
  return { close }
}
