import type { Clock } from '../shared/clock.ts'
import type { DecodedMessage } from '../shared/protocol/codec.ts'
import { ProtocolError } from '../shared/protocol/error-codes.ts'
import type { ClientMessage } from '../shared/protocol/messages.ts'
import { MsgpackClientCodec } from '../shared/protocol/msgpack-client-codec.ts'

export type Welcome = Extract<DecodedMessage, { t: 'welcome' }>

/** An encoded message. */
export type Encoded = Uint8Array<ArrayBuffer>

/** The part of the class WebSocket that the SDK uses. The class of the package `ws` also has it. */
export interface WebSocketLike {
  /** The SDK sets `arraybuffer`. */
  binaryType: string
  /** Handler that the SDK assigns. */
  onopen: unknown
  /** Handler that the SDK assigns, called with `{ data }`. */
  onmessage: unknown
  /** Handler that the SDK assigns, called with `{ code, reason }`. */
  onclose: unknown
  /** Handler that the SDK assigns. */
  onerror: unknown
  /** Sends one binary message. */
  send(data: Uint8Array<ArrayBuffer>): void
  /** Closes the socket. */
  close(): void
}

/** Constructor of sockets, such as `WebSocket`. */
export type WebSocketConstructor = new (url: string, protocols: string[]) => WebSocketLike

/** The `WebSocket` of the platform, or of the package `ws` where the platform has none (Node before 22). */
export async function platformWebSocket(): Promise<WebSocketConstructor> {
  if (typeof WebSocket === 'function') return WebSocket
  // Not a literal, so that bundlers for browsers do not look for it.
  const name = 'ws'
  const found: { WebSocket: WebSocketConstructor } = await import(
    /* @vite-ignore */ /* webpackIgnore: true */ name
  )
  return found.WebSocket
}

/** Heartbeats without a message after which the connection counts as lost. */
const SILENT_HEARTBEATS = 2

/** Callbacks of a connection. After `closed`, `silent` or `broken`, none is called. */
interface ConnectionHandlers {
  opened(): void
  received(message: DecodedMessage): void
  /** The socket has closed, with the server's code and reason. After a network failure: with 1006, and the platform's reason if it has one. */
  closed(code: number, reason: string): void
  /** The server was silent for too long, although the socket is open. */
  silent(): void
  /** A received frame is invalid. */
  broken(cause: unknown): void
}

/** One socket: sends and receives frames, and detects a silent server. */
export class ClientConnection {
  /** Codec of this connection. The server announces the keys of states for each connection. */
  readonly #codec = new MsgpackClientCodec()
  readonly #socket: WebSocketLike
  readonly #clock: Clock
  readonly #handlers: ConnectionHandlers
  #heardAt = 0
  #cancelPing = () => {}
  #cancelWatch = () => {}

  /** Opens a socket to `url`. Throws the error of the WebSocket constructor for an invalid URL. */
  constructor(Socket: WebSocketConstructor, url: string, clock: Clock, handlers: ConnectionHandlers) {
    this.#clock = clock
    this.#handlers = handlers
    this.#socket = new Socket(url, [this.#codec.subprotocol])
    this.#socket.binaryType = 'arraybuffer'
    this.#socket.onopen = () => handlers.opened()
    this.#socket.onmessage = (event: { data: unknown }) => this.#receive(event.data)
    this.#socket.onclose = (event: { code: number; reason: string }) => {
      this.#letGo()
      handlers.closed(event.code, event.reason || broken)
    }
    // A close event follows every error. Only Node has a reason in the error, such as `certificate has expired`.
    let broken = ''
    this.#socket.onerror = ({ message, error }: { message?: string; error?: Error }) => {
      const { cause } = error ?? {}
      broken = cause instanceof Error ? cause.message : (message ?? '')
    }
  }

  send(message: ClientMessage): void {
    this.write(this.#codec.encode(message) as Encoded)
  }

  /** Sends an encoded message. */
  write(message: Encoded): void {
    this.#socket.send(message)
  }

  /** The server has accepted the client. Pings immediately and then at each heartbeat, and starts the silence timeout. */
  start({ heartbeat_seconds: seconds }: Welcome): void {
    const periodMs = seconds * 1000
    this.#heardAt = this.#clock.monotonic()
    this.#ping(periodMs)
    this.#watch(periodMs * SILENT_HEARTBEATS)
  }

  /** Stops the pings and the silence timeout. */
  rest(): void {
    this.#cancelPing()
    this.#cancelWatch()
  }

  /** Closes the socket. No handler is called after it. */
  close(): void {
    this.#letGo()
    this.#socket.close()
  }

  #receive(data: unknown): void {
    this.#heardAt = this.#clock.monotonic()
    try {
      if (!(data instanceof ArrayBuffer)) throw new ProtocolError('a text frame: use MessagePack')
      // Reads the rest of a complete state, which the codec decodes only now.
      this.#handlers.received(this.#codec.decode(new Uint8Array(data)))
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error
      this.#letGo()
      this.#handlers.broken(error)
    }
  }

  #ping(periodMs: number): void {
    this.send({ t: 'ping', at: this.#clock.monotonic() })
    this.#cancelPing = this.#clock.schedule(periodMs, () => this.#ping(periodMs))
  }

  #watch(silenceMs: number): void {
    const left = this.#heardAt + silenceMs - this.#clock.monotonic()
    if (left > 0) {
      this.#cancelWatch = this.#clock.schedule(left, () => this.#watch(silenceMs))
      return
    }
    this.#letGo()
    this.#handlers.silent()
  }

  #letGo(): void {
    this.rest()
    this.#socket.onopen = null
    this.#socket.onmessage = null
    this.#socket.onclose = null
  }
}
