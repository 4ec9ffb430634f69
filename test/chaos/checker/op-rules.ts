import {
  type ChaosState,
  chainAfter,
  type HeldLayers,
  layersIn,
  REFUSALS,
  type Refusal,
  readersOf,
  type View,
} from '../rooms.ts'
import {
  type ClientRecord,
  type History,
  playerIn,
  type Stand,
  type Violation,
  type ViolationName,
} from './history.ts'
import type { Excuses, Ownerships } from './ownership.ts'
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

/** Replies, hidden layers, timers, tasks and presence: what clients were told, and what the rooms say of themselves in the end. */
export function checkFeatures(history: History, ownerships: Ownerships): Violation[] {
  return [
    ...checkReplies(history, ownerships),
    ...checkMarks(history),
    ...checkLayers(history),
    ...checkTasks(history, ownerships),
    ...history.end.owners.flatMap((owner) => checkBooks(history, owner)),
  ]
}

type Asked = Extract<ClientRecord, { kind: 'sent' }> & { answer?: string }

/** One answer to each request, before its ack and the same whenever it comes again; in a journal room that of the effect which views show. */
function checkReplies({ clients, rooms }: History, ownerships: Ownerships): Violation[] {
  const found: Violation[] = []
  const exact = new Set(
    rooms
      .filter(({ room, durability }) => durability === 'journal' && ownerships.losses(room).length === 0)
      .map(({ room }) => room),
  )
  const asked = new Map<string, Map<number, Asked>>()
  const waiting = new Map<string, Set<Asked>>()
  /** By member and number of its ops, the chain of them. */
  const chains = new Map<string, number>()
  const isOther = (room: string, member: string, { count, chain }: { count: number; chain: number }) => {
    if (!exact.has(room)) return false
    const key = `${member} ${count}`
    if (!chains.has(key)) chains.set(key, chain)
    return chains.get(key) !== chain
  }
  for (const record of clients) {
    if (!('member' in record)) continue
    const { at, client, room, member, kind } = record
    const report = (name: 'reply_lost' | 'reply_differs', message: string) =>
      found.push({ name, at, room, member, client, message })
    const ofMember = asked.get(member) ?? new Map<number, Asked>()
    const open = waiting.get(member) ?? new Set()
    asked.set(member, ofMember)
    waiting.set(member, open)
    if (kind === 'sent' && record.ask && !ofMember.has(record.ref)) {
      ofMember.set(record.ref, { ...record })
      open.add(ofMember.get(record.ref)!)
    } else if (kind === 'refused') open.delete(ofMember.get(record.ref)!)
    else if (kind === 'ack')
      for (const request of open) {
        if (request.ref > record.ref) continue
        open.delete(request)
        if (!request.answer) report('reply_lost', `ref ${request.ref} was acked, and not answered`)
      }
    else if (kind === 'reply') {
      const request = ofMember.get(record.ref)
      const answer = JSON.stringify(record.reply)
      if (request?.op !== record.reply.op || (request.answer ?? answer) !== answer)
        report('reply_differs', `ref ${record.ref} (${request?.op}) got ${answer} after ${request?.answer}`)
      else if (isOther(room, member, record.reply))
        report('reply_differs', `ref ${record.ref} got ${answer}, of which views tell another chain`)
      if (request) request.answer = answer
    } else if ((kind === 'frame' || kind === 'view') && record.view && isOther(room, member, record.view))
      report('reply_differs', `${record.view.count} ops have another chain than a reply or a view said`)
  }
  return found
}

/** Nothing comes to a client, in whichever frame, that is not for it. */
function checkMarks({ clients }: History): Violation[] {
  const clientOf = new Map<string, string>()
  for (const record of clients) if (record.kind === 'joined') clientOf.set(record.member, record.client)
  return clients.flatMap((record) => {
    if (record.kind !== 'marks') return []
    const { at, client, marks } = record
    return marks.flatMap((mark): Violation[] => {
      const readers = readersOf(mark)
      const [own = ''] = readers
      // A connection that breaks behind a member's own secrets, and before its client knows of its seat: no one else is to get them.
      if (mark.startsWith(`§${own}#`) && !clientOf.has(own)) clientOf.set(own, client)
      if (readers.some((reader) => clientOf.get(reader) === client)) return []
      return [{ name: 'layer_leaked', at, client, message: `${mark} came to ${client}` }]
    })
  })
}

/** After a resume the flushes that were missed come before the layers that were shown or hidden meanwhile. */
const LAYERS_WITHIN_MS = 1000

/** A member has the layers that the room says it was shown, and its own, each with the value of the same flush. */
function checkLayers({ clients, end }: History): Violation[] {
  const found: Violation[] = []
  /** By client, since when it has had others. */
  const wrong = new Map<string, number>()
  for (const record of clients) {
    const { at, client, kind } = record
    if (kind === 'joined' || kind === 'welcome' || kind === 'lost') wrong.delete(client)
    if (kind === 'misfit') {
      const { room, member, layer, seq, actual } = record
      const message = `what came of ${layer} at seq ${seq} led to checksum ${actual}`
      found.push({ name: 'layer_wrong', at, room, member, client, message })
    }
    if ((kind !== 'frame' && kind !== 'view' && kind !== 'layers') || !record.layers) continue
    const since = wrong.get(client) ?? at
    if (isRight(record.layers)) wrong.delete(client)
    else wrong.set(client, since)
    if (isRight(record.layers) || at - since <= LAYERS_WITHIN_MS) continue
    const { room, member } = record
    found.push({ name: 'layer_wrong', at, room, member, client, message: describe(record.layers) })
    wrong.delete(client)
  }
  for (const { room, member, client, state } of end.members) {
    const layers = layersIn(state as Partial<ChaosState>, member)
    if (!isRight(layers))
      found.push({ name: 'layer_wrong', at: end.at, room, member, client, message: describe(layers) })
  }
  return found
}

const isRight = ({ has, due }: HeldLayers): boolean => has.join() === due.join()
const describe = ({ has, due }: HeldLayers): string =>
  `it has ${has.join(', ') || 'nothing'}, and should have ${due.join(', ') || 'nothing'}`

/** In a journal no turn takes place again, nor what it has begun. */
function checkTasks({ tasks, rooms }: History, ownerships: Ownerships): Violation[] {
  const exact = rooms.filter(
    ({ room, durability }) => durability === 'journal' && ownerships.losses(room).length === 0,
  )
  const begun = new Set<string>()
  return tasks.flatMap(({ room, op, at }): Violation[] => {
    if (!exact.some((each) => each.room === room)) return []
    if (begun.has(op)) return [{ name: 'task_twice', at, room, message: `the task of ${op} began again` }]
    begun.add(op)
    return []
  })
}

/** A timer fires so long after its time at the latest, once everything works. */
const LATE_MS = 3000

/** A room's state says what should wait and what has ended, turn by turn: that has to agree with what did. */
function checkBooks({ end, rooms }: History, { room, state }: History['end']['owners'][number]): Violation[] {
  const { at } = end
  const {
    players = {},
    timers = {},
    now = 0,
    tasks = {},
    moved = 0,
    reserved = {},
    wrong = [],
  } = state as Partial<ChaosState>
  const found: Violation[] = wrong.map(({ name, message }) => ({ name, at, room, message }))
  const record = end.records.find((each) => each.room === room)
  const isKept =
    record !== undefined && rooms.some((each) => each.room === room && each.durability !== 'none')
  for (const [id, due] of Object.entries(timers))
    if (due + LATE_MS < now)
      found.push({ name: 'timer_lost', at, room, message: `${id} is ${now - due} ms late` })
    else if (isKept && !record.timers.includes(id))
      found.push({ name: 'timer_lost', at, room, message: `${id} waits, and is not in the record` })
  for (const sub of Object.keys(reserved))
    if (isKept && !record.reservations.includes(sub))
      found.push({ name: 'reservation_broken', at, room, message: `the seat of ${sub} is not in the record` })
  const unended = Object.keys(tasks)
  if (unended.length !== moved) {
    const message = `${unended.length} have not ended (${unended.join(', ')}), and ${moved} are said to be lost`
    found.push({ name: 'task_lost', at, room, message })
  }
  for (const { room: of, member, client } of end.members)
    if (of === room && players[member]?.away)
      found.push({
        name: 'presence_wrong',
        at,
        room,
        member,
        client,
        message: 'it is here, and said to be away',
      })
  return found
}
