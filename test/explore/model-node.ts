import { pino } from 'pino'
import { Claims } from '../../dataplane/cluster/claims.ts'
import { NodeLease } from '../../dataplane/cluster/lease.ts'
import type { RoomDefinition } from '../../dataplane/rooms/definition.ts'
import type { RoomLimits } from '../../dataplane/rooms/environment.ts'
import { RoomHost } from '../../dataplane/rooms/host.ts'
import { noRoomMetrics } from '../../dataplane/rooms/metrics.ts'
import type { ToEdge, ToOwner } from '../../dataplane/traffic.ts'
import { JsonCodec } from '../../shared/protocol/json-codec.ts'
import type { Store } from '../../shared/store/port.ts'
import { SeededRandom } from '../support/seeded-random.ts'
import type { SimClock } from './sim-clock.ts'

const log = pino({ level: 'silent' })
const codecs = [new JsonCodec()]

/** What others take a node for alive after its last renewal, in milliseconds. */
export const LEASE_MS = 2000
const START_AGAIN_MS = 500

/** What is broken on purpose, to see it found. */
export interface Mutation {
  /** Puts something in the way of what a node says to the store. */
  readonly store?: (store: Store, node_id: string) => Store
  /** Instead of asking the lease. */
  readonly may_act?: () => boolean
}

/** What a node is made of. */
export interface ModelNodeParts {
  readonly node_id: string
  readonly rooms: readonly RoomDefinition[]
  readonly clock: SimClock
  readonly store: Store
  readonly seed: number
  readonly limits: Partial<RoomLimits>
  readonly record_ttl_ms: number
  readonly mutation: Mutation | undefined
  readonly deliver: (edge: string, message: ToEdge) => void
  /** Something is to be done when this turn of the event loop has brought everything. */
  readonly defer: (callback: () => void) => void
}

/** The ownership parts of one node, wired as `node.ts` does it: the only place that knows how they are made. */
export class ModelNode {
  readonly #parts: ModelNodeParts
  readonly #lease: NodeLease
  readonly #host: RoomHost
  #ready = false

  constructor(parts: ModelNodeParts) {
    this.#parts = parts
    const { node_id, clock, mutation, record_ttl_ms } = parts
    const store = mutation?.store?.(parts.store, node_id) ?? parts.store
    this.#lease = new NodeLease({
      node_id,
      records: store.records,
      clock,
      log,
      ttl_ms: LEASE_MS,
      on_regained: () => this.#host.recheck(),
    })
    const claims = new Claims({ node_id, store, log, record_ttl_ms })
    this.#host = new RoomHost({
      node_id,
      rooms: parts.rooms,
      codecs,
      records: store.rooms,
      clock,
      random: new SeededRandom(parts.seed),
      log,
      metrics: noRoomMetrics,
      claim: (room, { create }) => claims.claim(room, { create }),
      may_act: mutation?.may_act ?? (() => this.#lease.valid()),
      deliver: parts.deliver,
      defer: parts.defer,
      limits: { record_ttl_ms, ...parts.limits },
    })
  }

  /** Whether it takes messages. */
  get ready(): boolean {
    return this.#ready
  }

  /** Takes its lease; a process that cannot ends, and is started again. */
  start(): void {
    this.#lease.start().then(
      () => {
        this.#ready = true
      },
      () => this.#parts.clock.schedule(START_AGAIN_MS, () => this.start()),
    )
  }

  receive(message: ToOwner, from: string): void {
    this.#host.receive(message, from)
  }

  /** Hands its rooms over and ends its lease. */
  drain(): void {
    void this.#host.close().then(() => this.#lease.stop())
  }

  /** The rooms that run here. */
  get rooms(): { readonly epoch: number; readonly seq: number }[] {
    return this.#host.describe({ include_state: false })
  }
}
