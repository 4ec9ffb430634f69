import type { StandardSchemaV1 } from '@standard-schema/spec'
import { jsonSchemaOf } from '../../room/json-schema.ts'
import { type Condition, InvalidQuery, invalid, type RoomQuery } from './rows.ts'

/** Kinds of values that conditions compare, as JSON Schema calls them, with their names in errors. */
const KINDS: ReadonlyMap<string, string> = new Map([
  ['string', 'a text'],
  ['number', 'a number'],
  ['boolean', 'true or false'],
  ['null', 'null'],
])

/** Kinds of the values of a field. Undefined: its schema does not tell. */
type Kinds = ReadonlySet<string> | undefined

/** The fields of the rows of a list. */
export class ListFields {
  /** By name. Undefined: the schema does not tell. */
  readonly #fields: ReadonlyMap<string, Kinds> | undefined

  /** `schema`: `listing.data` of the room type. Valibot has its fields in `entries`, and zod in `shape`. */
  constructor(schema: object) {
    const fields = 'entries' in schema ? schema.entries : 'shape' in schema ? schema.shape : undefined
    if (typeof fields !== 'object' || fields === null) return
    this.#fields = new Map(Object.entries(fields).map(([name, field]) => [name, kindsOf(field)]))
  }

  /** Returns the error for a query that no row can match: it has an unknown field, or a value that the field cannot have. */
  fault({ where = {} }: RoomQuery): InvalidQuery | undefined {
    if (!this.#fields) return undefined
    for (const [field, condition] of Object.entries(where)) {
      if (!this.#fields.has(field)) {
        const known = [...this.#fields.keys()].join(', ')
        return new InvalidQuery(`where.${field} is no field of the list: the fields are ${known}`)
      }
      const kinds = this.#fields.get(field)
      if (!kinds || kindsIn(condition).every((kind) => kinds.has(kind))) continue
      const right = [...kinds].flatMap((kind) => KINDS.get(kind) ?? [])
      return invalid(
        `where.${field}`,
        condition,
        right.join(' or ') || 'left out: the field has lists or objects',
      )
    }
    return undefined
  }
}

function kindsIn(condition: Condition): readonly string[] {
  if (Array.isArray(condition)) return condition.flatMap(kindsIn)
  if (condition === null) return ['null']
  return [typeof condition === 'object' ? 'number' : typeof condition]
}

/** The part of a JSON Schema that tells the kinds of its values. */
interface Described {
  readonly type?: string | readonly string[]
  readonly const?: unknown
  readonly anyOf?: readonly Described[]
}

/** The kinds of what a schema returns. A value of a transformation, for example, can be of any kind. */
function kindsOf(field: StandardSchemaV1): Kinds {
  const described = jsonSchemaOf(field, 'output')
  return described && kindsDescribed(described as Described)
}

function kindsDescribed({ type, const: only, anyOf }: Described): Kinds {
  if (anyOf) {
    const kinds = anyOf.map(kindsDescribed)
    return kinds.includes(undefined) ? undefined : new Set(kinds.flatMap((some) => [...some!]))
  }
  if (only !== undefined) return new Set([only === null ? 'null' : typeof only])
  return type === undefined
    ? undefined
    : new Set([type].flat().map((one) => (one === 'integer' ? 'number' : one)))
}
