import { type Clock, untilNext } from '../../shared/clock.ts'
import { nodeName } from '../../shared/ids.ts'
import type { Logger } from '../../shared/log.ts'
import { decodeNodeInfo, leaseKey, NODES, type NodeInfo } from '../../shared/node-registry.ts'
import type { Bus, Records } from '../../shared/store/port.ts'
import type { ClusterNodeDescription } from '../descriptions.ts'
import { nodeChannel } from './links.ts'
import type { ClusterMetrics } from './metrics.ts'

/** Dependencies of `ClusterNodes`. */
export interface NodesEnvironment {
  readonly nodeId: string
  readonly store: {
    readonly records: Records
    readonly bus: Bus
    time(): Promise<number>
    uptime(): Promise<number>
    onReturn(callback: () => void): () => void
  }
  readonly clock: Clock
  readonly log: Logger
  readonly metrics: ClusterMetrics
  readonly leaseMs: number
}

/** Observer of the other nodes. */
interface NodesObserver {
  /** A node is alive that was not, or that this node did not know. */
  joined(node: NodeInfo): void
  /** A node has ended or died. */
  gone(nodeId: string): void
}

/** Interval of the polls for listeners. Each poll wakes this process and the store. */
const POLL_MS = 200
/** A node whose channel has no listener at this many consecutive polls is presumed dead. */
const SILENT_POLLS = 3
/** Interval of the polls while a node seems silent. */
const AGAIN_MS = 75
/** A store younger than a lease plus this time may lack living nodes. */
const YOUNG_MS = 1000
/** Maximum error of the age that a store reports. */
const WHOLE_SECOND_MS = 1000
/** A dead node stays in the index, and in `describe`, for this many lease times. */
const REMEMBERED_LEASES = 10
const PAGE = 500

/** Last known state of another node. */
interface Seen {
  info: NodeInfo
  gone: boolean
  /** Time since which it has no lease. Undefined: it has one. */
  withoutLeaseSince: number | undefined
  /** Number of consecutive polls without a listener on its channel. */
  silentPolls: number
  /** When it last listened on its channel. */
  listenedAt: number
}

/**
 * The nodes of the cluster, from the view of this node: those with a valid lease that listen on their channel. A wrong view does no harm, because
 * the fence of the rooms decides. A node must listen before its first lease is written.
 */
export class ClusterNodes {
  readonly #environment: NodesEnvironment
  readonly #self: { info(): NodeInfo }
  #observer: NodesObserver | undefined
  readonly #others = new Map<string, Seen>()
  /** Time until which no node is judged dead. */
  #heldUntil = Number.NEGATIVE_INFINITY
  #heldSince = Number.NEGATIVE_INFINITY
  #storeAgeKnown = false
  #listenersKnown = true
  #storeFails = false
  #cancelReading: (() => void) | undefined
  #cancelPoll: (() => void) | undefined
  #forgetReturn: (() => void) | undefined
  #stopped = false

  constructor(environment: NodesEnvironment, self: { info(): NodeInfo }) {
    this.#environment = environment
    this.#self = self
  }

  /** Reports changes of the other nodes to `observer`. To be called before `start`. */
  observe(observer: NodesObserver): void {
    this.#observer = observer
  }

  /** Resolves when the other nodes have been read for the first time. Rejects if the store cannot be reached. */
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

  /** Living nodes, this one first, including draining ones. */
  nodes(): readonly NodeInfo[] {
    return [this.#self.info(), ...this.others()]
  }

  /** Living nodes without this one. */
  others(): readonly NodeInfo[] {
    return [...this.#others.values()].filter(({ gone }) => !gone).map(({ info }) => info)
  }

  /** Descriptions of all known nodes for operators, this one first. Ended or crashed nodes stay for a while, unless they were started again. */
  describe(): ClusterNodeDescription[] {
    const described = new Map<string, ClusterNodeDescription>()
    const add = (node: ClusterNodeDescription): void => {
      const nodeId = nodeName(node.node_id)
      if (!described.get(nodeId)?.alive) described.set(nodeId, { ...node, node_id: nodeId })
    }
    add({ ...this.#self.info(), self: true, alive: true })
    for (const { info, gone, withoutLeaseSince } of this.#others.values())
      add({
        ...info,
        self: false,
        alive: !gone,
        ...(!gone && withoutLeaseSince !== undefined && { lease_lost: true }),
        ...(this.#storeFails && { outdated: true }),
      })
    return [...described.values()]
  }

  /** Returns a living node. */
  get(nodeId: string): NodeInfo | undefined {
    if (nodeId === this.#environment.nodeId) return this.#self.info()
    const seen = this.#others.get(nodeId)
    return seen?.gone ? undefined : seen?.info
  }

  /** Returns true if the node is alive as of the last reads: it had a lease, and listened. */
  isAlive(nodeId: string): boolean {
    const seen = this.#others.get(nodeId)
    return seen !== undefined && !seen.gone && seen.withoutLeaseSince === undefined && seen.silentPolls === 0
  }

  /** Returns when the node was last seen alive, in monotonic milliseconds. Undefined: this node does not know it. */
  listenedAt(nodeId: string): number | undefined {
    return this.#others.get(nodeId)?.listenedAt
  }

  /** Returns true if the node is presumed dead as of the last reads. */
  isGone(nodeId: string): boolean {
    const seen = this.#others.get(nodeId)
    if (seen) return seen.gone
    return nodeId !== this.#environment.nodeId && this.canJudge
  }

  /** Asks the store whether a node is alive. `byLease`: only its lease counts, also if it does not listen. Rejects if the store cannot be reached. */
  async judge(nodeId: string, byLease = false): Promise<'alive' | 'dead'> {
    const { store, clock } = this.#environment
    if (nodeId === this.#environment.nodeId) return 'alive'
    const askedAt = clock.monotonic()
    const name = nodeName(nodeId)
    const [lease] = await store.records.read([leaseKey(name)])
    this.#note(name, lease?.value, askedAt)
    this.#count()
    // A silent node may listen again since the last poll, and may have claimed rooms.
    if (lease && this.#others.get(nodeId)?.gone) await this.#poll()
    const seen = this.#others.get(nodeId)
    if (seen && !byLease) return seen.gone ? 'dead' : 'alive'
    if (!lease) return askedAt < this.#heldUntil ? 'alive' : 'dead'
    // Another process with the node's name can acquire the lease only after the earlier lease has expired.
    return (decodeNodeInfo(lease.value)?.node_id ?? nodeId) === nodeId ? 'alive' : 'dead'
  }

  /** Asks the store whether the lease of a node that is presumed dead has expired. */
  async isDead(nodeId: string): Promise<boolean> {
    return this.isGone(nodeId) && (await this.judge(nodeId, true)) === 'dead'
  }

  /** Judges no node dead for one lease time, because the view of this node, or the store itself, may be outdated. */
  hold(): void {
    const { clock, leaseMs } = this.#environment
    this.#heldSince = clock.monotonic()
    this.#heldUntil = this.#heldSince + leaseMs
    this.#storeAgeKnown = false
    this.#listenersKnown = true
    // Also for nodes that are gone: they may have listened again, and this can only be seen after the hold.
    for (const seen of this.#others.values()) seen.silentPolls = 0
  }

  /**
   * Returns true if the store started less than `ms` ago while some node was already running. It may then lack data that such a node has not written
   * again. Rejects if the store cannot be reached.
   */
  async storeIsBehind(ms: number): Promise<boolean> {
    const { store } = this.#environment
    const ageMs = await store.uptime()
    if (ageMs >= ms) return false
    const beganAt = (await store.time()) - ageMs - WHOLE_SECOND_MS
    const known = [this.#self.info(), ...[...this.#others.values()].map((seen) => seen.info)]
    return known.some(({ started_at: startedAt }) => Date.parse(startedAt) < beganAt)
  }

  /** True if nodes can be judged dead now. */
  get canJudge(): boolean {
    return this.#environment.clock.monotonic() >= this.#heldUntil
  }

  /** Time from which rooms may be claimed or created, on the monotonic clock. Infinity: unknown yet. */
  get claimsAllowedAt(): number {
    return this.#storeAgeKnown ? this.#heldUntil : Number.POSITIVE_INFINITY
  }

  /**
   * Time from which an owner may write a room again that the store has lost. A later owner of the room has written it by then, and no node
   * may claim it yet.
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
   * Reads the age of the store. A young store may lack rooms and nodes: leases have expired while it was unavailable, or it has lost its data
   * and the living nodes have not written it again.
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

  /** Takes what the store knew of a node name at `askedAt`: the value of its lease, or undefined for none. */
  #note(name: string, lease: Uint8Array | undefined, askedAt: number): void {
    const info = lease && decodeNodeInfo(lease)
    if (lease && !info) return
    for (const [nodeId, seen] of this.#others) {
      if (nodeId === info?.node_id || nodeName(nodeId) !== name) continue
      seen.withoutLeaseSince ??= askedAt
      // Another process with its name has the lease, so it is dead whether or not it listens.
      if (info || askedAt >= this.#heldUntil) this.#markGone(nodeId, seen)
    }
    if (info && info.node_id !== this.#environment.nodeId) this.#noteAlive(info)
  }

  /** Takes the lease of a node. */
  #noteAlive(info: NodeInfo): void {
    const seen = this.#others.get(info.node_id)
    if (!seen) {
      this.#others.set(info.node_id, {
        info,
        gone: false,
        withoutLeaseSince: undefined,
        silentPolls: 0,
        listenedAt: this.#environment.clock.monotonic(),
      })
      this.#observer?.joined(info)
      return
    }
    seen.info = info
    // A silent node must listen again: a lease outlives its node for a while.
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
        seen.listenedAt = askedAt
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
    // A node that drained has handed its rooms over.
    log[seen.info.draining ? 'info' : 'warn']({ peer: nodeId }, `${what}: other nodes take over its rooms`)
    metrics.nodesGone.inc()
    this.#observer?.gone(nodeId)
  }

  #markAlive(seen: Seen): void {
    seen.gone = false
    this.#observer?.joined(seen.info)
  }

  #count(): void {
    let alive = 1
    for (const seen of this.#others.values()) if (!seen.gone) alive++
    this.#environment.metrics.nodesAlive.set(alive)
  }

  /** Removes nodes from the index that died long ago. The write fails if the node has a lease again. */
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

  /** Resets the silent polls, because the earlier ones say nothing about the present. */
  #resetSilence(): void {
    for (const seen of this.#others.values()) if (!seen.gone) seen.silentPolls = 0
  }

  /** Runs a question. If the store does not answer, this says nothing about the nodes. */
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
