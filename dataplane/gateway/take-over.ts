import type { Random } from '../../shared/random.ts'
import { StoreUnavailable } from '../../shared/store/port.ts'
import { checkResumeToken, newResumeToken } from './resume-token.ts'
import type { SessionRecord } from './session-record.ts'
import type { SessionStore, StoredSession } from './session-store.ts'
import type { Refusal, TokenCheck } from './token-check.ts'

/** What taking a session over needs. */
export interface TakeOverParts {
  readonly node_id: string
  readonly random: Random
  readonly store: SessionStore
  readonly tokens: TokenCheck
  /** How long a record just taken lives if nothing more is written. */
  readonly ttl_ms: number
}

/** Who wants a session, and whether they still do. */
export interface Claimant {
  readonly project_id: string
  readonly session_id: string
  readonly resume_token: string
  readonly open: () => boolean
}

/** A session that this node has from now on. */
export interface TakenSession extends StoredSession {
  /** The node that had it before. */
  readonly from_node: string
  /** For the next resume. */
  readonly resume_token: string
}

/** How often a session is tried to be taken while its record changes. */
const ATTEMPTS = 5

/**
 * Takes a session for this node, wherever it was, if the claimant has its resume token and its key still stands. The write that does
 * it also puts the next token in force, and is made over the record as it was read: of several claimants with the same token one gets
 * the session. Undefined: the claimant has gone, and nothing has happened. Rejects with `StoreUnavailable`.
 */
export async function takeOver(
  parts: TakeOverParts,
  claimant: Claimant,
): Promise<TakenSession | Refusal | undefined> {
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const found = await find(parts, claimant)
    if (!found || 'close' in found) return found
    const taken = await take(parts, found)
    if (taken) return taken
  }
  return BUSY
}

async function find(
  { store, tokens }: TakeOverParts,
  { project_id, session_id, resume_token, open }: Claimant,
): Promise<StoredSession | Refusal | undefined> {
  const found = await store.load(session_id)
  if (!found || found.record.claims.project_id !== project_id) return UNKNOWN
  const verdict = checkResumeToken(found.record.right, resume_token)
  if (verdict === 'wrong') return UNKNOWN
  if (verdict === 'used') return USED
  const refused = await tokens.checkKey(project_id, found.record.claims.key_id)
  return refused ?? (open() ? found : undefined)
}

/** Undefined: the record is not the one that was read any more. */
async function take(
  { node_id, random, store, ttl_ms }: TakeOverParts,
  { record: before, version }: StoredSession,
): Promise<TakenSession | undefined> {
  const { resume_token, right } = newResumeToken(random, before.right.token)
  const record: SessionRecord = { ...before, node_id, right, detached: false }
  const taken = { record, version: version + 1, from_node: before.node_id, resume_token }
  try {
    return (await store.save(record, version, ttl_ms)) ? taken : undefined
  } catch (error) {
    if (!(error instanceof StoreUnavailable)) throw error
    const now = await store.load(record.session_id)
    if (now?.record.right.token === right.token) return taken
    throw error
  }
}

const UNKNOWN: Refusal = {
  close: 'resume_failed',
  reason: 'there is no such session, or this is not its resume token',
}
const USED: Refusal = {
  close: 'session_taken_over',
  reason: 'this resume token was used already: a newer connection has the session',
}
const BUSY: Refusal = { close: 'overloaded', reason: 'the session is changing: try again' }
