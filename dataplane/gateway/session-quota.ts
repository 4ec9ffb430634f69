import { createHash } from 'node:crypto'
import type { Clock } from '../../shared/clock.ts'
import type { TokenClaims } from '../../shared/tokens.ts'
import type { Refusal } from './authentication.ts'
import type { GatewayMetrics } from './metrics.ts'
import { principalOf } from './session.ts'
import type { QuotaPlace, SessionStore, StoredSession } from './session-record.ts'

/** How many sessions one player may have in the whole cluster, and one token that names no player; 0: as many as come. */
export interface QuotaBounds {
  readonly maxSessionsPerSub: number
  readonly maxSessionsPerToken: number
}

/** What a quota of sessions takes. */
export interface SessionQuotaParts extends QuotaBounds {
  readonly store: SessionStore
  readonly clock: Clock
  readonly metrics: GatewayMetrics
  /** Whether the lease of a node has run out; one that only seems to have ended may hold the socket. Rejects with `StoreUnavailable`. */
  readonly nodeDead: (nodeId: string) => Promise<boolean>
  /** Ends a session, wherever it is. False: its record is not the one that was read any more. */
  readonly evict: (stored: StoredSession) => Promise<boolean>
}

/** How long a newcomer may be without a record: what is longer in the set and has none is over. */
const SETTLE_MS = 10_000
/** How often a newcomer tries to have room made. */
const ATTEMPTS = 3

/**
 * Counts the sessions of a player (`sub`) in the whole cluster, or where a token names none, those of the token. When there are as many as there
 * may be, the newcomer takes the place of the one that has been there for longest and has no connection. When all are connected it is refused, or when
 * the oldest 32 are: a refusal costs no more reads than that, however many there may be.
 */
export class SessionQuota {
  readonly #parts: SessionQuotaParts

  constructor(parts: SessionQuotaParts) {
    this.#parts = parts
  }

  /** A place for a new session, or why there is none. Undefined: it needs none. Rejects with `StoreUnavailable`. */
  async enter(sessionId: string, claims: TokenClaims): Promise<QuotaPlace | Refusal | undefined> {
    const { store, clock } = this.#parts
    const quota = this.#quotaOf(claims)
    if (!quota) return undefined
    const place: QuotaPlace = { set: quota.set, came_at: clock.now() }
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      if (await store.enter(sessionId, place, quota.max)) return place
      if (!(await this.#makeRoom(quota.set))) break
    }
    return {
      close: 'rate_limited',
      reason: `there are ${quota.max} sessions of this ${quota.of} already: end one first`,
    }
  }

  #quotaOf(
    claims: TokenClaims,
  ): { readonly of: string; readonly max: number; readonly set: string } | undefined {
    const { maxSessionsPerSub, maxSessionsPerToken } = this.#parts
    const { sub, project_id: projectId } = claims
    const max = sub === undefined ? maxSessionsPerToken : maxSessionsPerSub
    if (max === 0) return undefined
    const name = createHash('sha256').update(`${projectId}/${principalOf(claims)}`)
    return { of: sub === undefined ? 'token' : 'player (sub)', max, set: `quota:${name.digest('base64url')}` }
  }

  /** Takes those out that are over, or ends the oldest one without a connection. False: there is nothing to be had. */
  async #makeRoom(set: string): Promise<boolean> {
    const { store, clock, nodeDead, evict, metrics } = this.#parts
    const settled = (await store.oldest(set)).filter(
      ({ came_at: cameAt }) => clock.now() - cameAt >= SETTLE_MS,
    )
    const found = await store.loadAll(settled.map(({ session_id: sessionId }) => sessionId))
    const over = settled.filter((_, index) => found[index] === undefined)
    await Promise.all(
      over.map(({ session_id: sessionId, came_at: cameAt }) =>
        store.leave(sessionId, { set, came_at: cameAt }),
      ),
    )
    if (over.length > 0) return true
    for (const stored of found) {
      if (!stored?.record.place) continue
      if (!stored.record.detached && !(await nodeDead(stored.record.node_id))) continue
      if (!(await evict(stored))) continue
      metrics.sessionsEvicted.inc()
      await store.leave(stored.record.session_id, stored.record.place)
      return true
    }
    return false
  }
}
