import { connect, type Socket } from 'node:net'
import { type ClientOptions, WebSocket } from 'ws'

/** Websocket opcodes (RFC 6455, section 5.2). */
export const OPCODE = { text: 1, binary: 2, ping: 9, pong: 10 } as const

/** A message of the server in the JSON subprotocol. */
type ReceivedMessage = { readonly t: string } & Readonly<Record<string, unknown>>

/** Time limit of an answer. */
export const PATIENCE_MS = 60_000

/**
 * A websocket client in the JSON subprotocol that can also send floods of control frames and broken frames. It does not store the server's
 * messages.
 */
export class RawClient {
  readonly ws: WebSocket
  /** Resolves when the connection has ended. Without a close frame, the code is 1006. Does not reject. */
  readonly closed: Promise<{ readonly code: number; readonly reason: string }>
  /** Close code. 1006: no close frame. Undefined: the connection is open. */
  ended: number | undefined
  /** Called with each message of the server. */
  onMessage: (message: ReceivedMessage) => void = () => {}
  readonly #socket: Socket
  readonly #waiting = new Set<() => void>()

  protected constructor({ ws, socket }: Upgraded) {
    this.ws = ws
    this.#socket = socket
    const look = (): void => {
      for (const look of [...this.#waiting]) look()
    }
    ws.on('message', (data, isBinary) => {
      if (!isBinary) this.onMessage(JSON.parse(String(data)) as ReceivedMessage)
      look()
    })
    this.closed = new Promise((resolve) => {
      ws.once('close', (code, reason) => {
        this.ended = code
        look()
        resolve({ code, reason: String(reason) })
      })
    })
  }

  /** Connects and upgrades. Rejects if the server refuses. */
  static async open(
    url: string,
    protocols: string | string[] = 'roomful.v1.json',
    options: ClientOptions = {},
  ): Promise<RawClient> {
    return new RawClient(await upgraded(url, protocols, options))
  }

  /** Opens a TCP connection to the address of a websocket. Sends nothing. */
  static dial(url: string): Promise<Socket> {
    const { hostname, port } = new URL(url)
    const socket = connect({ host: hostname, port: Number(port), noDelay: true })
    return new Promise((resolve, reject) => {
      // After `connect`, an error only closes the connection.
      socket.on('error', reject)
      socket.once('connect', () => resolve(socket))
    })
  }

  /** Number of bytes received. */
  get bytes(): number {
    return this.#socket.bytesRead
  }

  /** True while the socket accepts data without buffering it. */
  get flowing(): boolean {
    return !this.#socket.writableNeedDrain
  }

  send(message: object): void {
    this.frame(OPCODE.text, Buffer.from(JSON.stringify(message)))
  }

  /** Sends one frame. Its mask is zero, which is valid and leaves the payload readable. */
  frame(opcode: number, payload: Uint8Array = Buffer.alloc(0)): void {
    const long = payload.length > 125
    const header = Buffer.alloc(long ? 8 : 6)
    header[0] = 0x80 | opcode
    header[1] = 0x80 | (long ? 126 : payload.length)
    if (long) header.writeUInt16BE(payload.length, 2)
    if (this.#socket.writable) this.#socket.write(Buffer.concat([header, payload]))
  }

  /** Resolves with true when `holds` returns true. It is called after each message. False: the time is over, or the connection has ended. */
  until(holds: () => boolean, withinMs = PATIENCE_MS): Promise<boolean> {
    return new Promise((resolve) => {
      const look = (): void => {
        if (holds()) done(true)
        else if (this.ended !== undefined) done(false)
      }
      const timer = setTimeout(() => done(holds()), withinMs)
      const done = (result: boolean): void => {
        clearTimeout(timer)
        this.#waiting.delete(look)
        resolve(result)
      }
      this.#waiting.add(look)
      look()
    })
  }

  /** Sends a message. Resolves with the first message for which `answers` returns true, and drops all others. Undefined: none arrived. */
  async ask(
    message: object,
    answers: (received: ReceivedMessage) => boolean,
  ): Promise<ReceivedMessage | undefined> {
    let answer: ReceivedMessage | undefined
    this.onMessage = (received) => {
      if (answers(received)) answer ??= received
    }
    this.send(message)
    await this.until(() => answer !== undefined)
    this.onMessage = () => {}
    return answer
  }

  /** Breaks the connection without a close frame. */
  cut(): void {
    this.#socket.destroy()
  }
}

interface Upgraded {
  readonly ws: WebSocket
  readonly socket: Socket
}

/** Opens a websocket. Rejects if the server refuses. A later error only closes the connection. */
export function upgraded(
  url: string,
  protocols: string | string[],
  options: ClientOptions,
): Promise<Upgraded> {
  const ws = new WebSocket(url, protocols, { perMessageDeflate: false, ...options })
  return new Promise((resolve, reject) => {
    ws.once('upgrade', ({ socket }) => ws.once('open', () => resolve({ ws, socket })))
    ws.on('error', reject)
  })
}

/** Sends `text` to the server at `url`. Resolves with the received text when the server ends the connection. */
export function rawHttp(url: string, text: string): Promise<string> {
  const { hostname, port } = new URL(url)
  return new Promise((resolve, reject) => {
    const socket = connect(Number(port), hostname, () => socket.write(text))
    let received = ''
    socket.on('data', (chunk) => {
      received += chunk.toString()
    })
    socket.on('end', () => socket.end())
    socket.on('close', () => resolve(received))
    socket.on('error', reject)
  })
}

/** Returns the problem document in a response of `rawHttp`. */
export const problemIn = (answer: string) => JSON.parse(answer.slice(answer.indexOf('\r\n\r\n')))
