import { type ChildProcess, spawn } from 'node:child_process'
import { mkdir, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { check } from '../checker/check.ts'
import type { Fault, History, Violation } from '../checker/history.ts'
import { describeExcused, type ExcusedShare, sumOf } from '../checker/ownership.ts'
import { watchStalls } from '../node/clocks.ts'
import { Cluster } from './cluster.ts'
import { LEASE_MS, Run, type RunOptions } from './run.ts'

export interface ChaosOptions extends RunOptions {
  /** Folder of logs and histories. Deleted if every guarantee held and `keep` is false. */
  readonly folder: string
  readonly keep: boolean
}

export interface ChaosResult {
  readonly history: History
  readonly violations: readonly Violation[]
  readonly excused: ExcusedShare
  /** Folder of logs and histories. Undefined: deleted. */
  readonly folder: string | undefined
}

const PROGRESS_MS = 5000

/** Runs a cluster with the faults of one seed, waits until all faults are over, and checks the history. */
export async function runChaos(options: ChaosOptions): Promise<ChaosResult> {
  const { nodes, unfenced, direct, folder } = options
  await mkdir(folder, { recursive: true })
  const cluster = await Cluster.start({ nodes, unfenced, direct, folder, leaseMs: LEASE_MS })
  const abandon = () => cluster.abandon()
  process.once('exit', abandon)
  try {
    const history = await watched(new Run(options, cluster), options)
    const { violations, excused } = check(history)
    const keep = options.keep || violations.length > 0
    if (keep) await writeFile(join(folder, 'history.json'), JSON.stringify(history))
    if (!keep) await rm(folder, { recursive: true, force: true })
    return { history, violations, excused, folder: keep ? folder : undefined }
  } finally {
    process.off('exit', abandon)
    await cluster.close()
  }
}

/** Prints the progress of a run, and adds the stalls of this process to its history: all store connections of the nodes pass through it. */
async function watched(run: Run, { say }: RunOptions): Promise<History> {
  const stalls: Fault[] = []
  const began = performance.now()
  const progress = setInterval(
    () => say(`${Math.round((performance.now() - began) / 1000)} s: ${run.progress}`),
    PROGRESS_MS,
  )
  const unwatch = watchStalls((stall) => void stalls.push({ kind: 'stall', ...stall }))
  try {
    const history = await run.history()
    return { ...history, faults: [...history.faults, ...stalls].sort((one, other) => one.at - other.at) }
  } finally {
    clearInterval(progress)
    unwatch()
  }
}

/** A run that takes this much longer than its faults counts as hanging. */
const MOST_SECONDS_MORE = 180

/** Message from the process of one seed to its parent at the end of the run. */
export interface SeedOutcome {
  readonly held: boolean
  readonly summary: string
  /** Absent: the run itself failed. */
  readonly excused?: ExcusedShare
}

interface SeedsOptions {
  readonly seeds: readonly number[]
  /** Number of processes that run at the same time. */
  readonly parallel: number
  readonly seconds: number
  /** Program and arguments that run one seed, without seed and folder. */
  readonly command: readonly string[]
  /** Receives a folder for each failed seed, with report, history and logs. */
  readonly folder: string
  /** Keeps the folders of all seeds. */
  readonly keep: boolean
  /** Stops at the first seed that fails. */
  readonly stopAtFailure: boolean
  readonly say: (line: string) => void
}

/** Runs each seed in a separate process, so that a crash affects one seed only. Returns the seeds that failed. */
export async function runSeeds(options: SeedsOptions): Promise<number[]> {
  const { seeds, parallel, say, stopAtFailure } = options
  const waiting = [...seeds]
  const failed: number[] = []
  const excused: ExcusedShare[] = []
  const begun = performance.now()
  let done = 0
  const work = async () => {
    for (;;) {
      const seed = stopAtFailure && failed.length > 0 ? undefined : waiting.shift()
      if (seed === undefined) return
      const begunSeed = performance.now()
      const { held, summary, excused: share } = await runSeed(seed, options)
      if (share) excused.push(share)
      done += 1
      if (!held) failed.push(seed)
      const minutes = ((performance.now() - begun) / 60_000).toFixed(1)
      const took = Math.round((performance.now() - begunSeed) / 1000)
      say(
        `[${done}/${seeds.length}, ${failed.length} failed, ${minutes} min] seed ${seed}: ${summary} (${took} s)`,
      )
    }
  }
  await Promise.all(Array.from({ length: parallel }, work))
  failed.sort((a, b) => a - b)
  say(
    `${done} of ${seeds.length} seeds ran, ${done - failed.length} held, ${failed.length} failed${failed.length > 0 ? `: ${failed.join(', ')}; see ${options.folder}` : ''}`,
  )
  for (const line of describeExcused(sumOf(excused))) say(line)
  return failed
}

async function runSeed(seed: number, { command, folder, keep, seconds }: SeedsOptions): Promise<SeedOutcome> {
  const own = join(folder, `seed-${seed}`)
  // Files of an earlier run of this seed would be read as part of this run.
  await rm(own, { recursive: true, force: true })
  await mkdir(own, { recursive: true })
  const [program = '', ...args] = command
  // A process group, so that a run that hangs is ended with all its child processes.
  const child = spawn(program, [...args, '--seed', String(seed), '--folder', own], {
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    detached: true,
  })
  const end = () => endGroup(child)
  process.once('exit', end)
  let output = ''
  for (const stream of [child.stdout, child.stderr])
    stream?.on('data', (chunk: Buffer) => {
      output += chunk
    })
  let outcome: SeedOutcome | undefined
  child.on('message', (message) => {
    outcome = message as SeedOutcome
  })
  let hangs = false
  const watchdog = setTimeout(
    () => {
      hangs = true
      end()
    },
    (seconds + MOST_SECONDS_MORE) * 1000,
  )
  const code = await new Promise<number | null>((resolve, reject) => {
    child.once('error', reject)
    child.once('close', resolve)
  })
  clearTimeout(watchdog)
  process.off('exit', end)
  // Ends child processes that the run has left.
  end()
  const last = output.trim().split('\n').at(-1)
  outcome ??= { held: false, summary: hangs ? 'HANGS' : `ENDED with ${code}: ${last}` }
  if (outcome.held && !keep) await rm(own, { recursive: true, force: true })
  else await writeFile(join(own, 'report.txt'), output)
  return outcome
}

function endGroup({ pid }: ChildProcess): void {
  if (pid === undefined) return
  try {
    process.kill(-pid, 'SIGKILL')
  } catch {
    // The group has ended.
  }
}
