import type { Clock } from '../../shared/clock.ts'
import type { Logger } from '../../shared/log.ts'
import type { Store } from '../../shared/store/port.ts'
import type { ClusterNodeDescription } from '../descriptions.ts'
import { nodeName } from '../node-id.ts'
import { decodeNodeInfo, leaseKey, NODES, type NodeInfo } from './lease.ts'
import { nodeChannel } from './links.ts'
import type { ClusterMetrics } from './metrics.ts'

/** What a view of the cluster is made of. */
export interface NodesParts {
  readonly node_id: string
  readonly store: Pick<Store, 'records' | 'bus' | 'uptime' | 'onReturn'>
  readonly clock: Clock
  readonly log: Logger
  readonly metrics: ClusterMetrics
  /** How long a lease lasts after its renewal. */
  readonly lease_ms: number
  /** This node, as of now. */
  readonly info: () => NodeInfo
  /** Another node has died or ended; once for each time it does. */
  readonly on_gone: (node_id: string) => void
  /** Another node is alive that was not, or was not known. */
  readonly on_joined: (node: NodeInfo) => void
}

const POLL_MS = 100
/** A node that no one listens for, at two polls this far apart and all between, is presumed dead. */
const SILENT_MS = 200
/** Until a store is as old as a lease and this, nodes may not have come back to it. */
const YOUNG_MS = 1000
/** For this many leases a dead node stays in the index, and is remembered. */
const REMEMBERED_LEASES = 10
const PAGE = 500

/** Another node, as it was last seen. */
interface Seen {
  info: NodeInfo
  gone: boolean
  /** Since when it has had no lease; undefined: it has one. */
  without_lease_since: number | undefined
  /** Since when no one has listened on its channel. */
  silent_since: number | undefined
}

/**
 * Who is in the cluster, as this node sees it: nodes whose lease stands, less those that no longer listen. Wrong guesses are harmless,
 * the fence of the rooms decides. A node has to listen before its first lease is written.
 */
export class Nodes {
  readonly #parts: NodesParts
  readonly #others = new Map<string, Seen>()
  /** Until then no one is judged dead. */
  #held_until = Number.NEGATIVE_INFINITY
  #held_since = Number.NEGATIVE_INFINITY
  #store_age_known = false
  #listeners_known = true
  #store_fails = false
  #cancel_reading: (() => void) | undefined
  #cancel_poll: (() => void) | undefined
  #forget_return: (() => void) | undefined
  #stopped = false

  constructor(parts: NodesParts) {
    this.#parts = parts
  }

  /** Resolves when the others have been read for the first time; rejects when the store cannot be reached. */
  async start(): Promise<void> {
    await this.#read()
    this.#forget_return = this.#parts.store.onReturn(() => this.hold())
    this.#scheduleReading()
  }

  stop(): void {
    this.#stopped = true
    this.#cancel_reading?.()
    this.#cancel_poll?.()
    this.#forget_return?.()
  }

  /** The nodes that are alive, this one first. Those that drain are among them. */
  nodes(): readonly NodeInfo[] {
    const alive = [this.#parts.info()]
    for (const seen of this.#others.values()) if (!seen.gone) alive.push(seen.info)
    return alive
  }

  /** Every node that is known as operators see it, this one first; those that ended or died stay for a while, unless they were started again. */
  describe(): ClusterNodeDescription[] {
    const described = new Map<string, ClusterNodeDescription>()
    const add = (info: NodeInfo, alive: boolean, self = false): void => {
      const node_id = nodeName(info.node_id)
      if (!described.get(node_id)?.alive) described.set(node_id, { ...info, node_id, alive, self })
    }
    add(this.#parts.info(), true, true)
    for (const { info, gone } of this.#others.values()) add(info, !gone)
    return [...described.values()]
  }

  /** A node that is alive. */
  get(node_id: string): NodeInfo | undefined {
    if (node_id === this.#parts.node_id) return this.#parts.info()
    const seen = this.#others.get(node_id)
    return seen?.gone ? undefined : seen?.info
  }

  /** Whether the node is not alive, as far as is known without asking the store. */
  isGone(node_id: string): boolean {
    const seen = this.#others.get(node_id)
    if (seen) return seen.gone
    return node_id !== this.#parts.node_id && this.settled
  }

  /**
   * Whether the node is alive, as the store says now; `by_lease`: whether or not it listens. Rejects when the store cannot be reached.
   */
  async judge(node_id: string, by_lease = false): Promise<'alive' | 'dead'> {
    const { store, clock } = this.#parts
    if (node_id === this.#parts.node_id) return 'alive'
    const asked_at = clock.monotonic()
    const name = nodeName(node_id)
    const [lease] = await store.records.read([leaseKey(name)])
    this.#note(name, lease?.value, asked_at)
    this.#count()
    const seen = this.#others.get(node_id)
    if (seen && !by_lease) return seen.gone ? 'dead' : 'alive'
    if (!lease) return asked_at < this.#held_until ? 'alive' : 'dead'
    // Another process with its name can have the lease only when that of the one before had run out.
    return (decodeNodeInfo(lease.value)?.node_id ?? node_id) === node_id ? 'alive' : 'dead'
  }

  /** For one lease from now no one is judged dead: the view of this node, or the store itself, may be behind. */
  hold(): void {
    const { clock, lease_ms } = this.#parts
    this.#held_since = clock.monotonic()
    this.#held_until = this.#held_since + lease_ms
    this.#store_age_known = false
    this.#listeners_known = true
    this.#resetSilence()
  }

  /** Whether nodes can be judged dead at this moment. */
  get settled(): boolean {
    return this.#parts.clock.monotonic() >= this.#held_until
  }

  /** From when on rooms may be claimed, or made, on the monotonic clock. Infinity: not known yet. */
  get claims_allowed_at(): number {
    return this.#store_age_known ? this.#held_until : Number.POSITIVE_INFINITY
  }

  /**
   * From when on an owner may write a room again that the store has lost: whoever had it later has said so by then, and no one else may claim
   * it yet.
   */
  get rewrites_allowed_at(): number {
    return this.claims_allowed_at - YOUNG_MS
  }

  async #read(): Promise<void> {
    const { store, clock } = this.#parts
    const asked_at = clock.monotonic()
    if (!this.#store_age_known) await this.#learnAge(asked_at)
    const own = nodeName(this.#parts.node_id)
    const names = (await this.#index()).filter((name) => name !== own)
    const leases = names.length > 0 ? await store.records.read(names.map(leaseKey)) : []
    if (this.#stopped) return
    const listed = new Set(names)
    for (const [i, name] of names.entries()) this.#note(name, leases[i]?.value, asked_at)
    for (const node_id of this.#others.keys()) {
      const name = nodeName(node_id)
      if (!listed.has(name)) this.#note(name, undefined, asked_at)
    }
    this.#count()
    await this.#forgetDead(names.filter((_, i) => !leases[i]))
    if (this.#others.size > 0) this.#schedulePoll()
  }

  /**
   * What a young store knows of rooms and nodes may be less than there is: leases ran out while it was away, or it has lost its data,
   * and the living have still to tell it.
   */
  async #learnAge(asked_at: number): Promise<void> {
    const { store, lease_ms } = this.#parts
    const age_ms = await store.uptime()
    if (asked_at < this.#held_since) return
    this.#store_age_known = true
    this.#held_until = Math.max(this.#held_until, asked_at + lease_ms + YOUNG_MS - age_ms)
  }

  async #index(): Promise<string[]> {
    const { records } = this.#parts.store
    const names: string[] = []
    for (;;) {
      const last = names.at(-1)
      const page = await records.page(NODES, { limit: PAGE, ...(last !== undefined && { before: last }) })
      names.push(...page)
      if (page.length < PAGE) return names
    }
  }

  /** What the store said about the nodes of a name, asked at `asked_at`: the value of the lease, or that there is none. */
  #note(name: string, lease: Uint8Array | undefined, asked_at: number): void {
    const info = lease && decodeNodeInfo(lease)
    if (lease && !info) return
    for (const [node_id, seen] of this.#others) {
      if (node_id === info?.node_id || nodeName(node_id) !== name) continue
      seen.without_lease_since ??= asked_at
      // With its lease in the hands of another process of its name, it is not a matter of who has been heard.
      if (info || asked_at >= this.#held_until) this.#die(node_id, seen)
    }
    if (info && info.node_id !== this.#parts.node_id) this.#noteAlive(info)
  }

  /** A node has a lease. */
  #noteAlive(info: NodeInfo): void {
    const seen = this.#others.get(info.node_id)
    if (!seen) {
      this.#others.set(info.node_id, {
        info,
        gone: false,
        without_lease_since: undefined,
        silent_since: undefined,
      })
      this.#parts.on_joined(info)
      return
    }
    seen.info = info
    // One that no one listens for has to listen again; a lease may be there for a while after its node has died.
    if (seen.gone && seen.silent_since === undefined) this.#rise(seen)
    seen.without_lease_since = undefined
  }

  async #poll(): Promise<void> {
    const { store, clock } = this.#parts
    const asked_at = clock.monotonic()
    const asked = [...this.#others].filter(([, seen]) => seen.without_lease_since === undefined)
    if (asked.length === 0) return
    const counts = await store.bus.listeners(asked.map(([node_id]) => nodeChannel(node_id)))
    if (!counts) {
      this.#listeners_known = false
      return
    }
    if (this.#stopped || asked_at < this.#held_until) return
    for (const [i, [node_id, seen]] of asked.entries()) {
      if (counts[i]! > 0) {
        seen.silent_since = undefined
        if (seen.gone && seen.without_lease_since === undefined) this.#rise(seen)
      } else {
        seen.silent_since ??= asked_at
        if (asked_at - seen.silent_since >= SILENT_MS) this.#die(node_id, seen)
      }
    }
    this.#count()
  }

  #die(node_id: string, seen: Seen): void {
    if (seen.gone) return
    seen.gone = true
    const { log, metrics, on_gone } = this.#parts
    log.info(
      { peer: node_id },
      seen.without_lease_since === undefined ? 'a node no longer listens' : 'a node has no lease',
    )
    metrics.nodesGone.inc()
    on_gone(node_id)
  }

  #rise(seen: Seen): void {
    seen.gone = false
    this.#parts.on_joined(seen.info)
  }

  #count(): void {
    let alive = 1
    for (const seen of this.#others.values()) if (!seen.gone) alive++
    this.#parts.metrics.nodesAlive.set(alive)
  }

  /** Takes nodes that died long ago out of the index, unless they live again: with a lease nothing is written. */
  async #forgetDead(without_lease: readonly string[]): Promise<void> {
    const { store, clock, lease_ms } = this.#parts
    const now = clock.monotonic()
    for (const [node_id, { gone, without_lease_since }] of this.#others) {
      if (!gone || without_lease_since === undefined) continue
      if (now - without_lease_since >= REMEMBERED_LEASES * lease_ms) this.#others.delete(node_id)
    }
    if (!this.settled) return
    const remembered = new Set([...this.#others.keys()].map(nodeName))
    for (const drop of without_lease) {
      if (remembered.has(drop)) continue
      await store.records.write([
        { remove: leaseKey(drop), if_version: 0 },
        { index: NODES, drop },
      ])
    }
  }

  #scheduleReading(): void {
    const { clock, lease_ms } = this.#parts
    if (this.#stopped) return
    this.#cancel_reading = clock.schedule(lease_ms / 4, () => {
      void this.#quietly(() => this.#read()).then(() => this.#scheduleReading())
    })
  }

  #schedulePoll(): void {
    if (this.#stopped || !this.#listeners_known || this.#cancel_poll) return
    this.#cancel_poll = this.#parts.clock.schedule(POLL_MS, () => {
      void this.#quietly(() => this.#poll()).then(() => {
        this.#cancel_poll = undefined
        if (this.#others.size > 0) this.#schedulePoll()
      })
    })
  }

  /** What was heard of the channels says nothing about now. */
  #resetSilence(): void {
    for (const seen of this.#others.values()) if (!seen.gone) seen.silent_since = undefined
  }

  /** What a silent store leaves unanswered says nothing about the nodes. */
  async #quietly(ask: () => Promise<void>): Promise<void> {
    try {
      await ask()
      this.#store_fails = false
    } catch (error) {
      this.#resetSilence()
      if (this.#stopped) return
      if (!this.#store_fails) this.#parts.log.warn({ err: error }, 'the other nodes cannot be read')
      this.#store_fails = true
    }
  }
}
