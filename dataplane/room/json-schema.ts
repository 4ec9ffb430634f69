import type { StandardJSONSchemaV1, StandardSchemaV1 } from '@standard-schema/spec'
import { type JsonSchema, toJsonSchema } from '@valibot/to-json-schema'
import type { GenericSchema } from 'valibot'

/** Actions of valibot after which a value has the same type. The type after another transformation is unknown. */
const SAME_TYPE = new Set([
  'brand',
  'filter_items',
  'flavor',
  'normalize',
  'readonly',
  'sort_items',
  'to_lower_case',
  'to_max_value',
  'to_min_value',
  'to_upper_case',
  'trim',
  'trim_end',
  'trim_start',
])

/**
 * Returns the JSON Schema of the values that a schema accepts (`input`) or returns (`output`). A part that JSON Schema cannot express has no
 * keywords. Undefined: the schema's library does not describe its schemas, as valibot and libraries with Standard JSON Schema (zod) do.
 */
export function jsonSchemaOf(schema: StandardSchemaV1, side: 'input' | 'output'): JsonSchema | undefined {
  const { vendor, jsonSchema }: StandardSchemaV1.Props & Partial<StandardJSONSchemaV1.Props> =
    schema['~standard']
  if (vendor !== 'valibot') {
    try {
      return jsonSchema?.[side]({ target: 'draft-07' })
    } catch {
      // Libraries throw for a part that JSON Schema cannot express.
      return undefined
    }
  }
  return toJsonSchema(schema as GenericSchema, {
    typeMode: side,
    errorMode: 'ignore',
    overrideAction: ({ valibotAction: { kind, type } }) =>
      side === 'output' && kind === 'transformation' && !SAME_TYPE.has(type) ? {} : undefined,
  })
}
