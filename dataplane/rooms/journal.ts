import { Unpackr } from 'msgpackr'
import type { Json } from '../../shared/json.ts'
import type { LeaveReason, Subprotocol } from '../../shared/protocol/messages.ts'
import { MsgpackWriter } from '../../shared/protocol/msgpack-writer.ts'
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
  /** The last visible updates, gap-free up to `seq`, for members who missed some. */
  readonly updates: readonly Update[]
}

/** What the store holds of a room cannot be read. */
export class UnreadableRecord extends Error {
  override readonly name = 'UnreadableRecord'
}

/** The first byte of every journal entry and snapshot; another layout gets another number. */
const VERSION = 1

type PackedSeat = [
  member_id: string,
  sub: string | null,
  session_id: string,
  join_ref: number,
  edge: string,
  codec: Subprotocol,
  last_ref: number,
]
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
]
type PackedSnapshot = [
  epoch: number,
  seq: number,
  checksum: number,
  state: Json,
  seats: PackedSeat[],
  base: [epoch: number, seq: number],
  updates: PackedUpdate[],
]

/** Writes and reads what the store keeps of rooms: one version byte, then MessagePack. */
export class JournalFormat {
  // Not msgpackr's: that one takes an object with the keys `constructor` and `toJSON`, which clients may choose, for a class instance.
  readonly #writer = new MsgpackWriter()
  readonly #reader = new Unpackr({ useRecords: false, moreTypes: false })

  entry(update: Update): Uint8Array {
    return this.#pack(packUpdate(update))
  }

  snapshot(snapshot: RoomSnapshot): Uint8Array {
    const { epoch, seq, checksum, state, seats, base, updates } = snapshot
    const packed: PackedSnapshot = [
      epoch,
      seq,
      checksum,
      state,
      seats.map(packSeat),
      [base.epoch, base.seq],
      updates.map(packUpdate),
    ]
    return this.#pack(packed)
  }

  /** Throws UnreadableRecord. */
  readEntry(bytes: Uint8Array): Update {
    return this.#read(bytes, (packed) => unpackUpdate(packed as PackedUpdate))
  }

  /** Throws UnreadableRecord. */
  readSnapshot(bytes: Uint8Array): RoomSnapshot {
    return this.#read(bytes, (packed) => {
      const [epoch, seq, checksum, state, seats, base, updates] = packed as PackedSnapshot
      return {
        epoch,
        seq,
        checksum,
        state,
        seats: seats.map(unpackSeat),
        base: { epoch: base[0], seq: base[1] },
        updates: updates.map(unpackUpdate),
      }
    })
  }

  #pack(packed: PackedUpdate | PackedSnapshot): Uint8Array {
    this.#writer.begin().value(packed as Json)
    const body = this.#writer.take()
    const bytes = new Uint8Array(1 + body.length)
    bytes[0] = VERSION
    bytes.set(body, 1)
    return bytes
  }

  #read<T>(bytes: Uint8Array, unpack: (packed: unknown) => T): T {
    if (bytes[0] !== VERSION)
      throw new UnreadableRecord(`a room record has version ${bytes[0]}; this node reads version ${VERSION}`)
    try {
      return unpack(this.#reader.unpack(bytes.subarray(1)))
    } catch (error) {
      throw new UnreadableRecord(`a room record of ${bytes.length} bytes is damaged`, { cause: error })
    }
  }
}

function packUpdate(update: Update): PackedUpdate {
  const { epoch, seq, visible, checksum, delta, events, joined, left, acks } = update
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
  ]
}

function unpackUpdate(packed: PackedUpdate): Update {
  const [epoch, seq, visible, checksum, delta, events, joined, left, acks] = packed
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
  }
}

const packSeat = ({ member, session_id, join_ref, edge, codec, last_ref }: SeatRecord): PackedSeat => [
  member.member_id,
  member.sub,
  session_id,
  join_ref,
  edge,
  codec,
  last_ref,
]

const unpackSeat = ([
  member_id,
  sub,
  session_id,
  join_ref,
  edge,
  codec,
  last_ref,
]: PackedSeat): SeatRecord => ({
  member: Object.freeze({ member_id, sub }),
  session_id,
  join_ref,
  edge,
  codec,
  last_ref,
})
