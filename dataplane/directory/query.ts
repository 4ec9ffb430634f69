import * as v from 'valibot'
import type { Json } from '../../shared/json.ts'
import { freeSeats, type RoomRow } from './row.ts'

/** A value of `data` that queries can compare. */
export type Scalar = string | number | boolean | null
/** The value of a field must be this value, one of these values, or a number from `min` to `max`. */
export type Condition =
  | Scalar
  | readonly Scalar[]
  | { readonly min?: number | undefined; readonly max?: number | undefined }

/** Which rooms a list contains, and their order. */
export interface RoomQuery {
  /** Conditions on fields of `data`. All of them must hold. Default: none. */
  readonly where?: { readonly [field: string]: Condition } | undefined
  /** `fullest` and `emptiest` compare taken seats: members and reserved seats. Default: `fullest`. */
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

/** A query that cannot be answered. The message says which field is wrong, its value, and what would be right. */
export class InvalidQuery extends Error {
  override readonly name = 'InvalidQuery'
  /** Error code for the client. */
  readonly code: 'invalid_options' | 'unknown_room_type'

  constructor(message: string, code: InvalidQuery['code'] = 'invalid_options') {
    super(message)
    this.code = code
  }
}

const SCALAR = v.union([v.string(), v.number(), v.boolean(), v.null()])
const CONDITION = v.union([
  SCALAR,
  v.pipe(v.array(SCALAR), v.minLength(1), v.maxLength(MAX_CONDITIONS)),
  v.strictObject({ min: v.optional(v.number()), max: v.optional(v.number()) }),
])
/** Each field of a query, with what a right value is. */
const FIELDS = {
  where: [
    v.pipe(v.record(v.string(), v.unknown()), v.maxEntries(MAX_CONDITIONS)),
    `an object of at most ${MAX_CONDITIONS} fields`,
  ],
  order: [v.picklist(['fullest', 'emptiest', 'newest', 'oldest']), 'fullest, emptiest, newest or oldest'],
  limit: [
    v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(MAX_LIMIT)),
    `an integer from 1 to ${MAX_LIMIT}`,
  ],
  full: [v.boolean(), 'true or false'],
} as const

/** Returns `input` as a query. Throws `InvalidQuery`. */
export function readQuery(input: Json): RoomQuery {
  if (!isObject(input)) throw invalid('the query', input, 'an object such as {"where":{"map":"desert"}}')
  for (const [name, value] of Object.entries(input)) {
    if (!Object.hasOwn(FIELDS, name)) throw invalid(name, value, 'one of where, order, limit and full')
    const [schema, right] = FIELDS[name as keyof typeof FIELDS]
    if (!v.is(schema, value)) throw invalid(name, value, right)
  }
  for (const [field, condition] of Object.entries((input as RoomQuery).where ?? {}))
    if (!v.is(CONDITION, condition))
      throw invalid(
        `where.${field}`,
        condition,
        `a text, number, boolean or null, a list of 1 to ${MAX_CONDITIONS} of them, or {"min":…,"max":…}`,
      )
  return input as RoomQuery
}

/** Returns the test whether a row matches `where` and `full` of a query. */
export function rowMatcher({ where = {}, full = false }: RoomQuery): (row: RoomRow) => boolean {
  const tests = Object.entries(where).map(([field, condition]) => [field, conditionTest(condition)] as const)
  return (row) => {
    if (!full && freeSeats(row) <= 0) return false
    const { data } = row
    if (tests.length > 0 && !isObject(data)) return false
    for (const [field, test] of tests)
      if (!Object.hasOwn(data as object, field) || !test((data as Record<string, Json>)[field])) return false
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

const isObject = (value: Json): value is { readonly [key: string]: Json } =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** Maximum length of a wrong value in an error. */
const SHOWN = 60

function invalid(field: string, value: unknown, right: string): InvalidQuery {
  const text = JSON.stringify(value)
  return new InvalidQuery(
    `${field} is ${text.length > SHOWN ? `${text.slice(0, SHOWN)}…` : text}: it must be ${right}`,
  )
}
