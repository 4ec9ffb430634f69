import type { WebSocketLike } from '../../../client/connection.ts'

/** What a socket reports to the server at its other end. */
interface FarEnd {
  /** The client has made a socket. */
  dialled(socket: FakeSocket): void
  /** The client has sent these bytes. */
  sent(socket: FakeSocket, payload: Uint8Array): void
}

/** A WebSocket without a network: what one end does, the other end sees at once. */
export class FakeSocket implements WebSocketLike {
  binaryType = 'blob'
  onopen: unknown = null
  onmessage: unknown = null
  onclose: unknown = null
  onerror: unknown = null
  readonly url: string
  readonly protocols: readonly string[]
  /** How the client closed it: the code, or `'no code'`; undefined while it has not. */
  closedWith: number | 'no code' | undefined
  readonly #farEnd: FarEnd
  #open = false
  #over = false

  constructor(farEnd: FarEnd, url: string, protocols: readonly string[]) {
    this.#farEnd = farEnd
    this.url = url
    this.protocols = protocols
    farEnd.dialled(this)
  }

  /** Whether frames can pass. */
  get open(): boolean {
    return this.#open
  }

  send(data: Uint8Array<ArrayBuffer>): void {
    if (!this.#open && !this.#over) throw new Error('InvalidStateError: the socket is still connecting')
    if (this.#open) this.#farEnd.sent(this, data.slice())
  }

  close(code?: number): void {
    if (this.#over) return
    this.closedWith = code ?? 'no code'
    this.end(code ?? 1005, '')
  }

  /** The server accepts. */
  accept(): void {
    if (this.#over) return
    this.#open = true
    call(this.onopen, {})
  }

  /** The server sends a frame. */
  deliver(payload: Uint8Array | string): void {
    if (!this.#open) return
    const data = typeof payload === 'string' ? payload : payload.slice().buffer
    call(this.onmessage, { data })
  }

  /** The connection ends at the server's side, or breaks (1006). */
  end(code: number, reason = ''): void {
    if (this.#over) return
    this.#open = false
    this.#over = true
    if (code === 1006) call(this.onerror, {})
    call(this.onclose, { code, reason })
  }
}

function call(handler: unknown, event: object): void {
  if (typeof handler === 'function') handler(event)
}
