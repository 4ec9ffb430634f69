import type { Clock } from '../../clock.ts'
import { requireOwner, requireTtl } from '../checks.ts'
import { EPOCH_OUTLIVES_MS } from '../epoch.ts'
import type { Claim, Fence, RoomOwner, RoomRecords } from '../port.ts'
import { ExpiringMap } from './expiring-map.ts'

interface RoomRecord {
  readonly epoch: number
  readonly version: number
  readonly owner: string | null
  /** There was no claim since the room was recalled. */
  readonly recalled?: true
  readonly snapshot: Uint8Array | undefined
  /** Grows in place, so that a commit costs the same however long the journal is. */
  readonly journal: Uint8Array[]
}

/** `RoomRecords` in this process' memory. Every call does its work before it returns its promise, so calls are atomic. */
export class MemoryRooms implements RoomRecords {
  readonly #clock: Clock
  readonly #rooms: ExpiringMap<RoomRecord>
  readonly #epochs: ExpiringMap<number>
  readonly #requireOpen: () => void

  constructor(clock: Clock, requireOpen: () => void) {
    this.#clock = clock
    this.#rooms = new ExpiringMap(clock)
    this.#epochs = new ExpiringMap(clock)
    this.#requireOpen = requireOpen
  }

  async inspect(room: string): Promise<RoomOwner | undefined> {
    this.#requireOpen()
    const record = this.#rooms.get(room)
    if (record) return { epoch: record.epoch, version: record.version, owner: record.owner }
    const epoch = this.#epochs.get(room)
    return epoch === undefined ? undefined : { epoch, version: 0, owner: null }
  }

  async claim(
    room: string,
    owner: string,
    expected_epoch: number,
    ttl_ms: number,
  ): Promise<Claim | undefined> {
    this.#requireOpen()
    requireOwner(owner)
    requireTtl(ttl_ms)
    const recorded = this.#epochs.get(room) ?? 0
    if (recorded !== expected_epoch) return undefined
    const stored = this.#rooms.get(room)
    const epoch = Math.max(recorded + 1, Math.floor(this.#clock.now()))
    const version = stored?.version ?? 0
    const snapshot = stored?.snapshot
    const journal = stored?.journal ?? []
    this.#keep(room, { epoch, version, owner, snapshot, journal }, ttl_ms)
    return {
      fence: { epoch, version },
      snapshot: snapshot?.slice(),
      journal: journal.map((entry) => entry.slice()),
    }
  }

  async recall(room: string, owner: string, epoch: number, ttl_ms: number): Promise<boolean> {
    this.#requireOpen()
    requireOwner(owner)
    requireTtl(ttl_ms)
    const stored = this.#rooms.get(room)
    if (stored && !stored.recalled) return false
    if ((this.#epochs.get(room) ?? 0) > epoch) return false
    this.#keep(room, { epoch, version: 0, owner, recalled: true, snapshot: undefined, journal: [] }, ttl_ms)
    return true
  }

  async commit(room: string, fence: Fence, entry: Uint8Array, ttl_ms: number): Promise<boolean> {
    return this.#fenced(room, fence, ttl_ms, (record) => {
      record.journal.push(new Uint8Array(entry))
      return { ...record, version: record.version + 1 }
    })
  }

  async snapshot(room: string, fence: Fence, snapshot: Uint8Array, ttl_ms: number): Promise<boolean> {
    return this.#fenced(room, fence, ttl_ms, (record) => ({
      ...record,
      version: record.version + 1,
      snapshot: new Uint8Array(snapshot),
      journal: [],
    }))
  }

  async release(room: string, fence: Fence, options: { forget: boolean; ttl_ms: number }): Promise<boolean> {
    return this.#fenced(room, fence, options.ttl_ms, (record) => {
      const released = { ...record, owner: null }
      return options.forget ? { ...released, snapshot: undefined, journal: [] } : released
    })
  }

  async refresh(room: string, fence: Fence, ttl_ms: number): Promise<boolean> {
    return this.#fenced(room, fence, ttl_ms, (record) => record)
  }

  /** Replaces the record by what `change` makes of it, if it is still owned under exactly `fence`. */
  #fenced(room: string, fence: Fence, ttl_ms: number, change: (record: RoomRecord) => RoomRecord): boolean {
    this.#requireOpen()
    requireTtl(ttl_ms)
    const record = this.#rooms.get(room)
    if (!record || record.owner === null) return false
    if (record.epoch !== fence.epoch || record.version !== fence.version) return false
    this.#keep(room, change(record), ttl_ms)
    return true
  }

  #keep(room: string, record: RoomRecord, ttl_ms: number): void {
    this.#rooms.set(room, record, ttl_ms)
    this.#epochs.set(room, record.epoch, ttl_ms + EPOCH_OUTLIVES_MS)
  }
}
