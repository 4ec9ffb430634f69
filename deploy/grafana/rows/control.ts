import { areas, CALLS, CONTROL, lines, percentile, type Row, rate, share } from '../panel.ts'

/** The HTTP API that backends use. */
export const CONTROL_ROW: Row = {
  title: 'Control',
  panels: [
    areas('Requests', 'reqps', {
      about: 'Answered each second, without probes and scrapes.',
      of: {
        '{{method}} {{route}} {{status}}': rate(
          `service_http_requests_total{${CALLS}}`,
          'method, route, status',
        ),
      },
      noValue: 'no requests',
    }),
    lines('Latency (p99)', 's', {
      about: 'From a request to its answer, by route.',
      of: {
        '{{method}} {{route}}': percentile(
          0.99,
          'service_http_request_duration_seconds',
          CALLS,
          'method, route',
        ),
      },
      red: 1,
      noValue: 'no requests',
    }),
    lines('Requests that fail', 'percentunit', {
      about: 'Share that ends with a 5xx: mostly Redis, see above.',
      of: {
        fail: `(${share('service_http_requests_total', CALLS, 'status=~"5.."')}) or 0 * ${rate(`service_http_requests_total{${CALLS}}`)}`,
      },
      red: 0.05,
      noValue: 'no requests',
    }),
    areas('Tokens issued', 'cps', {
      about: 'Each second, by what they were signed with: a key of its own, or the project’s built-in pair.',
      of: { 'with {{signed_with}}': rate(`service_tokens_issued_total{${CONTROL}}`, 'signed_with') },
    }),
    areas('Refusals', 'reqps', {
      about: 'Requests refused with 401, 403 or 429, by code.',
      of: { '{{code}}': rate(`service_http_refusals_total{${CONTROL}}`, 'code') },
      noValue: 'no one was refused',
    }),
    lines('Changes of keys', 'short', {
      about: 'Keys created, rotated and revoked, and players whose tokens were, in the last hour.',
      of: {
        '{{change}}': `round(sum by (change) (increase(service_key_changes_total{${CONTROL}}[1h])))`,
        'players revoked': `round(sum(increase(service_subs_revoked_total{${CONTROL}}[1h])))`,
      },
    }),
  ],
}
