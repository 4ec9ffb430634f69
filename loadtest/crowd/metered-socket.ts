import { WebSocket } from 'ws'
import type { WebSocketConstructor } from '../../client/index.ts'
import { CLOSE } from '../../shared/protocol/close-codes.ts'

/** A read that filled the buffer: what belongs to it may come with the next one. */
const FULL_READ = 65_536

/** Who looks on at the traffic of one client, over all its connections. */
export interface Onlooker {
  /** A connection is attempted. */
  dialled(): void
  /** A frame of the server, before the client gets it. */
  received(frame: Uint8Array): void
  /** A frame to the server. */
  sent(frame: Uint8Array): void
  /** The server says goodbye, with this code: the first moment at which the client could know that it is over. */
  dismissed(code: number): void
  /** The socket gives something new: what came before has come in full. */
  read(): void
}

/** The sockets of one client: each connection goes to the next address, and whatever passes is seen. They can be cut and stalled. */
export class Line {
  readonly WebSocket: WebSocketConstructor
  #socket: WebSocket | undefined
  #next: number

  /** `first`: which of the addresses comes first. */
  constructor(urls: readonly string[], first: number, onlooker: Onlooker) {
    this.#next = first
    const address = (): string => urls[this.#next++ % urls.length]!
    const use = (socket: WebSocket): void => {
      this.#socket = socket
    }
    this.WebSocket = class extends WebSocket {
      constructor(_url: string, protocols: string[]) {
        super(address(), protocols, { perMessageDeflate: false })
        use(this)
        onlooker.dialled()
        let filled = false
        this.once('upgrade', ({ socket }) =>
          socket.on('data', (chunk: Buffer) => {
            if (!filled) onlooker.read()
            filled = chunk.length >= FULL_READ
          }),
        )
        this.on('message', (data) => {
          if (data instanceof ArrayBuffer) onlooker.received(new Uint8Array(data))
          else if (Buffer.isBuffer(data)) onlooker.received(data)
        })
      }

      // Called for a goodbye of the server as well, to answer it with the same code.
      override close(code?: number, reason?: string | Buffer): void {
        if (code !== undefined && code !== CLOSE.normal.code) onlooker.dismissed(code)
        super.close(code, reason)
      }

      override send(frame: Uint8Array): void {
        onlooker.sent(frame)
        super.send(frame)
      }
    }
  }

  /** Ends the connection without a goodbye, as a network that fails. */
  cut(): void {
    this.#socket?.terminate()
  }

  /** Stops reading, as a phone in a tunnel. */
  stall(): void {
    this.#socket?.pause()
  }

  /** Reads on; resolves when everything that waited has been read, or the connection has ended. */
  readOn(): Promise<void> {
    const socket = this.#socket
    if (!socket) return Promise.resolve()
    socket.resume()
    if (socket.readyState !== WebSocket.OPEN) return Promise.resolve()
    return new Promise((resolve) => {
      socket.once('close', () => resolve())
      // The answer comes behind all that waits.
      socket.once('pong', () => resolve())
      socket.ping()
    })
  }
}
