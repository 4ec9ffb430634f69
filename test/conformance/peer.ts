import { setTimeout as sleep } from 'node:timers/promises'
import { isDeepStrictEqual } from 'node:util'
import { encode } from '@msgpack/msgpack'
import WebSocket from 'ws'
import { decodeJson, decodeMsgpack, encodeJson, encodeMsgpack, RoomContext } from './codecs.ts'
import {
  type ClientMessage,
  type Codec,
  type Json,
  ProtocolFault,
  type Received,
  type ResumePosition,
  type ServerMessage,
  type ServerName,
} from './messages.ts'
import { RoomView } from './room-view.ts'

export const SUBPROTOCOL: Readonly<Record<Codec, string>> = {
  json: 'roomful.v1.json',
  msgpack: 'roomful.v1.msgpack',
}

/** Time limit of everything without a time limit in the page. */
const PATIENCE_MS = 180_000

/** Most attempts of a join that is refused with `rate_limited`, and the time between them. A server limits the new rooms of a player per minute. */
const JOIN_ATTEMPTS = 15
const JOIN_AGAIN_MS = 5000

/** End of a connection. 1005: no code. 1006: no close frame. */
export interface Ending {
  readonly code: number
  readonly reason: string
}

/** Failure of a case. The message contains the last messages of its clients. */
export class Failure extends Error {
  override readonly name = 'Failure'
}

/** Rings after each frame of any peer of a case, so that one peer can wait for a frame of another. */
export class Bell {
  readonly waiting = new Set<() => void>()

  ring(): void {
    for (const look of [...this.waiting]) look()
  }
}

export interface PeerOptions {
  /** Offered subprotocols. Default: the subprotocol of the codec. */
  readonly subprotocols?: readonly string[]
  /** False: the client does not answer websocket pings. Default true. */
  readonly answer_pings?: boolean
}

/** One connection of a client. It sends messages, stores all received messages, and waits for them. */
export class Peer {
  readonly session: Session
  readonly inbox: ServerMessage[] = []
  /** Frames of the messages in `inbox`. */
  readonly frames: (string | Uint8Array)[] = []
  readonly socket: WebSocket
  ending: Ending | undefined
  pings = 0
  /** True: another connection has the session. Messages that arrive here are stored, but do not change the session. */
  detached = false
  private readonly trace: string[] = []
  private readonly bell: Bell
  private readonly context = new RoomContext()
  private pace: Pace | undefined

  private constructor(socket: WebSocket, session: Session, bell: Bell) {
    this.socket = socket
    this.bell = bell
    this.session = session
    socket.on('message', (data: Buffer, binary: boolean) => this.frame(data, binary))
    socket.on('ping', () => {
      this.pings += 1
      this.bell.ring()
    })
    socket.on('close', (code, reason) => {
      this.ending = { code, reason: reason.toString() }
      this.note(`closed ${code} ${reason}`)
      this.bell.ring()
    })
  }

  /** Opens a websocket. Sends nothing. */
  static async open(url: string, session: Session, bell: Bell, options: PeerOptions): Promise<Peer> {
    const offered = options.subprotocols ?? [SUBPROTOCOL[session.codec]]
    const socket = new WebSocket(url, [...offered], {
      autoPong: options.answer_pings ?? true,
      handshakeTimeout: PATIENCE_MS,
    })
    const peer = new Peer(socket, session, bell)
    await new Promise<void>((resolve, reject) => {
      socket.once('open', resolve)
      socket.once('error', (problem) => reject(new Error(`no websocket at ${url}: ${problem.message}`)))
    })
    // After this, an error only ends the connection.
    socket.on('error', (problem) => peer.note(`socket error: ${problem.message}`))
    return peer
  }

  send(message: ClientMessage): void {
    this.session.sending(message)
    this.note(`→ ${JSON.stringify(message)}`)
    this.socket.send(this.session.codec === 'json' ? encodeJson(message) : encodeMsgpack(message))
  }

  /** Sends a frame: a string as text, bytes as binary. */
  sendRaw(frame: string | Uint8Array): void {
    this.note(`→ raw ${typeof frame === 'string' ? frame : Buffer.from(frame).toString('hex')}`)
    this.socket.send(frame)
  }

  /** Sends a message with any fields, in the client's subprotocol. `elements`: the MessagePack array. */
  sendOdd(fields: { [key: string]: unknown }, elements: unknown[]): void {
    const odd = this.session.codec === 'json' ? fields : elements
    this.note(`→ odd ${JSON.stringify(odd)}`)
    this.socket.send(this.session.codec === 'json' ? JSON.stringify(fields) : encode(elements))
  }

  /** Waits until the limits of `welcome` and of the example rooms allow one more message. */
  async paced(): Promise<void> {
    const limits = this.session.welcome?.limits
    if (!limits) throw new Error('pacing needs the limits of welcome')
    this.pace ??= new Pace(
      Math.min(limits.messages_per_second / 2, 25),
      Math.min(limits.message_burst / 2, 10),
    )
    await this.pace.take()
  }

  /** Joins a room, and waits for its state. */
  async join(roomType: string, key: string, how: { readonly watch?: true } = {}): Promise<RoomView> {
    for (let attempt = 1; ; attempt++) {
      const id = this.session.nextRequest()
      const from = this.inbox.length
      this.send({ t: 'join', request_id: id, room_type: roomType, options: { key }, ...how })
      const answer = () =>
        this.inbox.slice(from).find((message) => 'request_id' in message && message.request_id === id)
      await this.until(`join ${id} is answered`, () => answer() !== undefined)
      const answered = answer()
      if (answered?.t !== 'error') {
        const { room_id: roomId } = await this.expect('joined', { request_id: id }, { from })
        await this.expect('state.snapshot', { room_id: roomId }, { from })
        return this.session.room(roomId)
      }
      if (answered.code !== 'rate_limited' || attempt === JOIN_ATTEMPTS) this.fail(`join ${id} is refused`)
      await sleep(JOIN_AGAIN_MS)
    }
  }

  /** Leaves a room, and waits for the answer. */
  async leave(roomId: string): Promise<void> {
    this.send({ t: 'leave', request_id: this.session.nextRequest(), room_id: roomId })
    await this.expect('left', { room_id: roomId, reason: 'left' })
  }

  /** Sends a reliable message. Returns its ref. */
  act(roomId: string, type: string, data: Json): number {
    const ref = this.session.nextRef(roomId)
    const settled = this.session.settledIn(roomId)
    this.send({ t: 'message', room_id: roomId, type, data, ref, settled })
    return ref
  }

  /** Sends a reliable message, and waits for its ack. Returns its ref. */
  async acted(roomId: string, type: string, data: Json): Promise<number> {
    const ref = this.act(roomId, type, data)
    await this.acknowledged(roomId, ref)
    return ref
  }

  /** Waits until a reliable message is acknowledged. Fails at an `error` for it. */
  async acknowledged(roomId: string, ref: number): Promise<void> {
    await this.until(`ref ${ref} is answered`, () => !this.session.keeps(roomId, ref))
    const failed = this.inbox.find(
      (message) => message.t === 'error' && message.room_id === roomId && message.ref === ref,
    )
    if (failed) this.fail(`ref ${ref} was answered with ${JSON.stringify(failed)}`)
  }

  /** Sends a ping and waits for the pong. All earlier messages of the server have then arrived. */
  async roundTrip(): Promise<Received<'pong'>> {
    const at = performance.now()
    this.send({ t: 'ping', at })
    return this.expect('pong', { at })
  }

  /** Waits for the first message `t` with these fields at or after the index `from` of the inbox. */
  async expect<T extends ServerName>(
    t: T,
    fields: { [F in keyof Received<T>]?: Received<T>[F] | undefined } = {},
    { from = 0, within = PATIENCE_MS }: { from?: number; within?: number } = {},
  ): Promise<Received<T>> {
    const fits = (message: object): message is Received<T> => matches(message, { t, ...fields })
    const inbox: readonly object[] = this.inbox
    const find = () => inbox.slice(from).find(fits)
    await this.until(`${t} ${JSON.stringify(fields)} has come`, () => find() !== undefined, within)
    return find()!
  }

  /** Waits for the end of the connection, and checks its code. */
  async closes(code: number, within: number = PATIENCE_MS): Promise<Ending> {
    const ending = await this.ends(`the server has closed with ${code}`, within)
    if (ending.code !== code)
      this.fail(`closed with ${ending.code} ${JSON.stringify(ending.reason)}, not ${code}`)
    if (code >= 4000 && ending.reason === '') this.fail(`closed with ${code} and no reason`)
    return ending
  }

  /** Waits for the end of the connection, whatever its code. */
  async ends(what = 'the server has closed', within: number = PATIENCE_MS): Promise<Ending> {
    await this.until(what, () => this.ending !== undefined, within, 'even closed')
    return this.ending as Ending
  }

  /** Checks `condition` after each frame of any peer until it is true. Fails at the deadline, or when this connection ends. */
  async until(
    what: string,
    condition: () => boolean,
    within: number = PATIENCE_MS,
    closed: 'while open' | 'even closed' = 'while open',
  ): Promise<void> {
    if (condition() && this.session.firstFault() === undefined) return
    await new Promise<void>((resolve, reject) => {
      const finish = (problem?: string) => {
        clearTimeout(deadline)
        this.bell.waiting.delete(look)
        if (problem === undefined) resolve()
        else reject(this.failure(problem))
      }
      const look = () => {
        const fault = this.session.firstFault()
        if (fault !== undefined) finish(`before ${what}: ${fault}`)
        else if (condition()) finish()
        else if (this.ending && closed === 'while open') {
          finish(`the connection ended (${this.ending.code} ${this.ending.reason}) before ${what}`)
        }
      }
      const deadline = setTimeout(() => finish(`not within ${within} ms: ${what}`), within)
      this.bell.waiting.add(look)
      look()
    })
  }

  /** Breaks the connection without a close frame. */
  cut(): void {
    this.note('cut')
    this.socket.terminate()
  }

  /** Sends goodbye, and waits until the connection has ended. */
  async goodbye(): Promise<void> {
    if (this.ending) return
    this.send({ t: 'goodbye' })
    await this.until('the connection has ended', () => this.ending !== undefined, PATIENCE_MS, 'even closed')
  }

  /** Throws a failure with the last messages of this connection. */
  fail(problem: string): never {
    throw this.failure(problem)
  }

  /** Returns the last messages of this client. */
  recent(): string {
    const lines = this.trace.slice(-14).map((line) => `  ${line}`)
    return [`${this.session.codec} client:`, ...lines].join('\n')
  }

  private failure(problem: string): Failure {
    return new Failure(`${problem}\n${this.recent()}`)
  }

  private note(line: string): void {
    const safe = line.replaceAll(/v4\.public\.[\w-]{20,}(\.[\w-]+)?/g, 'v4.public.…')
    this.trace.push(safe.length > 400 ? `${safe.slice(0, 400)}…` : safe)
  }

  private frame(data: Buffer, binary: boolean): void {
    const frame = binary ? new Uint8Array(data) : data.toString('utf8')
    try {
      if (binary !== (this.session.codec === 'msgpack')) {
        throw new ProtocolFault(`a ${binary ? 'binary' : 'text'} frame in ${this.session.codec}`)
      }
      const message = typeof frame === 'string' ? decodeJson(frame) : decodeMsgpack(frame, this.context)
      if (message) this.take(message, frame)
    } catch (problem) {
      const text = typeof frame === 'string' ? frame : Buffer.from(frame).toString('hex')
      this.session.faults.push(`${(problem as Error).message} — in the frame ${text.slice(0, 300)}`)
    }
    this.bell.ring()
  }

  private take(message: ServerMessage, frame: string | Uint8Array): void {
    this.note(`← ${JSON.stringify(message)}`)
    this.inbox.push(message)
    this.frames.push(frame)
    if (!this.detached) this.session.received(message)
  }
}

function matches(message: object, fields: object): boolean {
  return Object.entries(fields).every(([name, value]) =>
    isDeepStrictEqual((message as Record<string, unknown>)[name], value),
  )
}

type KeptMessage = Extract<ClientMessage, { t: 'message' }>
type Resumption = Extract<ClientMessage, { resume: object }>

/** State of a client over all of its connections: its ids, its rooms, and its reliable messages without an outcome. */
export class Session {
  readonly projectId: string
  readonly codec: Codec
  readonly faults: string[] = []
  readonly rooms = new Map<string, RoomView>()
  /** Optional features that the client understands. */
  features: string[] = []
  sessionId = ''
  resumeToken = ''
  welcome: Received<'welcome'> | undefined
  /** Reliable messages without an outcome, by room and ref, in the order in which they were sent. */
  readonly kept = new Map<string, KeptMessage>()
  /** Replies to messages, by room and ref. */
  private readonly replies = new Map<string, Json>()
  /** Errors and replies on this connection, by room and ref. */
  private readonly answers = new Set<string>()
  /** Requests of joins to watch. */
  private readonly watches = new Set<number>()
  private lastRequest = 0
  /** Highest ref of the seat in each room. */
  private readonly lastRefs = new Map<string, number>()
  /** The room whose snapshot must be the next frame. */
  private snapshotDue: string | undefined

  constructor(projectId: string, codec: Codec) {
    this.projectId = projectId
    this.codec = codec
  }

  nextRequest(): number {
    this.lastRequest += 1
    return this.lastRequest
  }

  /** Returns the next ref of a room. */
  nextRef(roomId: string): number {
    return (this.lastRefs.get(roomId) ?? 0) + 1
  }

  /** Returns whether a message has no outcome. */
  keeps(roomId: string, ref: number): boolean {
    return this.kept.has(keyOf(roomId, ref))
  }

  /** Returns the value of the field `settled`: all outcomes up to this ref of the room are known. */
  settledIn(roomId: string): number {
    for (const message of this.kept.values()) if (message.room_id === roomId) return message.ref! - 1
    return this.lastRefs.get(roomId) ?? 0
  }

  replyTo(roomId: string, ref: number): Json | undefined {
    return this.replies.get(keyOf(roomId, ref))
  }

  room(roomId: string): RoomView {
    const view = this.rooms.get(roomId)
    if (!view) throw new Error(`the client never joined ${roomId}`)
    return view
  }

  /** Returns the `hello` that resumes this session. */
  resumption(): Resumption {
    for (const view of this.rooms.values()) view.cutOff()
    const rooms: ResumePosition[] = [...this.rooms.values()]
      .filter((view) => view.seated)
      .map(({ position }) => ({ ...position, settled: this.settledIn(position.room_id) }))
    const { projectId, sessionId, resumeToken, features } = this
    return {
      t: 'hello',
      project_id: projectId,
      resume: { session_id: sessionId, resume_token: resumeToken, rooms },
      ...(features.length > 0 && { features }),
    }
  }

  /** Returns the first fault of the server that this client has seen. */
  firstFault(): string | undefined {
    if (this.faults.length > 0) return this.faults[0]
    for (const { faults } of this.rooms.values()) if (faults.length > 0) return faults[0]
    return undefined
  }

  sending(message: ClientMessage): void {
    if (message.t === 'join' && message.watch) this.watches.add(message.request_id)
    if (message.t !== 'message' || message.ref === undefined) return
    const { room_id: roomId, ref } = message
    this.kept.set(keyOf(roomId, ref), message)
    this.lastRefs.set(roomId, Math.max(ref, this.lastRefs.get(roomId) ?? 0))
  }

  received(message: ServerMessage): void {
    if (this.snapshotDue !== undefined) this.checkSnapshotDue(message)
    switch (message.t) {
      case 'welcome':
        this.takeWelcome(message)
        break
      case 'joined':
        this.rooms.set(message.room_id, new RoomView(message, this.watches.has(message.request_id)))
        this.forget(message.room_id)
        this.snapshotDue = message.room_id
        break
      case 'ack':
        this.takeAck(message)
        break
      case 'reply':
        this.takeReply(message)
        break
      case 'error':
        if (message.room_id !== undefined && message.ref !== undefined)
          this.takeError(message.room_id, message.ref)
        break
      case 'move':
      case 'moved':
      case 'pong':
      case 'token':
      case 'rooms':
      case 'found':
        break
      default:
        this.takeRoomMessage(message)
    }
  }

  private takeRoomMessage(
    message: Exclude<
      ServerMessage,
      {
        t:
          | 'welcome'
          | 'token'
          | 'joined'
          | 'ack'
          | 'error'
          | 'move'
          | 'moved'
          | 'pong'
          | 'reply'
          | 'rooms'
          | 'found'
      }
    >,
  ): void {
    const view = this.rooms.get(message.room_id)
    if (!view) {
      this.faults.push(`${message.t} of ${message.room_id}, where this client never had a seat`)
    } else if (!view.seated) {
      this.faults.push(`${message.t} of ${message.room_id}, where this client has no seat any more`)
    } else view.apply(message)
    if (view && !view.seated) this.forget(message.room_id)
  }

  private checkSnapshotDue(message: ServerMessage): void {
    if (message.t !== 'state.snapshot' || message.room_id !== this.snapshotDue) {
      this.faults.push(`${message.t} after joined of ${this.snapshotDue}, where state.snapshot was due`)
    }
    this.snapshotDue = undefined
  }

  private takeWelcome(message: Received<'welcome'>): void {
    if (message.resume_token === this.resumeToken) this.faults.push('the resume token did not rotate')
    this.sessionId = message.session_id
    this.resumeToken = message.resume_token
    this.welcome = message
    this.answers.clear()
  }

  private takeAck({ room_id: roomId, ref }: Received<'ack'>): void {
    if (!this.hasSent(roomId, ref)) {
      this.faults.push(`ack of ref ${ref} in ${roomId}, which this client never sent as a reliable message`)
    }
    for (const [key, message] of this.kept) {
      if (message.room_id === roomId && message.ref! <= ref) this.kept.delete(key)
    }
  }

  private takeError(roomId: string, ref: number): void {
    if (this.kept.delete(keyOf(roomId, ref)) && this.settledIn(roomId) < ref - 1)
      this.faults.push(`an error for ref ${ref} in ${roomId} before the answers to lower refs`)
    this.checkOnce('error', roomId, ref)
  }

  private checkOnce(t: 'error' | 'reply', roomId: string, ref: number): void {
    const key = `${t} ${keyOf(roomId, ref)}`
    if (this.answers.has(key)) this.faults.push(`a second ${t} for ref ${ref} in ${roomId} on one connection`)
    this.answers.add(key)
  }

  private hasSent(roomId: string, ref: number): boolean {
    return ref <= (this.lastRefs.get(roomId) ?? 0)
  }

  private takeReply({ room_id: roomId, ref, data }: Received<'reply'>): void {
    if (!this.hasSent(roomId, ref)) this.faults.push(`a reply to ref ${ref} in ${roomId}, never sent`)
    this.checkOnce('reply', roomId, ref)
    const before = this.replyTo(roomId, ref)
    if (before !== undefined && !isDeepStrictEqual(before, data))
      this.faults.push(`ref ${ref} is answered in two ways: ${JSON.stringify([before, data])}`)
    this.replies.set(keyOf(roomId, ref), data)
  }

  private forget(roomId: string): void {
    for (const [key, message] of this.kept) if (message.room_id === roomId) this.kept.delete(key)
    for (let ref = this.lastRefs.get(roomId) ?? 0; ref > 0; ref -= 1) {
      const key = keyOf(roomId, ref)
      this.replies.delete(key)
      this.answers.delete(`error ${key}`)
      this.answers.delete(`reply ${key}`)
    }
    this.lastRefs.delete(roomId)
  }
}

const keyOf = (roomId: string, ref: number): string => `${roomId} ${ref}`

/** A token bucket: bursts of `burst` messages, and `perSecond` on average. */
class Pace {
  private readonly perSecond: number
  private readonly burst: number
  private tokens: number
  private filledAt = performance.now()

  constructor(perSecond: number, burst: number) {
    this.perSecond = perSecond
    this.burst = burst
    this.tokens = burst
  }

  /** Waits until one more message is within the limits. */
  async take(): Promise<void> {
    this.fill()
    while (this.tokens < 1) {
      const missingMs = ((1 - this.tokens) / this.perSecond) * 1000
      await new Promise((resolve) => setTimeout(resolve, missingMs))
      this.fill()
    }
    this.tokens -= 1
  }

  private fill(): void {
    const now = performance.now()
    this.tokens = Math.min(this.burst, this.tokens + ((now - this.filledAt) / 1000) * this.perSecond)
    this.filledAt = now
  }
}
