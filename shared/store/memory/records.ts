import type { Clock } from '../../clock.ts'
import type { Lease, LeaseRenewal, Records, StoredRecord, Write } from '../port.ts'
import { requireLease, requireLimit, requireWrites } from '../rules.ts'
import { ExpiringMap } from './expiring-map.ts'

/** A record, and who holds it where it is a lease. */
interface Stored extends StoredRecord {
  readonly lease?: Lease
}

/** `Records` in this process' memory. Every call does its work before it returns its promise, so calls are atomic. */
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
    const { key, holder, value, ttlMs, index, member } = renewal
    const stored = this.#records.get(key)
    if (stored?.lease && stored.lease.holder !== holder) return stored.lease
    const lease = stored?.lease ?? { holder, since: Math.floor(this.#clock.now()) }
    const version = (stored?.version ?? 0) + 1
    this.#records.set(key, { value: new Uint8Array(value), version, lease }, ttlMs)
    this.#add({ index, add: member })
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

const bytes = (text: string): Buffer => Buffer.from(text, 'utf8')

interface Member {
  readonly text: string
  readonly bytes: Buffer
}

/** Strings in the order of their UTF-8 bytes, as Redis orders the members of a sorted set with equal scores. */
export class OrderedSet {
  readonly #members: Member[] = []

  get size(): number {
    return this.#members.length
  }

  add(text: string): void {
    const key = bytes(text)
    const at = this.#position(key)
    if (this.#members[at]?.text !== text) this.#members.splice(at, 0, { text, bytes: key })
  }

  drop(text: string): void {
    const at = this.#position(bytes(text))
    if (this.#members[at]?.text === text) this.#members.splice(at, 1)
  }

  has(text: string): boolean {
    return this.#members[this.#position(bytes(text))]?.text === text
  }

  /** At most `limit` members smaller than `before` (all when undefined), largest first. */
  page(before: string | undefined, limit: number): string[] {
    const end = before === undefined ? this.#members.length : this.#position(bytes(before))
    return this.#members
      .slice(Math.max(0, end - limit), end)
      .map((member) => member.text)
      .reverse()
  }

  /** Index of the first member that is not smaller than `key`. */
  #position(key: Buffer): number {
    let low = 0
    let high = this.#members.length
    while (low < high) {
      const middle = (low + high) >>> 1
      if (Buffer.compare(this.#members[middle]!.bytes, key) < 0) low = middle + 1
      else high = middle
    }
    return low
  }
}
