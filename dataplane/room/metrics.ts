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
  rooms: gauge('service_rooms', 'Rooms this node owns.'),
  projectRooms: gauge(
    'service_project_rooms',
    'Rooms of each project that this node owns: for the 50 projects with most rooms, and for all others together (other).',
    { project_id: OPEN },
  ),
  members: gauge('service_members', 'Members of the rooms this node owns.'),
  roomsFrozen: gauge(
    'service_rooms_frozen',
    'Frozen rooms: the node has no lease, or the store does not answer.',
  ),
  historyBytes: gauge('service_history_bytes', 'Bytes of past updates of all rooms of this node.'),
  roomLoads: counter(
    'service_room_loads_total',
    'Calls of `load` of room types: it returned a state (loaded) or none, failed, or took longer than 10 s (timed_out).',
    { room_type: OPEN, outcome: ['loaded', 'none', 'failed', 'timed_out'] },
  ),
  roomMigrations: counter(
    'service_room_migrations_total',
    'Rooms whose state was migrated to a newer version of the room type (migrated), or not (failed). A failed room cannot be joined here.',
    { room_type: OPEN, outcome: ['migrated', 'failed'] },
  ),
  roomsAsleep: counter('service_rooms_asleep_total', 'Empty rooms that went to sleep.', { room_type: OPEN }),
  queueTickets: gauge('service_queue_tickets', 'Tickets of the queues this node owns.', { room_type: OPEN }),
  queueOldest: gauge(
    'service_queue_oldest_seconds',
    'Waiting time of the oldest ticket of the queues this node owns. 0: no ticket.',
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
    'Rules of queues that threw or returned an invalid value (entry, near, fits, options, shard), and matches that failed: `create` or `admit` of the room failed, or it refused the options (room_logic), or the room did not reserve the seats within 20 s (room).',
    { room_type: OPEN, reason: ['entry', 'near', 'fits', 'options', 'shard', 'room', 'room_logic'] },
  ),
  timersFired: counter(
    'service_room_timers_fired_total',
    'Timers of room logic that have fired, including those whose handler failed.',
    { room_type: OPEN },
  ),
  timerLateness: histogram(
    'service_room_timer_lateness_seconds',
    'Time from the due time of a timer to its turn.',
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
    'Whole states sent without a join, after a gap (sequence), a different checksum, a slow consumer (stalled), or a late resume.',
    { room_type: OPEN, reason: RESYNC_CAUSES },
  ),
  deliveryDuration: histogram(
    'service_message_delivery_duration_seconds',
    'Time from a message to the delivery of the update with its effect.',
    { room_type: OPEN },
  ),
  commitDuration: histogram('service_commit_duration_seconds', 'Duration of a write of a room to the store.'),
  inputsShed: counter(
    'service_inputs_shed_total',
    'Messages that waited too long at an overloaded node: without a ref (dropped), or with one (refused).',
    { room_type: OPEN, how: ['dropped', 'refused'] },
  ),
  slowTurns: counter(
    'service_room_turns_slow_total',
    'Turns of room logic of 100 ms or longer, in which the node did nothing else.',
    { room_type: OPEN, hook: HOOKS },
  ),
  fencedWrites: counter(
    'service_fenced_writes_total',
    'Writes of a room refused because another node owns it.',
  ),
  roomFreezes: counter(
    'service_room_freezes_total',
    'Rooms that froze because the node had no lease, or the store did not answer.',
    { room_type: OPEN },
  ),
  backlogFull: counter(
    'service_room_backlog_full_total',
    'Messages for a room that could not act and had a full inbox: dropped if they had no ref, otherwise refused or sent again later.',
    { room_type: OPEN },
  ),
  limitsReached: counter(
    'service_room_limits_reached_total',
    'Turns, requests, messages and matches that failed at a limit of their room: tasks, timers, layers, notices, bans, reservations, seats, outcomes, unconfirmed replies of a member (requests), events of a turn, its kicks and shown layers (effects), or the size of the state (state).',
    { room_type: OPEN, limit: LIMITED },
  ),
  historyDropped: counter(
    'service_history_updates_dropped_total',
    'Past updates dropped because the histories of all rooms together held 256 MiB.',
  ),
  roomsQuarantined: counter(
    'service_rooms_quarantined_total',
    'Rooms with an unreadable record, which was moved to quarantine.',
    { room_type: OPEN },
  ),
}

export type RoomMetrics = Metrics<typeof ROOM_METRICS>
