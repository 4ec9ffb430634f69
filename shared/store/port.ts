import { crc32 } from 'node:zlib'

/**
 * The store port: what roomful needs of a store, as a few small interfaces. Two adapters implement it, `redis/` and `memory/`;
 * one conformance suite (`testing/conformance.ts`) holds for both. Keys are plain strings without the deployment's prefix, which the
 * adapter adds. Every method may reject with `StoreUnavailable` when the store cannot be reached.
 */
export interface Store {
  readonly kind: 'memory' | 'redis'
  readonly records: Records
  readonly rooms: RoomRecords
  readonly wakeups: Wakeups
  readonly notices: Notices
  readonly listings: Listings
  readonly bus: Bus
  readonly locks: Locks
  readonly vitals: StoreVitals
  /** The store's own clock, milliseconds since 1970. */
  time(): Promise<number>
  /** For how long the store has been running, in milliseconds; Infinity in memory. A store that came back empty is young. */
  uptime(): Promise<number>
  /** Resolves when the store takes writes. */
  ping(): Promise<void>
  /**
   * Calls back each time the store can be reached again after it could not (the connection for commands was lost and is back). The
   * returned function ends that.
   */
  onReturn(callback: () => void): () => void
  /** Lets go of every connection; afterwards every call rejects. */
  close(): Promise<void>
}

/** How a store is doing, for those who watch over it. */
export interface StoreVitals {
  /** Whether a call would be sent at once, as far as is known. */
  readonly reachable: boolean
  /** Tells `observer` of every command from now on; the returned function ends that. */
  observe(observer: StoreObserver): () => void
  /** What each server that takes writes says of itself; none in memory. Rejects with `StoreUnavailable`. */
  servers(): Promise<readonly StoreServer[]>
}

/** Hears of commands to the store. Called for each: must be cheap and must not throw. */
export interface StoreObserver {
  /** The store has answered; `seconds` from the call, waiting for a connection included. */
  answered(operation: string, seconds: number): void
  /** The store has refused, or there was no answer. */
  failed(operation: string, seconds: number, failure: StoreFailure): void
}

/** A server's own figures. */
export interface StoreServer {
  /** `host:port`, or what the Sentinels call the master. */
  readonly name: string
  readonly usedMemoryBytes: number
  /** 0: no limit but the machine's. */
  readonly maxMemoryBytes: number
  readonly connectedClients: number
  /** Since the server started. */
  readonly commandsProcessed: number
  readonly evictedKeys: number
}

/** Class of a failed call: the store gave no answer, has no memory left for writes, or refused the command. */
export type StoreFailure = 'store_unreachable' | 'store_full' | 'store_refused'

/**
 * The store could not be reached, did not answer in time, or cannot serve now; whether a write took place is unknown. Any failure of a
 * store is one of these, except `StoreRejected`.
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
 * The store refused a command for a reason that can end, such as a missing permission. An operation that takes several commands may have
 * run in part.
 */
export class StoreRefused extends StoreUnavailable {
  override readonly name = 'StoreRefused'

  constructor(message: string, reply = 'ERR') {
    super(message, reply)
  }
}

/** The store can never run the command: the key holds a value of another kind, or the value is larger than the store takes. */
export class StoreRejected extends Error {
  override readonly name = 'StoreRejected'
}

/** The store cannot be used as it is set up, or as this process is told to use it; the text says what would be right. */
export class StoreMisconfigured extends Error {
  override readonly name = 'StoreMisconfigured'
}

/** A stored value and the number of writes it has seen, which compare-and-set checks. */
export interface StoredRecord {
  readonly value: Uint8Array
  /** 1 for the first write of the key, one more for each. */
  readonly version: number
}

/**
 * One step of an atomic write. All keys and indexes of one `Records.write` must share a hash tag (`{…}` in the key), so that
 * Redis Cluster keeps them in one slot.
 */
export type Write =
  /** Stores `value`; `ifVersion` 0 means "only when absent", n "only over version n". `ttlMs` absent: for ever. */
  | {
      readonly put: string
      readonly value: Uint8Array
      readonly ifVersion?: number
      readonly ttlMs?: number
    }
  | { readonly remove: string; readonly ifVersion?: number }
  /**
   * Adds a member to an ordered set (ordered by the bytes of the member itself); `ifFewerThan`: only when it has fewer members, or this
   * one already. `ttlMs`: the whole set ends so long after the last write that says so; absent: as it was.
   */
  | {
      readonly index: string
      readonly add: string
      readonly ifFewerThan?: number
      readonly ttlMs?: number
    }
  | { readonly index: string; readonly drop: string }

/** A lease that its holder asks for, or asks to keep. `key` and `listed.index` must share a hash tag. */
export interface LeaseRenewal {
  readonly key: string
  /** Who asks: one that no other process ever calls itself. */
  readonly holder: string
  /** What others read at the key. */
  readonly value: Uint8Array
  readonly ttlMs: number
  /** The ordered set that lists the lease, and the member that stands for it there. Absent: the lease is not listed. */
  readonly listed?: { readonly index: string; readonly member: string }
}

/** Who has a lease. */
export interface Lease {
  readonly holder: string
  /** Since when, without a break: the store's clock, milliseconds since 1970. Another than before: the lease had run out in between. */
  readonly since: number
}

/** Versioned values under keys, with expiry, atomic multi-key compare-and-set, and ordered sets to list them by. */
export interface Records {
  /** The record of each key, in order; undefined where there is none (or it has expired). Keys may lie in different slots. */
  read(keys: readonly string[]): Promise<(StoredRecord | undefined)[]>
  /** Does all the writes, or none when one `ifVersion` or `ifFewerThan` does not hold: then false. */
  write(writes: readonly Write[]): Promise<boolean>
  /** Takes a lease that no one has, or renews it for its holder; says who has it now. Another's lease is left as it is. */
  renewLease(lease: LeaseRenewal): Promise<Lease>
  /** Members of an ordered set, largest first, at most `limit`, only those smaller than `before` when given. */
  page(index: string, options: { before?: string; limit: number }): Promise<string[]>
}

/** What proves that a writer still owns a room: the epoch it claimed and the number of commits it has made or seen. */
export interface Fence {
  readonly epoch: number
  readonly version: number
}

/** A claimed room: the fence to commit under, and what the store holds of the room. */
export interface Claim {
  readonly fence: Fence
  /** The last snapshot, or undefined for a room that has none. */
  readonly snapshot: Uint8Array | undefined
  /** Everything committed after the snapshot, oldest first. */
  readonly journal: readonly Uint8Array[]
  /** The epoch that it was claimed over; 0: none. */
  readonly over: number
  /** Turns that did not end, of earlier owners, oldest first: the last few. */
  readonly stuck: readonly StuckNote[]
  /** What an earlier room of this name has left by `Release.outcomes`, if that has not expired. */
  readonly outcomes?: Uint8Array | undefined
}

/** Who opens a room, and for how long the record lives at least (milliseconds). */
export interface Opening {
  readonly owner: string
  readonly ttlMs: number
  /** The latest version of the room type's state that `owner` has code for. */
  readonly stateVersion: number
  /** On whose account the room is made if there is none. Absent: it is not made. */
  readonly creator?: string | undefined
}

/** What the store has of a room, whoever owns it. */
export type StoredRoom = Pick<Claim, 'snapshot' | 'journal' | 'outcomes'>

/** How a room is released. */
export interface Release {
  /** The room has ended: only its epoch stays. */
  readonly forget: boolean
  /** Lifetime of what stays; absent: the room keeps the lifetime it has, and stays counted as it is. */
  readonly ttlMs?: number
  /** The room counts as one of its creator's lasting rooms. */
  readonly lasting?: boolean
  /** With `forget`: a value for later rooms of this name, which is kept for `ttlMs`. Absent: an earlier one stays. */
  readonly outcomes?: { readonly value: Uint8Array; readonly ttlMs: number }
  /** Notices of the last turn: added to those of the room if it is released. */
  readonly notices?: readonly Uint8Array[]
}

/** A room that is counted as one of its project. */
export interface CountedRoom {
  /** `type:key`. */
  readonly roomId: string
  /** Up to when it is counted, which is about when its record expires: milliseconds since 1970; Infinity: until it ends. */
  readonly until: number
}

/** What a process wrote down about a turn of a room before it ended because of that turn. */
interface StuckNote {
  readonly epoch: number
  readonly ageMs: number
  readonly note: Uint8Array
}

/** Who owns a room, as recorded. */
export interface RoomOwner {
  readonly epoch: number
  readonly version: number
  /** The owning node's id; null when it was released. */
  readonly owner: string | null
  /** The version of the state in the last snapshot; absent: 1, or there is none. */
  readonly stateVersion?: number
  /** The store had lost the room, `owner` has recalled it, and no node has claimed it since: the record has no content. */
  readonly recalled?: true
}

/** How a room's record is put aside. */
export interface Quarantine {
  /** Why, for an operator who looks at the record. */
  readonly reason: string
  /** How long what is put aside is kept. */
  readonly ttlMs: number
}

/** How many rooms may be made; 0: any number. */
export interface RoomQuota {
  /** That a project has at once. */
  readonly maxRooms: number
  /** That one principal has made and that are lasting: they stay in the store while no one is in them. */
  readonly maxLasting: number
  /** That one principal makes in a minute, in the long run and at once. */
  readonly perMinute: number
}

/** Result of asking for one more room. */
export type Reservation = 'reserved' | 'project_full' | 'principal_full' | 'too_fast'

/**
 * The fenced record of each room: owner, epoch, snapshot and journal. Every write names the fence it is made under and takes place
 * only when the stored epoch and version are exactly those: at most one epoch of a room commits (guarantee 1). The epoch outlives
 * the rest of the room's record. `room` is `<project_id>/<room_type>:<key>`; all keys of one room share a hash tag.
 *
 * An owner's write says for how long the room lives from then on, whichever node owns it, and also while none does. Infinity keeps it
 * until an owner says otherwise. A claim never shortens what is left of that.
 */
export interface RoomRecords {
  inspect(room: string): Promise<RoomOwner | undefined>
  /** Reads what the store has of a room without a claim: it may be older than what an owner is about to write. */
  read(room: string): Promise<StoredRoom>
  /**
   * Counts a room that is about to be made as one of its project, and on the account of `principal`, unless that is too many; one that is
   * counted already passes. It is counted until it is released with `forget`, or for `ttlMs` after it was last reserved, refreshed or
   * released, which may be for ever: so the count is exact where nothing fails, too high for a while after a crash, and after a loss of
   * data too low until owners refresh. The lasting rooms of a principal are counted in the same way, from the first refresh that says so.
   */
  reserve(room: string, principal: string, quota: RoomQuota, ttlMs: number): Promise<Reservation>
  /**
   * Makes `owner` the owner under a new epoch, if the recorded epoch is still `expectedEpoch` (0: no record). Undefined when it is
   * not (another was faster), and while the room may not be claimed. The new epoch is the larger of the old one + 1 and the
   * store's clock in milliseconds. `ttlMs`: how long the record lives at least.
   */
  claim(room: string, owner: string, expectedEpoch: number, ttlMs: number): Promise<Claim | undefined>
  /**
   * Asks who owns a room, and claims it with the same command if it is free: if its last owner has released it, if its record names `owner`,
   * or if there is no record and it has a `creator`. Undefined: there is no record. A record of a state with a version above `stateVersion`
   * is not claimed. `mayClaim`: called at the moment at which the command is sent, and again for each repetition; false: the room is not
   * claimed. A command that has waited for its connection could otherwise claim a room that a store without its data does not know.
   */
  open(room: string, opening: Opening, mayClaim: () => boolean): Promise<Claim | RoomOwner | undefined>
  /**
   * Says that `owner` had the room under `epoch`, in a store that has lost it: there is a record of it then, with nothing in it, until the
   * room is claimed over that epoch. Of several that say so the highest epoch stands, whatever the order. False: the room has a record that
   * was not lost, or another had it later.
   */
  recall(room: string, owner: string, epoch: number, ttlMs: number): Promise<boolean>
  /**
   * Keeps `note` about a turn of the owner under `epoch` that runs for long or did not end, for nodes that claim the room in the next `ttlMs`.
   * The same note is kept once. False: fenced. Unlike a commit it needs no version, since the thread that writes it does not commit.
   */
  noteStuck(room: string, epoch: number, note: Uint8Array, ttlMs: number): Promise<boolean>
  /** The turn of `note` has ended after all: removes the note. False: fenced. `ttlMs`: lifetime of the other notes. */
  removeNote(room: string, epoch: number, note: Uint8Array, ttlMs: number): Promise<boolean>
  /**
   * Appends one entry to the journal; version + 1. `notices` are added to those of the room. False: fenced, and nothing was written.
   */
  commit(
    room: string,
    fence: Fence,
    entry: Uint8Array,
    ttlMs: number,
    notices?: readonly Uint8Array[],
  ): Promise<boolean>
  /**
   * Replaces the snapshot and empties the journal, which it covers; version + 1. `stateVersion`: of the state in it, for those who ask who owns
   * the room; default 1. `notices` are added to those of the room. False: fenced.
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
   * Gives the room up: owner null, the record stays for its TTL. With `forget` it has ended: snapshot and journal go too, and of the record
   * the epoch stays for `ENDED_ROOM_MS`, or as ever where an earlier owner may still believe in it. False: fenced.
   */
  release(room: string, fence: Fence, options: Release): Promise<boolean>
  /**
   * Puts snapshot and journal aside, unchanged, for an operator to look at; the room is then one that has ended: no one owns or counts it,
   * and its epoch stays. The next claim finds a room without content. A later quarantine of the same room takes the place of an earlier one. The memory adapter, which no other
   * process could ask for what was put aside, drops it. False: fenced.
   */
  quarantine(room: string, fence: Fence, quarantine: Quarantine): Promise<boolean>
  /**
   * Says for how long the record lives, and the room is counted, from now on. `lasting`: it counts as one of its creator's lasting rooms.
   * False: fenced.
   */
  refresh(room: string, fence: Fence, ttlMs: number, lasting?: boolean): Promise<boolean>
  /**
   * Rooms of a project that are counted, whether or not they have an owner, at most `limit`: those that are counted for the shortest time
   * first, then by the bytes of their names; only those behind `after` when given. Owners that refresh move their rooms back.
   */
  counted(
    projectId: string,
    options: { readonly after?: CountedRoom; readonly limit: number },
  ): Promise<CountedRoom[]>
}

/** A room whose time has come. */
export interface Wakeup {
  readonly room: string
  /** What the owner that has set the time last has set it under. */
  readonly fence: Fence
}

/**
 * When rooms are to be opened that no node may be running then. Hints, in `WAKEUP_PARTS` parts: a room's record decides whether there is anything
 * to do.
 */
export interface Wakeups {
  /**
   * The room is to be woken at `at` (milliseconds since 1970, by the store's clock), and not at another time; undefined: at none. Nothing
   * changes when one with a later fence (epoch, then version) has said when: so with the fence of a `Wakeup`, nothing that an owner has said
   * since is lost.
   */
  set(room: string, fence: Fence, at: number | undefined): Promise<void>
  /**
   * Rooms of one part whose time has come, at most `limit`, the earliest first. Each is put off by `againMs`, so that it is taken again
   * unless its owner has said another time by then.
   */
  take(part: number, options: { limit: number; againMs: number }): Promise<Wakeup[]>
}

/** A room whose notices one node delivers. */
export interface TakenNotices {
  readonly room: string
  /** Fence of the last write with notices that an owner has announced. */
  readonly fence: Fence
  /** Number of announcements so far. */
  readonly announced: number
  /** Attempts to deliver the oldest notice that have failed. */
  readonly failures: number
  /** End of the lease by the store's clock, milliseconds since 1970. It also proves which node has the lease. */
  readonly until: number
}

/**
 * Notices that are not delivered yet: a list for each room, which `RoomRecords` writes, and an index of the rooms with notices, in `NOTICE_PARTS`
 * parts. A room stays in the index until a node has delivered all its notices. Notices do not expire.
 */
export interface Notices {
  /**
   * Adds the room to the index, before its owner writes notices under `fence`. A room that is in the index already keeps its lease and the time of
   * its next delivery.
   */
  announce(room: string, fence: Fence): Promise<void>
  /** Gives the caller a lease of `leaseMs` on each room of one part whose next delivery is due, at most `limit`, the earliest first. */
  take(part: number, options: { limit: number; leaseMs: number }): Promise<TakenNotices[]>
  /**
   * Makes the next delivery due in `delayMs`, after so many failures. Until then it is also the caller's lease. Returns the room with the new lease.
   * Undefined: the lease has expired, and another node has taken the room.
   */
  putOff(taken: TakenNotices, delayMs: number, failures: number): Promise<TakenNotices | undefined>
  /** Removes the room from the index. False: the lease has expired, or the owner has announced another write since. */
  done(taken: TakenNotices): Promise<boolean>
  /** Returns the oldest notice of a room. Undefined: it has none. */
  oldest(room: string): Promise<Uint8Array | undefined>
  /** Number of notices of a room. */
  count(room: string): Promise<number>
  /** Removes a notice of a room. */
  remove(room: string, notice: Uint8Array): Promise<void>
  /** Rooms in one part of the index, at most `limit`, those whose delivery is due first; without the first `skip`. */
  rooms(part: number, limit: number, skip?: number): Promise<string[]>
  /** Deletes all notices of a room that will not get any more, and removes it from the index. */
  drop(room: string): Promise<void>
}

/** One room in a list, as the store has it. Of two writes for one room, the one with the higher (epoch, version) stands. */
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
  /** The oldest change first. Of several changes of one room, only the last. */
  readonly rooms: readonly ListedRoom[]
  /**
   * True: the reader's copy is void, and `rooms` begins it anew. This is the first read, the store has lost the list, or the cursor is too
   * old.
   */
  readonly restarted: boolean
  /** True: there are more changes now. */
  readonly more: boolean
}

/** Lists of rooms with their rows. Readers keep a copy of a list, and poll for its changes. `list` is `<project_id>/<room_type>`. */
export interface Listings {
  /**
   * Writes a room's row, which is listed for `ttlMs` (Infinity: for ever) unless it is written again. Without a value, removes the row; its
   * (epoch, version) stays for `REMOVED_ROW_MS`. `by`: time of the store, in milliseconds since 1970, after which it writes nothing. False:
   * nothing was written, since the list has a later (epoch, version) of the room, or `by` has passed.
   */
  write(list: string, room: ListedRoom, ttlMs: number, by?: number): Promise<boolean>
  /** Returns at most `limit` changes since `cursor`; '' is the beginning. A row that has expired is a change without a value. */
  changes(list: string, cursor: string, limit: number): Promise<ListingChanges>
}

/** Messages between processes: at most once, no history, binary safe. */
export interface Bus {
  /** Resolves with how many subscribers the store handed it to. */
  publish(channel: string, message: Uint8Array): Promise<number>
  /**
   * Hands a message over at once and asks for no answer, so that it costs neither side more than its bytes; those of one channel keep
   * their order. Absent where `publish` costs no more. False: that cannot be done at this moment, and `publish` can wait. Throws
   * `StoreUnavailable` when so much waits already that the store seems to take nothing. `taken` is called when the message has left this
   * process, or with the reason why it has not.
   */
  send?(channel: string, message: Uint8Array, taken?: (error?: Error | null) => void): boolean
  /**
   * Calls `onMessage` for every message from now on; resolves once the subscription stands. A message may be a view of what a socket has
   * read, and is its subscriber's alone. `onGap` is called whenever messages may have been missed (the connection was lost and is back). The
   * returned function ends it.
   */
  subscribe(
    channel: string,
    onMessage: (message: Uint8Array) => void,
    onGap?: () => void,
  ): Promise<() => Promise<void>>
  /**
   * How many subscribers each of `channels` has at this moment, as `publish` counts them, in the order asked. Undefined where the
   * store cannot tell (Redis Cluster without sharded pub/sub).
   */
  listeners(channels: readonly string[]): Promise<number[] | undefined>
}

/** Locks between processes. For efficiency only: a holder that was paused may believe in a lock that has run out. The fence decides. */
export interface Locks {
  /**
   * Runs `work` while no one else holds the lock `name`, and gives its outcome; waits up to `waitMs` for the lock. The lock runs out
   * after `ttlMs`, whether or not `work` has ended. Undefined: another held it all that time, and `work` did not run.
   */
  withLock<T>(
    name: string,
    options: { ttlMs: number; waitMs: number },
    work: () => Promise<T>,
  ): Promise<T | undefined>
}

/**
 * What both adapters hold to: what they refuse before they touch anything (mistakes of the caller, not states of the store), and how long and
 * how many of something they keep.
 */

const keyOf = (write: Write): string =>
  'put' in write ? write.put : 'remove' in write ? write.remove : write.index

/**
 * The part of a key which decides its slot in Redis Cluster: what stands between the first `{` and the next `}`, or the whole key.
 * https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#hash-tags
 */
export function hashTag(key: string): string {
  const open = key.indexOf('{')
  const close = key.indexOf('}', open + 1)
  return open >= 0 && close > open + 1 ? key.slice(open + 1, close) : key
}

/** Throws unless every lifetime in `writes` is usable and all keys lie in one slot, so that one script may touch them together. */
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

/** Throws unless a lease can be taken: it has a holder and a lifetime, and one script may touch its keys together. */
export function requireLease({ key, listed, holder, ttlMs }: LeaseRenewal): void {
  requireTtl(ttlMs)
  if (holder === '') throw new RangeError(`the lease ${key} has no holder: it is the empty string`)
  if (listed && hashTag(key) !== hashTag(listed.index))
    throw new RangeError(
      `the lease ${key} and its index ${listed.index} must share a hash tag such as {nodes}`,
    )
}

/** Throws unless `ttlMs` is a whole, positive number of milliseconds. */
export function requireTtl(ttlMs: number): void {
  if (Number.isSafeInteger(ttlMs) && ttlMs > 0) return
  throw new RangeError(`ttlMs is ${ttlMs}: it must be a whole number of milliseconds above 0`)
}

/** Into so many parts the rooms that are to be woken are divided, each of which is a slot of its own in Redis Cluster. */
export const WAKEUP_PARTS = 4

/** The part of the rooms to be woken that a room belongs to. */
export const wakeupPart = (room: string): number => crc32(room) % WAKEUP_PARTS

/** Number of parts of the index of rooms with notices. In Redis Cluster, each part is a slot. */
export const NOTICE_PARTS = 4

/** The part of the index that a room with notices belongs to. */
export const noticePart = (room: string): number => crc32(room) % NOTICE_PARTS

/** Throws unless a room can live for `ttlMs`: as above, or for ever (Infinity). */
export function requireRoomTtl(ttlMs: number): void {
  if (ttlMs !== Number.POSITIVE_INFINITY) requireTtl(ttlMs)
}

/** Throws unless a page of `limit` members can be asked for. */
export function requireLimit(limit: number): void {
  if (Number.isSafeInteger(limit) && limit > 0) return
  throw new RangeError(`limit is ${limit}: it must be a whole number above 0`)
}

/** Throws on an owner without a name, which would read as "released". */
export function requireOwner(owner: string): void {
  if (owner === '') throw new RangeError('owner is empty: it must be the id of a node')
}

/** Throws unless a lock can be waited for and held for these times. */
export function requireLockTimes({ ttlMs, waitMs }: { ttlMs: number; waitMs: number }): void {
  requireTtl(ttlMs)
  if (Number.isFinite(waitMs) && waitMs >= 0) return
  throw new RangeError(`waitMs is ${waitMs}: it must be a number of milliseconds, 0 or more`)
}

/** Maximum number of notes of stuck turns of a room: more than it takes for a hook to rest. */
export const STUCK_NOTES_KEPT = 8

/**
 * How much longer a room's epoch is kept than the rest of its record: two hours.
 *
 * Epochs start at the store's clock in milliseconds, so a room whose record is gone altogether still gets a larger epoch than
 * before, unless that clock was set back meanwhile. Two hours cover what happens to clocks in practice (a correction by NTP, a fail-over to a
 * replica that is behind, a time zone mistake of one hour) and every client that may still hold frames of the old epoch (a session
 * resumes within minutes). It costs about 150 bytes of the store for each room whose record ended by itself in the last two hours; of
 * one that its owner ended, everything goes within `ENDED_ROOM_MS`.
 */
export const EPOCH_OUTLIVES_MS = 2 * 60 * 60 * 1000

/**
 * For how long a room that ended leaves a record behind: two minutes. It holds the epoch alone, for the next claim to exceed, and for what
 * is late by no more than a connection lives. After that a fenced write finds no record, which refuses it as well, and a new claim starts at
 * the store's clock, which is further by then.
 *
 * Only `recall` could do harm later: an owner that was replaced while it was paused would find no record, take it for lost, and write an
 * ended room again. Such an owner exists only where a room was claimed from one that had not released it. The record remembers that
 * (`contested`), and of such a room record and epoch stay as long as those of a room that no one ended. So a room that was made, played
 * and ended in good order costs a few minutes, however many are made: docs/decisions has the whole argument.
 */
export const ENDED_ROOM_MS = 2 * 60 * 1000

/** For how long a removed row leaves its (epoch, version) in its list. A read that took longer than this starts anew. */
export const REMOVED_ROW_MS = 2 * 60 * 1000
