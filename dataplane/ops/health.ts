import type { Clock } from '../../shared/clock.ts'

/** Something that keeps a node from serving. */
export interface Reason {
  readonly code: 'draining' | 'store_unavailable' | 'lease_lost'
  readonly detail: string
}

/** Why a node should get no new clients; empty when it can serve. */
export type Reasons = readonly Reason[]

export interface ReadinessOptions {
  /** Resolves when the store answers. */
  readonly ping: () => Promise<void>
  readonly draining: () => boolean
  /** Further reasons, such as a lease that is lost. */
  readonly others?: () => Reasons
  readonly clock: Clock
  /** How long the store may take to answer. */
  readonly timeoutMs?: number
}

const DRAINING: Reason = { code: 'draining', detail: 'the node is draining' }
const unavailable = (detail: string): Reason => ({ code: 'store_unavailable', detail })

/**
 * What `/readyz` asks: the store is reachable and the node does not drain. Calls that come while the store is being asked share the
 * one question, so that a store that hangs is not asked more and more.
 */
export function readiness(options: ReadinessOptions): () => Promise<Reasons> {
  const { clock, timeoutMs = 1000 } = options
  let asking: Promise<Reasons> | undefined

  const ask = (): Promise<Reasons> =>
    new Promise<Reasons>((resolve) => {
      const cancel = clock.schedule(timeoutMs, () =>
        resolve([unavailable(`the store did not answer within ${timeoutMs} ms`)]),
      )
      const settle = (reasons: Reasons): void => {
        cancel()
        resolve(reasons)
      }
      options.ping().then(
        () => settle([]),
        () => settle([unavailable('the store cannot be reached')]),
      )
    })

  return async () => {
    asking ??= ask().finally(() => {
      asking = undefined
    })
    const store = await asking
    return [...(options.draining() ? [DRAINING] : []), ...store, ...(options.others?.() ?? [])]
  }
}
