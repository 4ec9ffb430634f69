import type { Subprotocol } from '../../shared/protocol/messages.ts'
import { type Frame, joinFrames } from '../frame.ts'
import type { Frames } from '../traffic.ts'
import type { RoomFrames, UpdateFrames } from './frames.ts'
import type { Update } from './update.ts'

/** A place in a room's history: after the update `seq`, as seen under `epoch`. */
export interface Position {
  readonly epoch: number
  readonly seq: number
}

/** How much history a room keeps for resumes. */
export interface RingLimits {
  readonly entries: number
  readonly bytes: number
}

interface Entry {
  readonly update: Update
  readonly frames: UpdateFrames
  readonly bytes: number
}

const NO_FRAMES: UpdateFrames = { patch: {}, rest: undefined }
/** What an entry costs besides its frames. */
const ENTRY_BYTES = 200

/** The last updates of a room that members saw, gap-free, to be replayed to whoever missed some of them. */
export class Ring {
  readonly #limits: RingLimits
  #base: Position
  #entries: Entry[] = []
  /** Entries before this index are gone. */
  #start = 0
  #bytes = 0

  /** An empty ring at `base`, where the room stands. */
  constructor(limits: RingLimits, base: Position) {
    this.#limits = limits
    this.#base = base
  }

  /** Where the room stood before the first update that is still here. */
  get base(): Position {
    return this.#base
  }

  get updates(): readonly Update[] {
    return this.#entries.slice(this.#start).map((entry) => entry.update)
  }

  /** The next update; `frames`: those it was encoded to, if any. */
  add(update: Update, frames: UpdateFrames = NO_FRAMES): void {
    const bytes = ENTRY_BYTES + size(frames.patch) + size(frames.rest)
    this.#entries.push({ update, frames, bytes })
    this.#bytes += bytes
    while (this.#entries.length - this.#start > this.#limits.entries || this.#bytes > this.#limits.bytes)
      this.#drop()
    if (this.#start > this.#limits.entries) {
      this.#entries = this.#entries.slice(this.#start)
      this.#start = 0
    }
  }

  /** Forgets everything: nobody is left who could ask. */
  clear(base: Position): void {
    this.#entries = []
    this.#start = 0
    this.#bytes = 0
    this.#base = base
  }

  /**
   * What a member at `position` has missed, one frame per update: patch, what was for everybody, what was for this member. Undefined
   * when the ring does not reach back so far, or the member saw a history that was lost with an earlier owner.
   */
  replay(
    position: Position,
    current_epoch: number,
    member_id: string,
    subprotocol: Subprotocol,
    frames: RoomFrames,
  ): readonly Frames[] | undefined {
    const from = this.#start + position.seq - this.#base.seq
    if (from < this.#start || from > this.#entries.length) return undefined
    const before = from === this.#start ? this.#base : this.#entries[from - 1]!.update
    const after = this.#entries[from]?.update.epoch ?? current_epoch
    if (position.epoch < before.epoch || position.epoch > after) return undefined
    return this.#entries.slice(from).map((entry) => ({
      [subprotocol]: joinFrames(framesOf(entry, member_id, subprotocol, frames)),
    }))
  }

  #drop(): void {
    const { update, bytes } = this.#entries[this.#start]!
    this.#start++
    this.#bytes -= bytes
    this.#base = { epoch: update.epoch, seq: update.seq }
  }
}

function framesOf(entry: Entry, member_id: string, subprotocol: Subprotocol, frames: RoomFrames): Frame[] {
  const { update } = entry
  const patch = entry.frames.patch[subprotocol]
  const rest = patch ? entry.frames.rest?.[subprotocol] : frames.rest(update, subprotocol)
  const parts = [patch ?? frames.replay(update, subprotocol)]
  if (rest) parts.push(rest)
  for (const event of update.events)
    if (event.to?.includes(member_id)) parts.push(frames.message(frames.event(update, event), subprotocol))
  return parts
}

const size = (frames: Frames | undefined): number =>
  (frames?.['roomful.v1.json']?.length ?? 0) + (frames?.['roomful.v1.msgpack']?.length ?? 0)
