import type { Settings } from './servers/served.ts'

/** What is measured. */
export interface Scenario {
  readonly name: string
  readonly meaning: string
  /** What the CPU time of the server is divided by. */
  readonly per: 'update' | 'input' | 'flush'
  readonly clients: number
  readonly perRoom: number
  /** Inputs per second and client. */
  readonly inputs: number
  readonly tick: Settings['tick']
  readonly entities: number
  /** Inputs that change nothing. */
  readonly nudges: boolean
  /** For this project alone: every move is acknowledged; states are a journal in Redis. */
  readonly reliable: boolean
  readonly journal: boolean
}

const arena: Omit<Scenario, 'name' | 'meaning'> = {
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

/** Every room flushes at 20 Hz; coordinates are rounded to 0.01 in an area of 1,000 × 1,000. */
export const SCENARIOS: readonly Scenario[] = [
  { ...arena, name: 'arena-500', meaning: '500 clients, 20 rooms × 25, 10 moves/s each', clients: 500 },
  { ...arena, name: 'arena', meaning: '1,000 clients, 40 rooms × 25, 10 moves/s each' },
  { ...arena, name: 'arena-2000', meaning: '2,000 clients, 80 rooms × 25, 10 moves/s each', clients: 2_000 },
  {
    ...arena,
    name: 'tick',
    meaning: 'arena without inputs: the server moves every player each tick',
    inputs: 0,
    tick: 'players',
  },
  { ...arena, name: 'refs', meaning: 'arena, every move acknowledged', reliable: true },
  { ...arena, name: 'journal', meaning: 'arena, each flush committed to Redis first', journal: true },
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
]
