import { crc32 } from 'node:zlib'
import type { Json, JsonObject } from '../../shared/json.ts'
import { ERRORS, type ErrorCode } from '../../shared/protocol/error-codes.ts'
import { type DepartureReason, SUBPROTOCOLS, type Subprotocol } from '../../shared/protocol/messages.ts'
import { MsgpackReader, MsgpackWriter } from '../../shared/protocol/msgpack.ts'
import { checkJson, MAX_DEPTH } from '../../shared/sync/check.ts'
import {
  ArrayDelta,
  type Change,
  type Delta,
  ObjectDelta,
  REMOVE,
  Replace,
  type Splice,
} from '../../shared/sync/delta.ts'
import type { Outcome, RefusedRef, RepliedRef, RequestCode } from '../traffic.ts'
import type { Member } from './definition-types.ts'
import type { Grant, MemberGrants } from './layer-rules.ts'
import type { ChangedLayer, LayersChange } from './layers.ts'
import type { MembershipRecord } from './member.ts'
import type {
  Ban,
  Outcome as RequestOutcome,
  Reservation,
  Row,
  TableChanges,
  TableRows,
  TablesChanges,
} from './table.ts'
import type { RoomTask, RoomTimer } from './timers-and-tasks.ts'

/** A position in a room's history: after the update `seq` under `epoch`. */
export interface Position {
  readonly epoch: number
  readonly seq: number
}

/**
 * Epochs between `after` and `before`, without both. A member that saw an update of such an epoch saw a part of the history that was lost.
 */
export interface LostEpochs {
  readonly after: number
  readonly before: number
}

/** A room-defined event of one flush. */
export interface RoomEvent {
  readonly name: string
  readonly data: Json
  /** Member ids. Undefined: all members. */
  readonly to: readonly string[] | undefined
}

/** Progress of a member's reliable messages. */
interface Ack {
  readonly memberId: string
  /** Highest ref that was applied or refused. */
  readonly ref: number
  /** Highest ref whose outcome was forgotten. */
  readonly forgotten: number
}

type Of<O extends Outcome> = O & { readonly memberId: string }
/** Outcome of a member's message. */
export type MemberOutcome = Of<RefusedRef> | Of<RepliedRef>

/** The connection of a member, as of this update. */
interface Presence {
  readonly memberId: string
  readonly connected: boolean
  readonly sub: string | null
  readonly spectator: boolean
}

/** A change of a member's role, as of this update. */
interface RoleChange {
  readonly memberId: string
  readonly sub: string | null
  /** True: a player has become a spectator. False: a spectator has become a player. */
  readonly spectator: boolean
}

/** The `data` claim of a member's token, as of this update. */
interface RenewedData {
  readonly memberId: string
  readonly data: JsonObject | null
}

/** A member that has left. */
interface Departure {
  readonly member: Member
  readonly reason: DepartureReason
}

/**
 * The changes of one flush: what members receive, what the journal records, and what a resume replays. Immutable, and without references to
 * objects of this process.
 */
export interface Update extends Position {
  /** One more than in the update before if members can see this update, otherwise the same. */
  readonly seq: number
  /** True if members can see the update. Otherwise it has acks and records only. */
  readonly visible: boolean
  /** Checksum of the state after the update. */
  readonly checksum: number
  readonly delta: Delta | undefined
  readonly events: readonly RoomEvent[]
  readonly joined: readonly MembershipRecord[]
  /** Members whose seat another session of the player has taken over, with that session. */
  readonly replaced: readonly MembershipRecord[]
  readonly left: readonly Departure[]
  readonly presence: readonly Presence[]
  readonly roles: readonly RoleChange[]
  readonly renewed: readonly RenewedData[]
  readonly acks: readonly Ack[]
  /** Outcomes of refused and answered messages since the update before. Those of one member are in the order of their refs. */
  readonly outcomes: readonly MemberOutcome[]
  /** Present in a room with layers. `checksum` and `delta` are then those of the base, which all members see. */
  readonly layers: UpdateLayers | undefined
  /** Changes of the room's tables. */
  readonly tables: TablesChanges | undefined
}

/** Changes of a flush in a room with layers, except those of the base. */
interface UpdateLayers extends LayersChange {
  readonly grants: readonly Grant[]
  /** Only in version 9, which has no deltas of layers. There, `checksum` is that of the whole state. */
  readonly values?: readonly HiddenValue[]
}

/** Change of a hidden value, in version 9. */
export interface HiddenValue {
  /** Keys from the root of the whole state. */
  readonly path: readonly string[]
  readonly change: Change
}

/** The part of a snapshot that a room with layers adds. */
interface SnapshotLayers {
  /** Checksum of all layers. In version 9: that of the base. */
  readonly checksum: number
  /** Undefined in version 9. */
  readonly states: readonly { readonly layer: string; readonly state: Json }[] | undefined
  readonly grants: readonly MemberGrants[]
}

/** The past updates of a room, for members that missed some. */
export interface PastUpdates {
  /** Position before the first of `updates`. */
  readonly base: Position
  /** The last visible updates as journal entries, without gaps up to the position of the room. */
  readonly updates: readonly Uint8Array[]
}

/** A room as of one update, with all that a new owner needs. */
export interface RoomSnapshot extends Position, PastUpdates {
  readonly checksum: number
  /** The base. In version 9: the whole state, also of a room with layers. */
  readonly state: Json
  /** In the order of their joins. */
  readonly memberships: readonly MembershipRecord[]
  /** Present in a room with layers. */
  readonly layers: SnapshotLayers | undefined
  /** Version of the state. Journal entries do not contain it: the first write of an owner is a snapshot. */
  readonly stateVersion: number
  readonly tables: TableRows
  /** When the room was created, milliseconds since 1970. */
  readonly createdAt: number
  /** The room's code. Undefined: it has none. Journal entries do not contain it. */
  readonly code: string | undefined
  /** True if the members saw the spectators (`spectators.visible`). */
  readonly showsSpectators: boolean
  /** True if the room was made for a match, and no player has joined it. */
  readonly awaited: true | undefined
}

/** The record of a room is damaged, or no version up to this one has written it. */
export class UnreadableRecord extends Error {
  override readonly name: string = 'UnreadableRecord'
}

/** The record of a room is intact, but a newer version has written it. Nodes of that version can read it. */
export class NewerRecord extends Error {
  override readonly name = 'NewerRecord'
  /** Version of the record. */
  readonly version: number

  constructor(version: number) {
    super(`a room record has version ${version}; this node reads versions up to ${VERSION}`)
    this.version = version
  }
}

/**
 * First byte of every journal entry and snapshot, also of the entries in a snapshot. Another layout gets a larger number. In every version,
 * the CRC-32 of the rest follows, with the version as its start value. So damage is never mistaken for a newer version.
 */
const VERSION = 10
/** Oldest version that is read. It knew no spectators. Records of rooms that sleep can be years old. */
const OLDEST = 9
const LENGTH_BYTES = 4
const HEAD_BYTES = 5
const NO_HEAD = new Uint8Array(HEAD_BYTES)
/** Each level of arrays in a state takes two arrays in a recorded delta. The record has other arrays around them. */
const LEVELS = 2 * MAX_DEPTH + 8

/**
 * Writes and reads the records of rooms: a version byte, a CRC-32, then MessagePack. A snapshot has the length of its MessagePack in front
 * of it, and the last updates behind it, each as a journal entry with its length. Reading checks every field, so that nothing fails later.
 */
export class JournalFormat {
  readonly #writer = new MsgpackWriter()

  entry(update: Update): Uint8Array {
    const writer = this.#writer.begin()
    writer.raw(NO_HEAD)
    write(writer, LAYOUTS.update, update)
    return sealed(writer.take())
  }

  snapshot(snapshot: RoomSnapshot): Uint8Array {
    const writer = this.#writer.begin()
    write(writer, LAYOUTS.snapshot, snapshot)
    return sealed(joinParts([writer.take(), ...snapshot.updates]))
  }

  /** Encodes the outcomes that a room leaves when it ends. */
  outcomes(rows: readonly RequestOutcome[]): Uint8Array {
    const writer = this.#writer.begin()
    writer.raw(NO_HEAD)
    write(writer, LAYOUTS.outcomes, rows)
    return sealed(writer.take())
  }

  /** Throws UnreadableRecord or NewerRecord. */
  readOutcomes(bytes: Uint8Array): readonly RequestOutcome[] {
    return this.#read(bytes, ({ outcomes }) => read(outcomes, bytes.subarray(HEAD_BYTES)))
  }

  /** Throws UnreadableRecord or NewerRecord. */
  readEntry(bytes: Uint8Array): Update {
    return this.#read(bytes, ({ update }) => read(update, bytes.subarray(HEAD_BYTES)))
  }

  /** Throws UnreadableRecord or NewerRecord. Does not decode the updates: `readEntry` does. */
  readSnapshot(bytes: Uint8Array): RoomSnapshot {
    return this.#read(bytes, ({ snapshot }) => {
      const [whole, ...updates] = splitParts(bytes)
      return { ...read(snapshot, whole!), updates }
    })
  }

  /** Returns the entry of a decoded update in the present version. `bytes`: its entry as it was read. */
  renewed(update: Update, bytes: Uint8Array): Uint8Array {
    if (bytes[0] === VERSION) return bytes
    const since = (membership: MembershipRecord) => ({ ...membership, joinedSeq: update.seq })
    return this.entry({
      ...update,
      joined: update.joined.map(since),
      replaced: update.replaced.map(since),
      layers: update.layers && { ...update.layers, changed: [] },
    })
  }

  #read<T>(bytes: Uint8Array, unpack: (layouts: Layouts) => T): T {
    const version = requireSealed(bytes)
    if (version > VERSION) throw new NewerRecord(version)
    if (version < OLDEST)
      throw new UnreadableRecord(
        `a room record has version ${version}; this node reads versions ${OLDEST} to ${VERSION}`,
      )
    try {
      return unpack(version === VERSION ? LAYOUTS : OLDEST_LAYOUTS)
    } catch (error) {
      throw new UnreadableRecord(`a room record of ${bytes.length} bytes is not what one holds`, {
        cause: error,
      })
    }
  }
}

function read<T>(part: Part<T>, bytes: Uint8Array): T {
  const reader = new MsgpackReader(bytes, { levels: LEVELS })
  const value = reader.value()
  reader.end()
  return readPart(part, [value].values(), 'a record') as T
}

/** Writes the head in front of the content. */
function sealed(bytes: Uint8Array): Uint8Array {
  bytes[0] = VERSION
  new DataView(bytes.buffer).setUint32(1, crc32(bytes.subarray(HEAD_BYTES), VERSION))
  return bytes
}

/** Returns the version of an undamaged record. Throws UnreadableRecord. */
function requireSealed(bytes: Uint8Array): number {
  if (bytes.length < HEAD_BYTES)
    throw new UnreadableRecord(`a room record has ${bytes.length} bytes; the shortest has ${HEAD_BYTES}`)
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length)
  const version = view.getUint8(0)
  if (view.getUint32(1) !== crc32(bytes.subarray(HEAD_BYTES), version))
    throw new UnreadableRecord(
      `a room record of ${bytes.length} bytes is damaged: its CRC is not that of its content`,
    )
  return version
}

/** Joins space for the head and the parts, each with its length in front. */
function joinParts(parts: readonly Uint8Array[]): Uint8Array {
  const bytes = new Uint8Array(parts.reduce((sum, part) => sum + LENGTH_BYTES + part.length, HEAD_BYTES))
  const view = new DataView(bytes.buffer)
  let at = HEAD_BYTES
  for (const part of parts) {
    view.setUint32(at, part.length)
    bytes.set(part, at + LENGTH_BYTES)
    at += LENGTH_BYTES + part.length
  }
  return bytes
}

/** Throws a RangeError if bytes are missing. */
function splitParts(bytes: Uint8Array): Uint8Array[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length)
  const parts: Uint8Array[] = []
  for (let at = HEAD_BYTES; at < bytes.length; ) {
    const end = at + LENGTH_BYTES + view.getUint32(at)
    if (end > bytes.length) throw new RangeError(`a part ends at ${end} of ${bytes.length} bytes`)
    parts.push(bytes.slice(at + LENGTH_BYTES, end))
    at = end
  }
  return parts
}

/** Layout of a part of a record, as data. `of` only carries the part's type in memory. */
type Part<T> = Layout & { readonly of?: T }

type Layout =
  | { readonly kind: keyof typeof VALUES }
  | Tuple
  | { readonly kind: 'list'; readonly part: Layout }
  /** Nil stands for `nothing`. */
  | { readonly kind: 'optional'; readonly part: Layout; readonly nothing: null | undefined }
  /** The last field of a tuple, which earlier code did not have. It is missing if it is undefined. */
  | { readonly kind: 'added'; readonly part: Layout }
  /** A field that this version of the record does not have, and the value that it stands for. Only read. */
  | { readonly kind: 'absent'; readonly value: unknown }
  /** `failed` for objects with a `code`, else `other`. Their widths differ. */
  | { readonly kind: 'outcome'; readonly failed: Tuple; readonly other: Tuple }

/** The fields of an object in this order, as `width` MessagePack values: an array, or values of the array around it. */
interface Tuple {
  readonly kind: 'tuple' | 'inline'
  readonly fields: readonly (readonly [name: string, part: Layout])[]
  readonly width: number
  /** Name of the last field, if that may be missing. */
  readonly added: string | undefined
}

function tuple<T>(parts: { readonly [K in keyof T]-?: Part<T[K]> }): Tuple & { readonly of?: T } {
  const fields = Object.entries<Layout>(parts)
  const width = fields.reduce((sum, [, part]) => sum + widthOf(part), 0)
  const [name, last] = fields.at(-1) ?? []
  return { kind: 'tuple', fields, width, added: last?.kind === 'added' ? name : undefined }
}

const widthOf = (part: Layout): number =>
  part.kind === 'inline' ? part.width : part.kind === 'absent' ? 0 : 1

const listOf = <T>(part: Part<T>): Part<readonly T[]> => ({ kind: 'list', part })

const optional = <T, N extends null | undefined>(part: Part<T>, nothing: N): Part<T | N> => ({
  kind: 'optional',
  part,
  nothing,
})

const absent = <T>(value: T): Part<T> => ({ kind: 'absent', value })

const added = <T>(part: Part<T>): Part<T | undefined> => ({ kind: 'added', part })

function write(writer: MsgpackWriter, layout: Layout, value: unknown): void {
  switch (layout.kind) {
    case 'count':
      writer.number(value as number)
      break
    case 'text':
      writer.string(value as string)
      break
    case 'tuple':
    case 'inline':
      writeFields(writer, layout, value as { readonly [name: string]: unknown })
      break
    case 'added':
      write(writer, layout.part, value)
      break
    case 'list':
      writer.array((value as readonly unknown[]).length)
      for (const element of value as readonly unknown[]) write(writer, layout.part, element)
      break
    case 'optional':
      if (value === layout.nothing) writer.nil()
      else write(writer, layout.part, value)
      break
    case 'outcome':
      write(writer, 'code' in (value as object) ? layout.failed : layout.other, value)
      break
    case 'change':
    case 'delta':
      writeChange(writer, value as Change)
      break
    default:
      writer.value(value as Json)
  }
}

function writeFields(
  writer: MsgpackWriter,
  { added, fields, kind, width }: Tuple,
  values: { readonly [name: string]: unknown },
): void {
  const isShort = added !== undefined && values[added] === undefined
  if (kind === 'tuple') writer.array(isShort ? width - 1 : width)
  for (const [name, part] of fields) if (!isShort || name !== added) write(writer, part, values[name])
}

/**
 * Reads a part from the next of `values`. `what`: name of the part, for errors. Throws a TypeError for values that `write` does not write.
 */
function readPart(layout: Layout, values: Iterator<unknown>, what: string): unknown {
  if (layout.kind === 'inline') return readFields(layout, values)
  if (layout.kind === 'absent') return layout.value
  const found: unknown = values.next().value
  switch (layout.kind) {
    case 'tuple':
      return readFields(layout, list(found, what).values())
    case 'list':
      return list(found, what).map((element) => readPart(layout.part, [element].values(), what))
    case 'optional':
      return found === null ? layout.nothing : readPart(layout.part, [found].values(), what)
    case 'added':
      return found === undefined ? undefined : readPart(layout.part, [found].values(), what)
    case 'outcome': {
      const elements = list(found, what)
      const { failed, other } = layout
      return readFields(elements.length === failed.width ? failed : other, elements.values())
    }
    default:
      return VALUES[layout.kind](found, what)
  }
}

function readFields({ fields }: Tuple, values: Iterator<unknown>): unknown {
  const object: { [name: string]: unknown } = {}
  for (const [name, part] of fields) object[name] = readPart(part, values, name)
  return object
}

const unlike = (what: string, right: string, found: unknown): TypeError =>
  new TypeError(`${what} is ${typeof found}; it must be ${right}`)

function list(found: unknown, what: string): readonly unknown[] {
  if (!Array.isArray(found)) throw unlike(what, 'an array', found)
  return found
}

function text(found: unknown, what: string): string {
  if (typeof found !== 'string') throw unlike(what, 'a string', found)
  return found
}

function count(found: unknown, what: string): number {
  if (typeof found === 'number' && Number.isSafeInteger(found) && found >= 0) return found
  throw unlike(what, 'a whole number, 0 or more', found)
}

function flag(found: unknown, what: string): boolean {
  if (typeof found !== 'boolean') throw unlike(what, 'true or false', found)
  return found
}

function subprotocol(found: unknown, what: string): Subprotocol {
  const known = SUBPROTOCOLS.find((name) => name === found)
  if (known === undefined) throw unlike(what, `one of ${SUBPROTOCOLS.join(', ')}`, found)
  return known
}

/** A code that only a newer version knows is as final as this one. */
function errorCode(found: unknown, what: string): ErrorCode {
  const code = text(found, what)
  return Object.hasOwn(ERRORS, code) ? (code as ErrorCode) : 'room_logic_failed'
}

function json(found: unknown): Json {
  checkJson(found)
  return found
}

function jsonObject(found: unknown, what: string): JsonObject {
  if (typeof found !== 'object' || found === null || Array.isArray(found))
    throw unlike(what, 'an object', found)
  return json(found) as JsonObject
}

/** Checks of single values. */
const VALUES = {
  text,
  count,
  flag,
  json,
  object: jsonObject,
  error_code: errorCode,
  request_code: (found: unknown, what: string) => text(found, what) as RequestCode,
  /** A reason that only a newer version knows is passed on to clients. */
  departure_reason: (found: unknown, what: string) => text(found, what) as DepartureReason,
  subprotocol,
  change: changeOf,
  delta: deltaOf,
}

const TEXT: Part<string> = { kind: 'text' }
const COUNT: Part<number> = { kind: 'count' }
const FLAG: Part<boolean> = { kind: 'flag' }
const JSON_VALUE: Part<Json> = { kind: 'json' }
const DATA = optional<JsonObject, null>({ kind: 'object' }, null)
const POSITION = { epoch: COUNT, seq: COUNT }
const REFUSED = { ref: COUNT, code: { kind: 'error_code' } as Part<ErrorCode>, message: TEXT }
const REPLIED = { ref: COUNT, reply: JSON_VALUE }
const EVENT = tuple<RoomEvent>({ name: TEXT, data: JSON_VALUE, to: optional(listOf(TEXT), undefined) })
const ACK = tuple<Ack>({ memberId: TEXT, ref: COUNT, forgotten: COUNT })
const GRANT = tuple<Grant>({ memberId: TEXT, layer: TEXT, shown: FLAG })
const CHANGE: Part<Change> = { kind: 'change' }
const UPDATE_LAYERS = tuple<Omit<UpdateLayers, 'values'>>({
  checksum: COUNT,
  changed: listOf(tuple<ChangedLayer>({ layer: TEXT, change: CHANGE, checksum: COUNT })),
  unseen: optional(CHANGE, undefined),
  grants: listOf(GRANT),
})
const OLDEST_UPDATE_LAYERS = tuple<UpdateLayers & { sum: number }>({
  checksum: COUNT,
  sum: COUNT,
  values: listOf(
    tuple<HiddenValue & { layer: string | null; at: number }>({
      layer: optional(TEXT, null),
      path: listOf(TEXT),
      change: CHANGE,
      at: COUNT,
    }),
  ),
  changed: listOf(tuple({ layer: TEXT, checksum: COUNT, created: FLAG })) as Part<[]>,
  unseen: absent(undefined),
  grants: listOf(GRANT),
})
const GRANTS = listOf(tuple<MemberGrants>({ memberId: TEXT, layers: listOf(TEXT) }))
const LAYER_STATES = listOf(tuple({ layer: TEXT, state: JSON_VALUE }))
const SNAPSHOT_LAYERS = tuple<SnapshotLayers>({ checksum: COUNT, states: LAYER_STATES, grants: GRANTS })
const OLDEST_SNAPSHOT_LAYERS = tuple<SnapshotLayers & { sum: number }>({
  checksum: COUNT,
  sum: COUNT,
  states: absent(undefined),
  grants: GRANTS,
})
/** The rows of each table. */
const ROWS: { readonly [Name in keyof TableRows]: Part<TableRows[Name][number]> } = {
  timers: tuple<RoomTimer>({ id: TEXT, due: COUNT, name: TEXT, data: JSON_VALUE }),
  tasks: tuple<Omit<RoomTask, 'work'>>({
    id: TEXT,
    name: TEXT,
    data: JSON_VALUE,
    due: optional(COUNT, undefined),
  }),
  bans: tuple<Ban>({ id: TEXT, reason: added(TEXT) }),
  reservations: tuple<Reservation>({ id: TEXT, due: COUNT, admitted: added(TEXT) }),
  outcomes: tuple<RequestOutcome>({
    id: TEXT,
    hash: TEXT,
    due: COUNT,
    answer: {
      kind: 'outcome',
      failed: tuple({ code: { kind: 'request_code' }, message: TEXT }),
      other: tuple({ reply: JSON_VALUE, epoch: COUNT, seq: COUNT }),
    },
  }),
}
/** Builds a part with one field for each table, from the table's rows. */
const tables = <T>(partOf: (rows: Part<readonly Row[]>) => Part<unknown>): Part<T> =>
  tuple(
    Object.fromEntries(Object.entries<Part<Row>>(ROWS).map(([name, row]) => [name, partOf(listOf(row))])),
  ) as Part<T>
const TABLE_ROWS = tables<TableRows>((rows) => rows)
const TABLES_CHANGES = tables<TablesChanges>((set) =>
  optional(tuple<TableChanges<Row>>({ set, removed: listOf(TEXT) }), undefined),
)
/** Layouts of all records of one version. */
interface Layouts {
  readonly update: Part<Update>
  readonly snapshot: Part<Omit<RoomSnapshot, 'updates'>>
  readonly outcomes: Part<readonly RequestOutcome[]>
}

function layoutsOf(isOldest: boolean): Layouts {
  /** Returns the part of a field that `OLDEST` does not have, and that has the value `before` there. */
  const since = <T>(part: Part<T>, before: T): Part<T> => (isOldest ? absent(before) : part)
  const spectator = since(FLAG, false)
  const member: Part<Member> = {
    ...tuple<Member>({ id: TEXT, sub: optional(TEXT, null), connected: FLAG, data: DATA, spectator }),
    kind: 'inline',
  }
  const membership = tuple<MembershipRecord>({
    member,
    sessionId: TEXT,
    subscriptionId: optional(TEXT, undefined),
    joinRequest: COUNT,
    edge: TEXT,
    codec: { kind: 'subprotocol' },
    lastRef: COUNT,
    outcomes: listOf<Outcome>({ kind: 'outcome', failed: tuple(REFUSED), other: tuple(REPLIED) }),
    forgotten: COUNT,
    joinedSeq: since<number | undefined>(COUNT, undefined),
    options: since(optional(JSON_VALUE, undefined), undefined),
  })
  const sub = optional(TEXT, null)
  const update = tuple<Update>({
    ...POSITION,
    visible: FLAG,
    checksum: COUNT,
    delta: optional<Delta, undefined>({ kind: 'delta' }, undefined),
    events: listOf(EVENT),
    joined: listOf(membership),
    replaced: listOf(membership),
    left: listOf(tuple<Departure>({ member, reason: { kind: 'departure_reason' } })),
    presence: listOf(tuple<Presence>({ memberId: TEXT, connected: FLAG, sub, spectator })),
    roles: since<Update['roles']>(listOf(tuple<RoleChange>({ memberId: TEXT, sub, spectator })), []),
    renewed: listOf(tuple<RenewedData>({ memberId: TEXT, data: DATA })),
    acks: listOf(ACK),
    outcomes: listOf<MemberOutcome>({
      kind: 'outcome',
      failed: tuple<Of<RefusedRef>>({ memberId: TEXT, ...REFUSED }),
      other: tuple<Of<RepliedRef>>({ memberId: TEXT, ...REPLIED }),
    }),
    layers: optional<UpdateLayers, undefined>(isOldest ? OLDEST_UPDATE_LAYERS : UPDATE_LAYERS, undefined),
    tables: optional(TABLES_CHANGES, undefined),
  })
  const snapshot = tuple<Omit<RoomSnapshot, 'updates'>>({
    ...POSITION,
    checksum: COUNT,
    state: JSON_VALUE,
    memberships: listOf(membership),
    base: tuple<Position>(POSITION),
    layers: optional<SnapshotLayers, undefined>(
      isOldest ? OLDEST_SNAPSHOT_LAYERS : SNAPSHOT_LAYERS,
      undefined,
    ),
    stateVersion: COUNT,
    tables: TABLE_ROWS,
    createdAt: COUNT,
    code: optional(TEXT, undefined),
    showsSpectators: spectator,
    awaited: added<true>({ kind: 'flag' }),
  })
  return { update, snapshot, outcomes: listOf(ROWS.outcomes) }
}

const LAYOUTS = layoutsOf(false)
const OLDEST_LAYOUTS = layoutsOf(true)

/**
 * Writes a delta: 0 removes; [1, value] replaces; [2, value] adds; [3, key, change, …] changes an object; [4, [index, change, …], [at,
 * remove, insert, …]] changes an array.
 */
function writeChange(writer: MsgpackWriter, change: Change): void {
  if (change === REMOVE) {
    writer.number(0)
  } else if (change instanceof Replace) {
    writer.array(2)
    writer.number(change.added ? 2 : 1)
    writer.value(change.value)
  } else if (change instanceof ObjectDelta) {
    writer.array(1 + 2 * change.keys.length)
    writer.number(3)
    for (const [i, key] of change.keys.entries()) {
      writer.string(key)
      writeChange(writer, change.changes[i]!)
    }
  } else {
    writer.array(3)
    writer.number(4)
    writer.array(2 * change.keys.length)
    for (const [i, index] of change.keys.entries()) {
      writer.number(index)
      writeChange(writer, change.changes[i]!)
    }
    writer.array(3 * change.splices.length)
    for (const { at, remove, insert } of change.splices) {
      writer.number(at)
      writer.number(remove)
      writer.value(insert)
    }
  }
}

/** Returns a recorded delta. Throws if `writeChange` does not write such a record. */
function deltaOf(record: unknown): Delta {
  const change = changeOf(record)
  if (change === REMOVE) throw new Error('a recorded delta removes what cannot be removed')
  return change
}

function changeOf(record: unknown): Change {
  if (record === 0) return REMOVE
  const [kind, ...rest] = list(record, 'a part of a delta')
  if (kind === 1 || kind === 2) return new Replace(json(rest[0]), kind === 2)
  if (kind === 3) {
    const keys: string[] = []
    const changes: Change[] = []
    for (let i = 0; i < rest.length; i += 2) {
      const key = rest[i]
      if (typeof key !== 'string') throw new Error(`a recorded delta changes a key that is a ${typeof key}`)
      keys.push(key)
      changes.push(changeOf(rest[i + 1]))
    }
    return new ObjectDelta(keys, changes)
  }
  if (kind === 4) return arrayDeltaOf(list(rest[0], 'a part of a delta'), list(rest[1], 'a part of a delta'))
  throw new Error(`a recorded delta is of the unknown kind ${String(kind)}`)
}

function arrayDeltaOf(recorded: readonly unknown[], spliced: readonly unknown[]): ArrayDelta {
  const indexes: number[] = []
  const changes: Delta[] = []
  for (let i = 0; i < recorded.length; i += 2) {
    indexes.push(count(recorded[i], 'an index or a number of elements'))
    changes.push(deltaOf(recorded[i + 1]))
  }
  const splices: Splice[] = []
  for (let i = 0; i < spliced.length; i += 3)
    splices.push({
      at: count(spliced[i], 'an index or a number of elements'),
      remove: count(spliced[i + 1], 'an index or a number of elements'),
      insert: list(spliced[i + 2], 'a part of a delta').map(json),
    })
  return new ArrayDelta(indexes, changes, splices)
}
