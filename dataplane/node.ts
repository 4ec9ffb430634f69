import childProcess from 'node:child_process'
import crypto from 'node:crypto'
import type { RequestListener } from 'node:http'
import { Registry } from 'prom-client'
import { type Clock, sleep, systemClock, timestamp } from '../shared/clock.ts'
import { type Defaults, defaultConfig, defaultTurnLimit, type StoreConfig } from '../shared/config.ts'
import { newId, newNodeId, nodeName } from '../shared/ids.ts'
import { subscribeKeyNews } from '../shared/key-news.ts'
import { type NodeLimits, nodeLimits } from '../shared/limits.ts'
import { createLog, type LogConfig, type Logger, type LogLevel, setLogLevel } from '../shared/log.ts'
import { type Metrics, processMetrics, registerMetrics } from '../shared/metrics.ts'
import { JsonCodec } from '../shared/protocol/json-codec.ts'
import { MsgpackCodec } from '../shared/protocol/msgpack-codec.ts'
import { type Random, systemRandom } from '../shared/random.ts'
import { ClockOffset, StoreDataWatch, storeMetrics } from '../shared/store/health.ts'
import { memoryStore } from '../shared/store/memory/memory.ts'
import type { Store } from '../shared/store/port.ts'
import { noTracer, type Tracer } from '../shared/tracing/tracer.ts'
import { UnhandledErrors } from '../shared/unhandled.ts'
import { currentBuild } from '../shared/version.ts'
import { NodeLinks } from './cluster/links.ts'
import { CLUSTER_METRICS } from './cluster/metrics.ts'
import { type ClusterEnvironment, Ownership } from './cluster/ownership.ts'
import type { NodeFigures } from './cluster/self.ts'
import { RoomWaker } from './cluster/waker.ts'
import { Directory, type DirectoryEnvironment } from './features/lists/directory.ts'
import { Finding } from './features/lists/finding.ts'
import { ListedRooms } from './features/lists/listing.ts'
import { LIST_METRICS } from './features/lists/metrics.ts'
import { ClusterPlacing, type PlacingEnvironment } from './features/lists/placing.ts'
import { readQuery } from './features/lists/rows.ts'
import { DeadLetters } from './features/notices/dead-letters.ts'
import { NoticeDelivery } from './features/notices/delivery.ts'
import { NOTICE_METRICS, noUrl, type PostNotice, webhook } from './features/notices/notice.ts'
import { RoomNotices } from './features/notices/notices.ts'
import { QueueOverview } from './features/queues/overview.ts'
import { SAVE_METRICS, SavedRooms } from './features/saves/saves.ts'
import { SUSPECT_METRICS, Suspects } from './features/suspects/suspects.ts'
import { forbidCalls } from './forbidden-calls.ts'
import { Gateway } from './gateway/gateway.ts'
import { type AskKeyStatus, askControl, askUnlessLost } from './gateway/key-cache.ts'
import { GATEWAY_METRICS } from './gateway/metrics.ts'
import { NODE_METRICS } from './metrics.ts'
import { type AdminOptions, readiness, serveAdmin } from './ops/admin.ts'
import { LoadMeter } from './ops/overload.ts'
import { ClusterSearch } from './ops/runtime.ts'
import { closeBuiltins } from './room/builtins.ts'
import type { RoomDefinition } from './room/definition.ts'
import type { TurnObserver } from './room/hooks.ts'
import { RoomHost } from './room/host.ts'
import { ROOM_METRICS } from './room/metrics.ts'
import type { RoomCode } from './room/room-code.ts'
import { hasPlace } from './shares.ts'
import { roomIdOf, roomNamed } from './traffic.ts'

/** The part of the configuration that is about the node itself. */
type NodeConfig = Omit<
  Defaults<'dataplane'>,
  'roomsDir' | 'workers' | keyof StoreConfig | keyof LogConfig | `otel_${string}`
>

/** Options of a node that shares its websocket port with other processes (workers); see deploy/cli/workers.ts. */
export interface WorkerOptions {
  /** Number of this worker: the label `worker` of its metrics. */
  readonly worker: string
  /** Additional port of this worker only, for clients that are routed to this node. Default: none. */
  readonly ownPort?: number
  /** Sets the level of the logs of all workers and of their parent. Default: of this process only. */
  readonly setLogLevel?: (level: LogLevel) => void
}

/**
 * Options of `startNode`: room types, settings and limits. A setting has the name and the default of its environment variable, such as
 * `maxRooms` for `MAX_ROOMS`. `shared/limits.ts` lists the limits.
 */
export interface NodeOptions extends Partial<NodeConfig & NodeLimits> {
  /** Room types of the node. */
  readonly rooms: readonly RoomDefinition[]
  /** Store for rooms and sessions. Default: in memory, for this node only. The node does not close a store that it was given. */
  readonly store?: Store
  /** Logger. Default: JSON lines on standard output. */
  readonly log?: Logger
  /** Clock. Default: the machine's. */
  readonly clock?: Clock
  /** Source of randomness. Default: the machine's. */
  readonly random?: Random
  /** Clock that measures the load of the process. Default: `clock`. */
  readonly loadClock?: Clock
  /** Tracer. Default: no traces. After the node is closed, the caller must export the remaining traces. */
  readonly tracer?: Tracer
  /** Observer of every call of room code. Default: none. */
  readonly turns?: TurnObserver
  /**
   * For development: returns the milliseconds after which each call of room code is stopped. Default: roomful stops only calls of handlers
   * that have exceeded the time limit before, after 200 ms.
   */
  readonly cutOffMs?: () => number | undefined
  /** Settings of a worker process that shares the websocket port with others. Default: the node does not share its port. */
  readonly sharing?: WorkerOptions
  /** Handles HTTP requests on the websocket port that open no websocket. Default: the response has status 426 (Upgrade Required). */
  readonly answer?: RequestListener
  /** True, for development: players receive the text of errors in room code. Default: only the log has this text. */
  readonly revealFailures?: boolean
  /** Maximum number of client connections that the process can open. Default: no limit. */
  readonly maxConnections?: number
  /** Returns the status of an API key, for example that it is revoked. Default: asks the control plane at the configured address. */
  readonly askKeyStatus?: AskKeyStatus
  /**
   * Sends one notice. Default: a POST to the configured URL.
   * @internal
   */
  readonly postNotice?: PostNotice
  /**
   * Opens the ports for clients and operators. Default: the configured ports.
   * @internal
   */
  readonly listen?: Listen
}

/** Addresses of a node. */
interface Addresses {
  /** Address of the websocket, such as `ws://127.0.0.1:4000`. */
  readonly wsUrl: string
  /** Address of `/metrics`, `/healthz`, `/readyz` and `/admin`, such as `http://127.0.0.1:9100`. */
  readonly adminUrl: string
}

/**
 * Opens the ports for clients (`gateway`) and operators (`admin`). `close` closes the admin port. If it rejects, its caller closes
 * `gateway`.
 * @internal
 */
export type Listen = (
  gateway: Gateway,
  admin: AdminOptions,
) => Promise<Addresses & { close(): Promise<void> }>

/** A running node. */
export interface RunningNode extends Addresses {
  /** Name of the node (`NODE_ID`). */
  readonly nodeId: string
  /** Metrics of the node. */
  readonly registry: Registry
  /**
   * Handler for uncaught exceptions and unhandled rejections. A program that embeds a node must pass the errors of its process to this
   * handler.
   */
  readonly unhandled: UnhandledErrors
  /**
   * Runs the code of the node's rooms.
   * @internal
   */
  readonly roomCode: Pick<RoomCode, 'current' | 'where'>
  /** Replaces the room type of the same name, also in running rooms. For development. */
  replaceRoom(definition: RoomDefinition): void
  /**
   * Resolves when the node has shut down in an orderly way after `POST /admin/drain`. Rejects with `NodeReplaced` if another process has
   * started under the node's name. Then this node runs no room, and its process must exit immediately.
   */
  readonly drained: Promise<void>
  /**
   * Shuts the node down: moves the clients to other nodes, saves and releases the rooms, and closes the ports. `drainMs`: milliseconds
   * during which the clients move. Default: `DRAIN_SECONDS`.
   */
  close(drainMs?: number): Promise<void>
}

const CONTROL_TIMEOUT_MS = 5000
/** Time beyond `drainMs` in which a node shuts down, also if the store does not answer. */
const SHUT_DOWN_SPARE_MS = 10_000
/** Maximum number of frozen rooms that a problem names. */
const PROBLEM_NAMES = 5
const DETACHED_GRACE_MS = 60_000

const METRICS = {
  ...GATEWAY_METRICS,
  ...ROOM_METRICS,
  ...CLUSTER_METRICS,
  ...LIST_METRICS,
  ...NOTICE_METRICS,
  ...SAVE_METRICS,
  ...SUSPECT_METRICS,
  ...NODE_METRICS,
}

/** Registers the metrics of all parts of a node. The counters of the installed `roomTypes` exist from the start. */
export const nodeMetrics = (registry: Registry, roomTypes: readonly string[] = []): Metrics<typeof METRICS> =>
  registerMetrics(registry, METRICS, { room_type: roomTypes })

/**
 * Starts a node. Resolves when the node accepts clients. From then on, the classes of JavaScript are closed in this process: load everything
 * that changes them, such as polyfills, before. Rejects if a port is in use, if the store cannot be reached, or if another process
 * runs under the name of the node (`NodeIdInUse`).
 */
export async function startNode(options: NodeOptions): Promise<RunningNode> {
  const { clock = systemClock, random = systemRandom, tracer = noTracer } = options
  const config = { ...defaultConfig('dataplane'), ...nodeLimits(), ...options }
  const name = config.nodeId ?? newId('node', random)
  const nodeId = newNodeId(name, random)
  // Read once, because later it could fail for lack of a file descriptor.
  const build = currentBuild()
  const log = options.log ?? createLog(config, { node_id: name })
  const store = options.store ?? memoryStore({ clock })
  const registry = new Registry()
  const roomTypes = options.rooms.map(({ type }) => type)
  const { sharing } = options
  if (sharing) registry.setDefaultLabels({ worker: sharing.worker })
  const metrics = nodeMetrics(registry, roomTypes)
  const { unhandled } = processMetrics(registry, log)
  /** What most parts of the node need. */
  const common = { nodeId, store, clock, random, log, metrics, tracer }
  const clockOffset = new ClockOffset(common)
  const dataWatch = new StoreDataWatch({ ...common, key: '{nodes}:data' })
  storeMetrics(registry, store, { clockOffset, dataWatch })
  const codecs = [new JsonCodec(), new MsgpackCodec()] as const
  const loadClock = options.loadClock ?? clock
  const load = new LoadMeter({ ...common, clock: loadClock, waitedMs: () => host.waitedMs })
  const startedAt = timestamp(clock.now())
  const recordTtlMs = config.roomOrphanTtl * 1000
  metrics.draining.read(() => Number(ownership.self.draining))
  metrics.cordoned.read(() => Number(ownership.self.cordoned))
  metrics.addressed.set(config.advertiseUrl === undefined ? 0 : 1)
  metrics.maxSessions.set(config.maxSessions)
  metrics.maxRooms.set(config.maxRooms)
  let addresses: Partial<NodeFigures> = {}

  const links = new NodeLinks({ ...common, bus: store.bus, defer: setImmediate })
  const roomPlaces = { max: config.maxRooms, share: config.projectShare }
  const cluster: ClusterEnvironment = {
    ...common,
    links,
    leaseMs: config.nodeLeaseMs,
    recordTtlMs,
    quota: {
      maxRooms: config.maxRoomsPerProject,
      maxLasting: config.maxSleepingRoomsPerPlayer,
      perMinute: config.newRoomsPerMinute,
    },
    maxWaitingMessages: config.maxRoomBacklog,
    hasPlaceFor: (projectId) => hasPlace(roomPlaces, host.rooms.claimed, host.rooms.projects.of(projectId)),
    endedAnswer: (room, request) => host.stored.answerLeft(room, request),
    figures: () => ({
      started_at: startedAt,
      ...build,
      rooms_hash: host.types.hash,
      rooms: host.rooms.size,
      room_types: host.types.versions,
      sessions: gateway.sessions,
      load: load.eventLoopUtilisation,
      overloaded: load.overloaded,
      ...(clockOffset.wrong !== undefined && { clock_wrong: clockOffset.wrong }),
      max_rooms: config.maxRooms,
      max_sessions: config.maxSessions,
      ...addresses,
    }),
    onReplaced: (replaced) => failed(replaced),
  }
  const ownership = new Ownership(cluster)
  const suspects = new Suspects({
    ...common,
    hashes: (roomType) => host.types.get(roomType)?.codeHash,
    turnLimitMs: config.turnLimitMs ?? defaultTurnLimit(config.nodeLeaseMs),
    limitAllMs: options.cutOffMs,
  })
  const { notifyUrl, notifySecret = [] } = config
  const webhookPost =
    notifyUrl === undefined ? noUrl : webhook({ url: notifyUrl, secrets: notifySecret, clock })
  const { postNotice: post = webhookPost } = options
  const { projectShare } = config
  const isAlive = async (owner: string) => (await ownership.nodes.judge(owner)) === 'alive'
  const noticeEnvironment = { ...common, clockOffset, post, projectShare, isAlive }
  const deadLetters = new DeadLetters(noticeEnvironment)
  const delivery = new NoticeDelivery(noticeEnvironment, deadLetters)
  const host: RoomHost = new RoomHost({
    ...common,
    suspects,
    rooms: options.rooms,
    codecs,
    records: store.rooms,
    wakeups: store.wakeups,
    additions: (room, mayAct) => new RoomNotices(room, mayAct, { ...common, notices: delivery }),
    features: (needs) => [new ListedRooms(needs, metrics, store), new SavedRooms(needs, metrics)],
    cluster: ownership,
    load,
    ...(options.turns && { turns: options.turns }),
    ...(options.revealFailures !== undefined && { revealFailures: options.revealFailures }),
    // `detachedMs` is for edges that have crashed: otherwise the edge ends the members of its sessions.
    limits: {
      recordTtlMs,
      quarantineTtlMs: config.roomQuarantineTtl * 1000,
      waitingMessages: config.maxRoomBacklog,
      tasks: config.maxRoomTasks,
      timers: config.maxRoomTimers,
      seats: config.maxSeatsPerPlayer,
      historyBytes: config.maxHistoryBytes,
      events: {
        turn: config.maxTurnEvents,
        bytes: config.maxEventBytes,
        turnBytes: config.maxTurnEventBytes,
      },
      stateBytes: config.maxRoomStateBytes,
      detachedMs: config.sessionResumeTtl * 1000 + DETACHED_GRACE_MS,
      movesMs: 2 * config.heartbeatSeconds * 1000,
      unconfirmed: { messages: config.maxUnackedMessages, bytes: config.maxUnackedBytes },
    },
  })
  const queues = new QueueOverview(() => host.rooms.running, metrics, clock)
  const waker = new RoomWaker({ ...cluster, roomPlaces }, ownership, host)
  forbidCalls({ process, childProcess, crypto, atomics: Atomics }, () => host.code.current !== undefined)
  metrics.nodeInfo.set({ node_id: name, ...build, rooms_hash: host.types.hash }, 1)
  const lists: DirectoryEnvironment & PlacingEnvironment = {
    ...common,
    maxRowsPerQuery: config.maxRowsPerQuery,
    // An unknown node is dead, or its lease has not been read yet. `nodes.isGone` counts it as alive while the store returns.
    isGone: (other) => other !== nodeId && ownership.nodes.get(other) === undefined,
    listingOf: (roomType) => {
      const type = host.types.get(roomType)
      return type && (type.listing ?? null)
    },
    draining: () => ownership.self.draining,
  }
  const directory = new Directory(lists)
  const placing = new ClusterPlacing(lists, directory)
  const finding = new Finding({
    ...common,
    records: store.records,
    options: config,
    directory,
    placing,
    maxPlayers: (roomType) => {
      const max = host.types.get(roomType)?.maxPlayers
      return max === Number.POSITIVE_INFINITY ? undefined : max
    },
  })
  const gateway: Gateway = new Gateway({
    ...common,
    codecs,
    askKeyStatus: askUnlessLost(options.askKeyStatus ?? askControl(config, CONTROL_TIMEOUT_MS), () =>
      dataWatch.checkLost(),
    ),
    load,
    suspects,
    cluster: ownership,
    finding,
    matchType: (roomType) => host.types.get(roomType)?.matches?.room,
    records: store.records,
    ...(options.answer && { answer: options.answer }),
    ...(options.maxConnections !== undefined && { maxConnections: options.maxConnections }),
    options: config,
  })
  let resolveDrained = () => {}
  let failed: (error: Error) => void = () => {}
  const drained = new Promise<void>((resolve, reject) => {
    resolveDrained = resolve
    failed = reject
  })
  // If the caller does not use `drained`, a rejection must not end the process. The node then only stops working.
  drained.catch(() => undefined)
  let unsubscribe: (() => Promise<void>) | undefined
  let listening: Awaited<ReturnType<Listen>> | undefined
  /** Stops a node without clients. Its rooms are saved and released, and open at the first node that needs them. */
  const stop = async (): Promise<void> => {
    await host.close()
    await gateway.close()
    waker.stop()
    await ownership.stop()
    load.stop()
    clockOffset.stop()
    await delivery.stop()
    dataWatch.stop()
    await placing.stop()
    directory.stop()
    await suspects.stop()
    await unsubscribe?.()
    await listening?.close()
  }
  /** Hands the rooms over first, so that they run at other nodes while their clients are still here. Then moves the clients, and stops. */
  const drain = async (drainMs: number): Promise<void> => {
    host.rooms.refuseMore()
    await Promise.all([ownership.drain(), sharing && gateway.stopListening()])
    await ownership.handOver(host.rooms.running)
    await gateway.drain(drainMs)
    await stop()
  }
  let closing: Promise<void> | undefined
  const close = (drainMs = config.drainSeconds * 1000): Promise<void> => {
    const late = (): Promise<boolean> => sleep(clock, drainMs + SHUT_DOWN_SPARE_MS).then(() => true)
    closing ??= Promise.race([drain(drainMs), late()]).then((isLate) => {
      if (isLate) log.warn('shutdown timed out')
    })
    return closing
  }

  const found: Pick<AdminOptions, 'describeRooms' | 'describeSessions' | 'describeCluster'> = {
    describeRooms: (query) => host.describe(query),
    describeSessions: (query) => gateway.describeSessions(query),
    describeCluster: () => ownership.nodes.describe(),
  }
  const admin: AdminOptions = {
    ...found,
    search: new ClusterSearch({ ...found, nodeId: name, bus: store.bus, clock, random, log }),
    clock,
    internalToken: config.internalToken,
    controlUrl: config.controlUrl,
    registry,
    random,
    log,
    ready: readiness({
      ping: () => store.ping(),
      draining: () => ownership.self.draining,
      cordoned: () => ownership.self.cordoned,
      leaseValid: () => ownership.lease.valid(),
      clockWrong: () => clockOffset.wrong,
      clock,
    }),
    describeNode: () => ({
      node_id: name,
      ...build,
      rooms_hash: host.types.hash,
      started_at: startedAt,
      draining: ownership.self.draining,
      cordoned: ownership.self.cordoned,
      listed_types: host.types.all.flatMap(({ type, listing }) => (listing ? type : [])).sort(),
      load: load.read(),
    }),
    problems: async () => {
      const frozen = host.rooms.frozen.map(({ core }) => core.roomId)
      const names = `${frozen.slice(0, PROBLEM_NAMES).join(', ')}${frozen.length > PROBLEM_NAMES ? ', …' : ''}`
      return [
        ...(await admin.ready()),
        ...(dataWatch.lost ? [{ code: 'store_data_lost', detail: 'the store has lost its data' }] : []),
        ...(load.overloaded
          ? [{ code: 'overloaded', detail: 'the node accepts no new sessions and rooms: it is overloaded' }]
          : []),
        ...(frozen.length > 0
          ? [
              {
                code: 'rooms_frozen',
                detail: `rooms that can do nothing at the moment: ${frozen.length} (${names})`,
              },
            ]
          : []),
        ...suspects.problems,
        ...(suspects.blocked > 0
          ? [
              {
                code: 'players_blocked',
                detail: `players with messages that are rejected: ${suspects.blocked}`,
              },
            ]
          : []),
      ]
    },
    describeQueues: () => queues.describe(),
    members: () => host.rooms.members,
    findOwner: async (projectId, roomId) => {
      const room = `${projectId}/${roomId}`
      const found = await store.rooms.inspect(room)
      if (!found) return undefined
      const { epoch, owner } = found
      if (owner !== null) return { epoch, owner: nodeName(owner), ended: false }
      const { snapshot } = await store.rooms.read(room)
      return { epoch, owner, ended: snapshot === undefined }
    },
    ownerlessRooms: (projectId, limit, after) => ownership.ownerless(projectId, limit, after),
    notices: deadLetters,
    listedRooms: async (list, query, after) => directory.rooms(list, readQuery(query), () => true, after),
    describeRoom: async (projectId, roomId, shown) => {
      const room = roomNamed(`${projectId}/${roomId}`)
      const described = (await ownership.describe(room, shown)) ?? (await host.stored.view(room, shown))
      return described ?? { code: 'room_not_found', message: `there is no room ${roomIdOf(room)}` }
    },
    countedRooms: async (projectId, limit, after) =>
      store.rooms.counted(projectId, { limit, after: after ?? { until: await store.time(), roomId: '' } }),
    endSession: (projectId, sessionId) => gateway.endSession(projectId, sessionId),
    setCordoned: (cordoned) => ownership.setCordoned(cordoned),
    requestRoom: (projectId, roomId, request) =>
      ownership.requests.send(roomNamed(`${projectId}/${roomId}`), request),
    drain: () => void close().then(resolveDrained),
    setLogLevel: sharing?.setLogLevel ?? ((level) => setLogLevel(log, level)),
  }

  await suspects.start()
  await ownership.start(host, gateway)
  try {
    await placing.start()
    waker.start()
    // A node without notices would poll for rooms with notices in vain.
    if (notifyUrl !== undefined || options.rooms.some(({ notices }) => Object.keys(notices).length > 0))
      delivery.start()
    unsubscribe = await subscribeKeyNews(
      store.bus,
      (news) => {
        if ('disabled' in news) gateway.setProjectDisabled(news.project_id, news.disabled)
        else if ('sub' in news) gateway.playerChanged(news.project_id, news.sub)
        else if (news.status === 'revoked') gateway.revokeKey(news.project_id, news.key_id)
        else gateway.forgetKey(news.project_id, news.key_id)
      },
      () => gateway.newsMissed(),
      (error) => log.warn({ err: error }, 'key news unreadable'),
    )
    load.start()
    clockOffset.start()
    const listen = options.listen ?? atPorts(config, sharing?.ownPort)
    listening = await listen(gateway, admin)
    void dataWatch.start()
  } catch (error) {
    await stop().catch((err: unknown) => log.warn({ err }, 'stop after a failed start failed'))
    throw error
  }
  const { wsUrl, adminUrl } = listening
  addresses = {
    ws_url: wsUrl,
    admin_url: config.adminUrl ?? adminUrl,
    ...(config.advertiseUrl !== undefined && { advertise_url: config.advertiseUrl }),
  }
  await ownership.lease.renewNow()
  closeBuiltins()
  return {
    nodeId: name,
    wsUrl,
    adminUrl,
    registry,
    roomCode: host.code,
    unhandled: new UnhandledErrors({
      clock,
      log,
      count: (kind) => unhandled.inc({ kind }),
      roomCode: (error) => host.code.unhandled(error),
    }),
    replaceRoom: (definition) => host.replaceRoom(definition),
    drained,
    close,
  }
}

/** Listens on the configured ports, and on `ownPort` for clients. */
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
