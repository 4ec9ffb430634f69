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

/** How long anything may take that has no time of its own in the document. */
const PATIENCE_MS = 20_000

/** How a connection ended. 1005: without a code, 1006: without a close frame. */
export interface Ending {
  readonly code: number
  readonly reason: string
}

/** A case has failed, and the message tells what a client sent and saw before. */
export class Failure extends Error {
  override readonly name = 'Failure'
}

/** Rings for every peer of a case, so that one can wait for what another sees. */
export class Bell {
  readonly waiting = new Set<() => void>()

  ring(): void {
    for (const look of [...this.waiting]) look()
  }
}

export interface PeerOptions {
  /** What the client offers; its codec's subprotocol when absent. */
  readonly subprotocols?: readonly string[]
  /** Whether websocket pings are answered; true when absent. */
  readonly answer_pings?: boolean
}

/** One connection of one client: sends messages, keeps everything received, and waits for what a case is about. */
export class Peer {
  readonly session: Session
  readonly inbox: ServerMessage[] = []
  /** Frames of the server as they came, beside `inbox`. */
  readonly frames: (string | Uint8Array)[] = []
  readonly socket: WebSocket
  ending: Ending | undefined
  pings = 0
  /** Whether another connection has the session now: what still comes here is kept, but is not the session's. */
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

  /** Opens a websocket; nothing is sent. */
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
    // From here on a failure shows as the end of the connection.
    socket.on('error', (problem) => peer.note(`socket error: ${problem.message}`))
    return peer
  }

  send(message: ClientMessage): void {
    this.session.sending(message)
    this.note(`→ ${JSON.stringify(message)}`)
    if ('resume' in message) this.context.resume(message.resume.rooms)
    this.socket.send(this.session.codec === 'json' ? encodeJson(message) : encodeMsgpack(message))
  }

  /** Sends any frame: a string as text, bytes as binary. */
  sendRaw(frame: string | Uint8Array): void {
    this.note(`→ raw ${typeof frame === 'string' ? frame : Buffer.from(frame).toString('hex')}`)
    this.socket.send(frame)
  }

  /** Sends any message whatever its fields, in this peer's subprotocol; `elements` is its MessagePack array. */
  sendOdd(fields: { [key: string]: unknown }, elements: unknown[]): void {
    const odd = this.session.codec === 'json' ? fields : elements
    this.note(`→ odd ${JSON.stringify(odd)}`)
    this.socket.send(this.session.codec === 'json' ? JSON.stringify(fields) : encode(elements))
  }

  /** Waits until the limits of `welcome` and of the example rooms surely allow one message more. */
  async paced(): Promise<void> {
    const limits = this.session.welcome?.limits
    if (!limits) throw new Error('pacing needs the limits of welcome')
    this.pace ??= new Pace(
      Math.min(limits.messages_per_second / 2, 25),
      Math.min(limits.message_burst / 2, 10),
    )
    await this.pace.take()
  }

  /** Joins a room and waits until its state is here. */
  async join(roomType: string, key: string): Promise<RoomView> {
    const id = this.session.nextRequest()
    const from = this.inbox.length
    this.send({ t: 'join', request_id: id, room_type: roomType, options: { key } })
    const answer = () =>
      this.inbox.slice(from).find((message) => 'request_id' in message && message.request_id === id)
    await this.until(`join ${id} is answered`, () => answer() !== undefined)
    if (answer()?.t === 'error') this.fail(`join ${id} is refused`)
    const { room_id: roomId } = await this.expect('joined', { request_id: id }, { from })
    await this.expect('state.snapshot', { room_id: roomId }, { from })
    return this.session.room(roomId)
  }

  /** Gives a seat up and waits for the answer. */
  async leave(roomId: string): Promise<void> {
    const { memberId } = this.session.room(roomId)
    this.send({ t: 'leave', request_id: this.session.nextRequest(), room_id: roomId })
    await this.expect('member', { room_id: roomId, member_id: memberId, status: 'left', reason: 'left' })
  }

  /** Sends a reliable message; gives its ref. */
  act(roomId: string, type: string, data: Json): number {
    const ref = this.session.nextRef(roomId)
    const settled = this.session.settledIn(roomId)
    this.send({ t: 'message', room_id: roomId, type, data, ref, settled })
    return ref
  }

  /** Sends a reliable message and waits for its ack. */
  async acted(roomId: string, type: string, data: Json): Promise<number> {
    const ref = this.act(roomId, type, data)
    await this.settled(roomId, ref)
    return ref
  }

  /** Waits until a reliable message is acked; an `error` for it fails. */
  async settled(roomId: string, ref: number): Promise<void> {
    await this.until(`ref ${ref} is settled`, () => !this.session.keeps(roomId, ref))
    const failed = this.inbox.find(
      (message) => message.t === 'error' && message.room_id === roomId && message.ref === ref,
    )
    if (failed) this.fail(`ref ${ref} was answered with ${JSON.stringify(failed)}`)
  }

  /** A round trip: everything the server sent before is here when it ends. */
  async roundTrip(): Promise<Received<'pong'>> {
    const at = performance.now()
    this.send({ t: 'ping', at })
    return this.expect('pong', { at })
  }

  /** The first message `t` with these fields at or behind `from` in the inbox; waits for it. */
  async expect<T extends ServerName>(
    t: T,
    fields: { [F in keyof Received<T>]?: Received<T>[F] } = {},
    { from = 0, within = PATIENCE_MS }: { from?: number; within?: number } = {},
  ): Promise<Received<T>> {
    const fits = (message: object): message is Received<T> => matches(message, { t, ...fields })
    const inbox: readonly object[] = this.inbox
    const find = () => inbox.slice(from).find(fits)
    await this.until(`${t} ${JSON.stringify(fields)} has come`, () => find() !== undefined, within)
    return find()!
  }

  /** Waits for the end of the connection and checks its code. */
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

  /** Waits until `condition` holds, looking after every frame of any peer; fails at the deadline or when this connection ends. */
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

  /** Ends the connection as a dead network does: no close frame. */
  cut(): void {
    this.note('cut')
    this.socket.terminate()
  }

  /** Says goodbye and waits until the connection is down. */
  async goodbye(): Promise<void> {
    if (this.ending) return
    this.send({ t: 'goodbye' })
    await this.until('the connection is down', () => this.ending !== undefined, PATIENCE_MS, 'even closed')
  }

  /** Throws with the end of this connection's trace. */
  fail(problem: string): never {
    throw this.failure(problem)
  }

  /** The last lines of what this client sent and saw. */
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

/** What outlives a client's connection: its ids, its rooms, and the reliable messages that are not settled. */
export class Session {
  readonly projectId: string
  readonly codec: Codec
  readonly faults: string[] = []
  readonly rooms = new Map<string, RoomView>()
  /** What its client understands beyond what every client does. */
  features: string[] = []
  sessionId = ''
  resumeToken = ''
  welcome: Received<'welcome'> | undefined
  /** Reliable messages without an answer, by room and ref, in the order they were sent. */
  readonly kept = new Map<string, KeptMessage>()
  /** What messages were answered with, by room and ref. */
  private readonly replies = new Map<string, Json>()
  /** Errors and replies on this connection, by room and ref. */
  private readonly told = new Set<string>()
  private lastRequest = 0
  /** By room, the highest ref of its seat. */
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

  /** The ref that is due in a room. */
  nextRef(roomId: string): number {
    return (this.lastRefs.get(roomId) ?? 0) + 1
  }

  /** Whether a message has no answer. */
  keeps(roomId: string, ref: number): boolean {
    return this.kept.has(keyOf(roomId, ref))
  }

  /** The highest ref in a room up to which every outcome is known. */
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

  /** The `hello` that takes this session up again. */
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

  /** The first thing this client saw that no conforming server sends. */
  firstFault(): string | undefined {
    if (this.faults.length > 0) return this.faults[0]
    for (const { faults } of this.rooms.values()) if (faults.length > 0) return faults[0]
    return undefined
  }

  sending(message: ClientMessage): void {
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
        this.rooms.set(message.room_id, new RoomView(message))
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
        t: 'welcome' | 'token' | 'joined' | 'ack' | 'error' | 'move' | 'pong' | 'reply' | 'rooms' | 'found'
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
    // What is of its layers comes first.
    if (message.t === 'layer.state' && message.room_id === this.snapshotDue) return
    if (message.t !== 'state.snapshot' || message.room_id !== this.snapshotDue) {
      this.faults.push(`${message.t} right behind joined of ${this.snapshotDue}: state.snapshot was due`)
    }
    this.snapshotDue = undefined
  }

  private takeWelcome(message: Received<'welcome'>): void {
    if (message.resume_token === this.resumeToken) this.faults.push('the resume token did not rotate')
    this.sessionId = message.session_id
    this.resumeToken = message.resume_token
    this.welcome = message
    this.told.clear()
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
    if (this.told.has(key)) this.faults.push(`two times ${t} for ref ${ref} in ${roomId} on one connection`)
    this.told.add(key)
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
      this.told.delete(`error ${key}`)
      this.told.delete(`reply ${key}`)
    }
    this.lastRefs.delete(roomId)
  }
}

const keyOf = (roomId: string, ref: number): string => `${roomId} ${ref}`

/** Lets `burst` messages pass at once and `perSecond` in the long run. */
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

  /** Waits until one more message is surely within the limits. */
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
