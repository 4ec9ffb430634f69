import type { StandardSchemaV1 } from '@standard-schema/spec'
import type { Json } from '../../shared/json.ts'
import type { RoomDefinition } from './definition.ts'
import type { TaskOutcome } from './definition-types.ts'
import { jsonCopy, RoomLogicError, validate, validateInput } from './failures.ts'

/** Rows of timers and tasks. `tasks.ts` runs the tasks. `cluster/waker.ts` opens rooms that no node runs when a timer is due. */

/** Maximum bytes of the JSON text of a timer's data, in UTF-8. */
const MAX_DATA_BYTES = 4096
/** Maximum bytes of an id, in UTF-8. The watchdog's memory for the running turn has no space for more. */
const MAX_ID_BYTES = 96

/** A timer of a room, as in its record. */
export interface RoomTimer {
  /** Unique among the room's timers. */
  readonly id: string
  /** Time at which the timer fires, in milliseconds since 1970. */
  readonly due: number
  /** Name in the room type's `timers`. */
  readonly name: string
  /** Data for its handler, before its schema was applied. Until then, the schema may change. */
  readonly data: Json
}

/**
 * Returns the timer for a call of `ctx.after` in a turn that began at `now`. `id` is undefined if the call named none. Throws a
 * RoomLogicError that names the right form.
 */
export function timerOf(
  { timers }: RoomDefinition,
  now: number,
  [ms, name, data, id]: readonly [ms: number, name: string, data: unknown, id: string | undefined],
): Omit<RoomTimer, 'id'> & { readonly id: string | undefined } {
  if (id !== undefined) requireId('ctx.after', id)
  return { id, due: dueAfter(now, ms), name, data: timerData(timers, name, data) }
}

const show = (value: unknown): string => JSON.stringify(value) ?? String(value)

/** Returns the due time: in the next millisecond or later, so that a timer that sets itself again cannot fire twice in one millisecond. */
function dueAfter(now: number, ms: number): number {
  const due = typeof ms === 'number' ? Math.ceil(now + Math.max(1, ms)) : Number.NaN
  if (Number.isSafeInteger(due)) return due
  throw new RoomLogicError(
    `ctx.after got ${typeof ms === 'number' ? ms : show(ms)} as its delay; it must be milliseconds, such as 20_000`,
  )
}

/** Throws a RoomLogicError unless the `id` that was passed to `call` is valid for a timer or task. */
function requireId(call: string, id: string): void {
  if (typeof id === 'string' && id !== '' && id.isWellFormed() && Buffer.byteLength(id) <= MAX_ID_BYTES)
    return
  throw new RoomLogicError(`${call} got the id ${show(id)}; it must be a text of 1 to ${MAX_ID_BYTES} bytes`)
}

/** Returns a copy of a timer's data. */
function timerData(timers: RoomDefinition['timers'], name: string, data: unknown): Json {
  const spec = Object.hasOwn(timers, name) ? timers[name] : undefined
  if (!spec) {
    const names = Object.keys(timers).join(', ') || 'none'
    throw new RoomLogicError(
      `ctx.after names the timer ${show(name)}, which is not among the room's timers: there are ${names}`,
    )
  }
  const advice = 'keep it in the state, and give the timer its key'
  return checkedCopy(spec.data, data, `the data of the timer ${show(name)}`, MAX_DATA_BYTES, advice)
}

/** Returns a copy of data that `schema` accepts, of at most `mostBytes` of JSON. Throws a RoomLogicError that calls the data `what`. */
function checkedCopy(
  schema: StandardSchemaV1,
  data: unknown,
  what: string,
  mostBytes: number,
  advice: string,
): Json {
  const valid = validate(schema, data)
  if (!valid.ok) throw new RoomLogicError(`${what}: ${valid.message}`)
  const copy = jsonCopy(data, what)
  const bytes = Buffer.byteLength(JSON.stringify(copy))
  if (bytes <= mostBytes) return copy
  throw new RoomLogicError(`${what} has ${bytes} bytes of JSON; limit: ${mostBytes}: ${advice}`)
}

/** Maximum size of a task's data, as bytes of JSON. */
const MAX_TASK_BYTES = 16_384

/**
 * Interval in milliseconds at which an owner renews the due time of a task with `retry`. Until the task ends, the room is not idle, and a
 * node wakes it if it has no owner.
 */
export const RENEW_MS = 30_000

/** Starts the work of a task. */
export type Work = () => PromiseLike<unknown>

/** A task of a room that has not ended. */
export interface RoomTask {
  readonly id: string
  /** Name in the room type's `tasks`. */
  readonly name: string
  /** Data of a task with `retry`, before its schema was applied; null for other tasks. */
  readonly data: Json
  /** Time at which the owner renews the row, in milliseconds since 1970. Undefined: the task has no `retry`. */
  readonly due?: number | undefined
  /** Work of a task without `retry`. The record does not have it: undefined in a room that had another owner when the task started. */
  readonly work?: Work
}

/**
 * Returns the task with `retry` for a call of `ctx.task(name, data, { id })` at `now`. Throws a RoomLogicError that names the right form.
 */
export function retryTask(
  { tasks }: RoomDefinition,
  now: number,
  [name, data, id]: readonly [name: string, data: unknown, id: string],
): RoomTask {
  requireId('ctx.task', id)
  const schema = tasks[name]?.data
  if (!schema)
    throw new RoomLogicError(
      `ctx.task got data for the task ${JSON.stringify(name)}, which has no retry: give it work, as in ctx.task(() => work(), ${JSON.stringify(name)}), or declare retry: true with data and run`,
    )
  const what = `the data of the task ${JSON.stringify(name)}`
  const advice = 'keep it in your database, and give the task its key'
  const copy = checkedCopy(schema, data, what, MAX_TASK_BYTES, advice)
  return { id, name, data: copy, due: now + RENEW_MS }
}

/** Returns the outcome of work that resolved to `value`, checked by the schema of the task's `result`. */
export function checkedResult(schema: StandardSchemaV1 | undefined, value: unknown): TaskOutcome<unknown> {
  if (!schema) return { ok: true, value: undefined }
  const valid = validateInput(schema, value)
  return valid.ok ? { ok: true, value: valid.value } : { ok: false, error: valid.message }
}

/** Outcome of a task that was lost with its owner. It is unknown whether the task has done anything. */
export const MOVED: TaskOutcome<never> = { ok: false, error: 'moved' }
