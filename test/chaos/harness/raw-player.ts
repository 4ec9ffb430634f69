import WebSocket from 'ws'
import type { Clock } from '../../../shared/clock.ts'
import type { Json, JsonObject } from '../../../shared/json.ts'
import { closeAdvice } from '../../../shared/protocol/error-codes.ts'
import type { ClientMessage, ServerMessage } from '../../../shared/protocol/messages.ts'
import { applyOperations } from '../../../shared/protocol/testing/json-client-codec.ts'
import { Checksum } from '../../../shared/sync/checksum.ts'
import { type End, type FrameName, playerIn, type Reply } from '../checker/history.ts'
import { type AppliedOp, type ChaosState, layersIn, marksIn, type View } from '../room-logic.ts'
import {
  DEAF_MS,
  type Door,
  MOST_WAITING,
  type NewOp,
  type Note,
  Player,
  type PlayerParts,
} from './player.ts'

const WELCOME_WITHIN_MS = 10_000
const FIRST_BACKOFF_MS = 50
const LONGEST_BACKOFF_MS = 1000
const JOIN_AGAIN_MS = 250
/** A node that cannot be reached for a while hears late that a session is elsewhere. */
const TAKEN_OVER_WITHIN_MS = 8000

/** A client written from docs/protocol.md alone, in JSON, that writes down everything it does and sees. */
export class RawPlayer extends Player {
  #socket: RawSocket | undefined
  #rival: RawSocket | undefined
  /** To the node of its room, until it is open; and what is given up for it, until the server closes it. */
  #next: RawSocket | undefined
  #replaced: RawSocket | undefined
  #online = false
  #session: { readonly id: string; readonly token: string } | undefined
  #seat: RawSeat | undefined
  #joinRequest = 0
  #cancelJoin = () => {}
  #attempts = 0

  get settled(): boolean {
    return this.#online && this.#seat !== undefined && this.#seat.kept.size === 0 && this.#seat.current
  }

  protected get ready(): boolean {
    return this.#online && this.#seat?.current === true && this.#seat.kept.size < MOST_WAITING
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

  stand(): End['members'][number] | undefined {
    const seat = this.#seat
    if (!seat || !this.#online) return undefined
    return { client: this.name, room: seat.room, member: seat.member, ...seat.stand }
  }

  describe(): string {
    const kept = [...(this.#seat?.kept.keys() ?? [])]
    return `${this.name} is ${this.#online ? 'online' : 'offline'}, ${this.#seat ? (this.#seat.current ? 'in its room' : 'waiting for a state') : 'without a seat'}, with ${kept.length} unsettled ${kept.join(', ')}`
  }

  override close(): void {
    super.close()
    this.#rival?.goodbye()
    this.#letGo()
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
    else this.#later()
  }

  #socketTo(door: Door): RawSocket {
    return new RawSocket(door, this.parts, {
      open: (socket) => this.#opened(socket),
      message: (socket, message, marks) => this.#receive(socket, message, marks),
      closed: (socket, code, reason) => this.#lostSocket(socket, code, reason),
    })
  }

  #opened(socket: RawSocket): void {
    const { project_id: projectId, token, note } = this.parts
    if (socket === this.#next && !this.#changeOver(socket)) return
    note({ kind: 'connected', node: socket.door.node })
    const features = ['layers']
    if (this.#session) {
      const { id, token: resumeToken } = this.#session
      note({ kind: 'resuming', session: id })
      const rooms = this.#seat ? [this.#seat.position] : []
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

  /** All its rooms are at another node. */
  #reroute(url: string): void {
    if (this.#next || this.#rival || this.closed) return
    this.#next = this.#socketTo(this.rerouting(url))
    this.disturb(this.#socket, this.#next)
  }

  /** The socket to the node of its room is open: from now on nothing is sent on the one there was, and nothing counts of what comes there. */
  #changeOver(next: RawSocket): boolean {
    this.#next = undefined
    if (!this.#online || !this.#seat || this.#rival) {
      next.givenUp = true
      next.terminate()
      return false
    }
    this.#letGo()
    this.#replaced = this.#socket
    if (this.#replaced) this.#replaced.givenUp = true
    this.#socket = next
    this.#online = false
    return true
  }

  #letGo(): void {
    for (const socket of [this.#next, this.#replaced]) {
      if (socket) socket.givenUp = true
      socket?.terminate()
    }
    this.#next = undefined
    this.#replaced = undefined
  }

  #receive(socket: RawSocket, message: ServerMessage, marks: readonly string[]): void {
    if (marks.length > 0) this.parts.note({ kind: 'marks', marks })
    if (socket.givenUp) return
    if (message.t === 'welcome') this.#welcome(socket, message)
    if (socket.superseded || socket !== this.#socket || !this.#online) return
    switch (message.t) {
      case 'joined':
        if (message.request_id === this.#joinRequest)
          this.#seat = new RawSeat(message.room_id, message.member_id, this.parts)
        break
      case 'ack':
        if (message.room_id === this.#seat?.room) this.#seat.acked(message.ref)
        break
      case 'reply':
        if (message.room_id === this.#seat?.room) this.#seat.replied(message.ref, message.data as Reply)
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
      case 'layer.state':
      case 'layer.patch':
        if (message.room_id === this.#seat?.room) this.#seat.takeLayer(message)
    }
  }

  #frame(socket: RawSocket, message: RoomFrame): void {
    const seat = this.#seat
    if (!seat || message.room_id !== seat.room) return
    const isGone = message.t === 'member' && message.status === 'left' && message.member_id === seat.member
    // The end of a seat that no owner knows any more is of no flush: its epoch and seq are 0.
    const ask = isGone && message.epoch === 0 ? undefined : seat.take(message)
    if (ask) socket.send(ask)
    if (isGone) this.#seatGone()
  }

  #welcome(socket: RawSocket, message: Extract<ServerMessage, { t: 'welcome' }>): void {
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
      for (const kept of seat.again()) socket.send(kept)
    } else this.#join()
  }

  /** Both of two racing connections were welcome: one of them must be told, soon, that the other has the session. */
  #watchTwin(twin: RawSocket): void {
    const first = this.#socket
    this.parts.clock.schedule(TAKEN_OVER_WITHIN_MS, () => {
      if (twin.open && first?.open) this.parts.note({ kind: 'raced', winners: 2 })
    })
  }

  #join(): void {
    const { room_type: roomType, key } = this.parts
    this.#cancelJoin()
    if (this.#seat || !this.#online) return
    this.#joinRequest += 1
    this.#socket?.send({ t: 'join', request_id: this.#joinRequest, room_type: roomType, options: { key } })
  }

  #refused({ request_id: requestId, ref, code }: Extract<ServerMessage, { t: 'error' }>): void {
    const seat = this.#seat
    if (ref !== undefined && seat?.kept.has(ref)) seat.refused(ref, code)
    if (!seat && requestId === this.#joinRequest) this.#joinLater()
  }

  /** A resume may come before its time and join at once: of two joins on the way only the answer to the last one counts. */
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
    if (socket.givenUp) return
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
    this.#letGo()
    this.#socket = undefined
    this.#online = false
    // The rival of a race may still win.
    if (this.#rival && !this.#rival.superseded) {
      this.#socket = this.#rival
      this.#rival = undefined
      return
    }
    if (closeAdvice(code) !== 'resume' && !socket.asked) this.#forget()
    this.#later()
  }

  /** The session is over: a new one, a new seat. */
  #forget(): void {
    this.#session = undefined
    this.#seat?.lost('session')
    this.#seat = undefined
    // Of two racing connections the other may have it: its session ends with it.
    this.#rival?.goodbye()
  }

  #later(): void {
    const longest = Math.min(LONGEST_BACKOFF_MS, FIRST_BACKOFF_MS * 2 ** this.#attempts)
    this.#attempts += 1
    this.parts.clock.schedule(longest * this.parts.random(), () => {
      if (!this.#socket) this.connect()
    })
  }

  /** The connection is given up without a word. */
  #drop(): void {
    const socket = this.#socket
    this.#letGo()
    this.#socket = undefined
    this.#online = false
    if (socket) socket.superseded = true
    socket?.terminate()
  }
}

type Kept = Extract<ClientMessage, { t: 'message' }> & { readonly ref: number }
type RoomFrame = Extract<ServerMessage, { t: FrameName }>
type Patch = Extract<RoomFrame, { t: 'state.patch' }>
type LayerFrame = Extract<ServerMessage, { t: 'layer.state' | 'layer.patch' }>

/** What is hidden in one layer, and the flush of the `layer.state` that it began with. */
interface Layer {
  readonly state: Json
  readonly epoch: number
  readonly seq: number
}

const isObject = (value: Json | undefined): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** What the base has not comes from the layer, and what are objects in both goes together. */
function mergeInto(base: JsonObject, layer: JsonObject): JsonObject {
  const merged = Object.entries(layer).map(([key, value]): [string, Json] => {
    const below = base[key]
    return [key, isObject(below) && isObject(value) ? mergeInto(below, value) : (below ?? value)]
  })
  return { ...base, ...Object.fromEntries(merged) }
}

/** How long a resync may take before it is asked for again. */
const RESYNC_AGAIN_MS = 3000

/** One member's copy of its room, by docs/protocol.md and nothing else; writes down every frame. */
class RawSeat {
  readonly room: string
  readonly member: string
  /** Reliable messages that are not settled, oldest first. */
  readonly kept = new Map<number, Kept>()
  readonly #note: (note: Note) => void
  readonly #clock: Clock
  readonly #checksum = new Checksum()
  #layers: ReadonlyMap<string, Layer> = new Map()
  /** Of layers, before the frame of their flush. */
  #held: LayerFrame[] = []
  /** The base. */
  #state: Json | undefined
  #epoch = 0
  #seq = 0
  #lastRef = 0
  #waiting = true
  #askedAt = Number.NEGATIVE_INFINITY
  #view: View | undefined

  constructor(room: string, member: string, { note, clock }: { note: (note: Note) => void; clock: Clock }) {
    this.room = room
    this.member = member
    this.#note = note
    this.#clock = clock
    this.#write({ kind: 'joined' })
  }

  get position() {
    const { room, member } = this
    return { room_id: room, member_id: member, epoch: this.#epoch, seq: this.#seq, settled: this.#settled }
  }

  /** The ref up to which every outcome is known. */
  get #settled(): number {
    const [lowest] = this.kept.keys()
    return lowest === undefined ? this.#lastRef : lowest - 1
  }

  /** Whether the state is the room's, as far as this client can tell. */
  get current(): boolean {
    return !this.#waiting && this.#state !== undefined
  }

  get stand() {
    return { epoch: this.#epoch, seq: this.#seq, state: this.#merged }
  }

  get #merged(): Json {
    const layers = [...this.#layers.values()].map(({ state }) => state)
    return layers.filter(isObject).reduce(mergeInto, (this.#state ?? {}) as JsonObject)
  }

  /** After a resume: what was missed follows frame by frame, or a whole state does. */
  resumed(): void {
    this.#waiting = false
    this.#held = []
  }

  /** Takes a frame; gives the resync to ask for, if one is needed. */
  take(frame: RoomFrame): ClientMessage | undefined {
    if (frame.epoch < this.#epoch) {
      this.#writeFrame(frame, false)
      return undefined
    }
    if (frame.t === 'state.snapshot' || frame.t === 'state.resync') {
      const { epoch, seq } = frame
      const here = [...this.#layers].filter(([, layer]) => layer.epoch === epoch && layer.seq === seq)
      this.#layers = this.#changed(new Map(here), this.#release(frame)) ?? new Map()
      this.#state = frame.state
      this.#epoch = frame.epoch
      this.#seq = frame.seq
      this.#waiting = false
      this.#writeFrame(frame, true)
      return undefined
    }
    const reason = frame.t === 'state.patch' ? this.#patch(frame) : this.#follow(frame)
    return reason && this.#ask(reason)
  }

  /** What is of a layer waits for the frame of its flush, unless that is here. */
  takeLayer(frame: LayerFrame): void {
    if (frame.epoch < this.#epoch || (this.#waiting && frame.t === 'layer.patch')) return
    const late = !this.#waiting && frame.seq === this.#seq && frame.t !== 'layer.patch'
    if (!late) {
      this.#held.push(frame)
      return
    }
    this.#layers = this.#changed(this.#layers, [frame]) ?? this.#layers
    this.#write({ kind: 'layers', layers: this.#heldLayers })
  }

  send({ ask, ...op }: NewOp): ClientMessage {
    const ref = this.#lastRef + 1
    const data = { ...op, ref }
    const settled = this.#settled
    const type = ask ? 'ask' : 'op'
    const message: Kept = { t: 'message', room_id: this.room, type, data, ref, settled }
    this.kept.set(ref, message)
    this.#lastRef = ref
    this.#writeSent(message, false)
    return message
  }

  /** Everything that is kept, to be sent again. */
  again(): ClientMessage[] {
    const messages = [...this.kept.values()]
    for (const message of messages) this.#writeSent(message, true)
    return messages
  }

  #writeSent({ type, ref, data }: Kept, again: boolean): void {
    const { op, refuse } = data as Omit<NewOp, 'ask'>
    this.#write({ kind: 'sent', ref, op, refuse, ask: type === 'ask', again })
  }

  replied(ref: number, reply: Reply): void {
    if (this.kept.has(ref)) this.#write({ kind: 'reply', ref, reply })
  }

  acked(ref: number): void {
    this.#write({ kind: 'ack', ref })
    for (const kept of [...this.kept.keys()]) if (kept <= ref) this.kept.delete(kept)
  }

  refused(ref: number, code: string): void {
    if (!this.kept.delete(ref)) return
    this.#write({ kind: 'refused', ref, code })
  }

  lost(why: 'session' | 'seat'): void {
    this.#write({ kind: 'lost', why })
  }

  #patch(frame: Patch): 'sequence' | 'checksum' | undefined {
    if (this.#waiting || frame.seq !== this.#seq + 1) {
      this.#writeFrame(frame, false)
      return this.#waiting || frame.seq > this.#seq ? 'sequence' : undefined
    }
    const before = { state: this.#state, epoch: this.#epoch, seq: this.#seq }
    const layers = this.#changed(this.#layers, this.#release(frame))
    try {
      this.#state = applyOperations(this.#state as Json, frame.ops)
    } catch {
      this.#writeFrame(frame, false)
      return 'checksum'
    }
    this.#epoch = frame.epoch
    this.#seq = frame.seq
    const known = this.#layers
    this.#layers = layers ?? known
    this.#writeFrame(frame, true)
    if (layers && this.#checksum.of(this.#state) === frame.checksum) return undefined
    this.#layers = known
    this.#state = before.state
    this.#epoch = before.epoch
    this.#seq = before.seq
    return 'checksum'
  }

  #release({ epoch, seq }: RoomFrame): LayerFrame[] {
    const held = this.#held.filter((frame) => frame.epoch === epoch && frame.seq === seq)
    this.#held = []
    return held
  }

  /** Layers after frames of theirs; undefined where one does not fit. A checksum that is another is written down. */
  #changed(
    layers: ReadonlyMap<string, Layer>,
    frames: readonly LayerFrame[],
  ): Map<string, Layer> | undefined {
    const changed = new Map(layers)
    for (const frame of frames) {
      const { layer, epoch, seq } = frame
      if (frame.t === 'layer.state' && frame.state === undefined) {
        changed.delete(layer)
        continue
      }
      const known = changed.get(layer)
      const now =
        frame.t === 'layer.state' ? { state: frame.state!, epoch, seq } : known && patched(known, frame)
      const actual = now && this.#checksum.of(now.state)
      if (actual !== frame.checksum) this.#write({ kind: 'misfit', layer, seq, actual: actual ?? null })
      if (!now || actual !== frame.checksum) return undefined
      changed.set(layer, now)
    }
    return changed
  }

  #follow(frame: Exclude<RoomFrame, { t: 'state.patch' | 'state.snapshot' | 'state.resync' }>) {
    this.#writeFrame(frame, false)
    if (this.#waiting || frame.seq <= this.#seq) return undefined
    if (frame.seq > this.#seq + 1) return 'sequence' as const
    this.#epoch = frame.epoch
    this.#seq = frame.seq
    return undefined
  }

  #ask(reason: 'sequence' | 'checksum'): ClientMessage | undefined {
    const now = this.#clock.monotonic()
    if (this.#waiting && now - this.#askedAt < RESYNC_AGAIN_MS) return undefined
    this.#waiting = true
    this.#askedAt = now
    return { t: 'state.resync', room_id: this.room, reason }
  }

  #writeFrame(frame: RoomFrame, applied: boolean): void {
    const { t, epoch, seq } = frame
    const checksum = 'checksum' in frame ? frame.checksum : undefined
    const actual = applied ? this.#checksum.of(this.#state as Json) : undefined
    const op = frame.t === 'event' && frame.name === 'applied' ? (frame.data as AppliedOp) : undefined
    const layers = applied ? this.#heldLayers : undefined
    const view = applied ? this.#newView() : undefined
    this.#write({
      kind: 'frame',
      t,
      epoch,
      seq,
      ...(checksum !== undefined && { checksum }),
      ...(actual !== undefined && { actual }),
      ...(op && { op }),
      ...(view && { view }),
      ...(layers && { layers }),
    })
  }

  get #heldLayers() {
    return layersIn(this.#merged as Partial<ChaosState>, this.member)
  }

  /** What the state says of this member, when that is something new. */
  #newView(): View | undefined {
    const view = playerIn(this.#state, this.member)
    if (!view || view === this.#view) return undefined
    const same = view.count === this.#view?.count && view.chain === this.#view.chain
    this.#view = view
    return same ? undefined : view
  }

  #write(note: Body): void {
    this.#note({ ...note, room: this.room, member: this.member } as Note)
  }
}

/** Undefined where the patch does not fit. */
function patched(layer: Layer, { ops }: Extract<LayerFrame, { t: 'layer.patch' }>): Layer | undefined {
  try {
    return { ...layer, state: applyOperations(layer.state, ops) }
  } catch {
    return undefined
  }
}

type OfRoom = Extract<Note, { room: string }>
type Body = OfRoom extends infer N ? (N extends unknown ? Omit<N, 'room' | 'member'> : never) : never

const OPEN_WITHIN_MS = 2000
/** A connection on which nothing comes for so long is dead; a ping asks every third of it. */
const SILENCE_MS = 3000

type Dialling = Pick<PlayerParts, 'clock' | 'dial'>

interface RawHandlers {
  open(socket: RawSocket): void
  message(socket: RawSocket, message: ServerMessage, marks: readonly string[]): void
  /** Called once; 1006 when there was no closing handshake. */
  closed(socket: RawSocket, code: number, reason: string): void
}

/** One connection in the JSON subprotocol, which notices by itself when the other side is gone. */
class RawSocket {
  readonly door: Door
  /** Nothing that comes is of interest any more. */
  superseded = false
  /** Replaced at another node, or not needed for it: neither what comes nor its end means anything. */
  givenUp = false
  /** Closed by this client's own wish. */
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
      // A node may hold a resume up for five seconds before it says anything.
      if (isFirst) this.#watch()
      isFirst = false
      const text = data.toString()
      handlers.message(this, JSON.parse(text) as ServerMessage, marksIn(text))
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
        if (!this.givenUp) this.send({ t: 'ping', at: Math.round(this.#heardAt) })
        this.#watch()
      }
    })
  }

  get open(): boolean {
    return this.#socket.readyState === WebSocket.OPEN
  }

  send(message: ClientMessage): void {
    if (this.open) this.#socket.send(JSON.stringify(message))
  }

  /** As a network breaks: without a word. */
  terminate(): void {
    this.#socket.terminate()
  }

  /** Ends the session with the connection. */
  goodbye(): void {
    this.send({ t: 'goodbye' })
    this.close()
  }

  close(): void {
    this.asked = true
    this.#socket.close()
    // A peer that hangs never answers.
    this.#clock.schedule(500, () => this.#socket.terminate())
  }
}
