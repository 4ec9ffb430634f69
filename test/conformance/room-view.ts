import { applyPatch, Pointer } from 'rfc6902'
import {
  type Announcement,
  type Json,
  type MemberInfo,
  type Operation,
  ProtocolFault,
  type Received,
  type RoomPosition,
  type ServerMessage,
  type WireLayer,
  type WireState,
  type WireValue,
} from './messages.ts'

/** A message about a room. All other messages are about the session. */
export type RoomMessage = Extract<
  ServerMessage,
  {
    t: 'state.snapshot' | 'state.resync' | 'state.patch' | 'event' | 'member' | 'left' | 'spectators'
  }
>
/** A frame of the state. */
type StateMessage = Extract<RoomMessage, { checksum: number }>

/** Returns a text that is equal for equal values, whatever the order of their keys. */
export function canonical(value: Json): string {
  return JSON.stringify(value, (_, entry) =>
    entry !== null && typeof entry === 'object' && !Array.isArray(entry)
      ? Object.fromEntries(Object.entries(entry).sort(([a], [b]) => (a < b ? -1 : 1)))
      : entry,
  )
}

/**
 * One client's view of one room, by the rules of docs/protocol.md. It records everything that the page does not allow in `faults`. A test
 * that provokes a fault clears them.
 */
export class RoomView {
  readonly roomId: string
  readonly faults: string[] = []
  /** State after each received seq. */
  readonly history = new Map<number, Json>()
  /** Events, with the seq of their flush. */
  readonly events: { seq: number; event: Received<'event'> }[] = []
  /** Last number of spectators. Undefined: the server has sent none. */
  spectators: number | undefined
  /** Joins, leaves and changed roles of members. */
  readonly presence: Received<'member'>[] = []
  readonly table = new KeyTable()
  memberId = ''
  members = new Map<string, string | null>()
  /** Members in the list that watch. */
  watching = new Set<string>()
  /** Disconnected members. */
  away = new Set<string>()
  state: Json | undefined
  /** Checksum of the state. */
  checksum = 0
  epoch = -1
  seq = -1
  /** True while this client has a seat. */
  seated = true
  patches = 0
  snapshots = 0
  resyncs = 0
  waiting = false
  /** States of this client's hidden layers, by name. */
  layers: ReadonlyMap<string, Json> = new Map()
  private layerTables = new Map<string, KeyTable>()
  /** Names of layers, by number. */
  private names = new Map<number, string>()

  private readonly watched: boolean

  /** `watched`: the client has joined to watch. */
  constructor(joined: Received<'joined'>, watched = false) {
    this.watched = watched
    this.roomId = joined.room_id
    this.memberId = joined.member_id
  }

  /** Position for a resume. */
  get position(): RoomPosition {
    return { room_id: this.roomId, member_id: this.memberId, epoch: this.epoch, seq: this.seq }
  }

  /** State with its layers merged into it. */
  get merged(): Json {
    return [...this.layers.values()].reduce(merged, this.state as Json)
  }

  /** The connection has ended. */
  cutOff(): void {
    this.waiting = false
    this.names = new Map()
  }

  apply(message: RoomMessage): void {
    if (message.t === 'left') {
      if (!this.seated) this.fault('left of a seat that has ended')
      this.members.delete(this.memberId)
      this.seated = false
      return
    }
    if (this.state === undefined && message.t !== 'state.snapshot' && message.t !== 'state.resync') {
      this.fault(`${message.t} before the snapshot`)
      return
    }
    switch (message.t) {
      case 'state.snapshot':
        this.snapshots += 1
        this.setMembers(message.members)
        if (!this.members.has(this.memberId) && !this.watched)
          this.fault('the snapshot does not list the new member')
        this.takeWhole(message, message.body)
        break
      case 'state.resync':
        this.resyncs += 1
        this.setMembers(message.members)
        this.takeWhole(message, message.body)
        break
      case 'state.patch':
        this.takePatch(message)
        break
      case 'event':
        this.events.push({ seq: this.seq, event: message })
        break
      case 'spectators':
        this.spectators = message.count
        break
      default:
        this.takeMember(message)
    }
  }

  /** True if this client watches (R38). */
  get spectator(): boolean {
    return !this.members.has(this.memberId) || this.watching.has(this.memberId)
  }

  private fault(text: string): void {
    this.faults.push(`${this.roomId} at epoch ${this.epoch}, seq ${this.seq}: ${text}`)
  }

  private setMembers(members: readonly MemberInfo[]): void {
    this.away = new Set(
      members.flatMap(({ member_id: memberId, connected }) => (connected ? [] : [memberId])),
    )
    this.members = new Map(members.map(({ member_id: memberId, sub }) => [memberId, sub]))
    this.watching = new Set(
      members.flatMap(({ member_id: memberId, spectator }) => (spectator ? [memberId] : [])),
    )
    if (this.members.size !== members.length) this.fault('a member is listed twice')
  }

  private takeWhole(message: Received<'state.snapshot' | 'state.resync'>, body: WireState): void {
    if (message.epoch < this.epoch) this.fault(`${body.codec} state of the lower epoch ${message.epoch}`)
    try {
      this.state =
        body.codec === 'json' ? body.state : readValue(body.state, this.table.replace(body.announced))
    } catch (problem) {
      this.fault(`a whole state that cannot be read: ${(problem as Error).message}`)
      return
    }
    this.epoch = message.epoch
    this.seq = message.seq
    this.waiting = false
    this.layerTables = new Map()
    this.names = new Map()
    this.layers = this.changedLayers(message, new Map())
    this.remember(message.checksum)
  }

  /** R26. Throws ProtocolFault if a change does not fit. */
  private changedLayers({ layers, seq }: StateMessage, before: ReadonlyMap<string, Json>): Map<string, Json> {
    const after = new Map(before)
    for (const { name, number, change } of layers) {
      if (name !== undefined && number !== undefined) this.names.set(number, name)
      const layer = name ?? this.names.get(number!)
      if (layer === undefined) throw new ProtocolFault(`layer ${number} has no name`)
      if (!change) {
        after.delete(layer)
        this.layerTables.delete(layer)
        continue
      }
      const state = this.changedLayer(layer, change.body, after.get(layer))
      after.set(layer, state)
      const actual = checksum(state)
      if (actual !== change.checksum) this.misfit(layer, seq, change.checksum, actual)
    }
    return after
  }

  private changedLayer(
    layer: string,
    body: NonNullable<WireLayer['change']>['body'],
    before: Json | undefined,
  ): Json {
    if ('state' in body) return body.state
    if (body.codec === 'msgpack') {
      const table = this.layerTables.get(layer) ?? new KeyTable()
      this.layerTables.set(layer, table)
      return applyChange(before ?? null, body.change, table.extend(body.announced))
    }
    if (before === undefined) throw new ProtocolFault(`changes of ${layer}, which this client has not`)
    return applyOperations(before, body.ops)
  }

  /** A layer has another checksum than its frame. */
  protected misfit(layer: string, seq: number, expected: number, actual: number): void {
    this.fault(`checksum ${expected} of ${layer} at ${seq}, and a state of the checksum ${actual}`)
  }

  private takePatch(message: Received<'state.patch'>): void {
    const { body } = message
    if (this.waiting) return
    const { epoch = this.epoch } = message
    if (epoch < this.epoch || message.seq !== this.seq + 1) {
      this.waiting = true
      this.fault(`patch ${message.seq}; ${this.seq + 1} was due`)
      return
    }
    try {
      const state =
        body.codec === 'json'
          ? applyOperations(this.state as Json, body.ops)
          : applyChange(this.state as Json, body.change, this.table.extend(body.announced))
      this.layers = this.changedLayers(message, this.layers)
      this.state = state
    } catch (problem) {
      this.waiting = true
      this.fault(`patch ${message.seq} cannot be applied: ${(problem as Error).message}`)
      return
    }
    this.epoch = epoch
    this.seq = message.seq
    this.patches += 1
    this.remember(message.checksum)
  }

  private remember(expected: number): void {
    const state = this.state as Json
    this.checksum = checksum(state)
    if (this.checksum !== expected)
      this.fault(`checksum ${expected} came with a state of checksum ${this.checksum}`)
    this.history.set(this.seq, state)
  }

  private takeMember(message: Received<'member'>): void {
    const { member_id: memberId, sub, connected, spectator = false } = message
    const known = this.members.has(memberId)
    const same = known && this.away.has(memberId) !== connected && this.watching.has(memberId) === spectator
    if (connected === undefined ? !known : same) this.fault(`the member ${memberId} has not changed`)
    if (connected === undefined || !known) this.presence.push(message)
    if (connected === undefined) this.members.delete(memberId)
    else this.members.set(memberId, sub)
    put(this.away, memberId, connected === false)
    put(this.watching, memberId, spectator)
  }
}

/** Adds a value to a set, or removes it. */
function put(set: Set<string>, value: string, isIn: boolean): void {
  if (isIn) set.add(value)
  else set.delete(value)
}

const isObject = (value: Json | undefined): value is Record<string, Json> =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** Merges a layer into a base. */
function merged(base: Json, layer: Json): Json {
  if (!isObject(base) || !isObject(layer)) return base
  const result = { ...base }
  for (const [key, value] of Object.entries(layer))
    result[key] = Object.hasOwn(base, key) ? merged(base[key]!, value) : value
  return result
}

/** The change of a removed key (R32 of docs/protocol.md). */
const GONE = Symbol('gone')

/** Applies the change of a MessagePack patch to `state`. Throws ProtocolFault if it does not fit. */
function applyChange(state: Json, change: WireValue | undefined, key: KeyReader): Json {
  if (change === undefined) return state
  const changed = changeOf(state, change, key)
  if (changed === GONE)
    throw new ProtocolFault('a change of nil removes a key, but the state itself has none')
  return changed
}

function changeOf(value: Json | undefined, change: WireValue, key: KeyReader): Json | typeof GONE {
  if (change === null) return GONE
  if (typeof change !== 'object') return change
  if (Array.isArray(change)) {
    if (change.length === 1) return readValue(change[0]!, key)
    if (change.length === 2) return changeArray(value, change[0]!, change[1]!, key)
  }
  return changeObject(value, changesOf(change), key)
}

/** Returns a map of changes. Expands a table of changes to a map. */
function changesOf(changes: WireValue): Record<string, WireValue> {
  if (changes === null || typeof changes !== 'object')
    throw new ProtocolFault('a map or a table was expected')
  if (!Array.isArray(changes)) return changes
  const [columns, ...cells] = changes
  if (!Array.isArray(columns) || columns.length === 0 || cells.length === 0)
    throw new ProtocolFault(`a table of changes is a list of keys, and rows: ${JSON.stringify(changes)}`)
  const names = columns.map(taggedKey)
  const rows: Record<string, WireValue> = {}
  for (; cells.length > names.length; cells.splice(0, names.length + 1)) {
    const change = Object.fromEntries(names.map((name, index) => [name, cells[index + 1]!]))
    rows[taggedKey(cells[0]!)] = change
  }
  if (cells.length === 0) return rows
  const [others] = cells
  if (cells.length > 1 || others === null || typeof others !== 'object' || Array.isArray(others))
    throw new ProtocolFault(`after the rows of a table comes one map, not ${JSON.stringify(cells)}`)
  return { ...rows, ...others }
}

/** Tags a key that is an element of an array, as `tagged` does with the keys of maps. */
const taggedKey = (key: WireValue): string =>
  typeof key === 'string' ? `$${key}` : typeof key === 'number' ? `#${key}` : fault(key)

function fault(key: WireValue): never {
  throw new ProtocolFault(`a key is a string or an index, not ${JSON.stringify(key)}`)
}

function changeObject(
  value: Json | undefined,
  change: Record<string, WireValue>,
  key: KeyReader,
): Record<string, Json> {
  if (value === undefined || value === null || typeof value !== 'object' || Array.isArray(value)) {
    throw new ProtocolFault(`a map of changes for ${JSON.stringify(value)}, which is no object`)
  }
  const result = { ...value }
  for (const [tagged, entry] of Object.entries(change)) {
    const name = key(tagged)
    const before = Object.hasOwn(value, name) ? value[name] : undefined
    const after = changeOf(before, entry, key)
    if (after === GONE) {
      if (before === undefined)
        throw new ProtocolFault(`key ${JSON.stringify(name)} is removed, but does not exist`)
      delete result[name]
    } else result[name] = after
  }
  return result
}

function changeArray(value: Json | undefined, edits: WireValue, splices: WireValue, key: KeyReader): Json[] {
  if (!Array.isArray(value)) throw new ProtocolFault(`an array's change for ${JSON.stringify(value)}`)
  if (!Array.isArray(splices)) {
    throw new ProtocolFault(`an array's change is a map and a list, not ${JSON.stringify([edits, splices])}`)
  }
  const result = [...value]
  for (const [tagged, entry] of Object.entries(changesOf(edits))) {
    const index = Number(tagged.slice(1))
    if (!tagged.startsWith('#') || index >= result.length) {
      throw new ProtocolFault(`no element ${tagged} in an array of ${result.length}`)
    }
    const after = changeOf(result[index], entry, key)
    if (after === GONE) throw new ProtocolFault(`nil for element ${index}: elements go by splices`)
    result[index] = after
  }
  if (splices.length % 3 !== 0)
    throw new ProtocolFault(`${splices.length} splice elements: not groups of three`)
  for (let group = 0; group < splices.length; group += 3) {
    const [at, remove, values] = splices.slice(group, group + 3)
    if (
      typeof at !== 'number' ||
      typeof remove !== 'number' ||
      !Array.isArray(values) ||
      at + remove > result.length
    ) {
      throw new ProtocolFault(`splice ${JSON.stringify([at, remove, values])} of ${result.length} elements`)
    }
    result.splice(at, remove, ...values.map((element) => readValue(element, key)))
  }
  return result
}

const KINDS: ReadonlySet<string> = new Set(['add', 'replace', 'remove'])

/**
 * Applies a JSON Patch with `rfc6902`. `state` does not change: what the operations change is copied. The wrapper object lets the pointer `""`
 * name the whole state.
 */
export function applyOperations(state: Json, ops: readonly Operation[]): Json {
  const wrapped = { state }
  const copies = new Set<Json>()
  for (const operation of ops) {
    if (!KINDS.has(operation.op)) throw new ProtocolFault(`a patch has no operation ${operation.op}`)
    const path = `/state${operation.path}`
    copyContainers(wrapped, path, copies)
    const [failure] = applyPatch(wrapped, [{ ...operation, path }])
    if (failure) throw new ProtocolFault(`the patch cannot be applied: ${failure.message}`)
  }
  return wrapped.state
}

/** Replaces each object and array that contains the end of `path` by a copy, if it is not one of `copies`. */
function copyContainers(root: { state: Json }, path: string, copies: Set<Json>): void {
  let parent = root as Record<string, Json>
  for (const token of Pointer.fromJSON(path).tokens.slice(1, -1)) {
    const child = Object.hasOwn(parent, token) ? parent[token] : undefined
    if (typeof child !== 'object' || child === null) return
    const copy = copies.has(child) ? child : Array.isArray(child) ? [...child] : { ...child }
    copies.add(copy)
    parent[token] = copy
    parent = copy as Record<string, Json>
  }
}

/** Returns the key of the state for a tagged key (`#5`, `$name`) of one frame. */
type KeyReader = (tagged: string) => string

function reader(keys: readonly string[]): KeyReader {
  return (tagged) => {
    if (tagged.startsWith('$')) return tagged.slice(1)
    const key = keys[Number(tagged.slice(1))]
    if (key === undefined) throw new ProtocolFault(`key ${tagged} is not in the table of ${keys.length} keys`)
    return key
  }
}

/** Key table of one room (R31 of docs/protocol.md). Only applied frames change it. */
export class KeyTable {
  keys: string[] = []

  /** Replaces the table by that of a whole state. */
  replace(announced: Announcement): KeyReader {
    if (announced.from !== 0) throw new ProtocolFault(`a whole table starts at 0, not at ${announced.from}`)
    return this.keep(announced.keys)
  }

  /** Extends the table by the keys of a patch. */
  extend(announced: Announcement | null): KeyReader {
    if (announced === null) return reader(this.keys)
    if (announced.from > this.keys.length) {
      throw new ProtocolFault(`keys from ${announced.from} on, but the table has ${this.keys.length}`)
    }
    return this.keep([...this.keys.slice(0, announced.from), ...announced.keys])
  }

  private keep(keys: string[]): KeyReader {
    if (keys.length > 16_384) throw new ProtocolFault(`a key table of ${keys.length} keys; at most 16384`)
    const long = keys.find((key) => key.length > 64)
    if (long !== undefined) throw new ProtocolFault(`an interned key of ${long.length} units; at most 64`)
    this.keys = keys
    return reader(keys)
  }
}

/** Returns a value of the wire with the keys of the state. */
function readValue(value: WireValue, key: KeyReader): Json {
  if (value === null || typeof value !== 'object') return value
  if (Array.isArray(value)) return value.map((element) => readValue(element, key))
  return Object.fromEntries(
    Object.entries(value).map(([tagged, entry]) => [key(tagged), readValue(entry, key)]),
  )
}

/** `mix` of the section "Checksum" in docs/protocol.md. The code follows the page line by line. */
function mix(a: number, b: number): number {
  let h = (Math.imul(a, 0x9e3779b1) + b) >>> 0
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b) >>> 0
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35) >>> 0
  return (h ^ (h >>> 16)) >>> 0
}

function fnv(bytes: Uint8Array): number {
  let h = 0x811c9dc5
  for (const byte of bytes) h = Math.imul(h ^ byte, 0x01000193) >>> 0
  return h
}

const utf8 = new TextEncoder()

function hashString(value: string): number {
  return mix(mix(4, 0), fnv(utf8.encode(value)))
}

const halves = new DataView(new ArrayBuffer(8))

function hashNumber(value: number): number {
  halves.setFloat64(0, value === 0 ? 0 : value)
  return mix(mix(3, halves.getUint32(0)), halves.getUint32(4))
}

/** Checksums of objects and arrays. A state never changes, and the next state contains its unchanged parts. */
const known = new WeakMap<object, number>()

/** Returns the checksum of a state, an integer from 0 to 2^32 − 1. */
export function checksum(value: Json): number {
  if (value === null) return mix(1, 0)
  if (value === false) return mix(2, 0)
  if (value === true) return mix(2, 1)
  if (typeof value === 'number') return hashNumber(value)
  if (typeof value === 'string') return hashString(value)
  const sum = known.get(value) ?? containerChecksum(value)
  known.set(value, sum)
  return sum
}

function containerChecksum(value: Json[] | Record<string, Json>): number {
  let sum = 0
  if (Array.isArray(value)) {
    for (const [index, element] of value.entries()) sum = (sum + mix(index, checksum(element))) >>> 0
    return mix(5, sum)
  }
  for (const [key, entry] of Object.entries(value)) {
    sum = (sum + mix(hashString(key), checksum(entry))) >>> 0
  }
  return mix(6, sum)
}
