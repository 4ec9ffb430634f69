import type { Subprotocol } from '../../shared/protocol/messages.ts'
import { type Frame, joinFrames } from '../frame.ts'
import type { Frames } from '../traffic.ts'
import type { JournalFormat, LostEpochs, Position, RoomEvent, RoomSnapshot, Update } from './journal.ts'
import type { Grant } from './layer-grants.ts'
import type { RoomMetrics } from './metrics.ts'
import { type RoomFrames, replayedLayers, type UpdateFrames } from './room-frames.ts'

/** How much history a room keeps for resumes. */
export interface HistoryLimits {
  readonly entries: number
  readonly bytes: number
}

/** One update, kept as bytes: as objects it would take twenty times the memory, for as long as it is here. */
export interface KeptUpdate extends Position {
  /** When it began, on the monotonic clock; undefined: another owner made it. */
  readonly since: number | undefined
  /** As it was sent; none where it was made by another owner. */
  readonly frames: UpdateFrames
  /** Events that were not for everyone. */
  readonly targeted: readonly RoomEvent[]
  readonly grants: readonly Grant[]
  /** Ids of the members who joined with it, or whose session took a seat over. */
  readonly joined: readonly string[]
  /** Its journal entry, if there is one. */
  readonly packed: Uint8Array | undefined
  readonly bytes: number
}

const NO_FRAMES: UpdateFrames = { patch: {}, rest: undefined }
const NO_NAMES: readonly string[] = []
const NO_LAYER_FRAMES: ReadonlyMap<string, Frames> = new Map()
/** What an entry costs besides its frames. */
const ENTRY_BYTES = 200
const NO_EVENTS: readonly RoomEvent[] = []
const NO_GRANTS: readonly Grant[] = []

/** What a member has missed. */
interface Replay {
  /** One for each update. */
  readonly missed: readonly Frames[]
  /** Layers that it has since, or again. */
  readonly shown: readonly string[]
  /** Layers that it had, and has no more. */
  readonly hidden: readonly string[]
}

/** The last updates of a room that members saw, gap-free, to be replayed to members who missed some of them. */
export class History {
  readonly #limits: HistoryLimits
  readonly #budget: HistoryBudget
  readonly #frames: RoomFrames
  readonly #format: JournalFormat
  /** Where the room stood before the first of `#entries`. */
  #base: Position
  #entries: KeptUpdate[] = []
  #bytes = 0
  #lost: readonly LostEpochs[] = []

  /** An empty history at `base`, where the room stands; `budget` is that of all rooms of the node. */
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
   * What another owner may replay of it, and of `last` behind it. None in a room that is not stored. What is older than lost epochs is
   * left out, as no other node is told of those.
   */
  record(last?: Pick<KeptUpdate, 'epoch' | 'seq' | 'packed'>): Pick<RoomSnapshot, 'base' | 'updates'> {
    const since = this.#lost.at(-1)?.before ?? 0
    let base = this.#base
    const updates: Uint8Array[] = []
    for (const entry of last ? [...this.#entries, last] : this.#entries)
      if (entry.epoch < since) base = entry
      else if (entry.packed) updates.push(entry.packed)
    return { base: { epoch: Math.max(base.epoch, since), seq: base.seq }, updates }
  }

  /** The updates that are still here, the latest first. */
  get latest(): readonly KeptUpdate[] {
    return this.#entries.toReversed()
  }

  /** The next update. `packed`: its journal entry, if there is one; `frames`: those it was encoded to, if any; `since`: when it began. */
  add(
    update: Update,
    packed: Uint8Array | undefined,
    frames: UpdateFrames = NO_FRAMES,
    since?: number,
  ): void {
    const { epoch, seq, events } = update
    const targeted = events.some((event) => event.to) ? events.filter((event) => event.to) : NO_EVENTS
    const fresh = [update.joined, update.replaced].flat()
    const joined = fresh.length > 0 ? fresh.map(({ member }) => member.id) : NO_NAMES
    const bytes =
      ENTRY_BYTES * (1 + targeted.length + joined.length) +
      size(frames.patch) +
      size(frames.rest) +
      sizeOfLayers(frames.layers) +
      (packed?.length ?? 0)
    const grants = update.layers?.grants ?? NO_GRANTS
    this.#entries.push({ epoch, seq, since, frames: kept(frames), targeted, grants, joined, packed, bytes })
    this.#bytes += bytes
    while (this.#entries.length > this.#limits.entries || this.#bytes > this.#limits.bytes) this.dropOldest()
    this.#budget.used(this)
  }

  get bytes(): number {
    return this.#bytes
  }

  /** Forgets the oldest update; false: there is none. */
  dropOldest(): boolean {
    const oldest = this.#entries.shift()
    if (!oldest) return false
    this.#bytes -= oldest.bytes
    this.#base = { epoch: oldest.epoch, seq: oldest.seq }
    return true
  }

  /** The room is no longer here: its history counts no more. */
  end(): void {
    this.#budget.forget(this)
  }

  /** Forgets everything: no one is left who could ask. */
  clear(base: Position): void {
    this.#entries = []
    this.#bytes = 0
    this.#base = base
    this.#budget.used(this)
  }

  /** What came of these epochs is not in this history, although their owners may have come to the same seqs. */
  lose(lost: LostEpochs): void {
    // What ended before the base is refused for that.
    this.#lost = [...this.#lost.filter(({ before }) => before > this.#base.epoch), lost]
  }

  /**
   * What a member at `position` has missed, one frame per update: its layers, patch, what was for everyone, what was for this member.
   * `layers`: those that it has as of the last update; undefined in rooms that hide nothing. Undefined when the history does not reach
   * back so far, when the member joined after `position`, when it saw a history that was lost with an earlier owner, and when an update is
   * not here in this subprotocol.
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
    // Clients say where they stand. Updates from before its join are not for a member: they have events and values that are gone.
    if (entries.some(({ joined }) => joined.includes(memberId))) return undefined
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

/** What everyone got with an update: as it was sent, or encoded now for a subprotocol that no one spoke then. */
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

/** Of the layers that a member has after `entries`: which it had before and all the time, and which others came and went. */
function changesOf(
  entries: readonly KeptUpdate[],
  memberId: string,
  layers: readonly string[],
): { throughout: ReadonlySet<string> } & Pick<Replay, 'shown' | 'hidden'> {
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

/** The frames as they may be kept: small ones lie in a block that Node shares out, all of which would be kept with one of them. */
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
 * What the histories of all rooms of a node may hold together. Above that the room in which nothing has happened for longest loses its
 * oldest updates first: a member who comes back late gets the whole state instead.
 */
export class HistoryBudget {
  readonly #mostBytes: number
  readonly #dropped: Pick<RoomMetrics['historyDropped'], 'inc'>
  /** What each history holds, the least recently used first. */
  readonly #held = new Map<History, number>()
  #bytes = 0

  /** `dropped`: counts updates that are dropped because of the bound. */
  constructor(mostBytes: number, dropped: Pick<RoomMetrics['historyDropped'], 'inc'>) {
    this.#mostBytes = mostBytes
    this.#dropped = dropped
  }

  /** Of all histories together. */
  get bytes(): number {
    return this.#bytes
  }

  /** A history has changed, since something happened in its room. */
  used(history: History): void {
    this.forget(history)
    if (history.bytes > 0) this.#held.set(history, history.bytes)
    this.#bytes += history.bytes
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

  /** Its room is no longer here. */
  forget(history: History): void {
    this.#bytes -= this.#held.get(history) ?? 0
    this.#held.delete(history)
  }
}
