import type { Json, JsonObject } from '../../shared/json.ts'

/** A pattern of paths with the layer of their values. `*` matches any key. Null: a layer that no member has. */
export interface HiddenPattern {
  readonly path: readonly string[]
  readonly layer: (...keys: string[]) => string | null
}

/**
 * Returns the layer of the value at `path`. Null: no member has the layer, or the value is not an object, and a pattern runs through it.
 * Undefined: the value is not hidden.
 */
function layerAt(
  patterns: readonly HiddenPattern[],
  path: readonly string[],
  value: Json,
): string | null | undefined {
  const matching = patterns.filter((one) =>
    path.every((key, i) => one.path[i] === '*' || one.path[i] === key),
  )
  const pattern = matching.find((one) => one.path.length === path.length)
  if (pattern) return pattern.layer(...path.filter((_, i) => pattern.path[i] === '*'))
  return matching.length > 0 && !isObject(value) ? null : undefined
}

const isObject = (value: Json): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** Returns the part of a state that a member with these layers sees. A model of the product, as simple as possible. */
export function visible(
  state: Json,
  patterns: readonly HiddenPattern[],
  has: (layer: string | null) => boolean,
  path: readonly string[] = [],
): Json {
  if (!isObject(state)) return state
  return Object.fromEntries(
    Object.entries(state).flatMap(([key, value]) => {
      const layer = layerAt(patterns, [...path, key], value)
      if (layer !== undefined) return has(layer) ? [[key, value]] : []
      return [[key, visible(value, patterns, has, [...path, key])]]
    }),
  )
}

/** Returns the states of all layers that are not empty: the hidden values at their paths. */
export function layersOf(state: Json, patterns: readonly HiddenPattern[]): Map<string, JsonObject> {
  const layers = new Map<string, JsonObject>()
  const put = (into: JsonObject, [key, ...rest]: readonly string[], value: Json): JsonObject => ({
    ...into,
    [key!]: rest.length === 0 ? value : put((into[key!] ?? {}) as JsonObject, rest, value),
  })
  const walk = (value: Json, path: readonly string[]): void => {
    if (!isObject(value)) return
    for (const [key, inner] of Object.entries(value)) {
      const layer = layerAt(patterns, [...path, key], inner)
      if (layer === undefined) walk(inner, [...path, key])
      else if (layer !== null) layers.set(layer, put(layers.get(layer) ?? {}, [...path, key], inner))
    }
  }
  walk(state, [])
  return layers
}
