import type { AddressInfo, Socket } from 'node:net'
import type { Clock } from '../../shared/clock.ts'
import type { Logger } from '../../shared/log.ts'
import type { Codec } from '../../shared/protocol/codec.ts'
import type { Random } from '../../shared/random.ts'
import type { Records } from '../../shared/store/port.ts'
import { noTracer, type Tracer } from '../../shared/tracing/tracer.ts'
import type { Found, SessionDescription, SessionQuery } from '../descriptions.ts'
import type { RoomAddress, ToEdge, ToOwner } from '../traffic.ts'
import { Authenticator } from './authentication.ts'
import { ClientProtocol, type ClientProtocolParts } from './client-protocol.ts'
import { Connection, type ServerSocket } from './connection.ts'
import { Edge } from './edge.ts'
import { Handshake } from './handshake.ts'
import { type AskKeyStatus, KeyCache, type KeyName } from './key-cache.ts'
import type { GatewayMetrics } from './metrics.ts'
import { type GatewayOptions, gatewayOptions } from './options.ts'
import { type Defer, endOfTurn, Flusher } from './outbox.ts'
import { JoinRateLimiter } from './rate-limits.ts'
import type { PendingConnection } from './server.ts'
import { GatewayServer } from './server.ts'
import { SessionStore } from './session-record.ts'
import { REWRITTEN_MS, Sessions, SWEEP_MS } from './sessions.ts'

/** What a gateway is made of. */
export interface GatewayParts {
  readonly nodeId: string
  readonly clock: Clock
  readonly random: Random
  readonly log: Logger
  /** The first is what clients get that name no subprotocol. */
  readonly codecs: readonly [Codec, ...Codec[]]
  /** Asks control about keys; see `askControl`. */
  readonly askKeyStatus: AskKeyStatus
  /** Takes a message to the owner of its room; may answer through `receive` before it returns. */
  readonly send: (message: ToOwner) => void
  /** Where sessions are written down, for whichever node they are resumed at. */
  readonly records: Records
  /** Whether the store came back empty less than `ms` ago, and may lack what nodes have not written again; default: it never does. */
  readonly storeIsBehind?: (ms: number) => Promise<boolean>
  /** Tells another node that a session of its own was resumed here; that node calls `sessionTaken`. */
  readonly tellTaken?: (nodeId: string, sessionId: string) => void
  /** Whether a node is known to have ended; without it, one that says nothing is waited for a little longer. */
  readonly nodeGone?: (nodeId: string) => boolean
  /** Whether the lease of a node has run out; default: it stands. Rejects with `StoreUnavailable`. */
  readonly nodeDead?: (nodeId: string) => Promise<boolean>
  /** No one at this node is in the room any more. */
  readonly unseated?: (room: RoomAddress) => void
  readonly options?: Partial<GatewayOptions>
  readonly metrics: GatewayMetrics
  /** Default: no traces. */
  readonly tracer?: Tracer
  /** When the writes of a turn go out; for embedders with a loop of their own. */
  readonly defer?: Defer
}

/** How often control is asked about the keys of live sessions. */
const RECHECK_MS = 30_000
/** How many waves clients are moved in. */
const WAVES = 20
/**
 * In this share of the time no client is moved. A load balancer needs some checks to find out that this node is not ready; until then it
 * would send a client that leaves back here, to be refused and to wait.
 */
const NOTICE = 0.1
/** How much longer than told a client may stay: the time to come back elsewhere before its connection here ends. */
const GRACE_MS = 500

/**
 * The sockets of a node: which client is at the other end, which rooms it is in, and that each gets its frames in order, at the pace it can
 * read. Knows frames and sessions, knows no game.
 */
export class Gateway {
  readonly #parts: GatewayParts
  readonly #options: GatewayOptions
  readonly #metrics: GatewayMetrics
  readonly #codecs: ReadonlyMap<string, Codec>
  readonly #flusher: Flusher
  readonly #server: GatewayServer
  readonly #keys: KeyCache
  readonly #edge: Edge
  readonly #sessions: Sessions
  readonly #clientParts: ClientProtocolParts
  readonly #clients = new Set<ClientProtocol>()
  #stopSweep: () => void = () => {}
  #onEmpty: () => void = () => {}
  #recheckAt: number
  #draining = false

  constructor(parts: GatewayParts) {
    const { nodeId, clock, random, log, metrics, tracer = noTracer } = parts
    const options = gatewayOptions(parts.options)
    this.#parts = parts
    this.#options = options
    this.#metrics = metrics
    metrics.connections.read(() => this.connections)
    metrics.pendingConnections.read(() => this.pending)
    metrics.sessions.read(() => this.sessions)
    metrics.outboxBytes.read(() => this.queuedBytes)
    this.#codecs = new Map(parts.codecs.map((codec) => [codec.subprotocol, codec]))
    this.#flusher = new Flusher(parts.defer ?? endOfTurn, metrics)
    const shared = { ...options, nodeId, clock, random, log, metrics }
    this.#keys = new KeyCache({ ...shared, ask: parts.askKeyStatus })
    this.#edge = new Edge({
      ...shared,
      tracer,
      send: parts.send,
      record: (session) => this.#sessions.save(session),
      unseated: parts.unseated ?? (() => {}),
    })
    const edge = this.#edge
    const store = new SessionStore(parts.records)
    this.#sessions = new Sessions({ ...shared, edge, store })
    const sessions = this.#sessions
    this.#recheckAt = clock.monotonic() + RECHECK_MS
    const tokens = new Authenticator(this.#keys, clock, metrics, options)
    const { tellTaken = () => {}, nodeGone = () => false, nodeDead = async () => false } = parts
    const { storeIsBehind = async () => false } = parts
    this.#clientParts = {
      nodeId,
      clock,
      log,
      options,
      metrics,
      tracer,
      tokens,
      edge,
      sessions,
      joinRates: new JoinRateLimiter(clock, options.joinsPerSecond),
      handshake: new Handshake({
        ...shared,
        tokens,
        edge,
        store,
        sessions,
        tellTaken,
        nodeGone,
        nodeDead,
        storeIsBehind: () => storeIsBehind(REWRITTEN_MS),
      }),
      over: (client) => {
        this.#clients.delete(client)
        if (this.#clients.size === 0) this.#onEmpty()
      },
    }
    this.#server = new GatewayServer(
      {
        ...options,
        maxMessageBytes: options.limits.max_message_bytes,
        subprotocols: [...this.#codecs.keys()],
      },
      clock,
      metrics,
      (ws, socket, protocol, pending) => this.#accept(ws, socket, protocol, pending),
    )
  }

  /** How many sockets are open. */
  get connections(): number {
    return this.#clients.size
  }

  /** How many sockets have no session yet. */
  get pending(): number {
    return this.#server.pending
  }

  /** How many sessions there are, those waiting to be resumed included. */
  get sessions(): number {
    return this.#sessions.size
  }

  /** How many bytes wait for all clients together. */
  get queuedBytes(): number {
    let bytes = 0
    for (const { connection } of this.#clients) bytes += connection.outbox.queued
    return bytes
  }

  /** Starts to accept clients; `port` 0 picks a free one. Rejects when the address cannot be had. */
  async listen(host: string, port: number): Promise<AddressInfo> {
    const address = await this.#server.listen(host, port)
    this.#scheduleSweep()
    return address
  }

  /** A message from the owner of a room. What one turn brings for a client leaves in one write. */
  receive(message: ToEdge): void {
    this.#edge.receive(message)
  }

  /** Something on the way to the owner of a room may be lost, or the room has another owner; see `Edge.reattach`. */
  reattach(room: RoomAddress): void {
    this.#edge.reattach(room)
  }

  /** Another node says that a session which was here was resumed there. If so, nothing is left of it here, and its rooms hear nothing. */
  sessionTaken(sessionId: string): Promise<void> {
    return this.#sessions.taken(sessionId)
  }

  /** The store can be reached again: what it holds of sessions may be old, or gone, and is written again within seconds. */
  storeReturned(): void {
    this.#sessions.storeReturned()
  }

  /** Ends every session under a key, at once and for good. `key_id` null: the project's built-in pair. */
  revokeKey(projectId: string, keyId: string | null): void {
    const key: KeyName = { projectId, keyId: keyId ?? undefined }
    this.#keys.revoke(key)
    const sessions = this.#sessions.under(key)
    for (const session of sessions) {
      session.connection?.close('key_revoked', 'the key of the token was revoked')
      this.#sessions.end(session, 'session_ended')
    }
    if (sessions.length > 0)
      this.#parts.log.info(
        { project_id: projectId, key_id: keyId, sessions: sessions.length },
        'ended the sessions of a revoked key',
      )
  }

  /** Something about a key has changed: what is known about it is asked again before it is used. */
  forgetKey(projectId: string, keyId: string | null): void {
    this.#keys.invalidate({ projectId, keyId: keyId ?? undefined })
  }

  /**
   * Asks control about every key that some session depends on, and ends the sessions of those that were revoked. Happens by itself
   * every 30 s; call it when news of a revocation may have been missed.
   */
  async recheckKeys(): Promise<void> {
    const keys = this.#sessions.keys()
    // Also those of no session here: one may come to be resumed.
    this.#keys.invalidateAll()
    await Promise.all(keys.map((key) => this.#recheck(key)))
  }

  /** The sessions as operators see them. */
  describeSessions(query: SessionQuery = {}): Found<SessionDescription> {
    return this.#sessions.describe(query)
  }

  /** Whether a session has a socket here. */
  isConnected(sessionId: string): boolean {
    return this.#sessions.find(sessionId)?.connection !== undefined
  }

  /**
   * Moves every client elsewhere, in waves over `withinMs`, and takes no new ones. Resolves as soon as all are gone, at most 0.5 s
   * after `withinMs`. Sessions stay until `close`.
   */
  async drain(withinMs: number): Promise<void> {
    this.#draining = true
    const { clock, random } = this.#parts
    const connections = [...this.#clients].map(({ connection }) => connection)
    const drain = drainConnections(connections, { clock, random, withinMs })
    const left = new Promise<void>((resolve) => {
      this.#onEmpty = resolve
    })
    await Promise.race([drain.done, left])
    drain.stop()
  }

  /** Closes every socket (draining) and the port. Sends owners nothing: sessions and their subscriptions can be resumed elsewhere. */
  async close(): Promise<void> {
    this.#draining = true
    this.#stopSweep()
    const closed = this.#server.close()
    for (const { connection } of [...this.#clients]) connection.close('draining', 'this node is going away')
    await closed
    await this.#sessions.settle()
  }

  #accept(ws: ServerSocket, socket: Socket, protocol: string, pending: PendingConnection): void {
    const codec = protocol === '' ? this.#parts.codecs[0] : this.#codecs.get(protocol)
    const client = new ClientProtocol(
      this.#clientParts,
      pending,
      (listener) =>
        new Connection({
          ws,
          socket,
          // A connection that is refused below speaks no codec; which one it has does not matter.
          codec: codec ?? this.#parts.codecs[0],
          clock: this.#parts.clock,
          flusher: this.#flusher,
          bounds: {
            highWaterBytes: this.#options.outboxHighWaterBytes,
            limitBytes: this.#options.outboxLimitBytes,
          },
          metrics: this.#metrics,
          listener,
        }),
    )
    this.#clients.add(client)
    if (!codec)
      client.refuse(
        'protocol_error',
        `unknown subprotocol ${protocol}; known: ${[...this.#codecs.keys()].join(', ')}`,
      )
    else if (this.#draining) client.refuse('draining', 'this node is going away: connect to another')
  }

  #scheduleSweep(): void {
    this.#stopSweep = this.#parts.clock.schedule(SWEEP_MS, () => {
      this.#scheduleSweep()
      this.#sweep()
    })
  }

  /** Once a second, for everything that has a deadline in seconds: cheaper than a timer for each. */
  #sweep(): void {
    const { heartbeatSeconds } = this.#options
    for (const { connection } of this.#clients) connection.beat(heartbeatSeconds * 1000)
    for (const session of this.#sessions)
      if (session.connection && session.overdue)
        session.connection.close('token_expired', 'the token has expired and no fresh one came')
    this.#sessions.sweep()
    this.#edge.sweep()
    const now = this.#parts.clock.monotonic()
    if (now < this.#recheckAt) return
    this.#recheckAt = now + RECHECK_MS
    void this.recheckKeys()
  }

  async #recheck(key: KeyName): Promise<void> {
    const { projectId, keyId } = key
    try {
      const { kind } = await this.#keys.state(key)
      if (kind === 'revoked') this.revokeKey(projectId, keyId ?? null)
      if (kind === 'unknown')
        this.#parts.log.warn(
          { project_id: projectId, key_id: keyId },
          'control does not know the key of live sessions; they stay',
        )
    } catch (error) {
      this.#parts.log.warn(
        { err: error, project_id: projectId, key_id: keyId },
        'the key of live sessions could not be checked',
      )
    }
  }
}

/**
 * Moves clients to other nodes: tells each when to reconnect, at a random moment within `withinMs` but not at once, and closes the
 * connection shortly after that moment, in waves; the last one at most `withinMs` + 0.5 s from now. A client that is not welcome yet
 * hears of it behind its `welcome`, or is closed in its wave. `done` resolves when the last connection is closed; `stop` closes no more.
 */
export function drainConnections(
  connections: readonly Pick<Connection, 'send' | 'close'>[],
  { clock, random, withinMs }: { readonly clock: Clock; readonly random: Random; readonly withinMs: number },
): { readonly done: Promise<void>; readonly stop: () => void } {
  const waves = Array.from({ length: WAVES }, (): Pick<Connection, 'close'>[] => [])
  for (const connection of connections) {
    const moment = NOTICE + (1 - NOTICE) * random.float()
    connection.send({ t: 'draining', reconnect_in_ms: Math.floor(moment * withinMs) })
    waves[Math.floor(moment * WAVES)]!.push(connection)
  }
  const cancels: (() => void)[] = []
  const moved = waves.map(
    (wave, index) =>
      new Promise<void>((resolve) => {
        if (wave.length === 0) return resolve()
        const close = (): void => {
          for (const connection of wave)
            connection.close('draining', 'this node is going away: resume on another')
          resolve()
        }
        cancels.push(clock.schedule(((index + 1) / WAVES) * withinMs + GRACE_MS, close))
      }),
  )
  return {
    done: Promise.all(moved).then(() => {}),
    stop: () => {
      for (const cancel of cancels) cancel()
    },
  }
}
