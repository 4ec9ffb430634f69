import type { Duplex } from 'node:stream'
import type { WebSocketConstructor } from 'roomful/client'
import { WebSocket } from 'ws'

/** Target of a new connection. */
export interface Address {
  readonly url: string
  /** Name of the node, for `created`. */
  readonly node?: string
  /** A connection in this process. Undefined: connects over the network. */
  readonly connection?: Duplex | undefined
  /** Certificate to trust for `wss:`, PEM. Default: the certificates that Node trusts. */
  readonly ca?: string | undefined
}

export interface NetworkHooks {
  /** Returns the target of a new connection. `url` is the address of the SDK, which is the default. */
  readonly to?: (url: string) => Address | undefined
  /** Called with a new connection to a target of `to`, its node, and the previous open connection. */
  readonly created?: (socket: WebSocket, node: string, before: WebSocket | undefined) => void
  /** Called with each frame of the server. Returns the frame for the client. Undefined: the frame is lost. */
  readonly frame?: (frame: Buffer, socket: WebSocket) => Buffer | undefined
}

/** The connections of one SDK client, with injectable faults. */
export class Network {
  readonly WebSocket: WebSocketConstructor
  /** The connection that the client sent on last. */
  #current: WebSocket | undefined
  readonly #open = new Set<WebSocket>()
  readonly #deaf = new WeakSet<WebSocket>()

  constructor({ to = () => undefined, created = () => {}, frame = (same) => same }: NetworkHooks = {}) {
    const network = this
    this.WebSocket = class extends WebSocket {
      constructor(url: string, protocols: string[]) {
        const target = to(url)
        const { connection, ca } = target ?? {}
        const inProcess = connection && { createConnection: () => connection, perMessageDeflate: false }
        super(target?.url ?? url, protocols, { ca, ...inProcess })
        if (target) created(this, target.node ?? '', [...network.#open].at(-1))
        network.#open.add(this)
        this.once('close', () => network.#open.delete(this))
      }

      override send(...args: unknown[]): void {
        network.#current = this
        super.send(...(args as Parameters<WebSocket['send']>))
      }

      override emit(event: string | symbol, ...args: unknown[]): boolean {
        if (event !== 'message') return super.emit(event, ...args)
        const received = Buffer.from(args[0] as ArrayBuffer)
        const rest = frame(received, this)
        if (rest === undefined || network.#deaf.has(this)) return false
        return super.emit(event, rest === received ? args[0] : Uint8Array.from(rest).buffer, args[1])
      }
    } as WebSocketConstructor
  }

  /** True for the connection that the client listens to. The SDK ignores frames of a connection that it has released or moves away from. */
  hears(socket: WebSocket): boolean {
    return socket === this.#current && socket.onmessage !== null
  }

  /** Address of the newest connection. */
  get url(): string | undefined {
    return [...this.#open].at(-1)?.url.replace(/\/$/, '')
  }

  /** Drops all incoming messages of the open connections. Messages of the client still arrive. */
  deafen(): void {
    for (const socket of this.#open) this.#deaf.add(socket)
  }

  /** Breaks all connections without a closing handshake. */
  cut(): void {
    for (const socket of this.#open) socket.terminate()
  }
}

/** Returns `to` for a network that uses the addresses of `doors` in turn: a load balancer without a process. */
export function inTurn(doors: () => readonly string[], ca?: string): (url: string) => Address {
  let next = 0
  return (url) => {
    const all = doors()
    return { url: all[next++ % all.length] ?? url, ca }
  }
}
