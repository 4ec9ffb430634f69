import { createServer, type IncomingMessage, type Server } from 'node:http'
import { type AddressInfo, BlockList, isIPv4, isIPv6, type Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { WebSocketServer } from 'ws'
import type { Clock } from '../../shared/clock.ts'
import { endWithProblem, refuseUnreadable, requestListener } from '../../shared/http-server.ts'
import { requestIdOf } from '../../shared/ids.ts'
import { isAllowedOrigin, normalOrigin } from '../../shared/origins.ts'
import { Problem, type ProblemCode, problemResponse } from '../../shared/problem.ts'
import type { Random } from '../../shared/random.ts'
import { type Rate, RateLimit, RateLimits } from '../../shared/rate-limit.ts'
import type { Slices } from '../../shared/slices.ts'
import { type ClientAddress, ServerSocket } from './connection.ts'
import type { GatewayContext } from './context.ts'

/** Burst of an address, in seconds of its connection rate. After an outage, all players of a school or a mobile network reconnect together. */
const BURST_SECONDS = 10

/** Refused origins are counted, and at most one in 10 s is logged. */
const ORIGIN_LOG_RATE: Rate = { perSecond: 0.1, burst: 1 }
const MAX_LOGGED_ORIGIN = 200
/** Time for a client to answer a close frame. */
const CLOSE_TIMEOUT_MS = 3000
/** Time for a client to send a whole HTTP request. */
const REQUEST_TIMEOUT_MS = 10_000
/** Time between two checks of that timeout. */
const TIMEOUT_CHECK_MS = 2000
/** A message may have one fragment per 1,024 bytes, plus 16. More is a flood of empty fragments. */
const BYTES_PER_FRAGMENT = 1024
const SPARE_FRAGMENTS = 16

/** Version of the websocket protocol that `ws` speaks. RFC 6455 requires it in the answer to a request for another version. */
const WEBSOCKET_VERSION = { 'sec-websocket-version': '13' }

/** The HTTP server that accepts websockets. */
export class GatewayServer {
  readonly #servers: Server[] = []
  readonly #handshakes: Slices
  readonly #subprotocols: readonly string[]
  readonly #websockets: ReturnType<typeof websocketServer>
  readonly #context: GatewayContext
  readonly #accept: (ws: ServerSocket, pending: PendingConnection) => void
  readonly #proxies: TrustedProxies
  /** Undefined: all origins are allowed. */
  readonly #origins: ReadonlySet<string> | undefined
  readonly #originLog: RateLimit
  readonly #rates: RateLimits
  readonly #pending: PendingConnections
  readonly #places = new WeakMap<Duplex, PendingConnection>()
  #draining = false

  /**
   * `subprotocols`: a client gets the first entry of its own list that is among these. `handshakes`: queue of upgrades. `accept` takes each
   * new websocket.
   */
  constructor(
    context: GatewayContext,
    subprotocols: readonly string[],
    handshakes: Slices,
    accept: (ws: ServerSocket, pending: PendingConnection) => void,
  ) {
    const { options, clock } = context
    this.#context = context
    this.#accept = accept
    this.#proxies = new TrustedProxies(options.trustedProxies)
    this.#origins =
      options.allowedOrigins && new Set(options.allowedOrigins.map((one: string) => normalOrigin(one) ?? one))
    this.#originLog = new RateLimit(clock, ORIGIN_LOG_RATE)
    const perSecond = options.connectionsPerSecondPerAddress
    this.#rates = new RateLimits(clock, { perSecond, burst: perSecond * BURST_SECONDS })
    this.#pending = new PendingConnections(context)
    this.#handshakes = handshakes
    this.#subprotocols = subprotocols
    this.#websockets = websocketServer(options.limits.max_message_bytes, subprotocols)
    this.#websockets.on('wsClientError', ({ message }, socket, request) => {
      const problem = new Problem('invalid_request', `${message}.`, { headers: WEBSOCKET_VERSION })
      refuseUpgrade(request, socket, problem, context.random)
    })
  }

  #newServer(): Server {
    const { metrics, random } = this.#context
    const http = createServer(
      {
        requestTimeout: REQUEST_TIMEOUT_MS,
        headersTimeout: REQUEST_TIMEOUT_MS,
        connectionsCheckingInterval: TIMEOUT_CHECK_MS,
      },
      this.#context.answer ??
        requestListener(
          ({ headers }) =>
            problemResponse(
              new Problem(
                'upgrade_required',
                `This is roomful's websocket port: connect with a websocket, subprotocol ${this.#subprotocols.join(' or ')}.`,
                { headers: { upgrade: 'websocket' } },
              ),
              requestIdOf(headers.get('x-request-id') ?? undefined, random),
            ),
          random,
        ),
    )
    http.on('clientError', (error, socket) => {
      const code = refuseUnreadable(error, socket, random)
      if (code === 'headers_too_large') metrics.connectionsDropped.inc({ reason: 'headers' })
    })
    http.on('connection', (socket) => this.#connected(socket))
    http.on('upgrade', (request, socket, head) => {
      // A named function instead of a closure: a closure would keep the whole request in memory as long as the socket is open.
      socket.on('error', destroy)
      void this.#handshakes.run(() => this.#upgrade(request, socket, head))
    })
    return http
  }

  /** Number of sockets without a session. */
  get pending(): number {
    return this.#pending.size
  }

  /**
   * Listens on one more address; `port` 0 picks a free one. Workers of a process share it unless it is `exclusive`. Rejects if the address is not
   * available.
   */
  listen(host: string, port: number, exclusive = false): Promise<AddressInfo> {
    const http = this.#newServer()
    return new Promise((resolve, reject) => {
      http.once('error', reject)
      http.listen({ port, host, exclusive }, () => {
        http.off('error', reject)
        this.#servers.push(http)
        resolve(http.address() as AddressInfo)
      })
    })
  }

  /** Returns a function that takes connections from inside the process. */
  listenInProcess(): (socket: Duplex) => void {
    const http = this.#newServer()
    return (socket) => void http.emit('connection', socket)
  }

  /** Answers every further websocket with 503, so that a load balancer tries the next node. */
  drain(): void {
    this.#draining = true
  }

  /** Accepts no more connections. Open ones stay, also without a session. */
  stopListening(): void {
    for (const http of this.#servers) http.close()
  }

  /** Accepts no more connections, and ends those that are not websockets (yet). Resolves when the last connection is closed. */
  async close(): Promise<void> {
    const closed = this.#servers.map((http) => new Promise<void>((resolve) => http.close(() => resolve())))
    for (const http of this.#servers) http.closeAllConnections()
    await Promise.all(closed)
  }

  /** A socket beyond the limits is destroyed without an answer. A load balancer then tries the next node, and a client tries again later. */
  #connected(socket: Socket): void {
    const pending = this.#pending.add(socket)
    // For a trusted proxy, the header of the request has the client's address.
    const address = this.#proxies.clientOf(socket.remoteAddress)
    if (!pending || (address !== undefined && !this.#pending.locate(pending, address))) {
      pending?.done()
      socket.destroy()
      return
    }
    this.#places.set(socket, pending)
  }

  #upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    const { origin, 'x-forwarded-for': forwardedFor } = request.headers
    const { metrics, random } = this.#context
    const refuse = (code: ProblemCode, detail: string): void =>
      refuseUpgrade(request, socket, new Problem(code, detail), random)
    const pending = this.#places.get(socket)
    this.#places.delete(socket)
    // The address of an untrusted peer was counted when it connected.
    const proxied = pending?.address === undefined
    const address = proxied
      ? this.#proxies.clientOf(request.socket.remoteAddress, String(forwardedFor ?? ''))
      : pending.address
    if (!pending || socket.destroyed) socket.destroy()
    else if (this.#draining) refuse('draining', 'This node is going away: connect to another.')
    else if (origin !== undefined && this.#origins && !isAllowedOrigin(origin, this.#origins)) {
      this.#originRefused(origin)
      refuse('origin_not_allowed', `The origin ${origin} may not connect here.`)
    } else if (address !== undefined && !this.#rates.take(address)) {
      metrics.connectionsDropped.inc({ reason: 'rate' })
      refuse('rate_limited', 'This address opens connections faster than it may: try again.')
    } else if (address !== undefined && proxied && !this.#pending.locate(pending, address))
      refuse('rate_limited', 'This address has as many connections without a session as it may: try again.')
    else {
      pending.isForwarder = !proxied && forwardedFor !== undefined
      this.#websockets.handleUpgrade(request, socket, head, (ws) => this.#accept(ws, pending))
    }
  }

  #originRefused(origin: string): void {
    const { metrics, log, options } = this.#context
    metrics.connectionsDropped.inc({ reason: 'origin' })
    const fields = { origin: origin.slice(0, MAX_LOGGED_ORIGIN), allowed: options.allowedOrigins }
    if (this.#originLog.take()) log.warn(fields, 'websocket of a foreign origin refused')
  }
}

/** Creates the server that does the websocket handshake on sockets of the HTTP server. */
function websocketServer(maxMessageBytes: number, subprotocols: readonly string[]) {
  // @types/ws does not have closeTimeout yet.
  const newer = { closeTimeout: CLOSE_TIMEOUT_MS }
  return new WebSocketServer({
    ...newer,
    noServer: true,
    clientTracking: false,
    perMessageDeflate: false,
    maxPayload: maxMessageBytes,
    maxFragments: SPARE_FRAGMENTS + Math.ceil(maxMessageBytes / BYTES_PER_FRAGMENT),
    // Pings count towards the rate of their session. The connection answers them within that rate.
    autoPong: false,
    WebSocket: ServerSocket,
    // An unknown subprotocol is accepted here, so that the client gets a close code with a reason.
    handleProtocols: (offered) => {
      const [first] = offered
      return [...offered].find((name) => subprotocols.includes(name)) ?? first ?? false
    },
  })
}

function destroy(this: Duplex): void {
  this.destroy()
}

/** Answers an upgrade with an HTTP error. */
function refuseUpgrade({ headers }: IncomingMessage, socket: Duplex, problem: Problem, random: Random): void {
  const given = headers['x-request-id']
  endWithProblem(socket, problem, requestIdOf(typeof given === 'string' ? given : undefined, random))
}

/** The sockets without a session of the node, or of one address. */
interface Group {
  count: number
  /** Sockets that have not sent `hello`, oldest first. */
  readonly silent: Set<PendingConnection>
}

const newGroup = (): Group => ({ count: 0, silent: new Set() })

/**
 * The sockets without a session, counted since their TCP connection was accepted. At a bound, also that of all open sockets, the socket that
 * has been silent for longest is destroyed. A flood of silent sockets thus takes no place from a client that sends `hello` immediately. If all have sent
 * `hello`, the new socket is refused.
 */
class PendingConnections {
  readonly #context: GatewayContext
  readonly #all = newGroup()
  /** Number of open sockets, also of those with a session. */
  #open = 0
  readonly #closed = (): void => {
    this.#open -= 1
  }
  readonly #byAddress = new Map<string, Group>()

  constructor(context: GatewayContext) {
    this.#context = context
  }

  /** Number of sockets without a session. */
  get size(): number {
    return this.#all.count
  }

  /** Adds a socket. It may be destroyed later to make room. Undefined: it is refused. */
  add(socket: Socket): PendingConnection | undefined {
    const { options, maxConnections = 0 } = this.#context
    // Otherwise the system would drop connections without a file descriptor, and this process would not notice.
    if (!this.#makeRoom({ ...this.#all, count: this.#open }, maxConnections, 'files')) return undefined
    if (!this.#makeRoom(this.#all, options.maxPendingConnections, 'pending')) return undefined
    this.#open += 1
    socket.on('close', this.#closed)
    const pending = new PendingConnection(socket, this.#context.clock, (address) =>
      this.#byAddress.delete(address),
    )
    pending.join(this.#all)
    return pending
  }

  /** Sets the address of a socket, once. Returns false if that address has reached its limit. */
  locate(pending: PendingConnection, address: string): boolean {
    const group = this.#byAddress.get(address) ?? newGroup()
    if (!this.#makeRoom(group, this.#context.options.maxPendingConnectionsPerAddress, 'address')) return false
    this.#byAddress.set(address, group)
    pending.join(group, address)
    return true
  }

  #makeRoom({ count, silent }: Group, most: number, reason: 'files' | 'pending' | 'address'): boolean {
    if (most === 0 || count < most) return true
    this.#context.metrics.connectionsDropped.inc({ reason })
    const [oldest] = silent
    oldest?.giveWay()
    return oldest !== undefined
  }
}

/** Rate of the websocket pings and pongs of a socket without a session. */
const CONTROL_RATE: Rate = { perSecond: 1, burst: 16 }

/** One socket without a session. */
export class PendingConnection {
  readonly socket: Socket
  readonly #emptied: (address: string) => void
  readonly #groups: Group[] = []
  readonly #gone = () => this.done()
  readonly #controlFrames: RateLimit
  #address: string | undefined
  /** See `ClientAddress`. */
  isForwarder = false

  constructor(socket: Socket, clock: Clock, emptied: (address: string) => void) {
    this.socket = socket
    this.#controlFrames = new RateLimit(clock, CONTROL_RATE)
    this.#emptied = emptied
    socket.once('close', this.#gone)
  }

  /** The client's address, if it is known yet. */
  get address(): string | undefined {
    return this.#address
  }

  /** The client's address with its kind, once its upgrade was accepted. */
  get from(): ClientAddress | undefined {
    const { isForwarder } = this
    return this.#address === undefined ? undefined : { address: this.#address, isForwarder }
  }

  /** Address by which shares of a token without `sub` are counted: the client's, or that of the peer if the client's is unknown. */
  get source(): string {
    return this.#address ?? this.socket.remoteAddress ?? ''
  }

  /** Adds the socket to a group. `address`: the group's address. */
  join(group: Group, address?: string): void {
    group.count += 1
    group.silent.add(this)
    this.#groups.push(group)
    this.#address = address
  }

  /** Counts a ping or pong. Returns false above their rate. */
  controlFrame(): boolean {
    return this.#controlFrames.take()
  }

  /** The client has sent `hello`: the socket is no longer destroyed to make room. */
  greeted(): void {
    for (const group of this.#groups) group.silent.delete(this)
  }

  /** The socket has a session, or is closed. May be called again. */
  done(): void {
    this.greeted()
    this.socket.off('close', this.#gone)
    for (const group of this.#groups) group.count -= 1
    if (this.#address !== undefined && this.#groups.at(-1)?.count === 0) this.#emptied(this.#address)
    this.#groups.length = 0
  }

  giveWay(): void {
    this.done()
    this.socket.destroy()
  }
}

/** Networks of the entry `private`: loopback, RFC 1918 and RFC 4193. */
const PRIVATE = ['127.0.0.0/8', '::1', '10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16', 'fc00::/7']

/** Size of the cache of trust decisions. The addresses of load balancers repeat with every connection. */
const MAX_REMEMBERED = 1000

/** Proxies whose `x-forwarded-for` is trusted. `addresses` are single addresses or networks such as `203.0.113.0/24`. */
export class TrustedProxies {
  readonly #list = new BlockList()
  readonly #remembered = new Map<string, boolean>()

  constructor(addresses: readonly string[]) {
    for (const entry of addresses.flatMap((entry) => (entry === 'private' ? PRIVATE : [entry]))) {
      const [address = '', bits] = entry.split('/')
      const family = isIPv6(address) ? 'ipv6' : 'ipv4'
      if (bits === undefined) this.#list.addAddress(address, family)
      else this.#list.addSubnet(address, Number(bits), family)
    }
  }

  /**
   * Returns the client's address, in the form in which it is counted: an IPv4 address, or the first 64 bits of an IPv6 address, because a
   * household has all addresses with that prefix. Reads `forwardedFor` from its right end, as far as the proxies are trusted. Undefined: every
   * known address is trusted, and none is counted.
   */
  clientOf(peer: string | undefined, forwardedFor = ''): string | undefined {
    for (const hop of [peer ?? '', ...forwardedFor.split(',').reverse()]) {
      const address = plainAddress(hop.trim())
      if (address === undefined) return undefined
      if (!this.#trusts(address)) return networkOf(address)
    }
    return undefined
  }

  #trusts(address: string): boolean {
    const remembered = this.#remembered.get(address)
    if (remembered !== undefined) return remembered
    const trusts = this.#list.check(address, isIPv6(address) ? 'ipv6' : 'ipv4')
    if (this.#remembered.size >= MAX_REMEMBERED) this.#remembered.clear()
    this.#remembered.set(address, trusts)
    return trusts
  }
}

/** Removes brackets, port and zone, and converts a mapped address to IPv4. Undefined: the text is not an address. */
function plainAddress(text: string): string | undefined {
  if (isIPv4(text)) return text
  const [, bracketed] = /^\[(.+)\](?::\d+)?$/.exec(text) ?? []
  const [, withPort] = /^([\d.]+):\d+$/.exec(text) ?? []
  const [address = ''] = (bracketed ?? withPort ?? text).split('%')
  const [, mapped] = /^::ffff:([\d.]+)$/i.exec(address) ?? []
  const plain = mapped ?? address
  return isIPv4(plain) || isIPv6(plain) ? plain : undefined
}

/** Returns an IPv4 address unchanged, and the first half of an IPv6 address. */
function networkOf(address: string): string {
  if (isIPv4(address)) return address
  const [head = '', tail = ''] = address.split('::')
  const groups = head === '' ? [] : head.split(':')
  const behind = tail === '' ? [] : tail.split(':')
  const zeros = address.includes('::')
    ? new Array<string>(Math.max(0, 8 - groups.length - behind.length)).fill('0')
    : []
  const first = [...groups, ...zeros, ...behind].slice(0, 4)
  return first.map((group) => Number.parseInt(group, 16).toString(16)).join(':')
}
