import { type ClientRecord, type Durability, type History, playerIn, type View } from './history.ts'
import { OpTrack } from './op-track.ts'
import type { Ownership, Ownerships } from './ownership.ts'
import type { Violation, ViolationName } from './violation.ts'

/** Reliable messages: every acked op is applied exactly once and in order, refused ones never, the others at most once. */
export function checkOps(history: History, ownerships: Ownerships): Violation[] {
  const durability = new Map(history.rooms.map(({ room, durability }) => [room, durability]))
  const seats = new Map<string, Seat>()
  for (const record of history.clients) {
    if (!('member' in record)) continue
    const key = `${record.room} ${record.member}`
    if (record.kind === 'joined')
      seats.set(key, new Seat(record, durability.get(record.room) ?? 'none', ownerships))
    seats.get(key)?.take(record)
  }
  const owners = new Map(history.end.owners.map((owner) => [owner.room, owner]))
  for (const seat of seats.values())
    seat.end(history.end.at, playerIn(owners.get(seat.room)?.state, seat.member))
  return [...seats.values()].flatMap(({ found }) => found)
}

/** One member's ops, from joined to the end. */
class Seat {
  readonly found: Violation[] = []
  readonly room: string
  readonly member: string
  readonly #client: string
  readonly #joined_at: number
  readonly #durability: Durability
  readonly #ownerships: Ownerships
  readonly #losses: readonly Ownership[]
  readonly #track = new OpTrack()
  /** Refs that an owner's crash took back, where the room type allows it. */
  readonly #forgotten = new Set<number>()
  #seen_at: number
  #lost = false

  constructor(
    joined: Extract<ClientRecord, { kind: 'joined' }>,
    durability: Durability,
    ownerships: Ownerships,
  ) {
    this.room = joined.room
    this.member = joined.member
    this.#client = joined.client
    this.#joined_at = joined.at
    this.#seen_at = joined.at
    this.#durability = durability
    this.#ownerships = ownerships
    this.#losses = ownerships.losses(joined.room)
  }

  take(record: ClientRecord): void {
    // The first thing that is wrong makes the rest hard to tell.
    if (this.found.length > 0 || this.#wiped(record.at)) return
    switch (record.kind) {
      case 'sent':
        this.#track.send(record)
        break
      case 'ack':
        if (!this.#track.find(record.ref))
          this.#report('ack_unsent', record.at, `ref ${record.ref} was acked, but never sent`)
        this.#track.ack(record.ref)
        break
      case 'refused':
        this.#refused(record)
        break
      case 'frame':
      case 'view':
        if (record.view) this.#see(record.view, record.at)
        break
      case 'lost':
        this.#lost = true
        break
    }
  }

  /** `view`: what the owner has of this member in the end. */
  end(at: number, view: View | undefined): void {
    if (this.found.length > 0 || this.#wiped(at)) return
    if (view) this.#see(view, at)
    else if (!this.#mayBeGone(at)) {
      this.#report('acked_lost', at, 'the room knows nothing of the member any more')
      return
    }
    if (this.found.length > 0) return
    for (const op of this.#track.sent) {
      const settled = op.acked || op.refused
      if (!settled && !this.#lost) {
        this.#report('unsettled', op.at, `ref ${op.ref} was neither acked nor refused`)
        return
      }
      if (!op.acked || op.refused || op.refuse || !view) continue
      if (this.#track.isApplied(op) || this.#forgotten.has(op.ref)) continue
      this.#report('acked_lost', op.at, `ref ${op.ref} (${op.op}) was acked and is not applied`)
      return
    }
  }

  #refused({ ref, code, at }: Extract<ClientRecord, { kind: 'refused' }>): void {
    const op = this.#track.find(ref)
    if (!op) return
    op.refused = true
    if (this.#track.isApplied(op))
      this.#report('refused_applied', at, `ref ${ref} was refused (${code}), and is applied`)
  }

  #see(view: View, at: number): void {
    const finding = this.#track.see(view)
    if (finding.kind === 'fault') this.#report(finding.name, at, finding.message)
    if (finding.kind === 'rollback') {
      for (const { ref } of finding.lost) this.#forgotten.add(ref)
      if (!this.#mayRollBack(at))
        this.#report(
          finding.lost.some(({ acked }) => acked) ? 'acked_lost' : 'rollback',
          at,
          `refs ${finding.lost.map(({ ref }) => ref).join(', ')} were applied, and are not any more`,
        )
    }
    this.#seen_at = at
  }

  #mayRollBack(at: number): boolean {
    if (this.#durability === 'journal') return false
    const between = { from: this.#seen_at - IN_FLIGHT_MS, to: at }
    return this.#ownerships.mayForget(this.room, between, this.#durability === 'none')
  }

  /**
   * Whether the store lost its data while the room's owner was away: whoever had the room before may have written it anew, as it was then.
   * What of this member's ops is in it is chance from here on.
   */
  #wiped(at: number): boolean {
    return this.#losses.some(({ claim }) => claim.ended >= this.#joined_at && claim.began <= at)
  }

  /** Whether the room may have forgotten the member altogether: it was lost with its owner. */
  #mayBeGone(at: number): boolean {
    if (this.#durability === 'journal') return false
    const between = { from: this.#joined_at - IN_FLIGHT_MS, to: at }
    return this.#ownerships.mayForget(this.room, between, this.#durability === 'none')
  }

  #report(name: ViolationName, at: number, message: string): void {
    this.found.push({ name, at, room: this.room, member: this.member, client: this.#client, message })
  }
}

/** A view may reach its member this long after the room had another owner. */
const IN_FLIGHT_MS = 10_000
