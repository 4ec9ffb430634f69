import type { ErrorCode } from '../../shared/protocol/error-codes.ts'
import type { LeaveReason } from '../../shared/protocol/messages.ts'
import type { ToOwner } from '../traffic.ts'
import type { TurnHook, TurnRoom } from '../watchdog/turns.ts'
import type { RoomDefinition } from './definition.ts'
import type { Replies } from './delivery.ts'
import type { RoomEnvironment } from './environment.ts'
import { errorText, FAILED, type FailureLog, type Refused, validate } from './failures.ts'
import { type Effects, type Handlers, NOTHING, type Task } from './handlers.ts'
import type { Membership, Memberships } from './memberships.ts'
import type { RoomStream } from './stream.ts'
import type { StuckTurns } from './stuck-turns.ts'

/** What inputs need. */
export interface InputsParts {
  readonly environment: RoomEnvironment
  readonly handlers: Handlers
  readonly memberships: Memberships
  readonly stream: RoomStream
  readonly replies: Replies
  readonly failures: FailureLog
  readonly room: TurnRoom
  /** What is not to be begun again. */
  readonly stuck: StuckTurns
  /** Runs what no message asked for, now or when the room may act again. */
  readonly act: (run: () => void) => void
  /** A member came (1) or went (-1). */
  readonly onMembers: (change: number) => void
  /** The room logic wants the room to end. */
  readonly onClose: () => void
}

/** The turns of one room: lets its logic handle what happens, and takes over what came of each turn that succeeded. */
export class Inputs {
  readonly #parts: InputsParts
  /** In flight: those whose outcome waits until the room can act again count as well. */
  #tasks = 0

  constructor(parts: InputsParts) {
    this.#parts = parts
  }

  /** A message of a seated member: checked, applied at most once per ref, and acked with the update that carries its effect. */
  message(membership: Membership, message: Extract<ToOwner, { kind: 'message' }>): void {
    const { environment, handlers, room, stuck } = this.#parts
    const { type, ref } = message
    const { definition } = handlers
    const { id: memberId } = membership.member
    if (!this.#isNew(membership, message)) return
    if (ref !== undefined && stuck.hasMessage(memberId, ref)) {
      this.#refuse(membership, 'room_logic_failed', FAILED, ref)
      return
    }
    const spec = Object.hasOwn(definition.messages, type) ? definition.messages[type] : undefined
    if (!spec) {
      this.#refuse(
        membership,
        'unknown_type',
        `${definition.type} has no message ${JSON.stringify(type)}`,
        ref,
      )
      return
    }
    environment.turns.begin(room, 'onMessage', memberId, ref ?? 0, type)
    try {
      this.#apply(membership, message, spec)
    } finally {
      environment.turns.end()
    }
  }

  #apply(
    membership: Membership,
    { type, data, ref }: Extract<ToOwner, { kind: 'message' }>,
    spec: RoomDefinition['messages'][string],
  ): void {
    const { environment, handlers, stream } = this.#parts
    const { definition } = handlers
    const valid = validate(spec.data, data)
    if (!valid.ok && valid.cause !== undefined) {
      this.#threw(`the validator of ${type}`, valid.cause, membership, ref)
      return
    }
    if (!valid.ok) {
      this.#refuse(membership, 'invalid_payload', `${type}: ${valid.message}`, ref)
      return
    }
    if (spec.rate && !membership.mayTake(type, spec.rate, environment.clock)) {
      const { perSecond, burst } = spec.rate
      environment.metrics.rateLimited.inc({ by: 'type' })
      this.#refuse(
        membership,
        'rate_limited',
        `${type}: at most ${perSecond} a second, ${burst} at once`,
        ref,
      )
      return
    }
    const { state } = handlers
    let effects: Effects
    try {
      effects = handlers.message({ type, data: valid.value, member: membership.member })
    } catch (error) {
      this.#threw('onMessage', error, membership, ref)
      return
    }
    if (ref !== undefined) stream.pending.ack(membership)
    this.#takeOver(effects)
    environment.metrics.messagesApplied.inc({ room_type: definition.type })
    // What changed nothing and waits for no ack needs no flush; a kick has asked for one already.
    if (ref !== undefined || handlers.state !== state || effects.events.length > 0) stream.touch()
  }

  /** A message that its edge has refused: its ref is settled as if the room had. */
  refuse(membership: Membership, refused: Extract<ToOwner, { kind: 'refuse' }>): void {
    const { ref, code, message } = refused
    if (this.#isNew(membership, refused)) this.#refuse(membership, code, message, ref)
  }

  /** Adds a member, unless the room logic refuses: then it returns why, and nothing has happened. */
  join(membership: Membership, options: unknown): Refused | undefined {
    const { handlers, memberships, stream, failures, onMembers } = this.#parts
    memberships.add(membership)
    let effects: Effects
    try {
      effects = handlers.join(membership.member, options)
    } catch (error) {
      memberships.remove(membership)
      memberships.release(membership)
      return failures.explain('onJoin', error)
    }
    onMembers(1)
    stream.pending.join(membership)
    this.#takeOver(effects)
    stream.touch()
    return undefined
  }

  /** Removes a member; `onLeave` runs, unless the whole room ends. `ref`: the `leave` to answer. */
  part(membership: Membership, reason: LeaveReason, ref?: number): void {
    const { handlers, memberships, stream, stuck, onMembers } = this.#parts
    stream.pending.part(membership, reason, ref)
    memberships.remove(membership)
    onMembers(-1)
    const { id: memberId } = membership.member
    if (reason !== 'closed' && !stuck.hasLeave(memberId))
      this.#try('onLeave', () => handlers.leave(membership.member), { subject: memberId })
    stream.touch()
  }

  tick(): void {
    const { handlers, stream } = this.#parts
    const { state } = handlers
    this.#try('onTick', () => handlers.tick())
    if (handlers.state !== state || stream.pending.events.length > 0) stream.touch()
  }

  /** The last turn: nothing of it is sent. */
  dispose(): void {
    this.#try('onDispose', () => {
      this.#parts.handlers.dispose()
      return NOTHING
    })
  }

  /** Whether a message is to be handled now; a duplicate is answered, and one behind a gap asked for again. */
  #isNew(membership: Membership, message: Extract<ToOwner, { kind: 'message' | 'refuse' }>): boolean {
    const arrived = membership.refs.accept(message)
    if (arrived === 'gap') this.#requestResend(membership)
    else if (arrived === 'duplicate') this.#answerDuplicate(membership, message.ref!)
    return arrived === 'new'
  }

  /** Something of this member was lost on the way: its edge is to give again what is not settled. Asked once for each such place. */
  #requestResend(membership: Membership): void {
    const { replies } = this.#parts
    if (membership.missedAfter === membership.refs.last) return
    membership.missedAfter = membership.refs.last
    replies.send(membership.edge, { kind: 'resend' })
  }

  /** Room logic threw at a message of `membership`. */
  #threw(kind: string, error: unknown, membership: Membership, ref: number | undefined): void {
    const { code, message } = this.#parts.failures.explain(kind, error)
    this.#refuse(membership, code, message, ref)
  }

  #refuse(membership: Membership, code: ErrorCode, message: string, ref: number | undefined): void {
    const { replies, memberships, stream } = this.#parts
    if (ref !== undefined) {
      membership.refs.refuse({ ref, code, message }, memberships.size)
      stream.pending.ack(membership)
      stream.touch()
    }
    replies.error(membership, code, message, ref)
  }

  /** A ref that was settled before: it is answered once more, and never applied again. */
  #answerDuplicate(membership: Membership, ref: number): void {
    const { stream, replies } = this.#parts
    const outcome = membership.refs.of(ref)
    if (outcome === 'unknown') {
      const text = 'it came before, and whether it was applied is not known any more'
      replies.error(membership, 'outcome_unknown', text, ref)
      return
    }
    if (outcome !== 'applied') replies.error(membership, outcome.code, outcome.message, ref)
    if (!membership.refs.ackable) return
    if (membership.refs.last === membership.committedRef) {
      stream.delivery.repeatAck(membership)
      return
    }
    // Otherwise its ack is under way.
  }

  /** A turn that no one waits for. */
  #try(hook: TurnHook, turn: () => Effects, { kind = hook as string, subject = '', type = '' } = {}): void {
    const { environment, handlers, failures, room } = this.#parts
    environment.turns.begin(room, hook, subject, 0, type)
    try {
      this.#takeOver(turn())
    } catch (error) {
      const { code } = failures.explain(kind, error)
      environment.metrics.roomErrors.inc({ room_type: handlers.definition.type, code })
    } finally {
      environment.turns.end()
    }
  }

  /** What a turn asked for happens now that it is known to have succeeded. */
  #takeOver({ events, kicked, tasks, closed }: Effects): void {
    const { memberships, stream, onClose } = this.#parts
    for (const event of events) stream.pending.events.push(event)
    for (const task of tasks) this.#start(task)
    for (const memberId of kicked) {
      const membership = memberships.get(memberId)
      if (membership) this.part(membership, 'kicked')
    }
    if (closed) onClose()
  }

  /** Whether the room may have so many tasks more in flight. */
  mayStart(tasks: number): boolean {
    const { environment, handlers } = this.#parts
    if (this.#tasks + tasks <= environment.limits.tasks) return true
    environment.metrics.limitsReached.inc({ room_type: handlers.definition.type, limit: 'tasks' })
    return false
  }

  /** The outcome of a task is a turn of its own, whenever it comes. */
  #start({ type, work }: Task): void {
    const { environment, handlers, stream, act } = this.#parts
    const { turns } = environment
    const roomType = handlers.definition.type
    this.#tasks++
    turns.awaits(roomType, 1)
    const settle = (data: unknown) => {
      turns.awaits(roomType, -1)
      act(() => {
        this.#tasks--
        // Gone from the definition since.
        if (!Object.hasOwn(handlers.definition.tasks, type)) return
        this.#try('onMessage', () => handlers.message({ type, data, member: null }), {
          kind: `the outcome of task ${type}`,
          type,
        })
        stream.touch()
      })
    }
    Promise.resolve(work).then(
      (result) => {
        const schema = handlers.definition.tasks[type]
        const valid = schema ? validate(schema, result) : { ok: true as const, value: undefined }
        settle(valid.ok ? { ok: true, value: valid.value } : { ok: false, error: valid.message })
      },
      (error) => settle({ ok: false, error: errorText(error) }),
    )
  }
}
