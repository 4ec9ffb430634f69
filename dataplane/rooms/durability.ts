import type { Fence } from '../../shared/store/port.ts'
import type { Durability, RoomLog } from './definition.ts'
import type { RoomEnvironment } from './environment.ts'
import { FencedLog, type LogEvents } from './fenced-log.ts'
import type { Update } from './journal.ts'
import type { Timer } from './scheduler.ts'

/** The room whose updates are kept. */
interface DurableRoom extends LogEvents {
  /** The whole room as of its last flush, without the updates that members may have missed. */
  readonly withoutHistory: () => Uint8Array
  /** Another node owns the room. */
  readonly fenced: () => void
}

/** A snapshot of no room. */
const NO_ROOM = new Uint8Array(0)

/**
 * When and how a room's updates reach the store, as its room type asks for: a `journal` room has each update written before it stands, a `snapshot`
 * room is written soon after it has changed, and one with `none` is written only to be handed over.
 */
export class RoomDurability {
  /** The room's record in the store; the only one that writes it. */
  readonly record: FencedLog
  readonly #durability: Durability
  readonly #environment: RoomEnvironment
  readonly #room: DurableRoom
  #ended = false
  /** Of a journal: entries and bytes since the snapshot, and the size of that. A room has none at first. */
  #journal = { entries: Number.POSITIVE_INFINITY, bytes: 0, snapshotBytes: 0 }
  /** Of a `snapshot` room: when it is written next; whether it is being written, and since when it has changes that this does not write. */
  readonly #snapshot: Timer
  #writing = false
  #changedSince: number | undefined

  /** Of a room (`project/type:key`) that this node has claimed. */
  constructor(
    durability: Durability,
    environment: RoomEnvironment,
    name: string,
    fence: Fence,
    log: RoomLog,
    room: DurableRoom,
  ) {
    this.#durability = durability
    this.#environment = environment
    this.#room = room
    this.#snapshot = environment.scheduler.timer(() => this.#writeSnapshot())
    // One that is not stored is neither kept nor woken.
    const unstored = { whole: () => NO_ROOM, kept: () => false, wakeAt: () => undefined }
    this.record = new FencedLog(
      environment,
      name,
      fence,
      log,
      durability === 'none' ? { ...room, ...unstored } : room,
    )
  }

  /** The room had another owner. One that is not stored was handed over, and what it was then is not to come back. */
  takenOver(): void {
    if (this.#durability === 'none') void this.#replace(NO_ROOM)
  }

  /** The journal entry of an update; undefined in a room that is not stored. */
  entry(update: Update): Uint8Array | undefined {
    return this.#durability === 'none' ? undefined : this.#environment.format.entry(update)
  }

  /** Keeps the update that the room has flushed last, of which this is the entry. The promise tells whether it stands; undefined: it need not be waited for. */
  commit(entry: Uint8Array | undefined): Promise<boolean> | undefined {
    if (!entry) return undefined
    if (this.#durability === 'snapshot') {
      this.#changedSince ??= this.#environment.clock.monotonic()
      if (!this.#writing) this.#snapshotSoon(this.#changedSince)
      return undefined
    }
    const { journalEntries, journalBytes } = this.#environment.limits
    const { entries, bytes, snapshotBytes } = this.#journal
    if (entries >= journalEntries || bytes >= Math.max(journalBytes, snapshotBytes)) {
      const whole = this.#room.whole()
      this.#journal = { entries: 0, bytes: 0, snapshotBytes: whole.length }
      return this.record.replace(whole)
    }
    this.#journal.entries++
    this.#journal.bytes += entry.length
    return this.record.append(entry)
  }

  /** Gives the room up, for others to go on with (`forget` false: written first) or for good. */
  async release(forget: boolean): Promise<boolean> {
    // A room that is not stored has no history to give.
    const whole = this.#durability === 'none' ? this.#room.withoutHistory : this.#room.whole
    if (!forget && !(await this.record.replace(whole()))) return false
    return this.record.release(forget)
  }

  /** Nothing is written by itself any more. */
  end(): void {
    this.#ended = true
    this.#snapshot.cancel()
  }

  #snapshotSoon(changedAt: number): void {
    this.#snapshot.at(changedAt + this.#environment.limits.snapshotMs)
  }

  #writeSnapshot(): void {
    // One every second need not carry what a crash makes worthless: members are resynced after one. Where this throws, the next change
    // asks for a snapshot again.
    this.#changedSince = undefined
    const whole = this.#room.withoutHistory()
    this.#writing = true
    void this.#replace(whole).then(() => {
      this.#writing = false
      if (this.#changedSince !== undefined && !this.#ended) this.#snapshotSoon(this.#changedSince)
    })
  }

  /** Writes what no update waits for. */
  async #replace(whole: Uint8Array): Promise<void> {
    if (!(await this.record.replace(whole)) && !this.#ended) this.#room.fenced()
  }
}
