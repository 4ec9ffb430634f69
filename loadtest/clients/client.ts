import { type Client, type ConnectionStatus, connect, type Room, RoomfulError } from '../../client/index.ts'
import { type Clock, sleep } from '../../shared/clock.ts'
import type { Json } from '../../shared/json.ts'
import { CLOSE } from '../../shared/protocol/close-codes.ts'
import { CLIENT_OPCODES, ROOM_OPCODE, SERVER_OPCODES } from '../../shared/protocol/messages.ts'
import { MsgpackReader } from '../../shared/protocol/msgpack.ts'
import { StreamContext } from '../../shared/protocol/msgpack-client-codec.ts'
import { unbatch } from '../../shared/protocol/msgpack-codec.ts'
import type { Random } from '../../shared/random.ts'
import type { FindingsLog } from '../checks.ts'
import type { LoadRoom, Milestone } from '../rooms/load.ts'
import type { PollWatch } from './loop.ts'
import { behind, Member, type Newest, type Position } from './member.ts'
import { MeteredSocket } from './socket.ts'
import type { Tally } from './tally.ts'

/** How long a first connection may take, retries included. */
const CONNECT_MS = 30_000
/** How long the service may take for an answer before a client gives up. */
const ANSWER_SECONDS = 30
/** How long a client that changes its room waits for what it has sent there. */
const MOVE_SETTLE_MS = 5000
const SETTLE_LOOK_MS = 20
/** A generator that cannot get rid of its messages is to find out by their times, not by a full queue. */
const MOST_UNACKED = 100_000
const MOST_UNACKED_BYTES = 64 * 1024 * 1024

/** What clients say hello with. */
export interface Credentials {
  readonly projectId: string
  readonly token: string
  /** They are of a key that will be revoked: that their sessions end then is expected. */
  readonly underRevokedKey: boolean
}

/** What all clients of a run have in common. Plain data. */
export interface ClientSettings {
  /** Clients are spread over these; one that lost its connection takes the next. */
  readonly wsUrls: readonly string[]
  readonly roomType: string
  /** What is sent to a room type that is not the load test's own; undefined: it is. */
  readonly message: { readonly type: string; readonly data: Json } | undefined
  /** What randomness begins with. */
  readonly seed: number
}

/** What the clients of one thread share. */
export interface ClientContext {
  readonly settings: ClientSettings
  readonly tally: Tally
  readonly findings: FindingsLog
  readonly clock: Clock
  readonly random: Random
  readonly polls: PollWatch
}

/** When the service closed a session, milliseconds since 1970. */
export interface Closing {
  /** When the client saw it. */
  readonly seenAt: number
  /** Until then it was open for certain: what is between the two may be the generator's own delay. */
  readonly openAt: number
}

/** Why a client is not there any more, or is about to go, without that being a failure. */
type Departure = 'closed by us' | 'revoked' | 'read too slowly'

/** Waits for an answer. `late` is called, with how long that was, when none has come for so long that none will. */
export async function withinPatience<T>(
  clock: Clock,
  answer: Promise<T>,
  late: (within: string) => void,
): Promise<T> {
  const cancel = clock.schedule(ANSWER_SECONDS * 1000, () => late(`within ${ANSWER_SECONDS} s`))
  try {
    return await answer
  } finally {
    cancel()
  }
}

/**
 * One client of the load: the real SDK, with everything it sends and receives looked at. A player keeps the state and checks it; a
 * spectator does not decode it, so that thousands fit in one thread.
 */
export class LoadClient {
  readonly number: number
  readonly kind: 'player' | 'spectator'
  readonly #context: ClientContext
  readonly #credentials: Credentials
  readonly #socket: MeteredSocket
  readonly #stream = new StreamContext()
  #client: Client | undefined
  #room: Room<LoadRoom> | undefined
  #member: Member | undefined
  /** When each message that is not settled was due, by a number of its own. */
  readonly #open = new Map<number, number>()
  #sends = 0
  #longestMs = 0
  /** Between two rooms: sends nothing. */
  #moving = false
  /** Neither reads nor sends. */
  #stalled = false
  #lostAt = 0
  /** Attempts to connect since it was connected last. */
  #attempts = 0
  /** It has asked for another session after its first. */
  #newSession = false
  /** Called once it is back. */
  #back = () => {}
  #resyncs = { sequence: 0, checksum: 0 }
  #departure: Departure | undefined
  #closing: Closing | undefined

  constructor(
    number: number,
    kind: 'player' | 'spectator',
    credentials: Credentials,
    context: ClientContext,
  ) {
    this.number = number
    this.kind = kind
    this.#context = context
    this.#credentials = credentials
    this.#socket = new MeteredSocket(context.settings.wsUrls, number, {
      dialled: () => this.#dialled(),
      received: (frame) => this.#received(frame),
      sent: (frame) => this.#sent(frame),
      read: () => this.#member?.acks.read(),
      closing: (code) => this.#closedWith(code),
    })
  }

  get online(): boolean {
    return this.#client?.status === 'online'
  }

  /** Whether it may still come back when it is not there. */
  get alive(): boolean {
    return this.#client !== undefined && this.#client.status !== 'closed'
  }

  get inRoom(): boolean {
    return this.#room?.status === 'joined'
  }

  /** How far it has seen its room; undefined: it is in none, or not connected. */
  get position(): Position | undefined {
    return this.online && this.inRoom ? this.#member?.position : undefined
  }

  /** Whether it came under the key that is to be revoked. */
  get underRevokedKey(): boolean {
    return this.#credentials.underRevokedKey
  }

  /** How it was closed after the revocation of its key; undefined: it was not. */
  get closing(): Closing | undefined {
    return this.#departure === 'revoked' ? this.#closing : undefined
  }

  /** Connects, which was due at a moment of the monotonic clock. Failures are counted. */
  async connect(due: number): Promise<void> {
    const { tally, clock, random, settings } = this.#context
    const { projectId, token } = this.#credentials
    try {
      this.#client = await connect(settings.wsUrls[0]!, {
        projectId,
        token,
        WebSocket: this.#socket.WebSocket,
        connectTimeoutMs: CONNECT_MS,
        decodeStates: this.kind === 'player',
        maxUnacked: MOST_UNACKED,
        maxUnackedBytes: MOST_UNACKED_BYTES,
        random,
        onError: (error) => this.#fail(error),
      })
    } catch (error) {
      this.#fail(error)
      return
    }
    this.#attempts = 0
    tally.time('connect', clock.monotonic() - due)
    tally.counts.connects += 1
    this.#client.onConnectionChange((status, error) => this.#statusChanged(status, error))
  }

  /** Joins a room, which was due at a moment of the monotonic clock. Failures are counted. */
  async join(key: string, due: number): Promise<void> {
    const client = this.#client
    if (!client || !this.alive) return
    const { tally, clock, settings } = this.#context
    try {
      const joined = client.join<LoadRoom>(settings.roomType as 'load', { key })
      this.#room = await this.#answer('join', joined)
    } catch (error) {
      this.#fail(error)
      return
    }
    tally.time('join', clock.monotonic() - due)
    tally.counts.joins += 1
    this.#beginMember()
    this.#room?.onStateChange(() => this.#member?.stateChanged(clock.monotonic()))
    this.#room?.onLeave((reason, error) => {
      if (reason === 'left' || reason === 'client_closed') return
      this.#fail(`${this.#name} is out of its room: ${error?.message ?? reason}`, reason)
    })
    if (this.#counts) this.#room?.on('milestone', (data) => this.#member?.event((data as Milestone).number))
  }

  /** Leaves its room, when everything sent there is settled, and joins another. */
  async move(key: string, due: number): Promise<void> {
    if (!this.#room || this.#moving || this.#stalled || !this.inRoom) return
    const { tally, clock } = this.#context
    this.#moving = true
    await this.settle(clock.monotonic() + MOVE_SETTLE_MS)
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

  /** Sends a message that was due at a moment of the monotonic clock; resolves when it is settled. */
  async send(due: number, text: string): Promise<void> {
    const { tally, findings, clock, settings } = this.#context
    if (!this.#room || this.#moving || this.#stalled || this.#room.status === 'left') return
    if (this.#member?.gone) this.#beginMember()
    const member = this.#member!
    member.sent += 1
    const id = ++this.#sends
    this.#open.set(id, due)
    tally.counts.sends += 1
    tally.late(clock.monotonic() - due)
    const { message } = settings
    try {
      await (message
        ? this.#room.send(message.type as 'op', message.data as never)
        : this.#room.send('op', { n: member.sent, text }))
      member.acked += 1
      tally.counts.acks += 1
      findings.seen.acks += 1
      if (this.#open.has(id)) tally.time('rtt', this.#settled(id, due))
    } catch (error) {
      this.#settled(id, due)
      member.refused += 1
      // Not that a resume failed, which is told once, but what became of one message.
      this.#fail(error, codeOf(error) === 'resume_failed' ? 'fate_unknown' : undefined)
    }
  }

  /** Sends a message that is not acked, and not resent. */
  sendUnreliable(): void {
    const { message } = this.#context.settings
    if (!message || !this.inRoom) return
    void this.#room?.send(message.type as 'op', message.data as never, { reliable: false })
  }

  /** Resolves when everything sent is settled and seen, or at `deadline` (monotonic clock). */
  async settle(deadline: number): Promise<void> {
    const { clock } = this.#context
    while (this.alive && this.#member?.settled === false && clock.monotonic() < deadline)
      await sleep(clock, SETTLE_LOOK_MS)
  }

  /** Reports what should be settled and is not. */
  judge(): void {
    this.#checkResyncs()
    if (this.alive && this.#member && !this.#member.gone)
      this.#member.judge(this.#context.clock.monotonic(), this.online)
  }

  /** Reports what others have seen of its room and it has not. To be called when that should have come. */
  judgePosition(newest: Newest): void {
    const missing = this.position === undefined ? 0 : behind(this.position, newest)
    if (missing === 0) return
    const text = `${this.#name} in ${this.#room!.id}: nothing came after seq ${this.position!.seq}, and others have seen ${missing} more`
    this.#context.findings.add('gap', text)
  }

  /** To be called about once a second. */
  review(now: number): void {
    this.#member?.acks.review(now)
  }

  /** Ends its connection without a goodbye; resolves when it is back, or will not come back, or has been away for long, a failure. */
  cut(): Promise<void> {
    const back = new Promise<void>((resolve) => {
      this.#back = resolve
      this.#socket.cut()
    })
    return withinPatience(this.#context.clock, back, (within) => {
      this.#fail(`${this.#name} was not back ${within}`, 'connection_lost')
      this.#back()
    })
  }

  /** Neither reads nor sends until `readOn`. */
  stall(): void {
    this.#stalled = true
    this.#member?.disturbed(this.#context.clock.monotonic())
    this.#socket.stall()
  }

  /**
   * Resolves with whether it has read what waited: with false when the service has ended its connection. A client that reads again more than
   * three seconds after that hears no close code, and resumes.
   */
  async readOn(): Promise<boolean> {
    const read = await this.#socket.readOn()
    this.#stalled = false
    this.#member?.disturbed(this.#context.clock.monotonic())
    return read
  }

  /** The next `takePause` counts from here. */
  markPause(): void {
    this.#longestMs = 0
  }

  /** Times the longest wait since the mark, that for what is still open included; milliseconds, 0: it waited for nothing. */
  takePause(): number {
    const { clock, tally } = this.#context
    const [oldest] = this.#open.values()
    const waiting = oldest === undefined ? 0 : clock.monotonic() - oldest
    const longest = Math.max(this.#longestMs, waiting)
    if (longest > 0) tally.time('pause', longest)
    return longest
  }

  /**
   * Nothing is waited for any more: what has no answer is a failure, and timed as having taken this long, so that the slowest are not
   * left out.
   */
  giveUp(): void {
    const { tally } = this.#context
    for (const [id, due] of this.#open) tally.time('rtt', this.#settled(id, due))
    if (this.#room?.status === 'rejoining' && !this.online)
      tally.fail('session_lost', `${this.#name} lost its session, and had no new one by the end`)
    const { sent = 0, unanswered = 0 } = this.#member ?? {}
    if (unanswered === 0) return
    const place = this.inRoom ? 'in its room' : 'in no room'
    const where = this.online ? `connected, and ${place}` : 'not connected'
    const text = `${this.#name} had no answer to ${unanswered} of ${sent} messages by the end; it was ${where}`
    tally.fail('unanswered', text, unanswered)
  }

  /** Breaks its connection, and does not come back. */
  abandon(): void {
    this.#socket.cut()
    this.close()
  }

  /** Says goodbye. */
  close(): void {
    this.#checkResyncs()
    this.#departure ??= 'closed by us'
    this.#client?.close()
  }

  get #name(): string {
    return `${this.kind === 'player' ? 'client' : 'spectator'} ${this.number}`
  }

  get #counts(): boolean {
    return this.kind === 'player' && this.#context.settings.message === undefined
  }

  /** What the service answers. A client that has no answer for long counts that as a failure, and goes. */
  #answer<T>(what: 'join' | 'leave', answer: Promise<T>): Promise<T> {
    return withinPatience(this.#context.clock, answer, (within) => {
      this.#fail(`${this.#name} had no answer to its ${what} ${within}`, `${what}_unanswered`)
      this.close()
    })
  }

  /** It is a new member of its room. */
  #beginMember(): void {
    if (!this.#room) return
    this.#checkResyncs()
    const { findings } = this.#context
    this.#member = new Member(this.#room, this.#name, findings, this.#counts)
    if (this.#counts) findings.seen.countedMembers += 1
  }

  /** A message has had its effect, or never will; how long it took. */
  #settled(id: number, due: number): number {
    const ms = this.#context.clock.monotonic() - due
    this.#open.delete(id)
    this.#longestMs = Math.max(this.#longestMs, ms)
    return ms
  }

  #statusChanged(status: ConnectionStatus, error: RoomfulError | undefined): void {
    const { tally, clock } = this.#context
    const now = clock.monotonic()
    this.#member?.disturbed(now)
    if (status !== 'reconnecting') this.#back()
    if (status === 'reconnecting') this.#lostAt = now
    else if (status === 'online') {
      this.#attempts = 0
      const awayMs = now - this.#lostAt
      if (this.#newSession) {
        const away = `after ${(awayMs / 1000).toFixed(1)} s without a connection`
        tally.fail('session_lost', `${this.#name} lost its session, and has a new one ${away}`)
      } else {
        tally.counts.resumes += 1
        tally.time('resume', awayMs)
      }
      this.#newSession = false
    } else if (status === 'closed' && !this.#departure) this.#ended(error)
  }

  #ended(error: RoomfulError | undefined): void {
    if (this.underRevokedKey && error?.code === 'key_revoked') this.#departure = 'revoked'
    else if (this.#stalled && error?.code === 'slow_consumer') this.#departure = 'read too slowly'
    else this.#fail(error)
  }

  #closedWith(code: number): void {
    if (code !== CLOSE.key_revoked.code) return
    const { clock, polls } = this.#context
    this.#closing = { seenAt: clock.now(), openAt: polls.polledAt }
  }

  #dialled(): void {
    this.#attempts += 1
    if (this.#attempts > 1) this.#context.tally.counts.retries += 1
  }

  #received(frame: Uint8Array): void {
    const { tally, clock } = this.#context
    const all = this.#context.findings.seen
    tally.counts.bytes_in += frame.length
    const seen = peekServerFrame(frame, this.#stream)
    if (seen.kind === 'patch' || seen.kind === 'whole') {
      tally.counts.updates += 1
      all.updates += 1
      if (this.kind === 'player') all.playerUpdates += 1
    }
    if (seen.kind === 'event') {
      tally.counts.events += 1
      if (this.kind === 'player') all.playerEvents += 1
    }
    const member = this.#member
    if (!member || seen.kind === 'other') return
    if (seen.kind === 'draining') member.disturbed(clock.monotonic())
    else if (seen.room_id !== this.#room?.id) return
    else if (seen.kind === 'ack') member.acks.acked(seen.ref)
    else member.update(seen.kind === 'whole', seen.epoch, seen.seq, clock.monotonic())
  }

  #sent(frame: Uint8Array): void {
    this.#context.tally.counts.bytes_out += frame.length
    for (const message of unbatch(frame) ?? [frame]) this.#sentMessage(message)
  }

  #sentMessage(message: Uint8Array): void {
    const wish = peekClientFrame(message)
    if (wish.kind === 'resync') this.#checkResyncs()
    else if (wish.kind === 'new session') this.#newSession = this.#client !== undefined
    else if (wish.kind === 'message' && wish.n !== undefined) this.#member?.acks.sent(wish.ref, wish.n)
  }

  /** Reports why the SDK had to ask for the whole state, since the last time. */
  #checkResyncs(): void {
    if (!this.#client) return
    const { sequence, checksum } = this.#client.stats.resyncs
    const { findings } = this.#context
    const who = `${this.#name} in ${this.#room?.id ?? 'no room'}`
    if (sequence > this.#resyncs.sequence)
      findings.add('gap', `${who}: an update was missing`, sequence - this.#resyncs.sequence)
    if (checksum > this.#resyncs.checksum)
      findings.add('checksum', `${who}: the state was not the server's`, checksum - this.#resyncs.checksum)
    this.#resyncs = { sequence, checksum }
  }

  /** Counts a failure, unless the client has gone as it should. */
  #fail(error: unknown, code = codeOf(error)): void {
    if (this.#departure) return
    if (this.underRevokedKey && code === 'key_revoked') return
    if (this.#stalled && code === 'slow_consumer') return
    this.#context.tally.fail(code, error instanceof Error ? error.message : String(error))
  }
}

const codeOf = (error: unknown): string => (error instanceof RoomfulError ? error.code : 'error')

/** What a frame of the server is about, decoded no further than that takes. */
type ServerFrame =
  /** Something of the state stream of a room. `whole`: a snapshot or a resync, after which everything before does not matter. */
  | {
      readonly kind: 'patch' | 'whole' | 'event' | 'presence'
      readonly room_id: string
      readonly epoch: number
      readonly seq: number
    }
  | { readonly kind: 'ack'; readonly room_id: string; readonly ref: number }
  | { readonly kind: 'draining'; readonly reconnect_in_ms: number }
  | { readonly kind: 'other' }

const OTHER: ServerFrame = { kind: 'other' }
const STREAM: Readonly<Record<number, 'patch' | 'whole' | 'event' | 'presence'>> = {
  [SERVER_OPCODES['state.patch']]: 'patch',
  [SERVER_OPCODES['state.snapshot']]: 'whole',
  [SERVER_OPCODES['state.resync']]: 'whole',
  [SERVER_OPCODES.event]: 'event',
  [SERVER_OPCODES['room.joined']]: 'presence',
  [SERVER_OPCODES['room.left']]: 'presence',
  [SERVER_OPCODES['room.presence']]: 'presence',
}

/**
 * Peeks into a frame of the server in `roomful.v1.msgpack`. `context`: what the frames before it on this connection have said. Throws a
 * ProtocolError for what is none.
 */
export function peekServerFrame(frame: Uint8Array, context: StreamContext): ServerFrame {
  // An array of at most 15 elements, then the opcode, below 128: a byte each.
  const opcode = frame[1] ?? 0
  const kind = STREAM[opcode]
  const reader = new MsgpackReader(frame, { at: 2 })
  if (opcode === ROOM_OPCODE) context.enter(reader.value() as string)
  if (kind === undefined && opcode !== SERVER_OPCODES.ack && opcode !== SERVER_OPCODES.draining) return OTHER
  if (opcode === SERVER_OPCODES.draining)
    return { kind: 'draining', reconnect_in_ms: reader.value() as number }
  const { room } = context
  if (kind === undefined) return { kind: 'ack', room_id: room, ref: reader.value() as number }
  const epoch = context.epoch(reader.value() as number)
  return { kind, room_id: room, epoch, seq: reader.value() as number }
}

/** What a frame of a client asks for, of what has to be looked at. */
type ClientFrame =
  /** A reliable message. `n`: the number it carries in its data, where it does. */
  | { readonly kind: 'message'; readonly ref: number; readonly n: number | undefined }
  | { readonly kind: 'resync' }
  /** A hello that resumes nothing. */
  | { readonly kind: 'new session' }
  | { readonly kind: 'other' }

/** Peeks into a frame of a client in `roomful.v1.msgpack`. */
export function peekClientFrame(frame: Uint8Array): ClientFrame {
  if (frame[1] === CLIENT_OPCODES['state.resync']) return { kind: 'resync' }
  if (frame[1] === CLIENT_OPCODES.hello) return isResume(frame) ? { kind: 'other' } : { kind: 'new session' }
  // Five elements: a message with a ref; six: with what its client knows besides.
  if ((frame[0] !== 0x95 && frame[0] !== 0x96) || frame[1] !== CLIENT_OPCODES.message)
    return { kind: 'other' }
  const reader = new MsgpackReader(frame, { at: 2 })
  const [_room_id, _type, data, ref] = [reader.value(), reader.value(), reader.value(), reader.value()]
  const n = (data as { readonly n?: unknown } | null)?.n
  return { kind: 'message', ref: ref as number, n: typeof n === 'number' ? n : undefined }
}

/** Whether a hello carries what resumes a session instead of a token. */
function isResume(frame: Uint8Array): boolean {
  const reader = new MsgpackReader(frame, { at: 2 })
  const [_project_id, what] = [reader.value(), reader.value()]
  return typeof what !== 'string'
}
