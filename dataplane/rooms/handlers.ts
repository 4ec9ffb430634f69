import type { Clock } from '../../shared/clock.ts'
import type { Json } from '../../shared/json.ts'
import type { Random } from '../../shared/random.ts'
import { cloneJson, NotJson } from '../../shared/sync/check.ts'
import type { Member, Recipients, RoomContext, RoomDefinition, RoomLog } from './definition.ts'
import type { RoomEnvironment } from './environment.ts'
import { bounded, RoomLogicError, RoomLogicRefused, validate } from './failures.ts'
import type { RoomEvent } from './journal.ts'
import type { Memberships } from './memberships.ts'
import { type LiveState, requireSize, sizeOf } from './state.ts'
import type { RoomStream } from './stream.ts'

/** The handlers that are turns. */
type Hook = 'onJoin' | 'onMessage' | 'onLeave' | 'onTick' | 'onDispose'

/** Something for `onMessage`: a member's message, or the outcome of a task. */
interface Input {
  readonly type: string
  readonly data: unknown
  readonly member: Member | null
}

/** What comes of a turn that asks for nothing. */
export const NOTHING: Effects = { events: [], kicked: [], tasks: [], closed: false }

/** The room whose handlers run. */
interface HandledRoom extends Pick<RoomStream, 'roomId' | 'log' | 'state'> {
  readonly environment: Pick<RoomEnvironment, 'clock' | 'random'>
  readonly memberships: Pick<Memberships, 'members'>
}

/** The handlers of one room: each runs as an atomic turn of its state. */
export class Handlers {
  definition: RoomDefinition
  readonly #state: LiveState
  readonly #context: HandlerContext

  /** `mayStart`: whether so many tasks more may be in flight. */
  constructor(definition: RoomDefinition, room: HandledRoom, mayStart: (tasks: number) => boolean) {
    this.definition = definition
    this.#state = room.state
    this.#context = new HandlerContext(room, mayStart)
  }

  /**
   * Runs one handler, for a member or an input where it takes one. Throws what it threw, or a RoomLogicError; the state is then as before,
   * and nothing it asked for happens.
   */
  run(hook: Hook, subject?: Member | Input, options?: unknown): Effects {
    const { definition } = this
    const context = this.#context
    const handler = definition[hook]
    if (!handler) return NOTHING
    context.begin(definition)
    try {
      this.#state.turn(hook, (draft) => {
        const returned =
          subject === undefined
            ? handler.call(definition, draft, context)
            : handler.call(definition, draft, subject, context, options)
        const result = resultOf(hook, draft, returned)
        if (result?.event) context.emit(result.event.name, result.event.data, result.event.to)
        return result?.state
      })
      return context.end()
    } finally {
      context.end()
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

/** Join options as the definition wants them, or what is wrong with them. */
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

/** The `ctx` of every handler of one room: collects what one turn asks for. Between turns it refuses to do anything. */
class HandlerContext implements RoomContext {
  readonly roomId: string
  readonly log: RoomLog
  readonly #clock: Clock
  readonly #random: Random
  readonly #memberships: HandledRoom['memberships']
  readonly #mayStart: (tasks: number) => boolean
  #definition: RoomDefinition | undefined
  #now = 0
  #events: RoomEvent[] = []
  #kicked: string[] = []
  #tasks: Task[] = []
  #closed = false

  constructor({ roomId, log, memberships, environment }: HandledRoom, mayStart: (tasks: number) => boolean) {
    this.roomId = roomId
    this.log = log
    this.#clock = environment.clock
    this.#random = environment.random
    this.#memberships = memberships
    this.#mayStart = mayStart
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
    this.#now = this.#clock.now()
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
    return this.#definition ? this.#now : this.#clock.now()
  }

  get members(): readonly Member[] {
    return this.#memberships.members
  }

  random(): number {
    return this.#random.float()
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
    if (!this.#mayStart(this.#tasks.length + 1))
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
