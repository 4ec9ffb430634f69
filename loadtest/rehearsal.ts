import { NO_VALUES } from './percentiles.ts'
import type { Timing } from './result.ts'
import type { Crowd, LocalService, Scenario, Stage } from './scenario.ts'

/** What a run is going to be. */
export interface Prospect {
  /** How long it should take in all. */
  readonly seconds: number
  /** How many clients there will be at its end, spectators among them. */
  readonly clients: number
  /** What it is going to time. */
  readonly timings: ReadonlySet<Timing>
  /** Whether it revokes a key. */
  readonly revokes: boolean
}

const nothing = async (): Promise<void> => undefined

/** Plays a scenario through with nobody there. `nodes`: of the service. */
export async function rehearse(
  scenario: Scenario,
  values: Readonly<Record<string, number | string>>,
  nodes: readonly string[],
): Promise<Prospect> {
  let [seconds, clients, revokes] = [0, 0, false]
  const timings = new Set<Timing>(['connect', 'join', 'rtt'])
  const cut = async (): Promise<void> => {
    timings.add('resume')
  }
  const come = async ({ count }: { readonly count: number }): Promise<void> => {
    clients += count
  }
  const extras: Crowd = {
    connect: come,
    watch: come,
    join: nothing,
    play: nothing,
    start: nothing,
    stop: nothing,
    churn: nothing,
    cut,
    stall: async () => 0,
    markPauses: nothing,
    takePauses: async () => {
      timings.add('pause')
    },
    settle: nothing,
    underKey: async () => {
      revokes = true
      return { revoke: nothing }
    },
    awaitRevoked: async () => [],
  }
  const local: LocalService = { nodes, restart: cut, kill: cut, start: nothing }
  const stage: Stage = {
    number: (option) => Number(values[option]),
    text: (option) => String(values[option]),
    crowd: extras,
    local,
    phase: (_name, expected, work) => {
      seconds += expected
      return work()
    },
    incident: () => undefined,
    figure: () => undefined,
    check: () => undefined,
    timed: () => NO_VALUES,
    pass: nothing,
  }
  await scenario.run(stage)
  return { seconds, clients, timings, revokes }
}
