import { type Client, type ConnectionStatus, connect, type Room, RoomfulError } from '../../client/index.ts'
import { CLOSE } from '../../shared/protocol/close-codes.ts'
import type { LoadRoom, Milestone } from '../rooms/load.ts'
import type { ClientParts, Credentials } from './client-parts.ts'
import { asked, glance } from './frame.ts'
import type { Closing } from './lookout.ts'
import { Member } from './member.ts'
import { Line } from './metered-socket.ts'
import { patiently } from './patience.ts'
import { Retries } from './retries.ts'
import type { Seen } from './seen.ts'

/** How long a first connection may take, retries included. */
const CONNECT_MS = 30_000
/** A generator that cannot get rid of its messages is to find out by their times, not by a full queue. */
const MOST_UNACKED = 100_000
const MOST_UNACKED_BYTES = 64 * 1024 * 1024

/** Why a client is not there any more, or is about to go, without that being a failure. */
type Farewell = 'closed by us' | 'revoked' | 'read too slowly'

/** One client of the load: the real SDK, with everything it sends and receives looked at. */
export class Player {
  readonly number: number
  readonly #parts: ClientParts
  readonly #doomed: boolean
  readonly #credentials: Credentials
  readonly #line: Line
  readonly #retries: Retries
  #client: Client | undefined
  #room: Room<LoadRoom> | undefined
  #member: Member | undefined
  /** When each message that is not settled was due, by a number of its own. */
  readonly #open = new Map<number, number>()
  #sends = 0
  #updates = 0
  #events = 0
  #longest_ms = 0
  /** Between two rooms: says nothing. */
  #moving = false
  /** Neither reads nor says anything. */
  #stalled = false
  #lost_at = 0
  /** It has asked for another session after its first. */
  #anew = false
  /** Somebody waits for it to be back. */
  #back = () => {}
  #resyncs = { sequence: 0, checksum: 0 }
  #farewell: Farewell | undefined
  #closing: Closing | undefined

  constructor(number: number, credentials: Credentials, parts: ClientParts) {
    this.number = number
    this.#parts = parts
    this.#doomed = credentials.doomed
    this.#credentials = credentials
    this.#retries = new Retries(parts.tally)
    this.#line = new Line(parts.settings.ws_urls, number, {
      dialled: () => this.#retries.dialled(),
      received: (frame) => this.#received(frame),
      sent: (frame) => this.#sent(frame),
      read: () => this.#member?.witness.read(),
      dismissed: (code) => this.#dismissed(code),
    })
  }

  /** Patches and whole states received. */
  get updates(): number {
    return this.#updates
  }

  get events(): number {
    return this.#events
  }

  get online(): boolean {
    return this.#client?.status === 'online'
  }

  /** Whether it may still come back when it is not there. */
  get alive(): boolean {
    return this.#client !== undefined && this.#client.status !== 'closed'
  }

  get in_room(): boolean {
    return this.#room?.status === 'joined'
  }

  /** How far it has seen its room; undefined: it is in none, or not connected. */
  get seen(): Seen | undefined {
    return this.online && this.in_room ? this.#member?.seen : undefined
  }

  /** Whether its room counts what it applies. */
  get counted(): boolean {
    return this.#member !== undefined && this.#parts.settings.message === undefined
  }

  /** Whether it came under the key that is to be revoked. */
  get doomed(): boolean {
    return this.#doomed
  }

  /** How it was closed after the revocation of its key; undefined: it was not. */
  get closing(): Closing | undefined {
    return this.#farewell === 'revoked' ? this.#closing : undefined
  }

  /** Connects, which was due at a moment of the monotonic clock. Failures are counted. */
  async connect(due: number): Promise<void> {
    const { tally, clock, random, settings } = this.#parts
    const { project_id, token } = this.#credentials
    try {
      this.#client = await connect(settings.ws_urls[0]!, {
        projectId: project_id,
        token,
        WebSocket: this.#line.WebSocket,
        connectTimeoutMs: CONNECT_MS,
        maxUnacked: MOST_UNACKED,
        maxUnackedBytes: MOST_UNACKED_BYTES,
        random,
        onError: (error) => this.#fail(error),
      })
    } catch (error) {
      this.#fail(error)
      return
    }
    this.#retries.connected()
    tally.time('connect', clock.monotonic() - due)
    tally.counts.connects += 1
    this.#client.onConnectionChange((status, error) => this.#changed(status, error))
  }

  /** Joins a room, which was due at a moment of the monotonic clock. Failures are counted. */
  async join(key: string, due: number): Promise<void> {
    const client = this.#client
    if (!client || !this.alive) return
    const { tally, clock, settings } = this.#parts
    try {
      const joined = client.join<LoadRoom>(settings.room_type as 'load', { key })
      this.#room = await this.#answer('join', joined)
    } catch (error) {
      this.#fail(error)
      return
    }
    tally.time('join', clock.monotonic() - due)
    tally.counts.joins += 1
    this.#begin()
    this.#room?.onStateChange(() => this.#member?.look(clock.monotonic()))
    this.#room?.onLeave((reason, error) => {
      if (reason === 'left' || reason === 'client_closed') return
      this.#fail(`client ${this.number} is out of its room: ${error?.message ?? reason}`, reason)
    })
    if (!settings.message)
      this.#room?.onMessage('milestone', (data) => this.#member?.event((data as unknown as Milestone).number))
  }

  /** Leaves its room, when everything said there is settled, and joins another. */
  async move(key: string, due: number): Promise<void> {
    if (!this.#room || this.#moving || this.#stalled || !this.in_room) return
    const { tally, clock } = this.#parts
    this.#moving = true
    await this.settle(clock.monotonic() + 5000)
    this.judge()
    this.#member = undefined
    try {
      await this.#answer('leave', this.#room.leave())
      if (this.alive) tally.counts.leaves += 1
      this.#room = undefined
    } catch (error) {
      this.#fail(error)
    }
    await this.join(key, due)
    this.#moving = false
  }

  /** Says something that was due at a moment of the monotonic clock. */
  say(due: number, text: string): void {
    const { tally, clock, settings } = this.#parts
    if (!this.#room || this.#moving || this.#stalled || this.#room.status === 'left') return
    if (this.#member?.gone) this.#begin()
    const member = this.#member!
    member.said += 1
    const id = ++this.#sends
    this.#open.set(id, due)
    tally.counts.sends += 1
    tally.late(clock.monotonic() - due)
    const { message } = settings
    const sent = message
      ? this.#room.send(message.type as 'op', message.data as never)
      : this.#room.send('op', { n: member.said, text })
    sent.then(
      () => {
        member.acked += 1
        tally.counts.acks += 1
        if (this.#open.has(id)) tally.time('rtt', this.#settled(id, due))
      },
      (error: unknown) => {
        this.#settled(id, due)
        member.refused += 1
        // Not that a resume failed, which is told once, but what became of one message.
        this.#fail(error, codeOf(error) === 'resume_failed' ? 'fate_unknown' : undefined)
      },
    )
  }

  /** Resolves when everything said is settled and seen, or at `deadline` (monotonic clock). */
  async settle(deadline: number): Promise<void> {
    const { clock } = this.#parts
    while (this.alive && this.#member?.settled === false && clock.monotonic() < deadline)
      await new Promise<void>((resolve) => clock.schedule(20, resolve))
  }

  /** Writes down what should be settled and is not. */
  judge(): void {
    this.#inspect()
    if (this.alive && this.#member && !this.#member.gone)
      this.#member.judge(this.#parts.clock.monotonic(), this.online)
  }

  /** To be called about once a second. */
  review(now: number): void {
    this.#member?.witness.review(now)
  }

  /** Ends its connection without a goodbye; resolves when it is back, or will not come back, or has been away for long, a failure. */
  cut(): Promise<void> {
    const back = new Promise<void>((resolve) => {
      this.#back = resolve
      this.#line.cut()
    })
    return patiently(this.#parts.clock, back, (within) => {
      this.#fail(`client ${this.number} was not back ${within}`, 'connection_lost')
      this.#back()
    })
  }

  /** Neither reads nor says anything until `readOn`. */
  stall(): void {
    this.#stalled = true
    this.#member?.disturbed(this.#parts.clock.monotonic())
    this.#line.stall()
  }

  /** Resolves when it has read what waited, or the service has closed it. */
  async readOn(): Promise<void> {
    await this.#line.readOn()
    this.#stalled = false
    this.#member?.disturbed(this.#parts.clock.monotonic())
  }

  /** Whether the service closed it since it read too slowly. */
  get dropped(): boolean {
    return this.#farewell === 'read too slowly'
  }

  markPause(): void {
    this.#longest_ms = 0
  }

  /** Times the longest wait since the mark, that for what is still open included. */
  takePause(): void {
    const { clock, tally } = this.#parts
    const [oldest] = this.#open.values()
    const waiting = oldest === undefined ? 0 : clock.monotonic() - oldest
    const longest = Math.max(this.#longest_ms, waiting)
    if (longest > 0) tally.time('pause', longest)
  }

  /**
   * Nothing is waited for any more: what has no answer is a failure, and timed as having taken this long, so that the slowest are not
   * left out.
   */
  giveUp(): void {
    const { tally } = this.#parts
    for (const [id, due] of this.#open) tally.time('rtt', this.#settled(id, due))
    if (this.#room?.status === 'rejoining' && !this.online)
      tally.fail('session_lost', `client ${this.number} lost its session, and had no new one by the end`)
    const { said = 0, unanswered = 0 } = this.#member ?? {}
    if (unanswered === 0) return
    const place = this.in_room ? 'in its room' : 'in no room'
    const where = this.online ? `connected, and ${place}` : 'not connected'
    const text = `client ${this.number} had no answer to ${unanswered} of ${said} messages by the end; it was ${where}`
    tally.fail('unanswered', text, unanswered)
  }

  /** Says goodbye. */
  close(): void {
    this.#inspect()
    this.#farewell ??= 'closed by us'
    this.#client?.close()
  }

  /** What the service answers. Who has none for long counts that as a failure, and goes. */
  #answer<T>(what: 'join' | 'leave', answer: Promise<T>): Promise<T> {
    return patiently(this.#parts.clock, answer, (within) => {
      this.#fail(`client ${this.number} had no answer to its ${what} ${within}`, `${what}_unanswered`)
      this.close()
    })
  }

  /** It is a member anew. */
  #begin(): void {
    const { book, settings } = this.#parts
    if (!this.#room) return
    this.#inspect()
    this.#member = new Member(this.#room, `client ${this.number}`, book, settings.message === undefined)
  }

  /** A message has had its effect, or never will; how long it took. */
  #settled(id: number, due: number): number {
    const ms = this.#parts.clock.monotonic() - due
    this.#open.delete(id)
    this.#longest_ms = Math.max(this.#longest_ms, ms)
    return ms
  }

  #changed(status: ConnectionStatus, error: RoomfulError | undefined): void {
    const { tally, clock } = this.#parts
    const now = clock.monotonic()
    this.#member?.disturbed(now)
    if (status !== 'reconnecting') this.#back()
    if (status === 'reconnecting') this.#lost_at = now
    else if (status === 'online') {
      this.#retries.connected()
      const away_ms = now - this.#lost_at
      if (this.#anew) {
        const away = `after ${(away_ms / 1000).toFixed(1)} s without a connection`
        tally.fail('session_lost', `client ${this.number} lost its session, and has a new one ${away}`)
      } else {
        tally.counts.resumes += 1
        tally.time('resume', away_ms)
      }
      this.#anew = false
    } else if (status === 'closed' && !this.#farewell) this.#closed(error)
  }

  #closed(error: RoomfulError | undefined): void {
    if (this.#doomed && error?.code === 'key_revoked') {
      this.#farewell = 'revoked'
    } else if (this.#stalled && error?.code === 'slow_consumer') this.#farewell = 'read too slowly'
    else this.#fail(error)
  }

  #dismissed(code: number): void {
    if (code !== CLOSE.key_revoked.code) return
    const { clock, lookout } = this.#parts
    this.#closing = { seen_at: clock.now(), open_at: lookout.looked_at }
  }

  #received(frame: Uint8Array): void {
    const { tally, clock } = this.#parts
    tally.counts.bytes_in += frame.length
    const seen = glance(frame)
    if (seen.kind === 'patch' || seen.kind === 'whole') {
      tally.counts.updates += 1
      this.#updates += 1
    }
    if (seen.kind === 'event') {
      tally.counts.events += 1
      this.#events += 1
    }
    const member = this.#member
    if (!member || seen.kind === 'other') return
    if (seen.kind === 'draining') member.disturbed(clock.monotonic())
    else if (seen.room_id !== this.#room?.id) return
    else if (seen.kind === 'ack') member.witness.acked(seen.ref)
    else member.update(seen.kind === 'whole', seen.epoch, seen.seq, clock.monotonic())
  }

  #sent(frame: Uint8Array): void {
    this.#parts.tally.counts.bytes_out += frame.length
    const wish = asked(frame)
    if (wish.kind === 'resync') this.#inspect()
    else if (wish.kind === 'new session') this.#anew = this.#client !== undefined
    else if (wish.kind === 'message' && wish.n !== undefined) this.#member?.witness.sent(wish.ref, wish.n)
  }

  /** Writes down why the SDK had to ask for the whole state, since the last time. */
  #inspect(): void {
    if (!this.#client) return
    const { sequence, checksum } = this.#client.stats.resyncs
    const { book } = this.#parts
    const who = `client ${this.number} in ${this.#room?.id ?? 'no room'}`
    if (sequence > this.#resyncs.sequence)
      book.note('gap', `${who}: an update was missing`, sequence - this.#resyncs.sequence)
    if (checksum > this.#resyncs.checksum)
      book.note('checksum', `${who}: the state was not the server's`, checksum - this.#resyncs.checksum)
    this.#resyncs = { sequence, checksum }
  }

  /** Counts a failure, unless the client has gone as it should. */
  #fail(error: unknown, code = codeOf(error)): void {
    if (this.#farewell) return
    if (this.#doomed && code === 'key_revoked') return
    if (this.#stalled && code === 'slow_consumer') return
    this.#parts.tally.fail(code, error instanceof Error ? error.message : String(error))
  }
}

const codeOf = (error: unknown): string => (error instanceof RoomfulError ? error.code : 'error')
