import type { Counter } from '../../shared/metrics.ts'
import type { Subprotocol } from '../../shared/protocol/messages.ts'
import { joinFrames } from '../frame.ts'
import type { StateFrames } from '../traffic.ts'
import type { JournalFormat, LostEpochs, PastUpdates, Position, RoomEvent, Update } from './journal.ts'
import type { Grant } from './layer-rules.ts'
import type { HistoryLimits } from './limits.ts'
import type { MemberMove, RoomFrames, UpdateFrames } from './room-frames.ts'
import { type LoggedUpdate, UpdateLog } from './update-log.ts'

interface PackedUpdate extends Position {
  /** Its journal entry, if there is one. */
  readonly packed: Uint8Array | undefined
}

/** The parts of an update that its shared frames do not have. Most updates have none. */
interface OwnParts {
  /** Events for single members. */
  readonly targeted: readonly RoomEvent[]
  readonly grants: readonly Grant[]
  /** Members that the others have seen leave, and join. */
  readonly moves: readonly MemberMove[]
}

/** One update of a history. */
export interface KeptUpdate extends LoggedUpdate, Position, OwnParts {}

const NO_FRAMES: UpdateFrames = { patch: {}, rest: undefined }
const NO_NAMES: readonly string[] = []
const NO_PARTS: OwnParts = { targeted: [], grants: [], moves: [] }
/** Approximate bytes of a grant, of a move, and of an event without its data and recipients. */
const PART_BYTES = 200
const RECIPIENT_BYTES = 8

/** How the layers of a member have changed. */
interface LayerChanges {
  /** Layers that the member got since then, or got again. */
  readonly shown: readonly string[]
  /** Layers that the member has lost since then. */
  readonly hidden: readonly string[]
}

/** The updates that a member has missed. */
interface Replay extends LayerChanges {
  /** The frames of each update for the member. */
  readonly missed: readonly StateFrames[]
}

/** The latest visible updates of a room, without gaps, for members that missed some of them. */
export class History {
  readonly #limits: HistoryLimits
  readonly #budget: HistoryBudget
  readonly #frames: RoomFrames
  readonly #format: JournalFormat
  readonly #link = new Link(this)
  readonly #log = new UpdateLog()
  /** By seq. */
  readonly #own = new Map<number, OwnParts & { readonly bytes: number }>()
  /** Approximate bytes of `#own`. */
  #ownBytes = 0
  /** Position before the first update of the log. */
  #base: Position
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
    for (const entry of last ? [...this.#from(0), last] : this.#from(0))
      if (entry.epoch < since) base = entry
      else if (entry.packed) updates.push(entry.packed)
    return { base: { epoch: Math.max(base.epoch, since), seq: base.seq }, updates }
  }

  /** The kept updates, the latest first. */
  get latest(): readonly KeptUpdate[] {
    return [...this.#from(0)].reverse()
  }

  /** Adds the next update. `packed`: its journal entry. `frames`: its encoded frames. `since`: when its first change was made. */
  add(
    update: Update,
    packed: Uint8Array | undefined,
    frames: UpdateFrames = NO_FRAMES,
    since?: number,
  ): void {
    const { epoch, seq, events, layers } = update
    const targeted = events.some(({ to }) => to) ? events.filter(({ to }) => to) : NO_PARTS.targeted
    const grants = layers?.grants ?? NO_PARTS.grants
    const moves = this.#frames.movesIn(update)
    if (targeted.length + grants.length + moves.length > 0) {
      const others = PART_BYTES * (grants.length + moves.length)
      const bytes = targeted.reduce((sum, event) => sum + sizeOf(event), others)
      this.#own.set(seq, { targeted, grants, moves, bytes })
      this.#ownBytes += bytes
    }
    this.#log.add({ epoch, since, frames, packed })
    while (this.#log.size.updates > this.#limits.entries || this.bytes > this.#limits.bytes) this.dropOldest()
    this.#budget.used(this.#link)
  }

  get bytes(): number {
    return this.#log.size.bytes + this.#ownBytes
  }

  /** Drops the oldest update. Returns false if there is none. */
  dropOldest(): boolean {
    const epoch = this.#log.shift()
    if (epoch === undefined) return false
    const seq = this.#base.seq + 1
    this.#base = { epoch, seq }
    this.#ownBytes -= this.#own.get(seq)?.bytes ?? 0
    this.#own.delete(seq)
    return true
  }

  /** The room is no longer here, so its history leaves the budget. */
  end(): void {
    this.#budget.forget(this.#link)
  }

  /** Drops all updates: no member can or may receive them. */
  clear(base: Position): void {
    this.#log.clear()
    this.#own.clear()
    this.#ownBytes = 0
    this.#base = base
    this.#budget.used(this.#link)
  }

  /** The kept updates from number `from` on. */
  *#from(from: number): IterableIterator<KeptUpdate> {
    let seq = this.#base.seq + from
    for (const logged of this.#log.from(from)) {
      seq++
      yield { ...logged, seq, ...(this.#own.get(seq) ?? NO_PARTS) }
    }
  }

  /** Updates of these epochs are not in this history, although their owners may have used the same seqs. */
  lose(lost: LostEpochs): void {
    // Positions before the base are rejected anyway.
    this.#lost = [...this.#lost.filter(({ before }) => before > this.#base.epoch), lost]
  }

  /**
   * Returns the updates that a member at `position` has missed: for each the patch with its layers, the parts for all members, and its own
   * parts. `layers`: the member's layers as of the last update; undefined in rooms without layers. Returns undefined if the history
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
    if (from < 0 || from > this.#log.size.updates) return undefined
    const entries = [...this.#from(Math.max(0, from - 1))]
    const before = from > 0 ? entries.shift()! : this.#base
    const after = entries[0]?.epoch ?? currentEpoch
    if (position.epoch < before.epoch || position.epoch > after) return undefined
    if (this.#lost.some((lost) => lost.after < position.epoch && position.epoch < lost.before))
      return undefined
    const missed: StateFrames[] = []
    const { throughout, shown, hidden } = changesOf(entries, memberId, layers)
    for (const entry of entries) {
      const shared = sharedFrames(entry, subprotocol, throughout, frames, this.#format)
      if (!shared) return undefined
      const targeted = entry.targeted
        .filter(({ to }) => to?.includes(memberId))
        .map((event) => frames.message(frames.event(event), subprotocol))
      const rest = shared.rest?.[subprotocol]
      const all = rest ? [rest, ...targeted] : targeted
      missed.push(all.length > 0 ? { ...shared, rest: { [subprotocol]: joinFrames(all) } } : shared)
    }
    return { missed, shown, hidden }
  }
}

/** Approximate bytes of an event for single members. */
const sizeOf = ({ data, to = [] }: RoomEvent): number =>
  PART_BYTES + JSON.stringify(data).length + RECIPIENT_BYTES * to.length

/** Returns the frames of an update for all members of these layers: as they were sent, or encoded now if no member used the subprotocol then. */
function sharedFrames(
  { frames: { patch, rest, layers }, packed }: KeptUpdate,
  subprotocol: Subprotocol,
  held: ReadonlySet<string>,
  frames: RoomFrames,
  format: JournalFormat,
): StateFrames | undefined {
  if (patch[subprotocol]) {
    const own = frames.layers && (layers ?? []).filter(({ layer }) => held.has(layer))
    return { patch, rest, layers: own }
  }
  if (!packed) return undefined
  const update = format.readEntry(packed)
  const others = frames.rest(update, subprotocol)
  return {
    patch: { [subprotocol]: frames.replay(update, subprotocol) },
    rest: others && { [subprotocol]: others },
    layers: frames.layers?.replayed(update, held, subprotocol),
  }
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

/** A history in the order of use, between two others. */
class Link {
  /** Undefined: the end of the order, which is also its start. */
  readonly history: History | undefined
  /** Bytes of the history when it was used last. */
  bytes = 0
  older: Link = this
  newer: Link = this

  constructor(history?: History) {
    this.history = history
  }

  /** Moves to the front of `next`. */
  moveBefore(next: Link): void {
    this.leave()
    this.older = next.older
    this.newer = next
    this.older.newer = this
    next.older = this
  }

  leave(): void {
    this.older.newer = this.newer
    this.newer.older = this.older
    this.older = this
    this.newer = this
  }
}

/**
 * Limit of the histories of all rooms of a node together. Above it, the room that was inactive for longest loses its oldest updates first.
 * A member that resumes late gets the whole state then.
 */
export class HistoryBudget {
  readonly #mostBytes: number
  readonly #dropped: Counter
  /** The least recently used history follows it, and the latest is before it. */
  readonly #end = new Link()
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
  used(link: Link): void {
    link.moveBefore(this.#end)
    this.#count(link)
    let dropped = 0
    while (this.#bytes > this.#mostBytes) {
      const oldest = this.#end.newer
      if (!oldest.history) break
      if (oldest.history.dropOldest()) dropped++
      else oldest.leave()
      this.#count(oldest)
    }
    if (dropped > 0) this.#dropped.inc(dropped)
  }

  /** The room of a history is no longer here. */
  forget(link: Link): void {
    link.leave()
    this.#bytes -= link.bytes
    link.bytes = 0
  }

  #count(link: Link): void {
    const bytes = link.history?.bytes ?? 0
    this.#bytes += bytes - link.bytes
    link.bytes = bytes
  }
}
