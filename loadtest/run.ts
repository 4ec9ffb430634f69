import { availableParallelism } from 'node:os'
import { endWithNpm } from '../deploy/cli/npm-parent.ts'
import { systemClock } from '../shared/clock.ts'
import { help } from './help.ts'
import { parseRun } from './options.ts'
import { SCENARIOS } from './scenarios/index.ts'
import { Undertaking } from './undertaking.ts'

/** `npm run loadtest`; docs/loadtest.md says what its exit codes mean. */

// Whoever has stopped reading (such as head), or has closed the terminal, still gets the reports.
for (const stream of [process.stdout, process.stderr]) stream.on('error', () => undefined)
endWithNpm(process, systemClock)

const request = parseRun(process.argv.slice(2), SCENARIOS, process.env, availableParallelism())
if (request.kind === 'help') process.stdout.write(help(SCENARIOS, request.scenario))
else if (request.kind === 'mistake') {
  process.stderr.write(`${request.message}\nnpm run loadtest -- --help shows what there is.\n`)
  process.exitCode = 2
} else {
  const exit_code = await new Undertaking(request.options).run()
  // What an interrupted run was about to do (ask for a token, connect) may still be under way.
  process.exit(exit_code)
}
