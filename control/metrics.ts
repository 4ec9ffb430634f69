import type { Registry } from 'prom-client'
import { counter, gauge, histogram, type Metrics, OPEN, registerMetrics } from '../shared/metrics.ts'
import { CONTROL_PROBLEMS } from '../shared/problem.ts'
import { currentBuild } from '../shared/version.ts'

/** Codes of refused requests: 401, 403 and 429. */
export const REFUSALS = Object.entries(CONTROL_PROBLEMS).flatMap(([code, { status }]) =>
  [401, 403, 429].includes(status) ? [code] : [],
)

const PLAYER_CHANGES = ['revoked', 'banned', 'unbanned', 'data_set', 'data_deleted'] as const

/** A change of the record of a player. */
export type PlayerChange = (typeof PLAYER_CHANGES)[number]

const METRICS = {
  httpRequests: counter('service_http_requests_total', 'Requests to the control API, by status.', {
    method: OPEN,
    route: OPEN,
    status: OPEN,
  }),
  httpRequestDuration: histogram(
    'service_http_request_duration_seconds',
    'Time from a request to its answer.',
    { method: OPEN, route: OPEN },
  ),
  tokensIssued: counter('service_tokens_issued_total', 'Issued client tokens, by the kind of signing key.', {
    signed_with: ['key', 'project'],
  }),
  keyChanges: counter('service_key_changes_total', 'Keys created, rotated and revoked.', {
    change: ['created', 'rotated', 'revoked'],
  }),
  playerChanges: counter(
    'service_player_changes_total',
    'Changes of the records of players: revocations, bans and data.',
    { change: PLAYER_CHANGES },
  ),
  httpRefusals: counter('service_http_refusals_total', 'Requests refused with 401, 403 or 429, by code.', {
    code: REFUSALS,
  }),
  storeErrors: counter('service_store_errors_total', 'Requests that failed because of the store.'),
  controlInfo: gauge('service_control_info', 'Always 1. The labels name the build of roomful.', {
    version: OPEN,
    commit: OPEN,
  }),
}

/** Metrics of a control process. */
export type ControlMetrics = Metrics<typeof METRICS>

/** Registers the metrics of a control process. */
export function controlMetrics(registry: Registry): ControlMetrics {
  const metrics = registerMetrics(registry, METRICS)
  metrics.controlInfo.set({ ...currentBuild() }, 1)
  return metrics
}

const METHODS = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'])

/** Counts an answered request, which took `seconds`. `route` is the pattern, or `unmatched` for an unknown path. */
export function countRequest(
  { httpRequests, httpRequestDuration }: ControlMetrics,
  { method: asked, route, status }: { method: string; route: string; status: number },
  seconds: number,
): void {
  const method = METHODS.has(asked) ? asked : 'other'
  httpRequests.inc({ method, route, status: String(status) })
  httpRequestDuration.observe({ method, route }, seconds)
}
