import type { Registry } from 'prom-client'
import { type Metrics, registerMetrics } from '../../shared/metrics.ts'
import { CLUSTER_METRICS } from '../cluster/metrics.ts'
import { DIRECTORY_METRICS } from '../directory/directory.ts'
import { GATEWAY_METRICS } from '../gateway/metrics.ts'
import { NODE_METRICS } from '../metrics.ts'
import { NOTICE_METRICS } from '../notices/notice.ts'
import { ROOM_METRICS } from '../rooms/metrics.ts'

const ALL = {
  ...GATEWAY_METRICS,
  ...ROOM_METRICS,
  ...CLUSTER_METRICS,
  ...DIRECTORY_METRICS,
  ...NOTICE_METRICS,
  ...NODE_METRICS,
}

/** Metrics of all parts of a node. */
type NodeMetrics = Metrics<typeof ALL>

/** Registers the metrics of a node. Counters of `roomTypes`, those installed, are there from the start. */
export const nodeMetrics = (registry: Registry, roomTypes: readonly string[] = []): NodeMetrics =>
  registerMetrics(registry, ALL, { room_type: roomTypes })
