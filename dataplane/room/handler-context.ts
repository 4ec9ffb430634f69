import type { StandardSchemaV1 } from '@standard-schema/spec'
import type { Clock } from '../../shared/clock.ts'
import type { Json } from '../../shared/json.ts'
import type { Random } from '../../shared/random.ts'
import type { Weigh } from '../../shared/sync/check.ts'
import { MAX_SUB_LENGTH, subFault } from '../../shared/tokens.ts'
import type { RoomAddress, SeatEnd } from '../traffic.ts'
import type { Addition, Additions } from './additions.ts'
import type { CallType, MessageType, RoomDefinition } from './definition.ts'
import type { Member, Pair, Recipients, RoomLog, TurnContext } from './definition-types.ts'
import {
  bounded,
  jsonCopy,
  kindOf,
  MAX_REPLY_BYTES,
  parseOptions,
  RoomLogicError,
  RoomLogicRefused,
  validate,
} from './failures.ts'
import type { RoomEvent } from './journal.ts'
import {
  type Grant,
  type Grants,
  haveLayers,
  isLayerName,
  namesOf,
  ownerOf,
  ownLayer,
  RIGHT_NAME,
} from './layer-rules.ts'
import { type KeptLimits, type Limited, mayHave } from './limits.ts'
import { bytesOf, containerOf } from './live-object.ts'
import type { Membership } from './memberships.ts'
import { freePlaces, isPlaying, mayWatch, type PlacesRoom, reserve } from './places.ts'
import type { LiveState } from './state.ts'
import { seatName, type Tables } from './table.ts'
import { retryTask, timerOf, type Work } from './timers-and-tasks.ts'

/** An event that a handler has emitted. `layer`: it is for the members that have the layer at the end of the turn. */
export type AskedEvent = RoomEvent & { readonly layer?: string }

/** A change of a grant that a turn has requested. `layer` null: the member loses all layers that were shown to it. */
type AskedGrant = Grant | { readonly memberId: string; readonly layer: null }

/** A change of a member's role. The member has the new role already. */
export interface RoleChange {
  readonly membership: Membership
  /** The member in its role before. */
  readonly before: Member
  /** Options of its join, for the hook of the new role. */
  readonly options: unknown
}

/** Effects that a turn has requested so far. */
interface Asked {
  readonly events: AskedEvent[]
  /** Bytes of the events. */
  eventBytes: number
  readonly shown: AskedGrant[]
  /** Numbers of the layers that the turn shows, by member. Undefined: it shows none. */
  showing: Map<string, number> | undefined
  readonly kicked: Kick[]
  readonly roles: RoleChange[]
  /** Number of kicks, and of changes of grants. */
  effects: number
  readonly additions: Addition[]
  closed: boolean
  reply: Json | undefined
}

const nothingAsked = (): Asked => ({
  events: [],
  eventBytes: 0,
  shown: [],
  showing: undefined,
  kicked: [],
  roles: [],
  effects: 0,
  additions: [],
  closed: false,
  reply: undefined,
})

/** Effects of a turn that requests none, which is the usual case. */
export const NOTHING: Effects = nothingAsked()

/** The room whose handlers run. */
export interface ContextRoom extends PlacesRoom {
  readonly roomId: string
  readonly address: RoomAddress
  readonly log: RoomLog
  readonly state: LiveState
  readonly tables: Tables
  readonly grants: Grants
}

/** Dependencies of the context. */
export interface ContextNeeds extends Limited {
  readonly clock: Clock
  readonly random: Random
}

/** The parts of a room that room types of roomful itself use. */
export interface SystemParts {
  readonly room: ContextRoom
  readonly needs: ContextNeeds
  /** As `kick`, with a code or a match for the client. */
  end(memberId: string, end: SeatEnd): void
}

/** A member to remove. */
interface Kick {
  readonly memberId: string
  readonly end: SeatEnd
}

/** Effects that a handler has requested, except changes of the state and of tables. Applied only if the handler returned normally. */
export interface Effects {
  readonly events: readonly AskedEvent[]
  readonly shown: readonly AskedGrant[]
  readonly kicked: readonly Kick[]
  readonly roles: readonly RoleChange[]
  readonly additions: readonly Addition[]
  readonly closed: boolean
  /** Reply to a message or call whose type declares one. */
  readonly reply: Json | undefined
}

/** The `ctx` of all handlers of one room: collects the effects of a turn. Its methods throw between turns. */
export class HandlerContext implements TurnContext<Pair, Pair, Pair, Pair, Pair> {
  readonly roomId: string
  readonly key: string
  readonly log: RoomLog
  readonly #room: ContextRoom
  readonly #additions: Additions
  readonly #needs: ContextNeeds
  #definition: RoomDefinition | undefined
  /** Type of the message or call that is being handled. */
  #message: MessageType | CallType | undefined
  /** True if the room ends with this turn. */
  #last = false
  /** Time of the turn, read at the first use: few handlers use it, and turns are frequent. */
  #now: number | undefined
  #asked: Asked | undefined
  /** Milliseconds for which the room had no owner, until a turn has succeeded here. */
  #awayMs: number

  constructor(room: ContextRoom, awayMs: number, additions: Additions, needs: ContextNeeds) {
    this.#awayMs = awayMs
    this.roomId = room.roomId
    this.key = room.address.key
    this.log = room.log
    this.#room = room
    this.#additions = additions
    this.#needs = needs
    // Authors may destructure methods: `const { emit } = ctx`.
    this.random = this.random.bind(this)
    this.emit = this.emit.bind(this)
    this.close = this.close.bind(this)
    this.kick = this.kick.bind(this)
    this.unban = this.unban.bind(this)
    this.reserve = this.reserve.bind(this)
    this.seat = this.seat.bind(this)
    this.unseat = this.unseat.bind(this)
    this.show = this.show.bind(this)
    this.hide = this.hide.bind(this)
    this.task = this.task.bind(this)
    this.after = this.after.bind(this)
    this.cancel = this.cancel.bind(this)
    this.notify = this.notify.bind(this)
    this.refuse = this.refuse.bind(this)
    this.reply = this.reply.bind(this)
  }

  /** Starts a turn of `definition`. `message`: type of the message or call that it handles. `last`: the room ends with the turn. */
  begin(definition: RoomDefinition, message: MessageType | CallType | undefined, last: boolean): void {
    this.#definition = definition
    this.#last = last
    this.#message = message
    this.#now = undefined
  }

  /** Ends the turn, and returns its requested effects. Methods throw from here on. */
  end(hasSucceeded: boolean): Effects {
    const asked = this.#asked ?? NOTHING
    if (hasSucceeded) this.#awayMs = 0
    this.#definition = undefined
    this.#asked = undefined
    return asked
  }

  get now(): number {
    if (!this.#definition) return this.#needs.clock.now()
    this.#now ??= this.#needs.clock.now()
    return this.#now
  }

  get awayMs(): number {
    return this.#awayMs
  }

  get members(): readonly Member[] {
    return this.#room.memberships.members
  }

  get players(): readonly Member[] {
    return this.#room.memberships.players
  }

  get spectators(): readonly Member[] {
    return this.#room.memberships.spectators
  }

  /** Changes of roles that the turn has requested so far. Later ones are added to the same list. */
  get roles(): readonly RoleChange[] {
    return this.#asked?.roles ?? NOTHING.roles
  }

  /** The member has left its old role: it loses all layers that were shown to it. */
  endLayers(memberId: string): void {
    const asked = this.#ask()
    asked.shown.push({ memberId, layer: null })
    asked.showing ??= new Map()
    asked.showing.set(memberId, -this.#room.grants.count(memberId))
  }

  random(): number {
    return this.#needs.random.float()
  }

  /**
   * The room and its node, for room types of roomful itself (`system`).
   * @internal
   */
  get system(): SystemParts | undefined {
    const end = (memberId: string, end: SeatEnd): void =>
      void this.#effect('kick').kicked.push({ memberId, end })
    return this.#definition?.system && { room: this.#room, needs: this.#needs, end }
  }

  #mayHave(limit: keyof KeptLimits, number: number): boolean {
    return mayHave(this.#needs, this.#definition!.type, limit, number)
  }

  emit(name: string, data: unknown, to?: Recipients): void {
    const definition = this.#during('emit')
    if (typeof name !== 'string' || name === '' || name.length > 64)
      throw new RoomLogicError(`ctx.emit got the name ${JSON.stringify(name)}; it must be 1–64 characters`)
    const asked = this.#ask()
    const { turn: mostEvents, bytes: most, turnBytes: mostTogether } = this.#needs.limits.events
    if (asked.events.length >= mostEvents)
      throw this.#tooManyEvents(
        `ctx.emit: limit reached: ${mostEvents} events per turn (maxTurnEvents): put more into one event, or into the state`,
      )
    let bytes = 0
    // Counts while it copies, so that it stops at the bound.
    const weigh = (part: string | number | boolean | null): void => {
      bytes += bytesOf(part)
      if (bytes > most)
        throw this.#tooManyEvents(
          `ctx.emit: limit exceeded by the event ${JSON.stringify(name)}: ${most} bytes per event (maxEventBytes): send less, or put it into the state`,
        )
      if (asked.eventBytes + bytes > mostTogether)
        throw this.#tooManyEvents(
          `ctx.emit: limit exceeded by the event ${JSON.stringify(name)}: ${mostTogether} bytes of events per turn (maxTurnEventBytes): send less, or put it into the state`,
        )
    }
    weigh(name)
    const addressed = recipients(to, definition)
    addressed.to?.forEach(weigh)
    asked.events.push({ name, data: eventData(definition.events, name, data, weigh), ...addressed })
    asked.eventBytes += bytes
  }

  #tooManyEvents(text: string): RoomLogicError {
    this.#needs.metrics.limitsReached.inc({ room_type: this.#definition!.type, limit: 'events' })
    return new RoomLogicError(text)
  }

  close(): void {
    this.#during('close')
    this.#ask().closed = true
  }

  kick(member: string | Member, reason?: string, { ban = false }: { readonly ban?: boolean } = {}): void {
    this.#during('kick')
    if (reason !== undefined && (typeof reason !== 'string' || reason === ''))
      throw new RoomLogicError(
        `ctx.kick got the reason ${JSON.stringify(reason)}; it must be a text for the player`,
      )
    const memberId = requireMember('ctx.kick', member)
    const { kicked } = this.#effect('kick')
    const end = reason === undefined ? {} : { message: bounded(reason) }
    if (!ban) {
      kicked.push({ memberId, end })
      return
    }
    const sub = typeof member === 'string' ? this.members.find(({ id }) => id === memberId)?.sub : member.sub
    this.#ban(sub, memberId, end.message)
    for (const other of this.members) if (other.sub === sub) kicked.push({ memberId: other.id, end })
  }

  #ban(sub: string | null | undefined, memberId: string, reason: string | undefined): asserts sub is string {
    if (typeof sub !== 'string')
      throw new RoomLogicError(
        sub === null
          ? `ctx.kick with ban got the member ${memberId}, whose token has no sub: only players with a sub can be banned`
          : `ctx.kick with ban got the id ${JSON.stringify(memberId)}, which no member has: give it a member that is here, or the object of a member that has left`,
      )
    const { bans } = this.#room.tables
    if (!bans.has(sub) && !this.#mayHave('bans', bans.size + 1))
      throw new RoomLogicError(
        `ctx.kick with ban: limit reached: ${bans.size} bans per room: end one by ctx.unban(sub)`,
      )
    bans.set({ id: sub, reason })
    this.#room.tables.reservations.delete(sub)
  }

  unban(sub: string): boolean {
    this.#during('unban')
    if (typeof sub !== 'string')
      throw new RoomLogicError(`ctx.unban got ${JSON.stringify(sub)}; it must be the sub of a player`)
    return this.#room.tables.bans.delete(sub)
  }

  reserve(sub: string, seconds: number): boolean {
    const definition = this.#during('reserve')
    if (definition.durability === 'none')
      throw new RoomLogicError(
        `ctx.reserve: the room type ${definition.type} has the durability 'none', which keeps no reservations: use 'journal' or 'snapshot'`,
      )
    if (typeof sub !== 'string' || sub === '' || [...sub].length > MAX_SUB_LENGTH || !sub.isWellFormed())
      throw new RoomLogicError(
        `ctx.reserve got ${JSON.stringify(sub)}; it must be the sub of a player, a text of 1 to ${MAX_SUB_LENGTH} characters`,
      )
    const fault = subFault(sub)
    if (fault !== undefined) throw new RoomLogicError(`ctx.reserve got ${JSON.stringify(sub)}; it ${fault}`)
    const due = Math.ceil(this.now + seconds * 1000)
    if (typeof seconds !== 'number' || !(seconds > 0 && Number.isSafeInteger(due)))
      throw new RoomLogicError(
        `ctx.reserve got ${JSON.stringify(seconds)} as its seconds; it must be a number above 0, such as 30`,
      )
    return reserve([sub], due, definition, this.#room, this.#needs)
  }

  seat(member: string | Member): boolean {
    const definition = this.#during('seat')
    const membership = this.#changing('seat', member)
    if (!membership) return false
    const { connected, spectator, sub } = membership.member
    const name = seatName(sub, membership.sessionId)
    if (!spectator || !connected || freePlaces(this.#room, name) < 1) return false
    if (definition.sameSub !== 'allow' && sub !== null && isPlaying(this.#room, sub)) return false
    if (!this.#changeRole(membership)) return false
    this.#room.tables.reservations.delete(name)
    return true
  }

  unseat(member: string | Member): boolean {
    this.#during('unseat')
    const membership = this.#changing('unseat', member)
    if (!membership || membership.member.spectator || !mayWatch(this.#room)) return false
    return this.#changeRole(membership)
  }

  /** Returns the member whose role `ctx.<call>` shall change. Undefined: no member has this id. */
  #changing(call: string, member: string | Member): Membership | undefined {
    const { spectators, type } = this.#definition!
    if (!spectators)
      throw new RoomLogicError(
        `ctx.${call}: the room type ${type} has no spectators: add spectators: { max } to it`,
      )
    const membership = this.#room.memberships.get(requireMember(`ctx.${call}`, member))
    if (membership && this.roles.some((change) => change.membership === membership))
      throw new RoomLogicError(
        `ctx.${call} got the member ${membership.member.id}, which has changed its role in this turn: a member can do so once in a turn`,
      )
    return membership
  }

  /** Gives the member the other role. Returns false if the options of its join no longer fit the schema. */
  #changeRole(membership: Membership): boolean {
    const options = parseOptions(this.#definition!.options, membership.options ?? {})
    if (!options.ok && options.cause !== undefined) throw options.cause
    if (!options.ok) return false
    const { roles } = this.#ask()
    if (!this.#mayHave('roles', roles.length + 1))
      throw new RoomLogicError(
        `ctx.seat and ctx.unseat: limit reached: ${roles.length} changes of roles per turn: change others in a later turn`,
      )
    const before = membership.member
    this.#room.memberships.change(membership, { spectator: !before.spectator })
    roles.push({ membership, before, options: options.value })
    return true
  }

  show(member: string | Member, layer: string): void {
    this.#show('show', member, layer)
  }

  hide(member: string | Member, layer: string): void {
    this.#show('hide', member, layer)
  }

  #show(call: 'show' | 'hide', member: string | Member, layer: string): void {
    requireLayers(this.#during(call), `ctx.${call}`, layer)
    const memberId = requireMember(`ctx.${call}`, member)
    if (call === 'hide' && layer === ownLayer(memberId))
      throw new RoomLogicError(
        `ctx.hide got the layer ${layer} of that member itself, which it has for as long as it is here`,
      )
    const asks = this.#effect(call)
    if (call === 'show') {
      asks.showing ??= new Map()
      const asked = (asks.showing.get(memberId) ?? 0) + 1
      if (!this.#mayHave('layers', this.#room.grants.count(memberId) + asked))
        throw new RoomLogicError(
          'ctx.show: limit reached: 1024 layers per member: hide one, or put more into a layer',
        )
      asks.showing.set(memberId, asked)
    }
    asks.shown.push({ memberId, layer, shown: call === 'show' })
  }

  /** Counts a kick, or a change of a grant. A loop could ask for so many that the node runs out of memory. */
  #effect(call: string): Asked {
    const asked = this.#ask()
    asked.effects++
    if (!this.#mayHave('effects', asked.effects))
      throw new RoomLogicError(
        `ctx.${call}: limit reached: ${this.#needs.limits.effects} kicks and changes of layers per turn: do the others in a later turn`,
      )
    return asked
  }

  task(first: Work | string, second: unknown, { id }: { readonly id?: string } = {}): void {
    const definition = this.#during('task')
    const [work, name] = typeof first === 'string' ? [undefined, first] : [first, second as string]
    const { tasks } = definition
    if (!Object.hasOwn(tasks, name)) {
      const names = Object.keys(tasks).join(', ') || 'none'
      throw new RoomLogicError(
        `ctx.task names the task ${JSON.stringify(name)}, which is not among the room's tasks: there are ${names}`,
      )
    }
    if (work !== undefined && typeof work !== 'function') {
      const begun = work as { then?: unknown } | null | undefined
      if (typeof begun?.then === 'function') Promise.resolve(work).catch(() => {})
      throw new RoomLogicError(
        `ctx.task got ${typeof begun?.then === 'function' ? 'a promise, whose work has begun already' : typeof work}; give it a function that begins the work: ctx.task(() => work(), ${JSON.stringify(name)})`,
      )
    }
    if (this.#last)
      throw new RoomLogicError(
        `ctx.task for ${JSON.stringify(name)} was called in onDispose: the room ends with this turn, so the task could not end; write results by save.to, or start the task before ctx.close()`,
      )
    const rows = this.#room.tables.tasks
    if (!this.#mayHave('tasks', rows.size + 1))
      throw new RoomLogicError(
        `ctx.task: limit reached: ${rows.size} unfinished tasks per room: wait for an outcome`,
      )
    if (work && tasks[name]!.run)
      throw new RoomLogicError(
        `ctx.task got work for the task ${JSON.stringify(name)}, which has retry and its own run: give it data, as in ctx.task(${JSON.stringify(name)}, data, { id })`,
      )
    const row = work
      ? { id: this.#room.tables.newId('tsk'), name, data: null, work }
      : retryTask(definition, this.now, [name, second, id ?? this.#room.tables.newId('tsk')])
    if (rows.has(row.id))
      throw new RoomLogicError(
        `ctx.task got the id ${JSON.stringify(row.id)}, which a task has that has not ended: wait for its outcome, or give another id`,
      )
    rows.set(row)
  }

  after(ms: number, timer: string, data: unknown, { id }: { readonly id?: string } = {}): string {
    const definition = this.#during('after')
    const asked = timerOf(definition, this.now, [ms, timer, data, id])
    const { timers } = this.#room.tables
    if (!(asked.id !== undefined && timers.has(asked.id)) && !this.#mayHave('timers', timers.size + 1))
      throw new RoomLogicError(
        `ctx.after: limit reached: ${timers.size} timers per room: cancel one, or give the id of a timer to replace`,
      )
    const known = asked.id ?? this.#room.tables.newId('tmr')
    timers.set({ ...asked, id: known })
    return known
  }

  cancel(id: string): boolean {
    this.#during('cancel')
    if (typeof id !== 'string')
      throw new RoomLogicError(`ctx.cancel got ${JSON.stringify(id)}; it must be the id of a timer`)
    return this.#room.tables.timers.delete(id)
  }

  notify(name: string, data: unknown): void {
    const definition = this.#during('notify')
    const { additions } = this.#ask()
    additions.push(this.#additions.of(definition, name, data, additions.length))
  }

  refuse(message: string): never {
    this.#during('refuse')
    if (typeof message !== 'string' || message === '')
      throw new RoomLogicError(`ctx.refuse got ${JSON.stringify(message)}; it must be a text for the player`)
    throw new RoomLogicRefused(bounded(message))
  }

  reply(value: unknown): void {
    this.#during('reply')
    const schema = this.#message?.reply
    if (!schema)
      throw new RoomLogicError(
        this.#message
          ? 'ctx.reply answers a message or call that declares no reply: give it one, such as reply: v.object({ … })'
          : 'ctx.reply answers a message or call, and this turn is of none',
      )
    const asked = this.#ask()
    if (asked.reply !== undefined)
      throw new RoomLogicError('ctx.reply was called twice; a message or call has one reply')
    asked.reply = checkedReply(schema, value)
  }

  /** The handler of a message has returned: throws if its type declares a reply and the handler gave none. */
  requireReply(): void {
    if (this.#message?.reply && this.#asked?.reply === undefined)
      throw new RoomLogicError(
        'the message or call declares a reply, and its handler gave none: call ctx.reply(value), or ctx.refuse(text)',
      )
  }

  #ask(): Asked {
    this.#asked ??= nothingAsked()
    return this.#asked
  }

  #during(call: string): RoomDefinition {
    if (this.#definition) return this.#definition
    throw new RoomLogicError(
      `ctx.${call} was called outside of a handler's turn; slow work goes through ctx.task, whose outcome is a turn again`,
    )
  }
}

/** Returns a copy of a reply, checked by its schema. */
function checkedReply(schema: StandardSchemaV1, value: unknown): Json {
  const result = validate(schema, value)
  if (!result.ok) throw new RoomLogicError(`the reply has the wrong shape: ${result.message}`)
  const reply = jsonCopy(result.value, 'the reply')
  const bytes = Buffer.byteLength(JSON.stringify(reply))
  if (bytes > MAX_REPLY_BYTES)
    throw new RoomLogicError(`the reply has ${bytes} bytes of JSON; limit: ${MAX_REPLY_BYTES}`)
  return reply
}

/** Returns a copy of an event's data, checked by its declared schema if there is one. */
function eventData(events: RoomDefinition['events'], name: string, data: unknown, weigh: Weigh): Json {
  let checked = data
  if (events) {
    if (!Object.hasOwn(events, name))
      throw new RoomLogicError(`the event ${JSON.stringify(name)} is not among the room's events`)
    const result = validate(events[name]!, data)
    if (!result.ok)
      throw new RoomLogicError(`the data of the event ${JSON.stringify(name)}: ${result.message}`)
    checked = result.value
  }
  return jsonCopy(checked, `the data of the event ${JSON.stringify(name)}`, weigh)
}

function recipients(
  to: Recipients | undefined,
  definition: RoomDefinition,
): Pick<AskedEvent, 'to' | 'layer'> {
  if (to === undefined) return { to }
  if (typeof to === 'object' && to !== null && 'layer' in to) {
    requireLayers(definition, 'ctx.emit', to.layer)
    return { to: [], layer: to.layer }
  }
  const ids = (Array.isArray(to) ? to : [to]).map(memberIdOf)
  if (ids.every((id) => typeof id === 'string')) return { to: ids }
  throw new RoomLogicError(
    'the recipients of an event are a member, the id of one, an array of them, or { layer }',
  )
}

/** Returns the id of a member or an id. Undefined: the value is neither. */
const memberIdOf = (member: unknown): string | undefined => {
  const id = typeof member === 'string' ? member : (member as Member | null | undefined)?.id
  return typeof id === 'string' ? id : undefined
}

/** Returns the id of the member that was passed to `call`. Throws a RoomLogicError. */
function requireMember(call: string, member: unknown): string {
  const memberId = memberIdOf(member)
  if (memberId !== undefined) return memberId
  throw new RoomLogicError(
    `${call} got ${JSON.stringify(member)}; its first argument is a member, or the id of one`,
  )
}

/** Throws a RoomLogicError unless the room can have the layer that was passed to `call`. */
function requireLayers(
  { type, layers }: RoomDefinition,
  call: string,
  layer: unknown,
): asserts layer is string {
  if (!haveLayers(layers))
    throw new RoomLogicError(`${call} got a layer, and the room type ${type} has none that members can have`)
  if (!isLayerName(layer))
    throw new RoomLogicError(`${call} got the layer ${JSON.stringify(layer)}; ${RIGHT_NAME}`)
  const names = namesOf(layers)
  if (names && !names.includes(layer) && ownerOf(layer) === undefined)
    throw new RoomLogicError(
      `${call} got the layer ${JSON.stringify(layer)}, which the room type ${type} does not have: there are ${[...names, 'member:<id> of each member'].join(', ')}`,
    )
}

/** Value that a handler may return. */
export interface Result {
  readonly state?: unknown
  readonly event?: { readonly name: string; readonly data: unknown; readonly to?: Recipients }
}

/** Checks a handler's return value. `given`: the handler's arguments. Undefined: the handler only changed the draft. */
export function resultOf(
  hook: string,
  draft: unknown,
  returned: unknown,
  given: readonly unknown[],
): Result | undefined {
  if (hook.endsWith('onJoin') && (typeof returned === 'string' || returned === false))
    throw new RoomLogicError(
      `${hook} returned ${kindOf(returned)}, which is no refusal: call ctx.refuse(text), or return nothing`,
    )
  // Arrow functions such as `(state) => state.ticks++` return other values, which decide nothing.
  if (typeof returned !== 'object' || returned === null || returned === draft) return undefined
  if (typeof (returned as { then?: unknown }).then === 'function') {
    ;(returned as PromiseLike<unknown>).then(undefined, () => {})
    throw new RoomLogicError(
      `${hook} returned a promise; handlers are synchronous turns: give slow work to ctx.task`,
    )
  }
  // An arrow function that assigns, such as `(state, { data }) => (state.door = data)`, returns what it assigns. A player may choose its keys.
  const keys = Object.keys(returned)
  const isAssigned = containerOf(returned) !== undefined || isWithin(returned, given, new Set())
  if (isAssigned || keys.length === 0 || keys.some((key) => key !== 'state' && key !== 'event'))
    throw new RoomLogicError(
      `${hook} returned ${kindOf(returned)}; return { state, event }, either alone, or nothing after changing the state`,
    )
  return returned as Result
}

/** True if `part` is `whole`, or is in it. `seen`: objects that do not contain it. */
function isWithin(part: object, whole: unknown, seen: Set<object>): boolean {
  if (whole === part) return true
  if (typeof whole !== 'object' || whole === null || seen.has(whole)) return false
  seen.add(whole)
  return Object.values(whole).some((below) => isWithin(part, below, seen))
}
