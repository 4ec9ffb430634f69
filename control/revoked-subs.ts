import type { Clock } from '../shared/clock.ts'
import { publishKeyNews } from '../shared/key-news.ts'
import { Problem } from '../shared/problem.ts'
import type { Bus, Records } from '../shared/store/port.ts'
import { REVOCATION_KEPT_MS } from '../shared/tokens.ts'

/** A player whose tokens were revoked; `revoked_at` in milliseconds since 1970. */
export interface RevokedSub {
  readonly sub: string
  readonly revoked_at: number
}

const keyFor = (projectId: string): string => `{control}:revoked-subs:${projectId}`

/** The players whose tokens were revoked, one record a project; each is kept as long as a token of before may come back. */
export class RevokedSubs {
  readonly #parts: {
    readonly records: Records
    readonly bus: Bus
    readonly clock: Clock
    readonly max: number
  }

  /** `max`: how many players of a project may be revoked at once. */
  constructor(parts: {
    readonly records: Records
    readonly bus: Bus
    readonly clock: Clock
    readonly max: number
  }) {
    this.#parts = parts
  }

  /**
   * Makes every token of a player that was issued before now worthless, and tells every node. Again: the same for those that were issued
   * since. Rejects with a `Problem` (conflict) when as many are revoked as may be.
   */
  async revoke(projectId: string, sub: string): Promise<RevokedSub> {
    const { records, bus, clock, max } = this.#parts
    for (;;) {
      const { revoked, version } = await this.#read(projectId)
      const entry: RevokedSub = { sub, revoked_at: clock.now() }
      const next = [...revoked.filter((other) => other.sub !== sub), entry]
      if (next.length > max)
        throw new Problem(
          'conflict',
          `${max} players of ${projectId} are revoked already: revoke the key of their tokens instead, or wait, since each is kept for ${REVOCATION_KEPT_MS / 3_600_000} hours only.`,
        )
      const value = new TextEncoder().encode(JSON.stringify(next))
      const write = { put: keyFor(projectId), value, ifVersion: version, ttlMs: REVOCATION_KEPT_MS }
      if (!(await records.write([write]))) continue
      await publishKeyNews(bus, { project_id: projectId, ...entry })
      return entry
    }
  }

  /** Those of a project that still count. */
  async list(projectId: string): Promise<readonly RevokedSub[]> {
    return (await this.#read(projectId)).revoked
  }

  /** Removes those of a project. */
  async removeAll(projectId: string): Promise<void> {
    await this.#parts.records.write([{ remove: keyFor(projectId) }])
  }

  async #read(projectId: string): Promise<{ revoked: readonly RevokedSub[]; version: number }> {
    const { records, clock } = this.#parts
    const [record] = await records.read([keyFor(projectId)])
    if (!record) return { revoked: [], version: 0 }
    const stored = JSON.parse(new TextDecoder().decode(record.value)) as readonly RevokedSub[]
    const since = clock.now() - REVOCATION_KEPT_MS
    return { revoked: stored.filter((entry) => entry.revoked_at > since), version: record.version }
  }
}
