import { create } from 'mutative'
import type { Json } from '../../shared/json.ts'

/** A state that one handler may change, and what comes of it. */
export interface StateDraft {
  /** What the handler gets. */
  readonly root: unknown
  /** The state after the handler, not yet checked. */
  finish(): unknown
  /** The state that the handler returned instead, which may contain parts of the draft; not yet checked. */
  finishAs(state: unknown): unknown
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
export const draftOf = (state: Json): StateDraft =>
  typeof state === 'object' && state !== null && !Array.isArray(state)
    ? new ObjectDraft(state as Record<PropertyKey, unknown>)
    : new HeldDraft(state)

class ObjectDraft implements StateDraft {
  readonly root: Record<PropertyKey, unknown>
  readonly #finalize: () => unknown

  constructor(state: Record<PropertyKey, unknown>) {
    ;[this.root, this.#finalize] = create(state, OPTIONS)
  }

  finish(): unknown {
    return this.#finalize()
  }

  finishAs(state: unknown): unknown {
    if (state === this.root) return this.finish()
    this.root[RETURNED] = state
    return (this.#finalize() as Record<PropertyKey, unknown>)[RETURNED]
  }
}

/** States that are no objects: only a property can hold what becomes of them. */
class HeldDraft implements StateDraft {
  readonly root: unknown
  readonly #holder: { state: unknown }
  readonly #finalize: () => { state: unknown }

  constructor(state: Json) {
    ;[this.#holder, this.#finalize] = create({ state } as { state: unknown }, OPTIONS)
    this.root = this.#holder.state
  }

  finish(): unknown {
    return this.#finalize().state
  }

  finishAs(state: unknown): unknown {
    this.#holder.state = state
    return this.finish()
  }
}
