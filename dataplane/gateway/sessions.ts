import { timestamp } from '../../shared/clock.ts'
import { StoreUnavailable } from '../../shared/store/port.ts'
import { type Found, type Query, type SessionDescription, select, textFinder } from '../descriptions.ts'
import { ProjectCounts } from '../metrics.ts'
import type { GatewayContext } from './context.ts'
import type { Edge } from './edge.ts'
import { type KeyName, keyName } from './key-cache.ts'
import type { Players } from './players.ts'
import type { Session, SessionStore } from './session.ts'
import type { SubscribedSession } from './subscription.ts'

/** Close reason of a session that an operator has ended. */
export const ENDED_BY_OPERATOR = 'an operator ended the session'

type EndReason = 'left' | 'session_ended' | 'kicked'

/** How often `sweep` is called. */
export const SWEEP_MS = 1000
/** How many records are written again at once when the store is back: as long as they are missing, their sessions would go with their node. */
const WRITTEN_AT_ONCE = 100
/** Within what time all the others are due: every node writes then. */
const CATCH_UP_MS = 3000
/** How long nodes may take to find a store again that has started: one that is cut off, or stands still, finds it later than the others. */
const RETURN_MS = 10_000
/** How long after its start a store that came back empty may lack records of sessions that are alive. */
export const SESSIONS_REWRITTEN_MS = RETURN_MS + CATCH_UP_MS + 2 * SWEEP_MS
/** How long `settle` waits for a store that does not answer. */
const SETTLE_MS = 500

/** How often a record is written at least: it outlives its node by the time of a resume, whenever the node ends. */
const REFRESH_MS = 60_000
/** How much longer than a resume may take the record of a connected session lives without being written. */
export const RECORD_SPARE_MS = 2 * REFRESH_MS
/** After how long a write that the store did not answer is made again, at the earliest. */
const RETRY_MS = 3000
/** How long the connection of a session that has moved is kept open for its client to get the next `welcome`. */
const REPLACED_MS = 5000
/** How often one write is tried while the record changes under it. */
const ATTEMPTS = 5

/** Every session at this node, with or without a socket, and its record in the store. */
export class Sessions {
  readonly #context: GatewayContext
  readonly #store: SessionStore
  readonly #edge: Edge
  readonly #players: Players
  readonly #writers = new Map<string, SessionWriter>()
  readonly #projects = new ProjectCounts()
  /** Of sessions that are over here, and whose rooms have not been told yet, for what reason. */
  readonly #endings = new Map<SessionWriter, EndReason>()
  #moving = false
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

  /** Number of sessions of a project at this node. */
  ofProject(projectId: string): number {
    return this.#projects.of(projectId)
  }

  /** How many of them have a socket. */
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
   * Takes a new session in and writes its record. False: there are `max` already among which it would have its place. Rejects with
   * `StoreUnavailable`. In either case there is no session.
   */
  async open(session: Session, max: number): Promise<boolean> {
    const writer = new SessionWriter(this.#context, this.#store, session, 0)
    if (!(await writer.create(max))) return false
    this.#add(writer)
    return true
  }

  /** Takes a session in whose record stands, at `version`. */
  add(session: Session, version: number): void {
    this.#add(new SessionWriter(this.#context, this.#store, session, version))
  }

  /**
   * Writes the record as the session is now. False: the session has been taken by another node, or is over; nothing of it is left here.
   * Rejects with `StoreUnavailable`; the write is made again later then.
   */
  async save(session: SubscribedSession): Promise<boolean> {
    const writer = this.#writerOf(session)
    if (!writer) return false
    if (await writer.save()) return true
    this.drop(writer.session, writer.endedElsewhere)
    return false
  }

  /** As `save`, at leisure. */
  saveLater(session: Session): void {
    void this.#run(this.save(session), session)
  }

  /** From now on clients that lose their connection are expected at other nodes: this one drains. */
  moveAway(): void {
    this.#moving = true
  }

  /**
   * The session has lost its connection. It waits to be resumed if it has a subscription, or one that its room has ended: the client may not know
   * of that. Else it ends.
   */
  detach(session: Session): void {
    if (session.subscriptions.size + session.ended.size > 0) this.suspend(session)
    else this.end(session, 'left')
  }

  /** The session has no connection and waits to be resumed. */
  suspend(session: Session): void {
    if (!this.#writerOf(session)) return
    session.disconnect()
    this.#edge.detach(session, this.#moves(session))
    this.saveLater(session)
  }

  /**
   * The session is over: it cannot be resumed, and its members leave. Its connection, if any, is the caller's to close. Rooms are told
   * when the store has said that no other node has the session.
   */
  end(session: Session, reason: EndReason): void {
    const writer = this.#writerOf(session)
    if (!writer) return
    this.#remove(session)
    this.#endings.set(writer, reason)
    void this.#run(this.#finish(writer), session)
  }

  /**
   * Another node has the session: nothing is left of it here. Its subscriptions are the other node's now. `ended`: an operator has ended it
   * there.
   */
  drop(session: Session, ended = false): void {
    if (!this.#writerOf(session)) return
    this.#remove(session)
    this.#abandonSubscriptions(session)
    const { connection } = session
    const end = (): void => connection?.close('session_taken_over', 'a newer connection resumed this session')
    if (ended) connection?.close('revoked', ENDED_BY_OPERATOR)
    else if (!this.#moves(session)) end()
    else {
      // The client closes it when it has its next `welcome`, and must not take the end of this one for a loss before.
      connection?.replaced()
      this.#context.clock.schedule(REPLACED_MS, end)
    }
  }

  /**
   * Another node reports that it has taken the session, or that an operator has `ended` it there. If the store agrees, the session is dropped here.
   * Without an answer of the store, the sweep asks again after some seconds.
   */
  async taken(sessionId: string, ended: boolean): Promise<void> {
    const writer = this.#writers.get(sessionId)
    if (!writer) return
    writer.reportTaken(ended)
    await this.#run(this.save(writer.session), writer.session)
  }

  /** What the store holds may be old, or gone: every record is written again, the first of them at once and the others soon. */
  storeReturned(): void {
    let now = WRITTEN_AT_ONCE
    for (const writer of this.#writers.values()) {
      writer.doubt(now > 0 ? 0 : CATCH_UP_MS)
      if (now-- > 0) this.saveLater(writer.session)
    }
  }

  /** Ends what was not resumed in time, and writes the records that are due. To be called about once a second. */
  sweep(): void {
    const { sessionResumeTtl } = this.#context.options
    for (const writer of this.#writers.values()) {
      const { session } = writer
      if (session.detachedMs > sessionResumeTtl * 1000) this.end(session, 'session_ended')
      else if (writer.due) this.saveLater(session)
    }
    for (const writer of this.#endings.keys())
      if (writer.due) void this.#run(this.#finish(writer), writer.session)
  }

  /** Resolves when everything that was to be written has been, or the store has not answered for half a second. */
  async settle(): Promise<void> {
    let stopWaiting = () => {}
    const waited = new Promise<void>((resolve) => {
      stopWaiting = this.#context.clock.schedule(SETTLE_MS, resolve)
    })
    await Promise.race([waited, Promise.all(this.#underWay)])
    stopWaiting()
  }

  /** Every key that some session depends on, once. */
  keys(): KeyName[] {
    const keys = new Map<string, KeyName>()
    for (const { projectId, claims } of this) {
      const key = { projectId, keyId: claims.key_id }
      keys.set(keyName(key), key)
    }
    return [...keys.values()]
  }

  /** The sessions as operators see them, the latest first. */
  describe(query: Query): Found<SessionDescription> {
    return select([...this], {
      fits: sessionsAskedFor(query),
      order: (a, b) => b.connectedAt - a.connectedAt,
      limit: query.limit,
      describe: describeSession,
    })
  }

  /** Whether the client was told to move. */
  #moves({ rerouting }: Session): boolean {
    return this.#moving || rerouting?.to !== undefined
  }

  #add(writer: SessionWriter): void {
    const { session } = writer
    this.#writers.set(session.sessionId, writer)
    this.#projects.add(session.projectId, 1)
    session.known = this.#players.add(session)
  }

  #remove(session: Session): void {
    if (this.#writers.delete(session.sessionId)) this.#projects.add(session.projectId, -1)
    this.#players.remove(session)
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
      for (const subscription of [...session.subscriptions.values()]) this.#edge.giveUp(subscription, reason)
  }

  #abandonSubscriptions(session: Session): void {
    for (const subscription of [...session.subscriptions.values()]) this.#edge.abandon(subscription)
  }

  /** Lets work on a record run by itself. What the store does not answer is done again by the sweep. */
  #run(work: Promise<unknown>, { sessionId }: Session): Promise<void> {
    const done = work.then(
      () => {},
      (error: unknown) => {
        const level = error instanceof StoreUnavailable ? 'debug' : 'error'
        this.#context.log[level](
          { err: error, session_id: sessionId },
          'the record of a session could not be written',
        )
      },
    )
    this.#underWay.add(done)
    return done.finally(() => this.#underWay.delete(done))
  }
}

/**
 * Writes the record of one session as the session is, one write at a time, and finds out when another node has taken the
 * session.
 */
class SessionWriter {
  readonly session: Session
  readonly #context: GatewayContext
  readonly #store: SessionStore
  #version: number
  #running: Promise<unknown> = Promise.resolve()
  #next: Promise<boolean> | undefined
  #saved = true
  #dueAt: number
  /** A report of another node that the store has neither confirmed nor denied. */
  #reported: { readonly ended: boolean } | undefined

  /** `version` is that of the record as it stands; 0: there is none yet. */
  constructor(context: GatewayContext, store: SessionStore, session: Session, version: number) {
    this.#context = context
    this.#store = store
    this.session = session
    this.#version = version
    this.#dueAt = this.#later(REFRESH_MS)
  }

  /** Whether it is time to write again: to refresh the record, or because the last write, or the removal, had no answer. */
  get due(): boolean {
    if (this.#saved && !this.session.connection) return false
    return this.#next === undefined && this.#context.clock.monotonic() >= this.#dueAt
  }

  /** What was written may be gone: the record is due at a random moment within `ms`, or when it was anyway. */
  doubt(ms: number): void {
    this.#saved = false
    this.#dueAt = Math.min(this.#dueAt, this.#context.clock.monotonic() + this.#context.random.float() * ms)
  }

  /** Writes the first record, as `SessionStore.create`. */
  async create(max: number): Promise<boolean> {
    const record = this.session.record(this.#context.nodeId)
    if (!(await this.#store.create(record, max, this.#ttlMs))) return false
    this.#version = 1
    return true
  }

  /**
   * Writes the record as the session is when the write begins; a call while one is under way waits for the next, together with all
   * others. False: another node has the session. Rejects with `StoreUnavailable`.
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
   * Another node has reported that it has the session, or that an operator has `ended` it there. The next `save` reads the record first, and
   * does not make a missing one again.
   */
  reportTaken(ended: boolean): void {
    this.#reported = { ended }
  }

  /** True: another node has reported that an operator has ended the session there. */
  get endedElsewhere(): boolean {
    return this.#reported?.ended ?? false
  }

  /** Removes the record and gives up its place. False: another node has the session. Rejects with `StoreUnavailable`. */
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
      throw neverSettled(sessionId)
    })
  }

  async #save(): Promise<boolean> {
    this.#dueAt = this.#later(RETRY_MS)
    if (this.#reported) {
      if ((await this.#reread()) !== true) return false
      this.#reported = undefined
    }
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      if (await this.#write()) {
        this.#saved = true
        this.#dueAt = this.#later(REFRESH_MS)
        return true
      }
      // An earlier write of this node whose answer was lost, or a store that has lost the record; or else another node has the session.
      if ((await this.#reread()) === false) return false
    }
    throw neverSettled(this.session.sessionId)
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
    // One that was resumed less often is an earlier holder's, who wrote it down again for a store that had lost it. The version of any
    // other record of another node's is kept out: nothing here may ever be written over it.
    const theirs = found && found.record.right.token !== right.token
    if (theirs && found.record.right.turn >= right.turn) return false
    this.#version = found?.version ?? 0
    return found && true
  }

  /** A session without a socket is kept for exactly as long as it may be resumed. */
  get #ttlMs(): number {
    const resumeMs = this.#context.options.sessionResumeTtl * 1000
    if (this.session.connection) return resumeMs + RECORD_SPARE_MS
    return Math.max(1, Math.ceil(resumeMs - this.session.detachedMs))
  }

  /** Runs `work` behind everything that was asked for before. */
  #after<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#running.then(work)
    this.#running = done.catch(() => {})
    return done
  }

  /** A random moment around `ms` from now, so that what began together does not stay together. */
  #later(ms: number): number {
    return this.#context.clock.monotonic() + ms * (0.75 + 0.5 * this.#context.random.float())
  }
}

const neverSettled = (sessionId: string): StoreUnavailable =>
  new StoreUnavailable(`the record of ${sessionId} changed under ${ATTEMPTS} writes`)

/** Tells whether a query is for a session. */
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

/** A session as operators see it. */
const describeSession = (session: Session): SessionDescription => ({
  session_id: session.sessionId,
  project_id: session.projectId,
  key_id: session.claims.key_id ?? null,
  sub: session.sub,
  connected_at: timestamp(session.connectedAt),
  rooms: session.roomIds,
  queued_bytes: session.connection?.outbox.queued ?? 0,
})
