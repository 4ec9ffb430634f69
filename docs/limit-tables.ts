import { type VariableName, variables } from '../shared/config/variables.ts'
import { LIMITS, type LimitTopic } from '../shared/limits.ts'
import { code } from './protocol-tables.ts'

/** Lists of docs/limits.md. Those of `shared/limits.ts` come from there, the values of variables from their defaults. */

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

/** Lists of the page, each with its heading. */
const HEADINGS = {
  sessions: 'sessions-and-connections',
  messages: 'messages',
  rooms: 'rooms-and-lists',
  turns: 'rooms-and-lists',
  lists: 'rooms-and-lists',
  backends: 'backends',
  loop: 'the-event-loop',
} as const satisfies Record<LimitTopic | 'backends' | 'loop', string>

type Topic = keyof typeof HEADINGS

/** Limits with a variable, and limits without any name. */
const ROWS: Readonly<Record<Topic, readonly Row[]>> = {
  sessions: [
    {
      of: 'sessions of a player (`sub`) in the cluster',
      variable: 'MAX_SESSIONS_PER_SUB',
      effect: 'the oldest disconnected session ends. If all are connected, the new one gets 4006',
      metric: 'service_sessions_evicted_total',
    },
    {
      of: 'sessions of a token without `sub` in the cluster',
      is: '100 × `MAX_SESSIONS_PER_SUB`',
      effect: 'as for a player',
      metric: 'service_sessions_evicted_total',
    },
    {
      of: 'sessions of a node, including disconnected ones',
      variable: 'MAX_SESSIONS',
      effect: 'new clients get 1013 and try the next node',
      metric: 'service_max_sessions',
    },
    {
      of: 'sessions of a project at a node',
      variable: 'MAX_SESSIONS_PER_PROJECT',
      effect: 'new ones get 1013. Resumes are accepted',
      metric: 'service_project_sessions_refused_total',
    },
    {
      of: 'share of a project at [a full node](#shares-of-projects)',
      variable: 'PROJECT_SHARE',
      unit: '%',
      effect: 'other projects get the next free places',
      metric: 'service_project_sessions',
    },
    {
      of: 'connections of a process',
      is: '`ulimit -n` − 300',
      effect: 'the oldest without a `hello` is closed, or else the new one',
      metric: 'service_connections_dropped_total{reason="files"}',
    },
    {
      of: 'waiting resumes of a session',
      is: '1',
      effect: '1013',
      metric: 'service_resume_waits_refused_total',
    },
    {
      of: 'moves of sessions to the node of their rooms',
      is: '1/minute for a session, 50/s for a node',
      effect: 'the session stays. Its messages pass between nodes',
      metric: 'service_reroutes_total',
    },
  ],
  messages: [
    {
      of: 'messages of a session',
      variable: 'SESSION_MESSAGES_PER_SECOND',
      unit: '/s',
      effect:
        'messages with a `ref` wait. Others get `rate_limited`, and 4006 after 1,200 of them. Bursts: twice the rate',
      metric: 'service_rate_limited_total{by="session"}',
    },
    {
      of: 'messages of one type from one player',
      is: '`rate` of the room type',
      effect: '`rate_limited`',
      metric: 'service_rate_limited_total{by="type"}',
    },
    {
      of: 'websocket pings and pongs before `welcome`',
      is: '1/s',
      effect: '4006. Bursts: 16',
      metric: 'service_handshakes_total{result="rate_limited"}',
    },
    {
      of: 'websocket pings and pongs after `welcome`',
      is: '`SESSION_MESSAGES_PER_SECOND`, together with messages',
      effect: 'pings get no pong. After 1,200 of them: 4006',
      metric: 'service_rate_limited_total{by="control_frame"}',
    },
    {
      of: 'size of a message',
      variable: 'MAX_MESSAGE_BYTES',
      unit: 'bytes',
      effect: '4008',
      metric: 'service_closes_total{name="payload_too_large"}',
    },
    {
      of: 'fragments of one message',
      is: '16, plus one per KiB of `MAX_MESSAGE_BYTES`',
      effect: '4000',
      metric: 'service_closes_total{name="protocol_error"}',
    },
    {
      of: 'unconfirmed replies of a member',
      is: '32, each up to 4 KiB',
      effect: '`too_many_requests`',
      metric: REACHED('requests'),
    },
    {
      of: 'replies and refusals in a room',
      is: '256 KiB per member, 8 MiB for all',
      effect: 'the oldest are dropped (`outcome_unknown`)',
      metric: 'service_room_errors_total{code="outcome_unknown"}',
    },
    {
      of: 'queued messages to other nodes',
      is: '16 MiB',
      effect: 'the node drops them. The other nodes ask again',
      metric: 'service_peer_faults_total{fault="unpublished"}',
    },
  ],
  rooms: [
    {
      of: 'rooms of a node',
      variable: 'MAX_ROOMS',
      effect: 'new rooms go to other nodes. If all are full: `overloaded`',
      metric: 'service_max_rooms',
    },
    {
      of: 'rooms of a project in the cluster, including sleeping ones',
      variable: 'MAX_ROOMS_PER_PROJECT',
      effect: '`project_full`',
      metric: 'service_claims_total{result="project_full"}',
    },
    {
      of: 'rooms that a player, or a token without `sub`, creates per minute',
      variable: 'NEW_ROOMS_PER_MINUTE',
      effect: '`rate_limited`',
      metric: 'service_claims_total{result="rate_limited"}',
    },
    {
      of: 'sleeping rooms and rooms with timers that one player has created',
      variable: 'MAX_SLEEPING_ROOMS_PER_PLAYER',
      effect: '`too_many_rooms`',
      metric: 'service_claims_total{result="too_many_rooms"}',
    },
    {
      of: 'spectators of a room',
      is: '`spectators.max`. With `visible`, at most 50',
      effect: '`room_full`',
      metric: JOINS('room_full'),
    },
    {
      of: 'options of a join, if the room type has `spectators`',
      is: '1 KiB of JSON',
      effect: '`invalid_options`',
      metric: JOINS('invalid_options'),
    },
    {
      of: 'seat that `joinOrCreate` keeps for a player',
      is: '1, for 3 s',
      effect: 'the seat is free. After three unused seats, a player gets 1 per minute',
      metric: 'service_seat_promises_total{result="withheld"}',
    },
    {
      of: 'reservations of a room (`ctx.reserve`)',
      is: '1,000, and at most the free seats',
      effect: '`ctx.reserve` returns false',
      metric: REACHED('reservations'),
    },
    { of: 'duration of `admit`', is: '5 s', effect: '`join_refused`', metric: JOINS('join_refused') },
    {
      of: 'duration of `load`',
      is: '10 s',
      effect: '`room_unavailable`. The next join calls it again',
      metric: 'service_room_loads_total{outcome="timed_out"}',
    },
    {
      of: 'duration of `save.to`',
      is: '30 s',
      effect: 'roomful calls it again',
      metric: 'service_room_saves_total{outcome="timed_out"}',
    },
    {
      of: 'history of one room',
      is: '512 updates and 256 KiB',
      effect: 'a member that missed more updates gets a snapshot',
      metric: 'service_resyncs_total{reason="resume"}',
    },
    {
      of: 'data of an ended room in Redis',
      is: '2 minutes, or 2 hours if the room had a takeover',
      effect: 'it expires',
      metric: 'service_redis_used_memory_bytes',
    },
  ],
  backends: [
    {
      of: 'requests of a project’s backends at a node',
      is: '200/s',
      effect: '429. A read counts as one request per 32 KiB',
      metric: 'service_http_requests_total{status="429"}',
    },
    {
      of: 'backend requests to a room in ten minutes',
      is: '2,000, and 1 MiB of outcomes',
      effect: '429',
      metric: REACHED('outcomes'),
    },
    {
      of: 'tokens that one caller gets from a control process',
      is: '2,000/s',
      effect: '429. Bursts: 5,000',
      metric: 'service_http_requests_total{status="429"}',
    },
    {
      of: 'claim `data` of a token',
      is: '2 KiB of JSON',
      effect: '400',
      metric: 'service_http_requests_total{status="400"}',
    },
    {
      of: 'notices that a node delivers in parallel',
      is: '64, plus 64 for rooms without an owner',
      effect: 'other notices wait in Redis',
      metric: 'service_notices_oldest_seconds',
    },
    {
      of: 'bans, revocations and data of players',
      is: 'no limit. Redis has one key for each player',
      effect: FAILS,
      metric: 'service_player_changes_total',
    },
  ],
  turns: [
    {
      of: 'state of a room, estimated as MessagePack to ± 20 %',
      variable: 'MAX_ROOM_STATE_BYTES',
      unit: 'bytes',
      effect: `${FAILS} if the state grew. From 80 %, the log warns`,
      metric: REACHED('state'),
    },
    {
      of: 'hidden layers shown to a member',
      is: '1,024',
      effect: FAILS,
      metric: REACHED('layers'),
    },
    {
      of: 'kicks, and changes of shown layers, in a turn',
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
      of: 'unanswered list requests of a session',
      is: '32',
      effect: '`rate_limited`',
      metric: 'service_websocket_errors_total{code="rate_limited"}',
    },
    { of: 'size of a query', is: '4,096 characters of JSON', effect: '`invalid_options`' },
    {
      of: 'one page of an answer to a query',
      is: '100 rooms, each with up to 1 KiB of `data`',
      effect: 'the next page continues',
    },
    {
      of: 'wrong codes per minute at a node',
      is: '10 for a player, 100 for an address, 1,000 for a project',
      effect: '`rate_limited`',
      metric: 'service_wrong_codes_total',
    },
  ],
  loop: [
    {
      of: 'milliseconds of a turn of room code',
      variable: 'TURN_LIMIT_MS',
      effect: '[the process ends](#room-code-that-does-not-return)',
      metric: 'service_room_turns_stuck_total',
    },
    {
      of: 'pause after a turn of 100 ms or longer',
      is: 'three times the duration of the turn',
      effect: 'the room continues. It uses at most a quarter of the event loop',
      metric: 'service_room_turns_slow_total',
    },
    {
      of: 'work of all rooms in one turn of the event loop',
      is: '10 ms',
      effect: 'the remaining work waits for the next turn',
      metric: 'service_event_loop_delay_seconds',
    },
    {
      of: 'slowdown of rooms, if the event loop is 40 ms late',
      is: '2.4× (8 updates/s instead of 20)',
      effect: '[the node is overloaded](runbooks.md#a-node-is-overloaded). At the highest load: 10×',
      metric: 'service_slowdown_ratio',
    },
    {
      of: 'reads of a connection at an overloaded node',
      is: '10/s, and 1/s at the highest load',
      effect: 'messages wait. Of those without a `ref`, each read keeps only the newest',
      metric: 'service_inputs_dropped_total',
    },
    {
      of: 'waiting time of a message at an overloaded node',
      is: '150 ms',
      effect: 'the message is dropped, or rejected with `rate_limited` if it has a `ref`',
      metric: 'service_inputs_shed_total',
    },
    {
      of: 'new clients of a node',
      is: 'no limit until the node is overloaded',
      effect: '1013. Resumes are accepted. New rooms go to other nodes',
      metric: 'service_newcomers_refused_total',
    },
    {
      of: 'queued log lines',
      is: '4 MiB',
      effect: 'new lines are dropped. The reader of stdout is too slow',
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

/** Returns the default of a row's variable with its name, or the value of a row without one. */
function limitOf({ variable, unit = '', is = '' }: Row): string {
  if (variable === undefined) return is
  const { default: fallback, defaultNote } = declared.get(variable)!
  const value = fallback === '0' ? 'no limit' : readable(Number(fallback), unit)
  return `${fallback === undefined ? defaultNote : value} (${code(variable)})`
}

/** Returns what happens at a limit. Its page says so for the whole list of turns. */
const then = (effect: string): string => (effect === FAILS ? '' : `, then ${effect}`)

const line = (of: string, limit: string, effect: string, metric?: string): string =>
  `- **${of[0]!.toUpperCase()}${of.slice(1)}**: ${limit}${then(effect)}.${metric ? ` ${code(metric)}` : ''}`

/** Returns the list of a topic of docs/limits.md. */
export const limitList = (topic: Topic): string =>
  [
    ...ROWS[topic].map((row) => line(row.of, limitOf(row), row.effect, row.metric)),
    ...Object.entries(LIMITS)
      .filter(([, limit]) => limit.topic === topic)
      .map(([name, limit]) =>
        line(limit.of, `${readable(limit.value, limit.unit)} (${code(name)})`, limit.effect, limit.metric),
      ),
  ].join('\n')

/** Returns the metrics in alphabetical order, each with its limits. */
export function metricIndex(): string {
  const limits = Object.values(LIMITS)
  const lines = LIMIT_TOPICS.flatMap((topic) =>
    [...ROWS[topic], ...limits.filter((limit) => limit.topic === topic)].flatMap(({ of, metric }) => {
      if (metric === undefined) return []
      const [, name = '', label = ''] = /^(\w+)(?:{\w+="(.+)"})?$/.exec(metric) ?? []
      const text = of.replace(/\[(.+?)\]\(.+?\)/g, '$1')
      return [{ name, text: `${label && `${code(label)} `}[${text}](#${HEADINGS[topic]})` }]
    }),
  )
  const names = [...new Set(lines.map(({ name }) => name))].sort()
  return names
    .map((name) => [name, lines.filter((line) => line.name === name).map(({ text }) => text)] as const)
    .map(([name, texts]) => `- ${code(name)}: ${texts.join('; ')}`)
    .join('\n')
}

/** Lists of docs/limits.md. */
export const LIMIT_TOPICS = Object.keys(ROWS) as readonly Topic[]

const missing = [...declared.keys()].filter(
  (name) =>
    name.startsWith('MAX_') && !Object.values(ROWS).some((rows) => rows.some((row) => row.variable === name)),
)
if (missing.length > 0) throw new Error(`docs/limit-tables.ts has no row for ${missing.join(', ')}`)
