import type { Limits } from '../../shared/protocol/messages.ts'
import type { PendingBounds } from './pending-connections.ts'
import type { QuotaBounds } from './session-quota.ts'

/** How a gateway behaves. */
export interface GatewayOptions extends PendingBounds, QuotaBounds {
  /** What clients are told and held to. */
  readonly limits: Limits
  /** How long a client may take to say `hello`, and to send a fresh token after a resume with an expired one. */
  readonly handshake_ms: number
  /** A connection silent for this long is pinged, and ended when silent for twice as long. */
  readonly heartbeat_seconds: number
  /** How long a session without a socket keeps its seats. */
  readonly resume_ttl_seconds: number
  /** Above this many unread bytes a client gets no patches, and a `state.resync` once it has read. */
  readonly outbox_high_water_bytes: number
  /** Above this many unread and held bytes the connection is closed (slow consumer). */
  readonly outbox_limit_bytes: number
  /** How many reliable messages of one seat may wait for the room's owner to settle them, and how many bytes of them; more are refused. */
  readonly max_unacked_messages: number
  readonly max_unacked_bytes: number
  /** How long a resume waits for the rooms' answers before it says `welcome`; a question without an answer is asked again after it. */
  readonly attach_wait_ms: number
  /** How many sessions the node has at most, those waiting to be resumed included; 0: as many as come. */
  readonly max_sessions: number
  /** How many keys that the node has not met may be asked about at once, those that wait for their turn included. */
  readonly max_key_lookups: number
  /** How many resumes with a used token may wait to learn whether the later one has arrived. */
  readonly max_resume_waits: number
  /** How many seats one player, or a session of a token without one, may ask for in a second. */
  readonly joins_per_second: number
  /** How many bytes of whole states one player, or a session of a token without one, may have in a second. */
  readonly state_bytes_per_second: number
  /** How many tokens of one player are accepted in a second, and of those that name no player ten times as many of each. */
  readonly hellos_per_second: number
  /** How many websockets one address may open in a second. */
  readonly connections_per_second_per_address: number
  /** How long a join may stay without an answer before it fails with `room_unavailable`. */
  readonly join_wait_ms: number
  /** Refuse tokens that no key was named for. */
  readonly require_key_id: boolean
  /** Tokens must carry this `aud`; undefined: any. */
  readonly token_audience: string | undefined
  /** Browser origins that may connect; undefined: every one. Clients that send no origin always may. */
  readonly allowed_origins: readonly string[] | undefined
  /** Addresses and networks whose `x-forwarded-for` is believed; `private`: loopback and private networks. */
  readonly trusted_proxies: readonly string[]
}

/** What holds where nothing else is said. */
export const GATEWAY_DEFAULTS: GatewayOptions = {
  limits: { max_message_bytes: 16 * 1024, messages_per_second: 120, message_burst: 240, max_rooms: 16 },
  handshake_ms: 5000,
  heartbeat_seconds: 10,
  resume_ttl_seconds: 60,
  outbox_high_water_bytes: 256 * 1024,
  outbox_limit_bytes: 1024 * 1024,
  max_unacked_messages: 1024,
  max_unacked_bytes: 256 * 1024,
  attach_wait_ms: 2000,
  max_sessions: 20_000,
  joins_per_second: 10,
  state_bytes_per_second: 4 * 1024 * 1024,
  hellos_per_second: 10,
  connections_per_second_per_address: 50,
  max_key_lookups: 256,
  max_resume_waits: 256,
  join_wait_ms: 10_000,
  require_key_id: false,
  token_audience: undefined,
  allowed_origins: undefined,
  trusted_proxies: ['private'],
  max_sessions_per_sub: 10,
  max_sessions_per_token: 1000,
  max_pending_connections: 2000,
  max_pending_connections_per_address: 200,
}
