import type { Content, History, StoreRecord } from './history.ts'
import type { Ownerships } from './ownership.ts'

interface AppliedRef {
  readonly ref: number
  /** From when on that much of the member's ops was certain to be committed. */
  readonly from: number
}

/** From when on it was certain that something stands in the store: what shows it may not be older. */
export class CommitTimes {
  readonly #updates = new Map<string, number>()
  readonly #members = new Map<string, AppliedRef[]>()

  constructor({ store, rooms }: History, ownerships: Ownerships) {
    for (const { room } of rooms) {
      const writes = store.filter(
        ({ kind, room: of, ok }) => of === room && ok !== false && (kind === 'commit' || kind === 'snapshot'),
      )
      for (const write of writes)
        if (write.content) this.#add(room, write.content, certainFrom(write, ownerships))
    }
    for (const applied of this.#members.values()) {
      applied.sort((a, b) => b.ref - a.ref)
      // A later op is only committed with all that came before it.
      let from = Number.POSITIVE_INFINITY
      applied.forEach((entry, i) => {
        from = Math.min(from, entry.from)
        applied[i] = { ref: entry.ref, from }
      })
    }
  }

  /** Of an update or a whole state; undefined: it was never written. */
  ofUpdate(room: string, { seq, checksum }: { seq: number; checksum: number }): number | undefined {
    return this.#updates.get(`${room} ${seq} ${checksum}`)
  }

  /** Of an op of a member; undefined: it was never written. */
  ofOp(room: string, member: string, ref: number): number | undefined {
    // Later refs come first.
    return this.#members.get(`${room} ${member}`)?.findLast((entry) => entry.ref >= ref)?.from
  }

  #add(room: string, { seq, checksum, applied }: Content, from: number): void {
    const update = `${room} ${seq} ${checksum}`
    this.#updates.set(update, Math.min(from, this.#updates.get(update) ?? Number.POSITIVE_INFINITY))
    for (const [member, ref] of Object.entries(applied)) {
      const key = `${room} ${member}`
      const ofMember = this.#members.get(key)
      if (ofMember) ofMember.push({ ref, from })
      else this.#members.set(key, [{ ref, from }])
    }
  }
}

/** When its writer had the answer, or looked what had become of it; or when another owner found it, should that be earlier. */
function certainFrom({ room, epoch, version, ended }: StoreRecord, ownerships: Ownerships): number {
  const found = ownerships
    .of(room)
    .filter(({ claim }) => claim.epoch > epoch && claim.version > version)
    .map(({ claim }) => claim.ended)
  return Math.min(ended, ...found)
}
