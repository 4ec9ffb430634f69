import * as v from 'valibot'
import type { Json, JsonObject } from '../../../shared/json.ts'

/** One room in a list, in the form that players get. */
export interface RoomRow {
  /** `type:key`. */
  readonly room_id: string
  readonly room_type: string
  readonly key: string
  readonly players: number
  /** Null: no limit. */
  readonly max_players: number | null
  /** Number of reserved seats of players who have not joined yet. */
  readonly reserved: number
  /** Time of the room's creation, RFC 3339. */
  readonly created_at: string
  /** Result of the room type's `listing.of`. */
  readonly data: Json
  /** Number of spectators. It can be 10 s old. Absent: the room type has none. */
  readonly spectators?: number
}

/** A row in the store. Players do not get the additional fields. */
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
  players: COUNT,
  max_players: v.nullable(COUNT),
  reserved: COUNT,
  created_at: v.string(),
  data: v.custom<Json>((value) => value !== undefined),
  spectators: v.exactOptional(COUNT),
  node_id: v.nullable(v.string()),
  code: v.exactOptional(v.string()),
})

/** Returns the row as JSON in UTF-8. */
export const encodeRow = (row: StoredRow): Uint8Array => new TextEncoder().encode(JSON.stringify(row))

/** Returns the row in `bytes`, without fields that this version does not know. Undefined: the bytes are not a row. */
export function decodeRow(bytes: Uint8Array): StoredRow | undefined {
  try {
    // The row of a sleeping room can be years old. Before rooms had spectators, its fields had these names.
    const { members: players, max_members: max_players, ...row } = JSON.parse(new TextDecoder().decode(bytes))
    return v.parse(ROW, { players, max_players, ...row })
  } catch {
    return undefined
  }
}

/** Number of taken seats: those of players, and reserved ones. */
export const takenSeats = ({ players, reserved }: Seats): number => players + reserved

interface Seats {
  readonly players: number
  readonly reserved: number
}

/** A value in `data` that queries can compare. */
export type Scalar = string | number | boolean | null
/** The value of a field must be this value, one of these values, or a number from `min` to `max`. */
export type Condition =
  | Scalar
  | readonly Scalar[]
  | { readonly min?: number | undefined; readonly max?: number | undefined }

/** Conditions and order of a list. */
export interface RoomQuery {
  /** Conditions on fields of `data`. All of them must hold. Default: none. */
  readonly where?: { readonly [field: string]: Condition } | undefined
  /** `fullest` and `emptiest` compare taken seats: players and reserved seats. Default: `fullest`. */
  readonly order?: 'fullest' | 'emptiest' | 'newest' | 'oldest' | undefined
  /** Maximum number of rooms, 1 to 100. Default: 20. */
  readonly limit?: number | undefined
  /** True: also rooms without a free seat. */
  readonly full?: boolean | undefined
}

/** Maximum number of rooms in an answer. */
export const MAX_LIMIT = 100
export const DEFAULT_LIMIT = 20
/** Maximum number of fields in `where`, and of values in the list of one field. */
const MAX_CONDITIONS = 32

/** A query that cannot be answered. The message names the wrong field, its value, and what would be right. */
export class InvalidQuery extends Error {
  override readonly name = 'InvalidQuery'
  /** Error code for the client. */
  readonly code: 'invalid_options' | 'unknown_room_type'
  /** See `QueryResult`. */
  readonly comparisons: number

  constructor(message: string, code: InvalidQuery['code'] = 'invalid_options', comparisons = 0) {
    super(message)
    this.code = code
    this.comparisons = comparisons
  }
}

const isObject = (value: Json): value is { readonly [key: string]: Json } =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

const isScalar = (value: Json): value is Scalar => value === null || typeof value !== 'object'

const isCondition = (value: Json): boolean => {
  if (Array.isArray(value)) return value.length > 0 && value.length <= MAX_CONDITIONS && value.every(isScalar)
  if (!isObject(value)) return true
  return Object.entries(value).every(
    ([name, bound]) => (name === 'min' || name === 'max') && typeof bound === 'number',
  )
}

/** The fields of a query, each with its check and the text about correct values. */
const FIELDS = new Map<string, readonly [isRight: (value: Json) => boolean, right: string]>([
  [
    'where',
    [
      (value) => isObject(value) && Object.keys(value).length <= MAX_CONDITIONS,
      `an object of at most ${MAX_CONDITIONS} fields`,
    ],
  ],
  [
    'order',
    [
      (value) => ['fullest', 'emptiest', 'newest', 'oldest'].includes(value as string),
      'fullest, emptiest, newest or oldest',
    ],
  ],
  [
    'limit',
    [
      (value) => Number.isInteger(value) && (value as number) >= 1 && (value as number) <= MAX_LIMIT,
      `an integer from 1 to ${MAX_LIMIT}`,
    ],
  ],
  ['full', [(value) => typeof value === 'boolean', 'true or false']],
])
const CONDITION = `a text, number, boolean or null, a list of 1 to ${MAX_CONDITIONS} of them, or {"min":…,"max":…}`

/** Returns `input` as a query. Throws `InvalidQuery`. */
export function readQuery(input: Json): RoomQuery {
  if (!isObject(input)) throw invalid('the query', input, 'an object such as {"where":{"map":"desert"}}')
  for (const [name, value] of Object.entries(input)) {
    const [isRight, right] = FIELDS.get(name) ?? [() => false, `one of ${[...FIELDS.keys()].join(', ')}`]
    if (!isRight(value)) throw invalid(name, value, right)
  }
  for (const [field, condition] of Object.entries((input as { where?: JsonObject }).where ?? {}))
    if (!isCondition(condition)) throw invalid(`where.${field}`, condition, CONDITION)
  return input as RoomQuery
}

/** Returns the check whether a row matches `where` and `full` of a query. */
export function rowMatcher({ where = {}, full = false }: RoomQuery): (row: RoomRow) => boolean {
  const tests = Object.entries(where).map(([field, condition]) => [field, conditionTest(condition)] as const)
  return (row) => {
    if (!full && takenSeats(row) >= (row.max_players ?? Number.POSITIVE_INFINITY)) return false
    if (tests.length === 0) return true
    const { data } = row
    if (!isObject(data)) return false
    // Inherited names such as `constructor` equal no scalar.
    for (const [field, test] of tests) if (!test(data[field])) return false
    return true
  }
}

function conditionTest(condition: Condition): (value: unknown) => boolean {
  if (condition === null || typeof condition !== 'object') return (value) => value === condition
  if (isList(condition)) {
    const values = new Set<unknown>(condition)
    return (value) => values.has(value)
  }
  const { min = Number.NEGATIVE_INFINITY, max = Number.POSITIVE_INFINITY } = condition
  return (value) => typeof value === 'number' && value >= min && value <= max
}

const isList = (condition: Condition): condition is readonly Scalar[] => Array.isArray(condition)

/** Maximum length of a value in an error text. */
const SHOWN = 60

/** Returns the error for a wrong value. `right`: what the field of the query must be. */
export function invalid(field: string, value: unknown, right: string): InvalidQuery {
  const text = JSON.stringify(value)
  return new InvalidQuery(
    `${field} is ${text.length > SHOWN ? `${text.slice(0, SHOWN)}…` : text}: it must be ${right}`,
  )
}

/** A query in the form in which it runs. */
export interface Search {
  readonly matches: (row: StoredRow) => boolean
  readonly order: NonNullable<RoomQuery['order']>
  readonly limit: number
  /** One for the row, and one for each condition. */
  readonly comparisonsPerRow: number
}

/** Rows that were found between two positions. */
export interface Found {
  readonly rows: StoredRow[]
  /** Number of rows that the query looked at. */
  readonly looked: number
  /** The last of them, if there are rows behind it and the answer is incomplete. */
  readonly last: Position | undefined
}

/** Answer to a query. */
export interface QueryResult {
  readonly rows: readonly StoredRow[]
  /** Number of rows that the query looked at. */
  readonly looked: number
  /** Price of the query: for each of these rows, one for the row and one for each condition. */
  readonly comparisons: number
  /** The row at which the query stopped, because it had looked at `maxRowsPerQuery` rows. Undefined: the answer is complete. */
  readonly stoppedAt: Position | undefined
}

/** Returns the error for a query that has stopped. */
export const tooManyRows = ({ rows, looked, comparisons }: QueryResult): InvalidQuery =>
  new InvalidQuery(
    `the query stopped after it had looked at ${looked} rooms and found ${rows.length}: use conditions that more rooms meet, a smaller limit, or a room type for these rooms only`,
    'invalid_options',
    comparisons,
  )

/** The fields of a row that determine its place in every order. */
export interface Position extends Seats {
  readonly created_at: string
  readonly room_id: string
}

type Compare = (one: Position, other: Position) => number

const byAge: Compare = (one, other) =>
  compareText(one.created_at, other.created_at) || compareText(one.room_id, other.room_id)
// For equally full rooms, 'fullest' returns the oldest first, so that old rooms fill before new ones.
const bySeats: Compare = (one, other) => takenSeats(one) - takenSeats(other) || byAge(other, one)

const compareText = (one: string, other: string): number => (one < other ? -1 : one > other ? 1 : 0)

/** Returns true if `one` comes before `other` in an order. */
export function isBefore(order: Search['order'], one: Position, other: Position): boolean {
  const sign = isBackward(order) ? -1 : 1
  return sign * (isBySeats(order) ? bySeats : byAge)(one, other) < 0
}

const isBySeats = (order: Search['order']): boolean => order === 'fullest' || order === 'emptiest'
const isBackward = (order: Search['order']): boolean => order === 'fullest' || order === 'newest'

/** Rows of one list, sorted for every order of a query. */
export class Rows {
  readonly #rows = new Map<string, StoredRow>()
  readonly #bySeats = new Sorted(bySeats)
  readonly #byAge = new Sorted(byAge)

  get size(): number {
    return this.#rows.size
  }

  get(roomId: string): StoredRow | undefined {
    return this.#rows.get(roomId)
  }

  values(): Iterable<StoredRow> {
    return this.#rows.values()
  }

  /** Replaces the row of a room. Undefined removes it. */
  set(roomId: string, row: StoredRow | undefined): void {
    const before = this.#rows.get(roomId)
    if (before === row) return
    if (before) {
      this.#bySeats.remove(before)
      this.#byAge.remove(before)
      this.#rows.delete(roomId)
    }
    if (!row) return
    this.#bySeats.add(row)
    this.#byAge.add(row)
    this.#rows.set(roomId, row)
  }

  /** Returns the matching rows, in order. `after`: only rows behind this position. `most`: maximum number of rows to look at. */
  find({ matches, order, limit }: Search, after?: Position, most = Number.POSITIVE_INFINITY): Found {
    const { rows, placeOf } = isBySeats(order) ? this.#bySeats : this.#byAge
    const step = isBackward(order) ? -1 : 1
    const found: StoredRow[] = []
    let looked = 0
    let at = step > 0 ? 0 : rows.length - 1
    if (after) {
      const place = placeOf(after)
      at = step < 0 ? place - 1 : rows[place]?.room_id === after.room_id ? place + 1 : place
    }
    for (; at >= 0 && at < rows.length && found.length < limit && looked < most; at += step, looked++)
      if (matches(rows[at]!)) found.push(rows[at]!)
    const isComplete = found.length === limit || at < 0 || at >= rows.length
    return { rows: found, looked, last: isComplete ? undefined : rows[at - step] }
  }
}

/** Rows in one order. */
class Sorted {
  readonly rows: StoredRow[] = []
  readonly #compare: Compare

  constructor(compare: Compare) {
    this.#compare = compare
  }

  add(row: StoredRow): void {
    this.rows.splice(this.placeOf(row), 0, row)
  }

  remove(row: StoredRow): void {
    this.rows.splice(this.placeOf(row), 1)
  }

  /** Returns the index of the first row that does not come before `position`. */
  readonly placeOf = (position: Position): number => {
    let [low, high] = [0, this.rows.length]
    while (low < high) {
      const middle = (low + high) >>> 1
      if (this.#compare(this.rows[middle]!, position) < 0) low = middle + 1
      else high = middle
    }
    return low
  }
}
