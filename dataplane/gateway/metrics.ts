import { counter, gauge, histogram, type Metrics, OPEN } from '../../shared/metrics.ts'
import { CLOSE, type CloseName, ERRORS, type ErrorCode } from '../../shared/protocol/error-codes.ts'
import { CLIENT_MESSAGES, type ClientMessage } from '../../shared/protocol/messages.ts'
import { RATE_LIMITED, ROOM_TRAFFIC } from '../metrics.ts'

const CLOSE_NAMES = Object.keys(CLOSE) as CloseName[]
const ERROR_CODES = Object.keys(ERRORS) as ErrorCode[]

/** Result of a handshake: a session, a resumed session, or a close code. */
export type HandshakeResult = 'welcome' | 'resumed' | CloseName
const HANDSHAKE_RESULTS: readonly HandshakeResult[] = [
  'welcome',
  'resumed',
  ...CLOSE_NAMES.filter((name) => name !== 'normal'),
]

const JOIN_RESULTS: readonly ('joined' | ErrorCode)[] = ['joined', ...ERROR_CODES]

/** End of a connection: a close code of the table, or none. */
type Ending = CloseName | 'lost'
const ENDINGS: readonly Ending[] = [...CLOSE_NAMES, 'lost']

/** Ends of a connection that are not errors. */
const NO_FAULT: ReadonlySet<Ending> = new Set(['normal', 'draining', 'lost'])

const FAULTS: readonly (ErrorCode | CloseName)[] = [
  ...new Set([...ERROR_CODES, ...CLOSE_NAMES.filter((name) => !NO_FAULT.has(name))]),
]

/** Metrics of the gateway. */
export const GATEWAY_METRICS = {
  connections: gauge('service_connections', 'Websockets with a session.'),
  pendingConnections: gauge('service_pending_connections', 'Connections without a session.'),
  handshakesWaiting: gauge('service_handshakes_waiting', 'Upgrades and hellos that wait for the event loop.'),
  sessions: gauge('service_sessions', 'Sessions, including disconnected ones that can be resumed.'),
  projectSessions: gauge(
    'service_project_sessions',
    'Sessions of the 50 largest projects. other: all other projects.',
    { project_id: OPEN },
  ),
  projectSessionsRefused: counter(
    'service_project_sessions_refused_total',
    'New sessions refused by MAX_SESSIONS_PER_PROJECT.',
  ),
  outboxBytes: gauge('service_outbox_bytes', 'Bytes queued for all clients together.'),
  handshakes: counter(
    'service_handshakes_total',
    'Handshakes: welcome, resumed, or the name of a close code.',
    { result: HANDSHAKE_RESULTS },
  ),
  handshakeDuration: histogram(
    'service_handshake_duration_seconds',
    'Time from an accepted socket to welcome, including resumes.',
  ),
  resumes: counter(
    'service_resumes_total',
    'Resumes. failed: the session is unknown, has expired or was taken over.',
    {
      result: ['resumed', 'failed'],
    },
  ),
  reroutes: counter(
    'service_reroutes_total',
    'Reroutes. told: the client was asked to move. arrived, elsewhere: where it resumed. stayed: not within 15 s.',
    { outcome: ['told', 'arrived', 'elsewhere', 'stayed'] },
  ),
  roomResumes: counter(
    'service_room_resumes_total',
    'Rooms of resumed sessions. frames: got missed updates. resync: got a snapshot. lost: no seat.',
    { result: ['frames', 'resync', 'lost'] },
  ),
  joins: counter('service_joins_total', 'Joins, by result: joined, or the code of the error.', {
    result: JOIN_RESULTS,
  }),
  joinDuration: histogram('service_join_duration_seconds', 'Time from a join to joined.'),
  /** A sample: at most one message at a time per subscription. */
  ackDuration: histogram(
    'service_message_ack_duration_seconds',
    'Time from a reliable message to its ack, for a sample of the messages.',
  ),
  roundTrip: histogram(
    'service_round_trip_duration_seconds',
    'Time from a ping to its pong. Nodes ping once a minute, and silent clients more often.',
  ),
  websocketErrors: counter(
    'service_websocket_errors_total',
    'Errors sent to clients, and connections closed with an error, by code.',
    { code: FAULTS },
  ),
  closes: counter('service_closes_total', 'Ended connections, by close code. lost: without one.', {
    name: ENDINGS,
  }),
  connectionsDropped: counter(
    'service_connections_dropped_total',
    'Connections closed without a session: at a limit (files, pending, address, rate), or for a wrong origin or headers.',
    { reason: ['files', 'pending', 'address', 'rate', 'origin', 'headers'] },
  ),
  newcomersRefused: counter(
    'service_newcomers_refused_total',
    'New clients refused with 1013 by an overloaded node.',
  ),
  inputsDropped: counter(
    'service_inputs_dropped_total',
    'Messages without a ref that an overloaded node replaced by newer messages.',
  ),
  rateLimited: RATE_LIMITED,
  tokensUntimely: counter(
    'service_tokens_refused_for_time_total',
    'Tokens refused as expired or not yet valid, by the clock of the node.',
    { fault: ['expired', 'not_yet_valid'] },
  ),
  readingPaused: counter(
    'service_reading_paused_total',
    'Pauses in reading a connection. rate: above its rate. turn: other connections come first.',
    { reason: ['rate', 'turn'] },
  ),
  statesDelayed: counter(
    'service_states_delayed_total',
    'Snapshots that waited because the player had no points for states.',
  ),
  sessionsEvicted: counter(
    'service_sessions_evicted_total',
    'Disconnected sessions that ended early because of the limit of their player or token.',
  ),
  unackedRefused: counter(
    'service_unacked_refused_total',
    'Reliable messages refused because too many messages of the member wait for an ack.',
  ),
  slowConsumers: counter(
    'service_slow_consumers_total',
    'Slow clients. stalled: no patches until a resync. closed: disconnected.',
    { action: ['stalled', 'closed'] },
  ),
  messagesReceived: counter('service_messages_received_total', 'Messages from clients, by t.', {
    t: Object.keys(CLIENT_MESSAGES) as ClientMessage['t'][],
  }),
  roomTraffic: ROOM_TRAFFIC,
  receivedBytes: counter('service_received_bytes_total', 'Bytes of messages from clients.'),
  socketWrites: counter('service_socket_writes_total', 'Writes to sockets of clients.'),
  writtenBytes: counter('service_written_bytes_total', 'Bytes written to sockets of clients.'),
  tokenChecks: counter(
    'service_token_checks_total',
    'Checks of token signatures. remembered: checked before.',
    { result: ['verified', 'remembered', 'wrong'] },
  ),
  keyChecks: counter(
    'service_key_checks_total',
    'Key checks with control. refused: wrong INTERNAL_TOKEN; foreign: another server answered; busy: too many.',
    { result: ['ok', 'unreachable', 'refused', 'foreign', 'busy'] },
  ),
  jwksFetches: counter(
    'service_jwks_fetches_total',
    'Fetches of the public keys of a JWT issuer (AUTH_JWKS).',
    { result: ['ok', 'failed'] },
  ),
  resumeWaitsRefused: counter(
    'service_resume_waits_refused_total',
    'Resumes refused because another resume of the session waits.',
  ),
}

export type GatewayMetrics = Metrics<typeof GATEWAY_METRICS>

/** Counts a handshake. `seconds`: from the accepted socket to the answer. */
export function countHandshake(metrics: GatewayMetrics, result: HandshakeResult, seconds: number): void {
  metrics.handshakes.inc({ result })
  if (result === 'welcome' || result === 'resumed') metrics.handshakeDuration.observe(seconds)
  if (result === 'resumed') metrics.resumes.inc({ result })
  if (result === 'resume_failed' || result === 'session_taken_over') metrics.resumes.inc({ result: 'failed' })
}

/** Counts the end of a connection: by the node with a code of the table, by the client's goodbye (`normal`), or otherwise (`lost`). */
export function countClose(metrics: GatewayMetrics, name: Ending): void {
  metrics.closes.inc({ name })
  if (name !== 'lost' && !NO_FAULT.has(name)) metrics.websocketErrors.inc({ code: name })
  if (name === 'slow_consumer') metrics.slowConsumers.inc({ action: 'closed' })
}
