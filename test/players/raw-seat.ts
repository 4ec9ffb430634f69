import type { Clock } from '../../shared/clock.ts'
import type { Json, JsonObject } from '../../shared/json.ts'
import type { ClientMessage, ServerMessage } from '../../shared/protocol/messages.ts'
import { applyOperations } from '../../shared/protocol/testing/json-client-codec.ts'
import { Checksum } from '../../shared/sync/checksum.ts'
import { type FrameName, playerIn, type Reply } from '../chaos/checker/history.ts'
import { type AppliedOp, type ChaosState, layersIn, type View } from '../chaos/rooms.ts'
import type { NewOp, Note } from './player.ts'

type Reliable = Extract<ClientMessage, { t: 'message' }> & { readonly ref: number }
export type RoomFrame = Extract<ServerMessage, { t: FrameName }>
type Patch = Extract<RoomFrame, { t: 'state.patch' }>
type LayerFrame = Extract<ServerMessage, { t: 'layer.state' | 'layer.patch' }>

/** State of one layer, with the epoch and seq of its last `layer.state`. */
interface Layer {
  readonly state: Json
  readonly epoch: number
  readonly seq: number
}

const isObject = (value: Json | undefined): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** Adds the fields of a layer that the base does not have. Merges objects that both have. */
function mergeInto(base: JsonObject, layer: JsonObject): JsonObject {
  const merged = Object.entries(layer).map(([key, value]): [string, Json] => {
    const below = base[key]
    return [key, isObject(below) && isObject(value) ? mergeInto(below, value) : (below ?? value)]
  })
  return { ...base, ...Object.fromEntries(merged) }
}

/** A resync without an answer is repeated after this time. */
const RESYNC_AGAIN_MS = 3000

/** One member's copy of its room. It follows docs/protocol.md, shares no code with the SDK, and records every frame. */
export class RawSeat {
  readonly room: string
  readonly member: string
  /** Reliable messages without an ack or a refusal, by ref, oldest first. */
  readonly unacked = new Map<number, Reliable>()
  readonly #note: (note: Note) => void
  readonly #clock: Clock
  readonly #checksum = new Checksum()
  #layers: ReadonlyMap<string, Layer> = new Map()
  /** Frames of layers that arrived before the frame of their flush. */
  #held: LayerFrame[] = []
  /** State without layers. */
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
    return {
      room_id: room,
      member_id: member,
      epoch: this.#epoch,
      seq: this.#seq,
      settled: this.#answeredRef,
    }
  }

  /** Largest ref up to which every message has its ack or refusal. */
  get #answeredRef(): number {
    const [lowest] = this.unacked.keys()
    return lowest === undefined ? this.#lastRef : lowest - 1
  }

  /** True while the client has a state and does not wait for a resync. */
  get current(): boolean {
    return !this.#waiting && this.#state !== undefined
  }

  get copy() {
    return { epoch: this.#epoch, seq: this.#seq, state: this.#merged }
  }

  get #merged(): Json {
    const layers = [...this.#layers.values()].map(({ state }) => state)
    return layers.filter(isObject).reduce(mergeInto, (this.#state ?? {}) as JsonObject)
  }

  /** After a resume, the server sends the missed frames or a snapshot. */
  resumed(): void {
    this.#waiting = false
    this.#held = []
  }

  /** Applies a frame. Returns the resync to send, if one is needed. */
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
    return reason && this.#resync(reason)
  }

  /** Keeps a frame of a layer until the frame of its flush arrives. If that has arrived, applies it. */
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
    const { op, refuse } = data as Omit<NewOp, 'ask'>
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

  /** Applies frames of layers. Returns undefined if one of them does not fit. Records a wrong checksum. */
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

  #resync(reason: 'sequence' | 'checksum'): ClientMessage | undefined {
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

  /** This member's part of the state. Undefined: unchanged since the last call. */
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

/** Applies a patch to a layer. Undefined: the patch does not fit. */
function patched(layer: Layer, { ops }: Extract<LayerFrame, { t: 'layer.patch' }>): Layer | undefined {
  try {
    return { ...layer, state: applyOperations(layer.state, ops) }
  } catch {
    return undefined
  }
}

type OfRoom = Extract<Note, { room: string }>
type Body = OfRoom extends infer N ? (N extends unknown ? Omit<N, 'room' | 'member'> : never) : never
