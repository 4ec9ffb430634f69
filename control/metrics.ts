import { Counter, Gauge, Histogram, type Registry } from 'prom-client'
import { LATENCY_BUCKETS } from '../shared/latency-buckets.ts'
import { packageVersion } from '../shared/version.ts'
import { type ProblemCode, REFUSALS } from './problem.ts'

/** The figures a control process keeps. */
export interface ControlMetrics {
  readonly registry: Registry
  /** One more request answered; `route` is the pattern, `unmatched` for paths that are none. */
  request(method: string, route: string, status: number, seconds: number): void
  /** One more token; `signed_with` its own key or the project's built-in pair. */
  tokenIssued(signed_with: 'key' | 'project'): void
  /** One more change of a key. */
  keyChanged(change: 'created' | 'rotated' | 'revoked'): void
  /** One more request refused for want of rights. */
  refused(code: ProblemCode): void
  /** One more request the store failed. */
  storeUnavailable(): void
}

const METHODS = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'])

/** Registers the figures of a control process in `registry`. */
export function controlMetrics(registry: Registry): ControlMetrics {
  const registers = [registry]
  const requests = new Counter({
    name: 'service_http_requests_total',
    help: 'Requests to the control API that were answered.',
    labelNames: ['method', 'route', 'status'],
    registers,
  })
  const durations = new Histogram({
    name: 'service_http_request_duration_seconds',
    help: 'Time from a request to its answer.',
    labelNames: ['method', 'route'],
    buckets: [...LATENCY_BUCKETS],
    registers,
  })
  const tokens = new Counter({
    name: 'service_tokens_issued_total',
    help: 'Client tokens issued, by what they were signed with.',
    labelNames: ['signed_with'],
    registers,
  })
  const keys = new Counter({
    name: 'service_key_changes_total',
    help: 'Keys created, rotated and revoked.',
    labelNames: ['change'],
    registers,
  })
  const refusals = new Counter({
    name: 'service_http_refusals_total',
    help: 'Requests refused with 401, 403 or 429, by code.',
    labelNames: ['code'],
    registers,
  })
  // There from the start, so that the first of a kind counts for rates and alerts.
  for (const code of REFUSALS) refusals.inc({ code }, 0)
  const store_errors = new Counter({
    name: 'service_store_errors_total',
    help: 'Requests that failed because the store could not be reached.',
    registers,
  })
  new Gauge({
    name: 'service_control_info',
    help: 'Always 1; says which version this control process is.',
    labelNames: ['version'],
    registers,
  }).set({ version: packageVersion() }, 1)
  for (const signed_with of ['key', 'project']) tokens.inc({ signed_with }, 0)
  for (const change of ['created', 'rotated', 'revoked']) keys.inc({ change }, 0)
  return {
    registry,
    request(method, route, status, seconds) {
      const known = METHODS.has(method) ? method : 'other'
      requests.inc({ method: known, route, status })
      durations.observe({ method: known, route }, seconds)
    },
    tokenIssued: (signed_with) => tokens.inc({ signed_with }),
    keyChanged: (change) => keys.inc({ change }),
    refused: (code) => refusals.inc({ code }),
    storeUnavailable: () => store_errors.inc(),
  }
}
