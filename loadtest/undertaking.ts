import { mkdtemp, rm } from 'node:fs/promises'
import { availableParallelism, tmpdir } from 'node:os'
import { join } from 'node:path'
import { systemClock } from '../shared/clock.ts'
import { systemRandom } from '../shared/random.ts'
import { packageVersion } from '../shared/version.ts'
import { ControlIssuer, GivenCredentials } from './control-issuer.ts'
import { Interruption } from './interruption.ts'
import { LoadTest, type Target } from './loadtest.ts'
import { type Local, startLocal } from './local/local.ts'
import { objections } from './objections.ts'
import type { RunOptions, TargetOptions } from './options.ts'
import { rehearse } from './rehearsal.ts'
import { ReportFolder } from './report/folder.ts'
import { outcomeOf } from './report/verdict.ts'
import { expectedBytes, writeReports } from './report/write.ts'
import type { RunResult } from './result.ts'
import { unbegun } from './unbegun.ts'
import { LiveView } from './view/live-view.ts'
import { summary } from './view/summary.ts'

/** What the command ends with. An interrupted run ends as a shell tells a signal: 130, 143 or 129. */
const EXIT = { passed: 0, failed: 1, mistaken: 2, unwritten: 3 } as const
/** Control processes a local service has besides its nodes. */
const CONTROLS = 2

/** What is done in any case, unless it is ended at once; in this order. */
const STEPS = [
  'waiting for what was sent',
  'the checks',
  'the reports',
  'ending the service in order',
] as const
type Step = (typeof STEPS)[number]

const say = (text: string): void => void process.stdout.write(`${text}\n`)
const complain = (text: string): void => void process.stderr.write(`${text}\n`)

/** One run as a command: with the service it may start, its reports, and what becomes of it at Ctrl-C. */
export class Undertaking {
  readonly #options: RunOptions
  readonly #view = new LiveView(process.stdout, process.env)
  readonly #interruption: Interruption
  readonly #machine = { cores: availableParallelism(), node: process.version, roomful: packageVersion() }
  /** Not done yet. */
  readonly #left = new Set<Step>(STEPS)
  #local: Local | undefined
  #watched = true

  constructor(options: RunOptions) {
    this.#options = options
    if (typeof options.target !== 'number') this.#left.delete('ending the service in order')
    this.#interruption = new Interruption({
      process,
      clock: systemClock,
      on_first: () => this.#tellEnding(),
      on_second: (exit_code) => this.#endAtOnce(exit_code),
    })
    // However it ends, the terminal has its cursor back.
    process.once('exit', () => this.#view.close())
  }

  /** Resolves with the exit code, when everything has ended. */
  async run(): Promise<number> {
    const { scenario, values, target, out } = this.#options
    const nodes = typeof target === 'number' ? Array.from({ length: target }, (_, i) => `node-${i + 1}`) : []
    const prospect = await rehearse(scenario, values, nodes)
    const problems = objections(this.#options, prospect, openFiles())
    if (problems.length > 0) {
      complain(problems.join('\n'))
      return EXIT.mistaken
    }
    const { seconds } = prospect
    const servers = typeof target === 'number' ? target + CONTROLS : target.metrics.length
    let folder: ReportFolder
    try {
      folder = await ReportFolder.claim(out, expectedBytes(seconds, servers))
    } catch (error) {
      complain((error as Error).message)
      return EXIT.mistaken
    }
    process.once('exit', () => folder.release())
    const result = await this.#result(seconds)
    this.#view.close()
    this.#watched = false
    this.#done('waiting for what was sent', 'the checks')
    say(`\n${summary(result)}`)
    const written = await this.#write(result, folder)
    this.#done('the reports')
    const { word } = outcomeOf(result)
    if (this.#local) await this.#endService(this.#local, word === 'failed')
    this.#done('ending the service in order')
    if (word === 'failed') return EXIT.failed
    if (!written) return EXIT.unwritten
    return word === 'passed' ? EXIT.passed : (this.#interruption.exit_code ?? EXIT.failed)
  }

  /** Plays, and resolves with what was found, also when there was nothing to play with. */
  async #result(planned_seconds: number): Promise<RunResult> {
    const options = this.#options
    const { signal } = this.#interruption
    let target: Target
    try {
      target =
        typeof options.target === 'number' ? await this.#startService(options.target) : given(options.target)
    } catch (error) {
      const failure = signal.aborted ? undefined : (error as Error).message
      return unbegun({ options, planned_seconds, machine: this.#machine, now: systemClock.now(), failure })
    }
    const test = new LoadTest({
      options,
      target,
      view: this.#view,
      clock: systemClock,
      usage: () => {
        const { user, system } = process.cpuUsage()
        return { cpu_seconds: (user + system) / 1e6, rss_bytes: process.memoryUsage.rss() }
      },
      machine: this.#machine,
      signal,
    })
    return test.run()
  }

  async #startService(nodes: number): Promise<Target> {
    say(`Starting a service of ${nodes === 1 ? '1 node' : `${nodes} nodes`} …`)
    this.#local = await startLocal({
      nodes,
      env: process.env,
      clock: systemClock,
      random: systemRandom,
      tell: (line) => this.#view.incident(line),
      signal: this.#interruption.signal,
    })
    return localTarget(this.#local)
  }

  /** Ends the service; what its processes have printed is kept where something was wrong. */
  async #endService({ close, folder }: Local, keep_logs: boolean): Promise<void> {
    await close()
    if (keep_logs) say(`The logs of the service are in ${folder}`)
    else await rm(folder, { recursive: true, force: true })
  }

  /** Writes the reports where they belong, or at least somewhere else; whether they are where they belong. */
  async #write(result: RunResult, folder: ReportFolder): Promise<boolean> {
    try {
      await folder.makeRoom()
      for (const path of await writeReports(result, this.#options.out)) say(path)
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

  #done(...steps: Step[]): void {
    for (const step of steps) this.#left.delete(step)
  }

  #tellEnding(): void {
    const text = 'ending, with a report; once more ends it at once'
    if (this.#watched && process.stdout.isTTY) this.#view.incident(text)
    else complain(text)
  }

  #endAtOnce(exit_code: number): void {
    this.#view.close()
    this.#local?.abandon()
    const logs = this.#local ? ` The logs of the service are in ${this.#local.folder}` : ''
    complain(`Ended at once. Left out: ${[...this.#left].join(', ') || 'nothing'}.${logs}`)
    process.exit(exit_code)
  }
}

/** How many files this process may open; undefined where the system has no such limit. */
function openFiles(): number | undefined {
  const { userLimits } = process.report.getReport() as unknown as {
    readonly userLimits?: { readonly open_files?: { readonly soft: number | 'unlimited' } }
  }
  const limit = userLimits?.open_files?.soft
  return typeof limit === 'number' ? limit : undefined
}

const localTarget = ({ control_url, control_token, ws_urls, metrics, service, describe }: Local): Target => ({
  issuer: new ControlIssuer({ control_url, control_token }),
  ws_urls,
  metrics,
  local: service,
  description: `${ws_urls.join(', ')} (${describe})`,
})

const given = (target: TargetOptions): Target => ({
  issuer: target.credentials ? new GivenCredentials(target.credentials) : new ControlIssuer(target),
  ws_urls: target.ws_urls,
  metrics: target.metrics,
  local: undefined,
  description: target.ws_urls.join(', '),
})
