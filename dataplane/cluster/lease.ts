import type { Clock } from '../../shared/clock.ts'
import type { Logger } from '../../shared/log.ts'
import type { Store } from '../../shared/store/port.ts'
import { nodeName } from '../node-id.ts'
import type { ClusterMetrics } from './metrics.ts'

/** Where the lease of a node is recorded, with what it tells of itself. It is there while the node lives; of processes with one name, one has it. */
export const leaseKey = (name: string): string => `{nodes}:lease:${name}`

/** The ordered set of the names of all nodes that live, and of some that have died. */
export const NODES = '{nodes}'

/** What a lease is made of. */
export interface NodeLeaseParts {
  readonly node_id: string
  readonly store: Pick<Store, 'records' | 'onReturn'>
  readonly clock: Clock
  readonly log: Logger
  readonly metrics: ClusterMetrics
  /** How long others take the node for alive after its last renewal. */
  readonly ttl_ms: number
  /** What the others are told with each renewal. */
  readonly info: () => NodeInfo
  /** The lease stands again after it had run out: what the node owned may be another's by now. */
  readonly on_regained: () => void
  /** Another process has the name of this node: the lease is never valid again, and this process is to end at once. */
  readonly on_replaced: (replaced: NodeReplaced) => void
}

/** Another process runs under the name of this node, and renews its lease. */
export class NodeIdInUse extends Error {
  override readonly name = 'NodeIdInUse'

  constructor(name: string, lease_ms: number) {
    super(
      `another process runs as the node ${name}: it has renewed its lease for ${lease_ms} ms; stop that process, or give this one a NODE_ID of its own`,
    )
  }
}

/** Another process was started under the name of this node while this one could not renew its lease. */
export class NodeReplaced extends Error {
  override readonly name = 'NodeReplaced'

  constructor(node_id: string, holder: string) {
    super(
      `${holder} has the lease of the node ${nodeName(node_id)}, and this process, ${node_id}, has lost it: NODE_ID must be another for each process`,
    )
  }
}

/** This much of the TTL is not trusted: the clocks of this machine and of the store do not run exactly alike. */
const MARGIN = 0.1

/**
 * A node's claim to be alive, and to its name, renewed at a quarter of its TTL, and at once when the store is back. Trusted until the
 * monotonic time before the last successful renewal was sent, plus the TTL, less a margin: a blocked event loop or a paused machine finds it
 * expired, whatever timers did not fire. The store tells with each renewal whether the lease had run out by its own clock: a machine whose
 * clock stood still finds that out with the next renewal. A renewal is one write, however many rooms the node owns, and nothing but that
 * write can fail; it says everything again, so that a store which has lost its data has all living nodes again after a quarter of the TTL.
 */
export class NodeLease {
  readonly #parts: NodeLeaseParts
  #trusted_until = Number.NEGATIVE_INFINITY
  #renewed_at: number | undefined
  /** Since when the store has had the lease without a break. */
  #since: number | undefined
  #lapsed = false
  #cancel: (() => void) | undefined
  #forget_return: (() => void) | undefined
  #stopped = false

  constructor(parts: NodeLeaseParts) {
    this.#parts = parts
    parts.metrics.leaseTtl.set(parts.ttl_ms / 1000)
    parts.metrics.leaseAge.read(() => this.age_ms / 1000)
  }

  /**
   * Resolves when the lease stands for the first time: at once, or when that of an earlier process with this node's name has run out.
   * Rejects with `NodeIdInUse` when that one is still renewed after a lease time, and when the store cannot be reached.
   */
  async start(): Promise<void> {
    const { store, clock, node_id, ttl_ms } = this.#parts
    const name = nodeName(node_id)
    const began = clock.monotonic()
    let version: number | undefined
    let renewed_at = began
    while ((await this.#renew()) !== node_id) {
      const [lease] = await store.records.read([leaseKey(name)])
      const now = clock.monotonic()
      if (version !== undefined && lease?.version !== version) renewed_at = now
      version = lease?.version
      // One that has died meanwhile is waited for, also when its leases are longer.
      if (now - began >= ttl_ms && now - renewed_at < ttl_ms / 2) throw new NodeIdInUse(name, ttl_ms)
      await new Promise<void>((resolve) => clock.schedule(ttl_ms / 20, resolve))
    }
    this.#forget_return = store.onReturn(() => void this.renewNow())
    this.#schedule(ttl_ms / 4)
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
    const { node_id, log, on_replaced } = this.#parts
    try {
      const holder = await this.#renew()
      if (holder === node_id || this.#stopped) return
      this.#end()
      const replaced = new NodeReplaced(node_id, holder)
      log.error({ holder }, replaced.message)
      on_replaced(replaced)
    } catch (error) {
      const level = this.valid() ? 'debug' : 'warn'
      log[level]({ err: error }, 'the lease could not be renewed')
    }
  }

  /** Ends the lease, so that others need not wait for it to run out. */
  async stop(): Promise<void> {
    if (this.#stopped) return
    const { store, node_id, log } = this.#parts
    const name = nodeName(node_id)
    this.#end()
    try {
      // Of this process: one that could not renew for long may find another's.
      const [lease] = await store.records.read([leaseKey(name)])
      if (lease === undefined || decodeNodeInfo(lease.value)?.node_id !== node_id) return
      await store.records.write([
        { remove: leaseKey(name), if_version: lease.version },
        { index: NODES, drop: name },
      ])
    } catch (error) {
      log.warn({ err: error }, 'the lease could not be ended; it runs out by itself')
    }
  }

  #end(): void {
    this.#stopped = true
    this.#cancel?.()
    this.#forget_return?.()
    this.#trusted_until = Number.NEGATIVE_INFINITY
  }

  /** Resolves with who has the lease. */
  async #renew(): Promise<string> {
    const { store, node_id, clock, ttl_ms, info, metrics, on_regained } = this.#parts
    const name = nodeName(node_id)
    const sent_at = clock.monotonic()
    const { holder, since } = await store.records.renewLease({
      key: leaseKey(name),
      holder: node_id,
      value: encodeNodeInfo(info()),
      ttl_ms,
      index: NODES,
      member: name,
    })
    if (this.#stopped || holder !== node_id) return holder
    if (this.#renewed_at !== undefined)
      metrics.leaseRenewalInterval.observe((sent_at - this.#renewed_at) / 1000)
    this.#renewed_at = sent_at
    const ran_out = this.#since !== undefined && since !== this.#since
    this.#since = since
    // Also when no one asked while it was expired.
    const lapsed =
      ran_out || this.#lapsed || (this.#trusted_until > 0 && clock.monotonic() >= this.#trusted_until)
    this.#trusted_until = Math.max(this.#trusted_until, sent_at + ttl_ms * (1 - MARGIN))
    this.#lapsed = false
    if (lapsed && this.valid()) on_regained()
    return holder
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

/** What a node tells the others about itself, with each renewal of its lease. */
export interface NodeInfo {
  readonly node_id: string
  /** RFC 3339. */
  readonly started_at: string
  readonly version: string
  /** It gives its rooms away, and takes nothing more. */
  readonly draining: boolean
  /** Rooms it owns. */
  readonly rooms: number
  readonly sessions: number
  /** How busy it is, 0–1. */
  readonly load: number
  /** Rooms and sessions it takes at most. */
  readonly max_rooms: number
  readonly max_sessions: number
  /** Where its websockets are accepted. */
  readonly ws_url?: string
  /** Where clients from outside reach it. */
  readonly advertise_url?: string
  readonly admin_url?: string
}

const NUMBERS = ['rooms', 'sessions', 'load', 'max_rooms', 'max_sessions'] as const
const TEXTS = ['started_at', 'version'] as const
const URLS = ['ws_url', 'advertise_url', 'admin_url'] as const

export const encodeNodeInfo = (info: NodeInfo): Uint8Array => new TextEncoder().encode(JSON.stringify(info))

/** Reads what `encodeNodeInfo` wrote, also by a node of another version: fields it does not know are left out. Undefined for anything else. */
export function decodeNodeInfo(bytes: Uint8Array): NodeInfo | undefined {
  let value: unknown
  try {
    value = JSON.parse(new TextDecoder().decode(bytes))
  } catch {
    return undefined
  }
  if (typeof value !== 'object' || value === null) return undefined
  const fields = value as Record<string, unknown>
  const { node_id, draining } = fields
  if (typeof node_id !== 'string' || typeof draining !== 'boolean') return undefined
  if (NUMBERS.some((name) => typeof fields[name] !== 'number')) return undefined
  if (TEXTS.some((name) => typeof fields[name] !== 'string')) return undefined
  const known = [
    'node_id',
    'draining',
    ...NUMBERS,
    ...TEXTS,
    ...URLS.filter((name) => typeof fields[name] === 'string'),
  ]
  return Object.fromEntries(known.map((name) => [name, fields[name]])) as unknown as NodeInfo
}
