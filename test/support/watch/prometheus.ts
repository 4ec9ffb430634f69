import { spawn } from 'node:child_process'
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { vi } from 'vitest'
import { parse } from 'yaml'
import { programOr } from '../debian-package.ts'
import { freePort } from '../redis-port.ts'

/** One series of an answer: its labels, and its values, oldest first. */
export interface Answer {
  readonly metric: Readonly<Record<string, string>>
  readonly values: readonly number[]
}

/** A real Prometheus with the configuration and the alerts of this repository. */
export interface TestPrometheus {
  /** What an expression gives now. Throws when Prometheus refuses it. */
  query(expr: string): Promise<Answer[]>
  /** What it gives at each second since `since` (milliseconds since 1970). */
  range(expr: string, since: number): Promise<Answer[]>
  /** The names of the alerts that are pending or firing. */
  alerts(): Promise<string[]>
  close(): Promise<void>
}

/** The targets of each job, as `host:port`. */
type Targets = Readonly<Record<'roomful-node' | 'roomful-control', readonly string[]>>

const deployed = (name: string): string =>
  fileURLToPath(new URL(`../../../deploy/prometheus/${name}`, import.meta.url))

/** Starts Prometheus as `deploy/prometheus/` says, but for these targets, every second; resolves once it has heard from all of them. */
export async function startPrometheus(targets: Targets): Promise<TestPrometheus> {
  const folder = mkdtempSync(join(tmpdir(), 'roomful-prometheus-'))
  copyFileSync(deployed('alerts.yml'), join(folder, 'alerts.yml'))
  writeFileSync(join(folder, 'prometheus.yml'), JSON.stringify(configurationFor(targets)))
  const port = await freePort()
  const child = spawn(
    programOr('prometheus'),
    [
      `--config.file=${join(folder, 'prometheus.yml')}`,
      `--storage.tsdb.path=${join(folder, 'data')}`,
      `--web.listen-address=127.0.0.1:${port}`,
      '--log.level=warn',
    ],
    { stdio: ['ignore', 'ignore', 'pipe'] },
  )
  let said = ''
  child.stderr.on('data', (chunk) => {
    said += chunk
  })
  const onExit = () => void child.kill('SIGKILL')
  process.once('exit', onExit)
  const ask = async (path: string, query: Record<string, string> = {}) => {
    const response = await fetch(`http://127.0.0.1:${port}/api/v1/${path}?${new URLSearchParams(query)}`)
    const { status, error, data } = (await response.json()) as { status: string; error: string; data: Data }
    if (status !== 'success') throw new Error(`Prometheus refuses ${query.query ?? path}: ${error}`)
    return data
  }
  const prometheus: TestPrometheus = {
    query: async (query) =>
      (await ask('query', { query })).result.map(({ metric, value }) => ({
        metric,
        values: [Number(value[1])],
      })),
    range: async (query, since) => {
      const [start, end] = [since / 1000, Date.now() / 1000].map(String) as [string, string]
      const { result } = await ask('query_range', { query, start, end, step: '1s' })
      return result.map(({ metric, values }) => ({
        metric,
        values: values.map(([, value]) => Number(value)),
      }))
    },
    alerts: async () => (await ask('alerts')).alerts.map(({ labels }) => labels.alertname!),
    close: async () => {
      process.off('exit', onExit)
      const gone = new Promise((resolve) => child.once('exit', resolve))
      child.kill('SIGKILL')
      await gone
      rmSync(folder, { recursive: true })
    },
  }
  const count = Object.values(targets).flat().length
  await vi
    .waitFor(async () => {
      const [up] = await prometheus.query('sum(up)')
      if (up?.values[0] !== count) throw new Error(`${up?.values[0] ?? 0} of ${count} targets answer`)
    }, 15_000)
    .catch(async (error) => {
      await prometheus.close()
      throw new Error(`Prometheus does not start: ${error}\n${said}`)
    })
  return prometheus
}

function configurationFor(targets: Targets): object {
  const {
    global,
    rule_files: ruleFiles,
    scrape_configs: scrapeConfigs,
  } = parse(readFileSync(deployed('prometheus.yml'), 'utf8'))
  return {
    global: { ...global, scrape_interval: '1s', scrape_timeout: '1s', evaluation_interval: '1s' },
    rule_files: ruleFiles,
    scrape_configs: scrapeConfigs.map((job: { job_name: keyof Targets }) => ({
      ...job,
      static_configs: [{ targets: targets[job.job_name] }],
    })),
  }
}

interface Data {
  readonly result: readonly {
    readonly metric: Readonly<Record<string, string>>
    readonly value: readonly [number, string]
    readonly values: readonly (readonly [number, string])[]
  }[]
  readonly alerts: readonly { readonly labels: Readonly<Record<string, string>> }[]
}

/**
 * Every selector of a series in an expression, as Prometheus takes it: `name{label="value"}`. One with alternatives
 * (`result=~"a|b"`) becomes one for each, so that a value which no process knows is found.
 */
export function selectorsIn(expr: string): string[] {
  const selectors = [...expr.matchAll(/\b(?:service_\w+|up)\b(?:\{[^}]*\})?/g)].map(([selector]) => selector)
  return [...new Set(selectors.flatMap(alternatives))]
}

function alternatives(selector: string): string[] {
  const found = /(\w+)=~"([\w|]+)"/.exec(selector)
  if (!found) return [selector]
  const [matcher, label, values = ''] = found
  return values.split('|').flatMap((value) => alternatives(selector.replace(matcher, `${label}="${value}"`)))
}
