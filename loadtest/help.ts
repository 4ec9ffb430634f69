import { COMMON_OPTIONS } from './options.ts'
import type { Scenario } from './scenario.ts'
import { thresholdHelp } from './thresholds.ts'
import { placeholder } from './values.ts'

const USAGE = `Usage: npm run loadtest -- SCENARIO [options]

Puts load on a service, and looks whether it keeps its promises meanwhile.`

const rows = (all: readonly (readonly [string, string])[]): string => {
  const width = Math.max(...all.map(([left]) => left.length))
  return all.map(([left, right]) => `  ${left.padEnd(width)}  ${right}`).join('\n')
}

const common = (): string =>
  rows([
    ...Object.entries(COMMON_OPTIONS).map(
      ([name, option]) => [`--${name} ${option.placeholder}`, option.meaning] as const,
    ),
    ['--help', 'this; behind a scenario: with its own options'],
  ])

/** What `--help` says, of all scenarios or of one. */
export function help(scenarios: readonly Scenario[], scenario: Scenario | undefined): string {
  if (scenario) return helpOf(scenario)
  return `${USAGE}

Scenarios (npm run loadtest -- SCENARIO --help shows their options):
${rows(scenarios.map(({ name, meaning }) => [name, meaning]))}

Options of all:
${common()}

Limits, which decide the exit code:
${thresholdHelp()}

Exit codes:
${rows([
  ['0', 'all is well'],
  ['1', 'something is not'],
  ['2', 'the command is wrong, or the folder for the reports cannot be used'],
  ['3', 'all is well, but the reports are not where they belong'],
  ['130', 'interrupted, and all was well until then (143: by SIGTERM, 129: the terminal is gone)'],
])}

Ctrl-C ends a run before its time, with a report; twice: at once, without.
`
}

function helpOf({ name, meaning, options }: Scenario): string {
  const own = Object.entries(options).map(
    ([option, { kind, meaning: what, default: given }]) =>
      [`--${option} ${placeholder(kind)}`, `${what}; default ${given}`] as const,
  )
  return `Usage: npm run loadtest -- ${name} [options]

${meaning}

${rows(own)}

Options of all scenarios:
${common()}

Limits:
${thresholdHelp()}
`
}
