import { Backoff } from '../shared/backoff.ts'
import type { Clock } from '../shared/clock.ts'
import type { Json } from '../shared/json.ts'
import type { DecodedMessage } from '../shared/protocol/codec.ts'
import {
  type ClientMessage,
  type JoinOptions,
  MAX,
  type ResumePosition,
} from '../shared/protocol/messages.ts'
import type { Random } from '../shared/random.ts'
import type { Encoded } from './connection.ts'
import { RoomfulError } from './errors.ts'
import { Listeners, type Report } from './listeners.ts'
import { Replica, type RoomFrame } from './replica.ts'
import type { Counters } from './stats.ts'
import type { KeptMessage, KeptSeat, TabSession } from './tab.ts'

/**
 * `joining`: no snapshot yet. `resuming`: an earlier page had the seat, and the state has not arrived. `rejoining`: the session or the seat
 * was lost, and the client is joining again as a new member. `left`: final.
 */
export type SeatStatus = 'joining' | 'resuming' | 'joined' | 'rejoining' | 'left'

/**
 * Reason why this client is no longer in a room.
 * - `left`: this client called `leave`.
 * - `kicked`: the room removed the player.
 * - `closed`: the room ended.
 * - `replaced`: another client of the player has taken over (`sameSub` of the room type).
 * - `rejoin_failed`: the client was offline for too long or the session was lost, and joining again has failed.
 * - `client_closed`: the client was closed.
 */
export type LeaveReason = 'left' | 'kicked' | 'closed' | 'replaced' | 'rejoin_failed' | 'client_closed'

/** Reasons of `left` with which the room removes this client. After any other reason the client joins again. */
const LEAVE_REASONS: { readonly [reason: string]: LeaveReason } = {
  kicked: 'kicked',
  closed: 'closed',
  replaced: 'replaced',
}

/** Number of rejoins after retryable errors. */
const REJOINS = 5
const REJOIN_BASE_MS = 500
const REJOIN_MAX_MS = 5000

/** Options of a join. */
export interface JoinTarget {
  /** False: the join fails with `room_not_found` if the room does not exist. Default: it creates the room. */
  readonly create?: boolean
  /** True: the client watches, and needs no player's place. Such a join creates no room. Default: the client plays. */
  readonly watch?: boolean
}

/** Frames about one seat, without errors. */
type SeatFrame = RoomFrame | Extract<DecodedMessage, { t: 'joined' | 'ack' | 'reply' | 'left' }>

/** An error of the server. */
type ErrorFrame = Extract<DecodedMessage, { t: 'error' }>

/** Interface of the client for its seats. */
export interface SeatLink {
  readonly clock: Clock
  readonly random: Random
  readonly counters: Counters
  readonly decodeStates: boolean
  readonly maxUnacked: UnackedLimits
  readonly report: Report
  /** Storage of reliable messages across a reload of the page. Undefined: they are not stored. */
  readonly tab: TabSession | undefined
  /** Returns a request id that is larger than all earlier ids of this client. */
  nextRequestId(): number
  /** See ClientSession. */
  send(message: ClientMessage): void
  sendEncoded(payload: Encoded): void
  encode(message: ClientMessage): Encoded
  trySend(message: ClientMessage): void
  /** The status of the seat, or its wish to leave, has changed. */
  changed(): void
  /** The seat has ended. */
  release(seat: Seat): void
  /** Reports an error that no caller awaits: to `listeners`, if there are any. */
  failed(error: unknown, listeners: Listeners<[error: unknown]>): void
}

/** Membership of this client in one room, from the join until the client has left. It outlasts connections and sessions. */
export class Seat {
  readonly roomId: string
  readonly roomType: string
  readonly replica: Replica
  readonly onLeave: Listeners<[reason: LeaveReason, error: RoomfulError | undefined]>
  /** Errors that no caller awaits. */
  readonly onError: Listeners<[error: unknown]>
  /** Resolves when the first snapshot has arrived. */
  readonly joined: Promise<void>
  readonly #link: SeatLink
  #options: JoinOptions
  /** False: the join creates no room. */
  #create: boolean
  /** Role that the next join asks for. */
  #watch: boolean
  /** True if an earlier page had the seat and this page has not joined the room. */
  #unclaimed = false
  readonly #unacked: Unacked
  readonly #rejoins: Backoff
  #joining: { resolve: () => void; reject: (error: RoomfulError) => void } | undefined
  #status: SeatStatus = 'joining'
  #memberId = ''
  #code: string | undefined
  #joinRequest: number
  /** Id of the request that `joined` has answered last. */
  #seatedBy: number | undefined
  #rejoinsLeft = REJOINS
  #leaving:
    | {
        readonly requestId: number
        readonly done: Promise<void>
        readonly finish: (error?: RoomfulError) => void
      }
    | undefined
  /** Frames that followed the snapshot. They wait until the caller that awaits the join has had time to subscribe. */
  #held: SeatFrame[] | undefined
  #cancelHold = () => {}
  #cancelRejoin = () => {}

  /** Creates a seat. `connected` sends its join. */
  constructor(
    link: SeatLink,
    roomId: string,
    roomType: string,
    options: JoinOptions,
    { create = true, watch = false }: JoinTarget = {},
  ) {
    this.#link = link
    this.#create = create
    this.#watch = watch
    this.roomId = roomId
    this.roomType = roomType
    this.#options = options
    this.#unacked = new Unacked(link.maxUnacked, roomId, link.tab)
    this.#rejoins = new Backoff(link.random, REJOIN_BASE_MS, REJOIN_MAX_MS)
    this.onLeave = new Listeners(link.report)
    this.onError = new Listeners(link.report)
    this.replica = new Replica({ ...link, roomId, send: (message) => link.send(message) })
    this.joined = new Promise((resolve, reject) => {
      this.#joining = { resolve, reject }
    })
    this.#joinRequest = link.nextRequestId()
  }

  /** Returns the seat that an earlier page of the tab had, with its unacknowledged messages. */
  static restored(link: SeatLink, tab: TabSession, roomId: string, kept: KeptSeat): Seat {
    const { room_type: roomType, options, member_id: memberId, code, spectator: watch = false } = kept
    const seat = new Seat(link, roomId, roomType, options, { watch })
    seat.#code = code
    seat.#status = 'resuming'
    seat.#memberId = memberId
    seat.#unclaimed = true
    // If the page does not join this room, nothing awaits the promise.
    seat.joined.catch(() => {})
    const messages = tab.messages(roomId)
    for (const message of messages) {
      const { ref } = message
      const payload = link.encode({ t: 'message', ...message, settled: messages[0]!.ref - 1 })
      seat.#unacked.restore({ ref, payload }, (error) => seat.failed(error))
    }
    seat.#unacked.continueAfter(tab.lastRef(roomId))
    return seat
  }

  /** Takes the seat of an earlier page for this page. Returns false if it is not such a seat, or if the client is leaving it. */
  claim(options: JoinOptions, { create = true, watch = false }: JoinTarget): boolean {
    if (!this.#unclaimed || this.#leaving) return false
    this.#unclaimed = false
    this.#options = options
    this.#create = create
    this.#watch = watch
    return true
  }

  /** True if an earlier page had the seat and this page has not joined the room. */
  get unclaimed(): boolean {
    return this.#unclaimed
  }

  /** Record of the seat for the next page of the tab. Undefined: the client has no seat, or is leaving it. */
  get kept(): KeptSeat | undefined {
    const { roomType, memberId } = this
    const has = (this.#status === 'joined' || this.#status === 'resuming') && !this.#leaving
    const code = this.#code === undefined ? {} : { code: this.#code }
    const role = this.spectator ? { spectator: true } : {}
    return has
      ? { room_type: roomType, options: this.#options, member_id: memberId, ...code, ...role }
      : undefined
  }

  get status(): SeatStatus {
    return this.#status
  }

  get memberId(): string {
    return this.#memberId
  }

  /** True if this client watches. While it has no seat: the role that it asks for. */
  get spectator(): boolean {
    if (this.#status !== 'joined' && this.#status !== 'left') return this.#watch
    // Most rooms have no spectators in their lists.
    return this.replica.members.find(({ id }) => id === this.#memberId)?.spectator ?? true
  }

  /** Code of the room; undefined: it has none. */
  get code(): string | undefined {
    return this.#code
  }

  /** True if the client has called `leave`. */
  get leaving(): boolean {
    return this.#leaving !== undefined
  }

  /** Position of the seat, for a resume. Undefined: there is nothing to resume. */
  get position(): ResumePosition | undefined {
    if (!this.#hasSeat) return undefined
    // Without a state: no room was ever at position 0, so the server sends a complete state.
    const at = this.replica.position ?? { epoch: 0, seq: 0 }
    return { room_id: this.roomId, member_id: this.#memberId, ...at, settled: this.#unacked.settled }
  }

  /** Sends a reliable message. Resolves when it is acknowledged, with the reply to a `request`. Rejects with a RoomfulError. */
  async send(type: string, data: Json, request = false): Promise<Json | undefined> {
    this.#checkOpen()
    const { nextRef: ref, settled } = this.#unacked
    const message = { room_id: this.roomId, type, data, ref }
    const payload = this.#link.encode({ t: 'message', ...message, settled })
    const outcome = this.#unacked.add(payload, message, request)
    if (this.#status === 'joined') this.#link.sendEncoded(payload)
    return outcome
  }

  /** Sends a message that may be lost. Throws a RoomfulError if the client is not in the room, or if the message is too large. */
  sendUnreliable(type: string, data: Json): void {
    this.#checkOpen()
    if (this.#status === 'joined') this.#link.trySend({ t: 'message', room_id: this.roomId, type, data })
  }

  /** Leaves the room. Resolves when the room has removed the client, and rejects if the server refuses that. */
  leave(): Promise<void> {
    if (this.#status === 'left') return Promise.resolve()
    if (this.#leaving) return this.#leaving.done
    let finish = (_error?: RoomfulError) => {}
    const done = new Promise<void>((resolve, reject) => {
      finish = (error) => (error ? reject(error) : resolve())
    })
    this.#leaving = { requestId: this.#link.nextRequestId(), done, finish }
    this.#link.changed()
    if (this.#status === 'joined') this.#sendLeave()
    return done
  }

  /** The connection is open. The server then sends the missed updates of a resumed seat, or its end. */
  connected(): void {
    if (this.#status === 'joined') {
      this.#resend()
      this.#sendLeave()
    } else if (this.#status !== 'resuming') this.#sendJoin()
  }

  /** The connection is lost. */
  disconnected(): void {
    this.#cancelRejoin()
  }

  /** The session is lost, with the seat. The client joins again in the next session. */
  forgotten(error: RoomfulError): void {
    const text = `The session was lost; the message may have been applied. ${error.message}`
    this.#unacked.restart(new RoomfulError('resume_failed', text, { cause: error }))
    if (this.#leaving) this.end('left')
    if (this.#status === 'resuming') this.#notKept(error, false)
    if (this.#status === 'joined') this.#beginRejoin()
  }

  receive(frame: SeatFrame): void {
    if (this.#held) {
      this.#held.push(frame)
      return
    }
    switch (frame.t) {
      case 'ack':
        if (this.#hasSeat) this.#unacked.ack(frame.ref)
        break
      case 'reply':
        if (this.#hasSeat) this.#unacked.reply(frame.ref, frame.data)
        break
      case 'joined':
        this.#seated(frame)
        break
      case 'left':
        // It can follow `joined` before a state that the client could read.
        if (this.#hasSeat || this.#seatedBy === this.#joinRequest) this.#removed(frame)
        break
      case 'member':
        this.replica.receive(frame)
        // The role may have changed.
        if (frame.member_id === this.#memberId) this.#link.changed()
        break
      case 'state.snapshot':
      case 'state.resync': {
        const { spectator } = this
        this.replica.receive(frame)
        if (this.replica.position) this.#arrived()
        if (this.spectator !== spectator) this.#link.changed()
        break
      }
      default:
        this.replica.receive(frame)
    }
  }

  /** Handles an error of the server about this room. Returns false if it answers no request or message of this seat. */
  refused({ request_id: requestId, ref }: ErrorFrame, error: RoomfulError): boolean {
    // An unreliable message has reached a seat that has ended. Its loss is not reported.
    if ((requestId ?? ref) === undefined) return error.code === 'not_in_room'
    if (ref !== undefined) return this.#hasSeat && this.#unacked.refuse(ref, error)
    if (requestId === this.#joinRequest && this.#status !== 'joined') this.#joinRefused(error)
    else if (this.#leaving && requestId === this.#leaving.requestId) {
      this.#leaving.finish(error)
      this.#leaving = undefined
      this.#link.changed()
    } else return false
    return true
  }

  /** Reports an error that no caller awaits. */
  failed(error: unknown): void {
    this.#link.failed(error, this.onError)
  }

  /** Ends the seat. All pending promises of the seat reject with `error`. */
  end(reason: LeaveReason, error: RoomfulError = lostSeat(this.roomId)): void {
    if (this.#status === 'left') return
    this.#status = 'left'
    this.#held = undefined
    this.#cancelHold()
    this.#cancelRejoin()
    this.#link.release(this)
    this.#unacked.restart(error)
    this.#joining?.reject(error)
    this.#leaving?.finish()
    this.onLeave.call(reason, reason === 'left' ? undefined : error)
  }

  /** False: acks, replies and errors with a ref belong to an earlier seat, and the queued messages to the next. */
  get #hasSeat(): boolean {
    return this.#status === 'joined' || this.#status === 'resuming'
  }

  #checkOpen(): void {
    if (this.#status === 'left' || this.#leaving) throw lostSeat(this.roomId)
  }

  #resend(): void {
    for (const { payload } of this.#unacked.messages) this.#link.sendEncoded(payload)
  }

  #sendJoin(): void {
    try {
      const how = {
        ...(this.#status === 'rejoining' && { rejoin: true }),
        ...(!this.#create && { create: false }),
        ...(this.#watch && { watch: true }),
      }
      const { roomType: room_type } = this
      const request_id = this.#joinRequest
      this.#link.send({ t: 'join', request_id, room_type, options: this.#options, ...how })
    } catch (error) {
      if (!(error instanceof RoomfulError)) throw error
      this.end('rejoin_failed', error)
    }
  }

  #sendLeave(): void {
    if (!this.#leaving) return
    this.#link.send({ t: 'leave', request_id: this.#leaving.requestId, room_id: this.roomId })
  }

  #seated({ request_id: requestId, member_id: memberId, code }: Extract<SeatFrame, { t: 'joined' }>): void {
    if (requestId !== this.#joinRequest) return
    this.#seatedBy = requestId
    this.#memberId = memberId
    this.#code = code
    this.replica.restart()
  }

  /** The seat of an earlier page has ended. If this page has joined the room, it joins as a new member. `online`: the join can be sent now. */
  #notKept(error: RoomfulError, online = true): void {
    this.#unacked.restart(error)
    if (this.#unclaimed || this.#leaving) {
      this.end('left', error)
      return
    }
    this.#status = 'joining'
    this.#joinRequest = this.#link.nextRequestId()
    if (online) this.#sendJoin()
  }

  /** A complete state has arrived. The first one makes the client a member. */
  #arrived(): void {
    if (this.#status === 'joined' || this.#status === 'left') return
    this.#status = 'joined'
    this.#link.changed()
    this.#resend()
    this.#sendLeave()
    if (!this.#joining) return
    this.#joining.resolve()
    this.#joining = undefined
    this.#held = []
    this.#cancelHold = this.#link.clock.schedule(0, () => this.#release())
  }

  #release(): void {
    const held = this.#held
    this.#held = undefined
    this.#cancelHold()
    if (held) for (const frame of held) if (this.#status !== 'left') this.receive(frame)
  }

  #joinRefused(error: RoomfulError): void {
    const again = this.#status === 'rejoining' && error.retryable && this.#rejoinsLeft > 0
    if (this.#leaving || !again) {
      const reason = error.code === 'replaced' ? 'replaced' : 'rejoin_failed'
      this.end(this.#leaving ? 'left' : reason, error)
      return
    }
    this.#rejoinsLeft -= 1
    this.#joinRequest = this.#link.nextRequestId()
    this.#joinSoon()
  }

  /** The server has ended the seat, for example after `reconnectSeconds`. The client joins again as a new member. */
  #lost(error: RoomfulError): void {
    this.#unacked.restart(error)
    this.#held = undefined
    this.#cancelHold()
    this.#link.counters.seatsLost += 1
    this.#beginRejoin()
    // After a random delay, because a room that ends loses all members at the same moment.
    this.#joinSoon()
  }

  #beginRejoin(): void {
    this.#watch = this.spectator
    this.#status = 'rejoining'
    this.#rejoins.reset()
    this.#rejoinsLeft = REJOINS
    this.#joinRequest = this.#link.nextRequestId()
    this.#link.changed()
  }

  #joinSoon(): void {
    this.#cancelRejoin = this.#link.clock.schedule(this.#rejoins.next(), () => this.#sendJoin())
  }

  /** The server has ended the seat, with a reason. */
  #removed({ reason, code, message, match }: Extract<SeatFrame, { t: 'left' }>): void {
    const text = message ?? `This client is not in ${this.roomId}: ${code ?? reason}.`
    const error = new RoomfulError(code ?? (match ? 'matched' : 'not_in_room'), text, { cause: match })
    const putOut = LEAVE_REASONS[reason]
    if (this.#leaving) this.end(putOut ?? 'left', error)
    else if (this.#status === 'resuming') this.#notKept(error)
    else if (putOut) this.end(putOut, error)
    else this.#lost(error)
  }
}

const lostSeat = (roomId: string): RoomfulError =>
  new RoomfulError('not_in_room', `This client is not in ${roomId}: join it again.`)

/** A message that is kept until the server has acknowledged or refused it. */
interface ReliableMessage {
  readonly ref: number
  readonly payload: Encoded
}

/** Limits of unacknowledged messages. */
interface UnackedLimits {
  readonly messages: number
  readonly bytes: number
}

interface Entry extends ReliableMessage {
  /** True if the caller waits for a reply. */
  readonly request: boolean
  reply: Json | undefined
  readonly resolve: (reply: Json | undefined) => void
  readonly reject: (error: RoomfulError) => void
}

/** Reliable messages of one seat without an outcome. Their refs are contiguous, because outcomes arrive in the order of the refs. */
class Unacked {
  readonly #limits: UnackedLimits
  readonly #roomId: string
  readonly #tab: Pick<TabSession, 'keep' | 'drop' | 'restart'> | undefined
  #entries: Entry[] = []
  #bytes = 0
  #lastRef = 0

  /** `tab` stores them across a reload of the page. */
  constructor(limits: UnackedLimits, roomId: string, tab?: Pick<TabSession, 'keep' | 'drop' | 'restart'>) {
    this.#limits = limits
    this.#roomId = roomId
    this.#tab = tab
  }

  /** Ref of the next message. */
  get nextRef(): number {
    return this.#lastRef + 1
  }

  /** Highest ref up to which all outcomes are known. */
  get settled(): number {
    const [oldest] = this.#entries
    return oldest ? oldest.ref - 1 : this.#lastRef
  }

  /**
   * Keeps a message. The promise resolves with the reply, if any, when the message is acknowledged, and rejects with the reason if it was not
   * applied. Throws a RoomfulError (queue_full, too_many_requests or storage_full) if a limit is reached.
   */
  add(payload: Encoded, kept: KeptMessage, request: boolean): Promise<Json | undefined> {
    const { messages, bytes } = this.#limits
    if (request && this.#entries.filter((entry) => entry.request).length >= MAX.requests)
      throw new RoomfulError('too_many_requests', `${MAX.requests} requests already wait for their reply.`, {
        retryable: true,
      })
    const { length } = payload
    if (this.#entries.length >= messages) throw full(`${messages} messages`, 'maxUnacked')
    if (this.#entries.length > 0 && this.#bytes + length > bytes)
      throw full(`${this.#bytes} of ${bytes} bytes`, 'maxUnackedBytes')
    this.#tab?.keep(kept)
    return new Promise((resolve, reject) => {
      this.#push({ ref: kept.ref, payload, request, reply: undefined, resolve, reject })
    })
  }

  /** Adds a message of an earlier page, whose promise no longer exists. `refused` receives the reason if it is not applied. */
  restore(message: ReliableMessage, refused: (error: RoomfulError) => void): void {
    this.#push({ ...message, request: false, reply: undefined, resolve: () => {}, reject: refused })
  }

  /** An earlier page has sent messages up to this ref. */
  continueAfter(ref: number): void {
    this.#lastRef = Math.max(ref, this.#lastRef)
  }

  /** All messages up to `ref` are applied. */
  ack(ref: number): void {
    for (const entry of this.#take((entry) => entry.ref <= ref)) {
      if (entry.request && entry.reply === undefined) entry.reject(unanswered())
      else entry.resolve(entry.reply)
    }
  }

  /** Stores the reply to a message. Its ack follows. */
  reply(ref: number, reply: Json): void {
    const entry = this.#entries.find((known) => known.ref === ref)
    if (entry) entry.reply = reply
  }

  /** Rejects a refused message. Returns false for an unknown ref. */
  refuse(ref: number, error: RoomfulError): boolean {
    const [refused] = this.#take((entry) => entry.ref === ref)
    refused?.reject(error)
    return refused !== undefined
  }

  /** The seat has ended. Rejects all messages: they are lost, or their outcome is unknown. The next seat starts with ref 1. */
  restart(error: RoomfulError): void {
    for (const entry of this.#take(() => true)) entry.reject(error)
    this.#lastRef = 0
    this.#tab?.restart(this.#roomId)
  }

  /** Messages without an outcome, oldest first. */
  get messages(): readonly ReliableMessage[] {
    return this.#entries
  }

  #push(entry: Entry): void {
    this.#entries.push(entry)
    this.#bytes += entry.payload.length
    this.#lastRef = entry.ref
  }

  #take(matches: (entry: Entry) => boolean): Entry[] {
    const taken: Entry[] = []
    const left: Entry[] = []
    for (const entry of this.#entries) (matches(entry) ? taken : left).push(entry)
    this.#entries = left
    for (const { ref, payload } of taken) {
      this.#bytes -= payload.length
      this.#tab?.drop(this.#roomId, ref)
    }
    return taken
  }
}

const unanswered = (): RoomfulError =>
  new RoomfulError('no_reply', 'The message was applied, but its type has no reply.')

const full = (what: string, option: string): RoomfulError =>
  new RoomfulError('queue_full', `${what} already wait for their ack (${option}).`, {
    retryable: true,
  })
