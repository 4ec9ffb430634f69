import { CLOCK_TOLERANCE_MS, REVOCATION_KEPT_MS, type TokenClaims } from '../../shared/tokens.ts'

/**
 * Which players' tokens were revoked, and when: what control has said since this node began, for as long as a token or session of before
 * can come back. Control bounds how many there are of a project.
 */
export class RevokedSubs {
  readonly #projects = new Map<string, Map<string, number>>()

  /** Tokens of `sub` that were issued until `revokedAt` (milliseconds since 1970) are no good. An earlier revocation changes nothing. */
  add(projectId: string, sub: string, revokedAt: number): void {
    const subs = this.#projects.get(projectId) ?? new Map<string, number>()
    this.#projects.set(projectId, subs)
    if (revokedAt <= (subs.get(sub) ?? 0)) return
    subs.delete(sub)
    subs.set(sub, revokedAt)
    for (const [oldest, at] of subs) {
      if (at + REVOCATION_KEPT_MS > revokedAt) break
      subs.delete(oldest)
    }
  }

  /** Whoever issued a token may have a clock that is ahead of control's: its `issued_at` is taken to be as much too late as it may be. */
  has({ project_id: projectId, sub, issued_at: issuedAt }: TokenClaims): boolean {
    const revokedAt = sub === undefined ? undefined : this.#projects.get(projectId)?.get(sub)
    return revokedAt !== undefined && Date.parse(issuedAt) <= revokedAt + CLOCK_TOLERANCE_MS
  }
}
