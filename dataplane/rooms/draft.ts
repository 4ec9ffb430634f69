import { create } from 'mutative'
import type { Json } from '../../shared/json.ts'

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

/**
 * The state after `change`, not yet checked. `change` gets a draft of `state` and returns undefined, or the state to be instead, which
 * may contain parts of the draft. `state` itself never changes, and what `change` leaves alone is shared with it. Drafts are dead
 * afterwards, also when `change` throws.
 */
export const produce = (state: Json, change: (draft: unknown) => unknown): unknown =>
  typeof state === 'object' && state !== null && !Array.isArray(state)
    ? produceObject(state as Record<PropertyKey, unknown>, change)
    : produceHeld(state, change)

function produceObject(state: Record<PropertyKey, unknown>, change: (draft: unknown) => unknown): unknown {
  let instead: unknown
  const next = create(
    state,
    (draft) => {
      instead = change(draft)
      if (instead === draft) instead = undefined
      if (instead !== undefined) draft[RETURNED] = instead
    },
    OPTIONS,
  )
  return instead === undefined ? next : next[RETURNED]
}

/** States that are no objects: only a property can hold what becomes of them. */
const produceHeld = (state: Json, change: (draft: unknown) => unknown): unknown =>
  create(
    { state } as { state: unknown },
    (holder) => {
      const instead = change(holder.state)
      if (instead !== undefined) holder.state = instead
    },
    OPTIONS,
  ).state
