import { readFileSync } from 'node:fs'
import { Registry } from 'prom-client'
import { describe, expect, it } from 'vitest'
import { parse } from 'yaml'
import { controlMetrics } from '../../control/metrics.ts'
import { nodeMetrics } from '../../dataplane/node.ts'
import { systemClock } from '../../shared/clock.ts'
import { createLog } from '../../shared/log.ts'
import { processMetrics, registerMetrics } from '../../shared/metrics.ts'
import { storeMetrics, storeServerMetrics } from '../../shared/store/health.ts'
import { memoryStore } from '../../shared/store/memory/memory.ts'
import { WORKER_METRICS } from '../cli/workers.ts'

interface Target {
  readonly expr: string
  readonly legendFormat?: string
}

interface PanelJson {
  readonly id: number
  readonly type: string
  readonly title: string
  readonly description?: string
  readonly datasource?: object
  readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number }
  readonly targets?: readonly (Target & { readonly refId: string; readonly datasource: object })[]
  readonly fieldConfig?: { readonly defaults: { readonly unit: string } }
}

const read = (path: string): string => readFileSync(new URL(path, import.meta.url), 'utf8')
const stored = JSON.parse(read('dashboards/roomful.json'))
const panels: readonly PanelJson[] = stored.panels
const graphs = panels.filter(({ type }) => type !== 'row')

interface Rule {
  readonly alert: string
  readonly expr: string
}

const annotations: readonly { name: string; target: Target }[] = stored.annotations.list
const choices: readonly { name: string; definition?: string }[] = stored.templating.list
const groups: readonly { rules: readonly Rule[] }[] = parse(read('../prometheus/alerts.yml')).groups
/** All places with queries: panels, annotations, variables and alerts. */
const queries: readonly (readonly [asker: string, expr: string, legend?: string | undefined])[] = [
  ...panels.flatMap(({ title, targets = [] }) =>
    targets.map(({ expr, legendFormat }) => [title, expr, legendFormat] as const),
  ),
  ...annotations.map(({ name, target: { expr } }) => [name, expr] as const),
  ...choices.flatMap(({ name, definition }) => (definition ? [[name, definition] as const] : [])),
  ...groups.flatMap(({ rules }) => rules).map(({ alert, expr }) => [alert, expr] as const),
]

/** Labels that Prometheus, its configuration, a process with workers or a histogram adds. */
const ADDED = ['namespace', 'job', 'instance', 'worker', 'le']

/** One registry for each kind of process, because both kinds declare some metrics. */
const registries = [new Registry(), new Registry(), new Registry()] as const
const [node, control, workers] = registries
const store = memoryStore({ clock: systemClock })
nodeMetrics(node, ['chess'])
storeMetrics(node, store, { clockOffset: { ms: 0 }, dataWatch: { lost: false } })
processMetrics(node, createLog({ logLevel: 'silent' }))
controlMetrics(control)
storeServerMetrics(control, store.vitals, systemClock)
registerMetrics(workers, WORKER_METRICS)

/** Returns the metric that has the series of this name. Undefined: no process has it. */
const metricOf = (series: string) => {
  const names = [series, series.replace(/_(bucket|sum|count)$/, '')]
  const found = registries.flatMap((registry) => names.map((name) => registry.getSingleMetric(name)))
  // The type of prom-client does not include the labels of a metric.
  return found.find((metric) => metric !== undefined) as
    | { readonly labelNames: readonly string[]; get(): Promise<{ readonly values: readonly Series[] }> }
    | undefined
}
interface Series {
  readonly labels: Readonly<Record<string, string | number>>
}

const selectorsIn = (expr: string) => [...expr.matchAll(/\b(service_\w+)(?:\{([^}]*)\})?/g)]

describe('A query of the dashboard or an alert', () => {
  it('names only metrics, labels and values that exist', async () => {
    for (const [asker, expr] of queries)
      for (const [, series, matchers = ''] of selectorsIn(expr)) {
        const metric = metricOf(series!)
        expect(metric, `${asker}: the metric ${series}`).toBeDefined()
        const own = (await metric!.get()).values
        for (const [, label, operator, text] of matchers.matchAll(/(\w+)(=~|!=|!~|=)"([^"]*)"/g)) {
          expect([...ADDED, ...metric!.labelNames], `${asker}: the labels of ${series}`).toContain(label)
          const known = own.flatMap(({ labels }) => (label! in labels ? [labels[label!]] : []))
          // Values of an open label, such as a route, appear with the first request.
          if (known.length === 0) continue
          for (const value of operator!.endsWith('~') ? text!.split('|') : [text])
            expect(known, `${asker}: the values of ${series}, label ${label}`).toContain(value)
        }
      }
  })

  it('groups by, and shows, only labels that its metrics have', () => {
    for (const [asker, expr, legend = ''] of queries) {
      const own = selectorsIn(expr).flatMap(([, series]) => metricOf(series!)?.labelNames ?? [])
      if (own.length === 0 && !expr.includes('service_')) continue
      const has = [...ADDED, ...own]
      const groupings = [...expr.matchAll(/\b(?:by|on) \(([^)]*)\)/g)].map(([, labels]) =>
        labels!.split(', '),
      )
      for (const label of groupings.flat()) expect(has, `${asker}: ${expr}`).toContain(label)
      for (const [, label] of legend.matchAll(/\{\{(\w+)\}\}/g))
        expect(groupings.at(-1) ?? has, `${asker}: the legend of ${expr}`).toContain(label)
    }
  })
})

describe('deploy/grafana/dashboards/roomful.json', () => {
  it('has panels with different titles that do not overlap', () => {
    expect(new Set(panels.map(({ id }) => id)).size).toBe(panels.length)
    const taken = new Map<string, string>()
    for (const { title, gridPos } of panels) {
      expect(gridPos.x + gridPos.w, title).toBeLessThanOrEqual(24)
      for (let x = gridPos.x; x < gridPos.x + gridPos.w; x++)
        for (let y = gridPos.y; y < gridPos.y + gridPos.h; y++) {
          expect(taken.get(`${x},${y}`), `what lies where ${title} does`).toBeUndefined()
          taken.set(`${x},${y}`, title)
        }
    }
  })

  it('has a title, an explanation and a unit for every graph, and one name for each metric', () => {
    expect(new Set(graphs.map(({ title }) => title)).size).toBe(graphs.length)
    for (const { title, description, fieldConfig } of graphs) {
      expect(title).toMatch(/^[A-Z]/)
      expect(description, title).toMatch(/^\S.{15,}\.$/)
      expect(fieldConfig?.defaults.unit, title).toMatch(/^[a-zA-Z]+$/)
    }
  })

  it('queries the data source and the processes that the reader has chosen', () => {
    const names = stored.templating.list.map(({ name }: { name: string }) => name)
    const datasource = { type: 'prometheus', uid: '$datasource' }
    for (const { title, datasource: own, targets } of graphs) {
      expect(own, title).toEqual(datasource)
      expect(new Set(targets?.map(({ refId }) => refId)).size, title).toBe(targets?.length)
      for (const target of targets ?? []) {
        expect(target.datasource, title).toEqual(datasource)
        for (const [, name] of target.expr.matchAll(/\$(\w+)/g))
          expect([...names, '__rate_interval'], title).toContain(name)
      }
    }
  })
})

describe('deploy/grafana/provisioning', () => {
  it('configures Grafana with the Prometheus of compose, and the folder in which it mounts the dashboards', () => {
    const compose = parse(read('../compose.yaml'), { merge: true })
    const [source] = parse(read('provisioning/datasources/prometheus.yaml')).datasources
    const { hostname } = new URL(source.url)
    expect(Object.keys(compose.services)).toContain(hostname)
    const [provider] = parse(read('provisioning/dashboards/roomful.yaml')).providers
    const mounted = compose.services.grafana.volumes.map((volume: string) => volume.split(':'))
    expect(mounted).toContainEqual(['./grafana/dashboards', provider.options.path, 'ro'])
    const { scrape_interval: scrapeInterval } = parse(read('../prometheus/prometheus.yml')).global
    expect(source.jsonData.timeInterval).toBe(scrapeInterval)
  })
})
