import type { Clock } from '../shared/clock.ts'
import type { Json } from '../shared/json.ts'
import type { DecodedMessage } from '../shared/protocol/codec.ts'
import type { ClientMessage, MemberInfo, ResyncReason, StateAt } from '../shared/protocol/messages.ts'
import { Events } from './events.ts'
import { LayeredState, type LayerFrame, type Position } from './layers.ts'
import { Listeners, type Report } from './listeners.ts'
import type { Counters } from './stats.ts'

type Patch = Extract<DecodedMessage, { t: 'state.patch' }>
type Presence = Extract<DecodedMessage, { t: 'room.joined' | 'room.left' | 'room.presence' }>

/** A member of a room, as clients see it. */
export interface Member {
  /** Id of the member in this room. A player who leaves and joins again gets another id. */
  readonly id: string
  /** Player's id from the token; null if the token has none. */
  readonly sub: string | null
  /** False while the member's client is disconnected. It stays a member for `reconnectSeconds`. */
  readonly connected: boolean
}

const toMember = ({ member_id: id, sub, connected }: MemberInfo): Member => ({ id, sub, connected })

/**
 * Decision about a frame: `take` it, `drop` it (lower epoch, or no longer needed), or request a resync for the given reason. An event that
 * reveals a gap is still delivered, because a resync does not contain it.
 */
export type Verdict = 'take' | 'drop' | ResyncReason

/** Copy of a room at one `(epoch, seq)`: the state and the members. It is verified by checksum, or being resynced. */
class RoomCopy {
  readonly #state = new LayeredState()
  #members: readonly Member[] = []
  #at: Position | undefined
  /** Seq of the last snapshot, and of its list of members. */
  #wholeSeq = 0
  #resyncing = false
  readonly #hasState: boolean

  /** `hasState` false: only the position is kept, and no checksum is compared. */
  constructor(hasState: boolean) {
    this.#hasState = hasState
  }

  get state(): Json {
    return this.#state.merged
  }

  get members(): readonly Member[] {
    return this.#members
  }

  /** Last applied flush; undefined before the first snapshot. */
  get position(): Position | undefined {
    return this.#at
  }

  /** True while a resync is pending. Patches are ignored until then. */
  get resyncing(): boolean {
    return this.#resyncing
  }

  /** Starts a seat with these members. The next snapshot is accepted with any epoch. */
  restart(members: readonly MemberInfo[]): void {
    this.#members = members.map(toMember)
    this.#at = undefined
    this.goOn()
  }

  /** Marks the state as wrong or outdated. Patches are ignored until the next snapshot. */
  awaitResync(): void {
    this.#resyncing = true
  }

  /** Cancels the resync: the missed updates will follow from the position on. */
  goOn(): void {
    this.#resyncing = false
    this.#state.forgetHeld()
  }

  /** Applies a snapshot. `checksum`: its checksum did not match, but it is kept as the best available state. */
  replace(whole: StateAt, members?: readonly MemberInfo[]): Verdict {
    if (this.#isOld(whole)) return 'drop'
    const right = !this.#hasState || this.#state.replace(whole)
    if (members) this.#members = members.map(toMember)
    this.#at = { epoch: whole.epoch, seq: whole.seq }
    this.#wholeSeq = whole.seq
    this.#resyncing = !right
    return right ? 'take' : 'checksum'
  }

  /** Applies a patch, or leaves the state unchanged. */
  patch(patch: Patch): Verdict {
    if (!this.#at || this.#resyncing || this.#isOld(patch)) return 'drop'
    if (patch.seq !== this.#at.seq + 1) return 'sequence'
    if (this.#hasState && !this.#state.patch(patch)) return 'checksum'
    this.#at = { epoch: patch.epoch, seq: patch.seq }
    return 'take'
  }

  /** Applies a frame of a hidden layer: immediately, or together with the state of its flush, which follows. */
  layer(frame: LayerFrame): Verdict {
    const means = this.#hasState && !this.#isOld(frame) && !(this.#resyncing && frame.t === 'layer.patch')
    if (!means) return 'drop'
    return this.#state.layer(frame, this.#at?.seq) ? 'take' : 'checksum'
  }

  /** Advances the position to that of an event or a presence frame: in the last patch's flush, in a flush without a patch, or late. */
  follow(frame: Position): Verdict {
    if (!this.#at || this.#isOld(frame)) return 'drop'
    if (this.#resyncing || frame.seq <= this.#at.seq) return 'take'
    if (frame.seq > this.#at.seq + 1) return 'sequence'
    this.#at = { epoch: frame.epoch, seq: frame.seq }
    return 'take'
  }

  /** Updates the members. Returns false if nothing changed, or if the list is of a later flush than the frame. */
  meet(frame: Presence): boolean {
    if (frame.seq <= this.#wholeSeq) return false
    const { member_id: memberId } = frame
    const known = this.#members.find(({ id }) => id === memberId)
    if (frame.t === 'room.presence') {
      if (!known || known.connected === frame.connected) return false
      const changed = { ...known, connected: frame.connected }
      this.#members = this.#members.map((member) => (member === known ? changed : member))
      return true
    }
    if ((known !== undefined) === (frame.t === 'room.joined')) return false
    this.#members = known
      ? this.#members.filter((member) => member !== known)
      : [...this.#members, toMember({ ...frame, connected: true })]
    return true
  }

  #isOld({ epoch }: Position): boolean {
    return this.#at !== undefined && epoch < this.#at.epoch
  }
}

/** Time after which a pending resync is requested again. */
const RESYNC_WAIT_MS = 2000

/** Frames that update a copy of a room. */
export type RoomFrame = Extract<
  DecodedMessage,
  {
    t:
      | 'state.snapshot'
      | 'state.resync'
      | 'state.patch'
      | 'event'
      | 'room.joined'
      | 'room.left'
      | 'room.presence'
      | LayerFrame['t']
  }
>
type Frame<T extends RoomFrame['t']> = Extract<RoomFrame, { t: T }>

interface ReplicaParts {
  readonly roomId: string
  readonly clock: Clock
  readonly counters: Counters
  readonly decodeStates: boolean
  readonly report: Report
  readonly send: (message: ClientMessage) => void
}

/** A client's view of a room: updates its copy, requests resyncs, and notifies the subscribers. */
export class Replica {
  readonly onState: Listeners<[state: Json, previous: Json]>
  readonly onMembers: Listeners<[members: readonly Member[], previous: readonly Member[]]>
  readonly events: Events
  readonly #parts: ReplicaParts
  readonly #copy: RoomCopy
  #cancelRetry = () => {}

  constructor(parts: ReplicaParts) {
    this.#parts = parts
    this.#copy = new RoomCopy(parts.decodeStates)
    this.onState = new Listeners(parts.report)
    this.onMembers = new Listeners(parts.report)
    this.events = new Events(parts.report)
  }

  get state(): Json {
    return this.#copy.state
  }

  get members(): readonly Member[] {
    return this.#copy.members
  }

  /** True while a snapshot is pending. */
  get resyncing(): boolean {
    return this.#copy.resyncing
  }

  /** Last applied flush; undefined before the first snapshot of a seat. */
  get position(): { readonly epoch: number; readonly seq: number } | undefined {
    return this.#copy.position
  }

  /** Starts a seat. Its snapshot follows. */
  restart(members: readonly MemberInfo[]): void {
    const previous = this.#copy.members
    this.#cancelRetry()
    this.#copy.restart(members)
    this.onMembers.call(this.#copy.members, previous)
  }

  /** The connection is lost, with all requests. After a resume the server sends missing updates unrequested. */
  pause(): void {
    this.#cancelRetry()
    this.#copy.goOn()
  }

  receive(frame: RoomFrame): void {
    switch (frame.t) {
      case 'state.patch':
        this.#patch(frame)
        break
      case 'event':
        this.#event(frame)
        break
      case 'room.joined':
      case 'room.left':
      case 'room.presence':
        this.#presence(frame)
        break
      case 'state.snapshot':
        this.#whole(frame)
        break
      case 'state.resync':
        if (!this.#copy.resyncing) this.#parts.counters.resyncs.unasked += 1
        this.#whole(frame, frame.members)
        break
      default:
        this.#layer(frame)
    }
  }

  #whole(frame: Frame<'state.snapshot' | 'state.resync'>, members?: readonly MemberInfo[]): void {
    const { state, members: membersBefore } = this.#copy
    const verdict = this.#copy.replace(frame, members)
    if (verdict === 'drop') return
    this.#cancelRetry()
    if (verdict !== 'take') {
      // An immediate second resync would most likely give the same result.
      this.#parts.counters.resyncs[verdict] += 1
      this.#askLater(verdict)
    }
    this.onState.call(this.#copy.state, state)
    if (members) this.onMembers.call(this.#copy.members, membersBefore)
  }

  #patch(frame: Frame<'state.patch'>): void {
    const before = this.#copy.state
    const verdict = this.#copy.patch(frame)
    if (verdict === 'sequence' || verdict === 'checksum') this.#ask(verdict)
    if (verdict !== 'take') return
    this.#parts.counters.patches += 1
    if (this.#copy.state !== before) this.onState.call(this.#copy.state, before)
  }

  #layer(frame: LayerFrame): void {
    const before = this.#copy.state
    if (this.#copy.layer(frame) === 'checksum' && !this.#copy.resyncing) this.#ask('checksum')
    if (this.#copy.state !== before) this.onState.call(this.#copy.state, before)
  }

  #event(frame: Frame<'event'>): void {
    if (this.#follow(frame)) this.events.emit(frame)
  }

  #presence(frame: Presence): void {
    if (!this.#follow(frame)) return
    const before = this.#copy.members
    if (this.#copy.meet(frame)) this.onMembers.call(this.#copy.members, before)
  }

  /** Returns true if the frame is delivered. A frame that reveals a gap is delivered, because a resync does not contain it. */
  #follow(frame: Frame<'event'> | Presence): boolean {
    const verdict: Verdict = this.#copy.follow(frame)
    if (verdict === 'sequence' || verdict === 'checksum') this.#ask(verdict)
    return verdict !== 'drop'
  }

  #ask(reason: ResyncReason): void {
    this.#parts.counters.resyncs[reason] += 1
    this.#copy.awaitResync()
    this.#sendAsk(reason)
  }

  #sendAsk(reason: ResyncReason): void {
    const haveSeq = this.#copy.position?.seq ?? 0
    this.#parts.send({ t: 'state.resync', room_id: this.#parts.roomId, have_seq: haveSeq, reason })
    this.#askLater(reason)
  }

  #askLater(reason: ResyncReason): void {
    this.#cancelRetry = this.#parts.clock.schedule(RESYNC_WAIT_MS, () => this.#sendAsk(reason))
  }
}
