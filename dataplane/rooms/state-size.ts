import type { Json, JsonArray, JsonObject } from '../../shared/json.ts'
import { apply } from '../../shared/sync/apply.ts'
import { type ArrayDelta, type Delta, ObjectDelta, REMOVE, Replace } from '../../shared/sync/delta.ts'
import { diff } from '../../shared/sync/diff.ts'
import { RoomLogicError } from './failures.ts'

/** From this part of the limit on a state is told of in the log. */
const WARNED_AT = 0.8
/** Below this part of the limit it is told of again when it comes near. */
const FORGOTTEN_AT = 0.5
/** Of an array or object besides what is in it; in truth 1 to 5. */
const CONTAINER_BYTES = 3

/** What a room's state is measured for. */
export interface StateSizeParts {
  /** Bytes. */
  readonly limit: number
  /** The state comes near the limit, and has not since it was below half of it. */
  readonly onLarge: (bytes: number) => void
  /** A turn failed since the state would have grown beyond the limit. */
  readonly onRefused: () => void
}

/**
 * How large the state of one room is: about what it takes as MessagePack, a fifth more or less where values are small. It is measured whole
 * once, when the room begins; then each flush adds what its delta brought and takes away what it replaced, which costs what has changed.
 * Between flushes it is known how large the state may be at most. Only a turn with which that comes to the limit is measured, from the flush on.
 */
export class StateSize {
  readonly #parts: StateSizeParts
  #flushed: Json
  #bytes: number
  /** The most that turns may have brought since the last flush. */
  #grown = 0
  #told = false

  constructor(state: Json, parts: StateSizeParts) {
    this.#parts = parts
    this.#flushed = state
    this.#bytes = sizeOf(state)
  }

  /** As of the last flush. */
  get bytes(): number {
    return this.#bytes
  }

  /**
   * A turn leads from `present` to `next`, which is larger by at most `written` bytes. Throws a RoomLogicError when it would make a state
   * beyond the limit larger, or one so large; `present` goes on then.
   */
  check(present: Json, next: Json, written: number): void {
    if (next === present) return
    const { limit, onRefused } = this.#parts
    if (this.#bytes + this.#grown + written <= limit) {
      this.#grown += written
      return
    }
    const after = this.#of(next)
    if (after <= limit || after <= this.#of(present)) {
      this.#grown = after - this.#bytes
      return
    }
    onRefused()
    requireSize(after, limit)
  }

  /** The room is at `state` with this flush, `delta` further than with the one before. */
  flushed(state: Json, delta: Delta): void {
    const { limit, onLarge } = this.#parts
    this.#bytes += growthOf(this.#flushed, delta)
    this.#flushed = state
    this.#grown = 0
    if (this.#bytes < FORGOTTEN_AT * limit) this.#told = false
    if (this.#told || this.#bytes < WARNED_AT * limit) return
    this.#told = true
    onLarge(this.#bytes)
  }

  #of(state: Json): number {
    const delta = diff(this.#flushed, state)
    return delta ? this.#bytes + growthOf(this.#flushed, delta) : this.#bytes
  }
}

/** Throws a RoomLogicError for a state of more than `limit` bytes. */
export function requireSize(bytes: number, limit: number): void {
  if (bytes <= limit) return
  throw new RoomLogicError(
    `the state would have ${bytes} bytes; it may have ${limit} (MAX_ROOM_STATE_BYTES): keep less in it`,
  )
}

/** Bytes of a value as MessagePack, roughly. */
export function sizeOf(value: Json): number {
  if (typeof value === 'string') {
    const length = Buffer.byteLength(value)
    return length + (length < 32 ? 1 : length < 256 ? 2 : 5)
  }
  if (typeof value === 'number') return Number.isInteger(value) ? (value >= -32 && value < 128 ? 1 : 5) : 9
  if (typeof value !== 'object' || value === null) return 1
  let bytes = CONTAINER_BYTES
  if (Array.isArray(value)) for (const element of value as JsonArray) bytes += sizeOf(element)
  else for (const key of Object.keys(value)) bytes += sizeOf(key) + sizeOf((value as JsonObject)[key]!)
  return bytes
}

/** `sizeOf(apply(before, delta)) - sizeOf(before)`, at the cost of what has changed. */
export function growthOf(before: Json, delta: Delta): number {
  if (delta instanceof Replace) return sizeOf(delta.value) - sizeOf(before)
  if (delta instanceof ObjectDelta) return growthOfObject(before as JsonObject, delta)
  return growthOfArray(before as JsonArray, delta)
}

function growthOfObject(before: JsonObject, { changes }: ObjectDelta): number {
  let bytes = 0
  for (const [key, change] of changes) {
    const known = Object.hasOwn(before, key)
    if (change === REMOVE) bytes -= sizeOf(key) + sizeOf(before[key]!)
    else if (known) bytes += growthOf(before[key]!, change)
    else if (change instanceof Replace) bytes += sizeOf(key) + sizeOf(change.value)
  }
  return bytes
}

function growthOfArray(before: JsonArray, { changes, splices }: ArrayDelta): number {
  let bytes = 0
  for (const [index, change] of changes) bytes += growthOf(before[index]!, change)
  if (splices.length === 0) return bytes
  let elements = before.slice()
  for (const [index, change] of changes) elements[index] = apply(before[index]!, change)
  for (const { at, remove, insert } of splices) {
    for (const gone of elements.slice(at, at + remove)) bytes -= sizeOf(gone)
    for (const come of insert) bytes += sizeOf(come)
    elements = elements.slice(0, at).concat(insert, elements.slice(at + remove))
  }
  return bytes
}
