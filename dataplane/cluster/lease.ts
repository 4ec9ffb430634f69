import type { Clock } from '../../shared/clock.ts'
import type { Logger } from '../../shared/log.ts'
import type { Records } from '../../shared/store/port.ts'

/** Where a node's lease is recorded. It is there while the node lives. */
export const leaseKey = (node_id: string): string => `lease:${node_id}`

/** What a lease is made of. */
export interface NodeLeaseParts {
  readonly node_id: string
  readonly records: Records
  readonly clock: Clock
  readonly log: Logger
  /** How long others take the node for alive after its last renewal. */
  readonly ttl_ms: number
  /** The lease stands again after it had run out: what the node owned may be another's by now. */
  readonly on_regained: () => void
}

/** This much of the TTL is not trusted: the clocks of this machine and of the store do not run exactly alike. */
const MARGIN = 0.1

/**
 * A node's claim to be alive, renewed at a quarter of its TTL. Trusted until the monotonic time before the last successful renewal was
 * sent, plus the TTL, less a margin: a blocked event loop or a paused machine finds it expired, whatever timers did not fire.
 */
export class NodeLease {
  readonly #parts: NodeLeaseParts
  #trusted_until = Number.NEGATIVE_INFINITY
  #lapsed = false
  #cancel: (() => void) | undefined
  #stopped = false

  constructor(parts: NodeLeaseParts) {
    this.#parts = parts
  }

  /** Resolves when the lease stands for the first time; rejects when the store cannot be reached. */
  async start(): Promise<void> {
    await this.#renew()
    this.#schedule(this.#parts.ttl_ms / 4)
  }

  /** Whether this node may act at this moment. */
  valid(): boolean {
    if (this.#parts.clock.monotonic() < this.#trusted_until) return true
    this.#lapsed = true
    return false
  }

  /** Ends the lease, so that others need not wait for it to run out. */
  async stop(): Promise<void> {
    const { records, node_id, log } = this.#parts
    this.#stopped = true
    this.#cancel?.()
    this.#trusted_until = Number.NEGATIVE_INFINITY
    try {
      await records.write([{ remove: leaseKey(node_id) }])
    } catch (error) {
      log.warn({ err: error }, 'the lease could not be ended; it runs out by itself')
    }
  }

  async #renew(): Promise<void> {
    const { records, node_id, clock, ttl_ms } = this.#parts
    const sent_at = clock.monotonic()
    await records.write([{ put: leaseKey(node_id), value: new Uint8Array(0), ttl_ms }])
    if (this.#stopped) return
    // Also when nobody asked while it was expired.
    const lapsed = this.#lapsed || (this.#trusted_until > 0 && clock.monotonic() >= this.#trusted_until)
    this.#trusted_until = sent_at + ttl_ms * (1 - MARGIN)
    this.#lapsed = false
    if (lapsed && this.valid()) this.#parts.on_regained()
  }

  #schedule(delay_ms: number): void {
    if (this.#stopped) return
    const { clock, log, ttl_ms } = this.#parts
    this.#cancel = clock.schedule(delay_ms, () => {
      const began = clock.monotonic()
      this.#renew()
        .catch((error: unknown) => {
          const level = this.valid() ? 'debug' : 'warn'
          log[level]({ err: error }, 'the lease could not be renewed')
        })
        .then(() => this.#schedule(Math.max(ttl_ms / 20, ttl_ms / 4 - (clock.monotonic() - began))))
    })
  }
}
