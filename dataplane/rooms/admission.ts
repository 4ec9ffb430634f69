import type { Clock } from '../../shared/clock.ts'
import type { ErrorCode } from '../../shared/protocol/error-codes.ts'
import type { Span } from '../../shared/tracing/tracer.ts'
import { type JoinRequest, roomAttributes, type ToOwner } from '../traffic.ts'
import type { TurnHook, TurnRoom, Turns } from '../watchdog/turns.ts'
import type { AdmitContext, Member, RoomDefinition, RoomLog } from './definition.ts'
import type { Replies } from './delivery.ts'
import type { RoomEnvironment } from './environment.ts'
import { FAILED, type FailureLog } from './failures.ts'
import { type Handlers, parseOptions } from './handlers.ts'
import type { Inputs } from './inputs.ts'
import { Membership, type Memberships } from './memberships.ts'
import type { RoomStream } from './stream.ts'
import type { StuckTurns } from './stuck-turns.ts'

/** What admission needs. */
export interface AdmissionParts {
  readonly environment: RoomEnvironment
  readonly roomId: string
  readonly log: RoomLog
  readonly handlers: Handlers
  readonly memberships: Memberships
  readonly stream: RoomStream
  readonly inputs: Inputs
  readonly replies: Replies
  readonly failures: FailureLog
  readonly room: TurnRoom
  /** What is not to be begun again. */
  readonly stuck: StuckTurns
  /** Runs what no message asked for, now or when the room may act again. */
  readonly act: (run: () => void) => void
  /** No join is under way any more. */
  readonly onEmpty: () => void
  /** A join that the room cannot take any more, because it ends. */
  readonly onLate: (request: JoinRequest) => void
}

type Kind<K extends ToOwner['kind']> = Extract<ToOwner, { kind: K }>

/** Joins, leaves, detaches and attaches of one room's members. */
export class RoomAdmission {
  readonly #parts: AdmissionParts
  readonly #admissions: RunningAdmits
  /** The spans of joins whose members have not heard of them yet, by member id, and of the part each is at. */
  readonly #spans = new Map<string, { readonly whole: Span; part?: Span }>()
  readonly #expiry
  /** Attaches of members whose join is not delivered yet. */
  readonly #early = new Map<string, Kind<'attach'>>()
  #closed = false

  constructor(parts: AdmissionParts) {
    this.#parts = parts
    const { clock, limits, scheduler, turns } = parts.environment
    this.#admissions = new RunningAdmits(clock, limits.admitMs, turns)
    this.#expiry = scheduler.timer(() => this.#expireSeats())
    if (parts.memberships.size > 0) this.#expiry.at(clock.monotonic() + limits.seatMs)
  }

  /** Whether the room has no member, and no join is under way. */
  get empty(): boolean {
    return this.#parts.memberships.size === 0 && this.#admissions.size === 0
  }

  /** No one joins any more. */
  close(): void {
    this.#closed = true
    this.#expiry.cancel()
    for (const request of this.#admissions.cancelAll()) this.#late(request)
  }

  /** The room is no longer here; `end` says how that came. */
  ended(end: string): void {
    for (const memberId of this.#spans.keys()) this.#endSpan(memberId, end)
  }

  join(request: JoinRequest): void {
    const { handlers, memberships, replies, stuck, roomId } = this.#parts
    const { definition } = handlers
    const running = this.#admissions.ofSession(request.session_id)
    if (running) {
      if (running.ref !== request.ref)
        replies.refuse(request, 'already_joined', `the session is joining ${roomId} already`)
      return
    }
    const seated = memberships.ofSession(request.session_id)
    if (seated && this.#rejoin(seated, request)) return
    this.#beginSpan(request)
    if (stuck.hasJoin(request.session_id, request.ref)) {
      this.#refuse(request, 'room_logic_failed', FAILED)
      return
    }
    const options = this.#during('options', request, () => parseOptions(definition, request.options))
    const full = memberships.size + this.#admissions.size >= definition.maxMembers
    if (this.#closed) this.#late(request)
    else if (!options.ok && options.cause !== undefined)
      this.#failed(request, 'the validator of the options', options.cause)
    else if (!options.ok) this.#refuse(request, 'invalid_options', options.message)
    else if (full) this.#refuse(request, 'room_full', `${roomId} has its ${definition.maxMembers} members`)
    else if (definition.admit) this.#admit(request, options.value)
    else this.#membership(request, options.value)
  }

  leave(message: Kind<'leave'>, from: string): void {
    const { memberships, inputs, replies, onEmpty } = this.#parts
    const { member_id: memberId, reason, ref } = message
    const membership = memberships.get(memberId)
    if (membership) {
      // A session that went on at another edge ends there only.
      if (reason !== 'session_ended' || membership.isServedBy(from)) inputs.part(membership, reason, ref)
      return
    }
    const request = this.#admissions.cancel(memberId)
    if (request) this.#endSpan(memberId, reason)
    if (!request && !memberships.recipient(memberId)) replies.noSeat(from, message)
    // Its join was under way, or it is being sent away at this moment.
    else if (ref !== undefined)
      replies.send(request?.edge ?? from, { kind: 'left', member_id: memberId, ref })
    onEmpty()
  }

  detach({ member_id: memberId }: Kind<'detach'>, from: string): void {
    const { memberships, act } = this.#parts
    if (memberships.get(memberId)) this.#detachSeat(memberId, from)
    else this.#admissions.wait(memberId, 'detach', () => act(() => this.#detachSeat(memberId, from)))
  }

  /** An edge is gone, and the sockets it held with it: its members wait to be resumed elsewhere. */
  detachEdge(edge: string): void {
    for (const { member } of this.#parts.memberships) this.#detachSeat(member.id, edge)
  }

  attach(message: Kind<'attach'>): void {
    const { memberships, replies, act } = this.#parts
    const { member_id: memberId, edge, codec, turn } = message
    const membership = memberships.recipient(memberId)
    if (!membership) {
      if (!this.#admissions.wait(memberId, 'attach', () => act(() => this.attach(message))))
        replies.noSeat(edge, { member_id: memberId })
      return
    }
    // The session went on at another edge.
    if (turn < membership.turn) return
    membership.turn = turn
    memberships.attach(membership, edge, codec)
    // A member that is being removed is told so soon.
    if (!memberships.get(memberId)) return
    if (membership.settled) this.#attached(membership, message)
    else this.#early.set(memberId, message)
  }

  resync({ member_id: memberId, reason }: Kind<'resync'>, from: string): void {
    const { environment, handlers, memberships, stream, replies } = this.#parts
    const membership = memberships.get(memberId)
    if (!membership) {
      if (!memberships.recipient(memberId)) replies.noSeat(from, { member_id: memberId })
      return
    }
    // Its snapshot is under way, and newer than anything that could be sent now.
    if (!membership.settled) return
    environment.metrics.resyncs.inc({ room_type: handlers.definition.type, reason })
    const { codec, edge } = membership
    const state = { [codec]: stream.delivery.resync(codec) }
    replies.send(edge, { kind: 'state', member_id: memberId, seq: stream.delivery.delivered.seq, state })
  }

  /** A flush is delivered: a member that attached before its join was delivered can be answered. */
  delivered(): void {
    for (const memberId of this.#spans.keys()) {
      const result = this.#resultOf(memberId)
      if (result !== undefined) this.#endSpan(memberId, result)
    }
    if (this.#early.size === 0) return
    const early = [...this.#early.values()]
    this.#early.clear()
    for (const attach of early) this.attach(attach)
  }

  /** Unless the session is at another edge by now. */
  #detachSeat(memberId: string, from: string): void {
    const { environment, memberships } = this.#parts
    const membership = memberships.get(memberId)
    if (membership?.edge !== from) return
    this.#early.delete(memberId)
    const now = environment.clock.monotonic()
    memberships.detach(membership, now)
    if (!this.#expiry.waiting) this.#expiry.at(now + environment.limits.seatMs)
  }

  #attached(membership: Membership, attach: Kind<'attach'>): void {
    const { environment, handlers, stream, replies } = this.#parts
    const { member_id: memberId, ask, edge, codec, epoch, seq, settled = 0 } = attach
    membership.refs.settle(settled)
    membership.refs.expectRepeats()
    const missed = stream.history.replay({ epoch, seq }, stream.epoch, memberId, codec)
    if (!missed) environment.metrics.resyncs.inc({ room_type: handlers.definition.type, reason: 'resume' })
    replies.send(edge, {
      kind: 'attached',
      member_id: memberId,
      ask,
      seq: stream.delivery.delivered.seq,
      resumed: missed !== undefined,
      frames: missed ?? [{ [codec]: stream.delivery.resync(codec) }],
      ...(membership.committedRef > 0 && membership.refs.ackable ? { ack: membership.committedRef } : {}),
      refused: membership.refs.refusedBetween(0, membership.refs.last),
    })
  }

  /** A session that is a member asks to join. False: no one knew of the membership any more, and it is free again. */
  #rejoin(membership: Membership, request: JoinRequest): boolean {
    const { memberships, stream, inputs, replies, roomId } = this.#parts
    // The session went on at another edge, and asks there for what it wants.
    if (request.turn < membership.turn) return true
    if (request.member_id !== membership.member.id) {
      // An edge that knew of the membership would not have asked: the answer was lost together with an earlier one.
      inputs.part(membership, 'session_ended')
      return false
    }
    if (request.ref !== membership.joinRef) {
      replies.refuse(request, 'already_joined', `the session is in ${roomId} already`)
      return true
    }
    memberships.attach(membership, request.edge, request.codec)
    if (membership.settled) stream.delivery.repeatJoin(membership)
    return true
  }

  /** What became of a join, as far as its member has heard. */
  #resultOf(memberId: string): string | undefined {
    const { memberships } = this.#parts
    const membership = memberships.get(memberId)
    if (membership) return membership.settled ? 'joined' : undefined
    return this.#admissions.has(memberId) || memberships.recipient(memberId) ? undefined : 'left'
  }

  #refuse(request: JoinRequest, code: ErrorCode, message: string): void {
    this.#endSpan(request.member_id, code)
    this.#parts.replies.refuse(request, code, message)
  }

  /** Runs room logic for a join. */
  #during<T>(hook: TurnHook, { session_id: sessionId, ref }: JoinRequest, look: () => T): T {
    const { environment, room } = this.#parts
    environment.turns.begin(room, hook, sessionId, ref, '')
    try {
      return look()
    } finally {
      environment.turns.end()
    }
  }

  /** Room logic threw at a join. */
  #failed(request: JoinRequest, kind: string, error: unknown): void {
    const { code, message } = this.#parts.failures.explain(kind, error)
    this.#refuse(request, code, message)
  }

  #late(request: JoinRequest): void {
    this.#endSpan(request.member_id, 'late')
    this.#parts.onLate(request)
  }

  #admit(request: JoinRequest, options: unknown): void {
    this.#beginPart(request.member_id, 'room.admit')
    const { environment, handlers, memberships, log, roomId, act } = this.#parts
    const member = Object.freeze({ id: request.member_id, sub: request.sub })
    const now = environment.clock.now()
    const ctx = { roomId, now, members: memberships.members, state: handlers.state as never, log }
    this.#during('admit', request, () =>
      this.#admissions.ask(handlers.definition, request, member, options, ctx, (verdict) =>
        act(() => this.#admitted(request, options, verdict)),
      ),
    )
  }

  #admitted(request: JoinRequest, options: unknown, verdict: Verdict): void {
    const { onEmpty } = this.#parts
    if (this.#closed) this.#late(request)
    else if (verdict.admitted) this.#membership(request, options)
    else {
      if ('why' in verdict) this.#refuse(request, 'join_refused', verdict.why)
      else this.#failed(request, 'admit', verdict.failure)
      onEmpty()
    }
  }

  #membership(request: JoinRequest, options: unknown): void {
    const { environment, inputs, onEmpty } = this.#parts
    this.#beginPart(request.member_id, 'room.commit')
    const { member_id: memberId, sub, session_id: sessionId, ref, edge, codec, turn } = request
    const member = Object.freeze({ id: memberId, sub })
    const membership = new Membership(
      { member, sessionId, joinRef: ref, edge, codec, lastRef: 0, refused: [], forgotten: 0 },
      environment.limits.outcomes,
    )
    membership.turn = turn
    const refused = this.#during('onJoin', request, () => inputs.join(membership, options))
    if (refused) this.#refuse(request, refused.code, refused.message)
    onEmpty()
  }

  /** A join has reached the room; it has a span where its edge records it, which is never while traces are off. */
  #beginSpan(request: JoinRequest): void {
    if (request.traceparent === undefined) return
    const { environment, handlers, stream } = this.#parts
    const whole = environment.tracer.span('room.join', {
      kind: 'consumer',
      parent: request,
      attributes: {
        ...roomAttributes(request.room),
        'roomful.session_id': request.session_id,
        'roomful.epoch': stream.epoch,
        'roomful.durability': handlers.definition.durability,
      },
    })
    this.#spans.set(request.member_id, { whole })
  }

  /** A join goes on with its next part. */
  #beginPart(memberId: string, name: 'room.admit' | 'room.commit'): void {
    const spans = this.#spans.get(memberId)
    if (!spans) return
    spans.part?.end()
    spans.part = this.#parts.environment.tracer.span(name, { parent: spans.whole })
  }

  /** A join is over for the room, if it was under way; `result` is one word. */
  #endSpan(memberId: string, result: string): void {
    const { whole, part } = this.#spans.get(memberId) ?? {}
    this.#spans.delete(memberId)
    part?.end()
    whole?.set({ 'roomful.result': result })
    whole?.end()
  }

  /** Memberships whose edge never said what became of the session. */
  #expireSeats(): void {
    const { environment, memberships, inputs, act } = this.#parts
    const { clock, limits } = environment
    act(() => {
      if (this.#closed) return
      let earliest = Number.POSITIVE_INFINITY
      for (const membership of [...memberships]) {
        if (membership.detachedAt === undefined) continue
        const endsAt = membership.detachedAt + limits.seatMs
        if (endsAt > clock.monotonic()) earliest = Math.min(earliest, endsAt)
        else inputs.part(membership, 'session_ended')
      }
      if (earliest < Number.POSITIVE_INFINITY) this.#expiry.at(earliest)
    })
  }
}

/** What became of a join that was to be admitted. */
export type Verdict =
  | { readonly admitted: true }
  | { readonly admitted: false; readonly why: string }
  | { readonly admitted: false; readonly failure: unknown }

/** A join whose `admit` is running. */
interface Running {
  readonly request: JoinRequest
  /** What came for this member meanwhile, in order: of each kind the last. */
  readonly waiting: Map<string, () => void>
  readonly cancelTimeout: () => void
}

const ADMITTED: Verdict = { admitted: true }

/** The joins of one room that are being admitted. Each holds a place, so that a full room stays a full room. */
export class RunningAdmits {
  readonly #clock: Clock
  readonly #timeoutMs: number
  readonly #turns: Pick<Turns, 'awaits'>
  readonly #running = new Map<string, Running>()

  constructor(clock: Clock, timeoutMs: number, turns: Pick<Turns, 'awaits'>) {
    this.#clock = clock
    this.#timeoutMs = timeoutMs
    this.#turns = turns
  }

  get size(): number {
    return this.#running.size
  }

  /** The running join of a session. */
  ofSession(sessionId: string): JoinRequest | undefined {
    for (const { request } of this.#running.values()) if (request.session_id === sessionId) return request
    return undefined
  }

  /** Whether the join of this member is running. */
  has(memberId: string): boolean {
    return this.#running.has(memberId)
  }

  /** Asks `admit`; `settled` is called once, in this turn when there is nothing to wait for, and never after `cancel`. */
  ask(
    definition: RoomDefinition,
    request: JoinRequest,
    member: Member,
    options: unknown,
    ctx: AdmitContext,
    settled: (verdict: Verdict) => void,
  ): void {
    const answer = answerOf(definition, member, options, ctx)
    if (!(answer instanceof Promise)) {
      settled(answer)
      return
    }
    const settle = (verdict: Verdict) => {
      if (this.#running.get(request.member_id) !== running) return
      this.#running.delete(request.member_id)
      running.cancelTimeout()
      settled(verdict)
      for (const wait of running.waiting.values()) wait()
    }
    const running: Running = {
      request,
      waiting: new Map(),
      cancelTimeout: this.#clock.schedule(this.#timeoutMs, () =>
        settle(refused(`the room did not decide within ${this.#timeoutMs / 1000} seconds: try again`)),
      ),
    }
    this.#running.set(request.member_id, running)
    this.#turns.awaits(definition.type, 1)
    answer.then((verdict) => {
      this.#turns.awaits(definition.type, -1)
      settle(verdict)
    })
  }

  /** Makes something of this member wait for its join, in the place of an earlier one of its kind; false when no join is running. */
  wait(memberId: string, kind: 'attach' | 'detach', then: () => void): boolean {
    const running = this.#running.get(memberId)
    running?.waiting.delete(kind)
    running?.waiting.set(kind, then)
    return running !== undefined
  }

  /** The join is not wanted any more; false when none is running. */
  cancel(memberId: string): JoinRequest | undefined {
    const running = this.#running.get(memberId)
    running?.cancelTimeout()
    this.#running.delete(memberId)
    return running?.request
  }

  /** Ends all of them without a verdict. */
  cancelAll(): readonly JoinRequest[] {
    return [...this.#running.keys()].flatMap((memberId) => this.cancel(memberId) ?? [])
  }
}

/** What `admit` says, now or later. Neither throws nor rejects. */
function answerOf(
  definition: RoomDefinition,
  member: Member,
  options: unknown,
  ctx: AdmitContext,
): Verdict | Promise<Verdict> {
  try {
    const answer: unknown = definition.admit?.(member, options, ctx)
    return isPromise(answer) ? Promise.resolve(answer).then(verdictOf, failed) : verdictOf(answer)
  } catch (error) {
    return failed(error)
  }
}

const refused = (why: string): Verdict => ({ admitted: false, why })

const verdictOf = (answer: unknown): Verdict =>
  typeof answer === 'string' ? refused(answer.slice(0, 300) || 'the room refused the join') : ADMITTED

const failed = (failure: unknown): Verdict => ({ admitted: false, failure })

const isPromise = (value: unknown): value is PromiseLike<unknown> =>
  typeof (value as PromiseLike<unknown> | undefined | null)?.then === 'function'
