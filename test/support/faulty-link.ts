import { connect, createServer, type Server, type Socket } from 'node:net'

/** A TCP proxy of a Redis or a node that injects faults of a network: broken connections, delays and lost data. */
export class FaultyLink {
  readonly #target: { readonly protocol: string; readonly host: string; readonly port: number }
  readonly #server: Server
  readonly #pairs = new Set<Pair>()
  #delayMs = 0
  #held = false
  #refuses = false

  private constructor(targetUrl: string) {
    const { protocol, hostname, port } = new URL(targetUrl)
    this.#target = { protocol, host: hostname, port: Number(port || 6379) }
    this.#server = createServer((client) => this.#join(client))
  }

  /** Starts a proxy of `targetUrl` at a free port. */
  static async open(targetUrl: string): Promise<FaultyLink> {
    const link = new FaultyLink(targetUrl)
    await new Promise<void>((resolve, reject) => {
      link.#server.once('error', reject)
      link.#server.listen(0, '127.0.0.1', resolve)
    })
    return link
  }

  /** Address of the proxy, with the protocol of the target. */
  get url(): string {
    const address = this.#server.address()
    if (typeof address !== 'object' || !address) throw new Error('the link has no port')
    return `${this.#target.protocol}//127.0.0.1:${address.port}`
  }

  /** Breaks every connection. Data in flight may be lost. New connections work. */
  cut(): void {
    for (const pair of [...this.#pairs]) pair.cut()
  }

  /** `true`: breaks every connection, and each new connection immediately. `false`: new connections work again. */
  refuse(refuses: boolean): void {
    this.#refuses = refuses
    if (refuses) this.cut()
  }

  /** Delays data in both directions by `ms`. */
  delay(ms: number): void {
    this.#delayMs = ms
  }

  /** `true`: holds data in both directions, and connections stay open. `false`: delivers the held data, also that of sockets closed since then. */
  hold(held: boolean): void {
    this.#held = held
    if (!held) for (const pair of [...this.#pairs]) pair.release()
  }

  /**
   * Drops data from the target on each open connection whose client has sent `word` in its first 4096 bytes (a command, or the name of the
   * connection). The connections stay open, and data from the client still arrives.
   */
  mute(word: string): void {
    for (const pair of this.#pairs) pair.muted ||= pair.said.includes(word)
  }

  /** Ends `mute`. */
  unmute(): void {
    for (const pair of this.#pairs) pair.muted = false
  }

  /** As `mute`, for data from the client. Data from the target still arrives. */
  swallow(word: string): void {
    for (const pair of this.#pairs) pair.swallowed ||= pair.said.includes(word)
  }

  async close(): Promise<void> {
    for (const pair of [...this.#pairs]) pair.cut()
    await new Promise<void>((resolve) => this.#server.close(() => resolve()))
  }

  #join(client: Socket): void {
    if (this.#refuses) {
      client.destroy()
      return
    }
    const server = connect(this.#target.port, this.#target.host)
    const pair = new Pair(client, server, {
      delay: () => this.#delayMs,
      held: () => this.#held,
      over: () => this.#pairs.delete(pair),
    })
    this.#pairs.add(pair)
  }
}

interface Conditions {
  readonly delay: () => number
  readonly held: () => boolean
  readonly over: () => void
}

/** Length of the start of a client's data that `mute` and `swallow` search. */
const REMEMBERED = 4096

/** Two sockets and the data in flight between them. */
class Pair {
  /** Start of the client's data. */
  said = ''
  muted = false
  swallowed = false
  readonly #client: Socket
  readonly #server: Socket
  readonly #ways: readonly [up: Way, down: Way]
  readonly #over: () => void

  constructor(client: Socket, server: Socket, conditions: Conditions) {
    this.#client = client
    this.#server = server
    this.#over = conditions.over
    this.#ways = [new Way(server, conditions), new Way(client, conditions)]
    const [up, down] = this.#ways
    client.setNoDelay(true)
    server.setNoDelay(true)
    client.on('data', (chunk) => {
      if (this.said.length < REMEMBERED) this.said += chunk.toString('latin1')
      if (!this.swallowed) up.carry(chunk)
    })
    server.on('data', (chunk) => {
      if (!this.muted) down.carry(chunk)
    })
    client.on('error', () => {}).on('close', () => up.finish())
    server.on('error', () => {}).on('close', () => down.finish())
    client.on('close', () => this.#look())
    server.on('close', () => this.#look())
  }

  release(): void {
    for (const way of this.#ways) way.move()
  }

  cut(): void {
    for (const way of this.#ways) way.drop()
    this.#client.destroy()
    this.#server.destroy()
  }

  #look(): void {
    if (this.#client.destroyed && this.#server.destroyed) this.#over()
  }
}

/** One direction of a connection: chunks in flight, each with the time at which it arrives. */
class Way {
  readonly #to: Socket
  readonly #conditions: Conditions
  #queue: { readonly due: number; readonly chunk: Uint8Array }[] = []
  #timer: NodeJS.Timeout | undefined
  #finished = false

  constructor(to: Socket, conditions: Conditions) {
    this.#to = to
    this.#conditions = conditions
  }

  carry(chunk: Uint8Array): void {
    const due = Math.max(performance.now() + this.#conditions.delay(), this.#queue.at(-1)?.due ?? 0)
    this.#queue.push({ due, chunk })
    this.move()
  }

  /** The sender has closed. Its data still arrives, and then the end of the stream. */
  finish(): void {
    this.#finished = true
    this.move()
  }

  drop(): void {
    this.#queue = []
    clearTimeout(this.#timer)
  }

  move(): void {
    clearTimeout(this.#timer)
    if (this.#conditions.held()) return
    const now = performance.now()
    while (this.#queue.length > 0 && this.#queue[0]!.due <= now) {
      const { chunk } = this.#queue.shift()!
      if (!this.#to.destroyed) this.#to.write(chunk)
    }
    const [next] = this.#queue
    if (next) this.#timer = setTimeout(() => this.move(), Math.max(1, next.due - now))
    else if (this.#finished) this.#to.destroySoon()
  }
}
