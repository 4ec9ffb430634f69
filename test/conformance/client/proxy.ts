import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Duplex } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import { WebSocket, WebSocketServer } from 'ws'
import { readSignIn } from '../../../deploy/cli/dev-routes.ts'
import {
  BREAKS,
  Dice,
  FAULTS,
  type Fault,
  type FrameFault,
  NEW_SESSION_CODE,
  ONE_OF,
  RESUME_CODES,
  STOP_CODE,
  TIMED,
  type TimedFault,
  TOKEN_CODE,
} from './faults.ts'
import { Judge, type JudgeOptions } from './judge.ts'
import { Wire } from './wire.ts'

/** The cluster behind the proxy. */
export interface Cluster {
  /** Websocket addresses of the nodes, as in `move`. */
  readonly nodes: readonly string[]
  /** Returns a token for the player with this name. */
  readonly token: (name: string) => Promise<{ readonly project_id: string; readonly token: string }>
  /** Kills or drains the owner of a room. Another process starts it again. Undefined: not possible. */
  readonly kill?: (roomId: string) => Promise<unknown>
  readonly drain?: (roomId: string) => Promise<unknown>
}

export interface ProxyOptions extends Partial<Omit<JudgeOptions, 'now'>> {
  readonly cluster: Cluster
  /** Port for clients. The following ports are those for the nodes. 0 (default): free ports. */
  readonly port?: number
  readonly seed: number
  /** Faults to inject. Default: all. */
  readonly faults?: ReadonlySet<Fault>
  /** Called with the text of each timed fault. */
  readonly tell?: (text: string) => void
}

const HOST = '127.0.0.1'
const DEFAULTS = { patience_ms: 5000, return_ms: 15_000, level: 6 }
/** Interval at which the judge checks deadlines. */
const LOOK_MS = 50
/** Milliseconds between two timed faults. */
const PAUSE_MS = [300, 1200] as const
/** Age of a connection after which the client's pauses are short again (R5), so that a break costs little time. */
const SHORT_PAUSES_MS = 5500
/** One out of this number of breaks may happen on a younger connection. */
const EARLY_ONE_OF = 6
/** Time until an ending node takes no new connections, and interval of the checks whether all nodes are ready again. */
const NODE_REST_MS = 2000
/** Time from a move without a url until the proxy closes the connection, like a draining node. */
const DRAINED_MS = 1000
/** Time after a 40xx in which no client may connect. */
const STAYS_AWAY_MS = 1500
/** Every machine without a `discard` service refuses this address. */
const NOWHERE = `ws://${HOST}:9`
/** A proxy between a client and a cluster. It injects faults, and judges the client. */
export class FaultProxy {
  readonly judge: Judge
  /** Number of times that each fault was injected. */
  readonly struck = new Map<Fault, number>()
  /** Frames of the server that the page does not allow. */
  readonly server_faults: string[] = []
  private readonly options: ProxyOptions
  private readonly dice: Dice
  private readonly faults: ReadonlySet<Fault>
  /** The server for clients, then one server for each node. */
  private readonly servers: Server[] = []
  private readonly sockets: WebSocketServer
  private readonly subprotocols = new WeakMap<IncomingMessage, string>()
  private readonly wires = new Map<Wire, { readonly at: number; readonly node: number }>()
  private readonly looking: NodeJS.Timeout
  private playing: NodeJS.Timeout | undefined
  /** True while faults of frames are injected. */
  private active = false
  private nodesServe = true
  /** Faults for the next frame. */
  private readonly due = new Set<FrameFault>()
  /** The next connection loses its welcome. */
  private cutsNextHello = false
  /** A request for a token follows the next welcome. */
  private expires = false

  private constructor(options: ProxyOptions) {
    this.options = options
    this.faults = options.faults ?? new Set(FAULTS)
    this.dice = new Dice(options.seed)
    const {
      patience_ms = DEFAULTS.patience_ms,
      return_ms = DEFAULTS.return_ms,
      level = DEFAULTS.level,
    } = options
    this.judge = new Judge({ now: () => performance.now(), patience_ms, return_ms, level })
    this.looking = setInterval(() => this.judge.look(), LOOK_MS)
    this.sockets = new WebSocketServer({
      noServer: true,
      autoPong: false,
      handleProtocols: (_, request) => this.subprotocols.get(request) || false,
    })
  }

  /** Starts the servers. Rejects if a port is in use. */
  static async open(options: ProxyOptions): Promise<FaultProxy> {
    const proxy = new FaultProxy(options)
    const { cluster, port = 0 } = options
    for (let index = 0; index <= cluster.nodes.length; index += 1)
      proxy.servers.push(await proxy.listen(port === 0 ? 0 : port + index, index - 1))
    return proxy
  }

  /** Number of open connections of clients. */
  get connections(): number {
    return this.wires.size
  }

  /** Address for clients. */
  get url(): string {
    return this.urlAt(0)
  }

  /** Address for tokens without the name: `GET …name=alice` answers `{project_id, token}`. */
  get tokenUrl(): string {
    return `${this.url.replace(/^ws/, 'http')}/dev/token?name=`
  }

  /** Starts to inject faults. `rest` stops that. */
  play(): void {
    this.active = true
    let deck: TimedFault[] = []
    const next = (): void => {
      this.playing = setTimeout(
        () => {
          const strikes = (fault: TimedFault): boolean => this.strike(fault)
          let struck = deck.find(strikes)
          if (struck === undefined) {
            // Faults that were not possible stay in front.
            const all = TIMED.filter((fault) => this.faults.has(fault))
            deck = [...new Set([...deck, ...this.dice.shuffled(all)])]
            struck = deck.find(strikes)
          }
          deck = deck.filter((fault) => fault !== struck)
          next()
        },
        this.dice.between(...PAUSE_MS),
      )
    }
    next()
  }

  /** Stops the faults, and waits until the client owes no action, or has ended. */
  async rest(hasEnded = () => false): Promise<void> {
    this.active = false
    clearTimeout(this.playing)
    for (const wire of this.wires.keys()) wire.lag(0)
    while (this.judge.waits && !hasEnded()) await sleep(LOOK_MS)
  }

  /** Closes all connections with a code that requires new sessions, and then with a code that means stop. */
  async stop(hasEnded = () => false): Promise<void> {
    if (this.faults.has('new session')) {
      // A client that is moving must ignore the codes of both connections (R34).
      while (this.mayMove && !hasEnded()) await sleep(LOOK_MS)
      this.closeAll('new session', NEW_SESSION_CODE)
      await this.rest(hasEnded)
    }
    if (this.faults.has('stop')) {
      this.closeAll('stop', STOP_CODE)
      this.judge.stopped = STOP_CODE
      await sleep(STAYS_AWAY_MS)
    }
  }

  async close(): Promise<void> {
    clearTimeout(this.playing)
    clearInterval(this.looking)
    for (const client of [...this.wires.keys()]) client.close(1001, 'the run is over')
    for (const server of this.servers) server.closeAllConnections()
    await Promise.all(this.servers.map((server) => new Promise((resolve) => server.close(resolve))))
  }

  /** Injects the fault into the next frame for which it is possible. */
  strikeFrame(fault: FrameFault): void {
    this.due.add(fault)
  }

  /** Injects a fault at a connection for which it is possible. Returns false if there is none. */
  strike(fault: TimedFault): boolean {
    const wires = [...this.wires].filter(([wire, { at }]) => {
      if (!wire.plays) return false
      if (/^move/.test(fault)) return wire.line.move === undefined
      return (
        !BREAKS.has(fault) ||
        !this.active ||
        performance.now() - at > SHORT_PAUSES_MS ||
        this.dice.oneOf(EARLY_ONE_OF)
      )
    })
    const [wire, { node } = { node: 0 }] = this.dice.choose(wires) ?? []
    if (!wire || (/^(kill|drain)$/.test(fault) && !this.endsNode(fault as 'kill' | 'drain'))) return false
    this.note(fault)
    this.options.tell?.(`${fault} (connection ${wire.line.id})`)
    switch (fault) {
      case 'delay': {
        wire.lag(this.dice.between(20, 400))
        setTimeout(() => wire.lag(0), this.dice.between(300, 1200))
        break
      }
      case 'cut':
        wire.cut(this.dice.oneOf(2) ? 0 : 1000)
        break
      case 'cut at hello':
        this.cutsNextHello = true
        wire.cut()
        break
      case 'close':
        wire.close(this.dice.choose(RESUME_CODES)!, 'a fault of the conformance proxy')
        break
      case 'token':
        this.expires = true
        wire.close(TOKEN_CODE, 'a fault of the conformance proxy: the token has expired')
        break
      case 'silence':
        wire.silence()
        break
      case 'move':
        wire.move(
          Math.floor(this.dice.between(0, 300)),
          this.urlAt(1 + ((node + 1) % this.options.cluster.nodes.length)),
        )
        break
      case 'move to nowhere':
        wire.move(0, NOWHERE)
        break
      case 'move home': {
        const inMs = Math.floor(this.dice.between(100, 1000))
        wire.move(inMs)
        setTimeout(() => wire.close(4101, 'the node is going away'), inMs + DRAINED_MS)
        break
      }
    }
    return true
  }

  /** Ends the owner of a room. Returns false if a node is not ready, or if there is no room. */
  private endsNode(how: 'kill' | 'drain'): boolean {
    const end = this.options.cluster[how]
    const room = this.dice.choose(this.judge.rooms)
    if (!end || room === undefined || !this.nodesServe) return false
    this.nodesServe = false
    void end(room)
      .catch((problem: Error) => this.options.tell?.(`${how} of the owner of ${room}: ${problem.message}`))
      .then(() => this.nodesBack())
    return true
  }

  private async nodesBack(): Promise<void> {
    do await sleep(NODE_REST_MS)
    while (this.active && !(await this.allServe()))
    this.nodesServe = true
  }

  private async allServe(): Promise<boolean> {
    const sockets = await Promise.all(this.options.cluster.nodes.map((node) => dial(node, [])))
    for (const socket of sockets) socket?.terminate()
    return sockets.every(Boolean)
  }

  /** True for a while after a `move`, in which its client may open the second connection, and while a hello has no welcome. */
  private get mayMove(): boolean {
    const now = performance.now()
    return [...this.wires.keys()].some(
      ({ line: { hello, welcomed_at: welcomedAt, move } }) =>
        (hello !== undefined && welcomedAt === undefined) ||
        (move !== undefined && now < move.at + move.in_ms + DRAINED_MS),
    )
  }

  private closeAll(fault: Fault, code: number): void {
    for (const wire of [...this.wires.keys()]) {
      this.note(fault)
      wire.close(code, 'a fault of the conformance proxy')
    }
  }

  private note(fault: Fault): void {
    this.struck.set(fault, (this.struck.get(fault) ?? 0) + 1)
  }

  private urlAt(index: number): string {
    return `ws://${HOST}:${(this.servers[index]!.address() as AddressInfo).port}`
  }

  /** `node`: index of the node for the connections. -1: any node. */
  private async listen(port: number, node: number): Promise<Server> {
    const server = createServer((request, response) => void this.answer(request, response))
    server.on('upgrade', (request, socket, head) => void this.connect(request, socket, head, node))
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject)
      server.listen(port, HOST, resolve)
    })
    return server
  }

  private async answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { pathname, searchParams } = new URL(request.url ?? '/', this.tokenUrl)
    const [status, body] = await this.tokenOf(request, pathname, searchParams)
    response.writeHead(status, { 'content-type': 'application/json', 'access-control-allow-origin': '*' })
    response.end(JSON.stringify(body))
  }

  private async tokenOf(
    request: IncomingMessage,
    pathname: string,
    query: URLSearchParams,
  ): Promise<readonly [status: number, body: object]> {
    if (pathname !== '/dev/token')
      return [404, { detail: 'the conformance proxy has only websockets and /dev/token' }]
    // The SDK posts the player of `dev`. Other clients have an address with the name.
    const asked = request.method === 'POST' ? await readSignIn(request) : undefined
    if (typeof asked === 'string') return [400, { detail: asked }]
    const name = asked?.player.sub ?? query.get('name')
    return this.options.cluster.token(name || 'player').then(
      (token) => [200, token],
      (problem: Error) => [503, { detail: problem.message }],
    )
  }

  private async connect(request: IncomingMessage, socket: Duplex, head: Buffer, node: number): Promise<void> {
    socket.on('error', () => undefined)
    const { nodes } = this.options.cluster
    const offered = (request.headers['sec-websocket-protocol'] ?? '').split(',').map((name) => name.trim())
    const order = node < 0 ? this.dice.shuffled([...nodes.keys()]) : [node]
    for (const index of order) {
      const upstream = await dial(nodes[index]!, offered.filter(Boolean))
      if (!upstream) continue
      if (socket.destroyed) return upstream.terminate()
      this.subprotocols.set(request, upstream.protocol)
      this.sockets.handleUpgrade(request, socket, head, (client) => this.join(client, upstream, index))
      return
    }
    // No node answers, so the proxy refuses the connection.
    socket.destroy()
  }

  private join(client: WebSocket, upstream: WebSocket, node: number): void {
    const { judge, dice } = this
    const wire = new Wire({
      client,
      node: upstream,
      line: judge.open(upstream.protocol.endsWith('.msgpack') ? 'msgpack' : 'json'),
      judge,
      dice,
      strikes: (fault) =>
        this.due.delete(fault) || (this.active && this.faults.has(fault) && dice.oneOf(ONE_OF[fault])),
      struck: (fault) => this.note(fault),
      addressOf: (url) => {
        const index = this.options.cluster.nodes.indexOf(url)
        return index < 0 ? undefined : this.urlAt(index + 1)
      },
      broken: (problem) => this.server_faults.push(problem),
      over: () => this.wires.delete(wire),
    })
    wire.cuts_at_hello = this.cutsNextHello
    this.cutsNextHello = false
    wire.requests_token = this.expires
    this.expires = false
    this.wires.set(wire, { at: performance.now(), node })
  }
}

/** Connects to a node. Undefined: the node does not answer, or refuses. */
async function dial(url: string, offered: string[]): Promise<WebSocket | undefined> {
  const socket = new WebSocket(url, offered, {
    autoPong: false,
    handshakeTimeout: 5000,
    perMessageDeflate: false,
  })
  return new Promise((resolve) => {
    socket.once('open', () => resolve(socket))
    socket.once('error', () => resolve(undefined))
  })
}
