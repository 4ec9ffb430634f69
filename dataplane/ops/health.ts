import type { Clock } from '../../shared/clock.ts'
import { storeReason } from '../../shared/problem.ts'
import type { StoreFailure } from '../../shared/store/port.ts'

/** Something that keeps a node from serving. */
interface Reason {
  readonly code: 'draining' | 'cordoned' | StoreFailure | 'lease_lost' | 'clock_wrong'
  readonly detail: string
}

/** Why a node should get no new clients; empty when it can serve. */
export type Reasons = readonly Reason[]

/** What a node's readiness follows from. */
interface ReadinessSource {
  /** Resolves when the store takes writes. */
  readonly ping: () => Promise<void>
  readonly draining: () => boolean
  readonly cordoned: () => boolean
  readonly leaseValid: () => boolean
  /** Why the node's clock is wrong; undefined: it is not. */
  readonly clockWrong: () => string | undefined
  readonly clock: Clock
}

/** How long the store may take to answer. */
const TIMEOUT_MS = 1000
const DRAINING: Reason = { code: 'draining', detail: 'the node is draining' }
const CORDONED: Reason = {
  code: 'cordoned',
  detail: 'the node is cordoned: it takes no new rooms and sessions',
}
const LEASE_LOST: Reason = { code: 'lease_lost', detail: 'the lease of the node has run out' }
const LATE: Reason = { code: 'store_unreachable', detail: `the store did not answer within ${TIMEOUT_MS} ms` }

/**
 * What `/readyz` asks: the store takes writes, the lease stands, the clock agrees with the store's, and the node does not drain and is not cordoned. Calls that come
 * while the store is being asked
 * share the one question, so that a store that hangs is not asked more and more.
 */
export function readiness({
  ping,
  draining,
  cordoned,
  leaseValid,
  clockWrong,
  clock,
}: ReadinessSource): () => Promise<Reasons> {
  let asking: Promise<Reasons> | undefined
  const ask = async (): Promise<Reasons> => {
    let cancel = (): void => {}
    const late = new Promise<Reasons>((resolve) => {
      cancel = clock.schedule(TIMEOUT_MS, () => resolve([LATE]))
    })
    const answer = ping().then(
      () => [],
      (error: unknown) => [storeReason(error)],
    )
    const reasons = await Promise.race([answer, late])
    cancel()
    asking = undefined
    return reasons
  }
  return async () => {
    asking ??= ask()
    const store = await asking
    const wrong = clockWrong()
    return [
      ...(draining() ? [DRAINING] : []),
      ...(cordoned() ? [CORDONED] : []),
      ...store,
      ...(leaseValid() ? [] : [LEASE_LOST]),
      ...(wrong === undefined ? [] : [{ code: 'clock_wrong', detail: wrong } as const]),
    ]
  }
}
