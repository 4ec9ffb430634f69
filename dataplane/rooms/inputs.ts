import type { ErrorCode } from '../../shared/protocol/error-codes.ts'
import type { LeaveReason } from '../../shared/protocol/messages.ts'
import type { Reliability, ToOwner } from '../traffic.ts'
import type { TurnHook, TurnRoom } from '../watchdog/turns.ts'
import type { RoomDefinition } from './definition.ts'
import type { Replies } from './delivery.ts'
import type { RoomEnvironment } from './environment.ts'
import { errorText, FAILED, type FailureLog, type Refused, validate } from './failures.ts'
import { type Effects, type Logic, NOTHING, type Task } from './handlers.ts'
import type { Seat, Seats } from './memberships.ts'
import type { RoomStream } from './stream.ts'
import type { StuckTurns } from './stuck-turns.ts'

/** What play is made of. */
export interface PlayParts {
  readonly environment: RoomEnvironment
  readonly logic: Logic
  readonly seats: Seats
  readonly stream: RoomStream
  readonly replies: Replies
  readonly failures: FailureLog
  readonly room: TurnRoom
  /** What is not to be begun again. */
  readonly stuck: StuckTurns
  /** Runs something that came by itself, now or when the room may act again. */
  readonly act: (run: () => void) => void
  /** Somebody came (1) or went (-1). */
  readonly onMembers: (change: number) => void
  /** The room logic wants the room to end. */
  readonly onClose: () => void
}

/** What a reliable message says besides itself; one that is not reliable has no ref. */
type Sent = Omit<Reliability, 'ref'> & { readonly ref?: number }

/** The turns of one room: lets its logic handle what happens, and takes over what came of each turn that succeeded. */
export class Play {
  readonly #parts: PlayParts
  /** In flight: those whose outcome waits for the thaw count as well. */
  #tasks = 0

  constructor(parts: PlayParts) {
    this.#parts = parts
  }

  /** A message of a seated member: checked, applied at most once per ref, and acked with the update that carries its effect. */
  message(seat: Seat, message: Extract<ToOwner, { kind: 'message' }>): void {
    const { environment, logic, room, stuck } = this.#parts
    const { type, ref } = message
    const { definition } = logic
    const { member_id: memberId } = seat.member
    if (!this.#settle(seat, message)) return
    if (ref !== undefined && stuck.hasMessage(memberId, ref)) {
      this.#refuse(seat, 'room_logic_failed', FAILED, ref)
      return
    }
    const spec = Object.hasOwn(definition.messages, type) ? definition.messages[type] : undefined
    if (!spec) {
      this.#refuse(seat, 'unknown_type', `${definition.type} has no message ${JSON.stringify(type)}`, ref)
      return
    }
    environment.turns.begin(room, 'onMessage', memberId, ref ?? 0, type)
    try {
      this.#apply(seat, message, spec)
    } finally {
      environment.turns.end()
    }
  }

  #apply(
    seat: Seat,
    { type, data, ref }: Extract<ToOwner, { kind: 'message' }>,
    spec: RoomDefinition['messages'][string],
  ): void {
    const { environment, logic, stream } = this.#parts
    const { definition } = logic
    const valid = validate(spec.data, data)
    if (!valid.ok && valid.cause !== undefined) {
      this.#threw(`the validator of ${type}`, valid.cause, seat, ref)
      return
    }
    if (!valid.ok) {
      this.#refuse(seat, 'invalid_payload', `${type}: ${valid.message}`, ref)
      return
    }
    if (spec.rate && !seat.mayTake(type, spec.rate, environment.clock)) {
      const { perSecond, burst } = spec.rate
      environment.metrics.rateLimited.inc({ by: 'type' })
      this.#refuse(seat, 'rate_limited', `${type}: at most ${perSecond} a second, ${burst} at once`, ref)
      return
    }
    const { state } = logic
    let effects: Effects
    try {
      effects = logic.message({ type, data: valid.value, member: seat.member })
    } catch (error) {
      this.#threw('onMessage', error, seat, ref)
      return
    }
    if (ref !== undefined) stream.pending.ack(seat)
    this.#takeOver(effects)
    environment.metrics.messagesApplied.inc({ room_type: definition.type })
    // What changed nothing and waits for no ack needs no flush; whoever was kicked has asked for one already.
    if (ref !== undefined || logic.state !== state || effects.events.length > 0) stream.touch()
  }

  /** A message that its edge has refused: its ref is settled as if the room had. */
  refuse(seat: Seat, refused: Extract<ToOwner, { kind: 'refuse' }>): void {
    const { ref, code, message } = refused
    if (this.#settle(seat, refused)) this.#refuse(seat, code, message, ref)
  }

  /** Somebody takes a seat, unless the room logic would not have it: then it is told why, and nothing has happened. */
  join(seat: Seat, options: unknown): Refused | undefined {
    const { logic, seats, stream, failures, onMembers } = this.#parts
    seats.add(seat)
    let effects: Effects
    try {
      effects = logic.join(seat.member, options)
    } catch (error) {
      seats.remove(seat)
      seats.release(seat)
      return failures.explain('onJoin', error)
    }
    onMembers(1)
    stream.pending.join(seat)
    this.#takeOver(effects)
    stream.touch()
    return undefined
  }

  /** A seat is given up; the room logic hears of it, unless the whole room ends. `ref`: the `leave` to answer. */
  part(seat: Seat, reason: LeaveReason, ref?: number): void {
    const { logic, seats, stream, stuck, onMembers } = this.#parts
    stream.pending.part(seat, reason, ref)
    seats.remove(seat)
    onMembers(-1)
    const { member_id: memberId } = seat.member
    if (reason !== 'closed' && !stuck.hasLeave(memberId))
      this.#try('onLeave', () => logic.leave(seat.member), { subject: memberId })
    stream.touch()
  }

  tick(): void {
    const { logic, stream } = this.#parts
    const { state } = logic
    this.#try('onTick', () => logic.tick())
    if (logic.state !== state || stream.pending.events.length > 0) stream.touch()
  }

  /** The last turn: nothing of it reaches anybody. */
  dispose(): void {
    this.#try('onDispose', () => {
      this.#parts.logic.dispose()
      return NOTHING
    })
  }

  /**
   * Applied or refused: a ref is settled from here on, and nothing is ever done under it again. False: it was before, or one before it
   * was lost on the way, which the edge sends again first. What has no ref is handled whenever it comes.
   */
  #settle(seat: Seat, { ref, after = 0, skipped = 0, settled = 0 }: Sent): boolean {
    const fresh = ref !== undefined && ref > seat.lastRef
    const lost = ref !== undefined && (!seat.comes(ref, after) || (fresh && after > seat.lastRef))
    if (fresh && !lost) {
      seat.lastRef = ref
      seat.outcomes.forget(skipped)
    }
    seat.settle(settled)
    if (lost) this.#askAgain(seat)
    else if (ref !== undefined && !fresh) this.#again(seat, ref)
    return ref === undefined || (fresh && !lost)
  }

  /** Something of this member was lost on the way: its edge is to give again what is not settled. Asked once for each such place. */
  #askAgain(seat: Seat): void {
    const { replies } = this.#parts
    if (seat.missedAfter === seat.lastRef) return
    seat.missedAfter = seat.lastRef
    replies.send(seat.edge, { kind: 'resend' })
  }

  /** Room logic threw at a message of `seat`. */
  #threw(kind: string, error: unknown, seat: Seat, ref: number | undefined): void {
    const { code, message } = this.#parts.failures.explain(kind, error)
    this.#refuse(seat, code, message, ref)
  }

  #refuse(seat: Seat, code: ErrorCode, message: string, ref: number | undefined): void {
    const { replies, seats, stream } = this.#parts
    if (ref !== undefined) {
      seat.outcomes.refuse({ ref, code, message }, seats.size)
      stream.pending.ack(seat)
      stream.touch()
    }
    replies.error(seat, code, message, ref)
  }

  /** A ref that was settled before: it is answered once more, and never applied again. */
  #again(seat: Seat, ref: number): void {
    const { stream, replies } = this.#parts
    const outcome = seat.outcomes.of(ref)
    if (outcome === 'unknown') {
      const text = 'it came before, and whether it was applied is not known any more'
      replies.error(seat, 'outcome_unknown', text, ref)
      return
    }
    if (outcome !== 'applied') replies.error(seat, outcome.code, outcome.message, ref)
    if (!seat.ackable) return
    if (seat.lastRef === seat.committedRef) {
      stream.catchUp.ackAgain(seat)
      return
    }
    // Otherwise its ack is under way.
  }

  /** A turn that nobody waits for. */
  #try(hook: TurnHook, turn: () => Effects, { kind = hook as string, subject = '', type = '' } = {}): void {
    const { environment, logic, failures, room } = this.#parts
    environment.turns.begin(room, hook, subject, 0, type)
    try {
      this.#takeOver(turn())
    } catch (error) {
      const { code } = failures.explain(kind, error)
      environment.metrics.roomErrors.inc({ room_type: logic.definition.type, code })
    } finally {
      environment.turns.end()
    }
  }

  /** What a turn asked for happens now that it is known to have succeeded. */
  #takeOver({ events, kicked, tasks, closed }: Effects): void {
    const { seats, stream, onClose } = this.#parts
    for (const event of events) stream.pending.events.push(event)
    for (const task of tasks) this.#start(task)
    for (const memberId of kicked) {
      const seat = seats.get(memberId)
      if (seat) this.part(seat, 'kicked')
    }
    if (closed) onClose()
  }

  /** Whether the room may have so many tasks more in flight. */
  mayStart(tasks: number): boolean {
    const { environment, logic } = this.#parts
    if (this.#tasks + tasks <= environment.limits.tasks) return true
    environment.metrics.limitsReached.inc({ room_type: logic.definition.type, limit: 'tasks' })
    return false
  }

  /** The outcome of a task is a turn of its own, whenever it comes. */
  #start({ type, work }: Task): void {
    const { environment, logic, stream, act } = this.#parts
    const { turns } = environment
    const roomType = logic.definition.type
    this.#tasks++
    turns.awaits(roomType, 1)
    const settle = (data: unknown) => {
      turns.awaits(roomType, -1)
      act(() => {
        this.#tasks--
        // Gone from the definition since.
        if (!Object.hasOwn(logic.definition.tasks, type)) return
        this.#try('onMessage', () => logic.message({ type, data, member: null }), {
          kind: `the outcome of task ${type}`,
          type,
        })
        stream.touch()
      })
    }
    Promise.resolve(work).then(
      (result) => {
        const schema = logic.definition.tasks[type]
        const valid = schema ? validate(schema, result) : { ok: true as const, value: undefined }
        settle(valid.ok ? { ok: true, value: valid.value } : { ok: false, error: valid.message })
      },
      (error) => settle({ ok: false, error: errorText(error) }),
    )
  }
}
