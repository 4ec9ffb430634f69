import { postgresSchema } from '../../dataplane/postgres.ts'
import { systemClock } from '../../shared/clock.ts'
import { packageVersion } from '../../shared/version.ts'
import { helpText, parseArguments } from './arguments.ts'
import { runCommand } from './commands.ts'
import { endWithNpm } from './npm-parent.ts'

const request = parseArguments(process.argv.slice(2))
switch (request.kind) {
  case 'help':
    process.stdout.write(helpText(request))
    break
  case 'version':
    process.stdout.write(`${packageVersion()}\n`)
    break
  case 'schema':
    try {
      process.stdout.write(postgresSchema(request.table))
    } catch (error) {
      process.stderr.write(`roomful: ${(error as Error).message}\n`)
      process.exitCode = 2
    }
    break
  case 'admin':
    process.exitCode = await (await import('./admin.ts')).runAdmin(request.words, process.env, process)
    break
  case 'mistake':
    process.stderr.write(`roomful: ${request.message}\nroomful --help says more.\n`)
    process.exitCode = 2
    break
  case 'run': {
    // Libraries take this for the wish to be fast; a developer says dev.
    if (request.command !== 'dev') process.env.NODE_ENV ??= 'production'
    endWithNpm(process, systemClock)
    const { command, workers, beside } = request
    const env =
      workers === undefined ? process.env : { ...process.env, WORKERS: workers, WORKERS_FILE: undefined }
    const started = runCommand({ command, beside }, env, process, (text) => process.stderr.write(text))
    if (!started) process.exitCode = 2
  }
}
