import { counter, gauge, histogram, type Metrics, OPEN } from '../../shared/metrics.ts'
import { ERRORS, type ErrorCode } from '../../shared/protocol/error-codes.ts'
import type { ResyncReason } from '../../shared/protocol/messages.ts'
import { RATE_LIMITED } from '../metrics.ts'
import { HOOKS } from './hooks.ts'

/** Reason why a member got a whole state apart from its join: it asked, its edge dropped patches, or a resume reached back too far. */
type ResyncCause = ResyncReason | 'stalled' | 'resume'
const RESYNC_CAUSES: readonly ResyncCause[] = ['sequence', 'checksum', 'stalled', 'resume']

const ERROR_CODES = Object.keys(ERRORS) as ErrorCode[]

/** Entries of a room, or of one of its turns, whose number or size is limited. */
const LIMITED = [
  'tasks',
  'timers',
  'layers',
  'notices',
  'bans',
  'reservations',
  'seats',
  'outcomes',
  'requests',
  'effects',
  'roles',
  'events',
  'state',
] as const

/** Metrics of rooms. */
export const ROOM_METRICS = {
  rooms: gauge('service_rooms', 'Rooms of this node.'),
  projectRooms: gauge(
    'service_project_rooms',
    'Rooms of this node, of the 50 largest projects. other: all other projects.',
    { project_id: OPEN },
  ),
  members: gauge('service_members', 'Members of the rooms of this node.'),
  roomsFrozen: gauge(
    'service_rooms_frozen',
    'Frozen rooms: the node has no lease, or the store does not answer.',
  ),
  historyBytes: gauge('service_history_bytes', 'Bytes of past updates of all rooms of this node.'),
  roomLoads: counter(
    'service_room_loads_total',
    'Calls of `load`. loaded: a state. none: no state. timed_out: longer than 10 s.',
    { room_type: OPEN, outcome: ['loaded', 'none', 'failed', 'timed_out'] },
  ),
  roomMigrations: counter(
    'service_room_migrations_total',
    'Migrations of rooms to a newer version. failed: the room cannot be joined here.',
    { room_type: OPEN, outcome: ['migrated', 'failed'] },
  ),
  roomsAsleep: counter('service_rooms_asleep_total', 'Empty rooms that went to sleep.', { room_type: OPEN }),
  queueTickets: gauge('service_queue_tickets', 'Tickets in the queues of this node.', { room_type: OPEN }),
  queueOldest: gauge(
    'service_queue_oldest_seconds',
    'Waiting time of the oldest ticket in the queues of this node. 0: no ticket.',
    { room_type: OPEN },
  ),
  queueMatches: counter('service_queue_matches_total', 'Matches whose players have seats in a room.', {
    room_type: OPEN,
  }),
  queueWait: histogram('service_queue_wait_seconds', 'Time from a ticket to its match.', {
    room_type: OPEN,
  }),
  queueFailures: counter(
    'service_queue_failures_total',
    'Failed matches and rules of queues. room_logic: the match’s code failed; room: no seats within 20 s.',
    { room_type: OPEN, reason: ['entry', 'near', 'fits', 'options', 'shard', 'room', 'room_logic'] },
  ),
  timersFired: counter('service_room_timers_fired_total', 'Timers of room logic that have fired.', {
    room_type: OPEN,
  }),
  timerLateness: histogram(
    'service_room_timer_lateness_seconds',
    'Delay of a timer: from its due time to its turn.',
  ),
  messagesApplied: counter('service_messages_applied_total', 'Messages that room logic has applied.', {
    room_type: OPEN,
  }),
  /** Includes ticks, whose errors no client receives. */
  roomErrors: counter(
    'service_room_errors_total',
    'Messages, joins, leaves and ticks that ended with an error, by code.',
    { room_type: OPEN, code: ERROR_CODES },
  ),
  rateLimited: RATE_LIMITED,
  resyncs: counter(
    'service_resyncs_total',
    'Snapshots without a join. sequence: a gap; checksum: a wrong copy; stalled: a slow client; resume: too late for updates.',
    { room_type: OPEN, reason: RESYNC_CAUSES },
  ),
  deliveryDuration: histogram(
    'service_message_delivery_duration_seconds',
    'Time from a message to the delivery of its update.',
    { room_type: OPEN },
  ),
  commitDuration: histogram('service_commit_duration_seconds', 'Duration of a write of a room to the store.'),
  inputsShed: counter(
    'service_inputs_shed_total',
    'Messages that waited too long at an overloaded node. dropped: without a ref. refused: with a ref.',
    { room_type: OPEN, how: ['dropped', 'refused'] },
  ),
  slowTurns: counter('service_room_turns_slow_total', 'Turns of room logic of 100 ms or longer.', {
    room_type: OPEN,
    hook: HOOKS,
  }),
  fencedWrites: counter(
    'service_fenced_writes_total',
    'Writes of a room refused because another node owns it.',
  ),
  roomFreezes: counter(
    'service_room_freezes_total',
    'Rooms that froze: no lease, or no answer of the store.',
    { room_type: OPEN },
  ),
  backlogFull: counter('service_room_backlog_full_total', 'Messages for a room whose inbox was full.', {
    room_type: OPEN,
  }),
  limitsReached: counter(
    'service_room_limits_reached_total',
    'Turns, requests, messages and matches that failed at a limit of their room.',
    { room_type: OPEN, limit: LIMITED },
  ),
  historyDropped: counter(
    'service_history_updates_dropped_total',
    'Past updates dropped because all histories together held 256 MiB.',
  ),
  roomsQuarantined: counter(
    'service_rooms_quarantined_total',
    'Rooms with an unreadable record, which is now in quarantine.',
    { room_type: OPEN },
  ),
}

export type RoomMetrics = Metrics<typeof ROOM_METRICS>
