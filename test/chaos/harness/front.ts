import { connect, createServer, type Server, type Socket } from 'node:net'
import type { Door } from './player.ts'

export interface FrontParts {
  readonly doors: () => readonly Door[]
  readonly random: () => number
  /** A connection goes to this node. */
  readonly connected: (door: Door) => void
}

/** A load balancer in one class: each connection goes to a node drawn at random. */
export class Front {
  readonly #server: Server
  readonly #sockets = new Set<Socket>()
  readonly #pairs = new Map<Socket, Socket>()

  private constructor({ doors, random, connected }: FrontParts) {
    this.#server = createServer((client) => {
      const all = doors()
      const door = all[Math.floor(random() * all.length)]
      if (!door) {
        client.destroy()
        return
      }
      connected(door)
      const { hostname, port } = new URL(door.url)
      const node = connect(Number(port), hostname)
      this.#pairs.set(node, client)
      node.on('close', () => this.#pairs.delete(node))
      for (const [from, to] of [
        [client, node],
        [node, client],
      ] as const) {
        this.#sockets.add(from)
        from.setNoDelay(true)
        from.pipe(to)
        from.on('error', () => to.destroy())
        from.on('close', () => {
          this.#sockets.delete(from)
          to.destroy()
        })
      }
    })
  }

  static async open(parts: FrontParts): Promise<Front> {
    const front = new Front(parts)
    await new Promise<void>((resolve, reject) => {
      front.#server.once('error', reject)
      front.#server.listen(0, '127.0.0.1', resolve)
    })
    return front
  }

  get url(): string {
    const address = this.#server.address()
    if (typeof address !== 'object' || !address) throw new Error('the front has no port')
    return `ws://127.0.0.1:${address.port}`
  }

  /** Nothing comes back to the client any more on the connections there are; what it sends arrives. */
  deafen(): void {
    for (const [node, client] of this.#pairs) node.unpipe(client).resume()
  }

  /** Breaks every connection. */
  cut(): void {
    for (const socket of this.#sockets) socket.destroy()
  }

  async close(): Promise<void> {
    this.cut()
    await new Promise<void>((resolve) => this.#server.close(() => resolve()))
  }
}
