import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { parse } from 'yaml'

interface PanelJson {
  readonly id: number
  readonly type: string
  readonly title: string
  readonly description?: string
  readonly datasource?: object
  readonly gridPos: { readonly x: number; readonly y: number; readonly w: number; readonly h: number }
  readonly targets?: readonly { readonly refId: string; readonly expr: string; readonly datasource: object }[]
  readonly fieldConfig?: { readonly defaults: { readonly unit: string } }
}

const read = (path: string): string => readFileSync(new URL(path, import.meta.url), 'utf8')
const stored = JSON.parse(read('dashboards/roomful.json'))
const panels: readonly PanelJson[] = stored.panels
const graphs = panels.filter(({ type }) => type !== 'row')

describe('deploy/grafana/dashboards/roomful.json', () => {
  it('has panels that can be told apart and do not lie on each other', () => {
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

  it('has a title, an explanation and a unit for every graph, each by one name only', () => {
    expect(new Set(graphs.map(({ title }) => title)).size).toBe(graphs.length)
    for (const { title, description, fieldConfig } of graphs) {
      expect(title).toMatch(/^[A-Z]/)
      expect(description, title).toMatch(/^\S.{15,}\.$/)
      expect(fieldConfig?.defaults.unit, title).toMatch(/^[a-zA-Z]+$/)
    }
  })

  it('asks the data source that the reader has chosen, about the processes that the reader has chosen', () => {
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
  it('gives Grafana the Prometheus of compose, and the folder in which it mounts the dashboards', () => {
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
