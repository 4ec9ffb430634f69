import type { Clock } from '../../shared/clock.ts'
import { MAX, type Subprotocol } from '../../shared/protocol/messages.ts'
import { type Rate, RateLimit } from '../../shared/rate-limit.ts'
import { type Acknowledgement, type Farewell, type Outcome, playerOf } from '../traffic.ts'
import type { Member } from './definition-types.ts'
import { MAX_REPLY_BYTES } from './failures.ts'
import { Entries, frozen, guarded, guardedArray } from './guarded.ts'

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
    membership.wasAskedToAttach = false
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
  /** Whether an edge that spoke for it since then was asked to attach it. */
  wasAskedToAttach = false
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

/** How much of what a client may not know yet is kept for one member. */
export interface OutcomeLimits {
  readonly messages: number
  readonly bytes: number
}

/** So many members of a room may have all the bytes there are for a member; where there are more, they share what these would have. */
const MEMBERS_IN_FULL = 32

/** How many members share the bytes where a room has so many: the next power of two, so that what each may have changes seldom. */
const sharers = (members: number): number => Math.max(MEMBERS_IN_FULL, 2 ** Math.ceil(Math.log2(members)))

/** Whether each member of a room may have less since it has so many, and not one member less. */
export const sharesShrink = (members: number): boolean => sharers(members) > sharers(members - 1)

/** What the record of a membership has of its outcomes. */
export interface OutcomesRecord {
  /** Of messages that were refused or answered, and whose client has not said that it knows; in the order of their refs. */
  readonly outcomes: readonly Outcome[]
  /** The highest ref of which it is not known any more how it ended; 0: all is known. */
  readonly forgotten: number
}

/**
 * Lets each reliable message of one member be handled once and in order: their refs are 1, 2, 3 …. A ref is settled once its message is
 * applied or refused. Refusals and replies are kept until the client has said that it knows of them, so that no ack ever passes for a refusal,
 * and no message is answered in two ways. Those of a client that never says so are forgotten, the oldest first.
 */
export class Deduplicator {
  readonly #limits: OutcomeLimits
  /** By ref, ascending. */
  readonly #outcomes: Outcome[] = []
  #bytes = 0
  /** How many of them are replies. */
  #replies = 0
  #last: number
  /** The highest ref up to which the client knows every outcome. */
  #known = 0
  #forgotten: number

  /** `last`: the highest ref that is settled. */
  constructor(limits: OutcomeLimits, last: number, { outcomes, forgotten }: OutcomesRecord) {
    this.#limits = limits
    this.#last = last
    this.#forgotten = forgotten
    for (const outcome of outcomes) this.keep(outcome)
  }

  /** The highest ref settled: applied, or answered with an error that will not change. */
  get last(): number {
    return this.#last
  }

  /** The highest ref of which it is not known any more how it ended, and whose client may not know it; 0: there is none. */
  get forgotten(): number {
    return this.#forgotten
  }

  /**
   * Messages with the refs from `from` through `through` arrive. `new`: those that were not settled before are from here on. `duplicate`: all
   * were. `gap`: one before them was lost on the way, which the edge has to send again first.
   */
  accept(from: number, through = from): 'new' | 'duplicate' | 'gap' {
    if (through <= this.#last) return 'duplicate'
    if (from > this.#last + 1) return 'gap'
    this.#last = through
    return 'new'
  }

  /**
   * The edge cannot send messages up to `through` again: an earlier owner has settled them, and what it had not written is lost with it. True:
   * some were not settled here.
   */
  skip(through: number): boolean {
    if (through <= this.#last) return false
    this.#last = through
    this.#forget(through)
    return true
  }

  /** A message was refused or answered, with a higher ref than all before; `members`: how many the room has. */
  keep(outcome: Outcome, members = 1): void {
    this.#outcomes.push(outcome)
    this.#bytes += size(outcome)
    if ('reply' in outcome) this.#replies++
    this.share(members)
  }

  /**
   * Whether one more message may be answered: without forgetting a reply that is not committed yet, or that a client which says what it knows
   * may not know. `members`: how many the room has.
   */
  mayReply(committed: number, members: number): boolean {
    const known = this.#known === 0 ? committed : this.#known
    const limit = this.#share(members)
    let bytes = this.#bytes + MAX_REPLY_BYTES
    let replies = this.#replies
    for (const outcome of this.#outcomes) {
      if (replies < MAX.requests && bytes <= limit) break
      if (outcome.ref > known) return false
      bytes -= size(outcome)
      if ('reply' in outcome) replies--
    }
    return true
  }

  /** The room has so many members: forgets the oldest of what is too much for one of them. */
  share(members: number): void {
    const { messages } = this.#limits
    const bytes = this.#share(members)
    while (this.#outcomes.length > messages || this.#bytes > bytes || this.#replies > MAX.requests)
      this.#forget(this.#drop())
  }

  #share(members: number): number {
    return (MEMBERS_IN_FULL / sharers(members)) * this.#limits.bytes
  }

  /** Nothing is known of refs up to this one. */
  #forget(ref: number): void {
    if (ref > this.#known) this.#forgotten = Math.max(this.#forgotten, ref)
  }

  /** The client knows every outcome up to `ref`; it cannot know what has not come. */
  known(ref: number): void {
    this.#known = Math.max(this.#known, Math.min(ref, this.#last))
    if (this.#forgotten <= this.#known) this.#forgotten = 0
    while (this.#outcomes.length > 0 && this.#outcomes[0]!.ref <= this.#known) this.#drop()
  }

  /** What became of refs above `after` and up to `ack`. */
  settled(after: number, ack: number): Acknowledgement {
    const outcomes = this.between(after, ack)
    const forgotten = Math.min(this.#forgotten, ack)
    return { ack, ...(outcomes.length > 0 && { outcomes }), ...(forgotten > after && { forgotten }) }
  }

  /** Outcomes of refs above `after` and up to `last`. */
  between(after: number, last: number): readonly Outcome[] {
    return this.#outcomes.length === 0 ? NONE : this.#outcomes.slice(this.#above(after), this.#above(last))
  }

  /** What a record says as of the ref `last`. */
  record(last: number): OutcomesRecord {
    return { outcomes: this.between(0, last), forgotten: Math.min(this.#forgotten, last) }
  }

  /** Drops the oldest, and returns its ref. */
  #drop(): number {
    const oldest = this.#outcomes.shift()!
    this.#bytes -= size(oldest)
    if ('reply' in oldest) this.#replies--
    return oldest.ref
  }

  /** The index of the first outcome with a higher ref. */
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

/** About what an outcome takes in a record, in bytes. */
const size = (outcome: Outcome): number =>
  16 +
  ('code' in outcome
    ? outcome.code.length + Buffer.byteLength(outcome.message)
    : Buffer.byteLength(JSON.stringify(outcome.reply)))
