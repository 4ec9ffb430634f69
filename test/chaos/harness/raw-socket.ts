import WebSocket from 'ws'
import type { ClientMessage, ServerMessage } from '../../../shared/protocol/messages.ts'
import type { Door } from './player.ts'

const OPEN_WITHIN_MS = 2000
/** A connection on which nothing comes for so long is dead; a ping asks every third of it. */
const SILENCE_MS = 3000

export interface RawHandlers {
  open(socket: RawSocket): void
  message(socket: RawSocket, message: ServerMessage): void
  /** Called once; 1006 when there was no closing handshake. */
  closed(socket: RawSocket, code: number, reason: string): void
}

/** One connection in the JSON subprotocol, which notices by itself when the other side is gone. */
export class RawSocket {
  readonly door: Door
  /** Nothing that comes is of interest any more. */
  superseded = false
  /** Closed by this client's own wish. */
  asked = false
  readonly #socket: WebSocket
  readonly #watch: NodeJS.Timeout
  #heardAt = performance.now()

  constructor(door: Door, handlers: RawHandlers) {
    this.door = door
    this.#socket = new WebSocket(door.url, ['roomful.v1.json'], {
      handshakeTimeout: OPEN_WITHIN_MS,
      perMessageDeflate: false,
    })
    this.#socket.on('open', () => {
      this.#heardAt = performance.now()
      handlers.open(this)
    })
    this.#socket.on('message', (data: Buffer) => {
      this.#heardAt = performance.now()
      handlers.message(this, JSON.parse(data.toString()) as ServerMessage)
    })
    this.#socket.on('error', () => {})
    this.#socket.on('close', (code, reason) => {
      clearInterval(this.#watch)
      handlers.closed(this, code, reason.toString())
    })
    this.#watch = setInterval(() => {
      if (performance.now() - this.#heardAt > SILENCE_MS) this.#socket.terminate()
      else this.send({ t: 'ping', at: Math.round(this.#heardAt) })
    }, SILENCE_MS / 3)
  }

  get open(): boolean {
    return this.#socket.readyState === WebSocket.OPEN
  }

  send(message: ClientMessage): void {
    if (this.open) this.#socket.send(JSON.stringify(message))
  }

  /** As a network breaks: without a word. */
  terminate(): void {
    this.#socket.terminate()
  }

  close(code: number): void {
    this.asked = true
    this.#socket.close(code)
    // A peer that hangs never answers.
    setTimeout(() => this.#socket.terminate(), 500).unref()
  }
}
