import { mkdtemp, rm } from 'node:fs/promises'
import { availableParallelism, constants, tmpdir } from 'node:os'
import { join } from 'node:path'
import { systemClock, timestamp } from '../shared/clock.ts'
import { systemRandom } from '../shared/random.ts'
import { packageVersion } from '../shared/version.ts'
import { ControlIssuer, givenCredentials } from './issuer.ts'
import { emptyResult, judged, LoadTest, type Target } from './loadtest.ts'
import { LocalService } from './local.ts'
import { obstacles, type RunOptions, type TargetOptions } from './options.ts'
import { expectedBytes, ReportFolder, writeReports } from './report/folder.ts'
import { outcomeOf } from './report/outcome.ts'
import type { RunResult } from './result.ts'
import { dryRun } from './scenario.ts'
import { LiveView } from './view/live.ts'
import { summary } from './view/summary.ts'

/** What the command ends with. An interrupted run ends as a shell tells a signal: 130, 143 or 129. */
const EXIT = { passed: 0, failed: 1, mistaken: 2, unwritten: 3 } as const
/** What ends a run before its time: Ctrl-C, being told to end, and the loss of the terminal. */
const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const
/** A terminal and npm both pass the same Ctrl-C on: what comes so soon after the first is the same. */
const SAME_SIGNAL_MS = 500
/** Control processes that a local service has at most besides its nodes. */
const CONTROLS = 2

/** What is done in any case, unless it is ended at once; in this order. */
const STEPS = [
  'waiting for what was sent',
  'the checks',
  'the reports',
  'ending the service in order',
] as const

const say = (text: string): void => void process.stdout.write(`${text}\n`)
const complain = (text: string): void => void process.stderr.write(`${text}\n`)

/**
 * One run as a command, with the service it may start and its reports. The first signal ends it in order, the second one at once. Resolves
 * with the exit code and, of a run that began, its result, when everything has ended.
 */
export async function runCommand(options: RunOptions): Promise<{ exitCode: number; result?: RunResult }> {
  const { scenario, values, runs, target, out } = options
  const nodes = typeof target === 'number' ? Array.from({ length: target }, (_, i) => `node-${i + 1}`) : []
  const plan = await dryRun(scenario, values, runs, nodes)
  const problems = obstacles(options, plan, openFiles())
  if (problems.length > 0) {
    complain(problems.join('\n'))
    return { exitCode: EXIT.mistaken }
  }
  const servers = typeof target === 'number' ? target + CONTROLS : target.metrics.length
  let folder: ReportFolder
  try {
    folder = await ReportFolder.claim(out, expectedBytes(plan.seconds, servers))
  } catch (error) {
    complain((error as Error).message)
    return { exitCode: EXIT.mistaken }
  }
  const view = new LiveView(process.stdout, process.env)
  // However it ends, the terminal has its cursor back, and the folder is free.
  const restore = (): void => {
    view.close()
    folder.release()
  }
  process.once('exit', restore)

  let local: LocalService | undefined
  const left = STEPS.slice(0, typeof target === 'number' ? 4 : 3)
  const interruption = listenForSignals({
    first: () => {
      const text = 'ending, with a report; once more ends it at once'
      if (left.includes('the checks') && process.stdout.isTTY) view.incident(text)
      else complain(text)
    },
    second: (exitCode) => {
      view.close()
      local?.cluster.abandon()
      const logs = local ? ` The logs of the service are in ${local.cluster.folder}` : ''
      complain(`Ended at once. Left out: ${left.join(', ') || 'nothing'}.${logs}`)
      process.exit(exitCode)
    },
  })

  const machine = { cores: availableParallelism(), node: process.version, roomful: packageVersion() }
  const play = async (): Promise<RunResult> => {
    let on: Target
    try {
      if (typeof target === 'number') {
        say(`Starting a service of ${target === 1 ? '1 node' : `${target} nodes`} …`)
        local = await LocalService.start({
          nodes: target,
          settings: scenario.local,
          env: process.env,
          clock: systemClock,
          random: systemRandom,
          tell: (line) => view.incident(line),
          signal: interruption.signal,
        })
        on = localTarget(local)
      } else on = givenTarget(target)
    } catch (error) {
      const interrupted = interruption.signal.aborted
      const failure = interrupted ? undefined : (error as Error).message
      const result = emptyResult(options, plan.seconds, machine, timestamp(systemClock.now()))
      return judged(options, { ...result, interrupted, failure })
    }
    const { signal } = interruption
    return new LoadTest({ options, target: on, view, clock: systemClock, machine, signal }).run()
  }
  const result = await play()
  view.close()
  left.splice(0, 2)
  say(`\n${summary(result)}`)
  const written = await writeOrRescue(result, folder, out)
  left.shift()
  const { word } = outcomeOf(result)
  if (local) {
    await local.cluster.close()
    // What its processes have printed is kept where something was wrong.
    if (word === 'failed') say(`The logs of the service are in ${local.cluster.folder}`)
    else await rm(local.cluster.folder, { recursive: true, force: true })
  }
  left.shift()
  process.off('exit', restore)
  folder.release()
  interruption.close()
  if (word === 'failed') return { exitCode: EXIT.failed, result }
  if (!written) return { exitCode: EXIT.unwritten, result }
  const exitCode = word === 'passed' ? EXIT.passed : (interruption.exitCode() ?? EXIT.failed)
  return { exitCode, result }
}

/** Listens for the signals that end a run. `signal` fires at the first. */
function listenForSignals(on: { first(): void; second(exitCode: number): void }) {
  const controller = new AbortController()
  let first: { readonly exitCode: number; readonly at: number } | undefined
  const hear = (signal: NodeJS.Signals): void => {
    const exitCode = 128 + constants.signals[signal]
    const at = systemClock.monotonic()
    if (first !== undefined) {
      if (at - first.at >= SAME_SIGNAL_MS) on.second(exitCode)
      return
    }
    first = { exitCode, at }
    on.first()
    controller.abort(new Error('interrupted'))
  }
  for (const signal of SIGNALS) process.on(signal, hear)
  return {
    signal: controller.signal,
    /** As a shell tells it (130 after Ctrl-C, 143 after SIGTERM); undefined: there was no signal. */
    exitCode: () => first?.exitCode,
    close: () => {
      for (const signal of SIGNALS) process.off(signal, hear)
    },
  }
}

/** Writes the reports where they belong, or at least somewhere else; whether they are where they belong. */
async function writeOrRescue(result: RunResult, folder: ReportFolder, out: string): Promise<boolean> {
  try {
    await folder.freeReserve()
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

/** How many files this process may open; undefined where the system has no such limit. */
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
