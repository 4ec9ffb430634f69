import { pino } from 'pino'
import { Registry } from 'prom-client'
import { applyPatch } from 'rfc6902'
import { Claims } from '../../../dataplane/cluster/claims.ts'
import { CLUSTER_METRICS } from '../../../dataplane/cluster/metrics.ts'
import { Router } from '../../../dataplane/cluster/router.ts'
import { type Frame, payloadsOf } from '../../../dataplane/frame.ts'
import type { RoomDefinition } from '../../../dataplane/rooms/definition.ts'
import { ROOM_LIMITS, type RoomLimits } from '../../../dataplane/rooms/environment.ts'
import { RoomHost } from '../../../dataplane/rooms/host.ts'
import { RoomCodes } from '../../../dataplane/rooms/listing.ts'
import { ROOM_METRICS, type RoomMetrics } from '../../../dataplane/rooms/metrics.ts'
import {
  type Acknowledgement,
  type Arrival,
  type Farewell,
  type Frames,
  type RepliedRef,
  type RequestAnswer,
  type RoomAddress,
  type RoomRequest,
  roomAddress,
  type ToEdge,
  type ToOwner,
} from '../../../dataplane/traffic.ts'
import type { Suspects } from '../../../dataplane/watchdog/suspects.ts'
import type { TurnObserver } from '../../../dataplane/watchdog/turns.ts'
import type { Json, JsonObject } from '../../../shared/json.ts'
import type { Logger } from '../../../shared/log.ts'
import { registerMetrics } from '../../../shared/metrics.ts'
import { leaseKey } from '../../../shared/node-registry.ts'
import { ReadingCodec, type ReadMessage } from '../../../shared/protocol/codec.ts'
import { JsonCodec } from '../../../shared/protocol/json-codec.ts'
import type {
  MemberInfo,
  ResyncReason,
  ServerMessage,
  Subprotocol,
} from '../../../shared/protocol/messages.ts'
import { MsgpackClientCodec } from '../../../shared/protocol/msgpack-client-codec.ts'
import { MsgpackCodec } from '../../../shared/protocol/msgpack-codec.ts'
import { memoryStore } from '../../../shared/store/memory/memory.ts'
import {
  type Claim,
  type RoomQuota,
  type RoomRecords,
  type Store,
  StoreUnavailable,
} from '../../../shared/store/port.ts'
import { Checksum } from '../../../shared/sync/checksum.ts'
import { apply, type Operation } from '../../../shared/sync/delta.ts'
import { noTracer, type Tracer } from '../../../shared/tracing/tracer.ts'
import { FakeClock } from '../../kit/fake-clock.ts'
import { SeededRandom } from '../../kit/seeded-random.ts'
import { nodeInfo } from '../descriptions.ts'

/** Where all members have their sockets, whichever node owns the room. */
const EDGE = 'node_a'
const log = pino({ level: 'silent' })

type Without<T> = T extends ToOwner ? Omit<T, 'room' | 'member_id'> : never

/** How a bench differs from one node that has a store for itself. */
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
  suspects?: Pick<Suspects, 'limitOf' | 'stuck'>
  /** Answers requests to other rooms. Default: the rooms of the bench. */
  request?: (room: RoomAddress, request: RoomRequest) => Promise<RequestAnswer>
}

/** A host of rooms with real codecs and a memory store, whose edge is the test: it does with frames what an edge does. */
export class RoomBench {
  readonly clock: FakeClock
  readonly store: TestStore
  readonly claims: Claims
  readonly host: RoomHost
  readonly router: Router
  readonly members = new Map<string, TestMember>()
  readonly sent: ToEdge[] = []
  /** What this node has no place for. */
  readonly redirected: Arrival[] = []
  readonly counts: Record<string, number> = {}
  readonly registry = new Registry()
  /** Rooms whose notices were written. */
  readonly written: string[] = []
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
      {
        lease: { valid: () => true },
        nodes: {
          isAlive: () => false,
          judge: (nodeId) => this.judge(nodeId),
          claimsAllowedAt: Number.NEGATIVE_INFINITY,
        },
        takenOver: () => {},
      },
    )
    this.router = new Router(
      {
        nodeId: this.nodeId,
        clock: this.clock,
        log,
        rooms: () => this.host,
        gateway: () => ({
          edge: {
            receive: (message) => this.#receive(message),
            reattach: () => {},
            subscribes: () => false,
          },
          sessionTaken: async () => {},
          storeReturned: () => {},
        }),
        links: {
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
        place: () => this.nodeId,
        requests: { receive: () => false },
        draining: false,
        cordoned: false,
      },
    )
    const random = new SeededRandom(options.seed ?? 7)
    this.host = new RoomHost({
      nodeId: this.nodeId,
      rooms,
      codecs: [new JsonCodec(), new MsgpackCodec()],
      records: this.store.store.rooms,
      wakeups: this.store.store.wakeups,
      notices: this.store.store.notices,
      noticeDelivery: { deliver: (room) => this.written.push(room) },
      listings: this.store.store.listings,
      codes: new RoomCodes(this.store.store.records, random),
      clock: this.clock,
      random,
      log: options.log ?? log,
      metrics: this.#metrics(),
      cluster: {
        lease: this.lease,
        nodes: this.nodes,
        requests: { send: options.request ?? ((room, request) => this.#request(room, request)) },
        router: {
          redirect: (room, inbox, owner) => {
            if (owner === undefined && this.host.accepts) this.router.redirect(room, inbox, undefined)
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
  }

  /** False: the lease has expired, so the rooms must not act. */
  get mayAct(): boolean {
    return this.lease.validUntil > this.clock.monotonic()
  }

  set mayAct(mayAct: boolean) {
    this.lease.validUntil = mayAct ? Number.POSITIVE_INFINITY : Number.NEGATIVE_INFINITY
  }

  /** Whether a node lives (`live`). */
  async judge(nodeId: string): Promise<'alive' | 'dead'> {
    const [lease] = await this.store.store.records.read([leaseKey(nodeId)])
    return lease ? 'alive' : 'dead'
  }

  /** Another node with the same rooms, clock and store. What these members hear comes from there from now on. */
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

  /** Another node claims a room of this one: what it finds. */
  async claimed(type: string, nodeId = 'node_b', key = 'a'): Promise<Claim> {
    const { rooms } = this.store.store
    const name = `prj_test/${type}:${key}`
    const claim = await rooms.claim(name, nodeId, (await rooms.inspect(name))!.epoch, 60_000)
    if (!claim) throw new Error(`${name} cannot be claimed`)
    return claim
  }

  /** Records that this node lives, as its lease would. */
  async live(): Promise<void> {
    await this.store.store.records.write([{ put: leaseKey(this.nodeId), value: new Uint8Array(0) }])
  }

  /** From now on others take this node for dead. */
  async die(): Promise<void> {
    await this.store.store.records.write([{ remove: leaseKey(this.nodeId) }])
  }

  /** What the event loop would do until nothing is left to do at this moment. */
  async settle(): Promise<void> {
    for (let calm = 0; calm < 60; calm++) {
      await Promise.resolve()
      const deferred = this.#deferred
      this.#deferred = []
      if (deferred.length > 0) calm = 0
      for (const callback of deferred) callback()
      // What has come due meanwhile.
      if (deferred.length > 0) this.clock.advance(0)
    }
  }

  /** Lets time pass in small steps, with everything that happens on the way. */
  async advance(ms: number, step = 5): Promise<void> {
    for (let left = ms; left > 0; left -= step) {
      this.clock.advance(Math.min(step, left))
      await this.settle()
    }
  }

  address(type: string, key = 'a'): RoomAddress {
    return roomAddress('prj_test', type, key)
  }

  send(type: string, memberId: string, message: Without<ToOwner>, key?: string, from = EDGE): void {
    this.router.send({ room: this.address(type, key), member_id: memberId, ...message } as ToOwner, from)
  }

  /** Asks for a membership and lets everything settle. */
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
      /** False: the join makes no room. */
      create?: false
      /** Code that the player joins by. */
      code?: string
      /** Whether its client can put hidden layers together. */
      layers?: boolean
      /** Where its socket is, and how often its session was resumed. */
      edge?: string
      turn?: number
    } = {},
  ): Promise<TestMember> {
    const member = this.askToJoin(type, memberId, options)
    await this.settle()
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
        ...(create === false && { create }),
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

  /** A message, and all that comes of it at this moment. */
  async say(...message: Parameters<RoomBench['message']>): Promise<void> {
    this.message(...message)
    await this.settle()
  }

  /** A member comes back, and everything settles: what it is answered. */
  async resume(...attach: Parameters<RoomBench['attach']>): Promise<Extract<ToEdge, { kind: 'attached' }>> {
    this.attach(...attach)
    await this.settle()
    return this.sentOf('attached').at(-1)!
  }

  detach(type: string, member: TestMember, moves = false): void {
    member.attached = false
    this.send(type, member.memberId, { kind: 'detach', moves })
  }

  /** `settled`: of what the client knows all outcomes. `through`: what its edge does not have any more. */
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

  /** The messages of one kind that were sent, oldest first. */
  sentOf<K extends ToEdge['kind']>(kind: K): Extract<ToEdge, { kind: K }>[] {
    return this.sent.filter((message) => message.kind === kind) as Extract<ToEdge, { kind: K }>[]
  }

  /** Sends a request to a room of this bench, as a backend's node would. Resolves with the answer. */
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
        const own = message.layers?.members.find((one) => one.member_id === member.memberId)?.own
        for (const i of own ?? []) member.frames(message.layers!.frames[i], member.room)
        member.frames(message.patch, member.room)
        if (!message.leaving?.includes(member.memberId)) member.frames(message.rest, member.room)
      }
      for (const join of message.joined) {
        const member = this.members.get(join.member_id)
        if (!member) continue
        member.inRoom = true
        member.room = name(message)
        member.frames(join.layers, member.room)
        member.frames(join.snapshot, member.room)
      }
      for (const { member_id: memberId, events, ack, ...settled } of message.personal) {
        const member = this.members.get(memberId)
        if (!member?.attached) continue
        for (const event of events) member.hear(event)
        if (ack !== undefined) member.settle({ ack, ...settled })
      }
      return
    }
    const member = this.members.get(message.member_id)
    if (!member) return
    switch (message.kind) {
      case 'state':
        member.frames(message.state, name(message))
        break
      case 'attached':
        member.attached = true
        for (const frames of message.frames) member.frames(frames, name(message))
        member.settle(message)
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

  #metrics(): RoomMetrics {
    const count = (key: string, by = 1) => {
      this.counts[key] = (this.counts[key] ?? 0) + by
    }
    return {
      ...registerMetrics(this.registry, ROOM_METRICS),
      resyncs: { inc: ({ reason }) => count(`resync ${reason}`) },
      turnsStuck: { inc: ({ hook }) => count(`stuck ${hook}`) },
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

/** A bench of one room type, and the members that have joined its room, by their names. */
export async function roomWith<Name extends string>(
  room: RoomDefinition,
  names: readonly Name[],
  options?: BenchOptions,
): Promise<{ readonly bench: RoomBench } & { readonly [N in Name]: TestMember }> {
  const bench = new RoomBench([room], options)
  const members: Partial<Record<Name, TestMember>> = {}
  for (const name of names) members[name] = await bench.join(room.type, name)
  return { bench, ...(members as Record<Name, TestMember>) }
}

/** What clients hear of hidden layers. */
type LayerMessage = Extract<ReadMessage | ServerMessage, { layer: string }>

const fromJson = (payload: Uint8Array): ServerMessage => JSON.parse(new TextDecoder().decode(payload))

/** What another JSON Patch library makes of a state. */
function patched(state: Json, ops: readonly Operation[]): Json {
  const document = { state: structuredClone(state) }
  const problems = applyPatch(
    document,
    ops.map((op) => ({ ...op, path: `/state${op.path}` })),
  ).filter((problem) => problem !== null)
  if (problems.length > 0) throw problems[0]
  return document.state
}

/** A client in one room, as the protocol tells clients to behave: what it holds comes from frames alone. */
export class TestMember {
  readonly memberId: string
  readonly sessionId: string
  readonly codec: Subprotocol
  attached = true
  inRoom = false
  /** The room it is, or was last, in. */
  room = ''
  /** What everyone sees. */
  state: Json = null
  /** By name, the states of the hidden layers it has. */
  readonly layers = new Map<string, Json>()
  epoch = 0
  seq = 0
  checksum = 0
  members: MemberInfo[] = []
  acked = 0
  forgotten = 0
  /** What the room has answered, in order. */
  readonly replies: RepliedRef[] = []
  /** Every payload of frames that came, oldest first. */
  readonly received: Uint8Array[] = []
  /** Everything that was told besides states, in order. */
  readonly heard: string[] = []
  readonly errors: { code: string; message: string; ref?: number | undefined }[] = []
  /** What would have made the client ask for a resync. */
  readonly faults: string[] = []
  resyncs = 0
  /** When its layers came. */
  readonly #stated = new Map<string, { epoch: number; seq: number }>()
  /** Layer messages of a flush whose patch or state is still to come. */
  #held: LayerMessage[] = []
  /** By room: an edge would say which one frames are about. */
  readonly #msgpack = new Map<string, ReadingCodec>()

  constructor(memberId: string, codec: Subprotocol) {
    this.memberId = memberId
    this.sessionId = `ses_of_${memberId}`
    this.codec = codec
  }

  /** What became of its messages. */
  settle({ ack, outcomes = [], forgotten = 0 }: Acknowledgement): void {
    for (const outcome of outcomes)
      if ('reply' in outcome) this.replies.push(outcome)
      else this.errors.push(outcome)
    this.acked = ack
    this.forgotten = forgotten
  }

  frames(frames: Frames | undefined, room: string): void {
    if (!frames) return
    const msgpack = this.#msgpack.get(room) ?? new ReadingCodec(new MsgpackClientCodec(room))
    this.#msgpack.set(room, msgpack)
    const frame: Frame | undefined = frames[this.codec]
    if (!frame) throw new Error(`${this.memberId} speaks ${this.codec}, which the frames are not for`)
    for (const payload of payloadsOf(frame)) {
      this.received.push(payload)
      this.hear(this.codec === 'roomful.v1.json' ? fromJson(payload) : msgpack.decode(payload))
    }
  }

  /** Its seat has ended. */
  ended({ epoch, seq, reason, message }: Farewell): void {
    this.hear({
      t: 'member',
      room_id: '',
      member_id: this.memberId,
      sub: null,
      status: 'left',
      epoch,
      seq,
      reason,
      ...(message !== undefined && { message }),
    })
  }

  hear(message: ReadMessage | ServerMessage): void {
    switch (message.t) {
      case 'state.snapshot':
      case 'state.resync':
        if (message.t === 'state.resync') this.resyncs++
        this.members = [...message.members]
        this.state = message.state
        this.epoch = message.epoch
        this.seq = message.seq
        this.checksum = message.checksum
        for (const [layer, at] of this.#stated)
          if (at.epoch !== message.epoch || at.seq !== message.seq) this.layers.delete(layer)
        this.#release()
        this.#check()
        break
      case 'state.patch':
        if (message.epoch < this.epoch) break
        this.epoch = message.epoch
        if (message.seq !== this.seq + 1) {
          this.faults.push(`patch ${message.seq} after ${this.seq}`)
          break
        }
        if ('ops' in message) this.state = patched(this.state, message.ops)
        else if (message.delta) this.state = apply(this.state, message.delta)
        this.seq = message.seq
        this.checksum = message.checksum
        this.#release()
        this.#check()
        break
      case 'layer.state':
      case 'layer.patch':
        if (message.epoch >= this.epoch) this.#held.push(message)
        if (message.seq === this.seq && message.t !== 'layer.patch') this.#release()
        break
      case 'event':
        this.#flushed(message)
        this.heard.push(`${message.name} ${JSON.stringify(message.data)}`)
        break
      case 'member':
        this.#flushed(message)
        this.#changed(message)
        break
      default:
        throw new Error(`an unexpected ${message.t}`)
    }
  }

  #changed({ member_id: id, sub, status, reason, message }: Extract<ServerMessage, { t: 'member' }>): void {
    const connected = status !== 'disconnected'
    if (status === 'joined') {
      this.members.push({ member_id: id, sub, connected })
      this.heard.push(`+${id}`)
    } else if (status === 'left') {
      this.members = this.members.filter((member) => member.member_id !== id)
      this.heard.push(`-${id} ${reason}${message ? `: ${message}` : ''}`)
    } else {
      this.members = this.members.map((member) =>
        member.member_id === id ? { ...member, connected } : member,
      )
      this.heard.push(`${connected ? 'back' : 'away'} ${id}`)
    }
  }

  #flushed({ epoch, seq }: { epoch: number; seq: number }): void {
    if (seq > this.seq + 1) this.faults.push(`news of ${seq} after ${this.seq}`)
    if (seq > this.seq) this.seq = seq
    this.epoch = Math.max(this.epoch, epoch)
  }

  /** Takes what was held for the present flush. */
  #release(): void {
    const held = this.#held
    this.#held = []
    for (const message of held) {
      const { layer, epoch, seq } = message
      if (seq !== this.seq) this.faults.push(`${message.t} of ${seq} at ${this.seq}`)
      if (message.t === 'layer.state' && message.state === undefined) {
        this.layers.delete(layer)
        continue
      }
      if (message.t === 'layer.state') this.#stated.set(layer, { epoch, seq })
      let state: Json = message.t === 'layer.state' ? message.state! : (this.layers.get(layer) ?? {})
      if (message.t === 'layer.patch') {
        if ('ops' in message) state = patched(state, message.ops)
        else if (message.delta) state = apply(state, message.delta)
      }
      this.layers.set(layer, state)
      const found = new Checksum().of(state)
      if (found !== message.checksum)
        this.faults.push(`checksum ${found} of ${layer} at ${seq}, not ${message.checksum}`)
    }
  }

  #check(): void {
    const found = new Checksum().of(this.state)
    if (found !== this.checksum) this.faults.push(`checksum ${found} at ${this.seq}, not ${this.checksum}`)
  }
}

/** What happens to the writes of rooms. */
type Mood = 'fine' | 'slow' | 'silent' | 'deaf' | 'refusing'

/**
 * A store whose room writes can be held back (`slow`), lost on the way (`deaf`: not done, no answer), left without an answer
 * (`silent`: done, no answer) or refused (`refusing`: not done, an error that is none of the port's).
 */
export class TestStore {
  readonly store: Store
  mood: Mood = 'fine'
  /** Writes of rooms that were asked for. */
  writes = 0
  readonly #held: (() => void)[] = []
  #rooms: () => RoomRecords

  constructor(inner: Store) {
    const write =
      <A extends unknown[]>(call: (...args: A) => Promise<boolean>) =>
      async (...args: A): Promise<boolean> => {
        this.writes++
        if (this.mood === 'deaf') throw new StoreUnavailable('the test store is deaf')
        if (this.mood === 'refusing') throw new Error('NOPERM')
        if (this.mood === 'slow') await new Promise<void>((go) => this.#held.push(go))
        const done = await call(...args)
        if (this.mood === 'silent') throw new StoreUnavailable('the test store is silent')
        return done
      }
    const rooms = new Proxy({} as RoomRecords, {
      get: (_, name) => {
        const records = this.#rooms()
        const call = records[name as keyof RoomRecords] as (...args: unknown[]) => unknown
        return call.bind(records)
      },
    })
    this.#rooms = () => inner.rooms
    this.store = {
      ...inner,
      kind: inner.kind,
      records: inner.records,
      wakeups: {
        set: async (...args) => {
          if (this.mood === 'deaf') throw new StoreUnavailable('the test store is deaf')
          await inner.wakeups.set(...args)
          if (this.mood === 'silent') throw new StoreUnavailable('the test store is silent')
        },
        take: (...args) => inner.wakeups.take(...args),
      },
      notices: inner.notices,
      bus: inner.bus,
      locks: inner.locks,
      time: () => inner.time(),
      uptime: () => inner.uptime(),
      onReturn: (callback) => inner.onReturn(callback),
      ping: () => inner.ping(),
      close: () => inner.close(),
      rooms: {
        inspect: async (room) => {
          if (this.mood === 'silent' || this.mood === 'deaf')
            throw new StoreUnavailable(`the test store is ${this.mood}`)
          return rooms.inspect(room)
        },
        read: (...args) => rooms.read(...args),
        reserve: (...args) => rooms.reserve(...args),
        claim: (...args) => rooms.claim(...args),
        open: async (...args) => {
          if (this.mood === 'silent' || this.mood === 'deaf')
            throw new StoreUnavailable(`the test store is ${this.mood}`)
          return rooms.open(...args)
        },
        recall: (...args) => rooms.recall(...args),
        noteStuck: (...args) => rooms.noteStuck(...args),
        removeNote: (...args) => rooms.removeNote(...args),
        commit: write((...args: Parameters<typeof rooms.commit>) => rooms.commit(...args)),
        snapshot: write((...args: Parameters<typeof rooms.snapshot>) => rooms.snapshot(...args)),
        release: write((...args: Parameters<typeof rooms.release>) => rooms.release(...args)),
        quarantine: write((...args: Parameters<typeof rooms.quarantine>) => rooms.quarantine(...args)),
        refresh: write((...args: Parameters<typeof rooms.refresh>) => rooms.refresh(...args)),
        counted: (...args) => rooms.counted(...args),
      },
    }
  }

  /** From now on the records of rooms are these: of another store, say. */
  follow(rooms: () => RoomRecords): void {
    this.#rooms = rooms
  }

  /** Writes that wait. */
  get held(): number {
    return this.#held.length
  }

  /** Lets the oldest waiting write through. */
  let(): void {
    this.#held.shift()?.()
  }
}
