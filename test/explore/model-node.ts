import { pino } from 'pino'
import { Registry } from 'prom-client'
import type { PeerMessage } from '../../dataplane/cluster/envelope.ts'
import { NodeIdInUse } from '../../dataplane/cluster/lease.ts'
import { CLUSTER_METRICS } from '../../dataplane/cluster/metrics.ts'
import { Ownership } from '../../dataplane/cluster/ownership.ts'
import type { LocalGateway } from '../../dataplane/cluster/router.ts'
import { ListedRooms } from '../../dataplane/features/lists/listing.ts'
import { LIST_METRICS } from '../../dataplane/features/lists/metrics.ts'
import { RoomNotices } from '../../dataplane/features/notices/notices.ts'
import { SAVE_METRICS, SavedRooms } from '../../dataplane/features/saves/saves.ts'
import type { RoomDefinition } from '../../dataplane/room/definition.ts'
import { RoomHost } from '../../dataplane/room/host.ts'
import type { RoomLimits } from '../../dataplane/room/limits.ts'
import { ROOM_METRICS } from '../../dataplane/room/metrics.ts'
import type { RoomAddress, ToEdge, ToOwner } from '../../dataplane/traffic.ts'
import type { Clock } from '../../shared/clock.ts'
import { registerMetrics } from '../../shared/metrics.ts'
import { JsonCodec } from '../../shared/protocol/json-codec.ts'
import { memoryStore } from '../../shared/store/memory/memory.ts'
import type {
  Bus,
  Claim,
  DueTimes,
  LeaseRenewal,
  Listings,
  Notices,
  Records,
  RoomOwner,
  RoomRecords,
  Store,
} from '../../shared/store/port.ts'
import { noTracer } from '../../shared/tracing/tracer.ts'
import { Timers } from '../kit/fake-clock.ts'
import { SeededRandom } from '../kit/seeded-random.ts'
import { nodeInfo } from '../support/descriptions.ts'
import { Undelivered } from '../support/rooms/undelivered.ts'
import { hash, textOf } from './history.ts'

const log = pino({ level: 'silent' })
const codecs = [new JsonCodec()]
/** Metrics of all nodes of all runs. Nothing reads them. */
const metrics = registerMetrics(new Registry(), {
  ...CLUSTER_METRICS,
  ...ROOM_METRICS,
  ...LIST_METRICS,
  ...SAVE_METRICS,
})

/** Lease of a node. */
export const LEASE_MS = 2000
const START_AGAIN_MS = 500
/** Members are at separate edges, so the nodes have no gateway. */
const NO_GATEWAY: LocalGateway = {
  edge: { receive: () => undefined, reattach: () => undefined, subscribes: () => false },
  sessionTaken: async () => undefined,
  storeReturned: () => undefined,
}

/** A mistake of all nodes. */
export interface Mutation {
  /** Wraps the store of a node. */
  readonly store?: (store: Store) => Store
  /** Replaces the lease that the rooms check. */
  readonly lease?: { readonly validUntil: number }
}

/** Dependencies of a `ModelNode`. */
interface ModelNodeParts {
  readonly nodeId: string
  readonly definition: RoomDefinition
  readonly clock: SimClock
  readonly store: Store
  readonly seed: number
  readonly limits: Partial<RoomLimits>
  readonly recordTtlMs: number
  readonly mutation: Mutation | undefined
  readonly edges: readonly string[]
  /** Sends a message to an edge. */
  readonly deliver: (edge: string, message: ToEdge) => void
  /** Asks a node to open a room that was released for it. */
  readonly ask: (nodeId: string, room: RoomAddress) => void
  /** Called when another process has the node's id. Ends the process. */
  readonly onReplaced: () => void
  /** Calls `callback` at the end of this turn of the event loop. */
  readonly defer: (callback: () => void) => void
}

/** Ownership and rooms of one node, without sockets. The world delivers its messages. */
export class ModelNode {
  readonly #parts: ModelNodeParts
  readonly #ownership: Ownership
  readonly #host: RoomHost
  #ready = false

  constructor(parts: ModelNodeParts) {
    this.#parts = parts
    const { nodeId, clock, mutation, recordTtlMs } = parts
    const store = mutation?.store?.(parts.store) ?? parts.store
    const random = new SeededRandom(parts.seed)
    const common = { nodeId, clock, random, log }
    const ownership = new Ownership({
      ...common,
      store,
      links: {
        start: async () => undefined,
        close: async () => undefined,
        greet: () => undefined,
        forget: () => undefined,
        send: (to, message) => this.#send(to, message),
      },
      tracer: noTracer,
      metrics,
      leaseMs: LEASE_MS,
      recordTtlMs,
      quota: { maxRooms: 0, maxLasting: 0, perMinute: 0 },
      hasPlaceFor: () => true,
      endedAnswer: async () => undefined,
      maxWaitingMessages: 1000,
      figures: () => ({
        ...nodeInfo(nodeId),
        rooms: this.#host.rooms.size,
        room_types: this.#host.types.versions,
      }),
      onReplaced: parts.onReplaced,
    })
    this.#ownership = ownership
    const notices = new Undelivered(store.notices, clock)
    this.#host = new RoomHost({
      ...common,
      rooms: [parts.definition],
      codecs,
      records: store.rooms,
      wakeups: store.wakeups,
      additions: (room, mayAct) => new RoomNotices(room, mayAct, { ...common, metrics, notices }),
      features: (needs) => [new ListedRooms(needs, metrics, store), new SavedRooms(needs, metrics)],
      metrics,
      cluster: {
        lease: mutation?.lease ?? ownership.lease,
        nodes: {
          get rewritesAllowedAt() {
            return ownership.nodes.rewritesAllowedAt
          },
          isGone: () => false,
        },
        requests: { send: async () => ({ code: 'timeout', message: 'the model has no requests' }) },
        router: ownership.router,
      },
      load: { slowdown: 1, overloaded: false },
      defer: parts.defer,
      limits: { recordTtlMs, ...parts.limits },
    })
  }

  /** True when the node has its lease, and accepts messages. */
  get ready(): boolean {
    return this.#ready
  }

  /** Acquires the lease. After a failure tries again, as a restarted process would, unless another process has the node's id. */
  start(): void {
    this.#ownership.start(this.#host, NO_GATEWAY).then(
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

  /** Receives a message of an edge. */
  receive(message: ToOwner, from: string): void {
    this.#ownership.router.receive({ to: 'owner', message }, from)
  }

  /** To be called when messages of other nodes or edges may be lost. */
  missed(): void {
    this.#ownership.router.missed(undefined)
    for (const edge of this.#parts.edges) this.#host.edgeMissed(edge)
  }

  /** Opens a room that was released for this node. */
  open(room: RoomAddress): void {
    this.#ownership.router.receive({ to: 'host', room }, this.#parts.nodeId)
  }

  /** Hands off all rooms and releases the lease. */
  async drain(): Promise<void> {
    this.#host.rooms.refuseMore()
    await this.#ownership.drain()
    await this.#ownership.handOver(this.#host.rooms.running)
    await this.#host.close()
    await this.#ownership.stop()
  }

  /** Rooms that this node runs. */
  get rooms(): { readonly epoch: number }[] {
    return this.#host.rooms.running.map(({ core }) => core)
  }

  #send(to: string, message: PeerMessage): void {
    const { edges, deliver, ask } = this.#parts
    if (message.to === 'host') ask(to, message.room)
    // Other messages are dropped. A live node that was taken for dead detects that later from the store.
    else if (message.to === 'edge' && edges.includes(to)) deliver(to, message.message)
  }
}

/** A queued item. `order` grows with the time at which it was queued. */
export interface Pending<T> {
  readonly order: number
  /** Equal in runs with the same history. */
  readonly id: string
  readonly value: T
}

/** Answer of an operation on its way to the process. */
export interface Answer {
  readonly operation: Operation
  readonly result: unknown
  readonly error: Error | undefined
  readonly recordedEpoch: number
}

/** One process of a node, with its queued store calls and answers. */
export class Process {
  readonly id: string
  /** Name of the node. A restarted node has the same name. */
  readonly node: string
  readonly clock: SimClock
  /** Store calls, oldest first. */
  readonly operations: Pending<Operation>[] = []
  readonly answers: Pending<Answer>[] = []
  /** Callbacks for the end of this turn of the event loop. */
  deferred: Pending<(() => void)[]> | undefined
  alive = true
  draining = false
  /** World time at which the pause ends. */
  pausedUntil: number | undefined
  /** World time until which the store cannot be reached. */
  cutUntil: number | undefined
  /** World time until which messages of other nodes are missed. */
  deafUntil: number | undefined
  /** After a pause, the process runs its timers before it processes answers. */
  timersFirst = false
  /** Listeners of the store connection's return. */
  readonly onReturn = new Set<() => void>()
  model!: ModelNode
  #asked = 0
  #history = ''

  constructor(id: string, node: string, time: SimTime, aheadMs: number) {
    this.id = id
    this.node = node
    this.clock = new SimClock(time, aheadMs)
  }

  get running(): boolean {
    return this.alive && this.pausedUntil === undefined
  }

  /** All queued items except messages. */
  get pending(): Pending<unknown>[] {
    const { operations, answers, deferred } = this
    return deferred ? [...operations, ...answers, deferred] : [...operations, ...answers]
  }

  /** World times of its next timer and of the ends of its faults. */
  get times(): number[] {
    const { running, clock, pausedUntil, cutUntil, deafUntil } = this
    const whileRunning = running ? [clock.due, cutUntil, deafUntil] : []
    return [pausedUntil, ...whileRunning].filter((time) => time !== undefined)
  }

  /** True if the process has ended, or is ready and has no active fault. */
  get calm(): boolean {
    const { alive, model, pausedUntil, cutUntil, deafUntil } = this
    return !alive || (model.ready && (pausedUntil ?? cutUntil ?? deafUntil) === undefined)
  }

  /** Ends a cut. */
  reconnect(): void {
    this.cutUntil = undefined
    this.lived('return')
    for (const callback of this.onReturn) callback()
  }

  /** Ends a deaf time. */
  listen(): void {
    this.deafUntil = undefined
    this.lived('hears')
    this.model.missed()
  }

  /** Ends the process. Sent store calls still take effect. */
  end(): void {
    this.alive = false
    this.pausedUntil = undefined
    this.cutUntil = undefined
    this.answers.length = 0
    this.deferred = undefined
  }

  /** Returns the id of the next store call. */
  nextOperation(): string {
    return `${this.id}#${++this.#asked}`
  }

  /** Adds an input to the history. Processes with the same history are in the same state. */
  lived(what: string): void {
    this.#history = hash(`${this.#history}${what}@${this.clock.monotonic()}`)
  }

  /** Equal for processes in the same state. */
  get digest(): string {
    const { id, alive, pausedUntil, cutUntil, deafUntil, timersFirst } = this
    return alive
      ? `${id} ${this.#history} ${pausedUntil} ${cutUntil} ${deafUntil} ${timersFirst}`
      : `${id} gone`
  }
}

/** A queued store call. The world decides when it takes place and when it is answered. */
export interface Operation {
  /** Id of the calling process. */
  readonly process: string
  /** Name such as `rooms.commit`. */
  readonly name: string
  readonly args: readonly unknown[]
  /** True if the call may change the store. */
  readonly writes: boolean
  /** World time of the call. */
  readonly sentAt: number
  /** Executes the call. Resolves with the answer of the store. */
  readonly perform: () => Promise<unknown>
  readonly answer: (value: unknown) => void
  readonly fail: (error: Error) => void
}

type Call = (...args: never[]) => Promise<unknown>

const READS = new Set(['rooms.inspect', 'records.read'])

/**
 * The real memory adapter behind a network. Each call about a room or a lease becomes an `Operation`. Other calls (pages of an index, room
 * quotas, the uptime) are answered immediately.
 */
export class SimStore {
  readonly #clock: SimClock
  readonly #onOperation: (operation: Operation) => void
  readonly #now: () => number
  /** By key, a hash of all calls that have changed the key, in order. */
  readonly #histories = new Map<string, string>()
  #raw: Store
  /** World time of the last loss of data. */
  #began = Number.NEGATIVE_INFINITY

  constructor(clock: SimClock, now: () => number, onOperation: (operation: Operation) => void) {
    this.#clock = clock
    this.#now = now
    this.#onOperation = onOperation
    this.#raw = memoryStore({ clock })
  }

  /** The memory store, without the network. */
  get raw(): Store {
    return this.#raw
  }

  /** Deletes all data. */
  wipe(): void {
    this.#raw = memoryStore({ clock: this.#clock })
    this.#began = this.#now()
    this.#histories.clear()
  }

  /** Equal for equal contents. */
  get digest(): string {
    return [['', this.#began], ...this.#histories]
      .map(([key, history]) => `${key}=${history}`)
      .sort()
      .join()
  }

  /**
   * Returns the store of one process. `reaches`: true while the process has a connection. Locks are always free, because they are only an
   * optimization and no guarantee may depend on them. Published messages are dropped. `listeners` counts the listeners of channels.
   */
  port(
    process: string,
    reaches: () => boolean,
    onReturn: Store['onReturn'],
    listeners: Bus['listeners'],
  ): Store {
    const call =
      (name: string, target: (raw: Store) => Call) =>
      (...args: unknown[]): Promise<unknown> =>
        this.#ask(process, name, args, () => target(this.#raw)(...(args as never[])))
    const group = <T>(name: string, pick: (raw: Store) => T, methods: readonly (keyof T & string)[]): T =>
      Object.fromEntries(
        methods.map((method) => [
          method,
          call(`${name}.${method}`, (raw) => {
            const part = pick(raw)
            return (part[method] as Call).bind(part)
          }),
        ]),
      ) as T
    return {
      kind: 'memory',
      records: {
        ...group<Records>('records', (raw) => raw.records, ['read', 'write', 'renewLease']),
        page: async (...asked) => this.#raw.records.page(...asked),
      },
      rooms: {
        ...group<RoomRecords>('rooms', (raw) => raw.rooms, [
          'inspect',
          'claim',
          'recall',
          'commit',
          'snapshot',
          'release',
          'refresh',
          'quarantine',
        ]),
        reserve: async (...asked) => this.#raw.rooms.reserve(...asked),
        open: (room, opening, mayClaim) => {
          const [raw, may] = [this.#raw, mayClaim()]
          // If the store has lost its data since, the call has waited for the new connection. So it is decided when it is sent.
          const maySend = () => (raw === this.#raw ? may : reaches() && mayClaim())
          return this.#ask(process, 'rooms.open', [room, opening], () =>
            this.#raw.rooms.open(room, opening, maySend),
          ) as Promise<Claim | RoomOwner | undefined>
        },
      },
      notices: group<Notices>('notices', (raw) => raw.notices, [
        'set',
        'take',
        'oldest',
        'count',
        'remove',
        'rooms',
      ]),
      wakeups: group<DueTimes>('wakeups', (raw) => raw.wakeups, ['set', 'take']),
      listings: group<Listings>('listings', (raw) => raw.listings, ['write', 'changes']),
      bus: { publish: async () => 0, subscribe: async () => async () => undefined, listeners },
      locks: { withLock: (_name, _options, work) => work() },
      vitals: this.#raw.vitals,
      time: async () => this.#raw.time(),
      uptime: async () => this.#now() - this.#began,
      ping: async () => this.#raw.ping(),
      onReturn,
      close: async () => undefined,
    }
  }

  #ask(
    process: string,
    name: string,
    args: readonly unknown[],
    perform: () => Promise<unknown>,
  ): Promise<unknown> {
    const writes = !READS.has(name)
    return new Promise((answer, fail) => {
      this.#onOperation({
        process,
        name,
        args,
        writes,
        sentAt: this.#now(),
        perform: async () => {
          const result = await perform()
          const isRead = name === 'rooms.open' && !('fence' in ((result ?? {}) as object))
          if (writes && !isRead && result !== false && result !== undefined) this.#changed(name, args)
          return result
        },
        answer,
        fail,
      })
    })
  }

  #changed(name: string, args: readonly unknown[]): void {
    const key =
      name === 'records.write'
        ? textOf((args[0] as object[]).map(keyOf))
        : name === 'records.renewLease'
          ? (args[0] as LeaseRenewal).key
          : `${args[0]}`
    const before = this.#histories.get(key) ?? ''
    this.#histories.set(key, hash(`${before}${name}${textOf(args)}@${this.#now()}`))
  }
}

const keyOf = (write: object): unknown =>
  'put' in write ? write.put : 'remove' in write ? write.remove : 'index' in write ? write.index : undefined

/** Time of a world, which all its clocks share. */
export interface SimTime {
  /** Milliseconds since the start. Only the world changes it. */
  ms: number
  /** Number of items queued so far, which is the `order` of the next one. */
  order: number
}

const START = Date.parse('2026-01-01T00:00:00.000Z')

/** Clock of one process. It shows the world's time. Its timers run only when the world calls `fire`. */
export class SimClock implements Clock {
  readonly #time: SimTime
  readonly #aheadMs: number
  readonly #timers = new Timers()

  /** `aheadMs`: difference between this clock and the world's time. */
  constructor(time: SimTime, aheadMs = 0) {
    this.#time = time
    this.#aheadMs = aheadMs
  }

  now(): number {
    return START + this.monotonic()
  }

  monotonic(): number {
    return this.#time.ms + this.#aheadMs
  }

  schedule(delayMs: number, callback: () => void): () => void {
    return this.#timers.add(this.#time.ms + Math.max(0, delayMs), callback)
  }

  /** World time of the next timer. */
  get due(): number | undefined {
    return this.#timers.next?.due
  }

  /** Number of the next timer, counted from the first timer of this clock. */
  get next(): number | undefined {
    return this.#timers.next?.order
  }

  /** Runs the next timer. */
  fire(): void {
    const { next } = this.#timers
    if (next) this.#timers.run(next)
  }
}
