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

/** Copy of a room at one `(epoch, seq)`: the state and the members. */
class RoomCopy {
  readonly #state = new LayeredState()
  #members: readonly Member[] = []
  #at: Position | undefined
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

  /** Last applied flush. Undefined: only a whole state can be applied. */
  get position(): Position | undefined {
    return this.#at
  }

  /** Waits for a whole state. */
  restart(): void {
    this.#at = undefined
  }

  /** Applies a whole state. Returns a reason if it cannot be read, or if its checksum does not match. */
  replace(whole: Whole): ResyncReason | undefined {
    const tables = newTables()
    const members = readable(() => {
      const body = whole.read(tables)
      return (!this.#hasState || this.#state.replace(whole.checksum, body, tables)) && body.members
    })
    if (!members) return 'checksum'
    this.#members = members.map(toMember)
    this.#at = { epoch: whole.epoch, seq: whole.seq }
    return undefined
  }

  /** Applies a patch, or leaves the state unchanged and returns the reason. */
  patch(patch: Patch, at: Position): ResyncReason | undefined {
    const { epoch = at.epoch, seq } = patch
    if (seq !== at.seq + 1) return 'sequence'
    if (this.#hasState && !this.#state.patch(patch)) return 'checksum'
    this.#at = { epoch, seq }
    return undefined
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

  /** True while a whole state is pending. */
  get resyncing(): boolean {
    return this.position === undefined
  }

  /** Last applied flush. Undefined: only a whole state can be applied. */
  get position(): { readonly epoch: number; readonly seq: number } | undefined {
    return this.#copy.position
  }

  /** Starts a seat. Its snapshot follows. */
  restart(): void {
    this.#copy.restart()
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
    const { state, members } = this.#copy
    if (frame.t === 'state.resync' && !this.resyncing) this.#parts.counters.resyncs.unasked += 1
    if (this.#fails(this.#copy.replace(frame))) return
    this.onState.call(this.#copy.state, state)
    this.onMembers.call(this.#copy.members, members)
  }

  #patch(frame: Frame<'state.patch'>): void {
    const { position, state: before } = this.#copy
    if (!position || this.#fails(this.#copy.patch(frame, position))) return
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

  /** Requests a whole state if a frame could not be applied for a reason. Returns true if there is one. */
  #fails(reason: ResyncReason | undefined): boolean {
    if (!reason) return false
    this.#parts.counters.resyncs[reason] += 1
    this.#copy.restart()
    this.#parts.send({ t: 'state.resync', room_id: this.#parts.roomId, reason })
    return true
  }
}
