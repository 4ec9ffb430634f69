import type { Json } from '../../shared/json.ts'
import { NotJson } from '../../shared/sync/check.ts'
import type { Delta } from '../../shared/sync/delta.ts'
import type { RoomDefinition } from './definition.ts'
import { type FailureLog, kindOf, RoomLogicError } from './failures.ts'
import { readOnlyView } from './guarded.ts'
import { isOwnFrame } from './hooks.ts'
import { haveLayers, type LayerRules, problemsOfPatterns } from './layer-rules.ts'
import { type Layers, merged } from './layers.ts'
import { LiveTree } from './live-tree.ts'
import type { RoomMetrics } from './metrics.ts'
import { type CodeRoom, type RoomCode, turnOf } from './room-code.ts'

/** From this part of its limit on, the size of a state is logged. */
const WARNED_AT = 0.8
/** Below this part of the limit, the warning is armed again. */
const FORGOTTEN_AT = 0.5

/** The authoritative state of one room. Turns change it one after the other, within its size limit. */
export class LiveState {
  /** The layers that members can have. Undefined: there are none. */
  readonly layers: Layers | undefined
  readonly #limit: number
  readonly #tree: LiveTree
  /** Bytes before the turn. */
  #bytes = 0
  #present: Json | undefined
  #warned = false

  /** `limit`: bytes. `rules`: the layers of the room type, by which `tree` hides parts. */
  constructor(tree: LiveTree, limit: number, rules?: LayerRules) {
    this.#limit = limit
    this.#tree = tree
    this.layers = haveLayers(rules) ? this.hidden : undefined
  }

  /** A read-only copy of the state for room code, made at its first use after a turn. */
  get present(): Json {
    this.#present ??= readOnlyView(this.#tree.plain()).view
    return this.#present
  }

  /** Returns a copy of the state as ordinary objects, for databases. */
  plain(): Json {
    return this.#tree.plain()
  }

  /** Size of the state, as a part of the limit. */
  get share(): number {
    return this.#tree.bytes / this.#limit
  }

  /** The hidden parts: the layers, with the values that are hidden from all members. Undefined: the room type hides none. */
  get hidden(): Layers | undefined {
    return this.#tree.layers
  }

  /** The whole state as of the last flush, with hidden parts. Use it immediately: the next flush changes it. */
  get flushed(): Json {
    return this.hidden ? merged(this.base, Object.values(this.hidden.states)) : this.base
  }

  /** The part of the state that all members see, as of the last flush. Use it immediately: the next flush changes it. */
  get base(): Json {
    return this.#tree.flushed
  }

  /** Checksum of `base`. */
  get checksum(): number {
    return this.#tree.checksum
  }

  /** True if turns have written something since the last flush. */
  get dirty(): boolean {
    return this.#tree.dirty
  }

  /** Begins an atomic turn, which ends with `commit` or `undo`. Returns the state for the handler. */
  begin(): unknown {
    this.#bytes = this.#tree.bytes
    return this.#tree.begin()
  }

  /** Replaces the whole state in a turn. Returns the new state for handlers. Throws if it is not JSON: call `undo` then. */
  replace(instead: unknown): unknown {
    this.#tree.replace(instead)
    return this.#tree.view
  }

  /** Ends a successful turn. Throws if the state is not allowed: call `undo` then. */
  commit(): void {
    this.#tree.requireDense()
    const { bytes } = this.#tree
    if (bytes > this.#bytes) requireSize(bytes, this.#limit)
    this.#tree.requireFitting()
    if (this.#tree.commit()) this.#present = undefined
  }

  /** Ends a failed turn of the handler `name`, and restores the state. Returns the error to throw in place of `thrown`. */
  undo(name: string, thrown: unknown, definition: RoomDefinition): unknown {
    this.#tree.undo()
    return thrown instanceof NotJson ? stateError(name, thrown, definition) : thrown
  }

  /** Returns the change of the base since the last flush. Undefined: there is none. `hidden` has the other changes. */
  flush(): Delta | undefined {
    return this.#tree.flush()
  }

  /**
   * Returns the size of the state in bytes if it is near the limit, to be logged. Undefined: it is not, or this was returned before and the
   * size has not been below half of the limit since then.
   */
  nearLimit(): number | undefined {
    const { bytes } = this.#tree
    if (bytes < FORGOTTEN_AT * this.#limit) this.#warned = false
    if (this.#warned || bytes < WARNED_AT * this.#limit) return undefined
    this.#warned = true
    return bytes
  }
}

/** Returns the state that `create` makes, of at most `mostBytes`. Throws what `create` throws, or a RoomLogicError. */
export function createState(definition: RoomDefinition, options: unknown, mostBytes: number): LiveTree {
  const state = definition.create(options)
  if (typeof (state as { then?: unknown } | undefined)?.then === 'function')
    throw new RoomLogicError('create returned a promise; it must return the first state')
  const tree = treeOf('create', state, definition, mostBytes)
  const problems = definition.layers ? problemsOfPatterns(definition.layers, state) : []
  if (problems.length > 0) throw new RoomLogicError(problems.join('; '))
  return tree
}

/** Returns a whole state that `name` of a room type has made, of at most `mostBytes`. Throws a RoomLogicError. */
export function treeOf(
  name: string,
  state: unknown,
  definition: RoomDefinition,
  mostBytes: number,
): LiveTree {
  const { layers } = definition
  try {
    const tree = new LiveTree(state, layers)
    requireSize(tree.bytes, mostBytes)
    tree.requireAllFitting()
    return tree
  } catch (error) {
    throw error instanceof NotJson ? stateError(name, error, definition) : error
  }
}

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
    throw state.undo('migrate', error, definition)
  }
}
