import { NO_VALUES } from './percentiles.ts'
import type { Crowd, LocalService, Scenario, Stage } from './scenario.ts'

const nothing = async (): Promise<void> => undefined

const EXTRAS: Crowd = {
  connect: nothing,
  watch: nothing,
  join: nothing,
  play: nothing,
  start: nothing,
  stop: nothing,
  churn: nothing,
  cut: nothing,
  stall: async () => 0,
  markPauses: nothing,
  takePauses: nothing,
  settle: nothing,
  underKey: async () => ({ revoke: nothing }),
  awaitRevoked: async () => [],
}

/** How long a scenario should take in all, in seconds: it is played through with nobody there. `nodes`: of the service. */
export async function rehearse(
  scenario: Scenario,
  values: Readonly<Record<string, number | string>>,
  nodes: readonly string[],
): Promise<number> {
  let total = 0
  const local: LocalService = { nodes, restart: nothing, kill: nothing, start: nothing }
  const stage: Stage = {
    number: (option) => Number(values[option]),
    text: (option) => String(values[option]),
    crowd: EXTRAS,
    local,
    phase: (_name, seconds, work) => {
      total += seconds
      return work()
    },
    incident: () => undefined,
    figure: () => undefined,
    check: () => undefined,
    timed: () => NO_VALUES,
    pass: nothing,
  }
  await scenario.run(stage)
  return total
}
