import { OUTCOME_MS } from '../../../dataplane/room/outcomes.ts'
import type { BankState } from '../rooms.ts'
import type {
  BackendHistory,
  BackendRecord,
  Fault,
  History,
  StoreRecord,
  Violation,
  ViolationName,
  WrittenNotice,
} from './history.ts'
import { type Ownership, Ownerships } from './ownership.ts'
import { CLOCK_TOLERANCE_MS, certainFrom } from './store-rules.ts'

/** A ban takes effect within 1 s. The rest is for a busy machine. */
const OUT_WITHIN_MS = 1500
/** Time within which members are notified of the end of a seat. */
const KICKED_WITHIN_MS = 3000
/** After a loss of data, an owner writes notices of this time again. */
const REWRITTEN_MS = 30_000
/** Minimum jump of the clock that can expire an outcome within a run. */
const EXPIRING_MS = OUTCOME_MS - 60_000

/** Calls take effect once, notices arrive, and banned players stay out. */
export function checkBackends(history: History): Violation[] {
  const { backends } = history
  if (!backends) return []
  const ownerships = new Ownerships({ ...history, rooms: backends.rooms })
  const banks = new Map(backends.rooms.map(({ room }) => [room, new Bank(history, ownerships, room)]))
  return [
    ...checkCalls(backends, banks),
    ...[...banks.values()].flatMap((bank) => checkNotices(backends, bank)),
    ...checkUnknownNotices(backends, banks),
    ...checkBans(history, backends, ownerships),
    ...checkKicks(backends, ownerships),
    ...checkEnd(backends, banks),
    ...checkActivity(history, backends),
  ]
}

type Of<K extends BackendRecord['kind']> = BackendRecord & { readonly kind: K }

const recordsOf = <K extends BackendRecord['kind']>({ records }: BackendHistory, kind: K): Of<K>[] =>
  records.filter((record): record is Of<K> => record.kind === kind)

/** Effect of a write. `maybe`: it has no answer, and no later record decides. */
type Effect = 'yes' | 'no' | 'maybe'

interface BankWrite {
  readonly record: StoreRecord
  readonly effect: Effect
}

/** A bank from its creation until it ends, or until the store loses it for good. */
interface Life {
  readonly writes: readonly BankWrite[]
}

/** One bank, from the calls of the store. */
class Bank {
  readonly room: string
  readonly lives: readonly Life[]
  /** Notices in the order of the room, each with its first write. */
  readonly notices: readonly { readonly notice: WrittenNotice; readonly write: BankWrite }[]
  readonly #history: History
  readonly #ownerships: Ownerships

  constructor(history: History, ownerships: Ownerships, room: string) {
    this.room = room
    this.#history = history
    this.#ownerships = ownerships
    this.lives = livesOf(history, ownerships, room)
    const seen = new Set<string>()
    this.notices = this.lives.flatMap(({ writes }) =>
      writes.flatMap((write) =>
        (write.record.notices ?? []).flatMap((notice) => {
          if (write.effect === 'no' || seen.has(notice.id)) return []
          seen.add(notice.id)
          return [{ notice, write }]
        }),
      ),
    )
  }

  /** Time from which it is certain that the effect of a call is committed. Infinity: it is not. */
  certainFrom(call: string): number {
    const froms = this.lives.flatMap(({ writes }) =>
      writes
        .filter((write) => write.effect !== 'no' && hasCall(write, call))
        .map(({ record }) => certainFrom(record, this.#ownerships)),
    )
    return Math.min(Number.POSITIVE_INFINITY, ...froms)
  }

  /** Writes with the effect of a call, by life. Lives without one are left out. */
  effectsOf(call: string): { readonly life: Life; readonly writes: readonly BankWrite[] }[] {
    return this.lives.flatMap((life) => {
      const writes = life.writes.filter((write) => write.effect !== 'no' && hasCall(write, call))
      return writes.length > 0 ? [{ life, writes }] : []
    })
  }

  /** True if the room may have lost outcomes between two times. */
  mayForget(since: number, until: number): boolean {
    return this.#lostBetween(since, until) || this.#expiredBetween(since, until)
  }

  /** The store lost its data with the room, or with the outcomes of an ended one. */
  #lostBetween(since: number, until: number): boolean {
    const wiped = this.#wipes.some((wipe) => wipe.until >= since && wipe.at <= until)
    const starts = this.lives.slice(1).map(({ writes }) => writes[0]?.record.ended ?? until)
    return wiped && starts.some((start) => start >= since && start <= until)
  }

  /** The clocks of two owners in this time differ by ten minutes, after which outcomes expire. */
  #expiredBetween(since: number, until: number): boolean {
    const chain = this.#ownerships.of(this.room)
    const owners = chain.filter(
      ({ claim }, i) => claim.began <= until && (chain[i + 1]?.claim.ended ?? until) >= since,
    )
    const jumps = this.#history.faults.filter(({ kind, at }) => kind === 'clock' && at <= until)
    const offsets = owners.flatMap(({ claim: { node } }) => {
      const own = jumps
        .filter((jump) => jump.node === node)
        .map(({ amount = '0' }) => Number.parseInt(amount, 10))
      return [0, ...own.map((_, i) => own.slice(0, i + 1).reduce((sum, ms) => sum + ms, 0))]
    })
    return Math.max(...offsets) - Math.min(...offsets) >= EXPIRING_MS
  }

  /** True if a notice must arrive: the store has it, or its owner has written it again. */
  mustArrive({ record, effect }: BankWrite): boolean {
    if (effect !== 'yes') return false
    const later = this.#ownerships.of(this.room).filter(({ claim }) => claim.epoch > record.epoch)
    return this.#wipes
      .filter(({ until }) => until >= record.began)
      .every((wipe) => {
        const again = later.findIndex(({ claim, startedOver }) => startedOver && claim.ended >= wipe.at)
        const owners = later.slice(0, again + 1).map(({ claim }) => claim.node)
        if (this.#endedUnwritten(record, wipe)) return false
        const young = wipe.at - record.ended < REWRITTEN_MS / 2
        return (
          again >= 0 &&
          record.kind !== 'release' &&
          young &&
          owners.every((node) => node === record.node) &&
          this.#isWritten(later.slice(again))
        )
      })
  }

  /** True if the first of these owners wrote the room before another node claimed it. */
  #isWritten(owners: readonly Ownership[]): boolean {
    const { node } = owners[0]!.claim
    const next = owners.findIndex(({ claim }) => claim.node !== node)
    const own = next < 0 ? owners : owners.slice(0, next)
    const epochs = new Set(own.map(({ claim }) => claim.epoch))
    const calls = this.#history.store.filter((call) => call.room === this.room && epochs.has(call.epoch))
    return calls.some(({ kind, ok }) => kind === 'snapshot' && ok !== false)
  }

  /** True: the owner ended the room before it could write the room again, so it writes nothing again. */
  #endedUnwritten({ epoch }: StoreRecord, { until }: Fault): boolean {
    const calls = this.#history.store.filter((call) => call.room === this.room && call.epoch >= epoch)
    // A release with notices is sent after their announcement, which waits for the store.
    const first = calls.filter(({ began }) => began > until).sort((one, other) => one.began - other.began)[0]
    return calls.some(({ forget, began }) => forget && began <= until) || first?.forget === true
  }

  get #wipes() {
    return this.#ownerships.wipes(Number.POSITIVE_INFINITY)
  }
}

const hasCall = ({ record }: BankWrite, call: string): boolean =>
  record.content?.calls?.includes(call) ?? false

const inOrder = (one: StoreRecord, other: StoreRecord): number =>
  one.epoch - other.epoch || one.version - other.version || (one.kind === 'release' ? 1 : -1)

function livesOf(history: History, ownerships: Ownerships, room: string): Life[] {
  const calls = history.store.filter((record) => record.room === room && record.ok !== false)
  const writes = calls.filter(({ kind }) => kind === 'commit' || kind === 'snapshot' || kind === 'release')
  const ends = calls.filter(({ forget }) => forget)
  const lost = new Set(ownerships.losses(room).map(({ claim }) => claim.epoch))
  const lives: { writes: BankWrite[] }[] = []
  // Versions start again when the store does not know the room.
  const parts: { claims: Ownership[]; isNew: boolean }[] = []
  let before = 0
  for (const ownership of ownerships.of(room)) {
    const { claim } = ownership
    const ended = ends.some(
      ({ epoch, ok }) => epoch >= before && epoch < claim.epoch && (ok || isAnew(claim, writes)),
    )
    before = claim.epoch
    const isNew = parts.length === 0 || ended || lost.has(claim.epoch)
    if (isNew || claim.version === 0) parts.push({ claims: [], isNew })
    parts.at(-1)!.claims.push(ownership)
  }
  for (const { claims, isNew } of parts) {
    if (isNew) lives.push({ writes: [] })
    const epochs = new Set(claims.map(({ claim }) => claim.epoch))
    const ofPart = writes.filter(({ epoch }) => epochs.has(epoch)).sort(inOrder)
    for (const record of ofPart)
      lives.at(-1)!.writes.push({ record, effect: effectOf(record, ofPart, claims) })
  }
  return lives
}

/** True if the owner started with a new bank: it has no effect of an earlier owner. Its first write is the whole room. */
function isAnew({ epoch }: StoreRecord, writes: readonly StoreRecord[]): boolean {
  const first = writes.find((write) => write.epoch === epoch)?.content?.calls ?? []
  return !writes.some(
    (write) => write.epoch < epoch && first.some((call) => write.content?.calls?.includes(call)),
  )
}

function effectOf(record: StoreRecord, writes: readonly StoreRecord[], claims: readonly Ownership[]): Effect {
  if (record.ok) return 'yes'
  const rivals = writes.filter((other) => other !== record && other.version === record.version)
  if (rivals.some(({ ok }) => ok)) return 'no'
  const isFollowed =
    claims.some(({ claim }) => claim.epoch > record.epoch && claim.version > record.version) ||
    writes.some(({ ok, version }) => ok && version > record.version)
  return isFollowed && rivals.length === 0 ? 'yes' : 'maybe'
}

/** Each call has one effect and one answer, and its effect is committed before the answer. */
function checkCalls(backends: BackendHistory, banks: ReadonlyMap<string, Bank>): Violation[] {
  const found: Violation[] = []
  const answers = new Map<string, Of<'answered'>[]>()
  for (const record of recordsOf(backends, 'answered'))
    answers.set(record.call, [...(answers.get(record.call) ?? []), record])
  for (const called of recordsOf(backends, 'called')) {
    const { call, room, what, refuse } = called
    const bank = banks.get(room)!
    const report = (name: ViolationName, at: number, message: string) =>
      found.push({ name, at, room, message: `${call}: ${message}` })
    const all = answers.get(call) ?? []
    const [first] = all
    if (!first) {
      report('call_unanswered', backends.end.at, `no answer since ${Math.round(called.at)}`)
      continue
    }
    for (const { at, code, answer } of all) {
      // It is not final: the room may be made later.
      if (what === 'close' && code === 'room_not_found') continue
      if (refuse !== null && code === null) report('call_refused_applied', at, `was answered with ${answer}`)
      else if (code !== refuse) report('call_refused_without_cause', at, `was refused with ${answer}`)
    }
    const kept = all.filter(({ code }) => code !== 'room_not_found')
    const other = kept.find(({ answer }) => answer !== kept[0]!.answer)
    if (other && !bank.mayForget(called.at, other.at))
      report('call_answers_differ', other.at, `${kept[0]!.answer}, and then ${other.answer}`)
    if (what === 'grant') checkEffect(backends, bank, called, kept, report)
  }
  return found
}

function checkEffect(
  backends: BackendHistory,
  bank: Bank,
  { at: calledAt, call, refuse, room }: Of<'called'>,
  answers: readonly Of<'answered'>[],
  report: (name: ViolationName, at: number, message: string) => void,
): void {
  const effects = bank.effectsOf(call)
  const last = effects.at(-1)
  if (refuse !== null) {
    const write = last?.writes[0]?.record
    if (write) report('call_refused_applied', write.ended, 'its effect was written')
    return
  }
  const certain = effects.map(({ writes }) => writes.filter(({ effect }) => effect === 'yes'))
  const commits = certain.map((writes) => writes.filter(({ record }) => record.kind === 'commit'))
  const twice =
    commits.find((writes) => writes.length > 1)?.[1] ?? certain.filter((writes) => writes.length > 0)[1]?.[0]
  if (twice && !bank.mayForget(calledAt, twice.record.ended))
    report('call_twice', twice.record.ended, `${twice.record.node} wrote a second effect`)

  const answered = answers.find(({ code }) => code === null)
  if (!answered) return
  if (!last) {
    report('call_lost', answered.at, 'was answered and is in no write')
    return
  }
  const from = bank.certainFrom(call)
  if (from > answered.at + CLOCK_TOLERANCE_MS)
    report(
      'call_answered_early',
      answered.at,
      `${Math.ceil(from - answered.at)} ms before its commit was certain`,
    )
  const behind = last.life.writes.slice(last.life.writes.indexOf(last.writes[0]!))
  const without = behind.find(
    (write) =>
      write.effect === 'yes' &&
      write.record.content &&
      write.record.kind === 'snapshot' &&
      !hasCall(write, call),
  )
  if (without) report('call_lost', without.record.ended, `${without.record.node} wrote the room without it`)
  const owner = backends.end.rooms.find((end) => end.room === room)
  if (owner && last.life === bank.lives.at(-1) && !Object.hasOwn((owner.state as BankState).effects, call))
    report('call_lost', backends.end.at, `${owner.node} runs the room without it`)
}

/** The webhook receives each committed notice until it accepts it. The first arrivals are in the order of the room. */
function checkNotices(backends: BackendHistory, bank: Bank): Violation[] {
  const { room, notices } = bank
  const arrivals = new Map<string, number>()
  const accepted = new Set<string>()
  for (const record of recordsOf(backends, 'received')) {
    const { notice, at } = record
    if (!arrivals.has(notice)) arrivals.set(notice, at)
    if (record.accepted) accepted.add(notice)
  }
  const found: Violation[] = []
  let latest: { id: string; at: number } | undefined
  for (const { notice, write } of notices) {
    const { id } = notice
    const at = arrivals.get(id)
    if (!accepted.has(id) && bank.mustArrive(write))
      found.push({
        name: 'notice_lost',
        at: write.record.ended,
        room,
        message: `${id} of ${write.record.node}, epoch ${write.record.epoch}, version ${write.record.version}`,
      })
    if (at === undefined) continue
    if (latest && latest.at > at)
      found.push({ name: 'notice_order', at: latest.at, room, message: `${latest.id} came after ${id}` })
    if (!latest || latest.at < at) latest = { id, at }
  }
  return found
}

/** The webhook receives only committed notices, with the committed body. */
function checkUnknownNotices(backends: BackendHistory, banks: ReadonlyMap<string, Bank>): Violation[] {
  const written = new Map(
    [...banks.values()].flatMap(({ notices }) =>
      notices.map(({ notice }) => [notice.id, notice.body] as const),
    ),
  )
  return recordsOf(backends, 'received').flatMap(({ at, notice, body }): Violation[] => {
    const committed = written.get(notice)
    if (committed === body) return []
    if (committed === undefined)
      return [{ name: 'notice_uncommitted', at, message: `${notice} is in no commit: ${body}` }]
    return [{ name: 'notice_differs', at, message: `${notice} was ${committed}, and arrived as ${body}` }]
  })
}

interface Span {
  readonly from: number
  readonly until: number
}

/** A banned player is offline at all nodes within 1 s, and until the ban ends. */
function checkBans({ end }: History, backends: BackendHistory, ownerships: Ownerships): Violation[] {
  return recordsOf(backends, 'banned').flatMap(({ at, sub }) => {
    const ends = [
      ...recordsOf(backends, 'unbanning').filter((record) => record.sub === sub),
      // A data loss of the store ends bans.
      ...ownerships.wipes(Number.POSITIVE_INFINITY),
    ].map((record) => record.at)
    const until = Math.min(end.at, ...ends.filter((ended) => ended > at))
    return onlineSpans(backends, sub).flatMap(({ node, ...span }): Violation[] => {
      const out = Math.max(ownerships.back(node, at), at) + OUT_WITHIN_MS
      if (span.from >= until || Math.min(span.until, until) <= out) return []
      const message = `${sub} was online at ${node} ${Math.round(Math.min(span.until, until) - at)} ms after its ban`
      return [{ name: 'ban_ignored', at: Math.max(out, span.from), message }]
    })
  })
}

const isConnection = (record: BackendRecord): record is Of<'online'> | Of<'offline'> =>
  record.kind === 'online' || record.kind === 'offline'

function onlineSpans(backends: BackendHistory, sub: string): (Span & { readonly node: string })[] {
  const spans: { from: number; until: number; node: string }[] = []
  for (const record of backends.records) {
    if (!isConnection(record) || record.sub !== sub) continue
    const open = spans.at(-1)
    if (open?.until === Number.POSITIVE_INFINITY) open.until = record.at
    if (record.kind === 'online')
      spans.push({ from: record.at, until: Number.POSITIVE_INFINITY, node: record.node })
  }
  return spans
}

/** A kicked player loses its seat soon after the kick, or after its client is online again. */
function checkKicks(backends: BackendHistory, ownerships: Ownerships): Violation[] {
  return recordsOf(backends, 'kicked').flatMap(({ at, sent, sub, room, seats }): Violation[] => {
    const seated = recordsOf(backends, 'seated').findLast((record) => record.sub === sub && record.at < sent)
    if (seats === 0 || seated?.room !== room) return []
    const gone = recordsOf(backends, 'unseated').find(
      (record) => record.member === seated.member && record.at >= seated.at,
    )
    const until = gone?.at ?? backends.end.at
    const late = onlineSpans(backends, sub).find((span) => {
      const from = Math.max(at, span.from)
      return Math.min(span.until, until) > Math.max(from, ownerships.back(span.node, from)) + KICKED_WITHIN_MS
    })
    const isLost = ownerships.losses(room).some(({ claim }) => claim.ended >= sent)
    if (!late || isLost) return []
    const message = `${sub} had the seat ${seated.member} ${Math.round(until - at)} ms after the kick`
    return [{ name: 'kick_ignored', at, room, member: seated.member, message }]
  })
}

/** At the end, each bank has one owner and has applied no call twice, and each player has a seat. */
function checkEnd(backends: BackendHistory, banks: ReadonlyMap<string, Bank>): Violation[] {
  const { end } = backends
  const found: Violation[] = end.seatless.map((client) => ({
    name: 'left_out',
    at: end.at,
    client,
    message: `${client} has no seat in a bank`,
  }))
  const called = new Map(recordsOf(backends, 'called').map(({ call, at }) => [call, at]))
  const seen = new Set<string>()
  for (const { room, node, state } of end.rooms) {
    const report = (name: ViolationName, message: string) => found.push({ name, at: end.at, room, message })
    if (seen.has(room)) report('two_owners', `also ${node} runs it`)
    seen.add(room)
    for (const call of (state as BankState).twice)
      if (!banks.get(room)!.mayForget(called.get(call) ?? 0, end.at))
        report('call_twice', `${call}: the room has applied it twice`)
  }
  return found
}

/** Minimum number of records per second. It is far below that of a run in which something is broken half of the time. */
const LEAST = { called: 0.5, answered: 1, received: 0.25, banned: 0.02, kicked: 0.02 }

function checkActivity({ run }: History, backends: BackendHistory): Violation[] {
  const seconds = (run.ended - run.began) / 1000
  return (Object.keys(LEAST) as (keyof typeof LEAST)[]).flatMap((kind): Violation[] => {
    const count = recordsOf(backends, kind).length
    const wanted = Math.floor(LEAST[kind] * seconds)
    if (count >= wanted) return []
    const message = `${count} backend records '${kind}'; at least ${wanted} would prove something`
    return [{ name: 'too_little', at: backends.end.at, message }]
  })
}
