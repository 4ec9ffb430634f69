import { pino } from 'pino'
import { Registry } from 'prom-client'
import type { PeerMessage } from '../../dataplane/cluster/envelope.ts'
import { NodeIdInUse } from '../../dataplane/cluster/lease.ts'
import { CLUSTER_METRICS } from '../../dataplane/cluster/metrics.ts'
import { type LocalGateway, Ownership } from '../../dataplane/cluster/ownership.ts'
import type { RoomDefinition } from '../../dataplane/rooms/definition.ts'
import type { RoomLimits } from '../../dataplane/rooms/environment.ts'
import { RoomHost } from '../../dataplane/rooms/host.ts'
import { RoomCodes } from '../../dataplane/rooms/listing.ts'
import { ROOM_METRICS } from '../../dataplane/rooms/metrics.ts'
import type { RoomAddress, ToEdge, ToOwner } from '../../dataplane/traffic.ts'
import type { Clock } from '../../shared/clock.ts'
import { registerMetrics } from '../../shared/metrics.ts'
import { JsonCodec } from '../../shared/protocol/json-codec.ts'
import { memoryStore } from '../../shared/store/memory/memory.ts'
import type {
  Bus,
  Claim,
  LeaseRenewal,
  Listings,
  Notices,
  Records,
  RoomOwner,
  RoomRecords,
  Store,
  Wakeups,
} from '../../shared/store/port.ts'
import { noTracer } from '../../shared/tracing/tracer.ts'
import { SeededRandom } from '../kit/seeded-random.ts'
import { nodeInfo } from '../support/descriptions.ts'
import { hash, type Item, ordinary, textOf } from './explorer.ts'

const log = pino({ level: 'silent' })
const codecs = [new JsonCodec()]
/** No one reads them: all nodes of all runs share them. */
const metrics = registerMetrics(new Registry(), { ...CLUSTER_METRICS, ...ROOM_METRICS })

/** What others take a node for alive after its last renewal, in milliseconds. */
export const LEASE_MS = 2000
const START_AGAIN_MS = 500
/** Members are at edges of their own, which are no nodes. */
const NO_GATEWAY: LocalGateway = {
  edge: { receive: () => undefined, reattach: () => undefined, subscribes: () => false },
  sessionTaken: async () => undefined,
  storeReturned: () => undefined,
}

/** What is broken on purpose, to see it found. */
export interface Mutation {
  /** Puts something in the way of what a node says to the store. */
  readonly store?: (store: Store) => Store
  /** Lease that the rooms check instead of the node's. */
  readonly lease?: { readonly validUntil: number }
}

/** What a node is made of. */
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
  /** Takes a message to an edge. No edge is at the node itself. */
  readonly deliver: (edge: string, message: ToEdge) => void
  /** Asks a node to open a room that was given up for it. */
  readonly ask: (nodeId: string, room: RoomAddress) => void
  /** Another process has its name: it ends. */
  readonly onReplaced: () => void
  /** Something is to be done when this turn of the event loop has brought everything. */
  readonly defer: (callback: () => void) => void
}

/** The ownership and the rooms of one node, with links that the world carries and no sockets. */
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
      rooms: () => this.#host,
      gateway: () => NO_GATEWAY,
      tracer: noTracer,
      metrics,
      leaseMs: LEASE_MS,
      recordTtlMs,
      quota: { maxRooms: 0, maxLasting: 0, perMinute: 0 },
      maxRooms: 0,
      maxWaitingMessages: 1000,
      info: () => nodeInfo(nodeId),
      onReplaced: parts.onReplaced,
    })
    this.#ownership = ownership
    this.#host = new RoomHost({
      ...common,
      rooms: [parts.definition],
      codecs,
      records: store.rooms,
      wakeups: store.wakeups,
      notices: store.notices,
      noticeDelivery: { deliver: () => undefined },
      listings: store.listings,
      codes: new RoomCodes(store.records, common.random),
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

  /** Whether it takes messages. */
  get ready(): boolean {
    return this.#ready
  }

  /** Takes its lease; a process that cannot ends, and is started again, unless another has its name. */
  start(): void {
    this.#ownership.start().then(
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
    this.#ownership.router.receive({ to: 'owner', message }, from)
  }

  /** Messages of others may be lost. */
  missed(): void {
    this.#ownership.router.missed(undefined)
    for (const edge of this.#parts.edges) this.#host.edgeMissed(edge)
  }

  /** A room was given up for this node. */
  open(room: RoomAddress): void {
    this.#ownership.router.receive({ to: 'host', room }, this.#parts.nodeId)
  }

  /** Hands its rooms over and ends its lease. */
  async drain(): Promise<void> {
    await this.#ownership.drain()
    await this.#ownership.handOver()
    await this.#host.close()
    await this.#ownership.stop()
  }

  /** The rooms that run here. */
  get rooms(): { readonly epoch: number }[] {
    return [...this.#host.rooms]
  }

  #send(to: string, message: PeerMessage): void {
    const { edges, deliver, ask } = this.#parts
    if (message.to === 'host') ask(to, message.room)
    // A node that was taken for dead and lives finds out without being told, only later.
    else if (message.to === 'edge' && edges.includes(to)) deliver(to, message.message)
  }
}

/** Something that is to happen, and since when, as a number that grows. */
export interface Pending<T> {
  readonly order: number
  /** The same in every run that lived through the same. */
  readonly id: string
  readonly value: T
}

/** The answer of an operation that a process has yet to hear. */
export interface Answer {
  readonly operation: Operation
  readonly result: unknown
  readonly error: Error | undefined
  readonly recordedEpoch: number
}

/** One life of a node's process, and everything on its way to and from it. */
export class Process {
  readonly id: string
  /** The node's name, the same after a restart. */
  readonly node: string
  readonly clock: SimClock
  /** Calls on their way to the store, oldest first. */
  readonly operations: Pending<Operation>[] = []
  readonly answers: Pending<Answer>[] = []
  /** What is to be done at the end of this turn of the event loop. */
  deferred: Pending<(() => void)[]> | undefined
  alive = true
  /** It hands over what it has, and takes nothing more. */
  draining = false
  /** World time at which it goes on. */
  pausedUntil: number | undefined
  /** World time until which it cannot reach the store. */
  cutUntil: number | undefined
  /** World time until which it does not listen to others. */
  deafUntil: number | undefined
  /** It has gone on, and looks at its timers before anything else. */
  timersFirst = false
  /** To be called when it reaches the store again. */
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

  /** Everything on its way from and to it but messages. */
  get pending(): Pending<unknown>[] {
    const { operations, answers, deferred } = this
    return deferred ? [...operations, ...answers, deferred] : [...operations, ...answers]
  }

  /** When something happens to it by itself, in the world's time. */
  get times(): number[] {
    const { running, clock, pausedUntil, cutUntil, deafUntil } = this
    const own = running ? [clock.due, cutUntil, deafUntil] : []
    return [pausedUntil, ...own].filter((time) => time !== undefined)
  }

  /** Whether nothing is wrong with it that will pass. */
  get calm(): boolean {
    const { alive, model, pausedUntil, cutUntil, deafUntil } = this
    return !alive || (model.ready && (pausedUntil ?? cutUntil ?? deafUntil) === undefined)
  }

  /** It reaches the store again. */
  reconnect(): void {
    this.cutUntil = undefined
    this.lived('return')
    for (const callback of this.onReturn) callback()
  }

  /** It listens to others again. */
  hear(): void {
    this.deafUntil = undefined
    this.lived('hears')
    this.model.missed()
  }

  /** It is gone, and hears of nothing any more. What it has sent is on its way. */
  end(): void {
    this.alive = false
    this.pausedUntil = undefined
    this.cutUntil = undefined
    this.answers.length = 0
    this.deferred = undefined
  }

  /** A name for its next call of the store. */
  nextOperation(): string {
    return `${this.id}#${++this.#asked}`
  }

  /** It takes something in. A process is what it lived through: two with the same history are the same. */
  lived(what: string): void {
    this.#history = hash(`${this.#history}${what}@${this.clock.monotonic()}`)
  }

  /** Equal for processes that are in the same state. */
  get digest(): string {
    const { id, alive, pausedUntil, cutUntil, deafUntil, timersFirst } = this
    return alive
      ? `${id} ${this.#history} ${pausedUntil} ${cutUntil} ${deafUntil} ${timersFirst}`
      : `${id} gone`
  }
}

/** One call of the store on its way there: takes place, and is answered, when the world says so. */
export interface Operation {
  /** Which process asked. */
  readonly process: string
  /** Such as `rooms.commit`. */
  readonly name: string
  readonly args: readonly unknown[]
  /** Whether it may change what the store holds. */
  readonly writes: boolean
  /** World time at which it was asked for. */
  readonly sentAt: number
  /** Does it; resolves with what the store answers. */
  readonly perform: () => Promise<unknown>
  readonly answer: (value: unknown) => void
  readonly fail: (error: Error) => void
}

type Call = (...args: never[]) => Promise<unknown>

const READS = new Set(['rooms.inspect', 'records.read'])

/**
 * The real memory adapter behind a network: every call of a process that looks at or changes a room or a lease becomes an `Operation`.
 * Others (who is listed, how many rooms there are, how old the store is) are answered at once.
 */
export class SimStore {
  readonly #clock: SimClock
  readonly #onOperation: (operation: Operation) => void
  readonly #now: () => number
  /** What each key has seen, as one hash: equal when the key was changed by the same calls in the same order. */
  readonly #histories = new Map<string, string>()
  #raw: Store
  /** Since when it holds what it holds, in the world's time. */
  #began = Number.NEGATIVE_INFINITY

  constructor(clock: SimClock, now: () => number, onOperation: (operation: Operation) => void) {
    this.#clock = clock
    this.#now = now
    this.#onOperation = onOperation
    this.#raw = memoryStore({ clock })
  }

  /** The store itself, without the network. */
  get raw(): Store {
    return this.#raw
  }

  /** It comes back empty. */
  wipe(): void {
    this.#raw = memoryStore({ clock: this.#clock })
    this.#began = this.#now()
    this.#histories.clear()
  }

  /** What the store holds, as a text that is equal for equal contents. */
  get digest(): string {
    return [['', this.#began], ...this.#histories]
      .map(([key, history]) => `${key}=${history}`)
      .sort()
      .join()
  }

  /**
   * The store as one process reaches it. `reaches`: whether it has a connection. Locks are always free: they are for efficiency only, and what must hold has to hold without
   * them. Nothing is ever published; `listeners` says who listens.
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
          'noteStuck',
          'commit',
          'snapshot',
          'release',
          'refresh',
          'quarantine',
        ]),
        reserve: async (...asked) => this.#raw.rooms.reserve(...asked),
        open: (room, opening, mayClaim) => {
          const [raw, may] = [this.#raw, mayClaim()]
          // One that reaches a store without its data has waited for a connection, and is sent by it.
          const maySend = () => (raw === this.#raw ? may : reaches() && mayClaim())
          return this.#ask(process, 'rooms.open', [room, opening], () =>
            this.#raw.rooms.open(room, opening, maySend),
          ) as Promise<Claim | RoomOwner | undefined>
        },
      },
      notices: group<Notices>('notices', (raw) => raw.notices, [
        'announce',
        'take',
        'putOff',
        'done',
        'oldest',
        'count',
        'remove',
        'rooms',
      ]),
      wakeups: group<Wakeups>('wakeups', (raw) => raw.wakeups, ['set', 'take']),
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

/** The one time of a simulated world. */
export interface SimTime {
  /** Milliseconds since its beginning; only the world moves it. */
  ms: number
  /** How many things were set on their way so far: of two, the one with the lower number was earlier. */
  order: number
}

interface Timer {
  readonly due: number
  readonly order: number
  readonly run: () => void
}

const START = Date.parse('2026-01-01T00:00:00.000Z')

/** One process' clock: runs with the world's time, but its timers run only when the world says so. */
export class SimClock implements Clock {
  readonly #time: SimTime
  readonly #aheadMs: number
  readonly #timers: Timer[] = []
  #order = 0

  /** `ahead_ms`: how far both clocks of this process are ahead of the world's time. */
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
    const timer = { due: this.#time.ms + Math.max(0, delayMs), order: this.#order++, run: callback }
    this.#timers.push(timer)
    return () => {
      const at = this.#timers.indexOf(timer)
      if (at >= 0) this.#timers.splice(at, 1)
    }
  }

  /** When the next timer is due, in the world's time. */
  get due(): number | undefined {
    return this.#next()?.due
  }

  /** Which of all timers ever set is the next. */
  get next(): number | undefined {
    return this.#next()?.order
  }

  /** Runs the next timer. */
  fire(): void {
    const timer = this.#next()
    if (!timer) return
    this.#timers.splice(this.#timers.indexOf(timer), 1)
    timer.run()
  }

  #next(): Timer | undefined {
    let next: Timer | undefined
    for (const timer of this.#timers)
      if (!next || timer.due < next.due || (timer.due === next.due && timer.order < next.order)) next = timer
    return next
  }
}

interface Link {
  readonly to: string
  readonly queue: Pending<(missed: boolean) => void>[]
  sent: number
  /** Something was lost since the last that arrived. */
  missed: boolean
}

/** Messages on their way between nodes and edges: in order on each link, as long as they are not lost. */
export class Links {
  readonly #time: SimTime
  readonly #links = new Map<string, Link>()

  constructor(time: SimTime) {
    this.#time = time
  }

  /** Everything under way. */
  get pending(): Pending<unknown>[] {
    return [...this.#links.values()].flatMap(({ queue }) => queue)
  }

  /** `text` says what it is, for people; `arrive` hands it over, and tells whether something before it was lost, as its number would. */
  send(from: string, to: string, text: string, arrive: (missed: boolean) => void): void {
    const name = `${from} → ${to}`
    const link = this.#links.get(name) ?? { to, queue: [], sent: 0, missed: false }
    this.#links.set(name, link)
    link.queue.push({
      order: this.#time.order++,
      id: `${name}: ${text} (${++link.sent})`,
      value: arrive,
    })
  }

  /** What is under way to `to` will never arrive. */
  clear(to: string): void {
    for (const link of this.#links.values()) if (link.to === to) link.queue.length = 0
  }

  /** The next message of each link whose receiver reads it now. */
  next(receiver: (to: string) => { readonly process?: Process } | undefined, drop: boolean): Item[] {
    const items: Item[] = []
    for (const link of this.#links.values()) {
      const { to, queue } = link
      const [head] = queue
      const reader = head && receiver(to)
      if (!head || !reader) continue
      const arrive = () => {
        const { missed } = link
        link.missed = false
        queue.shift()
        head.value(missed)
      }
      const lose = () => {
        link.missed = true
        queue.shift()
      }
      const lost = { label: `${head.id} is lost`, cost: 1, take: lose }
      items.push({
        ...ordinary(head.id, head.order, reader.process, arrive),
        ...(reader.process ? {} : { about: 'edges' as const }),
        instead: drop ? [lost] : [],
      })
    }
    return items
  }
}
