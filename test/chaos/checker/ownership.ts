import type { Fault, FaultKind, History, StoreRecord } from './history.ts'

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
  /** The owner before had given the room up itself. */
  readonly handed_over: boolean
  /** The store knew nothing of what the room was, although an owner had written it. */
  readonly startedOver: boolean
  /** What the new owner went on from: the last write before its claim. */
  readonly base: StoreRecord | undefined
  /** Since when faults had kept the owner before from the store; undefined: none explains that it lost the room. */
  readonly outage: number | undefined
}

/** Whether the owner before had not given the room up, and faults explain that it lost it. */
export const isCrash = ({ previous, handed_over: handedOver, outage }: Ownership): boolean =>
  previous !== undefined && !handedOver && outage !== undefined

/** Who owned which room, and what the faults explain of it. */
export class Ownerships {
  readonly #faults: readonly Fault[]
  readonly #leaseMs: number
  readonly #rooms = new Map<string, Ownership[]>()

  constructor({ store, faults, rooms, run }: Pick<History, 'store' | 'faults' | 'rooms' | 'run'>) {
    this.#faults = faults
    this.#leaseMs = run.lease_ms
    for (const { room } of rooms)
      this.#rooms.set(
        room,
        this.#chain(store.filter((record) => record.room === room && record.ok !== false)),
      )
  }

  #chain(calls: readonly StoreRecord[]): Ownership[] {
    const claims = calls.filter(({ kind, ok }) => kind === 'claim' && ok).sort((a, b) => a.epoch - b.epoch)
    const unanswered = calls.filter(({ kind, ok }) => kind === 'claim' && ok === undefined)
    const released = new Set(calls.filter(({ kind }) => kind === 'release').map(({ epoch }) => epoch))
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
      const before = writes.filter(
        ({ version, epoch }) => version === claim.version - 1 && epoch >= life && epoch < claim.epoch,
      )
      return {
        claim,
        previous,
        holder,
        handed_over: previous !== undefined && released.has(previous.epoch),
        startedOver,
        base: before.find(({ ok }) => ok) ?? before[0],
        outage: previous && this.#lostBy(previous, claim, unanswered),
      }
    })
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
    return lasting(this.#outagesOf(node), at, SAVED_WITHIN_MS)
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

/** Until when faults last that were there at `at`, with others no further than `apart_ms` behind them. */
function lasting(faults: readonly Fault[], at: number, apartMs: number): number {
  let until = at
  for (;;) {
    const next = faults.find((fault) => fault.at <= until + apartMs && fault.until > until)
    if (!next) return until
    until = next.until
  }
}
