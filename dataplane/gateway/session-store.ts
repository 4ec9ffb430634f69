import type { Records } from '../../shared/store/port.ts'
import { decodeSession, encodeSession, type QuotaPlace, type SessionRecord } from './session-record.ts'

/** A record as the store has it. */
export interface StoredSession {
  readonly record: SessionRecord
  /** What a write over it has to name. */
  readonly version: number
}

/** How long a set of places lasts when no one comes; no token is good for longer. */
const SET_TTL_MS = 86_400_000
/** How many places are looked at when there is none for a newcomer. */
const LOOKED_AT = 32
/** Later than every time there will be, with as many digits. */
const END_OF_TIME = 9_999_999_999_999

/**
 * The records of all sessions of the cluster. Every write names the version it replaces, so that of several nodes which want the same
 * session one gets it. Methods reject with `StoreUnavailable`; whether a write took place is unknown then.
 */
export class SessionStore {
  readonly #records: Records

  constructor(records: Records) {
    this.#records = records
  }

  /** Undefined: there is no such session (any more). */
  async load(sessionId: string): Promise<StoredSession | undefined> {
    const [stored] = await this.loadAll([sessionId])
    return stored
  }

  /** As `load`, in the order asked. */
  async loadAll(sessionIds: readonly string[]): Promise<(StoredSession | undefined)[]> {
    const found = await this.#records.read(sessionIds.map(keyOf))
    return found.map((stored) => {
      const record = stored && decodeSession(stored.value)
      return record && { record, version: stored.version }
    })
  }

  /** Writes over `version` (0: only when there is no record); the record then has the next one. False: another version stands. */
  save(record: SessionRecord, version: number, ttlMs: number): Promise<boolean> {
    const put = keyOf(record.session_id)
    return this.#records.write([{ put, value: encodeSession(record), ifVersion: version, ttlMs }])
  }

  /** Removes the record of `version`. False: another version stands, or none. */
  remove(sessionId: string, version: number): Promise<boolean> {
    return this.#records.write([{ remove: keyOf(sessionId), ifVersion: version }])
  }

  /** Takes a place in a set that has fewer than `max`. False: it has as many. */
  enter(sessionId: string, place: QuotaPlace, max: number): Promise<boolean> {
    const add = memberOf(sessionId, place)
    return this.#records.write([{ index: place.set, add, ifFewerThan: max, ttlMs: SET_TTL_MS }])
  }

  async leave(sessionId: string, place: QuotaPlace): Promise<void> {
    await this.#records.write([{ index: place.set, drop: memberOf(sessionId, place) }])
  }

  /** Those that have been in a set for longest, the oldest first. */
  async oldest(set: string): Promise<{ readonly session_id: string; readonly came_at: number }[]> {
    const members = await this.#records.page(set, { limit: LOOKED_AT })
    return members.map((member) => {
      const [left = '', sessionId = ''] = member.split('/')
      return { session_id: sessionId, came_at: END_OF_TIME - Number(left) }
    })
  }
}

/** A set is read from its largest member on, so the oldest has the largest. */
const memberOf = (sessionId: string, { came_at: cameAt }: QuotaPlace): string =>
  `${END_OF_TIME - Math.floor(cameAt)}/${sessionId}`

const keyOf = (sessionId: string): string => `session:${sessionId}`
