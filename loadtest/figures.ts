import { spawnSync } from 'node:child_process'
import { mkdir, writeFile } from 'node:fs/promises'
import { cpus, loadavg } from 'node:os'
import { dirname } from 'node:path'
import { parseArgs } from 'node:util'
import { findProgram } from '../deploy/local/programs.ts'
import { packageVersion } from '../shared/version.ts'
import { costMeasurements } from './figures/cost-measurements.ts'
import type { Findings } from './figures/figure.ts'
import type { Measurement } from './figures/measurement.ts'
import { machineTimes, shareOfOthers } from './figures/others.ts'
import { figuresPage } from './figures/page.ts'
import { pauseMeasurements } from './figures/pause-measurements.ts'
import { isBuilt } from './figures/processes.ts'

/**
 * `npm run figures`: what members see when a process of a cluster ends, hangs or is replaced, and what a cluster costs, measured on real
 * processes of this machine.
 */
const MEASUREMENTS: readonly Measurement[] = [...pauseMeasurements, ...costMeasurements]

const HELP = `npm run figures -- [options]

  --only A,B      some measurements; all are ${MEASUREMENTS.map(({ name }) => name).join(', ')}
  --runs N        runs of each (20)
  --out FILE      where the page goes (docs/figures.md when everything is measured, else nowhere)
  --json FILE     where the figures go as JSON

Needs redis-server (or valkey-server) and an otherwise quiet machine.
`
/** For the start and the end of a cluster. */
const MOST_MS_BESIDES = 120_000

const { values } = parseArgs({
  options: {
    only: { type: 'string' },
    runs: { type: 'string', default: '20' },
    out: { type: 'string' },
    json: { type: 'string' },
    help: { type: 'boolean', default: false },
  },
})
const say = (line: string): void => void process.stdout.write(`${line}\n`)

function fail(text: string): never {
  process.stderr.write(`${text}\n\n${HELP}`)
  process.exit(2)
}

function chosen(names: string | undefined): readonly Measurement[] {
  if (names === undefined) return MEASUREMENTS
  return names.split(',').map((name) => {
    const found = MEASUREMENTS.find((measurement) => measurement.name === name.trim())
    return found ?? fail(`there is no measurement ${JSON.stringify(name)}`)
  })
}

/** One measurement, which may not take for ever; its processes end with this one. */
async function measure(measurement: Measurement, runs: number): Promise<Findings> {
  const began = performance.now()
  const { name, most_ms_per_run } = measurement
  const watchdog = setTimeout(
    () => {
      process.stderr.write(`\n${name} hangs\n`)
      process.exit(1)
    },
    most_ms_per_run * runs + MOST_MS_BESIDES,
  )
  const before = await machineTimes()
  const findings = await measurement.run({ runs, progress: (text) => say(`${name}: ${text}`) })
  const after = await machineTimes()
  clearTimeout(watchdog)
  say(`${name}: done in ${Math.round((performance.now() - began) / 1000)} s`)
  return { ...findings, others: before && after && shareOfOthers(before, after) }
}

function redisVersion(): string {
  const program = findProgram(['redis-server', 'valkey-server'], process.env.PATH)
  const { stdout = '' } = program ? spawnSync(program, ['--version'], { encoding: 'utf8' }) : {}
  return /v=(\S+)/.exec(stdout)?.[1] ?? 'unknown'
}

async function save(file: string, text: string): Promise<void> {
  await mkdir(dirname(file), { recursive: true })
  await writeFile(file, text)
  say(`written to ${file}`)
}

async function main(): Promise<void> {
  const runs = Number(values.runs)
  if (!Number.isInteger(runs) || runs < 1)
    fail(`--runs is ${values.runs}; it must be a positive whole number`)
  const measurements = chosen(values.only)
  const circumstances = {
    date: new Date().toISOString().slice(0, 16).replace('T', ' '),
    cores: cpus().length,
    processor: cpus()[0]?.model ?? 'unknown',
    node: process.version,
    redis: redisVersion(),
    version: packageVersion(),
    runs,
    built: isBuilt(),
    load_before: (loadavg()[0] ?? 0) / cpus().length,
  }
  const findings: Findings[] = []
  for (const measurement of measurements) findings.push(await measure(measurement, runs))
  const page = figuresPage(findings, circumstances)
  say(`\n${page}`)
  const out = values.out ?? (values.only === undefined ? 'docs/figures.md' : undefined)
  if (out !== undefined) await save(out, page)
  if (values.json !== undefined)
    await save(values.json, `${JSON.stringify({ circumstances, findings }, undefined, 2)}\n`)
}

if (values.help) say(HELP)
else {
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, () => process.exit(1))
  await main()
  process.exit(0)
}
