import type { Durability } from './definition.ts'
import type { RoomEnvironment } from './environment.ts'
import type { RoomRecord } from './record.ts'
import type { Timer } from './scheduler.ts'

/** A snapshot of no room. */
export const NOTHING = new Uint8Array(0)

/** Keeps a room in the store the way its type asks for: every update before it is seen, a save now and then, or nothing. */
export class Keeper {
  readonly #record: RoomRecord
  readonly #environment: RoomEnvironment
  readonly #durability: Durability
  readonly #whole: () => Uint8Array
  readonly #on_fenced: () => void
  readonly #save: Timer
  #saving = false
  #changed = false
  #ended = false
  /** Of the journal: entries and bytes since the snapshot. A room has none at first. */
  #entries = Number.POSITIVE_INFINITY
  #bytes = 0
  #snapshot_bytes = 0

  /** `whole` is the room as of its last flush, including one that is being committed. */
  constructor(
    record: RoomRecord,
    environment: RoomEnvironment,
    durability: Durability,
    whole: () => Uint8Array,
    on_fenced: () => void,
  ) {
    this.#record = record
    this.#environment = environment
    this.#durability = durability
    this.#whole = whole
    this.#on_fenced = on_fenced
    this.#save = environment.scheduler.timer(() => this.#saveNow())
  }

  /** Called with the journal entry of each update, which is part of `whole` already; undefined in a room that is kept nowhere. The promise tells whether it stands; undefined: it need not be waited for. */
  commit(entry: Uint8Array | undefined): Promise<boolean> | undefined {
    if (!entry) return undefined
    if (this.#durability === 'snapshot') {
      this.#changed = true
      if (!this.#saving && !this.#save.waiting) this.#saveSoon()
      return undefined
    }
    const { limits } = this.#environment
    const long = this.#entries >= limits.journal_entries
    const large = this.#bytes >= Math.max(limits.journal_bytes, this.#snapshot_bytes)
    if (long || large) return this.#replace()
    this.#entries++
    this.#bytes += entry.length
    return this.#record.append(entry)
  }

  /** The room goes on from what the store held: one that is kept nowhere was handed over, and what it was then is not to come back. */
  restored(): void {
    if (this.#durability !== 'none') return
    this.#record.replace(NOTHING).then((stands) => {
      if (!stands && !this.#ended) this.#on_fenced()
    })
  }

  end(): void {
    this.#ended = true
    this.#save.cancel()
  }

  #replace(): Promise<boolean> {
    const snapshot = this.#whole()
    this.#entries = 0
    this.#bytes = 0
    this.#snapshot_bytes = snapshot.length
    return this.#record.replace(snapshot)
  }

  #saveSoon(): void {
    const { clock, limits } = this.#environment
    this.#save.at(clock.monotonic() + limits.save_ms)
  }

  #saveNow(): void {
    // Where that throws, the next change asks for a save again.
    const whole = this.#whole()
    this.#saving = true
    this.#changed = false
    this.#record.replace(whole).then((stands) => {
      this.#saving = false
      if (this.#ended) return
      if (!stands) this.#on_fenced()
      else if (this.#changed) this.#saveSoon()
    })
  }
}
