import { pino } from 'pino'
import { Registry } from 'prom-client'
import { Claims } from '../../dataplane/cluster/claims.ts'
import { NodeIdInUse, NodeLease } from '../../dataplane/cluster/lease.ts'
import { CLUSTER_METRICS } from '../../dataplane/cluster/metrics.ts'
import { Nodes } from '../../dataplane/cluster/nodes.ts'
import { handOver, type PlacementReason, place } from '../../dataplane/cluster/placement.ts'
import { Router } from '../../dataplane/cluster/router.ts'
import type { RoomDefinition } from '../../dataplane/rooms/definition.ts'
import type { RoomLimits } from '../../dataplane/rooms/environment.ts'
import { RoomHost } from '../../dataplane/rooms/host.ts'
import { ROOM_METRICS } from '../../dataplane/rooms/metrics.ts'
import type { RoomAddress, ToEdge, ToOwner } from '../../dataplane/traffic.ts'
import { registerMetrics } from '../../shared/metrics.ts'
import { JsonCodec } from '../../shared/protocol/json-codec.ts'
import type { Store } from '../../shared/store/port.ts'
import { noSpan, noTracer } from '../../shared/tracing/tracer.ts'
import { nodeInfo } from '../support/cluster/node-info.ts'
import { SeededRandom } from '../support/seeded-random.ts'
import type { SimClock } from './sim-clock.ts'

const log = pino({ level: 'silent' })
const codecs = [new JsonCodec()]

/** What others take a node for alive after its last renewal, in milliseconds. */
export const LEASE_MS = 2000
const START_AGAIN_MS = 500
const HAND_OVER_MS = 5000

/** What is broken on purpose, to see it found. */
export interface Mutation {
  /** Puts something in the way of what a node says to the store. */
  readonly store?: (store: Store) => Store
  /** Instead of asking the lease. */
  readonly mayAct?: () => boolean
}

/** What a node is made of. */
export interface ModelNodeParts {
  readonly nodeId: string
  readonly definition: RoomDefinition
  readonly clock: SimClock
  readonly store: Store
  readonly seed: number
  readonly limits: Partial<RoomLimits>
  readonly recordTtlMs: number
  readonly mutation: Mutation | undefined
  readonly edges: readonly string[]
  /** Takes a message to an edge. No edge is at the node itself. */
  readonly deliver: (edge: string, message: ToEdge) => void
  /** Asks a node to open a room that was given up for it. */
  readonly ask: (nodeId: string, room: RoomAddress) => void
  /** Another process has its name: it ends. */
  readonly onReplaced: () => void
  /** Something is to be done when this turn of the event loop has brought everything. */
  readonly defer: (callback: () => void) => void
}

/** The ownership parts of one node, wired as `node.ts` does it: the only place that knows how they are made. */
export class ModelNode {
  readonly #parts: ModelNodeParts
  readonly #random: SeededRandom
  readonly #lease: NodeLease
  readonly #nodes: Nodes
  readonly #host: RoomHost
  readonly #router: Router
  #ready = false
  #draining = false

  constructor(parts: ModelNodeParts) {
    this.#parts = parts
    const { nodeId, clock, mutation, recordTtlMs, deliver } = parts
    const store = mutation?.store?.(parts.store) ?? parts.store
    const random = new SeededRandom(parts.seed)
    this.#random = random
    const common = { nodeId, store, clock, log, metrics: registerMetrics(new Registry(), CLUSTER_METRICS) }
    const info = () => nodeInfo(nodeId, { draining: this.#draining })
    const mayAct = mutation?.mayAct ?? (() => this.#lease.valid())
    this.#lease = new NodeLease({
      ...common,
      ttlMs: LEASE_MS,
      info,
      onRegained: () => {
        this.#nodes.hold()
        this.#host.recheck()
      },
      onReplaced: parts.onReplaced,
    })
    this.#nodes = new Nodes({
      ...common,
      leaseMs: LEASE_MS,
      info,
      onGone: () => undefined,
      onJoined: () => undefined,
    })
    const claims = new Claims({
      ...common,
      nodes: this.#nodes,
      mayAct,
      // Whoever lives after all finds out without being told, only later.
      takenOver: () => undefined,
      recordTtlMs,
      quota: { maxRooms: 0, perMinute: 0 },
    })
    this.#host = new RoomHost({
      nodeId,
      rooms: [parts.definition],
      codecs,
      records: store.rooms,
      clock,
      random,
      log,
      metrics: registerMetrics(new Registry(), ROOM_METRICS),
      claim: (room, { creator }) => claims.claim(room, { creator }),
      mayAct,
      rewritesAllowedAt: () => this.#nodes.rewritesAllowedAt,
      deliver,
      edgeGone: () => false,
      redirect: (arrivals, owner) => this.#router.redirect(arrivals, owner),
      defer: parts.defer,
      limits: { recordTtlMs, ...parts.limits },
    })
    this.#router = new Router({
      nodeId,
      clock,
      host: this.#host,
      inspect: (room) => claims.inspect(room),
      judge: (other) => this.#nodes.judge(other),
      gone: (other) => this.#nodes.isGone(other),
      place: (reason) => this.#place(reason),
      accepts: () => this.#host.accepts,
      maxWaitingMessages: 1000,
      backlogFull: () => undefined,
      // Only members at edges of this node are taken to others, and it has none.
      send: () => undefined,
      deliver,
      failed: () => undefined,
    })
  }

  /** Whether it takes messages. */
  get ready(): boolean {
    return this.#ready
  }

  /** Takes its lease; a process that cannot ends, and is started again, unless another has its name. */
  start(): void {
    this.#begin().then(
      () => {
        this.#ready = true
      },
      (error: unknown) => {
        const { clock, onReplaced } = this.#parts
        if (error instanceof NodeIdInUse) onReplaced()
        else clock.schedule(START_AGAIN_MS, () => this.start())
      },
    )
  }

  /** A message of an edge. */
  receive(message: ToOwner, from: string): void {
    this.#router.receive(message, from)
  }

  /** Messages of others may be lost. */
  missed(): void {
    this.#host.recheck()
    for (const edge of this.#parts.edges) this.#host.edgeMissed(edge)
  }

  /** A room was given up for this node. */
  open(room: RoomAddress): void {
    if (!this.#draining) this.#host.open(room, [])
  }

  /** Hands its rooms over and ends its lease. */
  async drain(): Promise<void> {
    const { clock, ask } = this.#parts
    this.#draining = true
    this.#host.refuseMore()
    await this.#lease.renewNow()
    const handed = handOver(this.#host.rooms, {
      place: (preferred) => this.#place('hand_over', preferred),
      ask,
      handed: () => undefined,
      tracer: noTracer,
      span: noSpan,
      now: () => clock.monotonic(),
    })
    const patience = new Promise<void>((resolve) => clock.schedule(HAND_OVER_MS, resolve))
    await Promise.race([handed, patience])
    await this.#host.close()
    this.#nodes.stop()
    await this.#lease.stop()
  }

  /** The rooms that run here. */
  get rooms(): { readonly epoch: number }[] {
    return [...this.#host.rooms]
  }

  async #begin(): Promise<void> {
    this.#parts.store.onReturn(() => this.#host.recheck())
    await this.#lease.start()
    await this.#nodes.start()
  }

  #place(reason: PlacementReason, preferred?: string): string | undefined {
    return place({
      self: this.#parts.nodeId,
      nodes: this.#nodes.nodes(),
      random: this.#random,
      reason,
      ...(preferred !== undefined && { preferred }),
    })
  }
}
