import type { AddressInfo } from 'node:net'
import type { Duplex } from 'node:stream'
import { type Clock, sleep } from '../../shared/clock.ts'
import type { PlayerRecord } from '../../shared/players.ts'
import type { Codec } from '../../shared/protocol/codec.ts'
import type { CloseName } from '../../shared/protocol/error-codes.ts'
import type { ServerMessage } from '../../shared/protocol/messages.ts'
import type { Random } from '../../shared/random.ts'
import { type Rate, RateLimit } from '../../shared/rate-limit.ts'
import { Slices } from '../../shared/slices.ts'
import type { Records } from '../../shared/store/port.ts'
import type { Found, Query, SessionDescription } from '../descriptions.ts'
import type { RoomAddress } from '../traffic.ts'
import { Authenticator } from './authentication.ts'
import { PlayerBudgets } from './budget.ts'
import { ClientProtocol, type ClientProtocolContext } from './client-protocol.ts'
import type { ServerSocket } from './connection.ts'
import { type GatewayContext, type GatewayOptions, type GatewayServices, gatewayOptions } from './context.ts'
import { Edge } from './edge.ts'
import { Polling } from './fast-socket.ts'
import type { RoomFinding } from './finding.ts'
import { Handshake } from './handshake.ts'
import { type AskKeyStatus, KeyCache, type KeyName } from './key-cache.ts'
import { endOfTurn, Flusher } from './outbox.ts'
import { type Player, Players } from './players.ts'
import type { Rejection } from './refusals.ts'
import { GatewayServer, type PendingConnection } from './server.ts'
import type { Session } from './session.ts'
import { SessionStore } from './session-store.ts'
import { Sessions, SWEEP_MS } from './sessions.ts'

/** Time between two checks of the keys of live sessions. */
const RECHECK_MS = 30_000
/** Handshake steps in a slice. A step is an upgrade or the work on a hello. It takes about 0.2 ms, and a flood brings hundreds of them together. */
const STEPS_IN_SLICE = 4
/**
 * No client is moved in this first part of a drain. A load balancer needs some checks to detect that this node is not ready. Until then, it
 * would send a moving client back here, where it would be refused.
 */
const NOTICE = 0.1
/** Time after its move at which a client is closed that has not moved, for example because its network is slow: minimum and maximum. */
const GRACE_MS = 500
const MOST_GRACE_MS = 2000
/** Time for which a drain waits for connections without a session, and time between two checks. */
const HANDSHAKES_WAIT_MS = 1000
const HANDSHAKES_CHECK_MS = 20

/** Dependencies of a gateway. */
export interface GatewayEnvironment extends GatewayServices {
  /** Default: the defaults of the variables and the limits. */
  readonly options?: Partial<GatewayOptions>
  /** Requests the state of keys from control; see `askControl`. */
  readonly askKeyStatus: AskKeyStatus
  /** The first one is for clients that name no subprotocol. */
  readonly codecs: readonly [Codec, ...Codec[]]
  /** Answers the requests of clients for rooms. */
  readonly finding: RoomFinding
  /** Store of the session records, which all nodes share. */
  readonly records: Records
}

/**
 * The client connections of a node. It knows the session and the rooms of each client. Each client gets its frames in order, at the pace at which it
 * reads. The gateway does not know the games.
 */
export class Gateway {
  /** The subscriptions of all sessions at this node. */
  readonly edge: Edge
  readonly #context: GatewayContext
  readonly #codecs: readonly [Codec, ...Codec[]]
  readonly #server: GatewayServer
  readonly #keys: KeyCache
  readonly #players: Players
  readonly #sessions: Sessions
  readonly #rerouter: Rerouter
  readonly #clientContext: ClientProtocolContext
  readonly #clients = new Set<ClientProtocol>()
  #stopSweep: () => void = () => {}
  #onEmpty: () => void = () => {}
  #recheckAt: number
  #draining = false

  constructor({ askKeyStatus, codecs, finding, records, options: given, ...services }: GatewayEnvironment) {
    const { clock, metrics, load } = services
    const options = gatewayOptions(given)
    const context: GatewayContext = {
      ...services,
      options,
      polling: new Polling(clock, load),
      budgets: new PlayerBudgets(clock, options),
    }
    metrics.connections.read(() => this.#sessions.connected)
    metrics.pendingConnections.read(() => this.pending)
    metrics.sessions.read(() => this.sessions)
    metrics.outboxBytes.read(() => this.queuedBytes)
    const store = new SessionStore(records)
    const edge = new Edge(context, (session) => sessions.save(session))
    this.#players = new Players(context, records, (player, before) => this.#playerRead(player, before))
    const sessions = new Sessions(context, store, edge, this.#players)
    this.#context = context
    this.#codecs = codecs
    this.edge = edge
    this.#sessions = sessions
    this.#rerouter = new Rerouter(context, (session) => sessions.save(session))
    this.#keys = new KeyCache(context, askKeyStatus, options.maxKeyLookups)
    const tokens = new Authenticator(context, this.#keys)
    const handshakes = new Slices(clock, STEPS_IN_SLICE)
    metrics.handshakesWaiting.read(() => handshakes.size)
    this.#clientContext = {
      ...context,
      handshakes,
      handshake: new Handshake(context, tokens, edge, store, sessions, this.#players),
      players: this.#players,
      tokens,
      sessions,
      finding,
      edge,
      flusher: new Flusher(endOfTurn, metrics),
      over: (client) => {
        this.#clients.delete(client)
        if (this.#clients.size === 0) this.#onEmpty()
      },
    }
    this.#recheckAt = clock.monotonic() + RECHECK_MS
    const subprotocols = codecs.map(({ subprotocol }) => subprotocol)
    this.#server = new GatewayServer(context, subprotocols, handshakes, (ws, pending) =>
      this.#accept(ws, pending),
    )
  }

  /** Number of open connections, including those without a session. */
  get connections(): number {
    return this.#clients.size
  }

  /** Number of connections without a session. */
  get pending(): number {
    return this.#server.pending
  }

  /** Number of sessions, including those without a connection. */
  get sessions(): number {
    return this.#sessions.size
  }

  /** Bytes queued for all clients together. */
  get queuedBytes(): number {
    let bytes = 0
    for (const { connection } of this.#clients) bytes += connection.outbox.queued
    return bytes
  }

  /** Starts to accept clients; `port` 0 picks a free one. Rejects if the address is not available. */
  async listen(host: string, port: number): Promise<AddressInfo> {
    const address = await this.#server.listen(host, port)
    this.#scheduleSweep()
    return address
  }

  /** Accepts clients without a port. The returned function takes each connection, a byte stream that starts with its HTTP request. */
  listenInProcess(): (socket: Duplex) => void {
    this.#scheduleSweep()
    return this.#server.listenInProcess()
  }

  /** Accepts clients also on a port of this worker only, although the workers share the first port. */
  listenAlone(host: string, port: number): Promise<AddressInfo> {
    return this.#server.listen(host, port, true)
  }

  /**
   * Leaves new connections to the other workers on this port. Resolves when every open connection has its session, or after 1 s: a drain must
   * not wait for silent connections.
   */
  async stopListening(): Promise<void> {
    const { clock } = this.#context
    this.#server.stopListening()
    const until = clock.monotonic() + HANDSHAKES_WAIT_MS
    while (this.pending > 0 && clock.monotonic() < until) await sleep(clock, HANDSHAKES_CHECK_MS)
  }

  /**
   * Another node reports that it has resumed a session of this node, or that an operator has ended it there (`ended`). If the session's record
   * confirms this, drops the session here without a message to its rooms.
   */
  sessionTaken(sessionId: string, ended = false): Promise<void> {
    return this.#sessions.taken(sessionId, ended)
  }

  /** The store is available again, and may have lost records of sessions. They are written again within seconds. */
  storeReturned(): void {
    this.#sessions.storeReturned()
  }

  /** Ends every session of a revoked key immediately. `keyId` null: the project's built-in pair. */
  revokeKey(projectId: string, keyId: string | null): void {
    this.#keys.revoke({ projectId, keyId: keyId ?? undefined })
    this.#endRevoked()
  }

  /** The record of a player (`shared/players.ts`) has changed. It is read again if the player has sessions here. */
  playerChanged(projectId: string, sub: string): void {
    this.#players.news(projectId, sub)
  }

  /** Messages about keys and players may be lost: checks every key, and reads all records of players, of the sessions at this node. */
  newsMissed(): void {
    void this.recheckKeys()
    this.#players.newsMissed()
  }

  /** Disables a project and ends its sessions, or enables it. */
  setProjectDisabled(projectId: string, disabled: boolean): void {
    this.#keys.setDisabled(projectId, disabled)
    this.#endRevoked()
  }

  /** Ends a session, whichever node has it. Returns false if the project has no such session. Rejects with `StoreUnavailable`. */
  endSession(projectId: string, sessionId: string): Promise<boolean> {
    return this.#clientContext.handshake.endSession(projectId, sessionId)
  }

  /** A key has changed: drops its cached state, which is requested again before its next use. */
  forgetKey(projectId: string, keyId: string | null): void {
    this.#keys.invalidate({ projectId, keyId: keyId ?? undefined })
  }

  /** Checks every key of a live session with control, and ends the sessions of revoked keys. Runs every 30 s. */
  async recheckKeys(): Promise<void> {
    const keys = this.#sessions.keys()
    // Also the keys of sessions at other nodes, which may be resumed here.
    this.#keys.invalidateAll()
    await Promise.all(keys.map((key) => this.#recheck(key)))
    this.#endRevoked()
  }

  /** Descriptions of sessions for operators. */
  describeSessions(query: Query = {}): Found<SessionDescription> {
    return this.#sessions.describe(query)
  }

  /**
   * Moves all clients to other nodes, evenly over `withinMs`, and accepts no new ones. Resolves when all are gone, at most 2 s after
   * `withinMs`. Sessions stay until `close`.
   */
  async drain(withinMs: number): Promise<void> {
    this.#draining = true
    this.#server.drain()
    this.#sessions.moveAway()
    const { clock, random } = this.#context
    const connections = [...this.#clients].map(({ connection }) => connection)
    const left = new Promise<void>((resolve) => {
      this.#onEmpty = resolve
    })
    await Promise.race([drainConnections(connections, { clock, random, withinMs }), left])
  }

  /** Closes every connection (draining) and the port. Owners get no message, because sessions and subscriptions can be resumed elsewhere. */
  async close(): Promise<void> {
    this.#draining = true
    this.#stopSweep()
    const closed = this.#server.close()
    for (const { connection } of [...this.#clients]) connection.close('draining', 'this node is going away')
    await closed
    await this.#sessions.flush()
  }

  #accept(ws: ServerSocket, pending: PendingConnection): void {
    const [first] = this.#codecs
    const codec =
      ws.protocol === '' ? first : this.#codecs.find(({ subprotocol }) => subprotocol === ws.protocol)
    // A connection that is refused below speaks no codec, so any codec serves.
    const client = new ClientProtocol(this.#clientContext, ws, codec ?? first, pending)
    this.#clients.add(client)
    if (!codec) {
      const known = this.#codecs.map(({ subprotocol }) => subprotocol).join(', ')
      client.refuse('protocol_error', `unknown subprotocol ${ws.protocol}; known: ${known}`)
    }
  }

  #scheduleSweep(): void {
    this.#stopSweep = this.#context.clock.schedule(SWEEP_MS, () => {
      this.#scheduleSweep()
      this.#sweep()
    })
  }

  /** Checks once a second everything with a deadline in seconds. This is cheaper than a timer for each. */
  #sweep(): void {
    for (const client of this.#clients) client.sweep()
    this.#sessions.sweep()
    this.edge.sweep()
    this.#clientContext.finding.sweep()
    void this.#players.refresh()
    if (!this.#draining) this.#rerouter.sweep(this.#sessions)
    const now = this.#context.clock.monotonic()
    if (now < this.#recheckAt) return
    this.#recheckAt = now + RECHECK_MS
    void this.recheckKeys()
  }

  /** The record of a player was read: ends its sessions, expels it from rooms, or updates its data. */
  #playerRead(player: Player, before: PlayerRecord): void {
    const hasOtherData = JSON.stringify(player.record.data) !== JSON.stringify(before.data)
    for (const session of this.#sessions.of(player)) {
      const { rejection } = session
      if (rejection) this.#end(session, rejection)
      else {
        this.edge.expelBanned(session)
        if (hasOtherData) this.edge.renew(session)
      }
    }
  }

  #end(session: Session, { close, reason }: Rejection): void {
    const { connection } = session
    this.#sessions.end(session, 'session_ended')
    connection?.close(close, reason)
  }

  #endRevoked(): void {
    const ended = new Map<string, number>()
    for (const session of [...this.#sessions]) {
      const reason = this.#keys.revocation(session.claims)
      if (reason === undefined) continue
      this.#end(session, { close: 'revoked', reason })
      ended.set(session.projectId, (ended.get(session.projectId) ?? 0) + 1)
    }
    for (const [projectId, sessions] of ended)
      this.#context.log.info({ project_id: projectId, sessions }, 'ended the sessions of revoked tokens')
  }

  async #recheck(key: KeyName): Promise<void> {
    const { projectId, keyId } = key
    try {
      const { kind } = await this.#keys.state(key)
      if (kind === 'unknown' && this.#keys.revocation({ project_id: projectId, key_id: keyId }) === undefined)
        this.#context.log.warn(
          { project_id: projectId, key_id: keyId },
          'control does not know the key of live sessions; they stay',
        )
    } catch (error) {
      this.#context.log.warn(
        { err: error, project_id: projectId, key_id: keyId },
        'the key of live sessions could not be checked',
      )
    }
  }
}

/** A connection whose client moves to another node. */
interface MovingConnection {
  send(message: Extract<ServerMessage, { t: 'move' }>): void
  close(name: CloseName, reason: string): void
}

/**
 * Moves clients to other nodes, in random order and at an even rate after the first tenth of `withinMs`. Each gets the time at which it connects to
 * another node. Connections that are still open some time later are closed, the last at most `withinMs` + 2 s from now. A client without
 * `welcome` gets the `move` message behind it, or is closed at that time. Resolves when the last connection is closed.
 */
export async function drainConnections(
  connections: readonly MovingConnection[],
  { clock, random, withinMs }: { readonly clock: Clock; readonly random: Random; readonly withinMs: number },
): Promise<void> {
  const graceMs = Math.min(MOST_GRACE_MS, GRACE_MS + withinMs)
  const noticeMs = NOTICE * withinMs
  const perSecond = (connections.length * 1000) / Math.max(1, withinMs - noticeMs)
  const moves = new RateLimit(clock, { perSecond, burst: 1 })
  const move = async (connection: MovingConnection): Promise<void> => {
    const inMs = Math.floor(noticeMs + moves.waitMs())
    moves.charge(1)
    connection.send({ t: 'move', in_ms: inMs })
    await sleep(clock, inMs + graceMs)
    connection.close('draining', 'this node is going away: resume on another')
  }
  // Members of a room have often connected together. In that order, they would also resume together.
  const drawn = connections.map((connection) => ({ connection, rank: random.float() }))
  drawn.sort((one, other) => one.rank - other.rank)
  await Promise.all(drawn.map(({ connection }) => move(connection)))
}

/** Time for which all rooms of a session must have been at one other node before the session is moved there. */
const STABLE_MS = 3000
/**
 * Minimum time between two moves of a session: a room that moves between nodes must not drag its members along each time. It doubles with each
 * consecutive failure.
 */
const INTERVAL_MS = 60_000
const LONGEST_INTERVAL_MS = 3_600_000
/** A session that has not moved within this time stays. */
const ANSWER_MS = 15_000
/** Sessions that are asked to move. If all members of a large room moved in the same moment, their resumes would overload the node. */
const MOVE_RATE: Rate = { perSecond: 50, burst: 50 }

/** A node that owns all rooms of a session. */
interface Target {
  readonly nodeId: string
  /** Its address for clients. */
  readonly url: string
}

/** Moves clients to the node that owns all their rooms. After the move, their messages no longer pass between nodes. */
export class Rerouter {
  readonly #context: GatewayContext
  readonly #save: (session: Session) => Promise<boolean>
  /** For each session whose rooms are all at one other node: that node, and since when (monotonic clock). */
  readonly #targets = new WeakMap<Session, { readonly nodeId: string; readonly since: number }>()
  readonly #moves: RateLimit

  /** `save` writes the record of a session. It returns false if the session is no longer at this node. */
  constructor(context: GatewayContext, save: (session: Session) => Promise<boolean>) {
    this.#context = context
    this.#save = save
    this.#moves = new RateLimit(context.clock, MOVE_RATE)
  }

  /** Moves sessions that qualify. To be called about once a second, with all sessions. */
  sweep(sessions: Iterable<Session>): void {
    if (!this.#context.cluster.reroutes()) return
    for (const session of sessions) {
      if (!session.connection) continue
      this.#endLateMove(session)
      const target = this.#may(session) ? this.#targetOf(session) : undefined
      if (target && this.#moves.take()) void this.#askToMove(session, target)
    }
  }

  /** Ends the wait for a session that has not moved in time. */
  #endLateMove(session: Session): void {
    const { clock, metrics } = this.#context
    const { rerouting } = session
    if (rerouting?.to === undefined || clock.now() - rerouting.at < ANSWER_MS) return
    session.rerouting = { at: rerouting.at, failures: rerouting.failures + 1 }
    metrics.reroutes.inc({ outcome: 'stayed' })
  }

  #may({ rerouting }: Session): boolean {
    if (!rerouting) return true
    const { at, failures, to } = rerouting
    const intervalMs = Math.min(LONGEST_INTERVAL_MS, INTERVAL_MS * 2 ** failures)
    return to === undefined && this.#context.clock.now() - at >= intervalMs
  }

  /** Returns the node that has owned all rooms of a session for a while. Undefined: there is none, or a join, leave or attach is under way. */
  #targetOf(session: Session): Target | undefined {
    const now = this.#context.clock.monotonic()
    const rooms: RoomAddress[] = []
    for (const subscription of session.subscriptions.values()) {
      if (!subscription.taken || subscription.phase !== 'live') return undefined
      rooms.push(subscription.room)
    }
    const target = this.#context.cluster.nearerNode(rooms)
    const known = this.#targets.get(session)
    if (!target) this.#targets.delete(session)
    else if (known?.nodeId !== target.nodeId)
      this.#targets.set(session, { nodeId: target.nodeId, since: now })
    else if (now - known.since >= STABLE_MS) return target
    return undefined
  }

  /** Asks a client to move. The record is written first, because the node at which the session resumes reads it. */
  async #askToMove(session: Session, { nodeId, url }: Target): Promise<void> {
    const { clock, metrics } = this.#context
    const { connection, rerouting } = session
    session.rerouting = { at: clock.now(), failures: rerouting?.failures ?? 0, to: nodeId }
    const saved = await this.#save(session).catch(() => false)
    if (saved && connection?.open) {
      connection.send({ t: 'move', in_ms: 0, url })
      metrics.reroutes.inc({ outcome: 'told' })
    } else session.rerouting = rerouting
  }
}
