import { pino } from 'pino'
import { Registry } from 'prom-client'
import { Claims } from '../../../dataplane/cluster/claims.ts'
import { CLUSTER_METRICS } from '../../../dataplane/cluster/metrics.ts'
import { Router } from '../../../dataplane/cluster/router.ts'
import { ListedRooms } from '../../../dataplane/features/lists/listing.ts'
import { LIST_METRICS } from '../../../dataplane/features/lists/metrics.ts'
import { RoomNotices } from '../../../dataplane/features/notices/notices.ts'
import { QueueOverview } from '../../../dataplane/features/queues/overview.ts'
import { SAVE_METRICS, SavedRooms } from '../../../dataplane/features/saves/saves.ts'
import type { RoomDefinition } from '../../../dataplane/room/definition.ts'
import type { TurnObserver } from '../../../dataplane/room/hooks.ts'
import { RoomHost } from '../../../dataplane/room/host.ts'
import { ROOM_LIMITS, type RoomLimits } from '../../../dataplane/room/limits.ts'
import { ROOM_METRICS } from '../../../dataplane/room/metrics.ts'
import type { KnownSuspects } from '../../../dataplane/room/room-code.ts'
import {
  type Arrival,
  type RequestAnswer,
  type RoomAddress,
  type RoomRequest,
  roomAddress,
  type ToEdge,
  type ToOwner,
} from '../../../dataplane/traffic.ts'
import type { Json, JsonObject } from '../../../shared/json.ts'
import type { Logger } from '../../../shared/log.ts'
import { type Metrics, registerMetrics } from '../../../shared/metrics.ts'
import { leaseKey } from '../../../shared/node-registry.ts'
import { LayerNumbers } from '../../../shared/protocol/codec.ts'
import { JsonCodec } from '../../../shared/protocol/json-codec.ts'
import type { ResyncReason, Subprotocol } from '../../../shared/protocol/messages.ts'
import { MsgpackCodec } from '../../../shared/protocol/msgpack-codec.ts'
import { memoryStore } from '../../../shared/store/memory/memory.ts'
import type { Claim, RoomQuota, Store } from '../../../shared/store/port.ts'
import { noTracer, type Tracer } from '../../../shared/tracing/tracer.ts'
import { FakeClock } from '../../kit/fake-clock.ts'
import { SeededRandom } from '../../kit/seeded-random.ts'
import { nodeInfo } from '../descriptions.ts'
import { TestStore } from '../test-store.ts'
import { TestMember } from './test-member.ts'
import { Undelivered } from './undelivered.ts'

/** Edge of all members, whichever node owns the room. */
const EDGE = 'node_a'
const METRICS = { ...ROOM_METRICS, ...LIST_METRICS, ...SAVE_METRICS }
const log = pino({ level: 'silent' })

type Without<T> = T extends ToOwner ? Omit<T, 'room' | 'member_id'> : never

/** Options of a bench. Default: a node with a new memory store. */
export interface BenchOptions {
  store?: Store
  clock?: FakeClock
  limits?: Partial<RoomLimits>
  nodeId?: string
  seed?: number
  tracer?: Tracer
  log?: Logger
  revealFailures?: boolean
  quota?: Partial<RoomQuota>
  turns?: TurnObserver
  suspects?: KnownSuspects
  /** Answers requests to other rooms. Default: the rooms of the bench. */
  request?: (room: RoomAddress, request: RoomRequest) => Promise<RequestAnswer>
}

/** A host of rooms with real codecs and a memory store. The bench replaces the edge: it passes frames to its members. */
export class RoomBench {
  readonly clock: FakeClock
  readonly store: TestStore
  readonly claims: Claims
  readonly host: RoomHost
  readonly queues: QueueOverview
  readonly router: Router
  readonly members = new Map<string, TestMember>()
  readonly sent: ToEdge[] = []
  /** Messages that the host has redirected to other nodes. */
  readonly redirected: Arrival[] = []
  readonly counts: Record<string, number> = {}
  readonly registry = new Registry()
  readonly notices: Undelivered
  readonly nodeId: string
  /** The node's lease. It does not expire. */
  readonly lease = { validUntil: Number.POSITIVE_INFINITY }
  /** Rooms that the store has lost may be written again immediately. */
  readonly nodes = { rewritesAllowedAt: Number.NEGATIVE_INFINITY, isGone: () => false }
  slowdown = 1
  overloaded = false
  readonly #rooms: readonly RoomDefinition[]
  readonly #options: BenchOptions
  readonly #store: Store
  readonly #asked = new Map<string, (answer: RequestAnswer) => void>()
  #deferred: (() => void)[] = []
  #ref = 1

  constructor(rooms: readonly RoomDefinition[], options: BenchOptions = {}) {
    this.clock = options.clock ?? new FakeClock()
    this.#rooms = rooms
    this.#options = options
    this.#store = options.store ?? memoryStore({ clock: this.clock })
    this.store = new TestStore(this.#store)
    this.notices = new Undelivered(this.store.store.notices, this.clock)
    this.nodeId = options.nodeId ?? 'node_a'
    this.claims = new Claims(
      {
        nodeId: this.nodeId,
        store: this.store.store,
        clock: this.clock,
        log,
        metrics: registerMetrics(new Registry(), CLUSTER_METRICS),
        recordTtlMs: 600_000,
        quota: { maxRooms: 0, maxLasting: 0, perMinute: 0, ...options.quota },
        tracer: options.tracer ?? noTracer,
      },
      { valid: () => true },
      {
        isAlive: () => false,
        listenedAt: () => undefined,
        judge: (nodeId) => this.judge(nodeId),
        claimsAllowedAt: Number.NEGATIVE_INFINITY,
      },
    )
    this.router = new Router(
      {
        nodeId: this.nodeId,
        clock: this.clock,
        log,
        links: {
          forget: () => {},
          greet: () => {},
          send: (_, message) => {
            if (message.to === 'owner') this.redirected.push({ message: message.message, from: EDGE })
            else if (message.to === 'edge') this.#receive(message.message)
          },
        },
        metrics: registerMetrics(new Registry(), CLUSTER_METRICS),
        maxWaitingMessages: options.limits?.waitingMessages ?? ROOM_LIMITS.waitingMessages,
      },
      {
        claims: this.claims,
        nodes: {
          isAlive: () => false,
          isGone: () => false,
          judge: (nodeId) => this.judge(nodeId),
          storeIsBehind: async () => false,
          nodes: () => [nodeInfo(this.nodeId)],
          get: (nodeId) => nodeInfo(nodeId),
        },
        placement: { choose: () => this.nodeId },
        self: { draining: false, cordoned: false },
      },
    )
    const random = new SeededRandom(options.seed ?? 7)
    const metrics = this.#metrics()
    this.host = new RoomHost({
      nodeId: this.nodeId,
      rooms,
      codecs: [new JsonCodec(), new MsgpackCodec()],
      records: this.store.store.rooms,
      wakeups: this.store.store.wakeups,
      additions: (room, mayAct) =>
        new RoomNotices(room, mayAct, { clock: this.clock, random, metrics, notices: this.notices }),
      features: (needs) => [
        new ListedRooms(needs, metrics, this.store.store),
        new SavedRooms(needs, metrics),
      ],
      clock: this.clock,
      random,
      log: options.log ?? log,
      metrics,
      cluster: {
        lease: this.lease,
        nodes: this.nodes,
        requests: { send: options.request ?? ((room, request) => this.#request(room, request)) },
        router: {
          redirect: (room, inbox, owner) => {
            if (owner === undefined && this.host.rooms.accepts) this.router.redirect(room, inbox, undefined)
            else this.redirected.push(...inbox.take())
          },
          deliver: (_, message) => this.#receive(message),
        },
      },
      load: this,
      defer: (callback) => this.#deferred.push(callback),
      ...(options.limits ? { limits: options.limits } : {}),
      ...(options.revealFailures ? { revealFailures: true } : {}),
      ...(options.turns ? { turns: options.turns } : {}),
      ...(options.suspects ? { suspects: options.suspects } : {}),
      ...(options.tracer ? { tracer: options.tracer } : {}),
    })
    this.queues = new QueueOverview(() => this.host.rooms.running, metrics, this.clock)
    const edge = {
      receive: (message: ToEdge) => this.#receive(message),
      reattach: () => {},
      subscribes: () => false,
    }
    this.router.start(
      this.host,
      { edge, sessionTaken: async () => {}, storeReturned: () => {} },
      { answered: (id, answer) => this.#asked.get(id)?.(answer), moved: () => {} },
    )
  }

  /** False: the lease has expired, so the rooms must not act. */
  get mayAct(): boolean {
    return this.lease.validUntil > this.clock.monotonic()
  }

  set mayAct(mayAct: boolean) {
    this.lease.validUntil = mayAct ? Number.POSITIVE_INFINITY : Number.NEGATIVE_INFINITY
  }

  /** Returns whether the store has the lease of a node (`live`). */
  async judge(nodeId: string): Promise<'alive' | 'dead'> {
    const [lease] = await this.store.store.records.read([leaseKey(nodeId)])
    return lease ? 'alive' : 'dead'
  }

  /** Returns another node with the same rooms, clock and store. These members move to it. */
  successor(members: readonly TestMember[] = [], options: BenchOptions = {}): RoomBench {
    const { clock } = this
    const next = new RoomBench(this.#rooms, {
      ...this.#options,
      clock,
      store: this.#store,
      nodeId: 'node_b',
      ...options,
    })
    for (const member of members) {
      this.members.delete(member.memberId)
      next.members.set(member.memberId, member)
    }
    return next
  }

  /** Claims a room of this node for another node. Returns the claim. */
  async claimed(type: string, nodeId = 'node_b', key = 'a'): Promise<Claim> {
    const { rooms } = this.store.store
    const name = `prj_test/${type}:${key}`
    const claim = await rooms.claim(name, nodeId, (await rooms.inspect(name))!.epoch, 60_000)
    if (!claim) throw new Error(`${name} cannot be claimed`)
    return claim
  }

  /** Writes the node's lease to the store. */
  async live(): Promise<void> {
    await this.store.store.records.write([{ put: leaseKey(this.nodeId), value: new Uint8Array(0) }])
  }

  /** Removes the node's lease from the store: other nodes then count it as dead. */
  async die(): Promise<void> {
    await this.store.store.records.write([{ remove: leaseKey(this.nodeId) }])
  }

  /** Runs promises, deferred callbacks and due timers until none is left. */
  async untilIdle(): Promise<void> {
    for (let calm = 0; calm < 60; calm++) {
      await Promise.resolve()
      const deferred = this.#deferred
      this.#deferred = []
      if (deferred.length > 0) calm = 0
      for (const callback of deferred) callback()
      // Runs timers that the callbacks have scheduled for this moment.
      if (deferred.length > 0) this.clock.advance(0)
    }
  }

  /** Advances the clock in steps, and runs what is due after each step. */
  async advance(ms: number, step = 5): Promise<void> {
    for (let left = ms; left > 0; left -= step) {
      this.clock.advance(Math.min(step, left))
      await this.untilIdle()
    }
  }

  address(type: string, key = 'a'): RoomAddress {
    return roomAddress('prj_test', type, key)
  }

  send(type: string, memberId: string, message: Without<ToOwner>, key?: string, from = EDGE): void {
    this.router.send({ room: this.address(type, key), member_id: memberId, ...message } as ToOwner, from)
  }

  /** As `askToJoin`, and runs what is due. */
  async join(
    type: string,
    memberId: string,
    options: {
      codec?: Subprotocol
      options?: Json
      key?: string
      requestId?: number
      sub?: string
      data?: JsonObject
      traceparent?: string
      rejoin?: boolean
      /** False: the join creates no room. */
      create?: false
      /** True: the client joins as a spectator. */
      watch?: boolean
      /** Code that the player joins by. */
      code?: string
      /** False: the client does not understand hidden layers. Default true. */
      layers?: boolean
      /** Node of its socket, and number of resumes of its session (`turn`). */
      edge?: string
      turn?: number
    } = {},
  ): Promise<TestMember> {
    const member = this.askToJoin(type, memberId, options)
    await this.untilIdle()
    return member
  }

  askToJoin(
    type: string,
    memberId: string,
    {
      codec = 'roomful.v1.msgpack',
      options = {},
      key,
      requestId = this.#ref++,
      sub,
      data,
      traceparent,
      rejoin,
      create,
      watch,
      code,
      layers = true,
      edge = EDGE,
      turn = 0,
    }: Parameters<RoomBench['join']>[2] = {},
  ): TestMember {
    const member = this.members.get(memberId) ?? new TestMember(memberId, codec)
    this.members.set(memberId, member)
    const { sessionId } = member
    this.send(
      type,
      memberId,
      {
        kind: 'join',
        request_id: requestId,
        edge,
        turn,
        codec,
        session_id: sessionId,
        sub: sub ?? null,
        ...(data && { data }),
        principal: sub ?? 'token',
        options,
        traceparent,
        ...(rejoin && { rejoin }),
        ...((create === false || watch) && { create: false }),
        ...(watch && { watch }),
        ...(code !== undefined && { code }),
        layers,
      },
      key,
    )
    return member
  }

  message(type: string, memberId: string, name: string, data: Json, ref?: number, key?: string): void {
    this.send(
      type,
      memberId,
      { kind: 'message', type: name, data, ...(ref !== undefined && { ref, settled: 0 }) },
      key,
    )
  }

  /** As `message`, and runs what is due. */
  async say(...message: Parameters<RoomBench['message']>): Promise<void> {
    this.message(...message)
    await this.untilIdle()
  }

  /** As `attach`, and runs what is due. Returns the room's answer. */
  async resume(...attach: Parameters<RoomBench['attach']>): Promise<Extract<ToEdge, { kind: 'attached' }>> {
    this.attach(...attach)
    await this.untilIdle()
    return this.sentOf('attached').at(-1)!
  }

  detach(type: string, member: TestMember, moves = false): void {
    member.attached = false
    this.send(type, member.memberId, { kind: 'detach', moves })
  }

  /** Resumes a member. `settled`: the client knows all outcomes up to this ref. `through`: the edge no longer has messages up to this ref. */
  attach(
    type: string,
    member: TestMember,
    turn = 0,
    edge = EDGE,
    settled = 0,
    data?: JsonObject,
    through = settled,
  ): void {
    const { codec, sessionId, epoch, seq } = member
    this.send(
      type,
      member.memberId,
      {
        kind: 'attach',
        ask: 1,
        edge,
        turn,
        codec,
        session_id: sessionId,
        data,
        epoch,
        seq,
        settled,
        through,
      },
      undefined,
      edge,
    )
  }

  leave(type: string, memberId: string, key?: string): void {
    this.send(type, memberId, { kind: 'leave', reason: 'left', request_id: this.#ref++ }, key)
  }

  resync(type: string, member: TestMember, reason: ResyncReason): void {
    this.send(type, member.memberId, { kind: 'resync', reason })
  }

  describe(type: string, key = 'a') {
    const { items } = this.host.describe({
      include_state: true,
      room_id: `${type}:${key}`,
    })
    return [...items][0]
  }

  /** Returns the host's messages of one kind, oldest first. */
  sentOf<K extends ToEdge['kind']>(kind: K): Extract<ToEdge, { kind: K }>[] {
    return this.sent.filter((message) => message.kind === kind) as Extract<ToEdge, { kind: K }>[]
  }

  /** Sends a request to a room of this bench, like the node of a backend's call. Resolves with the answer. */
  request(type: string, request: RoomRequest, key?: string): Promise<RequestAnswer> {
    return this.#request(this.address(type, key), request)
  }

  #request(room: RoomAddress, request: RoomRequest): Promise<RequestAnswer> {
    const id = `request_${this.#ref++}`
    return new Promise((resolve) => {
      this.#asked.set(id, resolve)
      this.send(room.roomType, id, { kind: 'request', request }, room.key)
    })
  }

  #receive(message: ToEdge): void {
    this.sent.push(message)
    if (message.kind === 'answer') this.#asked.get(message.member_id)?.(message.answer)
    if (message.kind === 'redirect' || message.kind === 'resend') return
    if (message.kind === 'update') {
      const joined = new Set(message.joined.map(({ member_id: memberId }) => memberId))
      for (const member of this.members.values()) {
        if (!member.inRoom || !member.attached || joined.has(member.memberId)) continue
        if (member.room !== name(message)) continue
        const own = message.layers?.members.find((one) => one.member_id === member.memberId)?.own ?? []
        const layers = message.layers && own.map((i) => message.layers!.parts[i]!)
        const rest = message.leaving?.includes(member.memberId) ? undefined : message.rest
        member.frames({ patch: message.patch, layers, rest }, member.room)
      }
      for (const join of message.joined) {
        const member = this.members.get(join.member_id)
        if (!member) continue
        member.inRoom = true
        member.room = name(message)
        member.frames(join.snapshot, member.room, true)
      }
      for (const { member_id: memberId, events, ack, ...settled } of message.personal) {
        const member = this.members.get(memberId)
        if (!member?.attached) continue
        for (const event of events) member.hear(event)
        if (ack !== undefined) member.takeOutcomes({ ack, ...settled })
      }
      return
    }
    if (message.kind === 'spectators') {
      for (const member of this.members.values())
        if (member.attached && member.inRoom && member.room === name(message))
          member.frames({ rest: message.frames }, name(message))
      return
    }
    const member = this.members.get(message.member_id)
    if (!member) return
    switch (message.kind) {
      case 'state':
        member.frames(message.state, name(message), true)
        break
      case 'attached':
        member.attached = true
        member.numbers = new LayerNumbers()
        for (const frames of message.frames) member.frames(frames, name(message))
        member.takeOutcomes(message)
        break
      case 'refused':
      case 'error':
        member.errors.push({ code: message.code, message: message.message, ref: message.request_id })
        break
      case 'no_seat':
        member.errors.push({ code: 'no_seat', message: 'no seat' })
        member.inRoom = false
        break
      case 'left':
        member.inRoom = false
        member.ended(message.farewell)
        break
    }
  }

  #metrics(): Metrics<typeof METRICS> {
    const count = (key: string, by = 1) => {
      this.counts[key] = (this.counts[key] ?? 0) + by
    }
    return {
      ...registerMetrics(this.registry, METRICS),
      resyncs: { inc: ({ reason }) => count(`resync ${reason}`) },
      fencedWrites: { inc: () => count('fenced') },
      limitsReached: { inc: ({ limit }) => count(`limit ${limit}`) },
      roomErrors: { inc: ({ code }) => count(`error ${code}`) },
      timersFired: { inc: () => count('fired') },
      inputsShed: { inc: ({ how }) => count(how) },
      roomLoads: { inc: ({ outcome }) => count(`load ${outcome}`) },
      roomMigrations: { inc: ({ outcome }) => count(outcome) },
      roomSaves: { inc: ({ outcome }) => count(`save ${outcome}`) },
      roomRows: { inc: ({ outcome }) => count(`row ${outcome}`) },
      roomsAsleep: { inc: () => count('asleep') },
      slowTurns: { inc: ({ hook }) => count(`slow ${hook}`) },
      historyDropped: { inc: (updates) => count('history_dropped', updates) },
      backlogFull: { inc: () => count('backlog_full') },
      roomsQuarantined: { inc: () => count('quarantined') },
    }
  }
}

const name = ({ room }: ToEdge): string => room.name

interface OneRoom {
  readonly bench: RoomBench
  readonly say: (type: string, data?: unknown) => Promise<void>
}

/**
 * Creates a bench of one room type, and joins members to its room. Returns them by their names. `say` sends a message of the first
 * member, with the next ref, and runs the bench until it is idle.
 */
export async function roomWith<Name extends string>(
  room: RoomDefinition,
  names: readonly Name[],
  options?: BenchOptions,
): Promise<OneRoom & { readonly [N in Name]: TestMember }> {
  const bench = new RoomBench([room], options)
  const members: Partial<Record<Name, TestMember>> = {}
  for (const name of names) members[name] = await bench.join(room.type, name)
  let ref = 0
  const say = (type: string, data: unknown = null) =>
    bench.say(room.type, names[0]!, type, data as Json, ++ref)
  return { bench, say, ...(members as Record<Name, TestMember>) }
}
