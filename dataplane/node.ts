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
  'rooms_dir' | 'turn_limit_ms' | keyof StoreConfig | keyof LogConfig | `otel_${string}`
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
  readonly reveal_failures?: boolean
}

/** A node that accepts clients. */
export interface RunningNode {
  /** Its name (`NODE_ID`). */
  readonly node_id: string
  /** Such as `ws://127.0.0.1:4000`. */
  readonly ws_url: string
  /** Where `/metrics`, `/healthz`, `/readyz` and `/admin` are, such as `http://127.0.0.1:9100`. */
  readonly admin_url: string
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
  const name = config.node_id ?? newId('node', random)
  const node_id = newNodeId(name, random)
  // Once: without a free file descriptor it could not be read.
  const version = packageVersion()
  const log = options.log ?? createLog(config, { node_id: name })
  const store = options.store ?? memoryStore({ clock })
  const registry = new Registry()
  const room_types = options.rooms.map(({ type }) => type)
  const metrics = nodeMetrics(registry, room_types)
  processMetrics(registry)
  storeMetrics(registry, store)
  const codecs = [new JsonCodec(), new MsgpackCodec()] as const
  const load = new LoadMeter(clock, metrics)
  const started_at = timestamp(clock.now())
  const record_ttl_ms = config.room_orphan_ttl * 1000
  let draining = false
  metrics.draining.read(() => Number(draining))
  metrics.maxSessions.set(config.max_sessions)
  metrics.maxRooms.set(config.max_rooms)
  metrics.nodeInfo.set({ node_id: name, version }, 1)
  let addresses: Partial<Pick<NodeInfo, 'ws_url' | 'admin_url' | 'advertise_url'>> = {}

  /** What the other nodes are told of this one. */
  function describeSelf(): NodeInfo {
    return {
      node_id,
      started_at,
      version,
      draining,
      rooms: host.size,
      sessions: gateway.sessions,
      load: load.event_loop_utilisation,
      max_rooms: config.max_rooms,
      max_sessions: config.max_sessions,
      ...addresses,
    }
  }

  const lease = new NodeLease({
    node_id,
    store,
    clock,
    log,
    metrics,
    ttl_ms: config.node_lease_ms,
    info: describeSelf,
    on_regained: () => {
      log.warn({ rooms: host.size }, 'the lease had run out and stands again: every room is checked')
      nodes.hold()
      host.recheck()
    },
    on_replaced: (replaced) => failed(replaced),
  })
  const nodes = new Nodes({
    node_id,
    store,
    clock,
    log,
    metrics,
    lease_ms: config.node_lease_ms,
    info: describeSelf,
    on_gone: (gone) => {
      peers.forget(gone)
      for (const room of router.gone(gone)) gateway.reattach(room)
      host.edgeGone(gone)
    },
    on_joined: ({ node_id: peer, version }) => {
      log.info({ peer, version }, 'a node is in the cluster')
      // It may have been taken for gone, and know nothing of it: what it has open here is asked again, and the other way round.
      peers.greet(peer)
      for (const room of router.roomsAt(peer)) gateway.reattach(room)
    },
  })
  const peers = new NodeLinks({
    node_id,
    bus: store.bus,
    defer: setImmediate,
    clock,
    log,
    metrics,
    on_message: receive,
    // Either way may have lost something: edges ask again what is open, and are told what they missed.
    on_gap: (from) => {
      // Another node may have said that a session was resumed there.
      if (from === undefined) {
        gateway.storeReturned()
        // No one heard this node for a while: its rooms may have been taken over.
        host.recheck()
      }
      for (const room of router.roomsAt(from)) gateway.reattach(room)
      for (const peer of from === undefined ? nodes.nodes() : [{ node_id: from }])
        if (peer.node_id !== node_id) host.edgeMissed(peer.node_id)
    },
  })
  const placed = (reason: PlacementReason, preferred?: string): string | undefined =>
    place({
      self: node_id,
      nodes: nodes.nodes(),
      random,
      reason,
      ...(preferred !== undefined && { preferred }),
    })
  const claims = new Claims({
    node_id,
    store,
    nodes,
    clock,
    log,
    metrics,
    tracer,
    may_act: () => lease.valid(),
    // Should it live, it is to find out, whatever happens in the room.
    taken_over: (name, from) =>
      deliver(from, { room: roomNamed(name), epoch: 0, kind: 'redirect', owner: node_id }),
    record_ttl_ms,
    quota: { max_rooms: config.max_rooms_per_project, per_minute: config.new_rooms_per_minute },
  })
  const host: RoomHost = new RoomHost({
    node_id,
    rooms: options.rooms,
    codecs,
    records: store.rooms,
    clock,
    random,
    log,
    metrics,
    tracer,
    claim: (room, options) => claims.claim(room, options),
    may_act: () => lease.valid(),
    rewrites_allowed_at: () => nodes.rewrites_allowed_at,
    deliver,
    edge_gone: (edge) => nodes.isGone(edge),
    redirect: (arrivals, owner) => router.redirect(arrivals, owner),
    ...(options.turns && { turns: options.turns }),
    ...(options.reveal_failures !== undefined && { reveal_failures: options.reveal_failures }),
    // A session's end is its edge's to tell; this is for edges that cannot any more.
    limits: {
      record_ttl_ms,
      quarantine_ttl_ms: config.room_quarantine_ttl * 1000,
      waiting_messages: config.max_room_backlog,
      tasks: config.max_room_tasks,
      history_bytes: config.max_history_bytes,
      state_bytes: config.max_room_state_bytes,
      seat_ms: config.session_resume_ttl * 1000 + SEAT_GRACE_MS,
      outcomes: { messages: config.max_unacked_messages, bytes: config.max_unacked_bytes },
    },
  })
  const gateway: Gateway = new Gateway({
    node_id,
    clock,
    random,
    log,
    codecs,
    ask_key_status: askControl({ ...config, timeout_ms: CONTROL_TIMEOUT_MS }),
    send: (message) => router.send(message),
    unseated: (room) => router.forget(room),
    store_uptime: () => store.uptime(),
    node_gone: (other) => nodes.isGone(other),
    node_dead: async (other) => nodes.isGone(other) && (await nodes.judge(other, true)) === 'dead',
    tell_taken: (other, session_id) => peers.send(other, { to: 'gateway', session_id }),
    records: store.records,
    metrics,
    tracer,
    options: config,
  })
  const router = new Router({
    node_id,
    clock,
    tracer,
    host,
    inspect: (room) => claims.inspect(room),
    judge: (other) => nodes.judge(other),
    gone: (other) => nodes.isGone(other),
    place: placed,
    accepts: () => host.accepts,
    max_waiting_messages: config.max_room_backlog,
    backlog_full: (room_type) => metrics.backlogFull.inc({ room_type }),
    send: (other, message) => peers.send(other, message),
    deliver,
    failed: (error, room) => log.warn({ err: error, room }, 'the owner of a room could not be found'),
  })

  /** Takes a message to an edge, this node's own or another's: the same way for both, as far as rooms know. */
  function deliver(edge: string, message: ToEdge): void {
    if (edge !== node_id) peers.send(edge, { to: 'edge', message })
    else hear(message, node_id)
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

  let told_to_drain = () => {}
  let failed: (error: Error) => void = () => {}
  const drained = new Promise<void>((resolve, reject) => {
    told_to_drain = resolve
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
    describeNode: () => ({ node_id: name, version, started_at, draining, load: load.read() }),
    describeRooms: (query) => host.describe(query),
    describeSessions: (query) => gateway.describeSessions(query),
    members: () => host.members,
    describeCluster: () => nodes.describe(),
    findOwner: async (project_id, room_id) => {
      const found = await store.rooms.inspect(`${project_id}/${room_id}`)
      return found && { epoch: found.epoch, owner: found.owner && nodeName(found.owner) }
    },
    drain: () => void close().then(told_to_drain),
  }

  async function end(): Promise<void> {
    const span = tracer.span('drain', {
      attributes: { 'roomful.rooms': host.size, 'roomful.sessions': gateway.sessions },
    })
    const result = await Promise.race([
      shutDown(span).then(() => 'done' as const),
      patience(config.drain_seconds * 1000 + SHUT_DOWN_SPARE_MS).then(() => 'timeout' as const),
    ])
    if (result === 'timeout') {
      log.warn('the node could not end in time: what the store has not answered is left behind')
      span.fail(result)
    }
    span.set({ 'roomful.result': result, 'roomful.rooms_handed_over': handed_over })
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
    await step('drain.clients', () => gateway.drain(config.drain_seconds * 1000))
    await step('drain.stop', async () => {
      await host.close()
      await gateway.close()
      nodes.stop()
      forget_return()
      await peers.close()
      await lease.stop()
      load.stop()
      await unsubscribe()
      await admin_server.close()
    })
  }

  const patience = (delay_ms: number): Promise<void> =>
    new Promise((resolve) => {
      clock.schedule(delay_ms, resolve)
    })

  let handed_over = 0
  const handOverRooms = (span: Span): Promise<void> =>
    handOver(host.rooms, {
      place: (preferred) => placed('hand_over', preferred),
      ask: (other, room) => peers.send(other, { to: 'host', room }),
      handed: (seconds) => {
        metrics.handOverDuration.observe(seconds)
        handed_over += 1
      },
      tracer,
      span,
      now: () => clock.monotonic(),
    })

  const forget_return = store.onReturn(() => {
    gateway.storeReturned()
    // Rooms in which nothing happens would not find out for minutes that their records are gone.
    host.recheck()
  })
  await peers.start()
  await lease.start()
  await nodes.start()
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
  const ws_url = urlOf('ws', config.ws_host, address.port)
  const admin_url = urlOf('http', admin_server.host, admin_server.port)
  addresses = {
    ws_url,
    admin_url: config.admin_url ?? admin_url,
    ...(config.advertise_url !== undefined && { advertise_url: config.advertise_url }),
  }
  await lease.renewNow()
  return {
    node_id: name,
    ws_url,
    admin_url,
    replaceRoom: (definition) => host.replaceRoom(definition),
    drained,
    close,
  }
}

const urlOf = (scheme: string, host: string, port: number): string =>
  `${scheme}://${host.includes(':') ? `[${host}]` : host}:${port}`
