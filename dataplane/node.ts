import { Registry } from 'prom-client'
import { type Clock, systemClock, timestamp } from '../shared/clock.ts'
import { type Defaults, defaultConfig, type LogConfig, type StoreConfig } from '../shared/config.ts'
import { newId } from '../shared/ids.ts'
import { subscribeKeyNews } from '../shared/key-news.ts'
import { createLog, type Logger } from '../shared/log.ts'
import { processMetrics } from '../shared/process-metrics.ts'
import { JsonCodec } from '../shared/protocol/json-codec.ts'
import { MsgpackCodec } from '../shared/protocol/msgpack-codec.ts'
import { type Random, systemRandom } from '../shared/random.ts'
import { memoryStore } from '../shared/store/memory/memory.ts'
import { storeMetrics } from '../shared/store/metrics.ts'
import type { Store } from '../shared/store/port.ts'
import { noTracer, type Span, type Tracer } from '../shared/tracing/tracer.ts'
import { packageVersion } from '../shared/version.ts'
import { Claims } from './cluster/claims.ts'
import type { NodeInfo } from './cluster/lease.ts'
import { NodeLease } from './cluster/lease.ts'
import { NodeLinks } from './cluster/links.ts'
import { Nodes } from './cluster/nodes.ts'
import { handOver, type PlacementReason, place } from './cluster/placement.ts'
import { Router } from './cluster/router.ts'
import type { PeerMessage } from './cluster/wire.ts'
import { Gateway } from './gateway/gateway.ts'
import { askControl } from './gateway/key-status.ts'
import { newNodeId, nodeName } from './node-id.ts'
import { type AdminServerOptions, serveAdmin } from './ops/admin.ts'
import { readiness } from './ops/health.ts'
import { LoadMeter } from './ops/load.ts'
import { nodeMetrics } from './ops/metrics.ts'
import type { RoomDefinition } from './rooms/definition.ts'
import { RoomHost } from './rooms/host.ts'
import { roomName, roomNamed, type ToEdge } from './traffic.ts'
import type { Turns } from './watchdog/turns.ts'

/** The part of the configuration that is about the node itself. */
type NodeConfig = Omit<
  Defaults<'dataplane'>,
  'roomsDir' | 'turnLimitMs' | keyof StoreConfig | keyof LogConfig | `otel_${string}`
>

/** How a node runs: its room types, and whatever of the configuration is not as the defaults say. */
export interface NodeOptions extends Partial<NodeConfig> {
  readonly rooms: readonly RoomDefinition[]
  /** Default: in memory, for this node alone. The store stays its owner's to close. */
  readonly store?: Store
  /** Default: JSON lines on standard output. */
  readonly log?: Logger
  readonly clock?: Clock
  readonly random?: Random
  /** Default: no traces. Its owner sends what it has gathered, after the node was closed. */
  readonly tracer?: Tracer
  /** Is told of every turn of every room; default: no one is. */
  readonly turns?: Turns
  /** Tells players what failing room logic threw; for development. Default: they read that it failed, and the log has the error. */
  readonly revealFailures?: boolean
}

/** A node that accepts clients. */
export interface RunningNode {
  /** Its name (`NODE_ID`). */
  readonly nodeId: string
  /** Such as `ws://127.0.0.1:4000`. */
  readonly wsUrl: string
  /** Where `/metrics`, `/healthz`, `/readyz` and `/admin` are, such as `http://127.0.0.1:9100`. */
  readonly adminUrl: string
  /** Puts a new definition in the place of the one of the same type, for running rooms too (development). */
  replaceRoom(definition: RoomDefinition): void
  /**
   * Resolves when the node has drained because it was told so over HTTP. Rejects with `NodeReplaced` when another process runs under its
   * name: it acts for no room any more, and its process is to end at once.
   */
  readonly drained: Promise<void>
  /** Moves the clients elsewhere, saves and releases the rooms, and lets go of everything. */
  close(): Promise<void>
}

const CONTROL_TIMEOUT_MS = 5000
const SEAT_GRACE_MS = 60_000
/** How much longer than its clients take to leave a node may take to end. */
const SHUT_DOWN_SPARE_MS = 10_000
/** How long rooms may take to be handed over; those left are saved for whoever asks for them. */
const HAND_OVER_MS = 5000

/**
 * Starts a node: gateway, rooms, cluster and ops, connected here and nowhere else. Resolves once it accepts clients; rejects when an
 * address cannot be had, the store cannot be reached, or another process runs under the name of the node (`NodeIdInUse`).
 */
export async function startNode(options: NodeOptions): Promise<RunningNode> {
  const { clock = systemClock, random = systemRandom, tracer = noTracer } = options
  const config = { ...defaultConfig('dataplane'), ...options }
  const name = config.nodeId ?? newId('node', random)
  const nodeId = newNodeId(name, random)
  // Once: without a free file descriptor it could not be read.
  const version = packageVersion()
  const log = options.log ?? createLog(config, { node_id: name })
  const store = options.store ?? memoryStore({ clock })
  const registry = new Registry()
  const roomTypes = options.rooms.map(({ type }) => type)
  const metrics = nodeMetrics(registry, roomTypes)
  processMetrics(registry)
  storeMetrics(registry, store)
  const codecs = [new JsonCodec(), new MsgpackCodec()] as const
  const load = new LoadMeter(clock, metrics)
  const startedAt = timestamp(clock.now())
  const recordTtlMs = config.roomOrphanTtl * 1000
  let draining = false
  metrics.draining.read(() => Number(draining))
  metrics.maxSessions.set(config.maxSessions)
  metrics.maxRooms.set(config.maxRooms)
  metrics.nodeInfo.set({ node_id: name, version }, 1)
  let addresses: Partial<Pick<NodeInfo, 'ws_url' | 'admin_url' | 'advertise_url'>> = {}

  /** What the other nodes are told of this one. */
  function describeSelf(): NodeInfo {
    return {
      node_id: nodeId,
      started_at: startedAt,
      version,
      draining,
      rooms: host.size,
      sessions: gateway.sessions,
      load: load.eventLoopUtilisation,
      max_rooms: config.maxRooms,
      max_sessions: config.maxSessions,
      ...addresses,
    }
  }

  const lease = new NodeLease({
    nodeId,
    store,
    clock,
    log,
    metrics,
    ttlMs: config.nodeLeaseMs,
    info: describeSelf,
    onRegained: () => {
      log.warn({ rooms: host.size }, 'the lease had run out and stands again: every room is checked')
      nodes.hold()
      host.recheck()
    },
    onReplaced: (replaced) => failed(replaced),
  })
  const nodes = new Nodes({
    nodeId,
    store,
    clock,
    log,
    metrics,
    leaseMs: config.nodeLeaseMs,
    info: describeSelf,
    onGone: (gone) => {
      peers.forget(gone)
      for (const room of router.gone(gone)) gateway.reattach(room)
      host.edgeGone(gone)
    },
    onJoined: ({ node_id: peer, version }) => {
      log.info({ peer, version }, 'a node is in the cluster')
      // It may have been taken for gone, and know nothing of it: what it has open here is asked again, and the other way round.
      peers.greet(peer)
      for (const room of router.roomsAt(peer)) gateway.reattach(room)
    },
  })
  const peers = new NodeLinks({
    nodeId,
    bus: store.bus,
    defer: setImmediate,
    clock,
    log,
    metrics,
    onMessage: receive,
    // Either way may have lost something: edges ask again what is open, and are told what they missed.
    onGap: (from) => {
      // Another node may have said that a session was resumed there.
      if (from === undefined) {
        gateway.storeReturned()
        // No one heard this node for a while: its rooms may have been taken over.
        host.recheck()
      }
      for (const room of router.roomsAt(from)) gateway.reattach(room)
      for (const peer of from === undefined ? nodes.nodes() : [{ node_id: from }])
        if (peer.node_id !== nodeId) host.edgeMissed(peer.node_id)
    },
  })
  const placed = (reason: PlacementReason, preferred?: string): string | undefined =>
    place({
      self: nodeId,
      nodes: nodes.nodes(),
      random,
      reason,
      ...(preferred !== undefined && { preferred }),
    })
  const claims = new Claims({
    nodeId,
    store,
    nodes,
    clock,
    log,
    metrics,
    tracer,
    mayAct: () => lease.valid(),
    // Should it live, it is to find out, whatever happens in the room.
    takenOver: (name, from) =>
      deliver(from, { room: roomNamed(name), epoch: 0, kind: 'redirect', owner: nodeId }),
    recordTtlMs,
    quota: { maxRooms: config.maxRoomsPerProject, perMinute: config.newRoomsPerMinute },
  })
  const host: RoomHost = new RoomHost({
    nodeId,
    rooms: options.rooms,
    codecs,
    records: store.rooms,
    clock,
    random,
    log,
    metrics,
    tracer,
    claim: (room, options) => claims.claim(room, options),
    mayAct: () => lease.valid(),
    rewritesAllowedAt: () => nodes.rewritesAllowedAt,
    deliver,
    edgeGone: (edge) => nodes.isGone(edge),
    redirect: (arrivals, owner) => router.redirect(arrivals, owner),
    ...(options.turns && { turns: options.turns }),
    ...(options.revealFailures !== undefined && { revealFailures: options.revealFailures }),
    // A session's end is its edge's to tell; this is for edges that cannot any more.
    limits: {
      recordTtlMs,
      quarantineTtlMs: config.roomQuarantineTtl * 1000,
      waitingMessages: config.maxRoomBacklog,
      tasks: config.maxRoomTasks,
      historyBytes: config.maxHistoryBytes,
      stateBytes: config.maxRoomStateBytes,
      seatMs: config.sessionResumeTtl * 1000 + SEAT_GRACE_MS,
      outcomes: { messages: config.maxUnackedMessages, bytes: config.maxUnackedBytes },
    },
  })
  const gateway: Gateway = new Gateway({
    nodeId,
    clock,
    random,
    log,
    codecs,
    askKeyStatus: askControl({ ...config, timeoutMs: CONTROL_TIMEOUT_MS }),
    send: (message) => router.send(message),
    unseated: (room) => router.forget(room),
    storeUptime: () => store.uptime(),
    nodeGone: (other) => nodes.isGone(other),
    nodeDead: async (other) => nodes.isGone(other) && (await nodes.judge(other, true)) === 'dead',
    tellTaken: (other, sessionId) => peers.send(other, { to: 'gateway', session_id: sessionId }),
    records: store.records,
    metrics,
    tracer,
    options: config,
  })
  const router = new Router({
    nodeId,
    clock,
    tracer,
    host,
    inspect: (room) => claims.inspect(room),
    judge: (other) => nodes.judge(other),
    gone: (other) => nodes.isGone(other),
    place: placed,
    accepts: () => host.accepts,
    maxWaitingMessages: config.maxRoomBacklog,
    backlogFull: (roomType) => metrics.backlogFull.inc({ room_type: roomType }),
    send: (other, message) => peers.send(other, message),
    deliver,
    failed: (error, room) => log.warn({ err: error, room }, 'the owner of a room could not be found'),
  })

  /** Takes a message to an edge, this node's own or another's: the same way for both, as far as rooms know. */
  function deliver(edge: string, message: ToEdge): void {
    if (edge !== nodeId) peers.send(edge, { to: 'edge', message })
    else hear(message, nodeId)
  }

  /** An owner has something for this node's edge. */
  function hear(message: ToEdge, from: string): void {
    router.heard(message, from)
    gateway.receive(message)
  }

  /** What another node has to say. */
  function receive(message: PeerMessage, from: string): void {
    switch (message.to) {
      case 'owner':
      case 'opener':
        router.receive(message.message, from)
        break
      case 'edge':
        if (message.message.kind === 'redirect') host.verify(roomName(message.message.room))
        hear(message.message, from)
        break
      case 'gateway':
        gateway.sessionTaken(message.session_id).catch((error: unknown) => {
          log.warn(
            { err: error, session_id: message.session_id },
            'a session that was resumed elsewhere stays',
          )
        })
        break
      case 'host':
        if (!draining) host.open(message.room, [])
    }
  }

  let toldToDrain = () => {}
  let failed: (error: Error) => void = () => {}
  const drained = new Promise<void>((resolve, reject) => {
    toldToDrain = resolve
    failed = reject
  })
  // A caller that does not ask for it has a node that acts for nothing, and not a process that ends by an unhandled rejection.
  drained.catch(() => undefined)
  let closing: Promise<void> | undefined
  const close = (): Promise<void> => {
    closing ??= end()
    return closing
  }

  const admin: AdminServerOptions = {
    node_id: name,
    bus: store.bus,
    clock,
    internal_token: config.internalToken,
    registry,
    random,
    log,
    ready: readiness({
      ping: () => store.ping(),
      draining: () => draining,
      others: () =>
        lease.valid() ? [] : [{ code: 'lease_lost', detail: 'the lease of the node has run out' }],
      clock,
    }),
    describeNode: () => ({ node_id: name, version, started_at: startedAt, draining, load: load.read() }),
    describeRooms: (query) => host.describe(query),
    describeSessions: (query) => gateway.describeSessions(query),
    members: () => host.members,
    describeCluster: () => nodes.describe(),
    findOwner: async (projectId, roomId) => {
      const found = await store.rooms.inspect(`${projectId}/${roomId}`)
      return found && { epoch: found.epoch, owner: found.owner && nodeName(found.owner) }
    },
    drain: () => void close().then(toldToDrain),
  }

  async function end(): Promise<void> {
    const span = tracer.span('drain', {
      attributes: { 'roomful.rooms': host.size, 'roomful.sessions': gateway.sessions },
    })
    const result = await Promise.race([
      shutDown(span).then(() => 'done' as const),
      patience(config.drainSeconds * 1000 + SHUT_DOWN_SPARE_MS).then(() => 'timeout' as const),
    ])
    if (result === 'timeout') {
      log.warn('the node could not end in time: what the store has not answered is left behind')
      span.fail(result)
    }
    span.set({ 'roomful.result': result, 'roomful.rooms_handed_over': handedOver })
    span.end()
  }

  /** Rooms first, which go on at other nodes while their clients are still here; then the clients; then whatever others see of the node. */
  async function shutDown(drain: Span): Promise<void> {
    const step = async (name: string, work: (span: Span) => Promise<void>): Promise<void> => {
      const span = tracer.span(name, { parent: drain })
      await work(span)
      span.end()
    }
    await step('drain.start', async () => {
      draining = true
      host.refuseMore()
      await lease.renewNow()
    })
    await step('drain.rooms', (span) => Promise.race([handOverRooms(span), patience(HAND_OVER_MS)]))
    await step('drain.clients', () => gateway.drain(config.drainSeconds * 1000))
    await step('drain.stop', async () => {
      await host.close()
      await gateway.close()
      nodes.stop()
      forgetReturn()
      await peers.close()
      await lease.stop()
      load.stop()
      await unsubscribe()
      await adminServer.close()
    })
  }

  const patience = (delayMs: number): Promise<void> =>
    new Promise((resolve) => {
      clock.schedule(delayMs, resolve)
    })

  let handedOver = 0
  const handOverRooms = (span: Span): Promise<void> =>
    handOver(host.rooms, {
      place: (preferred) => placed('hand_over', preferred),
      ask: (other, room) => peers.send(other, { to: 'host', room }),
      handed: (seconds) => {
        metrics.handOverDuration.observe(seconds)
        handedOver += 1
      },
      tracer,
      span,
      now: () => clock.monotonic(),
    })

  const forgetReturn = store.onReturn(() => {
    gateway.storeReturned()
    // Rooms in which nothing happens would not find out for minutes that their records are gone.
    host.recheck()
  })
  await peers.start()
  await lease.start()
  await nodes.start()
  const unsubscribe = await subscribeKeyNews(
    store.bus,
    ({ project_id: projectId, key_id: keyId, status }) =>
      status === 'revoked' ? gateway.revokeKey(projectId, keyId) : gateway.forgetKey(projectId, keyId),
    () => void gateway.recheckKeys(),
    (error) => log.warn({ err: error }, 'a message about a key cannot be read'),
  )
  load.start()
  const adminServer = await serveAdmin(admin, config.adminHost, config.adminPort)
  const address = await gateway.listen(config.wsHost, config.wsPort).catch(async (error: unknown) => {
    await adminServer.close()
    throw error
  })
  const wsUrl = urlOf('ws', config.wsHost, address.port)
  const adminUrl = urlOf('http', adminServer.host, adminServer.port)
  addresses = {
    ws_url: wsUrl,
    admin_url: config.adminUrl ?? adminUrl,
    ...(config.advertiseUrl !== undefined && { advertise_url: config.advertiseUrl }),
  }
  await lease.renewNow()
  return {
    nodeId: name,
    wsUrl,
    adminUrl,
    replaceRoom: (definition) => host.replaceRoom(definition),
    drained,
    close,
  }
}

const urlOf = (scheme: string, host: string, port: number): string =>
  `${scheme}://${host.includes(':') ? `[${host}]` : host}:${port}`
