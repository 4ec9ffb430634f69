import type { Records } from '../../shared/store/port.ts'
import { decodeSession, encodeSession, type SessionRecord } from './session-record.ts'

/** A record as the store has it. */
export interface StoredSession {
  readonly record: SessionRecord
  /** What a write over it has to name. */
  readonly version: number
}

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
  async load(session_id: string): Promise<StoredSession | undefined> {
    const [stored] = await this.#records.read([keyOf(session_id)])
    const record = stored && decodeSession(stored.value)
    return record && { record, version: stored.version }
  }

  /** Writes over `version` (0: only when there is no record); the record then has the next one. False: another version stands. */
  save(record: SessionRecord, version: number, ttl_ms: number): Promise<boolean> {
    const put = keyOf(record.session_id)
    return this.#records.write([{ put, value: encodeSession(record), if_version: version, ttl_ms }])
  }

  /** Removes the record of `version`. False: another version stands, or none. */
  remove(session_id: string, version: number): Promise<boolean> {
    return this.#records.write([{ remove: keyOf(session_id), if_version: version }])
  }
}

const keyOf = (session_id: string): string => `session:${session_id}`
