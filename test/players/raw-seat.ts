import { playerIn, type Reply } from '../chaos/checker/history.ts'
import { type AppliedOp, type ChaosState, layersIn, type View } from '../chaos/rooms.ts'
import type { ClientMessage, Json, Received, ResumePosition } from '../conformance/messages.ts'
import { type RoomMessage, RoomView } from '../conformance/room-view.ts'
import type { NewOp, Note } from './player.ts'

type Reliable = Extract<ClientMessage, { t: 'message' }> & { readonly ref: number }
export type RoomFrame = Exclude<RoomMessage, Received<'spectators' | 'left'>>

/** One member's copy of its room. It records every frame, and asks for the state again after a gap or a wrong checksum. */
export class RawSeat {
  /** Reliable messages without an ack or a refusal, by ref, oldest first. */
  readonly unacked = new Map<number, Reliable>()
  readonly #copy: Copy
  readonly #note: (note: Note) => void
  #lastRef = 0
  #view: View | undefined
  #joinedAt = { epoch: 0, seq: 0 }

  constructor(joined: Received<'joined'>, { note }: { note: (note: Note) => void }) {
    this.#note = note
    this.#copy = new Copy(joined, (layer, seq, actual) => this.#write({ kind: 'misfit', layer, seq, actual }))
    this.#write({ kind: 'joined' })
  }

  get room(): string {
    return this.#copy.roomId
  }

  get member(): string {
    return this.#copy.memberId
  }

  /** Position of the first state. Epoch 0: there was none yet. */
  get joinedAt(): { readonly epoch: number; readonly seq: number } {
    return this.#joinedAt
  }

  get position(): ResumePosition {
    const { position } = this.#copy
    const { epoch, seq } = this.copy
    return { ...position, epoch, seq, settled: this.#answeredRef }
  }

  /** Largest ref up to which every message has its ack or refusal. */
  get #answeredRef(): number {
    const [lowest] = this.unacked.keys()
    return lowest === undefined ? this.#lastRef : lowest - 1
  }

  /** True while the client has a state and does not wait for a resync. */
  get current(): boolean {
    return !this.#copy.waiting && this.#copy.state !== undefined
  }

  get copy(): { readonly epoch: number; readonly seq: number; readonly state: Json } {
    const { epoch, seq, state, merged } = this.#copy
    return state === undefined ? { epoch: 0, seq: 0, state: {} } : { epoch, seq, state: merged }
  }

  /** After a resume, the server sends the missed frames or a snapshot. */
  resumed(): void {
    this.#copy.cutOff()
  }

  /** Applies a frame. Returns the resync to send, if one is needed. */
  take(frame: RoomFrame): ClientMessage | undefined {
    const copy = this.#copy
    const { current } = this
    const { seq, patches } = copy
    if (!('checksum' in frame)) {
      copy.apply(frame)
      // It belongs to the flush of the last state.
      this.#writeFrame(frame, copy, false)
      return undefined
    }
    const at = { epoch: frame.epoch ?? copy.epoch, seq: frame.seq }
    if (at.epoch < copy.epoch) {
      this.#writeFrame(frame, at, false)
      return undefined
    }
    copy.faults.length = 0
    copy.apply(frame)
    const isWhole = frame.t !== 'state.patch'
    const applied = isWhole || copy.patches > patches
    this.#writeFrame(frame, at, applied)
    const { epoch, seq: joinedSeq } = this.#joinedAt
    if (isWhole && epoch === 0) this.#joinedAt = at
    if (!isWhole && at.epoch >= epoch && at.seq < joinedSeq)
      this.#write({ kind: 'early', t: frame.t, seq: frame.seq })
    if (isWhole || (applied && copy.faults.length === 0)) return undefined
    if (applied) return this.#resync('checksum', current)
    if (current && frame.seq <= seq) return undefined
    return this.#resync(current && frame.seq === seq + 1 ? 'checksum' : 'sequence', current)
  }

  send({ ask, ...op }: NewOp): ClientMessage {
    const ref = this.#lastRef + 1
    const data = { ...op, ref }
    const type = ask ? 'ask' : 'op'
    const message: Reliable = {
      t: 'message',
      room_id: this.room,
      type,
      data,
      ref,
      settled: this.#answeredRef,
    }
    this.unacked.set(ref, message)
    this.#lastRef = ref
    this.#writeSent(message, false)
    return message
  }

  /** Messages to send again after a resume. */
  resend(): ClientMessage[] {
    const messages = [...this.unacked.values()]
    for (const message of messages) this.#writeSent(message, true)
    return messages
  }

  #writeSent({ type, ref, data }: Reliable, again: boolean): void {
    const { op, refuse } = data as unknown as Omit<NewOp, 'ask'>
    this.#write({ kind: 'sent', ref, op, refuse, ask: type === 'ask', again })
  }

  replied(ref: number, reply: Reply): void {
    if (this.unacked.has(ref)) this.#write({ kind: 'reply', ref, reply })
  }

  acked(ref: number): void {
    this.#write({ kind: 'ack', ref })
    for (const earlier of [...this.unacked.keys()]) if (earlier <= ref) this.unacked.delete(earlier)
  }

  refused(ref: number, code: string): void {
    if (!this.unacked.delete(ref)) return
    this.#write({ kind: 'refused', ref, code })
  }

  lost(why: 'session' | 'seat'): void {
    this.#write({ kind: 'lost', why })
  }

  /** `current`: whether the client had the state before this frame. */
  #resync(reason: 'sequence' | 'checksum', current: boolean): ClientMessage | undefined {
    if (!current) return undefined
    this.#copy.waiting = true
    return { t: 'state.resync', room_id: this.room, reason }
  }

  #writeFrame(
    frame: RoomFrame,
    { epoch, seq }: { readonly epoch: number; readonly seq: number },
    applied: boolean,
  ): void {
    const { t } = frame
    const checksum = 'checksum' in frame ? frame.checksum : undefined
    const actual = applied ? this.#copy.checksum : undefined
    const op = t === 'event' && frame.name === 'applied' ? (frame.data as unknown as AppliedOp) : undefined
    const layers = applied ? this.#layers : undefined
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

  get #layers() {
    return layersIn(this.copy.state as Partial<ChaosState>, this.member)
  }

  /** This member's part of the state. Undefined: unchanged since the last call. */
  #newView(): View | undefined {
    const view = playerIn(this.#copy.state, this.member)
    if (!view) return undefined
    const same = view.count === this.#view?.count && view.chain === this.#view.chain
    this.#view = view
    return same ? undefined : view
  }

  #write(note: Body): void {
    this.#note({ ...note, room: this.room, member: this.member } as Note)
  }
}

/** The view of the conformance tests, which records a wrong checksum of a layer. */
class Copy extends RoomView {
  readonly #misfit: (layer: string, seq: number, actual: number) => void

  constructor(joined: Received<'joined'>, misfit: (layer: string, seq: number, actual: number) => void) {
    super(joined)
    this.#misfit = misfit
  }

  protected override misfit(layer: string, seq: number, expected: number, actual: number): void {
    super.misfit(layer, seq, expected, actual)
    this.#misfit(layer, seq, actual)
  }
}

type OfRoom = Extract<Note, { room: string }>
type Body = OfRoom extends infer N ? (N extends unknown ? Omit<N, 'room' | 'member'> : never) : never
