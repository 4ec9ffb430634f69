import { type Clock, sleep, untilNext } from '../../shared/clock.ts'
import { nodeName } from '../../shared/ids.ts'
import { type Logger, Quiet } from '../../shared/log.ts'
import { decodeNodeInfo, encodeNodeInfo, leaseKey, NODES, type NodeInfo } from '../../shared/node-registry.ts'
import { type Records, StoreUnavailable } from '../../shared/store/port.ts'
import type { ClusterMetrics } from './metrics.ts'

/** Dependencies of `NodeLease`. */
export interface LeaseEnvironment {
  readonly nodeId: string
  readonly store: { readonly records: Records; onReturn(callback: () => void): () => void }
  readonly clock: Clock
  readonly log: Logger
  readonly metrics: ClusterMetrics
  /** Time after the last renewal of its lease for which other nodes consider this node alive, in milliseconds. */
  readonly leaseMs: number
  /** Another process has the name of this node. The lease is never valid again, and this process must end immediately. */
  readonly onReplaced: (replaced: Error) => void
}

/** Another process runs under the name of this node, and renews its lease. */
export class NodeIdInUse extends Error {
  override readonly name = 'NodeIdInUse'

  constructor(name: string, leaseMs: number) {
    super(
      `another process runs as the node ${name}: it has renewed its lease for ${leaseMs} ms; stop that process, or give this process another NODE_ID`,
    )
  }
}

/** Another process was started under the name of this node while this one could not renew its lease. */
class NodeReplaced extends Error {
  override readonly name = 'NodeReplaced'

  constructor(nodeId: string, holder: string) {
    super(
      `${holder} has the lease of the node ${nodeName(nodeId)}, and this process, ${nodeId}, has lost it: NODE_ID must be another for each process`,
    )
  }
}

/** An expired lease is logged once in this time. */
const QUIET_MS = 10_000

/** Part of the TTL that is not trusted, because the clocks of this machine and of the store run at slightly different rates. */
const MARGIN = 0.1

/**
 * A node's lease on its name, renewed at a quarter of its TTL, and immediately when the store is available again. The node trusts the lease for the
 * TTL less a margin, counted from the monotonic time before the last successful renewal was sent. A blocked event loop or a suspended machine
 * thus finds it expired, even if timers did not fire. Each answer of the store says whether the lease had expired by the store's clock. A
 * machine whose clock was stopped learns this with the next renewal. A renewal is one write for all rooms of the node. It writes the complete
 * value, so after a loss of its data the store has all living nodes again within a quarter of the TTL.
 */
export class NodeLease {
  readonly #environment: LeaseEnvironment
  readonly #self: { info(): NodeInfo }
  #regained: () => void = () => {}
  #trustedUntil = Number.NEGATIVE_INFINITY
  #renewedAt: number | undefined
  /** Start of the current lease without an interruption, by the store's clock. */
  #since: number | undefined
  #cancel: (() => void) | undefined
  #forgetReturn: (() => void) | undefined
  #stopped = false
  readonly #quiet: Quiet

  /** `self`: this node as it describes itself in its lease. */
  constructor(environment: LeaseEnvironment, self: { info(): NodeInfo }) {
    this.#environment = environment
    this.#self = self
    this.#quiet = new Quiet(environment.clock, QUIET_MS)
    environment.metrics.leaseTtl.set(environment.leaseMs / 1000)
    environment.metrics.leaseAge.read(() => this.ageMs / 1000)
  }

  /**
   * Resolves when this node has acquired the lease: immediately, or after the lease of an earlier process with the node's name has expired. Rejects
   * with `NodeIdInUse` if that process still renews its lease after one lease time. Also rejects if the store cannot be reached.
   *
   * Calls `regained` each time the lease is valid again after it had expired. Other nodes may have claimed rooms of this node.
   */
  async start(regained: () => void): Promise<void> {
    this.#regained = regained
    const { store, clock, nodeId, leaseMs: ttlMs } = this.#environment
    const name = nodeName(nodeId)
    const began = clock.monotonic()
    let version: number | undefined
    let renewedAt = began
    while ((await this.#renew()) !== nodeId) {
      const [lease] = await store.records.read([leaseKey(name)])
      // It has just expired, which is no renewal.
      if (!lease) continue
      const now = clock.monotonic()
      if (version !== undefined && lease.version !== version) renewedAt = now
      version = lease.version
      // A process that has died is waited for, also if its lease is longer than ours.
      if (now - began >= ttlMs && now - renewedAt < ttlMs / 2) throw new NodeIdInUse(name, ttlMs)
      await sleep(clock, ttlMs / 20)
    }
    this.#forgetReturn = store.onReturn(() => void this.renewNow())
    this.#schedule(ttlMs / 4)
  }

  /** Monotonic time until which this node may act as an owner, in milliseconds. */
  get validUntil(): number {
    return this.#trustedUntil
  }

  /** Returns true if this node may act as an owner now. */
  valid(): boolean {
    return this.#environment.clock.monotonic() < this.#trustedUntil
  }

  /** Time since the last successful renewal was sent, in milliseconds. Infinity before the first. */
  get ageMs(): number {
    return this.#environment.clock.monotonic() - (this.#renewedAt ?? Number.NEGATIVE_INFINITY)
  }

  /** Renews immediately, so that other nodes see the node's changes. Never rejects. */
  async renewNow(): Promise<void> {
    if (this.#stopped) return
    const { nodeId, log, onReplaced } = this.#environment
    try {
      const holder = await this.#renew()
      if (holder === nodeId || this.#stopped) return
      this.#end()
      const replaced = new NodeReplaced(nodeId, holder)
      log.error({ holder }, replaced.message)
      onReplaced(replaced)
    } catch (error) {
      if (this.valid()) log.debug({ err: error }, 'the lease could not be renewed')
      else this.#logExpired(error)
    }
  }

  /** Releases the lease, so that other nodes do not wait for its expiry. */
  async stop(): Promise<void> {
    if (this.#stopped) return
    const { store, nodeId, log } = this.#environment
    const name = nodeName(nodeId)
    this.#end()
    try {
      // Only the lease of this process: after a long outage, another process may have the name.
      const [lease] = await store.records.read([leaseKey(name)])
      if (lease === undefined || decodeNodeInfo(lease.value)?.node_id !== nodeId) return
      await store.records.write([
        { remove: leaseKey(name), ifVersion: lease.version },
        { index: NODES, drop: name },
      ])
    } catch (error) {
      log.warn({ err: error }, 'release of the lease failed')
    }
  }

  #end(): void {
    this.#stopped = true
    this.#cancel?.()
    this.#forgetReturn?.()
    this.#trustedUntil = Number.NEGATIVE_INFINITY
  }

  #logExpired(error: unknown): void {
    const suppressed = this.#quiet.pass('expired')
    if (suppressed === undefined) return
    const failure = error instanceof StoreUnavailable && error.failure
    this.#environment.log.warn(
      { ...(failure && { failure }), reason: (error as Error).message, suppressed },
      'the lease could not be renewed: the rooms of this node are frozen',
    )
  }

  /** Sends a renewal. Resolves with the node id of the lease's holder. */
  async #renew(): Promise<string> {
    const { store, nodeId, clock, leaseMs: ttlMs, metrics } = this.#environment
    const name = nodeName(nodeId)
    const sentAt = clock.monotonic()
    const { holder, since } = await store.records.renewLease({
      key: leaseKey(name),
      holder: nodeId,
      value: encodeNodeInfo(this.#self.info()),
      ttlMs,
      listed: { index: NODES, member: name },
    })
    if (this.#stopped || holder !== nodeId) return holder
    if (this.#renewedAt !== undefined) metrics.leaseRenewalInterval.observe((sentAt - this.#renewedAt) / 1000)
    this.#renewedAt = sentAt
    const ranOut = this.#since !== undefined && since !== this.#since
    this.#since = since
    const lapsed = ranOut || (this.#trustedUntil > 0 && clock.monotonic() >= this.#trustedUntil)
    this.#trustedUntil = Math.max(this.#trustedUntil, sentAt + ttlMs * (1 - MARGIN))
    if (lapsed && this.valid()) this.#regained()
    return holder
  }

  #schedule(delayMs: number): void {
    if (this.#stopped) return
    const { clock, leaseMs: ttlMs } = this.#environment
    this.#cancel = clock.schedule(delayMs, () => {
      void this.renewNow().then(() => this.#schedule(untilNext(clock, ttlMs / 4, ttlMs / 20)))
    })
  }
}
