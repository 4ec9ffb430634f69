import type { Json, JsonObject } from '../../shared/json.ts'
import { pointerPart } from '../../shared/sync/delta.ts'

/** The state of a room as a player sees it. */
export interface View {
  readonly player: string
  readonly state: Json
}

/** One state for several players. */
export interface Compared {
  /** All that any of them sees. Where they see different values: that of the first. */
  readonly state: Json
  /** By the path of a value that not all of them see: who does, or what the others see. */
  readonly marks: ReadonlyMap<string, string>
}

/** Compares what players see. */
export function compare(views: readonly View[]): Compared {
  const marks = new Map<string, string>()
  return { state: merge(views, '', marks), marks }
}

function merge(views: readonly View[], path: string, marks: Map<string, string>): Json {
  const [first, ...others] = views
  const { state } = first!
  const lists = views.every((view) => Array.isArray(view.state))
  if (!lists && !views.every((view) => isObject(view.state))) {
    const different = others.filter((view) => JSON.stringify(view.state) !== JSON.stringify(state))
    if (different.length > 0)
      marks.set(path, different.map((view) => `${view.player}: ${JSON.stringify(view.state)}`).join(', '))
    return state
  }
  const keys = new Set(views.flatMap((view) => Object.keys(view.state as JsonObject)))
  const entries = [...keys].map((key): [string, Json] => {
    const seeing = views.flatMap(({ player, state }) => {
      const folder = state as JsonObject
      return Object.hasOwn(folder, key) ? [{ player, state: folder[key]! }] : []
    })
    const at = path + pointerPart(key)
    if (seeing.length < views.length) marks.set(at, `only ${seeing.map(({ player }) => player).join(', ')}`)
    return [key, merge(seeing, at, marks)]
  })
  return lists ? entries.map(([, value]) => value) : Object.fromEntries(entries)
}

const isObject = (value: Json): value is JsonObject =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
