import type { RequestListener } from 'node:http'
import { Registry } from 'prom-client'
import { type Clock, systemClock, timestamp } from '../shared/clock.ts'
import { type Defaults, defaultConfig, type LogConfig, type StoreConfig } from '../shared/config.ts'
import { newId, newNodeId, nodeName } from '../shared/ids.ts'
import { subscribeKeyNews } from '../shared/key-news.ts'
import { createLog, type Logger } from '../shared/log.ts'
import { processMetrics } from '../shared/metrics.ts'
import { JsonCodec } from '../shared/protocol/json-codec.ts'
import { MsgpackCodec } from '../shared/protocol/msgpack-codec.ts'
import { type Random, systemRandom } from '../shared/random.ts'
import { memoryStore } from '../shared/store/memory/memory.ts'
import { storeMetrics } from '../shared/store/metrics.ts'
import type { Store } from '../shared/store/port.ts'
import { noTracer, type Tracer } from '../shared/tracing/tracer.ts'
import { packageVersion } from '../shared/version.ts'
import { NodeLinks } from './cluster/links.ts'
import { Ownership } from './cluster/ownership.ts'
import { RoomWaker } from './cluster/waker.ts'
import type { NodeInfo } from './descriptions.ts'
import { drain, stop } from './drain.ts'
import { Gateway } from './gateway/gateway.ts'
import { type AskKeyStatus, askControl } from './gateway/key-cache.ts'
import { type AdminServerOptions, serveAdmin } from './ops/admin.ts'
import { readiness } from './ops/health.ts'
import { nodeMetrics } from './ops/metrics.ts'
import { LoadMeter } from './ops/overload.ts'
import type { RoomDefinition } from './rooms/definition.ts'
import { RoomHost } from './rooms/host.ts'
import type { Turns } from './watchdog/turns.ts'

/** The part of the configuration that is about the node itself. */
type NodeConfig = Omit<
  Defaults<'dataplane'>,
  'roomsDir' | 'turnLimitMs' | 'workers' | keyof StoreConfig | keyof LogConfig | `otel_${string}`
>

/** Of a node that is one of several processes behind one port; see deploy/cli/workers.ts. */
export interface WorkerOptions {
  /** Its number, which is the label `worker` of its metrics. */
  readonly worker: string
  /** Where it listens besides, alone, for clients that want to be at this very node; absent: nowhere. */
  readonly ownPort?: number
}

/** How a node runs: its room types, and whatever of the configuration is not as the defaults say. */
export interface NodeOptions extends Partial<NodeConfig> {
  /** The room types it runs. */
  readonly rooms: readonly RoomDefinition[]
  /** Default: in memory, for this node alone. The store stays its owner's to close. */
  readonly store?: Store
  /** Default: JSON lines on standard output. */
  readonly log?: Logger
  /** Default: the machine's. */
  readonly clock?: Clock
  /** Default: the machine's. */
  readonly random?: Random
  /** What the load of the process is measured by; default: `clock`. */
  readonly loadClock?: Clock
  /** Default: no traces. Its owner sends what it has gathered, after the node was closed. */
  readonly tracer?: Tracer
  /** Is told of every turn of every room; default: no one is. */
  readonly turns?: Turns
  /** Default: no other process listens on its websocket port. */
  readonly sharing?: WorkerOptions
  /** Answers what comes to the websocket's port and wants no websocket; default: it is told to. */
  readonly answer?: RequestListener
  /** Tells players what failing room logic threw; for development. Default: they read that it failed, and the log has the error. */
  readonly revealFailures?: boolean
  /** Says which keys of tokens stand. Default: control, at the address of the configuration. */
  readonly askKeyStatus?: AskKeyStatus
  /**
   * Where clients and operators come in. Default: at the ports of the configuration.
   * @internal
   */
  readonly listen?: Listen
}

/**
 * Lets clients in at `gateway`, and operators at `admin`; `close` ends the latter. Rejects when that cannot be had; `gateway` is closed by
 * its owner then.
 * @internal
 */
export type Listen = (
  gateway: Gateway,
  admin: AdminServerOptions,
) => Promise<Pick<RunningNode, 'wsUrl' | 'adminUrl' | 'close'>>

/** A node that accepts clients. */
export interface RunningNode {
  /** Its name (`NODE_ID`). */
  readonly nodeId: string
  /** Such as `ws://127.0.0.1:4000`. */
  readonly wsUrl: string
  /** Where `/metrics`, `/healthz`, `/readyz` and `/admin` are, such as `http://127.0.0.1:9100`. */
  readonly adminUrl: string
  /** What it counts. */
  readonly registry: Registry
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
const DETACHED_GRACE_MS = 60_000

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
  const { sharing } = options
  if (sharing) registry.setDefaultLabels({ worker: sharing.worker })
  const metrics = nodeMetrics(registry, roomTypes)
  processMetrics(registry, log)
  storeMetrics(registry, store)
  const codecs = [new JsonCodec(), new MsgpackCodec()] as const
  const load = new LoadMeter(options.loadClock ?? clock, metrics, () => host.waitedMs)
  const startedAt = timestamp(clock.now())
  const recordTtlMs = config.roomOrphanTtl * 1000
  metrics.draining.read(() => Number(ownership.draining))
  metrics.addressed.set(config.advertiseUrl === undefined ? 0 : 1)
  metrics.maxSessions.set(config.maxSessions)
  metrics.maxRooms.set(config.maxRooms)
  metrics.nodeInfo.set({ node_id: name, version }, 1)
  let addresses: Partial<Pick<NodeInfo, 'ws_url' | 'admin_url' | 'advertise_url'>> = {}

  const links = new NodeLinks({
    nodeId,
    bus: store.bus,
    defer: setImmediate,
    clock,
    log,
    metrics,
    onMessage: (message, from) => ownership.receive(message, from),
    onGap: (from) => ownership.missed(from),
  })
  const ownership: Ownership = new Ownership({
    nodeId,
    store,
    links,
    rooms: () => host,
    edge: () => gateway,
    clock,
    random,
    log,
    metrics,
    tracer,
    leaseMs: config.nodeLeaseMs,
    recordTtlMs,
    quota: { maxRooms: config.maxRoomsPerProject, perMinute: config.newRoomsPerMinute },
    maxWaitingMessages: config.maxRoomBacklog,
    backlogFull: (roomType) => metrics.backlogFull.inc({ room_type: roomType }),
    info: () => ({
      started_at: startedAt,
      version,
      sessions: gateway.sessions,
      load: load.eventLoopUtilisation,
      overloaded: load.overloaded,
      max_rooms: config.maxRooms,
      max_sessions: config.maxSessions,
      ...addresses,
    }),
    onReplaced: (replaced) => failed(replaced),
  })
  const host: RoomHost = new RoomHost({
    nodeId,
    rooms: options.rooms,
    codecs,
    records: store.rooms,
    wakeups: store.wakeups,
    clock,
    random,
    log,
    metrics,
    tracer,
    claim: (room, options) => ownership.claims.claim(room, options),
    mayAct: (now) => ownership.lease.valid(now),
    rewritesAllowedAt: () => ownership.nodes.rewritesAllowedAt,
    slowdown: () => load.slowdown,
    overloaded: () => load.overloaded,
    deliver: (edge, message) => ownership.deliver(edge, message),
    edgeGone: (edge) => ownership.nodes.isGone(edge),
    redirect: (arrivals, owner) => ownership.router.redirect(arrivals, owner),
    ...(options.turns && { turns: options.turns }),
    ...(options.revealFailures !== undefined && { revealFailures: options.revealFailures }),
    // A session's end is its edge's to tell; this is for edges that cannot any more.
    limits: {
      recordTtlMs,
      quarantineTtlMs: config.roomQuarantineTtl * 1000,
      waitingMessages: config.maxRoomBacklog,
      tasks: config.maxRoomTasks,
      timers: config.maxRoomTimers,
      historyBytes: config.maxHistoryBytes,
      stateBytes: config.maxRoomStateBytes,
      detachedMs: config.sessionResumeTtl * 1000 + DETACHED_GRACE_MS,
      movesMs: 2 * config.heartbeatSeconds * 1000,
      outcomes: { messages: config.maxUnackedMessages, bytes: config.maxUnackedBytes },
    },
  })
  const waker = new RoomWaker({
    store,
    claims: ownership.claims,
    rooms: host,
    clock,
    random,
    log,
    metrics,
    leaseMs: config.nodeLeaseMs,
    mayAct: () => ownership.lease.valid(),
  })
  const gateway: Gateway = new Gateway({
    nodeId,
    clock,
    random,
    log,
    codecs,
    askKeyStatus: options.askKeyStatus ?? askControl(config, CONTROL_TIMEOUT_MS),
    overloaded: () => load.overloaded,
    inputIntervalMs: () => load.inputIntervalMs,
    send: (message) => ownership.router.send(message),
    unsubscribed: (room) => ownership.router.forget(room),
    storeIsBehind: (ms) => ownership.nodes.storeIsBehind(ms),
    reroutes: () => ownership.reroutes(),
    nearerNode: (rooms) => ownership.nearerNode(rooms),
    nodeGone: (other) => ownership.nodes.isGone(other),
    nodeDead: (other) => ownership.nodes.isDead(other),
    tellTaken: (other, sessionId) => ownership.tellTaken(other, sessionId),
    records: store.records,
    metrics,
    tracer,
    ...(options.answer && { answer: options.answer }),
    options: config,
  })
  let toldToDrain = () => {}
  let failed: (error: Error) => void = () => {}
  const drained = new Promise<void>((resolve, reject) => {
    toldToDrain = resolve
    failed = reject
  })
  // A caller that does not ask for it has a node that acts for nothing, and not a process that ends by an unhandled rejection.
  drained.catch(() => undefined)
  const parts = { ownership, host, gateway, clock, log, tracer, shares: sharing !== undefined }
  let unsubscribe: (() => Promise<void>) | undefined
  let listening: Awaited<ReturnType<Listen>> | undefined
  const stopOps = async (): Promise<void> => {
    load.stop()
    waker.stop()
    await unsubscribe?.()
    await listening?.close()
  }
  let closing: Promise<void> | undefined
  const close = (): Promise<void> => {
    closing ??= drain(parts, config.drainSeconds * 1000, stopOps)
    return closing
  }

  const admin: AdminServerOptions = {
    nodeId: name,
    bus: store.bus,
    clock,
    internalToken: config.internalToken,
    registry,
    random,
    log,
    ready: readiness({
      ping: () => store.ping(),
      draining: () => ownership.draining,
      leaseValid: () => ownership.lease.valid(),
      clock,
    }),
    describeNode: () => ({
      node_id: name,
      version,
      started_at: startedAt,
      draining: ownership.draining,
      load: load.read(),
    }),
    describeRooms: (query) => host.describe(query),
    describeSessions: (query) => gateway.describeSessions(query),
    members: () => host.members,
    describeCluster: () => ownership.nodes.describe(),
    findOwner: async (projectId, roomId) => {
      const found = await store.rooms.inspect(`${projectId}/${roomId}`)
      return found && { epoch: found.epoch, owner: found.owner && nodeName(found.owner) }
    },
    drain: () => void close().then(toldToDrain),
  }

  await ownership.start()
  try {
    waker.start()
    unsubscribe = await subscribeKeyNews(
      store.bus,
      (news) => {
        if ('sub' in news) gateway.revokeSub(news.project_id, news.sub, news.revoked_at)
        else if (news.status === 'revoked') gateway.revokeKey(news.project_id, news.key_id)
        else gateway.forgetKey(news.project_id, news.key_id)
      },
      () => void gateway.recheckKeys(),
      (error) => log.warn({ err: error }, 'a message about a key cannot be read'),
    )
    load.start()
    const listen = options.listen ?? atPorts(config, sharing?.ownPort)
    listening = await listen(gateway, admin)
  } catch (error) {
    await stop(parts, stopOps).catch((err: unknown) =>
      log.warn({ err }, 'not all of the node could be stopped'),
    )
    throw error
  }
  const { wsUrl, adminUrl } = listening
  addresses = {
    ws_url: wsUrl,
    admin_url: config.adminUrl ?? adminUrl,
    ...(config.advertiseUrl !== undefined && { advertise_url: config.advertiseUrl }),
  }
  await ownership.lease.renewNow()
  return {
    nodeId: name,
    wsUrl,
    adminUrl,
    registry,
    replaceRoom: (definition) => host.replaceRoom(definition),
    drained,
    close,
  }
}

/** Listens at the ports of the configuration, and for clients also at `ownPort`. */
const atPorts =
  (config: NodeConfig, ownPort: number | undefined): Listen =>
  async (gateway, admin) => {
    const adminServer = await serveAdmin(admin, config.adminHost, config.adminPort)
    const listen = async () => {
      if (ownPort !== undefined) await gateway.listenAlone(config.wsHost, ownPort)
      return gateway.listen(config.wsHost, config.wsPort)
    }
    const { port } = await listen().catch(async (error: unknown) => {
      await adminServer.close()
      throw error
    })
    return {
      wsUrl: urlOf('ws', config.wsHost, port),
      adminUrl: urlOf('http', adminServer.host, adminServer.port),
      close: () => adminServer.close(),
    }
  }

const urlOf = (scheme: string, host: string, port: number): string =>
  `${scheme}://${host.includes(':') ? `[${host}]` : host}:${port}`
