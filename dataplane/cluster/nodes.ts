import { untilNext } from '../../shared/clock.ts'
import { nodeName } from '../../shared/ids.ts'
import { decodeNodeInfo, leaseKey, NODES, type NodeInfo } from '../../shared/node-registry.ts'
import type { Store } from '../../shared/store/port.ts'
import type { ClusterNodeDescription } from '../descriptions.ts'
import { nodeChannel } from './links.ts'
import type { ClusterEnvironment, Ownership } from './ownership.ts'

interface NodesEnvironment
  extends Pick<ClusterEnvironment, 'nodeId' | 'clock' | 'log' | 'metrics' | 'leaseMs'> {
  readonly store: Pick<Store, 'records' | 'bus' | 'uptime' | 'time' | 'onReturn'>
}

/** The ownership that learns which nodes come and go. */
type NodesObserver = Pick<Ownership, 'info' | 'gone' | 'joined'>

/** How often this node asks who listens: each question wakes its process and the store. */
const POLL_MS = 200
/** A node that no one listens for at so many polls in a row is presumed dead. */
const SILENT_POLLS = 3
/** How soon it asks again while a node seems silent. */
const AGAIN_MS = 75
/** Until a store is as old as a lease and this, nodes may not have come back to it. */
const YOUNG_MS = 1000
/** By how much a store may say that it is older than it is. */
const WHOLE_SECOND_MS = 1000
/** For this many leases a dead node stays in the index, and is remembered. */
const REMEMBERED_LEASES = 10
const PAGE = 500

/** Another node, as it was last seen. */
interface Seen {
  info: NodeInfo
  gone: boolean
  /** Since when it has had no lease; undefined: it has one. */
  withoutLeaseSince: number | undefined
  /** At how many polls in a row no one has listened on its channel. */
  silentPolls: number
}

/**
 * Who is in the cluster, as this node sees it: nodes whose lease stands, less those that no longer listen. Wrong guesses are harmless,
 * the fence of the rooms decides. A node has to listen before its first lease is written.
 */
export class ClusterNodes {
  readonly #environment: NodesEnvironment
  readonly #ownership: NodesObserver
  readonly #others = new Map<string, Seen>()
  /** Until then no one is judged dead. */
  #heldUntil = Number.NEGATIVE_INFINITY
  #heldSince = Number.NEGATIVE_INFINITY
  #storeAgeKnown = false
  #listenersKnown = true
  #storeFails = false
  #cancelReading: (() => void) | undefined
  #cancelPoll: (() => void) | undefined
  #forgetReturn: (() => void) | undefined
  #stopped = false

  constructor(environment: NodesEnvironment, ownership: NodesObserver) {
    this.#environment = environment
    this.#ownership = ownership
  }

  /** Resolves when the others have been read for the first time; rejects when the store cannot be reached. */
  async start(): Promise<void> {
    await this.#read()
    this.#forgetReturn = this.#environment.store.onReturn(() => this.hold())
    this.#scheduleReading()
  }

  stop(): void {
    this.#stopped = true
    this.#cancelReading?.()
    this.#cancelPoll?.()
    this.#forgetReturn?.()
  }

  /** The nodes that are alive, this one first. Those that drain are among them. */
  nodes(): readonly NodeInfo[] {
    return [this.#ownership.info(), ...this.others()]
  }

  /** Those of them that are not this one. */
  others(): readonly NodeInfo[] {
    return [...this.#others.values()].filter(({ gone }) => !gone).map(({ info }) => info)
  }

  /** Every node that is known as operators see it, this one first; those that ended or died stay for a while, unless they were started again. */
  describe(): ClusterNodeDescription[] {
    const described = new Map<string, ClusterNodeDescription>()
    const add = (info: NodeInfo, alive: boolean, self = false): void => {
      const nodeId = nodeName(info.node_id)
      if (!described.get(nodeId)?.alive) described.set(nodeId, { ...info, node_id: nodeId, alive, self })
    }
    add(this.#ownership.info(), true, true)
    for (const { info, gone } of this.#others.values()) add(info, !gone)
    return [...described.values()]
  }

  /** A node that is alive. */
  get(nodeId: string): NodeInfo | undefined {
    if (nodeId === this.#environment.nodeId) return this.#ownership.info()
    const seen = this.#others.get(nodeId)
    return seen?.gone ? undefined : seen?.info
  }

  /** Whether the node is alive, as far as is known without asking the store: it had a lease when that was read last, and listens. */
  isAlive(nodeId: string): boolean {
    const seen = this.#others.get(nodeId)
    return seen !== undefined && !seen.gone && seen.withoutLeaseSince === undefined && seen.silentPolls === 0
  }

  /** Whether the node is not alive, as far as is known without asking the store. */
  isGone(nodeId: string): boolean {
    const seen = this.#others.get(nodeId)
    if (seen) return seen.gone
    return nodeId !== this.#environment.nodeId && this.canJudge
  }

  /**
   * Whether the node is alive, as the store says now; `byLease`: whether or not it listens. Rejects when the store cannot be reached.
   */
  async judge(nodeId: string, byLease = false): Promise<'alive' | 'dead'> {
    const { store, clock } = this.#environment
    if (nodeId === this.#environment.nodeId) return 'alive'
    const askedAt = clock.monotonic()
    const name = nodeName(nodeId)
    const [lease] = await store.records.read([leaseKey(name)])
    this.#note(name, lease?.value, askedAt)
    this.#count()
    // A node that was silent may be heard again since the last poll, and have taken rooms since.
    if (lease && this.#others.get(nodeId)?.gone) await this.#poll()
    const seen = this.#others.get(nodeId)
    if (seen && !byLease) return seen.gone ? 'dead' : 'alive'
    if (!lease) return askedAt < this.#heldUntil ? 'alive' : 'dead'
    // Another process with its name can have the lease only when that of the one before had run out.
    return (decodeNodeInfo(lease.value)?.node_id ?? nodeId) === nodeId ? 'alive' : 'dead'
  }

  /** Whether the lease of a node that is gone has run out, as the store says now. */
  async isDead(nodeId: string): Promise<boolean> {
    return this.isGone(nodeId) && (await this.judge(nodeId, true)) === 'dead'
  }

  /** For one lease from now no one is judged dead: the view of this node, or the store itself, may be behind. */
  hold(): void {
    const { clock, leaseMs } = this.#environment
    this.#heldSince = clock.monotonic()
    this.#heldUntil = this.#heldSince + leaseMs
    this.#storeAgeKnown = false
    this.#listenersKnown = true
    // Also of those that are gone: with a lease they may have listened again since, and can be heard only when this is over.
    for (const seen of this.#others.values()) seen.silentPolls = 0
  }

  /**
   * Whether the store began less than `ms` ago, and some node was running before it: it may lack what such a node has not written again.
   * Rejects when the store cannot be reached.
   */
  async storeIsBehind(ms: number): Promise<boolean> {
    const { store } = this.#environment
    const ageMs = await store.uptime()
    if (ageMs >= ms) return false
    const beganAt = (await store.time()) - ageMs - WHOLE_SECOND_MS
    const known = [this.#ownership.info(), ...[...this.#others.values()].map((seen) => seen.info)]
    return known.some(({ started_at: startedAt }) => Date.parse(startedAt) < beganAt)
  }

  /** Whether nodes can be judged dead at this moment. */
  get canJudge(): boolean {
    return this.#environment.clock.monotonic() >= this.#heldUntil
  }

  /** From when on rooms may be claimed, or made, on the monotonic clock. Infinity: not known yet. */
  get claimsAllowedAt(): number {
    return this.#storeAgeKnown ? this.#heldUntil : Number.POSITIVE_INFINITY
  }

  /**
   * From when on an owner may write a room again that the store has lost: a node that had it later has said so by then, and no other may claim
   * it yet.
   */
  get rewritesAllowedAt(): number {
    return this.claimsAllowedAt - YOUNG_MS
  }

  async #read(): Promise<void> {
    const { store, clock } = this.#environment
    const askedAt = clock.monotonic()
    if (!this.#storeAgeKnown) await this.#learnAge(askedAt)
    const own = nodeName(this.#environment.nodeId)
    const names = (await this.#index()).filter((name) => name !== own)
    const leases = names.length > 0 ? await store.records.read(names.map(leaseKey)) : []
    if (this.#stopped) return
    const listed = new Set(names)
    for (const [i, name] of names.entries()) this.#note(name, leases[i]?.value, askedAt)
    for (const nodeId of this.#others.keys()) {
      const name = nodeName(nodeId)
      if (!listed.has(name)) this.#note(name, undefined, askedAt)
    }
    this.#count()
    await this.#forgetDead(names.filter((_, i) => !leases[i]))
    if (this.#others.size > 0) this.#schedulePoll()
  }

  /**
   * What a young store knows of rooms and nodes may be less than there is: leases ran out while it was away, or it has lost its data,
   * and the living have still to tell it.
   */
  async #learnAge(askedAt: number): Promise<void> {
    const { store, leaseMs } = this.#environment
    const ageMs = await store.uptime()
    if (askedAt < this.#heldSince) return
    this.#storeAgeKnown = true
    this.#heldUntil = Math.max(this.#heldUntil, askedAt + leaseMs + YOUNG_MS - ageMs)
  }

  async #index(): Promise<string[]> {
    const { records } = this.#environment.store
    const names: string[] = []
    for (;;) {
      const last = names.at(-1)
      const page = await records.page(NODES, { limit: PAGE, ...(last !== undefined && { before: last }) })
      names.push(...page)
      if (page.length < PAGE) return names
    }
  }

  /** What the store said about the nodes of a name, asked at `askedAt`: the value of the lease, or that there is none. */
  #note(name: string, lease: Uint8Array | undefined, askedAt: number): void {
    const info = lease && decodeNodeInfo(lease)
    if (lease && !info) return
    for (const [nodeId, seen] of this.#others) {
      if (nodeId === info?.node_id || nodeName(nodeId) !== name) continue
      seen.withoutLeaseSince ??= askedAt
      // With its lease in the hands of another process of its name, it is not a matter of who has been heard.
      if (info || askedAt >= this.#heldUntil) this.#markGone(nodeId, seen)
    }
    if (info && info.node_id !== this.#environment.nodeId) this.#noteAlive(info)
  }

  /** A node has a lease. */
  #noteAlive(info: NodeInfo): void {
    const seen = this.#others.get(info.node_id)
    if (!seen) {
      this.#others.set(info.node_id, {
        info,
        gone: false,
        withoutLeaseSince: undefined,
        silentPolls: 0,
      })
      this.#ownership.joined(info)
      return
    }
    seen.info = info
    // One that no one listens for has to listen again; a lease may be there for a while after its node has died.
    if (seen.gone && seen.silentPolls === 0) this.#markAlive(seen)
    seen.withoutLeaseSince = undefined
  }

  async #poll(): Promise<void> {
    const { store, clock } = this.#environment
    const askedAt = clock.monotonic()
    const asked = [...this.#others].filter(([, seen]) => seen.withoutLeaseSince === undefined)
    if (asked.length === 0) return
    const counts = await store.bus.listeners(asked.map(([nodeId]) => nodeChannel(nodeId)))
    if (!counts) {
      this.#listenersKnown = false
      return
    }
    if (this.#stopped || askedAt < this.#heldUntil) return
    for (const [i, [nodeId, seen]] of asked.entries()) {
      if (counts[i]! > 0) {
        seen.silentPolls = 0
        if (seen.gone && seen.withoutLeaseSince === undefined) this.#markAlive(seen)
      } else {
        seen.silentPolls++
        if (seen.silentPolls >= SILENT_POLLS) this.#markGone(nodeId, seen)
      }
    }
    this.#count()
  }

  #markGone(nodeId: string, seen: Seen): void {
    if (seen.gone) return
    seen.gone = true
    const { log, metrics } = this.#environment
    const what = seen.withoutLeaseSince === undefined ? 'a node no longer listens' : 'a node has no lease'
    // A node that drained has given its rooms away.
    log[seen.info.draining ? 'info' : 'warn']({ peer: nodeId }, `${what}: other nodes take over its rooms`)
    metrics.nodesGone.inc()
    this.#ownership.gone(nodeId)
  }

  #markAlive(seen: Seen): void {
    seen.gone = false
    this.#ownership.joined(seen.info)
  }

  #count(): void {
    let alive = 1
    for (const seen of this.#others.values()) if (!seen.gone) alive++
    this.#environment.metrics.nodesAlive.set(alive)
  }

  /** Takes nodes that died long ago out of the index, unless they live again: with a lease nothing is written. */
  async #forgetDead(withoutLease: readonly string[]): Promise<void> {
    const { store, clock, leaseMs } = this.#environment
    const now = clock.monotonic()
    for (const [nodeId, { gone, withoutLeaseSince }] of this.#others) {
      if (!gone || withoutLeaseSince === undefined) continue
      if (now - withoutLeaseSince >= REMEMBERED_LEASES * leaseMs) this.#others.delete(nodeId)
    }
    if (!this.canJudge) return
    const remembered = new Set([...this.#others.keys()].map(nodeName))
    for (const drop of withoutLease) {
      if (remembered.has(drop)) continue
      await store.records.write([
        { remove: leaseKey(drop), ifVersion: 0 },
        { index: NODES, drop },
      ])
    }
  }

  #scheduleReading(): void {
    const { clock, leaseMs } = this.#environment
    if (this.#stopped) return
    this.#cancelReading = clock.schedule(untilNext(clock, leaseMs / 4), () => {
      void this.#quietly(() => this.#read()).then(() => this.#scheduleReading())
    })
  }

  #schedulePoll(): void {
    if (this.#stopped || !this.#listenersKnown || this.#cancelPoll) return
    const { clock } = this.#environment
    const doubted = [...this.#others.values()].some(({ gone, silentPolls }) => !gone && silentPolls > 0)
    this.#cancelPoll = clock.schedule(doubted ? AGAIN_MS : untilNext(clock, POLL_MS), () => {
      void this.#quietly(() => this.#poll()).then(() => {
        this.#cancelPoll = undefined
        if (this.#others.size > 0) this.#schedulePoll()
      })
    })
  }

  /** What was heard of the channels says nothing about now. */
  #resetSilence(): void {
    for (const seen of this.#others.values()) if (!seen.gone) seen.silentPolls = 0
  }

  /** What a silent store leaves unanswered says nothing about the nodes. */
  async #quietly(ask: () => Promise<void>): Promise<void> {
    try {
      await ask()
      this.#storeFails = false
    } catch (error) {
      this.#resetSilence()
      if (this.#stopped) return
      if (!this.#storeFails) this.#environment.log.warn({ err: error }, 'the other nodes cannot be read')
      this.#storeFails = true
    }
  }
}
