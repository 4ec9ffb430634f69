import { Backoff } from '../../client/backoff.ts'
import type { WebSocketLike } from '../../client/index.ts'
import { MsgpackClientCodec } from '../../shared/protocol/client-codec.ts'
import { CLOSE, closeName } from '../../shared/protocol/close-codes.ts'
import type { DecodedMessage } from '../../shared/protocol/codec.ts'
import type { ClientMessage } from '../../shared/protocol/messages.ts'
import type { ClientParts, Credentials } from './client-parts.ts'
import { type Glance, glance } from './frame.ts'
import { Line } from './metered-socket.ts'
import { Retries } from './retries.ts'
import { behind, type Newest, type Seen } from './seen.ts'

/** As the SDK does it. */
const BACKOFF_BASE_MS = 250
const BACKOFF_MAX_MS = 10_000
/** From dialling to the welcome. */
const ATTEMPT_MS = 10_000
/** A connection that lasted this long was a good one: the next loss starts with short waits again. */
const STABLE_MS = 5000
/** How long a first connection may take, retries included. */
const CONNECT_MS = 30_000
/** How long the answer to a join may take. */
const JOIN_MS = 30_000
const JOIN_REF = 1
/** As the SDK has it: after so many heartbeats without a word the service is taken for lost. */
const SILENT_HEARTBEATS = 2

type Stream = Extract<Glance, { readonly seq: number }>

/**
 * One client that only watches a room: it looks at the sequence numbers of what arrives, but keeps no state, so that thousands fit in
 * one thread. It tries again and resumes its session as the SDK does; that it gave up is a failure, that it tried again is none.
 */
export class Spectator {
  readonly number: number
  readonly #parts: ClientParts
  readonly #credentials: Credentials
  readonly #room_id: string
  readonly #key: string
  readonly #line: Line
  readonly #backoff: Backoff
  readonly #retries: Retries
  /** Kept across the connections of one session. */
  #codec = new MsgpackClientCodec()
  #socket: WebSocketLike | undefined
  #session: { readonly session_id: string; readonly resume_token: string } | undefined
  /** Resumes asked for since the last welcome. */
  #unanswered_resumes = 0
  /** Where it stands in the room; undefined until the first snapshot. */
  #at: { readonly epoch: number; readonly seq: number } | undefined
  /** Somebody waits for the first snapshot. */
  #arrived = () => {}
  /** Somebody waits for it to be back. */
  #back = () => {}
  #joining_since = 0
  #connecting_since = 0
  #lost_at = 0
  #welcomed_at = 0
  /** For how long the service keeps its session. */
  #kept_seconds = 0
  #moving = false
  #updates = 0
  #online = false
  #over = false
  /** Cancels the one timer there is: the attempt's deadline, the wait for the next, or the wait for a move. */
  #cancelTimer = () => {}
  #cancelPatience = () => {}
  #heard_at = 0
  #cancelPulse = () => {}

  constructor(number: number, key: string, credentials: Credentials, parts: ClientParts) {
    this.number = number
    this.#parts = parts
    this.#credentials = credentials
    this.#key = key
    this.#room_id = `${parts.settings.room_type}:${key}`
    this.#backoff = new Backoff(parts.random, BACKOFF_BASE_MS, BACKOFF_MAX_MS)
    this.#retries = new Retries(parts.tally)
    this.#line = new Line(parts.settings.ws_urls, number, {
      dialled: () => this.#retries.dialled(),
      received: (frame) => this.#received(frame),
      sent: (frame) => {
        parts.tally.counts.bytes_out += frame.length
      },
      read: () => undefined,
      dismissed: () => undefined,
    })
  }

  /** Patches and whole states received. */
  get updates(): number {
    return this.#updates
  }

  get online(): boolean {
    return this.#online
  }

  /** How far it has seen its room; undefined: it is in none, or not connected. */
  get seen(): Seen | undefined {
    return this.#online && this.#at ? { room_id: this.#room_id, ...this.#at } : undefined
  }

  /** Writes down what others have seen and it has not. To be called when that should have come. */
  judge(newest: Newest): void {
    const missing = this.seen === undefined ? 0 : behind(this.seen, newest)
    if (missing === 0) return
    const text = `spectator ${this.number} in ${this.#room_id}: nothing came after seq ${this.#at!.seq}, and others have seen ${missing} more`
    this.#parts.book.note('gap', text)
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
      this.#lookForward(CONNECT_MS)
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

  /** The run is over: one that has tried to come back for longer than the longest wait between two attempts has failed to. */
  giveUp(): void {
    const { clock, tally } = this.#parts
    const gone_ms = clock.monotonic() - this.#lost_at
    if (this.#over || this.#online || !this.#session || gone_ms < BACKOFF_MAX_MS) return
    const gone = `${Math.round(gone_ms / 1000)} s (${this.#retries.count} retries)`
    tally.fail('connection_lost', `spectator ${this.number} was not back after ${gone}, when the run ended`)
    this.#end()
    this.#line.cut()
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
    this.#wait(ATTEMPT_MS, () => this.#line.cut())
  }

  #hello(): ClientMessage {
    const { project_id, token } = this.#credentials
    if (!this.#session) return { t: 'hello', project_id, token }
    this.#unanswered_resumes += 1
    const rooms = this.#at ? [{ room_id: this.#room_id, ...this.#at }] : []
    return { t: 'hello', project_id, resume: { ...this.#session, rooms } }
  }

  #say(message: ClientMessage): void {
    this.#socket?.send(this.#codec.encode(message) as Uint8Array<ArrayBuffer>)
  }

  #received(frame: Uint8Array): void {
    const { counts } = this.#parts.tally
    this.#heard_at = this.#parts.clock.monotonic()
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
      this.#cancelPatience()
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
      this.#cancelPatience()
      this.#arrived()
    }
  }

  #welcome(welcome: Extract<DecodedMessage, { t: 'welcome' }>): void {
    const { tally, clock } = this.#parts
    const { session_id, resume_token, resume_ttl_seconds, heartbeat_seconds, rooms } = welcome
    const now = clock.monotonic()
    const first = this.#session === undefined
    this.#cancelTimer()
    this.#cancelPatience()
    this.#retries.connected()
    this.#online = true
    this.#welcomed_at = now
    this.#kept_seconds = resume_ttl_seconds
    this.#unanswered_resumes = 0
    this.#keepAlive(heartbeat_seconds * 1000)
    this.#back()
    this.#session = { session_id, resume_token }
    if (first) {
      tally.counts.connects += 1
      tally.time('connect', now - this.#connecting_since)
    } else if (this.#at && !rooms?.some(({ room_id }) => room_id === this.#room_id)) {
      tally.fail('session_lost', `spectator ${this.number} came back, and its seat was gone`)
      this.#at = undefined
    } else {
      tally.counts.resumes += 1
      tally.time('resume', now - this.#lost_at)
    }
    if (this.#at) return
    this.#joining_since = now
    this.#lookForward(JOIN_MS)
    this.#say({
      t: 'join',
      ref: JOIN_REF,
      room_type: this.#parts.settings.room_type,
      options: { key: this.#key },
    })
  }

  /** Says a word each `period_ms`, and ends a connection on which the service has said none for long: one that hangs looks open. */
  #keepAlive(period_ms: number): void {
    const { clock } = this.#parts
    this.#cancelPulse()
    this.#cancelPulse = clock.schedule(period_ms, () => {
      if (clock.monotonic() - this.#heard_at >= SILENT_HEARTBEATS * period_ms) {
        this.#line.cut()
        return
      }
      this.#say({ t: 'ping', at: clock.monotonic() })
      this.#keepAlive(period_ms)
    })
  }

  #drain(reconnect_in_ms: number): void {
    this.#wait(reconnect_in_ms, () => {
      this.#moving = true
      this.#socket?.close()
    })
  }

  #closed(code: number, reason: string): void {
    const was_online = this.#online
    this.#cancelTimer()
    this.#cancelPulse()
    this.#online = false
    if (this.#over) return
    if (was_online) this.#lost()
    const name = closeName(code)
    if (name === 'resume_failed' || (name === 'session_taken_over' && this.#unanswered_resumes > 1))
      this.#forget(reason)
    else if (name && CLOSE[name].retry !== 'resume') {
      if (!(this.#credentials.doomed && name === 'key_revoked'))
        this.#parts.tally.fail(name, reason || CLOSE[name].meaning)
      this.#end()
      return
    }
    const wait_ms = this.#moving ? 0 : this.#backoff.next()
    this.#moving = false
    this.#wait(wait_ms, () => this.#dial())
  }

  /** The connection is gone; the service keeps the session for a while. */
  #lost(): void {
    const now = this.#parts.clock.monotonic()
    this.#lost_at = now
    if (now - this.#welcomed_at >= STABLE_MS) this.#backoff.reset()
    this.#lookForward(this.#kept_seconds * 1000)
  }

  /** The session cannot be resumed (a second resume is also refused when only the answer to the first was lost): it begins anew. */
  #forget(reason: string): void {
    const { tally, clock } = this.#parts
    tally.fail('session_lost', `spectator ${this.number}: ${reason || CLOSE.resume_failed.meaning}`)
    this.#session = undefined
    this.#at = undefined
    this.#unanswered_resumes = 0
    this.#codec = new MsgpackClientCodec()
    this.#connecting_since = clock.monotonic()
    this.#lookForward(CONNECT_MS)
  }

  /** Gives up unless it is connected, or in its room, within `patience_ms`. */
  #lookForward(patience_ms: number): void {
    const { clock, tally } = this.#parts
    this.#cancelPatience()
    this.#cancelPatience = clock.schedule(patience_ms, () => {
      const within = `within ${patience_ms / 1000} s (${this.#retries.count} retries)`
      if (this.#online)
        tally.fail('join_unanswered', `spectator ${this.number} had no answer to its join ${within}`)
      else if (this.#session)
        tally.fail('connection_lost', `spectator ${this.number} did not come back ${within}`)
      else tally.fail('connection_failed', `spectator ${this.number} got no connection ${within}`)
      this.#end()
      this.#line.cut()
    })
  }

  #wait(delay_ms: number, callback: () => void): void {
    this.#cancelTimer()
    this.#cancelTimer = this.#parts.clock.schedule(delay_ms, callback)
  }

  #end(): void {
    this.#over = true
    this.#online = false
    this.#cancelTimer()
    this.#cancelPulse()
    this.#cancelPatience()
    this.#arrived()
    this.#back()
  }
}
