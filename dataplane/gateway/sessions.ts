import { timestamp, within } from '../../shared/clock.ts'
import { Semaphore } from '../../shared/semaphore.ts'
import { StoreUnavailable } from '../../shared/store/port.ts'
import { type Found, type Query, type SessionDescription, select, textFinder } from '../descriptions.ts'
import { ProjectCounts } from '../metrics.ts'
import type { GatewayContext } from './context.ts'
import type { Edge } from './edge.ts'
import { type KeyName, keyName } from './key-cache.ts'
import type { Player, Players } from './players.ts'
import type { Session } from './session.ts'
import type { SessionStore, StoredSession } from './session-store.ts'
import type { SubscribedSession } from './subscription.ts'

/** Close reason of a session that an operator has ended. */
export const ENDED_BY_OPERATOR = 'an operator ended the session'

type EndReason = 'left' | 'session_ended' | 'kicked'

/** Time between two calls of `sweep`. */
export const SWEEP_MS = 1000
/**
 * Maximum number of records that are written in the background at the same time. When the store is back, a node writes all records again. While
 * a record is missing, a crash of the node ends the session.
 */
const MAX_BACKGROUND_WRITES = 100
/** Time in which a node writes the records of all its sessions. 20,000 records take about 1 s on one core. */
const REWRITE_MS = 3000
/** Maximum time until all nodes have found a restarted store. A partitioned or suspended node finds it later than others. */
const RETURN_MS = 10_000
/** Time after the start of an empty store in which it may lack records of live sessions. */
export const SESSIONS_REWRITTEN_MS = RETURN_MS + REWRITE_MS + 2 * SWEEP_MS
/** Timeout of `flush`. */
const FLUSH_WAIT_MS = 500

/** Refresh period of a connected session's record. The record must outlive a crash of its node by the time for a resume. */
const REFRESH_MS = 60_000
/** Life of a connected session's record beyond the time for a resume. */
export const RECORD_SPARE_MS = 2 * REFRESH_MS
/** Minimum time before an unanswered write is repeated. */
const RETRY_MS = 3000
/** Number of attempts of a write while other writes change the record. */
const ATTEMPTS = 5

/** All sessions at this node, connected or not, and their records in the store. */
export class Sessions {
  readonly #context: GatewayContext
  readonly #store: SessionStore
  readonly #edge: Edge
  readonly #players: Players
  readonly #writers = new Map<string, SessionWriter>()
  readonly #projects = new ProjectCounts()
  readonly #ofPlayer = new Map<Player, Set<Session>>()
  /** Sessions that have ended here, but not yet in the store and in their rooms, with the reason. */
  readonly #endings = new Map<SessionWriter, EndReason>()
  #moving = false
  readonly #backgroundWrites = new Semaphore(MAX_BACKGROUND_WRITES)
  readonly #underWay = new Set<Promise<void>>()

  constructor(context: GatewayContext, store: SessionStore, edge: Edge, players: Players) {
    this.#context = context
    this.#store = store
    this.#edge = edge
    this.#players = players
    context.metrics.projectSessions.read(() => this.#projects.series)
  }

  get size(): number {
    return this.#writers.size
  }

  /** The sessions of a player at this node. */
  of(player: Player): readonly Session[] {
    return [...(this.#ofPlayer.get(player) ?? [])]
  }

  /** Number of sessions of a project at this node. */
  ofProject(projectId: string): number {
    return this.#projects.of(projectId)
  }

  /** Number of sessions with a connection. */
  get connected(): number {
    let connected = 0
    for (const session of this) if (session.connection) connected += 1
    return connected
  }

  *[Symbol.iterator](): IterableIterator<Session> {
    for (const { session } of this.#writers.values()) yield session
  }

  find(sessionId: string): Session | undefined {
    return this.#writers.get(sessionId)?.session
  }

  /**
   * The record of a session as this node has written it last, without a read. Undefined: the session is not at this node, or the store may have
   * another record. Another node may have taken the session since, so the next write has to name the version.
   */
  written(sessionId: string): StoredSession | undefined {
    return this.#writers.get(sessionId)?.written
  }

  /**
   * Adds a new session and writes its record. Returns false if its quota already has `max` sessions. Rejects with `StoreUnavailable`. In both
   * cases the session is not added.
   */
  async open(session: Session, max: number): Promise<boolean> {
    const writer = new SessionWriter(this.#context, this.#store, session, 0)
    if (!(await writer.create(max))) return false
    this.#add(writer)
    return true
  }

  /** Adds a session whose record is stored with `version`. */
  add(session: Session, version: number): void {
    this.#add(new SessionWriter(this.#context, this.#store, session, version))
  }

  /**
   * Writes the record of a session. Returns false if another node has taken the session, or it has ended; it is then removed here. Rejects with
   * `StoreUnavailable`; the write is then repeated later.
   */
  async save(session: SubscribedSession): Promise<boolean> {
    const writer = this.#writerOf(session)
    if (!writer) return false
    if (await writer.save()) return true
    this.drop(writer.session, writer.endedElsewhere)
    return false
  }

  /** `save` in the background. */
  saveLater(session: Session): void {
    void this.#run(this.save(session), session)
  }

  /** This node drains: clients that lose their connection will resume at other nodes. */
  moveAway(): void {
    this.#moving = true
  }

  /**
   * The session has lost its connection. It can be resumed if it has a subscription, or a seat whose end the client may not know. Otherwise it
   * ends.
   */
  detach(session: Session): void {
    if (session.subscriptions.size + session.ended.size > 0) this.suspend(session)
    else this.end(session, 'left')
  }

  /** Keeps a session without a connection, so that it can be resumed. */
  suspend(session: Session): void {
    if (!this.#writerOf(session)) return
    session.disconnect()
    this.#edge.detach(session, this.#moves(session))
    this.saveLater(session)
  }

  /**
   * Ends a session: it cannot be resumed, and its members leave. The caller closes its connection. Rooms get the leaves after the store has
   * confirmed that no other node has the session.
   */
  end(session: Session, reason: EndReason): void {
    const writer = this.#writerOf(session)
    if (!writer) return
    this.#remove(session)
    this.#endings.set(writer, reason)
    void this.#run(this.#finish(writer), session)
  }

  /**
   * Removes a session that another node has taken, with its subscriptions. `ended`: an operator has ended it
   * there.
   */
  drop(session: Session, ended = false): void {
    if (!this.#writerOf(session)) return
    this.#remove(session)
    this.#abandonSubscriptions(session)
    const { connection } = session
    if (ended) connection?.close('revoked', ENDED_BY_OPERATOR)
    else connection?.close('session_taken_over', 'a newer connection resumed this session')
  }

  /**
   * Another node reports that it has taken a session, or that an operator has ended it there (`ended`). Drops the session if the record confirms
   * this. If the store does not answer, the sweep reads the record again after some seconds.
   */
  async taken(sessionId: string, ended: boolean): Promise<void> {
    const writer = this.#writers.get(sessionId)
    if (!writer) return
    writer.reportTaken(ended)
    await this.#run(this.save(writer.session), writer.session)
  }

  /** The store may have lost records: writes every record again. */
  storeReturned(): void {
    for (const writer of this.#writers.values()) {
      writer.doubt()
      this.#saveDue(writer)
    }
  }

  /** Ends sessions whose time for a resume has passed, and writes the records that are due. To be called about once a second. */
  sweep(): void {
    const { sessionResumeTtl } = this.#context.options
    for (const writer of this.#writers.values()) {
      const { session } = writer
      if (session.detachedMs > sessionResumeTtl * 1000) this.end(session, 'session_ended')
      else this.#saveDue(writer)
    }
    for (const writer of this.#endings.keys())
      if (writer.due) void this.#run(this.#finish(writer), writer.session)
  }

  /** Resolves when all pending writes are done, or after `FLUSH_WAIT_MS` without an answer of the store. */
  async flush(): Promise<void> {
    await within(this.#context.clock, FLUSH_WAIT_MS, Promise.all(this.#underWay), () => {})
  }

  /** All keys with which sessions of this node were issued, without duplicates. */
  keys(): KeyName[] {
    const keys = new Map<string, KeyName>()
    for (const { projectId, claims } of this) {
      const key = { projectId, keyId: claims.key_id }
      keys.set(keyName(key), key)
    }
    return [...keys.values()]
  }

  /** Descriptions of sessions for operators, newest first. */
  describe(query: Query): Found<SessionDescription> {
    return select([...this], {
      fits: sessionsAskedFor(query),
      order: (a, b) => b.connectedAt - a.connectedAt,
      limit: query.limit,
      describe: describeSession,
    })
  }

  #saveDue(writer: SessionWriter): void {
    if (!writer.due || writer.queued) return
    writer.queued = true
    void this.#backgroundWrites.run(() => {
      writer.queued = false
      return this.#run(this.save(writer.session), writer.session)
    })
  }

  /** True if the client was asked to move. */
  #moves({ rerouting }: Session): boolean {
    return this.#moving || rerouting?.to !== undefined
  }

  #add(writer: SessionWriter): void {
    const { session } = writer
    this.#writers.set(session.sessionId, writer)
    this.#projects.add(session.projectId, 1)
    const player = this.#players.hold(session.claims)
    session.known = player
    if (!player) return
    const sessions = this.#ofPlayer.get(player)
    if (sessions) sessions.add(session)
    else this.#ofPlayer.set(player, new Set([session]))
  }

  #remove(session: Session): void {
    if (this.#writers.delete(session.sessionId)) this.#projects.add(session.projectId, -1)
    const { known } = session
    const sessions = known && this.#ofPlayer.get(known)
    if (!sessions?.delete(session)) return
    if (sessions.size === 0) this.#ofPlayer.delete(known!)
    this.#players.release(known!)
  }

  #writerOf(session: SubscribedSession): SessionWriter | undefined {
    const writer = this.#writers.get(session.sessionId)
    return writer?.session === session ? writer : undefined
  }

  async #finish(writer: SessionWriter): Promise<void> {
    const { session } = writer
    const mine = await writer.end()
    const reason = this.#endings.get(writer)
    this.#endings.delete(writer)
    if (!reason) return
    if (!mine) this.#abandonSubscriptions(session)
    else
      for (const subscription of [...session.subscriptions.values()])
        this.#edge.endSubscription(subscription, reason)
  }

  #abandonSubscriptions(session: Session): void {
    for (const subscription of [...session.subscriptions.values()]) this.#edge.abandon(subscription)
  }

  /** Runs work on a record in the background. The sweep repeats work that the store did not answer. */
  #run(work: Promise<unknown>, { sessionId }: Session): Promise<void> {
    const done = work.then(
      () => {},
      (error: unknown) => {
        const level = error instanceof StoreUnavailable ? 'debug' : 'error'
        this.#context.log[level]({ err: error, session_id: sessionId }, 'write of a session record failed')
      },
    )
    this.#underWay.add(done)
    return done.finally(() => this.#underWay.delete(done))
  }
}

/** Writes the record of one session, one write at a time, and detects that another node has taken the session. */
class SessionWriter {
  readonly session: Session
  /** True while a due write waits for its turn. */
  queued = false
  readonly #context: GatewayContext
  readonly #store: SessionStore
  #version: number
  /** Undefined: all work is done. */
  #running: Promise<void> | undefined
  #next: Promise<boolean> | undefined
  #saved = true
  #dueAt: number
  /** A report of another node that the store has neither confirmed nor denied. */
  #reported: { readonly ended: boolean } | undefined

  /** `version`: version of the stored record; 0: there is none yet. */
  constructor(context: GatewayContext, store: SessionStore, session: Session, version: number) {
    this.#context = context
    this.#store = store
    this.session = session
    this.#version = version
    this.#dueAt = this.#later(REFRESH_MS)
  }

  /** True if a write is due: to refresh the record, or because the last write or removal got no answer. */
  get due(): boolean {
    if (this.#saved && !this.session.connection) return false
    return this.#next === undefined && this.#context.clock.monotonic() >= this.#dueAt
  }

  /** See `Sessions.written`. */
  get written(): StoredSession | undefined {
    if (this.#running || !this.#saved || this.#reported) return undefined
    return { record: this.session.record(this.#context.nodeId), version: this.#version }
  }

  /** The stored record may be lost: a write is due now. */
  doubt(): void {
    this.#saved = false
    this.#dueAt = this.#context.clock.monotonic()
  }

  /** Writes the first record; see `SessionStore.create`. */
  async create(max: number): Promise<boolean> {
    const record = this.session.record(this.#context.nodeId)
    if (!(await this.#store.create(record, max, this.#ttlMs))) return false
    this.#version = 1
    return true
  }

  /**
   * Writes the record. A call during a write waits for the next write, which serves all waiting calls. The record has the session's data of the
   * moment when its write starts. Returns false if another node has the session. Rejects with `StoreUnavailable`.
   */
  save(): Promise<boolean> {
    this.#saved = false
    this.#next ??= this.#after(() => {
      this.#next = undefined
      return this.#save()
    })
    return this.#next
  }

  /**
   * Another node reports that it has taken the session, or that an operator has ended it there (`ended`). The next `save` reads the record first,
   * and does not write a missing record again.
   */
  reportTaken(ended: boolean): void {
    this.#reported = { ended }
  }

  /** True: another node has reported that an operator has ended the session there. */
  get endedElsewhere(): boolean {
    return this.#reported?.ended ?? false
  }

  /** Removes the record and its place. Returns false if another node has the session. Rejects with `StoreUnavailable`. */
  end(): Promise<boolean> {
    this.#saved = false
    this.#dueAt = this.#later(RETRY_MS)
    return this.#after(async () => {
      const { sessionId, place } = this.session
      for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
        if (await this.#store.remove(sessionId, this.#version, place)) return true
        const mine = await this.#reread()
        if (mine) continue
        if (mine === undefined && place) await this.#store.leave(sessionId, place)
        return mine === undefined
      }
      throw changedTooOften(sessionId)
    })
  }

  async #save(): Promise<boolean> {
    this.#dueAt = this.#later(RETRY_MS)
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      // Another report may arrive during the read, and during the write of the last attempt.
      const reported = this.#reported
      if (reported && (await this.#reread()) !== true) return false
      if (this.#reported !== reported) continue
      this.#reported = undefined
      if (await this.#write()) {
        this.#saved = true
        this.#dueAt = this.#later(REFRESH_MS)
        return true
      }
      // An earlier write of this node lost its answer, the store has lost the record, or another node has the session.
      if ((await this.#reread()) === false) return false
    }
    throw changedTooOften(this.session.sessionId)
  }

  async #write(): Promise<boolean> {
    const record = this.session.record(this.#context.nodeId)
    if (!(await this.#store.save(record, this.#version, this.#ttlMs))) return false
    this.#version += 1
    return true
  }

  async #reread(): Promise<boolean | undefined> {
    const { sessionId, right } = this.session
    const found = await this.#store.load(sessionId)
    // A record with fewer resumes comes from an earlier holder, which wrote it again after the store had lost it. It may be overwritten. For any
    // other record of another node, keep the old version, so that no write of this node can replace it.
    const theirs = found && found.record.right.token !== right.token
    if (theirs && found.record.right.turn >= right.turn) return false
    this.#version = found?.version ?? 0
    return found && true
  }

  /** The record of a session without a connection lives exactly as long as it can be resumed. */
  get #ttlMs(): number {
    const resumeMs = this.#context.options.sessionResumeTtl * 1000
    if (this.session.connection) return resumeMs + RECORD_SPARE_MS
    return Math.max(1, Math.ceil(resumeMs - this.session.detachedMs))
  }

  /** Runs `work` after all earlier work. */
  #after<T>(work: () => Promise<T>): Promise<T> {
    const done = (this.#running ?? Promise.resolve()).then(work)
    const over = () => {
      if (this.#running === running) this.#running = undefined
    }
    const running = done.then(over, over)
    this.#running = running
    return done
  }

  /** Returns a random time around `ms` from now, so that sessions that started together do not write together. */
  #later(ms: number): number {
    return this.#context.clock.monotonic() + ms * (0.75 + 0.5 * this.#context.random.float())
  }
}

const changedTooOften = (sessionId: string): StoreUnavailable =>
  new StoreUnavailable(`the record of ${sessionId} changed under ${ATTEMPTS} writes`)

/** Returns the filter for a query. */
function sessionsAskedFor({ room_id: roomId, q }: Query): (session: Session) => boolean {
  const hasText = textFinder(q)
  return (session) =>
    (roomId === undefined || session.subscriptions.get(roomId)?.taken === true) &&
    (hasText === undefined || hasName(session, hasText))
}

function hasName(session: Session, hasText: (text: string) => boolean): boolean {
  const { sessionId, sub, projectId, claims } = session
  if (hasText(sessionId) || hasText(projectId)) return true
  if ((sub !== null && hasText(sub)) || (claims.key_id !== undefined && hasText(claims.key_id))) return true
  for (const subscription of session.subscriptions.values())
    if (subscription.taken && hasText(subscription.roomId)) return true
  return false
}

/** Description of a session for operators. */
const describeSession = (session: Session): SessionDescription => ({
  session_id: session.sessionId,
  project_id: session.projectId,
  key_id: session.claims.key_id ?? null,
  sub: session.sub,
  connected_at: timestamp(session.connectedAt),
  rooms: session.roomIds,
  queued_bytes: session.connection?.outbox.queued ?? 0,
})
