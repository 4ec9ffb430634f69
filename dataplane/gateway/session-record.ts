import type { TokenClaims } from '../../shared/tokens.ts'
import type { PaceLevel } from './message-pace.ts'
import type { ResumeRight } from './resume-token.ts'

/** A subscription of a session, as its record names it. */
export interface RecordedSubscription {
  readonly room_type: string
  readonly key: string
  readonly member_id: string
}

/** The place of a session among those that count together. */
export interface QuotaPlace {
  readonly set: string
  /** Milliseconds since 1970. */
  readonly came_at: number
}

/** What any node needs to go on with a session. */
export interface SessionRecord {
  readonly session_id: string
  readonly claims: TokenClaims
  /** The node that holds the session's socket, or held it last. */
  readonly node_id: string
  readonly right: ResumeRight
  /** Every subscription the session may have. Some may be gone: their rooms say so. */
  readonly seats: readonly RecordedSubscription[]
  /** When the connection, or the last one, came: milliseconds since 1970. */
  readonly connected_at: number
  /** Whether the socket is lost. */
  readonly detached: boolean
  /** What the session may still send. While it is connected that is its client's, and next to nothing is left for another node. */
  readonly pace?: PaceLevel
  /** Absent where sessions have no bound. */
  readonly place?: QuotaPlace
  /** The span of its last handshake (W3C `traceparent`), where that was traced. */
  readonly trace?: string
}

/** The first byte: what the rest is written as. */
const FORMAT = 1

/** A record as bytes: the number of its format, then JSON. */
export function encodeSession(record: SessionRecord): Uint8Array {
  const text = Buffer.from(JSON.stringify(record))
  const bytes = new Uint8Array(1 + text.length)
  bytes[0] = FORMAT
  bytes.set(text, 1)
  return bytes
}

/** The record in these bytes; undefined where they are damaged, or of another format: a version of roomful that this one cannot go on from. */
export function decodeSession(bytes: Uint8Array): SessionRecord | undefined {
  if (bytes[0] !== FORMAT) return undefined
  try {
    return JSON.parse(new TextDecoder().decode(bytes.subarray(1))) as SessionRecord
  } catch {
    return undefined
  }
}
