import { mkdir, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { check } from '../checker/check.ts'
import type { Fault, History, Violation } from '../checker/history.ts'
import type { ExcusedShare } from '../checker/ownership.ts'
import { watchStalls } from '../node/clocks.ts'
import { Cluster } from './cluster.ts'
import { LEASE_MS, Run, type RunOptions } from './run.ts'

export interface ChaosOptions extends RunOptions {
  /** Where logs and histories go; it goes when everything held, unless they are to be kept. */
  readonly folder: string
  readonly keep: boolean
}

export interface ChaosResult {
  readonly history: History
  readonly violations: readonly Violation[]
  readonly excused: ExcusedShare
  /** Where logs and histories are; undefined when they were not kept. */
  readonly folder: string | undefined
}

const PROGRESS_MS = 5000

/** One run: starts everything, breaks it as the seed says, heals it, and checks what everyone saw. */
export async function runChaos(options: ChaosOptions): Promise<ChaosResult> {
  const { nodes, unfenced, direct, folder } = options
  await mkdir(folder, { recursive: true })
  const cluster = await Cluster.start({ nodes, unfenced, direct, folder, lease_ms: LEASE_MS })
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

/** The history of a run, with progress for people, and with the times in which this process, which all links go through, stood still. */
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
