import type { AddressInfo } from 'node:net'
import type { Duplex } from 'node:stream'
import { type Clock, sleep } from '../../shared/clock.ts'
import { codeKey } from '../../shared/ids.ts'
import { Quiet } from '../../shared/log.ts'
import type { PlayerRecord } from '../../shared/players.ts'
import type { Codec } from '../../shared/protocol/codec.ts'
import type { Random } from '../../shared/random.ts'
import type { Found, Query, SessionDescription } from '../descriptions.ts'
import type { RoomAddress } from '../traffic.ts'
import { Authenticator, type Rejection } from './authentication.ts'
import { PlayerBudgets } from './budget.ts'
import { ClientProtocol, type ClientProtocolContext } from './client-protocol.ts'
import type { Connection, ServerSocket } from './connection.ts'
import { type GatewayContext, type GatewayEnvironment, gatewayOptions } from './context.ts'
import { Edge } from './edge.ts'
import { Polling } from './fast-socket.ts'
import { WrongCodes } from './finding.ts'
import { Handshake } from './handshake.ts'
import { KeyCache, type KeyName } from './key-cache.ts'
import { endOfTurn, Flusher } from './outbox.ts'
import { type Player, Players } from './players.ts'
import { GatewayServer, HANDSHAKE_STEPS_PER_TURN, HandshakeQueue, type PendingConnection } from './server.ts'
import { type Session, SessionStore } from './session.ts'
import { Sessions, SWEEP_MS } from './sessions.ts'

/** How often control is asked about the keys of live sessions. */
const RECHECK_MS = 30_000
/** How often a failure of lists and finds is logged. */
const FINDING_QUIET_MS = 10_000
/** How many waves clients are moved in. */
const WAVES = 20
/**
 * In this share of the time no client is moved. A load balancer needs some checks to find out that this node is not ready; until then it
 * would send a client that moves back here, to be refused and to try again.
 */
const NOTICE = 0.1
/** How much longer than told a client may stay, on a slow network for example: at least and at most. */
const GRACE_MS = 500
const MOST_GRACE_MS = 2000
/** How long a drain waits for connections that have come and have no session yet, and how often it looks. */
const SETTLE_MS = 1000
const SETTLE_LOOK_MS = 20

/**
 * The sockets of a node: which client is at the other end, which rooms it is in, and that each gets its frames in order, at the pace it can
 * read. Knows frames and sessions, knows no game.
 */
export class Gateway {
  /** The subscriptions of its sessions. */
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

  constructor({ askKeyStatus, codecs, records, ...environment }: GatewayEnvironment) {
    const { clock, metrics, inputIntervalMs } = environment
    const options = gatewayOptions(environment.options)
    const context: GatewayContext = {
      ...environment,
      options,
      polling: new Polling(clock, inputIntervalMs),
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
    const handshakes = new HandshakeQueue(HANDSHAKE_STEPS_PER_TURN)
    metrics.handshakesWaiting.read(() => handshakes.size)
    this.#clientContext = {
      ...context,
      handshakes,
      handshake: new Handshake(context, tokens, edge, store, sessions, this.#players),
      players: this.#players,
      tokens,
      sessions,
      wrongCodes: new WrongCodes(clock),
      findingFaults: new Quiet(clock, FINDING_QUIET_MS),
      roomOfCode: async (projectId, code) => {
        const [record] = await records.read([codeKey(projectId, code)])
        return record && new TextDecoder().decode(record.value)
      },
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

  /** How many sockets are open, those without a session included. */
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

  /** Accepts clients at no port: each is handed to what this returns, as a stream of bytes that begins with its HTTP request. */
  listenInProcess(): (socket: Duplex) => void {
    this.#scheduleSweep()
    return this.#server.listenInProcess()
  }

  /** Accepts clients also at a port that no other worker of this process listens on, even where they share the first one. */
  listenAlone(host: string, port: number): Promise<AddressInfo> {
    return this.#server.listen(host, port, true)
  }

  /**
   * Leaves new connections to the other workers that listen on this port. Resolves when every connection that has come has its session, at
   * most after a second: one that says nothing is no reason to wait.
   */
  async stopListening(): Promise<void> {
    const { clock } = this.#context
    this.#server.stopListening()
    const until = clock.monotonic() + SETTLE_MS
    while (this.pending > 0 && clock.monotonic() < until) await sleep(clock, SETTLE_LOOK_MS)
  }

  /**
   * Another node says that a session which was here was resumed there, or that an operator has `ended` it there. If so, nothing is left of it
   * here, and its rooms hear nothing.
   */
  sessionTaken(sessionId: string, ended = false): Promise<void> {
    return this.#sessions.taken(sessionId, ended)
  }

  /** The store can be reached again: what it holds of sessions may be old, or gone, and is written again within seconds. */
  storeReturned(): void {
    this.#sessions.storeReturned()
  }

  /** Ends every session under a key, at once and for good. `keyId` null: the project's built-in pair. */
  revokeKey(projectId: string, keyId: string | null): void {
    this.#keys.revoke({ projectId, keyId: keyId ?? undefined })
    this.#endRevoked()
  }

  /** The record of a player (`shared/players.ts`) has changed. It is read if the player has sessions here. */
  playerChanged(projectId: string, sub: string): void {
    this.#players.news(projectId, sub)
  }

  /** Messages about keys and players may be missed: asks about every key, and reads the records of all players, of the sessions here. */
  newsMissed(): void {
    void this.recheckKeys()
    this.#players.newsMissed()
  }

  /** Disables a project and ends its sessions, or enables it. */
  setProjectDisabled(projectId: string, disabled: boolean): void {
    this.#keys.setDisabled(projectId, disabled)
    this.#endRevoked()
  }

  /** Ends a session, whichever node has it. False: the project has no such session. Rejects with `StoreUnavailable`. */
  endSession(projectId: string, sessionId: string): Promise<boolean> {
    return this.#clientContext.handshake.endSession(projectId, sessionId)
  }

  /** Something about a key has changed: what is known about it is asked again before it is used. */
  forgetKey(projectId: string, keyId: string | null): void {
    this.#keys.invalidate({ projectId, keyId: keyId ?? undefined })
  }

  /**
   * Asks control about every key that some session depends on, and ends the sessions of those that were revoked. Happens by itself
   * every 30 s.
   */
  async recheckKeys(): Promise<void> {
    const keys = this.#sessions.keys()
    // Also those of no session here: one may come to be resumed.
    this.#keys.invalidateAll()
    await Promise.all(keys.map((key) => this.#recheck(key)))
    this.#endRevoked()
  }

  /** The sessions as operators see them. */
  describeSessions(query: Query = {}): Found<SessionDescription> {
    return this.#sessions.describe(query)
  }

  /**
   * Moves every client elsewhere, in waves over `withinMs`, and takes no new ones. Resolves as soon as all are gone, at most 2 s
   * after `withinMs`. Sessions stay until `close`.
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

  /** Closes every socket (draining) and the port. Sends owners nothing: sessions and their subscriptions can be resumed elsewhere. */
  async close(): Promise<void> {
    this.#draining = true
    this.#stopSweep()
    const closed = this.#server.close()
    for (const { connection } of [...this.#clients]) connection.close('draining', 'this node is going away')
    await closed
    await this.#sessions.settle()
  }

  #accept(ws: ServerSocket, pending: PendingConnection): void {
    const [first] = this.#codecs
    const codec =
      ws.protocol === '' ? first : this.#codecs.find(({ subprotocol }) => subprotocol === ws.protocol)
    // A connection that is refused below speaks no codec; which one it has does not matter.
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

  /** Once a second, for everything that has a deadline in seconds: cheaper than a timer for each. */
  #sweep(): void {
    const { heartbeatSeconds } = this.#context.options
    for (const { connection } of this.#clients) connection.beat(heartbeatSeconds)
    for (const session of this.#sessions)
      if (session.connection && session.overdue)
        session.connection.close('token_expired', 'the token has expired and no fresh one came')
    this.#sessions.sweep()
    this.edge.sweep()
    void this.#players.refresh()
    if (!this.#draining) this.#rerouter.sweep(this.#sessions)
    const now = this.#context.clock.monotonic()
    if (now < this.#recheckAt) return
    this.#recheckAt = now + RECHECK_MS
    void this.recheckKeys()
  }

  /** The record of a player was read. */
  #playerRead(player: Player, before: PlayerRecord): void {
    const hasOtherData = JSON.stringify(player.record.data) !== JSON.stringify(before.data)
    for (const session of [...player.sessions]) {
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

/**
 * Moves clients to other nodes: tells each when to open a connection there, at a random moment within `withinMs` but not at once. Closes the
 * connections that are still there some time after that moment, in waves; the last one at most `withinMs` + 2 s from now. A client that is
 * not welcome yet hears of it behind its `welcome`, or is closed in its wave. Resolves when the last connection is closed.
 */
export async function drainConnections(
  connections: readonly Pick<Connection, 'send' | 'close'>[],
  { clock, random, withinMs }: { readonly clock: Clock; readonly random: Random; readonly withinMs: number },
): Promise<void> {
  const graceMs = Math.min(MOST_GRACE_MS, GRACE_MS + withinMs)
  const waves = Array.from({ length: WAVES }, (): Pick<Connection, 'close'>[] => [])
  for (const connection of connections) {
    const moment = NOTICE + (1 - NOTICE) * random.float()
    connection.send({ t: 'move', in_ms: Math.floor(moment * withinMs) })
    waves[Math.floor(moment * WAVES)]!.push(connection)
  }
  const moved = waves.map(
    (wave, index) =>
      new Promise<void>((resolve) => {
        if (wave.length === 0) return resolve()
        clock.schedule(((index + 1) / WAVES) * withinMs + graceMs, () => {
          for (const connection of wave)
            connection.close('draining', 'this node is going away: resume on another')
          resolve()
        })
      }),
  )
  await Promise.all(moved)
}

/** For so long all rooms of a session must have been at one other node before it is told. */
const SETTLED_MS = 3000
/**
 * How long after a session was told it is not told again: a room that moves drags its members at most so often. Twice as long for each
 * failure in a row.
 */
const INTERVAL_MS = 60_000
const LONGEST_INTERVAL_MS = 3_600_000
/** A session that is still here so long after it was told will not go. */
const ANSWER_MS = 15_000
/** So many sessions are told at once. The resumes of all members of a large room would be more than its node can do in one moment. */
const PER_SWEEP = 50

/** A node that has all rooms of a session. */
interface Target {
  readonly nodeId: string
  /** Where clients reach it. */
  readonly url: string
}

/** Tells clients which node all their rooms are at: no message has to cross from node to node when they have moved there. */
export class Rerouter {
  readonly #context: Pick<GatewayContext, 'clock' | 'cluster' | 'metrics'>
  readonly #save: (session: Session) => Promise<boolean>
  /** For each session whose rooms are at one other node: which, and since when, on the monotonic clock. */
  readonly #targets = new WeakMap<Session, { readonly nodeId: string; readonly since: number }>()

  /** `save` writes the record of a session; false: it is not here any more. */
  constructor(context: GatewayContext, save: (session: Session) => Promise<boolean>) {
    this.#context = context
    this.#save = save
  }

  /** To be called about once a second, with all sessions. */
  sweep(sessions: Iterable<Session>): void {
    if (!this.#context.cluster.reroutes()) return
    let left = PER_SWEEP
    for (const session of sessions) {
      if (!session.connection) continue
      this.#giveUp(session)
      if (left === 0 || !this.#may(session)) continue
      const target = this.#targetOf(session)
      if (!target) continue
      left -= 1
      void this.#tell(session, target)
    }
  }

  /** A session that has not gone where it was told will not go. */
  #giveUp(session: Session): void {
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

  /** Where all rooms of a session have been for a while, and nothing is under way in any. */
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
    else if (now - known.since >= SETTLED_MS) return target
    return undefined
  }

  /** The record comes first: the node where the session turns up goes by it. */
  async #tell(session: Session, { nodeId, url }: Target): Promise<void> {
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
