import type { Socket } from 'node:net'
import { WebSocket } from 'ws'
import type { Codec, Payload } from '../../shared/protocol/codec.ts'
import {
  CLOSE,
  CLOSE_MEANINGS,
  type CloseName,
  ERRORS,
  type ErrorCode,
  InvalidMessage,
  ProtocolError,
} from '../../shared/protocol/error-codes.ts'
import type { ClientMessage, Match } from '../../shared/protocol/messages.ts'
import { type Frame, frame } from '../frame.ts'
import type { GatewayContext } from './context.ts'
import {
  type FrameListener,
  FrameReader,
  type PolledSocket,
  startReading,
  stopReading,
  TURN_BYTES,
} from './fast-socket.ts'
import { countClose } from './metrics.ts'
import { type Flusher, Outbox, type OutboxListener } from './outbox.ts'

/** RFC 6455, section 5.5.1: a close frame's reason has at most 123 bytes of UTF-8. */
const REASON_BYTES = 123

/** A client is pinged to measure its round-trip time once in this many beats, the first time at beat 6. */
const SAMPLE_BEATS = 60
const FIRST_SAMPLE_BEAT = 6

/** A client that is closed with one of these codes may continue to send. None of its further frames is parsed. */
const FLOODS: ReadonlySet<CloseName> = new Set(['rate_limited', 'protocol_error'])

/** Bytes that are read and dropped after a close. More than a client has under way when it receives the close frame. */
const IGNORED_BYTES = 4 * 1024 * 1024

/** Bytes that a message counts in addition to its size. */
const BYTES_PER_MESSAGE = 2048

/** Receives the messages and the end of a connection. */
export interface ConnectionListener {
  /** `bytes`: size of its frame. False: the message has to wait. It is delivered again after the `throttle` time. */
  message(message: ClientMessage, bytes: number): boolean
  /** A message with invalid fields. The connection stays open. False: as for `message`. */
  invalid(problem: InvalidMessage): boolean
  /** An internal error while a message was handled. The connection is still open. */
  failed(error: unknown): void
  /** A ping or pong frame of the websocket. False: there are too many, so it is not answered. */
  controlFrame(): boolean
  /** The client has answered a websocket ping. */
  ponged(): void
  /** The client has caught up; see `Outbox.awaitRoom`. */
  hasRoom(): void
  /** The connection has ended; called once. `lost`: the server did not close it. */
  closed(name: CloseName | 'lost'): void
}

/** Messages that a connection encodes for its client only: all except the state stream. */
export type DirectMessage = Parameters<Codec['encode']>[0]

/** The request or message that an `error` is about. */
export interface ErrorAbout {
  readonly request_id?: number | undefined
  readonly room_id?: string | undefined
  readonly ref?: number | undefined
  readonly match?: Match | undefined
}

/** Close codes that `ws` uses for invalid frames (RFC 6455, section 7.4.1), with the code and text that this server sends instead. */
const VERDICTS: ReadonlyMap<number, readonly [CloseName, string]> = new Map([
  [1002, ['protocol_error', 'not a valid websocket frame']],
  [1003, ['protocol_error', 'not a valid websocket frame']],
  [1007, ['protocol_error', 'a text frame must be UTF-8']],
  [1008, ['protocol_error', 'too many fragments']],
  [1009, ['payload_too_large', CLOSE_MEANINGS.payload_too_large]],
])

/** Address of a client, by which a node counts. Of IPv6: the network of 64 bits. */
export interface ClientAddress {
  readonly address: string
  /** True if a peer that is not trusted has sent `x-forwarded-for`: `address` may be that of a proxy. */
  readonly isForwarder: boolean
}

/**
 * The server's end of a websocket. Closes with this server's codes where `ws` would use those of the RFC. One object receives all events,
 * because separate event listeners would take a kilobyte for every connection.
 */
export class ServerSocket extends WebSocket {
  /** Receives all events. */
  listener: Connection | undefined

  override emit(event: string | symbol, ...values: unknown[]): boolean {
    const { listener } = this
    if (event === 'message') listener?.message(values[0] as Buffer, values[1] as boolean)
    else if (event === 'ping') listener?.pinged(values[0] as Buffer)
    else if (event === 'pong') listener?.ponged()
    else if (event === 'close') listener?.gone()
    // An error event needs no handling: a closing handshake or the end of the socket follows.
    return listener !== undefined
  }

  override close(code?: number, reason?: string | Buffer): void {
    // A code without a reason comes from `ws` itself. The echo of a client's close frame always has a reason, which may be empty.
    const verdict = code !== undefined && reason === undefined ? VERDICTS.get(code) : undefined
    this.listener?.closing(verdict?.[0])
    if (verdict) super.close(CLOSE[verdict[0]], verdict[1])
    else super.close(code, reason)
  }
}

/** One websocket: messages in, frames out, and an end. It does not know sessions. */
export class Connection implements FrameListener, OutboxListener, PolledSocket {
  // The fields that each message needs come first, next to each other in memory.
  readonly codec: Codec
  readonly #context: GatewayContext
  readonly #listener: ConnectionListener
  #heard = false
  #closed = false
  #moved = false
  turnBytes = TURN_BYTES
  readIn: number | undefined
  /** True while nothing is read or handled. Each pause ends with one `wake`. */
  #paused = false
  /** True from a read until `Polling` has decided when the next one may be. A client's own pause comes first. */
  #wasRead = false
  /** The newest of the droppable messages in this read. It is handled at the end of the read. */
  #newest: Uint8Array | undefined
  /** Number of messages that were dropped for a newer one. The listener sets it to 0 when they are paid. */
  dropped = 0
  /** Length of the pause after this read, in milliseconds. */
  #throttleMs = 0
  /** True while the messages from before a close are handled. They cannot wait any longer. */
  readonly ending: boolean = false
  readonly outbox: Outbox
  /** The room that the last queued frames were about. */
  #room: string | undefined
  /** Undefined: every known address is that of a trusted proxy. */
  readonly from: ClientAddress | undefined
  readonly openedAt: number
  readonly #ws: ServerSocket
  readonly #socket: Socket
  readonly #reader: FrameReader
  #silentBeats = 0
  #beats = 0
  /** Time of the ping without a pong, on the monotonic clock. Undefined: none, or its round trip would include a pause of this node. */
  #pingedAt: number | undefined
  /** True if the peer is gone, and the end of the connection waits for its slice. */
  #isLost = false
  /** Promise that ends the pause. Undefined: the pause has a length. */
  #held: Promise<void> | undefined
  /** Messages that were already read when the pause started: at most one read of the socket. */
  readonly #waiting: { readonly data: Buffer; readonly binary: boolean }[] = []
  /** True once the client has said goodbye before its `welcome`. */
  goodbye = false

  /** `socket`: the TCP socket below `ws`. */
  constructor(
    context: GatewayContext,
    ws: ServerSocket,
    { socket, from }: { readonly socket: Socket; readonly from: ClientAddress | undefined },
    codec: Codec,
    flusher: Flusher,
    listener: ConnectionListener,
  ) {
    this.codec = codec
    this.from = from
    this.openedAt = context.clock.monotonic()
    this.#ws = ws
    this.#socket = socket
    this.#context = context
    this.#listener = listener
    this.outbox = new Outbox(flusher.sockets.to(socket, this), flusher, context.options, this)
    ws.listener = this
    this.#reader = new FrameReader(socket, context.options.limits.max_message_bytes, this, flusher.sockets)
  }

  /** True while messages are received and frames are sent. */
  get open(): boolean {
    return !this.#closed && !this.#moved
  }

  /** True while a resume on this connection should continue: it is open, or its client has sent `goodbye`, which ends the resumed session. */
  get wanted(): boolean {
    return this.open || this.goodbye
  }

  /** A message that the frame reader or `ws` has read. */
  message(data: Buffer, binary: boolean): void {
    this.#heard = true
    if (this.#closed) return
    if (this.#paused || !this.#handle(data, binary)) this.#waiting.push({ data: Buffer.from(data), binary })
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
   * A closing handshake starts, from either side. No frame may follow a close frame. `name`: the code for an invalid frame; undefined if the
   * client closes.
   */
  closing(name: CloseName | undefined): void {
    setEnding(this)
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

  /** All data of one read is handled or queued. */
  read(): void {
    this.#wasRead = true
    this.#endRead()
  }

  lost(): boolean {
    if (this.#closed) return false
    if (this.#isLost) return true
    this.#isLost = true
    // The stream would end both of its sides, one after the other, and `ws` with them. That takes as long as all the rest.
    void this.#context.polling.ends.run(() => this.terminate())
    return true
  }

  pause(reason?: 'rate' | 'turn'): void {
    if (this.#closed || this.#paused) return
    this.#paused = true
    this.#pingedAt = undefined
    if (reason) this.#context.metrics.readingPaused.inc({ reason })
    // A resume waits for seconds. The stream notices a lost connection during that time, and reads at most 64 KiB.
    if (this.#held) this.#ws.pause()
    else stopReading(this.#ws, this.#socket)
  }

  wake(): void {
    if (this.#closed) return
    this.#paused = false
    this.#held = undefined
    this.#throttleMs = 0
    this.turnBytes = TURN_BYTES
    // A client that is not read is not silent.
    this.#heard = true
    let next = 0
    while (next < this.#waiting.length && !this.#paused && !this.#closed) {
      const { data, binary } = this.#waiting[next]!
      if (this.#handle(data, binary)) next++
    }
    this.#waiting.splice(0, next)
    this.#endRead()
    if (!this.#paused) startReading(this.#ws, this.#socket)
  }

  /** Queues one message for this client only. */
  send(message: DirectMessage): void {
    if (message.t === 'error') this.#context.metrics.websocketErrors.inc({ code: message.code })
    this.outbox.push(frame(this.codec.encode(message), this.codec.binary))
  }

  /** `send` for a message that is probably the only one of this turn: it is written immediately unless others are queued. */
  answer(message: DirectMessage): void {
    this.outbox.write(frame(this.codec.encode(message), this.codec.binary))
  }

  /** Queues an encoded message. Returns the size of its frame in bytes. */
  sendEncoded(payload: Payload): number {
    const bytes = frame(payload, this.codec.binary)
    this.outbox.push(bytes)
    return bytes.length
  }

  /** Announces the room of the next frames. Must be called before frames of a room's stream, and before acks. */
  address(roomId: string): void {
    if (roomId === this.#room) return
    this.#room = roomId
    this.outbox.inStep?.leave()
    this.outbox.inStep = undefined
    const address = this.codec.address(roomId)
    if (address) this.outbox.push(frame(address, this.codec.binary))
  }

  /** Queues an `error` with a code of the table, a text for people, and the request or message that it is about, if known. */
  sendError(code: ErrorCode, message: string, { request_id, room_id, ref, match }: ErrorAbout = {}): void {
    this.send({
      t: 'error',
      code,
      message,
      retryable: ERRORS[code].retryable,
      ...(request_id !== undefined && { request_id }),
      ...(room_id !== undefined && { room_id }),
      ...(ref !== undefined && { ref }),
      ...(match && { match }),
    })
  }

  /** Pauses for this many milliseconds after this read, because the client exceeds its rate. */
  throttle(ms: number): void {
    this.#throttleMs = Math.max(this.#throttleMs, ms)
  }

  /** Pauses until `over` resolves, because the message that is being handled depends on its result, and has to wait. */
  holdUntil(over: Promise<void>): void {
    this.#held = over
  }

  /**
   * Closes the connection with a code of the table. Queued frames are sent first, unless `drop` says that the client does not read. No further
   * message is handled. If the client floods, no further frame is even parsed.
   */
  close(name: CloseName, reason: string, { drop = false } = {}): void {
    if (this.#closed) return
    if (!drop) this.outbox.flush()
    this.#end(name)
    this.#ws.close(CLOSE[name], truncate(reason))
    if (!FLOODS.has(name)) return
    this.#ignoreRest()
  }

  /** The client resumes on its next connection. Nothing more is sent or handled here. */
  moved(): void {
    this.send({ t: 'moved' })
    this.outbox.flush()
    this.outbox.close()
    this.#moved = true
  }

  /** Ends the TCP connection without a close frame, because the client does not respond or is gone. */
  terminate(): void {
    this.#end('lost')
    this.#ws.terminate()
  }

  /**
   * One beat of the shared sweep, once a second. Pings a client after `heartbeatSeconds` silent beats, and ends the connection after twice as many.
   * It counts beats instead of time, because to a process that was suspended all clients seem silent. Once a minute it pings every client, to
   * measure the round-trip time.
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
    // During a pause, a pong would wait, and the measured time would be wrong.
    this.#pingedAt = this.#paused ? undefined : this.#context.clock.monotonic()
    this.#ws.ping()
  }

  /** Handles the message of a frame. Returns false if it has to wait, which starts a pause. */
  #handle(data: Buffer, binary: boolean): boolean {
    if (this.#moved) {
      this.close('protocol_error', 'a message after move, the last one of its connection')
      return true
    }
    if (binary !== this.codec.binary) {
      const is = binary ? 'binary' : 'text'
      const should = this.codec.binary ? 'binary' : 'text'
      this.close('protocol_error', `${this.codec.subprotocol} needs ${should} frames, this one is ${is}`)
      return true
    }
    const isTaken = this.#take(data)
    if (!isTaken || this.turnBytes <= 0) this.#wait()
    return isTaken
  }

  /**
   * Handles one message. An overloaded node keeps only the newest of a read's messages without `ref`, because decoding all of them costs
   * too much.
   */
  #take(payload: Uint8Array): boolean {
    this.turnBytes -= payload.length
    if (this.#context.load.inputIntervalMs === 0 || !this.codec.isUnreliable(payload)) {
      return this.#takeNewest() && this.#decode(payload)
    }
    if (this.#newest) {
      this.dropped++
      this.#context.metrics.inputsDropped.inc()
    }
    this.#newest = payload
    return true
  }

  /** Handles the newest droppable message. Returns false if it, and everything behind it, has to wait. */
  #takeNewest(): boolean {
    const payload = this.#newest
    // Cleared first, because a close during `#decode` calls this method too.
    this.#newest = undefined
    if (!payload || this.#decode(payload)) return true
    this.#newest = payload
    return false
  }

  /** Decodes and handles one message. False: it has to wait. */
  #decode(payload: Uint8Array): boolean {
    this.turnBytes -= BYTES_PER_MESSAGE
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
   * Handles all queued messages, because nothing more will arrive. Their number needs no bound: one read of the socket is the most that can be
   * queued.
   */
  #handleWaiting(): void {
    for (const { data, binary } of this.#waiting.splice(0)) if (!this.#closed) this.#handle(data, binary)
  }

  /** The end of the data that could be handled: handles the newest droppable message, and starts the pause before the next read, if any. */
  #endRead(): void {
    if (!this.#paused && !this.#closed && (!this.#takeNewest() || this.#throttleMs > 0)) this.#wait()
    // The buffer of the read is reused.
    if (this.#newest) this.#newest = Buffer.from(this.#newest)
    if (this.#paused || this.#closed || !this.#wasRead) return
    this.#wasRead = false
    this.#context.polling.read(this)
  }

  /** Pauses until the `hello` or token in front of a message is answered, until the client is within its rate, or until others had their turn. */
  #wait(): void {
    if (this.#closed || this.#paused) return
    const { clock, polling } = this.#context
    const held = this.#held
    const ms = Math.ceil(this.#throttleMs)
    if (held) {
      this.pause()
      void held.then(() => this.wake())
    } else if (ms > 0) {
      this.pause('rate')
      clock.schedule(ms, () => this.wake())
    } else polling.nextTurn(this)
  }

  /** Reads and drops further data. A socket that is destroyed with unread bytes is reset, which can lose the close frame. */
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
    // For the closing handshake.
    if (this.#paused) startReading(this.#ws, this.#socket)
    this.outbox.close()
    countClose(this.#context.metrics, name)
    this.#listener.closed(name)
  }
}

/** Encodes a pong frame with the payload of its ping, which has at most 125 bytes. */
function pong(payload: Buffer): Frame {
  const bytes = new Uint8Array(2 + payload.length)
  bytes.set([0x8a, payload.length])
  bytes.set(payload, 2)
  return bytes
}

/** Cuts a text between characters, to at most 123 bytes of UTF-8. */
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

/** For others, `ending` is read-only. */
const setEnding = (connection: { ending: boolean }): void => {
  connection.ending = true
}
