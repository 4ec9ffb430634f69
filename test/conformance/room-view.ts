import { applyChange } from './change.ts'
import { checksum } from './checksum.ts'
import { KeyTable, readValue } from './key-table.ts'
import type { Json, Member, Received, ServerMessage, WirePatch, WireState } from './messages.ts'
import { applyOperations } from './operations.ts'

/** What belongs to a room on the wire; everything else is the session's. */
export type RoomMessage = Extract<
  ServerMessage,
  { t: 'state.snapshot' | 'state.resync' | 'state.patch' | 'event' | 'room.joined' | 'room.left' }
>

/** A value as text, the same for equal values in whatever order their keys came. */
export function canonical(value: Json): string {
  return JSON.stringify(value, (_, entry) =>
    entry !== null && typeof entry === 'object' && !Array.isArray(entry)
      ? Object.fromEntries(Object.entries(entry).sort(([a], [b]) => (a < b ? -1 : 1)))
      : entry,
  )
}

/**
 * One client's view of one room by the rules of docs/protocol.md §5. Whatever a conforming server never makes a
 * client see is kept in `faults`; a test that provokes it on purpose clears them.
 */
export class RoomView {
  readonly roomId: string
  readonly faults: string[] = []
  /** The state after each seq this client saw, as canonical text. */
  readonly history = new Map<number, string>()
  readonly events: Received<'event'>[] = []
  readonly presence: (Received<'room.joined'> | Received<'room.left'>)[] = []
  readonly table = new KeyTable()
  memberId = ''
  members = new Map<string, string | null>()
  state: Json | undefined
  epoch = -1
  seq = -1
  /** Whether this client has a seat. */
  seated = true
  patches = 0
  snapshots = 0
  resyncs = 0
  waiting = false
  /** The seq of the last snapshot or resync, which has members up to it. */
  private wholeSeq = -1
  /** Whether the last flush was opened by something that is no patch. */
  private patchless = false

  constructor(joined: Received<'joined'>) {
    this.roomId = joined.room_id
    this.memberId = joined.member_id
    this.setMembers(joined.members)
    if (!this.members.has(joined.member_id)) this.fault('members of joined lack the joiner')
  }

  /** Where this client stands, for a resume. */
  get position(): { room_id: string; epoch: number; seq: number } {
    return { room_id: this.roomId, epoch: this.epoch, seq: this.seq }
  }

  apply(message: RoomMessage): void {
    if (this.state === undefined && message.t !== 'state.snapshot' && message.t !== 'state.resync') {
      this.fault(`${message.t} before the snapshot`)
      return
    }
    switch (message.t) {
      case 'state.snapshot':
        this.snapshots += 1
        this.takeWhole(message, message.body)
        break
      case 'state.resync':
        this.resyncs += 1
        this.setMembers(message.members)
        this.takeWhole(message, message.body)
        break
      case 'state.patch':
        this.takePatch(message)
        break
      case 'event':
        if (this.takeSeq(message)) this.events.push(message)
        break
      default:
        this.takePresence(message)
    }
  }

  private fault(text: string): void {
    this.faults.push(`${this.roomId} at epoch ${this.epoch}, seq ${this.seq}: ${text}`)
  }

  private setMembers(members: readonly Member[]): void {
    this.members = new Map(members.map(({ member_id: memberId, sub }) => [memberId, sub]))
    if (this.members.size !== members.length) this.fault('a member is listed twice')
  }

  private takeWhole(message: { epoch: number; seq: number; checksum: number }, body: WireState): void {
    if (message.epoch < this.epoch) this.fault(`${body.codec} state of the lower epoch ${message.epoch}`)
    try {
      this.state =
        body.codec === 'json'
          ? body.state
          : readValue(body.state, this.table.replace(body.announced, message.epoch, message.seq))
    } catch (problem) {
      this.fault(`a whole state that cannot be read: ${(problem as Error).message}`)
      return
    }
    this.epoch = message.epoch
    this.seq = message.seq
    this.wholeSeq = message.seq
    this.waiting = false
    this.patchless = false
    this.remember(message.checksum)
  }

  private takePatch(message: Received<'state.patch'>): void {
    const apply = this.patchReader(message.body, message.epoch, message.seq)
    if (message.epoch < this.epoch || this.waiting || !apply) return
    if (message.seq !== this.seq + 1) {
      const why =
        this.patchless && message.seq === this.seq ? ' (behind an event or presence of this seq)' : ''
      this.waiting = true
      this.fault(`patch ${message.seq}${why}; ${this.seq + 1} was due`)
      return
    }
    try {
      this.state = apply(this.state as Json)
    } catch (problem) {
      this.waiting = true
      this.fault(`patch ${message.seq} cannot be applied: ${(problem as Error).message}`)
      return
    }
    this.epoch = message.epoch
    this.seq = message.seq
    this.patchless = false
    this.patches += 1
    this.remember(message.checksum)
  }

  /** Reads the keys of a patch, which has to happen in any case, and gives what applies it. */
  private patchReader(body: WirePatch, epoch: number, seq: number): ((state: Json) => Json) | undefined {
    if (body.codec === 'json') return (state) => applyOperations(state, body.ops)
    try {
      const key = this.table.extend(body.announced, epoch, seq)
      return (state) => applyChange(state, body.change, key)
    } catch (problem) {
      this.waiting = true
      this.fault(`keys of patch ${seq}: ${(problem as Error).message}`)
      return undefined
    }
  }

  private remember(expected: number): void {
    const state = this.state as Json
    const actual = checksum(state)
    if (actual !== expected) this.fault(`checksum ${expected} came with a state of checksum ${actual}`)
    this.history.set(this.seq, canonical(state))
  }

  /** The seq of an event or of presence; false when it is of a lower epoch, and so dropped. */
  private takeSeq(message: { t: string; epoch: number; seq: number }): boolean {
    if (message.epoch < this.epoch) return false
    if (message.seq > this.seq + 1) {
      if (!this.waiting) this.fault(`${message.t} of seq ${message.seq}: a gap`)
    } else if (message.seq === this.seq + 1) {
      this.epoch = message.epoch
      this.seq = message.seq
      this.patchless = true
      this.history.set(this.seq, canonical(this.state as Json))
    }
    return true
  }

  private takePresence(message: Received<'room.joined'> | Received<'room.left'>): void {
    if (!this.takeSeq(message)) return
    this.presence.push(message)
    if (message.seq <= this.wholeSeq) return
    if (message.t === 'room.joined') {
      if (this.members.has(message.member_id)) this.fault(`${message.member_id} joined twice`)
      this.members.set(message.member_id, message.sub)
      return
    }
    if (!this.members.delete(message.member_id)) this.fault(`${message.member_id} left without a seat`)
    if (message.member_id === this.memberId) this.seated = false
  }
}
