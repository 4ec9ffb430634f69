import type { Clock } from '../../shared/clock.ts'
import { MAX, type Subprotocol } from '../../shared/protocol/messages.ts'
import { type Rate, RateLimit } from '../../shared/rate-limit.ts'
import { type Acknowledgement, type Farewell, type Outcome, playerOf } from '../traffic.ts'
import type { Member } from './definition-types.ts'
import { MAX_REPLY_BYTES } from './failures.ts'
import { guardedArray } from './guarded.ts'
import type { OutcomeLimits } from './limits.ts'
import { type MembershipRecord, memberFor, type OutcomesRecord } from './member.ts'

type Buckets = Map<string, RateLimit>

const NO_MEMBERSHIPS: readonly Membership[] = []

/** Number of departed players whose remaining rates are remembered. */
const DEPARTED_KEPT = 256

/** All members of one room, in the order of their joins. Counts the edges and codecs that its updates are for. */
export class Memberships {
  /** By member id. */
  readonly #memberships = new Map<string, Membership>()
  /**
   * Removed but not yet released memberships, by member id. If several sessions had the seat, this is the first, whose client knows the
   * seat.
   */
  readonly #leaving = new Map<string, Membership>()
  /** By subscription id, until the membership is released. */
  readonly #subscriptions = new Map<string, Membership>()
  readonly #sessions = new Map<string, Membership>()
  /** By sub. */
  readonly #players = new Map<string, Set<Membership>>()
  /** Number of attached members at each edge with at least one. */
  readonly #edges = new Map<string, number>()
  /** Number of members per codec. Members without a socket count, because they get missed updates after a resume. */
  readonly #codecs = new Map<Subprotocol, number>()
  /** Remaining rates, by player, or by session if the token names no player. */
  readonly #buckets = new Map<string, { readonly buckets: Buckets; memberships: number }>()
  /** Remaining rates of players that have left, the latest last. A player that joins again continues with them. */
  readonly #departed = new Map<string, Buckets>()
  #members: readonly Member[] | undefined

  get size(): number {
    return this.#memberships.size
  }

  /** True if no member can receive anything, now or after a resume. */
  get unwatched(): boolean {
    return this.#codecs.size === 0
  }

  /** Edges with attached members. */
  get edges(): IterableIterator<string> {
    return this.#edges.keys()
  }

  /** True if an attached member is at `edge`. */
  isAt(edge: string): boolean {
    return this.#edges.has(edge)
  }

  /** The edge with the most attached members. */
  get busiestEdge(): string | undefined {
    let busiest: string | undefined
    for (const [edge, members] of this.#edges)
      if (busiest === undefined || members > this.#edges.get(busiest)!) busiest = edge
    return busiest
  }

  /** Codecs of the members. */
  get codecs(): IterableIterator<Subprotocol> {
    return this.#codecs.keys()
  }

  /** The members. The array stays the same until a member joins, leaves or changes. */
  get members(): readonly Member[] {
    this.#members ??= Object.freeze(
      guardedArray([...this.#memberships.values()].map((membership) => membership.member)),
    )
    return this.#members
  }

  get(memberId: string): Membership | undefined {
    return this.#memberships.get(memberId)
  }

  /** Returns the membership of an edge's subscription. Undefined after its session has left, or has lost the seat to another session. */
  ofSubscription(subscriptionId: string): Membership | undefined {
    const membership = this.addressee(subscriptionId)
    return membership && this.has(membership) ? membership : undefined
  }

  /** As `ofSubscription`, but also while the departure is not delivered yet. */
  addressee(subscriptionId: string): Membership | undefined {
    return this.#subscriptions.get(subscriptionId)
  }

  /** False after the membership was removed. */
  has(membership: Membership): boolean {
    return this.#memberships.get(membership.member.id) === membership
  }

  /** Returns the membership whose client has the seat as of the last delivery: until a departure is delivered, the leaving session. */
  recipient(memberId: string): Membership | undefined {
    return this.#leaving.get(memberId) ?? this.#memberships.get(memberId)
  }

  ofSession(sessionId: string): Membership | undefined {
    return this.#sessions.get(sessionId)
  }

  /** Returns the memberships of a player, in the order of their sessions. */
  ofPlayer(sub: string): Iterable<Membership> {
    return this.#players.get(sub) ?? NO_MEMBERSHIPS
  }

  /**
   * Adds a membership. If another one has the same member id, the new one takes its place in the order, and the caller removes the other.
   */
  add(membership: Membership): void {
    this.#memberships.set(membership.member.id, membership)
    this.#subscriptions.set(membership.subscriptionId, membership)
    this.#sessions.set(membership.sessionId, membership)
    const { sub } = membership.member
    if (sub !== null) this.#players.set(sub, (this.#players.get(sub) ?? new Set()).add(membership))
    this.#members = undefined
    this.#shareRates(membership)
    // All members together keep no more than before, so each keeps less.
    if (sharesShrink(this.size)) for (const { refs } of this) refs.share(this.size)
    if (membership.attached) add(this.#edges, membership.edge, 1)
    add(this.#codecs, membership.codec, 1)
  }

  /** Removes a member. Its edge gets updates until `release`, because the departure itself is not delivered yet. */
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

  /** The rates have changed: every bucket starts again. */
  forgetRates(): void {
    for (const { buckets } of this.#buckets.values()) buckets.clear()
    this.#departed.clear()
  }

  /** The departure of a removed membership is delivered. */
  release(membership: Membership): void {
    const { id } = membership.member
    if (this.#leaving.get(id) === membership) this.#leaving.delete(id)
    // The session may have joined again under the same id.
    const { subscriptionId } = membership
    if (this.#subscriptions.get(subscriptionId) === membership) this.#subscriptions.delete(subscriptionId)
    if (membership.attached) add(this.#edges, membership.edge, -1)
    add(this.#codecs, membership.codec, -1)
  }

  /** The session's socket is at `edge`, with the codec `codec`. */
  attach(membership: Membership, edge: string, codec: Subprotocol): void {
    if (membership.attached) add(this.#edges, membership.edge, -1)
    add(this.#codecs, membership.codec, -1)
    membership.edge = edge
    membership.codec = codec
    membership.detachedAt = undefined
    membership.wasAskedToAttach = false
    membership.missedAfter = undefined
    add(this.#edges, edge, 1)
    add(this.#codecs, codec, 1)
  }

  /** The session has no socket since `now`. It counts as disconnected from `disconnectsAt` on. */
  detach(membership: Membership, now: number, disconnectsAt: number): void {
    if (!membership.attached) return
    add(this.#edges, membership.edge, -1)
    membership.detachedAt = now
    membership.disconnectsAt = disconnectsAt
  }

  /** Replaces what room logic sees of a member. */
  change(membership: Membership, change: Partial<Pick<Member, 'connected' | 'data'>>): void {
    membership.member = memberFor({ ...membership.member, ...change })
    this.#members = undefined
  }

  /** All memberships of one player share their buckets, also with those of an earlier stay. */
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

/** One session in one room. */
export class Membership {
  /** `Memberships.change` replaces this object. */
  member: Member
  /** The member as of the last flush. */
  flushed: Member
  readonly sessionId: string
  /** Id of the membership between edge and owner. Each session has another id, so late messages of a replaced session match no seat. */
  readonly subscriptionId: string
  readonly joinRequest: number
  edge: string
  codec: Subprotocol
  /** Number of resumes of the session when `edge` sent its first message for it. */
  resumes = 0
  /** `refs.last` as of the last flush that acks it. */
  flushedRef: number
  /** Highest ref whose update is delivered, and committed if the room type is durable. */
  committedRef: number
  /** `refs.last` when the edge was asked to send the messages after it again. */
  missedAfter: number | undefined
  readonly refs: Deduplicator
  /** True if the next update acks `refs.last`. */
  ackDue = false
  /** True if the join was delivered. */
  announced: boolean
  /** Since when the session has no socket (monotonic clock). */
  detachedAt: number | undefined
  /** True if an edge that has sent a message since then was asked to attach the member. */
  wasAskedToAttach = false
  /** When a session without a socket counts as disconnected (monotonic clock). */
  disconnectsAt = 0
  /** Seq of the last update that the member got with its own layers and events. Undefined: it got all since its last attach. */
  wholeUntil: number | undefined
  /** Remaining rate of each message type. All memberships of one player share this map, see `Memberships.add`. */
  buckets = new Map<string, RateLimit>()

  /** A new membership (`detachedAt` undefined), or one from the store. The latter is announced, and detached until its edge attaches it. */
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

  /** Name for which its rates and turns are counted. */
  get principal(): string {
    return playerOf(this.member.sub, this.sessionId)
  }

  /** True if `edge` may send for this member: it has the socket, or no edge has. */
  isServedBy(edge: string): boolean {
    return !this.attached || this.edge === edge
  }

  /** Returns true if the member may send one more `type` now, and counts it. */
  mayTake(type: string, rate: Rate, clock: Clock): boolean {
    let bucket = this.buckets.get(type)
    if (!bucket) {
      bucket = new RateLimit(clock, rate)
      this.buckets.set(type, bucket)
    }
    return bucket.take()
  }

  /** Returns the membership as of the last flush. */
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

/** Maximum number of departures that a node remembers, for all its rooms together. */
const MAX_DEPARTURES = 4096

/**
 * The latest seats that rooms of this node have ended. If a session's edge died, or the session moved to another edge, its record may still
 * name a seat that has ended. Its next message is then answered from here.
 */
export class Departures {
  readonly #clock: Clock
  readonly #keptMs: number
  /** By subscription id, the latest last. */
  readonly #departures = new Map<string, { readonly farewell: Farewell; readonly until: number }>()

  /** `keptMs`: how long a departure is kept, which is as long as a session can be resumed. */
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

  /** Returns how the seat of a subscription ended. Undefined: unknown, or too long ago. */
  of(subscriptionId: string): Farewell | undefined {
    const departure = this.#departures.get(subscriptionId)
    return departure && departure.until > this.#clock.monotonic() ? departure.farewell : undefined
  }
}

/** Up to this many members each have all bytes of the limit. In a larger room, the members share the bytes that this many would have. */
const MEMBERS_IN_FULL = 32

/** Number of members that the bytes are divided among: the next power of two, so that the share changes rarely. */
const sharers = (members: number): number => Math.max(MEMBERS_IN_FULL, 2 ** Math.ceil(Math.log2(members)))

/** True if the share of each member gets smaller with the last of `members`. */
const sharesShrink = (members: number): boolean => sharers(members) > sharers(members - 1)

/**
 * Accepts each reliable message of one member once and in order. The refs are 1, 2, 3 …. Refusals and replies are kept until the client
 * confirms them, so that an ack never hides a refusal, and no message is answered in two ways. If a client never confirms, the oldest are
 * forgotten.
 */
class Deduplicator {
  readonly #limits: OutcomeLimits
  /** By ref, ascending. */
  readonly #outcomes: Outcome[] = []
  #bytes = 0
  /** Number of replies among them. */
  #replies = 0
  #last: number
  /** Highest ref up to which the client knows all outcomes. */
  #known = 0
  #forgotten: number

  /** `last`: highest ref that was applied or refused. */
  constructor(limits: OutcomeLimits, last: number, { outcomes, forgotten }: OutcomesRecord) {
    this.#limits = limits
    this.#last = last
    this.#forgotten = forgotten
    for (const outcome of outcomes) this.keep(outcome)
  }

  /** Highest ref that was applied or refused. */
  get last(): number {
    return this.#last
  }

  /** Highest ref whose outcome was forgotten, and which the client may not know. 0: none. */
  get forgotten(): number {
    return this.#forgotten
  }

  /**
   * Messages with the refs from `from` through `through` arrive. `new`: at least the last was not accepted before; all of them are now.
   * `duplicate`: all were accepted before. `gap`: an earlier message was lost, and the edge has to send it again first.
   */
  accept(from: number, through = from): 'new' | 'duplicate' | 'gap' {
    if (through <= this.#last) return 'duplicate'
    if (from > this.#last + 1) return 'gap'
    this.#last = through
    return 'new'
  }

  /**
   * The edge cannot send messages up to `through` again: an earlier owner has handled them, and their effects were lost with it. Returns
   * true if this owner had not handled some of them.
   */
  skip(through: number): boolean {
    if (through <= this.#last) return false
    this.#last = through
    this.#forget(through)
    return true
  }

  /** Keeps the outcome of a message, whose ref is higher than all before. `members`: number of members of the room. */
  keep(outcome: Outcome, members = 1): void {
    this.#outcomes.push(outcome)
    this.#bytes += size(outcome)
    if ('reply' in outcome) this.#replies++
    this.share(members)
  }

  /**
   * Number of replies, with one more, that are not committed, or that a confirming client may not know. Their bytes and those of refusals
   * count too: as `MAX.requests` replies if they fill the share of one of `members`.
   */
  repliesWithNext(committed: number, members: number): number {
    const known = this.#known === 0 ? committed : this.#known
    const limit = this.#share(members)
    let bytes = this.#bytes + MAX_REPLY_BYTES
    let replies = this.#replies + 1
    for (const outcome of this.#outcomes) {
      const fits = replies <= MAX.requests && bytes <= limit
      if (fits || outcome.ref > known) return Math.max(replies, Math.ceil((bytes / limit) * MAX.requests))
      bytes -= size(outcome)
      if ('reply' in outcome) replies--
    }
    return replies
  }

  /** The room has `members` members: forgets the oldest outcomes beyond the share of one of them. */
  share(members: number): void {
    const { messages } = this.#limits
    const bytes = this.#share(members)
    while (this.#outcomes.length > messages || this.#bytes > bytes || this.#replies > MAX.requests)
      this.#forget(this.#drop())
  }

  #share(members: number): number {
    return (MEMBERS_IN_FULL / sharers(members)) * this.#limits.bytes
  }

  /** The outcomes of refs up to this one are no longer known. */
  #forget(ref: number): void {
    if (ref > this.#known) this.#forgotten = Math.max(this.#forgotten, ref)
  }

  /** The client knows all outcomes up to `ref`. A higher ref than the last one does not count. */
  known(ref: number): void {
    this.#known = Math.max(this.#known, Math.min(ref, this.#last))
    if (this.#forgotten <= this.#known) this.#forgotten = 0
    while (this.#outcomes.length > 0 && this.#outcomes[0]!.ref <= this.#known) this.#drop()
  }

  /** Returns the acknowledgement of refs above `after` up to `ack`, with their outcomes. */
  acknowledgement(after: number, ack: number): Acknowledgement {
    const outcomes = this.between(after, ack)
    const forgotten = Math.min(this.#forgotten, ack)
    return { ack, ...(outcomes.length > 0 && { outcomes }), ...(forgotten > after && { forgotten }) }
  }

  /** Returns the outcomes of refs above `after` up to `last`. */
  between(after: number, last: number): readonly Outcome[] {
    return this.#outcomes.length === 0 ? NONE : this.#outcomes.slice(this.#above(after), this.#above(last))
  }

  /** Returns what a record contains as of the ref `last`. */
  record(last: number): OutcomesRecord {
    return { outcomes: this.between(0, last), forgotten: Math.min(this.#forgotten, last) }
  }

  /** Drops the oldest outcome, and returns its ref. */
  #drop(): number {
    const oldest = this.#outcomes.shift()!
    this.#bytes -= size(oldest)
    if ('reply' in oldest) this.#replies--
    return oldest.ref
  }

  /** Returns the index of the first outcome with a higher ref. */
  #above(ref: number): number {
    let low = 0
    for (let high = this.#outcomes.length; low < high; ) {
      const middle = (low + high) >>> 1
      if (this.#outcomes[middle]!.ref <= ref) low = middle + 1
      else high = middle
    }
    return low
  }
}

const NONE: readonly never[] = []

/** Approximate bytes of an outcome in a record. */
const size = (outcome: Outcome): number =>
  16 +
  ('code' in outcome
    ? outcome.code.length + Buffer.byteLength(outcome.message)
    : Buffer.byteLength(JSON.stringify(outcome.reply)))
