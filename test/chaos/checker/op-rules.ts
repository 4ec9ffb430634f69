import { chainAfter, REFUSALS, type Refusal, type View } from '../room-logic.ts'
import type { Excuses } from './excuses.ts'
import {
  type ClientRecord,
  type History,
  playerIn,
  type Stand,
  type Violation,
  type ViolationName,
} from './history.ts'
import { CLOCK_TOLERANCE_MS, type CommitTimes } from './store-rules.ts'

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
  /** The last epoch in which the room went on from what an earlier owner remembered. That owner may also apply ops that it had received then. */
  #rememberedEpoch: number | undefined
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
    if (lost.length === 0 && epoch !== undefined && epoch === this.#rememberedEpoch) return
    const excuse = this.#excuses.ops(this, [...lost, ...returned], epochs, at)
    if (excuse === 'store_lost') this.#rememberedEpoch = epoch
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

/** One op of a member, as its client sent it. */
interface Op {
  readonly ref: number
  readonly op: string
  /** When it was sent first. */
  readonly at: number
  /** How the room must refuse it; null: it must apply it. */
  readonly refuse: Refusal | null
  acked: boolean
  refused: boolean
  /** The server could not tell what had become of it. */
  unknown: boolean
}

/** Whether its client knows what became of it. */
const isSettled = ({ acked, refused, unknown }: Op): boolean => acked || refused || unknown

/** What a view of the room says of a member's ops. */
export type Finding =
  | { readonly kind: 'fits' }
  /** Some of the ops known to be applied are not any more; others that had been taken back, and that no one sends again, are once more. */
  | { readonly kind: 'rollback'; readonly lost: readonly Op[]; readonly returned: readonly Op[] }
  | { readonly kind: 'fault'; readonly name: ViolationName; readonly message: string }

const FITS: Finding = { kind: 'fits' }

/** What one owner has applied, in order; behind each op the chain. */
interface Line {
  readonly ops: readonly Op[]
  readonly chains: readonly number[]
}

/** No search tries more sequences than this. */
const MOST_TRIES = 50_000
/** A rollback is looked for so many ops back, and a repeated op so many. */
const LOOK_BACK = 400

/**
 * One member's ops against what the room's state says of them: finds out, from the count and the hash chain alone, which ops are applied,
 * and names what went wrong when no right sequence explains them.
 */
class OpTrack {
  readonly #sent = new Map<number, Op>()
  #applied: Line = { ops: [], chains: [0] }
  /** What earlier owners had applied when another went on from less. They may still remember it. */
  readonly #former: Line[] = []
  /** Acked and rolled back: no one sends them again. */
  readonly #gone = new Set<Op>()

  get sent(): Iterable<Op> {
    return this.#sent.values()
  }

  find(ref: number): Op | undefined {
    return this.#sent.get(ref)
  }

  isApplied(op: Op): boolean {
    return this.#applied.ops.includes(op)
  }

  send({ ref, op, refuse, at }: Pick<Op, 'ref' | 'op' | 'refuse' | 'at'>): void {
    if (!this.#sent.has(ref))
      this.#sent.set(ref, { ref, op, refuse, at, acked: false, refused: false, unknown: false })
  }

  /** Everything up to `ref` is settled: gives the ops of which this was not known, all of them acked by it. */
  ack(ref: number): Op[] {
    const acked = [...this.#sent.values()].filter((op) => op.ref <= ref && !isSettled(op))
    for (const op of acked) op.acked = true
    return acked
  }

  /** Brings what is known up to a view. */
  see(view: View): Finding {
    const { count, chain } = view
    const before = this.#applied
    const known = before.ops.length
    if (count === known && chain === before.chains[known]) return FITS
    const isOpen = (op: Op) => !this.#gone.has(op)
    const more = count > known && this.#extend(before, known, view, isOpen)
    if (more) {
      this.#applied = more
      return FITS
    }
    const now = this.#rollBack(before, view, isOpen) ?? this.#comeBack(view)
    if (!now) return this.#explain(view)
    this.#applied = now
    this.#former.push(before)
    const returned = now.ops.filter((op) => this.#gone.has(op) && !before.ops.includes(op))
    const lost = before.ops.filter((op) => !now.ops.includes(op))
    for (const op of lost) if (op.acked) this.#gone.add(op)
    return { kind: 'rollback', lost, returned }
  }

  /** The first `from` ops of a line and those that lead on from there to a view, in order. */
  #extend(line: Line, from: number, { count, chain }: View, isOpen: (op: Op) => boolean): Line | undefined {
    const ops = line.ops.slice(0, from)
    const lastRef = ops.at(-1)?.ref ?? 0
    const open = this.#inOrder().filter(
      (op) => op.ref > lastRef && !op.refused && !op.refuse && !ops.includes(op) && isOpen(op),
    )
    const more = subsequence(open, count - from, line.chains[from]!, chain)
    if (!more) return undefined
    const chains = line.chains.slice(0, from + 1)
    for (const { op } of more) chains.push(chainAfter(chains.at(-1)!, op))
    return { ops: [...ops, ...more], chains }
  }

  /** The line that leaves `line` as late as possible and leads to a view. */
  #rollBack(line: Line, view: View, isOpen: (op: Op) => boolean): Line | undefined {
    const known = line.ops.length
    const lowest = Math.max(0, known - LOOK_BACK)
    for (let from = Math.min(view.count, known); from >= lowest; from--) {
      if (view.count - from > 16) return undefined
      const found = this.#extend(line, from, view, isOpen)
      if (found) return found
    }
    return undefined
  }

  /** The same of what an earlier owner had applied: it may also have been sent what was acked by the owner after it. */
  #comeBack(view: View): Line | undefined {
    for (const line of this.#former.toReversed()) {
      const found = this.#rollBack(line, view, () => true)
      if (found) return found
    }
    return undefined
  }

  #inOrder(): Op[] {
    return [...this.#sent.values()].sort((a, b) => a.ref - b.ref)
  }

  /** Which mistake leads to the view. */
  #explain({ count, chain, lastRef }: View): Finding {
    const { ops, chains } = this.#applied
    const known = ops.length
    const from = chains[known]!
    const more = count - known
    const open = this.#inOrder().filter((op) => !ops.includes(op))
    const may = open.filter((op) => !op.refused && !op.refuse)
    const where = `the room has ${count} ops of the member, the last with ref ${lastRef}; ${known} were known to be applied`
    const fault = (name: ViolationName, what: string): Finding => ({
      kind: 'fault',
      name,
      message: `${what}: ${where}`,
    })
    if (more > 0) {
      const refused = subsequence(open, more, from, chain)
      if (refused) {
        const wrong = refused.filter((op) => op.refuse || op.refused).map(({ ref }) => ref)
        if (wrong.length > 0)
          return fault('refused_applied', `ref ${wrong.join(', ')} was refused, and applied`)
        return fault(
          'out_of_order',
          `refs ${refused.map(({ ref }) => ref).join(', ')} came behind a higher one`,
        )
      }
      const twice = this.#repeated(may, more, from, chain)
      if (twice) return fault('applied_twice', `ref ${twice.ref} was applied twice`)
      const mixed = permutation(may, more, from, chain)
      if (mixed)
        return fault('out_of_order', `refs were applied as ${mixed.map(({ ref }) => ref).join(', ')}`)
    }
    return fault('unexplained', 'no sequence of the ops that were sent explains the state')
  }

  /** The op that, applied once more somewhere among the new ones, explains the view. */
  #repeated(open: readonly Op[], more: number, from: number, chain: number): Op | undefined {
    const recent = this.#applied.ops.slice(-LOOK_BACK)
    for (const fresh of prefixes(open, more - 1))
      for (const again of [...recent, ...fresh])
        for (let at = 0; at <= fresh.length; at++) {
          const tried = [...fresh.slice(0, at), again, ...fresh.slice(at)]
          if (chainOf(from, tried) === chain) return again
        }
    return undefined
  }
}

const chainOf = (from: number, ops: readonly Op[]): number =>
  ops.reduce((chain, { op }) => chainAfter(chain, op), from)

/** The first run of `length` ops, and each that leaves one out. */
function* prefixes(ops: readonly Op[], length: number): Generator<Op[]> {
  yield ops.slice(0, length)
  for (let out = 0; out < Math.min(length, ops.length); out++)
    yield ops.slice(0, length + 1).filter((_, i) => i !== out)
}

/** `length` of the ops, in their order, that lead from one chain to the other; those that skip least first. */
function subsequence(ops: readonly Op[], length: number, from: number, to: number): Op[] | undefined {
  let tries = MOST_TRIES
  const search = (at: number, left: number, chain: number): Op[] | undefined => {
    if (left === 0) return chain === to ? [] : undefined
    for (let i = at; i <= ops.length - left && tries-- > 0; i++) {
      const rest = search(i + 1, left - 1, chainAfter(chain, ops[i]!.op))
      if (rest) return [ops[i]!, ...rest]
    }
    return undefined
  }
  return search(0, length, from)
}

/** `length` of the ops in any order that lead from one chain to the other. */
function permutation(ops: readonly Op[], length: number, from: number, to: number): Op[] | undefined {
  let tries = MOST_TRIES
  const search = (open: readonly Op[], left: number, chain: number): Op[] | undefined => {
    if (left === 0) return chain === to ? [] : undefined
    for (const op of open) {
      if (tries-- <= 0) return undefined
      const rest = search(
        open.filter((other) => other !== op),
        left - 1,
        chainAfter(chain, op.op),
      )
      if (rest) return [op, ...rest]
    }
    return undefined
  }
  return search(ops, length, from)
}
