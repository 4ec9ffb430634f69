import { REFUSALS } from '../op-chain.ts'
import { CLOCK_TOLERANCE_MS } from './commit-rules.ts'
import type { CommitTimes } from './commit-times.ts'
import type { Excuses } from './excuses.ts'
import { type ClientRecord, type History, playerIn, type Stand, type View } from './history.ts'
import { isSettled, type Op, OpTrack } from './op-track.ts'
import type { Violation, ViolationName } from './violation.ts'

/** Reliable messages: every acked op is applied exactly once and in order, refused ones never, the others at most once. */
export function checkOps(history: History, excuses: Excuses, times: CommitTimes): Violation[] {
  const durability = new Map(history.rooms.map(({ room, durability }) => [room, durability]))
  const seats = new Map<string, Seat>()
  for (const record of history.clients) {
    if (!('member' in record)) continue
    const key = `${record.room} ${record.member}`
    if (record.kind === 'joined')
      seats.set(key, new Seat(record, durability.get(record.room) === 'journal' ? times : undefined, excuses))
    seats.get(key)?.take(record)
  }
  const owners = new Map(history.end.owners.map((owner) => [owner.room, owner]))
  for (const seat of seats.values()) seat.end(history.end.at, owners.get(seat.room))
  return [...seats.values()].flatMap(({ found }) => found)
}

/** One member's ops, from joined to the end. */
class Seat {
  readonly found: Violation[] = []
  readonly room: string
  readonly member: string
  readonly #client: string
  readonly joinedAt: number
  /** Of a journal room, which acks what is committed only. */
  readonly #times: CommitTimes | undefined
  readonly #excuses: Excuses
  readonly #track = new OpTrack()
  /** Refs that an owner's crash took back, where the room type allows it. */
  readonly #forgotten = new Set<number>()
  /** Under which the member's ops were last seen; 0: not known. */
  #epoch = 0
  #lost = false

  constructor(
    joined: Extract<ClientRecord, { kind: 'joined' }>,
    times: CommitTimes | undefined,
    excuses: Excuses,
  ) {
    this.room = joined.room
    this.member = joined.member
    this.#client = joined.client
    this.joinedAt = joined.at
    this.#times = times
    this.#excuses = excuses
  }

  take(record: ClientRecord): void {
    // The first thing that is wrong makes the rest hard to tell.
    if (this.found.length > 0) return
    switch (record.kind) {
      case 'sent':
        this.#track.send(record)
        break
      case 'ack':
        this.#acked(record)
        break
      case 'refused':
        this.#refused(record)
        break
      case 'frame':
      case 'view':
        if (record.view) this.#see(record.view, record.at, record.kind === 'frame' ? record.epoch : undefined)
        break
      case 'lost':
        this.#lost = true
        break
    }
  }

  /** `stand`: what the owner has in the end. */
  end(at: number, stand: Stand | undefined): void {
    if (this.found.length > 0) return
    const { room, member, joinedAt } = this
    const view = playerIn(stand?.state, member)
    if (view) this.#see(view, at, stand?.epoch)
    else if (!this.#excuses.forgotten({ room, member, joined_at: joinedAt, epoch: this.#epoch }, at)) {
      this.#report('acked_lost', at, 'the room knows nothing of the member any more')
      return
    }
    if (this.found.length > 0) return
    for (const op of this.#track.sent) {
      if (!isSettled(op) && !this.#lost) {
        this.#report('unsettled', op.at, `ref ${op.ref} was neither acked nor refused`)
        return
      }
      if (!op.acked || !view) continue
      if (this.#track.isApplied(op) || this.#forgotten.has(op.ref)) continue
      this.#report('acked_lost', op.at, `ref ${op.ref} (${op.op}) was acked and is not applied`)
      return
    }
  }

  #acked({ ref, at }: Extract<ClientRecord, { kind: 'ack' }>): void {
    if (!this.#track.find(ref)) this.#report('ack_unsent', at, `ref ${ref} was acked, but never sent`)
    for (const op of this.#track.ack(ref)) {
      if (op.refuse) {
        this.#report('refused_acked', at, `ref ${op.ref} was acked with ref ${ref}; the room must refuse it`)
        return
      }
      if (!this.#times) continue
      const from = this.#times.ofOp(this.room, this.member, op.ref)
      if (from !== undefined && from <= at + CLOCK_TOLERANCE_MS) continue
      const when =
        from === undefined
          ? 'is in no commit'
          : `came ${Math.ceil(from - at)} ms before its commit was certain`
      this.#report('acked_early', at, `the ack of ref ${op.ref} ${when}`)
      return
    }
  }

  #refused({ ref, code, at }: Extract<ClientRecord, { kind: 'refused' }>): void {
    const op = this.#track.find(ref)
    if (!op) return
    if (op.acked)
      this.#report('refused_acked', at, `ref ${ref} was refused (${code}) after it had been acked`)
    else if (code === OUTCOME_UNKNOWN) op.unknown = true
    else {
      op.refused = true
      if (this.#track.isApplied(op))
        this.#report('refused_applied', at, `ref ${ref} was refused (${code}), and is applied`)
      else if (op.refuse !== code && REFUSALS.some((refusal) => refusal === code))
        this.#report(
          'refused_without_cause',
          at,
          `ref ${ref} was refused with ${code}; the room must ${op.refuse ? `refuse it with ${op.refuse}` : 'apply it'}`,
        )
    }
  }

  /** `epoch`: undefined where a client library tells none. */
  #see(view: View, at: number, epoch: number | undefined): void {
    const epochs = { known: this.#epoch, epoch: epoch ?? Number.POSITIVE_INFINITY }
    this.#epoch = epoch ?? 0
    const finding = this.#track.see(view)
    if (finding.kind === 'fault') this.#report(finding.name, at, finding.message)
    if (finding.kind !== 'rollback') return
    const { lost, returned } = finding
    for (const { ref } of lost) this.#forgotten.add(ref)
    const excuse = this.#excuses.ops(this, [...lost, ...returned], epochs, at)
    // Only where the store has lost everything does a room go on from what an earlier owner remembers.
    if (excuse === 'store_lost' || (excuse && returned.length === 0)) return
    this.#report(
      !excuse && lost.some(({ acked }) => acked) ? 'acked_lost' : 'rollback',
      at,
      [
        lost.length > 0 && `refs ${refsOf(lost)} were applied, and are not any more`,
        returned.length > 0 && `refs ${refsOf(returned)} were not applied any more, and are again`,
      ]
        .filter(Boolean)
        .join('; '),
    )
  }

  #report(name: ViolationName, at: number, message: string): void {
    this.found.push({ name, at, room: this.room, member: this.member, client: this.#client, message })
  }
}

const refsOf = (ops: readonly Op[]): string => ops.map(({ ref }) => ref).join(', ')

/** The server no longer knows what became of an op: it may be applied, at most once. */
const OUTCOME_UNKNOWN = 'outcome_unknown'
