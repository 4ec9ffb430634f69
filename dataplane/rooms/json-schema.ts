import type { StandardSchemaV1 } from '@standard-schema/spec'
import { type JsonSchema, toJsonSchema } from '@valibot/to-json-schema'
import type { GenericSchema } from 'valibot'

/** Returns the JSON Schema of what a schema accepts. Undefined: its library is not valibot. */
export function jsonSchemaOf(schema: StandardSchemaV1): JsonSchema | undefined {
  const { vendor } = schema['~standard']
  if (vendor !== 'valibot') return undefined
  return toJsonSchema(schema as GenericSchema, { errorMode: 'ignore', typeMode: 'input' })
}

/** Returns a value with all keys that a JSON Schema names. Records, and parts that it does not describe, are objects without entries. */
export function sampleOf(schema: JsonSchema | boolean | undefined): unknown {
  if (typeof schema !== 'object') return {}
  const { anyOf, properties, type } = schema
  if (anyOf) return Object.assign({}, ...anyOf.map(sampleOf))
  if (properties)
    return Object.fromEntries(Object.entries(properties).map(([key, value]) => [key, sampleOf(value)]))
  return type === undefined || type === 'object' ? {} : null
}
