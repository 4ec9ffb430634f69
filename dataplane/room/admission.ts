import type { ErrorCode } from '../../shared/protocol/error-codes.ts'
import type { Span } from '../../shared/tracing/tracer.ts'
import type { Maker } from '../place.ts'
import { type JoinRequest, playerOf, roomAttributes, type ToOwner } from '../traffic.ts'
import type { RoomDefinition } from './definition.ts'
import type { Member } from './definition-types.ts'
import { kindOf, parseOptions, RoomLogicError } from './failures.ts'
import type { TurnRoom } from './hooks.ts'
import type { Inputs, Refusal } from './inputs.ts'
import { mayHave } from './limits.ts'
import { memberFor } from './member.ts'
import { Membership } from './memberships.ts'
import type { Room } from './room.ts'
import { isPromise, type RoomCode, type RoomTurn } from './room-code.ts'
import type { Timer } from './scheduler.ts'
import type { RoomStream } from './stream.ts'
import { seatName } from './table.ts'

/** Result of `admit` for one join. */
type Verdict =
  | { readonly admitted: true }
  | { readonly admitted: false; readonly why: string }
  | { readonly admitted: false; readonly failure: unknown }

/** A join whose `admit` is running. It holds a place, so that the room cannot become fuller than `maxMembers`. */
interface RunningAdmit {
  readonly request: JoinRequest
  /** Attaches and detaches of this member that arrived until then. The last of each kind counts. */
  readonly waiting: Map<'attach' | 'detach', () => void>
  readonly timeout: Timer
}

type Kind<K extends ToOwner['kind']> = Extract<ToOwner, { kind: K }>

/** Joins, leaves, detaches and attaches of one room's members. */
export class RoomAdmission {
  readonly #stream: RoomStream
  readonly #inputs: Inputs
  readonly #room: Room
  /** By subscription id. */
  readonly #running = new Map<string, RunningAdmit>()
  /** Spans of joins that are not answered yet, by subscription id. */
  readonly #spans = new Map<string, Span>()
  readonly #expiry
  /** Answers that wait for the next delivery, by subscription id: they need the whole state, or the member's join is not delivered yet. */
  readonly #early = new Map<string, () => void>()
  #closed = false

  constructor(room: Room, inputs: Inputs) {
    const { stream } = room
    const { clock, limits, scheduler } = stream.environment
    this.#room = room
    this.#stream = stream
    this.#inputs = inputs
    this.#expiry = scheduler.timer(() => this.#removeExpired())
    if (stream.memberships.size > 0) this.#expiry.at(clock.monotonic() + limits.movesMs)
  }

  /** True if the room has no member, and no join is running. */
  get empty(): boolean {
    return this.#stream.memberships.size + this.#running.size === 0
  }

  /** Accepts no more joins. Running joins go to the next owner. */
  close(): void {
    this.#closed = true
    this.#expiry.cancel()
    for (const memberId of [...this.#running.keys()]) this.#late(this.#cancel(memberId)!)
  }

  /** The room is no longer here. `end`: how it ended, in one word. */
  ended(end: string): void {
    for (const memberId of this.#spans.keys()) this.#endSpan(memberId, end)
  }

  join(request: JoinRequest): void {
    const { memberships, replies, roomId } = this.#stream
    const { definition } = this.#inputs.handlers
    const running = [...this.#running.values()].find(
      (admit) => admit.request.session_id === request.session_id,
    )
    if (running) {
      if (running.request.request_id !== request.request_id)
        replies.refuse(request, 'already_joined', `the session is joining ${roomId} already`)
      // The session has resumed: its present edge gets the answer.
      else if (request.turn > running.request.turn)
        this.#wait(request.member_id, 'attach', () => this.join(request))
      return
    }
    const present = memberships.ofSession(request.session_id)
    if (present && this.#rejoin(present, request)) return
    this.#beginSpan(request)
    // The record of a code can outlive its room. This is a later room with the same key.
    if (request.code !== undefined && request.code !== this.#stream.code) {
      this.#refuse(request, 'room_not_found', 'no room has this code')
      return
    }
    const { code } = this.#stream.environment
    const options = joinOptions(code, this.#stream, definition, request)
    if (this.#closed) this.#late(request)
    else if (!options.ok && options.cause !== undefined)
      this.#failed(request, 'the validator of the options', options.cause)
    else if (!options.ok) this.#refuse(request, 'invalid_options', options.message)
    else if (definition.layers && !request.layers)
      this.#refuse(
        request,
        'client_outdated',
        `${roomId} hides parts of its state in layers, which this client has not named in features of hello: use a client that can put them together`,
      )
    else if (!definition.admit) this.#add(request, options.value)
    else {
      const seat = this.#seatFor(request)
      if (seat && 'code' in seat) this.#refuse(request, seat.code, seat.message)
      else this.#admit(request, options.value)
    }
  }

  leave(message: Kind<'leave'>, from: string): void {
    const { memberships, replies } = this.#stream
    const { member_id: memberId, reason } = message
    const membership = memberships.ofSubscription(memberId)
    if (membership) {
      // `session_ended` of an earlier edge does not end a session that has resumed at another edge.
      if (reason !== 'session_ended' || membership.isServedBy(from)) this.#inputs.part(membership, reason)
      return
    }
    const request = this.#cancel(memberId)
    if (request) this.#endSpan(memberId, reason)
    if (!memberships.addressee(memberId)) replies.noSeat(request?.edge ?? from, memberId)
    this.#room.watchIdle()
  }

  detach({ member_id: memberId, moves = false }: Kind<'detach'>, from: string): void {
    if (this.#stream.memberships.ofSubscription(memberId)) this.#detach(memberId, from, moves)
    else this.#wait(memberId, 'detach', () => this.#detach(memberId, from, moves))
  }

  /** An edge is gone. Its members count as connected for a while, in which their sessions can resume at another edge. */
  detachEdge(edge: string): void {
    for (const { subscriptionId } of this.#stream.memberships) this.#detach(subscriptionId, edge, true)
  }

  /** The session has a fresh token. */
  renew({ member_id: memberId, data }: Kind<'renew'>, from: string): void {
    const membership = this.#stream.memberships.ofSubscription(memberId)
    // If another edge serves the session, its next attach brings the claim.
    if (membership?.isServedBy(from)) this.#inputs.renew(membership, data ?? null)
  }

  attach(message: Kind<'attach'>): void {
    const { memberships, replies } = this.#stream
    const { member_id: memberId, edge, codec, turn, seat } = message
    const membership = memberships.addressee(memberId)
    if (membership && seat !== undefined && seat !== membership.member.id) {
      // The client left this seat and joined again, and does not know its new seat yet. It repeats that join.
      replies.noSeat(edge, memberId)
      return
    }
    if (!membership) {
      if (this.#wait(memberId, 'attach', () => this.attach(message))) return
      replies.noSeat(edge, memberId)
      return
    }
    // The session has resumed at another edge.
    if (turn < membership.resumes) return
    membership.resumes = turn
    memberships.attach(membership, edge, codec)
    // A member that is being removed needs the updates that it missed. The update with its departure follows.
    if (memberships.has(membership)) {
      this.#inputs.renew(membership, message.data ?? null)
      this.#inputs.connected(membership, true)
    }
    if (membership.announced) this.#attached(membership, message)
    else this.#early.set(memberId, () => this.attach(message))
  }

  resync(message: Kind<'resync'>, from: string): void {
    const { member_id: memberId, reason } = message
    const { memberships, delivery, replies } = this.#stream
    const membership = memberships.addressee(memberId)
    if (!membership) {
      replies.noSeat(from, memberId)
      return
    }
    // The snapshot of its join is on the way, and is newer than any that could be sent now.
    if (!membership.announced) return
    if (this.#stream.committing) {
      // The answer to a waiting attach contains the state, too.
      if (!this.#early.has(memberId)) this.#early.set(memberId, () => this.resync(message, from))
      return
    }
    this.#countResync(reason)
    const { edge } = membership
    const state = delivery.resync(membership)
    replies.send(edge, { kind: 'state', member_id: memberId, seq: delivery.delivered.seq, state })
  }

  /** A flush is delivered: sends the answers that waited for it. */
  delivered(): void {
    for (const memberId of this.#spans.keys()) {
      const result = this.#resultOf(memberId)
      if (result !== undefined) this.#endSpan(memberId, result)
    }
    if (this.#early.size === 0) return
    const early = [...this.#early.values()]
    this.#early.clear()
    for (const answer of early) answer()
  }

  /** Number of taken places: members, reservations, and running joins that take over neither a seat nor a reservation. */
  get #places(): number {
    const { memberships, tables } = this.#stream
    let places = memberships.size + tables.reservations.size - this.#taking.size
    for (const { request } of this.#running.values()) if (!this.#ownSeat(request)) places++
    return places
  }

  /** Names of reservations whose players are joining. */
  get #taking(): ReadonlySet<string> {
    const { reservations } = this.#stream.tables
    const names = [...this.#running.values()].map(({ request }) => seatName(request.sub, request.session_id))
    return new Set(names.filter((name) => reservations.has(name)))
  }

  /** Returns the seat of another session of the player that this join may take over. */
  #ownSeat({ sub, rejoin = false }: JoinRequest): Membership | undefined {
    const { sameSub } = this.#inputs.handlers.definition
    if (sub === null || sameSub === 'refuse') return undefined
    const fromConnected = sameSub === 'replace' && !rejoin
    for (const membership of this.#stream.memberships.ofPlayer(sub))
      if (fromConnected || !membership.member.connected) return membership
    return undefined
  }

  /** Number of seats of a player, and of its running joins. */
  #seatsOf(sub: string): number {
    const joins = [...this.#running.values()].filter(({ request }) => request.sub === sub)
    return [...this.#stream.memberships.ofPlayer(sub)].length + joins.length
  }

  /** Returns the seat that a join takes over, or the reason why it gets none. Undefined: it gets a new seat. */
  #seatFor(request: JoinRequest): Membership | Refusal | undefined {
    const { environment, memberships, roomId, tables } = this.#stream
    const { type, sameSub, maxMembers } = this.#inputs.handlers.definition
    const { sub } = request
    const seat = this.#ownSeat(request)
    if (sub !== null && tables.bans.has(sub))
      return { code: 'banned', message: `${roomId} keeps this player out` }
    const [other] = sub === null ? [] : memberships.ofPlayer(sub)
    if (sameSub !== 'allow' && !seat && other)
      return {
        code: sameSub === 'refuse' ? 'already_joined' : 'replaced',
        message: `the player is in ${roomId} with another session`,
      }
    const name = seatName(sub, request.session_id)
    const isReserved = tables.reservations.has(name) && !this.#taking.has(name)
    const full = this.#places - (isReserved ? 1 : 0) >= maxMembers
    const seats = sub === null ? 0 : this.#seatsOf(sub)
    if (seat && (full || sameSub === 'replace' || seats >= environment.limits.seats)) return seat
    if (!mayHave(environment, type, 'seats', seats + 1))
      return {
        code: 'too_many_rooms',
        message: `the player has ${seats} seats in ${roomId}, which is the limit: leave one first, and give each player a sub of its own`,
      }
    return full
      ? { code: 'room_full', message: `${roomId} has no free seat of its ${maxMembers}` }
      : undefined
  }

  /** Ignores a detach of an edge that the session has left. */
  #detach(memberId: string, from: string, moves: boolean): void {
    const { environment, memberships } = this.#stream
    const { clock, limits } = environment
    const membership = memberships.ofSubscription(memberId)
    if (membership?.edge !== from) return
    this.#early.delete(memberId)
    const now = clock.monotonic()
    membership.wholeUntil ??= this.#stream.delivery.delivered.seq
    memberships.detach(membership, now, moves ? now + limits.movesMs : now)
    if (!moves) this.#inputs.connected(membership, false)
    const due = this.#dueAt(membership)
    if (!this.#expiry.waiting || due < this.#expiry.due) this.#expiry.at(due)
  }

  /** When a membership without a socket counts as disconnected, or is removed if it counts as that already. */
  #dueAt({ member, detachedAt = 0, disconnectsAt }: Membership): number {
    return member.connected ? disconnectsAt : Math.max(disconnectsAt, detachedAt + this.#keptMs)
  }

  /** How long a membership without a socket is kept, in milliseconds. */
  get #keptMs(): number {
    const { limits } = this.#stream.environment
    return Math.min(limits.detachedMs, this.#inputs.handlers.definition.reconnectSeconds * 1000)
  }

  #attached(membership: Membership, attach: Kind<'attach'>): void {
    const { refs } = membership
    const { delivery, grants, history, pending, replies, state } = this.#stream
    const { member_id: subscriptionId, ask, edge, codec, epoch, seq, settled, through } = attach
    const { id: memberId } = membership.member
    const layers = state.layers && grants.of(memberId)
    // The member's edge did not know that the member was detached. It forwarded updates to the member, but without its layers and events.
    const isWhole = membership.wholeUntil === undefined || seq <= membership.wholeUntil
    const replay = isWhole
      ? history.replay({ epoch, seq }, this.#stream.epoch, memberId, codec, layers)
      : undefined
    const missed = replay && delivery.replayed(membership, replay.missed, replay.shown, replay.hidden)
    // The contents and members of layers are known as of the flush in flight.
    if ((!missed || layers) && this.#stream.committing) {
      this.#early.set(subscriptionId, () => this.attach(attach))
      return
    }
    membership.wholeUntil = undefined
    if (refs.skip(through)) {
      pending.ack(membership)
      this.#stream.touch()
    }
    refs.known(settled)
    if (!missed) this.#countResync('resume')
    replies.send(edge, {
      kind: 'attached',
      member_id: subscriptionId,
      ask,
      seq: delivery.delivered.seq,
      resumed: missed !== undefined,
      frames: missed ?? [delivery.resync(membership)],
      ...refs.acknowledgement(0, refs.committed),
    })
  }

  #countResync(reason: Kind<'resync'>['reason'] | 'resume'): void {
    const { address, environment } = this.#stream
    environment.metrics.resyncs.inc({ room_type: address.roomType, reason })
  }

  /** A member's session joins again. Returns false if the old seat was unknown to all edges: it has ended, and the join may continue. */
  #rejoin(membership: Membership, request: JoinRequest): boolean {
    const { memberships, delivery, replies, roomId } = this.#stream
    // The session has resumed at another edge, which sends what the session needs.
    if (request.turn < membership.resumes) return true
    if (request.member_id !== membership.subscriptionId) {
      // An edge that knew the seat would not send this join: the answer to an earlier join was lost.
      this.#inputs.part(membership, 'session_ended')
      return false
    }
    if (request.request_id !== membership.joinRequest) {
      replies.refuse(request, 'already_joined', `the session is in ${roomId} already`)
      return true
    }
    membership.resumes = request.turn
    memberships.attach(membership, request.edge, request.codec)
    membership.wholeUntil = undefined
    this.#inputs.renew(membership, request.data ?? null)
    this.#inputs.connected(membership, true)
    if (!membership.announced) return true
    if (!this.#stream.committing) delivery.repeatJoin(membership)
    else
      this.#early.set(membership.subscriptionId, () => {
        if (memberships.has(membership)) delivery.repeatJoin(membership)
      })
    return true
  }

  #refuse(request: JoinRequest, code: ErrorCode, message: string): void {
    this.#endSpan(request.member_id, code)
    this.#stream.replies.refuse(request, code, message)
  }

  /** Room logic threw for a join. */
  #failed(request: JoinRequest, kind: string, error: unknown): void {
    const { code, message } = this.#inputs.failures.explain(kind, error)
    this.#refuse(request, code, message)
  }

  #late(request: JoinRequest): void {
    this.#endSpan(request.member_id, 'late')
    this.#room.wait({ message: request, from: request.edge })
  }

  /** Calls `admit`. Its verdict decides, unless the join is cancelled before. */
  #admit(request: JoinRequest, options: unknown): void {
    const { member_id: memberId } = request
    const { clock, limits, scheduler } = this.#stream.environment
    const decide = (verdict: Verdict) => this.#room.act(() => this.#decided(request, options, verdict))
    const answer = this.#ask(request, options)
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
      request,
      waiting: new Map(),
      timeout: scheduler.timer(() =>
        resolve(refused(`the room did not decide within ${limits.admitMs / 1000} seconds: try again`)),
      ),
    }
    running.timeout.at(clock.monotonic() + limits.admitMs)
    this.#running.set(memberId, running)
    answer.then(resolve)
  }

  /** Returns the verdict of `admit`, now or later. Neither throws nor rejects. */
  #ask(request: JoinRequest, options: unknown): Verdict | Promise<Verdict> {
    const { address, environment, log, memberships, roomId, state } = this.#stream
    const { definition } = this.#inputs.handlers
    const ctx = {
      roomId,
      key: address.key,
      now: environment.clock.now(),
      get members() {
        return memberships.members
      },
      get state() {
        return state.present as never
      },
      log,
    }
    try {
      const answer: unknown = environment.code.start(joinTurn(this.#stream, 'admit', request), () =>
        definition.admit?.(memberOf(request, this.#ownSeat(request)?.member.id), options, ctx),
      )
      return isPromise(answer) ? Promise.resolve(answer).then(verdictOf, failed) : verdictOf(answer)
    } catch (error) {
      return failed(error)
    }
  }

  #decided(request: JoinRequest, options: unknown, verdict: Verdict): void {
    if (this.#closed) this.#late(request)
    else if (verdict.admitted) this.#add(request, options)
    else {
      if ('why' in verdict) this.#refuse(request, 'join_refused', verdict.why)
      else this.#failed(request, 'admit', verdict.failure)
      this.#room.watchIdle()
    }
  }

  /**
   * Queues an attach or a detach of a member until its running join is decided, in place of an earlier one of the same kind. Returns false
   * if no join is running.
   */
  #wait(memberId: string, kind: 'attach' | 'detach', run: () => void): boolean {
    const running = this.#running.get(memberId)
    running?.waiting.delete(kind)
    running?.waiting.set(kind, () => this.#room.act(run))
    return running !== undefined
  }

  /** Stops waiting for the running join of a member, and returns its request. */
  #cancel(memberId: string): JoinRequest | undefined {
    const running = this.#running.get(memberId)
    running?.timeout.cancel()
    this.#running.delete(memberId)
    return running?.request
  }

  #add(request: JoinRequest, options: unknown): void {
    const { member_id: subscriptionId, session_id: sessionId, edge, codec, turn, data } = request
    const found = this.#seatFor(request)
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
        outcomes: [],
        forgotten: 0,
      },
      this.#stream.environment.limits.unconfirmed,
    )
    membership.resumes = turn
    let refused: Refusal | undefined
    if (seat) this.#inputs.replace(seat, membership, data ?? null)
    else refused = (found as Refusal | undefined) ?? this.#inputs.join(membership, options)
    if (refused) this.#refuse(request, refused.code, refused.message)
    this.#room.watchIdle()
  }

  /** Starts the span of a join, if its edge records one. */
  #beginSpan(request: JoinRequest): void {
    if (request.traceparent === undefined) return
    const { environment, epoch } = this.#stream
    const span = environment.tracer.span('room.join', {
      kind: 'consumer',
      parent: request,
      attributes: {
        ...roomAttributes(request.room),
        'roomful.session_id': request.session_id,
        'roomful.epoch': epoch,
        'roomful.durability': this.#inputs.handlers.definition.durability,
      },
    })
    this.#spans.set(request.member_id, span)
  }

  /** Result of a join, once its member has an answer. */
  #resultOf(memberId: string): string | undefined {
    const { memberships } = this.#stream
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

  /** Handles memberships without a socket whose time is over. They count as disconnected first, and are removed later. */
  #removeExpired(): void {
    const { environment, memberships } = this.#stream
    const { clock } = environment
    this.#room.act(() => {
      if (this.#closed) return
      let earliest = Number.POSITIVE_INFINITY
      for (const membership of [...memberships]) {
        // A turn of another member may have removed it.
        if (membership.attached || !memberships.has(membership)) continue
        const now = clock.monotonic()
        if (membership.member.connected && this.#dueAt(membership) <= now)
          this.#inputs.connected(membership, false)
        const due = this.#dueAt(membership)
        if (due > now) earliest = Math.min(earliest, due)
        else if (memberships.has(membership))
          this.#inputs.part(
            membership,
            'session_ended',
            `the connection was not back within ${this.#keptMs / 1000} s: join again`,
          )
      }
      if (earliest < Number.POSITIVE_INFINITY) this.#expiry.at(earliest)
    })
  }
}

/** Returns the joining member. `id`: id of a seat to take over. */
const memberOf = ({ member_id: subscriptionId, sub, data }: JoinRequest, id = subscriptionId): Member =>
  memberFor({ id, sub, connected: true, data: data ?? null })

const refused = (why: string): Verdict => ({ admitted: false, why })

/** Any answer except nothing and a text fails the join, because the author of `return false` does not mean to admit. */
function verdictOf(answer: unknown): Verdict {
  if (answer === undefined) return { admitted: true }
  if (typeof answer === 'string') return refused(answer.slice(0, 300) || 'the room refused the join')
  return failed(
    new RoomLogicError(
      `admit returned ${kindOf(answer)}; return nothing to admit, or a text for the player to refuse`,
    ),
  )
}

const failed = (failure: unknown): Verdict => ({ admitted: false, failure })

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
