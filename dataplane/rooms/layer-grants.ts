import { ownLayer } from './layer-rules.ts'

/** A member has a layer from here on, or has it no more. */
export interface Grant {
  readonly memberId: string
  readonly layer: string
  readonly shown: boolean
}

/** The layers that a member was shown. */
export interface MemberGrants {
  readonly memberId: string
  readonly layers: readonly string[]
}

const NONE: ReadonlySet<string> = new Set()

/**
 * Which members have which layers: each its own, and what it was shown. Turns change what is *present*; members, and the room's record, know what was
 * *flushed*.
 */
export class Grants {
  /** By member, what it was shown. */
  readonly #present = new Map<string, Set<string>>()
  readonly #flushed = new Map<string, ReadonlySet<string>>()
  /** By layer, who was shown it as of the last flush. */
  readonly #holders = new Map<string, Set<string>>()
  /** Members of whom something may have changed since. */
  readonly #changed = new Set<string>()

  constructor(recorded: readonly MemberGrants[]) {
    for (const { memberId, layers } of recorded) {
      this.#present.set(memberId, new Set(layers))
      this.#changed.add(memberId)
    }
    this.flush()
  }

  /** Whether turns have changed anything since the last flush. */
  get dirty(): boolean {
    return this.#changed.size > 0
  }

  /** How many layers a member was shown. */
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

  /** The member has left. */
  forget(memberId: string): void {
    if (this.#present.delete(memberId)) this.#changed.add(memberId)
  }

  /** Whether a member has a layer at present. */
  has(memberId: string, layer: string): boolean {
    return layer === ownLayer(memberId) || this.#present.get(memberId)?.has(layer) === true
  }

  /** Everything since the last flush is of this one. Returns what has changed of members who are still there. */
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

  /** The layers of a member as of the last flush, its own included. */
  of(memberId: string): string[] {
    return [ownLayer(memberId), ...(this.#flushed.get(memberId) ?? NONE)]
  }

  /** Who was shown a layer as of the last flush. */
  holders(layer: string): Iterable<string> {
    return this.#holders.get(layer) ?? NONE
  }

  /** As of the last flush. */
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
