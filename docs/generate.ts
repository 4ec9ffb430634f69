import { readFileSync, writeFileSync } from 'node:fs'
import { type MetricObject, Registry } from 'prom-client'
import * as v from 'valibot'
import { controlMetrics } from '../control/metrics.ts'
import { nodeMetrics } from '../dataplane/node.ts'
import { RUNTIME_PARAMETERS } from '../dataplane/ops/runtime.ts'
import { WORKER_METRICS } from '../deploy/cli/workers.ts'
import { SCENARIOS } from '../loadtest/scenarios/index.ts'
import { systemClock } from '../shared/clock.ts'
import { expects } from '../shared/config/kinds.ts'
import { type Variable, variables } from '../shared/config/variables.ts'
import { createLog } from '../shared/log.ts'
import { processMetrics, registerMetrics } from '../shared/metrics.ts'
import { CLOSE, CLOSE_MEANINGS, type CloseName } from '../shared/protocol/error-codes.ts'
import { storeMetrics, storeServerMetrics } from '../shared/store/health.ts'
import { memoryStore } from '../shared/store/memory/memory.ts'
import type { Store } from '../shared/store/port.ts'
import { authorisationTables } from '../test/authorisation/matrix.ts'
import { errorTable } from './errors.ts'
import { LIMIT_TOPICS, limitList, metricIndex } from './limit-tables.ts'
import { PICTURES } from './pictures.ts'
import { code, PROTOCOL_PARTS, table } from './protocol-tables.ts'
import { alertIndex, runbookProblems } from './runbooks.ts'
import { measuredTable, playersTable, scalingChart } from './scaling.ts'
import { scenariosJson } from './scenarios/index.ts'
import { WALKS } from './walks.ts'
import { wordProblems } from './words.ts'

/**
 * `npm run docs`: writes the parts of pages that come from declarations in the code, between `<!-- npm run docs: NAME -->` and `<!-- /NAME
 * -->`. With `--check` it writes nothing, and exits with 1 if a file is not up to date.
 */

/** Returns what a variable may be, in fewer words than an error needs. */
const shortened = (expected: string): string =>
  expected
    .replace(/^a whole number of (\w+), (\S+)$/, '$2 $1')
    .replace(/^(a URL|an IP address) .*?, such as /, 'such as ')
    .replace(/^a port, /, '')
    .replace(/; each of 24 .*? off loopback/, '')

/** Returns the reader of a variable among control and nodes. */
function readerOf({ readBy }: Variable): 'control' | 'nodes' | 'both' {
  if (!readBy.includes('dataplane')) return readBy.includes('control') ? 'control' : 'both'
  return readBy.includes('control') ? 'both' : 'nodes'
}

const variableTable = (reader: 'control' | 'nodes' | 'both'): string =>
  table(
    ['Variable', 'Meaning', 'It may be', 'Default'],
    variables()
      .filter(([, variable]) => readerOf(variable) === reader)
      .map(([name, { help, schema, default: value, defaultNote, requiredBy }]) => [
        code(name),
        help,
        shortened(expects(schema)),
        [requiredBy?.includes('dataplane') && 'required', value === undefined ? defaultNote : code(value)]
          .filter(Boolean)
          .join('; '),
      ]),
  )

const runtimeTable = (): string =>
  table(
    ['Parameter', 'Effect'],
    Object.entries(RUNTIME_PARAMETERS).map(([name, { wrapped }]) => [
      code(name),
      v.getDescription(wrapped) ?? '',
    ]),
  )

/** Returns a registry with the metrics of every process, and with those that `registerOwn` adds. */
function registryWith(registerOwn: (registry: Registry, store: Store) => void): Registry {
  const registry = new Registry()
  const store = memoryStore({ clock: systemClock })
  registerOwn(registry, store)
  storeMetrics(registry, store, { clockOffset: { ms: 0 }, dataWatch: { lost: false } })
  processMetrics(registry, createLog({ logLevel: 'silent' }))
  return registry
}

/** Returns the metrics as a list: their names are too long for a column on a phone. */
async function metricList(registry: Registry, isIn: (name: string) => boolean): Promise<string> {
  const metrics = (await registry.getMetricsAsJSON()).filter(({ name }) => isIn(name))
  const lines = metrics.map((metric) => {
    const labels = labelsOf(registry, metric).join(', ')
    const name = code(labels ? `${metric.name}{${labels}}` : metric.name)
    return `- ${name}${String(metric.type) === 'histogram' ? ' (histogram)' : ''}: ${metric.help}`
  })
  return lines.join('\n')
}

/** Returns the declared labels of a metric. It has no series yet that would show them. */
function labelsOf(registry: Registry, { name }: MetricObject): string[] {
  const metric = registry.getSingleMetric(name)
  return metric && 'labelNames' in metric && Array.isArray(metric.labelNames) ? metric.labelNames : []
}

const read = (path: string): string => readFileSync(new URL(`../${path}`, import.meta.url), 'utf8')

/** Returns the scenarios of the load test that measure something, or the others. */
const scenarioTable = (measures: boolean): string =>
  table(
    ['Scenario', 'What happens'],
    SCENARIOS.filter(({ runs }) => (runs !== undefined) === measures).map(({ name, meaning }) => [
      code(name),
      meaning,
    ]),
  )

const node = registryWith((registry) => void nodeMetrics(registry))
const control = registryWith((registry, { vitals }) => {
  controlMetrics(registry)
  storeServerMetrics(registry, vitals, systemClock)
})
const workers = new Registry()
registerMetrics(workers, WORKER_METRICS)
const onNodes = (name: string): boolean => node.getSingleMetric(name) !== undefined
const onWorkers = (name: string): boolean => workers.getSingleMetric(name) !== undefined
const onControl = (name: string): boolean => control.getSingleMetric(name) !== undefined

/** Metrics that prom-client collects from Node, with its own descriptions. */
const OF_NODE_JS = /^service_(process|nodejs)_/

/** Returns the text between the marks of each name. `before`: the current text. */
const PARTS: Readonly<Record<string, (before: string) => string | Promise<string>>> = {
  'variables of control': () => variableTable('control'),
  'variables of nodes': () => variableTable('nodes'),
  'variables of both': () => variableTable('both'),
  'parameters of /admin/runtime': runtimeTable,
  'metrics of a node': () => metricList(node, (name) => !onControl(name)),
  'metrics of control': () => metricList(control, (name) => !onNodes(name)),
  'metrics of every process': () => metricList(node, (name) => onControl(name) && !OF_NODE_JS.test(name)),
  'metrics of workers': () => metricList(workers, () => true),
  errors: () => errorTable(false),
  'errors of tickets': () => errorTable(true),
  'names of close codes': () =>
    table(
      ['Code', 'Name', 'Meaning'],
      (Object.keys(CLOSE) as CloseName[]).map((name) => [
        code(CLOSE[name]),
        code(name),
        CLOSE_MEANINGS[name],
      ]),
    ),
  ...PROTOCOL_PARTS,
  ...Object.fromEntries(LIMIT_TOPICS.map((topic) => [`limits of ${topic}`, () => limitList(topic)])),
  'limits by metric': metricIndex,
  'alerts by name': alertIndex,
  authorisation: authorisationTables,
  'scaling, measured': measuredTable,
  'scaling, players': playersTable,
  scenarios: () => scenarioTable(false),
  measurements: () => scenarioTable(true),
}

const PART = /(<!-- npm run docs: (.+?) -->\n)([\s\S]*?)(<!-- \/\2 -->)/g

const placed = new Set<string>()

/** Returns the page with every generated part. */
async function withParts(page: string): Promise<string> {
  let text = ''
  let end = 0
  for (const match of page.matchAll(PART)) {
    const [whole, begin, name, before, close] = match
    const part = PARTS[name!]
    if (!part) throw new Error(`a page wants "${name}"; there is ${Object.keys(PARTS).join(', ')}`)
    placed.add(name!)
    text += `${page.slice(end, match.index)}${begin}\n${await part(before!)}\n\n${close}`
    end = match.index + whole.length
  }
  return text + page.slice(end)
}

const rewritten: Readonly<Record<string, (before: string) => string | Promise<string>>> = {
  'docs/reference.md': withParts,
  'docs/limits.md': withParts,
  'docs/runbooks.md': withParts,
  'docs/protocol.md': withParts,
  'docs/client.md': withParts,
  'docs/matchmaking.md': withParts,
  'docs/protocol-scenarios.json': scenariosJson,
  'test/authorisation/README.md': withParts,
  'docs/loadtest.md': withParts,
  'docs/scaling.md': withParts,
  'test/compare/lab-book.md': withParts,
  'docs/scaling.svg': scalingChart,
  ...WALKS,
  ...PICTURES,
}

const check = process.argv.includes('--check')
for (const [path, rewrite] of Object.entries(rewritten)) {
  const file = new URL(`../${path}`, import.meta.url)
  const before = readFileSync(file, 'utf8')
  const after = await rewrite(before)
  if (after === before) continue
  if (check) process.exitCode = 1
  else writeFileSync(file, after)
  process.stdout.write(check ? `${path} is not up to date: npm run docs writes it\n` : `wrote ${path}\n`)
}

const lost = Object.keys(PARTS).filter((name) => !placed.has(name))
if (lost.length > 0) throw new Error(`no page has the marks of ${lost.join(', ')}`)

/** Pages with handwritten names of metrics. */
const NAMED_IN = ['docs/limits.md', 'docs/monitoring.md', 'docs/operations.md', 'docs/runbooks.md']
for (const page of NAMED_IN)
  for (const [name] of read(page).matchAll(/\bservice_[a-z_]+[a-z]\b/g)) {
    const base = name.replace(/_(bucket|sum|count)$/, '')
    if (![name, base].some((one) => onNodes(one) || onControl(one) || onWorkers(one)))
      throw new Error(`${page} names the metric ${name}, and there is none`)
  }

const lacks = runbookProblems()
if (lacks.length > 0) throw new Error(lacks.join('\n'))

const words = wordProblems()
if (words.length > 0) throw new Error(`texts need other words (docs/words.ts):\n${words.join('\n')}`)
