import type { Counter } from '../../shared/metrics.ts'
import type { Subprotocol } from '../../shared/protocol/messages.ts'
import { type Frame, joinFrames } from '../frame.ts'
import type { Frames } from '../traffic.ts'
import type { JournalFormat, LostEpochs, PastUpdates, Position, RoomEvent, Update } from './journal.ts'
import type { Grant } from './layer-rules.ts'
import type { HistoryLimits } from './limits.ts'
import { type RoomFrames, replayedLayers, type UpdateFrames } from './room-frames.ts'

interface PackedUpdate extends Position {
  /** Its journal entry, if there is one. */
  readonly packed: Uint8Array | undefined
}

/** One update, kept as bytes. As objects, it would take twenty times the memory. */
export interface KeptUpdate extends PackedUpdate {
  /** When its first change was made (monotonic clock). Undefined: another owner made the update. */
  readonly since: number | undefined
  /** Frames as they were sent. None if another owner made the update. */
  readonly frames: UpdateFrames
  /** Events for single members. */
  readonly targeted: readonly RoomEvent[]
  readonly grants: readonly Grant[]
  readonly bytes: number
}

const NO_FRAMES: UpdateFrames = { patch: {}, rest: undefined }
const NO_NAMES: readonly string[] = []
const NO_LAYER_FRAMES: ReadonlyMap<string, Frames> = new Map()
/** Bytes of an entry, without its frames. */
const ENTRY_BYTES = 200
const NO_EVENTS: readonly RoomEvent[] = []
const NO_GRANTS: readonly Grant[] = []

/** How the layers of a member have changed. */
interface LayerChanges {
  /** Layers that the member got since then, or got again. */
  readonly shown: readonly string[]
  /** Layers that the member has lost since then. */
  readonly hidden: readonly string[]
}

/** The updates that a member has missed. */
interface Replay extends LayerChanges {
  /** The frames of each update. */
  readonly missed: readonly Frames[]
}

/** The latest visible updates of a room, without gaps, for members that missed some of them. */
export class History {
  readonly #limits: HistoryLimits
  readonly #budget: HistoryBudget
  readonly #frames: RoomFrames
  readonly #format: JournalFormat
  /** Position before the first of `#entries`. */
  #base: Position
  #entries: KeptUpdate[] = []
  #bytes = 0
  #lost: readonly LostEpochs[] = []

  /** An empty history at `base`, the position of the room. `budget`: shared by all rooms of the node. */
  constructor(
    limits: HistoryLimits,
    budget: HistoryBudget,
    frames: RoomFrames,
    format: JournalFormat,
    base: Position,
  ) {
    this.#limits = limits
    this.#budget = budget
    this.#frames = frames
    this.#format = format
    this.#base = base
  }

  /**
   * Returns the updates that another owner may replay, followed by `last`. None in a room that is not stored. Updates from before lost
   * epochs are left out, because other nodes do not know those epochs.
   */
  record(last?: PackedUpdate): PastUpdates {
    const since = this.#lost.at(-1)?.before ?? 0
    let base = this.#base
    const updates: Uint8Array[] = []
    for (const entry of last ? [...this.#entries, last] : this.#entries)
      if (entry.epoch < since) base = entry
      else if (entry.packed) updates.push(entry.packed)
    return { base: { epoch: Math.max(base.epoch, since), seq: base.seq }, updates }
  }

  /** The kept updates, the latest first. */
  get latest(): readonly KeptUpdate[] {
    return this.#entries.toReversed()
  }

  /** Adds the next update. `packed`: its journal entry. `frames`: its encoded frames. `since`: when its first change was made. */
  add(
    update: Update,
    packed: Uint8Array | undefined,
    frames: UpdateFrames = NO_FRAMES,
    since?: number,
  ): void {
    const { epoch, seq, events } = update
    const targeted = events.some((event) => event.to) ? events.filter((event) => event.to) : NO_EVENTS
    const bytes =
      ENTRY_BYTES * (1 + targeted.length) +
      size(frames.patch) +
      size(frames.rest) +
      sizeOfLayers(frames.layers) +
      (packed?.length ?? 0)
    const grants = update.layers?.grants ?? NO_GRANTS
    this.#entries.push({ epoch, seq, since, frames: kept(frames), targeted, grants, packed, bytes })
    this.#bytes += bytes
    while (this.#entries.length > this.#limits.entries || this.#bytes > this.#limits.bytes) this.dropOldest()
    this.#budget.used(this)
  }

  get bytes(): number {
    return this.#bytes
  }

  /** Drops the oldest update. Returns false if there is none. */
  dropOldest(): boolean {
    const oldest = this.#entries.shift()
    if (!oldest) return false
    this.#bytes -= oldest.bytes
    this.#base = { epoch: oldest.epoch, seq: oldest.seq }
    return true
  }

  /** The room is no longer here, so its history leaves the budget. */
  end(): void {
    this.#budget.forget(this)
  }

  /** Drops all updates: no member can or may receive them. */
  clear(base: Position): void {
    this.#entries = []
    this.#bytes = 0
    this.#base = base
    this.#budget.used(this)
  }

  /** Updates of these epochs are not in this history, although their owners may have used the same seqs. */
  lose(lost: LostEpochs): void {
    // Positions before the base are rejected anyway.
    this.#lost = [...this.#lost.filter(({ before }) => before > this.#base.epoch), lost]
  }

  /**
   * Returns the updates that a member at `position` has missed, one frame for each: its layers, the patch, the parts for all members, and
   * its own parts. `layers`: the member's layers as of the last update; undefined in rooms without layers. Returns undefined if the history
   * does not reach back so far, if the member saw an update of a lost epoch, or if an update is not
   * available in this subprotocol.
   */
  replay(
    position: Position,
    currentEpoch: number,
    memberId: string,
    subprotocol: Subprotocol,
    layers: readonly string[] = NO_NAMES,
  ): Replay | undefined {
    const frames = this.#frames
    const from = position.seq - this.#base.seq
    if (from < 0 || from > this.#entries.length) return undefined
    const before = this.#entries[from - 1] ?? this.#base
    const after = this.#entries[from]?.epoch ?? currentEpoch
    if (position.epoch < before.epoch || position.epoch > after) return undefined
    if (this.#lost.some((lost) => lost.after < position.epoch && position.epoch < lost.before))
      return undefined
    const missed: Frames[] = []
    const entries = this.#entries.slice(from)
    const { throughout, shown, hidden } = changesOf(entries, memberId, layers)
    for (const entry of entries) {
      const shared = sharedFrames(entry, subprotocol, throughout, frames, this.#format)
      if (!shared) return undefined
      const targeted = entry.targeted
        .filter(({ to }) => to?.includes(memberId))
        .map((event) => frames.message(frames.event(entry, event), subprotocol))
      missed.push({ [subprotocol]: joinFrames([...shared, ...targeted]) })
    }
    return { missed, shown, hidden }
  }
}

/** Returns the frames of an update for all members: as they were sent, or encoded now if no member used the subprotocol then. */
function sharedFrames(
  { frames: { patch, rest, layers }, packed }: KeptUpdate,
  subprotocol: Subprotocol,
  held: ReadonlySet<string>,
  frames: RoomFrames,
  format: JournalFormat,
): Frame[] | undefined {
  const ready = patch[subprotocol]
  if (ready) {
    const own: Frame[] = []
    for (const [layer, of] of layers ?? NO_LAYER_FRAMES) if (held.has(layer)) own.push(of[subprotocol]!)
    return rest?.[subprotocol] ? [...own, ready, rest[subprotocol]] : [...own, ready]
  }
  if (!packed) return undefined
  const update = format.readEntry(packed)
  const others = frames.rest(update, subprotocol)
  const own = replayedLayers(update, held, frames.layers, subprotocol)
  const replayed = frames.replay(update, subprotocol)
  return others ? [...own, replayed, others] : [...own, replayed]
}

/** Returns the layers that a member has kept during `entries`, and those that it got and lost. */
function changesOf(
  entries: readonly KeptUpdate[],
  memberId: string,
  layers: readonly string[],
): LayerChanges & { readonly throughout: ReadonlySet<string> } {
  const before = new Set(layers)
  const changed = new Set<string>()
  for (const { grants } of entries.toReversed())
    for (const grant of grants) {
      if (grant.memberId !== memberId) continue
      changed.add(grant.layer)
      if (grant.shown) before.delete(grant.layer)
      else before.add(grant.layer)
    }
  const throughout = new Set(layers.filter((layer) => !changed.has(layer)))
  const shown = layers.filter((layer) => changed.has(layer))
  const hidden = [...before].filter((layer) => !layers.includes(layer))
  return { throughout, shown, hidden }
}

/** Returns frames that can be kept. Small frames lie in a block that Node shares, and one kept frame would keep the whole block. */
function kept({ patch, rest, layers }: UpdateFrames): UpdateFrames {
  return {
    patch: copies(patch),
    rest: rest && copies(rest),
    layers: layers && new Map([...layers].map(([layer, frames]) => [layer, copies(frames)])),
  }
}

function sizeOfLayers(layers: UpdateFrames['layers']): number {
  let bytes = 0
  if (layers) for (const frames of layers.values()) bytes += ENTRY_BYTES + size(frames)
  return bytes
}

function copies(frames: Frames): Frames {
  const copied: { [codec in Subprotocol]?: Frame } = {}
  for (const codec in frames) {
    const bytes = frames[codec as Subprotocol]!
    copied[codec as Subprotocol] = bytes.length === bytes.buffer.byteLength ? bytes : new Uint8Array(bytes)
  }
  return copied
}

const size = (frames: Frames | undefined): number =>
  (frames?.['roomful.v1.json']?.length ?? 0) + (frames?.['roomful.v1.msgpack']?.length ?? 0)

/**
 * Limit of the histories of all rooms of a node together. Above it, the room that was inactive for longest loses its oldest updates first.
 * A member that resumes late gets the whole state then.
 */
export class HistoryBudget {
  readonly #mostBytes: number
  readonly #dropped: Counter
  /** Bytes of each history, the least recently used first. */
  readonly #held = new Map<History, number>()
  #bytes = 0

  /** `dropped`: counts updates that are dropped because of the limit. */
  constructor(mostBytes: number, dropped: Counter) {
    this.#mostBytes = mostBytes
    this.#dropped = dropped
  }

  /** Bytes of all histories together. */
  get bytes(): number {
    return this.#bytes
  }

  /** A history has changed. */
  used(history: History): void {
    const { bytes } = history
    this.#bytes += bytes - (this.#held.get(history) ?? 0)
    // The history that was used last comes last.
    this.#held.delete(history)
    if (bytes > 0) this.#held.set(history, bytes)
    let dropped = 0
    for (const oldest of this.#held.keys()) {
      if (this.#bytes <= this.#mostBytes) break
      while (this.#bytes > this.#mostBytes && oldest.dropOldest()) {
        dropped++
        this.#bytes += oldest.bytes - this.#held.get(oldest)!
        this.#held.set(oldest, oldest.bytes)
      }
      if (oldest.bytes === 0) this.#held.delete(oldest)
    }
    if (dropped > 0) this.#dropped.inc(dropped)
  }

  /** The room of a history is no longer here. */
  forget(history: History): void {
    this.#bytes -= this.#held.get(history) ?? 0
    this.#held.delete(history)
  }
}
