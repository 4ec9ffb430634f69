import type { Clock } from '../../clock.ts'
import {
  type Claim,
  type CountedRoom,
  type DueRoom,
  type DueTimes,
  duePart,
  ENDED_ROOM_MS,
  EPOCH_OUTLIVES_MS,
  type Fence,
  type ListedRoom,
  type ListingChanges,
  type Listings,
  type Notices,
  type Opening,
  type Quarantine,
  REMOVED_ROW_MS,
  type Release,
  type Reservation,
  type RoomOwner,
  type RoomQuota,
  type RoomRecords,
  requireLimit,
  requireOwner,
  requireRoomTtl,
  requireTtl,
  type StoredRoom,
} from '../port.ts'
import { ExpiringMap } from './records.ts'

interface RoomRecord {
  readonly epoch: number
  readonly version: number
  readonly owner: string | null
  /** True: no node has claimed the room since it was recalled. */
  readonly recalled?: true
  /** True: an earlier owner may not know that it lost the room, because it had not released the room before a claim. */
  readonly contested: boolean
  /** Last time at which an owner claimed, wrote, refreshed, recalled or released the room. */
  readonly ownedAt: number
  /** Principal that created the room. */
  readonly creator?: string | undefined
  /** Version of the state in the snapshot. */
  readonly stateVersion?: number | undefined
  readonly snapshot: Uint8Array | undefined
  /** Changed in place, so that the cost of a commit does not depend on the length of the journal. */
  readonly journal: Uint8Array[]
}

/** A record that is about to be written. */
type NextRecord = Omit<RoomRecord, 'ownedAt'>

/** `RoomRecords` in the memory of this process. Every call is complete before it returns its promise, so calls are atomic. */
export class MemoryRooms implements RoomRecords {
  readonly #clock: Clock
  readonly #rooms: ExpiringMap<RoomRecord>
  readonly #epochs: ExpiringMap<number>
  /** By project: counted rooms, and the end of the time for which they count (`clock.now()`). */
  readonly #counted = new Map<string, ExpiringMap<number>>()
  /** By project and principal: its lasting rooms. */
  readonly #lasting = new Map<string, ExpiringMap<true>>()
  /** By project and principal: time at which its token bucket for new rooms is full, in monotonic milliseconds. */
  readonly #made: ExpiringMap<number>
  readonly #outcomes: ExpiringMap<Uint8Array>
  readonly #requireOpen: () => void
  readonly #notices: Pick<MemoryNotices, 'add'>

  constructor(clock: Clock, requireOpen: () => void, notices: Pick<MemoryNotices, 'add'>) {
    this.#clock = clock
    this.#notices = notices
    this.#rooms = new ExpiringMap(clock)
    this.#epochs = new ExpiringMap(clock)
    this.#made = new ExpiringMap(clock)
    this.#outcomes = new ExpiringMap(clock)
    this.#requireOpen = requireOpen
  }

  async inspect(room: string): Promise<RoomOwner | undefined> {
    this.#requireOpen()
    return this.#ownerOf(room)
  }

  #ownerOf(room: string): RoomOwner | undefined {
    const record = this.#rooms.get(room)
    if (record) {
      const { epoch, version, owner, stateVersion, recalled } = record
      return {
        epoch,
        version,
        owner,
        ...(stateVersion && { stateVersion }),
        ...(recalled && { recalled }),
      }
    }
    const epoch = this.#epochs.get(room)
    return epoch === undefined ? undefined : { epoch, version: 0, owner: null }
  }

  async reserve(
    room: string,
    principal: string,
    { maxRooms, maxLasting, perMinute }: RoomQuota,
    ttlMs: number,
  ): Promise<Reservation> {
    this.#requireOpen()
    requireTtl(ttlMs)
    const rooms = this.#roomsBeside(room)
    if (!rooms.get(room)) {
      if (maxRooms > 0 && rooms.size >= maxRooms && rooms.sweep() >= maxRooms) return 'project_full'
      const account = accountOf(room, principal)
      const lasting = this.#lasting.get(account)
      if (maxLasting > 0 && lasting && lasting.size >= maxLasting && lasting.sweep() >= maxLasting)
        return 'principal_full'
      if (perMinute > 0 && !this.#mayMake(account, perMinute)) return 'too_fast'
      this.#count(room, ttlMs)
    }
    return 'reserved'
  }

  async claim(room: string, owner: string, expectedEpoch: number, ttlMs: number): Promise<Claim | undefined> {
    return this.#claim(room, owner, expectedEpoch, ttlMs)
  }

  async open(
    room: string,
    { owner, ttlMs, stateVersion, creator }: Opening,
    mayClaim: () => boolean,
  ): Promise<Claim | RoomOwner | undefined> {
    this.#requireOpen()
    const found = this.#ownerOf(room)
    const isFree = found ? found.owner === null || found.owner === owner : creator !== undefined
    if (!isFree || (found?.stateVersion ?? 1) > stateVersion || !mayClaim()) return found
    return this.#claim(room, owner, found?.epoch ?? 0, ttlMs, creator)
  }

  #claim(
    room: string,
    owner: string,
    expectedEpoch: number,
    ttlMs: number,
    creator?: string,
  ): Claim | undefined {
    this.#requireOpen()
    requireOwner(owner)
    requireTtl(ttlMs)
    const recorded = this.#epochs.get(room) ?? 0
    if (recorded !== expectedEpoch) return undefined
    const stored = this.#rooms.get(room)
    const epoch = Math.max(recorded + 1, Math.floor(this.#clock.now()))
    const version = stored?.version ?? 0
    const snapshot = stored?.snapshot
    const journal = stored?.journal ?? []
    const released = recorded === 0 || stored?.owner === null
    const contested = stored?.contested === true || !released
    const lifeMs = Math.max(this.#rooms.leftMs(room), ttlMs)
    const { stateVersion } = stored ?? {}
    const made = snapshot === undefined && journal.length === 0 ? creator : undefined
    const record = { epoch, version, owner, contested, stateVersion, snapshot, journal }
    this.#keep(room, { ...record, creator: made ?? stored?.creator }, lifeMs)
    return {
      fence: { epoch, version },
      snapshot: snapshot?.slice(),
      journal: journal.map((entry) => entry.slice()),
      outcomes: this.#outcomes.get(room)?.slice(),
      ...(stored && { idleMs: Math.max(0, Math.floor(this.#clock.now() - stored.ownedAt)) }),
    }
  }

  async read(room: string): Promise<StoredRoom> {
    this.#requireOpen()
    const { snapshot, journal = [] } = this.#rooms.get(room) ?? {}
    return {
      snapshot: snapshot?.slice(),
      journal: journal.map((entry) => entry.slice()),
      outcomes: this.#outcomes.get(room)?.slice(),
    }
  }

  async recall(room: string, owner: string, epoch: number, ttlMs: number): Promise<boolean> {
    this.#requireOpen()
    requireOwner(owner)
    requireTtl(ttlMs)
    const stored = this.#rooms.get(room)
    if (stored && !stored.recalled) return false
    if ((this.#epochs.get(room) ?? 0) > epoch) return false
    const nothing = { snapshot: undefined, journal: [] }
    this.#keep(room, { epoch, version: 0, owner, recalled: true, contested: true, ...nothing }, ttlMs)
    return true
  }

  async commit(
    room: string,
    fence: Fence,
    entry: Uint8Array,
    ttlMs: number,
    notices: readonly Uint8Array[] = [],
  ): Promise<boolean> {
    return this.#fenced(room, fence, ttlMs, (record) => {
      record.journal.push(new Uint8Array(entry))
      this.#notices.add(room, notices)
      return { ...record, version: record.version + 1 }
    })
  }

  async snapshot(
    room: string,
    fence: Fence,
    snapshot: Uint8Array,
    ttlMs: number,
    stateVersion = 1,
    notices: readonly Uint8Array[] = [],
  ): Promise<boolean> {
    return this.#fenced(room, fence, ttlMs, (record) => {
      this.#notices.add(room, notices)
      return {
        ...record,
        version: record.version + 1,
        stateVersion: stateVersion === 1 ? undefined : stateVersion,
        snapshot: new Uint8Array(snapshot),
        journal: [],
      }
    })
  }

  async release(
    room: string,
    fence: Fence,
    { forget, ttlMs, lasting, notices = [], outcomes }: Release,
  ): Promise<boolean> {
    this.#requireOpen()
    if (outcomes) requireTtl(outcomes.ttlMs)
    // As in Redis: before the release, whether it succeeds or not. If it is fenced, the next refresh counts the room again.
    if (forget) this.#roomsBeside(room).delete(room)
    const creator = this.#rooms.get(room)?.creator
    const gone = { stateVersion: undefined, creator: undefined, snapshot: undefined, journal: [] }
    const released = this.#fenced(
      room,
      fence,
      ttlMs ?? Math.max(1, Math.ceil(this.#rooms.leftMs(room))),
      (record) => {
        this.#notices.add(room, notices)
        return { ...record, owner: null, ...(forget && gone) }
      },
    )
    if (!released) return false
    if (!forget) {
      if (ttlMs !== undefined) this.#count(room, ttlMs, creator, lasting)
      return true
    }
    if (outcomes) this.#outcomes.set(room, new Uint8Array(outcomes.value), outcomes.ttlMs)
    this.#lastingOf(room, creator)?.delete(room)
    const record = this.#rooms.get(room)
    if (record?.contested === false) {
      const endsMs = Math.min(ENDED_ROOM_MS, ttlMs ?? ENDED_ROOM_MS)
      this.#rooms.set(room, record, endsMs)
      this.#epochs.set(room, record.epoch, endsMs)
    }
    return true
  }

  async quarantine(room: string, fence: Fence, { ttlMs }: Quarantine): Promise<boolean> {
    this.#requireOpen()
    requireTtl(ttlMs)
    this.#roomsBeside(room).delete(room)
    const record = this.#owned(room, fence)
    if (!record) return false
    this.#lastingOf(room, record.creator)?.delete(room)
    this.#rooms.delete(room)
    const { epoch } = fence
    this.#epochs.set(room, epoch, EPOCH_OUTLIVES_MS)
    return true
  }

  async refresh(room: string, fence: Fence, ttlMs: number, lasting?: boolean): Promise<boolean> {
    const refreshed = this.#fenced(room, fence, ttlMs, (record) => record)
    if (refreshed) this.#count(room, ttlMs, this.#rooms.get(room)?.creator, lasting)
    return refreshed
  }

  async counted(
    projectId: string,
    { after, limit }: { readonly after?: CountedRoom; readonly limit: number },
  ): Promise<CountedRoom[]> {
    this.#requireOpen()
    requireLimit(limit)
    const rooms = [...(this.#counted.get(projectId)?.entries() ?? [])]
    return rooms
      .map(([room, until]) => ({ roomId: room.slice(projectId.length + 1), until }))
      .sort(byUntil)
      .filter((room) => !after || byUntil(room, after) > 0)
      .slice(0, limit)
  }

  #count(room: string, ttlMs: number, creator?: string, lasting = false): void {
    this.#roomsBeside(room).set(room, Math.floor(this.#clock.now()) + ttlMs, ttlMs)
    const account = this.#lastingOf(room, creator)
    if (lasting) account?.set(room, true, ttlMs)
    else account?.delete(room)
  }

  #roomsBeside(room: string): ExpiringMap<number> {
    const project = projectOf(room)
    const rooms = this.#counted.get(project) ?? new ExpiringMap<number>(this.#clock)
    this.#counted.set(project, rooms)
    return rooms
  }

  #lastingOf(room: string, creator: string | undefined): ExpiringMap<true> | undefined {
    if (creator === undefined) return undefined
    const account = accountOf(room, creator)
    const rooms = this.#lasting.get(account) ?? new ExpiringMap<true>(this.#clock)
    this.#lasting.set(account, rooms)
    return rooms
  }

  /** The generic cell rate algorithm: https://en.wikipedia.org/wiki/Generic_cell_rate_algorithm */
  #mayMake(maker: string, perMinute: number): boolean {
    const now = this.#clock.monotonic()
    const fullAt = Math.max(this.#made.get(maker) ?? 0, now) + MINUTE_MS / perMinute
    if (fullAt > now + MINUTE_MS) return false
    this.#made.set(maker, fullAt, fullAt - now)
    return true
  }

  /** Replaces the record with the result of `change`, if it is still owned under exactly `fence`. */
  #fenced(room: string, fence: Fence, ttlMs: number, change: (record: RoomRecord) => NextRecord): boolean {
    this.#requireOpen()
    requireRoomTtl(ttlMs)
    const record = this.#owned(room, fence)
    if (!record) return false
    this.#keep(room, change(record), ttlMs)
    return true
  }

  /** Returns the record if it is still owned under exactly `fence`. */
  #owned(room: string, { epoch, version }: Fence): RoomRecord | undefined {
    const record = this.#rooms.get(room)
    if (!record || record.owner === null) return undefined
    return record.epoch === epoch && record.version === version ? record : undefined
  }

  #keep(room: string, record: NextRecord, ttlMs: number): void {
    this.#rooms.set(room, { ...record, ownedAt: this.#clock.now() }, ttlMs)
    this.#epochs.set(room, record.epoch, ttlMs + EPOCH_OUTLIVES_MS)
  }
}

const MINUTE_MS = 60_000

/** Returns the project of a room: the text before the first slash of its name. */
const projectOf = (room: string): string => room.slice(0, room.indexOf('/'))

/** Returns the account of a principal in the project of a room. */
const accountOf = (room: string, principal: string): string => JSON.stringify([projectOf(room), principal])

/** Order of a sorted set of Redis: by the time, then by the bytes of the name. */
const byUntil = (a: CountedRoom, b: CountedRoom): number =>
  a.until === b.until
    ? Buffer.compare(Buffer.from(a.roomId), Buffer.from(b.roomId))
    : a.until < b.until
      ? -1
      : 1

const isLater = (one: Fence, other: Fence): boolean =>
  one.epoch > other.epoch || (one.epoch === other.epoch && one.version > other.version)

/** `DueTimes` in the memory of this process, by `clock.now()`. */
export class MemoryDueTimes implements DueTimes {
  protected readonly requireOpen: () => void
  protected readonly times = new Map<string, { readonly fence: Fence; readonly at: number }>()
  readonly #clock: Clock

  constructor(clock: Clock, requireOpen: () => void) {
    this.#clock = clock
    this.requireOpen = requireOpen
  }

  async set(room: string, fence: Fence, at: number | undefined): Promise<void> {
    this.requireOpen()
    const last = this.times.get(room)
    if (last && isLater(last.fence, fence)) return
    if (at === undefined) this.times.delete(room)
    else this.times.set(room, { fence: { ...fence }, at })
  }

  async take(part: number, { limit, againMs }: { limit: number; againMs: number }): Promise<DueRoom[]> {
    this.requireOpen()
    const now = this.#clock.now()
    const due = this.of(part)
      .filter(([, { at }]) => at <= now)
      .slice(0, limit)
    for (const [room, { fence }] of due) this.times.set(room, { fence, at: now + againMs })
    return due.map(([room, { fence }]) => ({ room, fence }))
  }

  /** Returns the times of one part, the earliest first. */
  protected of(part: number) {
    return [...this.times]
      .filter(([room]) => duePart(room) === part)
      .sort(([, one], [, other]) => one.at - other.at)
  }
}

/** `Notices` in the memory of this process. */
export class MemoryNotices extends MemoryDueTimes implements Notices {
  /** Notices by room, oldest first. */
  readonly #lists = new Map<string, Uint8Array[]>()

  /** Adds the notices of a room's owner. Known notices are not added again. */
  add(room: string, notices: readonly Uint8Array[]): void {
    if (notices.length === 0) return
    const list = this.#lists.get(room) ?? []
    for (const notice of notices) if (indexOf(list, notice) < 0) list.push(new Uint8Array(notice))
    this.#lists.set(room, list)
  }

  async oldest(room: string, limit: number): Promise<Uint8Array[]> {
    this.requireOpen()
    requireLimit(limit)
    return (this.#lists.get(room) ?? []).slice(0, limit).map((notice) => notice.slice())
  }

  async count(room: string): Promise<number> {
    this.requireOpen()
    return this.#lists.get(room)?.length ?? 0
  }

  async remove(room: string, notice: Uint8Array): Promise<void> {
    this.requireOpen()
    const list = this.#lists.get(room) ?? []
    const at = indexOf(list, notice)
    if (at >= 0) list.splice(at, 1)
    if (list.length === 0) this.#lists.delete(room)
  }

  async rooms(part: number, limit: number, skip = 0): Promise<string[]> {
    this.requireOpen()
    requireLimit(limit)
    return this.of(part)
      .slice(skip, skip + limit)
      .map(([room]) => room)
  }

  async drop(room: string): Promise<void> {
    this.requireOpen()
    this.#lists.delete(room)
    this.times.delete(room)
  }
}

const indexOf = (list: readonly Uint8Array[], notice: Uint8Array): number =>
  list.findIndex((one) => Buffer.compare(one, notice) === 0)

interface Row extends ListedRoom {
  /** Number of the change that wrote the row. */
  readonly change: number
  /** Monotonic milliseconds. */
  readonly expiresAt: number
}

interface List {
  /** Time at which the list was created. It differs from that of a list of the same name in an earlier store. */
  readonly generation: number
  /** Number of changes so far. */
  changes: number
  /** Rows by room id, in the order of their changes. */
  readonly rows: Map<string, Row>
  purgedAt: number
}

/** Milliseconds between two sweeps of a list that no node reads. */
const PURGE_MS = 1000

/** `Listings` in the memory of this process, by `clock.monotonic()`. */
export class MemoryListings implements Listings {
  readonly #clock: Clock
  readonly #requireOpen: () => void
  readonly #lists = new Map<string, List>()

  constructor(clock: Clock, requireOpen: () => void) {
    this.#clock = clock
    this.#requireOpen = requireOpen
  }

  async write(
    name: string,
    room: ListedRoom,
    ttlMs: number,
    by = Number.POSITIVE_INFINITY,
  ): Promise<boolean> {
    this.#requireOpen()
    requireRoomTtl(ttlMs)
    if (this.#clock.now() > by) return false
    const now = this.#clock.monotonic()
    let list = this.#lists.get(name)
    if (!list) {
      list = { generation: this.#clock.now(), changes: 0, rows: new Map(), purgedAt: now }
      this.#lists.set(name, list)
    }
    if (now - list.purgedAt >= PURGE_MS) this.#purge(list)
    const last = list.rows.get(room.roomId)
    if (last && (last.epoch > room.epoch || (last.epoch === room.epoch && last.version > room.version)))
      return false
    put(list, room, now + (room.value ? ttlMs : REMOVED_ROW_MS))
    return true
  }

  async changes(name: string, cursor: string, limit: number): Promise<ListingChanges> {
    this.#requireOpen()
    requireLimit(limit)
    const list = this.#lists.get(name)
    if (list) this.#purge(list)
    if (!list || list.rows.size === 0) {
      this.#lists.delete(name)
      return { cursor: '', rooms: [], restarted: true, more: false }
    }
    const now = this.#clock.monotonic()
    let [generation, after, since] = cursor.split(':').map(Number) as [number, number, number]
    const restarted = generation !== list.generation || now - since >= REMOVED_ROW_MS
    if (restarted) [generation, after, since] = [list.generation, 0, now]
    const rows = [...list.rows.values()].filter(({ change }) => change > after)
    const more = rows.length > limit
    const page = rows.slice(0, limit)
    return {
      cursor: `${generation}:${page.at(-1)?.change ?? after}:${more ? since : now}`,
      rooms: page.map(({ roomId, epoch, version, value }) => ({
        roomId,
        epoch,
        version,
        value: value?.slice(),
      })),
      restarted,
      more,
    }
  }

  /** An expired row loses its value. An expired row without a value is removed. */
  #purge(list: List): void {
    const now = this.#clock.monotonic()
    list.purgedAt = now
    for (const row of [...list.rows.values()]) {
      if (row.expiresAt > now) continue
      if (row.value) put(list, { ...row, value: undefined }, now + REMOVED_ROW_MS)
      else list.rows.delete(row.roomId)
    }
  }
}

function put(list: List, { roomId, epoch, version, value }: ListedRoom, expiresAt: number): void {
  // Deleted first, so that the map stays in the order of the changes.
  list.rows.delete(roomId)
  const change = ++list.changes
  list.rows.set(roomId, { roomId, epoch, version, value: value?.slice(), change, expiresAt })
}
