import type { Json } from '../../shared/json.ts'
import type { Subprotocol } from '../../shared/protocol/messages.ts'
import { playerOf } from '../traffic.ts'
import type { Member } from './definition-types.ts'
import type { OutcomeLimits } from './limits.ts'
import { frozenMember, type MembershipRecord, memberFor } from './member.ts'
import { Deduplicator, sharesShrink } from './refs.ts'
import type { RoomTurn } from './room-code.ts'

const NO_MEMBERSHIPS: readonly Membership[] = []

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
  readonly #bySub = new Map<string, Set<Membership>>()
  readonly #edges = new Map<string, number>()
  readonly #codecs = new Map<Subprotocol, number>()
  /** Number of attached members at each edge with at least one. */
  readonly edges: ReadonlyMap<string, number> = this.#edges
  /** Number of members per codec. Members without a socket count, because they get missed updates after a resume. */
  readonly codecs: ReadonlyMap<Subprotocol, number> = this.#codecs
  #members: readonly Member[] | undefined
  #players: readonly Member[] | undefined
  #spectators: readonly Member[] | undefined
  #spectatorCount = 0

  get size(): number {
    return this.#memberships.size
  }

  get playerCount(): number {
    return this.size - this.#spectatorCount
  }

  get spectatorCount(): number {
    return this.#spectatorCount
  }

  /** The members. The array stays the same until a member joins, leaves or changes. */
  get members(): readonly Member[] {
    this.#members ??= this.#list(() => true)
    return this.#members
  }

  /** The players. The array stays the same until a player joins, leaves or changes. */
  get players(): readonly Member[] {
    this.#players ??= this.#spectatorCount === 0 ? this.members : this.#list(({ spectator }) => !spectator)
    return this.#players
  }

  /** The spectators. The array stays the same until a spectator joins, leaves or changes. */
  get spectators(): readonly Member[] {
    this.#spectators ??= this.#list(({ spectator }) => spectator)
    return this.#spectators
  }

  #list(has: (member: Member) => boolean): readonly Member[] {
    const members: Member[] = []
    for (const { member } of this.#memberships.values()) if (has(member)) members.push(member)
    return Object.freeze(members)
  }

  /** A member is another one now, or has come or gone. */
  #changed({ spectator }: Member): void {
    this.#members = undefined
    if (spectator) this.#spectators = undefined
    else this.#players = undefined
  }

  get(memberId: string): Membership | undefined {
    return this.#memberships.get(memberId)
  }

  /** Returns the membership of an edge's subscription. Undefined after its session has left, or has lost the seat to another session. */
  ofSubscription(subscriptionId: string): Membership | undefined {
    const membership = this.addressee(subscriptionId)
    return membership?.present ? membership : undefined
  }

  /** As `ofSubscription`, but also while the departure is not delivered yet. */
  addressee(subscriptionId: string): Membership | undefined {
    return this.#subscriptions.get(subscriptionId)
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
    return this.#bySub.get(sub) ?? NO_MEMBERSHIPS
  }

  /**
   * Adds a membership. If another one has the same member id, the new one takes its place in the order, and the caller removes the other.
   */
  add(membership: Membership): void {
    setPresent(membership, true)
    this.#memberships.set(membership.member.id, membership)
    this.#subscriptions.set(membership.subscriptionId, membership)
    this.#sessions.set(membership.sessionId, membership)
    const { sub } = membership.member
    if (sub !== null) this.#bySub.set(sub, (this.#bySub.get(sub) ?? new Set()).add(membership))
    if (membership.member.spectator) this.#spectatorCount++
    this.#changed(membership.member)
    // All members together keep no more than before, so each keeps less.
    if (sharesShrink(this.size)) for (const { refs } of this) refs.share(this.size)
    if (!membership.detached) add(this.#edges, membership.edge, 1)
    add(this.#codecs, membership.codec, 1)
  }

  /** Removes a member. Its edge gets updates until `release`, because the departure itself is not delivered yet. */
  remove(membership: Membership): void {
    const { id } = membership.member
    setPresent(membership, false)
    if (this.#memberships.get(id) === membership) this.#memberships.delete(id)
    if (!this.#leaving.has(id)) this.#leaving.set(id, membership)
    if (this.#sessions.get(membership.sessionId) === membership) this.#sessions.delete(membership.sessionId)
    const { sub } = membership.member
    const own = sub === null ? undefined : this.#bySub.get(sub)
    own?.delete(membership)
    if (sub !== null && own?.size === 0) this.#bySub.delete(sub)
    if (membership.member.spectator) this.#spectatorCount--
    this.#changed(membership.member)
  }

  /** The departure of a removed membership is delivered. */
  release(membership: Membership): void {
    const { id } = membership.member
    if (this.#leaving.get(id) === membership) this.#leaving.delete(id)
    // The session may have joined again under the same id.
    const { subscriptionId } = membership
    if (this.#subscriptions.get(subscriptionId) === membership) this.#subscriptions.delete(subscriptionId)
    if (!membership.detached) add(this.#edges, membership.edge, -1)
    add(this.#codecs, membership.codec, -1)
  }

  /** The session's socket is at `edge`, with the codec `codec`. */
  attach(membership: Membership, edge: string, codec: Subprotocol): void {
    if (!membership.detached) add(this.#edges, membership.edge, -1)
    add(this.#codecs, membership.codec, -1)
    membership.edge = edge
    membership.codec = codec
    membership.detached = undefined
    membership.refs.reattached()
    add(this.#edges, edge, 1)
    add(this.#codecs, codec, 1)
  }

  /** The session has no socket since `now`. It counts as disconnected from `disconnectsAt` on. */
  detach(membership: Membership, now: number, disconnectsAt: number): void {
    if (membership.detached) return
    add(this.#edges, membership.edge, -1)
    membership.detached = { since: now, disconnectsAt, isAsked: false }
  }

  /** Replaces what room logic sees of a member. */
  change(membership: Membership, change: Partial<Pick<Member, 'connected' | 'spectator' | 'data'>>): void {
    const before = membership.member
    const member = { ...before, ...change }
    // An update records `data` if it is another object than before.
    membership.member = change.data === undefined ? frozenMember(member) : memberFor(member)
    this.#spectatorCount += Number(membership.member.spectator) - Number(before.spectator)
    this.#changed(before)
    this.#changed(membership.member)
  }

  [Symbol.iterator](): IterableIterator<Membership> {
    return this.#memberships.values()
  }
}

/** For others, `present` is read-only. */
const setPresent = (membership: { present: boolean }, present: boolean): void => {
  membership.present = present
}

function add<K>(counts: Map<K, number>, key: K, by: number): void {
  const count = (counts.get(key) ?? 0) + by
  if (count > 0) counts.set(key, count)
  else counts.delete(key)
}

/** A session without a socket. Times are those of the monotonic clock. */
interface Detached {
  readonly since: number
  /** When it counts as disconnected. */
  readonly disconnectsAt: number
  /** True if an edge that has sent a message since then was asked to attach the member. */
  isAsked: boolean
}

/** One session in one room. */
export class Membership {
  // The fields that each message needs come first, next to each other in memory.
  /** `Memberships.change` replaces this object. */
  member: Member
  edge: string
  /** Turn of its last message without a ref. Only `Turns` uses it. */
  lastTurn: RoomTurn | undefined
  /** True while it is a member of the room. */
  readonly present: boolean = false
  /** Undefined: the session has a socket, at `edge`. */
  detached: Detached | undefined
  /** Name for which its rates and turns are counted. */
  readonly principal: string
  readonly refs: Deduplicator
  /** The member as of the last flush. */
  flushed: Member
  readonly sessionId: string
  /** Id of the membership between edge and owner. Each session has another id, so late messages of a replaced session match no seat. */
  readonly subscriptionId: string
  readonly joinRequest: number
  /** Seq of the update with the join. */
  joinedSeq: number
  /** Options of the join, in a room type with spectators. */
  readonly options: Json | undefined
  codec: Subprotocol
  /** Number of resumes of the session when `edge` sent its first message for it. */
  resumes = 0
  /** True if the next update acks `refs.last`. */
  ackDue = false
  /** True if the join was delivered. */
  announced: boolean
  /** Seq of the last update that the member got with its own layers and events. Undefined: it got all since its last attach. */
  wholeUntil: number | undefined

  /**
   * A new membership (`detachedAt` undefined), or one from the store. The latter is announced, and detached until its edge attaches it.
   */
  constructor(record: MembershipRecord, limits: OutcomeLimits, detachedAt?: number, disconnectsAt = 0) {
    this.member = record.member
    this.flushed = record.member
    this.sessionId = record.sessionId
    this.principal = playerOf(record.member.sub, record.sessionId)
    this.subscriptionId = record.subscriptionId ?? record.member.id
    this.joinRequest = record.joinRequest
    this.joinedSeq = record.joinedSeq ?? 0
    this.options = record.options
    this.edge = record.edge
    this.codec = record.codec
    this.refs = new Deduplicator(limits, record.lastRef, record)
    this.announced = detachedAt !== undefined
    this.detached =
      detachedAt === undefined ? undefined : { since: detachedAt, disconnectsAt, isAsked: false }
  }

  /** True if `edge` may send for this member: it has the socket, or no edge has. */
  isServedBy(edge: string): boolean {
    return this.detached !== undefined || this.edge === edge
  }

  /** Returns the membership as of the last flush. */
  record(): MembershipRecord {
    const { flushed, sessionId, subscriptionId, joinRequest, joinedSeq, options, edge, codec, refs } = this
    return {
      member: flushed,
      sessionId,
      ...(subscriptionId !== flushed.id && { subscriptionId }),
      joinRequest,
      edge,
      codec,
      joinedSeq,
      options,
      ...refs.record(),
    }
  }
}
