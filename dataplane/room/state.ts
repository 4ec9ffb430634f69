import type { Json } from '../../shared/json.ts'
import { checkContainer, checkKey, checkScalar, NotJson } from '../../shared/sync/check.ts'
import type { Delta, ObjectDelta } from '../../shared/sync/delta.ts'
import type { RoomDefinition } from './definition.ts'
import type { RoomEnvironment } from './environment.ts'
import { kindOf, RoomLogicError } from './failures.ts'
import { frozen, guarded } from './guarded.ts'
import { isOwnFrame } from './hooks.ts'
import { type LayerRules, problemsOfPatterns } from './layer-rules.ts'
import { Layers } from './layers.ts'
import { LiveArray } from './live-array.ts'
import {
  type Before,
  bytesOf,
  containerOf,
  DELETED,
  hashOf,
  Live,
  LiveObject,
  Marks,
  notJson,
  plainOf,
  ROOT,
  type Scalar,
  type Slot,
  viewOf,
} from './live-object.ts'
import { type CodeRoom, turnOf } from './room-code.ts'

/** From this part of its limit on, the size of a state is logged. */
const WARNED_AT = 0.8
/** Below this part of the limit, the warning is armed again. */
const FORGOTTEN_AT = 0.5

/** The authoritative state of one room. Turns change it one after the other, within its size limit. */
export class LiveState {
  /** The hidden parts. Undefined: the room type has no layers. */
  readonly layers: Layers | undefined
  readonly #limit: number
  readonly #tree: LiveTree
  /** Bytes before the turn. */
  #bytes = 0
  #present: Json | undefined
  #warned = false

  /** `limit`: bytes. `rules`: the layers of the room type. */
  constructor(tree: LiveTree, limit: number, rules?: LayerRules) {
    this.#limit = limit
    this.#tree = tree
    this.layers = rules && new Layers(rules, tree)
  }

  /** A frozen copy of the state for room code, made at its first use after a turn. */
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

  /** The whole state as of the last flush, with hidden parts. Use it immediately: the next flush changes it. */
  get flushed(): Json {
    return this.#tree.flushed
  }

  /** Checksum of `flushed`. Members do not get it. */
  get flushedChecksum(): number {
    return this.#tree.checksum
  }

  /** The part of the state that all members see, as of the last flush. Use it immediately: the next flush changes it. */
  get base(): Json {
    return this.layers ? this.layers.base : this.#tree.flushed
  }

  /** Checksum of `base`. */
  get checksum(): number {
    return this.layers ? this.layers.checksum : this.#tree.checksum
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

  /** Ends a successful turn. `instead`: the new state, unless undefined. Throws if the state is not allowed: call `undo` then. */
  commit(instead: unknown): void {
    if (instead !== undefined) this.#tree.replace(instead)
    const { bytes } = this.#tree
    if (bytes > this.#bytes) requireSize(bytes, this.#limit)
    this.layers?.check()
    if (this.#tree.commit()) this.#present = undefined
  }

  /** Ends a failed turn of the handler `name`, and restores the state. Returns the error to throw in place of `thrown`. */
  undo(name: string, thrown: unknown, definition: RoomDefinition): unknown {
    this.#tree.undo()
    return thrown instanceof NotJson ? stateError(name, thrown, definition) : thrown
  }

  /** Returns the change since the last flush. Undefined: there is none. */
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
    const tree = new LiveTree(state)
    requireSize(tree.bytes, mostBytes)
    if (layers) new Layers(layers, tree).checkAll()
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
    `the state would have ${bytes} bytes; it may have ${limit} (MAX_ROOM_STATE_BYTES): keep less in it`,
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

/**
 * Migrates a state from version `from` to that of the definition, with one `migrate` after the other. All of it is one turn, which succeeds
 * as a whole or changes nothing. Throws CannotMigrate, or NewerState if the state is newer.
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
    state.commit(next)
  } catch (error) {
    throw state.undo('migrate', error, definition)
  }
}

/** If the log of a turn is longer, it is dropped after the turn. Otherwise the next turn reuses it. */
const KEPT_LOG = 1000

/** One step of a turn, with the data for its undo. */
export interface Step {
  kind: 'written' | 'marked' | 'ordered' | 'linked' | 'spliced'
  container: Live
  key: string | number
  before: unknown
}

/**
 * The state of a room as two trees. Turns read and write the *live* tree through views: one Proxy for each container, created at its first
 * use. The *flushed* tree is plain JSON as of the last flush, and does not change between flushes.
 *
 * A write is logged for its undo. It also marks its entry, and the containers around it, as changed. A flush visits only marked entries: it
 * builds the delta, updates the flushed tree, and keeps the sum of each container's entry hashes (docs/protocol.md) by subtracting the old
 * entry's hash and adding the new one's.
 *
 * New values are copied, so nothing outside refers to either tree. An array or object that replaces another one takes over the parts that
 * it has in common with the other: elements that a `filter` kept stay the same objects.
 */
export class LiveTree {
  /** A turn may have replaced the flushed root, so its checksum is kept here. */
  #checksum = 0
  readonly #holder: LiveObject
  #log: Step[] = []
  #steps = 0
  readonly #marks = new Marks()
  /** Number of marks before the turn. */
  #marked = 0
  /** Entries that this turn has deleted: container and key. */
  #deleted: [LiveObject, string][] = []
  #open = false

  /** Copies, checks, measures and hashes the first state, from `create` or a record, each once. Throws NotJson. */
  constructor(state: unknown) {
    this.#holder = new LiveObject(this)
    this.#holder.target[ROOT] = this.copied(state, this.#holder, ROOT)
    this.#holder.firstFlush()
    this.#checksum = hashOf(this.#root) >>> 0
  }

  /** Begins a turn, in which views can be used. Returns the state for handlers: a view, or a scalar. */
  begin(): unknown {
    this.#open = true
    this.#marked = this.#marks.count
    return viewOf(this.#root)
  }

  /** Replaces the whole state. Throws NotJson. */
  replace(state: unknown): void {
    this.#holder.write(ROOT, state)
  }

  /** Ends the turn, and keeps its changes. Returns true if it wrote anything. */
  commit(): boolean {
    const wrote = this.#steps > 0
    for (const [container, key] of this.#deleted)
      if ((container.target[key] as unknown) === DELETED) delete container.target[key]
    this.#end()
    return wrote
  }

  /** Ends the turn, and undoes its changes. */
  undo(): void {
    this.#undoTo(0)
    this.#marks.undoTo(this.#marked)
    this.#end()
  }

  /** True if anything was written since the last flush. */
  get dirty(): boolean {
    return this.#holder.first !== undefined
  }

  /** Estimated bytes of the live state as MessagePack, accurate to about a fifth if values are small. */
  get bytes(): number {
    return bytesOf(this.#root)
  }

  /** The state as of the last flush. Use it immediately: the next flush changes it. */
  get flushed(): Json {
    return this.#holder.flushed![ROOT]!
  }

  /** Checksum of the state as of the last flush, from 0 to 2^32 - 1. */
  get checksum(): number {
    return this.#checksum
  }

  /** The root, if it is an object. */
  get object(): LiveObject | undefined {
    const root = this.#root
    return root instanceof LiveObject ? root : undefined
  }

  /**
   * Calls `visit` for the object entries that the present turn has written, with path and present value. Only entries of objects that lie
   * in at most `levels` others and in no array count. Skips deleted entries, and those that are no longer in the tree.
   */
  written(levels: number, visit: (path: readonly string[], slot: Slot) => void): void {
    for (let i = 0; i < this.#steps; i++) {
      const { kind, container, key } = this.#log[i]!
      if (kind !== 'written' || !(container instanceof LiveObject) || container.depth > levels) continue
      const slot = container.own(key as string)
      const path = slot !== undefined && this.#pathOf(container, key as string)
      if (path) visit(path, slot)
    }
  }

  /** Returns the keys that lead to an entry of an object. Undefined: it is in an array, or not in the tree. */
  #pathOf(container: LiveObject, key: string): string[] | undefined {
    if (container === this.#holder) return []
    const path = [key]
    for (let at: Live = container; at !== this.#root; at = at.parent) {
      if (!at.parent || at.parent.isArray) return undefined
      path.unshift(at.key as string)
    }
    return path
  }

  /** Returns a copy of the live state. */
  plain(): Json {
    return plainOf(this.#root)
  }

  /** Returns the change since the last flush, and updates the flushed tree. */
  flush(): Delta | undefined {
    const change = this.#holder.flush()
    this.#marks.clear()
    this.#checksum = hashOf(this.#root) >>> 0
    return change && ((change as ObjectDelta).changes[0] as Delta)
  }

  get #root(): Slot {
    return this.#holder.target[ROOT]!
  }

  #end(): void {
    if (this.#log.length > KEPT_LOG) this.#log = []
    this.#steps = 0
    if (this.#deleted.length > 0) this.#deleted = []
    this.#open = false
  }

  // The methods below are for containers.

  requireOpen(): void {
    if (!this.#open)
      throw new RoomLogicError(
        'state_outside_turn: the state of a room was used outside of a handler; read from it what is needed later, before the handler returns',
      )
  }

  /** True if this turn has deleted entries. */
  get hasDeleted(): boolean {
    return this.#deleted.length > 0
  }

  deleted(container: LiveObject, key: string): void {
    this.#deleted.push([container, key])
  }

  /** Logs a step for its undo. */
  log(kind: Step['kind'], container: Live, key: string | number, before: unknown): void {
    const step = this.#log[this.#steps]
    if (step === undefined) this.#log.push({ kind, container, key, before })
    else {
      step.kind = kind
      step.container = container
      step.key = key
      step.before = before
    }
    this.#steps++
  }

  /** An entry of an object in the flushed tree may change. */
  mark(container: LiveObject, key: string, before: Live | undefined): void {
    this.#marks.add(container, key, before)
  }

  #undoTo(steps: number): void {
    while (this.#steps > steps) {
      const { kind, container, key, before } = this.#log[--this.#steps]!
      if (kind === 'linked') container.parent = before as Live
      else container.undo(kind, key, before)
    }
  }

  /**
   * Returns `value` as an entry of `parent`: a scalar, or a copy. The copy takes over parts of `place`, the entry that it replaces. Throws
   * NotJson.
   */
  copied(value: unknown, parent: Live, key: string | number, place?: Before): Slot {
    const steps = this.#steps
    try {
      if (typeof value !== 'object' || value === null) {
        checkScalar(value, [])
        return value as Scalar
      }
      const copy = this.#copy(value, place, parent.depth + 1, [])
      copy.parent = parent
      copy.key = key
      return copy
    } catch (error) {
      this.#undoTo(steps)
      throw error instanceof NotJson ? notJson(parent, key, error.found, error.path) : error
    }
  }

  #copy(value: object, place: Before, level: number, path: (string | number)[]): Live {
    const source = (value instanceof Live ? value : this.#ownOf(value))?.target ?? value
    checkContainer(source, level, path)
    if (Array.isArray(source)) {
      const copy = new LiveArray(this)
      const old = place instanceof LiveArray ? place : undefined
      for (let i = 0; i < source.length; i++)
        copy.add(this.#part(source[i], copy, i, old, undefined, level, path), i)
      return copy
    }
    const from = source as { readonly [key: string]: unknown }
    const copy = new LiveObject(this)
    const old = place instanceof LiveObject ? place : undefined
    for (const key of Object.keys(from)) {
      if (from[key] === DELETED) continue
      checkKey(key, path)
      copy.add(this.#part(from[key], copy, key, old, old?.own(key), level, path), key)
    }
    return copy
  }

  /** Returns one entry of a copy that replaces `old`. `place`: the entry of `old` at this key. */
  #part(
    value: unknown,
    copy: Live,
    key: string | number,
    old: Live | undefined,
    place: Before,
    level: number,
    path: (string | number)[],
  ): Slot {
    path.push(key)
    let part: Slot
    if (typeof value !== 'object' || value === null) {
      checkScalar(value, path)
      part = value as Scalar
    } else {
      const own = old && (value instanceof Live ? value : this.#ownOf(value))
      if (own !== undefined && own.parent === old && (place === own || typeof key === 'number')) {
        this.log('linked', own, key, old)
        own.parent = copy
        part = own
      } else {
        part = this.#copy(value, place, level + 1, path)
        part.parent = copy
        part.key = key
      }
    }
    path.pop()
    return part
  }

  /** Returns the container of a view of this tree. */
  #ownOf(value: object): Live | undefined {
    const container = containerOf(value)
    return container?.tree === this ? container : undefined
  }
}
