import type { Json, JsonObject } from '../../shared/json.ts'
import type { ErrorCode } from '../../shared/protocol/error-codes.ts'
import { type DepartureReason, MAX } from '../../shared/protocol/messages.ts'
import { type RefusedRange, type RoomRequest, roomAddress, type ToOwner } from '../traffic.ts'
import type { CallType, Hook as Handler, MessageType, RoomDefinition, TaskType } from './definition.ts'
import type { CallInput, Member, MessageInput, Recipients, TaskOutcome } from './definition-types.ts'
import { errorText, FailureLog, kindOf, type Refused, RoomLogicError, validateInput } from './failures.ts'
import {
  type AskedEvent,
  type Effects,
  type HandledRoom,
  HandlerContext,
  NOTHING,
} from './handler-context.ts'
import type { TurnHook } from './hooks.ts'
import type { RoomEvent } from './journal.ts'
import { mayHave } from './limits.ts'
import type { Membership } from './memberships.ts'
import type { Room } from './room.ts'
import { type RoomTurn, turnOf } from './room-code.ts'
import { type LiveState, StateTooLarge } from './state.ts'
import type { ClaimedRoom, RoomStream } from './stream.ts'
import { seatName, type Tables } from './table.ts'
import {
  checkedResult,
  MOVED,
  RENEW_MS,
  type RoomTask,
  type RoomTimer,
  type Work,
} from './timers-and-tasks.ts'

/** Reason why a message or a join was not applied. */
export interface Refusal {
  readonly code: ErrorCode
  readonly message: string
}

type MessageFrom = Extract<ToOwner, { kind: 'message' }>

const TOO_MANY_REQUESTS = `${MAX.requests} replies, or too many bytes of them, are unconfirmed: confirm them with settled`

/** The turns of one room: calls its handlers, and applies the effects of each turn that succeeded. */
export class Inputs {
  readonly handlers: Handlers
  readonly failures: FailureLog
  readonly #room: Room
  readonly #stream: RoomStream
  /** Ids of the tasks whose work this owner has started. */
  readonly #running = new Set<string>()

  constructor({ environment, definition, log }: ClaimedRoom, room: Room) {
    const { clock, revealFailures } = environment
    this.handlers = new Handlers(definition, room.stream)
    this.failures = new FailureLog(clock, log, revealFailures)
    this.#room = room
    this.#stream = room.stream
  }

  /** Handles a member's message: checks it, applies it at most once per ref, and acks it with the update that contains its effects. */
  message(membership: Membership, message: MessageFrom): void {
    const { type, ref, settled = 0 } = message
    const { definition } = this.handlers
    const { id: memberId } = membership.member
    if (ref !== undefined) {
      if (!this.#isNew(membership, ref)) return
      membership.refs.known(settled)
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
    if (spec.reply && ref !== undefined && !this.#mayReply(membership)) {
      this.#refuse(membership, 'too_many_requests', TOO_MANY_REQUESTS, ref)
      return
    }
    const turn: RoomTurn = {
      room: this.#stream,
      hook: 'onMessage',
      subject: memberId,
      ref: ref ?? 0,
      type,
      principal: membership.principal,
    }
    let outcome: Effects | Refusal
    try {
      outcome = this.#stream.environment.code.run(turn, () => this.#handle(membership, message, spec))
    } catch (error) {
      this.#threw(spec.handle ? handleName(type) : 'onMessage', error, membership, ref)
      return
    }
    if ('code' in outcome) this.#refuse(membership, outcome.code, outcome.message, ref)
    else this.#applied(membership, ref, outcome)
  }

  /** The part of a message's turn that is room code, with the rate limit between validator and handler. */
  #handle(membership: Membership, { type, data }: MessageFrom, spec: MessageType): Effects | Refusal {
    const { environment, memberships } = this.#stream
    const { clock, metrics } = environment
    const valid = validateInput(spec.data, data)
    if (!valid.ok)
      return valid.cause === undefined
        ? { code: 'invalid_payload', message: `${type}: ${valid.message}` }
        : this.failures.explain(`the validator of ${type}`, valid.cause)
    if (spec.rate && !memberships.rates.take(membership.principal, type, spec.rate, clock)) {
      const { perSecond, burst } = spec.rate
      metrics.rateLimited.inc({ by: 'type' })
      return { code: 'rate_limited', message: `${type}: at most ${perSecond} a second, ${burst} at once` }
    }
    const input = { type, data: valid.value, member: membership.member }
    return this.handlers.run('onMessage', input, undefined, spec)
  }

  /** A message was applied. `effects`: the effects that its handler requested. */
  #applied(membership: Membership, ref: number | undefined, effects: Effects): void {
    const stream = this.#stream
    const { metrics } = stream.environment
    if (ref !== undefined) {
      const { reply } = effects
      if (reply !== undefined) membership.refs.keep({ ref, reply }, stream.memberships.size)
      stream.pending.ack(membership)
    }
    this.takeOver(effects)
    metrics.messagesApplied.inc({ room_type: this.handlers.definition.type })
    // Without a ref and without changes, no flush is needed. A kick has scheduled one already.
    if (ref !== undefined || stream.dirty || effects.events.length > 0) stream.touch()
  }

  /** The edge has refused these messages. Their refs are handled as if the room had refused them. */
  refuse(membership: Membership, { from, through, code, message }: RefusedRange): void {
    const first = Math.max(from, membership.refs.last + 1)
    if (!this.#isNew(membership, from, through)) return
    for (let ref = first; ref <= through; ref++) this.#refuse(membership, code, message, ref)
  }

  /** Adds a member. If the room logic rejects the join, returns the reason, and nothing has changed. */
  join(membership: Membership, options: unknown): Refused | undefined {
    const { memberships, pending, tables } = this.#stream
    const { member, sessionId, joinRequest, principal } = membership
    memberships.add(membership)
    tables.reservations.delete(seatName(member.sub, sessionId))
    const turn = {
      room: this.#stream,
      hook: 'onJoin',
      subject: sessionId,
      ref: joinRequest,
      type: '',
      principal,
    } as const
    let effects: Effects
    try {
      effects = this.#stream.environment.code.run(turn, () => this.handlers.run('onJoin', member, options))
    } catch (error) {
      memberships.remove(membership)
      memberships.release(membership)
      tables.rollback()
      return this.failures.explain('onJoin', error)
    }
    this.#room.watchIdle()
    this.#logMember(membership, 'member joined')
    pending.join(membership)
    this.takeOver(effects)
    this.#stream.touch()
    return undefined
  }

  /** Another session of the player takes over a seat. No member joins or leaves. `data`: claim of that session's token. */
  replace(before: Membership, membership: Membership, data: JsonObject | null): void {
    const { memberships, pending } = this.#stream
    membership.flushed = before.flushed
    pending.replace(before, membership)
    memberships.add(membership)
    memberships.remove(before)
    this.#logMember(membership, 'member replaced')
    this.renew(membership, data)
    this.connected(membership, true)
    this.#stream.touch()
  }

  /** A member has lost its connection, or has reconnected. */
  connected(membership: Membership, connected: boolean): void {
    const { memberships, pending } = this.#stream
    if (membership.member.connected === connected) return
    memberships.change(membership, { connected })
    pending.changed.add(membership)
    const { member } = membership
    const hook = connected ? 'onReconnect' : 'onDisconnect'
    this.#try(hook, () => this.handlers.run(hook, member), {
      subject: member.id,
      principal: membership.principal,
    })
    this.#stream.touch()
  }

  /** Replaces the `data` claim of a member. No handler runs. */
  renew(membership: Membership, data: JsonObject | null): void {
    const { memberships, pending } = this.#stream
    if (JSON.stringify(data) === JSON.stringify(membership.member.data)) return
    memberships.change(membership, { data })
    pending.changed.add(membership)
    this.#stream.touch()
  }

  /** Removes a member, and runs `onLeave` unless the whole room ends. `text`: the reason, for the player. */
  part(membership: Membership, reason: DepartureReason, text?: string): void {
    const { grants, memberships, pending } = this.#stream
    const { member } = membership
    pending.part(membership, reason, text)
    memberships.remove(membership)
    // A member that leaves with the room gets all of the last update, so it keeps its grants.
    if (reason !== 'closed') grants.forget(member.id)
    this.#room.watchIdle()
    this.#logMember(membership, 'member left', reason)
    if (reason !== 'closed')
      this.#try('onLeave', () => this.handlers.run('onLeave', member), {
        subject: member.id,
        principal: membership.principal,
      })
    this.#stream.touch()
  }

  #logMember(
    { member }: Membership,
    what: 'member joined' | 'member replaced' | 'member left',
    reason?: DepartureReason,
  ): void {
    const { log, memberships } = this.#stream
    const { id, sub } = member
    log.debug({ member_id: id, ...(sub !== null && { sub }), reason, members: memberships.size }, what)
  }

  tick(): void {
    const { pending } = this.#stream
    this.#try('onTick', () => this.handlers.run('onTick'))
    if (this.#stream.dirty || pending.events.length > 0) this.#stream.touch()
  }

  /** Handles the row that is due next: fires a timer, renews a task with `retry`, or ends a reservation. */
  due(): void {
    const { tables, environment } = this.#stream
    const [timer, task, reservation] = [tables.timers.next, tables.tasks.next, tables.reservations.next]
    if (timer && timer.due === tables.due) this.#fire(timer)
    else if (task && task.due === tables.due)
      tables.tasks.set({ ...task, due: environment.clock.now() + RENEW_MS })
    else if (reservation) tables.reservations.delete(reservation.id)
    tables.commit()
    this.#stream.touch()
  }

  /** Fires a timer. Its row is deleted, also if its handler throws. */
  #fire(timer: RoomTimer): void {
    const { tables, environment } = this.#stream
    tables.timers.delete(timer.id)
    tables.commit()
    const { id, due, name, data } = timer
    const { definition } = this.handlers
    const { clock, metrics } = environment
    metrics.timerLateness.observe(Math.max(0, clock.now() - due) / 1000)
    this.#try('onTimer', () => this.handlers.fire(name, data), {
      kind: `timers.${name}`,
      subject: id,
      ref: due,
      type: name,
    })
    metrics.timersFired.inc({ room_type: definition.type })
  }

  /** The update with these tasks is committed, by this owner or an earlier one. Starts their work. */
  begin(started: readonly RoomTask[]): void {
    for (const task of started) {
      if (this.#running.has(task.id)) continue
      this.#running.add(task.id)
      const work = task.work ?? this.#retried(task)
      if (typeof work === 'function') void this.#work(task, work)
      else this.#room.act(() => this.taskEnded(task, work))
    }
  }

  /** Returns the work of a task from the record, or the outcome of a task that cannot run here. */
  #retried({ id, name, data, due }: RoomTask): Work | TaskOutcome<never> {
    if (due === undefined) return MOVED
    return async () => {
      const { data: schema, run } = this.handlers.taskType(name) ?? {}
      if (!schema || !run)
        throw new RoomLogicError(`there is no task ${JSON.stringify(name)} with retry any more`)
      const valid = validateInput(schema, data)
      if (!valid.ok) throw valid.cause ?? new RoomLogicError(`its data: ${valid.message}`)
      const { address, environment, state } = this.#stream
      const isSystem = this.handlers.definition.system === true
      const internal = isSystem && {
        ask: (roomType: string, key: string, request: RoomRequest) =>
          environment.cluster.requests.send(roomAddress(address.projectId, roomType, key), request),
        state: state.flushed,
      }
      return run.call(this.handlers.definition.tasks[name], valid.value, { id, ...internal })
    }
  }

  async #work(task: RoomTask, work: Work): Promise<void> {
    const { code } = this.#stream.environment
    const { name, epoch, createdAt } = this.#stream
    // Neither the work nor the check of its result writes to the state.
    const turn = { ...turnOf({ name, epoch, createdAt }, 'task'), subject: task.id, type: task.name }
    let outcome: TaskOutcome<unknown>
    try {
      const value = await code.start(turn, work)
      outcome = code.run({ ...turn, hook: 'onTask' }, () =>
        checkedResult(this.handlers.taskType(task.name)?.result, value),
      )
    } catch (error) {
      outcome = { ok: false, error: errorText(error) }
    }
    this.#room.act(() => this.taskEnded(task, outcome))
  }

  /** Calls the task's handler with the outcome, in a new turn. The task ends, also if the handler throws. */
  taskEnded(task: RoomTask, outcome: TaskOutcome<unknown>): void {
    const { id, name } = task
    const { tables } = this.#stream
    tables.tasks.delete(id)
    tables.commit()
    this.#running.delete(id)
    this.#room.watchTimers()
    this.#try('onTask', () => this.handlers.taskEnded(task, outcome), {
      kind: `tasks.${name}`,
      subject: id,
      ref: 1,
      type: name,
    })
    this.#stream.touch()
  }

  /** The last turn. Members get nothing of it. Its notices are written with the end of the room. */
  dispose(): void {
    this.#try('onDispose', () => {
      this.#stream.notices.push(this.handlers.run('onDispose').notices)
      return NOTHING
    })
  }

  /**
   * True if the messages are new. After a gap, requests the missing messages again. A duplicate gets no answer: its outcome is on the way,
   * or was in the answer to the attach after which the edge sent it again.
   */
  #isNew(membership: Membership, from: number, through?: number): boolean {
    const arrived = membership.refs.accept(from, through)
    if (arrived === 'gap') this.#requestResend(membership)
    return arrived === 'new'
  }

  /** A message of this member was lost. Asks its edge to send unacknowledged messages again, once for each gap. */
  #requestResend({ edge, refs }: Membership): void {
    if (refs.missedAfter === refs.last) return
    refs.missedAfter = refs.last
    this.#stream.replies.send(edge, { kind: 'resend' })
  }

  #mayReply({ refs }: Membership): boolean {
    const { address, environment, memberships } = this.#stream
    const number = refs.repliesWithNext(memberships.size)
    return mayHave(environment, address.roomType, 'requests', number)
  }

  /** Room logic threw while it handled a message of `membership`. */
  #threw(kind: string, error: unknown, membership: Membership, ref: number | undefined): void {
    const { code, message } = this.failures.explain(kind, error)
    this.#refuse(membership, code, message, ref)
  }

  #refuse(membership: Membership, code: ErrorCode, message: string, ref: number | undefined): void {
    const { memberships, pending, replies } = this.#stream
    if (ref === undefined) {
      replies.failed(membership.edge, membership.subscriptionId, code, message)
      return
    }
    replies.countError(code)
    membership.refs.keep({ ref, code, message }, memberships.size)
    pending.ack(membership)
    this.#stream.touch()
  }

  /** Runs a turn that no client waits for. */
  #try(
    hook: TurnHook,
    turn: () => Effects,
    { kind = hook as string, subject = '', ref = 0, type = '', principal = '' } = {},
  ): void {
    const { code: runner, metrics } = this.#stream.environment
    let effects: Effects
    try {
      effects = runner.run({ room: this.#stream, hook, subject, ref, type, principal }, turn)
    } catch (error) {
      const { code } = this.failures.explain(kind, error)
      metrics.roomErrors.inc({ room_type: this.handlers.definition.type, code })
      return
    }
    this.takeOver(effects)
  }

  /** Applies the effects of a turn that has succeeded. */
  takeOver({ events, shown, kicked, notices, closed }: Effects): void {
    const { grants, memberships, pending, tables } = this.#stream
    for (const grant of shown) if (memberships.get(grant.memberId)) grants.change(grant)
    for (const event of events)
      pending.events.push(event.layer === undefined ? event : this.#addressed(event))
    if (tables.written) this.rowsChanged()
    if (notices.length > 0) {
      this.#stream.notices.push(notices)
      this.#stream.touch()
    }
    for (const { memberId, text } of kicked) {
      const membership = memberships.get(memberId)
      if (membership) this.part(membership, 'kicked', text)
    }
    if (closed) this.#room.close()
  }

  /** Commits the rows that a successful turn has written. */
  rowsChanged(): void {
    this.#stream.tables.commit()
    this.#room.watchTimers()
    this.#stream.touch()
  }

  /** Returns an event for a layer, with the members that get it. */
  #addressed({ layer, ...event }: AskedEvent): RoomEvent {
    const { grants, memberships } = this.#stream
    const ids = memberships.members.map(({ id }) => id)
    return { ...event, to: ids.filter((id) => grants.has(id, layer!)) }
  }
}

/** Handlers that `run` calls. */
type Hook = 'onJoin' | 'onMessage' | 'onDisconnect' | 'onReconnect' | 'onLeave' | 'onTick' | 'onDispose'

type Input = MessageInput<string, unknown>

/** The handlers of one room: each runs as an atomic turn of its state. */
class Handlers {
  definition: RoomDefinition
  readonly #state: LiveState
  readonly #tables: Tables
  readonly #context: HandlerContext

  constructor(definition: RoomDefinition, room: HandledRoom) {
    this.definition = definition
    this.#state = room.state
    this.#tables = room.tables
    this.#context = new HandlerContext(room)
  }

  /**
   * Runs one handler, for a member or an input if it takes one. Throws the handler's error, or a RoomLogicError. The state is then as
   * before, and the effects are dropped. `message`: the type of a member's message, which may have a handler.
   */
  run(hook: Hook, subject?: Member | Input, options?: unknown, message?: MessageType): Effects {
    if (message?.handle)
      return this.#turn(handleName((subject as Input).type), message.handle, subject, options, message)
    const handler = this.definition[hook]
    return handler ? this.#turn(hook, handler, subject, options, message) : NOTHING
  }

  /** Runs the handler of a timer. Throws as `run` does, also if the definition has no such timer any more. */
  fire(name: string, data: Json): Effects {
    const { timers } = this.definition
    const spec = Object.hasOwn(timers, name) ? timers[name] : undefined
    if (!spec) throw new RoomLogicError(`there is no timer ${JSON.stringify(name)} in the room type any more`)
    const valid = validateInput(spec.data, data)
    if (!valid.ok) throw valid.cause ?? new RoomLogicError(`its data: ${valid.message}`)
    return this.#turn(`timers.${name}`, spec.handle, { data: valid.value })
  }

  /** Runs the handler of a call. Throws as `run` does. */
  call(name: string, spec: CallType, input: CallInput<unknown>): Effects {
    return this.#turn(handleOfCall(name), spec.handle, input, undefined, spec)
  }

  /** Returns the type of a task. Undefined: the definition has no such task any more. */
  taskType(name: string): TaskType | undefined {
    const { tasks } = this.definition
    return Object.hasOwn(tasks, name) ? tasks[name] : undefined
  }

  /** Runs the handler of a task. Throws as `run` does. */
  taskEnded({ id, name, data, due }: RoomTask, outcome: TaskOutcome<unknown>): Effects {
    const spec = this.taskType(name)
    if (!spec) throw new RoomLogicError(`there is no task ${JSON.stringify(name)} in the room type any more`)
    if (due === undefined) return this.#turn(`tasks.${name}`, spec.handle, outcome)
    const valid = spec.data && validateInput(spec.data, data)
    if (valid?.ok === false) throw valid.cause ?? new RoomLogicError(`its data: ${valid.message}`)
    return this.#turn(`tasks.${name}`, spec.handle, { ...outcome, id, data: valid?.value })
  }

  #turn(
    name: string,
    handler: Handler,
    subject?: unknown,
    options?: unknown,
    message?: Pick<MessageType, 'reply'>,
  ): Effects {
    const { definition } = this
    const context = this.#context
    context.begin(definition, message, name === 'onDispose')
    const draft = this.#state.begin()
    try {
      const returned =
        subject === undefined
          ? handler.call(definition, draft, context)
          : handler.call(definition, draft, subject, context, options)
      const result = resultOf(name, draft, returned)
      if (message?.reply) context.requireReply()
      if (result?.event !== undefined) {
        const { name: event, data, to } = (result.event ?? {}) as NonNullable<Result['event']>
        context.emit(event, data, to)
      }
      this.#state.commit(result?.state)
      return context.end()
    } catch (error) {
      this.#tables.rollback()
      if (error instanceof StateTooLarge)
        context.metrics.limitsReached.inc({ room_type: definition.type, limit: 'state' })
      throw this.#state.undo(name, error, definition)
    } finally {
      context.end()
    }
  }
}

/** Name of a call's handler, as in the code of the room type. */
export const handleOfCall = (name: string): string => `calls.${name}.handle`

/** Name of the handler of one message type, as in the code of the room type. */
const handleName = (type: string): string => `messages.${type}.handle`

interface Result {
  readonly state?: unknown
  readonly event?: { readonly name: string; readonly data: unknown; readonly to?: Recipients }
}

/** Checks a handler's return value. Undefined: the handler only changed the draft. */
function resultOf(hook: string, draft: unknown, returned: unknown): Result | undefined {
  if (hook === 'onJoin' && (typeof returned === 'string' || returned === false))
    throw new RoomLogicError(
      `onJoin returned ${kindOf(returned)}, which refuses no one: call ctx.refuse(text), or return nothing`,
    )
  // Arrow functions such as `(state) => state.ticks++` return other values, which decide nothing.
  if (typeof returned !== 'object' || returned === null || returned === draft) return undefined
  if (typeof (returned as { then?: unknown }).then === 'function') {
    ;(returned as PromiseLike<unknown>).then(undefined, () => {})
    throw new RoomLogicError(
      `${hook} returned a promise; handlers are synchronous turns: give slow work to ctx.task`,
    )
  }
  // An arrow function that assigns, such as `(state) => (state.door = { state: 'open', by })`, returns what it assigns.
  const keys = Object.keys(returned)
  if (keys.length === 0 || keys.some((key) => key !== 'state' && key !== 'event'))
    throw new RoomLogicError(
      `${hook} returned ${kindOf(returned)}; return { state, event }, either alone, or nothing after changing the state`,
    )
  return returned as Result
}
