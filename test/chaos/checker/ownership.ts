import { CLOSE } from '../../../shared/protocol/error-codes.ts'
import type {
  ClientRecord,
  Durability,
  Fault,
  FaultKind,
  History,
  SessionWrite,
  StoreRecord,
} from './history.ts'

/** What keeps a node from its rooms while it lasts. */
const OUTAGES: readonly FaultKind[] = [
  'kill',
  'pause',
  'cut',
  'delay',
  'blackhole',
  'redis_kept',
  'redis_lost',
  'redis_pause',
  'stall',
]
/** In what its owner does nothing once its lease has run out; a stall is any time in which the store did not answer it. */
const FREEZING: readonly FaultKind[] = [
  'pause',
  'blackhole',
  'redis_kept',
  'redis_lost',
  'redis_pause',
  'stall',
]
/** A node loses its rooms at most so many leases after the end of what kept it from the store: no one is judged for one, then it may be asked for twice. */
export const DETECTED_LEASES = 2.5
/** A stall that is shorter than so much of a lease costs no one a room. */
const STALL_LEASES = 0.5
/** Outages no further apart are one: between them the owner may not have come to save. */
const SAVED_WITHIN_MS = 1000
/** A snapshot room saves within a second of a change; the rest is the way there on a busy machine. */
const FOUND_OUT_WITHIN_MS = 1500

/** A room that went to an owner, as the store has it. */
export interface Ownership {
  readonly claim: StoreRecord
  readonly previous: StoreRecord | undefined
  /** The last owner before that had the room, and not only a claim on one that the store had lost. */
  readonly holder: StoreRecord | undefined
  /** The owner before had released the room for the next. */
  readonly handed_over: boolean
  /** The store knew nothing of what the room was, although an owner had written it. */
  readonly startedOver: boolean
  /** What the new owner went on from: the last write before its claim. */
  readonly base: StoreRecord | undefined
  /** Time since which faults explain that the owner before lost the room. Undefined: no fault explains it. */
  readonly outage: number | undefined
}

/** Whether the owner before had not released the room for the next, and faults explain that it lost the room. */
export const isCrash = ({ previous, handed_over: handedOver, outage }: Ownership): boolean =>
  previous !== undefined && !handedOver && outage !== undefined

/** Place of a process in the cluster, which its successors take: `node1` of `node1.2`. */
const placeOf = (node: string): string => node.split('.', 1)[0]!

/** Who owned which room, and what the faults explain of it. */
export class Ownerships {
  readonly #faults: readonly Fault[]
  readonly #leaseMs: number
  readonly #rooms = new Map<string, Ownership[]>()
  /** Places of all nodes of the run. */
  readonly #places: ReadonlySet<string>

  constructor({ store, faults, rooms, run }: Pick<History, 'store' | 'faults' | 'rooms' | 'run'>) {
    this.#faults = faults
    this.#leaseMs = run.lease_ms
    const nodes = [...store.map(({ node }) => node), ...faults.flatMap(({ node }) => node ?? [])]
    this.#places = new Set(nodes.map(placeOf))
    for (const { room, durability } of rooms) {
      const calls = store.filter((record) => record.room === room && record.ok !== false)
      this.#rooms.set(room, this.#chain(calls, durability === 'none'))
    }
  }

  #chain(calls: readonly StoreRecord[], isKeptNowhere: boolean): Ownership[] {
    const claims = calls.filter(({ kind, ok }) => kind === 'claim' && ok).sort((a, b) => a.epoch - b.epoch)
    const unanswered = calls.filter(({ kind, ok }) => kind === 'claim' && ok === undefined)
    const releases = calls.filter(({ kind }) => kind === 'release')
    const released = new Set(releases.map(({ epoch }) => epoch))
    const writes = calls.filter(({ kind }) => kind === 'commit' || kind === 'snapshot')
    const written = new Set(writes.filter(({ ok }) => ok).map(({ epoch }) => epoch))
    let holder: StoreRecord | undefined
    let startedOver = false
    // The first epoch of the room's present life.
    let life = 0
    return claims.map((claim, i) => {
      const previous = claims[i - 1]
      if (previous && (written.has(previous.epoch) || (holder && !startedOver))) holder = previous
      startedOver = holder !== undefined && claim.version === 0
      if (startedOver) life = claim.epoch
      const end =
        isKeptNowhere &&
        releases.find((release) => release.epoch === previous?.epoch && this.#hasNoSuccessor(release))
      const before = writes.filter(
        ({ version, epoch }) => version === claim.version - 1 && epoch >= life && epoch < claim.epoch,
      )
      return {
        claim,
        previous,
        holder,
        handed_over: previous !== undefined && released.has(previous.epoch) && !end,
        startedOver,
        base: before.find(({ ok }) => ok) ?? before[0],
        outage: end ? end.began : previous && this.#lostBy(previous, claim, unanswered),
      }
    })
  }

  /** Whether a node ended a room because it drained while all others were draining or down. A room that is kept nowhere then ends. */
  #hasNoSuccessor({ node, began, forget = false }: StoreRecord): boolean {
    const isGone = (place: string, kinds: readonly FaultKind[]): boolean =>
      this.#faults.some(
        (fault) =>
          fault.node !== undefined &&
          placeOf(fault.node) === place &&
          kinds.includes(fault.kind) &&
          fault.at <= began &&
          began <= fault.until + DETECTED_LEASES * this.#leaseMs,
      )
    const own = placeOf(node)
    return (
      forget &&
      isGone(own, ['drain']) &&
      [...this.#places].every((place) => place === own || isGone(place, ['drain', 'kill']))
    )
  }

  /** Since when faults had kept the owner `previous` from the store when it lost its room to `claim`, or before to a claim that got no answer. */
  #lostBy(previous: StoreRecord, claim: StoreRecord, unanswered: readonly StoreRecord[]): number | undefined {
    const between = unanswered.filter(({ ended }) => ended > previous.ended && ended < claim.began)
    const outages = [claim.began, ...between.map(({ ended }) => ended)].map((at) =>
      this.outage(previous.node, at),
    )
    return outages.find((since) => since !== undefined)
  }

  of(room: string): readonly Ownership[] {
    return this.#rooms.get(room) ?? []
  }

  /** Take-overs by crash, which went on from what was saved. */
  crashes(room: string): Ownership[] {
    return this.of(room).filter((ownership) => isCrash(ownership) && !ownership.startedOver)
  }

  /**
   * When a room was lost for good by nature: the store had lost its data, and the owner that could have written it again had a fault of its own.
   * It is no longer taken for the owner once the store has been back without the room for a lease, if not before.
   */
  losses(room: string): Ownership[] {
    return this.of(room)
      .filter((ownership) => ownership.startedOver && this.isLoss(ownership))
      .map((ownership) => {
        const { claim, holder, outage = claim.began } = ownership
        const goneAt = (this.#wiped(holder!, claim)?.until ?? 0) + this.#leaseMs
        return { ...ownership, outage: Math.min(outage, goneAt) }
      })
  }

  isLoss({ claim, holder }: Ownership): boolean {
    if (!holder || holder.node === claim.node) return false
    const wiped = this.#wiped(holder, claim)
    return (
      wiped !== undefined &&
      this.#faults.some(
        (fault) =>
          fault.node === holder.node &&
          fault.kind !== 'clock' &&
          fault.at <= claim.ended &&
          this.#end(fault, holder.node) >= wiped.at,
      )
    )
  }

  /**
   * When a room that its own owner wrote again had been taken for gone: the store had been back without it for a lease, through all of which
   * faults of its own kept the owner away. `kept`: its owner claims it for that; of one that is kept nowhere it only says that it has it.
   */
  takenForGone(room: string, kept: boolean): { readonly since: number; readonly until: number }[] {
    const gone = (node: string, wiped: Fault | undefined, until?: number) => {
      const since = (wiped?.until ?? 0) + this.#leaseMs
      const own = this.#outagesOf(node).filter((fault) => fault.node !== undefined)
      const away = wiped ? lasting(own, wiped.until, 0) : 0
      return away >= since ? [{ since, until: until ?? away }] : []
    }
    return this.of(room).flatMap(({ claim, holder, startedOver }, i, chain) => {
      if (kept) {
        const again = startedOver && holder?.node === claim.node
        return again ? gone(claim.node, this.#wiped(holder, claim), claim.ended) : []
      }
      const next = chain[i + 1]?.claim.began ?? Number.POSITIVE_INFINITY
      const wipes = this.wipes(next).filter(({ at }) => at >= claim.ended)
      return wipes.flatMap((wiped) => gone(claim.node, wiped))
    })
  }

  #wiped(holder: StoreRecord, claim: StoreRecord): Fault | undefined {
    return this.#faults.find(
      ({ kind, at }) => kind === 'redis_lost' && at >= holder.began && at <= claim.ended,
    )
  }

  /** Since when faults had kept `node` from the store when it was no longer taken for the owner, at `at`; undefined: none had. */
  outage(node: string, at: number): number | undefined {
    const faults = this.#outagesOf(node)
    let since: number | undefined
    for (;;) {
      const earlier = faults.find((fault) =>
        since === undefined
          ? fault.at <= at && this.#isFelt(fault) && this.#end(fault, node) >= at
          : fault.at < since && fault.until + SAVED_WITHIN_MS >= since,
      )
      if (!earlier) return since
      since = earlier.at
    }
  }

  /** For how long a room of `node` stood still between two moments, because neither it nor anyone else could reach the store. */
  frozen(node: string, from: number, to: number): number {
    const still = this.#faults
      .filter((fault) => FREEZING.includes(fault.kind) && (fault.node === undefined || fault.node === node))
      .map(({ at, until }) => ({ begin: Math.max(from, at + this.#leaseMs), end: Math.min(to, until) }))
      .sort((a, b) => a.begin - b.begin)
    let frozen = 0
    let counted = from
    for (const { begin, end } of still) {
      frozen += Math.max(0, end - Math.max(begin, counted))
      counted = Math.max(counted, end)
    }
    return frozen
  }

  /** When `node` could hear of what happened at `at`: at once, or after the outages that it was in. */
  back(node: string, at: number): number {
    return lasting(this.#outagesOf(node).map(arrived), at, SAVED_WITHIN_MS)
  }

  /** When `node` has been able to work for so long since `at`, less the outages that it was in. */
  worked(node: string, at: number, ms: number): number {
    let until = at + ms
    let counted = at
    for (const fault of this.#outagesOf(node).toSorted((one, other) => one.at - other.at)) {
      const from = Math.max(fault.at, counted)
      if (from > until || fault.until <= from) continue
      until += fault.until - from
      counted = fault.until
    }
    return until
  }

  /** Until when the owner before may have gone on: one that was taken for dead and lives finds out with its next save, at the latest. */
  previousUntil({ claim, previous }: Ownership): number {
    const lives =
      previous &&
      !this.#faults.some(
        ({ kind, node, at }) => kind === 'kill' && node === previous.node && at <= claim.ended,
      )
    return lives ? this.back(previous.node, claim.ended) + FOUND_OUT_WITHIN_MS : claim.ended
  }

  /** When the store lost its data, up to a moment. */
  wipes(before: number): Fault[] {
    return this.#faults.filter(({ kind, at }) => kind === 'redis_lost' && at <= before)
  }

  /** When a client took its session up twice, not longer ago than that. */
  raced(client: string, at: number, withinMs: number): Fault | undefined {
    return this.#faults.find(
      (fault) =>
        fault.kind === 'race' &&
        fault.at <= at &&
        fault.at + withinMs >= at &&
        fault.clients?.includes(client),
    )
  }

  #outagesOf(node: string): Fault[] {
    return this.#faults.filter(
      (fault) => OUTAGES.includes(fault.kind) && (fault.node === undefined || fault.node === node),
    )
  }

  #isFelt({ kind, at, until }: Fault): boolean {
    return kind !== 'stall' || until - at >= STALL_LEASES * this.#leaseMs
  }

  /** Until when a fault costs a node its rooms: a process that was killed never comes back, the next in its place is another node. */
  #end(fault: Fault, node: string): number {
    if (fault.kind === 'kill' && fault.node === node) return Number.POSITIVE_INFINITY
    return fault.until + DETECTED_LEASES * this.#leaseMs
  }
}

/** A delay, until the last message that it delays has arrived. */
const arrived = (fault: Fault): Fault =>
  fault.kind === 'delay' ? { ...fault, until: fault.until + Number.parseInt(fault.amount ?? '0', 10) } : fault

/** Until when faults last that were there at `at`, with others no further than `apart_ms` behind them. */
function lasting(faults: readonly Fault[], at: number, apartMs: number): number {
  let until = at
  for (;;) {
    const next = faults.find((fault) => fault.at <= until + apartMs && fault.until > until)
    if (!next) return until
    until = next.until
  }
}

/** What excuses a member that sees something go which a promise would otherwise keep. */
const EXCUSES = {
  take_over: 'a snapshot room went to another owner after a crash',
  room_ended:
    'a room that is kept nowhere ended with its owner: in a crash, or in a drain without a successor',
  store_lost: 'the store lost its data while the owner was away',
  session_lost: 'the store lost its data with the session in it',
  race: 'the client itself took its session up twice',
  no_seat: 'a session without a seat ended with its connection, told of it or not',
} as const

type Excuse = keyof typeof EXCUSES
const NAMES = Object.keys(EXCUSES) as Excuse[]

/** Members hear so long after the fact that a seat is gone, or that a session is, or so long after they came back, while their node can work. */
const NOTICED_WITHIN_MS = 3000
/** A node that cannot be reached for a while hears late that a session is elsewhere. */
const TAKEN_OVER_WITHIN_MS = 8000

/** A member of a room, since it joined. */
export interface Seated {
  readonly room: string
  readonly member: string
  readonly joined_at: number
  /** Under which the member was last seen; 0: not known. */
  readonly epoch: number
}

/** A connection that was closed. */
export interface Closed {
  readonly code: number
  readonly client: string
  readonly session: string
  /** Whether the session had a seat, as far as nothing explains that its room knows nothing of it. */
  readonly seated: boolean
  /** The client had another connection in its place. */
  readonly superseded: boolean
}

/** An op that is applied no more. */
interface LostOp {
  readonly ref: number
  /** When it was sent first. */
  readonly at: number
}

/** The epochs between which something went: 0 and Infinity where a client library tells none. */
interface Epochs {
  /** Under which it was last seen. */
  readonly known: number
  /** Under which it is not there any more. */
  readonly epoch: number
}

/** Which losses the faults of a run explain. An excuse names one take-over, loss or race, and covers nothing that came before or long after it. */
export class Excuses {
  readonly #ownerships: Ownerships
  readonly #durability: ReadonlyMap<string, Durability>

  /** By session, its records as they were written. */
  readonly #written = new Map<string, SessionWrite[]>()
  /** By client, when it came to a node, and when it had a session there. */
  readonly #arrivals = new Map<string, number[]>()
  /** By client, when it had a session, and when it asked for one again. */
  readonly #resumes = new Map<string, { readonly at: number; readonly kind: 'welcome' | 'resuming' }[]>()

  constructor(
    { rooms, sessions, clients }: Pick<History, 'rooms' | 'sessions' | 'clients'>,
    ownerships: Ownerships,
  ) {
    for (const write of sessions) push(this.#written, write.session, write)
    for (const { client, at, kind } of clients) {
      if (kind === 'connected' || kind === 'welcome') push(this.#arrivals, client, at)
      if (kind === 'welcome' || kind === 'resuming') push(this.#resumes, client, { at, kind })
    }
    this.#ownerships = ownerships
    this.#durability = new Map(rooms.map(({ room, durability }) => [room, durability]))
  }

  /** A whole state of a later epoch that is older than what the member had: not older than what the new owner found. */
  rollback(
    room: string,
    knownEpoch: number,
    { epoch, seq }: { epoch: number; seq: number },
  ): Excuse | undefined {
    const between = isBetween({ known: knownEpoch, epoch })
    if (this.#ownerships.losses(room).some(between)) return 'store_lost'
    if (this.#durability.get(room) !== 'snapshot') return undefined
    const crash = this.#ownerships.crashes(room).find(between)
    return crash && seq >= (crash.base?.content?.seq ?? 0) ? 'take_over' : undefined
  }

  /** Ops that are applied no more at `at`: the owner before the take-over had them, while it could go on, and the new one did not find them. */
  ops(
    { room, member }: Pick<Seated, 'room' | 'member'>,
    lost: readonly LostOp[],
    epochs: Epochs,
    at: number,
  ): Excuse | undefined {
    const between = isBetween(epochs)
    const before = (ownership: Ownership) => {
      const until = this.#ownerships.previousUntil(ownership)
      return (
        between(ownership) && ownership.claim.ended <= at && lost.every(({ at: sentAt }) => sentAt <= until)
      )
    }
    if (this.#ownerships.losses(room).some(before)) return 'store_lost'
    if (this.#durability.get(room) !== 'snapshot') return undefined
    const crash = this.#ownerships
      .crashes(room)
      .find(
        (ownership) =>
          before(ownership) && lost.every(({ ref }) => ref > (appliedOf(ownership, member) ?? 0)),
      )
    return crash && 'take_over'
  }

  /**
   * A member whose client is at the node `edge` is told that it has no seat. One that was away then is told when it has come back: to the last
   * node that it came to, since those before may have heard nothing themselves.
   */
  seat(seat: Seated, { client, edge }: { client: string; edge: string }, at: number): Excuse | undefined {
    const cameBack = (ended: number) =>
      this.#arrivals.get(client)?.findLast((begun) => begun >= ended && begun <= at) ?? 0
    const noticed = (ended: number) => {
      const from = Math.max(this.#ownerships.back(edge, ended), cameBack(ended))
      return this.#ownerships.worked(edge, from, NOTICED_WITHIN_MS)
    }
    const goneThen = ({ since, until }: { since: number; until: number }) =>
      seat.joined_at <= until && since <= at && at <= noticed(until)
    const kept = this.#durability.get(seat.room) !== 'none'
    if (this.#ownerships.takenForGone(seat.room, kept).some(goneThen)) return 'store_lost'
    return this.#forgets(seat, at, noticed)
  }

  /** The room knows nothing of a member, at any time after it forgot it. */
  forgotten(seat: Seated, at: number): Excuse | undefined {
    return this.#forgets(seat, at, () => Number.POSITIVE_INFINITY)
  }

  #forgets(
    { room, member, joined_at: joinedAt, epoch }: Seated,
    at: number,
    noticed: (ended: number) => number,
  ): Excuse | undefined {
    // Members may be told that the room is gone before the next owner has it.
    const lostThen = (ownership: Ownership) => {
      const { claim, outage = claim.began } = ownership
      // A client that came to an owner that was replaced and did not know it yet.
      const late = epoch > 0 && epoch < claim.epoch
      const until = late ? Math.max(claim.ended, this.#ownerships.previousUntil(ownership)) : claim.ended
      return joinedAt <= until && outage <= at && at <= noticed(until)
    }
    if (this.#ownerships.losses(room).some(lostThen)) return 'store_lost'
    switch (this.#durability.get(room)) {
      case 'snapshot':
        return this.#ownerships
          .crashes(room)
          .some((crash) => lostThen(crash) && appliedOf(crash, member) === undefined)
          ? 'take_over'
          : undefined
      case 'none':
        return this.#ownerships.of(room).some((next) => isCrash(next) && lostThen(next))
          ? 'room_ended'
          : undefined
      default:
        return undefined
    }
  }

  /** A connection that was closed so that its session is over. */
  close({ code, client, session, seated, superseded }: Closed, at: number): Excuse | undefined {
    const race = this.#ownerships.raced(client, at, TAKEN_OVER_WITHIN_MS)
    if (code === CLOSE.session_taken_over) return race && 'race'
    if (code !== CLOSE.resume_failed) return undefined
    if (superseded && race && this.#resumedAgain(client, race.at, at)) return 'race'
    if (!seated) return 'no_seat'
    return this.#ownerships.wipes(at).some((wipe) => this.#isLost(client, session, wipe, at))
      ? 'session_lost'
      : undefined
  }

  /** Whether a client that raced came back with the token it had won: that of the race is older than the last used one by now. */
  #resumedAgain(client: string, racedAt: number, at: number): boolean {
    const resumes = (this.#resumes.get(client) ?? []).filter((r) => r.at >= racedAt && r.at <= at)
    const won = resumes.findIndex(({ kind }) => kind === 'welcome')
    return won >= 0 && resumes.slice(won).some(({ kind }) => kind === 'resuming')
  }

  /** Whether no one who knew of a session's last resume had written it down since the store lost its data when its client asked for it. */
  #isLost(client: string, session: string, { until }: Fault, at: number): boolean {
    const written = this.#written.get(session) ?? []
    const turns = written.filter((write) => write.at <= until).map(({ turn }) => turn)
    if (turns.length === 0) return false
    const last = Math.max(...turns)
    const asked = this.#resumes.get(client)?.findLast((r) => r.at <= at)
    const read = asked?.kind === 'resuming' ? asked.at : at
    return !written.some((write) => write.turn >= last && write.at > until && write.at <= read)
  }
}

function push<T>(lists: Map<string, T[]>, key: string, item: T): void {
  const list = lists.get(key)
  if (list) list.push(item)
  else lists.set(key, [item])
}

const isBetween =
  ({ known, epoch }: Epochs) =>
  ({ claim }: Ownership): boolean =>
    known < claim.epoch && claim.epoch <= epoch

/** The ref of the member's last op in what a new owner found; undefined: it found no such member. */
const appliedOf = ({ base }: Ownership, member: string): number | undefined => base?.content?.applied[member]

/** How much of a history an excuse would have covered. */
export interface ExcusedShare {
  /** Pairs of records of one client, one behind the other. */
  readonly pairs: number
  /** Pairs between which something could have gone that the checker would not have reported. */
  readonly excused: number
  readonly by: { readonly [E in Excuse]: number }
}

/** Of several histories together. */
export function sumOf(shares: readonly ExcusedShare[]): ExcusedShare {
  const total = (of: (share: ExcusedShare) => number) => shares.reduce((sum, share) => sum + of(share), 0)
  const by = Object.fromEntries(NAMES.map((name) => [name, total((share) => share.by[name])]))
  return {
    pairs: total(({ pairs }) => pairs),
    excused: total(({ excused }) => excused),
    by: by as ExcusedShare['by'],
  }
}

/** For people, line by line. */
export const describeExcused = ({ pairs, excused, by }: ExcusedShare): string[] => [
  `of ${pairs} pairs of records of one client, one behind the other, ${percent(excused, pairs)} could have hidden a loss:`,
  ...NAMES.map((name) => `  ${percent(by[name], pairs).padStart(6)}  ${name}: ${EXCUSES[name]}`),
]

export const percent = (part: number, whole: number): string =>
  `${((100 * part) / Math.max(1, whole)).toFixed(1)} %`

/** Asks of every two records of each client, one behind the other, what could have gone between them without being reported. */
export function excusedShare(
  { clients, rooms }: History,
  ownerships: Ownerships,
  excuses: Excuses,
): ExcusedShare {
  const durability = new Map(rooms.map(({ room, durability }) => [room, durability]))
  const by: Record<Excuse, number> = {
    take_over: 0,
    room_ended: 0,
    store_lost: 0,
    session_lost: 0,
    race: 0,
    no_seat: 0,
  }
  const seen = new Map<string, { readonly at: number; readonly known: Known }>()
  let pairs = 0
  let excused = 0
  for (const record of clients) {
    const { client, at } = record
    const before = seen.get(client)
    const known = learn(before?.known ?? NOTHING_KNOWN, record)
    seen.set(client, { at, known })
    if (!before) continue
    pairs += 1
    const found = new Set<Excuse | undefined>()
    const { session, seat: seatBefore } = before.known
    const connection = { client, session, seated: seatBefore !== undefined, superseded: false }
    for (const code of [CLOSE.session_taken_over, CLOSE.resume_failed])
      found.add(excuses.close({ code, ...connection }, at))
    const { seat, edge } = known
    if (seat) {
      const epoch = seatBefore?.epoch ?? 0
      found.add(excuses.seat({ ...seat, epoch }, { client, edge }, at))
      if (record.kind === 'frame' && epoch > 0) found.add(excuses.rollback(seat.room, epoch, record))
      if (record.kind === 'view' && durability.get(seat.room) === 'snapshot')
        if (ownerships.crashes(seat.room).some(({ claim }) => claim.ended >= before.at && claim.ended <= at))
          found.add('take_over')
    }
    found.delete(undefined)
    for (const excuse of found) if (excuse) by[excuse] += 1
    if (found.size > 0) excused += 1
  }
  return { pairs, excused, by }
}

/** What a client has said of itself. */
export interface Known {
  readonly session: string
  /** The node that it was at last. */
  readonly edge: string
  readonly seat: Seated | undefined
}

export const NOTHING_KNOWN: Known = { session: '', edge: '', seat: undefined }

/** What is known of a client with one more record of it. */
export function learn(known: Known, record: ClientRecord): Known {
  const { seat } = known
  switch (record.kind) {
    case 'connected':
      return { ...known, edge: record.node }
    case 'welcome':
      return { ...known, session: record.session, edge: record.node }
    case 'joined':
      return { ...known, seat: { room: record.room, member: record.member, joined_at: record.at, epoch: 0 } }
    case 'frame':
      return seat ? { ...known, seat: { ...seat, epoch: record.epoch } } : known
    case 'lost':
      return { ...known, seat: undefined }
    default:
      return known
  }
}
