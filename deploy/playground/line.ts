import type { WebSocketConstructor, WebSocketLike } from '../../client/index.ts'
import type { DecodedMessage } from '../../shared/protocol/codec.ts'
import { MsgpackClientCodec } from '../../shared/protocol/msgpack-client-codec.ts'

/** A code of the page's own: not the 1000 of a goodbye, so that the session waits to be resumed. */
const CUT = 3001

/** One player's line to the server, which can be slow, or cut, and is listened to. */
export class Line {
  /** How much later everything arrives, each way; in milliseconds. */
  delayMs = 0
  /** What to connect with. */
  readonly WebSocket: WebSocketConstructor
  readonly #open = new Set<WebSocket>()
  #cutUntil = 0

  /** `heard` gets each message as it arrives. */
  constructor(heard: (message: DecodedMessage) => void) {
    // One for all sockets of the player: a resumed session goes on with the keys that were announced.
    const codec = new MsgpackClientCodec()
    const line = this
    this.WebSocket = class implements WebSocketLike {
      binaryType = ''
      onopen: unknown = null
      onmessage: unknown = null
      onclose: unknown = null
      onerror: unknown = null
      readonly #socket: WebSocket
      readonly #out = line.#queue()

      constructor(url: string, protocols: string[]) {
        const socket = new WebSocket(url, protocols)
        this.#socket = socket
        const inwards = line.#queue()
        const call = (handler: unknown, event: Event): void => {
          if (typeof handler === 'function') handler(event)
        }
        socket.binaryType = 'arraybuffer'
        socket.onopen = (event) => inwards(() => call(this.onopen, event))
        socket.onmessage = (event: MessageEvent<ArrayBuffer>) =>
          inwards(() => {
            heard(codec.decode(new Uint8Array(event.data)))
            call(this.onmessage, event)
          })
        socket.onclose = (event) => {
          line.#open.delete(socket)
          inwards(() => call(this.onclose, event))
        }
        line.#open.add(socket)
        if (performance.now() < line.#cutUntil) socket.close()
      }

      send(data: Uint8Array<ArrayBuffer>): void {
        this.#out(() => this.#socket.readyState === WebSocket.OPEN && this.#socket.send(data))
      }

      close(code?: number): void {
        this.#out(() => this.#socket.close(code))
      }
    }
  }

  /** Breaks it, as a lost network would, and lets nothing through for `ms`. */
  cut(ms: number): void {
    this.#cutUntil = performance.now() + ms
    for (const socket of this.#open) socket.close(CUT, 'cut in the playground')
  }

  /** Does one thing after the other, each as late as the line is slow, in order also when that changes. */
  #queue(): (work: () => void) => void {
    let free = 0
    return (work) => {
      const now = performance.now()
      if (this.delayMs === 0 && now >= free) return work()
      free = Math.max(free, now + this.delayMs)
      setTimeout(work, free - now)
    }
  }
}
