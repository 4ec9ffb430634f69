import { spawnSync } from 'node:child_process'
import { copyFileSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { programOr } from '../debian-package.ts'
import type { Samples } from './recording.ts'

/** How an alert should fire: promtool compares labels and annotations whole. */
interface ExpectedAlert {
  readonly exp_labels: Readonly<Record<string, string>>
  readonly exp_annotations: Readonly<Record<string, string>>
}

/** One case for `promtool test rules`. */
export interface RuleCase {
  readonly name: string
  /** Between samples, seconds. */
  readonly step: number
  readonly series: ReadonlyMap<string, Samples>
  /** The alerts of one name that fire at a moment, in seconds. */
  readonly alerts?: readonly {
    readonly at: number
    readonly alertname: string
    readonly expected: readonly ExpectedAlert[]
  }[]
  /** What an expression gives at a moment, in seconds. */
  readonly expressions?: readonly {
    readonly at: number
    readonly expr: string
    readonly expected: readonly { readonly labels: string; readonly value: number }[]
  }[]
}

/** Runs promtool with these words; gives what it says. Throws, with all it says, when it finds a fault. */
export function promtool(...words: string[]): string {
  const run = spawnSync(programOr('promtool', 'prometheus'), words, { encoding: 'utf8' })
  if (run.error) throw run.error
  const said = `${run.stdout}${run.stderr}`
  if (run.status !== 0) throw new Error(said)
  return said
}

/** Runs `promtool test rules` over `rules`, the path of a file of rules. Throws with what promtool found wrong. */
export function testRules(rules: string, cases: readonly RuleCase[]): void {
  const folder = mkdtempSync(join(tmpdir(), 'roomful-rules-'))
  try {
    const file = basename(rules)
    copyFileSync(rules, join(folder, file))
    const step = Math.min(...cases.map((one) => one.step))
    // Every JSON is a YAML, and is written in no time.
    const test = { rule_files: [file], evaluation_interval: `${step}s`, tests: cases.map(toTest) }
    writeFileSync(join(folder, 'test.yml'), JSON.stringify(test))
    promtool('test', 'rules', join(folder, 'test.yml'))
  } finally {
    rmSync(folder, { recursive: true })
  }
}

const toTest = ({ name, step, series, alerts = [], expressions = [] }: RuleCase): object => ({
  name,
  interval: `${step}s`,
  input_series: [...series].map(([key, samples]) => ({
    series: key,
    values: samples.map((sample, n) => written(sample, samples[n - 1])).join(' '),
  })),
  alert_rule_test: alerts.map(({ at, alertname, expected }) => ({
    eval_time: `${at}s`,
    alertname,
    exp_alerts: expected,
  })),
  promql_expr_test: expressions.map(({ at, expr, expected }) => ({
    eval_time: `${at}s`,
    expr,
    exp_samples: expected,
  })),
})

/** As promtool writes samples. Prometheus marks a series as stale when it is there no more. */
function written(sample: number | undefined, before: number | undefined): string {
  if (sample === undefined) return before === undefined ? '_' : 'stale'
  return `${Number(sample.toPrecision(10))}`
}
