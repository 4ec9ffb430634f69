import { connect, type Socket } from 'node:net'
import { type ClientOptions, WebSocket } from 'ws'

/** Websocket opcodes (RFC 6455, section 5.2). */
export const OPCODE = { text: 1, binary: 2, ping: 9, pong: 10 } as const

/** A message of the server, as the JSON subprotocol has it. */
type Told = { readonly t: string } & Readonly<Record<string, unknown>>

/** How long the server may take to answer what an honest client would wait for. */
const PATIENCE_MS = 10_000

/**
 * A websocket client in the JSON subprotocol that can also send what no library would: floods of control frames, and broken frames. It keeps
 * none of the server's messages.
 */
export class RawClient {
  readonly ws: WebSocket
  /** Resolves when the connection has ended; code 1006 without a close frame. Never rejects. */
  readonly closed: Promise<{ readonly code: number; readonly reason: string }>
  /** The close code; 1006: the connection ended without a close frame. Undefined: it is open. */
  ended: number | undefined
  /** Called with each message of the server. */
  onMessage: (message: Told) => void = () => {}
  readonly #socket: Socket
  readonly #waiting = new Set<() => void>()

  protected constructor({ ws, socket }: Upgraded) {
    this.ws = ws
    this.#socket = socket
    const look = (): void => {
      for (const look of [...this.#waiting]) look()
    }
    ws.on('message', (data, isBinary) => {
      if (!isBinary) this.onMessage(JSON.parse(String(data)) as Told)
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

  /** Connects and upgrades. Rejects where the server refuses. */
  static async open(
    url: string,
    protocols: string | string[] = 'roomful.v1.json',
    options: ClientOptions = {},
  ): Promise<RawClient> {
    return new RawClient(await upgraded(url, protocols, options))
  }

  /** A TCP connection to the address of a websocket; nothing is sent. */
  static dial(url: string): Promise<Socket> {
    const { hostname, port } = new URL(url)
    const socket = connect({ host: hostname, port: Number(port), noDelay: true })
    return new Promise((resolve, reject) => {
      // Later, what ends the connection shows as its close.
      socket.on('error', reject)
      socket.once('connect', () => resolve(socket))
    })
  }

  /** How many bytes the server has sent. */
  get bytes(): number {
    return this.#socket.bytesRead
  }

  /** Whether the kernel takes more at once. */
  get flowing(): boolean {
    return !this.#socket.writableNeedDrain
  }

  send(message: object): void {
    this.frame(OPCODE.text, Buffer.from(JSON.stringify(message)))
  }

  /** Sends one frame as it is. The mask is zero, which leaves the payload readable and is as valid as any. */
  frame(opcode: number, payload: Uint8Array = Buffer.alloc(0)): void {
    const long = payload.length > 125
    const header = Buffer.alloc(long ? 8 : 6)
    header[0] = 0x80 | opcode
    header[1] = 0x80 | (long ? 126 : payload.length)
    if (long) header.writeUInt16BE(payload.length, 2)
    if (this.#socket.writable) this.#socket.write(Buffer.concat([header, payload]))
  }

  /** Resolves when `holds` does, looking after everything the server sends; false: not in time, or the connection has ended. */
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

  /** Sends a message and resolves with the first one that `answers` it; undefined: none came. What else comes meanwhile is dropped. */
  async ask(message: object, answers: (told: Told) => boolean): Promise<Told | undefined> {
    let answer: Told | undefined
    this.onMessage = (told) => {
      if (answers(told)) answer ??= told
    }
    this.send(message)
    await this.until(() => answer !== undefined)
    this.onMessage = () => {}
    return answer
  }

  /** Ends the connection as a dead network does. */
  cut(): void {
    this.#socket.destroy()
  }
}

interface Upgraded {
  readonly ws: WebSocket
  readonly socket: Socket
}

/** Opens a websocket. Rejects where the server refuses; a later error of the connection shows as its close only. */
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

/** Sends `text` to the server at `url`; resolves with all that it answers until it ends the connection. */
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

/** The problem document in what `rawHttp` has given. */
export const problemIn = (answer: string) => JSON.parse(answer.slice(answer.indexOf('\r\n\r\n')))
