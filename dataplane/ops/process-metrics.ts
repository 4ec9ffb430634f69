import { collectDefaultMetrics, Gauge, type Registry } from 'prom-client'
import { Instruments } from './instruments.ts'
import type { Load } from './load.ts'

/** How many clients a node has at the moment. */
export interface Counts {
  /** Sessions whose socket this node holds. */
  readonly connections: number
  /** The same, and those that may still be resumed. */
  readonly sessions: number
}

/** What is read at each scrape. */
export interface Sources {
  readonly counts: () => Counts
  readonly load: () => Load
  readonly draining: () => boolean
  readonly node_id: string
  readonly version: string
}

/** Registers what is read rather than counted: gauges of the node, and Node's own figures of the process. */
export function registerGauges(registry: Registry, sources: Sources): void {
  collectDefaultMetrics({ register: registry, prefix: 'service_' })
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
  gauge('service_connections', 'Websockets with a session.', () => sources.counts().connections)
  gauge(
    'service_sessions',
    'Sessions, those that may still be resumed included.',
    () => sources.counts().sessions,
  )
  gauge('service_draining', '1 while the node drains.', () => Number(sources.draining()))
  gauge(
    'service_event_loop_utilisation_ratio',
    'Share of the last second in which the event loop was busy.',
    () => sources.load().event_loop_utilisation,
  )
  new Gauge({
    name: 'service_node_info',
    help: 'Always 1; says which node this is.',
    labelNames: ['node_id', 'version'],
    registers: [registry],
  }).set({ node_id: sources.node_id, version: sources.version }, 1)
}

/** Registers the histogram of event-loop delays; its result is the `on_delay` of a `LoadMeter`. */
export const eventLoopDelay = (registry: Registry): ((seconds: number) => void) =>
  new Instruments(registry).seconds(
    'service_event_loop_delay_seconds',
    'How late timers fire.',
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5],
  )
