import type { Json } from '../../shared/json.ts'
import { NotJson } from '../../shared/sync/check.ts'
import type { Delta } from '../../shared/sync/delta.ts'
import { isOwnFrame } from '../own-frames.ts'
import type { RoomDefinition } from './definition.ts'
import type { RoomEnvironment } from './environment.ts'
import { kindOf, RoomLogicError } from './failures.ts'
import { frozen, guarded } from './guarded.ts'
import { type LayerRules, problemsOfPatterns } from './layer-rules.ts'
import { Layers } from './layers.ts'
import { LiveTree } from './live-tree.ts'
import type { CodeRoom } from './room-code.ts'

/** From this part of its limit on the size of a state is told of in the log. */
const WARNED_AT = 0.8
/** Below this part of the limit it is told of again when it comes near. */
const FORGOTTEN_AT = 0.5

/** The authoritative state of one room, which turns change one after the other, within the limit on its size. */
export class LiveState {
  /** What of it is hidden; undefined: nothing ever is. */
  readonly layers: Layers | undefined
  readonly #limit: number
  readonly #tree: LiveTree
  /** Before the turn. */
  #bytes = 0
  #present: Json | undefined
  #warned = false

  /** `limit`: bytes. `rules`: what of the state is hidden. */
  constructor(tree: LiveTree, limit: number, rules?: LayerRules) {
    this.#limit = limit
    this.#tree = tree
    this.layers = rules && new Layers(rules, tree)
  }

  /** A frozen copy of the state for room code, made when it is first asked for after a turn. */
  get present(): Json {
    this.#present ??= frozen(guarded(this.#tree.plain()))
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

  /** As of the last flush, with what is hidden. To be read at once: the next flush changes it. */
  get flushed(): Json {
    return this.#tree.flushed
  }

  /** Of all that `flushed` is: not for members. */
  get flushedChecksum(): number {
    return this.#tree.checksum
  }

  /** What everyone sees of it as of the last flush. To be read at once: the next flush changes it. */
  get base(): Json {
    return this.layers ? this.layers.base : this.#tree.flushed
  }

  /** Of `base`. */
  get checksum(): number {
    return this.layers ? this.layers.checksum : this.#tree.checksum
  }

  /** Whether turns have written anything since the last flush. */
  get dirty(): boolean {
    return this.#tree.dirty
  }

  /** Begins an atomic turn, which `commit` or `undo` must end. Returns what a handler gets as the state. */
  begin(): unknown {
    this.#bytes = this.#tree.bytes
    return this.#tree.begin()
  }

  /** The turn has succeeded; `instead`: the state to be, unless undefined. Throws when it may not stand: then `undo` has to end it. */
  commit(instead: unknown): void {
    if (instead !== undefined) this.#tree.replace(instead)
    const { bytes } = this.#tree
    if (bytes > this.#bytes) requireSize(bytes, this.#limit)
    this.layers?.check()
    if (this.#tree.commit()) this.#present = undefined
  }

  /** The turn, which is called `name`, has failed: the state is as before. Returns what to throw for what it threw. */
  undo(name: string, thrown: unknown, definition: RoomDefinition): unknown {
    this.#tree.undo()
    return thrown instanceof NotJson ? notJson(name, thrown, definition) : thrown
  }

  /** The difference between the present state and that of the last flush, which becomes the last; undefined: there is none. */
  flush(): Delta | undefined {
    return this.#tree.flush()
  }

  /**
   * Size of the state in bytes if it has come near the limit, to be logged. Undefined: it has not, or this was returned before and the
   * state has not been below half of the limit since then.
   */
  nearLimit(): number | undefined {
    const { bytes } = this.#tree
    if (bytes < FORGOTTEN_AT * this.#limit) this.#warned = false
    if (this.#warned || bytes < WARNED_AT * this.#limit) return undefined
    this.#warned = true
    return bytes
  }
}

/** The state that `create` makes, of at most so many bytes. Throws what that threw, or a RoomLogicError. */
export function createState(definition: RoomDefinition, options: unknown, mostBytes: number): LiveTree {
  const state = definition.create(options)
  if (typeof (state as { then?: unknown } | undefined)?.then === 'function')
    throw new RoomLogicError('create returned a promise; it must return the first state')
  const tree = treeOf('create', state, definition, mostBytes)
  const problems = definition.layers ? problemsOfPatterns(definition.layers, state) : []
  if (problems.length > 0) throw new RoomLogicError(problems.join('; '))
  return tree
}

/** A whole state that `name` of a room type has made, of at most so many bytes. Throws a RoomLogicError. */
export function treeOf(
  name: string,
  state: unknown,
  definition: RoomDefinition,
  mostBytes: number,
): LiveTree {
  const { layers } = definition
  try {
    const tree = new LiveTree(state)
    requireSize(tree.bytes, mostBytes)
    if (layers) new Layers(layers, tree).checkAll()
    return tree
  } catch (error) {
    throw error instanceof NotJson ? notJson(name, error, definition) : error
  }
}

/**
 * Returns the error for a state that is not JSON. Its stack starts where room code wrote the value, or, if roomful found the value only in
 * what `name` returned, where the room type is defined.
 */
function notJson(
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

/** A state has more bytes than it may have. */
export class StateTooLarge extends RoomLogicError {}

/** Throws StateTooLarge for a state of more than `limit` bytes. */
function requireSize(bytes: number, limit: number): void {
  if (bytes <= limit) return
  throw new StateTooLarge(
    `the state would have ${bytes} bytes; it may have ${limit} (MAX_ROOM_STATE_BYTES): keep less in it`,
  )
}

/** The state of a room could not be brought to the version of its code; the room stays as it is. The text is for players. */
export class CannotMigrate extends Error {
  override readonly name = 'CannotMigrate'
}

/** The state of a room is of a newer version than the code here. */
export class NewerState extends Error {
  override readonly name = 'NewerState'

  constructor(roomType: string, stateVersion: number, version: number) {
    super(
      `the state has version ${stateVersion}, and the code of room type ${roomType} here is for version ${version}`,
    )
  }
}

/**
 * Brings a state of version `from` to that of the definition, one `migrate` after the other, as one turn: all of it, or nothing. Throws
 * CannotMigrate, and NewerState where there is no way back.
 */
export function migrate(
  state: LiveState,
  from: number,
  definition: RoomDefinition,
  { code, failures, metrics }: Pick<RoomEnvironment, 'code' | 'failures' | 'metrics'>,
  room: CodeRoom,
): void {
  const { type, version } = definition
  if (from === version) return
  if (from > version) throw new NewerState(type, from, version)
  try {
    code.run({ room, hook: 'migrate', subject: '', ref: from, type: '', principal: '' }, () =>
      migrateState(state, from, definition),
    )
    metrics.roomMigrations.inc({ room_type: type, outcome: 'migrated' })
  } catch (error) {
    metrics.roomMigrations.inc({ room_type: type, outcome: 'failed' })
    if (error instanceof StateTooLarge) metrics.limitsReached.inc({ room_type: type, limit: 'state' })
    const { message } = failures.explain(`migrate of ${type} from version ${from} to ${version}`, error)
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
    state.commit(next)
  } catch (error) {
    throw state.undo('migrate', error, definition)
  }
}
