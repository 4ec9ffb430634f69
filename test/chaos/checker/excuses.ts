import { CLOSE } from '../../../shared/protocol/error-codes.ts'
import type { ClientRecord, Durability, Fault, History, SessionWrite } from './history.ts'
import { isCrash, type Ownership, type Ownerships } from './ownership.ts'

/** What excuses a member that sees something go which a promise would otherwise keep. */
const EXCUSES = {
  take_over: 'a snapshot room went to another owner after a crash',
  room_ended: 'a room that is kept nowhere ended with its owner',
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
