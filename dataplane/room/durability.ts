import type { Release } from '../../shared/store/port.ts'
import type { Flush } from './changes.ts'
import type { RoomCore } from './core.ts'
import type { Durability } from './definition.ts'
import type { JournalFormat, Update } from './journal.ts'
import { NO_ROOM, type RecordNeeds, type RoomRecord } from './record.ts'
import { PacedWork, type Scheduler } from './scheduler.ts'
import { whole, withoutHistory } from './update.ts'

/**
 * Writes a room's updates to the store, as its durability requires. A `journal` room commits each update before it is delivered. A
 * `snapshot` room is written soon after a change. A `none` room is written only for a handoff.
 */
export class RoomDurability {
  /** Undefined: the room is not stored. */
  readonly format: JournalFormat | undefined
  readonly #room: RoomCore
  readonly #durability: Durability
  readonly #record: RoomRecord
  readonly #needs: RecordNeeds
  readonly #fenced: () => void
  /**
   * Entries and bytes of the journal since the snapshot, and bytes of the snapshot with the version and code in it. A new journal starts
   * with a snapshot.
   */
  #journal = {
    entries: Number.POSITIVE_INFINITY,
    bytes: 0,
    snapshotBytes: 0,
    version: 0,
    code: undefined as string | undefined,
  }
  /** Writes of a `snapshot` room. They need not contain the history, because members resync after a crash anyway. */
  readonly #snapshots: PacedWork

  /** Calls `fenced` if another node owns the room. */
  constructor(
    room: RoomCore,
    durability: Durability,
    record: RoomRecord,
    needs: RecordNeeds & { readonly scheduler: Scheduler },
    fenced: () => void,
  ) {
    this.format = durability === 'none' ? undefined : needs.format
    this.#room = room
    this.#durability = durability
    this.#record = record
    this.#needs = needs
    this.#fenced = fenced
    this.#snapshots = new PacedWork(needs.scheduler, () => this.#replace(withoutHistory(room, needs.format)))
  }

  /** The room had another owner. The record that a `none` room left for its handoff must not come back, so it is overwritten. */
  takenOver(): void {
    if (this.#durability === 'none') void this.#replace(NO_ROOM)
  }

  /**
   * Commits the flush in flight. Resolves to true if it is stored, and to false if another node owns the room. Undefined: the delivery need
   * not wait.
   */
  commit({ packed, additions, update }: Flush): Promise<boolean> | undefined {
    if (!packed) return undefined
    const { clock, format, limits } = this.#needs
    const room = this.#room
    if (this.#durability === 'snapshot' && (additions.length > 0 || isUrgent(update))) {
      this.#snapshots.cancel()
      return this.#record.replace(withoutHistory(room, format), additions)
    }
    if (this.#durability === 'snapshot') {
      this.#snapshots.by(clock.monotonic() + limits.snapshotMs)
      return undefined
    }
    const { entries, bytes, snapshotBytes, version, code } = this.#journal
    const { journalEntries, journalBytes } = limits
    const isFull = entries >= journalEntries || bytes >= Math.max(journalBytes, snapshotBytes)
    // Journal entries contain neither the version of the state nor the code.
    if (isFull || version !== room.state.version || code !== room.code) {
      const snapshot = whole(room, format)
      const { code, state } = room
      this.#journal = {
        entries: 0,
        bytes: 0,
        snapshotBytes: snapshot.length,
        version: state.version,
        code,
      }
      return this.#record.replace(snapshot, additions)
    }
    this.#journal.entries++
    this.#journal.bytes += packed.length
    return this.#record.append(packed, additions)
  }

  /**
   * Releases the room. `forget` false: writes the room first, for the next owner. `forget` true: the room ends, and `outcomes` of its
   * requests stay.
   */
  async release(forget: boolean, outcomes?: Release['outcomes']): Promise<boolean> {
    const { format } = this.#needs
    // A room that is not stored hands over no history.
    const pack = this.#durability === 'none' ? withoutHistory : whole
    if (!forget && !(await this.#record.replace(pack(this.#room, format)))) return false
    return this.#record.release(forget, outcomes)
  }

  /** Ends all scheduled writes. */
  end(): void {
    this.#snapshots.end()
  }

  /** Writes a snapshot that no update waits for. */
  async #replace(snapshot: Uint8Array): Promise<void> {
    if (!(await this.#record.replace(snapshot)) && !this.#snapshots.ended) this.#fenced()
  }
}

/** True if a `snapshot` room is written now, and the delivery of the update waits for that. */
function isUrgent({ tables }: Update): boolean {
  if (!tables) return false
  const { bans, reservations, outcomes, tasks } = tables
  const retries = tasks?.set.some(({ due }) => due !== undefined)
  return bans !== undefined || reservations !== undefined || outcomes !== undefined || retries === true
}
