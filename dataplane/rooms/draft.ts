import { create } from 'mutative'
import type { Json } from '../../shared/json.ts'

/** A state that one handler may change, and what comes of it. */
export interface StateDraft {
  /** What the handler gets. */
  readonly root: unknown
  /** The state after the handler, not yet checked; `returned` is the new state it returned, which may contain parts of the draft. */
  finish(returned?: { readonly state: unknown }): unknown
}

/** Where a returned state rides along in the draft, so that drafts inside it are resolved with the rest. */
const RETURNED = Symbol('returned')

const OPTIONS = {
  enableAutoFreeze: false,
  // Objects without a prototype are JSON too (Object.groupBy makes them); everything else that is no plain object is left to checkJson.
  mark: (target: unknown) =>
    typeof target === 'object' && target !== null && Object.getPrototypeOf(target) === null
      ? ('immutable' as const)
      : undefined,
}

/** A draft of `state`, which itself never changes. What the handler leaves alone is shared with it. */
export function draftOf(state: Json): StateDraft {
  if (typeof state !== 'object' || state === null || Array.isArray(state)) return draftInHolder(state)
  const [root, finalize] = create(state as Record<PropertyKey, unknown>, OPTIONS)
  return {
    root,
    finish: (returned) => {
      if (!returned || returned.state === root) return finalize()
      root[RETURNED] = returned.state
      return (finalize() as Record<PropertyKey, unknown>)[RETURNED]
    },
  }
}

/** States that are no objects: only a property can hold what becomes of them. */
function draftInHolder(state: Json): StateDraft {
  const [holder, finalize] = create({ state } as { state: unknown }, OPTIONS)
  return {
    root: holder.state,
    finish: (returned) => {
      if (returned) holder.state = returned.state
      return finalize().state
    },
  }
}
