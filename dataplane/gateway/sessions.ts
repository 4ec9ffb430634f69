import type { Clock } from '../../shared/clock.ts'
import type { Logger } from '../../shared/log.ts'
import type { Random } from '../../shared/random.ts'
import { StoreUnavailable } from '../../shared/store/port.ts'
import type { Edge } from './edge.ts'
import { type KeyName, keyName } from './key-cache.ts'
import type { Session } from './session.ts'
import { SessionKeeper } from './session-keeper.ts'
import type { SessionStore } from './session-store.ts'

/** What the sessions of a node need. */
export interface SessionsParts {
  readonly nodeId: string
  readonly clock: Clock
  readonly random: Random
  readonly log: Logger
  readonly edge: Edge
  readonly store: SessionStore
  readonly sessionResumeTtl: number
}

type EndReason = 'left' | 'session_ended'

interface Kept {
  readonly session: Session
  readonly keeper: SessionKeeper
}

/** A session that is over here, and whose rooms have not been told yet. */
interface Ending extends Kept {
  readonly reason: EndReason
}

/** How often `sweep` is called. */
export const SWEEP_MS = 1000
/** Within what time of a sweep every record is written again when the store is back. */
const CATCH_UP_MS = 3000
/** How long after its start a store that came back empty may lack records of sessions that are alive. */
export const REWRITTEN_MS = CATCH_UP_MS + 3 * SWEEP_MS
/** How long `settle` waits for a store that does not answer. */
const SETTLE_MS = 500

/** Every session at this node, with or without a socket, and its record in the store. */
export class Sessions {
  readonly #parts: SessionsParts
  readonly #sessions = new Map<string, Kept>()
  readonly #endings = new Set<Ending>()
  readonly #underWay = new Set<Promise<void>>()
  #catchingUp = false

  constructor(parts: SessionsParts) {
    this.#parts = parts
  }

  get size(): number {
    return this.#sessions.size
  }

  *[Symbol.iterator](): IterableIterator<Session> {
    for (const { session } of this.#sessions.values()) yield session
  }

  find(sessionId: string): Session | undefined {
    return this.#sessions.get(sessionId)?.session
  }

  /** Takes a new session in and writes its record. Rejects with `StoreUnavailable`, and then there is no session. */
  async open(session: Session): Promise<void> {
    const kept = this.#keep(session, 0)
    if (await kept.keeper.save()) this.#sessions.set(session.sessionId, kept)
    else throw new Error(`there is a session ${session.sessionId} already`)
  }

  /** Takes a session in whose record stands, at `version`. */
  add(session: Session, version: number): void {
    this.#sessions.set(session.sessionId, this.#keep(session, version))
  }

  /**
   * Writes the record as the session is now. False: the session has been taken by another node, or is over; nothing of it is left here.
   * Rejects with `StoreUnavailable`; the write is made again later then.
   */
  async save(session: Session): Promise<boolean> {
    const kept = this.#keptFor(session)
    if (!kept) return false
    if (await kept.keeper.save()) return true
    this.drop(session)
    return false
  }

  /** Writes the record of a session of this node again, if the store has lost it. Rejects with `StoreUnavailable`. */
  async rewrite(sessionId: string): Promise<boolean> {
    const session = this.find(sessionId)
    return session !== undefined && this.save(session)
  }

  /** As `save`, at leisure. */
  saveLater(session: Session): void {
    this.#run(this.save(session), session)
  }

  /** The session has lost its connection and waits to be resumed, with its subscriptions. One that has no subscription has nothing to wait for, and ends. */
  detach(session: Session): void {
    if (!this.#keptFor(session)) return
    session.disconnect()
    this.#parts.edge.detach(session)
    if (session.subscriptions.size > 0) this.saveLater(session)
    else this.end(session, 'left')
  }

  /**
   * The session is over: it cannot be resumed, and its members leave. Its connection, if any, is the caller's to close. Rooms are told
   * when the store has said that no other node has the session.
   */
  end(session: Session, reason: EndReason): void {
    const kept = this.#keptFor(session)
    if (!kept) return
    this.#sessions.delete(session.sessionId)
    const ending = { ...kept, reason }
    this.#endings.add(ending)
    this.#run(this.#finish(ending), session)
  }

  /** Another node has the session: nothing is left of it here. Its subscriptions are the other node's now. */
  drop(session: Session): void {
    if (!this.#keptFor(session)) return
    this.#sessions.delete(session.sessionId)
    this.#forgetSeats(session)
    session.connection?.close('session_taken_over', 'a newer connection resumed this session')
  }

  /** Another node says that it has taken a session: if so, it is dropped here. */
  async taken(sessionId: string): Promise<void> {
    const kept = this.#sessions.get(sessionId)
    if (!kept) return
    try {
      if ((await kept.keeper.check()) === false) this.drop(kept.session)
    } catch (error) {
      // The next write of the record finds out.
      this.#parts.log.debug(
        { err: error, session_id: sessionId },
        'whether a session was taken could not be read',
      )
    }
  }

  /** What the store holds may be old, or gone: every record is written again soon. */
  storeReturned(): void {
    this.#catchingUp = true
  }

  /** Ends what was not resumed in time, and writes the records that are due. To be called about once a second. */
  sweep(): void {
    const { sessionResumeTtl } = this.#parts
    for (const { session, keeper } of this.#sessions.values()) {
      if (this.#catchingUp) keeper.doubt(CATCH_UP_MS)
      if (session.detachedMs > sessionResumeTtl * 1000) this.end(session, 'session_ended')
      else if (keeper.due) this.saveLater(session)
    }
    this.#catchingUp = false
    for (const ending of this.#endings) {
      if (!ending.keeper.due) continue
      this.#run(this.#finish(ending), ending.session)
    }
  }

  /** Resolves when everything that was to be written has been, or the store has not answered for half a second. */
  async settle(): Promise<void> {
    let stopWaiting = () => {}
    const waited = new Promise<void>((resolve) => {
      stopWaiting = this.#parts.clock.schedule(SETTLE_MS, resolve)
    })
    await Promise.race([waited, Promise.all(this.#underWay)])
    stopWaiting()
  }

  /** Sessions whose token was issued under a key. */
  under({ projectId, keyId }: KeyName): Session[] {
    return [...this].filter((session) => session.projectId === projectId && session.claims.key_id === keyId)
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

  #keep(session: Session, version: number): Kept {
    return { session, keeper: new SessionKeeper(this.#parts, session, version) }
  }

  #keptFor(session: Session): Kept | undefined {
    const kept = this.#sessions.get(session.sessionId)
    return kept?.session === session ? kept : undefined
  }

  async #finish(ending: Ending): Promise<void> {
    const { session, keeper, reason } = ending
    const mine = await keeper.end()
    if (!this.#endings.delete(ending)) return
    if (!mine) this.#forgetSeats(session)
    else
      for (const subscription of [...session.subscriptions.values()])
        this.#parts.edge.giveUp(subscription, reason)
    if (mine && session.place) await this.#parts.store.leave(session.sessionId, session.place)
  }

  #forgetSeats(session: Session): void {
    for (const subscription of [...session.subscriptions.values()]) this.#parts.edge.abandon(subscription)
  }

  /** Lets work on a record run by itself. What the store does not answer is done again by the sweep. */
  #run(work: Promise<unknown>, { sessionId }: Session): void {
    const done = work.then(
      () => {},
      (error: unknown) => {
        const level = error instanceof StoreUnavailable ? 'debug' : 'error'
        this.#parts.log[level](
          { err: error, session_id: sessionId },
          'the record of a session could not be written',
        )
      },
    )
    this.#underWay.add(done)
    void done.then(() => this.#underWay.delete(done))
  }
}
