import { areas, lines, type Row } from '../panel.ts'
import { CALLS, CONTROL, percentile, rate, share } from '../query.ts'

/** The HTTP API that backends use. */
export const CONTROL_ROW: Row = {
  title: 'Control',
  panels: [
    areas(
      'Requests',
      'reqps',
      'Answered each second, without probes and scrapes.',
      {
        '{{method}} {{route}} {{status}}': rate(
          `service_http_requests_total{${CALLS}}`,
          'method, route, status',
        ),
      },
      { noValue: 'no requests' },
    ),
    lines(
      'Latency (p99)',
      's',
      'From a request to its answer, by route.',
      {
        '{{method}} {{route}}': percentile(
          0.99,
          'service_http_request_duration_seconds',
          CALLS,
          'method, route',
        ),
      },
      { red: 1, noValue: 'no requests' },
    ),
    lines(
      'Requests that fail',
      'percentunit',
      'Share that ends with a 5xx: mostly Redis, see above.',
      {
        fail: `(${share('service_http_requests_total', CALLS, 'status=~"5.."')}) or 0 * ${rate(`service_http_requests_total{${CALLS}}`)}`,
      },
      { red: 0.05, noValue: 'no requests' },
    ),
    areas(
      'Tokens issued',
      'cps',
      'Each second, by what they were signed with: a key of its own, or the project’s built-in pair.',
      { 'with {{signed_with}}': rate(`service_tokens_issued_total{${CONTROL}}`, 'signed_with') },
    ),
    areas(
      'Refusals',
      'reqps',
      'Requests refused with 401, 403 or 429, by code.',
      { '{{code}}': rate(`service_http_refusals_total{${CONTROL}}`, 'code') },
      { noValue: 'no one was refused' },
    ),
    lines('Changes of keys', 'short', 'Keys created, rotated and revoked in the last hour.', {
      '{{change}}': `round(sum by (change) (increase(service_key_changes_total{${CONTROL}}[1h])))`,
    }),
  ],
}
