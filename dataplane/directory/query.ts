import type { Json, JsonObject } from '../../shared/json.ts'
import { type RoomRow, takenSeats } from './row.ts'

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

/** The fields of a query: how each is checked, and what would be right. */
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

/** Returns the test whether a row matches `where` and `full` of a query. */
export function rowMatcher({ where = {}, full = false }: RoomQuery): (row: RoomRow) => boolean {
  const tests = Object.entries(where).map(([field, condition]) => [field, conditionTest(condition)] as const)
  return (row) => {
    if (!full && takenSeats(row) >= (row.max_members ?? Number.POSITIVE_INFINITY)) return false
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

/** Maximum length of a wrong value in an error. */
const SHOWN = 60

function invalid(field: string, value: unknown, right: string): InvalidQuery {
  const text = JSON.stringify(value)
  return new InvalidQuery(
    `${field} is ${text.length > SHOWN ? `${text.slice(0, SHOWN)}…` : text}: it must be ${right}`,
  )
}
