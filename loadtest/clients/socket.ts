import { WebSocket } from 'ws'
import type { WebSocketConstructor } from '../../client/index.ts'
import { CLOSE } from '../../shared/protocol/close-codes.ts'

/** A read that filled the buffer: what belongs to it may come with the next one. */
const FULL_READ = 65_536

/** What is told of the traffic of one client, over all its connections. */
interface TrafficHandlers {
  /** A connection is attempted. */
  dialled(): void
  /** A frame of the server, before the client gets it. */
  received(frame: Uint8Array): void
  /** A frame to the server. */
  sent(frame: Uint8Array): void
  /** The server closes with this code: the first moment at which the client could know. */
  closing(code: number): void
  /** The socket is read: what was read before has come in full. */
  read(): void
}

/** The sockets of one client: each connection goes to the next address, and its traffic is seen. They can be cut and stalled. */
export class MeteredSocket {
  readonly WebSocket: WebSocketConstructor
  #socket: WebSocket | undefined
  #next: number

  /** `first`: which of the addresses comes first. */
  constructor(urls: readonly string[], first: number, handlers: TrafficHandlers) {
    this.#next = first
    const address = (): string => urls[this.#next++ % urls.length]!
    const use = (socket: WebSocket): void => {
      this.#socket = socket
    }
    this.WebSocket = class extends WebSocket {
      constructor(_url: string, protocols: string[]) {
        super(address(), protocols, { perMessageDeflate: false })
        use(this)
        handlers.dialled()
        let filled = false
        this.once('upgrade', ({ socket }) =>
          socket.on('data', (chunk: Buffer) => {
            if (!filled) handlers.read()
            filled = chunk.length >= FULL_READ
          }),
        )
        this.on('message', (data) => {
          if (data instanceof ArrayBuffer) handlers.received(new Uint8Array(data))
          else if (Buffer.isBuffer(data)) handlers.received(data)
        })
      }

      // Called for a close of the server as well, to answer it with the same code.
      override close(code?: number, reason?: string | Buffer): void {
        if (code !== undefined && code !== CLOSE.normal.code) handlers.closing(code)
        super.close(code, reason)
      }

      override send(frame: Uint8Array): void {
        handlers.sent(frame)
        super.send(frame)
      }
    }
  }

  /** Ends the connection without a close frame, as a network that fails. */
  cut(): void {
    this.#socket?.terminate()
  }

  /** Stops reading, as a phone in a tunnel. */
  stall(): void {
    this.#socket?.pause()
  }

  /** Reads on; resolves when everything that waited has been read, with true, or the connection has ended, with false. */
  readOn(): Promise<boolean> {
    const socket = this.#socket
    socket?.resume()
    if (socket?.readyState !== WebSocket.OPEN) return Promise.resolve(false)
    return new Promise((resolve) => {
      socket.once('close', () => resolve(false))
      // The answer comes behind all that waits.
      socket.once('pong', () => resolve(true))
      socket.ping()
    })
  }
}
