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

/** Faults that keep a node from its rooms while they last. */
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
/** Faults in which an owner stops when its lease has expired. A stall is a time without answers of the store. */
const FREEZING: readonly FaultKind[] = [
  'pause',
  'blackhole',
  'redis_kept',
  'redis_lost',
  'redis_pause',
  'stall',
]
/** Maximum number of leases after the end of a fault within which a node can lose its rooms: for one, no node is judged dead, and the room may be claimed at the second attempt. */
export const DETECTED_LEASES = 2.5
/** Part of a lease. A node loses no room in a shorter stall. */
const STALL_LEASES = 0.5
/** Maximum time between outages that count as one: the owner may not have saved between them. */
const SAVED_WITHIN_MS = 1000
/** A snapshot room saves within 1 s of a change. The rest is for a busy machine. */
const FOUND_OUT_WITHIN_MS = 1500

/** A claim of a room that succeeded, with what led to it. */
export interface Ownership {
  readonly claim: StoreRecord
  readonly previous: StoreRecord | undefined
  /** Last owner before with the content of the room. An owner that claimed the lost room as a new one has none. */
  readonly holder: StoreRecord | undefined
  /** The owner before had released the room for the next. */
  readonly handed_over: boolean
  /** True: the store had lost the room. */
  readonly startedOver: boolean
  /** Last write before the claim, from which the new owner continues. */
  readonly base: StoreRecord | undefined
  /** Time since which faults explain that the owner before lost the room. Undefined: no fault explains it. */
  readonly outage: number | undefined
}

/** True if the owner before had not released the room for the next, and faults explain that it lost the room. */
export const isCrash = ({ previous, handed_over: handedOver, outage }: Ownership): boolean =>
  previous !== undefined && !handedOver && outage !== undefined

/** Place of a process in the cluster, which its successors take: `node1` of `node1.2`. */
const placeOf = (node: string): string => node.split('.', 1)[0]!

/** Owners of all rooms, and the faults that explain each change. */
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

  /** True if a node ended a room because it drained while all others were draining, down, or suspended or cut off for a lease. A room that is kept nowhere then ends. */
  #hasNoSuccessor({ node, began, forget = false }: StoreRecord): boolean {
    const isGone = (place: string, kinds: readonly FaultKind[], afterMs = 0): boolean =>
      this.#faults.some(
        (fault) =>
          fault.node !== undefined &&
          placeOf(fault.node) === place &&
          kinds.includes(fault.kind) &&
          fault.at + afterMs <= began &&
          began <= fault.until + DETECTED_LEASES * this.#leaseMs,
      )
    const own = placeOf(node)
    return (
      forget &&
      isGone(own, ['drain']) &&
      [...this.#places].every(
        (place) =>
          place === own ||
          isGone(place, ['drain', 'kill']) ||
          isGone(place, ['pause', 'blackhole'], this.#leaseMs),
      )
    )
  }

  /** Time since which faults kept `previous` from the store when it lost the room to `claim`, or to an earlier claim without an answer. */
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

  /** Takeovers after a crash, which continued from the last save. */
  crashes(room: string): Ownership[] {
    return this.of(room).filter((ownership) => isCrash(ownership) && !ownership.startedOver)
  }

  /**
   * Losses of a room that are right: the store had lost its data, and the owner that could have written the room again had a fault. Other nodes
   * may consider the room gone when the store has been back without it for a lease, or earlier.
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
   * Times in which nodes may have considered a room gone that its owner then wrote again: the store was back without the room for a lease, and
   * faults kept the owner away for all of it. `kept`: the room is stored, so the owner claims it to write it. For other rooms, the owner only
   * announces that it has the room.
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

  /** Time since which faults kept `node` from the store until `at`. Undefined: no fault did. */
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

  /** Milliseconds between two times in which a room of `node` stood still, because its node could not reach the store. */
  frozen(node: string, from: number, to: number): number {
    const still = freezing(this.#faults, this.#leaseMs)
      .filter((fault) => fault.node === undefined || fault.node === node)
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

  /** Time at which `node` could receive news of an event at `at`: after the outages that it was in. */
  back(node: string, at: number): number {
    return lasting(this.#outagesOf(node).map(arrived), at, SAVED_WITHIN_MS)
  }

  /** Time at which `node` has worked for `ms` since `at`, without the outages that it was in. */
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

  /** Time until which the owner before may have continued. If it lives, it finds out with its next save. */
  previousUntil({ claim, previous }: Ownership): number {
    const lives =
      previous &&
      !this.#faults.some(
        ({ kind, node, at }) => kind === 'kill' && node === previous.node && at <= claim.ended,
      )
    return lives ? this.back(previous.node, claim.ended) + FOUND_OUT_WITHIN_MS : claim.ended
  }

  /** Losses of the store's data up to `before`. */
  wipes(before: number): Fault[] {
    return this.#faults.filter(({ kind, at }) => kind === 'redis_lost' && at <= before)
  }

  /** Returns the last fault within `withinMs` in which a client resumed its session twice. */
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

  /** Time until which a node may lose rooms for a fault. A killed process never returns: its successor is another node. */
  #end(fault: Fault, node: string): number {
    if (fault.kind === 'kill' && fault.node === node) return Number.POSITIVE_INFINITY
    return fault.until + DETECTED_LEASES * this.#leaseMs
  }
}

/** Milliseconds by which a fault delays each message. */
const delayOf = ({ kind, amount }: Fault): number =>
  kind === 'delay' ? Number.parseInt(amount ?? '0', 10) : 0

/** Extends a delay until the last delayed message has arrived. */
const arrived = (fault: Fault): Fault => ({ ...fault, until: fault.until + delayOf(fault) })

/** Faults in which an owner stops when its lease has expired: outages, and delays that are as long as the lease. */
export const freezing = (faults: readonly Fault[], leaseMs: number): Fault[] =>
  faults.filter((fault) => FREEZING.includes(fault.kind) || delayOf(fault) >= leaseMs).map(arrived)

/** Time until which faults at `at` last, together with faults that begin within `apartMs` after them. */
function lasting(faults: readonly Fault[], at: number, apartMs: number): number {
  let until = at
  for (;;) {
    const next = faults.find((fault) => fault.at <= until + apartMs && fault.until > until)
    if (!next) return until
    until = next.until
  }
}

/** Causes that excuse a loss at a member. */
const EXCUSES = {
  take_over: 'another node took a snapshot room over after a crash',
  room_ended:
    'a room that is kept nowhere ended with its owner: in a crash, or in a drain without a successor',
  store_lost: 'the store lost its data while the owner was away',
  session_lost: 'the store lost its data with the session in it',
  race: 'the client resumed its session twice',
  no_seat: 'a session without a seat ended with its connection',
} as const

type Excuse = keyof typeof EXCUSES
const NAMES = Object.keys(EXCUSES) as Excuse[]

/**
 * Time within which members are notified of the end of a seat or session, or after which they return, while their node works. An edge repeats a
 * question about a seat after 2 s, in a sweep that runs once a second. The rest is for a busy machine.
 */
const NOTICED_WITHIN_MS = 3500
/** Time after a loss of the store's data in which a missing room may still be written again: members are not notified that it has ended. */
const REWRITTEN_WITHIN_MS = 15_000
/** Time within which an unreachable node learns that a session has moved. */
const TAKEN_OVER_WITHIN_MS = 8000

/** A member of a room, since it joined. */
export interface Seated {
  readonly room: string
  readonly member: string
  readonly joined_at: number
  /** Epoch in which the member was last seen. 0: not known. */
  readonly epoch: number
}

/** A connection that was closed. */
export interface Closed {
  readonly code: number
  readonly client: string
  readonly session: string
  /** True if the session had a seat whose loss no fault explains. */
  readonly seated: boolean
  /** The client had replaced this connection by another. */
  readonly superseded: boolean
}

/** An op that is no longer applied. */
interface LostOp {
  readonly ref: number
  /** Time at which it was sent first. */
  readonly at: number
}

/** Epochs between which a loss occurred: 0 and Infinity if a client library does not expose them. */
interface Epochs {
  /** Epoch before the loss. */
  readonly known: number
  /** Epoch after the loss. */
  readonly epoch: number
}

/** Finds the losses that the faults of a run explain. An excuse names one takeover, loss or race, and covers nothing before it or long after it. */
export class Excuses {
  readonly #ownerships: Ownerships
  readonly #durability: ReadonlyMap<string, Durability>

  /** Writes of a session's record, by session. */
  readonly #written = new Map<string, SessionWrite[]>()
  /** Times at which a client connected to a node or was welcome there, by client. */
  readonly #arrivals = new Map<string, number[]>()
  /** Times at which a client got its session or requested it again, by client. */
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

  /** Excuses a whole state of a later epoch that is older than the member's, if it is not older than the last save. */
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

  /** Excuses ops that are no longer applied at `at`: the owner before the takeover had them while it could continue, and the new one did not find them. */
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
   * Excuses the loss of a seat of which a client at the node `edge` is notified. A client that was away is notified when it returns, by the last
   * node to which it connected: earlier nodes may not have known of the loss.
   */
  seat(seat: Seated, { client, edge }: { client: string; edge: string }, at: number): Excuse | undefined {
    const cameBack = (ended: number) =>
      this.#arrivals.get(client)?.findLast((begun) => begun >= ended && begun <= at) ?? 0
    const noticed = (ended: number) => {
      const from = Math.max(this.#ownerships.back(edge, ended), cameBack(ended))
      let until = this.#ownerships.worked(edge, from, NOTICED_WITHIN_MS)
      for (const wipe of this.#ownerships.wipes(at))
        if (wipe.until >= ended && wipe.at <= until)
          until = this.#ownerships.worked(edge, wipe.until + REWRITTEN_WITHIN_MS, NOTICED_WITHIN_MS)
      return until
    }
    const goneThen = ({ since, until }: { since: number; until: number }) =>
      seat.joined_at <= until && since <= at && at <= noticed(until)
    const kept = this.#durability.get(seat.room) !== 'none'
    if (this.#ownerships.takenForGone(seat.room, kept).some(goneThen)) return 'store_lost'
    return this.#forgets(seat, at, noticed)
  }

  /** Excuses a room that no longer knows a member, at any time after the loss. */
  forgotten(seat: Seated, at: number): Excuse | undefined {
    return this.#forgets(seat, at, () => Number.POSITIVE_INFINITY)
  }

  #forgets(
    { room, member, joined_at: joinedAt, epoch }: Seated,
    at: number,
    noticed: (ended: number) => number,
  ): Excuse | undefined {
    // Members may be notified of the loss before the next owner has the room.
    const lostThen = (ownership: Ownership) => {
      const { claim, outage = claim.began } = ownership
      // A client that joined at an owner which did not know yet that it was replaced.
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

  /** Excuses the close of a connection that ends its session. */
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

  /** True if a client resumed after a race with the token that it had won. From then on, the token of the lost connection is too old. */
  #resumedAgain(client: string, racedAt: number, at: number): boolean {
    const resumes = (this.#resumes.get(client) ?? []).filter((r) => r.at >= racedAt && r.at <= at)
    const won = resumes.findIndex(({ kind }) => kind === 'welcome')
    return won >= 0 && resumes.slice(won).some(({ kind }) => kind === 'resuming')
  }

  /** True if the client requested its session after a data loss, before a node that knew the last resume had written the record again. */
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

/** Ref of the member's last op in the save from which a new owner continued. Undefined: it has no such member. */
const appliedOf = ({ base }: Ownership, member: string): number | undefined => base?.content?.applied[member]

/** Share of a history that excuses cover. */
export interface ExcusedShare {
  /** Number of pairs of consecutive records of one client. */
  readonly pairs: number
  /** Number of pairs between which the checker would not have reported a loss. */
  readonly excused: number
  readonly by: { readonly [E in Excuse]: number }
}

/** Returns the share of several histories together. */
export function sumOf(shares: readonly ExcusedShare[]): ExcusedShare {
  const total = (of: (share: ExcusedShare) => number) => shares.reduce((sum, share) => sum + of(share), 0)
  const by = Object.fromEntries(NAMES.map((name) => [name, total((share) => share.by[name])]))
  return {
    pairs: total(({ pairs }) => pairs),
    excused: total(({ excused }) => excused),
    by: by as ExcusedShare['by'],
  }
}

/** Returns the lines of a report. */
export const describeExcused = ({ pairs, excused, by }: ExcusedShare): string[] => [
  `of ${pairs} pairs of consecutive records of one client, ${percent(excused, pairs)} could have hidden a loss:`,
  ...NAMES.map((name) => `  ${percent(by[name], pairs).padStart(6)}  ${name}: ${EXCUSES[name]}`),
]

export const percent = (part: number, whole: number): string =>
  `${((100 * part) / Math.max(1, whole)).toFixed(1)} %`

/** For each pair of consecutive records of a client, finds the excuses for a loss between them. */
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

/** State of a client, from its records. */
export interface Known {
  readonly session: string
  /** The last node of its connections. */
  readonly edge: string
  readonly seat: Seated | undefined
}

export const NOTHING_KNOWN: Known = { session: '', edge: '', seat: undefined }

/** Returns the state of a client after one more record. */
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
