import { Gauge, type Registry } from 'prom-client'
import { processMetrics } from '../../shared/process-metrics.ts'
import { storeMetrics } from '../../shared/store/metrics.ts'
import type { Store } from '../../shared/store/port.ts'
import { Instruments } from './instruments.ts'
import type { Load } from './load.ts'

/** What is read at each scrape. */
export interface Sources {
  readonly gateway: {
    /** Sessions whose socket this node holds. */
    readonly connections: number
    /** The same, and those that may still be resumed. */
    readonly sessions: number
    /** Sockets that have no session yet. */
    readonly pending: number
    /** What waits to be read by all clients together. */
    readonly queued_bytes: number
  }
  readonly host: {
    /** Rooms in which nothing is applied at the moment. */
    readonly frozen: number
    readonly history_bytes: number
  }
  readonly lease: {
    /** Since the last successful renewal was sent. */
    readonly age_ms: number
  }
  readonly store: Pick<Store, 'vitals' | 'onReturn'>
  readonly load: Pick<Load, 'event_loop_utilisation'>
  readonly draining: () => boolean
  readonly node_id: string
  readonly version: string
  /** The limits that the figures are to be compared with. */
  readonly config: {
    readonly max_sessions: number
    readonly max_rooms: number
    readonly node_lease_ms: number
  }
}

/** Registers what is read rather than counted: gauges of the node, and Node's own figures of the process. */
export function registerGauges(registry: Registry, sources: Sources): void {
  const { gateway, host, lease, load, config } = sources
  processMetrics(registry)
  const gauge = (name: string, help: string, read: () => number): void => {
    new Gauge({
      name,
      help,
      registers: [registry],
      collect() {
        this.set(read())
      },
    })
  }
  gauge('service_connections', 'Websockets with a session.', () => gateway.connections)
  gauge('service_pending_connections', 'Connections that have no session yet.', () => gateway.pending)
  gauge('service_sessions', 'Sessions, those that may still be resumed included.', () => gateway.sessions)
  gauge(
    'service_max_sessions',
    'Sessions this node takes at most (MAX_SESSIONS); 0: no limit.',
    () => config.max_sessions,
  )
  gauge('service_max_rooms', 'Rooms this node runs at most (MAX_ROOMS); 0: no limit.', () => config.max_rooms)
  gauge(
    'service_rooms_frozen',
    'Rooms that stand still: their node may not act, or the store does not answer.',
    () => host.frozen,
  )
  gauge(
    'service_history_bytes',
    'Bytes that the past updates of all rooms of this node hold.',
    () => host.history_bytes,
  )
  gauge(
    'service_outbox_bytes',
    'Bytes that wait to be read by clients, of all together.',
    () => gateway.queued_bytes,
  )
  gauge(
    'service_lease_age_seconds',
    'Time since the last successful renewal of the lease of this node was sent.',
    () => lease.age_ms / 1000,
  )
  gauge(
    'service_lease_ttl_seconds',
    'Age at which others take this node for dead (NODE_LEASE_MS); it stops a tenth earlier.',
    () => config.node_lease_ms / 1000,
  )
  gauge('service_draining', '1 while the node drains.', () => Number(sources.draining()))
  gauge(
    'service_event_loop_utilisation_ratio',
    'Share of the last second in which the event loop was busy.',
    () => load.event_loop_utilisation,
  )
  new Gauge({
    name: 'service_node_info',
    help: 'Always 1; says which node this is.',
    labelNames: ['node_id', 'version'],
    registers: [registry],
  }).set({ node_id: sources.node_id, version: sources.version }, 1)
  storeMetrics(registry, sources.store)
}

/** Registers the histogram of event-loop delays; its result is the `on_delay` of a `LoadMeter`. */
export const eventLoopDelay = (registry: Registry): ((seconds: number) => void) =>
  new Instruments(registry).seconds(
    'service_event_loop_delay_seconds',
    'How late timers fire.',
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5],
  )
