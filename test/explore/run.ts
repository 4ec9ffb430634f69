import { parseArgs } from 'node:util'
import { type Deviation, explore, type Finding, type Report, replay } from './explorer.ts'
import { model, SCENARIOS } from './scenarios.ts'

const USAGE = `Usage: npm run explore -- [options]

Runs the ownership of a room (lease, claims, router, room) in every way that differs from the ordinary in a few places.

  --deviations N   in how many places, at most [2]
  --only NAME      of the scenarios: ${Object.keys(SCENARIOS).join(', ')}
  --seconds N      stops each scenario after so long, unfinished
  --replay JSON    the choices of a run that was reported, with --only
  --help           this text

Ends with 0 when every promise was kept, with 1 when one was broken: then it says how.
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

function tell({ trace, violations, choices }: Finding): void {
  for (const line of trace) print(`  ${line}\n`)
  for (const { promised, text } of violations) print(`  BROKEN (${promised}): ${text}\n`)
  print(`  --replay '${JSON.stringify(choices)}'\n`)
  if (violations.length > 0) process.exitCode = 1
}

async function run(name: string): Promise<void> {
  const create = () => model(SCENARIOS[name]!)
  if (values.replay !== undefined) {
    tell(await replay(create, JSON.parse(values.replay) as Deviation[]))
    return
  }
  const report = await explore(create, {
    deviations: Number(values.deviations),
    ...(values.seconds === undefined ? {} : { maxMs: 1000 * Number(values.seconds) }),
    onProgress: (soFar) => print(`\r${name}: ${figures(soFar)} …`),
  })
  const verdict = report.fault ? 'BROKEN' : report.complete ? 'all kept' : 'unfinished'
  print(`\r${name}: ${figures(report)}: ${verdict}\n`)
  if (report.fault) tell(report.fault)
}

if (values.help) print(USAGE)
else for (const name of values.only === undefined ? Object.keys(SCENARIOS) : [values.only]) await run(name)
