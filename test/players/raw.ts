import WebSocket from 'ws'
import type { Clock } from '../../shared/clock.ts'
import { closeAdvice } from '../../shared/protocol/error-codes.ts'
import type { End, Reply } from '../chaos/checker/history.ts'
import { marksIn } from '../chaos/rooms.ts'
import { decodeJson, encodeJson } from '../conformance/codecs.ts'
import type { ClientMessage, Received, ResumePosition, ServerMessage } from '../conformance/messages.ts'
import { DEAF_MS, type Door, MOST_WAITING, type NewOp, Player, type PlayerParts } from './player.ts'
import { RawSeat, type RoomFrame } from './raw-seat.ts'

const WELCOME_WITHIN_MS = 10_000
const FIRST_BACKOFF_MS = 50
const LONGEST_BACKOFF_MS = 1000
const JOIN_AGAIN_MS = 250
/** Time after which a spectator joins, so that the room has updates from before. */
const WATCH_AFTER_MS = 2000
/** Updates from before its join that a spectator asks for. */
const EARLIER = 5
/** A node that was disconnected from the store learns late that another node has a session. */
const TAKEN_OVER_WITHIN_MS = 8000

/** A client that follows docs/protocol.md, shares no code with the SDK, uses the JSON codec, and records everything that it sends and receives. */
export class RawPlayer extends Player {
  #socket: RawSocket | undefined
  #rival: RawSocket | undefined
  /** Connection to the node of its room, until it is open. */
  #next: RawSocket | undefined
  /** Connection that the client has left for `#next`, until the server closes it. */
  #replaced: RawSocket | undefined
  #online = false
  #session: { readonly id: string; readonly token: string } | undefined
  #seat: RawSeat | undefined
  #joinRequest = 0
  readonly #begun: number
  #cancelJoin = () => {}
  #attempts = 0

  constructor(parts: PlayerParts) {
    super(parts)
    this.#begun = parts.clock.monotonic()
  }

  get answered(): boolean {
    return this.#online && this.#seat !== undefined && this.#seat.unacked.size === 0 && this.#seat.current
  }

  protected get ready(): boolean {
    return this.#online && this.#seat?.current === true && this.#seat.unacked.size < MOST_WAITING
  }

  cut(): void {
    this.#socket?.terminate()
  }

  race(): void {
    const doors = this.#shuffledDoors()
    if (!this.#session || !this.#online || doors.length === 0) return
    this.#drop()
    this.#rival = this.#socketTo(doors[0]!)
    this.#socket = this.#socketTo(doors[1] ?? doors[0]!)
  }

  position(): End['members'][number] | undefined {
    const seat = this.#seat
    if (!seat || !this.#online) return undefined
    return { client: this.name, room: seat.room, member: seat.member, ...seat.copy }
  }

  describe(): string {
    const refs = [...(this.#seat?.unacked.keys() ?? [])]
    return `${this.name} is ${this.#online ? 'online' : 'offline'}, ${this.#seat ? (this.#seat.current ? 'in its room' : 'waiting for a state') : 'without a seat'}, with ${refs.length} unanswered ${refs.join(', ')}`
  }

  override close(): void {
    super.close()
    this.#rival?.goodbye()
    this.#abandonChangeOver()
    this.#socket?.goodbye()
  }

  protected deafen(): void {
    const socket = this.#socket
    if (!socket) return
    socket.superseded = true
    this.parts.clock.schedule(DEAF_MS, () => socket.terminate())
  }

  protected send(op: NewOp): void {
    const message = this.#seat?.send(op)
    if (message) this.#socket?.send(message)
  }

  #shuffledDoors(): Door[] {
    const doors = [...this.parts.doors()]
    for (let i = doors.length - 1; i > 0; i--) {
      const j = Math.floor(this.parts.random() * (i + 1))
      ;[doors[i], doors[j]] = [doors[j]!, doors[i]!]
    }
    return doors
  }

  protected connect(): void {
    if (this.closed) return
    const [door] = this.#shuffledDoors()
    if (door) this.#socket = this.#socketTo(door)
    else this.#connectLater()
  }

  #socketTo(door: Door): RawSocket {
    return new RawSocket(door, this.parts, {
      open: (socket) => this.#opened(socket),
      message: (socket, message, marks) => this.#receive(socket, message, marks),
      closed: (socket, code, reason) => this.#lostSocket(socket, code, reason),
    })
  }

  #opened(socket: RawSocket): void {
    const { projectId, token, note } = this.parts
    if (socket === this.#next && !this.#changeOver(socket)) return
    note({ kind: 'connected', node: socket.door.node })
    const features = ['layers']
    if (this.#session) {
      const { id, token: resumeToken } = this.#session
      note({ kind: 'resuming', session: id })
      const rooms = this.#seat ? [this.#position(this.#seat)] : []
      socket.send({
        t: 'hello',
        project_id: projectId,
        resume: { session_id: id, resume_token: resumeToken, rooms },
        features,
      })
    } else socket.send({ t: 'hello', project_id: projectId, token, features })
    this.parts.clock.schedule(WELCOME_WITHIN_MS, () => {
      if (!this.#online || this.#socket !== socket) socket.terminate()
    })
  }

  /** Returns the position of a resume. A spectator tries to get updates from before its join, in one of two resumes. */
  #position({ position, joinedAt: { epoch, seq } }: RawSeat): ResumePosition {
    const { random, watches } = this.parts
    return watches && random() < 0.5 ? { ...position, epoch, seq: Math.max(0, seq - EARLIER) } : position
  }

  /** Opens a connection to the node of its room. */
  #reroute(url: string): void {
    if (this.#next || this.#rival || this.closed) return
    this.#next = this.#socketTo(this.rerouting(url))
    this.disturb(this.#socket, this.#next)
  }

  /** Continues on the open connection to the node of its room. Sends nothing more on the previous connection, and ignores its messages. */
  #changeOver(next: RawSocket): boolean {
    this.#next = undefined
    if (!this.#online || !this.#seat || this.#rival) {
      next.abandoned = true
      next.terminate()
      return false
    }
    this.#abandonChangeOver()
    this.#replaced = this.#socket
    if (this.#replaced) this.#replaced.abandoned = true
    this.#socket = next
    this.#online = false
    return true
  }

  #abandonChangeOver(): void {
    for (const socket of [this.#next, this.#replaced]) {
      if (socket) socket.abandoned = true
      socket?.terminate()
    }
    this.#next = undefined
    this.#replaced = undefined
  }

  #receive(socket: RawSocket, message: ServerMessage, marks: readonly string[]): void {
    if (marks.length > 0) this.parts.note({ kind: 'marks', marks })
    if (socket.abandoned) return
    if (message.t === 'welcome') this.#welcome(socket, message)
    if (socket.superseded || socket !== this.#socket || !this.#online) return
    switch (message.t) {
      case 'joined':
        if (message.request_id === this.#joinRequest) this.#seat = new RawSeat(message, this.parts)
        break
      case 'ack':
        if (message.room_id === this.#seat?.room) this.#seat.acked(message.ref)
        break
      case 'reply':
        if (message.room_id === this.#seat?.room)
          this.#seat.replied(message.ref, message.data as unknown as Reply)
        break
      case 'error':
        this.#refused(message)
        break
      case 'move':
        if (message.url === undefined) this.parts.clock.schedule(message.in_ms, () => socket.close())
        else if (this.parts.reroutes) this.#reroute(message.url)
        break
      case 'state.snapshot':
      case 'state.resync':
      case 'state.patch':
      case 'event':
      case 'member':
        this.#frame(socket, message)
        break
      case 'left':
        if (message.room_id === this.#seat?.room) this.#seatGone()
    }
  }

  #frame(socket: RawSocket, message: RoomFrame): void {
    const seat = this.#seat
    const resync = message.room_id === seat?.room ? seat.take(message) : undefined
    if (resync) socket.send(resync)
  }

  #welcome(socket: RawSocket, message: Received<'welcome'>): void {
    const { note } = this.parts
    const { session_id: sessionId, resume_token: resumeToken, resumed, node_id: nodeId } = message
    if (socket.superseded) {
      this.#watchTwin(socket)
      return
    }
    if (this.#rival && socket === this.#rival) [this.#rival, this.#socket] = [this.#socket, this.#rival]
    if (this.#rival) this.#rival.superseded = true
    this.#session = { id: sessionId, token: resumeToken }
    this.#online = true
    this.#attempts = 0
    if (this.#replaced) note({ kind: 'rerouted' })
    this.#replaced?.close()
    this.#replaced = undefined
    note({ kind: 'welcome', node: nodeId, session: sessionId, resumed })
    const seat = this.#seat
    if (seat) {
      seat.resumed()
      for (const unacked of seat.resend()) socket.send(unacked)
    } else this.#join()
  }

  /** Both racing connections have received a welcome. The server must close one of them within `TAKEN_OVER_WITHIN_MS`. */
  #watchTwin(twin: RawSocket): void {
    const first = this.#socket
    this.parts.clock.schedule(TAKEN_OVER_WITHIN_MS, () => {
      if (twin.open && first?.open) this.parts.note({ kind: 'raced', winners: 2 })
    })
  }

  #join(): void {
    const { clock, roomType, key, watches } = this.parts
    this.#cancelJoin()
    if (this.#seat || !this.#online) return
    if (watches && clock.monotonic() < this.#begun + WATCH_AFTER_MS) {
      this.#joinLater()
      return
    }
    this.#joinRequest += 1
    this.#socket?.send({
      t: 'join',
      request_id: this.#joinRequest,
      room_type: roomType,
      options: { key },
      ...(watches && { watch: true }),
    })
  }

  #refused({ request_id: requestId, ref, code }: Received<'error'>): void {
    const seat = this.#seat
    if (ref !== undefined && seat?.unacked.has(ref)) seat.refused(ref, code)
    if (!seat && requestId === this.#joinRequest) this.#joinLater()
  }

  /** A resume before the delay has passed joins immediately. Only the answer to the last join counts. */
  #joinLater(): void {
    this.#cancelJoin()
    this.#cancelJoin = this.parts.clock.schedule(JOIN_AGAIN_MS, () => this.#join())
  }

  #seatGone(): void {
    this.#seat?.lost('seat')
    this.#seat = undefined
    this.#joinLater()
  }

  #lostSocket(socket: RawSocket, code: number, reason: string): void {
    if (socket === this.#next) {
      this.#next = undefined
      return
    }
    if (socket.abandoned) return
    const { note } = this.parts
    const { superseded } = socket
    note({
      kind: 'closed',
      code,
      reason,
      asked: socket.asked || this.closed,
      ...(superseded && { superseded }),
    })
    if (socket === this.#rival) {
      this.#rival = undefined
      return
    }
    if (socket !== this.#socket || this.closed) return
    this.#abandonChangeOver()
    this.#socket = undefined
    this.#online = false
    // The rival of a race may still win.
    if (this.#rival && !this.#rival.superseded) {
      this.#socket = this.#rival
      this.#rival = undefined
      return
    }
    if (closeAdvice(code) !== 'resume' && !socket.asked) this.#forgetSession()
    this.#connectLater()
  }

  /** Forgets the session and its seat. The next connection starts a new session. */
  #forgetSession(): void {
    this.#session = undefined
    this.#seat?.lost('session')
    this.#seat = undefined
    // The other racing connection may still have the session. Its goodbye ends the session.
    this.#rival?.goodbye()
  }

  #connectLater(): void {
    const longest = Math.min(LONGEST_BACKOFF_MS, FIRST_BACKOFF_MS * 2 ** this.#attempts)
    this.#attempts += 1
    this.parts.clock.schedule(longest * this.parts.random(), () => {
      if (!this.#socket) this.connect()
    })
  }

  /** Breaks the connection without a closing handshake. */
  #drop(): void {
    const socket = this.#socket
    this.#abandonChangeOver()
    this.#socket = undefined
    this.#online = false
    if (socket) socket.superseded = true
    socket?.terminate()
  }
}

const OPEN_WITHIN_MS = 2000
/** Without a message for this time a connection counts as lost. The client sends a ping after each third of it. */
const SILENCE_MS = 3000

type Dialling = Pick<PlayerParts, 'clock' | 'dial'>

interface RawHandlers {
  open(socket: RawSocket): void
  message(socket: RawSocket, message: ServerMessage, marks: readonly string[]): void
  /** Called once. The code is 1006 without a closing handshake. */
  closed(socket: RawSocket, code: number, reason: string): void
}

/** A connection in the JSON subprotocol. It closes when the other side is silent. */
class RawSocket {
  readonly door: Door
  /** Another connection has the session. The client ignores further messages, but records the end. */
  superseded = false
  /** Part of a change-over that is over. The client ignores further messages and the end. */
  abandoned = false
  /** The client has closed the connection. */
  asked = false
  readonly #clock: Clock
  readonly #socket: WebSocket
  #cancel = () => {}
  #heardAt: number

  constructor(door: Door, { clock, dial }: Dialling, handlers: RawHandlers) {
    this.door = door
    this.#clock = clock
    this.#heardAt = clock.monotonic()
    this.#socket = new WebSocket(door.url, ['roomful.v1.json'], {
      perMessageDeflate: false,
      ...(dial && { createConnection: () => dial(door) }),
    })
    this.#socket.on('open', () => {
      this.#cancel()
      handlers.open(this)
    })
    let isFirst = true
    this.#socket.on('message', (data: Buffer) => {
      this.#heardAt = clock.monotonic()
      // A node may take five seconds before it answers a resume.
      if (isFirst) this.#watch()
      isFirst = false
      const text = data.toString()
      const message = decodeJson(text)
      if (message) handlers.message(this, message, marksIn(text))
    })
    this.#socket.on('error', () => {})
    this.#socket.on('close', (code, reason) => {
      this.#cancel()
      handlers.closed(this, code, reason.toString())
    })
    this.#cancel = clock.schedule(OPEN_WITHIN_MS, () => this.#socket.terminate())
  }

  #watch(): void {
    this.#cancel()
    this.#cancel = this.#clock.schedule(SILENCE_MS / 3, () => {
      if (this.#clock.monotonic() - this.#heardAt > SILENCE_MS) this.#socket.terminate()
      else {
        if (!this.abandoned) this.send({ t: 'ping', at: Math.round(this.#heardAt) })
        this.#watch()
      }
    })
  }

  get open(): boolean {
    return this.#socket.readyState === WebSocket.OPEN
  }

  send(message: ClientMessage): void {
    if (this.open) this.#socket.send(encodeJson(message))
  }

  /** Breaks the connection without a closing handshake. */
  terminate(): void {
    this.#socket.terminate()
  }

  /** Ends the session, then closes the connection. */
  goodbye(): void {
    this.send({ t: 'goodbye' })
    this.close()
  }

  close(): void {
    this.asked = true
    this.#socket.close()
    // A peer that hangs does not complete the closing handshake.
    this.#clock.schedule(500, () => this.#socket.terminate())
  }
}
