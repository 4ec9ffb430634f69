import type { Json } from '../../shared/json.ts'
import { checkChange, cloneJson, NotJson } from '../../shared/sync/check.ts'
import type { Member, RoomDefinition } from './definition.ts'
import { produce } from './draft.ts'
import { requireSize, type StateSize, sizeOf } from './state-size.ts'
import { type Effects, RoomLogicError, Turn, type TurnParts } from './turn.ts'
import { validate } from './validate.ts'

/** The handlers that are turns. */
export type Hook = 'on_join' | 'on_message' | 'on_leave' | 'on_tick' | 'on_dispose'

/** Something for `on_message`: a member's message, or the outcome of a task. */
export interface Input {
  readonly type: string
  readonly data: unknown
  readonly member: Member | null
}

/** What comes of a turn that asks for nothing. */
export const NOTHING: Effects = { events: [], kicked: [], tasks: [], closed: false }

/** What logic is given from outside. */
export interface LogicParts extends TurnParts {
  readonly size: Pick<StateSize, 'check'>
}

/** The game of one room: its definition and its authoritative state, changed by one atomic turn after the other. */
export class Logic {
  definition: RoomDefinition
  #state: Json
  readonly #size: LogicParts['size']
  readonly #turn: Turn

  constructor(definition: RoomDefinition, state: Json, parts: LogicParts) {
    this.definition = definition
    this.#state = state
    this.#size = parts.size
    this.#turn = new Turn(parts)
  }

  /** Immutable; every turn that changes anything makes a new one. */
  get state(): Json {
    return this.#state
  }

  join(member: Member, options: unknown): Effects {
    return this.#run('on_join', member, options)
  }

  message(input: Input): Effects {
    return this.#run('on_message', input)
  }

  leave(member: Member): Effects {
    return this.#run('on_leave', member)
  }

  tick(): Effects {
    return this.#run('on_tick')
  }

  dispose(): Effects {
    return this.#run('on_dispose')
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
export function createState(definition: RoomDefinition, options: unknown, most_bytes: number): Json {
  const state = definition.create(options)
  if (typeof (state as { then?: unknown } | undefined)?.then === 'function')
    throw new RoomLogicError('create returned a promise; it must return the first state')
  try {
    // A copy: what `create` returned may be a constant of its module, or share parts with one.
    const copy = cloneJson(state)
    requireSize(sizeOf(copy), most_bytes)
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
