import { closest, distance } from 'fastest-levenshtein'
import { isWellFormed } from '../../shared/json.ts'
import { RoomLogicError } from './failures.ts'

/**
 * Layer of a hidden value: its name, or a function that returns the name for the keys that `*` matched, or null to hide the value from all
 * members. A function must always return the same name for the same keys.
 */
export type LayerRule = null | string | ((...keys: string[]) => string)

/** Layers by path, such as `hands.*`. `*` matches any key. */
export type LayerRules = { readonly [pattern: string]: LayerRule }

/** Maximum length of a layer's name, in UTF-16 code units. */
const MAX_LAYER_NAME = 128

/** Key of a pattern that matches any key. */
const ANY = '*'

/** A pattern with its layer. */
export interface Pattern {
  readonly text: string
  readonly keys: readonly string[]
  readonly rule: LayerRule
}

export const patternsOf = (rules: LayerRules): readonly Pattern[] =>
  Object.entries(rules).map(([text, rule]) => ({ text, keys: text.split('.'), rule }))

/** Returns the patterns that match a path of `level` keys and then `key`. All of `patterns` match the path. */
export function matching(patterns: readonly Pattern[], level: number, key: string): readonly Pattern[] {
  const found = patterns.filter(({ keys }) => keys[level] === key || keys[level] === ANY)
  return found.length > 0 ? found : NO_PATTERNS
}

export const NO_PATTERNS: readonly Pattern[] = []

/** Name of the layer of values that are hidden from all members. Its rule is null. */
export const NOBODY = ''

/** Returns the layer of a path at which the pattern ends. Throws a RoomLogicError. */
export function layerOf({ keys, rule, text }: Pattern, path: readonly string[]): string {
  if (typeof rule !== 'function') return rule ?? NOBODY
  const matched = path.filter((_, i) => keys[i] === ANY)
  let name: unknown
  try {
    name = rule(...matched)
  } catch (error) {
    throw new RoomLogicError(
      `layers[${JSON.stringify(text)}] threw for the keys ${JSON.stringify(matched)}: ${error instanceof Error ? error.message : String(error)}`,
    )
  }
  if (isLayerName(name)) return name
  throw new RoomLogicError(
    `layers[${JSON.stringify(text)}] returned ${JSON.stringify(name) ?? String(name)} for the keys ${JSON.stringify(matched)}; ${RIGHT_NAME}`,
  )
}

/** True if members can have a layer. Otherwise, the rules hide values from all members. */
export const haveLayers = (rules: LayerRules | undefined): rules is LayerRules =>
  rules !== undefined && Object.values(rules).some((rule) => rule !== null)

/** True if two room definitions have the same layers, by the source text of their rules. */
export function areSameRules(one: LayerRules | undefined, other: LayerRules | undefined): boolean {
  const texts = [one, other].map((rules) =>
    JSON.stringify(
      Object.entries(rules ?? {}).map(([pattern, rule]) => [pattern, rule === null ? null : String(rule)]),
    ),
  )
  return texts[0] === texts[1]
}

/** Returns the problems of a room definition's layers. */
export function problemsOfLayers(layers: Readonly<Record<string, unknown>>): string[] {
  const problems: string[] = []
  const patterns = Object.keys(layers)
  if (patterns.length === 0) problems.push('layers is empty: name a pattern, or leave it out')
  for (const pattern of patterns) {
    const rule = layers[pattern]
    const what = `layers[${JSON.stringify(pattern)}]`
    if (pattern.split('.').some((key) => key === '' || key === '__proto__' || /[[\]]/.test(key)))
      problems.push(
        `${what} is no pattern: write keys of objects with dots between them, and * for any key, such as hands.* (a pattern does not run into arrays)`,
      )
    const keys = pattern.split('.').filter((key) => key === ANY).length
    if (typeof rule === 'function') {
      if (keys === 0)
        problems.push(`${what} has no * whose key its function could get: write a name, or null`)
    } else if (typeof rule === 'string') {
      if (!isLayerName(rule)) problems.push(`${what} is ${JSON.stringify(rule)}; ${RIGHT_NAME}`)
    } else if (rule !== null)
      problems.push(
        `${what} is ${rule === undefined ? 'undefined' : JSON.stringify(rule)}; it must be the name of a layer, a function of keys that returns one, or null to hide the value from all members`,
      )
  }
  for (const [i, pattern] of patterns.entries())
    for (const other of patterns.slice(i + 1))
      if (overlap(pattern.split('.'), other.split('.')))
        problems.push(
          `layers has ${JSON.stringify(pattern)} and ${JSON.stringify(other)}, which overlap: a value has one layer, with all that is in it`,
        )
  return problems
}

/**
 * Returns the problems of patterns for a state from `source`. A pattern for a missing part hides nothing, and the part that it was meant
 * for is public. An object without entries does not show what it will contain.
 */
export const problemsOfPatterns = (layers: LayerRules, state: unknown, source = 'create makes'): string[] =>
  patternsOf(layers).flatMap(({ text, keys }) => {
    const missing = missingKey(keys, [state], 0)
    if (!missing) return []
    const { level, names } = missing
    const key = keys[level]!
    const place = level === 0 ? 'the state' : keys.slice(0, level).join('.')
    const near = closest(key, names)
    const meant =
      distance(key, near) <= NEAR
        ? `write ${keys.map((key, i) => (i === level ? near : key)).join('.')}`
        : `there are ${names.join(', ')}`
    return [
      `layers[${JSON.stringify(text)}] hides nothing: ${source} no ${key} in ${place}: ${meant}; a part that comes later begins as ${level < keys.length - 1 ? '{}' : 'null'}`,
    ]
  })

/** Names within this edit distance count as a typing error. */
const NEAR = 2

/** Returns the first key of a pattern that no object on its path has, as its level, and the keys that are there. */
function missingKey(
  keys: readonly string[],
  values: readonly unknown[],
  level: number,
): { readonly level: number; readonly names: readonly string[] } | undefined {
  const key = keys[level]
  const objects = values.filter((value) => typeof value === 'object' && value !== null) as Entry[]
  const names = [...new Set(objects.flatMap((object) => Object.keys(object)))]
  if (key === undefined || names.length === 0) return undefined
  if (key === ANY) return missingKey(keys, objects.flatMap(Object.values), level + 1)
  if (names.includes(key)) {
    const below = objects.filter((object) => Object.hasOwn(object, key)).map((object) => object[key])
    return missingKey(keys, below, level + 1)
  }
  // The objects behind a `*` may be of several kinds, which do not all have the key. There, only a similar key counts as a mistake.
  const surely = !keys.slice(0, level).includes(ANY)
  return surely || distance(key, closest(key, names)) <= NEAR ? { level, names } : undefined
}

type Entry = { readonly [key: string]: unknown }

/** End of an error message about an invalid name. */
export const RIGHT_NAME = `names of layers are texts of 1 to ${MAX_LAYER_NAME} characters, except __proto__`

export const isLayerName = (value: unknown): value is string =>
  typeof value === 'string' &&
  value !== NOBODY &&
  value !== '__proto__' &&
  value.length <= MAX_LAYER_NAME &&
  isWellFormed(value)

/** Returns the names of all layers of `rules`, without those of members. Undefined: a function may return any name. */
export function namesOf(rules: LayerRules): string[] | undefined {
  const made = Object.values(rules)
  if (made.some((rule) => typeof rule === 'function')) return undefined
  return made.filter((rule) => typeof rule === 'string')
}

/** True if a value of one pattern can be, or contain, a value of the other. */
function overlap(one: readonly string[], other: readonly string[]): boolean {
  const shorter = Math.min(one.length, other.length)
  for (let i = 0; i < shorter; i++)
    if (one[i] !== other[i] && one[i] !== ANY && other[i] !== ANY) return false
  return true
}

/** Returns the layer that only this member has. */
export const ownLayer = (memberId: string): string => `${OWN}${memberId}`

/** Returns the member whose own layer this is. Undefined: it is not the own layer of a member. */
export const ownerOf = (layer: string): string | undefined =>
  layer.startsWith(OWN) ? layer.slice(OWN.length) : undefined

const OWN = 'member:'

/** A member gets a layer, or loses it. */
export interface Grant {
  readonly memberId: string
  readonly layer: string
  readonly shown: boolean
}

/** Layers that were shown to a member. */
export interface MemberGrants {
  readonly memberId: string
  readonly layers: readonly string[]
}

const NONE: ReadonlySet<string> = new Set()

/**
 * The layers of each member: its own, and those that were shown to it. Turns change the *present* grants. Members and the room's record
 * have the *flushed* grants.
 */
export class Grants {
  /** By member, the layers that were shown to it. */
  readonly #present = new Map<string, Set<string>>()
  readonly #flushed = new Map<string, ReadonlySet<string>>()
  /** By layer, the members that it was shown to, as of the last flush. */
  readonly #holders = new Map<string, Set<string>>()
  /** Members whose grants may have changed since the last flush. */
  readonly #changed = new Set<string>()

  constructor(recorded: readonly MemberGrants[]) {
    for (const { memberId, layers } of recorded) {
      this.#present.set(memberId, new Set(layers))
      this.#changed.add(memberId)
    }
    this.flush()
  }

  /** True if turns have changed grants since the last flush. */
  get dirty(): boolean {
    return this.#changed.size > 0
  }

  /** Number of layers that were shown to a member. */
  count(memberId: string): number {
    return this.#present.get(memberId)?.size ?? 0
  }

  change({ memberId, layer, shown }: Grant): void {
    if (layer === ownLayer(memberId)) return
    const layers = this.#present.get(memberId) ?? new Set()
    if (layers.has(layer) === shown) return
    if (shown) layers.add(layer)
    else layers.delete(layer)
    this.#present.set(memberId, layers)
    this.#changed.add(memberId)
  }

  /** Takes all layers from a member that were shown to it. */
  clear(memberId: string): void {
    if (this.count(memberId) === 0) return
    this.#present.set(memberId, new Set())
    this.#changed.add(memberId)
  }

  /** Removes the grants of a member that has left. */
  forget(memberId: string): void {
    if (this.#present.delete(memberId)) this.#changed.add(memberId)
  }

  /** True if a member has a layer at present. */
  has(memberId: string, layer: string): boolean {
    return layer === ownLayer(memberId) || this.#present.get(memberId)?.has(layer) === true
  }

  /** Flushes all changes. Returns those of members that are still in the room. */
  flush(): readonly Grant[] {
    const grants: Grant[] = []
    for (const memberId of this.#changed) {
      const before = this.#flushed.get(memberId) ?? NONE
      const now = this.#present.get(memberId)
      for (const layer of before) {
        if (now?.has(layer)) continue
        this.#unlist(layer, memberId)
        if (now) grants.push({ memberId, layer, shown: false })
      }
      for (const layer of now ?? NONE) {
        if (before.has(layer)) continue
        this.#list(layer, memberId)
        grants.push({ memberId, layer, shown: true })
      }
      if (now?.size) this.#flushed.set(memberId, new Set(now))
      else {
        this.#flushed.delete(memberId)
        this.#present.delete(memberId)
      }
    }
    this.#changed.clear()
    return grants
  }

  /** Returns the layers of a member as of the last flush, including its own. */
  of(memberId: string): string[] {
    return [ownLayer(memberId), ...(this.#flushed.get(memberId) ?? NONE)]
  }

  /** Returns the members that a layer was shown to, as of the last flush. */
  holders(layer: string): Iterable<string> {
    return this.#holders.get(layer) ?? NONE
  }

  /** Returns all grants as of the last flush. */
  record(): MemberGrants[] {
    return [...this.#flushed].map(([memberId, layers]) => ({ memberId, layers: [...layers] }))
  }

  #list(layer: string, memberId: string): void {
    const holders = this.#holders.get(layer)
    if (holders) holders.add(memberId)
    else this.#holders.set(layer, new Set([memberId]))
  }

  #unlist(layer: string, memberId: string): void {
    const holders = this.#holders.get(layer)
    holders?.delete(memberId)
    if (holders?.size === 0) this.#holders.delete(layer)
  }
}
