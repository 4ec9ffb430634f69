import type { Json } from '../../shared/json.ts'
import { cloneJson, NotJson } from '../../shared/sync/check.ts'
import type { RoomDefinition } from './definition.ts'
import { RoomLogicError, validate } from './failures.ts'

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

/** What became of a room's timers since the update before. */
export interface TimerChanges {
  /** New ones, also in the place of others of their id. */
  readonly set: readonly RoomTimer[]
  /** Ids of those that have fired or were cancelled. */
  readonly removed: readonly string[]
}

export const NO_TIMER_CHANGES: TimerChanges = { set: [], removed: [] }

interface Waiting {
  readonly timer: RoomTimer
  /** Of two that are due at the same time, the one that was set first fires first. */
  readonly order: number
}

const isBefore = (one: Waiting, other: Waiting): boolean =>
  one.timer.due < other.timer.due || (one.timer.due === other.timer.due && one.order < other.order)

/** The timers of one room, as its turns have left them and as of the last flush. */
export class Timers {
  readonly #epoch: number
  readonly #byId = new Map<string, Waiting>()
  /** The one that is due next is the last. */
  readonly #queue: Waiting[] = []
  /** By id, what was there at the last flush, of those that have changed since. */
  #before: Map<string, Waiting | undefined> | undefined
  #flushedDue: number | undefined
  #order = 0
  #ids = 0

  /** `epoch`: of the owner, so that no two owners give one id. */
  constructor(restored: readonly RoomTimer[], epoch: number) {
    this.#epoch = epoch
    for (const timer of restored) this.#insert(timer)
    this.#flushedDue = this.next?.due
  }

  get size(): number {
    return this.#byId.size
  }

  /** The one that is due next. */
  get next(): RoomTimer | undefined {
    return this.#queue.at(-1)?.timer
  }

  has(id: string): boolean {
    return this.#byId.has(id)
  }

  /** An id that no timer of this room has had. */
  newId(): string {
    return `tmr_${this.#epoch.toString(36)}_${(++this.#ids).toString(36)}`
  }

  set(timer: RoomTimer): void {
    this.remove(timer.id)
    this.#keepBefore(timer.id, undefined)
    this.#insert(timer)
  }

  remove(id: string): void {
    const waiting = this.#byId.get(id)
    if (!waiting) return
    this.#keepBefore(id, waiting)
    this.#byId.delete(id)
    this.#queue.splice(this.#placeOf(waiting), 1)
  }

  /** Whether there is anything to flush. */
  get changed(): boolean {
    return this.#before !== undefined
  }

  /** What has changed since the last flush, which this is now. */
  flush(): TimerChanges {
    const before = this.#before
    if (!before) return NO_TIMER_CHANGES
    this.#before = undefined
    this.#flushedDue = this.next?.due
    const set: RoomTimer[] = []
    const removed: string[] = []
    for (const [id, was] of before) {
      const is = this.#byId.get(id)
      if (is && is !== was) set.push(is.timer)
      else if (!is && was) removed.push(id)
    }
    return { set, removed }
  }

  /** As of the last flush, in the order they were set. */
  get flushed(): RoomTimer[] {
    const before = this.#before
    if (!before) return [...this.#byId.values()].map(({ timer }) => timer)
    const waiting = [...this.#byId.values()].filter(({ timer }) => !before.has(timer.id))
    for (const was of before.values()) if (was) waiting.push(was)
    return waiting.sort((one, other) => one.order - other.order).map(({ timer }) => timer)
  }

  /** When the next one is due, as of the last flush. */
  get flushedDue(): number | undefined {
    return this.#flushedDue
  }

  #keepBefore(id: string, was: Waiting | undefined): void {
    this.#before ??= new Map()
    if (!this.#before.has(id)) this.#before.set(id, was)
  }

  #insert(timer: RoomTimer): void {
    const waiting = { timer, order: this.#order++ }
    this.#byId.set(timer.id, waiting)
    this.#queue.splice(this.#placeOf(waiting), 0, waiting)
  }

  /** Where it stands in the queue, or would. */
  #placeOf(waiting: Waiting): number {
    let from = 0
    let to = this.#queue.length
    while (from < to) {
      const middle = (from + to) >> 1
      if (isBefore(waiting, this.#queue[middle]!)) from = middle + 1
      else to = middle
    }
    return from
  }
}

/** What one turn asks for of its room's timers: taken over when it has succeeded. */
export class TurnTimers {
  readonly #timers: Timers
  readonly #mayHave: (timers: number) => boolean
  /** By id; undefined: cancelled. */
  readonly #asked = new Map<string, RoomTimer | undefined>()
  #size: number

  /** `mayHave`: whether the room may have so many. */
  constructor(timers: Timers, mayHave: (timers: number) => boolean) {
    this.#timers = timers
    this.#mayHave = mayHave
    this.#size = timers.size
  }

  /** `ctx.after`, in a turn that began at `now`. Returns the id. Throws a RoomLogicError that says what would be right. */
  after(
    definition: RoomDefinition,
    now: number,
    [ms, name, data, id]: readonly [ms: number, name: string, data: unknown, id: string | undefined],
  ): string {
    const due = dueAfter(now, ms)
    const copy = checkedData(definition, name, data)
    if (id !== undefined) requireId(id)
    const known = id ?? this.#timers.newId()
    if (!this.#has(known)) {
      if (!this.#mayHave(this.#size + 1))
        throw new RoomLogicError(
          `ctx.after: the room has ${this.#size} timers, as many as it may have: cancel one, or give the id of the one to replace`,
        )
      this.#size++
    }
    this.#asked.set(known, { id: known, due, name, data: copy })
    return known
  }

  /** `ctx.cancel`. False: there is no such timer. */
  cancel(id: string): boolean {
    if (typeof id !== 'string')
      throw new RoomLogicError(`ctx.cancel got ${show(id)}; it must be the id of a timer`)
    if (!this.#has(id)) return false
    this.#size--
    this.#asked.set(id, undefined)
    return true
  }

  /** The turn has succeeded. */
  takeOver(): void {
    for (const [id, timer] of this.#asked) {
      if (timer) this.#timers.set(timer)
      else this.#timers.remove(id)
    }
  }

  #has(id: string): boolean {
    return this.#asked.has(id) ? this.#asked.get(id) !== undefined : this.#timers.has(id)
  }
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

function requireId(id: string): void {
  if (typeof id === 'string' && id !== '' && id.isWellFormed() && Buffer.byteLength(id) <= MAX_ID_BYTES)
    return
  throw new RoomLogicError(
    `ctx.after got the id ${show(id)}; it must be a text of 1 to ${MAX_ID_BYTES} bytes`,
  )
}

/** A copy of the data, which its schema has accepted. */
function checkedData({ timers }: RoomDefinition, name: string, data: unknown): Json {
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
  const copy = copyOf(data, what)
  const bytes = Buffer.byteLength(JSON.stringify(copy))
  if (bytes > MAX_DATA_BYTES)
    throw new RoomLogicError(
      `${what} has ${bytes} bytes of JSON; it may have ${MAX_DATA_BYTES}: keep it in the state, and give the timer its key`,
    )
  return copy
}

function copyOf(data: unknown, what: string): Json {
  try {
    return cloneJson(data === undefined ? null : data)
  } catch (error) {
    if (error instanceof NotJson) throw new RoomLogicError(`${what} is not JSON: ${error.message}`)
    throw error
  }
}
