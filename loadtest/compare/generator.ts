import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { connect, type Socket } from 'node:net'
import { performance } from 'node:perf_hooks'
import { setTimeout as sleep } from 'node:timers/promises'
import type { Credentials } from '../clients/client.ts'
import type { Listening } from './servers/served.ts'

/**
 * The load generator: websockets on bare TCP sockets. What it sends was framed and masked before; of what arrives it reads the headers of
 * frames only, and in the clients whose round trip is measured it looks for the bytes of one number.
 */

const OPCODES = { text: 1, binary: 2, close: 8, ping: 9, pong: 10 } as const
/** How many clients connect at once; those that are told where to go wait for that most of the time. */
const CONNECTING = { known: 128, told: 500 }
const CONNECT_MS = 15_000
/** Moves of a room that are ready, sent by its members in turn. */
const READY = 64
/** Of so many clients, one measures round trips. */
const SAMPLED = 20
/** What measured clients send as x: integers, which all encodings keep apart from most coordinates, from one to the other. */
const MARKS = [256, 999] as const

/** What a client needs to come in. */
export interface Door extends Listening {
  /** For roomful: a token each. */
  readonly credentials: readonly Credentials[]
  /** For roomful: its clients go where they are told. */
  readonly direct: boolean
}

export interface Dialect {
  /** Which door leads to a room, where its client knows that; absent or undefined: it does not matter. */
  door?(doors: readonly Door[], room: number): Door | undefined
  /** Connects the client of this number and joins a room; resolves when it has the room's state. */
  join(door: Door, client: number, room: string): Promise<Joined>
  /** The payload of a move to somewhere, to a given x where there is one; with `ref` one that is acknowledged, where the server knows such. */
  move(room: string, x?: number, ref?: number): Uint8Array | string
  /** An input that changes nothing. */
  nudge(room: string): Uint8Array | string
  /** How updates carry an x from 256 to 999. */
  mark(x: number): Buffer
  isUpdate(bytes: Buffer, at: number): boolean
  /** Answers what the server wants answered, such as a ping of its own. */
  answer(socket: RawSocket, bytes: Buffer, at: number): void
  /** The state of a client that has received these messages, all there were. */
  state(messages: readonly Buffer[]): unknown
}

/** A client that has the state of its room. */
export interface Joined {
  readonly socket: RawSocket
  /** What it has received so far. */
  readonly messages: Buffer[]
  /** Where it is when it has gone elsewhere from where it came in. */
  readonly port?: number
}

/** A message of a client as a frame (RFC 6455, 5.2). */
function maskedFrame(payload: Uint8Array | string, opcode?: number): Buffer {
  const bytes = Buffer.from(payload)
  const kind = opcode ?? (typeof payload === 'string' ? OPCODES.text : OPCODES.binary)
  const size = Buffer.alloc(bytes.length < 126 ? 2 : 4)
  size[0] = 0x80 | kind
  size[1] = 0x80 | (bytes.length < 126 ? bytes.length : 126)
  if (bytes.length > 65_535) throw new Error(`a frame of ${bytes.length} bytes; clients send at most 65,535`)
  if (size.length === 4) size.writeUInt16BE(bytes.length, 2)
  const mask = randomBytes(4)
  for (let i = 0; i < bytes.length; i++) bytes[i]! ^= mask[i % 4]!
  return Buffer.concat([size, mask, bytes])
}

/** A websocket that answers pings, and hands over the place of each message in what arrived. */
export class RawSocket {
  /** Bytes from `from` to `to` are the payload; they are of use during the call only. */
  onMessage: (bytes: Buffer, from: number, to: number) => void = () => {}
  onClose: (why: string) => void = () => {}
  readonly #socket: Socket
  #rest: Buffer | undefined

  private constructor(socket: Socket) {
    this.#socket = socket
    socket.on('data', (chunk) => this.#read(chunk))
    socket.on('error', () => undefined)
    socket.on('close', () => this.onClose('the connection was lost'))
  }

  /** Resolves with a websocket that reads nothing yet: `stall(false)` begins. */
  static async open(port: number, path: string, subprotocol?: string): Promise<RawSocket> {
    const socket = connect({ port, host: '127.0.0.1', noDelay: true })
    const extra = subprotocol === undefined ? '' : `Sec-WebSocket-Protocol: ${subprotocol}\r\n`
    socket.write(
      `GET ${path} HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ${randomBytes(16).toString('base64')}\r\n${extra}\r\n`,
    )
    let head = Buffer.alloc(0)
    const timer = setTimeout(() => socket.destroy(new Error('no answer to the upgrade')), CONNECT_MS)
    try {
      while (!head.includes('\r\n\r\n')) {
        const [chunk] = (await Promise.race([
          once(socket, 'data'),
          once(socket, 'close').then(() => Promise.reject(new Error('closed during the upgrade'))),
        ])) as [Buffer]
        socket.pause()
        head = Buffer.concat([head, chunk])
        if (!head.includes('\r\n\r\n')) socket.resume()
      }
    } finally {
      clearTimeout(timer)
    }
    const end = head.indexOf('\r\n\r\n') + 4
    const status = head.subarray(9, 12).toString()
    if (status !== '101') {
      socket.destroy()
      throw new Error(`the upgrade was answered with HTTP ${status}`)
    }
    socket.removeAllListeners()
    const opened = new RawSocket(socket)
    if (end < head.length) opened.#rest = head.subarray(end)
    return opened
  }

  /** Of frames that are whole in `chunk` nothing is copied. */
  #read(chunk: Buffer): void {
    const bytes = this.#rest ? Buffer.concat([this.#rest, chunk]) : chunk
    this.#rest = undefined
    let at = 0
    while (at + 2 <= bytes.length) {
      const short = bytes[at + 1]! & 0x7f
      const from = at + (short < 126 ? 2 : short === 126 ? 4 : 10)
      if (from > bytes.length) break
      const length =
        short < 126
          ? short
          : short === 126
            ? bytes.readUInt16BE(at + 2)
            : Number(bytes.readBigUInt64BE(at + 2))
      if (from + length > bytes.length) break
      const opcode = bytes[at]! & 0x0f
      at = from + length
      if (opcode === OPCODES.ping) this.write(maskedFrame(bytes.subarray(from, at), OPCODES.pong))
      else if (opcode === OPCODES.close) this.onClose(closing(bytes.subarray(from, at)))
      else this.onMessage(bytes, from, at)
    }
    if (at < bytes.length) this.#rest = bytes.subarray(at)
  }

  /** Writes a ready frame. */
  write(frame: Uint8Array): void {
    this.#socket.write(frame)
  }

  send(payload: Uint8Array | string): void {
    this.#socket.write(maskedFrame(payload))
  }

  /** Stops reading, or goes on. */
  stall(stalled: boolean): void {
    if (stalled) {
      this.#socket.pause()
      return
    }
    this.#read(Buffer.alloc(0))
    this.#socket.resume()
  }

  destroy(): void {
    this.onClose = () => {}
    this.#socket.destroy()
  }
}

const closing = (payload: Buffer): string =>
  payload.length < 2 ? 'closed' : `closed with ${payload.readUInt16BE(0)} ${payload.subarray(2).toString()}`

/** One client in a room. */
interface Client {
  readonly socket: RawSocket
  readonly room: number
  /** Its number in the room. */
  readonly seat: number
  /** The number of the door it is at. */
  readonly door: number
  readonly recorded: Buffer[] | undefined
  updates: number
  sent: number
  /** Of a client whose round trip is measured: what it sends as x until that has come back, and since when. */
  sample: { x: number; bytes: Buffer; since: number | undefined } | undefined
}

/** What clients received in a window of time. */
export interface Received {
  readonly seconds: number
  readonly updates: number
  /** Updates of the client that got fewest. */
  readonly fewest: number
  /** Payload of all messages. */
  readonly bytes: number
  readonly inputs: number
  /** From an input to the update that has it, milliseconds. */
  readonly roundTrips: readonly number[]
  /** How busy the event loop of the generator was, 0 to 1. */
  readonly busy: number
}

export interface Sending {
  readonly perSecond: number
  /** Inputs that change nothing instead of moves. */
  readonly nudges: boolean
  /** Moves are acknowledged. */
  readonly reliable: boolean
}

const anyOf = <T>(all: readonly T[]): T => all[Math.floor(Math.random() * all.length)]!

/** The clients of one server. */
export class Clients {
  /** Connections that the server ended, with its reasons. */
  readonly lost: string[] = []
  readonly #dialect: Dialect
  readonly #doors: readonly Door[]
  readonly #clients: Client[] = []
  /** Of each room, the frames that were made. */
  readonly #frames = new Map<number, Buffer[]>()
  #bytes = 0
  #inputs = 0
  #roundTrips: number[] = []

  constructor(dialect: Dialect, doors: readonly Door[]) {
    this.#dialect = dialect
    this.#doors = doors
  }

  get count(): number {
    return this.#clients.length
  }

  /**
   * Connects clients until there are `count`, in rooms of `perRoom`; the first `recorded` keep all that they receive. Each comes by any
   * door, but the first of a room by one that has opened as many rooms as the others. Resolves when each has the state of its room.
   */
  async join(count: number, perRoom: number, recorded = 0): Promise<void> {
    const numbers = Array.from({ length: count }, (_, number) => number).slice(this.#clients.length)
    const isFirst = (number: number): boolean => number % perRoom === 0
    const one = async (number: number): Promise<void> => {
      const room = Math.floor(number / perRoom)
      const door = isFirst(number) ? this.#doors[room % this.#doors.length]! : anyOf(this.#doors)
      const first = this.#dialect.door?.(this.#doors, room) ?? door
      const { socket, messages, port = first.port } = await this.#dialect.join(first, number, `r${room}`)
      const client: Client = {
        socket,
        room,
        seat: number % perRoom,
        door: this.#doors.findIndex((other) => other.port === port),
        recorded: number < recorded ? messages : undefined,
        updates: 0,
        sent: 0,
        sample: undefined,
      }
      if (number % SAMPLED === 0)
        client.sample = { x: MARKS[0], bytes: this.#dialect.mark(MARKS[0]), since: undefined }
      socket.onMessage = (bytes, from, to) => this.#received(client, bytes, from, to)
      socket.onClose = (why) => this.lost.push(why)
      this.#clients.push(client)
    }
    const direct = this.#doors.some((door) => door.direct)
    const join = async (waiting: number[]): Promise<void> => {
      const next = async (): Promise<void> => {
        for (let number = waiting.shift(); number !== undefined; number = waiting.shift()) await one(number)
      }
      await Promise.all(Array.from({ length: CONNECTING[direct ? 'told' : 'known'] }, next))
    }
    await join(numbers.filter(isFirst))
    await join(numbers.filter((number) => !isFirst(number)))
    // In this order they send: the members of a room spread over time, so that there is something new in each flush.
    this.#clients.sort((a, b) => a.seat - b.seat || a.room - b.room)
  }

  #received(client: Client, bytes: Buffer, from: number, to: number): void {
    this.#bytes += to - from
    client.recorded?.push(Buffer.from(bytes.subarray(from, to)))
    if (!this.#dialect.isUpdate(bytes, from)) {
      this.#dialect.answer(client.socket, bytes, from)
      return
    }
    client.updates += 1
    const { sample } = client
    if (sample?.since === undefined) return
    const found = bytes.indexOf(sample.bytes, from)
    if (found < 0 || found + sample.bytes.length > to) return
    this.#roundTrips.push(performance.now() - sample.since)
    sample.since = undefined
  }

  /** Plays for so many seconds, each client sending at its rate from absolute deadlines; what was received meanwhile. */
  async play(seconds: number, sending: Sending): Promise<Received> {
    const start = performance.now()
    const load = performance.eventLoopUtilization()
    const before = this.#clients.map(({ updates }) => updates)
    this.#bytes = this.#inputs = 0
    this.#roundTrips = []
    const total = sending.perSecond * this.#clients.length
    for (let now = start; now < start + seconds * 1_000; now = performance.now()) {
      const due = Math.floor(((now - start) * total) / 1_000)
      for (; this.#inputs < due; this.#inputs++)
        this.#input(this.#clients[this.#inputs % this.#clients.length]!, sending)
      await sleep(1)
    }
    const updates = this.#clients.map((client, i) => client.updates - before[i]!)
    return {
      seconds: (performance.now() - start) / 1_000,
      updates: updates.reduce((sum, each) => sum + each, 0),
      fewest: Math.min(...updates),
      bytes: this.#bytes,
      inputs: this.#inputs,
      // What never came back counts with the time it has been waited for.
      roundTrips: [...this.#roundTrips, ...this.#waiting()],
      busy: performance.eventLoopUtilization(load).utilization,
    }
  }

  #waiting(): number[] {
    const now = performance.now()
    return this.#clients.flatMap(({ sample }) => {
      const waited = sample?.since === undefined ? 0 : now - sample.since
      return waited > 200 ? [waited] : []
    })
  }

  #input(client: Client, { nudges, reliable }: Sending): void {
    client.sent += 1
    const ref = reliable ? client.sent : undefined
    const { sample } = client
    if (sample && !nudges) {
      if (sample.since === undefined) {
        sample.x = sample.x < MARKS[1] ? sample.x + 1 : MARKS[0]
        sample.bytes = this.#dialect.mark(sample.x)
        sample.since = performance.now()
      }
      client.socket.send(this.#dialect.move(`r${client.room}`, sample.x, ref))
      return
    }
    const frames = this.#frames.get(client.room) ?? []
    this.#frames.set(client.room, frames)
    const index = reliable ? client.sent : (client.sent + client.room) % READY
    frames[index] ??= maskedFrame(
      nudges ? this.#dialect.nudge(`r${client.room}`) : this.#dialect.move(`r${client.room}`, undefined, ref),
    )
    client.socket.write(frames[index])
  }

  /** The share of clients that are at another door than that of their room's owner, which is in `owned` by its door. */
  elsewhere(owned: readonly (readonly string[])[]): number {
    const others = this.#clients.filter(
      ({ room, door }) => !owned[door]!.some((id) => id.endsWith(`:r${room}`)),
    )
    return others.length / this.#clients.length
  }

  /** The first of those who keep what they receive stop to read, or go on. */
  stall(count: number, stalled: boolean): void {
    for (const { socket } of this.#recorded().slice(0, count)) socket.stall(stalled)
  }

  /** The states of those who keep what they receive. */
  states(): Promise<unknown[]> {
    return Promise.all(this.#recorded().map(({ recorded = [] }) => this.#dialect.state(recorded)))
  }

  #recorded(): Client[] {
    return this.#clients.filter(({ recorded }) => recorded !== undefined)
  }

  /** Lets go of everyone. */
  end(): void {
    for (const { socket } of this.#clients) socket.destroy()
  }
}
