import type { Clock } from '../../clock.ts'
import {
  type Lease,
  type LeaseRenewal,
  type Records,
  requireLease,
  requireLimit,
  requireWrites,
  type StoredRecord,
  type Write,
} from '../port.ts'

/** A record. If it is a lease, with its holder. */
interface Stored extends StoredRecord {
  readonly lease?: Lease
}

/** `Records` in the memory of this process. Every call is complete before it returns its promise, so calls are atomic. */
export class MemoryRecords implements Records {
  readonly #clock: Clock
  readonly #records: ExpiringMap<Stored>
  readonly #indexes: ExpiringMap<OrderedSet>
  readonly #requireOpen: () => void

  constructor(clock: Clock, requireOpen: () => void) {
    this.#clock = clock
    this.#records = new ExpiringMap(clock)
    this.#indexes = new ExpiringMap(clock)
    this.#requireOpen = requireOpen
  }

  async read(keys: readonly string[]): Promise<(StoredRecord | undefined)[]> {
    this.#requireOpen()
    return keys.map((key) => {
      const record = this.#records.get(key)
      return record && { value: record.value.slice(), version: record.version }
    })
  }

  async write(writes: readonly Write[]): Promise<boolean> {
    this.#requireOpen()
    requireWrites(writes)
    if (!writes.every((write) => this.#holds(write))) return false
    for (const write of writes) this.#apply(write)
    return true
  }

  async renewLease(renewal: LeaseRenewal): Promise<Lease> {
    this.#requireOpen()
    requireLease(renewal)
    const { key, holder, value, ttlMs, listed } = renewal
    const stored = this.#records.get(key)
    if (stored?.lease && stored.lease.holder !== holder) return stored.lease
    const lease = stored?.lease ?? { holder, since: Math.floor(this.#clock.now()) }
    const version = (stored?.version ?? 0) + 1
    this.#records.set(key, { value: new Uint8Array(value), version, lease }, ttlMs)
    if (listed) this.#add({ index: listed.index, add: listed.member })
    return lease
  }

  async page(index: string, options: { before?: string; limit: number }): Promise<string[]> {
    this.#requireOpen()
    requireLimit(options.limit)
    return this.#indexes.get(index)?.page(options.before, options.limit) ?? []
  }

  #holds(write: Write): boolean {
    if ('index' in write) return !('add' in write) || this.#hasRoom(write)
    if (write.ifVersion === undefined) return true
    const stored = this.#records.get('put' in write ? write.put : write.remove)
    return (stored?.version ?? 0) === write.ifVersion
  }

  #apply(write: Write): void {
    if ('put' in write) {
      const version = (this.#records.get(write.put)?.version ?? 0) + 1
      this.#records.set(write.put, { value: new Uint8Array(write.value), version }, write.ttlMs)
    } else if ('remove' in write) this.#records.delete(write.remove)
    else if ('add' in write) this.#add(write)
    else this.#drop(write.index, write.drop)
  }

  #hasRoom({ index, add, ifFewerThan = Number.POSITIVE_INFINITY }: Extract<Write, { add: string }>): boolean {
    const members = this.#indexes.get(index)
    return members === undefined ? ifFewerThan > 0 : members.size < ifFewerThan || members.has(add)
  }

  #add({ index, add, ttlMs }: Extract<Write, { add: string }>): void {
    const known = this.#indexes.get(index)
    const members = known ?? new OrderedSet()
    members.add(add)
    if (!known || ttlMs !== undefined) this.#indexes.set(index, members, ttlMs)
  }

  #drop(name: string, member: string): void {
    const index = this.#indexes.get(name)
    index?.drop(member)
    if (index?.size === 0) this.#indexes.delete(name)
  }
}

/** Rank of a UTF-16 code unit in the order of UTF-8: surrogates, which encode characters above U+FFFF, come last. */
const rank = (unit: number): number => (unit < 0xd800 ? unit : unit < 0xe000 ? unit + 0x2000 : unit - 0x800)

/** Returns true if `one` precedes `other` in the order of their UTF-8 bytes. */
function isBefore(one: string, other: string): boolean {
  const length = Math.min(one.length, other.length)
  for (let i = 0; i < length; i++) {
    const [a, b] = [one.charCodeAt(i), other.charCodeAt(i)]
    if (a !== b) return rank(a) < rank(b)
  }
  return one.length < other.length
}

/** Strings in the order of their UTF-8 bytes, as Redis orders members of a sorted set with equal scores. */
class OrderedSet {
  readonly #members: string[] = []

  get size(): number {
    return this.#members.length
  }

  add(text: string): void {
    const at = this.#position(text)
    if (this.#members[at] !== text) this.#members.splice(at, 0, text)
  }

  drop(text: string): void {
    const at = this.#position(text)
    if (this.#members[at] === text) this.#members.splice(at, 1)
  }

  has(text: string): boolean {
    return this.#members[this.#position(text)] === text
  }

  /** Returns at most `limit` members smaller than `before` (all if undefined), largest first. */
  page(before: string | undefined, limit: number): string[] {
    const end = before === undefined ? this.#members.length : this.#position(before)
    return this.#members.slice(Math.max(0, end - limit), end).reverse()
  }

  /** Returns the index of the first member that is not smaller than `text`. */
  #position(text: string): number {
    let low = 0
    for (let high = this.#members.length; low < high; ) {
      const middle = (low + high) >>> 1
      if (isBefore(this.#members[middle]!, text)) low = middle + 1
      else high = middle
    }
    return low
  }
}

interface Entry<V> {
  readonly value: V
  /** Monotonic milliseconds. Infinity: no expiry. */
  readonly expiresAt: number
}

/** Number of entries that a write checks for expiry. So unread entries are removed at a bounded cost and without a timer. */
const SWEEP = 8

/** A map with expiring entries. An expired entry is never returned, and writes remove expired entries. */
export class ExpiringMap<V> {
  readonly #clock: Clock
  readonly #entries = new Map<string, Entry<V>>()
  #hand = this.#entries.entries()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  get(key: string): V | undefined {
    const entry = this.#entries.get(key)
    if (!entry) return undefined
    if (entry.expiresAt > this.#clock.monotonic()) return entry.value
    this.#entries.delete(key)
    return undefined
  }

  /** Remaining lifetime of an entry in milliseconds. 0: there is none. */
  leftMs(key: string): number {
    return Math.max(0, (this.#entries.get(key)?.expiresAt ?? 0) - this.#clock.monotonic())
  }

  /** All entries that have not expired. */
  *entries(): Iterable<readonly [string, V]> {
    const now = this.#clock.monotonic()
    for (const [key, entry] of this.#entries) if (entry.expiresAt > now) yield [key, entry.value]
  }

  /** Stores `value` for `ttlMs` from now. Undefined: without expiry. */
  set(key: string, value: V, ttlMs: number | undefined): void {
    const expiresAt = ttlMs === undefined ? Number.POSITIVE_INFINITY : this.#clock.monotonic() + ttlMs
    this.#entries.set(key, { value, expiresAt })
    this.#sweepSome()
  }

  delete(key: string): void {
    this.#entries.delete(key)
  }

  /** Number of entries, including expired ones that were not removed yet. */
  get size(): number {
    return this.#entries.size
  }

  /** Removes all expired entries. Returns the number of the others. */
  sweep(): number {
    const now = this.#clock.monotonic()
    for (const [key, entry] of this.#entries) if (entry.expiresAt <= now) this.#entries.delete(key)
    return this.#entries.size
  }

  /** Continues where the last sweep stopped, and so visits every entry once in `size / SWEEP` writes. */
  #sweepSome(): void {
    const now = this.#clock.monotonic()
    for (let looked = 0; looked < SWEEP; looked++) {
      const next = this.#hand.next()
      if (next.done) {
        this.#hand = this.#entries.entries()
        return
      }
      const [key, entry] = next.value
      if (entry.expiresAt <= now) this.#entries.delete(key)
    }
  }
}
