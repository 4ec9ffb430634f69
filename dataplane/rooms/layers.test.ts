import { describe, expect, it } from 'vitest'
import type { Json, JsonObject } from '../../shared/json.ts'
import { apply } from '../../shared/sync/apply.ts'
import { Checksum } from '../../shared/sync/checksum.ts'
import { SeededRandom } from '../../test/kit/seeded-random.ts'
import type { LayerRules } from './layer-rules.ts'
import { hiddenDelta, Layers, layerDeltas } from './layers.ts'
import { LiveTree } from './live-tree.ts'

const RULES: LayerRules = {
  'hands.*': (memberId) => `member:${memberId}`,
  'units.*.plan': (unit) => (unit < 'b' ? 'team:red' : 'team:blue'),
  'units.*.orders.*': (_, order) => `team:${order}`,
  deck: null,
  'secret.code': 'staff',
}

/** What a layer is by its definition: every path that ends where a pattern does, tried one by one. */
function hiddenIn(state: Json): { path: string[]; layer: string | null }[] {
  const found: { path: string[]; layer: string | null }[] = []
  const enter = (value: Json | undefined, path: string[]) => {
    for (const [pattern, rule] of Object.entries(RULES)) {
      const keys = pattern.split('.')
      if (keys.length !== path.length || !keys.every((key, i) => key === '*' || key === path[i])) continue
      const wild = path.filter((_, i) => keys[i] === '*')
      found.push({ path, layer: typeof rule === 'function' ? rule(...wild) : rule })
      return
    }
    if (path.length < 4 && typeof value === 'object' && value !== null && !Array.isArray(value))
      for (const [key, below] of Object.entries(value)) enter(below, [...path, key])
  }
  enter(state, [])
  return found
}

const at = (state: Json, path: readonly string[]): Json | undefined =>
  path.reduce<Json | undefined>((value, key) => (value as JsonObject | null | undefined)?.[key], state)

function put(state: JsonObject, path: readonly string[], value: Json): void {
  let object = state as Record<string, Json>
  for (const key of path.slice(0, -1)) {
    object[key] ??= {}
    object = object[key] as Record<string, Json>
  }
  object[path.at(-1)!] = value
}

/** Base and layers of a whole state, made from nothing. */
function partsOf(whole: Json): { base: Json; layers: Map<string, JsonObject> } {
  const base = structuredClone(whole)
  const layers = new Map<string, JsonObject>()
  for (const { path, layer } of hiddenIn(whole)) {
    delete (at(base, path.slice(0, -1)) as Record<string, Json>)[path.at(-1)!]
    if (layer === null) continue
    if (!layers.has(layer)) layers.set(layer, {})
    put(layers.get(layer)!, path, at(whole, path)!)
  }
  return { base, layers }
}

/** As clients do it. */
function merged(base: Json, layer: Json): Json {
  const isObject = (value: Json | undefined): value is JsonObject =>
    typeof value === 'object' && value !== null && !Array.isArray(value)
  if (!isObject(base) || !isObject(layer)) return base
  const whole: Record<string, Json> = { ...base }
  for (const [key, value] of Object.entries(layer))
    whole[key] = key in base ? merged(base[key]!, value) : value
  return whole
}

type Open = Record<string, unknown>

/** The object under a key, which is made where it is not there. */
function within(object: Open, key: string): Open {
  object[key] ??= {}
  return object[key] as Open
}

/** Something that a turn may do to a state. */
function change(state: Open, random: SeededRandom): void {
  const below = (n: number) => Math.floor(random.float() * n)
  const pick = <T>(values: readonly T[]): T => values[below(values.length)]!
  const value = () => pick([below(5), [1, { a: below(3) }], { x: 1, y: { z: below(3) } }, null])
  const key = () => pick(['a', 'b', 'c'])
  const { hands, units } = state as { [name: string]: Open | undefined }
  const unit = () => pick(Object.values(units ?? {})) as Open | undefined
  const steps: (() => void)[] = [
    () => {
      within(state, 'hands')[key()] = value()
    },
    () => {
      within(state, 'units')[key()] = { x: 1, plan: value(), orders: { red: 1 } }
    },
    () => {
      within(state, 'units')[key()] = { x: 2 }
    },
    () => {
      state[pick(['deck', 'seen'])] = value()
    },
    () => {
      within(state, 'secret')[pick(['code', 'hint'])] = value()
    },
    // Hidden things become known, known ones are hidden, and hidden ones change hands.
    () => {
      state.seen = hands?.[key()] ?? null
    },
    () => {
      within(state, 'hands')[key()] = state.seen ?? 1
    },
    () => {
      if (hands) hands[key()] = hands[key()] ?? 2
    },
    () => {
      const one = unit()
      if (one) one.plan = state.deck ?? 3
    },
    () => {
      const one = unit()
      if (one) within(one, 'orders')[pick(['red', 'blue'])] = value()
    },
    () => {
      delete unit()?.[pick(['plan', 'orders', 'x'])]
    },
    () => {
      const deep = at(state as JsonObject, ['hands', key(), 'y'])
      if (deep) (deep as Open).z = 7
    },
    () => {
      delete state[pick(['hands', 'units', 'deck', 'secret', 'seen'])]
    },
    () => {
      delete hands?.[key()]
    },
    () => {
      delete units?.[key()]
    },
    () => {
      state.hands = { b: 1, c: [2] }
    },
    () => {
      state.units = { ...units, d: { plan: 4 } }
    },
  ]
  pick(steps)()
}

const FIRST = { hands: { a: [1] }, deck: [1, 2], seen: 0, units: { a: { x: 1, plan: 'north' } } }

function history(seed: number): void {
  const random = new SeededRandom(seed)
  const tree = new LiveTree(FIRST)
  const layers = new Layers(RULES, tree)
  let model: Json = FIRST
  let told = partsOf(FIRST)
  let record: Json = FIRST
  const everMade = new Set(told.layers.keys())
  for (let flush = 0; flush < 40; flush++) {
    for (let turn = random.float() * 4; turn > 0; turn--) {
      const before = tree.plain()
      const state = tree.begin() as Open
      for (let n = random.float() * 4; n > 0; n--) change(state, random)
      if (random.float() < 0.1) tree.replace(random.float() < 0.5 ? FIRST : {})
      if (random.float() < 0.2) {
        tree.undo()
        expect(tree.plain()).toEqual(before)
      } else {
        layers.check()
        tree.commit()
      }
    }
    model = tree.plain()
    const delta = tree.flush()
    const { base, hidden, changed } = layers.flush(delta)
    const update = { hidden, changed, checksum: tree.checksum, sum: layers.sum, grants: [] }
    const expected = partsOf(model)
    expect(layers.base).toEqual(expected.base)
    for (const { layer } of changed) everMade.add(layer)
    expect(new Set([...everMade].filter((name) => layers.of(name)))).toEqual(new Set(expected.layers.keys()))
    for (const [name, state] of expected.layers) {
      expect(layers.of(name)).toEqual({ state, checksum: new Checksum().of(state) })
    }
    expect(layers.checksum).toBe(new Checksum().of(expected.base))
    expect(layers.sum).toBe(new Layers(RULES, new LiveTree(model)).sum)
    // Members who were told of all that came before are told of this.
    const deltas = layerDeltas(update)
    const known = {
      base: base ? apply(told.base, base) : told.base,
      layers: new Map(told.layers),
    }
    expect(new Set(deltas.keys())).toEqual(new Set(changed.map(({ layer }) => layer)))
    for (const { layer, created, checksum } of changed) {
      expect(created).toBe(!told.layers.has(layer))
      const state = apply(known.layers.get(layer) ?? {}, deltas.get(layer)!) as JsonObject
      expect(new Checksum().of(state)).toBe(checksum)
      if (Object.keys(state).length > 0) known.layers.set(layer, state)
      else known.layers.delete(layer)
    }
    expect(known).toEqual(expected)
    let union = structuredClone(known.base)
    for (const state of known.layers.values()) union = merged(union, state)
    for (const { path, layer } of hiddenIn(model))
      if (layer === null) put(union as JsonObject, path, at(model, path)!)
    expect(union).toEqual(model)
    told = known
    // A new owner has the whole from the record.
    if (base) record = apply(record, base)
    const rest = hiddenDelta(record, update)
    if (rest) record = apply(record, rest)
    expect(record).toEqual(model)
  }
}

describe('the layers of a state', () => {
  it('are with its base the whole, whatever turns do, and so are their checksums, deltas and records', () => {
    for (let seed = 1; seed <= 80; seed++)
      try {
        history(seed)
      } catch (error) {
        throw new Error(`the history of seed ${seed}`, { cause: error })
      }
  })
})
