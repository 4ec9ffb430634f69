import * as v from 'valibot'
import type { Json } from '../../shared/json.ts'

/** One room in a list, as players see it. */
export interface RoomRow {
  /** `type:key`. */
  readonly room_id: string
  readonly room_type: string
  readonly key: string
  readonly members: number
  /** Null: no limit. */
  readonly max_members: number | null
  /** Seats that are kept for players who have not joined yet. */
  readonly reserved: number
  /** Time of the room's creation, RFC 3339. */
  readonly created_at: string
  /** Result of the room type's `listing.of`. */
  readonly data: Json
}

/** A row as the store has it. Players do not get the additional fields. */
export interface StoredRow extends RoomRow {
  /** Node id of the owner, with its boot id. Null: the room sleeps. */
  readonly node_id: string | null
  /** Code of the room. Absent: the room type has no `codes`. */
  readonly code?: string
}

const COUNT = v.pipe(v.number(), v.integer(), v.minValue(0))

const ROW = v.object({
  room_id: v.string(),
  room_type: v.string(),
  key: v.string(),
  members: COUNT,
  max_members: v.nullable(COUNT),
  reserved: COUNT,
  created_at: v.string(),
  data: v.custom<Json>((value) => value !== undefined),
  node_id: v.nullable(v.string()),
  code: v.exactOptional(v.string()),
})

/** Returns the row as JSON in UTF-8. */
export const encodeRow = (row: StoredRow): Uint8Array => new TextEncoder().encode(JSON.stringify(row))

/** Returns the row in `bytes`, without fields that this version does not know. Undefined: the bytes are not a row. */
export function decodeRow(bytes: Uint8Array): StoredRow | undefined {
  try {
    return v.parse(ROW, JSON.parse(new TextDecoder().decode(bytes)))
  } catch {
    return undefined
  }
}

/** Number of seats that are taken: those of members, and reserved ones. */
export const takenSeats = ({ members, reserved }: Pick<RoomRow, 'members' | 'reserved'>): number =>
  members + reserved
