import { create } from 'mutative'
import type { Clock } from '../../shared/clock.ts'
import type { Json } from '../../shared/json.ts'
import type { Random } from '../../shared/random.ts'
import { checkChange, cloneJson, NotJson } from '../../shared/sync/check.ts'
import type { Member, Recipients, RoomContext, RoomDefinition, RoomLog } from './definition.ts'
import { bounded, RoomLogicError, RoomLogicRefused, validate } from './failures.ts'
import { requireSize, type StateSize, sizeOf } from './state-size.ts'
import type { RoomEvent } from './update.ts'

/** The handlers that are turns. */
export type Hook = 'onJoin' | 'onMessage' | 'onLeave' | 'onTick' | 'onDispose'

/** Something for `onMessage`: a member's message, or the outcome of a task. */
export interface Input {
  readonly type: string
  readonly data: unknown
  readonly member: Member | null
}

/** What comes of a turn that asks for nothing. */
export const NOTHING: Effects = { events: [], kicked: [], tasks: [], closed: false }

/** What logic is given from outside. */
export interface HandlersParts extends ContextParts {
  readonly size: Pick<StateSize, 'check'>
}

/** The game of one room: its definition and its authoritative state, changed by one atomic turn after the other. */
export class Handlers {
  definition: RoomDefinition
  #state: Json
  readonly #size: HandlersParts['size']
  readonly #turn: HandlerContext

  constructor(definition: RoomDefinition, state: Json, parts: HandlersParts) {
    this.definition = definition
    this.#state = state
    this.#size = parts.size
    this.#turn = new HandlerContext(parts)
  }

  /** Immutable; every turn that changes anything makes a new one. */
  get state(): Json {
    return this.#state
  }

  join(member: Member, options: unknown): Effects {
    return this.#run('onJoin', member, options)
  }

  message(input: Input): Effects {
    return this.#run('onMessage', input)
  }

  leave(member: Member): Effects {
    return this.#run('onLeave', member)
  }

  tick(): Effects {
    return this.#run('onTick')
  }

  dispose(): Effects {
    return this.#run('onDispose')
  }

  /** Runs one handler. Throws what it threw, or a RoomLogicError; the state is then as before, and nothing it asked for happens. */
  #run(hook: Hook, subject?: unknown, options?: unknown): Effects {
    const handler = this.definition[hook]
    if (!handler) return NOTHING
    this.#turn.begin(this.definition)
    try {
      const next = produce(this.#state, (draft) => {
        const returned =
          subject === undefined
            ? handler.call(this.definition, draft, this.#turn)
            : handler.call(this.definition, draft, subject, this.#turn, options)
        const result = resultOf(hook, draft, returned)
        if (result?.event) this.#turn.emit(result.event.name, result.event.data, result.event.to)
        return result?.state
      })
      const written = this.#check(hook, next)
      this.#size.check(this.#state, next as Json, written)
      const effects = this.#turn.end()
      this.#state = next as Json
      return effects
    } finally {
      this.#turn.end()
    }
  }

  /** Throws unless `next` is JSON. Returns the most bytes that it may have more than the state before. */
  #check(hook: Hook, next: unknown): number {
    try {
      return checkChange(this.#state, next)
    } catch (error) {
      if (error instanceof NotJson)
        throw new RoomLogicError(`${hook} made a state that is not JSON: ${error.message}`)
      throw error
    }
  }
}

interface Result {
  readonly state?: unknown
  readonly event?: { readonly name: string; readonly data: unknown; readonly to?: string | readonly string[] }
}

/** What a handler returned, checked; undefined: nothing but the changed draft. */
function resultOf(hook: Hook, draft: unknown, returned: unknown): Result | undefined {
  if (typeof returned !== 'object' || returned === null || returned === draft) return undefined
  if (typeof (returned as { then?: unknown }).then === 'function') {
    ;(returned as PromiseLike<unknown>).then(undefined, () => {})
    throw new RoomLogicError(
      `${hook} returned a promise; handlers are synchronous turns: give slow work to ctx.task`,
    )
  }
  if (!('state' in returned) && !('event' in returned))
    throw new RoomLogicError(
      `${hook} returned an object with neither state nor event; return { state, event }, or nothing after changing the draft`,
    )
  return returned as Result
}

/** The state of a new room, of at most so many bytes. Throws what `create` threw, or a RoomLogicError. */
export function createState(definition: RoomDefinition, options: unknown, mostBytes: number): Json {
  const state = definition.create(options)
  if (typeof (state as { then?: unknown } | undefined)?.then === 'function')
    throw new RoomLogicError('create returned a promise; it must return the first state')
  try {
    // A copy: what `create` returned may be a constant of its module, or share parts with one.
    const copy = cloneJson(state)
    requireSize(sizeOf(copy), mostBytes)
    return copy
  } catch (error) {
    if (error instanceof NotJson)
      throw new RoomLogicError(`create made a state that is not JSON: ${error.message}`)
    throw error
  }
}

/** PendingJoin options as the definition wants them, or what is wrong with them. */
export const parseOptions = (definition: RoomDefinition, options: Json) =>
  definition.options ? validate(definition.options, options) : ({ ok: true, value: options } as const)

/** A promise whose outcome becomes a message of the room. */
export interface Task {
  readonly type: string
  readonly work: PromiseLike<unknown>
}

/** What a handler asked for besides the new state; taken over only when it returned normally. */
export interface Effects {
  readonly events: readonly RoomEvent[]
  /** Member ids. */
  readonly kicked: readonly string[]
  readonly tasks: readonly Task[]
  readonly closed: boolean
}

/** What the turns of a room are given from outside. */
export interface ContextParts {
  readonly roomId: string
  readonly clock: Clock
  readonly random: Random
  readonly log: RoomLog
  readonly members: () => readonly Member[]
  /** Whether so many tasks more may be in flight. */
  readonly mayStart: (tasks: number) => boolean
}

/** The `ctx` of every handler of one room: collects what one turn asks for. Between turns it refuses to do anything. */
export class HandlerContext implements RoomContext {
  readonly roomId: string
  readonly log: RoomLog
  readonly #parts: ContextParts
  #definition: RoomDefinition | undefined
  #now = 0
  #events: RoomEvent[] = []
  #kicked: string[] = []
  #tasks: Task[] = []
  #closed = false

  constructor(parts: ContextParts) {
    this.roomId = parts.roomId
    this.log = parts.log
    this.#parts = parts
    // Authors may take methods off: `const { emit } = ctx`.
    this.random = this.random.bind(this)
    this.emit = this.emit.bind(this)
    this.close = this.close.bind(this)
    this.kick = this.kick.bind(this)
    this.task = this.task.bind(this)
    this.refuse = this.refuse.bind(this)
  }

  /** A handler of `definition` begins. */
  begin(definition: RoomDefinition): void {
    this.#definition = definition
    this.#now = this.#parts.clock.now()
    this.#events = []
    this.#kicked = []
    this.#tasks = []
    this.#closed = false
  }

  /** The handler is done: from here on the context refuses. What it asked for is returned, to be taken over or not. */
  end(): Effects {
    this.#definition = undefined
    return { events: this.#events, kicked: this.#kicked, tasks: this.#tasks, closed: this.#closed }
  }

  get now(): number {
    return this.#definition ? this.#now : this.#parts.clock.now()
  }

  get members(): readonly Member[] {
    return this.#parts.members()
  }

  random(): number {
    return this.#parts.random.float()
  }

  emit(name: string, data: unknown, to?: Recipients): void {
    const { events } = this.#during('emit')
    if (typeof name !== 'string' || name === '' || name.length > 64)
      throw new RoomLogicError(`ctx.emit got the name ${JSON.stringify(name)}; it must be 1–64 characters`)
    this.#events.push({ name, data: eventData(events, name, data), to: recipients(to) })
  }

  close(): void {
    this.#during('close')
    this.#closed = true
  }

  kick(member: string | Member): void {
    this.#during('kick')
    this.#kicked.push(typeof member === 'string' ? member : member.id)
  }

  task(work: PromiseLike<unknown>, type: string): void {
    const { tasks } = this.#during('task')
    if (!Object.hasOwn(tasks, type))
      throw new RoomLogicError(
        `ctx.task names the type ${JSON.stringify(type)}, which is not among the room's tasks`,
      )
    if (typeof work?.then !== 'function') throw new RoomLogicError('ctx.task needs a promise')
    // With any outcome of this turn, a rejection is handled.
    work.then(undefined, () => {})
    if (!this.#parts.mayStart(this.#tasks.length + 1))
      throw new RoomLogicError('ctx.task: the room has MAX_ROOM_TASKS tasks in flight; wait for an outcome')
    this.#tasks.push({ type, work })
  }

  refuse(message: string): never {
    this.#during('refuse')
    if (typeof message !== 'string' || message === '')
      throw new RoomLogicError(`ctx.refuse got ${JSON.stringify(message)}; it must be a text for the player`)
    throw new RoomLogicRefused(bounded(message))
  }

  #during(call: string): RoomDefinition {
    if (this.#definition) return this.#definition
    throw new RoomLogicError(
      `ctx.${call} was called outside of a handler's turn; slow work goes through ctx.task, whose outcome is a turn again`,
    )
  }
}

/** The data members get: a copy, checked by the declared schema where there is one. */
function eventData(events: RoomDefinition['events'], name: string, data: unknown): Json {
  let checked = data
  if (events) {
    if (!Object.hasOwn(events, name))
      throw new RoomLogicError(`the event ${JSON.stringify(name)} is not among the room's events`)
    const result = validate(events[name]!, data)
    if (!result.ok)
      throw new RoomLogicError(`the data of the event ${JSON.stringify(name)}: ${result.message}`)
    checked = result.value
  }
  try {
    return cloneJson(checked === undefined ? null : checked)
  } catch (error) {
    if (error instanceof NotJson)
      throw new RoomLogicError(`the data of the event ${JSON.stringify(name)} is not JSON: ${error.message}`)
    throw error
  }
}

function recipients(to: Recipients | undefined): readonly string[] | undefined {
  if (to === undefined) return undefined
  if (typeof to === 'string') return [to]
  if (Array.isArray(to) && to.every((id) => typeof id === 'string')) return [...to]
  throw new RoomLogicError('the recipients of an event are a member id or an array of them')
}

/** Where a returned state rides along in the draft, so that drafts inside it are resolved with the rest. */
const RETURNED = Symbol('returned')

const OPTIONS = {
  enableAutoFreeze: false,
  // Objects without a prototype are JSON too (Object.groupBy makes them); everything else that is no plain object is left to checkJson.
  mark: (target: unknown) =>
    typeof target === 'object' && target !== null && Object.getPrototypeOf(target) === null
      ? ('immutable' as const)
      : undefined,
}

/**
 * The state after `change`, not yet checked. `change` gets a draft of `state` and returns undefined, or the state to be instead, which
 * may contain parts of the draft. `state` itself never changes, and what `change` leaves alone is shared with it. Drafts are dead
 * afterwards, also when `change` throws.
 */
export const produce = (state: Json, change: (draft: unknown) => unknown): unknown =>
  typeof state === 'object' && state !== null && !Array.isArray(state)
    ? produceObject(state as Record<PropertyKey, unknown>, change)
    : produceHeld(state, change)

function produceObject(state: Record<PropertyKey, unknown>, change: (draft: unknown) => unknown): unknown {
  let instead: unknown
  const next = create(
    state,
    (draft) => {
      instead = change(draft)
      if (instead === draft) instead = undefined
      if (instead !== undefined) draft[RETURNED] = instead
    },
    OPTIONS,
  )
  return instead === undefined ? next : next[RETURNED]
}

/** States that are no objects: only a property can hold what becomes of them. */
const produceHeld = (state: Json, change: (draft: unknown) => unknown): unknown =>
  create(
    { state } as { state: unknown },
    (holder) => {
      const instead = change(holder.state)
      if (instead !== undefined) holder.state = instead
    },
    OPTIONS,
  ).state
