import { parseArgs } from 'node:util'
import { explore, type Report } from './explorer.ts'
import { model, SCENARIOS } from './scenarios.ts'

const { values } = parseArgs({
  options: {
    deviations: { type: 'string', default: '2' },
    only: { type: 'string', default: '' },
    seconds: { type: 'string' },
  },
})

const print = (text: string) => process.stdout.write(text)

const figures = ({ executions, states, ends, steps, ms }: Report): string =>
  `${executions} runs, ${states} states, ${ends} ends, ${steps} steps, ${(ms / 1000).toFixed(1)} s`

for (const [name, parts] of Object.entries(SCENARIOS)) {
  if (!name.includes(values.only)) continue
  const report = await explore(() => model(parts), {
    deviations: Number(values.deviations),
    ...(values.seconds === undefined ? {} : { max_ms: 1000 * Number(values.seconds) }),
    on_progress: (so_far) => print(`\r${name}: ${figures(so_far)} …`),
  })
  const verdict = report.fault ? 'FAULT' : report.complete ? 'complete' : 'unfinished'
  print(`\r${name}: ${figures(report)}, ${verdict}\n`)
  if (!report.fault) continue
  for (const line of report.fault.trace) print(`  ${line}\n`)
  for (const { promised, text } of report.fault.violations) print(`  BROKEN (${promised}): ${text}\n`)
  print(`  choices ${JSON.stringify(report.fault.choices)}\n`)
  process.exitCode = 1
}
