import type { Clock } from '../../shared/clock.ts'
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
  readonly tokens: Pick<TokenCheck, 'checkKey'>
  readonly clock: Clock
  /** How long a record just taken lives if nothing more is written. */
  readonly ttl_ms: number
  /** For how long a client may be without the token it was sent at its resume. */
  readonly patience_ms: number
  /** Writes a session of this very node again that the store has lost. */
  readonly rewrite: (session_id: string) => Promise<boolean>
  /** Whether the store has lost records that nodes are about to write again. */
  readonly store_is_behind: () => Promise<boolean>
  /** Whether a node is known to have ended. */
  readonly node_gone: (node_id: string) => boolean
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
  /** When it was taken at the earliest, on the monotonic clock. */
  readonly at: number
}

/** How often a session is tried to be taken while its record changes. */
const ATTEMPTS = 5
/** How often a record is read again that is waited for. */
const POLL_MS = 100

/**
 * Takes a session for this node, wherever it was, if the claimant has its resume token and its key still stands. The write that does
 * it also puts the next token in force, and is made over the record as it was read: of several claimants with the same token one gets
 * the session. Undefined: the claimant has gone, and nothing has happened. Rejects with `StoreUnavailable`.
 *
 * A resume can fail between that write and the client's receiving `welcome`; the client then comes back with the token it has, which
 * is used. So a used token is refused only once the client of the later resume is known to have its `welcome`, and good again when
 * that client is lost before.
 */
export async function takeOver(
  parts: TakeOverParts,
  claimant: Claimant,
): Promise<TakenSession | Refusal | undefined> {
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const found = await find(parts, claimant)
    if (!found || 'close' in found) return found
    const refused = await parts.tokens.checkKey(claimant.project_id, found.record.claims.key_id)
    if (refused) return refused
    if (!claimant.open()) return undefined
    const taken = await take(parts, found, claimant.resume_token)
    if (taken) return taken
  }
  return BUSY
}

/** The session, when the claimant may have it; waits while that is not decided. */
async function find(
  parts: TakeOverParts,
  { project_id, session_id, resume_token, open }: Claimant,
): Promise<StoredSession | Refusal | undefined> {
  const { store, clock, patience_ms, node_gone, store_is_behind } = parts
  let undecided: { readonly token: string; readonly until: number } | undefined
  while (open()) {
    const found = (await store.load(session_id)) ?? (await loadAgain(parts, session_id))
    if (!found) return (await store_is_behind()) ? BEHIND : UNKNOWN
    if (found.record.claims.project_id !== project_id) return UNKNOWN
    const { right, detached, node_id } = found.record
    const verdict = checkResumeToken(right, resume_token)
    if (verdict === 'wrong') {
      // A store that has lost the record may have been told by an earlier holder, who did not know better.
      const own = node_id === parts.node_id ? undefined : await loadAgain(parts, session_id)
      if (own && checkResumeToken(own.record.right, resume_token) !== 'wrong') continue
      return (await store_is_behind()) ? BEHIND : UNKNOWN
    }
    if (verdict === 'current') return found
    if (right.confirmed) return USED
    if (detached || node_gone(node_id)) return found
    if (undecided?.token !== right.token)
      undecided = { token: right.token, until: clock.monotonic() + patience_ms }
    if (clock.monotonic() >= undecided.until) return found
    await new Promise<void>((resolve) => void clock.schedule(POLL_MS, resolve))
  }
  return undefined
}

/** A session that is here, and that the store has lost. */
async function loadAgain(
  { store, rewrite }: TakeOverParts,
  session_id: string,
): Promise<StoredSession | undefined> {
  return (await rewrite(session_id)) ? store.load(session_id) : undefined
}

/** Undefined: the record is not the one that was read any more. */
async function take(
  { node_id, random, store, clock, ttl_ms }: TakeOverParts,
  { record: before, version }: StoredSession,
  used_token: string,
): Promise<TakenSession | undefined> {
  const at = clock.monotonic()
  const { resume_token, right } = newResumeToken(random, used_token, before.right.turn + 1)
  const record: SessionRecord = { ...before, node_id, right, detached: false }
  const taken = { record, version: version + 1, from_node: before.node_id, resume_token, at }
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
const BEHIND: Refusal = {
  close: 'overloaded',
  reason: 'the store has just begun anew, and sessions are being written again: try again',
}
const BUSY: Refusal = { close: 'overloaded', reason: 'the session is changing: try again' }
