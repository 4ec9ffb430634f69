import type { Answers, CallClients } from './clients/calls.ts'
import type { Clients } from './clients/clients.ts'
import { type LobbyClients, ROOMS_PER_CLIENT } from './clients/lobby.ts'
import type { MatchmakingClients } from './clients/matchmaking.ts'
import type { Visitors } from './clients/visitors.ts'
import type { LocalService, LocalSettings } from './local.ts'
import type { Options, Values } from './option-kinds.ts'
import { ProxyChain, type ProxyKind } from './proxy/chain.ts'
import { type Check, type Figure, NO_VALUES, type Percentiles, type Timing } from './result.ts'

/** A kind of load. Its file in scenarios/ reads from top to bottom in the order of events. */
export interface Scenario<O extends Options = Options> {
  /** Its name on the command line: `connect-storm`. */
  readonly name: string
  /** One sentence. */
  readonly meaning: string
  readonly options: O
  /** `local`: it ends or inspects processes, and runs only against those it has started (`--local`). */
  readonly service: 'any' | 'local'
  readonly local?: LocalSettings
  /** Default of `--runs`; absent: it takes no `--runs`. */
  readonly runs?: number

  run(ctx: RunContext, values: Values<O>): Promise<void>
}

/** A scenario whose `run` knows the types of its options. */
export const defineScenario = <O extends Options>(scenario: Scenario<O>): Scenario => scenario

/** Everything that a scenario uses. Every promise rejects when the run is interrupted. */
export interface RunContext {
  /** Number of repetitions of a measurement. */
  readonly runs: number
  readonly roomType: string
  readonly clients: Clients
  /** Players who find rooms of the type `load-lobby`. */
  readonly lobby: LobbyClients
  /** Backends that call rooms of the type `load-calls`, and players in them. */
  readonly calls: CallClients
  /** Players of a project who connect and leave again. */
  readonly visitors: Visitors
  /** Starts two bare proxies and a server behind them. */
  proxies(kind: ProxyKind): Promise<ProxyChain>
  /** Players who queue in `load-queue`. */
  readonly matchmaking: MatchmakingClients
  /** The processes of the service. Throws without `--local`. */
  readonly local: LocalService
  /** Runs one phase, which appears in the report and the live view. `seconds`: expected duration. */
  phase<T>(name: string, seconds: number, work: () => Promise<T>): Promise<T>
  /** Records an event. */
  incident(text: string): void
  /** Adds a figure to the report. */
  figure(figure: Pick<Figure, 'name' | 'value' | 'unit' | 'goal'>): void
  /** Adds a figure that was measured several times. */
  samples(figure: Pick<Figure, 'name' | 'unit' | 'goal'> & { readonly values: readonly number[] }): void
  /** Adds a promise of the service that the scenario has checked. */
  check(check: Check): void
  /** The values of a timing in a phase. */
  timed(timing: Timing, phase: string): Percentiles
  /** Waits. */
  pass(seconds: number): Promise<void>
}

/** What a run is going to do. */
export interface RunPlan {
  /** Expected duration. */
  readonly seconds: number
  /** Number of clients at its end, spectators included. */
  readonly clients: number
  readonly timings: ReadonlySet<Timing>
  /** Whether it revokes a key. */
  readonly revokes: boolean
}

const NO_ANSWERS: Answers = { sent: 0, times: [], failed: [] }

/** Plays a scenario through without clients and service. */
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
  const add = async ({ count }: { readonly count: number }): Promise<void> => {
    clients += count
  }
  const stub = <T extends object>(known: Record<string, unknown>): T =>
    new Proxy({} as T, { get: (_, name) => known[String(name)] ?? nothing })
  const ends = times('resume')
  const ctx: RunContext = {
    runs,
    roomType: '',
    clients: stub({
      connect: add,
      watch: add,
      cut: ends,
      stall: async () => 0,
      takePauses: times('pause'),
      underKey: async () => {
        revokes = true
        return { revoke: nothing }
      },
      awaitRevoked: async () => [],
    }),
    lobby: stub({
      open: ({ rooms }: { rooms: number }) => add({ count: Math.ceil(rooms / ROOMS_PER_CLIENT) }),
      watch: add,
      burst: async (options: { count: number }) => add(options).then(() => 0),
      count: async () => 0,
      findings: { lists: 0, ghosts: [], refused: [] },
    }),
    calls: stub({
      open: ({ projects, rooms }: { projects: number; rooms: number }) => add({ count: projects * rooms }),
      call: async () => NO_ANSWERS,
      callAt: async () => NO_ANSWERS,
      request: async () => NO_ANSWERS,
      totals: async () => ({ calls: [], requests: [] }),
    }),
    visitors: stub({
      open: ({ perSecond }: { perSecond: number }) => add({ count: perSecond }),
      refusal: async () => 'banned',
    }),
    proxies: async () => new ProxyChain('', []),
    matchmaking: stub({
      connect: add,
      pairs: (options: { count: number }) => add({ count: 2 * options.count }).then(() => []),
      partners: (options: { count: number }) => add(options).then(() => []),
      waiting: 0,
      informed: 1,
      findings: { matched: [], lost: [] },
    }),
    local: stub({
      nodes,
      controls: ['control-1'],
      restart: ends,
      end: ends,
      process: () => stub({ kill: ends }),
      ownerOf: async () => nodes[0],
      metric: async () => 0,
      buckets: async () => new Map(),
      memory: async () => ({ used: 0, rss: 0 }),
      redisInfo: async () => new Map(),
    }),
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
