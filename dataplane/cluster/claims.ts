import type { Logger } from '../../shared/log.ts'
import type { Claim, Store } from '../../shared/store/port.ts'
import { leaseKey } from './lease.ts'

/** What claims are made with. */
export interface ClaimsParts {
  readonly node_id: string
  readonly store: Pick<Store, 'rooms' | 'records'>
  readonly log: Logger
  /** How long a room's record outlives its last write; default 10 minutes. */
  readonly record_ttl_ms?: number
}

const ATTEMPTS = 3
const RECORD_TTL_MS = 600_000

/** Makes this node the owner of rooms that have none, or whose owner is dead. */
export class Claims {
  readonly #parts: ClaimsParts

  constructor(parts: ClaimsParts) {
    this.#parts = parts
  }

  /**
   * Claims `project/type:key`. `elsewhere`: a living node owns it. `absent`: there is no record of it, and `create` is false.
   * `unavailable`: the store does not answer.
   */
  async claim(
    room: string,
    { create }: { readonly create: boolean },
  ): Promise<Claim | 'elsewhere' | 'absent' | 'unavailable'> {
    const { node_id, store, log, record_ttl_ms = RECORD_TTL_MS } = this.#parts
    try {
      for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
        const found = await store.rooms.inspect(room)
        if (!found && !create) return 'absent'
        if (found && (await this.#isOwned(found.owner))) return 'elsewhere'
        const claim = await store.rooms.claim(room, node_id, found?.epoch ?? 0, record_ttl_ms)
        if (claim) return claim
        // Somebody was faster: they own it now, or have released it again.
      }
      return 'elsewhere'
    } catch (error) {
      log.warn({ err: error, room }, 'a room could not be claimed')
      return 'unavailable'
    }
  }

  /** Whether another node owns the room and lives. What this node is said to own, but does not run, is free. */
  async #isOwned(owner: string | null): Promise<boolean> {
    if (owner === null || owner === this.#parts.node_id) return false
    const [lease] = await this.#parts.store.records.read([leaseKey(owner)])
    return lease !== undefined
  }
}
