import type { Clock } from '../../shared/clock.ts'
import { idPattern } from '../../shared/ids.ts'
import type { Random } from '../../shared/random.ts'
import { StoreUnavailable } from '../../shared/store/port.ts'
import type { Authenticator, Refusal } from './authentication.ts'
import type { GatewayMetrics } from './metrics.ts'
import { type RateLevel, spent } from './rate-limits.ts'
import type { SessionRecord, SessionStore, StoredSession } from './session-record.ts'
import { checkResumeToken, isResumeToken, newResumeToken } from './session-record.ts'

/** What taking a session over needs. */
export interface TakeOverParts {
  readonly nodeId: string
  readonly random: Random
  readonly store: SessionStore
  readonly tokens: Pick<Authenticator, 'checkKey'>
  readonly clock: Clock
  /** How long a record just taken lives if nothing more is written. */
  readonly ttlMs: number
  /** For how long a client may be without the token it was sent at its resume. */
  readonly patienceMs: number
  /** Sessions that some claimant at this node waits for: one each, so that waiting costs no more however many claim. */
  readonly waiting: Set<string>
  readonly maxResumeWaits: number
  readonly metrics: GatewayMetrics
  /** Writes a session of this very node again that the store has lost. */
  readonly rewrite: (sessionId: string) => Promise<boolean>
  /** Whether the store has lost records that nodes are about to write again. */
  readonly storeIsBehind: () => Promise<boolean>
  /** Whether a node is known to have ended. */
  readonly nodeGone: (nodeId: string) => boolean
}

/** Who wants a session, and whether they still do. */
export interface Claimant {
  readonly projectId: string
  readonly sessionId: string
  readonly resumeToken: string
  readonly open: () => boolean
}

/** A session that this node has from now on. */
export interface TakenSession extends StoredSession {
  /** What it may still send; absent: as much as a new one. */
  readonly pace: RateLevel | undefined
  /** The node that had it before. */
  readonly fromNode: string
  /** For the next resume. */
  readonly resumeToken: string
  /** When it was taken at the earliest, on the monotonic clock. */
  readonly at: number
}

/** How often a session is tried to be taken while its record changes. */
const ATTEMPTS = 5
/** How often a claimant that waits is looked after. */
const LOOK_MS = 100
const SESSION_ID = idPattern('ses')

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
    const refused = await parts.tokens.checkKey(claimant.projectId, found.record.claims.key_id)
    if (refused) return refused
    if (!claimant.open()) return undefined
    const taken = await take(parts, found, claimant.resumeToken)
    if (taken) return taken
  }
  return BUSY
}

/** The session, when the claimant may have it; waits while that is not decided. */
async function find(parts: TakeOverParts, claimant: Claimant): Promise<StoredSession | Refusal | undefined> {
  const { sessionId, resumeToken } = claimant
  if (!SESSION_ID.test(sessionId) || !isResumeToken(resumeToken)) return UNKNOWN
  if (!claimant.open()) return undefined
  const seen = await look(parts, claimant)
  if (!('undecided' in seen)) return seen
  const { waiting, maxResumeWaits, metrics } = parts
  if (waiting.has(sessionId) || waiting.size >= maxResumeWaits) {
    metrics.resumeWaitsRefused.inc()
    return WAITED_FOR
  }
  waiting.add(sessionId)
  try {
    return await waitFor(parts, claimant, seen.undecided)
  } finally {
    waiting.delete(sessionId)
  }
}

/** A session whose later resume may still arrive, or fail. */
interface Undecided {
  readonly undecided: StoredSession
}

/** Reads the session once. */
async function look(
  parts: TakeOverParts,
  { projectId, sessionId, resumeToken }: Claimant,
): Promise<StoredSession | Refusal | Undecided> {
  const { store, nodeGone, storeIsBehind } = parts
  let found = (await store.load(sessionId)) ?? (await loadAgain(parts, sessionId))
  if (!found) return (await storeIsBehind()) ? BEHIND : UNKNOWN
  if (found.record.claims.project_id !== projectId) return UNKNOWN
  let verdict = checkResumeToken(found.record.right, resumeToken)
  if (verdict === 'wrong' && found.record.node_id !== parts.nodeId) {
    // A store that has lost the record may have been told by an earlier holder, who did not know better.
    found = (await loadAgain(parts, sessionId)) ?? found
    verdict = checkResumeToken(found.record.right, resumeToken)
  }
  if (verdict === 'wrong') return (await storeIsBehind()) ? BEHIND : UNKNOWN
  const { right, detached, node_id: nodeId } = found.record
  if (verdict === 'current') return found
  if (right.confirmed) return USED
  return detached || nodeGone(nodeId) ? found : { undecided: found }
}

/** Reads a session again, ever less often, until it is decided, or its client has had its time. */
async function waitFor(
  parts: TakeOverParts,
  claimant: Claimant,
  first: StoredSession,
): Promise<StoredSession | Refusal | undefined> {
  const { clock, patienceMs, nodeGone } = parts
  const begunAt = clock.monotonic()
  let { node_id: nodeId, right } = first.record
  let until = begunAt + patienceMs
  let readAt = begunAt
  for (;;) {
    await new Promise<void>((resolve) => void clock.schedule(LOOK_MS, resolve))
    if (!claimant.open()) return undefined
    const now = clock.monotonic()
    if (now < readAt && now < until && !nodeGone(nodeId)) continue
    const seen = await look(parts, claimant)
    if (!('undecided' in seen)) return seen
    const { record } = seen.undecided
    if (record.right.token !== right.token) until = clock.monotonic() + patienceMs
    else if (now >= until) return seen.undecided
    nodeId = record.node_id
    right = record.right
    readAt = now + (now - begunAt)
  }
}

/** A session that is here, and that the store has lost. */
async function loadAgain(
  { store, rewrite }: TakeOverParts,
  sessionId: string,
): Promise<StoredSession | undefined> {
  return (await rewrite(sessionId)) ? store.load(sessionId) : undefined
}

/**
 * Takes a session for this node as it was read; `used_token`: what a client came with, if one did. Undefined: the record is not the one
 * that was read any more.
 */
export async function take(
  { nodeId, random, store, clock, ttlMs }: TakeOverParts,
  { record: before, version }: StoredSession,
  usedToken?: string,
): Promise<TakenSession | undefined> {
  const at = clock.monotonic()
  const { resume_token: resumeToken, right } = newResumeToken(random, usedToken, before.right.turn + 1)
  const { pace } = before
  const record: SessionRecord = {
    ...before,
    node_id: nodeId,
    right,
    detached: false,
    ...(pace && { pace: spent({ ...pace, at: clock.now() }) }),
  }
  const taken = { record, version: version + 1, fromNode: before.node_id, resumeToken, pace, at }
  try {
    return (await store.save(record, version, ttlMs)) ? taken : undefined
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
  reason: 'the store has just begun without data, and sessions are being written again: try again',
}
const WAITED_FOR: Refusal = {
  close: 'overloaded',
  reason: 'this resume token was used, and whether its successor arrived is being waited for: try again',
}
const BUSY: Refusal = { close: 'overloaded', reason: 'the session is changing: try again' }
