import { crc32 } from 'node:zlib'

/**
 * The store port: the interfaces that roomful needs of a store. Two adapters implement them, `redis/` and `memory/`, and one conformance
 * suite (`testing/conformance.ts`) tests both. Keys are plain strings; the adapter adds the prefix of the deployment. Every method may
 * reject with `StoreUnavailable` if the store is unreachable.
 */
export interface Store {
  readonly kind: 'memory' | 'redis'
  readonly records: Records
  readonly rooms: RoomRecords
  /** Times at which rooms without an owner must be opened. */
  readonly wakeups: DueTimes
  readonly notices: Notices
  readonly listings: Listings
  readonly bus: Bus
  readonly locks: Locks
  readonly vitals: StoreVitals
  /** Returns the store's clock, milliseconds since 1970. */
  time(): Promise<number>
  /** Returns the uptime of the store in milliseconds, or Infinity in memory. A store that was restarted empty is young. */
  uptime(): Promise<number>
  /** Resolves if the store accepts writes. */
  ping(): Promise<void>
  /**
   * Calls `back` each time the store is reachable again after an outage (the connection for commands was lost and is back). The returned
   * function ends that.
   */
  onReturn(callback: () => void): () => void
  /** Closes all connections. Afterwards every call rejects. */
  close(): Promise<void>
}

/** State of a store, for monitoring. */
export interface StoreVitals {
  /** False while a call would wait for a connection, as far as is known. */
  readonly reachable: boolean
  /** Reports every command to `observer` until the returned function is called. */
  observe(observer: StoreObserver): () => void
  /** Returns the metrics of each server that accepts writes; none in memory. Rejects with `StoreUnavailable`. */
  servers(): Promise<readonly StoreServer[]>
}

/** Observer of commands to the store. It is called for each command, so it must be cheap and must not throw. */
export interface StoreObserver {
  /** The store has answered. `seconds`: duration of the call, including the wait for a connection. */
  answered(operation: string, seconds: number): void
  /** The store has refused the command, or did not answer. */
  failed(operation: string, seconds: number, failure: StoreFailure): void
}

/** Metrics of one server. */
export interface StoreServer {
  /** `host:port`, or the name of the master in the Sentinels. */
  readonly name: string
  readonly usedMemoryBytes: number
  /** 0: no configured limit. */
  readonly maxMemoryBytes: number
  readonly connectedClients: number
  /** Number since the server started. */
  readonly commandsProcessed: number
  readonly evictedKeys: number
  /** Number of replicas that keep up. Undefined: the server accepts writes without replicas (min-replicas-to-write 0). */
  readonly goodReplicas: number | undefined
  /** True if the server is known to reject its append-only file when it restarts. */
  readonly restartLosesData: boolean
}

/** Class of a failed call: the store did not answer, has no memory left for writes, or refused the command. */
export type StoreFailure = 'store_unreachable' | 'store_full' | 'store_refused'

/**
 * The store was unreachable, did not answer in time, or cannot serve at the moment. A write may or may not have taken place. All failures
 * of a store have this class, except `StoreRejected`.
 */
export class StoreUnavailable extends Error {
  override readonly name: string = 'StoreUnavailable'
  readonly failure: StoreFailure
  /** Code of the store's error reply, such as `READONLY`. Undefined: there was no reply. */
  readonly reply: string | undefined

  constructor(message: string, reply?: string) {
    super(message)
    this.reply = reply
    if (reply === undefined) this.failure = 'store_unreachable'
    else this.failure = reply === 'OOM' ? 'store_full' : 'store_refused'
  }
}

/**
 * The store refused a command for a reason that can end, such as a missing permission. An operation with several commands may have run in
 * part.
 */
export class StoreRefused extends StoreUnavailable {
  override readonly name = 'StoreRefused'

  constructor(message: string, reply = 'ERR') {
    super(message, reply)
  }
}

/** The store can never run the command: the key has a value of another type, or the value is larger than the store accepts. */
export class StoreRejected extends Error {
  override readonly name = 'StoreRejected'
}

/** The store cannot be used with its setup, or with the configuration of this process. The text says what would be right. */
export class StoreMisconfigured extends Error {
  override readonly name = 'StoreMisconfigured'
}

/** A stored value and its number of writes, which compare-and-set checks. */
export interface StoredRecord {
  readonly value: Uint8Array
  /** 1 after the first write of the key, and one more after each further write. */
  readonly version: number
}

/**
 * One step of an atomic write. All keys and indexes of one `Records.write` must share a hash tag (`{…}` in the key), so that Redis Cluster
 * keeps them in one slot.
 */
export type Write =
  /** Stores `value`. `ifVersion` 0: only if there is no record. n: only over version n. `ttlMs` absent: without expiry. */
  | {
      readonly put: string
      readonly value: Uint8Array
      readonly ifVersion?: number
      readonly ttlMs?: number
    }
  | { readonly remove: string; readonly ifVersion?: number }
  /**
   * Adds a member to an ordered set, which is ordered by the bytes of the members. `ifFewerThan`: only if the set has fewer members or
   * already has this one. `ttlMs`: lifetime of the whole set after the last write with this field. Absent: unchanged.
   */
  | {
      readonly index: string
      readonly add: string
      readonly ifFewerThan?: number
      readonly ttlMs?: number
    }
  | { readonly index: string; readonly drop: string }

/** Request to acquire or renew a lease. `key` and `listed.index` must share a hash tag. */
export interface LeaseRenewal {
  readonly key: string
  /** Holder of the lease: a name that no other process uses. */
  readonly holder: string
  /** Value that other processes read at the key. */
  readonly value: Uint8Array
  readonly ttlMs: number
  /** Ordered set that lists the lease, and its member for the lease. Absent: the lease is not listed. */
  readonly listed?: { readonly index: string; readonly member: string }
}

/** Current holder of a lease. */
export interface Lease {
  readonly holder: string
  /** Start of the uninterrupted lease by the store's clock, milliseconds since 1970. A new value shows that the lease had expired. */
  readonly since: number
}

/** Versioned values under keys, with expiry, atomic compare-and-set of several keys, and ordered sets that list the keys. */
export interface Records {
  /** Returns the record of each key, in order. Undefined: there is none, or it has expired. Keys may be in different slots. */
  read(keys: readonly string[]): Promise<(StoredRecord | undefined)[]>
  /** Carries out all writes. If an `ifVersion` or `ifFewerThan` does not hold, carries out none and resolves with false. */
  write(writes: readonly Write[]): Promise<boolean>
  /** Acquires a free lease, or renews it for its holder. Resolves with the current holder. The lease of another holder is unchanged. */
  renewLease(lease: LeaseRenewal): Promise<Lease>
  /** Returns the members of an ordered set, largest first, at most `limit`. `before`: only smaller ones. */
  page(index: string, options: { before?: string; limit: number }): Promise<string[]>
}

/** Proof that a writer still owns a room: the epoch that it claimed, and the number of commits that it has made or seen. */
export interface Fence {
  readonly epoch: number
  readonly version: number
}

/** A claimed room: the fence for commits, and the content of the room in the store. */
export interface Claim {
  readonly fence: Fence
  /** Last snapshot. Undefined: there is none. */
  readonly snapshot: Uint8Array | undefined
  /** Commits since the snapshot, oldest first. */
  readonly journal: readonly Uint8Array[]
  /** `Release.outcomes` of an earlier room of this name, unless they have expired. */
  readonly outcomes?: Uint8Array | undefined
  /**
   * Milliseconds since an owner last claimed, wrote, refreshed, recalled or released the room, by the clock of the store. Undefined: no owner
   * is known.
   */
  readonly idleMs?: number
}

/** Claimant of a room, and minimum lifetime of the record in milliseconds. */
export interface Opening {
  readonly owner: string
  readonly ttlMs: number
  /** Latest version of the room type's state that `owner` has code for. */
  readonly stateVersion: number
  /** Principal for which the room is created if there is none. Absent: it is not created. */
  readonly creator?: string | undefined
}

/** Content of a room in the store, whoever owns it. */
export type StoredRoom = Pick<Claim, 'snapshot' | 'journal' | 'outcomes'>

/** Options of a release. */
export interface Release {
  /** True: the room has ended, and only its epoch is kept. */
  readonly forget: boolean
  /** Lifetime of the remaining data. Absent: lifetime and count of the room are unchanged. */
  readonly ttlMs?: number
  /** True: the room counts as one of its creator's lasting rooms. */
  readonly lasting?: boolean
  /** With `forget`: a value for later rooms of this name, with its lifetime. Absent: an earlier value is kept. */
  readonly outcomes?: { readonly value: Uint8Array; readonly ttlMs: number }
  /** Notices of the last turn, which are added to those of the room if the release succeeds. */
  readonly notices?: readonly Uint8Array[]
}

/** A room that counts as one of its project. */
export interface CountedRoom {
  /** `type:key`. */
  readonly roomId: string
  /**
   * End of the time for which it counts, which is about the expiry of its record: milliseconds since 1970. Infinity: until the room ends.
   */
  readonly until: number
}

/** Recorded owner of a room. */
export interface RoomOwner {
  readonly epoch: number
  readonly version: number
  /** Id of the owning node. Null: the room is released. */
  readonly owner: string | null
  /** Version of the state in the last snapshot. Absent: 1, or there is no snapshot. */
  readonly stateVersion?: number
  /** True: the store had lost the room, `owner` has recalled it, and no node has claimed it since. The record has no content. */
  readonly recalled?: true
}

/** Options of a quarantine. */
export interface Quarantine {
  /** Reason, for an operator. */
  readonly reason: string
  /** Lifetime of the quarantined data. */
  readonly ttlMs: number
}

/** Limits of new rooms. 0: no limit. */
export interface RoomQuota {
  /** Maximum number of rooms of a project. */
  readonly maxRooms: number
  /** Maximum number of lasting rooms of one principal: rooms that stay in the store without members. */
  readonly maxLasting: number
  /** Rate of one principal's new rooms per minute, which is also the burst. */
  readonly perMinute: number
}

/** Result of a reservation. */
export type Reservation = 'reserved' | 'project_full' | 'principal_full' | 'too_fast'

/**
 * The fenced record of each room: owner, epoch, snapshot and journal. Every write names its fence, and succeeds only if the stored epoch
 * and version are equal to it, so at most one epoch of a room commits (guarantee 1). The epoch outlives the rest of the record. `room` is
 * `<project_id>/<room_type>:<key>`, and all keys of one room share a hash tag.
 *
 * Each write of an owner sets the lifetime of the room from then on, also while it has no owner. With Infinity, the room lives until an
 * owner sets another lifetime. A claim never shortens the remaining lifetime.
 */
export interface RoomRecords {
  inspect(room: string): Promise<RoomOwner | undefined>
  /** Reads the content of a room without a claim. The owner may be about to write a newer one. */
  read(room: string): Promise<StoredRoom>
  /**
   * Counts a room that is about to be created as one of its project and of `principal`, within the limits. A room that already counts
   * passes. It counts until it is released with `forget`, or for `ttlMs` after it was last reserved, refreshed or released, which may be
   * without end. So the count is exact without failures, too high for a while after a crash, and too low after a loss of data until owners
   * refresh. The lasting rooms of a principal are counted in the same way, from the first refresh with `lasting`.
   */
  reserve(room: string, principal: string, quota: RoomQuota, ttlMs: number): Promise<Reservation>
  /**
   * Makes `owner` the owner under a new epoch, if the recorded epoch is still `expectedEpoch` (0: no record). Undefined: it is not, because
   * another node was faster, or the room cannot be claimed at the moment. The new epoch is the larger of the old one + 1 and the store's
   * clock in milliseconds. `ttlMs`: minimum lifetime of the record.
   */
  claim(room: string, owner: string, expectedEpoch: number, ttlMs: number): Promise<Claim | undefined>
  /**
   * Reads the owner of a room, and claims the room with the same command if it is free: its last owner has released it, its record names
   * `owner`, or there is no record and `opening` has a `creator`. Undefined: there is no record. A record with a state version above
   * `stateVersion` is not claimed. `mayClaim` is called when the command is sent, and again for each repetition. If it returns false, the
   * room is not claimed. Otherwise a command that has waited for its connection could claim a room that a store without its data does not
   * know.
   */
  open(room: string, opening: Opening, mayClaim: () => boolean): Promise<Claim | RoomOwner | undefined>
  /**
   * Writes that `owner` had the room under `epoch`, after the store has lost the room. The new record is empty until a node claims the room
   * over that epoch. Of several recalls the highest epoch wins, in any order. False: the room has a record that was not lost, or a later
   * owner has recalled it.
   */
  recall(room: string, owner: string, epoch: number, ttlMs: number): Promise<boolean>
  /**
   * Appends one entry to the journal and increments the version. `notices` are added to those of the room. False: fenced, and nothing was
   * written.
   */
  commit(
    room: string,
    fence: Fence,
    entry: Uint8Array,
    ttlMs: number,
    notices?: readonly Uint8Array[],
  ): Promise<boolean>
  /**
   * Replaces the snapshot, empties the journal, which the snapshot covers, and increments the version. `stateVersion`: version of the
   * state, for readers of the owner; default 1. `notices` are added to those of the room. False: fenced.
   */
  snapshot(
    room: string,
    fence: Fence,
    snapshot: Uint8Array,
    ttlMs: number,
    stateVersion?: number,
    notices?: readonly Uint8Array[],
  ): Promise<boolean>
  /**
   * Releases the room: the owner becomes null, and the record keeps its TTL. With `forget` the room has ended: snapshot and journal are
   * removed, and the epoch is kept for `ENDED_ROOM_MS`, or for its usual lifetime if an earlier owner may still believe that it owns the
   * room. False: fenced.
   */
  release(room: string, fence: Fence, options: Release): Promise<boolean>
  /**
   * Moves snapshot and journal unchanged to the quarantine, for an operator. The room has then ended: it has no owner and does not count,
   * and its epoch is kept. The next claim finds a room without content. A later quarantine of the same room replaces an earlier one. The
   * memory adapter drops the data, because no other process could read it. False: fenced.
   */
  quarantine(room: string, fence: Fence, quarantine: Quarantine): Promise<boolean>
  /**
   * Sets the lifetime of the record, and the time for which the room counts. `lasting`: it counts as one of its creator's lasting rooms.
   * False: fenced.
   */
  refresh(room: string, fence: Fence, ttlMs: number, lasting?: boolean): Promise<boolean>
  /**
   * Returns the counted rooms of a project, with or without owner, at most `limit`. Those that count for the shortest time come first, then
   * by the bytes of their names. `after`: only rooms after this one. Refreshes of owners move rooms backwards in this order.
   */
  counted(
    projectId: string,
    options: { readonly after?: CountedRoom; readonly limit: number },
  ): Promise<CountedRoom[]>
}

/** A room whose time in an index has come. */
export interface DueRoom {
  readonly room: string
  /** Fence under which an owner has last set the time. */
  readonly fence: Fence
}

/** Index of rooms by a time, in `DUE_PARTS` parts. The times are hints: the record of a room decides whether there is something to do. */
export interface DueTimes {
  /**
   * Sets the time of the room (milliseconds since 1970, by the store's clock), and replaces an earlier one. Undefined: removes it. Nothing
   * changes if the time was set under a later fence (epoch, then version). So with the fence of a `DueRoom`, no later time of an owner is
   * lost.
   */
  set(room: string, fence: Fence, at: number | undefined): Promise<void>
  /**
   * Returns the due rooms of one part, at most `limit`, the earliest first. Each is postponed by `againMs`, so that it is returned again
   * unless its owner sets another time by then.
   */
  take(part: number, options: { limit: number; againMs: number }): Promise<DueRoom[]>
}

/**
 * Undelivered notices: a list for each room, which `RoomRecords` writes, and the times at which a node looks for notices of a room without
 * an owner. Notices do not expire.
 */
export interface Notices extends DueTimes {
  /** Returns the oldest notices of a room, at most `limit`. */
  oldest(room: string, limit: number): Promise<Uint8Array[]>
  /** Number of notices of a room. */
  count(room: string): Promise<number>
  /** Removes a notice of a room. */
  remove(room: string, notice: Uint8Array): Promise<void>
  /** Returns the rooms in one part of the index, at most `limit`, the earliest first, without the first `skip`. */
  rooms(part: number, limit: number, skip?: number): Promise<string[]>
  /** Deletes all notices of a room that will get no more, and removes the room from the index. */
  drop(room: string): Promise<void>
}

/** One row of a list in the store. Of two writes for one room, the one with the higher (epoch, version) wins. */
export interface ListedRoom {
  readonly roomId: string
  readonly epoch: number
  readonly version: number
  /** Undefined: the room is no longer listed. */
  readonly value: Uint8Array | undefined
}

/** Changes of a list since a cursor. */
export interface ListingChanges {
  /** Where the next read continues. Opaque. */
  readonly cursor: string
  /** Changes, oldest first. Of several changes of one room, only the last. */
  readonly rooms: readonly ListedRoom[]
  /**
   * True: the reader's copy is void, and `rooms` starts a new one. This is the first read, the store has lost the list, or the cursor is
   * too old.
   */
  readonly restarted: boolean
  /** True: there are more changes now. */
  readonly more: boolean
}

/** Lists of rooms with their rows. Readers keep a copy of a list, and poll for changes. `list` is `<project_id>/<room_type>`. */
export interface Listings {
  /**
   * Writes a room's row, which is listed for `ttlMs` (Infinity: without end) unless it is written again. Without a value, removes the row;
   * its (epoch, version) is kept for `REMOVED_ROW_MS`. `by`: time of the store, in milliseconds since 1970, after which nothing is written.
   * False: nothing was written, because the list has a later (epoch, version) of the room, or `by` has passed.
   */
  write(list: string, room: ListedRoom, ttlMs: number, by?: number): Promise<boolean>
  /** Returns at most `limit` changes since `cursor`. '' is the beginning. An expired row is a change without a value. */
  changes(list: string, cursor: string, limit: number): Promise<ListingChanges>
}

/** Messages between processes: at most once, without history, binary safe. */
export interface Bus {
  /** Resolves with the number of subscribers to which the store has passed the message. */
  publish(channel: string, message: Uint8Array): Promise<number>
  /**
   * Sends a message immediately and without an answer, so that it costs only its bytes. Messages of one channel keep their order. Absent:
   * `publish` costs no more. False: the message cannot be sent at this moment; use `publish`, which can wait. Throws `StoreUnavailable` if
   * so many bytes are queued that the store seems to accept none. `taken` is called when the message has left this process, or with the
   * reason why it was lost.
   */
  send?(channel: string, message: Uint8Array, taken?: (error?: Error | null) => void): boolean
  /**
   * Calls `onMessage` for every message from now on. Resolves when the subscription is active. A message may be a view of socket data, and
   * belongs to its subscriber. `onGap` is called when messages may have been missed (the connection was lost and is back). The returned
   * function ends the subscription.
   */
  subscribe(
    channel: string,
    onMessage: (message: Uint8Array) => void,
    onGap?: () => void,
  ): Promise<() => Promise<void>>
  /**
   * Returns the current number of subscribers of each channel, as `publish` counts them, in the same order. Undefined: the store does not
   * know it (Redis Cluster without sharded pub/sub).
   */
  listeners(channels: readonly string[]): Promise<number[] | undefined>
}

/** Locks between processes, only for efficiency: a holder that was paused may use an expired lock. The fence protects the data. */
export interface Locks {
  /**
   * Runs `work` while it holds the lock `name`, and resolves with its result. Waits for the lock for at most `waitMs`. The lock expires
   * after `ttlMs`, even if `work` is still running. Undefined: another process held the lock all the time, and `work` did not run.
   */
  withLock<T>(
    name: string,
    options: { ttlMs: number; waitMs: number },
    work: () => Promise<T>,
  ): Promise<T | undefined>
}

/**
 * Common rules of both adapters: arguments that they reject before they access data (errors of the caller, not states of the store), and
 * lifetimes and limits.
 */

const keyOf = (write: Write): string =>
  'put' in write ? write.put : 'remove' in write ? write.remove : write.index

/**
 * Returns the part of a key that determines its slot in Redis Cluster: the text between the first `{` and the next `}`, or the whole key.
 * https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#hash-tags
 */
export function hashTag(key: string): string {
  const open = key.indexOf('{')
  const close = key.indexOf('}', open + 1)
  return open >= 0 && close > open + 1 ? key.slice(open + 1, close) : key
}

/** Throws unless all lifetimes in `writes` are valid and all keys are in one slot, so that one script may access them. */
export function requireWrites(writes: readonly Write[]): void {
  const first = writes[0]
  if (!first) return
  const tag = hashTag(keyOf(first))
  for (const write of writes) {
    if ('ttlMs' in write && write.ttlMs !== undefined) requireTtl(write.ttlMs)
    if (hashTag(keyOf(write)) === tag) continue
    throw new RangeError(
      `one write touches ${keyOf(first)} and ${keyOf(write)}: all its keys must share a hash tag such as {control}`,
    )
  }
}

/** Throws unless a lease has a holder and a valid lifetime, and one script may access its keys. */
export function requireLease({ key, listed, holder, ttlMs }: LeaseRenewal): void {
  requireTtl(ttlMs)
  if (holder === '') throw new RangeError(`the lease ${key} has no holder: it is the empty string`)
  if (listed && hashTag(key) !== hashTag(listed.index))
    throw new RangeError(
      `the lease ${key} and its index ${listed.index} must share a hash tag such as {nodes}`,
    )
}

/** Throws unless `ttlMs` is a positive integer of milliseconds. */
export function requireTtl(ttlMs: number): void {
  if (Number.isSafeInteger(ttlMs) && ttlMs > 0) return
  throw new RangeError(`ttlMs is ${ttlMs}: it must be a whole number of milliseconds above 0`)
}

/** Number of parts of each index of rooms by time. In Redis Cluster, each part is a slot. */
export const DUE_PARTS = 4

/** Returns the part that a room belongs to. */
export const duePart = (room: string): number => crc32(room) % DUE_PARTS

/** Throws unless `ttlMs` is a valid lifetime or Infinity. */
export function requireRoomTtl(ttlMs: number): void {
  if (ttlMs !== Number.POSITIVE_INFINITY) requireTtl(ttlMs)
}

/** Throws unless `limit` is a valid page size. */
export function requireLimit(limit: number): void {
  if (Number.isSafeInteger(limit) && limit > 0) return
  throw new RangeError(`limit is ${limit}: it must be a whole number above 0`)
}

/** Throws if an owner has no name, because that would mean "released". */
export function requireOwner(owner: string): void {
  if (owner === '') throw new RangeError('owner is empty: it must be the id of a node')
}

/** Throws unless these are valid times of a lock. */
export function requireLockTimes({ ttlMs, waitMs }: { ttlMs: number; waitMs: number }): void {
  requireTtl(ttlMs)
  if (Number.isFinite(waitMs) && waitMs >= 0) return
  throw new RangeError(`waitMs is ${waitMs}: it must be a number of milliseconds, 0 or more`)
}

/**
 * Time for which a room's epoch outlives the rest of its record: two hours.
 *
 * Epochs start at the store's clock in milliseconds. So a room without any record still gets a larger epoch than before, unless that clock
 * was set back. Two hours cover the usual jumps of clocks (a correction by NTP, a failover to a server whose clock is slow, a time zone mistake
 * of one hour) and every client that may still have frames of the old epoch (a session resumes within minutes). The cost is about 150 bytes
 * of the store for each room whose record has expired in the last two hours. If an owner has ended the room, everything is removed within
 * `ENDED_ROOM_MS`.
 */
export const EPOCH_OUTLIVES_MS = 2 * 60 * 60 * 1000

/**
 * Time for which an ended room leaves a record: two minutes. The record contains only the epoch, for the next claim to exceed, and for
 * messages that are late by no more than the lifetime of a connection. After that, a fenced write finds no record and is rejected too, and
 * a new claim starts at the store's clock, which is larger by then.
 *
 * Only `recall` could do harm later. An owner that was replaced while it was paused would find no record, assume a loss of data, and write
 * the ended room again. Such an owner exists only if a room was claimed from an owner that had not released it. The record notes that
 * (`contested`), and the record and the epoch of such a room are kept as long as those of a room that was never ended. So a room that is
 * created, played and ended without failures costs a few minutes of memory, also if there are many: docs/decisions has the whole argument.
 */
export const ENDED_ROOM_MS = 2 * 60 * 1000

/** Time for which a removed row leaves its (epoch, version) in its list. After a longer pause, a read starts with a new copy. */
export const REMOVED_ROW_MS = 2 * 60 * 1000
