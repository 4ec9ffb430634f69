import type { Clock } from '../../shared/clock.ts'
import { banText } from '../../shared/players.ts'
import type { ErrorCode } from '../../shared/protocol/error-codes.ts'
import type { Match } from '../../shared/protocol/messages.ts'
import type { Span, Tracer } from '../../shared/tracing/tracer.ts'
import type { Maker } from '../place.ts'
import {
  type JoinRequest,
  playerOf,
  type RoomAddress,
  roomAttributes,
  roomIdOf,
  type ToOwner,
} from '../traffic.ts'
import { askAdmit, refused, type Verdict } from './admit.ts'
import type { Attachments } from './attachments.ts'
import { REPLACED } from './changes.ts'
import type { Wants } from './core.ts'
import type { RoomDefinition } from './definition.ts'
import type { Member, RoomLog } from './definition-types.ts'
import { parseOptions, type Refused } from './failures.ts'
import type { TurnRoom } from './hooks.ts'
import { haveLayers } from './layer-rules.ts'
import { type Limited, mayHave } from './limits.ts'
import { memberFor } from './member.ts'
import { Membership } from './memberships.ts'
import { freePlaces, mayWatch, ownSeat, type PlacesRoom } from './places.ts'
import type { Replies } from './replies.ts'
import type { RoomCode, RoomTurn } from './room-code.ts'
import type { Scheduler, Timer } from './scheduler.ts'
import type { LiveState } from './state.ts'
import { hashOf, seatName } from './table.ts'
import type { Turns } from './turn.ts'

/** A join whose `admit` is running. It is in `joining` of the room, and holds a place there. */
interface RunningAdmit {
  /** Attaches and detaches of this member that arrived until then. The last of each kind counts. */
  readonly waiting: Map<'attach' | 'detach', () => void>
  readonly timeout: Timer
}

type Kind<K extends ToOwner['kind']> = Extract<ToOwner, { kind: K }>
type MembershipMessage = Kind<'join' | 'leave' | 'attach' | 'detach' | 'resync' | 'renew'>

/** The room that is joined. */
interface JoinedRoom extends TurnRoom, PlacesRoom {
  readonly roomId: string
  readonly address: RoomAddress
  readonly log: RoomLog
  readonly code: string | undefined
  readonly joining: Map<string, JoinRequest>
  readonly state: LiveState
  readonly wants: Wants
}

/** Dependencies of the admission of a room. */
export interface AdmissionNeeds extends Limited {
  readonly clock: Clock
  readonly code: RoomCode
  readonly scheduler: Scheduler
  readonly tracer: Tracer
}

/** Joins and leaves of one room's members. Attaches and detaches of a member wait for its running join. */
export class RoomAdmission {
  /** Joins that were not decided before `close`, or that came after it. They are for the next owner. */
  readonly late: JoinRequest[] = []
  readonly #room: JoinedRoom
  readonly #turns: Turns
  readonly #attachments: Attachments
  readonly #replies: Replies
  readonly #needs: AdmissionNeeds
  readonly #post: (run: () => void) => void
  /** By subscription id. */
  readonly #running = new Map<string, RunningAdmit>()
  /** Spans of joins that are not answered yet, by subscription id. */
  readonly #spans = new Map<string, Span>()
  #closed = false

  /** `post`: runs later work when the room can act. */
  constructor(
    room: JoinedRoom,
    turns: Turns,
    attachments: Attachments,
    replies: Replies,
    needs: AdmissionNeeds,
    post: (run: () => void) => void,
  ) {
    this.#room = room
    this.#turns = turns
    this.#attachments = attachments
    this.#replies = replies
    this.#needs = needs
    this.#post = post
  }

  /** True if the room has no player, and none is joining. Spectators do not keep a room that waits for no player. */
  get empty(): boolean {
    const { joining, memberships, tables } = this.#room
    if (memberships.playerCount > 0) return false
    for (const { watch } of joining.values()) if (!watch) return false
    return memberships.size === 0 || tables.reservations.size === 0
  }

  /** Accepts no more joins. Running joins go to the next owner. */
  close(): void {
    this.#closed = true
    for (const memberId of [...this.#running.keys()]) this.#late(this.#cancel(memberId)!)
  }

  /** The room is no longer here. `end`: how it ended, in one word. */
  ended(end: string): void {
    for (const memberId of this.#spans.keys()) this.#endSpan(memberId, end)
  }

  /** Handles a message about a membership from the edge `from`. */
  receive(message: MembershipMessage, from: string): void {
    const { memberships } = this.#room
    const { member_id: id } = message
    switch (message.kind) {
      case 'join':
        this.#join(message)
        break
      case 'leave':
        this.#leave(message, from)
        break
      case 'attach':
        if (memberships.addressee(id) || !this.#wait(id, 'attach', () => this.receive(message, from)))
          this.#attachments.attach(message)
        break
      case 'detach':
        if (memberships.ofSubscription(id) || !this.#wait(id, 'detach', () => this.receive(message, from)))
          this.#attachments.detach(message, from)
        break
      case 'resync':
        this.#attachments.resync(message, from)
        break
      case 'renew':
        this.#attachments.renew(message, from)
        break
    }
  }

  #join(request: JoinRequest): void {
    const { definition, memberships, roomId } = this.#room
    const running = [...this.#room.joining.values()].find((join) => join.session_id === request.session_id)
    if (running) {
      if (running.request_id !== request.request_id)
        this.#replies.refuse(request, 'already_joined', `the session is joining ${roomId} already`)
      // The session has resumed: its present edge gets the answer.
      else if (request.turn > running.turn) this.#wait(request.member_id, 'attach', () => this.#join(request))
      return
    }
    const present = memberships.ofSession(request.session_id)
    if (present && this.#rejoin(present, request)) return
    const { edge, member_id: memberId } = request
    // The seat of a repeated join has ended, and its `left` is on the way to the edge. It would end a new seat under the same id.
    if (memberships.addressee(memberId) || this.#replies.hasParted(edge, memberId)) {
      this.#replies.noSeat(edge, memberId)
      return
    }
    this.#beginSpan(request)
    // The record of a code can outlive its room. This is a later room with the same key.
    if (request.code !== undefined && request.code !== this.#room.code) {
      this.#refuse(request, 'room_not_found', 'no room has this code')
      return
    }
    const unfit = unfitness(request, definition, this.#needs.limits)
    if (unfit) {
      this.#refuse(request, unfit.code, unfit.message)
      return
    }
    const options = joinOptions(this.#needs.code, this.#room, definition, request)
    // `onLeave` of the session's earlier seat may have ended the room.
    if (this.#closed || this.#room.wants.close) this.#late(request)
    else if (!options.ok && options.cause !== undefined)
      this.#failed(request, 'the validator of the options', options.cause)
    else if (!options.ok) this.#refuse(request, 'invalid_options', options.message)
    else if (!definition.admit || (!request.watch && this.#isAdmitted(request)))
      this.#add(request, options.value)
    else {
      const seat = this.#seatFor(request)
      if (seat && 'code' in seat) this.#refuse(request, seat.code, seat.message)
      else this.#admit(request, options.value)
    }
  }

  #leave(message: Kind<'leave'>, from: string): void {
    const { memberships } = this.#room
    const { member_id: memberId, reason } = message
    const membership = memberships.ofSubscription(memberId)
    if (membership) {
      // `session_ended` of an earlier edge does not end a session that has resumed at another edge.
      if (reason !== 'session_ended' || membership.isServedBy(from)) this.#turns.part(membership, reason)
      return
    }
    const request = this.#cancel(memberId)
    if (request) this.#endSpan(memberId, reason)
    if (!memberships.addressee(memberId)) this.#replies.noSeat(request?.edge ?? from, memberId)
    this.#room.wants.idle ??= 'look'
  }

  /** Number of seats of a player, and of its running joins. */
  #seatsOf(sub: string): number {
    const { joining, memberships } = this.#room
    const joins = [...joining.values()].filter((join) => join.sub === sub)
    return [...memberships.ofPlayer(sub)].length + joins.length
  }

  /** Returns the seat that a join takes over, or the reason why it gets none. Undefined: it gets a new seat. */
  #seatFor(request: JoinRequest): Membership | Refused | undefined {
    const { definition, memberships, roomId, tables } = this.#room
    const { type, sameSub, maxPlayers, spectators } = definition
    const { sub, rejoin, watch } = request
    const seat = ownSeat(this.#room, request)
    const ban = sub === null ? undefined : tables.bans.get(sub)
    if (ban) return { code: 'banned', message: banText(ban.reason, roomId) }
    const others = sub === null || seat ? [] : [...memberships.ofPlayer(sub)]
    // Seats in the other role end with the join, but a `rejoin` ends none of a connected session.
    const ends = ({ member }: Membership) =>
      sameSub === 'replace' && member.spectator !== Boolean(watch) && !(rejoin && member.connected)
    if (sameSub !== 'allow' && !others.every(ends))
      return {
        code: sameSub === 'refuse' ? 'already_joined' : 'replaced',
        message: `the player is in ${roomId} with another session`,
      }
    const full = watch ? !mayWatch(this.#room) : freePlaces(this.#room, seatName(sub, request.session_id)) < 1
    const seats = sub === null ? 0 : this.#seatsOf(sub)
    if (seat && (full || sameSub === 'replace' || seats >= this.#needs.limits.seats)) return seat
    if (!mayHave(this.#needs, type, 'seats', seats + 1))
      return {
        code: 'too_many_rooms',
        message: `the player has ${seats} seats in ${roomId}, which is the limit: leave one first, and give each player another sub`,
      }
    if (!full) return undefined
    const what = watch
      ? `place for another spectator: it has ${spectators?.max}`
      : `free seat of its ${maxPlayers}`
    return { code: 'room_full', message: `${roomId} has no ${what}` }
  }

  /** A member's session joins again. Returns false if the old seat was unknown to all edges: it has ended, and the join may continue. */
  #rejoin(membership: Membership, request: JoinRequest): boolean {
    // The session has resumed at another edge, which sends what the session needs.
    if (request.turn < membership.resumes) return true
    if (request.member_id !== membership.subscriptionId) {
      // An edge that knew the seat would not send this join: the answer to an earlier join was lost.
      this.#turns.part(membership, 'session_ended')
      return false
    }
    if (request.request_id !== membership.joinRequest) {
      this.#replies.refuse(request, 'already_joined', `the session is in ${this.#room.roomId} already`)
      return true
    }
    this.#attachments.rejoin(membership, request)
    return true
  }

  #refuse(request: JoinRequest, code: ErrorCode, message: string, match?: Match): void {
    this.#endSpan(request.member_id, code)
    this.#replies.refuse(request, code, message, match)
  }

  /** Room logic threw for a join. */
  #failed(request: JoinRequest, kind: string, error: unknown): void {
    const { code, message } = this.#turns.failures.explain(kind, error)
    this.#refuse(request, code, message)
  }

  #late(request: JoinRequest): void {
    this.#endSpan(request.member_id, 'late')
    this.late.push(request)
  }

  /** True if `admit` has allowed the player to join with these options, because a queue has asked it for a match. */
  #isAdmitted({ sub, session_id: sessionId, options }: JoinRequest): boolean {
    const { admitted } = this.#room.tables.reservations.get(seatName(sub, sessionId)) ?? {}
    return admitted !== undefined && admitted === hashOf(options)
  }

  /** Calls `admit`. Its verdict decides, unless the join is cancelled before. */
  #admit(request: JoinRequest, options: unknown): void {
    const { member_id: memberId } = request
    const { clock, limits, scheduler } = this.#needs
    const decide = (verdict: Verdict) => this.#post(() => this.#decided(request, options, verdict))
    const member = memberOf(request, ownSeat(this.#room, request)?.member.id)
    const answer = askAdmit(this.#room, member, options, joinTurn(this.#room, 'admit', request), this.#needs)
    if (!(answer instanceof Promise)) {
      decide(answer)
      return
    }
    const resolve = (verdict: Verdict) => {
      if (this.#running.get(memberId) !== running) return
      this.#cancel(memberId)
      decide(verdict)
      for (const wait of running.waiting.values()) wait()
    }
    const running: RunningAdmit = {
      waiting: new Map(),
      timeout: scheduler.timer(() =>
        resolve(refused(`the room did not decide within ${limits.admitMs / 1000} seconds: try again`)),
      ),
    }
    running.timeout.at(clock.monotonic() + limits.admitMs)
    this.#running.set(memberId, running)
    this.#room.joining.set(memberId, request)
    answer.then(resolve)
  }

  #decided(request: JoinRequest, options: unknown, verdict: Verdict): void {
    if (this.#closed) this.#late(request)
    else if (verdict.admitted) this.#add(request, options)
    else {
      if ('why' in verdict) this.#refuse(request, 'join_refused', verdict.why)
      else this.#failed(request, 'admit', verdict.failure)
      this.#room.wants.idle ??= 'look'
    }
  }

  /** A flush is delivered: ends the spans of joins that are answered now. */
  delivered(): void {
    for (const memberId of this.#spans.keys()) {
      const result = this.#resultOf(memberId)
      if (result !== undefined) this.#endSpan(memberId, result)
    }
  }

  /**
   * Queues an attach or a detach of a member until its running join is decided, in place of an earlier one of the same kind. Returns false
   * if no join is running.
   */
  #wait(memberId: string, kind: 'attach' | 'detach', run: () => void): boolean {
    const running = this.#running.get(memberId)
    running?.waiting.delete(kind)
    running?.waiting.set(kind, () => this.#post(run))
    return running !== undefined
  }

  /** Stops waiting for the running join of a member, and returns its request. */
  #cancel(memberId: string): JoinRequest | undefined {
    const { joining } = this.#room
    const request = joining.get(memberId)
    this.#running.get(memberId)?.timeout.cancel()
    this.#running.delete(memberId)
    joining.delete(memberId)
    return request
  }

  #add(request: JoinRequest, options: unknown): void {
    const {
      member_id: subscriptionId,
      session_id: sessionId,
      edge,
      codec,
      options: given,
      turn,
      data,
    } = request
    const found = this.#makeWay(request)
    if (found === 'late') {
      this.#late(request)
      return
    }
    const seat = found instanceof Membership ? found : undefined
    const member = seat?.member ?? memberOf(request)
    const membership = new Membership(
      {
        member,
        sessionId,
        subscriptionId,
        joinRequest: request.request_id,
        edge,
        codec,
        lastRef: 0,
        options: this.#room.definition.spectators && given,
        outcomes: [],
        forgotten: 0,
      },
      this.#needs.limits.unconfirmed,
    )
    membership.resumes = turn
    let refused: Refused | undefined
    if (seat) this.#turns.replace(seat, membership, data ?? null)
    else refused = (found as Refused | undefined) ?? this.#turns.join(membership, options)
    if (refused) this.#refuse(request, refused.code, refused.message, refused.match)
    this.#room.wants.idle ??= 'look'
  }

  /** As `#seatFor`, and ends the player's seats in the other role. `late`: the room has ended with them. */
  #makeWay(request: JoinRequest): Membership | Refused | 'late' | undefined {
    const found = this.#seatFor(request)
    const { definition, memberships } = this.#room
    if (found || request.sub === null || definition.sameSub !== 'replace') return found
    const others = [...memberships.ofPlayer(request.sub)]
    for (const other of others) if (other.present) this.#turns.part(other, 'replaced', REPLACED)
    if (others.length === 0) return undefined
    // A hook may have ended the room, or given the free place to another member.
    return this.#closed || this.#room.wants.close ? 'late' : this.#seatFor(request)
  }

  /** Starts the span of a join, if its edge records one. */
  #beginSpan(request: JoinRequest): void {
    if (request.traceparent === undefined) return
    const span = this.#needs.tracer.span('room.join', {
      kind: 'consumer',
      parent: request,
      attributes: {
        ...roomAttributes(request.room),
        'roomful.session_id': request.session_id,
        'roomful.epoch': this.#room.epoch,
        'roomful.durability': this.#room.definition.durability,
      },
    })
    this.#spans.set(request.member_id, span)
  }

  /** Result of a join, once its member has an answer. */
  #resultOf(memberId: string): string | undefined {
    const { memberships } = this.#room
    const membership = memberships.ofSubscription(memberId)
    if (membership) return membership.announced ? 'joined' : undefined
    return this.#running.has(memberId) || memberships.addressee(memberId) ? undefined : 'left'
  }

  /** Ends the span of a join, if it has one. `result`: one word. */
  #endSpan(memberId: string, result: string): void {
    const span = this.#spans.get(memberId)
    this.#spans.delete(memberId)
    span?.set({ 'roomful.result': result })
    span?.end()
  }
}

/** Returns the joining member. `id`: id of a seat to take over. */
const memberOf = (
  { member_id: subscriptionId, sub, data, watch = false }: JoinRequest,
  id = subscriptionId,
): Member => memberFor({ id, sub, connected: true, spectator: watch, data: data ?? null })

/** Returns why a join does not fit the room type, whatever the state of the room. Undefined: it fits. */
export function unfitness(
  { layers, options, room, watch }: JoinRequest,
  definition: RoomDefinition,
  { optionsBytes: most }: { readonly optionsBytes: number },
): Refused | undefined {
  const roomId = roomIdOf(room)
  const { spectators } = definition
  if (watch && !spectators)
    return {
      code: 'invalid_options',
      message: `${roomId} has no spectators (spectators): join without watch`,
    }
  // The room keeps them, for the hooks of later changes of roles.
  const bytes = spectators ? Buffer.byteLength(JSON.stringify(options)) : 0
  if (bytes > most)
    return {
      code: 'invalid_options',
      message: `the options have ${bytes} bytes of JSON; limit in a room with spectators: ${most}`,
    }
  if (haveLayers(definition.layers) && !layers)
    return {
      code: 'client_outdated',
      message: `${roomId} hides parts of its state in layers, which this client has not named in features of hello: use a client that can put them together`,
    }
  return undefined
}

/** Returns the options of a join as the definition's schema returns them, or their error. */
export function joinOptions(
  code: RoomCode,
  room: TurnRoom,
  definition: RoomDefinition,
  join: Maker,
): ReturnType<typeof parseOptions> {
  try {
    return code.run(joinTurn(room, 'options', join), () => parseOptions(definition.options, join.options))
  } catch (cause) {
    return { ok: false, message: 'the validator failed', cause }
  }
}

/** Returns a turn for a join, or for a request with `create`. The turn does not write to the state of a running room. */
export const joinTurn = (
  { name, epoch }: TurnRoom,
  hook: 'options' | 'create' | 'load' | 'admit',
  { session_id: sessionId, request_id: ref, sub }: Maker,
): RoomTurn => ({
  room: { name, epoch },
  hook,
  subject: sessionId,
  ref,
  type: '',
  principal: playerOf(sub, sessionId),
})
