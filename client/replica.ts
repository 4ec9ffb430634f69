import type { Json } from '../shared/json.ts'
import { type DecodedMessage, newTables, type WholeName } from '../shared/protocol/codec.ts'
import type { ClientMessage, MemberInfo, ResyncReason } from '../shared/protocol/messages.ts'
import { LayeredState, readable } from './layers.ts'
import { Events, Listeners, type Report } from './listeners.ts'
import type { Counters } from './stats.ts'

type Patch = Extract<DecodedMessage, { t: 'state.patch' }>
type Whole = Extract<DecodedMessage, { t: WholeName }>
type MemberChange = Extract<DecodedMessage, { t: 'member' }>

/** Position of a frame in its room's history. */
interface Position {
  readonly epoch: number
  readonly seq: number
}

/** A member of a room, as clients see it. */
export interface Member {
  /** Id of the member in this room. A player who leaves and joins again gets another id. */
  readonly id: string
  /** Player's id from the token; null if the token has none. */
  readonly sub: string | null
  /** False while the member's client is disconnected. It stays a member for `reconnectSeconds`. */
  readonly connected: boolean
  /** True: a spectator. Only room types with `spectators.visible` have spectators in their lists of members. */
  readonly spectator: boolean
}

const toMember = ({ member_id: id, sub, connected, spectator = false }: MemberInfo): Member => ({
  id,
  sub,
  connected,
  spectator,
})

/** Decision about a frame: `take` it, `drop` it (lower epoch, known, or no longer needed), or request a resync for the given reason. */
export type Verdict = 'take' | 'drop' | ResyncReason

/** Copy of a room at one `(epoch, seq)`: the state and the members. It is verified by checksum, or being resynced. */
class RoomCopy {
  readonly #state = new LayeredState()
  #members: readonly Member[] = []
  #at: Position | undefined
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

  /** Starts a seat. The next snapshot is accepted with any epoch. */
  restart(): void {
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
  }

  /** Applies a snapshot. `checksum`: it cannot be read, or its checksum does not match. */
  replace(whole: Whole): Verdict {
    if (this.#isOld(whole)) return 'drop'
    const tables = newTables()
    const members = readable(() => {
      const body = whole.read(tables)
      return (!this.#hasState || this.#state.replace(whole.checksum, body, tables)) && body.members
    })
    if (!members) return 'checksum'
    this.#members = members.map(toMember)
    this.#at = { epoch: whole.epoch, seq: whole.seq }
    this.#resyncing = false
    return 'take'
  }

  /** Applies a patch, or leaves the state unchanged. */
  patch(patch: Patch): Verdict {
    if (!this.#at || this.#resyncing || this.#isOld(patch) || patch.seq <= this.#at.seq) return 'drop'
    if (patch.seq !== this.#at.seq + 1) return 'sequence'
    if (this.#hasState && !this.#state.patch(patch)) return 'checksum'
    this.#at = { epoch: patch.epoch, seq: patch.seq }
    return 'take'
  }

  /** Updates the members. Returns false if nothing changed. */
  meet({ connected, ...entry }: MemberChange): boolean {
    const known = this.#members.find(({ id }) => id === entry.member_id)
    const next = connected === undefined ? undefined : toMember({ ...entry, connected })
    if (known?.connected === next?.connected && known?.spectator === next?.spectator) return false
    if (known) this.#members = this.#members.flatMap((member) => (member === known ? (next ?? []) : member))
    else this.#members = [...this.#members, next!]
    return true
  }

  #isOld({ epoch }: Position): boolean {
    return this.#at !== undefined && epoch < this.#at.epoch
  }
}

/** Frames that update a copy of a room. */
export type RoomFrame = Extract<
  DecodedMessage,
  { t: WholeName | 'state.patch' | 'event' | 'member' | 'spectators' }
>
type Frame<T extends RoomFrame['t']> = Extract<RoomFrame, { t: T }>

interface ReplicaParts {
  readonly roomId: string
  readonly counters: Counters
  readonly decodeStates: boolean
  readonly report: Report
  readonly send: (message: ClientMessage) => void
  /** A complete state cannot be used. Only another connection brings it again. */
  readonly broken: (cause: string) => void
}

/** A client's view of a room: updates its copy, requests resyncs, and notifies the subscribers. */
export class Replica {
  readonly onState: Listeners<[state: Json, previous: Json]>
  readonly onMembers: Listeners<[members: readonly Member[], previous: readonly Member[]]>
  readonly events: Events
  readonly #parts: ReplicaParts
  readonly #copy: RoomCopy
  #spectators = 0

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

  /** Number of spectators. 0 before the server has sent it. */
  get spectators(): number {
    return this.#spectators
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
  restart(): void {
    this.#copy.restart()
  }

  /** The connection is lost, with a pending resync. After a resume the server sends the missing updates without a request. */
  pause(): void {
    this.#copy.goOn()
  }

  receive(frame: RoomFrame): void {
    switch (frame.t) {
      case 'state.patch':
        this.#patch(frame)
        break
      case 'event':
        this.events.emit(frame)
        break
      case 'member':
        this.#member(frame)
        break
      case 'spectators':
        this.#count(frame.count)
        break
      default:
        this.#whole(frame)
    }
  }

  #whole(frame: Whole): void {
    const { state, members, resyncing } = this.#copy
    if (frame.t === 'state.resync' && !resyncing) this.#parts.counters.resyncs.unasked += 1
    const verdict = this.#copy.replace(frame)
    if (verdict === 'drop') return
    if (verdict !== 'take') {
      this.#parts.counters.resyncs[verdict] += 1
      this.#copy.restart()
      this.#parts.broken(`the state of ${this.#parts.roomId} at seq ${frame.seq} cannot be applied`)
      return
    }
    this.onState.call(this.#copy.state, state)
    this.onMembers.call(this.#copy.members, members)
  }

  #patch(frame: Frame<'state.patch'>): void {
    const before = this.#copy.state
    const verdict = this.#copy.patch(frame)
    if (verdict === 'sequence' || verdict === 'checksum') this.#ask(verdict)
    if (verdict !== 'take') return
    this.#parts.counters.patches += 1
    if (this.#copy.state !== before) this.onState.call(this.#copy.state, before)
  }

  #member(frame: MemberChange): void {
    const before = this.#copy.members
    if (this.#copy.meet(frame)) this.onMembers.call(this.#copy.members, before)
  }

  #count(spectators: number): void {
    if (this.#spectators === spectators) return
    this.#spectators = spectators
    this.onMembers.call(this.#copy.members, this.#copy.members)
  }

  #ask(reason: ResyncReason): void {
    this.#parts.counters.resyncs[reason] += 1
    this.#copy.awaitResync()
    this.#parts.send({ t: 'state.resync', room_id: this.#parts.roomId, reason })
  }
}
