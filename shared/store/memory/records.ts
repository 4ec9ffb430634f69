import type { Clock } from '../../clock.ts'
import { requireLease, requireLimit, requireWrites } from '../checks.ts'
import type { Lease, LeaseRenewal, Records, StoredRecord, Write } from '../port.ts'
import { ExpiringMap } from './expiring-map.ts'
import { OrderedSet } from './ordered-set.ts'

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
