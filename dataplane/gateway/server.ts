import { createServer, type IncomingMessage, type Server, STATUS_CODES } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { WebSocketServer } from 'ws'
import { ServerSocket } from './server-socket.ts'

/** What a server needs to know about the sockets it accepts. */
export interface ServerOptions {
  readonly max_message_bytes: number
  /** Browser origins that may connect; undefined: every one. */
  readonly allowed_origins: readonly string[] | undefined
  /** The known subprotocols; a client gets the first of its own list that is known. */
  readonly subprotocols: readonly string[]
}

/** A websocket that was accepted, and the TCP socket below it. `protocol` is empty when the client named none. */
export type Accept = (ws: ServerSocket, socket: Socket, protocol: string) => void

/** How long a client may take to answer a close frame. */
const CLOSE_TIMEOUT_MS = 3000
/** How long a client may take to send a whole HTTP request. */
const REQUEST_TIMEOUT_MS = 10_000
/** How often it is looked whether somebody takes longer. */
const TIMEOUT_CHECK_MS = 2000

/** The HTTP server that websockets come in by. */
export class GatewayServer {
  readonly #http: Server
  readonly #websockets: ReturnType<typeof websocketServer>
  readonly #options: ServerOptions
  readonly #accept: Accept

  constructor(options: ServerOptions, accept: Accept) {
    this.#options = options
    this.#accept = accept
    this.#websockets = websocketServer(options)
    this.#http = createServer(
      {
        requestTimeout: REQUEST_TIMEOUT_MS,
        headersTimeout: REQUEST_TIMEOUT_MS,
        connectionsCheckingInterval: TIMEOUT_CHECK_MS,
      },
      (_request, response) => {
        response.writeHead(426, { 'content-type': 'text/plain; charset=utf-8', upgrade: 'websocket' })
        response.end(
          `This is roomful's websocket port: connect with a websocket, subprotocol ${options.subprotocols.join(' or ')}.\n`,
        )
      },
    )
    this.#http.on('upgrade', (request, socket, head) => this.#upgrade(request, socket, head))
  }

  /** Listens; `port` 0 picks a free one. Rejects when the address cannot be had. */
  listen(host: string, port: number): Promise<AddressInfo> {
    return new Promise((resolve, reject) => {
      this.#http.once('error', reject)
      this.#http.listen(port, host, () => {
        this.#http.off('error', reject)
        resolve(this.#http.address() as AddressInfo)
      })
    })
  }

  /** Takes no more connections and ends those that are no websocket (yet); resolves when the last one is gone. */
  close(): Promise<void> {
    return new Promise((resolve) => {
      this.#http.close(() => resolve())
      this.#http.closeAllConnections()
    })
  }

  #upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    const { origin } = request.headers
    const { allowed_origins } = this.#options
    if (origin !== undefined && allowed_origins && !allowed_origins.includes(origin))
      reject(socket, 403, `The origin ${origin} may not connect here.`)
    else
      this.#websockets.handleUpgrade(request, socket, head, (ws) =>
        this.#accept(ws, socket as Socket, ws.protocol),
      )
  }
}

/** What does the websocket handshake on sockets of the HTTP server. */
function websocketServer({ max_message_bytes, subprotocols }: ServerOptions) {
  // @types/ws does not know closeTimeout yet.
  const newer = { closeTimeout: CLOSE_TIMEOUT_MS }
  return new WebSocketServer({
    ...newer,
    noServer: true,
    clientTracking: false,
    perMessageDeflate: false,
    maxPayload: max_message_bytes,
    WebSocket: ServerSocket,
    // An unknown subprotocol is accepted as offered, so that the refusal can be a close code with a reason.
    handleProtocols: (offered) => {
      const [first] = offered
      return [...offered].find((name) => subprotocols.includes(name)) ?? first ?? false
    },
  })
}

/** Answers an upgrade with an HTTP error. */
function reject(socket: Duplex, status: number, text: string): void {
  socket.on('error', () => socket.destroy())
  socket.end(
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\nconnection: close\r\ncontent-type: text/plain; charset=utf-8\r\n` +
      `content-length: ${Buffer.byteLength(text) + 1}\r\n\r\n${text}\n`,
  )
}
