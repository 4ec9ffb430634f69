import type { Clock } from '../../shared/clock.ts'
import type { ErrorCode } from '../../shared/protocol/error-codes.ts'
import type { Span } from '../../shared/tracing/tracer.ts'
import { type JoinRequest, roomAttributes, type ToOwner } from '../traffic.ts'
import type { TurnHook, TurnRoom, Turns } from '../watchdog/turns.ts'
import type { AdmitContext, Member, RoomDefinition, RoomLog } from './definition.ts'
import type { Replies } from './delivery.ts'
import type { RoomEnvironment } from './environment.ts'
import { FAILED, type FailureLog } from './failures.ts'
import { type Logic, parseOptions } from './handlers.ts'
import type { Play } from './inputs.ts'
import { Seat, type Seats } from './memberships.ts'
import type { RoomStream } from './stream.ts'
import type { StuckTurns } from './stuck-turns.ts'

/** What doors are made of. */
export interface DoorsParts {
  readonly environment: RoomEnvironment
  readonly roomId: string
  readonly log: RoomLog
  readonly logic: Logic
  readonly seats: Seats
  readonly stream: RoomStream
  readonly play: Play
  readonly replies: Replies
  readonly failures: FailureLog
  readonly room: TurnRoom
  /** What is not to be begun again. */
  readonly stuck: StuckTurns
  /** Runs something that came by itself, now or when the room may act again. */
  readonly act: (run: () => void) => void
  /** Nobody is about to come in any more who was. */
  readonly onEmpty: () => void
  /** A join that the room cannot take any more, because it ends. */
  readonly onLate: (request: JoinRequest) => void
}

type Kind<K extends ToOwner['kind']> = Extract<ToOwner, { kind: K }>

/** Who comes into a room, goes, loses the connection and comes back. */
export class Doors {
  readonly #parts: DoorsParts
  readonly #admissions: Admissions
  /** The spans of joins whose members have not heard of them yet, by member id, and of the part each is at. */
  readonly #spans = new Map<string, { readonly whole: Span; part?: Span }>()
  readonly #expiry
  /** Attaches of members whose join is not delivered yet. */
  readonly #early = new Map<string, Kind<'attach'>>()
  #closed = false

  constructor(parts: DoorsParts) {
    this.#parts = parts
    const { clock, limits, scheduler, turns } = parts.environment
    this.#admissions = new Admissions(clock, limits.admitMs, turns)
    this.#expiry = scheduler.timer(() => this.#expireSeats())
    if (parts.seats.size > 0) this.#expiry.at(clock.monotonic() + limits.seatMs)
  }

  /** Whether nobody is in the room or about to be. */
  get empty(): boolean {
    return this.#parts.seats.size === 0 && this.#admissions.size === 0
  }

  /** Nobody comes in any more. */
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
    const { logic, seats, replies, stuck, roomId } = this.#parts
    const { definition } = logic
    const running = this.#admissions.ofSession(request.session_id)
    if (running) {
      if (running.ref !== request.ref)
        replies.refuse(request, 'already_joined', `the session is joining ${roomId} already`)
      return
    }
    const seated = seats.ofSession(request.session_id)
    if (seated && this.#rejoin(seated, request)) return
    this.#beginSpan(request)
    if (stuck.hasJoin(request.session_id, request.ref)) {
      this.#refuse(request, 'room_logic_failed', FAILED)
      return
    }
    const options = this.#during('options', request, () => parseOptions(definition, request.options))
    const full = seats.size + this.#admissions.size >= definition.maxMembers
    if (this.#closed) this.#late(request)
    else if (!options.ok && options.cause !== undefined)
      this.#failed(request, 'the validator of the options', options.cause)
    else if (!options.ok) this.#refuse(request, 'invalid_options', options.message)
    else if (full) this.#refuse(request, 'room_full', `${roomId} has its ${definition.maxMembers} members`)
    else if (definition.admit) this.#admit(request, options.value)
    else this.#seat(request, options.value)
  }

  leave(message: Kind<'leave'>, from: string): void {
    const { seats, play, replies, onEmpty } = this.#parts
    const { member_id: memberId, reason, ref } = message
    const seat = seats.get(memberId)
    if (seat) {
      // A session that went on at another edge ends there only.
      if (reason !== 'session_ended' || seat.isServedBy(from)) play.part(seat, reason, ref)
      return
    }
    const request = this.#admissions.cancel(memberId)
    if (request) this.#endSpan(memberId, reason)
    if (!request && !seats.recipient(memberId)) replies.noSeat(from, message)
    // Its join was under way, or it is being sent away at this moment.
    else if (ref !== undefined)
      replies.send(request?.edge ?? from, { kind: 'left', member_id: memberId, ref })
    onEmpty()
  }

  detach({ member_id: memberId }: Kind<'detach'>, from: string): void {
    const { seats, act } = this.#parts
    if (seats.get(memberId)) this.#detachSeat(memberId, from)
    else this.#admissions.wait(memberId, 'detach', () => act(() => this.#detachSeat(memberId, from)))
  }

  /** An edge is gone, and the sockets it held with it: its members wait to be resumed elsewhere. */
  detachEdge(edge: string): void {
    for (const { member } of this.#parts.seats) this.#detachSeat(member.member_id, edge)
  }

  attach(message: Kind<'attach'>): void {
    const { seats, replies, act } = this.#parts
    const { member_id: memberId, edge, codec, turn } = message
    const seat = seats.recipient(memberId)
    if (!seat) {
      if (!this.#admissions.wait(memberId, 'attach', () => act(() => this.attach(message))))
        replies.noSeat(edge, { member_id: memberId })
      return
    }
    // The session went on at another edge.
    if (turn < seat.turn) return
    seat.turn = turn
    seats.attach(seat, edge, codec)
    // Whoever is being sent away is told that soon.
    if (!seats.get(memberId)) return
    if (seat.settled) this.#attached(seat, message)
    else this.#early.set(memberId, message)
  }

  resync({ member_id: memberId, reason }: Kind<'resync'>, from: string): void {
    const { environment, logic, seats, stream, replies } = this.#parts
    const seat = seats.get(memberId)
    if (!seat) {
      if (!seats.recipient(memberId)) replies.noSeat(from, { member_id: memberId })
      return
    }
    // Its snapshot is under way, and newer than anything that could be sent now.
    if (!seat.settled) return
    environment.metrics.resyncs.inc({ room_type: logic.definition.type, reason })
    const { codec, edge } = seat
    const state = { [codec]: stream.catchUp.resync(codec) }
    replies.send(edge, { kind: 'state', member_id: memberId, seq: stream.delivered.seq, state })
  }

  /** A flush is delivered: whoever attached before its join was can be answered. */
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
    const { environment, seats } = this.#parts
    const seat = seats.get(memberId)
    if (seat?.edge !== from) return
    this.#early.delete(memberId)
    const now = environment.clock.monotonic()
    seats.detach(seat, now)
    if (!this.#expiry.waiting) this.#expiry.at(now + environment.limits.seatMs)
  }

  #attached(seat: Seat, attach: Kind<'attach'>): void {
    const { environment, logic, stream, replies } = this.#parts
    const { member_id: memberId, ask, edge, codec, epoch, seq, settled = 0 } = attach
    seat.settle(settled)
    seat.expectAgain()
    const missed = stream.catchUp.replay(seat, { epoch, seq })
    if (!missed) environment.metrics.resyncs.inc({ room_type: logic.definition.type, reason: 'resume' })
    replies.send(edge, {
      kind: 'attached',
      member_id: memberId,
      ask,
      seq: stream.delivered.seq,
      resumed: missed !== undefined,
      frames: missed ?? [{ [codec]: stream.catchUp.resync(codec) }],
      ...(seat.committedRef > 0 && seat.ackable ? { ack: seat.committedRef } : {}),
      refused: seat.outcomes.refusedBetween(0, seat.lastRef),
    })
  }

  /** A session that has a seat asks for one. False: the seat was one that nobody knew of any more, and is free again. */
  #rejoin(seat: Seat, request: JoinRequest): boolean {
    const { seats, stream, play, replies, roomId } = this.#parts
    // The session went on at another edge, and asks there for what it wants.
    if (request.turn < seat.turn) return true
    if (request.member_id !== seat.member.member_id) {
      // An edge that knew of the seat would not have asked: the answer was lost together with an earlier one.
      play.part(seat, 'session_ended')
      return false
    }
    if (request.ref !== seat.joinRef) {
      replies.refuse(request, 'already_joined', `the session is in ${roomId} already`)
      return true
    }
    seats.attach(seat, request.edge, request.codec)
    if (seat.settled) stream.catchUp.joinAgain(seat)
    return true
  }

  /** What became of a join, as far as its member has heard. */
  #resultOf(memberId: string): string | undefined {
    const { seats } = this.#parts
    const seat = seats.get(memberId)
    if (seat) return seat.settled ? 'joined' : undefined
    return this.#admissions.has(memberId) || seats.recipient(memberId) ? undefined : 'left'
  }

  #refuse(request: JoinRequest, code: ErrorCode, message: string): void {
    this.#endSpan(request.member_id, code)
    this.#parts.replies.refuse(request, code, message)
  }

  /** Room logic looks at a join. */
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
    const { environment, logic, seats, log, roomId, act } = this.#parts
    const member = Object.freeze({ member_id: request.member_id, sub: request.sub })
    const now = environment.clock.now()
    const ctx = { roomId, now, members: seats.members, state: logic.state as never, log }
    this.#during('admit', request, () =>
      this.#admissions.ask(logic.definition, request, member, options, ctx, (verdict) =>
        act(() => this.#admitted(request, options, verdict)),
      ),
    )
  }

  #admitted(request: JoinRequest, options: unknown, verdict: Verdict): void {
    const { onEmpty } = this.#parts
    if (this.#closed) this.#late(request)
    else if (verdict.admitted) this.#seat(request, options)
    else {
      if ('why' in verdict) this.#refuse(request, 'join_refused', verdict.why)
      else this.#failed(request, 'admit', verdict.failure)
      onEmpty()
    }
  }

  #seat(request: JoinRequest, options: unknown): void {
    const { environment, play, onEmpty } = this.#parts
    this.#beginPart(request.member_id, 'room.commit')
    const { member_id: memberId, sub, session_id: sessionId, ref, edge, codec, turn } = request
    const member = Object.freeze({ member_id: memberId, sub })
    const seat = new Seat(
      { member, sessionId, joinRef: ref, edge, codec, lastRef: 0, refused: [], forgotten: 0 },
      environment.limits.outcomes,
    )
    seat.turn = turn
    const refused = this.#during('onJoin', request, () => play.join(seat, options))
    if (refused) this.#refuse(request, refused.code, refused.message)
    onEmpty()
  }

  /** A join has reached the room; it has a span where its edge records it, which is never while traces are off. */
  #beginSpan(request: JoinRequest): void {
    if (request.traceparent === undefined) return
    const { environment, logic, stream } = this.#parts
    const whole = environment.tracer.span('room.join', {
      kind: 'consumer',
      parent: request,
      attributes: {
        ...roomAttributes(request.room),
        'roomful.session_id': request.session_id,
        'roomful.epoch': stream.epoch,
        'roomful.durability': logic.definition.durability,
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

  /** Seats whose edge never said what became of the session. */
  #expireSeats(): void {
    const { environment, seats, play, act } = this.#parts
    const { clock, limits } = environment
    act(() => {
      if (this.#closed) return
      let earliest = Number.POSITIVE_INFINITY
      for (const seat of [...seats]) {
        if (seat.detachedAt === undefined) continue
        const endsAt = seat.detachedAt + limits.seatMs
        if (endsAt > clock.monotonic()) earliest = Math.min(earliest, endsAt)
        else play.part(seat, 'session_ended')
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
export class Admissions {
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
