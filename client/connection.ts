import type { Clock } from '../shared/clock.ts'
import type { ClientCodec, DecodedMessage } from '../shared/protocol/codec.ts'
import type { ClientMessage } from '../shared/protocol/messages.ts'

/** The part of the browser's WebSocket that the SDK uses; that of the package `ws` has it too. */
export interface WebSocketLike {
  /** The SDK sets `arraybuffer`. */
  binaryType: string
  /** Handlers are assigned; what they may have been before does not matter. */
  onopen: unknown
  /** As `onopen`; called with `{ data }`. */
  onmessage: unknown
  /** As `onopen`; called with `{ code, reason }`. */
  onclose: unknown
  /** As `onopen`. */
  onerror: unknown
  /** Sends one binary message. */
  send(data: Uint8Array<ArrayBuffer>): void
  /** Closes the socket, with a code of the protocol. */
  close(code?: number, reason?: string): void
}

/** The class that sockets are made by, such as `WebSocket`. */
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

/** After so many heartbeats without a word the server is taken for lost. */
const SILENT_HEARTBEATS = 2

/** What a connection tells its session. After `closed`, `silent` or `broken` it says nothing more. */
export interface ConnectionHandlers {
  opened(): void
  received(message: DecodedMessage): void
  /** The socket has closed, with the server's code and reason; or with 1006 when it broke, and the platform's reason where it tells one. */
  closed(code: number, reason: string): void
  /** Nothing has come for too long, though the socket seems open. */
  silent(): void
  /** A frame came that cannot be read. */
  broken(cause: unknown): void
}

/** One socket: frames in, frames out, and whether anyone is still there. */
export class ClientConnection {
  /** What its frames are read with from now on. */
  codec: ClientCodec
  readonly #socket: WebSocketLike
  readonly #clock: Clock
  readonly #handlers: ConnectionHandlers
  #heardAt = 0
  #cancelPing = () => {}
  #cancelWatch = () => {}

  /** Opens a socket to `url`. Throws what the WebSocket constructor throws, for a bad URL. */
  constructor(
    Socket: WebSocketConstructor,
    url: string,
    codec: ClientCodec,
    clock: Clock,
    handlers: ConnectionHandlers,
  ) {
    this.codec = codec
    this.#clock = clock
    this.#handlers = handlers
    this.#socket = new Socket(url, [codec.subprotocol])
    this.#socket.binaryType = 'arraybuffer'
    this.#socket.onopen = () => handlers.opened()
    this.#socket.onmessage = (event: { data: unknown }) => this.#receive(event.data)
    this.#socket.onclose = (event: { code: number; reason: string }) => {
      this.#letGo()
      handlers.closed(event.code, event.reason || broken)
    }
    // A close follows every error. Only Node says more in the error, such as `certificate has expired`.
    let broken = ''
    this.#socket.onerror = ({ message, error }: { message?: string; error?: Error }) => {
      const { cause } = error ?? {}
      broken = cause instanceof Error ? cause.message : (message ?? '')
    }
  }

  write(payload: Uint8Array<ArrayBuffer>): void {
    this.#socket.send(payload)
  }

  send(message: ClientMessage): void {
    this.write(this.codec.encode(message) as Uint8Array<ArrayBuffer>)
  }

  /** Pings at once and then every `seconds`, and watches for silence. */
  keepAlive(seconds: number): void {
    const periodMs = seconds * 1000
    this.#heardAt = this.#clock.monotonic()
    this.#ping(periodMs)
    this.#watch(periodMs * SILENT_HEARTBEATS)
  }

  /** Pings no more, and does not mind silence. */
  rest(): void {
    this.#cancelPing()
    this.#cancelWatch()
  }

  /** Closes the socket, without a code unless one is given; no handler is called any more. */
  close(code?: number): void {
    this.#letGo()
    this.#socket.close(code)
  }

  #receive(data: unknown): void {
    this.#heardAt = this.#clock.monotonic()
    let message: DecodedMessage
    try {
      if (!(data instanceof ArrayBuffer))
        throw new TypeError('the server sent a text frame; MessagePack is binary')
      message = this.codec.decode(new Uint8Array(data))
    } catch (error) {
      this.#letGo()
      this.#handlers.broken(error)
      return
    }
    this.#handlers.received(message)
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
