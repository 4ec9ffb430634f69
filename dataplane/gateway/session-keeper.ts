import type { Clock } from '../../shared/clock.ts'
import type { Random } from '../../shared/random.ts'
import { StoreUnavailable } from '../../shared/store/port.ts'
import type { Session } from './session.ts'
import type { SessionStore } from './session-store.ts'

/** What keeping a session's record takes. */
export interface SessionKeeperParts {
  readonly nodeId: string
  readonly clock: Clock
  readonly random: Random
  readonly store: SessionStore
  readonly sessionResumeTtl: number
}

/** How often a record is written at least: it outlives its node by the time of a resume, whenever the node ends. */
const REFRESH_MS = 60_000
/** How much longer than a resume may take the record of a connected session lives without being written. */
export const RECORD_SPARE_MS = 2 * REFRESH_MS
/** After how long a write that the store did not answer is made again, at the earliest. */
const RETRY_MS = 3000
/** How often one write is tried while the record changes under it. */
const ATTEMPTS = 5

/**
 * Keeps the record of one session in the store as the session is, one write at a time, and finds out when another node has taken the
 * session.
 */
export class SessionKeeper {
  readonly #parts: SessionKeeperParts
  readonly #session: Session
  #version: number
  #running: Promise<unknown> = Promise.resolve()
  #next: Promise<boolean> | undefined
  #saved = true
  #dueAt: number

  /** `version` is that of the record as it stands; 0: there is none yet. */
  constructor(parts: SessionKeeperParts, session: Session, version: number) {
    this.#parts = parts
    this.#session = session
    this.#version = version
    this.#dueAt = this.#later(REFRESH_MS)
  }

  /** Whether it is time to write again: to refresh the record, or because the last write, or the removal, had no answer. */
  get due(): boolean {
    if (this.#saved && !this.#session.connection) return false
    return this.#next === undefined && this.#parts.clock.monotonic() >= this.#dueAt
  }

  /** What was written may be gone: the record is due at a random moment within `ms`. */
  doubt(ms: number): void {
    this.#saved = false
    this.#dueAt = this.#parts.clock.monotonic() + this.#parts.random.float() * ms
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

  /** Whether the session is still this node's; undefined: there is no record. Rejects with `StoreUnavailable`. */
  check(): Promise<boolean | undefined> {
    return this.#after(() => this.#reread())
  }

  /** Removes the record. False: another node has the session. Rejects with `StoreUnavailable`. */
  end(): Promise<boolean> {
    this.#saved = false
    this.#dueAt = this.#later(RETRY_MS)
    return this.#after(async () => {
      const { store } = this.#parts
      const { sessionId } = this.#session
      for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
        if (await store.remove(sessionId, this.#version)) return true
        const mine = await this.#reread()
        if (mine !== true) return mine === undefined
      }
      throw restless(sessionId)
    })
  }

  async #save(): Promise<boolean> {
    this.#dueAt = this.#later(RETRY_MS)
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      if (await this.#write()) {
        this.#saved = true
        this.#dueAt = this.#later(REFRESH_MS)
        return true
      }
      // An earlier write of this node whose answer was lost, or a store that has lost the record; or else somebody has the session.
      if ((await this.#reread()) === false) return false
    }
    throw restless(this.#session.sessionId)
  }

  async #write(): Promise<boolean> {
    const { nodeId, store } = this.#parts
    if (!(await store.save(this.#session.record(nodeId), this.#version, this.#ttlMs))) return false
    this.#version += 1
    return true
  }

  async #reread(): Promise<boolean | undefined> {
    const { sessionId, right } = this.#session
    const found = await this.#parts.store.load(sessionId)
    // One that was resumed less often is an earlier holder's, who wrote it down again for a store that had lost it. The version of any
    // other record of somebody else's is kept out: nothing here may ever be written over it.
    const theirs = found && found.record.right.token !== right.token
    if (theirs && found.record.right.turn >= right.turn) return false
    this.#version = found?.version ?? 0
    return found && true
  }

  /** A session without a socket is kept for exactly as long as it may be resumed. */
  get #ttlMs(): number {
    const resumeMs = this.#parts.sessionResumeTtl * 1000
    if (this.#session.connection) return resumeMs + RECORD_SPARE_MS
    return Math.max(1, Math.ceil(resumeMs - this.#session.detachedMs))
  }

  /** Runs `work` behind everything that was asked for before. */
  #after<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#running.then(work)
    this.#running = done.catch(() => {})
    return done
  }

  /** A random moment around `ms` from now, so that what began together does not stay together. */
  #later(ms: number): number {
    return this.#parts.clock.monotonic() + ms * (0.75 + 0.5 * this.#parts.random.float())
  }
}

const restless = (sessionId: string): StoreUnavailable =>
  new StoreUnavailable(`the record of ${sessionId} changed under ${ATTEMPTS} writes`)
