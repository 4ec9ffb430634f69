import { rm } from 'node:fs/promises'
import { availableParallelism } from 'node:os'
import { endWithNpm } from '../deploy/cli/npm-parent.ts'
import { systemClock } from '../shared/clock.ts'
import { systemRandom } from '../shared/random.ts'
import { packageVersion } from '../shared/version.ts'
import { ControlIssuer, GivenCredentials } from './control-issuer.ts'
import { help } from './help.ts'
import { LoadTest, type Target } from './loadtest.ts'
import { type Local, startLocal } from './local/local.ts'
import { parseRun, type RunOptions, type TargetOptions } from './options.ts'
import { prepareFolder, writeReports } from './report/write.ts'
import { SCENARIOS } from './scenarios/index.ts'
import { LiveView } from './view/live-view.ts'
import { summary } from './view/summary.ts'

/** `npm run loadtest`: exits with 0 when all is well, 1 when something is not, 2 when the command is wrong. */

const request = parseRun(process.argv.slice(2), SCENARIOS, process.env, availableParallelism())
if (request.kind === 'help') process.stdout.write(help(SCENARIOS, request.scenario))
else if (request.kind === 'mistake') {
  process.stderr.write(`${request.message}\nnpm run loadtest -- --help shows what there is.\n`)
  process.exitCode = 2
} else process.exitCode = await run(request.options)

async function run(options: RunOptions): Promise<number> {
  const interruption = new AbortController()
  process.on('SIGINT', () => {
    if (interruption.signal.aborted) process.exit(130)
    process.stderr.write('\nEnding; once more ends it at once.\n')
    interruption.abort(new Error('interrupted'))
  })
  process.on('SIGTERM', () => interruption.abort(new Error('told to end')))
  endWithNpm(process, systemClock)
  // Whoever has stopped reading (such as head) still gets the reports.
  process.stdout.on('error', () => undefined)
  try {
    await prepareFolder(options.out)
  } catch (error) {
    process.stderr.write(`${(error as Error).message}\n`)
    return 2
  }
  let local: Local | undefined
  let passed = false
  try {
    const view = new LiveView(process.stdout, process.env)
    if (typeof options.target === 'number') local = await localService(options.target, view)
    const test = new LoadTest({
      options,
      target: local ? localTarget(local) : givenTarget(options.target as TargetOptions),
      view,
      clock: systemClock,
      usage: () => {
        const { user, system } = process.cpuUsage()
        return { cpu_seconds: (user + system) / 1e6, rss_bytes: process.memoryUsage.rss() }
      },
      machine: { cores: availableParallelism(), node: process.version, roomful: packageVersion() },
      signal: interruption.signal,
    })
    const result = await test.run()
    view.close()
    process.stdout.write(`\n${summary(result)}\n`)
    for (const path of await writeReports(result, options.out)) process.stdout.write(`${path}\n`)
    passed = result.passed
    return passed ? 0 : 1
  } catch (error) {
    process.stderr.write(`${error instanceof Error ? error.message : error}\n`)
    return 1
  } finally {
    if (local) await endLocal(local, passed)
  }
}

async function localService(nodes: number, view: LiveView): Promise<Local> {
  process.stdout.write(`Starting a service of ${nodes === 1 ? '1 node' : `${nodes} nodes`} …\n`)
  return startLocal({
    nodes,
    env: process.env,
    clock: systemClock,
    random: systemRandom,
    tell: (line) => view.incident(line),
  })
}

/** Ends the service; what its processes have printed is kept where something was wrong. */
async function endLocal({ close, folder }: Local, passed: boolean): Promise<void> {
  await close()
  if (passed) await rm(folder, { recursive: true, force: true })
  else process.stdout.write(`The logs of the service are in ${folder}\n`)
}

function localTarget({ control_url, control_token, ws_urls, metrics, service, describe }: Local): Target {
  return {
    issuer: new ControlIssuer({ control_url, control_token }),
    ws_urls,
    metrics,
    local: service,
    description: `${ws_urls.join(', ')} (${describe})`,
  }
}

function givenTarget(target: TargetOptions): Target {
  return {
    issuer: target.credentials ? new GivenCredentials(target.credentials) : new ControlIssuer(target),
    ws_urls: target.ws_urls,
    metrics: target.metrics,
    local: undefined,
    description: target.ws_urls.join(', '),
  }
}
