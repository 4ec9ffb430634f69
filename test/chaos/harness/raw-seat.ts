import type { Json } from '../../../shared/json.ts'
import type { ClientMessage, ServerMessage } from '../../../shared/protocol/messages.ts'
import { applyOperations } from '../../../shared/protocol/testing/json-client-codec.ts'
import { Checksum } from '../../../shared/sync/checksum.ts'
import { type FrameName, playerIn, type View } from '../checker/history.ts'
import type { AppliedOp, Refusal } from '../op-chain.ts'
import type { Note } from './player.ts'

type Kept = Extract<ClientMessage, { t: 'message' }> & { readonly ref: number }
type RoomFrame = Extract<ServerMessage, { t: FrameName }>
type Patch = Extract<RoomFrame, { t: 'state.patch' }>

/** How long a resync may take before it is asked for again. */
const RESYNC_AGAIN_MS = 3000

/** One member's copy of its room, by docs/protocol.md §5 and nothing else; writes down every frame. */
export class RawSeat {
  readonly room: string
  readonly member: string
  /** Reliable messages that are not settled, oldest first. */
  readonly kept = new Map<number, Kept>()
  readonly #note: (note: Note) => void
  readonly #checksum = new Checksum()
  #state: Json | undefined
  #epoch = 0
  #seq = 0
  #lastRef = 0
  #waiting = true
  #askedAt = Number.NEGATIVE_INFINITY
  #view: View | undefined

  constructor(room: string, member: string, note: (note: Note) => void) {
    this.room = room
    this.member = member
    this.#note = note
    this.#write({ kind: 'joined' })
  }

  get position() {
    return { room_id: this.room, epoch: this.#epoch, seq: this.#seq, settled: this.#settled }
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
    const state = this.#state ?? null
    return { epoch: this.#epoch, seq: this.#seq, checksum: this.#checksum.of(state), state }
  }

  /** After a resume: what was missed follows frame by frame, or a whole state does. */
  resumed(complete: boolean): void {
    this.#waiting = !complete
    this.#askedAt = performance.now()
  }

  /** Takes a frame; gives the resync to ask for, if one is needed. */
  take(frame: RoomFrame): ClientMessage | undefined {
    if (frame.epoch < this.#epoch) {
      this.#writeFrame(frame, false)
      return undefined
    }
    if (frame.t === 'state.snapshot' || frame.t === 'state.resync') {
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

  send(op: string, ref: number, refuse: Refusal | null): ClientMessage {
    const data = { op, ref, refuse }
    const settled = this.#settled
    const message: Kept = { t: 'message', room_id: this.room, type: 'op', data, ref, settled }
    this.kept.set(ref, message)
    this.#lastRef = ref
    this.#write({ kind: 'sent', ref, op, refuse, again: false })
    return message
  }

  /** Everything that is kept, to be sent again. */
  again(): ClientMessage[] {
    const messages = [...this.kept.values()]
    for (const { ref, data } of messages) {
      const { op, refuse } = data as { op: string; refuse: Refusal | null }
      this.#write({ kind: 'sent', ref, op, refuse, again: true })
    }
    return messages
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
    try {
      this.#state = applyOperations(this.#state as Json, frame.ops)
    } catch {
      this.#writeFrame(frame, false)
      return 'checksum'
    }
    this.#epoch = frame.epoch
    this.#seq = frame.seq
    this.#writeFrame(frame, true)
    if (this.#checksum.of(this.#state) === frame.checksum) return undefined
    this.#state = before.state
    this.#epoch = before.epoch
    this.#seq = before.seq
    return 'checksum'
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
    const now = performance.now()
    if (this.#waiting && now - this.#askedAt < RESYNC_AGAIN_MS) return undefined
    this.#waiting = true
    this.#askedAt = now
    return { t: 'state.resync', room_id: this.room, have_seq: this.#seq, reason }
  }

  #writeFrame(frame: RoomFrame, applied: boolean): void {
    const { t, epoch, seq } = frame
    const checksum = 'checksum' in frame ? frame.checksum : undefined
    const actual = applied ? this.#checksum.of(this.#state as Json) : undefined
    const op = frame.t === 'event' ? (frame.data as unknown as AppliedOp) : undefined
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
    })
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

type OfRoom = Extract<Note, { room: string }>
type Body = OfRoom extends infer N ? (N extends unknown ? Omit<N, 'room' | 'member'> : never) : never
