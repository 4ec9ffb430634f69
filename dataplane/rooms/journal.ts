import { Unpackr } from 'msgpackr'
import type { Json } from '../../shared/json.ts'
import type { ErrorCode } from '../../shared/protocol/error-codes.ts'
import type { LeaveReason, Subprotocol } from '../../shared/protocol/messages.ts'
import { MsgpackWriter } from '../../shared/protocol/msgpack-writer.ts'
import type { RefusedRef } from '../traffic.ts'
import { type DeltaRecord, deltaOf, recordOf } from './delta-record.ts'
import type { Position } from './ring.ts'
import type { SeatRecord } from './seat.ts'
import type { Update } from './update.ts'

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

/** What the store holds of a room cannot be read. */
export class UnreadableRecord extends Error {
  override readonly name = 'UnreadableRecord'
}

/** The first byte of every journal entry and snapshot; another layout gets another number. */
const VERSION = 2
const LENGTH_BYTES = 4

type PackedSeat = [
  member_id: string,
  sub: string | null,
  session_id: string,
  join_ref: number,
  edge: string,
  codec: Subprotocol,
  last_ref: number,
  refused: PackedRefusal[],
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
  acks: (readonly [member_id: string, ref: number])[],
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
 * Writes and reads what the store keeps of rooms: one version byte, then MessagePack. Behind that a snapshot has the last updates, each
 * as its journal entry with its length before it; the length of the MessagePack itself is behind the version byte.
 */
export class JournalFormat {
  // Not msgpackr's: that one takes an object with the keys `constructor` and `toJSON`, which clients may choose, for a class instance.
  readonly #writer = new MsgpackWriter()
  readonly #reader = new Unpackr({ useRecords: false, moreTypes: false })

  entry(update: Update): Uint8Array {
    const body = this.#write(packUpdate(update))
    const bytes = new Uint8Array(1 + body.length)
    bytes[0] = VERSION
    bytes.set(body, 1)
    return bytes
  }

  snapshot(snapshot: RoomSnapshot): Uint8Array {
    const { epoch, seq, checksum, state, seats, base, updates } = snapshot
    const packed: PackedSnapshot = [epoch, seq, checksum, state, seats.map(packSeat), [base.epoch, base.seq]]
    return joinParts([this.#write(packed), ...updates])
  }

  /** Throws UnreadableRecord. */
  readEntry(bytes: Uint8Array): Update {
    return this.#read(bytes, () => unpackUpdate(this.#reader.unpack(bytes.subarray(1)) as PackedUpdate))
  }

  /** Throws UnreadableRecord. */
  readSnapshot(bytes: Uint8Array): RoomSnapshot {
    return this.#read(bytes, () => {
      const [whole, ...updates] = splitParts(bytes)
      const [epoch, seq, checksum, state, seats, base] = this.#reader.unpack(whole!) as PackedSnapshot
      return {
        epoch,
        seq,
        checksum,
        state,
        seats: seats.map(unpackSeat),
        base: { epoch: base[0], seq: base[1] },
        updates,
      }
    })
  }

  #write(packed: PackedUpdate | PackedSnapshot): Uint8Array {
    this.#writer.begin().value(packed as Json)
    return this.#writer.take()
  }

  #read<T>(bytes: Uint8Array, unpack: () => T): T {
    if (bytes[0] !== VERSION)
      throw new UnreadableRecord(`a room record has version ${bytes[0]}; this node reads version ${VERSION}`)
    try {
      return unpack()
    } catch (error) {
      throw new UnreadableRecord(`a room record of ${bytes.length} bytes is damaged`, { cause: error })
    }
  }
}

/** The version byte, then each part with its length before it. */
function joinParts(parts: readonly Uint8Array[]): Uint8Array {
  const bytes = new Uint8Array(parts.reduce((sum, part) => sum + LENGTH_BYTES + part.length, 1))
  const view = new DataView(bytes.buffer)
  bytes[0] = VERSION
  let at = 1
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
  for (let at = 1; at < bytes.length; ) {
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
    left.map(({ member, reason }) => [member.member_id, member.sub, reason]),
    [...acks],
    refused.map((refusal) => [refusal.member_id, ...packRefusal(refusal)]),
  ]
}

function unpackUpdate(packed: PackedUpdate): Update {
  const [epoch, seq, visible, checksum, delta, events, joined, left, acks, refused] = packed
  return {
    epoch,
    seq,
    visible,
    checksum,
    delta: delta === null ? undefined : deltaOf(delta),
    events: events.map(([name, data, to]) => ({ name, data, to: to ?? undefined })),
    joined: joined.map(unpackSeat),
    left: left.map(([member_id, sub, reason]) => ({ member: Object.freeze({ member_id, sub }), reason })),
    acks,
    refused: refused.map(([member_id, ...refusal]) => ({ member_id, ...unpackRefusal(refusal) })),
  }
}

const packRefusal = ({ ref, code, message }: RefusedRef): PackedRefusal => [ref, code, message]
const unpackRefusal = ([ref, code, message]: PackedRefusal): RefusedRef => ({ ref, code, message })

const packSeat = ({
  member,
  session_id,
  join_ref,
  edge,
  codec,
  last_ref,
  refused,
}: SeatRecord): PackedSeat => [
  member.member_id,
  member.sub,
  session_id,
  join_ref,
  edge,
  codec,
  last_ref,
  refused.map(packRefusal),
]

const unpackSeat = ([
  member_id,
  sub,
  session_id,
  join_ref,
  edge,
  codec,
  last_ref,
  refused,
]: PackedSeat): SeatRecord => ({
  member: Object.freeze({ member_id, sub }),
  session_id,
  join_ref,
  edge,
  codec,
  last_ref,
  refused: refused.map(unpackRefusal),
})
