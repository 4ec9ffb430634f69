import { CLOSE, closeName } from '../../../shared/protocol/close-codes.ts'
import type { ServerMessage } from '../../../shared/protocol/messages.ts'
import type { End } from '../checker/history.ts'
import { DEAF_MS, type Door, MOST_WAITING, type NewOp, Ops, type Player, type PlayerParts } from './player.ts'
import { RawSeat } from './raw-seat.ts'
import { RawSocket } from './raw-socket.ts'

const WELCOME_WITHIN_MS = 4000
const FIRST_BACKOFF_MS = 50
const LONGEST_BACKOFF_MS = 1000
const JOIN_AGAIN_MS = 250
/** A node that cannot be reached for a while hears late that a session is elsewhere. */
const TAKEN_OVER_WITHIN_MS = 8000

export interface RawPlayerParts extends PlayerParts {
  /** The nodes there are at this moment. */
  readonly doors: () => readonly Door[]
}

/** A client written from docs/protocol.md alone, in JSON, that writes down everything it does and sees. */
export class RawPlayer implements Player {
  readonly name: string
  readonly #parts: RawPlayerParts
  readonly #ops: Ops
  #socket: RawSocket | undefined
  #rival: RawSocket | undefined
  #online = false
  #session: { readonly id: string; readonly token: string } | undefined
  #seat: RawSeat | undefined
  #joinRef = 0
  #lastRef = 0
  #attempts = 0
  #resting = false
  #closed = false

  constructor(parts: RawPlayerParts) {
    this.name = parts.name
    this.#parts = parts
    this.#ops = new Ops(parts.name, parts.random)
  }

  get settled(): boolean {
    return this.#online && this.#seat !== undefined && this.#seat.kept.size === 0 && this.#seat.current
  }

  start(): void {
    this.#connect()
    this.#playOn()
  }

  rest(): void {
    this.#resting = true
  }

  last(): void {
    this.#op(this.#ops.good())
  }

  cut(): void {
    this.#socket?.terminate()
  }

  race(): void {
    const doors = this.#shuffledDoors()
    if (!this.#session || !this.#online || doors.length === 0) return
    this.#drop()
    this.#open(doors[0]!)
    this.#rival = this.#socket
    this.#open(doors[1] ?? doors[0]!)
  }

  stand(): End['members'][number] | undefined {
    const seat = this.#seat
    if (!seat || !this.#online) return undefined
    return { client: this.name, room: seat.room, member: seat.member, ...seat.stand }
  }

  describe(): string {
    const kept = [...(this.#seat?.kept.keys() ?? [])]
    return `${this.name} is ${this.#online ? 'online' : 'offline'}, ${this.#seat ? (this.#seat.current ? 'in its room' : 'waiting for a state') : 'without a seat'}, with ${kept.length} unsettled ${kept.join(', ')}`
  }

  close(): void {
    this.#closed = true
    this.#rival?.close(CLOSE.normal.code)
    this.#socket?.close(CLOSE.normal.code)
  }

  #playOn(): void {
    setTimeout(() => {
      if (this.#closed) return
      const seat = this.#seat
      if (!this.#resting && this.#online && seat?.current && seat.kept.size < MOST_WAITING) this.#playNow()
      this.#playOn()
    }, this.#ops.pause()).unref()
  }

  #playNow(): void {
    const { ops, lost } = this.#ops.next()
    for (const op of ops) this.#op(op)
    const socket = this.#socket
    if (!lost || !socket) return
    socket.superseded = true
    setTimeout(() => socket.terminate(), DEAF_MS).unref()
  }

  #op({ op, refuse }: NewOp): void {
    this.#lastRef += 1
    const message = this.#seat?.send(op, this.#lastRef, refuse)
    if (message) this.#socket?.send(message)
  }

  #shuffledDoors(): Door[] {
    const doors = [...this.#parts.doors()]
    for (let i = doors.length - 1; i > 0; i--) {
      const j = Math.floor(this.#parts.random() * (i + 1))
      ;[doors[i], doors[j]] = [doors[j]!, doors[i]!]
    }
    return doors
  }

  #connect(): void {
    if (this.#closed) return
    const [door] = this.#shuffledDoors()
    if (door) this.#open(door)
    else this.#later()
  }

  #open(door: Door): void {
    this.#socket = new RawSocket(door, {
      open: (socket) => this.#opened(socket),
      message: (socket, message) => this.#receive(socket, message),
      closed: (socket, code, reason) => this.#lostSocket(socket, code, reason),
    })
  }

  #opened(socket: RawSocket): void {
    const { project_id: projectId, token, note } = this.#parts
    note({ kind: 'connected', node: socket.door.node })
    if (this.#session) {
      const { id, token: resumeToken } = this.#session
      note({ kind: 'resuming', session: id })
      const rooms = this.#seat ? [this.#seat.position] : []
      socket.send({
        t: 'hello',
        project_id: projectId,
        resume: { session_id: id, resume_token: resumeToken, rooms },
      })
    } else socket.send({ t: 'hello', project_id: projectId, token })
    setTimeout(() => {
      if (!this.#online || this.#socket !== socket) socket.terminate()
    }, WELCOME_WITHIN_MS).unref()
  }

  #receive(socket: RawSocket, message: ServerMessage): void {
    if (message.t === 'welcome') this.#welcome(socket, message)
    if (socket.superseded || socket !== this.#socket || !this.#online) return
    switch (message.t) {
      case 'joined':
        if (message.ref === this.#joinRef)
          this.#seat = new RawSeat(message.room_id, message.member_id, this.#parts.note)
        break
      case 'ack':
        if (message.room_id === this.#seat?.room) this.#seat.acked(message.ref)
        break
      case 'error':
        this.#refused(message)
        break
      case 'draining':
        setTimeout(() => socket.close(CLOSE.draining.code), message.reconnect_in_ms).unref()
        break
      case 'state.snapshot':
      case 'state.resync':
      case 'state.patch':
      case 'event':
      case 'room.joined':
      case 'room.left':
        this.#frame(socket, message)
    }
  }

  #frame(
    socket: RawSocket,
    message: Extract<
      ServerMessage,
      { t: 'state.snapshot' | 'state.resync' | 'state.patch' | 'event' | 'room.joined' | 'room.left' }
    >,
  ): void {
    const seat = this.#seat
    if (!seat || message.room_id !== seat.room) return
    const ask = seat.take(message)
    if (ask) socket.send(ask)
    if (message.t === 'room.left' && message.member_id === seat.member) this.#seatGone()
  }

  #welcome(socket: RawSocket, message: Extract<ServerMessage, { t: 'welcome' }>): void {
    const { note } = this.#parts
    const { session_id: sessionId, resume_token: resumeToken, resumed, node_id: nodeId, rooms } = message
    if (socket.superseded) {
      this.#watchTwin(socket)
      return
    }
    if (this.#rival && socket === this.#rival) [this.#rival, this.#socket] = [this.#socket, this.#rival]
    if (this.#rival) this.#rival.superseded = true
    this.#session = { id: sessionId, token: resumeToken }
    this.#online = true
    this.#attempts = 0
    const back = rooms?.map(({ room_id: roomId, resumed: complete }) => ({ room: roomId, resumed: complete }))
    note({ kind: 'welcome', node: nodeId, session: sessionId, resumed, ...(back && { rooms: back }) })
    const seat = this.#seat
    const room = back?.find((candidate) => candidate.room === seat?.room)
    if (seat && room) {
      seat.resumed(room.resumed)
      for (const kept of seat.again()) socket.send(kept)
    } else if (seat) this.#seatGone()
    else this.#join()
  }

  /** Both of two racing connections were welcome: one of them must be told, soon, that the other has the session. */
  #watchTwin(twin: RawSocket): void {
    const first = this.#socket
    setTimeout(() => {
      if (twin.open && first?.open) this.#parts.note({ kind: 'raced', winners: 2 })
    }, TAKEN_OVER_WITHIN_MS).unref()
  }

  #join(): void {
    const { room_type: roomType, key } = this.#parts
    if (this.#seat || !this.#online) return
    this.#lastRef += 1
    this.#joinRef = this.#lastRef
    this.#socket?.send({ t: 'join', ref: this.#joinRef, room_type: roomType, options: { key } })
  }

  #refused({ ref, room_id: roomId, code }: Extract<ServerMessage, { t: 'error' }>): void {
    const seat = this.#seat
    if (ref !== undefined && seat?.kept.has(ref)) seat.refused(ref, code)
    if (code === 'not_in_room' && seat && (roomId === undefined || roomId === seat.room)) this.#seatGone()
    else if (!seat && ref === this.#joinRef) setTimeout(() => this.#join(), JOIN_AGAIN_MS).unref()
  }

  #seatGone(): void {
    this.#seat?.lost('seat')
    this.#seat = undefined
    setTimeout(() => this.#join(), JOIN_AGAIN_MS).unref()
  }

  #lostSocket(socket: RawSocket, code: number, reason: string): void {
    const { note } = this.#parts
    const { superseded } = socket
    note({
      kind: 'closed',
      code,
      reason,
      asked: socket.asked || this.#closed,
      ...(superseded && { superseded }),
    })
    if (socket === this.#rival) {
      this.#rival = undefined
      return
    }
    if (socket !== this.#socket || this.#closed) return
    this.#socket = undefined
    this.#online = false
    // The rival of a race may still win.
    if (this.#rival && !this.#rival.superseded) {
      this.#socket = this.#rival
      this.#rival = undefined
      return
    }
    const name = closeName(code)
    if (name !== undefined && CLOSE[name].retry !== 'resume' && !socket.asked) this.#forget()
    this.#later()
  }

  /** The session is over: a new one, a new seat. */
  #forget(): void {
    this.#session = undefined
    this.#seat?.lost('session')
    this.#seat = undefined
    // Of two racing connections the other may have it: its session ends with it.
    this.#rival?.close(CLOSE.normal.code)
  }

  #later(): void {
    const longest = Math.min(LONGEST_BACKOFF_MS, FIRST_BACKOFF_MS * 2 ** this.#attempts)
    this.#attempts += 1
    setTimeout(() => {
      if (!this.#socket) this.#connect()
    }, longest * this.#parts.random()).unref()
  }

  /** The connection is given up without a word. */
  #drop(): void {
    const socket = this.#socket
    this.#socket = undefined
    this.#online = false
    if (socket) socket.superseded = true
    socket?.terminate()
  }
}
