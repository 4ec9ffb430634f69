import { WebSocket } from 'ws'
import type { WebSocketConstructor } from '../../client/index.ts'

interface TrafficHandlers {
  dialled(): void
  /** A frame of the server, before the SDK receives it. */
  received(frame: Uint8Array): void
  sent(frame: Uint8Array): void
}

/** The sockets of one client. Each connection goes to the next address. They can be cut and stalled. */
export class MeteredSocket {
  readonly WebSocket: WebSocketConstructor
  #socket: WebSocket | undefined

  /** `first`: index of the first address. */
  constructor(urls: readonly string[], first: number, handlers: Partial<TrafficHandlers> = {}) {
    let next = first
    const address = (): string => urls[next++ % urls.length]!
    const use = (socket: WebSocket): void => {
      this.#socket = socket
    }
    this.WebSocket = class extends WebSocket {
      constructor(_url: string, protocols: string[]) {
        super(address(), protocols, { perMessageDeflate: false })
        use(this)
        handlers.dialled?.()
        this.on('message', (data) => {
          if (data instanceof ArrayBuffer) handlers.received?.(new Uint8Array(data))
          else if (Buffer.isBuffer(data)) handlers.received?.(data)
        })
      }

      override send(frame: Uint8Array): void {
        handlers.sent?.(frame)
        super.send(frame)
      }
    }
  }

  /** Ends the connection without a close frame, like a failing network. */
  cut(): void {
    this.#socket?.terminate()
  }

  /** Stops reading, like a phone in a tunnel. */
  stall(): void {
    this.#socket?.pause()
  }

  /** Continues to read. Resolves with true when the backlog has been read, with false when the connection has ended. */
  readOn(): Promise<boolean> {
    const socket = this.#socket
    socket?.resume()
    if (socket?.readyState !== WebSocket.OPEN) return Promise.resolve(false)
    return new Promise((resolve) => {
      socket.once('close', () => resolve(false))
      // The pong comes behind the backlog.
      socket.once('pong', () => resolve(true))
      socket.ping()
    })
  }
}
