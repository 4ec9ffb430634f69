import { Duplex } from 'node:stream'
import type { Clock } from '../../shared/clock.ts'
import type { ServerMessage } from '../../shared/protocol/messages.ts'
import type { Random } from '../../shared/random.ts'

/** Entry of a process for all events. A paused process receives them after it resumes. A dead process receives none. */
export class Gate {
  readonly #waiting: (() => void)[] = []
  #paused = false
  #dead = false

  /** Runs `happening` now, or when the process resumes. */
  pass(happening: () => void): void {
    if (this.#dead) return
    if (this.#paused) this.#waiting.push(happening)
    else happening()
  }

  pause(): void {
    this.#paused = true
  }

  resume(): void {
    this.#paused = false
    for (const happening of this.#waiting.splice(0)) this.pass(happening)
  }

  kill(): void {
    this.#dead = true
    this.#waiting.length = 0
  }
}

/** Smallest latency, and the range above it, in milliseconds. */
const LEAST_MS = 0.05
const MORE_MS = 0.4

/** Conditions of a network connection. */
export interface Conditions {
  /** Additional latency in milliseconds. */
  delayMs: number
  /** Nothing arrives while this is true. */
  held: boolean
}

/** One direction of a connection. It delivers after a latency and in order, unless the connection is cut before. */
export class Lane {
  readonly #clock: Clock
  readonly #random: Random
  readonly #conditions: Conditions
  readonly #sent: { readonly at: number; readonly arrive: () => void }[] = []
  #arming = false
  #lastAt = 0

  constructor(clock: Clock, random: Random, conditions: Conditions = { delayMs: 0, held: false }) {
    this.#clock = clock
    this.#random = random
    this.#conditions = conditions
  }

  send(arrive: () => void): void {
    const takesMs = LEAST_MS + MORE_MS * this.#random.float() + this.#conditions.delayMs
    this.#lastAt = Math.max(this.#lastAt, this.#clock.monotonic() + takesMs)
    this.#sent.push({ at: this.#lastAt, arrive })
    this.#arm()
  }

  /** Drops everything that has not arrived. */
  cut(): void {
    this.#sent.length = 0
  }

  /** To be called when the conditions have changed. */
  release(): void {
    this.#arm()
  }

  #arm(): void {
    const [first] = this.#sent
    if (!first || this.#arming || this.#conditions.held) return
    this.#arming = true
    this.#clock.schedule(first.at - this.#clock.monotonic(), () => {
      this.#arming = false
      while (!this.#conditions.held && this.#sent[0] && this.#sent[0].at <= this.#clock.monotonic())
        this.#sent.shift()!.arrive()
      this.#arm()
    })
  }
}

/** Changes the bytes of one direction of a connection. */
type Rewrite = (bytes: Buffer) => Buffer

export const UNCHANGED: Rewrite = (bytes) => bytes

/** One end of a simulated TCP connection. The other end receives the bytes later, through the gate of its process. */
export class SimSocket extends Duplex {
  readonly #lane: Lane
  #peer: SimSocket | undefined
  readonly #rewrite: Rewrite
  #pass: (happening: () => void) => void

  private constructor(lane: Lane, pass: (happening: () => void) => void, rewrite: Rewrite) {
    super({ allowHalfOpen: false })
    this.#lane = lane
    this.#pass = pass
    this.#rewrite = rewrite
  }

  /** Two ends of one connection. `pass`: the gate of the process at the second end. `rewrite`: changes what that process sends. */
  static pair(
    clock: Clock,
    random: Random,
    pass: (happening: () => void) => void,
    rewrite: Rewrite,
  ): [client: SimSocket, server: SimSocket] {
    const client = new SimSocket(new Lane(clock, random), (happening) => happening(), UNCHANGED)
    const server = new SimSocket(new Lane(clock, random), pass, rewrite)
    client.#peer = server
    server.#peer = client
    return [client, server]
  }

  override _read(): void {}

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    const bytes = this.#rewrite(Buffer.from(chunk))
    this.#send((peer) => peer.push(bytes))
    done()
  }

  override _final(done: () => void): void {
    this.#send((peer) => peer.push(null))
    done()
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#send((peer) => peer.destroy())
    done(error)
  }

  /** Closes the connection as the end of a process does: sent bytes still arrive, then the other end closes. */
  abandon(): void {
    this.#pass = () => undefined
    this.#send((peer) => peer.destroy())
  }

  #send(arrive: (peer: SimSocket) => void): void {
    const peer = this.#peer!
    this.#lane.send(() => peer.#pass(() => peer.destroyed || arrive(peer)))
  }
}

/** Result of a changed message: messages to send in its place, or a code with which the connection is closed. */
export type Replacement = readonly ServerMessage[] | { readonly close: number }

const TEXT = 0x81
const CLOSE = 0x88
const END_OF_HEAD = '\r\n\r\n'

/** Changes the messages that a node sends on one connection in the JSON subprotocol. Other subprotocols pass unchanged. */
export function rewriteMessages(change: (message: ServerMessage) => Replacement): Rewrite {
  let waiting = Buffer.alloc(0)
  let isHead = true
  let isJson = false
  return (bytes) => {
    waiting = Buffer.concat([waiting, bytes])
    const done: Buffer[] = []
    if (isHead) {
      const end = waiting.indexOf(END_OF_HEAD)
      if (end < 0) return Buffer.alloc(0)
      isHead = false
      isJson = waiting.subarray(0, end).includes('roomful.v1.json')
      done.push(waiting.subarray(0, end + END_OF_HEAD.length))
      waiting = waiting.subarray(end + END_OF_HEAD.length)
    }
    if (!isJson) {
      done.push(waiting)
      waiting = Buffer.alloc(0)
    }
    for (let frame = firstFrame(waiting); frame; frame = firstFrame(waiting)) {
      waiting = waiting.subarray(frame.length)
      if (frame[0] !== TEXT) {
        done.push(frame)
        continue
      }
      const payload = frame.subarray(headLength(frame)).toString()
      const replaced = change(JSON.parse(payload) as ServerMessage)
      if ('close' in replaced)
        done.push(frameOf(CLOSE, Buffer.from([replaced.close >> 8, replaced.close & 0xff])))
      else for (const message of replaced) done.push(frameOf(TEXT, Buffer.from(JSON.stringify(message))))
    }
    return Buffer.concat(done)
  }
}

const headLength = (bytes: Buffer): number => ({ 126: 4, 127: 10 })[bytes[1]!] ?? 2

/** Returns the first WebSocket frame. Undefined: it is incomplete. Frames of a server are not masked. */
function firstFrame(bytes: Buffer): Buffer | undefined {
  if (bytes.length < 2 || bytes.length < headLength(bytes)) return undefined
  const [, short = 0] = bytes
  const size = short < 126 ? short : short === 126 ? bytes.readUInt16BE(2) : Number(bytes.readBigUInt64BE(2))
  const length = headLength(bytes) + size
  return bytes.length < length ? undefined : bytes.subarray(0, length)
}

function frameOf(kind: number, payload: Buffer): Buffer {
  const head = Buffer.alloc(payload.length < 126 ? 2 : payload.length < 65_536 ? 4 : 10)
  head[0] = kind
  head[1] = payload.length < 126 ? payload.length : head.length === 4 ? 126 : 127
  if (head.length === 4) head.writeUInt16BE(payload.length, 2)
  if (head.length === 10) head.writeBigUInt64BE(BigInt(payload.length), 2)
  return Buffer.concat([head, payload])
}
