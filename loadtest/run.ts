import { availableParallelism } from 'node:os'
import { endWithNpm } from '../deploy/cli/npm-parent.ts'
import { systemClock } from '../shared/clock.ts'
import { runCommand } from './command.ts'
import { help, parseRun } from './options.ts'
import { SCENARIOS } from './scenarios/index.ts'

/** `npm run loadtest`; docs/loadtest.md says what its exit codes mean. */

// When no one reads any more (such as head), or the terminal is closed, the reports are still written.
for (const stream of [process.stdout, process.stderr]) stream.on('error', () => undefined)
endWithNpm(process, systemClock)

const request = parseRun(process.argv.slice(2), SCENARIOS, process.env, availableParallelism())
if (request.kind === 'help') process.stdout.write(help(SCENARIOS, request.scenario))
else if (request.kind === 'mistake') {
  process.stderr.write(`${request.message}\nnpm run loadtest -- --help shows what there is.\n`)
  process.exitCode = 2
} else {
  const { exitCode } = await runCommand(request.options)
  // What an interrupted run was about to do (ask for a token, connect) may still be under way.
  process.exit(exitCode)
}
