import { createHash, timingSafeEqual } from 'node:crypto'
import { createServer, type RequestListener, type Server, type ServerOptions, STATUS_CODES } from 'node:http'
import { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { getRequestListener } from '@hono/node-server'
import { newId } from './ids.ts'
import { answerOf, Problem, type ProblemCode, problemResponse } from './problem.ts'
import type { Random } from './random.ts'

/** Time in which a refused client must close its half of the connection. */
const LINGER_MS = 1000

type Fetch = (request: Request) => Response | Promise<Response>

/**
 * Returns a listener for Node's HTTP servers that answers with the result of `fetch`. Health checks of load balancers may use HTTP/1.0
 * without a `host`. For them, `hostname` stands in the URL of the request, but not in its headers.
 */
export const requestListener = (fetch: Fetch, random: Random): RequestListener =>
  getRequestListener(fetch, {
    hostname: 'localhost',
    errorHandler: () => problemResponse(unreadable(), newId('req', random)),
  })

/** Returns an HTTP server for a Hono app. It answers malformed HTTP with a problem. */
export function createHttpServer(fetch: Fetch, random: Random, options: ServerOptions = {}): Server {
  const server = createServer(options, requestListener(fetch, random))
  server.on('clientError', (error, socket) => refuseUnreadable(error, socket, random))
  return server
}

/**
 * Answers a connection with malformed HTTP (event `clientError`), and closes it. Returns the code of the answer. Undefined: the client has
 * disconnected, so there is no answer.
 */
export function refuseUnreadable(
  { code }: NodeJS.ErrnoException,
  socket: Duplex,
  random: Random,
): ProblemCode | undefined {
  if (code === 'ECONNRESET' || !socket.writable) {
    socket.destroy()
    return undefined
  }
  const problem = code === undefined ? unreadable() : (UNREADABLE[code] ?? unreadable)()
  endWithProblem(socket, problem, newId('req', random))
  // A client that does not close its half of the connection would keep it open forever.
  if (socket instanceof Socket) socket.setTimeout(LINGER_MS, () => socket.destroy())
  return problem.code
}

/**
 * Returns a function that closes a server with all its connections. To be called before the server listens. `closeAllConnections` leaves
 * websockets open, and the server would wait for their end.
 */
export function closer(server: Server): () => Promise<void> {
  const sockets = new Set<Socket>()
  server.on('connection', (socket) => {
    sockets.add(socket)
    socket.once('close', () => sockets.delete(socket))
  })
  return () =>
    new Promise((resolve) => {
      server.close(() => resolve())
      for (const socket of sockets) socket.destroy()
    })
}

/** Answers a connection without a response object, such as an upgrade request, with `problem`, and closes it. */
export function endWithProblem(socket: Duplex, problem: Problem, requestId: string): void {
  const { status, body, headers } = answerOf(problem, requestId)
  const lines = Object.entries({ ...headers, connection: 'close', 'content-length': Buffer.byteLength(body) })
  socket.end(
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${lines.map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n${body}`,
  )
}

const unreadable = (): Problem => new Problem('invalid_request', 'The request cannot be read as HTTP.')

const UNREADABLE: Readonly<Record<string, () => Problem>> = {
  HPE_HEADER_OVERFLOW: () =>
    new Problem('headers_too_large', 'The headers of the request have more than 16 KiB.'),
  ERR_HTTP_REQUEST_TIMEOUT: () => new Problem('request_timeout', 'The request did not arrive in time.'),
}

const digest = (text: string): Buffer => createHash('sha256').update(text).digest()

/**
 * `INTERNAL_TOKEN`, with which the processes of a deployment and operators authenticate. It may contain several tokens, separated by
 * commas, so that it can be changed process by process: the first is sent, and all are accepted.
 */
export class InternalToken {
  /** The token to send. Undefined: there is none. */
  readonly shown: string | undefined
  readonly #accepted: readonly Buffer[]

  /** `tokens` undefined or without a token: no caller is accepted. */
  constructor(tokens: string | undefined) {
    const all = tokens?.split(',').filter((token) => token !== '') ?? []
    this.shown = all[0]
    this.#accepted = all.map(digest)
  }

  /** Returns true if `given` is one of the tokens. Takes constant time. */
  accepts(given: string | undefined): boolean {
    if (given === undefined) return false
    const shown = digest(given)
    return this.#accepted.filter((token) => timingSafeEqual(token, shown)).length > 0
  }
}
