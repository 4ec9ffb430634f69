import { createHash, timingSafeEqual } from 'node:crypto'
import { createServer, type RequestListener, type Server, type ServerOptions, STATUS_CODES } from 'node:http'
import { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { getRequestListener } from '@hono/node-server'
import { newId } from './ids.ts'
import { answerOf, Problem, type ProblemCode, problemResponse } from './problem.ts'
import type { Random } from './random.ts'

/** How long a refused client may take to close its half of the connection. */
const LINGER_MS = 1000

type Fetch = (request: Request) => Response | Promise<Response>

/**
 * Returns a listener of Node's HTTP servers that answers with what `fetch` returns. HTTP/1.0 does not need a `host`, and the health checks of
 * load balancers send none; `hostname` stands for it in the URL of the request only, not in its headers.
 */
export const requestListener = (fetch: Fetch, random: Random): RequestListener =>
  getRequestListener(fetch, {
    hostname: 'localhost',
    errorHandler: () => problemResponse(unreadable(), newId('req', random)),
  })

/** Returns an HTTP server of a Hono app. A request that cannot be read as HTTP is answered with a problem, too. */
export function createHttpServer(fetch: Fetch, random: Random, options: ServerOptions = {}): Server {
  const server = createServer(options, requestListener(fetch, random))
  server.on('clientError', (error, socket) => refuseUnreadable(error, socket, random))
  return server
}

/**
 * Answers a connection whose request Node could not read (event `clientError`), and closes it. Returns the code of the answer. Undefined:
 * the client has gone, nothing is answered.
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
  // A client that does not close its half of the connection would keep it open for good.
  if (socket instanceof Socket) socket.setTimeout(LINGER_MS, () => socket.destroy())
  return problem.code
}

/** Answers a connection without a response object, such as one that asks for an upgrade, with `problem`, and closes it. */
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
 * What the processes of a deployment know each other, and operators, by: `INTERNAL_TOKEN`. It may be several tokens, separated by commas, so
 * that it can be changed process by process: the first is shown, all are accepted.
 */
export class InternalToken {
  /** The one to show to others; undefined: there is none. */
  readonly shown: string | undefined
  readonly #accepted: readonly Buffer[]

  /** Undefined, or nothing but commas: no one is accepted. */
  constructor(tokens: string | undefined) {
    const all = tokens?.split(',').filter((token) => token !== '') ?? []
    this.shown = all[0]
    this.#accepted = all.map(digest)
  }

  /** Whether what was shown is one of the tokens. Takes the same time whatever differs. */
  accepts(given: string | undefined): boolean {
    if (given === undefined) return false
    const shown = digest(given)
    return this.#accepted.filter((token) => timingSafeEqual(token, shown)).length > 0
  }
}
