import { get } from 'node:http'
import { connect, createServer, type Server, type Socket } from 'node:net'
import type { Clock } from '../../shared/clock.ts'

/** One of the servers behind an address. */
interface Target {
  readonly port: number
  /** Where `GET /readyz` is asked. */
  readonly healthPort: number
}

interface BuiltinBalancerOptions {
  readonly port: number
  readonly targets: readonly Target[]
  readonly clock: Clock
}

const CHECK_MS = 250
const CHECK_TIMEOUT_MS = 1000
const HOST = '127.0.0.1'

/**
 * A TCP load balancer in a few lines, for development where haproxy is not installed: ready targets in turn, the next one where a
 * connection is refused. It knows no HTTP, so that what comes over one kept connection always goes to one target.
 */
export class BuiltinBalancer {
  readonly #options: BuiltinBalancerOptions
  readonly #server: Server
  readonly #sockets = new Set<Socket>()
  #ready: readonly Target[] = []
  #turn = 0
  #closed = false
  #cancelCheck = (): void => {}

  constructor(options: BuiltinBalancerOptions) {
    this.#options = options
    this.#server = createServer({ noDelay: true }, (client) => {
      this.#keep(client)
      this.#forward(client, this.#inTurn())
    })
  }

  /** Listens; resolves when the targets were asked once. Rejects when the port cannot be had. */
  async start(): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      this.#server.once('error', reject)
      this.#server.listen(this.#options.port, HOST, resolve)
    })
    await this.#check()
  }

  /** Stops listening, and breaks every connection. */
  close(): void {
    this.#closed = true
    this.#cancelCheck()
    this.#server.close()
    for (const socket of this.#sockets) socket.destroy()
  }

  async #check(): Promise<void> {
    const { targets, clock } = this.#options
    const ready = await Promise.all(targets.map(isReady))
    if (this.#closed) return
    this.#ready = targets.filter((_, index) => ready[index])
    this.#cancelCheck = clock.schedule(CHECK_MS, () => void this.#check())
  }

  /** The ready targets, another one first at each call. */
  #inTurn(): Target[] {
    const first = this.#turn++ % Math.max(1, this.#ready.length)
    return [...this.#ready.slice(first), ...this.#ready.slice(0, first)]
  }

  #forward(client: Socket, [target, ...others]: Target[]): void {
    if (!target) {
      client.destroy()
      return
    }
    const server = connect({ host: HOST, port: target.port, noDelay: true })
    this.#keep(server)
    const refused = (): void => this.#forward(client, others)
    server.once('error', refused)
    server.once('connect', () => {
      server.off('error', refused)
      if (client.destroyed) server.destroy()
      client.pipe(server)
      server.pipe(client)
      client.once('close', () => server.destroy())
      server.once('close', () => client.destroy())
    })
  }

  #keep(socket: Socket): void {
    this.#sockets.add(socket)
    socket.on('error', () => socket.destroy())
    socket.once('close', () => this.#sockets.delete(socket))
  }
}

function isReady({ healthPort }: Target): Promise<boolean> {
  return new Promise((resolve) => {
    const request = get(
      { host: HOST, port: healthPort, path: '/readyz', agent: false, timeout: CHECK_TIMEOUT_MS },
      (response) => {
        response.resume()
        resolve(response.statusCode === 200)
      },
    )
    request.once('timeout', () => request.destroy())
    request.once('error', () => resolve(false))
  })
}
