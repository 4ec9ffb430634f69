import { crc32 } from 'node:zlib'
import type { LeaseRenewal, Write } from './port.ts'

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
