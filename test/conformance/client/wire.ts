import { decode, encode } from '@msgpack/msgpack'
import type { WebSocket } from 'ws'
import { decodeJson, decodeMsgpack, RoomContext } from '../codecs.ts'
import type { ServerMessage } from '../messages.ts'
import { type Line, type Seat, textOf } from './books.ts'
import type { Dice, Fault, FrameFault } from './faults.ts'
import { readClientFrame } from './frames.ts'
import type { Judge } from './judge.ts'

type Raw = string | Uint8Array

/** A frame of the server. */
interface Frame {
  readonly raw: Raw
  /** Undefined: an unknown message. */
  readonly message: ServerMessage | undefined
}

/** Dependencies of a `Wire`. */
interface WireParts {
  readonly client: WebSocket
  readonly node: WebSocket
  readonly line: Line
  readonly judge: Judge
  readonly dice: Dice
  /** Returns whether to inject this fault into the current frame. */
  readonly strikes: (fault: FrameFault) => boolean
  /** Called after a fault was injected. */
  readonly struck: (fault: Fault) => void
  /** Returns the proxy's address for a node's `url`. */
  readonly addressOf: (url: string) => string | undefined
  /** Called at a frame of the server that the page does not allow. */
  readonly broken: (problem: string) => void
  readonly over: () => void
}

/** Messages whose MessagePack frames do not name their room. */
const ADDRESSED: ReadonlySet<string> = new Set([
  'state.snapshot',
  'state.resync',
  'state.patch',
  'event',
  'member',
  'ack',
  'reply',
  'spectators',
])
/** Opcodes of `move`, of `token`, and of the frame that names the room of the following frames. */
const ROOM = 29
const MOVE = 27
const TOKEN = 18
/** Time that a client has for a fresh token after it has resumed, seconds. */
const WITHIN_SECONDS = 5
/** Time limit for the next patch, which shows a lost patch. In a quiet room there is none, and the proxy cuts the connection. */
const NOTICE_MS = 1000
/** Frames of this time before a cut are lost. */
const LOST_BEFORE_CUT_MS = 60

/** A connection of a client with its connection to a node. It forwards frames, passes them to the judge, and injects faults. */
export class Wire {
  readonly line: Line
  /** True: instead of the next `welcome`, the connection is cut. */
  cuts_at_hello = false
  /** True: a request for a token follows the next `welcome`. */
  requests_token = false
  private readonly parts: WireParts
  private readonly down = new Way()
  private readonly up = new Way()
  private readonly context = new RoomContext()
  /** Room of the next frames for the client. */
  private room: string | undefined
  /** Rooms with a lost or spoilt patch, until their next whole state. */
  private readonly troubled = new Set<string>()
  private later: { frames: number; readonly frame: Frame; readonly seat: Seat }[] = []
  private ended = false

  constructor(parts: WireParts) {
    this.parts = parts
    this.line = parts.line
    const { client, node } = parts
    client.on('message', (data: Buffer, binary: boolean) =>
      this.fromClient(binary ? data : data.toString('utf8')),
    )
    node.on('message', (data: Buffer, binary: boolean) =>
      this.fromNode(binary ? data : data.toString('utf8')),
    )
    client.on('ping', (data) => this.up.push(() => node.ping(data)))
    client.on('pong', (data) => this.up.push(() => node.pong(data)))
    node.on('ping', (data) => this.down.push(() => client.ping(data)))
    node.on('pong', (data) => this.down.push(() => client.pong(data)))
    client.on('close', (code) => {
      this.end('client', code)
      if (this.up.held) node.terminate()
      else this.up.push(() => (isSendable(code) ? node.close(code) : node.terminate()))
    })
    node.on('close', (code, reason) => this.down.push(() => this.close(code, reason.toString())))
    for (const socket of [client, node]) socket.on('error', () => undefined)
  }

  /** True from `welcome` until a fault breaks the connection. */
  get plays(): boolean {
    return !this.ended && !this.line.silent && this.line.welcomed_at !== undefined
  }

  /** Delays frames in both directions. */
  lag(ms: number): void {
    this.down.lag = ms
    this.up.lag = ms
  }

  /** Holds all frames in both directions, until the client closes the connection. */
  silence(): void {
    this.hold()
    this.parts.judge.silent(this.line)
  }

  /** Breaks the connection. The last frames of both directions are lost. The node's connection breaks `nodeLearnsMs` later. */
  cut(nodeLearnsMs = 0): void {
    this.hold()
    setTimeout(() => {
      const { client, node } = this.parts
      this.end('other', 1006)
      client.terminate()
      setTimeout(() => node.terminate(), nodeLearnsMs)
    }, LOST_BEFORE_CUT_MS)
  }

  /** Closes the client's connection with a code, like a server. The node's connection breaks, unless the node has closed it. */
  close(code: number, reason: string): void {
    if (this.ended) return
    const { client, node } = this.parts
    this.end('other', code)
    if (isSendable(code)) client.close(code, reason)
    else client.terminate()
    node.terminate()
  }

  /** Sends the client a `move`. */
  move(inMs: number, url?: string): void {
    const message = { t: 'move' as const, in_ms: inMs, ...(url !== undefined && { url }) }
    const raw =
      this.line.codec === 'json'
        ? JSON.stringify(message)
        : encode([MOVE, inMs, ...(url === undefined ? [] : [url])])
    this.deliver({ raw, message })
  }

  private hold(): void {
    this.down.held = true
    this.up.held = true
  }

  private end(by: 'client' | 'other', code: number): void {
    if (this.ended) return
    this.ended = true
    this.parts.judge.ended(this.line, by, code)
    this.parts.over()
  }

  private fromClient(raw: Raw): void {
    if (this.ended) return
    const { judge, node } = this.parts
    try {
      const said = readClientFrame(this.line.codec, raw)
      judge.said(this.line, said)
    } catch (problem) {
      judge.unreadable(this.line, (problem as Error).message, shown(raw))
    }
    this.up.push(() => node.send(raw))
  }

  private fromNode(raw: Raw): void {
    if (this.ended) return
    if (typeof raw !== 'string' && raw[1] === ROOM && raw[0] === 0x92) {
      decodeMsgpack(raw, this.context)
      return
    }
    let message: ServerMessage | undefined
    try {
      message = typeof raw === 'string' ? decodeJson(raw) : decodeMsgpack(raw, this.context)
    } catch (problem) {
      this.parts.broken(`${(problem as Error).message}, in the frame ${shown(raw)}`)
    }
    this.take({ raw, message })
  }

  /** Delivers, changes or drops a frame of the server. */
  private take(frame: Frame): void {
    const { message } = frame
    switch (message?.t) {
      case 'welcome':
        if (this.cuts_at_hello) {
          this.cuts_at_hello = false
          this.cut()
          return
        }
        this.deliver(frame)
        if (this.requests_token) this.requestToken()
        this.requests_token = false
        return
      case 'move': {
        const url = message.url === undefined ? undefined : this.parts.addressOf(message.url)
        // A client may ignore a move, so the proxy drops a move to an address that it does not know.
        if (message.url === undefined || url !== undefined) this.move(message.in_ms, url)
        return
      }
      case 'state.patch':
        this.takePatch(frame, message)
        return
      case 'ack':
        this.deliver(frame)
        this.double(frame, message)
        return
      default:
        this.deliver(frame)
    }
  }

  private takePatch(frame: Frame, message: Extract<ServerMessage, { t: 'state.patch' }>): void {
    const { strikes, struck } = this.parts
    const { room_id: roomId, seq } = message
    const seat = this.line.session?.seats.get(roomId)
    const inOrder = seat && !seat.gap && !this.troubled.has(roomId) && seat.seq + 1 === seq
    if (inOrder && strikes('lose')) this.lose(roomId, seq)
    else if (inOrder && strikes('spoil')) {
      struck('spoil')
      this.troubled.add(roomId)
      this.deliver({ raw: spoilt(frame.raw), message }, true)
    } else this.deliver(frame)
  }

  /** The patch with this seq is not delivered. */
  private lose(roomId: string, seq: number): void {
    this.parts.struck('lose')
    this.troubled.add(roomId)
    setTimeout(() => {
      const seat = this.line.session?.seats.get(roomId)
      if (this.plays && this.troubled.has(roomId) && seat && !seat.gap && seat.seq < seq) this.cut()
    }, NOTICE_MS)
  }

  /** Repeats an ack, immediately or after up to 4 other frames. */
  private double(frame: Frame, { room_id: roomId }: { room_id: string }): void {
    const { dice, strikes } = this.parts
    const seat = this.line.session?.seats.get(roomId)
    if (seat && strikes('double')) this.later.push({ frames: Math.floor(dice.between(0, 4)), frame, seat })
  }

  private requestToken(): void {
    const message = { t: 'token', within_seconds: WITHIN_SECONDS } as const
    const isJson = this.line.codec === 'json'
    this.deliver({ message, raw: isJson ? JSON.stringify(message) : encode([TOKEN, WITHIN_SECONDS]) })
  }

  private deliver(frame: Frame, isSpoilt = false): void {
    this.down.push(() => this.arrive(frame, isSpoilt))
  }

  private arrive(frame: Frame, isSpoilt: boolean): void {
    if (this.ended) return
    const { client, judge, struck } = this.parts
    const { raw, message } = frame
    if (
      typeof raw !== 'string' &&
      message &&
      ADDRESSED.has(message.t) &&
      'room_id' in message &&
      message.room_id !== this.room
    ) {
      this.room = message.room_id
      client.send(encode([ROOM, this.room]))
    }
    client.send(raw)
    if (!message) return
    judge.delivered(this.line, message, isSpoilt)
    if (message.t === 'state.resync' || message.t === 'state.snapshot') this.troubled.delete(message.room_id)
    const due = this.later.filter((one) => one.frames-- <= 0)
    this.later = this.later.filter((one) => !due.includes(one))
    for (const { frame: again, seat } of due) {
      if (this.line.session?.seats.get(seat.room_id) !== seat) continue
      struck('double')
      this.arrive(again, false)
    }
  }
}

/** One direction of a connection: delayed actions, in order. */
class Way {
  /** Delay of new actions, milliseconds. */
  lag = 0
  /** True: no more actions run. */
  held = false
  private readonly queue: { readonly due: number; readonly run: () => void }[] = []

  push(run: () => void): void {
    if (this.held) return
    if (this.lag === 0 && this.queue.length === 0) {
      run()
      return
    }
    const due = Math.max(performance.now() + this.lag, this.queue.at(-1)?.due ?? 0)
    this.queue.push({ due, run })
    if (this.queue.length === 1) this.wait()
  }

  private wait(): void {
    setTimeout(
      () => {
        while (!this.held && this.queue.length > 0 && this.queue[0]!.due <= performance.now())
          this.queue.shift()!.run()
        if (!this.held && this.queue.length > 0) this.wait()
      },
      Math.max(1, this.queue[0]!.due - performance.now()),
    )
  }
}

/** Returns the frame with another checksum. */
function spoilt(raw: Raw): Raw {
  if (typeof raw === 'string') {
    const fields = JSON.parse(raw)
    return JSON.stringify({ ...fields, checksum: (fields.checksum ^ 1) >>> 0 })
  }
  const bytes = Uint8Array.from(raw)
  // After the header of the array and the opcode: epoch, seq, checksum.
  let at = 2
  for (let skipped = 0; skipped < 2; skipped += 1) at += sizeOfNumber(bytes[at]!)
  at += sizeOfNumber(bytes[at]!) - 1
  bytes[at]! ^= 1
  return bytes
}

/** Returns the length of nil, or of a MessagePack number that is not negative, by its first byte. */
const sizeOfNumber = (head: number): number =>
  head < 0x80 ? 1 : ({ 192: 1, 202: 5, 203: 9, 204: 2, 205: 3, 206: 5 } as Record<number, number>)[head]!

const isSendable = (code: number): boolean =>
  (code >= 1000 && code <= 1014 && ![1004, 1005, 1006].includes(code)) || (code >= 3000 && code <= 4999)

const shown = (raw: Raw): string => {
  if (typeof raw === 'string') return raw.slice(0, 300)
  try {
    return textOf(decode(raw) as object).slice(0, 300)
  } catch {
    return Buffer.from(raw).toString('hex').slice(0, 300)
  }
}
