import type { Json } from '../../shared/json.ts'
import type { RoomDefinition } from './definition.ts'
import { jsonCopy, RoomLogicError, validate } from './failures.ts'

/** Of the JSON text of a timer's data, in UTF-8. */
const MAX_DATA_BYTES = 4096
/** Of an id, in UTF-8: what the note about a turn that does not end has place for. */
const MAX_ID_BYTES = 96

/** A timer of a room, as the record has it. */
export interface RoomTimer {
  /** One of the room's timers has it. */
  readonly id: string
  /** When it is to fire: milliseconds since 1970. */
  readonly due: number
  /** Which of the room type's `timers` it is. */
  readonly name: string
  /** What its handler gets, before its schema has looked at it: that may be another one by then. */
  readonly data: Json
}

/**
 * Returns the timer that `ctx.after` was called for, in a turn that began at `now`. Its `id` is undefined if the call named none. Throws a
 * RoomLogicError that says what would be right.
 */
export function timerOf(
  { timers }: RoomDefinition,
  now: number,
  [ms, name, data, id]: readonly [ms: number, name: string, data: unknown, id: string | undefined],
): Omit<RoomTimer, 'id'> & { readonly id: string | undefined } {
  if (id !== undefined) requireId('ctx.after', id)
  return { id, due: dueAfter(now, ms), name, data: checkedData(timers, name, data) }
}

const show = (value: unknown): string => JSON.stringify(value) ?? String(value)

/** What is past is due at once. */
function dueAfter(now: number, ms: number): number {
  const due = typeof ms === 'number' ? Math.ceil(now + Math.max(0, ms)) : Number.NaN
  if (Number.isSafeInteger(due)) return due
  throw new RoomLogicError(
    `ctx.after got ${typeof ms === 'number' ? ms : show(ms)} as its delay; it must be milliseconds, such as 20_000`,
  )
}

/** Throws a RoomLogicError unless `id`, which `call` was given, can be the id of a timer or task. */
export function requireId(call: string, id: string): void {
  if (typeof id === 'string' && id !== '' && id.isWellFormed() && Buffer.byteLength(id) <= MAX_ID_BYTES)
    return
  throw new RoomLogicError(`${call} got the id ${show(id)}; it must be a text of 1 to ${MAX_ID_BYTES} bytes`)
}

/** A copy of the data, which its schema has accepted. */
function checkedData(timers: RoomDefinition['timers'], name: string, data: unknown): Json {
  const spec = Object.hasOwn(timers, name) ? timers[name] : undefined
  if (!spec) {
    const names = Object.keys(timers).join(', ') || 'none'
    throw new RoomLogicError(
      `ctx.after names the timer ${show(name)}, which is not among the room's timers: there are ${names}`,
    )
  }
  const what = `the data of the timer ${show(name)}`
  const valid = validate(spec.data, data)
  if (!valid.ok) throw new RoomLogicError(`${what}: ${valid.message}`)
  const copy = jsonCopy(data, what)
  const bytes = Buffer.byteLength(JSON.stringify(copy))
  if (bytes > MAX_DATA_BYTES)
    throw new RoomLogicError(
      `${what} has ${bytes} bytes of JSON; it may have ${MAX_DATA_BYTES}: keep it in the state, and give the timer its key`,
    )
  return copy
}
