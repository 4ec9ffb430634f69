import { crc32 } from 'node:zlib'
import type { Json } from '../../shared/json.ts'
import { ERRORS, type ErrorCode } from '../../shared/protocol/error-codes.ts'
import { type LeaveReason, SUBPROTOCOLS, type Subprotocol } from '../../shared/protocol/messages.ts'
import { MsgpackReader, MsgpackWriter } from '../../shared/protocol/msgpack.ts'
import type { Claim } from '../../shared/store/port.ts'
import { apply } from '../../shared/sync/apply.ts'
import { checkJson, MAX_DEPTH } from '../../shared/sync/check.ts'
import { Checksum } from '../../shared/sync/checksum.ts'
import {
  ArrayDelta,
  type Change,
  type Delta,
  ObjectDelta,
  REMOVE,
  Replace,
  type Splice,
} from '../../shared/sync/delta.ts'
import type { RefusedRef } from '../traffic.ts'
import type { Member } from './definition.ts'
import type { SeatRecord } from './memberships.ts'
import type { Departure, Position, RoomEvent, Update } from './update.ts'

/** A room at one update, as a new owner needs it. */
export interface RoomSnapshot {
  readonly epoch: number
  readonly seq: number
  readonly checksum: number
  readonly state: Json
  /** In the order they joined. */
  readonly seats: readonly SeatRecord[]
  /** Where the room stood before the first of `updates`. */
  readonly base: Position
  /** The last visible updates as journal entries, gap-free up to `seq`, for members who missed some. */
  readonly updates: readonly Uint8Array[]
}

/** What the store holds of a room is damaged, or is not what any version up to this one writes. */
export class UnreadableRecord extends Error {
  override readonly name: string = 'UnreadableRecord'
}

/** What the store holds of a room is sound, and was written by a newer version, whose nodes can read it. */
export class NewerRecord extends Error {
  override readonly name = 'NewerRecord'
  /** The one that this node does not know. */
  readonly version: number

  constructor(version: number) {
    super(`a room record has version ${version}; this node reads versions up to ${VERSION}`)
    this.version = version
  }
}

/**
 * The first byte of every journal entry and snapshot, those entries that a snapshot has in it included; another layout gets a larger
 * number. In every version the CRC-32 of all that follows comes next, begun with the version, so that damage is never taken for a version
 * to come.
 */
const VERSION = 3
const LENGTH_BYTES = 4
const HEAD_BYTES = 5
/** A recorded delta has two arrays for each level of arrays in a state, and others around them. */
const LEVELS = 2 * MAX_DEPTH + 8

type PackedSeat = [
  member_id: string,
  sub: string | null,
  session_id: string,
  join_ref: number,
  edge: string,
  codec: Subprotocol,
  last_ref: number,
  refused: PackedRefusal[],
  forgotten: number,
]
type PackedRefusal = [ref: number, code: ErrorCode, message: string]
type PackedUpdate = [
  epoch: number,
  seq: number,
  visible: boolean,
  checksum: number,
  delta: DeltaRecord | null,
  events: [name: string, data: Json, to: readonly string[] | null][],
  joined: PackedSeat[],
  left: [member_id: string, sub: string | null, reason: LeaveReason][],
  acks: [member_id: string, ref: number, forgotten: number][],
  refused: [member_id: string, ...refusal: PackedRefusal][],
]
type PackedSnapshot = [
  epoch: number,
  seq: number,
  checksum: number,
  state: Json,
  seats: PackedSeat[],
  base: [epoch: number, seq: number],
]

/**
 * Writes and reads what the store keeps of rooms: one version byte, a CRC-32, then MessagePack. Behind that a snapshot has the last updates,
 * each as its journal entry with its length before it; the length of the MessagePack itself is behind the CRC. What is read is checked
 * to the last field, so that nothing fails later.
 */
export class JournalFormat {
  readonly #writer = new MsgpackWriter()

  entry(update: Update): Uint8Array {
    const body = this.#write(packUpdate(update))
    const bytes = new Uint8Array(HEAD_BYTES + body.length)
    bytes.set(body, HEAD_BYTES)
    return sealed(bytes)
  }

  snapshot(snapshot: RoomSnapshot): Uint8Array {
    const { epoch, seq, checksum, state, seats, base, updates } = snapshot
    const packed: PackedSnapshot = [epoch, seq, checksum, state, seats.map(packSeat), [base.epoch, base.seq]]
    return sealed(joinParts([this.#write(packed), ...updates]))
  }

  /** Throws UnreadableRecord or NewerRecord. */
  readEntry(bytes: Uint8Array): Update {
    return this.#read(bytes, () => unpackUpdate(readValue(bytes.subarray(HEAD_BYTES))))
  }

  /** Throws UnreadableRecord or NewerRecord. The updates in it are left as they are, for `readEntry`. */
  readSnapshot(bytes: Uint8Array): RoomSnapshot {
    return this.#read(bytes, () => {
      const [whole, ...updates] = splitParts(bytes)
      return { ...unpackSnapshot(readValue(whole!)), updates }
    })
  }

  #write(packed: PackedUpdate | PackedSnapshot): Uint8Array {
    this.#writer.begin().value(packed as Json)
    return this.#writer.take()
  }

  #read<T>(bytes: Uint8Array, unpack: () => T): T {
    const version = requireSealed(bytes)
    if (version > VERSION) throw new NewerRecord(version)
    if (version < VERSION)
      throw new UnreadableRecord(`a room record has version ${version}; this node reads version ${VERSION}`)
    try {
      return unpack()
    } catch (error) {
      throw new UnreadableRecord(`a room record of ${bytes.length} bytes is not what one holds`, {
        cause: error,
      })
    }
  }
}

function readValue(bytes: Uint8Array): Json {
  const reader = new MsgpackReader(bytes, { levels: LEVELS })
  const value = reader.value()
  reader.end()
  return value
}

/** Writes the head before what is behind it. */
function sealed(bytes: Uint8Array): Uint8Array {
  bytes[0] = VERSION
  new DataView(bytes.buffer).setUint32(1, crc32(bytes.subarray(HEAD_BYTES), VERSION))
  return bytes
}

/** The version of a record that is as it was written; throws UnreadableRecord when it is not. */
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

/** Room for the head, then each part with its length before it. */
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

/** Throws a RangeError where bytes are missing. */
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

function packUpdate(update: Update): PackedUpdate {
  const { epoch, seq, visible, checksum, delta, events, joined, left, acks, refused } = update
  return [
    epoch,
    seq,
    visible,
    checksum,
    delta ? recordOf(delta) : null,
    events.map(({ name, data, to }) => [name, data, to ?? null]),
    joined.map(packSeat),
    left.map(({ member, reason }) => [member.id, member.sub, reason]),
    acks.map(({ memberId, ref, forgotten }) => [memberId, ref, forgotten]),
    refused.map((refusal) => [refusal.memberId, ...packRefusal(refusal)]),
  ]
}

function unpackSnapshot(packed: unknown): Omit<RoomSnapshot, 'updates'> {
  const [epoch, seq, checksum, state, seats, base] = list(packed, 'a snapshot')
  const [baseEpoch, baseSeq] = list(base, 'the base of the history')
  return {
    epoch: count(epoch, 'an epoch'),
    seq: count(seq, 'a seq'),
    checksum: count(checksum, 'a checksum'),
    state: json(state),
    seats: list(seats, 'the seats').map(unpackSeat),
    base: { epoch: count(baseEpoch, 'an epoch'), seq: count(baseSeq, 'a seq') },
  }
}

function unpackUpdate(packed: unknown): Update {
  const [epoch, seq, visible, checksum, delta, events, joined, left, acks, refused] = list(packed, 'an entry')
  if (typeof visible !== 'boolean') throw unlike('visible', 'true or false', visible)
  return {
    epoch: count(epoch, 'an epoch'),
    seq: count(seq, 'a seq'),
    visible,
    checksum: count(checksum, 'a checksum'),
    delta: delta === null ? undefined : deltaOf(delta),
    events: list(events, 'the events').map(unpackEvent),
    joined: list(joined, 'the joins').map(unpackSeat),
    left: list(left, 'the departures').map(unpackDeparture),
    acks: list(acks, 'the acks').map((ack) => {
      const [memberId, ref, forgotten] = list(ack, 'an ack')
      return {
        memberId: text(memberId, 'a member id'),
        ref: count(ref, 'a ref'),
        forgotten: count(forgotten, 'a ref'),
      }
    }),
    refused: list(refused, 'the refusals').map((refusal) => {
      const [memberId, ...rest] = list(refusal, 'a refusal')
      return { memberId: text(memberId, 'a member id'), ...unpackRefusal(rest) }
    }),
  }
}

function unpackEvent(packed: unknown): RoomEvent {
  const [name, data, to] = list(packed, 'an event')
  const members = to === null ? undefined : list(to, 'the recipients of an event')
  return {
    name: text(name, 'the name of an event'),
    data: json(data),
    to: members?.map((memberId) => text(memberId, 'a member id')),
  }
}

function unpackDeparture(packed: unknown): Departure {
  const [memberId, sub, reason] = list(packed, 'a departure')
  // One that a newer version knows is for clients to understand.
  return {
    member: unpackMember(memberId, sub),
    reason: text(reason, 'the reason of a departure') as LeaveReason,
  }
}

const packRefusal = ({ ref, code, message }: RefusedRef): PackedRefusal => [ref, code, message]
function unpackRefusal(packed: unknown): RefusedRef {
  const [ref, code, message] = list(packed, 'a refusal')
  const known = text(code, 'the code of a refusal')
  return {
    ref: count(ref, 'a ref'),
    // One that a newer version knows is as final as this.
    code: Object.hasOwn(ERRORS, known) ? (known as ErrorCode) : 'room_logic_failed',
    message: text(message, 'the text of a refusal'),
  }
}

const packSeat = ({
  member,
  sessionId,
  joinRef,
  edge,
  codec,
  lastRef,
  refused,
  forgotten,
}: SeatRecord): PackedSeat => [
  member.id,
  member.sub,
  sessionId,
  joinRef,
  edge,
  codec,
  lastRef,
  refused.map(packRefusal),
  forgotten,
]

function unpackSeat(packed: unknown): SeatRecord {
  const fields = list(packed, 'a seat')
  const [memberId, sub, sessionId, joinRef, edge, codec, lastRef, refused, forgotten] = fields
  return {
    member: unpackMember(memberId, sub),
    sessionId: text(sessionId, 'a session id'),
    joinRef: count(joinRef, 'a ref'),
    edge: text(edge, 'a node id'),
    codec: subprotocol(codec),
    lastRef: count(lastRef, 'a ref'),
    refused: list(refused, 'the refusals of a seat').map(unpackRefusal),
    forgotten: count(forgotten, 'a ref'),
  }
}

const unpackMember = (memberId: unknown, sub: unknown): Member =>
  Object.freeze({ id: text(memberId, 'a member id'), sub: sub === null ? null : text(sub, 'a sub') })

const unlike = (what: string, right: string, found: unknown): TypeError =>
  new TypeError(`${what} is ${typeof found}; it must be ${right}`)

function list(value: unknown, what: string): readonly unknown[] {
  if (!Array.isArray(value)) throw unlike(what, 'an array', value)
  return value
}

function text(value: unknown, what: string): string {
  if (typeof value !== 'string') throw unlike(what, 'a string', value)
  return value
}

function count(value: unknown, what: string): number {
  if (typeof value === 'number' && Number.isSafeInteger(value) && value >= 0) return value
  throw unlike(what, 'a whole number, 0 or more', value)
}

function subprotocol(value: unknown): Subprotocol {
  const known = SUBPROTOCOLS.find((name) => name === value)
  if (known === undefined) throw unlike('a subprotocol', `one of ${SUBPROTOCOLS.join(', ')}`, value)
  return known
}

function json(value: unknown): Json {
  checkJson(undefined, value)
  return value
}

/**
 * A delta as plain data, for the journal: 0 removes; [1, value] replaces; [2, value] adds; [3, key, change, …] changes an object;
 * [4, [index, change, …], [at, remove, insert, …]] changes an array.
 */
export type DeltaRecord = 0 | readonly unknown[]

export function recordOf(change: Change): DeltaRecord {
  if (change === REMOVE) return 0
  if (change instanceof Replace) return [change.added ? 2 : 1, change.value]
  if (change instanceof ObjectDelta) {
    const record: unknown[] = [3]
    for (const [key, below] of change.changes) record.push(key, recordOf(below))
    return record
  }
  const changes: unknown[] = []
  for (const [index, below] of change.changes) changes.push(index, recordOf(below))
  return [4, changes, change.splices.flatMap(({ at, remove, insert }) => [at, remove, insert])]
}

/** The delta of a record. Throws on anything that `recordOf` does not make. */
export function deltaOf(record: unknown): Delta {
  const change = changeOf(record)
  if (change === REMOVE) throw new Error('a recorded delta removes what cannot be removed')
  return change
}

function changeOf(record: unknown): Change {
  if (record === 0) return REMOVE
  const [kind, ...rest] = list(record, 'a part of a delta')
  if (kind === 1 || kind === 2) return new Replace(json(rest[0]), kind === 2)
  if (kind === 3) {
    const changes = new Map<string, Change>()
    for (let i = 0; i < rest.length; i += 2) {
      const key = rest[i]
      if (typeof key !== 'string') throw new Error(`a recorded delta changes a key that is a ${typeof key}`)
      changes.set(key, changeOf(rest[i + 1]))
    }
    return new ObjectDelta(changes)
  }
  if (kind === 4) return arrayDeltaOf(list(rest[0], 'a part of a delta'), list(rest[1], 'a part of a delta'))
  throw new Error(`a recorded delta is of the unknown kind ${String(kind)}`)
}

function arrayDeltaOf(recorded: readonly unknown[], spliced: readonly unknown[]): ArrayDelta {
  const changes = new Map<number, Delta>()
  for (let i = 0; i < recorded.length; i += 2)
    changes.set(count(recorded[i], 'an index or a number of elements'), deltaOf(recorded[i + 1]))
  const splices: Splice[] = []
  for (let i = 0; i < spliced.length; i += 3)
    splices.push({
      at: count(spliced[i], 'an index or a number of elements'),
      remove: count(spliced[i + 1], 'an index or a number of elements'),
      insert: list(spliced[i + 2], 'a part of a delta').map(json),
    })
  return new ArrayDelta(changes, splices)
}

/** A room as its record has it, read to the end: nothing of it is decoded for the first time later. */
export interface RestoredRoom extends RoomSnapshot {
  /** What `updates` say. */
  readonly history: readonly Update[]
}

/**
 * The room that a claim found: its last snapshot and everything committed since. Undefined for a room that never was, or has ended.
 * Throws UnreadableRecord when the record is damaged, or is not what its checksum says, and NewerRecord when it can be read elsewhere.
 */
export function restore(claim: Claim, format: JournalFormat): RestoredRoom | undefined {
  try {
    return readRecord(claim, format)
  } catch (error) {
    if (error instanceof UnreadableRecord || error instanceof NewerRecord) throw error
    throw new UnreadableRecord('the parts of a room record do not fit each other', { cause: error })
  }
}

function readRecord({ snapshot, journal }: Claim, format: JournalFormat): RestoredRoom | undefined {
  // An empty one stands for a room that was handed over and is kept nowhere since.
  if (!snapshot?.length) {
    if (journal.length === 0) return undefined
    throw new UnreadableRecord(`a room record has ${journal.length} journal entries but no snapshot`)
  }
  const whole = format.readSnapshot(snapshot)
  const updates = [...whole.updates]
  const history = updates.map((bytes) => format.readEntry(bytes))
  requireGapFree(whole, history)
  const seats = new Map(whole.seats.map((seat) => [seat.member.id, open(seat)]))
  let state: Json = whole.state
  let { epoch, seq, checksum } = whole
  for (const bytes of journal) {
    const update = format.readEntry(bytes)
    if (update.seq !== seq + (update.visible ? 1 : 0))
      throw new UnreadableRecord(`a journal entry has seq ${update.seq} behind seq ${seq}`)
    if (update.delta) state = apply(state, update.delta)
    seatMembers(seats, update)
    if (update.visible) {
      updates.push(bytes)
      history.push(update)
    }
    ;({ epoch, seq, checksum } = update)
  }
  const found = new Checksum().of(state)
  if (found !== checksum)
    throw new UnreadableRecord(`the restored state has checksum ${found}, but ${checksum} was committed`)
  return { epoch, seq, checksum, state, seats: [...seats.values()], base: whole.base, updates, history }
}

function requireGapFree({ base, seq }: RoomSnapshot, history: readonly Update[]): void {
  let last = base.seq
  for (const update of history) {
    if (!update.visible || update.seq !== last + 1)
      throw new UnreadableRecord(`the history of a snapshot has seq ${update.seq} behind seq ${last}`)
    last = update.seq
  }
  if (last !== seq)
    throw new UnreadableRecord(`the history of a snapshot ends at seq ${last}; the snapshot is at ${seq}`)
}

function seatMembers(seats: Map<string, RestoredSeat>, { joined, left, acks, refused }: Update): void {
  for (const { member } of left) seats.delete(member.id)
  for (const seat of joined) seats.set(seat.member.id, open(seat))
  for (const { memberId, ref, forgotten } of acks) {
    const seat = seats.get(memberId)
    if (seat) seats.set(memberId, { ...seat, lastRef: ref, forgotten })
  }
  for (const { memberId, ...refusal } of refused) {
    const seat = seats.get(memberId)
    // A member who joined with this very update has it already.
    if (seat && refusal.ref > (seat.refused.at(-1)?.ref ?? 0)) seat.refused.push(refusal)
  }
}

/** A seat while its journal is read. */
interface RestoredSeat extends SeatRecord {
  readonly refused: RefusedRef[]
}

const open = (seat: SeatRecord): RestoredSeat => ({ ...seat, refused: [...seat.refused] })
