import { Backoff } from '../../client/backoff.ts'
import type { WebSocketLike } from '../../client/index.ts'
import { MsgpackClientCodec } from '../../shared/protocol/client-codec.ts'
import { CLOSE, closeName } from '../../shared/protocol/close-codes.ts'
import type { DecodedMessage } from '../../shared/protocol/codec.ts'
import type { ClientMessage } from '../../shared/protocol/messages.ts'
import type { ClientParts, Credentials } from './client-parts.ts'
import { type Glance, glance } from './frame.ts'
import { Line } from './metered-socket.ts'

const BACKOFF_BASE_MS = 250
const BACKOFF_MAX_MS = 10_000
const JOIN_REF = 1

type Stream = Extract<Glance, { readonly seq: number }>

/**
 * One client that only watches a room: it looks at the sequence numbers of what arrives, but keeps no state, so that thousands fit in
 * one thread. It resumes its session as the protocol says.
 */
export class Spectator {
  readonly number: number
  readonly #parts: ClientParts
  readonly #credentials: Credentials
  readonly #room_id: string
  readonly #key: string
  readonly #codec = new MsgpackClientCodec()
  readonly #line: Line
  readonly #backoff: Backoff
  #socket: WebSocketLike | undefined
  #session: { readonly session_id: string; readonly resume_token: string } | undefined
  /** Where it stands in the room; undefined until the first snapshot. */
  #at: { readonly epoch: number; readonly seq: number } | undefined
  /** Somebody waits for the first snapshot. */
  #arrived = () => {}
  /** Somebody waits for it to be back. */
  #back = () => {}
  #joining_since = 0
  #connecting_since = 0
  #lost_at = 0
  #move_in_ms: number | undefined
  #updates = 0
  #online = false
  #over = false
  #cancelTimer = () => {}

  constructor(number: number, key: string, credentials: Credentials, parts: ClientParts) {
    this.number = number
    this.#parts = parts
    this.#credentials = credentials
    this.#key = key
    this.#room_id = `${parts.settings.room_type}:${key}`
    this.#backoff = new Backoff(parts.random, BACKOFF_BASE_MS, BACKOFF_MAX_MS)
    this.#line = new Line(parts.settings.ws_urls, number, {
      received: (frame) => this.#received(frame),
      sent: (frame) => {
        parts.tally.counts.bytes_out += frame.length
      },
      read: () => undefined,
    })
  }

  /** Patches and whole states received. */
  get updates(): number {
    return this.#updates
  }

  get online(): boolean {
    return this.#online
  }

  /** Whether it may still come back when it is not there. */
  get alive(): boolean {
    return !this.#over
  }

  /** Connects and joins; resolves when the first snapshot is here, or none will come. Failures are counted. */
  watch(due: number): Promise<void> {
    this.#connecting_since = due
    return new Promise((resolve) => {
      this.#arrived = resolve
      this.#dial()
    })
  }

  /** Ends its connection without a goodbye; resolves when it is back, or will not come back. */
  cut(): Promise<void> {
    return new Promise((resolve) => {
      this.#back = resolve
      this.#line.cut()
    })
  }

  stall(): void {
    this.#line.stall()
  }

  /** Resolves when it has read what waited, or the service has closed it. */
  readOn(): Promise<void> {
    return this.#line.readOn()
  }

  /** Says goodbye. */
  close(): void {
    this.#end()
    this.#socket?.close(CLOSE.normal.code)
  }

  #dial(): void {
    const socket = new this.#line.WebSocket(this.#parts.settings.ws_urls[0]!, [this.#codec.subprotocol])
    this.#socket = socket
    socket.binaryType = 'arraybuffer'
    socket.onopen = () => this.#say(this.#hello())
    socket.onclose = ({ code, reason }: { code: number; reason: string }) => this.#closed(code, reason)
    // A close follows every error and says more.
    socket.onerror = () => {}
  }

  #hello(): ClientMessage {
    const { project_id, token } = this.#credentials
    if (!this.#session) return { t: 'hello', project_id, token }
    const rooms = this.#at ? [{ room_id: this.#room_id, ...this.#at }] : []
    return { t: 'hello', project_id, resume: { ...this.#session, rooms } }
  }

  #say(message: ClientMessage): void {
    this.#socket?.send(this.#codec.encode(message) as Uint8Array<ArrayBuffer>)
  }

  #received(frame: Uint8Array): void {
    const { counts } = this.#parts.tally
    counts.bytes_in += frame.length
    const seen = glance(frame)
    if (seen.kind === 'other') this.#answer(this.#codec.decode(frame))
    else if (seen.kind === 'draining') this.#drain(seen.reconnect_in_ms)
    else if (seen.kind !== 'ack' && seen.room_id === this.#room_id) this.#follow(seen)
  }

  #follow(seen: Stream): void {
    const { counts } = this.#parts.tally
    if (seen.kind === 'patch' || seen.kind === 'whole') {
      counts.updates += 1
      this.#updates += 1
    }
    if (seen.kind === 'event') counts.events += 1
    const at = this.#at
    if (at && seen.epoch < at.epoch) return
    if (seen.kind === 'whole') this.#whole(seen)
    else if (!at) return
    else if (seen.kind === 'patch' ? seen.seq === at.seq + 1 : seen.seq <= at.seq + 1)
      this.#at = { epoch: seen.epoch, seq: Math.max(at.seq, seen.seq) }
    else {
      const text = `spectator ${this.number} in ${this.#room_id}: after seq ${at.seq} came ${seen.seq}`
      this.#parts.book.note('gap', text)
      this.#at = { epoch: seen.epoch, seq: seen.seq }
    }
  }

  #whole({ epoch, seq }: Stream): void {
    const { tally, clock } = this.#parts
    if (!this.#at) {
      tally.counts.joins += 1
      tally.time('join', clock.monotonic() - this.#joining_since)
      this.#arrived()
    }
    this.#at = { epoch, seq }
  }

  #answer(message: DecodedMessage): void {
    if (message.t === 'welcome') this.#welcome(message)
    else if (message.t === 'error') {
      this.#parts.tally.fail(message.code, message.message)
      this.#arrived()
    }
  }

  #welcome(welcome: Extract<DecodedMessage, { t: 'welcome' }>): void {
    const { tally, clock } = this.#parts
    const { session_id, resume_token, rooms } = welcome
    const now = clock.monotonic()
    const first = this.#session === undefined
    this.#online = true
    this.#back()
    this.#session = { session_id, resume_token }
    this.#move_in_ms = undefined
    if (first) {
      tally.counts.connects += 1
      tally.time('connect', now - this.#connecting_since)
    } else if (this.#at && !rooms?.some(({ room_id }) => room_id === this.#room_id)) {
      tally.fail('session_lost', `spectator ${this.number} came back, and its seat was gone`)
      this.#at = undefined
    } else {
      tally.counts.resumes += 1
      tally.time('resume', now - this.#lost_at)
      this.#backoff.reset()
    }
    if (this.#at) return
    this.#joining_since = now
    this.#say({
      t: 'join',
      ref: JOIN_REF,
      room_type: this.#parts.settings.room_type,
      options: { key: this.#key },
    })
  }

  #drain(reconnect_in_ms: number): void {
    this.#move_in_ms = 0
    this.#cancelTimer = this.#parts.clock.schedule(reconnect_in_ms, () => this.#socket?.close())
  }

  #closed(code: number, reason: string): void {
    const { clock, tally } = this.#parts
    const was_online = this.#online
    this.#cancelTimer()
    this.#online = false
    if (this.#over) return
    const name = closeName(code)
    if (name && CLOSE[name].retry !== 'resume') {
      if (!(this.#credentials.doomed && name === 'key_revoked'))
        tally.fail(name, reason || CLOSE[name].meaning)
      this.#end()
      return
    }
    if (!this.#session) {
      tally.fail('connection_failed', `spectator ${this.number} got no connection (close code ${code})`)
      this.#end()
      return
    }
    if (was_online) this.#lost_at = clock.monotonic()
    this.#cancelTimer = clock.schedule(this.#move_in_ms ?? this.#backoff.next(), () => this.#dial())
  }

  #end(): void {
    this.#over = true
    this.#online = false
    this.#cancelTimer()
    this.#arrived()
    this.#back()
  }
}
