import { create } from 'mutative'
import type { Json, JsonArray, JsonObject } from '../../shared/json.ts'
import { apply } from '../../shared/sync/apply.ts'
import { checkChange, cloneJson, NotJson } from '../../shared/sync/check.ts'
import { Checksum } from '../../shared/sync/checksum.ts'
import { type ArrayDelta, type Delta, ObjectDelta, REMOVE, Replace } from '../../shared/sync/delta.ts'
import { diff } from '../../shared/sync/diff.ts'
import type { RoomDefinition } from './definition.ts'
import { RoomLogicError } from './failures.ts'

/** From this part of its limit on the size of a state is told of in the log. */
const WARNED_AT = 0.8
/** Below this part of the limit it is told of again when it comes near. */
const FORGOTTEN_AT = 0.5
/** Of an array or object besides what is in it; in truth 1 to 5. */
const CONTAINER_BYTES = 3

/**
 * The authoritative state of one room: as it is, and as of the last flush, with checksum and size. A state is immutable; turns that change
 * anything make a new one.
 *
 * The size is about what a state takes as MessagePack, a fifth more or less where values are small. It is measured whole once, when the room
 * begins; then each flush adds what its delta brought and takes away what it replaced, which costs what has changed. Between flushes it is
 * known how large the state may be at most. Only a turn with which that comes to the limit is measured, from the flush on.
 */
export class LiveState {
  readonly #limit: number
  readonly #onLarge: (bytes: number) => void
  readonly #onRefused: () => void
  readonly #checksums = new Checksum()
  #present: Json
  #flushed: Json
  #checksum: number
  /** As of the last flush. */
  #bytes: number
  /** The most that turns may have brought since. */
  #grown = 0
  #told = false

  /**
   * `limit`: bytes. `onLarge`: the state comes near that, and has not since it was below half of it. `onRefused`: a turn failed since the
   * state would have grown beyond it.
   */
  constructor(
    { state, checksum }: { readonly state: Json; readonly checksum: number },
    limit: number,
    onLarge: (bytes: number) => void,
    onRefused: () => void,
  ) {
    this.#limit = limit
    this.#onLarge = onLarge
    this.#onRefused = onRefused
    this.#present = state
    this.#flushed = state
    this.#checksum = checksum
    this.#bytes = sizeOf(state)
  }

  get present(): Json {
    return this.#present
  }

  /** As of the last flush. */
  get flushed(): Json {
    return this.#flushed
  }

  /** Of the state as of the last flush. */
  get checksum(): number {
    return this.#checksum
  }

  /**
   * One atomic turn: `change` gets a draft and returns undefined, or the state to be instead, which may contain parts of the draft. Throws
   * what `change` threw, or a RoomLogicError, which calls the turn `name`; the state is then as before.
   */
  turn(name: string, change: (draft: unknown) => unknown): void {
    const next = produce(this.#present, change)
    try {
      const written = checkChange(this.#present, next)
      this.#checkSize(next as Json, written)
    } catch (error) {
      if (error instanceof NotJson)
        throw new RoomLogicError(`${name} made a state that is not JSON: ${error.message}`)
      throw error
    }
    this.#present = next as Json
  }

  /** The difference between the present state and that of the last flush, which becomes the last; undefined: there is none. */
  flush(): Delta | undefined {
    const delta = diff(this.#flushed, this.#present)
    // Without one the states are equal, but may be different objects: the older one has its checksum cached.
    if (!delta) return undefined
    this.#checksum = this.#checksums.after(this.#flushed, this.#present, delta)
    this.#bytes += growthOf(this.#flushed, delta)
    this.#flushed = this.#present
    this.#grown = 0
    if (this.#bytes < FORGOTTEN_AT * this.#limit) this.#told = false
    if (!this.#told && this.#bytes >= WARNED_AT * this.#limit) {
      this.#told = true
      this.#onLarge(this.#bytes)
    }
    return delta
  }

  /**
   * `next` is larger than the present state by at most `written` bytes. Throws a RoomLogicError when it is beyond the limit, and larger
   * than the present one.
   */
  #checkSize(next: Json, written: number): void {
    if (next === this.#present) return
    if (this.#bytes + this.#grown + written <= this.#limit) {
      this.#grown += written
      return
    }
    const after = this.#sizeOf(next)
    if (after <= this.#limit || after <= this.#sizeOf(this.#present)) {
      this.#grown = after - this.#bytes
      return
    }
    this.#onRefused()
    requireSize(after, this.#limit)
  }

  #sizeOf(state: Json): number {
    const delta = diff(this.#flushed, state)
    return delta ? this.#bytes + growthOf(this.#flushed, delta) : this.#bytes
  }
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
const produce = (state: Json, change: (draft: unknown) => unknown): unknown =>
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

/** Throws a RoomLogicError for a state of more than `limit` bytes. */
function requireSize(bytes: number, limit: number): void {
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
