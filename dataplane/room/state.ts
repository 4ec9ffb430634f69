import type { Json } from '../../shared/json.ts'
import { NotJson } from '../../shared/sync/check.ts'
import type { Delta, ObjectDelta } from '../../shared/sync/delta.ts'
import type { RoomDefinition } from './definition.ts'
import { type FailureLog, kindOf, RoomLogicError } from './failures.ts'
import { readOnlyView } from './guarded.ts'
import { isOwnFrame } from './hooks.ts'
import { haveLayers, type LayerRules, problemsOfPatterns } from './layer-rules.ts'
import { type Layers, merged } from './layers.ts'
import { bytesOf, hashOf, plainOf, ROOT, viewOf } from './live-object.ts'
import { LiveTree } from './live-tree.ts'
import type { RoomMetrics } from './metrics.ts'
import { type CodeRoom, type RoomCode, turnOf } from './room-code.ts'

/** From this part of its limit on, the size of a state is logged. */
const WARNED_AT = 0.8
/** Below this part of the limit, the warning is armed again. */
const FORGOTTEN_AT = 0.5

/** The authoritative state of one room. Turns change it one after the other, within its size limit. */
export class LiveState {
  /** The hidden parts: the layers, with the values that are hidden from all members. Undefined: the room type hides none. */
  readonly hidden: Layers | undefined
  /** The layers that members can have. Undefined: there are none. */
  readonly layers: Layers | undefined
  /** The part of the state that all members see, as of the last flush. Use it immediately: the next flush changes it. */
  base: Json
  /** Checksum of `base`, from 0 to 2^32 - 1. */
  checksum: number
  /** Version of `base`. Each flush of the room sets it to that of the definition. */
  version: number
  readonly #tree: LiveTree
  readonly #limit: number
  /** Bytes before the turn. */
  #bytes = 0
  #present: Json | undefined
  #warned = false

  /** `limit`: bytes. `rules`: hides parts of it. Throws as `LiveTree` does. */
  constructor(state: unknown, limit: number, rules?: LayerRules, version = 1) {
    this.version = version
    this.#limit = limit
    this.#tree = new LiveTree(state, rules)
    this.hidden = this.#tree.hidden?.layers
    this.layers = haveLayers(rules) ? this.hidden : undefined
    const { flushed, target } = this.#tree.holder
    this.base = flushed![ROOT]!
    this.checksum = hashOf(target[ROOT]!) >>> 0
  }

  /** A read-only copy of the state for room code, made at its first use after a turn. */
  get present(): Json {
    this.#present ??= readOnlyView(this.plain()).view
    return this.#present
  }

  /** Returns a copy of the state as ordinary objects, for databases. */
  plain(): Json {
    return plainOf(this.#tree.holder.target[ROOT]!)
  }

  /** Estimated bytes of the state as MessagePack, accurate to about a fifth if values are small. */
  get bytes(): number {
    return bytesOf(this.#tree.holder.target[ROOT])
  }

  /** Size of the state, as a part of the limit. */
  get share(): number {
    return this.bytes / this.#limit
  }

  /** The whole state as of the last flush, with hidden parts. Use it immediately: the next flush changes it. */
  get flushed(): Json {
    return this.hidden ? merged(this.base, Object.values(this.hidden.states)) : this.base
  }

  /** True if turns have written something since the last flush. */
  get dirty(): boolean {
    return this.#tree.holder.first !== undefined
  }

  /** Begins an atomic turn, which ends with `commit` or `undo`. Returns the state for the handler: a view, or a scalar. */
  begin(): unknown {
    this.#bytes = this.bytes
    this.#tree.begin()
    return viewOf(this.#tree.holder.target[ROOT])
  }

  /** Replaces the whole state in a turn. Returns the new state for handlers. Throws if it is not JSON: call `undo` then. */
  replace(instead: unknown): unknown {
    const { holder } = this.#tree
    holder.write(ROOT, instead)
    return viewOf(holder.target[ROOT])
  }

  /** Ends a successful turn. Throws if the state is not allowed: call `undo` then. */
  commit(): void {
    const { bytes } = this
    if (bytes > this.#bytes) requireSize(bytes, this.#limit)
    if (this.#tree.commit()) this.#present = undefined
  }

  /** Ends a failed turn, and restores the state. */
  undo(): void {
    this.#tree.undo()
  }

  /** Returns the change of the base since the last flush. Undefined: there is none. `hidden` has the other changes. */
  flush(): Delta | undefined {
    const { holder, marks } = this.#tree
    const change = holder.flush()
    marks.clear()
    this.base = holder.flushed![ROOT]!
    this.checksum = hashOf(holder.target[ROOT]!) >>> 0
    return change && ((change as ObjectDelta).changes[0] as Delta)
  }

  /** Throws if the state is larger than its limit, or if a value does not fit the patterns of hidden parts. */
  requireAllowed(): void {
    requireSize(this.bytes, this.#limit)
    this.#tree.requireAllFitting()
  }

  /**
   * Returns the size of the state in bytes if it is near the limit, to be logged. Undefined: it is not, or this was returned before and the
   * size has not been below half of the limit since then.
   */
  nearLimit(): number | undefined {
    const { bytes } = this
    if (bytes < FORGOTTEN_AT * this.#limit) this.#warned = false
    if (this.#warned || bytes < WARNED_AT * this.#limit) return undefined
    this.#warned = true
    return bytes
  }
}

/** Returns the state that `create` makes, of at most `mostBytes`. Throws what `create` throws, or a RoomLogicError. */
export function createState(definition: RoomDefinition, options: unknown, mostBytes: number): LiveState {
  const made = definition.create(options)
  if (typeof (made as { then?: unknown } | undefined)?.then === 'function')
    throw new RoomLogicError('create returned a promise; it must return the first state')
  const state = stateOf('create', made, definition, mostBytes)
  const problems = definition.layers ? problemsOfPatterns(definition.layers, made) : []
  if (problems.length > 0) throw new RoomLogicError(problems.join('; '))
  return state
}

/** Returns a whole state that `name` of a room type has made, of at most `mostBytes`. Throws a RoomLogicError. */
export function stateOf(
  name: string,
  made: unknown,
  definition: RoomDefinition,
  mostBytes: number,
): LiveState {
  try {
    const state = new LiveState(made, mostBytes, definition.layers, definition.version)
    state.requireAllowed()
    return state
  } catch (error) {
    throw turnError(name, error, definition)
  }
}

/** Returns the error to throw in place of `thrown`, with which `name` of a room type has failed. */
export const turnError = (name: string, thrown: unknown, definition: RoomDefinition): unknown =>
  thrown instanceof NotJson ? stateError(name, thrown, definition) : thrown

/**
 * Returns the error for a state that is not JSON. Its stack starts where room code wrote the value, or, if roomful found the value only in
 * what `name` returned, where the room type is defined.
 */
function stateError(
  name: string,
  { message, stack = '' }: NotJson,
  { definedAt }: RoomDefinition,
): RoomLogicError {
  const error = new RoomLogicError(`${name} made a state that is not JSON: ${message}`)
  const written = framesOf(stack)
  const frames = written.length > 0 ? written : framesOf(definedAt.stack ?? '')
  error.stack = [`${error.name}: ${error.message}`, ...frames].join('\n')
  return error
}

const framesOf = (stack: string): string[] =>
  stack.split('\n').filter((line) => /^ +at /.test(line) && !isOwnFrame(line))

/** The state has more bytes than its limit. */
export class StateTooLarge extends RoomLogicError {}

/** Throws StateTooLarge for a state of more than `limit` bytes. */
function requireSize(bytes: number, limit: number): void {
  if (bytes <= limit) return
  throw new StateTooLarge(
    `the state would have ${bytes} bytes; limit: ${limit} (MAX_ROOM_STATE_BYTES): keep less in it`,
  )
}

/** The state of a room could not be migrated to the version of its code. The room stays unchanged. The text is for players. */
export class CannotMigrate extends Error {
  override readonly name = 'CannotMigrate'
}

/** The state of a room has a newer version than the code here. */
export class NewerState extends Error {
  override readonly name = 'NewerState'

  constructor(roomType: string, stateVersion: number, version: number) {
    super(
      `the state has version ${stateVersion}, and the code of room type ${roomType} here is for version ${version}`,
    )
  }
}

/** Dependencies of `migrate`. */
export interface MigrationNeeds {
  readonly code: RoomCode
  readonly failures: FailureLog
  readonly metrics: RoomMetrics
}

/**
 * Migrates a state from version `from` to that of the definition, with one `migrate` after the other. All of it is one turn, which succeeds
 * as a whole or changes nothing. Throws CannotMigrate, or NewerState if the state is newer.
 */
export function migrate(
  state: LiveState,
  from: number,
  definition: RoomDefinition,
  { code, failures, metrics }: MigrationNeeds,
  room: CodeRoom,
): void {
  const { type, version } = definition
  if (from === version) return
  if (from > version) throw new NewerState(type, from, version)
  try {
    code.run({ ...turnOf(room, 'migrate'), ref: from }, () => migrateState(state, from, definition))
    metrics.roomMigrations.inc({ room_type: type, outcome: 'migrated' })
  } catch (error) {
    metrics.roomMigrations.inc({ room_type: type, outcome: 'failed' })
    if (error instanceof StateTooLarge) metrics.limitsReached.inc({ room_type: type, limit: 'state' })
    const { message } = failures.explain(
      `migrate of ${type} from version ${from} to ${version}`,
      error,
      room.name,
    )
    throw new CannotMigrate(
      `its state of version ${from} could not be brought to version ${version}: ${message}`,
    )
  }
}

function migrateState(state: LiveState, from: number, definition: RoomDefinition): void {
  const { migrate, version } = definition
  // The functions get a copy of the state, so that a failure half way changes nothing.
  let next: unknown = state.plain()
  for (let step = from; step < version; step++) {
    const made = migrate[step]!(next)
    if (typeof (made as { then?: unknown } | undefined)?.then === 'function')
      throw new RoomLogicError(`migrate.${step} returned a promise; it must return the state, or change it`)
    // An arrow function that assigns, such as `(state) => (state.rounds = 3)`, returns what it assigns.
    if (made !== undefined && Object(made) !== made && Object(next) === next)
      throw new RoomLogicError(
        `migrate.${step} returned ${kindOf(made)} for a state that is an object; return the whole next state, or nothing after changing it`,
      )
    if (made !== undefined) next = made
  }
  state.begin()
  try {
    state.replace(next)
    state.commit()
  } catch (error) {
    state.undo()
    throw turnError('migrate', error, definition)
  }
}
