import type { Clock } from '../../shared/clock.ts'
import type { Json, JsonObject } from '../../shared/json.ts'
import type { ErrorCode } from '../../shared/protocol/error-codes.ts'
import { type DepartureReason, MAX } from '../../shared/protocol/messages.ts'
import type { MemberMessage, RefusedRange, SeatEnd, ToOwner } from '../traffic.ts'
import type { Additions } from './additions.ts'
import type { Changes } from './changes.ts'
import type { Wants } from './core.ts'
import type { CallType, Hook as Handler, MessageType, TaskType } from './definition.ts'
import type { CallInput, Member, TaskOutcome } from './definition-types.ts'
import { FailureLog, type Refused, RoomLogicError, validateInput } from './failures.ts'
import {
  type AskedEvent,
  type ContextNeeds,
  type ContextRoom,
  type Effects,
  HandlerContext,
  NOTHING,
  type Result,
  resultOf,
} from './handler-context.ts'
import type { TurnHook } from './hooks.ts'
import type { RoomEvent } from './journal.ts'
import { mayHave } from './limits.ts'
import type { Membership } from './memberships.ts'
import { Rates } from './rates.ts'
import type { Replies } from './replies.ts'
import { type CodeRoom, type RoomCode, type RoomTurn, turnOf } from './room-code.ts'
import { StateTooLarge, turnError } from './state.ts'
import { seatName } from './table.ts'
import { RENEW_MS, type RoomTask, type RoomTimer } from './timers-and-tasks.ts'

type MessageFrom = Extract<ToOwner, { kind: 'message' }>
type RefusedFrom = Extract<ToOwner, { kind: 'refuse' }>

const TOO_MANY_REQUESTS = `${MAX.requests} replies, or too many bytes of them, are unconfirmed: confirm them with settled`

/** Sender of a call. */
interface CalledBy {
  readonly key_id: string
  readonly call_id: string
}

/** The room whose turns run. */
interface TurnedRoom extends ContextRoom, CodeRoom {
  readonly createdAt: number
  readonly changes: Changes
  readonly wants: Wants
}

/** Dependencies of the turns of a room. */
export interface TurnNeeds extends ContextNeeds {
  readonly clock: Clock
  readonly code: RoomCode
  /** True if players see what failing room logic threw. For development. */
  readonly revealFailures: boolean
}

/**
 * The turns of one room: calls its handlers, each as an atomic turn of its state, and applies the effects of each turn that succeeded. Wishes
 * are left in `wants` of the room.
 */
export class Turns {
  readonly failures: FailureLog
  readonly #room: TurnedRoom
  readonly #replies: Replies
  readonly #additions: Additions
  readonly #needs: TurnNeeds
  readonly #context: HandlerContext
  readonly #rates = new Rates()

  /** `awayMs`: milliseconds for which the room had no owner. */
  constructor(room: TurnedRoom, awayMs: number, additions: Additions, replies: Replies, needs: TurnNeeds) {
    this.failures = new FailureLog(needs.clock, room.log, needs.revealFailures)
    this.#room = room
    this.#replies = replies
    this.#additions = additions
    this.#needs = needs
    this.#context = new HandlerContext(room, awayMs, additions, needs)
    for (const { principal } of room.memberships) this.#rates.join(principal)
  }

  /** The rates of messages have changed: all members start again with full rates. */
  forgetRates(): void {
    this.#rates.forget()
  }

  #enter(membership: Membership): void {
    this.#room.memberships.add(membership)
    this.#rates.join(membership.principal)
  }

  #exit(membership: Membership): void {
    this.#room.memberships.remove(membership)
    this.#rates.leave(membership.principal)
  }

  /** Handles messages of a member, or the refusal of such messages by the member's edge. */
  receive(message: MessageFrom | RefusedFrom, from: string): void {
    const { memberships } = this.#room
    const membership = memberships.ofSubscription(message.member_id)
    if (!membership) {
      // A member that is being removed gets `left` soon.
      if (!memberships.addressee(message.member_id)) this.#replies.noSeat(from, message.member_id)
      return
    }
    // The session has moved to another edge. Its client sends unacknowledged messages again there.
    if (!membership.isServedBy(from)) return
    const { detached } = membership
    if (detached && !detached.isAsked) {
      // Its edge does not know that it counts as detached. Without an attach it would get no acks and no layers.
      detached.isAsked = true
      this.#replies.send(from, { kind: 'resend' })
    }
    if (message.kind === 'message') this.message(membership, message)
    else this.#refuseAll(membership, message)
  }

  /** Handles a member's message: checks it, applies it at most once per ref, and acks it with the update that contains its effects. */
  message(membership: Membership, message: MemberMessage): void {
    const { type, ref, settled = 0 } = message
    const { definition } = this.#room
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
    if (membership.member.spectator && !spec.spectators) {
      this.#refuse(membership, 'not_a_player', `spectators send no ${JSON.stringify(type)}`, ref)
      return
    }
    if (spec.reply && ref !== undefined && !this.#mayReply(membership)) {
      this.#refuse(membership, 'too_many_requests', TOO_MANY_REQUESTS, ref)
      return
    }
    const turn = this.#messageTurn(membership, type, ref)
    const name = spec.handle ? `messages.${type}.handle` : 'onMessage'
    let outcome: Effects | Refused
    try {
      outcome = this.#needs.code.run(turn, this.#handle, name, membership, message, spec)
    } catch (error) {
      this.#threw(name, error, membership, ref)
      return
    }
    if ('code' in outcome) this.#refuse(membership, outcome.code, outcome.message, ref)
    else this.#applied(membership, ref, outcome)
  }

  /** Returns the turn of a message. Messages of one type without a ref share an object, because a member sends many of them. */
  #messageTurn(membership: Membership, type: string, ref: number | undefined): RoomTurn {
    const { member, principal, lastTurn } = membership
    if (ref === undefined && lastTurn?.type === type) return lastTurn
    const turn = {
      room: this.#room,
      hook: 'onMessage',
      subject: member.id,
      ref: ref ?? 0,
      type,
      principal,
    } as const
    if (ref === undefined) membership.lastTurn = turn
    return turn
  }

  /** The part of a message's turn that is room code, with the rate limit between validator and handler. `name`: that of the handler. */
  readonly #handle = (
    name: string,
    membership: Membership,
    { type, data }: MemberMessage,
    spec: MessageType,
  ): Effects | Refused => {
    const { clock, metrics } = this.#needs
    const valid = validateInput(spec.data, data)
    if (!valid.ok)
      return valid.cause === undefined
        ? { code: 'invalid_payload', message: `${type}: ${valid.message}` }
        : this.failures.explain(`the validator of ${type}`, valid.cause)
    if (spec.rate && !this.#rates.take(membership.principal, type, spec.rate, clock)) {
      const { perSecond, burst } = spec.rate
      metrics.rateLimited.inc({ by: 'type' })
      return { code: 'rate_limited', message: `${type}: limit: ${perSecond}/s, and ${burst} at one moment` }
    }
    const { handle = this.#room.definition.onMessage } = spec
    if (!handle) return NOTHING
    const input = { type, data: valid.value, member: membership.member }
    return this.#turn(name, handle, input, undefined, spec)
  }

  /** A message was applied. `effects`: the effects that its handler requested. */
  #applied(membership: Membership, ref: number | undefined, effects: Effects): void {
    const { changes, definition, grants, memberships, state, wants } = this.#room
    if (ref !== undefined) {
      const { reply } = effects
      if (reply !== undefined) membership.refs.keep({ ref, reply }, memberships.size)
      changes.ack(membership)
    }
    this.#takeOver(effects)
    this.#needs.metrics.messagesApplied.inc({ room_type: definition.type })
    // Without a ref and without changes, no flush is needed.
    if (ref !== undefined || state.dirty || grants.dirty || effects.events.length > 0) wants.flush ??= 'paced'
  }

  /** The edge has refused these messages. Their refs are handled as if the room had refused them. */
  #refuseAll(membership: Membership, { from, through, code, message }: RefusedRange): void {
    const first = Math.max(from, membership.refs.next)
    if (!this.#isNew(membership, from, through)) return
    for (let ref = first; ref <= through; ref++) this.#refuse(membership, code, message, ref)
  }

  /** Adds a member. If the room logic rejects the join, returns the reason, and nothing has changed. */
  join(membership: Membership, options: unknown): Refused | undefined {
    const { changes, memberships, tables, wants } = this.#room
    const { member, sessionId, joinRequest, principal } = membership
    this.#enter(membership)
    if (!member.spectator) tables.reservations.delete(seatName(member.sub, sessionId))
    const hook = joinHook(member)
    const turn = {
      room: this.#room,
      hook: 'onJoin',
      subject: sessionId,
      ref: joinRequest,
      type: '',
      principal,
    } as const
    let effects: Effects
    try {
      effects = this.#needs.code.run(turn, () => this.#call(hook, member, options))
    } catch (error) {
      this.#exit(membership)
      memberships.release(membership)
      tables.rollback()
      return this.failures.explain(hook, error)
    }
    if (!membership.member.spectator) wants.idle = 'anew'
    this.#logMember(membership, 'member joined')
    changes.join(membership)
    this.#takeOver(effects)
    wants.flush ??= 'paced'
    return undefined
  }

  /** Another session of the player takes over a seat. No member joins or leaves. `data`: claim of that session's token. */
  replace(before: Membership, membership: Membership, data: JsonObject | null): void {
    const { changes, wants } = this.#room
    membership.flushed = before.flushed
    changes.replace(before, membership)
    // Members do not have the changes of the seat since the last flush yet.
    changes.changed.add(membership)
    this.#enter(membership)
    this.#exit(before)
    this.#logMember(membership, 'member replaced')
    this.renew(membership, data)
    this.connected(membership, true)
    wants.flush ??= 'paced'
  }

  /** A member has lost its connection, or has reconnected. Players have hooks for it. */
  connected(membership: Membership, connected: boolean): void {
    const { changes, memberships, wants } = this.#room
    if (membership.member.connected === connected) return
    memberships.change(membership, { connected })
    changes.changed.add(membership)
    const { member } = membership
    const hook = connected ? 'onReconnect' : 'onDisconnect'
    if (!member.spectator)
      this.#try(hook, () => this.#call(hook, member), {
        subject: member.id,
        principal: membership.principal,
      })
    wants.flush ??= 'paced'
  }

  /** Replaces the `data` claim of a member. No handler runs. */
  renew(membership: Membership, data: JsonObject | null): void {
    const { changes, memberships, wants } = this.#room
    if (JSON.stringify(data) === JSON.stringify(membership.member.data)) return
    memberships.change(membership, { data })
    changes.changed.add(membership)
    wants.flush ??= 'paced'
  }

  /** Runs the handler of a call. Returns its reply, or why the call failed. `invalid_request`: no handler has run. */
  call(
    id: string,
    name: string,
    data: unknown,
    caller: CalledBy,
  ): { readonly reply: Json } | Refused | { readonly code: 'invalid_request'; readonly message: string } {
    const { calls, type } = this.#room.definition
    const spec = Object.hasOwn(calls, name) ? calls[name] : undefined
    if (!spec) {
      const names = Object.keys(calls).join(', ') || 'none'
      const message = `${type} has no call ${JSON.stringify(name.slice(0, 80))}: there are ${names}`
      return { code: 'invalid_request', message }
    }
    const turn = { ...turnOf(this.#room, 'onCall'), subject: id, type: name }
    const handle = `calls.${name}.handle`
    try {
      const outcome = this.#needs.code.run(turn, () => {
        const valid = validateInput(spec.data, data)
        if (!valid.ok && valid.cause !== undefined) throw valid.cause
        if (!valid.ok) return valid
        const input: CallInput<unknown> = {
          data: valid.value,
          caller: { keyId: caller.key_id, callId: caller.call_id },
        }
        return this.#turn(handle, spec.handle, input, undefined, spec)
      })
      if ('ok' in outcome) return { code: 'invalid_request', message: outcome.message }
      this.#takeOver(outcome)
      return { reply: outcome.reply ?? null }
    } catch (error) {
      const refused = this.failures.explain(handle, error)
      this.#replies.countError(refused.code)
      return refused
    }
  }

  /** Removes a member, and runs the hook for its departure. */
  part(membership: Membership, reason: DepartureReason, end: SeatEnd = {}): void {
    const { grants, wants } = this.#room
    const { member } = membership
    this.#remove(membership, reason, end)
    grants.forget(member.id)
    wants.idle ??= 'look'
    const kind = leaveHook(member)
    this.#try('onLeave', () => this.#call(kind, member), {
      kind,
      subject: member.id,
      principal: membership.principal,
    })
    wants.flush ??= 'paced'
  }

  /** The room ends: removes a member. It gets all of the last update, so it keeps its grants. */
  close(membership: Membership): void {
    this.#remove(membership, 'closed')
  }

  #remove(membership: Membership, reason: DepartureReason, end: SeatEnd = {}): void {
    const { changes } = this.#room
    changes.part(membership, reason, end)
    this.#exit(membership)
    this.#logMember(membership, 'member left', reason)
  }

  #logMember(
    { member }: Membership,
    what: 'member joined' | 'member replaced' | 'member seated' | 'member unseated' | 'member left',
    reason?: DepartureReason,
  ): void {
    const { log, memberships } = this.#room
    const { id, sub, spectator } = member
    const about = { member_id: id, ...(sub !== null && { sub }), ...(spectator && { spectator }), reason }
    log.debug({ ...about, players: memberships.playerCount }, what)
  }

  tick(): void {
    this.#try('onTick', () => this.#call('onTick'))
    const { changes, grants, state, wants } = this.#room
    if (state.dirty || grants.dirty || changes.events.length > 0) wants.flush ??= 'paced'
  }

  /** Handles the row that is due next: fires a timer, renews a task with `retry`, or ends a reservation. */
  due(): void {
    const { tables, wants } = this.#room
    const [timer, task, reservation] = [tables.timers.next, tables.tasks.next, tables.reservations.next]
    if (timer && timer.due === tables.due) this.#fire(timer)
    else if (task && task.due === tables.due)
      tables.tasks.set({ ...task, due: this.#needs.clock.now() + RENEW_MS })
    else if (reservation) tables.reservations.delete(reservation.id)
    tables.commit()
    wants.flush ??= 'paced'
  }

  /** Fires a timer. Its row is deleted, also if its handler throws. */
  #fire(timer: RoomTimer): void {
    const { definition, tables } = this.#room
    tables.timers.delete(timer.id)
    tables.commit()
    const { id, due, name, data } = timer
    const { clock, metrics } = this.#needs
    metrics.timerLateness.observe(Math.max(0, clock.now() - due) / 1000)
    this.#try('onTimer', () => this.#runTimer(name, data), {
      kind: `timers.${name}`,
      subject: id,
      ref: due,
      type: name,
    })
    metrics.timersFired.inc({ room_type: definition.type })
  }

  /** Calls the task's handler with the outcome, in a new turn. The task ends, also if the handler throws. */
  taskEnded(task: RoomTask, outcome: TaskOutcome<unknown>): void {
    const { id, name } = task
    const { tables, wants } = this.#room
    tables.tasks.delete(id)
    tables.commit()
    wants.timers = true
    this.#try('onTask', () => this.#runTask(task, outcome), {
      kind: `tasks.${name}`,
      subject: id,
      ref: 1,
      type: name,
    })
    wants.flush ??= 'paced'
  }

  /** The last turn. Members get nothing of it. Its additions are written with the end of the room. */
  dispose(): void {
    this.#try('onDispose', () => {
      this.#additions.push(this.#call('onDispose').additions)
      return NOTHING
    })
  }

  /**
   * True if the messages are new. After a gap, requests the missing messages again. A duplicate gets no answer: its outcome is on the way,
   * or was in the answer to the attach after which the edge sent it again.
   */
  #isNew(membership: Membership, from: number, through?: number): boolean {
    const { edge, refs } = membership
    const arrived = refs.accept(from, through)
    if (arrived === 'gap' && refs.misses()) this.#replies.send(edge, { kind: 'resend' })
    return arrived === 'new'
  }

  #mayReply({ refs }: Membership): boolean {
    const { definition, memberships } = this.#room
    const number = refs.repliesWithNext(memberships.size)
    return mayHave(this.#needs, definition.type, 'requests', number)
  }

  /** Room logic threw while it handled a message of `membership`. */
  #threw(kind: string, error: unknown, membership: Membership, ref: number | undefined): void {
    const { code, message } = this.failures.explain(kind, error)
    this.#refuse(membership, code, message, ref)
  }

  #refuse(membership: Membership, code: ErrorCode, message: string, ref: number | undefined): void {
    const { changes, memberships, wants } = this.#room
    if (ref === undefined) {
      this.#replies.failed(membership.edge, membership.subscriptionId, code, message)
      return
    }
    this.#replies.countError(code)
    membership.refs.keep({ ref, code, message }, memberships.size)
    changes.ack(membership)
    wants.flush ??= 'paced'
  }

  /** Runs a turn that no client waits for. */
  #try(
    hook: TurnHook,
    turn: () => Effects,
    { kind = hook as string, subject = '', ref = 0, type = '', principal = '' } = {},
  ): void {
    const { code: runner, metrics } = this.#needs
    let effects: Effects
    try {
      effects = runner.run({ room: this.#room, hook, subject, ref, type, principal }, turn)
    } catch (error) {
      const { code } = this.failures.explain(kind, error)
      metrics.roomErrors.inc({ room_type: this.#room.definition.type, code })
      return
    }
    this.#takeOver(effects)
  }

  /** Applies the effects of a turn that has succeeded. */
  #takeOver(effects: Effects): void {
    if (this.#room.tables.written) this.rowsChanged()
    if (effects === NOTHING) return
    const { changes, grants, memberships, wants } = this.#room
    const { events, shown, kicked, additions, roles, closed } = effects
    for (const grant of shown) {
      if (!memberships.get(grant.memberId)) continue
      if (grant.layer === null) grants.clear(grant.memberId)
      else grants.change(grant)
    }
    for (const { membership } of roles) this.#roleChanged(membership)
    for (const event of events)
      changes.events.push(event.layer === undefined ? event : this.#addressed(event))
    if (additions.length > 0) {
      this.#additions.push(additions)
      wants.flush ??= 'paced'
    }
    for (const { memberId, end } of kicked) {
      const membership = memberships.get(memberId)
      // `onLeave` of one member may end the room.
      if (membership && !wants.close) this.part(membership, 'kicked', end)
    }
    if (closed) wants.close = true
  }

  #roleChanged(membership: Membership): void {
    const { changes, wants } = this.#room
    const { spectator } = membership.member
    changes.changed.add(membership)
    this.#logMember(membership, spectator ? 'member unseated' : 'member seated')
    if (spectator) wants.idle ??= 'look'
    else wants.idle = 'anew'
    wants.flush ??= 'paced'
  }

  /** Commits the rows that a successful turn has written. */
  rowsChanged(): void {
    const { tables, wants } = this.#room
    tables.commit()
    wants.timers = true
    wants.flush ??= 'paced'
  }

  /** Returns an event for a layer, with the members that get it. */
  #addressed({ layer, ...event }: AskedEvent): RoomEvent {
    const { grants, memberships } = this.#room
    const ids = memberships.members.map(({ id }) => id)
    return { ...event, to: ids.filter((id) => grants.has(id, layer!)) }
  }

  /** As `#turn`, for a handler of the definition, if it has one. */
  #call(hook: Hook, member?: Member, options?: unknown): Effects {
    const handler = this.#hook(hook)
    return handler ? this.#turn(hook, handler, member, options) : NOTHING
  }

  #hook(hook: Hook): Handler | undefined {
    const { definition } = this.#room
    if (hook === 'spectators.onJoin') return definition.spectators?.onJoin
    if (hook === 'spectators.onLeave') return definition.spectators?.onLeave
    return definition[hook]
  }

  /** Runs the handler of a timer. Throws as `run` does, also if the definition has no such timer any more. */
  #runTimer(name: string, data: Json): Effects {
    const { timers } = this.#room.definition
    const spec = Object.hasOwn(timers, name) ? timers[name] : undefined
    if (!spec) throw new RoomLogicError(`there is no timer ${JSON.stringify(name)} in the room type any more`)
    const valid = validateInput(spec.data, data)
    if (!valid.ok) throw valid.cause ?? new RoomLogicError(`its data: ${valid.message}`)
    return this.#turn(`timers.${name}`, spec.handle, { data: valid.value })
  }

  /** Returns the type of a task. Undefined: the definition has no such task any more. */
  taskType(name: string): TaskType | undefined {
    const { tasks } = this.#room.definition
    return Object.hasOwn(tasks, name) ? tasks[name] : undefined
  }

  /** Runs the handler of a task. Throws as `run` does. */
  #runTask({ id, name, data, due }: RoomTask, outcome: TaskOutcome<unknown>): Effects {
    const spec = this.taskType(name)
    if (!spec) throw new RoomLogicError(`there is no task ${JSON.stringify(name)} in the room type any more`)
    if (due === undefined) return this.#turn(`tasks.${name}`, spec.handle, outcome)
    const valid = spec.data && validateInput(spec.data, data)
    if (valid?.ok === false) throw valid.cause ?? new RoomLogicError(`its data: ${valid.message}`)
    return this.#turn(`tasks.${name}`, spec.handle, { ...outcome, id, data: valid?.value })
  }

  /**
   * Runs one handler, for a member or an input if it takes one. Throws the handler's error, or a RoomLogicError. The state is then as
   * before, and the effects are dropped. `message`: the type of the message or call that it handles.
   */
  #turn(
    name: string,
    handler: Handler,
    subject?: unknown,
    options?: unknown,
    message?: MessageType | CallType,
  ): Effects {
    const { definition, memberships, state, tables } = this.#room
    const context = this.#context
    context.begin(definition, message, name === 'onDispose')
    const draft = state.begin()
    try {
      const left = this.#run(name, handler, draft, subject, options)
      if (message?.reply) context.requireReply()
      if (context.roles.length > 0) this.#changeRoles(left)
      state.commit()
      return context.end(true)
    } catch (error) {
      for (const { membership, before } of context.roles)
        memberships.change(membership, { spectator: before.spectator })
      tables.rollback()
      if (error instanceof StateTooLarge)
        this.#needs.metrics.limitsReached.inc({ room_type: definition.type, limit: 'state' })
      context.end(false)
      state.undo()
      throw turnError(name, error, definition)
    }
  }

  /** Runs a handler in the turn that has begun. Returns the state of the turn afterwards. */
  #run(name: string, handler: Handler, draft: unknown, subject?: unknown, options?: unknown): unknown {
    const { definition, state } = this.#room
    const context = this.#context
    const returned =
      subject === undefined
        ? handler.call(definition, draft, context)
        : handler.call(definition, draft, subject, context, options)
    if (returned === undefined) return draft
    const result = resultOf(name, draft, returned, [subject, options])
    if (result?.event !== undefined) {
      const { name: event, data, to } = (result.event ?? {}) as NonNullable<Result['event']>
      context.emit(event, data, to)
    }
    return result?.state === undefined ? draft : state.replace(result.state)
  }

  /** Runs the hooks of changed roles, in the turn that has changed them. The hooks may change the roles of further members. */
  #changeRoles(draft: unknown): void {
    let state = draft
    const run = (hook: Hook, member: Member, options?: unknown): void => {
      const handler = this.#hook(hook)
      if (handler) state = this.#run(hook, handler, state, member, options)
    }
    // The list grows during the loop.
    for (const { membership, before, options } of this.#context.roles) {
      run(leaveHook(before), before)
      this.#context.endLayers(before.id)
      run(joinHook(membership.member), membership.member, options)
    }
  }
}

/** Handlers that `#call` calls. */
type Hook =
  | 'onJoin'
  | 'onDisconnect'
  | 'onReconnect'
  | 'onLeave'
  | 'onTick'
  | 'onDispose'
  | 'spectators.onJoin'
  | 'spectators.onLeave'

/** Hook for a member that gets its role, and for one that loses it. */
const joinHook = ({ spectator }: Member): Hook => (spectator ? 'spectators.onJoin' : 'onJoin')
const leaveHook = ({ spectator }: Member): Hook => (spectator ? 'spectators.onLeave' : 'onLeave')
