import { counter, gauge, histogram, type Metrics, OPEN } from '../../shared/metrics.ts'
import { CLOSE, type CloseName, ERRORS, type ErrorCode } from '../../shared/protocol/error-codes.ts'
import { CLIENT_MESSAGES, type ClientMessage } from '../../shared/protocol/messages.ts'
import { RATE_LIMITED } from '../metrics.ts'

const CLOSE_NAMES = Object.keys(CLOSE) as CloseName[]
const ERROR_CODES = Object.keys(ERRORS) as ErrorCode[]

/** How a handshake ended: with a session, a resumed session, or a close code. */
export type HandshakeResult = 'welcome' | 'resumed' | CloseName
const HANDSHAKE_RESULTS: readonly HandshakeResult[] = [
  'welcome',
  'resumed',
  ...CLOSE_NAMES.filter((name) => name !== 'normal'),
]

const JOIN_RESULTS: readonly ('joined' | ErrorCode)[] = ['joined', ...ERROR_CODES]

/** How a connection ended: with a code of the table, or without one. */
type Ending = CloseName | 'lost'
const ENDINGS: readonly Ending[] = [...CLOSE_NAMES, 'lost']

/** Ends of a connection that are no fault of anyone. */
const NO_FAULT: ReadonlySet<Ending> = new Set(['normal', 'draining', 'lost'])

const FAULTS: readonly (ErrorCode | CloseName)[] = [
  ...new Set([...ERROR_CODES, ...CLOSE_NAMES.filter((name) => !NO_FAULT.has(name))]),
]

/** Metrics of the gateway. */
export const GATEWAY_METRICS = {
  connections: gauge('service_connections', 'Websockets with a session.'),
  pendingConnections: gauge('service_pending_connections', 'Connections that have no session yet.'),
  handshakesWaiting: gauge(
    'service_handshakes_waiting',
    'Upgrades and hellos that wait for their turn of the event loop.',
  ),
  sessions: gauge('service_sessions', 'Sessions, those that may still be resumed included.'),
  projectSessions: gauge(
    'service_project_sessions',
    'Sessions of each project, those that may still be resumed included: of the 50 projects with the most, and of all others together (other).',
    { project_id: OPEN },
  ),
  projectSessionsRefused: counter(
    'service_project_sessions_refused_total',
    'New sessions that were refused since their project has MAX_SESSIONS_PER_PROJECT at this node.',
  ),
  outboxBytes: gauge('service_outbox_bytes', 'Bytes that wait to be read by clients, of all together.'),
  handshakes: counter(
    'service_handshakes_total',
    'Handshakes, by how they ended: welcome, resumed, or the name of a close code.',
    { result: HANDSHAKE_RESULTS },
  ),
  handshakeDuration: histogram(
    'service_handshake_duration_seconds',
    'Time from an accepted socket to welcome, resumes included.',
  ),
  resumes: counter(
    'service_resumes_total',
    'Sessions that came back: resumed, or failed (unknown, expired or taken over).',
    { result: ['resumed', 'failed'] },
  ),
  reroutes: counter(
    'service_reroutes_total',
    'Sessions told to go to the node of their rooms (told), and what became of them: resumed there (arrived), resumed at another node (elsewhere), or still here after 15 s (stayed).',
    { outcome: ['told', 'arrived', 'elsewhere', 'stayed'] },
  ),
  roomResumes: counter(
    'service_room_resumes_total',
    'Rooms of resumed sessions: missed frames were sent, a whole state was, or the seat was lost.',
    { result: ['frames', 'resync', 'lost'] },
  ),
  joins: counter('service_joins_total', 'Joins, by how they ended: joined, or the code of the error.', {
    result: JOIN_RESULTS,
  }),
  joinDuration: histogram('service_join_duration_seconds', 'Time from a join to joined.'),
  /** A sample: at most one message at a time per subscription. */
  ackDuration: histogram(
    'service_message_ack_duration_seconds',
    'Time from a reliable message to its ack: applied, and committed where the room type is durable. A sample.',
  ),
  roundTrip: histogram(
    'service_round_trip_duration_seconds',
    'Round-trip time of clients: from a ping of the websocket to its pong. Each client once a minute, silent ones more often.',
  ),
  websocketErrors: counter(
    'service_websocket_errors_total',
    'Errors told to clients, by code: error messages, and connections closed for a fault.',
    { code: FAULTS },
  ),
  closes: counter(
    'service_closes_total',
    'Connections that ended, by the name of the close code; lost: without one.',
    { name: ENDINGS },
  ),
  connectionsDropped: counter(
    'service_connections_dropped_total',
    'Connections ended before they had a session: the node has as many as it takes (node), as many without a session (pending), the address has (address) or opens them too fast (rate), the page is of an origin that is not allowed (origin), the headers are too large (headers), or the process has as many as its file descriptors allow (files).',
    { reason: ['node', 'files', 'pending', 'address', 'rate', 'origin', 'headers'] },
  ),
  newcomersRefused: counter(
    'service_newcomers_refused_total',
    'Clients without a session that were refused with 1013 since the node is overloaded.',
  ),
  inputsDropped: counter(
    'service_inputs_dropped_total',
    'Messages without a ref that an overloaded node dropped unread, since their session has had its share.',
  ),
  rateLimited: RATE_LIMITED,
  wrongCodes: counter(
    'service_wrong_codes_total',
    'Codes of rooms that led to no room (wrong), or were refused since there were too many wrong ones (refused).',
    { result: ['wrong', 'refused'] },
  ),
  tokensUntimely: counter(
    'service_tokens_refused_for_time_total',
    'Tokens refused because they have expired, or are not valid yet by the clock of the node.',
    { fault: ['expired', 'not_yet_valid'] },
  ),
  readingPaused: counter(
    'service_reading_paused_total',
    'Times that nothing more was read of a connection until its session was within its rate again (rate), or until the others had their turn (turn).',
    { reason: ['rate', 'turn'] },
  ),
  statesDelayed: counter(
    'service_states_delayed_total',
    'Full states for joins, resumes and resyncs that had to wait, since the player has no points left for states.',
  ),
  sessionsEvicted: counter(
    'service_sessions_evicted_total',
    'Sessions without a connection that were ended early, since their player or token began another and had as many as there may be.',
  ),
  unackedRefused: counter(
    'service_unacked_refused_total',
    'Reliable messages refused since as many, or as many bytes, of their member wait for an ack already.',
  ),
  slowConsumers: counter(
    'service_slow_consumers_total',
    'Clients that read too slowly: stalled (patches stopped, one resync follows) or closed.',
    { action: ['stalled', 'closed'] },
  ),
  messagesReceived: counter('service_messages_received_total', 'Messages from clients, by t.', {
    t: Object.keys(CLIENT_MESSAGES) as ClientMessage['t'][],
  }),
  receivedBytes: counter('service_received_bytes_total', 'Bytes of messages from clients.'),
  socketWrites: counter('service_socket_writes_total', 'Writes to sockets of clients.'),
  writtenBytes: counter('service_written_bytes_total', 'Bytes written to sockets of clients.'),
  tokenChecks: counter(
    'service_token_checks_total',
    'Signatures of tokens that were asked about: verified, remembered since the same token was verified before, or wrong.',
    { result: ['verified', 'remembered', 'wrong'] },
  ),
  keyChecks: counter(
    'service_key_checks_total',
    'Questions to control about a key: ok, unreachable, refused (INTERNAL_TOKEN), answered by another server (foreign), or not asked, too many being asked (busy).',
    { result: ['ok', 'unreachable', 'refused', 'foreign', 'busy'] },
  ),
  jwksFetches: counter(
    'service_jwks_fetches_total',
    'Fetches of the public keys of an issuer of JWTs (AUTH_JWKS): ok, or failed.',
    { result: ['ok', 'failed'] },
  ),
  resumeWaitsRefused: counter(
    'service_resume_waits_refused_total',
    'Resumes with a used token that were refused, since another one waits for the same session.',
  ),
}

export type GatewayMetrics = Metrics<typeof GATEWAY_METRICS>

/** A handshake ended; `seconds` from the accepted socket to the answer. */
export function countHandshake(metrics: GatewayMetrics, result: HandshakeResult, seconds: number): void {
  metrics.handshakes.inc({ result })
  if (result === 'welcome' || result === 'resumed') metrics.handshakeDuration.observe(seconds)
  if (result === 'resumed') metrics.resumes.inc({ result })
  if (result === 'resume_failed' || result === 'session_taken_over') metrics.resumes.inc({ result: 'failed' })
}

/** A connection ended: by the node with a code of the table, by the client's goodbye (`normal`), or otherwise (`lost`). */
export function countClose(metrics: GatewayMetrics, name: Ending): void {
  metrics.closes.inc({ name })
  if (name !== 'lost' && !NO_FAULT.has(name)) metrics.websocketErrors.inc({ code: name })
  if (name === 'slow_consumer') metrics.slowConsumers.inc({ action: 'closed' })
}
