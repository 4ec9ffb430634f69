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

/** Rooms apply each acked op exactly once and in order, a refused op never, and all others at most once. */
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

/** Ops of one member, from its join to the end. */
class Seat {
  readonly found: Violation[] = []
  readonly room: string
  readonly member: string
  readonly #client: string
  readonly joinedAt: number
  /** Commit times. Undefined: the room is no journal room, and acks ops before they are stored. */
  readonly #times: CommitTimes | undefined
  readonly #excuses: Excuses
  readonly #track = new OpTrack()
  /** Refs of ops that a crash of the owner took back, if the room type allows that. */
  readonly #forgotten = new Set<number>()
  /** Epoch in which the member's ops were last seen. 0: not known. */
  #epoch = 0
  /** Last epoch in which the room continued from the memory of an earlier owner. That owner may also apply ops that it had received. */
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
    // After the first violation, the expected state is not known.
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

  /** `stand`: final state of the owner. */
  end(at: number, stand: Stand | undefined): void {
    if (this.found.length > 0) return
    const { room, member, joinedAt } = this
    const view = playerIn(stand?.state, member)
    if (view) this.#see(view, at, stand?.epoch)
    else if (!this.#excuses.forgotten({ room, member, joined_at: joinedAt, epoch: this.#epoch }, at)) {
      this.#report('acked_lost', at, 'the room no longer knows the member')
      return
    }
    if (this.found.length > 0) return
    for (const op of this.#track.sent) {
      if (!isAnswered(op) && !this.#lost) {
        this.#report('op_unanswered', op.at, `ref ${op.ref} was neither acked nor refused`)
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

  /** `epoch` undefined: the client library does not expose epochs. */
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
    // A room continues from the memory of an earlier owner only if the store has lost all data.
    if (excuse === 'store_lost' || (excuse && returned.length === 0)) return
    this.#report(
      !excuse && lost.some(({ acked }) => acked) ? 'acked_lost' : 'rollback',
      at,
      [
        lost.length > 0 && `refs ${refsOf(lost)} were applied, and are no longer applied`,
        returned.length > 0 && `refs ${refsOf(returned)} were taken back, and are applied again`,
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

/** The server no longer knows the outcome of an op, which may be applied at most once. */
const OUTCOME_UNKNOWN = 'outcome_unknown'

/** One op of a member, as its client sent it. */
interface Op {
  readonly ref: number
  readonly op: string
  /** Time at which it was sent first. */
  readonly at: number
  /** Code with which the room must refuse it. Null: the room must apply it. */
  readonly refuse: Refusal | null
  acked: boolean
  refused: boolean
  /** The server has answered that the outcome is unknown. */
  unknown: boolean
}

/** True if the client has the outcome of an op. */
const isAnswered = ({ acked, refused, unknown }: Op): boolean => acked || refused || unknown

/** Result of the comparison of a view with the member's ops. */
export type Finding =
  | { readonly kind: 'fits' }
  /** `lost`: ops that were applied and no longer are. `returned`: acked ops that were taken back, and are applied again without a resend. */
  | { readonly kind: 'rollback'; readonly lost: readonly Op[]; readonly returned: readonly Op[] }
  | { readonly kind: 'fault'; readonly name: ViolationName; readonly message: string }

const FITS: Finding = { kind: 'fits' }

/** Ops that one owner has applied, in order, and the chain after each. */
interface Line {
  readonly ops: readonly Op[]
  readonly chains: readonly number[]
}

/** Maximum number of sequences that a search tries. */
const MAX_TRIES = 50_000
/** Maximum number of ops that a rollback takes back, and of ops among which a repeated one is searched. */
const LOOK_BACK = 400

/**
 * Compares the ops of one member with the views of the room's state. Finds the applied ops from their count and hash chain. If no right
 * sequence explains a view, it names the mistake.
 */
class OpTrack {
  readonly #sent = new Map<number, Op>()
  #applied: Line = { ops: [], chains: [0] }
  /** Ops of earlier owners when another owner continued from fewer ops. The earlier owners may still have them in memory. */
  readonly #former: Line[] = []
  /** Ops that were acked and rolled back. The client does not send them again. */
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

  /** All ops up to `ref` are acked or refused. Returns those that are acked by this. */
  ack(ref: number): Op[] {
    const acked = [...this.#sent.values()].filter((op) => op.ref <= ref && !isAnswered(op))
    for (const op of acked) op.acked = true
    return acked
  }

  /** Compares the ops with a view, and updates the applied ops. */
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

  /** Returns the first `from` ops of a line with further ops that lead to a view, in order. */
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

  /** Returns the line to a view that shares the most ops with `line`. */
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

  /** The same for the ops of an earlier owner, which may also have received ops that the next owner acked. */
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

  /** Returns the mistake that leads to the view. */
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
          `refs ${refused.map(({ ref }) => ref).join(', ')} were applied after a higher ref`,
        )
      }
      const twice = this.#repeated(may, more, from, chain)
      if (twice) return fault('applied_twice', `ref ${twice.ref} was applied twice`)
      const mixed = permutation(may, more, from, chain)
      if (mixed)
        return fault('out_of_order', `refs were applied as ${mixed.map(({ ref }) => ref).join(', ')}`)
    }
    return fault('unexplained', 'no sequence of the sent ops leads to the state')
  }

  /** Returns the op whose second application among the new ops explains the view. */
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

/** Yields the first `length` ops, and each variant that leaves one op out. */
function* prefixes(ops: readonly Op[], length: number): Generator<Op[]> {
  yield ops.slice(0, length)
  for (let out = 0; out < Math.min(length, ops.length); out++)
    yield ops.slice(0, length + 1).filter((_, i) => i !== out)
}

/** Returns `length` of the ops, in their order, that lead from one chain to the other. Tries sequences with few gaps first. */
function subsequence(ops: readonly Op[], length: number, from: number, to: number): Op[] | undefined {
  let tries = MAX_TRIES
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

/** Returns `length` of the ops, in any order, that lead from one chain to the other. */
function permutation(ops: readonly Op[], length: number, from: number, to: number): Op[] | undefined {
  let tries = MAX_TRIES
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

/** Checks replies, hidden layers, timers, tasks and presence, from the frames of clients and the final states of rooms. */
export function checkFeatures(history: History, ownerships: Ownerships): Violation[] {
  return [
    ...checkReplies(history, ownerships),
    ...checkMarks(history),
    ...checkLayers(history),
    ...checkJoins(history),
    ...checkTasks(history, ownerships),
    ...history.end.owners.flatMap((owner) => checkBooks(history, owner)),
  ]
}

type Asked = Extract<ClientRecord, { kind: 'sent' }> & { answer?: string }

/** Each request gets one reply before its ack, and the same reply again if it is repeated. In a journal room, the reply fits the views. */
function checkReplies({ clients, rooms }: History, ownerships: Ownerships): Violation[] {
  const found: Violation[] = []
  const exact = new Set(
    rooms
      .filter(({ room, durability }) => durability === 'journal' && ownerships.losses(room).length === 0)
      .map(({ room }) => room),
  )
  const asked = new Map<string, Map<number, Asked>>()
  const waiting = new Map<string, Set<Asked>>()
  /** Chain of a member's ops, by member and number of ops. */
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
        if (!request.answer) report('reply_lost', `ref ${request.ref} was acked, and got no reply`)
      }
    else if (kind === 'reply') {
      const request = ofMember.get(record.ref)
      const answer = JSON.stringify(record.reply)
      if (request?.op !== record.reply.op || (request.answer ?? answer) !== answer)
        report('reply_differs', `ref ${record.ref} (${request?.op}) got ${answer} after ${request?.answer}`)
      else if (isOther(room, member, record.reply))
        report('reply_differs', `ref ${record.ref} got ${answer}, and views show another chain`)
      if (request) request.answer = answer
    } else if ((kind === 'frame' || kind === 'view') && record.view && isOther(room, member, record.view))
      report('reply_differs', `${record.view.count} ops have another chain than in a reply or another view`)
  }
  return found
}

/** A client gets no hidden state of others, in any frame. */
function checkMarks({ clients }: History): Violation[] {
  const clientOf = new Map<string, string>()
  for (const record of clients) if (record.kind === 'joined') clientOf.set(record.member, record.client)
  return clients.flatMap((record) => {
    if (record.kind !== 'marks') return []
    const { at, client, marks } = record
    return marks.flatMap((mark): Violation[] => {
      const readers = readersOf(mark)
      const [own = ''] = readers
      // If the connection breaks after a member's secrets and before `joined`, this client is the only one that may get them.
      if (mark.startsWith(`§${own}#`) && !clientOf.has(own)) clientOf.set(own, client)
      if (readers.some((reader) => clientOf.get(reader) === client)) return []
      return [{ name: 'layer_leaked', at, client, message: `${client} got ${mark}` }]
    })
  })
}

/** Time within which a member has the right layers. After a resume, the missed flushes come before the changes of layers. */
const LAYERS_WITHIN_MS = 1000

/** A member has its own layer and those that the room shows it, each of the same flush as the state. */
function checkLayers({ clients, end }: History): Violation[] {
  const found: Violation[] = []
  /** Time since which a client has had other layers, by client. */
  const wrong = new Map<string, number>()
  for (const record of clients) {
    const { at, client, kind } = record
    if (kind === 'joined' || kind === 'welcome' || kind === 'lost') wrong.delete(client)
    if (kind === 'misfit') {
      const { room, member, layer, seq, actual } = record
      const message = `a change of ${layer} at seq ${seq} led to checksum ${actual}`
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

/** What a member may see begins with its join. */
const checkJoins = ({ clients }: History): Violation[] =>
  clients.flatMap((record) => {
    if (record.kind !== 'early') return []
    const { at, client, room, member, t, seq } = record
    return [{ name: 'seen_early', at, room, member, client, message: `it got ${t} of seq ${seq}` }]
  })

/** In a journal room, no task starts twice. */
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

/** Maximum delay of a timer when everything works. */
const LATE_MS = 3000

/** The timers, tasks, reservations and members in a room's state agree with its record and its clients. */
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
    const message = `${unended.length} have not ended (${unended.join(', ')}), and the room was notified of ${moved} lost tasks`
    found.push({ name: 'task_lost', at, room, message })
  }
  for (const { room: of, member, client } of end.members)
    if (of === room && players[member]?.away && !players[member].watches)
      found.push({
        name: 'presence_wrong',
        at,
        room,
        member,
        client,
        message: 'it is connected, and the room counts it as away',
      })
  return found
}
