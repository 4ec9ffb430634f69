import type { Socket } from 'node:net'
import { WebSocket } from 'ws'
import type { Codec } from '../../shared/protocol/codec.ts'
import {
  CLOSE,
  CLOSE_MEANINGS,
  type CloseName,
  ERRORS,
  type ErrorCode,
  InvalidMessage,
  ProtocolError,
} from '../../shared/protocol/error-codes.ts'
import type { ClientMessage } from '../../shared/protocol/messages.ts'
import { type Frame, frame } from '../frame.ts'
import type { GatewayContext } from './context.ts'
import {
  type FrameListener,
  FrameReader,
  type PolledSocket,
  startReading,
  stopReading,
} from './fast-socket.ts'
import { countClose } from './metrics.ts'
import { type Flusher, Outbox, type OutboxListener } from './outbox.ts'

/** RFC 6455, section 5.5.1: a close frame's reason has at most 123 bytes of UTF-8. */
const REASON_BYTES = 123

/** A client is pinged for its round-trip time once in so many beats, the first time after a tenth of a minute. */
const SAMPLE_BEATS = 60
const FIRST_SAMPLE_BEAT = 6

/** A client that is closed for one of these may go on sending: no further frame of it is parsed. */
const FLOODS: ReadonlySet<CloseName> = new Set(['rate_limited', 'protocol_error'])

/** More than a client has on its way when it learns that its connection is closed. */
const IGNORED_BYTES = 4 * 1024 * 1024

/** What is handled of one client before the others have their turn: so many bytes, and each message counts as so many more. */
const TURN_BYTES = 32 * 1024
const BYTES_PER_MESSAGE = 2048

/** What a connection tells its owner. */
export interface ConnectionListener {
  /** `bytes`: of its frame. False: the message has to wait, and comes again once the time of `throttle` is over. */
  message(message: ClientMessage, bytes: number): boolean
  /** A message whose fields are wrong; the connection goes on. False: as for `message`. */
  invalid(problem: InvalidMessage): boolean
  /** A message met a fault of ours; the connection is still there. */
  failed(error: unknown): void
  /** A ping or pong frame of the websocket itself; false: there are too many, and it is not to be answered. */
  controlFrame(): boolean
  /** The client's websocket answered a ping. */
  ponged(): void
  /** What waited for the client has been read; see `Outbox.awaitRoom`. */
  hasRoom(): void
  /** The connection is over; called once. `lost`: not by us. */
  closed(name: CloseName | 'lost'): void
}

/** Everything but the state stream: what a connection encodes for its client alone. */
export type DirectMessage = Parameters<Codec['encode']>[0]

/** What an `error` is about: a request, or a message. */
export interface ErrorAbout {
  readonly request_id?: number | undefined
  readonly room_id?: string | undefined
  readonly ref?: number | undefined
}

/** What `ws` closes with by itself when a frame breaks the rules (RFC 6455, section 7.4.1), in our own table's words. */
const VERDICTS: ReadonlyMap<number, readonly [CloseName, string]> = new Map([
  [1002, ['protocol_error', 'not a valid websocket frame']],
  [1003, ['protocol_error', 'not a valid websocket frame']],
  [1007, ['protocol_error', 'a text frame must be UTF-8']],
  [1008, ['protocol_error', 'too many fragments']],
  [1009, ['payload_too_large', CLOSE_MEANINGS.payload_too_large]],
])

/**
 * The server's end of a websocket. Closes with the codes of our table where `ws` would use the protocol's own. One object hears of
 * everything: listeners for each event would take a kilobyte of every connection.
 */
export class ServerSocket extends WebSocket {
  /** Who is told what happens on it. */
  listener: Connection | undefined

  override emit(event: string | symbol, ...values: unknown[]): boolean {
    const { listener } = this
    if (event === 'message') listener?.message(values[0] as Buffer, values[1] as boolean)
    else if (event === 'ping') listener?.pinged(values[0] as Buffer)
    else if (event === 'pong') listener?.ponged()
    else if (event === 'close') listener?.gone()
    // What went wrong follows as a closing handshake or as the end.
    return listener !== undefined
  }

  override close(code?: number, reason?: string | Buffer): void {
    // A code without a reason is ws's own verdict; an echo of the client's close frame always has one, if empty.
    const verdict = code !== undefined && reason === undefined ? VERDICTS.get(code) : undefined
    this.listener?.closing(verdict?.[0])
    if (verdict) super.close(CLOSE[verdict[0]], verdict[1])
    else super.close(code, reason)
  }
}

/** One websocket: messages in, frames out, and an end. Knows no session. */
export class Connection implements FrameListener, OutboxListener, PolledSocket {
  readonly codec: Codec
  readonly outbox: Outbox
  readonly openedAt: number
  readonly #ws: ServerSocket
  readonly #socket: Socket
  readonly #reader: FrameReader
  readonly #context: GatewayContext
  readonly #listener: ConnectionListener
  #heard = false
  #silentBeats = 0
  #beats = 0
  /** When the ping was sent that has no pong yet, monotonic; undefined: none, or its pong would tell of a pause of this node. */
  #pingedAt: number | undefined
  #closed = false
  #replaced = false
  /** The room that the frames queued last were about. */
  #room: string | undefined
  /** What may still be handled in this turn. */
  #turnBytes = TURN_BYTES
  /** For `Polling`. */
  readIn: number | undefined
  /** Whether nothing is read since `Polling` says so. */
  #resting = false
  /** Of the messages that may be dropped, the newest that waits for the end of the read. */
  #newest: Uint8Array | undefined
  /** Number of messages that were dropped for a newer one. The listener sets it to 0 when they are paid. */
  dropped = 0
  /** For how long nothing is to be read after this turn. */
  #throttleMs = 0
  /** Until when nothing is to be read, however long that takes. */
  #held: Promise<void> | undefined
  /** Set while nothing is read. */
  #stopPause: (() => void) | undefined
  /** Frames that were read already when the pause began: no more than one read of the socket brings. `from`: the first message that waits. */
  readonly #waiting: { readonly data: Buffer; readonly binary: boolean; from: number }[] = []
  #ending = false
  /** True once the client has said goodbye before its `welcome`. */
  goodbye = false

  /** `socket`: the TCP socket below `ws`. */
  constructor(
    context: GatewayContext,
    ws: ServerSocket,
    socket: Socket,
    codec: Codec,
    flusher: Flusher,
    listener: ConnectionListener,
  ) {
    this.codec = codec
    this.openedAt = context.clock.monotonic()
    this.#ws = ws
    this.#socket = socket
    this.#context = context
    this.#listener = listener
    this.outbox = new Outbox(flusher.sockets.to(socket), flusher, context.options, this)
    ws.listener = this
    this.#reader = new FrameReader(socket, context.options.limits.max_message_bytes, this, flusher.sockets)
  }

  /** Whether messages still come and frames still go. */
  get open(): boolean {
    return !this.#closed && !this.#replaced
  }

  /** Whether a resume for it is to go on: the client is there, or has said goodbye, which ends the session that it resumes. */
  get wanted(): boolean {
    return this.open || this.goodbye
  }

  /** Whether the client has closed the connection, and what it sent before is handled now: nothing can wait any longer. */
  get ending(): boolean {
    return this.#ending
  }

  /** For the reader of its frames, as `read`. */
  frame(payload: Buffer): void {
    this.#receive(payload, true)
  }

  /** A message that `ws` has read. */
  message(data: Buffer, binary: boolean): void {
    this.#receive(data, binary)
  }

  ponged(): void {
    this.#heard = true
    if (this.#closed) return
    this.#listener.ponged()
    if (this.#pingedAt !== undefined) {
      const { clock, metrics } = this.#context
      metrics.roundTrip.observe((clock.monotonic() - this.#pingedAt) / 1000)
      this.#pingedAt = undefined
    }
    this.#listener.controlFrame()
  }

  pinged(data: Buffer): void {
    this.#heard = true
    if (!this.#closed && this.#listener.controlFrame()) this.outbox.push(pong(data))
  }

  /**
   * A closing handshake begins, from either side: nothing may be written behind a close frame. `name`: of a
   * broken frame, nothing for a close of the client.
   */
  closing(name: CloseName | undefined): void {
    this.#ending = true
    this.#handleWaiting()
    this.#takeNewest()
    this.#end(name ?? 'lost')
  }

  gone(): void {
    this.#end('lost')
  }

  overflowed(): void {
    this.close('slow_consumer', CLOSE_MEANINGS.slow_consumer, { drop: true })
  }

  hasRoom(): void {
    this.#listener.hasRoom()
  }

  /** All that was read has been handled, or waits. */
  read(): void {
    if (!this.#resting && !this.#closed) {
      if (!this.#takeNewest()) this.#pause()
      this.#context.polling.read(this)
    }
    // Kept beyond this read.
    if (this.#newest) this.#newest = Buffer.from(this.#newest)
    if (this.#throttleMs > 0) this.#pause()
    else if (!this.#stopPause) this.#turnBytes = TURN_BYTES
  }

  rest(): void {
    this.#resting = true
    this.#pingedAt = undefined
    stopReading(this.#socket)
  }

  goOn(): void {
    this.#resting = false
    if (this.#closed) return
    startReading(this.#socket)
    if (!this.#takeNewest()) this.#pause()
  }

  /** Queues one message for this client alone. */
  send(message: DirectMessage): void {
    if (message.t === 'error') this.#context.metrics.websocketErrors.inc({ code: message.code })
    this.outbox.push(frame(this.codec.encode(message), this.codec.binary))
  }

  /** What is queued next is about this room. To be called before anything that its stream has, and acks. */
  address(roomId: string): void {
    if (roomId === this.#room) return
    this.#room = roomId
    const address = this.codec.address(roomId)
    if (address) this.outbox.push(frame(address, this.codec.binary))
  }

  /** Queues an `error`: a code of the table, a sentence for people, and what it is about, where that is known. */
  sendError(code: ErrorCode, message: string, { request_id, room_id, ref }: ErrorAbout = {}): void {
    this.send({
      t: 'error',
      code,
      message,
      retryable: ERRORS[code].retryable,
      ...(request_id !== undefined && { request_id }),
      ...(room_id !== undefined && { room_id }),
      ...(ref !== undefined && { ref }),
    })
  }

  /** Reads nothing for so many milliseconds once this turn is over: the client is faster than it may be. */
  throttle(ms: number): void {
    this.#throttleMs = Math.max(this.#throttleMs, ms)
  }

  /** Reads nothing until `over` resolves: the next message needs what comes of it. */
  holdUntil(over: Promise<void>): void {
    this.#held = over
    this.#stopPause?.()
    this.#stopPause = undefined
    this.#pause()
  }

  /**
   * Ends the connection with a code of the table: what is queued goes out first, unless `drop` says that the client does not read. No
   * message is taken from now on, and nothing more is parsed of a client that floods.
   */
  close(name: CloseName, reason: string, { drop = false } = {}): void {
    if (this.#closed) return
    if (!drop) this.outbox.flush()
    this.#end(name)
    this.#ws.close(CLOSE[name], truncate(reason))
    if (!FLOODS.has(name)) return
    this.#ignoreRest()
  }

  /** Another connection has the session: nothing goes out and nothing is taken any more, until this one is closed. */
  replaced(): void {
    this.outbox.flush()
    this.outbox.close()
    this.#replaced = true
    this.#waiting.length = 0
  }

  /** Ends the TCP connection without a close frame: no one is at the other end. */
  terminate(): void {
    this.#end('lost')
    this.#ws.terminate()
  }

  /**
   * One beat of the shared sweep, once a second: pings a client that was silent for so many of them, and ends the connection of one that
   * was silent for twice as many. Beats and not time: to a process that stood still all clients seem to have been silent. Once a minute it
   * pings any client, to measure the round trip.
   */
  beat(heartbeatSeconds: number): void {
    this.#silentBeats = this.#heard ? 0 : this.#silentBeats + 1
    this.#heard = false
    this.#beats += 1
    if (this.#silentBeats >= 2 * heartbeatSeconds) this.terminate()
    else if (this.#silentBeats === heartbeatSeconds || this.#beats % SAMPLE_BEATS === FIRST_SAMPLE_BEAT)
      this.#ping()
  }

  #ping(): void {
    // While nothing is read a pong waits here, and not on its way.
    this.#pingedAt = this.#resting || this.#stopPause ? undefined : this.#context.clock.monotonic()
    this.#ws.ping()
  }

  #receive(data: Buffer, binary: boolean): void {
    this.#heard = true
    if (this.#closed || this.#replaced) return
    const from = this.#stopPause ? 0 : this.#handle(data, binary)
    if (from !== undefined) this.#waiting.push({ data: Buffer.from(data), binary, from })
  }

  /** Handles the messages of a frame from number `from` on; returns the number of the first that has to wait, which pauses the reading. */
  #handle(data: Buffer, binary: boolean, from = 0): number | undefined {
    if (binary !== this.codec.binary) {
      const is = binary ? 'binary' : 'text'
      const should = this.codec.binary ? 'binary' : 'text'
      this.close('protocol_error', `${this.codec.subprotocol} takes ${should} frames, this one is ${is}`)
      return undefined
    }
    try {
      const batch = this.codec.unbatch(data)
      const count = batch?.length ?? 1
      for (let at = from; at < count && !this.#closed; at++)
        if (!this.#take(batch?.[at] ?? data)) {
          this.#pause()
          return at
        }
    } catch (error) {
      this.#refuse(error)
    }
    if (this.#turnBytes <= 0) this.#pause()
    return undefined
  }

  /** One message, or, of those without `ref` that an overloaded node reads of a client at once, the newest: to decode them all costs too much. */
  #take(payload: Uint8Array): boolean {
    this.#turnBytes -= payload.length
    if (this.#context.inputIntervalMs() === 0 || !this.codec.isUnreliable(payload)) {
      return this.#takeNewest() && this.#decode(payload)
    }
    if (this.#newest) {
      this.dropped++
      this.#context.metrics.inputsDropped.inc()
    }
    this.#newest = payload
    return true
  }

  /** False: it has to wait, and everything behind it. */
  #takeNewest(): boolean {
    const payload = this.#newest
    // A close in between takes it as well.
    this.#newest = undefined
    if (!payload || this.#decode(payload)) return true
    this.#newest = payload
    return false
  }

  /** What is wrong with a message is no matter of others in its frame, unless it ends the connection. False: it has to wait. */
  #decode(payload: Uint8Array): boolean {
    this.#turnBytes -= BYTES_PER_MESSAGE
    try {
      const message = this.codec.decode(payload)
      if (!this.#listener.message(message, payload.length)) return false
      this.#context.metrics.messagesReceived.inc({ t: message.t })
      this.#context.metrics.receivedBytes.inc(payload.length)
      return true
    } catch (error) {
      return this.#refuse(error)
    }
  }

  #refuse(error: unknown): boolean {
    if (error instanceof InvalidMessage) return this.#listener.invalid(error)
    if (error instanceof ProtocolError) this.close('protocol_error', error.message)
    else this.#listener.failed(error)
    return true
  }

  /**
   * Handles what waits, however much it is: nothing more will come. Takes no longer than one turn of a client that sends small messages
   * would without a bound.
   */
  #handleWaiting(): void {
    for (const { data, binary, from } of this.#waiting.splice(0))
      if (!this.#closed) this.#handle(data, binary, from)
  }

  /**
   * Reads nothing until the client is within its rate, or until all others have had their turn: one read of a socket follows the other
   * for as long as there is more, up to 2 MiB of it, before any other socket is looked at.
   */
  #pause(): void {
    if (this.#closed || this.#stopPause) return
    this.#pingedAt = undefined
    const held = this.#held
    const ms = Math.ceil(this.#throttleMs)
    if (!held) this.#context.metrics.readingPaused.inc({ reason: ms > 0 ? 'rate' : 'turn' })
    this.#ws.pause()
    if (held) {
      let isOver = false
      this.#stopPause = () => {
        isOver = true
      }
      void held.then(() => {
        if (!isOver) this.#resume()
      })
    } else if (ms > 0) this.#stopPause = this.#context.clock.schedule(ms, () => this.#resume())
    else {
      const immediate = setImmediate(() => this.#resume())
      this.#stopPause = () => clearImmediate(immediate)
    }
  }

  #resume(): void {
    this.#stopPause = undefined
    this.#held = undefined
    this.#throttleMs = 0
    this.#turnBytes = TURN_BYTES
    // What was read before the pause shows that the client is there.
    this.#heard = true
    let next = 0
    while (next < this.#waiting.length && !this.#stopPause && !this.#closed) {
      const frame = this.#waiting[next]!
      const from = this.#handle(frame.data, frame.binary, frame.from)
      if (from === undefined) next++
      else frame.from = from
    }
    this.#waiting.splice(0, next)
    this.read()
    if (!this.#stopPause) this.#ws.resume()
  }

  /** Reads what still comes and drops it: a socket that is destroyed with bytes unread is reset, which can lose the close frame. */
  #ignoreRest(): void {
    let left = IGNORED_BYTES
    this.#reader.stop()
    const socket = this.#socket.removeAllListeners('data')
    socket.on('data', ({ length }: Buffer) => {
      left -= length
      if (left < 0) socket.destroy()
    })
    socket.resume()
    socket.end()
  }

  #end(name: CloseName | 'lost'): void {
    if (this.#closed) return
    this.#closed = true
    this.#waiting.length = 0
    if (this.#resting) startReading(this.#socket)
    if (this.#stopPause) {
      this.#stopPause()
      this.#ws.resume()
    }
    this.outbox.close()
    countClose(this.#context.metrics, name)
    this.#listener.closed(name)
  }
}

/** The answer to a ping: a frame with the same payload, which has 125 bytes at most. */
function pong(payload: Buffer): Frame {
  const bytes = new Uint8Array(2 + payload.length)
  bytes.set([0x8a, payload.length])
  bytes.set(payload, 2)
  return bytes
}

/** At most 123 bytes of UTF-8, cut between characters. */
function truncate(reason: string): string {
  if (Buffer.byteLength(reason) <= REASON_BYTES) return reason
  let cut = ''
  let bytes = Buffer.byteLength('…')
  for (const character of reason) {
    bytes += Buffer.byteLength(character)
    if (bytes > REASON_BYTES) break
    cut += character
  }
  return `${cut}…`
}
