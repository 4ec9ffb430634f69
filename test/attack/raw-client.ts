import { connect, type Socket } from 'node:net'

/** Websocket opcodes (RFC 6455, section 5.2). */
export const OPCODE = { text: 1, binary: 2, close: 8, ping: 9, pong: 10 } as const

/** A message of the server, as the JSON subprotocol has it. */
export type Told = { readonly t: string } & Readonly<Record<string, unknown>>

/** How long the server may take to answer what an honest client would wait for. */
const PATIENCE_MS = 10_000

/**
 * One websocket spoken by hand, so that it can send what no library would: control frames in floods, broken frames, half an upgrade.
 * Speaks the JSON subprotocol where it is given messages. Counts what the server costs it and keeps nothing of it.
 */
export class RawClient {
  /** The close code; 1006: the connection ended without a close frame. Undefined: it is open. */
  ended: number | undefined
  /** What the server has sent: websocket frames, and bytes with their headers. */
  frames = 0
  bytes = 0
  /** Called with each message of the server. */
  onMessage: (message: Told) => void = () => {}
  readonly #socket: Socket
  readonly #waiting = new Set<() => void>()
  #unread: Buffer[] = []
  #unreadBytes = 0
  /** How many bytes the next frame takes, as far as is known. */
  #wanted = 2

  private constructor(socket: Socket) {
    this.#socket = socket
  }

  /** Connects and upgrades. Rejects with the status line where the server refuses. */
  static async open(url: string, subprotocol = 'roomful.v1.json'): Promise<RawClient> {
    const socket = await RawClient.dial(url)
    const client = new RawClient(socket)
    await new Promise<void>((resolve, reject) => {
      let head = Buffer.alloc(0)
      const read = (chunk: Buffer): void => {
        head = Buffer.concat([head, chunk])
        const end = head.indexOf('\r\n\r\n')
        if (end < 0) return
        socket.off('data', read)
        const status = head.toString('latin1', 0, head.indexOf('\r\n'))
        if (!status.includes(' 101 ')) {
          socket.destroy()
          reject(new Error(`the upgrade was refused: ${status}`))
          return
        }
        socket.on('data', (more: Buffer) => client.#read(more))
        client.#read(head.subarray(end + 4))
        resolve()
      }
      socket.on('data', read)
      socket.on('close', () => {
        reject(new Error('the connection ended before the upgrade'))
        client.#end(1006)
      })
      const { host } = new URL(url)
      socket.write(
        `GET / HTTP/1.1\r\nHost: ${host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n` +
          `Sec-WebSocket-Key: cm9vbWZ1bCBhdHRhY2sgIQ==\r\nSec-WebSocket-Protocol: ${subprotocol}\r\n\r\n`,
      )
    })
    return client
  }

  /** A TCP connection to the address of a websocket; nothing is sent. */
  static dial(url: string): Promise<Socket> {
    const { hostname, port } = new URL(url)
    const socket = connect({ host: hostname, port: Number(port), noDelay: true })
    return new Promise((resolve, reject) => {
      socket.once('error', reject)
      socket.once('connect', () => {
        socket.off('error', reject)
        // What ends the connection shows as its close.
        socket.on('error', () => {})
        resolve(socket)
      })
    })
  }

  /** Whether the kernel takes more at once. */
  get flowing(): boolean {
    return !this.#socket.writableNeedDrain
  }

  send(message: object): void {
    this.frame(OPCODE.text, Buffer.from(JSON.stringify(message)))
  }

  /** Sends one frame as it is. The mask is zero, which leaves the payload readable and is as valid as any. */
  frame(opcode: number, payload: Uint8Array = Buffer.alloc(0), fin = true): void {
    const long = payload.length > 125
    const header = Buffer.alloc(long ? 8 : 6)
    header[0] = (fin ? 0x80 : 0) | opcode
    header[1] = 0x80 | (long ? 126 : payload.length)
    if (long) header.writeUInt16BE(payload.length, 2)
    this.raw(Buffer.concat([header, payload]))
  }

  /** Sends bytes. */
  raw(bytes: Uint8Array): void {
    if (this.ended === undefined) this.#socket.write(bytes)
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

  /** A frame may come in thousands of pieces; they are put together once, when it is whole. */
  #read(chunk: Buffer): void {
    this.bytes += chunk.length
    this.#unread.push(chunk)
    this.#unreadBytes += chunk.length
    if (this.#unreadBytes >= this.#wanted) {
      let rest = this.#unread.length > 1 ? Buffer.concat(this.#unread) : chunk
      for (this.#wanted = wholeLength(rest); rest.length >= this.#wanted; this.#wanted = wholeLength(rest)) {
        const frame = rest.subarray(0, this.#wanted)
        rest = rest.subarray(this.#wanted)
        this.#frame(frame[0]! & 0x0f, frame.subarray(headerLength(frame)))
      }
      this.#unread = [rest]
      this.#unreadBytes = rest.length
    }
    for (const look of [...this.#waiting]) look()
  }

  #frame(opcode: number, payload: Buffer): void {
    this.frames += 1
    if (opcode === OPCODE.text) this.onMessage(JSON.parse(payload.toString('utf8')) as Told)
    else if (opcode === OPCODE.ping) this.frame(OPCODE.pong, payload)
    else if (opcode === OPCODE.close) this.#end(payload.length >= 2 ? payload.readUInt16BE(0) : 1005)
  }

  #end(code: number): void {
    this.ended ??= code
    this.#socket.destroy()
    for (const look of [...this.#waiting]) look()
  }
}

function headerLength(frame: Buffer): number {
  const short = frame[1]! & 0x7f
  return short < 126 ? 2 : short === 126 ? 4 : 10
}

/** How many bytes the frame that begins here takes; of one that has not come so far, how many are needed to know. */
function wholeLength(bytes: Buffer): number {
  if (bytes.length < 2) return 2
  const header = headerLength(bytes)
  if (bytes.length < header) return header
  const short = bytes[1]! & 0x7f
  return (
    header + (header === 2 ? short : header === 4 ? bytes.readUInt16BE(2) : Number(bytes.readBigUInt64BE(2)))
  )
}
