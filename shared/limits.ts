/** A limit without an environment variable. docs/limits.md has all fields but `why`. */
interface Limit {
  readonly value: number
  readonly unit: string
  /** List of docs/limits.md. */
  readonly topic: LimitTopic
  /** What is limited, in Markdown. */
  readonly of: string
  /** What happens at the limit. */
  readonly effect: string
  /** Metric that shows that it was reached. */
  readonly metric: string
  /** Why the value is enough. */
  readonly why: string
}

export type LimitTopic = 'sessions' | 'messages' | 'rooms' | 'turns' | 'lists'

/** Limits that an operator does not need to configure. They are also options of `startNode`. */
export const LIMITS = {
  connectionsPerSecondPerAddress: {
    value: 50,
    unit: 'connections/s',
    topic: 'sessions',
    of: 'new websockets of an address at a node',
    effect: '429, without a check of the token. Bursts: ten times as many',
    metric: 'service_connections_dropped_total{reason="rate"}',
    why: 'A school or an office reconnects together within a burst. An IPv6 network of 64 bits counts as one address.',
  },
  listBytesPerSecondPerPlayer: {
    value: 65_536,
    unit: 'bytes/s',
    topic: 'lists',
    of: 'lists for a player at a node',
    effect: 'lists wait. A newer list replaces the waiting one. Bursts: twice the rate',
    metric: 'service_lists_delayed_total{by="player"}',
    why: 'A list of 20 rooms each second is a tenth of it.',
  },
  listBytesPerSecondPerToken: {
    value: 2_000_000,
    unit: 'bytes/s',
    topic: 'lists',
    of: 'lists for [guests](#guests) with one token and address',
    effect: 'lists and searches wait. Each [point](#budgets-of-a-player) of a query counts as 200 bytes',
    metric: 'service_lists_delayed_total{by="token"}',
    why: 'Without it, each session of such a token counts as a player. A tenth of a second is saved up.',
  },
  maxEventBytes: {
    value: 262_144,
    unit: 'bytes',
    topic: 'turns',
    of: 'one event, including its name and recipients',
    effect: 'the turn fails',
    metric: 'service_room_limits_reached_total{limit="events"}',
    why: 'A member has the same limit for queued data before patches are left out.',
  },
  maxGuestSeats: {
    value: 64,
    unit: 'seats',
    topic: 'rooms',
    of: 'seats of [guests](#guests) with one token and address at a node',
    effect: '`too_many_rooms`',
    metric: 'service_joins_total{result="too_many_rooms"}',
    why: 'Enough for a family or a small office. A larger place gives each player a sub.',
  },
  maxGuestSeatsPerRoomType: {
    value: 16,
    unit: 'seats',
    topic: 'rooms',
    of: 'seats of guests with one token and address in rooms of one type',
    effect: '`too_many_rooms`',
    metric: 'service_joins_total{result="too_many_rooms"}',
    why: 'A quarter of maxGuestSeats, so that one game leaves places for others.',
  },
  maxHistoryBytes: {
    value: 268_435_456,
    unit: 'bytes',
    topic: 'rooms',
    of: 'history of all rooms of a node',
    effect: 'the room that was inactive longest loses history. Its members resume with a snapshot',
    metric: 'service_history_updates_dropped_total',
    why: 'A quarter of a heap of 1 GiB.',
  },
  maxKeyLookups: {
    value: 256,
    unit: 'keys',
    topic: 'sessions',
    of: 'unknown API keys that a node checks in parallel',
    effect: '1013',
    metric: 'service_key_checks_total{result="busy"}',
    why: 'Tokens with made-up key ids must not fill the memory.',
  },
  maxPendingConnections: {
    value: 2000,
    unit: 'connections',
    topic: 'sessions',
    of: 'connections without a session at a node',
    effect: 'the oldest without a `hello` is closed, or else the new one',
    metric: 'service_connections_dropped_total{reason="pending"}',
    why: 'Enough for all players of a node that reconnect within seconds. 0: no limit.',
  },
  maxPendingConnectionsPerAddress: {
    value: 200,
    unit: 'connections',
    topic: 'sessions',
    of: 'connections without a session from one address',
    effect: 'the oldest without a `hello` is closed, or else the new one (429 behind a load balancer)',
    metric: 'service_connections_dropped_total{reason="address"}',
    why: 'One address must not take the places of all others. 0: no limit.',
  },
  maxRoomBacklog: {
    value: 1000,
    unit: 'messages',
    topic: 'rooms',
    of: 'queued messages for a room at a node',
    effect:
      'messages with a `ref` wait at the edge. Others are dropped. Joins and leaves: ten times as many, then `room_unavailable`',
    metric: 'service_room_backlog_full_total',
    why: 'Some seconds of a busy room while Redis is unreachable.',
  },
  maxRoomTasks: {
    value: 100,
    unit: 'tasks',
    topic: 'turns',
    of: 'running tasks of a room',
    effect: 'the turn fails. In a queue, each match is a task, and more matches wait',
    metric: 'service_room_limits_reached_total{limit="tasks"}',
    why: 'Each is part of the record of the room and usually holds a connection to another service.',
  },
  maxRoomTimers: {
    value: 1000,
    unit: 'timers',
    topic: 'turns',
    of: 'timers of a room',
    effect: 'the turn fails',
    metric: 'service_room_limits_reached_total{limit="timers"}',
    why: 'Each is part of the record of the room.',
  },
  maxRowsPerQuery: {
    value: 10_000,
    unit: 'rooms',
    topic: 'lists',
    of: 'rooms that one query checks',
    effect: '`invalid_options`. A backend gets a shorter page',
    metric: 'service_directory_queries_stopped_total',
    why: 'As many as a project may have by default, so that only larger lists reach it.',
  },
  maxRoomsPerSession: {
    value: 16,
    unit: 'rooms',
    topic: 'rooms',
    of: 'rooms of one session',
    effect: '`too_many_rooms`',
    metric: 'service_websocket_errors_total{code="too_many_rooms"}',
    why: 'The session record lists them, and a resume asks each owner.',
  },
  maxTurnEventBytes: {
    value: 1_048_576,
    unit: 'bytes',
    topic: 'turns',
    of: 'all events of one turn',
    effect: 'the turn fails',
    metric: 'service_room_limits_reached_total{limit="events"}',
    why: 'A node encodes and sends them within some milliseconds. Equal to outboxLimitBytes: above it, each member would be disconnected.',
  },
  maxTurnEvents: {
    value: 10_000,
    unit: 'events',
    topic: 'turns',
    of: 'events of one turn',
    effect: 'the turn fails',
    metric: 'service_room_limits_reached_total{limit="events"}',
    why: 'Each is a message to its recipients.',
  },
  maxSeatsPerPlayer: {
    value: 4,
    unit: 'seats',
    topic: 'rooms',
    of: "seats of a player in a room with `sameSub: 'allow'`",
    effect: 'a join gets the seat of a disconnected client. If all are connected: `too_many_rooms`',
    metric: 'service_room_limits_reached_total{limit="seats"}',
    why: 'A few devices and tabs, and not a full room.',
  },
  maxUnackedBytes: {
    value: 262_144,
    unit: 'bytes',
    topic: 'messages',
    of: 'bytes of unacknowledged messages of a member',
    effect: '`room_unavailable`',
    metric: 'service_unacked_refused_total',
    why: 'Equal to the default of the SDK.',
  },
  maxUnackedMessages: {
    value: 1024,
    unit: 'messages',
    topic: 'messages',
    of: 'unacknowledged messages of a member',
    effect: '`room_unavailable`. Above 1,024 unconfirmed refusals, the oldest is dropped',
    metric: 'service_unacked_refused_total',
    why: 'Equal to the default of the SDK, which therefore never reaches it.',
  },
  maxWatchesPerSession: {
    value: 4,
    unit: 'lists',
    topic: 'lists',
    of: 'lists that one session watches',
    effect: '`too_many_rooms`',
    metric: 'service_directory_watchers',
    why: 'Each change of a list is sent to each of its watchers, within listBytesPerSecondPerPlayer.',
  },
  outboxHighWaterBytes: {
    value: 262_144,
    unit: 'bytes',
    topic: 'messages',
    of: 'queued bytes for a slow client',
    effect: 'the client gets no patches. When it reads again, it gets a snapshot',
    metric: 'service_outbox_bytes',
    why: 'A fourth of outboxLimitBytes.',
  },
  outboxLimitBytes: {
    value: 1_048_576,
    unit: 'bytes',
    topic: 'messages',
    of: 'queued bytes for a client',
    effect: '4103',
    metric: 'service_closes_total{name="slow_consumer"}',
    why: '20,000 clients at this limit take 20 GiB, so most clients must stay far below it.',
  },
  playerPointsPerSecond: {
    value: 1000,
    unit: 'points/s',
    topic: 'messages',
    of: 'points of a player at a node',
    effect: 'see [budgets](#budgets-of-a-player)',
    metric: 'service_rate_limited_total{by="hello"}',
    why: 'Budgets for requests, with three seconds saved up, and for states, with eight.',
  },
  roomQuarantineTtl: {
    value: 259_200,
    unit: 'seconds',
    topic: 'rooms',
    of: 'quarantine of [an unreadable record](runbooks.md#a-room-was-put-in-quarantine)',
    effect: 'the record expires',
    metric: 'service_rooms_quarantined_total',
    why: 'An operator can look at it after a weekend.',
  },
} as const satisfies Record<string, Limit>

/** Values of the limits of a node. */
export type NodeLimits = Readonly<Record<keyof typeof LIMITS, number>>

/** Returns the limits of a node, each with its value. */
export const nodeLimits = (): NodeLimits =>
  Object.fromEntries(
    Object.entries(LIMITS).map(([name, { value }]) => [name, value]),
  ) as unknown as NodeLimits
