import { Registry } from 'prom-client'
import { type Clock, systemClock, timestamp } from '../shared/clock.ts'
import { type DataplaneConfig, parseDevConfig } from '../shared/config.ts'
import { newId } from '../shared/ids.ts'
import { subscribeKeyNews } from '../shared/key-news.ts'
import { createLog, type Logger } from '../shared/log.ts'
import { JsonCodec } from '../shared/protocol/json-codec.ts'
import { MsgpackCodec } from '../shared/protocol/msgpack-codec.ts'
import { type Random, systemRandom } from '../shared/random.ts'
import { memoryStore } from '../shared/store/memory/memory.ts'
import type { Store } from '../shared/store/port.ts'
import { packageVersion } from '../shared/version.ts'
import { Claims } from './cluster/claims.ts'
import { NodeLease } from './cluster/lease.ts'
import { noClusterMetrics } from './cluster/metrics.ts'
import { Gateway } from './gateway/gateway.ts'
import { askControl } from './gateway/key-status.ts'
import type { GatewayOptions } from './gateway/options.ts'
import { createAdminApp } from './ops/admin.ts'
import { readiness } from './ops/health.ts'
import { LoadMeter } from './ops/load.ts'
import { nodeMetrics } from './ops/metrics.ts'
import { eventLoopDelay, registerGauges } from './ops/process-metrics.ts'
import { serveAdmin } from './ops/server.ts'
import type { RoomDefinition } from './rooms/definition.ts'
import { RoomHost } from './rooms/host.ts'

type NodeConfig = Omit<DataplaneConfig, 'rooms_dir' | 'store' | 'log'>

/** How a node runs: its room types, and whatever of the configuration is not as the defaults say. */
export interface NodeOptions extends Partial<NodeConfig> {
  readonly rooms: readonly RoomDefinition[]
  /** Default: in memory, for this node alone. The store stays its owner's to close. */
  readonly store?: Store
  /** Default: JSON lines on standard output. */
  readonly log?: Logger
  readonly clock?: Clock
  readonly random?: Random
}

/** A node that accepts clients. */
export interface RunningNode {
  readonly node_id: string
  /** Such as `ws://127.0.0.1:4000`. */
  readonly ws_url: string
  /** Where `/metrics`, `/healthz`, `/readyz` and `/admin` are, such as `http://127.0.0.1:9100`. */
  readonly admin_url: string
  /** Puts a new definition in the place of the one of the same type, for running rooms too (development). */
  replaceRoom(definition: RoomDefinition): void
  /** Resolves when the node has drained because it was told so over HTTP. */
  readonly drained: Promise<void>
  /** Moves the clients elsewhere, saves and releases the rooms, and lets go of everything. */
  close(): Promise<void>
}

const CONTROL_TIMEOUT_MS = 5000
const SEAT_GRACE_MS = 60_000

/** The configuration that holds where nothing is said: the defaults of the environment variables. */
function defaults(): DataplaneConfig {
  const parsed = parseDevConfig({})
  if (!parsed.ok) throw new Error('the defaults of the configuration are not valid')
  return parsed.config.dataplane
}

/**
 * Starts a node: gateway, rooms, cluster and ops, connected here and nowhere else. Resolves once it accepts clients; rejects when an
 * address cannot be had or the store cannot be reached.
 */
export async function startNode(options: NodeOptions): Promise<RunningNode> {
  const { clock = systemClock, random = systemRandom } = options
  const config = { ...defaults(), ...options }
  const node_id = config.node_id ?? newId('node', random)
  const log = options.log ?? createLog({ level: 'info', format: 'auto' }, { node_id })
  const store = options.store ?? memoryStore({ clock })
  const registry = new Registry()
  const metrics = nodeMetrics(registry)
  const codecs = [new JsonCodec(), new MsgpackCodec()] as const
  const load = new LoadMeter(clock, eventLoopDelay(registry))
  const started_at = timestamp(clock.now())
  const record_ttl_ms = config.room_orphan_ttl_seconds * 1000
  let draining = false

  const lease = new NodeLease({
    node_id,
    store,
    clock,
    log,
    metrics: noClusterMetrics,
    ttl_ms: config.node_lease_ms,
    info: () => ({
      node_id,
      started_at,
      version: packageVersion(),
      draining,
      rooms: host.size,
      sessions: gateway.sessions,
      load: load.read().event_loop_utilisation,
      max_rooms: Number.MAX_SAFE_INTEGER,
      max_sessions: Number.MAX_SAFE_INTEGER,
    }),
    on_regained: () => host.recheck(),
  })
  const claims = new Claims({ node_id, store, log, record_ttl_ms })
  const host: RoomHost = new RoomHost({
    node_id,
    rooms: options.rooms,
    codecs,
    records: store.rooms,
    clock,
    random,
    log,
    metrics: metrics.rooms,
    claim: (room, { create }) => claims.claim(room, { create }),
    may_act: () => lease.valid(),
    deliver: (_edge, message) => gateway.receive(message),
    // A session's end is its edge's to tell; this is for edges that cannot any more.
    limits: { record_ttl_ms, seat_ms: config.resume_ttl_seconds * 1000 + SEAT_GRACE_MS },
  })
  const gateway: Gateway = new Gateway({
    node_id,
    clock,
    random,
    log,
    codecs,
    ask_key_status: askControl({ ...config, timeout_ms: CONTROL_TIMEOUT_MS }),
    send: (message) => host.receive(message),
    records: store.records,
    metrics: metrics.gateway,
    options: gatewayOptions(config),
  })
  registerGauges(registry, {
    counts: () => ({ connections: gateway.connections, sessions: gateway.sessions }),
    load: () => load.read(),
    draining: () => draining,
    node_id,
    version: packageVersion(),
  })

  let told_to_drain = () => {}
  const drained = new Promise<void>((resolve) => {
    told_to_drain = resolve
  })
  let closing: Promise<void> | undefined
  const close = (): Promise<void> => {
    closing ??= shutDown()
    return closing
  }

  const admin = createAdminApp({
    internal_token: config.internal_token,
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
    describeNode: () => ({ node_id, version: packageVersion(), started_at, draining, load: load.read() }),
    describeRooms: (query) => host.describe(query),
    describeSessions: () => gateway.describeSessions(),
    drain: () => void close().then(told_to_drain),
  })

  /** Clients first, since they go on elsewhere; then the rooms, which are saved; then whatever others see of the node. */
  async function shutDown(): Promise<void> {
    draining = true
    await gateway.drain(config.drain_seconds * 1000)
    await host.close()
    await lease.stop()
    await gateway.close()
    load.stop()
    await unsubscribe()
    await admin_server.close()
  }

  await lease.start()
  const unsubscribe = await subscribeKeyNews(
    store.bus,
    ({ project_id, key_id, status }) =>
      status === 'revoked' ? gateway.revokeKey(project_id, key_id) : gateway.forgetKey(project_id, key_id),
    () => void gateway.recheckKeys(),
    (error) => log.warn({ err: error }, 'a message about a key cannot be read'),
  )
  load.start()
  const admin_server = await serveAdmin(admin, config.admin_host, config.admin_port)
  const address = await gateway.listen(config.ws_host, config.ws_port).catch(async (error: unknown) => {
    await admin_server.close()
    throw error
  })
  return {
    node_id,
    ws_url: urlOf('ws', config.ws_host, address.port),
    admin_url: urlOf('http', admin_server.host, admin_server.port),
    replaceRoom: (definition) => host.replaceRoom(definition),
    drained,
    close,
  }
}

/** The configuration as the gateway names it. */
const gatewayOptions = (config: NodeConfig): Partial<GatewayOptions> => ({
  ...config,
  limits: {
    max_message_bytes: config.max_message_bytes,
    messages_per_second: config.session_messages_per_second,
    message_burst: 2 * config.session_messages_per_second,
    max_rooms: config.max_rooms_per_session,
  },
})

const urlOf = (scheme: string, host: string, port: number): string =>
  `${scheme}://${host.includes(':') ? `[${host}]` : host}:${port}`
