import { type Client, type ConnectionStatus, connect, type Room, RoomfulError } from '../../client/index.ts'
import { type Clock, sleep } from '../../shared/clock.ts'
import type { Json } from '../../shared/json.ts'
import { ROOM_OPCODE, SERVER_OPCODES } from '../../shared/protocol/messages.ts'
import { MsgpackReader } from '../../shared/protocol/msgpack.ts'
import { MsgpackCodec } from '../../shared/protocol/msgpack-codec.ts'
import type { Random } from '../../shared/random.ts'
import type { Credentials } from '../issuer.ts'
import type { LoadRoom, Milestone } from '../rooms/load.ts'
import { Member } from './member.ts'
import { withinTimeLimit } from './pace.ts'
import { MeteredSocket } from './sdk.ts'
import type { Tally } from './tally.ts'

/** Time limit of a first connection, including retries. */
const CONNECT_MS = 30_000
/** Time limit for the answers to a client's messages before it leaves its room. */
const MOVE_ANSWERS_MS = 5000
const ANSWERS_POLL_MS = 20
/** Higher than the default, so that a slow generator shows in the measured times and not in rejected messages. */
const MAX_UNACKED = 100_000
const MAX_UNACKED_BYTES = 64 * 1024 * 1024

/** Settings of all clients of a run. Plain data. */
export interface ClientSettings {
  /** Clients are spread over these. A client that loses its connection tries the others in turn. */
  readonly wsUrls: readonly string[]
  readonly roomType: string
  /** Prefix of every room key, so that simultaneous runs have separate rooms. */
  readonly keyPrefix: string
  /** The message of a custom room type. Undefined: the room type is `load`. */
  readonly message: { readonly type: string; readonly data: Json } | undefined
  /** Seed of all randomness. */
  readonly seed: number
}

/** Dependencies of the clients of one thread. */
export interface ClientContext {
  readonly settings: ClientSettings
  readonly tally: Tally
  readonly clock: Clock
  readonly random: Random
}

/** The highest `seq` that any client has seen, by room id. Plain data. A room that moves to another node continues its `seq`. */
export type Newest = Readonly<Record<string, number>>

export function newestOf(all: readonly Newest[]): Newest {
  const newest: Record<string, number> = {}
  for (const [roomId, seq] of all.flatMap((each) => Object.entries(each)))
    newest[roomId] = Math.max(seq, newest[roomId] ?? 0)
  return newest
}

/**
 * One client: the real SDK, with its traffic inspected. A player keeps the state and checks it. Spectators, and
 * members who idle, do not decode it, so that thousands fit in one thread.
 */
export class LoadClient {
  readonly number: number
  readonly kind: 'player' | 'idler' | 'spectator'
  /** `Date.now()` at which the client saw that the revocation of its key had closed it. */
  revokedAt: number | undefined
  readonly #context: ClientContext
  readonly #credentials: Credentials
  readonly #socket: MeteredSocket
  readonly #stream: StreamContext = {}
  readonly #codec = new MsgpackCodec()
  #client: Client | undefined
  #room: Room<LoadRoom> | undefined
  #member: Member | undefined
  /** Time at which each unanswered message was due, by a running number. */
  readonly #open = new Map<number, number>()
  #sends = 0
  #longestMs = 0
  /** When the last update arrived, or `markPause` was called. */
  #updatedAt = 0
  /** True between two rooms. The client then sends nothing. */
  #moving = false
  /** True while the client neither reads nor sends. */
  #stalled = false
  #lostAt = 0
  /** Attempts to connect since the last connection. */
  #attempts = 0
  /** True if the client has requested another session after its first. */
  #newSession = false
  /** Resolves `cut`. */
  #back = () => {}
  #resyncs = { sequence: 0, checksum: 0 }
  /** True if it may end without a failure. */
  #leaving = false

  constructor(number: number, kind: LoadClient['kind'], credentials: Credentials, context: ClientContext) {
    this.number = number
    this.kind = kind
    this.#context = context
    this.#credentials = credentials
    this.#socket = new MeteredSocket(context.settings.wsUrls, number, {
      dialled: () => {
        this.#attempts += 1
        if (this.#attempts > 1) context.tally.counts.retries += 1
      },
      received: (frame) => this.#received(frame),
      sent: (frame) => this.#sent(frame),
    })
  }

  get online(): boolean {
    return this.#client?.status === 'online'
  }

  /** False if it will not reconnect. */
  get alive(): boolean {
    return this.#client !== undefined && this.#client.status !== 'closed'
  }

  get inRoom(): boolean {
    return this.#room?.status === 'joined'
  }

  get underRevokedKey(): boolean {
    return this.#credentials.underRevokedKey
  }

  /** The `seq` of the last update of its room. Empty: it is in no room or not connected. */
  get position(): Newest {
    const seq = this.online && this.inRoom ? this.#member?.seq : undefined
    return seq === undefined ? {} : { [this.#room!.id]: seq }
  }

  /** Connects. `due` and all times below are on the monotonic clock. Counts failures. */
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
        maxUnacked: MAX_UNACKED,
        maxUnackedBytes: MAX_UNACKED_BYTES,
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

  /** Joins a room. Counts failures. */
  async join(key: string, due: number): Promise<void> {
    const client = this.#client
    if (!client || !this.alive) return
    const { tally, clock, settings } = this.#context
    try {
      const watch = this.kind === 'spectator'
      const options = { key: settings.keyPrefix + key }
      const joined = client.join<LoadRoom>(settings.roomType as 'load', options, { watch })
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

  /** Waits for the answers to its messages, leaves its room and joins another. */
  async move(key: string, due: number): Promise<void> {
    if (!this.#room || this.#moving || this.#stalled || !this.inRoom) return
    const { tally, clock } = this.#context
    this.#moving = true
    await this.awaitAnswers(clock.monotonic() + MOVE_ANSWERS_MS)
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

  /** Sends a message. Resolves when it has an answer. */
  async send(due: number, text: string): Promise<void> {
    const { tally, clock, settings } = this.#context
    if (!this.#room || this.#moving || this.#stalled || this.#room.status === 'left') return
    if (this.#member?.gone) this.#beginMember()
    const member = this.#member!
    member.sent += 1
    const id = ++this.#sends
    this.#open.set(id, due)
    tally.counts.sends += 1
    tally.lateMs = Math.max(tally.lateMs, clock.monotonic() - due)
    const { message } = settings
    try {
      await (message
        ? this.#room.send(message.type as 'op', message.data as never)
        : this.#room.send('op', { n: member.sent, text }))
      member.acked += 1
      tally.counts.acks += 1
      tally.seen.acks += 1
      if (this.#open.has(id)) tally.time('rtt', this.#answered(id, due))
    } catch (error) {
      this.#answered(id, due)
      member.refused += 1
      // The lost session is one failure, and each message that was lost with it is another.
      this.#fail(error, codeOf(error) === 'resume_failed' ? 'fate_unknown' : undefined)
    }
  }

  /** Sends a message that is neither acked nor resent. */
  sendUnreliable(): void {
    const { message } = this.#context.settings
    if (!message || !this.inRoom) return
    void this.#room?.send(message.type as 'op', message.data as never, { reliable: false })
  }

  /** Resolves when every message has an answer and its effect has been seen, or at `deadline`. */
  async awaitAnswers(deadline: number): Promise<void> {
    const { clock } = this.#context
    while (this.alive && this.#member?.isComplete === false && clock.monotonic() < deadline)
      await sleep(clock, ANSWERS_POLL_MS)
  }

  /** Reports messages and events that should have arrived and have not. */
  judge(): void {
    this.#checkResyncs()
    if (this.alive && this.#member && !this.#member.gone)
      this.#member.judge(this.#context.clock.monotonic(), this.online)
  }

  /** Returns true if it lacks updates that another client has. */
  isBehind(newest: Newest): boolean {
    return Object.entries(this.position).some(([roomId, seq]) => seq < (newest[roomId] ?? 0))
  }

  /** Reports missing updates that another client has. */
  judgePosition(newest: Newest): void {
    if (!this.isBehind(newest)) return
    for (const [roomId, seq] of Object.entries(this.position))
      this.#context.tally.violated(
        'gap',
        `${this.#name} in ${roomId}: nothing came after seq ${seq}, and others have seen ${newest[roomId]! - seq} more`,
      )
  }

  /** Called about once a second. */
  review(now: number): void {
    this.#member?.acks.review(now)
  }

  /** Cuts its connection. Resolves when it is online again or closed. After 30 s it resolves with a failure. */
  cut(): Promise<void> {
    const back = new Promise<void>((resolve) => {
      this.#back = resolve
      this.#socket.cut()
    })
    return withinTimeLimit(this.#context.clock, back, (within) => {
      this.#fail(`${this.#name} was not back ${within}`, 'connection_lost')
      this.#back()
    })
  }

  /** Stops reading and sending until `readOn`. */
  stall(): void {
    this.#stalled = true
    this.#member?.disturbed(this.#context.clock.monotonic())
    this.#socket.stall()
  }

  /**
   * Resolves with true when it has read the backlog, with false when the service has ended its connection. A client that reads more
   * than three seconds after the close receives no close code, and resumes.
   */
  async readOn(): Promise<boolean> {
    const read = await this.#socket.readOn()
    this.#stalled = false
    this.#member?.disturbed(this.#context.clock.monotonic())
    return read
  }

  /** Starts the measurement of `takePause`. */
  markPause(): void {
    this.#longestMs = 0
    this.#updatedAt = this.#context.clock.monotonic()
  }

  /**
   * Returns the longest wait since `markPause`, in milliseconds: of a player for an answer, open ones included (0: it has sent nothing), and
   * of others for the next update. Times that of a player as `pause`.
   */
  takePause(): number {
    const { clock, tally } = this.#context
    const isPlayer = this.kind === 'player'
    const [oldest] = this.#open.values()
    const since = isPlayer ? oldest : this.#updatedAt
    const waiting = since === undefined ? 0 : clock.monotonic() - since
    const longest = Math.max(this.#longestMs, waiting)
    if (isPlayer && longest > 0) tally.time('pause', longest)
    return longest
  }

  /** Counts messages without an answer as failures, and times them, so that the slowest are not left out. */
  giveUp(): void {
    const { tally } = this.#context
    for (const [id, due] of this.#open) tally.time('rtt', this.#answered(id, due))
    if (this.#room?.status === 'rejoining' && !this.online)
      tally.fail('session_lost', `${this.#name} lost its session, and had no new one by the end`)
    const { sent = 0, unanswered = 0 } = this.#member ?? {}
    if (unanswered === 0) return
    const where = this.online ? `connected, and in ${this.inRoom ? 'its' : 'no'} room` : 'not connected'
    const text = `${this.#name} had no answer to ${unanswered} of ${sent} messages by the end; it was ${where}`
    tally.fail('unanswered', text, unanswered)
  }

  /** Cuts its connection permanently. */
  abandon(): void {
    this.#socket.cut()
    this.close()
  }

  close(): void {
    this.#checkResyncs()
    this.#leaving = true
    this.#client?.close()
  }

  get #name(): string {
    return `${this.kind === 'player' ? 'client' : this.kind} ${this.number}`
  }

  get #counts(): boolean {
    return this.kind === 'player' && this.#context.settings.message === undefined
  }

  /** Waits for an answer of the service. Without one the client counts a failure and closes. */
  #answer<T>(what: 'join' | 'leave', answer: Promise<T>): Promise<T> {
    return withinTimeLimit(this.#context.clock, answer, (within) => {
      this.#fail(`${this.#name} had no answer to its ${what} ${within}`, `${what}_unanswered`)
      this.close()
    })
  }

  #beginMember(): void {
    if (!this.#room) return
    this.#checkResyncs()
    const { tally } = this.#context
    this.#member = new Member(this.#room, this.#name, tally, this.#counts)
    if (this.#counts) tally.seen.countedMembers += 1
  }

  /** Closes the record of a message. Returns its duration. */
  #answered(id: number, due: number): number {
    const ms = this.#context.clock.monotonic() - due
    this.#open.delete(id)
    this.#longestMs = Math.max(this.#longestMs, ms)
    return ms
  }

  /** A client that sends nothing gets an update. */
  #updated(now: number): void {
    this.#longestMs = Math.max(this.#longestMs, now - this.#updatedAt)
    this.#updatedAt = now
  }

  #statusChanged(status: ConnectionStatus, error: RoomfulError | undefined): void {
    const { tally, clock } = this.#context
    const now = clock.monotonic()
    this.#member?.disturbed(now)
    if (status === 'reconnecting') {
      this.#lostAt = now
      return
    }
    this.#back()
    if (status === 'closed') {
      if (this.#isRevocation(codeOf(error))) this.revokedAt = clock.now()
      else this.#fail(error)
      this.#leaving = true
      return
    }
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
  }

  #received(frame: Uint8Array): void {
    const { tally, clock } = this.#context
    const all = tally.seen
    tally.counts.bytes_in += frame.length
    const seen = peek(frame, this.#stream)
    const isPlayer = this.kind === 'player'
    if (seen?.kind === 'patch' || seen?.kind === 'full') {
      tally.counts.updates += 1
      all.updates += 1
      if (isPlayer) all.playerUpdates += 1
      else this.#updated(clock.monotonic())
    }
    if (seen?.kind === 'event') {
      tally.counts.events += 1
      if (isPlayer) all.playerEvents += 1
    }
    const member = this.#member
    if (!member || !seen) return
    if (seen.kind === 'move') member.disturbed(clock.monotonic())
    else if (seen.roomId !== this.#room?.id) return
    else if (seen.kind === 'ack') member.acks.acked(seen.number)
    else if (seen.kind !== 'event')
      member.update(seen.kind === 'full', seen.epoch, seen.number, clock.monotonic())
  }

  #sent(frame: Uint8Array): void {
    this.#context.tally.counts.bytes_out += frame.length
    const message = this.#codec.decode(frame)
    if (message.t === 'state.resync') this.#checkResyncs()
    else if (message.t === 'hello') this.#newSession = this.#client !== undefined && 'token' in message
    else if (message.t === 'message' && message.ref !== undefined) {
      const { n } = (message.data ?? {}) as { readonly n?: unknown }
      if (typeof n === 'number') this.#member?.acks.sent(message.ref, n)
    }
  }

  /** Reports the resyncs of the SDK since the last call. */
  #checkResyncs(): void {
    if (!this.#client) return
    const { sequence, checksum } = this.#client.stats.resyncs
    const { tally } = this.#context
    const who = `${this.#name} in ${this.#room?.id ?? 'no room'}`
    if (sequence > this.#resyncs.sequence)
      tally.violated('gap', `${who}: an update was missing`, sequence - this.#resyncs.sequence)
    if (checksum > this.#resyncs.checksum)
      tally.violated('checksum', `${who}: the state was not the server's`, checksum - this.#resyncs.checksum)
    this.#resyncs = { sequence, checksum }
  }

  #isRevocation(code: string): boolean {
    return this.underRevokedKey && code === 'revoked'
  }

  /** Counts a failure, unless the client ends as intended. */
  #fail(error: unknown, code = codeOf(error)): void {
    if (this.#leaving || this.#isRevocation(code) || (this.#stalled && code === 'slow_consumer')) return
    this.#context.tally.fail(code, error instanceof Error ? error.message : String(error))
  }
}

const codeOf = (error: unknown): string => (error instanceof RoomfulError ? error.code : 'error')

const KINDS: Readonly<Record<number, Peeked['kind']>> = {
  [SERVER_OPCODES['state.patch']]: 'patch',
  [SERVER_OPCODES['state.snapshot']]: 'full',
  [SERVER_OPCODES['state.resync']]: 'full',
  [SERVER_OPCODES.event]: 'event',
  [SERVER_OPCODES.ack]: 'ack',
  [SERVER_OPCODES.move]: 'move',
}

interface Peeked {
  /** `full`: a snapshot or a resync, which contains the whole state. */
  readonly kind: 'patch' | 'full' | 'event' | 'ack' | 'move'
  readonly roomId: string
  readonly epoch: number
  /** The `ref` of an ack, the `seq` of a state. */
  readonly number: number
}

/** Room and epoch of the next frames that omit theirs. */
interface StreamContext {
  roomId?: string
  epoch?: number
}

/** Reads the head of a server frame in `roomful.v1.msgpack`, so that a spectator does not decode states. Undefined: no check needs the frame. */
export function peek(frame: Uint8Array, context: StreamContext): Peeked | undefined {
  // The header of an array of at most 15 elements and the opcode, below 128, take a byte each.
  const opcode = frame[1] ?? 0
  const reader = new MsgpackReader(frame, { at: 2 })
  if (opcode === ROOM_OPCODE) context.roomId = reader.value() as string
  const kind = KINDS[opcode]
  if (kind === undefined) return undefined
  const { roomId = '' } = context
  if (kind === 'move' || kind === 'event') return { kind, roomId, epoch: 0, number: 0 }
  if (kind === 'ack') return { kind, roomId, epoch: 0, number: reader.value() as number }
  context.epoch = (reader.value() as number | null) ?? context.epoch ?? 0
  return { kind, roomId, epoch: context.epoch, number: reader.value() as number }
}
