import { type VariableName, variables } from '../shared/config/variables.ts'
import { LIMITS, type LimitTopic } from '../shared/limits.ts'
import { code, table } from './protocol-tables.ts'

/** Tables of docs/limits.md. Those of `shared/limits.ts` come from there, the values of variables from their defaults. */

interface Row {
  /** What is limited. */
  readonly of: string
  /** The variable with the value. Absent: `is` has it. */
  readonly variable?: VariableName
  /** Unit of the variable's value. Default: a number of what is limited. */
  readonly unit?: string
  readonly is?: string
  readonly effect: string
  /** Absent: none shows it. */
  readonly metric?: string
}

const JOINS = (result: string): string => `service_joins_total{result="${result}"}`
const REACHED = (limit: string): string => `service_room_limits_reached_total{limit="${limit}"}`
const FAILS = 'the turn fails'

/** Limits with a variable, and limits without any name. */
const ROWS: Readonly<Record<LimitTopic | 'loop', readonly Row[]>> = {
  sessions: [
    {
      of: 'sessions of one player (`sub`) in the cluster',
      variable: 'MAX_SESSIONS_PER_SUB',
      effect: 'the oldest session without a connection ends. If all are connected: 4006',
      metric: 'service_sessions_evicted_total',
    },
    {
      of: 'sessions of one token without `sub` in the cluster',
      is: '100 × `MAX_SESSIONS_PER_SUB`',
      effect: 'as above, among some of the oldest sessions',
      metric: 'service_sessions_evicted_total',
    },
    {
      of: 'sessions of a node, including disconnected ones',
      variable: 'MAX_SESSIONS',
      effect: 'new clients get 1013 and try the next node',
      metric: 'service_max_sessions',
    },
    {
      of: 'new sessions of one project at a node',
      variable: 'MAX_SESSIONS_PER_PROJECT',
      effect: '1013; resumes are accepted',
      metric: 'service_project_sessions_refused_total',
    },
    {
      of: 'share of one project of [a full node](#shares-of-projects)',
      variable: 'PROJECT_SHARE',
      unit: '%',
      effect: 'other projects get the places that become free',
      metric: 'service_project_sessions',
    },
    {
      of: 'connections of a process',
      is: '`ulimit -n` − 300',
      effect: 'as for connections without a session; a load balancer tries the next node',
      metric: 'service_connections_dropped_total{reason="files"}',
    },
    {
      of: 'resumes of a session that wait for another resume',
      is: '1',
      effect: '1013; the SDK retries',
      metric: 'service_resume_waits_refused_total',
    },
    {
      of: 'moves of a session to the node of its rooms (`ADVERTISE_URL`)',
      is: 'one per minute, less often after failures; 50/s from a node',
      effect: 'the session stays; its messages cross nodes',
      metric: 'service_reroutes_total',
    },
    {
      of: 'tokens for one caller at a control process',
      is: '2,000/s, bursts of 5,000',
      effect: '429',
      metric: 'service_http_requests_total{status="429"}',
    },
    {
      of: 'claim `data` of a token',
      is: '2 KiB of JSON',
      effect: '400',
      metric: 'service_http_requests_total{status="400"}',
    },
    {
      of: 'keys that a node remembers',
      is: '10,000, and 1,000 that do not exist',
      effect: 'it asks again about the least recently used',
    },
    {
      of: 'verified tokens that a node remembers',
      is: '10,000',
      effect: 'the least recently used is verified again',
      metric: 'service_token_checks_total{result="remembered"}',
    },
  ],
  messages: [
    {
      of: 'messages of a session in all rooms, in bursts of twice as many',
      variable: 'SESSION_MESSAGES_PER_SECOND',
      unit: '/s',
      effect:
        'the node reads the connection later. Messages without a `ref` get `rate_limited`; after 10 s of them: 4006',
      metric: 'service_rate_limited_total{by="session"}',
    },
    {
      of: 'messages of one type of a player, all seats together',
      is: '`rate` of the room type',
      effect: '`rate_limited`',
      metric: 'service_rate_limited_total{by="type"}',
    },
    {
      of: 'websocket pings and pongs: messages of the session; before `welcome`',
      is: '16 in a row, then 1/s',
      effect: 'ignored; after 10 s of them: 4006',
      metric: 'service_rate_limited_total{by="control_frame"}',
    },
    {
      of: 'one message',
      variable: 'MAX_MESSAGE_BYTES',
      unit: 'bytes',
      effect: '4008',
      metric: 'service_closes_total{name="payload_too_large"}',
    },
    {
      of: 'fragments of one message',
      is: '16, and one for each KiB of `MAX_MESSAGE_BYTES`',
      effect: '4000',
      metric: 'service_closes_total{name="protocol_error"}',
    },
    {
      of: 'replies (`reply`) that a member has not confirmed',
      is: '32, of 4 KiB each',
      effect: 'the next request: `too_many_requests`',
      metric: REACHED('requests'),
    },
    {
      of: 'replies and refusals of one member; of a room with more than 32 members',
      is: '256 KiB; 8 MiB',
      effect: 'the oldest are dropped: `outcome_unknown`',
      metric: 'service_room_errors_total{code="outcome_unknown"}',
    },
    {
      of: 'messages to other nodes that wait for the store',
      is: '16 MiB',
      effect: 'dropped; the other nodes notice the gap and ask again',
      metric: 'service_peer_faults_total{fault="unpublished"}',
    },
  ],
  rooms: [
    {
      of: 'rooms of a node',
      variable: 'MAX_ROOMS',
      effect: 'new rooms go to other nodes; if all are full: `overloaded`',
      metric: 'service_max_rooms',
    },
    {
      of: 'rooms of a project, including sleeping ones',
      variable: 'MAX_ROOMS_PER_PROJECT',
      effect: 'a join that would create one: `project_full`',
      metric: 'service_claims_total{result="project_full"}',
    },
    {
      of: 'new rooms of a player, or token without `sub`, in a minute',
      variable: 'NEW_ROOMS_PER_MINUTE',
      effect: 'a join that would create one: `rate_limited`',
      metric: 'service_claims_total{result="rate_limited"}',
    },
    {
      of: 'sleeping rooms, and rooms with timers, of the player who created them',
      variable: 'MAX_SLEEPING_ROOMS_PER_PLAYER',
      effect: 'a join that would create one: `too_many_rooms`',
      metric: 'service_claims_total{result="too_many_rooms"}',
    },
    {
      of: 'spectators of a room',
      is: '`spectators.max`; 50 with `visible`',
      effect: '`room_full`',
      metric: JOINS('room_full'),
    },
    {
      of: 'options of a join in a room with `spectators`',
      is: '1 KiB of JSON',
      effect: '`invalid_options`',
      metric: JOINS('invalid_options'),
    },
    {
      of: 'seats that `joinOrCreate` keeps for a player who does not join',
      is: '1 for 3 s; after three in a row, one a minute',
      effect: 'rooms are found as before, and no seat is kept',
      metric: 'service_seat_promises_total{result="withheld"}',
    },
    {
      of: 'reservations of a room (`ctx.reserve`)',
      is: '1,000, and the free seats',
      effect: '`ctx.reserve` returns false',
      metric: REACHED('reservations'),
    },
    { of: '`admit` of a room type', is: '5 s', effect: '`join_refused`', metric: JOINS('join_refused') },
    {
      of: '`load` of a room type',
      is: '10 s',
      effect: '`room_unavailable`; the next join calls it again',
      metric: 'service_room_loads_total{outcome="timed_out"}',
    },
    {
      of: '`save.to` of a room type',
      is: '30 s',
      effect: 'it counts as failed, and is repeated',
      metric: 'service_room_saves_total{outcome="timed_out"}',
    },
    {
      of: 'past updates of one room',
      is: '512, and 256 KiB',
      effect: 'a member that missed more gets a snapshot',
      metric: 'service_resyncs_total{reason="resume"}',
    },
    {
      of: 'parallel deliveries of notices of a node, for its rooms and for rooms without an owner',
      is: '64 each',
      effect: 'the others wait in Redis',
      metric: 'service_notices_oldest_seconds',
    },
    {
      of: 'requests of a project’s backends to rooms and lists, at a node; each 32 KiB of a read count as one',
      is: '200/s',
      effect: '429',
      metric: 'service_http_requests_total{status="429"}',
    },
    {
      of: 'requests of backends to one room in ten minutes',
      is: '2,000, with outcomes of 1 MiB',
      effect: '429',
      metric: REACHED('outcomes'),
    },
    {
      of: 'data of ended rooms in Redis',
      is: '2 minutes; two hours after a takeover',
      effect: 'it expires',
      metric: 'service_redis_used_memory_bytes',
    },
    {
      of: 'bans, revocations and data of players',
      is: 'none',
      effect: 'one key in Redis for each player',
      metric: 'service_player_changes_total',
    },
  ],
  turns: [
    {
      of: 'state of a room as MessagePack, ± 20 % with small values',
      variable: 'MAX_ROOM_STATE_BYTES',
      unit: 'bytes',
      effect: `${FAILS}, unless it makes the state no larger. The log warns from 80 %`,
      metric: REACHED('state'),
    },
    {
      of: 'hidden layers shown to one member (`ctx.show`)',
      is: '1,024',
      effect: FAILS,
      metric: REACHED('layers'),
    },
    {
      of: 'kicks, and layers shown or hidden, in a turn',
      is: '100,000',
      effect: FAILS,
      metric: REACHED('effects'),
    },
    { of: 'role changes in a turn', is: '100', effect: FAILS, metric: REACHED('roles') },
    { of: 'waiting notices of a room', is: '1,000', effect: FAILS, metric: REACHED('notices') },
    { of: 'bans of a room', is: '1,000', effect: FAILS, metric: REACHED('bans') },
  ],
  lists: [
    {
      of: 'requested lists of a session, without its watches',
      is: '32 without an answer',
      effect: '`rate_limited`',
      metric: 'service_websocket_errors_total{code="rate_limited"}',
    },
    { of: 'a query', is: '4,096 characters of JSON', effect: '`invalid_options`' },
    {
      of: 'an answer to a query',
      is: '100 rooms, each with 1 KiB of `data`',
      effect: 'the next page has more',
    },
    {
      of: 'wrong codes in a minute at a node: of a player, an address, a project',
      is: '10, 100, 1,000',
      effect: '`rate_limited`, for those with a wrong code in that minute',
      metric: 'service_wrong_codes_total',
    },
  ],
  loop: [
    {
      of: 'one turn of room logic',
      variable: 'TURN_LIMIT_MS',
      effect: '[the process ends](runbooks.md#room-logic-does-not-return); its rooms continue on other nodes',
      metric: 'service_room_turns_stuck_total',
    },
    {
      of: 'a turn of 100 ms or longer',
      is: 'a quarter of the event loop',
      effect: 'the room pauses three times as long',
      metric: 'service_room_turns_slow_total',
    },
    {
      of: 'work of all rooms in one turn of the event loop',
      is: '10 ms',
      effect: 'the remainder waits; rooms share the time equally',
      metric: 'service_event_loop_delay_seconds',
    },
    {
      of: 'slowdown of rooms while the event loop is 40 ms late',
      is: '2.4× (20 → 8 updates/s), then up to 10×',
      effect: '[the node is overloaded](runbooks.md#a-node-is-overloaded) one second later',
      metric: 'service_slowdown_ratio',
    },
    {
      of: 'reads of a client at an overloaded node',
      is: 'every 100 ms, up to every second',
      effect: 'only the newest message without a `ref` counts',
      metric: 'service_inputs_dropped_total',
    },
    {
      of: 'wait of a message at an overloaded node',
      is: '150 ms',
      effect: 'without a `ref`: dropped; with one: `rate_limited`, once',
      metric: 'service_inputs_shed_total',
    },
    {
      of: 'new clients of an overloaded node',
      is: 'none',
      effect: '1013; new rooms go to other nodes. Resumes and joins of existing rooms are accepted',
      metric: 'service_newcomers_refused_total',
    },
    {
      of: 'log lines that wait for the reader of stdout',
      is: '4 MiB',
      effect: 'new lines are dropped until all have been read',
      metric: 'service_log_lines_dropped_total',
    },
  ],
}

const DAY_SECONDS = 86_400

/** Returns a value as people write it, such as `16 KiB` or `50/s`. */
function readable(value: number, unit: string): string {
  const [kind, rate] = unit.split('/')
  const per = rate === undefined ? '' : `/${rate}`
  if (kind === 'bytes' && value % 1_048_576 === 0) return `${value / 1_048_576} MiB${per}`
  if (kind === 'bytes' && value % 1024 === 0) return `${value / 1024} KiB${per}`
  if (kind === 'bytes') return `${value / 1_000_000} MB${per}`
  if (kind === 'seconds') return `${value / DAY_SECONDS} days`
  return `${value.toLocaleString('en')}${kind === '%' ? ' %' : per}`
}

const declared = new Map(variables())

/** Returns the name of a row's variable and its default, or the value of a row without one. */
function limitOf({ variable, unit = '', is = '' }: Row): string {
  if (variable === undefined) return is
  const { default: fallback, defaultNote } = declared.get(variable)!
  if (fallback === undefined) return `${code(variable)}: ${defaultNote}`
  return `${code(variable)}: ${fallback === '0' ? 'no limit' : readable(Number(fallback), unit)}`
}

/** Returns what happens at a limit, or nothing if its page says so for the whole table. */
const effectOf = ({ effect }: { readonly effect: string }): string => (effect === FAILS ? '' : effect)

/** Returns the table of a topic of docs/limits.md. */
export const limitTable = (topic: LimitTopic | 'loop'): string =>
  table(
    ['What', 'Limit', 'At the limit', 'Metric'],
    [
      ...ROWS[topic].map((row) => [row.of, limitOf(row), effectOf(row), row.metric ? code(row.metric) : '']),
      ...Object.entries(LIMITS)
        .filter(([, limit]) => limit.topic === topic)
        .map(([name, limit]) => [
          limit.of,
          `${code(name)}: ${readable(limit.value, limit.unit)}`,
          effectOf(limit),
          code(limit.metric),
        ]),
    ],
  )

/** Tables of docs/limits.md. */
export const LIMIT_TOPICS = Object.keys(ROWS) as readonly (LimitTopic | 'loop')[]

const missing = [...declared.keys()].filter(
  (name) =>
    name.startsWith('MAX_') && !Object.values(ROWS).some((rows) => rows.some((row) => row.variable === name)),
)
if (missing.length > 0) throw new Error(`docs/limit-tables.ts has no row for ${missing.join(', ')}`)
