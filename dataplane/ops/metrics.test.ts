import { Registry } from 'prom-client'
import { describe, expect, it } from 'vitest'
import { systemClock } from '../../shared/clock.ts'
import { memoryStore } from '../../shared/store/memory/memory.ts'
import { nodeMetrics } from './metrics.ts'
import { eventLoopDelay, registerGauges } from './process-metrics.ts'

describe('metrics of a node', () => {
  it('all begin with service_, and counters end with _total', async () => {
    const registry = everything()
    for (const { name, type } of await registry.getMetricsAsJSON()) {
      expect(name).toMatch(/^service_[a-z0-9_]+$/)
      if (String(type) === 'counter') expect(name).toMatch(/_total$/)
    }
  })

  it('are there before anything happened', async () => {
    const text = await everything().metrics()
    expect(text).toContain('service_handshakes_total{result="welcome"} 0')
    expect(text).toContain('service_websocket_errors_total{code="rate_limited"} 0')
    expect(text).toContain('service_closes_total{name="lost"} 0')
    expect(text).toContain('service_rooms 0')
  })

  it('count handshakes and resumes by result', async () => {
    const registry = new Registry()
    const metrics = nodeMetrics(registry).gateway
    metrics.handshake('welcome', 0.02)
    metrics.handshake('resumed', 0.03)
    metrics.handshake('resume_failed', 0.01)
    metrics.handshake('unauthenticated', 0.01)
    const text = await registry.metrics()
    expect(text).toContain('service_handshakes_total{result="unauthenticated"} 1')
    expect(text).toContain('service_resumes_total{result="resumed"} 1')
    expect(text).toContain('service_resumes_total{result="failed"} 1')
    expect(text).toContain('service_handshake_duration_seconds_count 2')
  })

  it('count as websocket errors what was somebody’s fault, not goodbyes and lost connections', async () => {
    const registry = new Registry()
    const metrics = nodeMetrics(registry).gateway
    metrics.error('invalid_payload')
    metrics.closed('protocol_error')
    metrics.closed('slow_consumer')
    metrics.closed('normal')
    metrics.closed('lost')
    metrics.closed('draining')
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

  it('count messages, writes and bytes', async () => {
    const registry = new Registry()
    const metrics = nodeMetrics(registry).gateway
    metrics.messageIn('message', 40)
    metrics.messageIn('ping', 2)
    metrics.written(1000, 25)
    const text = await registry.metrics()
    expect(text).toContain('service_messages_received_total{t="message"} 1')
    expect(text).toContain('service_received_bytes_total 42')
    expect(text).toContain('service_socket_writes_total 25')
    expect(text).toContain('service_written_bytes_total 1000')
  })
})

describe('metrics of rooms', () => {
  it('count by room type', async () => {
    const registry = new Registry()
    const { rooms } = nodeMetrics(registry)
    rooms.applied('arena')
    rooms.applied('arena')
    rooms.error('arena', 'room_logic_failed')
    rooms.resync('chess', 'checksum')
    rooms.delivered('arena', 0.02)
    rooms.committed(0.004)
    rooms.rateLimited('arena')
    rooms.rooms(3)
    rooms.members(40)
    const text = await registry.metrics()
    for (const line of [
      'service_messages_applied_total{room_type="arena"} 2',
      'service_room_errors_total{room_type="arena",code="room_logic_failed"} 1',
      'service_resyncs_total{room_type="chess",reason="checksum"} 1',
      'service_message_delivery_duration_seconds_bucket{le="0.025",room_type="arena"} 1',
      'service_commit_duration_seconds_count 1',
      'service_rate_limited_total{by="type"} 1',
      'service_rooms 3',
      'service_members 40',
    ])
      expect(text).toContain(line)
  })

  it('are there from the start for room types that are installed, whatever other names clients send', async () => {
    const registry = new Registry()
    const { rooms } = nodeMetrics(registry, ['arena'])
    for (let i = 0; i < 300; i++) rooms.error(`type-${i}`, 'unknown_room_type')
    rooms.error('arena', 'room_logic_failed')
    const text = await registry.metrics()
    for (const line of [
      'service_resyncs_total{room_type="arena",reason="checksum"} 0',
      'service_messages_applied_total{room_type="arena"} 0',
      'service_room_errors_total{room_type="arena",code="room_logic_failed"} 1',
      'service_room_errors_total{room_type="arena",code="room_full"} 0',
    ])
      expect(text).toContain(line)
  })

  it('do not grow without end with names of room types', async () => {
    const registry = new Registry()
    const { rooms } = nodeMetrics(registry)
    for (let i = 0; i < 1000; i++) rooms.error(`type-${i}`, 'unknown_room_type')
    const { values } = await registry.getSingleMetric('service_room_errors_total')!.get()
    expect(values).toHaveLength(201)
    expect(values.find(({ labels }) => labels.room_type === 'other')?.value).toBe(800)
  })
})

describe('metrics of the cluster', () => {
  it('count envelopes and what was in them, faults, and claims by result', async () => {
    const registry = new Registry()
    const { cluster } = nodeMetrics(registry)
    cluster.published(7, 900)
    cluster.published(0, 40)
    cluster.gap()
    cluster.claim('taken_over', 0.01)
    cluster.claim('elsewhere', 0.001)
    cluster.leaseRenewed(0.5)
    cluster.nodesAlive(3)
    cluster.nodeGone()
    const text = await registry.metrics()
    for (const line of [
      'service_peer_publishes_total 2',
      'service_peer_messages_total 7',
      'service_peer_bytes_total 940',
      'service_peer_faults_total{fault="gap"} 1',
      'service_claims_total{result="taken_over"} 1',
      'service_claims_total{result="elsewhere"} 1',
      'service_claim_duration_seconds_count 1',
      'service_lease_renewal_interval_seconds_count 1',
      'service_nodes_alive 3',
      'service_nodes_gone_total 1',
    ])
      expect(text).toContain(line)
  })
})

function everything(): Registry {
  const registry = new Registry()
  nodeMetrics(registry)
  eventLoopDelay(registry)
  registerGauges(registry, {
    gateway: { connections: 1, sessions: 2, pending: 4, queued_bytes: 300 },
    host: { frozen: 1, history_bytes: 0 },
    lease: { age_ms: 250 },
    store: memoryStore({ clock: systemClock }),
    load: { event_loop_utilisation: 0.5 },
    draining: () => false,
    node_id: 'node_1',
    version: '1.2.3',
    config: { max_sessions: 20_000, max_rooms: 10_000, node_lease_ms: 2000 },
  })
  return registry
}
