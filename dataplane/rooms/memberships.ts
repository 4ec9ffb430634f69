import type { Clock } from '../../shared/clock.ts'
import type { Subprotocol } from '../../shared/protocol/messages.ts'
import { type Rate, RateLimit } from '../../shared/rate-limit.ts'
import { type Farewell, playerOf } from '../traffic.ts'
import { Deduplicator, type OutcomeLimits, type OutcomesRecord, sharesShrink } from './deduplication.ts'
import { Entries, frozen, guarded, guardedArray } from './guarded.ts'
import type { Member } from './handler-types.ts'

/** Returns the member as room code gets it. */
export const memberFor = ({ data, ...member }: Member): Member =>
  Object.freeze(Object.assign(new Entries(), { ...member, data: frozen(guarded(data)) }))

type Buckets = Map<string, RateLimit>

const NO_MEMBERSHIPS: readonly Membership[] = []

/** Of so many players who left, what they had left of their rates is remembered. */
const DEPARTED_KEPT = 256

/** All members of one room, in the order they joined; knows which edges and which codecs its updates are for. */
export class Memberships {
  /** By member id. */
  readonly #memberships = new Map<string, Membership>()
  /** Removed, but not released, by member id: of several sessions of one seat the first, whose client knows of its seat. */
  readonly #leaving = new Map<string, Membership>()
  /** By subscription id, until they are released. */
  readonly #subscriptions = new Map<string, Membership>()
  readonly #sessions = new Map<string, Membership>()
  /** By sub. */
  readonly #players = new Map<string, Set<Membership>>()
  /** How many attached members each edge has. Only what is above 0 is here. */
  readonly #edges = new Map<string, number>()
  /** How many members speak each codec, those without a socket included: they will want to be told what they missed. */
  readonly #codecs = new Map<Subprotocol, number>()
  /** What is left of their rates, by player, or session where no player is named. */
  readonly #buckets = new Map<string, { readonly buckets: Buckets; memberships: number }>()
  /** The same of those who left, the latest last: a player who comes back goes on with it. */
  readonly #departed = new Map<string, Buckets>()
  #members: readonly Member[] | undefined

  get size(): number {
    return this.#memberships.size
  }

  /** Whether no one can be told anything, now or at a resume. */
  get unwatched(): boolean {
    return this.#codecs.size === 0
  }

  /** Edges with attached members. */
  get edges(): IterableIterator<string> {
    return this.#edges.keys()
  }

  /** Whether some attached member is at `edge`. */
  isAt(edge: string): boolean {
    return this.#edges.has(edge)
  }

  /** The edge with most attached members. */
  get busiestEdge(): string | undefined {
    let busiest: string | undefined
    for (const [edge, members] of this.#edges)
      if (busiest === undefined || members > this.#edges.get(busiest)!) busiest = edge
    return busiest
  }

  /** Codecs that members speak. */
  get codecs(): IterableIterator<Subprotocol> {
    return this.#codecs.keys()
  }

  /** The same array until a member comes, goes or changes. */
  get members(): readonly Member[] {
    this.#members ??= Object.freeze(
      guardedArray([...this.#memberships.values()].map((membership) => membership.member)),
    )
    return this.#members
  }

  get(memberId: string): Membership | undefined {
    return this.#memberships.get(memberId)
  }

  /** The membership of an edge's subscription. Undefined after its session has left, or has lost the seat to another session. */
  ofSubscription(subscriptionId: string): Membership | undefined {
    const membership = this.addressee(subscriptionId)
    return membership && this.has(membership) ? membership : undefined
  }

  /** As `ofSubscription`, also while the departure is yet to be delivered. */
  addressee(subscriptionId: string): Membership | undefined {
    return this.#subscriptions.get(subscriptionId)
  }

  /** False after the membership was removed. */
  has(membership: Membership): boolean {
    return this.#memberships.get(membership.member.id) === membership
  }

  /** The membership whose client has the seat as of the last delivery: until a departure is delivered, the session that leaves. */
  recipient(memberId: string): Membership | undefined {
    return this.#leaving.get(memberId) ?? this.#memberships.get(memberId)
  }

  ofSession(sessionId: string): Membership | undefined {
    return this.#sessions.get(sessionId)
  }

  /** The memberships of a player, in the order of their sessions. */
  ofPlayer(sub: string): Iterable<Membership> {
    return this.#players.get(sub) ?? NO_MEMBERSHIPS
  }

  /** Adds a membership. One with the member id of another takes that one's place in the order; the other is to be removed then. */
  add(membership: Membership): void {
    this.#memberships.set(membership.member.id, membership)
    this.#subscriptions.set(membership.subscriptionId, membership)
    this.#sessions.set(membership.sessionId, membership)
    const { sub } = membership.member
    if (sub !== null) this.#players.set(sub, (this.#players.get(sub) ?? new Set()).add(membership))
    this.#members = undefined
    this.#shareRates(membership)
    // All together they keep no more than before, whenever each of them came.
    if (sharesShrink(this.size)) for (const { refs } of this) refs.share(this.size)
    if (membership.attached) add(this.#edges, membership.edge, 1)
    add(this.#codecs, membership.codec, 1)
  }

  /** It is a member no more. Updates still go to its edge, until `release`: the departure itself is yet to be delivered. */
  remove(membership: Membership): void {
    const { id } = membership.member
    if (this.has(membership)) this.#memberships.delete(id)
    if (!this.#leaving.has(id)) this.#leaving.set(id, membership)
    if (this.#sessions.get(membership.sessionId) === membership) this.#sessions.delete(membership.sessionId)
    const { sub } = membership.member
    const own = sub === null ? undefined : this.#players.get(sub)
    own?.delete(membership)
    if (sub !== null && own?.size === 0) this.#players.delete(sub)
    this.#members = undefined
    this.#keepRates(membership)
  }

  /** Rates have changed: every bucket starts again. */
  forgetRates(): void {
    for (const { buckets } of this.#buckets.values()) buckets.clear()
    this.#departed.clear()
  }

  /** A removed membership's departure is delivered. */
  release(membership: Membership): void {
    const { id } = membership.member
    if (this.#leaving.get(id) === membership) this.#leaving.delete(id)
    // The session may have joined again under the same id.
    const { subscriptionId } = membership
    if (this.#subscriptions.get(subscriptionId) === membership) this.#subscriptions.delete(subscriptionId)
    if (membership.attached) add(this.#edges, membership.edge, -1)
    add(this.#codecs, membership.codec, -1)
  }

  /** The session's socket is at `edge` and speaks `codec`. */
  attach(membership: Membership, edge: string, codec: Subprotocol): void {
    if (membership.attached) add(this.#edges, membership.edge, -1)
    add(this.#codecs, membership.codec, -1)
    membership.edge = edge
    membership.codec = codec
    membership.detachedAt = undefined
    membership.missedAfter = undefined
    add(this.#edges, edge, 1)
    add(this.#codecs, codec, 1)
  }

  /** The session has no socket since `now`, and counts as disconnected from `disconnectsAt` on. */
  detach(membership: Membership, now: number, disconnectsAt: number): void {
    if (!membership.attached) return
    add(this.#edges, membership.edge, -1)
    membership.detachedAt = now
    membership.disconnectsAt = disconnectsAt
  }

  /** Something that room logic sees of a member is another from now on. */
  change(membership: Membership, change: Partial<Pick<Member, 'connected' | 'data'>>): void {
    membership.member = memberFor({ ...membership.member, ...change })
    this.#members = undefined
  }

  /** All memberships of one player have the same buckets, and so has one that is taken again. */
  #shareRates(membership: Membership): void {
    const who = membership.principal
    const shared = this.#buckets.get(who) ?? {
      buckets: this.#departed.get(who) ?? membership.buckets,
      memberships: 0,
    }
    this.#departed.delete(who)
    this.#buckets.set(who, shared)
    shared.memberships += 1
    membership.buckets = shared.buckets
  }

  #keepRates(membership: Membership): void {
    const who = membership.principal
    const shared = this.#buckets.get(who)
    if (!shared || --shared.memberships > 0) return
    this.#buckets.delete(who)
    if (shared.buckets.size === 0) return
    this.#departed.set(who, shared.buckets)
    const [oldest] = this.#departed.keys()
    if (this.#departed.size > DEPARTED_KEPT && oldest !== undefined) this.#departed.delete(oldest)
  }

  [Symbol.iterator](): IterableIterator<Membership> {
    return this.#memberships.values()
  }
}

function add<K>(counts: Map<K, number>, key: K, by: number): void {
  const count = (counts.get(key) ?? 0) + by
  if (count > 0) counts.set(key, count)
  else counts.delete(key)
}

/** What is known of a membership beyond its life in this process: what an update and a snapshot record of it. */
export interface MembershipRecord extends OutcomesRecord {
  readonly member: Member
  readonly sessionId: string
  /** Id of the edge's subscription, if it differs from the member's id: the session has taken the seat over from another session. */
  readonly subscriptionId?: string | undefined
  /** The request id of the join, which answers the same join sent again. */
  readonly joinRequest: number
  /** The node that holds, or last held, the socket. */
  readonly edge: string
  readonly codec: Subprotocol
  /** The highest ref settled: applied, or answered with an error that will not change. */
  readonly lastRef: number
}

/** One session in one room. */
export class Membership {
  /** Another object whenever something of it changes; see `Memberships.change`. */
  member: Member
  /** The member as of the last flush. */
  flushed: Member
  readonly sessionId: string
  /** Name of the membership between edge and owner. Each session has another one, so that late messages of a replaced session match no seat. */
  readonly subscriptionId: string
  readonly joinRequest: number
  edge: string
  codec: Subprotocol
  /** How often the session had been resumed when `edge` spoke for it first. */
  resumes = 0
  /** `refs.last` as of the last flush that acks it. */
  flushedRef: number
  /** The highest ref whose update is delivered (and committed, where the room type is durable). */
  committedRef: number
  /** `refs.last` when the edge was asked to give again what came after it. */
  missedAfter: number | undefined
  readonly refs: Deduplicator
  /** Whether `refs.last` is to be acked with the next update. */
  ackDue = false
  /** Whether the join was delivered. */
  announced: boolean
  /** Since when the session has no socket, on the monotonic clock. */
  detachedAt: number | undefined
  /** Without a socket: from when on it counts as disconnected. */
  disconnectsAt = 0
  /** Seq of the last update that was sent with its own parts; undefined: all are, since it was attached last. */
  wholeUntil: number | undefined
  /** What is left of the rate of each message type; the same for all memberships of one player, see `Memberships.add`. */
  buckets = new Map<string, RateLimit>()

  /**
   * A membership taken now (`detachedAt` undefined), or found in the store: `announced`, and detached until its edge says otherwise, or it
   * counts as disconnected.
   */
  constructor(record: MembershipRecord, limits: OutcomeLimits, detachedAt?: number, disconnectsAt = 0) {
    this.member = record.member
    this.flushed = record.member
    this.sessionId = record.sessionId
    this.subscriptionId = record.subscriptionId ?? record.member.id
    this.joinRequest = record.joinRequest
    this.edge = record.edge
    this.codec = record.codec
    this.flushedRef = record.lastRef
    this.committedRef = record.lastRef
    this.refs = new Deduplicator(limits, record.lastRef, record)
    this.announced = detachedAt !== undefined
    this.detachedAt = detachedAt
    this.disconnectsAt = disconnectsAt
  }

  get attached(): boolean {
    return this.detachedAt === undefined
  }

  /** Whom its rates and turns are counted for. */
  get principal(): string {
    return playerOf(this.member.sub, this.sessionId)
  }

  /** Whether `edge` speaks for this member: it has the socket, or no edge is known to. */
  isServedBy(edge: string): boolean {
    return !this.attached || this.edge === edge
  }

  /** Whether this member may send one more `type`. */
  mayTake(type: string, rate: Rate, clock: Clock): boolean {
    let bucket = this.buckets.get(type)
    if (!bucket) {
      bucket = new RateLimit(clock, rate)
      this.buckets.set(type, bucket)
    }
    return bucket.take()
  }

  /** The membership as of the last flush. */
  record(): MembershipRecord {
    const { flushed, sessionId, subscriptionId, joinRequest, edge, codec, flushedRef, refs } = this
    return {
      member: flushed,
      sessionId,
      ...(subscriptionId !== flushed.id && { subscriptionId }),
      joinRequest,
      edge,
      codec,
      lastRef: flushedRef,
      ...refs.record(flushedRef),
    }
  }
}

/** Maximum number of departures that a node remembers, of all its rooms together. */
const MAX_DEPARTURES = 4096

/**
 * Memory of the seats that rooms of this node have ended, the latest ones. A session whose edge died, or that was on its way to another
 * edge, comes back and asks for a seat of which its record does not know that it has ended.
 */
export class Departures {
  readonly #clock: Clock
  readonly #keptMs: number
  /** By subscription id, the latest last. */
  readonly #departures = new Map<string, { readonly farewell: Farewell; readonly until: number }>()

  /** Keeps each for `keptMs`: for as long as a session may be resumed. */
  constructor(clock: Clock, keptMs: number) {
    this.#clock = clock
    this.#keptMs = keptMs
  }

  add(subscriptionId: string, farewell: Farewell): void {
    const now = this.#clock.monotonic()
    this.#departures.set(subscriptionId, { farewell, until: now + this.#keptMs })
    for (const [oldest, { until }] of this.#departures) {
      if (until > now && this.#departures.size <= MAX_DEPARTURES) break
      this.#departures.delete(oldest)
    }
  }

  /** What a member was told when its seat ended; undefined: unknown, or too long ago. */
  of(subscriptionId: string): Farewell | undefined {
    const departure = this.#departures.get(subscriptionId)
    return departure && departure.until > this.#clock.monotonic() ? departure.farewell : undefined
  }
}
