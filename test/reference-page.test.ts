import { readFileSync } from 'node:fs'
import { Registry } from 'prom-client'
import { describe, expect, it } from 'vitest'
import { controlMetrics } from '../control/metrics.ts'
import { nodeMetrics } from '../dataplane/ops/metrics.ts'
import { eventLoopDelay, registerGauges } from '../dataplane/ops/process-metrics.ts'
import { systemClock } from '../shared/clock.ts'
import { variables } from '../shared/config/environment.ts'
import { processMetrics } from '../shared/process-metrics.ts'
import { CLOSE } from '../shared/protocol/close-codes.ts'
import { memoryStore } from '../shared/store/memory/memory.ts'
import { storeMetrics, storeServerMetrics } from '../shared/store/metrics.ts'

const page = readFileSync(new URL('../docs/reference.md', import.meta.url), 'utf8')

/** The rows of every table under a heading, to the next of its level or above, as cells of text. */
function rowsUnder(heading: string): string[][] {
  const level = heading.match(/^#+/)![0].length
  const section = page.split(`\n${heading}\n`)[1]?.split(new RegExp(`^#{1,${level}} `, 'm'))[0]
  if (section === undefined) throw new Error(`docs/reference.md has no heading "${heading}"`)
  return section
    .split('\n')
    .filter((line) => line.startsWith('| `'))
    .map((line) => line.slice(2, -2).split(' | '))
}

describe('docs/reference.md', () => {
  it('lists every environment variable as the program knows it', () => {
    const expected = variables().map(([name, variable]) => [
      `\`${name}\``,
      variable.meaning,
      variable.kind.expects,
      variable.default !== undefined ? `\`${variable.default}\`` : (variable.default_note ?? ''),
      variable.used_by
        .map((command) => (variable.required_by?.includes(command) ? `${command} (required)` : command))
        .join(', '),
    ])
    expect(rowsUnder('## Environment variables')).toEqual(expected)
  })

  it('lists every metric of a node', async () => {
    const registry = new Registry()
    nodeMetrics(registry)
    eventLoopDelay(registry)
    registerGauges(registry, {
      gateway: { connections: 0, sessions: 0, pending: 0, queued_bytes: 0 },
      host: { frozen: 0, history_bytes: 0 },
      lease: { age_ms: 0 },
      store: memoryStore({ clock: systemClock }),
      load: { event_loop_utilisation: 0 },
      draining: () => false,
      node_id: 'node_1',
      version: '1.2.3',
      config: { max_sessions: 0, max_rooms: 0, node_lease_ms: 2000 },
    })
    const documented = [...rowsUnder('### Of a node'), ...rowsUnder('### Of every process')]
    expect(sorted(documented)).toEqual(sorted(await metricsOf(registry)))
  })

  it('lists every metric of a control process', async () => {
    const registry = new Registry()
    controlMetrics(registry)
    const store = memoryStore({ clock: systemClock })
    storeMetrics(registry, store)
    storeServerMetrics(registry, store.vitals, systemClock)
    processMetrics(registry)
    const documented = [...rowsUnder('### Of control'), ...rowsUnder('### Of every process')]
    expect(sorted(documented)).toEqual(sorted(await metricsOf(registry)))
  })

  it('has a row for every close code', () => {
    expect(rowsUnder('## Close codes')).toEqual(
      Object.entries(CLOSE).map(([name, { code, meaning }]) => [`\`${code}\``, `\`${name}\``, meaning]),
    )
  })
})

const sorted = (rows: string[][]): string[][] => rows.toSorted((a, b) => (a[0]! < b[0]! ? -1 : 1))

/** Name, type, labels and help of each metric. */
async function metricsOf(registry: Registry): Promise<string[][]> {
  const metrics = await registry.getMetricsAsJSON()
  return metrics.map(({ name, type, help }) => {
    const { labelNames } = registry.getSingleMetric(name) as unknown as { labelNames: string[] }
    return [`\`${name}\``, String(type), labelNames.map((label) => `\`${label}\``).join(', '), help]
  })
}
