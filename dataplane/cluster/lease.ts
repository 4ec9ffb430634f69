import type { Clock } from '../../shared/clock.ts'
import type { Logger } from '../../shared/log.ts'
import type { Store } from '../../shared/store/port.ts'
import type { ClusterMetrics } from './metrics.ts'
import { encodeNodeInfo, type NodeInfo } from './node-info.ts'

/** Where a node's lease is recorded, with what it tells of itself. It is there while the node lives. */
export const leaseKey = (node_id: string): string => `{nodes}:lease:${node_id}`

/** The ordered set of the ids of all nodes that live, and of some that have died. */
export const NODES = '{nodes}'

/** What a lease is made of. */
export interface NodeLeaseParts {
  readonly node_id: string
  readonly store: Pick<Store, 'records' | 'onReturn'>
  readonly clock: Clock
  readonly log: Logger
  readonly metrics: Pick<ClusterMetrics, 'leaseRenewed'>
  /** How long others take the node for alive after its last renewal. */
  readonly ttl_ms: number
  /** What the others are told with each renewal. */
  readonly info: () => NodeInfo
  /** The lease stands again after it had run out: what the node owned may be another's by now. */
  readonly on_regained: () => void
}

/** This much of the TTL is not trusted: the clocks of this machine and of the store do not run exactly alike. */
const MARGIN = 0.1

/**
 * A node's claim to be alive, renewed at a quarter of its TTL, and at once when the store is back. Trusted until the monotonic time
 * before the last successful renewal was sent, plus the TTL, less a margin: a blocked event loop or a paused machine finds it expired,
 * whatever timers did not fire. A renewal is one write, however many rooms the node owns; it says everything anew, so that a store
 * which has lost its data has all living nodes again after a quarter of the TTL.
 */
export class NodeLease {
  readonly #parts: NodeLeaseParts
  #trusted_until = Number.NEGATIVE_INFINITY
  #renewed_at: number | undefined
  #lapsed = false
  #cancel: (() => void) | undefined
  #forget_return: (() => void) | undefined
  #stopped = false

  constructor(parts: NodeLeaseParts) {
    this.#parts = parts
  }

  /** Resolves when the lease stands for the first time; rejects when the store cannot be reached. */
  async start(): Promise<void> {
    await this.#renew()
    this.#forget_return = this.#parts.store.onReturn(() => void this.renewNow())
    this.#schedule(this.#parts.ttl_ms / 4)
  }

  /** Whether this node may act at this moment. */
  valid(): boolean {
    if (this.#parts.clock.monotonic() < this.#trusted_until) return true
    this.#lapsed = true
    return false
  }

  /** Since the last successful renewal was sent, milliseconds; Infinity before the first. */
  get age_ms(): number {
    return this.#parts.clock.monotonic() - (this.#renewed_at ?? Number.NEGATIVE_INFINITY)
  }

  /** Renews without waiting for its time, so that the others hear now what has changed. Never rejects. */
  async renewNow(): Promise<void> {
    if (this.#stopped) return
    try {
      await this.#renew()
    } catch (error) {
      const level = this.valid() ? 'debug' : 'warn'
      this.#parts.log[level]({ err: error }, 'the lease could not be renewed')
    }
  }

  /** Ends the lease, so that others need not wait for it to run out. */
  async stop(): Promise<void> {
    const { store, node_id, log } = this.#parts
    this.#stopped = true
    this.#cancel?.()
    this.#forget_return?.()
    this.#trusted_until = Number.NEGATIVE_INFINITY
    try {
      await store.records.write([{ remove: leaseKey(node_id) }, { index: NODES, drop: node_id }])
    } catch (error) {
      log.warn({ err: error }, 'the lease could not be ended; it runs out by itself')
    }
  }

  async #renew(): Promise<void> {
    const { store, node_id, clock, ttl_ms, info, metrics, on_regained } = this.#parts
    const sent_at = clock.monotonic()
    await store.records.write([
      { put: leaseKey(node_id), value: encodeNodeInfo(info()), ttl_ms },
      { index: NODES, add: node_id },
    ])
    if (this.#stopped) return
    if (this.#renewed_at !== undefined) metrics.leaseRenewed((sent_at - this.#renewed_at) / 1000)
    this.#renewed_at = sent_at
    // Also when nobody asked while it was expired.
    const lapsed = this.#lapsed || (this.#trusted_until > 0 && clock.monotonic() >= this.#trusted_until)
    this.#trusted_until = Math.max(this.#trusted_until, sent_at + ttl_ms * (1 - MARGIN))
    this.#lapsed = false
    if (lapsed && this.valid()) on_regained()
  }

  #schedule(delay_ms: number): void {
    if (this.#stopped) return
    const { clock, ttl_ms } = this.#parts
    this.#cancel = clock.schedule(delay_ms, () => {
      const began = clock.monotonic()
      void this.renewNow().then(() =>
        this.#schedule(Math.max(ttl_ms / 20, ttl_ms / 4 - (clock.monotonic() - began))),
      )
    })
  }
}
