/** A kind of load. */
export interface Scenario {
  readonly name: string
  readonly meaning: string
  /**
   * `play` measures a window of load. So does `lobby`, whose rooms have 4 seats, and a row in a list that changes once a second. It also
   * measures players who search a room. `memory` measures the memory of each client of the second half, while all play. `joins` measures
   * clients that open rooms and fill them, and `arrivals` clients that join the rooms of others. `starved` measures a window in which
   * spinning processes use the core of the server, and the time until the rooms have all their updates again. `resumes` cuts all clients at
   * one moment, and lets them resume. `capacity` finds the largest load, up to `clients`.
   */
  readonly kind:
    | 'play'
    | 'memory'
    | 'lobby'
    | 'joins'
    | 'arrivals'
    | 'resumes'
    | 'stalled'
    | 'starved'
    | 'capacity'
  /** Divisor of the CPU time of the server. */
  readonly per: 'update' | 'input' | 'flush' | 'join' | 'resume' | 'client and second' | 'room and second'
  readonly clients: number
  readonly perRoom: number
  /** Inputs per second and client. */
  readonly inputs: number
  readonly reliable: boolean
  /** True: inputs change nothing, and are MessagePack. */
  readonly nudges: boolean
  /** Moves at 20 Hz without inputs: none, all players, all entities, one entity along x, or for roomful a secret of each player. */
  readonly tick: 'none' | 'players' | 'entities' | 'entity' | 'secrets'
  /** For roomful: each secret is in a layer of its player. */
  readonly hidden?: true
  /** Number of entities in the state of each room, in addition to its players. */
  readonly entities: number
  /** For roomful: each flush is committed to Redis before it is sent. */
  readonly journal: boolean
  /** Number of nodes with one Redis, a process each. Clients choose one at random. Absent: one node without Redis. */
  readonly nodes?: number
  /** Nodes have separate addresses, and clients move to the node of their room. */
  readonly direct?: true
  /** Number of clients that arrive later. Absent: none. */
  readonly arrivals?: number
  /** They watch. Default: they play. */
  readonly watch?: true
  /** For features that only this project has: the scenarios to compare with, instead of other servers. */
  readonly against?: readonly Scenario[]
}

const arena: Scenario = {
  name: 'arena',
  meaning: '1,000 clients, 40 rooms × 25, 10 moves/s each',
  kind: 'play',
  per: 'update',
  clients: 1_000,
  perRoom: 25,
  inputs: 10,
  tick: 'none',
  entities: 0,
  nudges: false,
  reliable: false,
  journal: false,
}
/** Returns a scenario like `arena` with some changes. */
const like = (name: string, meaning: string, changes: Partial<Scenario>): Scenario => ({
  ...arena,
  name,
  meaning,
  ...changes,
})

/** Members of a room are at random nodes, or with `direct` at the node of the room. */
const spread = (nodes: number, direct?: true): Scenario =>
  like(
    `${direct ? 'direct' : 'nodes'}-${nodes}`,
    '12 rooms × 20, 5 moves/s each, members spread over the nodes of one Redis at random, or direct',
    { clients: 240, perRoom: 20, inputs: 5, nodes, ...(direct && { direct }) },
  )
/** A larger load, of which the fixed cost of a node is a small part. */
const scale = (nodes: number, direct?: true): Scenario => ({
  ...spread(nodes, direct),
  name: `scale-${nodes}-${direct ? 'direct' : 'bus'}`,
  meaning: '2,000 clients, 100 rooms × 20, 5 moves/s each, over 1 to 8 nodes, by the bus and direct',
  clients: 2_000,
})

/** Every player's secret moves, and all see it. */
const open: Scenario = like('open', '1,000 clients, 40 rooms × 25, a secret of each player moves each tick', {
  inputs: 0,
  tick: 'secrets',
})
const memory = like('memory', 'arena with 1,000 clients, and then 1,000 more', {
  kind: 'memory',
  clients: 2_000,
})
const joins = like('joins', '2,000 clients connect and join, 128 at a time, rooms of 25', {
  kind: 'joins',
  per: 'join',
  clients: 2_000,
  inputs: 0,
})
const resumes: Scenario = {
  ...joins,
  name: 'resumes',
  meaning: '2,000 clients in rooms of 25 are cut at one moment, and resume',
  kind: 'resumes',
  per: 'resume',
}

/** Clients that join existing rooms. */
const arrivals: Scenario = like('players', '1,500 clients join 500 rooms of 4, in which one plays', {
  kind: 'arrivals',
  per: 'join',
  clients: 500,
  perRoom: 1,
  inputs: 0,
  arrivals: 1_500,
})

/** Every room flushes at 20 Hz. Coordinates are rounded to 0.01 in an area of 1,000 × 1,000. */
export const SCENARIOS: readonly Scenario[] = [
  like('arena-500', '500 clients, 20 rooms × 25, 10 moves/s each', { clients: 500 }),
  arena,
  like('arena-2000', '2,000 clients, 80 rooms × 25, 10 moves/s each', { clients: 2_000 }),
  like('tick', 'arena without inputs: the server moves every player each tick', {
    inputs: 0,
    tick: 'players',
  }),
  {
    ...open,
    name: 'layers',
    meaning: `${open.meaning}, hidden in a layer of its own or open`,
    hidden: true,
    against: [open],
  },
  like('refs', 'arena, every move acknowledged', { reliable: true, against: [arena] }),
  like('journal', 'arena, each flush committed to Redis first', { journal: true, against: [arena] }),
  { ...spread(4), against: [spread(1), spread(2), spread(2, true), spread(4, true)] },
  {
    ...scale(8, true),
    against: [scale(1), scale(2), scale(4), scale(8), scale(2, true), scale(4, true)],
  },
  like('room-200', 'one room of 200, 10 moves/s each', { clients: 200, perRoom: 200 }),
  like('room-2000', 'one room of 2,000, 1 move/s each', { clients: 2_000, perRoom: 2_000, inputs: 1 }),
  ...[100, 1_000, 10_000].map((entities) =>
    like(
      `entities-${entities}`,
      `one field changes per tick in a state of ${entities.toLocaleString('en')} entities; 10 rooms × 2`,
      { per: 'flush', clients: 20, perRoom: 2, inputs: 0, tick: 'entity', entities },
    ),
  ),
  like('inputs', '20,000 inputs/s that change nothing, from 1,000 clients', {
    per: 'input',
    inputs: 20,
    nudges: true,
  }),
  joins,
  { ...resumes, against: [joins] },
  {
    ...resumes,
    name: 'resumes-journal',
    meaning: `${resumes.meaning}, with a journal`,
    journal: true,
    against: [{ ...joins, name: 'joins-journal', journal: true }],
  },
  {
    ...arrivals,
    name: 'spectators',
    meaning:
      '1,500 spectators join one room with 4 players; for comparison, 500 rooms of 4 get 3 players each',
    clients: 4,
    perRoom: 4,
    watch: true,
    against: [arrivals],
  },
  like('idle', '5,000 connections in rooms of 50, where nothing happens', {
    per: 'client and second',
    clients: 5_000,
    perRoom: 50,
    inputs: 0,
  }),
  memory,
  {
    ...memory,
    name: 'memory-journal',
    meaning: `${memory.meaning}, with a journal`,
    journal: true,
    against: [memory],
  },
  {
    ...open,
    ...{ name: 'memory-layers', kind: 'memory', clients: 2_000, hidden: true },
    meaning: 'layers with 1,000 clients, and then 1,000 more',
    against: [{ ...open, name: 'memory-open', kind: 'memory', clients: 2_000 }],
  },
  like('memory-idle', '1,000 connections in rooms of 50, where nothing happens, and then 1,000 more', {
    kind: 'memory',
    clients: 2_000,
    perRoom: 50,
    inputs: 0,
  }),
  like('lobby', '1,000 listed rooms whose rows change each second, 20 watchers, then 500 × joinOrCreate', {
    kind: 'lobby',
    per: 'room and second',
    perRoom: 1,
    inputs: 0,
  }),
  like('stalled', '4 of 20 clients read nothing for 10 s, while each tick moves 4,000 entities', {
    kind: 'stalled',
    clients: 20,
    perRoom: 20,
    inputs: 0,
    tick: 'entities',
    entities: 4_000,
  }),
  like('starved', 'arena, while three spinning processes use the core of the server', { kind: 'starved' }),
  like(
    'capacity',
    'the most clients of arena with p99 < 150 ms and ≥ 97% delivered, and what twice as many get',
    { kind: 'capacity', clients: 10_000 },
  ),
]

/** True if the nodes of a scenario need a Redis. */
export const needsRedis = ({ journal, nodes }: Scenario): boolean => journal || nodes !== undefined
