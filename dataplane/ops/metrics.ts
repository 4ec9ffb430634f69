import type { Registry } from 'prom-client'
import { CLOSE, type CloseName } from '../../shared/protocol/close-codes.ts'
import { ERRORS, type ErrorCode } from '../../shared/protocol/error-codes.ts'
import type { ClientMessage } from '../../shared/protocol/messages.ts'
import type { ClaimResult, ClusterMetrics } from '../cluster/metrics.ts'
import type { GatewayMetrics, HandshakeResult } from '../gateway/metrics.ts'
import type { QuarantineCause, ResyncCause, RoomMetrics } from '../rooms/metrics.ts'
import { HOOKS, type TurnHook } from '../watchdog/turns.ts'
import { type Add, Instruments } from './instruments.ts'

const CLOSE_NAMES = Object.keys(CLOSE) as CloseName[]
const ERROR_CODES = Object.keys(ERRORS) as ErrorCode[]
const CLIENT_MESSAGES: readonly ClientMessage['t'][] = [
  'hello',
  'join',
  'leave',
  'message',
  'state.resync',
  'ping',
  'token',
]

const RESYNC_CAUSES: readonly ResyncCause[] = ['sequence', 'checksum', 'stalled', 'resume']

/** Ends of a connection that are no fault of anybody. */
const PEACEFUL: ReadonlySet<CloseName | 'lost'> = new Set(['normal', 'draining', 'lost'])

/** What the parts of a node count with. */
export interface NodeMetrics {
  readonly gateway: GatewayMetrics
  readonly rooms: RoomMetrics
  readonly cluster: ClusterMetrics
}

/** Registers what a node counts. Counters of `room_types`, those installed, are there from the start. */
export function nodeMetrics(registry: Registry, room_types: readonly string[] = []): NodeMetrics {
  const make = new Instruments(registry, room_types)
  const limited = make.counterBy(
    'service_rate_limited_total',
    'Messages not applied because there are too many: of their session, or of their type; pings and pongs of the websocket itself; and tokens of players who come too often (hello).',
    'by',
    ['session', 'control_frame', 'hello', 'type'],
  )
  return {
    gateway: gatewayMetrics(make, limited),
    rooms: roomMetrics(make, limited.type),
    cluster: clusterMetrics(make),
  }
}

function gatewayMetrics(
  make: Instruments,
  rate_limited: Record<'session' | 'control_frame' | 'hello', Add>,
): GatewayMetrics {
  const handshakes = make.counterBy<HandshakeResult>(
    'service_handshakes_total',
    'Handshakes, by how they ended: welcome, resumed, or the name of a close code.',
    'result',
    ['welcome', 'resumed', ...CLOSE_NAMES.filter((name) => name !== 'normal')],
  )
  const handshake_seconds = make.seconds(
    'service_handshake_duration_seconds',
    'Time from an accepted socket to welcome, resumes included.',
  )
  const resumes = make.counterBy(
    'service_resumes_total',
    'Sessions that came back: resumed, or failed (unknown, expired or taken over).',
    'result',
    ['resumed', 'failed'],
  )
  const room_resumes = make.counterBy(
    'service_room_resumes_total',
    'Rooms of resumed sessions: missed frames were sent, a whole state was, or the seat was lost.',
    'result',
    ['frames', 'resync', 'lost'],
  )
  const joins = make.counterBy<'joined' | ErrorCode>(
    'service_joins_total',
    'Joins, by how they ended: joined, or the code of the error.',
    'result',
    ['joined', ...ERROR_CODES],
  )
  const join_seconds = make.seconds('service_join_duration_seconds', 'Time from a join to joined.')
  const ack_seconds = make.seconds(
    'service_message_ack_duration_seconds',
    'Time from a reliable message to its ack: applied, and committed where the room type is durable. A sample.',
  )
  const error_codes = [...ERROR_CODES, ...CLOSE_NAMES.filter((name) => !PEACEFUL.has(name))]
  const websocket_errors = make.counterBy<ErrorCode | CloseName>(
    'service_websocket_errors_total',
    'Errors told to clients, by code: error messages, and connections closed for a fault.',
    'code',
    [...new Set(error_codes)],
  )
  const closes = make.counterBy<CloseName | 'lost'>(
    'service_closes_total',
    'Connections that ended, by the name of the close code; lost: without one.',
    'name',
    [...CLOSE_NAMES, 'lost'],
  )
  const dropped = make.counterBy(
    'service_connections_dropped_total',
    'Connections ended before they had a session: the node has as many as it takes (node), as many without a session (pending), or the address has (address), or opens them too fast (rate).',
    'reason',
    ['node', 'pending', 'address', 'rate'],
  )
  const reading_paused = make.counterBy(
    'service_reading_paused_total',
    'Times that nothing more was read of a connection until its session was within its rate again (rate), or until the others had their turn (turn).',
    'reason',
    ['rate', 'turn'],
  )
  const states_delayed = make.counter(
    'service_states_delayed_total',
    'Joins, resumes and resyncs that had to wait, since their player has had as much of whole states as may come at once (STATE_BYTES_PER_SECOND).',
  )
  const evicted = make.counter(
    'service_sessions_evicted_total',
    'Sessions without a connection that were ended early, since their player or token began another and had as many as there may be.',
  )
  const unacked_full = make.counter(
    'service_unacked_refused_total',
    'Reliable messages refused since as many, or as many bytes, of their member wait for an ack already.',
  )
  const slow_consumers = make.counterBy(
    'service_slow_consumers_total',
    'Clients that read too slowly: stalled (patches stopped, one resync follows) or closed.',
    'action',
    ['stalled', 'closed'],
  )
  const received = make.counterBy(
    'service_messages_received_total',
    'Messages from clients, by t.',
    't',
    CLIENT_MESSAGES,
  )
  const received_bytes = make.counter('service_received_bytes_total', 'Bytes of messages from clients.')
  const writes = make.counter('service_socket_writes_total', 'Writes to sockets of clients.')
  const written_bytes = make.counter('service_written_bytes_total', 'Bytes written to sockets of clients.')
  const key_checks = make.counterBy(
    'service_key_checks_total',
    'Questions to control about a key: ok, unreachable, refused (INTERNAL_TOKEN), or not asked, too many being asked (busy).',
    'result',
    ['ok', 'unreachable', 'refused', 'busy'],
  )
  const resume_waits_refused = make.counter(
    'service_resume_waits_refused_total',
    'Resumes with a used token that were told to come again, since as many as may wait do.',
  )

  return {
    handshake(result, seconds) {
      handshakes[result]?.()
      if (result === 'welcome' || result === 'resumed') handshake_seconds(seconds)
      if (result === 'resumed') resumes.resumed()
      if (result === 'resume_failed' || result === 'session_taken_over') resumes.failed()
    },
    join(result, seconds) {
      joins[result]()
      if (result === 'joined') join_seconds(seconds)
    },
    roomResumed: (result) => room_resumes[result](),
    acked: ack_seconds,
    error: (code) => websocket_errors[code](),
    closed(name) {
      closes[name]()
      if (name !== 'lost' && !PEACEFUL.has(name)) websocket_errors[name]()
      if (name === 'slow_consumer') slow_consumers.closed()
    },
    rateLimited: (by) => rate_limited[by](),
    readingPaused: (reason) => reading_paused[reason](),
    stateDelayed: () => states_delayed(),
    sessionEvicted: () => evicted(),
    connectionDropped: (reason) => dropped[reason](),
    unackedFull: () => unacked_full(),
    stalled: () => slow_consumers.stalled(),
    messageIn(type, bytes) {
      received[type]()
      received_bytes(bytes)
    },
    written(bytes, count) {
      writes(count)
      written_bytes(bytes)
    },
    keyCheck: (result) => key_checks[result](),
    resumeWaitRefused: () => resume_waits_refused(),
  }
}

function roomMetrics(make: Instruments, rate_limited: Add): RoomMetrics {
  const applied = make.counterByRoomType(
    'service_messages_applied_total',
    'Messages that room logic has applied.',
  )
  const errors = make.counterByRoomType<ErrorCode>(
    'service_room_errors_total',
    'Messages, joins, leaves and ticks that ended with an error, by code.',
    'code',
    ERROR_CODES,
  )
  const resyncs = make.counterByRoomType<ResyncCause>(
    'service_resyncs_total',
    'Whole states sent besides those of joins: a gap (sequence), another checksum, a slow reader (stalled), or a late resume.',
    'reason',
    RESYNC_CAUSES,
  )
  const delivered = make.secondsByRoomType(
    'service_message_delivery_duration_seconds',
    'Time from a message to the update that carries its effect to the members.',
  )
  const committed = make.seconds(
    'service_commit_duration_seconds',
    'Time a write of a room to the store takes.',
  )
  const stuck = make.counterByRoomType<TurnHook>(
    'service_room_turns_stuck_total',
    'Turns that did not end, and ended the owner of their room; counted by who takes the room over.',
    'hook',
    HOOKS,
  )
  const fenced = make.counter(
    'service_fenced_writes_total',
    'Writes of a room that were refused since another node owns it.',
  )
  const frozen = make.counterByRoomType(
    'service_room_freezes_total',
    'Rooms that stopped since their node may not act, or the store does not answer.',
  )
  const backlog_full = make.counterByRoomType(
    'service_room_backlog_full_total',
    'Messages, joins and the like that could not wait until their room can act, since too many do.',
  )
  const limits_reached = make.counterByRoomType<'tasks' | 'state'>(
    'service_room_limits_reached_total',
    'Turns that failed since their room has MAX_ROOM_TASKS tasks in flight, or a state of MAX_ROOM_STATE_BYTES.',
    'limit',
    ['tasks', 'state'],
  )
  const history_dropped = make.counter(
    'service_history_updates_dropped_total',
    'Past updates that were forgotten since the histories of all rooms together held MAX_HISTORY_BYTES.',
  )
  const quarantined = make.counterByRoomType<QuarantineCause>(
    'service_rooms_quarantined_total',
    'Rooms whose record was put aside: it cannot be read (damaged), or their logic does not come to an end (looping).',
    'cause',
    ['damaged', 'looping'],
  )
  return {
    applied: (room_type) => applied(room_type),
    error: (room_type, code) => errors(room_type, code),
    rateLimited: () => rate_limited(),
    resync: (room_type, cause) => resyncs(room_type, cause),
    delivered,
    committed,
    stuck: (room_type, hook) => stuck(room_type, hook),
    fenced: () => fenced(),
    frozen: (room_type) => frozen(room_type),
    backlogFull: (room_type) => backlog_full(room_type),
    limitReached: (room_type, limit) => limits_reached(room_type, limit),
    historyDropped: (updates) => history_dropped(updates),
    quarantined: (room_type, cause) => quarantined(room_type, cause),
    rooms: make.gauge('service_rooms', 'Rooms this node owns.'),
    members: make.gauge('service_members', 'Members of the rooms this node owns.'),
  }
}

function clusterMetrics(make: Instruments): ClusterMetrics {
  const publishes = make.counter(
    'service_peer_publishes_total',
    'Envelopes to other nodes: all that one turn had for one node, or a beat of an idle link.',
  )
  const messages = make.counter(
    'service_peer_messages_total',
    'Messages in envelopes to other nodes; divided by the publishes: how well they are gathered.',
  )
  const bytes = make.counter('service_peer_bytes_total', 'Bytes of envelopes to other nodes.')
  const faults = make.counterBy(
    'service_peer_faults_total',
    'Envelopes that the store did not take (unpublished), that went missing (gap), or could not be read (unreadable).',
    'fault',
    ['unpublished', 'gap', 'unreadable'],
  )
  const claims = make.counterBy<ClaimResult>(
    'service_claims_total',
    'Claims of rooms, by how they ended: claimed, taken_over from a dead node, elsewhere (a living node owns it), absent, not made (rate_limited, project_full), quarantined, or unavailable.',
    'result',
    [
      'claimed',
      'taken_over',
      'elsewhere',
      'absent',
      'rate_limited',
      'project_full',
      'quarantined',
      'unavailable',
    ],
  )
  const claim_seconds = make.seconds(
    'service_claim_duration_seconds',
    'Time a claim that succeeded takes, waiting until it was allowed included.',
  )
  const renewal_seconds = make.seconds(
    'service_lease_renewal_interval_seconds',
    'Time from one renewal of the lease of this node to the next.',
  )
  const hand_over_seconds = make.seconds(
    'service_hand_over_duration_seconds',
    'Time in which nobody acts for a room, from its last update here until another node may claim it.',
  )
  const gone = make.counter('service_nodes_gone_total', 'Other nodes found dead, or ended.')
  return {
    published(count, size) {
      publishes()
      messages(count)
      bytes(size)
    },
    unpublished: () => faults.unpublished(),
    gap: () => faults.gap(),
    unreadable: () => faults.unreadable(),
    claim(result, seconds) {
      claims[result]()
      if (result === 'claimed' || result === 'taken_over') claim_seconds(seconds)
    },
    leaseRenewed: renewal_seconds,
    nodesAlive: make.gauge('service_nodes_alive', 'Nodes alive as this one sees it, itself included.'),
    handedOver: hand_over_seconds,
    nodeGone: () => gone(),
  }
}
