import { Registry } from 'prom-client'
import { describe, expect, it } from 'vitest'
import { countClose, countHandshake } from './gateway/metrics.ts'
import { ProjectCounts } from './metrics.ts'
import { nodeMetrics } from './node.ts'

describe('counts of projects', () => {
  it('have a series for each of the 50 largest projects, and one for the sum of the others', () => {
    const counts = new ProjectCounts()
    for (let project = 1; project <= 60; project++)
      for (let n = 0; n < project; n++) counts.add(`prj_${project}`, 1)
    const { series } = counts
    expect(series).toHaveLength(51)
    expect(series[0]).toEqual([{ project_id: 'prj_60' }, 60])
    expect(series.at(-1)).toEqual([{ project_id: 'other' }, 55])
  })

  it('have no series for a project whose count is 0 again', () => {
    const counts = new ProjectCounts()
    counts.add('prj_one', 1)
    counts.add('prj_one', -1)
    expect(counts.series).toEqual([])
    expect(counts.of('prj_one')).toBe(0)
  })
})

describe('metrics of a node', () => {
  it('have names that begin with service_, and counters end with _total', async () => {
    const registry = new Registry()
    nodeMetrics(registry)
    for (const { name, type } of await registry.getMetricsAsJSON()) {
      expect(name).toMatch(/^service_[a-z0-9_]+$/)
      if (String(type) === 'counter') expect(name).toMatch(/_total$/)
    }
  })

  it('exist with value 0 before anything is counted', async () => {
    const registry = new Registry()
    nodeMetrics(registry)
    const text = await registry.metrics()
    expect(text).toContain('service_handshakes_total{result="welcome"} 0')
    expect(text).toContain('service_websocket_errors_total{code="rate_limited"} 0')
    expect(text).toContain('service_closes_total{name="lost"} 0')
    expect(text).toContain('service_rooms 0')
  })

  it('count handshakes and resumes by result', async () => {
    const registry = new Registry()
    const metrics = nodeMetrics(registry)
    countHandshake(metrics, 'welcome', 0.02)
    countHandshake(metrics, 'resumed', 0.03)
    countHandshake(metrics, 'resume_failed', 0.01)
    countHandshake(metrics, 'unauthenticated', 0.01)
    const text = await registry.metrics()
    expect(text).toContain('service_handshakes_total{result="unauthenticated"} 1')
    expect(text).toContain('service_resumes_total{result="resumed"} 1')
    expect(text).toContain('service_resumes_total{result="failed"} 1')
    expect(text).toContain('service_handshake_duration_seconds_count 2')
  })

  it('count closes for a fault as websocket errors, but not goodbyes, drains and lost connections', async () => {
    const registry = new Registry()
    const metrics = nodeMetrics(registry)
    metrics.websocketErrors.inc({ code: 'invalid_payload' })
    countClose(metrics, 'protocol_error')
    countClose(metrics, 'slow_consumer')
    countClose(metrics, 'normal')
    countClose(metrics, 'lost')
    countClose(metrics, 'draining')
    const counted = (await registry.getSingleMetric('service_websocket_errors_total')!.get()).values
      .filter(({ value }) => value > 0)
      .map(({ labels, value }) => [labels.code, value])
    expect(counted).toEqual([
      ['invalid_payload', 1],
      ['protocol_error', 1],
      ['slow_consumer', 1],
    ])
    expect(await registry.metrics()).toContain('service_slow_consumers_total{action="closed"} 1')
  })
})

describe('metrics of rooms', () => {
  it('exist from the start for installed room types, whatever names clients send', async () => {
    const registry = new Registry()
    const { roomErrors } = nodeMetrics(registry, ['arena'])
    for (let i = 0; i < 300; i++) roomErrors.inc({ room_type: `type-${i}`, code: 'unknown_room_type' })
    roomErrors.inc({ room_type: 'arena', code: 'room_logic_failed' })
    const text = await registry.metrics()
    for (const line of [
      'service_resyncs_total{room_type="arena",reason="checksum"} 0',
      'service_messages_applied_total{room_type="arena"} 0',
      'service_room_errors_total{room_type="arena",code="room_logic_failed"} 1',
      'service_room_errors_total{room_type="arena",code="room_full"} 0',
    ])
      expect(text).toContain(line)
  })

  it('count room types beyond the 200th as other', async () => {
    const registry = new Registry()
    const { roomErrors } = nodeMetrics(registry)
    for (let i = 0; i < 1000; i++) roomErrors.inc({ room_type: `type-${i}`, code: 'unknown_room_type' })
    const { values } = await registry.getSingleMetric('service_room_errors_total')!.get()
    expect(values).toHaveLength(201)
    expect(values.find(({ labels }) => labels.room_type === 'other')?.value).toBe(800)
  })
})
