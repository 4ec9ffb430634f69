import type { Clients } from './clients/clients.ts'
import type { LocalService, LocalSettings } from './local.ts'
import type { Options, Values } from './option-kinds.ts'
import { type Check, type Figure, NO_VALUES, type Percentiles, type Timing } from './result.ts'

/** One kind of load. Each is one file in scenarios/, which reads from top to bottom as what happens. */
export interface Scenario<O extends Options = Options> {
  /** As it is typed: `connect-storm`. */
  readonly name: string
  /** One sentence. */
  readonly meaning: string
  /** Its own options besides those of every scenario. */
  readonly options: O
  /**
   * `any`: whatever service it is pointed at. `local`: it does something to the processes of the service, or reads more of them than
   * their metrics, which only works with those it started (`--local`).
   */
  readonly service: 'any' | 'local'
  /** How the service of `--local` is to be otherwise. */
  readonly local?: LocalSettings
  /** How often `--runs` has it done where nothing else is said; absent: it takes no `--runs`. */
  readonly runs?: number
  /** `values`: of its options, given or default. */
  run(ctx: RunContext, values: Values<O>): Promise<void>
}

/** A scenario whose `run` knows the types of its options. */
export const defineScenario = <O extends Options>(scenario: Scenario<O>): Scenario => scenario

/** What a scenario acts with. Every promise rejects when the run is interrupted. */
export interface RunContext {
  /** How often a scenario with `runs` is to do what it measures. */
  readonly runs: number
  /** Of all rooms of the run. */
  readonly roomType: string
  /** The clients, over all threads. */
  readonly clients: Clients
  /** The processes of the service, with `--local`. Throws without. */
  readonly local: LocalService
  /** Fires when the run is interrupted. */
  readonly signal: AbortSignal
  /** Runs one phase; the report shows when it was, and the live view how far it is. `seconds`: how long it is expected to take. */
  phase<T>(name: string, seconds: number, work: () => Promise<T>): Promise<T>
  /** Records that something happened. */
  incident(text: string): void
  /** Adds a figure to the report. */
  figure(figure: Pick<Figure, 'name' | 'value' | 'unit' | 'goal'>): void
  /** Adds a figure that was measured several times: its value is the median. */
  samples(figure: Pick<Figure, 'name' | 'unit' | 'goal'> & { readonly values: readonly number[] }): void
  /** Adds a promise of the service that the scenario itself has checked. */
  check(check: Check): void
  /** What was timed in the phase of this name, up to now when it has not ended. */
  timed(timing: Timing, phase: string): Percentiles
  /** Waits. */
  pass(seconds: number): Promise<void>
}

/** What a run is going to be. */
export interface RunPlan {
  /** How long it should take in all. */
  readonly seconds: number
  /** How many clients there will be at its end, spectators among them. */
  readonly clients: number
  /** What it is going to time. */
  readonly timings: ReadonlySet<Timing>
  /** Whether it revokes a key. */
  readonly revokes: boolean
}

/** Plays a scenario through with no clients and no service. `nodes`: of the service. */
export async function dryRun(
  scenario: Scenario,
  values: Values<Options>,
  runs: number,
  nodes: readonly string[],
): Promise<RunPlan> {
  let [seconds, clients, revokes] = [0, 0, false]
  const timings = new Set<Timing>(['connect', 'join', 'rtt'])
  const nothing = async (): Promise<void> => undefined
  const times = (timing: Timing) => async () => {
    timings.add(timing)
    return []
  }
  const come = async ({ count }: { readonly count: number }): Promise<void> => {
    clients += count
  }
  const known: Record<string, unknown> = {
    connect: come,
    watch: come,
    cut: times('resume'),
    stall: async () => 0,
    takePauses: times('pause'),
    underKey: async () => {
      revokes = true
      return { revoke: nothing }
    },
    awaitRevoked: async () => [],
  }
  const stub = <T extends object>(known: Record<string, unknown>): T =>
    new Proxy({} as T, { get: (_, name) => known[String(name)] ?? nothing })
  const ends = times('resume')
  const ctx: RunContext = {
    runs,
    roomType: '',
    clients: stub(known),
    local: stub({
      nodes,
      restart: ends,
      end: ends,
      process: () => stub({ kill: ends }),
      ownerOf: async () => nodes[0],
      metric: async () => 0,
      memory: async () => ({ used: 0, rss: 0 }),
      redisInfo: async () => new Map(),
    }),
    signal: new AbortController().signal,
    phase: async <T>(_name: string, expected: number, work: () => Promise<T>) => {
      seconds += expected
      return work()
    },
    incident: () => undefined,
    figure: () => undefined,
    samples: () => undefined,
    check: () => undefined,
    timed: () => NO_VALUES,
    pass: nothing,
  }
  await scenario.run(ctx, values)
  return { seconds, clients, timings, revokes }
}
