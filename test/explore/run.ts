import { parseArgs } from 'node:util'
import { type Deviation, explore, type Finding, type Report, replay } from './explorer.ts'
import { model, SCENARIOS } from './scenarios.ts'

const USAGE = `Usage: npm run explore -- [options]

Runs the ownership of a room (lease, claims, router, room) with all combinations of a few deviations from the ordinary order of events.

  --deviations N   largest number of deviations in a run [2]
  --only NAME      one scenario: ${Object.keys(SCENARIOS).join(', ')}
  --seconds N      time limit of each scenario
  --replay JSON    repeats the run with these choices; needs --only
  --help           this text

Exits with 0 when every guarantee was kept. Otherwise prints the violation and exits with 1.
`

const { values } = parseArgs({
  options: {
    deviations: { type: 'string', default: '2' },
    only: { type: 'string' },
    seconds: { type: 'string' },
    replay: { type: 'string' },
    help: { type: 'boolean' },
  },
})

const print = (text: string) => process.stdout.write(text)

const figures = ({ executions, states, ends, steps, ms }: Report): string =>
  `${executions} runs, ${states} states, ${ends} ends, ${steps} steps, ${(ms / 1000).toFixed(1)} s`

function printFinding({ trace, violations, choices }: Finding): void {
  for (const line of trace) print(`  ${line}\n`)
  for (const { guarantee, text } of violations) print(`  BROKEN (${guarantee}): ${text}\n`)
  print(`  --replay '${JSON.stringify(choices)}'\n`)
  if (violations.length > 0) process.exitCode = 1
}

async function run(name: string): Promise<void> {
  const create = () => model(SCENARIOS[name]!)
  if (values.replay !== undefined) {
    printFinding(await replay(create, JSON.parse(values.replay) as Deviation[]))
    return
  }
  const report = await explore(create, {
    deviations: Number(values.deviations),
    ...(values.seconds === undefined ? {} : { maxMs: 1000 * Number(values.seconds) }),
    onProgress: (soFar) => print(`\r${name}: ${figures(soFar)} …`),
  })
  const verdict = report.fault ? 'BROKEN' : report.complete ? 'all kept' : 'unfinished'
  print(`\r${name}: ${figures(report)}: ${verdict}\n`)
  if (report.fault) printFinding(report.fault)
}

if (values.help) print(USAGE)
else for (const name of values.only === undefined ? Object.keys(SCENARIOS) : [values.only]) await run(name)
