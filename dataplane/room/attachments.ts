import type { Clock } from '../../shared/clock.ts'
import type { JoinRequest, ToOwner } from '../traffic.ts'
import type { Changes } from './changes.ts'
import type { Wants } from './core.ts'
import type { RoomDefinition } from './definition.ts'
import type { Delivery } from './delivery.ts'
import type { History } from './history.ts'
import type { Grants } from './layer-rules.ts'
import type { Limited } from './limits.ts'
import type { Membership, Memberships } from './memberships.ts'
import type { Replies } from './replies.ts'
import type { Scheduler, Timer } from './scheduler.ts'
import type { LiveState } from './state.ts'
import type { Turns } from './turn.ts'

type Kind<K extends ToOwner['kind']> = Extract<ToOwner, { kind: K }>

/** A session whose socket is gone. `moves`: it may resume at another edge. */
interface Detached {
  readonly member_id: string
  readonly moves?: boolean
}

/** The room of the attachments. */
interface AttachedRoom {
  readonly epoch: number
  readonly definition: RoomDefinition
  readonly state: LiveState
  readonly memberships: Memberships
  readonly grants: Grants
  readonly history: History
  readonly changes: Changes
  readonly inFlight: object | undefined
  readonly wants: Wants
}

/** Dependencies of the attachments of a room. */
export interface AttachmentNeeds extends Limited {
  readonly clock: Clock
  readonly scheduler: Scheduler
}

/** The edges of one room's members: attaches, detaches and resyncs, and the end of memberships that no edge attaches again. */
export class Attachments {
  readonly #room: AttachedRoom
  readonly #turns: Turns
  readonly #delivery: Delivery
  readonly #replies: Replies
  readonly #needs: AttachmentNeeds
  readonly #expiry: Timer
  /** Answers that wait for the next delivery, by subscription id: they need the whole state, or the member's join is not delivered yet. */
  readonly #early = new Map<string, () => void>()
  #closed = false

  /** `post`: runs later work when the room can act. */
  constructor(
    room: AttachedRoom,
    turns: Turns,
    delivery: Delivery,
    replies: Replies,
    needs: AttachmentNeeds,
    post: (run: () => void) => void,
  ) {
    const { clock, limits, scheduler } = needs
    this.#room = room
    this.#turns = turns
    this.#delivery = delivery
    this.#replies = replies
    this.#needs = needs
    this.#expiry = scheduler.timer(() => post(() => this.#removeExpired()))
    if (room.memberships.size > 0) this.#expiry.at(clock.monotonic() + limits.movesMs)
  }

  /** Removes no more memberships that have expired. */
  close(): void {
    this.#closed = true
    this.#expiry.cancel()
  }

  /** The session has a fresh token. */
  renew({ member_id: memberId, data }: Kind<'renew'>, from: string): void {
    const membership = this.#room.memberships.ofSubscription(memberId)
    // If another edge serves the session, its next attach brings the claim.
    if (membership?.isServedBy(from)) this.#turns.renew(membership, data ?? null)
  }

  attach(message: Kind<'attach'>): void {
    const { memberships } = this.#room
    const { member_id: memberId, edge, codec, turn, seat } = message
    const membership = memberships.addressee(memberId)
    // With another seat, the client left this one and joined again, and does not know its new seat yet. It repeats that join.
    if (!membership || (seat !== undefined && seat !== membership.member.id)) {
      this.#replies.noSeat(edge, memberId)
      return
    }
    // The session has resumed at another edge.
    if (turn < membership.resumes) return
    membership.resumes = turn
    memberships.attach(membership, edge, codec)
    // A member that is being removed needs the updates that it missed. The update with its departure follows.
    if (membership.present) {
      this.#turns.renew(membership, message.data ?? null)
      this.#turns.connected(membership, true)
    }
    if (membership.announced) this.#attached(membership, message)
    else this.#answerLater(memberId, () => this.attach(message))
  }

  /** A member's session joins again, with the same request: attaches it, and sends the answer to its join again. */
  rejoin(membership: Membership, { data, edge, codec, turn }: JoinRequest): void {
    const { inFlight, memberships } = this.#room
    membership.resumes = turn
    memberships.attach(membership, edge, codec)
    membership.wholeUntil = undefined
    this.#turns.renew(membership, data ?? null)
    this.#turns.connected(membership, true)
    if (!membership.announced) return
    if (!inFlight) this.#delivery.repeatJoin(membership)
    else
      this.#answerLater(membership.subscriptionId, () => {
        if (membership.present) this.#delivery.repeatJoin(membership)
      })
  }

  resync(message: Kind<'resync'>, from: string): void {
    const { member_id: memberId, reason } = message
    const membership = this.#room.memberships.addressee(memberId)
    if (!membership) {
      this.#replies.noSeat(from, memberId)
      return
    }
    // The snapshot of its join is on the way, and is newer than any that could be sent now.
    if (!membership.announced) return
    if (this.#room.inFlight) {
      // The answer to a waiting attach contains the state, too.
      if (!this.#early.has(memberId)) this.#answerLater(memberId, () => this.resync(message, from))
      return
    }
    this.#countResync(reason)
    const { edge } = membership
    const state = this.#delivery.resync(membership)
    const { seq } = this.#delivery.delivered
    this.#replies.send(edge, { kind: 'state', member_id: memberId, seq, state })
  }

  /** An edge is gone. Its members count as connected for a while, in which their sessions can resume at another edge. */
  detachEdge(edge: string): void {
    for (const { subscriptionId } of this.#room.memberships)
      this.detach({ member_id: subscriptionId, moves: true }, edge)
  }

  /** Ignores a detach of an edge that the session has left. */
  detach({ member_id: memberId, moves = false }: Detached, from: string): void {
    const { memberships } = this.#room
    const { clock, limits } = this.#needs
    const membership = memberships.ofSubscription(memberId)
    if (membership?.edge !== from) return
    this.#early.delete(memberId)
    const now = clock.monotonic()
    membership.wholeUntil ??= this.#delivery.delivered.seq
    memberships.detach(membership, now, moves ? now + limits.movesMs : now)
    if (!moves) this.#turns.connected(membership, false)
    const due = this.#dueAt(membership)
    if (!this.#expiry.waiting || due < this.#expiry.due) this.#expiry.at(due)
  }

  #answerLater(subscriptionId: string, answer: () => void): void {
    this.#early.set(subscriptionId, answer)
    this.#room.wants.delivery = true
  }

  /** A flush is delivered: sends the answers that waited for it. */
  delivered(): void {
    const early = [...this.#early.values()]
    this.#early.clear()
    for (const answer of early) answer()
  }

  /** When a membership without a socket counts as disconnected, or is removed if it counts as that already. */
  #dueAt({ member, detached }: Membership): number {
    const { since, disconnectsAt } = detached!
    return member.connected ? disconnectsAt : Math.max(disconnectsAt, since + this.#keptMs)
  }

  /** How long a membership without a socket is kept, in milliseconds. */
  get #keptMs(): number {
    return Math.min(this.#needs.limits.detachedMs, this.#room.definition.reconnectSeconds * 1000)
  }

  #attached(membership: Membership, attach: Kind<'attach'>): void {
    const { refs } = membership
    const { changes, grants, history, state, wants } = this.#room
    const delivery = this.#delivery
    const { member_id: subscriptionId, ask, edge, codec, epoch, seq, settled, through } = attach
    const { id: memberId } = membership.member
    const layers = state.layers && grants.of(memberId)
    // The member's edge did not know that the member was detached. It forwarded updates to the member, but without its layers and events.
    const isWhole = membership.wholeUntil === undefined || seq <= membership.wholeUntil
    // Clients name their position. A member may not get updates from before its join, which contain events and values that are gone.
    const isSince = seq >= membership.joinedSeq
    const replay =
      isWhole && isSince
        ? history.replay({ epoch, seq }, this.#room.epoch, memberId, codec, layers)
        : undefined
    const missed = replay && delivery.replayed(membership, replay.missed, replay.shown, replay.hidden)
    // The contents and members of layers are known as of the flush in flight.
    if ((!missed || layers) && this.#room.inFlight) {
      this.#answerLater(subscriptionId, () => this.attach(attach))
      return
    }
    membership.wholeUntil = undefined
    if (refs.skip(through)) {
      changes.ack(membership)
      wants.flush ??= 'paced'
    }
    refs.known(settled)
    if (!missed) this.#countResync('resume')
    this.#replies.send(edge, {
      kind: 'attached',
      member_id: subscriptionId,
      ask,
      seq: delivery.delivered.seq,
      resumed: missed !== undefined,
      frames: missed ?? [delivery.resync(membership)],
      ...refs.committed,
    })
  }

  #countResync(reason: Kind<'resync'>['reason'] | 'resume'): void {
    this.#needs.metrics.resyncs.inc({ room_type: this.#room.definition.type, reason })
  }

  /** Handles memberships without a socket whose time is over. They count as disconnected first, and are removed later. */
  #removeExpired(): void {
    const { memberships, wants } = this.#room
    let earliest = Number.POSITIVE_INFINITY
    for (const membership of [...memberships]) {
      // A turn of another member may have ended the room.
      if (this.#closed || wants.close) return
      // Or it may have removed this member.
      if (!membership.detached || !membership.present) continue
      const now = this.#needs.clock.monotonic()
      if (membership.member.connected && this.#dueAt(membership) <= now)
        this.#turns.connected(membership, false)
      const due = this.#dueAt(membership)
      if (due > now) earliest = Math.min(earliest, due)
      else if (membership.present && !wants.close)
        this.#turns.part(membership, 'session_ended', {
          message: `the connection was not back within ${this.#keptMs / 1000} s: join again`,
        })
    }
    if (earliest < Number.POSITIVE_INFINITY && !wants.close) this.#expiry.at(earliest)
  }
}
