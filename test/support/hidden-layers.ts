import type { Json, JsonObject } from '../../shared/json.ts'

/** A pattern of paths, and which layer what is there belongs to; null: no one's. */
export interface HiddenPattern {
  readonly path: readonly string[]
  readonly layer: (...keys: string[]) => string | null
}

/** The layer of what is at `path`, if it is hidden: null when it is no one's, undefined when it is not hidden. */
function layerAt(patterns: readonly HiddenPattern[], path: readonly string[]): string | null | undefined {
  const pattern = patterns.find(
    (one) => one.path.length === path.length && one.path.every((part, i) => part === '*' || part === path[i]),
  )
  return pattern?.layer(...path.filter((_, i) => pattern.path[i] === '*'))
}

const isObject = (value: Json): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** The plainest way to say what a member sees who has these layers, where undefined stands for none of them. */
export function visible(
  state: Json,
  patterns: readonly HiddenPattern[],
  has: (layer: string | null) => boolean,
  path: readonly string[] = [],
): Json {
  if (!isObject(state)) return state
  return Object.fromEntries(
    Object.entries(state).flatMap(([key, value]) => {
      const layer = layerAt(patterns, [...path, key])
      if (layer !== undefined) return has(layer) ? [[key, value]] : []
      return [[key, visible(value, patterns, has, [...path, key])]]
    }),
  )
}

/** The states of all layers that have something in them: the hidden values at their paths. */
export function layersOf(state: Json, patterns: readonly HiddenPattern[]): Map<string, JsonObject> {
  const layers = new Map<string, JsonObject>()
  const put = (into: JsonObject, [key, ...rest]: readonly string[], value: Json): JsonObject => ({
    ...into,
    [key!]: rest.length === 0 ? value : put((into[key!] ?? {}) as JsonObject, rest, value),
  })
  const walk = (value: Json, path: readonly string[]): void => {
    if (!isObject(value)) return
    for (const [key, inner] of Object.entries(value)) {
      const layer = layerAt(patterns, [...path, key])
      if (layer === undefined) walk(inner, [...path, key])
      else if (layer !== null) layers.set(layer, put(layers.get(layer) ?? {}, [...path, key], inner))
    }
  }
  walk(state, [])
  return layers
}
