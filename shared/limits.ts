/** A bound without an environment variable. */
interface Limit {
  readonly value: number
  readonly unit: string
  /** Purpose of the bound, and why the value is enough. */
  readonly why: string
}

/**
 * Bounds that an operator does not need to configure. They are also options of `startNode`. docs/limits.md describes the effect of each
 * bound.
 */
export const LIMITS = {
  connectionsPerSecondPerAddress: {
    value: 50,
    unit: 'connections',
    why: 'Websockets that an address (of IPv6: a network of 64 bits) opens at a node. A burst of ten times as many passes, so that a school or an office reconnects together.',
  },
  listBytesPerSecondPerPlayer: {
    value: 65_536,
    unit: 'bytes',
    why: 'Lists of rooms that a player gets from a node, with two seconds saved up. A list of 20 rooms each second is a tenth of it. Above it, lists come later.',
  },
  listBytesPerSecondPerToken: {
    value: 2_000_000,
    unit: 'bytes',
    why: 'The same for all clients of one token without sub that come from one address: without it, each of their sessions counts as a player. A tenth of a second is saved up.',
  },
  maxEventBytes: {
    value: 262_144,
    unit: 'bytes',
    why: 'An event that room code emits: its name, its data and the ids of its recipients, as MessagePack. A member has the same bound for queued data before patches are left out.',
  },
  maxGuestSeats: {
    value: 64,
    unit: 'seats',
    why: 'Seats at a node, in all rooms, of clients that share a token without sub and an address. Enough for a family or a small office; a larger place gives each player a sub.',
  },
  maxGuestSeatsPerRoomType: {
    value: 16,
    unit: 'seats',
    why: 'The same in the rooms of one room type.',
  },
  maxHistoryBytes: {
    value: 268_435_456,
    unit: 'bytes',
    why: 'Past updates of all rooms of a node, for members that resume. A quarter of a heap of 1 GiB; a resume that finds no update gets the full state.',
  },
  maxKeyLookups: {
    value: 256,
    unit: 'keys',
    why: 'API keys that a node does not know yet and asks control about, queued ones included. Tokens with made-up key ids must not fill the memory.',
  },
  maxPendingConnections: {
    value: 2000,
    unit: 'connections',
    why: 'Connections of a node without a session. Enough for all players of a node that reconnect within seconds. 0: no limit.',
  },
  maxPendingConnectionsPerAddress: {
    value: 200,
    unit: 'connections',
    why: 'The same for each address, so that one address does not take the places of all others. 0: no limit.',
  },
  maxRoomBacklog: {
    value: 1000,
    unit: 'messages',
    why: 'Messages that wait for a room that cannot act, for example while Redis is unreachable: some seconds of a busy room. Ten times as many joins, resumes and leaves.',
  },
  maxRoomTasks: {
    value: 100,
    unit: 'tasks',
    why: 'Unfinished tasks of a room. Each is part of the record of the room and usually holds a connection to another service.',
  },
  maxRoomTimers: {
    value: 1000,
    unit: 'timers',
    why: 'Timers of a room. Each is part of the record of the room.',
  },
  maxRowsPerQuery: {
    value: 10_000,
    unit: 'rooms',
    why: 'Listed rooms that a query looks at before it stops: as many as a project may have by default, so that only larger lists reach it.',
  },
  maxRoomsPerSession: {
    value: 16,
    unit: 'rooms',
    why: 'Rooms of a session. The session record lists them, and a resume asks each owner.',
  },
  maxTurnEventBytes: {
    value: 1_048_576,
    unit: 'bytes',
    why: 'All events of one turn. A node then encodes and sends them within some milliseconds. Equal to outboxLimitBytes: above it, each member would be disconnected.',
  },
  maxTurnEvents: {
    value: 10_000,
    unit: 'events',
    why: 'The number of these events. Each is a message to its recipients.',
  },
  maxSeatsPerPlayer: {
    value: 4,
    unit: 'seats',
    why: 'Seats of one player (sub) in a room with sameSub allow: a few devices and tabs, and not a full room.',
  },
  maxUnackedBytes: {
    value: 262_144,
    unit: 'bytes',
    why: 'The same in bytes. A single message always fits. Equal to the default of the SDK.',
  },
  maxUnackedMessages: {
    value: 1024,
    unit: 'messages',
    why: 'Reliable messages of a member without ack, and rejected messages that its client has not confirmed. Equal to the default of the SDK, which therefore never reaches it.',
  },
  maxWatchesPerSession: {
    value: 4,
    unit: 'lists',
    why: 'Lists of rooms that a session watches. Each change of a list is sent to each of its watchers, within listBytesPerSecondPerPlayer.',
  },
  outboxHighWaterBytes: {
    value: 262_144,
    unit: 'bytes',
    why: 'Bytes queued for a client from which on it gets no patches, but one full state when it reads again. A fourth of outboxLimitBytes.',
  },
  outboxLimitBytes: {
    value: 1_048_576,
    unit: 'bytes',
    why: 'Bytes queued for a client above which its connection is closed. 20,000 clients at this bound take 20 GiB, so most clients must stay far below it.',
  },
  playerPointsPerSecond: {
    value: 1000,
    unit: 'points',
    why: 'The budgets of a player at a node: for requests, with three seconds saved up, and for states, with eight. A hello, a join, a list and a search cost 100 each, a query 4 more for each 1,000 rooms that it looks at and each condition, a message 2, and 4 KiB of a full state or of missed updates 1.',
  },
  roomQuarantineTtl: {
    value: 259_200,
    unit: 'seconds',
    why: 'Time for which the store keeps the record of a quarantined room: three days, so that an operator can look at it after a weekend.',
  },
} as const satisfies Record<string, Limit>

/** Values of the limits of a node. */
export type NodeLimits = Readonly<Record<keyof typeof LIMITS, number>>

/** Returns the limits of a node, each with its value. */
export const nodeLimits = (): NodeLimits =>
  Object.fromEntries(
    Object.entries(LIMITS).map(([name, { value }]) => [name, value]),
  ) as unknown as NodeLimits
