import type { Clock } from '../shared/clock.ts'
import type { Issuer } from './issuer.ts'
import type { LocalService, LocalSettings } from './local.ts'
import type { Options, Values } from './option-kinds.ts'
import type { SdkClients } from './players/sdk.ts'
import type { Everywhere } from './players/worker.ts'
import { type Check, type Figure, NO_VALUES, type Percentiles, type Timing } from './result.ts'

/** A kind of load. Its `run` lists the events in their order. */
export interface Scenario<O extends Options = Options> {
  /** Its name on the command line: `connect-storm`. */
  readonly name: string
  /** One sentence. */
  readonly meaning: string
  readonly options: O
  /** Timings in addition to `connect`, `join` and `rtt`. */
  readonly timings?: readonly Timing[]
  /** True: it revokes a key. */
  readonly revokes?: true
  /** True: it ends or inspects processes, and runs only against those that it has started (`--local`). */
  readonly local?: LocalSettings
  /** Default of `--runs`. Absent: it has no `--runs`. */
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
  readonly clock: Clock
  readonly issuer: Issuer
  /** Players and spectators in threads, whose traffic is counted and checked. */
  readonly clients: Everywhere
  /** Players and backends that use the SDK in the main thread. */
  readonly sdk: SdkClients
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
  /** Returns the values of a timing in a phase. */
  timed(timing: Timing, phase: string): Percentiles
  /** Waits. */
  pass(seconds: number): Promise<void>
}

/** Plan of a run. */
export interface RunPlan {
  /** Expected duration. */
  readonly seconds: number
  /** Number of clients at its end, spectators included. */
  readonly clients: number
}

/** Runs a scenario without clients and service. */
export async function dryRun(
  scenario: Scenario,
  values: Values<Options>,
  runs: number,
  nodes: readonly string[],
): Promise<RunPlan> {
  let [seconds, clients] = [0, 0]
  const arrive = <T>(count: number, result: T): T => {
    clients += count
    return result
  }
  const known = <T extends object>(properties: Record<string, unknown>): T =>
    new Proxy({} as T, { get: (_, name) => properties[String(name)] ?? ANYTHING })
  const come = ({ count }: { readonly count: number }) => arrive(count, ANYTHING)
  const ctx: Partial<RunContext> = {
    runs,
    roomType: '',
    clients: known({ connect: come, idle: come, watch: come }),
    sdk: known({ connect: ({ length }: readonly unknown[]) => arrive(length, []) }),
    local: known({ nodes }),
    phase: async <T>(_name: string, expected: number, work: () => Promise<T>) => {
      seconds += expected
      return work()
    },
    timed: () => NO_VALUES,
  }
  await scenario.run(known(ctx), values)
  return { seconds, clients }
}

/** Replaces each function and each value in a dry run. Its calls and properties return itself. It is an empty list, and counts as 0. */
const ANYTHING: unknown = new Proxy(() => ANYTHING, {
  get(_, name) {
    if (name === 'then') return undefined
    if (name === Symbol.iterator) return () => [][Symbol.iterator]()
    if (name === Symbol.toPrimitive) return () => 0
    return ANYTHING
  },
})
