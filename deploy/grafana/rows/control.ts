import type { Row } from '../panel.ts'
import { CALLS, CONTROL, percentile, rate, share } from '../query.ts'

/** The HTTP API that backends use. */
export const CONTROL_ROW: Row = {
  title: 'Control',
  panels: [
    {
      kind: 'areas',
      title: 'Requests',
      description: 'Answered each second, without probes and scrapes.',
      unit: 'reqps',
      queries: [
        {
          expr: rate(`service_http_requests_total{${CALLS}}`, 'method, route, status'),
          legend: '{{method}} {{route}} {{status}}',
        },
      ],
      noValue: 'no requests',
    },
    {
      kind: 'lines',
      title: 'Latency (p99)',
      description: 'From a request to its answer, by route.',
      unit: 's',
      queries: [
        {
          expr: percentile(0.99, 'service_http_request_duration_seconds', CALLS, 'method, route'),
          legend: '{{method}} {{route}}',
        },
      ],
      noValue: 'no requests',
      thresholds: [{ value: 1, color: 'red' }],
    },
    {
      kind: 'lines',
      title: 'Requests that fail',
      description: 'Share that ends with a 5xx: mostly Redis, see above.',
      unit: 'percentunit',
      queries: [
        {
          expr: `(${share('service_http_requests_total', CALLS, 'status=~"5.."')}) or 0 * ${rate(`service_http_requests_total{${CALLS}}`)}`,
          legend: 'fail',
        },
      ],
      noValue: 'no requests',
      thresholds: [{ value: 0.05, color: 'red' }],
    },
    {
      kind: 'areas',
      title: 'Tokens issued',
      description:
        'Each second, by what they were signed with: a key of its own, or the project’s built-in pair.',
      unit: 'cps',
      queries: [
        {
          expr: rate(`service_tokens_issued_total{${CONTROL}}`, 'signed_with'),
          legend: 'with {{signed_with}}',
        },
      ],
    },
    {
      kind: 'areas',
      title: 'Refusals',
      description: 'Requests refused with 401, 403 or 429, by code.',
      unit: 'reqps',
      queries: [{ expr: rate(`service_http_refusals_total{${CONTROL}}`, 'code'), legend: '{{code}}' }],
      noValue: 'no one was refused',
    },
    {
      kind: 'lines',
      title: 'Changes of keys',
      description: 'Keys created, rotated and revoked in the last hour.',
      unit: 'short',
      queries: [
        {
          expr: `round(sum by (change) (increase(service_key_changes_total{${CONTROL}}[1h])))`,
          legend: '{{change}}',
        },
      ],
    },
  ],
}
