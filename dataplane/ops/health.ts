import type { Clock } from '../../shared/clock.ts'

/** Why a node should get no new clients; empty when it can serve. */
export type Reasons = readonly string[]

export interface ReadinessOptions {
  /** Resolves when the store answers. */
  readonly ping: () => Promise<void>
  readonly draining: () => boolean
  /** Further reasons, such as a lease that is lost. */
  readonly others?: () => Reasons
  readonly clock: Clock
  /** How long the store may take to answer. */
  readonly timeout_ms?: number
}

/**
 * What `/readyz` asks: the store is reachable and the node does not drain. Calls that come while the store is being asked share the
 * one question, so that a store that hangs is not asked more and more.
 */
export function readiness(options: ReadinessOptions): () => Promise<Reasons> {
  const { clock, timeout_ms = 1000 } = options
  let asking: Promise<Reasons> | undefined

  const ask = (): Promise<Reasons> =>
    new Promise<Reasons>((resolve) => {
      const cancel = clock.schedule(timeout_ms, () =>
        resolve([`the store did not answer within ${timeout_ms} ms`]),
      )
      const settle = (reasons: Reasons): void => {
        cancel()
        resolve(reasons)
      }
      options.ping().then(
        () => settle([]),
        () => settle(['the store cannot be reached']),
      )
    })

  return async () => {
    asking ??= ask().finally(() => {
      asking = undefined
    })
    const store = await asking
    return [...(options.draining() ? ['the node is draining'] : []), ...store, ...(options.others?.() ?? [])]
  }
}
