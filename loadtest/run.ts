import { mkdtemp, rm } from 'node:fs/promises'
import { availableParallelism, constants, tmpdir } from 'node:os'
import { join } from 'node:path'
import { endWithNpm } from '../deploy/cli/service.ts'
import { systemClock, timestamp } from '../shared/clock.ts'
import { packageVersion } from '../shared/version.ts'
import { ControlIssuer, givenCredentials } from './issuer.ts'
import { outcomeOf } from './judge.ts'
import { LoadTest, resultOf, type Target } from './loadtest.ts'
import { LocalService } from './local.ts'
import { help, obstacles, parseRun, type RunOptions, type TargetOptions } from './options.ts'
import { prepareFolder, summary, writeReports } from './report/report.ts'
import type { RunResult } from './result.ts'
import { dryRun } from './scenario.ts'
import { SCENARIOS } from './scenarios/index.ts'
import { LiveView } from './view.ts'

/** `npm run loadtest`. */

/** Exit codes. An interrupted run ends with 128 + signal, as in a shell: 130, 143 or 129. */
const EXIT = { passed: 0, failed: 1, mistaken: 2, unwritten: 3 } as const
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const
/** A terminal and npm both pass on the same Ctrl-C. A second signal within this time is the same one. */
const SAME_SIGNAL_MS = 500

const say = (text: string): void => void process.stdout.write(`${text}\n`)
const complain = (text: string): void => void process.stderr.write(`${text}\n`)

/**
 * Runs a load test, with the service of `--local` and the reports. The first signal ends it in order, the second one immediately.
 * Resolves with the exit code.
 */
async function runCommand(options: RunOptions): Promise<number> {
  const { scenario, values, runs, target, out } = options
  const nodes = typeof target === 'number' ? Array.from({ length: target }, (_, i) => `node-${i + 1}`) : []
  const plan = await dryRun(scenario, values, runs, nodes)
  const problems = obstacles(options, plan, openFiles())
  if (problems.length === 0)
    await prepareFolder(out).catch((error: Error) => void problems.push(error.message))
  if (problems.length > 0) {
    complain(problems.join('\n'))
    return EXIT.mistaken
  }
  const view = new LiveView(process.stdout, process.env)
  process.once('exit', () => view.close())
  let local: LocalService | undefined
  const interruption = listenForSignals({
    first: () => {
      const text = 'ending, with a report; another signal ends it immediately'
      if (process.stdout.isTTY) view.incident(text)
      else complain(text)
    },
    second: (exitCode) => {
      view.close()
      local?.cluster.abandon()
      const logs = local ? ` The logs of the service are in ${local.cluster.folder}` : ''
      complain(`Ended immediately, without the rest of the run.${logs}`)
      process.exit(exitCode)
    },
  })
  const { signal } = interruption

  /** Starts the service of `--local`, unless there is a running one. */
  const reach = async (): Promise<Target> => {
    if (typeof target !== 'number') return givenTarget(target)
    say(`Starting a service of ${target === 1 ? '1 node' : `${target} nodes`} …`)
    local = await LocalService.start({
      nodes: target,
      settings: scenario.local,
      env: process.env,
      tell: (line) => view.incident(line),
      signal,
    })
    return localTarget(local)
  }
  const machine = { cores: availableParallelism(), node: process.version, roomful: packageVersion() }
  const result = await reach().then(
    (on) => new LoadTest({ options, target: on, view, clock: systemClock, machine, signal }).run(),
    (error: Error) =>
      resultOf(options, plan.seconds, machine, timestamp(systemClock.now()), {
        interrupted: signal.aborted,
        failure: signal.aborted ? undefined : error.message,
      }),
  )
  view.close()
  say(`\n${summary(result)}`)
  const written = await writeOrRescue(result, out)
  const { word } = outcomeOf(result)
  if (local) {
    await local.cluster.close()
    if (word === 'failed') say(`The logs of the service are in ${local.cluster.folder}`)
    else await rm(local.cluster.folder, { recursive: true, force: true })
  }
  if (word === 'failed') return EXIT.failed
  if (!written) return EXIT.unwritten
  return word === 'passed' ? EXIT.passed : (interruption.exitCode() ?? EXIT.failed)
}

/** Listens for signals that end a run. The first aborts `signal`. */
function listenForSignals(on: { first(): void; second(exitCode: number): void }) {
  const controller = new AbortController()
  let first: { readonly exitCode: number; readonly at: number } | undefined
  for (const name of SIGNALS)
    process.on(name, () => {
      const exitCode = 128 + constants.signals[name]
      const at = systemClock.monotonic()
      if (first !== undefined) {
        if (at - first.at >= SAME_SIGNAL_MS) on.second(exitCode)
        return
      }
      first = { exitCode, at }
      on.first()
      controller.abort(new Error('interrupted'))
    })
  return { signal: controller.signal, exitCode: () => first?.exitCode }
}

/** Writes the reports into `out`, or into a temporary folder if that fails. Resolves with true if they are in `out`. */
async function writeOrRescue(result: RunResult, out: string): Promise<boolean> {
  try {
    for (const path of await writeReports(result, out)) say(path)
    return true
  } catch (error) {
    complain((error as Error).message)
  }
  try {
    const elsewhere = await mkdtemp(join(tmpdir(), 'roomful-loadtest-report-'))
    await writeReports(result, elsewhere)
    complain(`All reports are in ${elsewhere} instead.`)
  } catch (error) {
    complain(`${(error as Error).message}\nWhat is above is all there is of this run.`)
  }
  return false
}

/** Returns the limit of open files of this process. Undefined: the system has none. */
function openFiles(): number | undefined {
  const report: { userLimits?: { open_files?: { soft: number | 'unlimited' } } } = process.report.getReport()
  const limit = report.userLimits?.open_files?.soft
  return typeof limit === 'number' ? limit : undefined
}

const localTarget = (local: LocalService): Target => ({
  issuer: new ControlIssuer({
    controlUrl: local.cluster.controlUrl,
    controlToken: local.cluster.secrets.operatorToken,
  }),
  wsUrls: local.wsUrls,
  metrics: local.metrics,
  local,
  description: `${local.wsUrls.join(', ')} (${local.describe})`,
})

const givenTarget = (target: TargetOptions): Target => ({
  issuer: target.credentials ? givenCredentials(target.credentials) : new ControlIssuer(target),
  wsUrls: target.wsUrls,
  metrics: target.metrics,
  local: undefined,
  description: target.wsUrls.join(', '),
})

// A closed pipe (such as that of `head`) or terminal must not prevent the reports.
for (const stream of [process.stdout, process.stderr]) stream.on('error', () => undefined)
endWithNpm(process, systemClock)
const request = parseRun(process.argv.slice(2), SCENARIOS, process.env, availableParallelism())
if (request.kind === 'help') process.stdout.write(help(SCENARIOS, request.scenario))
else if (request.kind === 'mistake') {
  complain(`${request.message}\nnpm run loadtest -- --help shows what there is.`)
  process.exitCode = EXIT.mistaken
} else {
  // An interrupted run may still have pending requests.
  process.exit(await runCommand(request.options))
}
