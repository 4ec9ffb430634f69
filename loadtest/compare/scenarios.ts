import type { Settings } from './servers/served.ts'

/** What is measured. */
export interface Scenario {
  readonly name: string
  readonly meaning: string
  /** How it is measured: `play` is a window of load, `capacity` looks for the most clients that a server carries of those in `clients`. */
  readonly kind: 'play' | 'joins' | 'stalled' | 'capacity'
  /** What the CPU time of the server is divided by. */
  readonly per: 'update' | 'input' | 'flush' | 'join' | 'client and second'
  readonly clients: number
  readonly perRoom: number
  /** Inputs per second and client. */
  readonly inputs: number
  readonly tick: Settings['tick']
  readonly entities: number
  /** Inputs that change nothing. */
  readonly nudges: boolean
  readonly reliable: boolean
  /** Every flush is committed to Redis before it goes out. */
  readonly journal: boolean
  /** So many nodes of one Redis, a process each, with the clients spread over them at random; absent: one that needs none. */
  readonly nodes?: number
  /** The nodes have addresses of their own, and clients go where they are told that their room is. */
  readonly direct?: true
  /** Of what this project alone can do: what it is measured beside, instead of the other servers. */
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

const spread = (nodes: number): Scenario => ({
  ...arena,
  name: `nodes-${nodes}`,
  meaning: '12 rooms × 20, 5 moves/s each, members spread over the nodes of one Redis at random',
  clients: 240,
  perRoom: 20,
  inputs: 5,
  nodes,
})

const direct = (nodes: number): Scenario => ({
  ...spread(nodes),
  name: `direct-${nodes}`,
  meaning: 'the same, and each client goes to the node of its room when it is told',
  direct: true,
})

/** So much that what nodes cost by themselves is little of it. */
const scale = (nodes: number, way?: 'direct'): Scenario => ({
  ...(way ? direct : spread)(nodes),
  name: nodes === 1 ? 'scale-1' : `scale-${nodes}-${way ?? 'bus'}`,
  meaning: '2,000 clients, 100 rooms × 20, 5 moves/s each, over 1 to 8 nodes, by the bus and direct',
  clients: 2_000,
})

/** Every room flushes at 20 Hz; coordinates are rounded to 0.01 in an area of 1,000 × 1,000. */
export const SCENARIOS: readonly Scenario[] = [
  { ...arena, name: 'arena-500', meaning: '500 clients, 20 rooms × 25, 10 moves/s each', clients: 500 },
  arena,
  { ...arena, name: 'arena-2000', meaning: '2,000 clients, 80 rooms × 25, 10 moves/s each', clients: 2_000 },
  {
    ...arena,
    name: 'tick',
    meaning: 'arena without inputs: the server moves every player each tick',
    inputs: 0,
    tick: 'players',
  },
  { ...arena, name: 'refs', meaning: 'arena, every move acknowledged', reliable: true, against: [arena] },
  {
    ...arena,
    name: 'journal',
    meaning: 'arena, each flush committed to Redis first',
    journal: true,
    against: [arena],
  },
  { ...spread(4), against: [spread(1), spread(2), direct(2), direct(4)] },
  {
    ...scale(8, 'direct'),
    against: [
      scale(1),
      ...[2, 4, 8].map((nodes) => scale(nodes)),
      ...[2, 4].map((nodes) => scale(nodes, 'direct')),
    ],
  },
  { ...arena, name: 'room-200', meaning: 'one room of 200, 10 moves/s each', clients: 200, perRoom: 200 },
  {
    ...arena,
    name: 'room-2000',
    meaning: 'one room of 2,000, 1 move/s each',
    clients: 2_000,
    perRoom: 2_000,
    inputs: 1,
  },
  ...[100, 1_000, 10_000].map(
    (entities): Scenario => ({
      ...arena,
      name: `entities-${entities}`,
      meaning: `one field changes per tick in a state of ${entities.toLocaleString('en')} entities; 10 rooms × 2`,
      per: 'flush',
      clients: 20,
      perRoom: 2,
      inputs: 0,
      tick: 'entity',
      entities,
    }),
  ),
  {
    ...arena,
    name: 'inputs',
    meaning: '20,000 inputs/s that change nothing, from 1,000 clients',
    per: 'input',
    inputs: 20,
    nudges: true,
  },
  {
    ...arena,
    name: 'joins',
    meaning: '2,000 clients connect and join, 128 at once, rooms of 25',
    kind: 'joins',
    per: 'join',
    clients: 2_000,
    inputs: 0,
  },
  {
    ...arena,
    name: 'idle',
    meaning: '5,000 connections in rooms of 50, where nothing happens',
    per: 'client and second',
    clients: 5_000,
    perRoom: 50,
    inputs: 0,
  },
  {
    ...arena,
    name: 'stalled',
    meaning: '4 of 20 clients read nothing for 10 s, while each tick moves 4,000 entities',
    kind: 'stalled',
    clients: 20,
    perRoom: 20,
    inputs: 0,
    tick: 'entities',
    entities: 4_000,
  },
  {
    ...arena,
    name: 'capacity',
    meaning: 'the most clients of arena with p99 < 150 ms and ≥ 97% delivered, and what twice as many get',
    kind: 'capacity',
    clients: 10_000,
  },
]

/** Whether its nodes need a Redis. */
export const needsRedis = ({ journal, nodes }: Scenario): boolean => journal || nodes !== undefined
