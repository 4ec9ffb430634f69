import type { Row } from '../panel.ts'
import { ANY, CONTROL, NODE, percentile, percentiles, rate } from '../query.ts'

/** What everything hangs on. */
export const STORE: Row = {
  title: 'Redis and commits',
  panels: [
    {
      kind: 'lines',
      title: 'Commit latency',
      description: 'Writes of rooms. Acks of journal rooms wait for them.',
      unit: 's',
      queries: percentiles('service_commit_duration_seconds', NODE),
      noValue: 'no room is kept',
      thresholds: [{ value: 0.1, color: 'red' }],
    },
    {
      kind: 'heatmap',
      title: 'Commits by latency',
      description: 'How many writes of rooms took how long.',
      unit: 's',
      queries: [{ expr: rate(`service_commit_duration_seconds_bucket{${NODE}}`, 'le'), legend: '{{le}}' }],
      noValue: 'no room is kept',
    },
    {
      kind: 'lines',
      title: 'Command latency (p99)',
      description:
        'From a command to the answer of Redis, as each process sees it: one that differs has its own trouble.',
      unit: 's',
      queries: [
        {
          expr: percentile(0.99, 'service_store_command_duration_seconds', ANY, 'instance'),
          legend: '{{instance}}',
        },
      ],
      thresholds: [{ value: 0.1, color: 'red' }],
    },
    {
      kind: 'areas',
      title: 'Commands',
      description: 'What nodes and control ask of Redis each second, by operation.',
      unit: 'cps',
      queries: [{ expr: rate(`service_store_commands_total{${ANY}}`, 'operation'), legend: '{{operation}}' }],
    },
    {
      kind: 'lines',
      title: 'Commands that fail',
      description: 'Refused, or not answered in time, each second.',
      unit: 'cps',
      queries: [
        { expr: rate(`service_store_command_failures_total{${ANY}}`, 'instance'), legend: '{{instance}}' },
      ],
    },
    {
      kind: 'lines',
      title: 'Can be reached',
      description: '1 while the process has a connection to Redis.',
      unit: 'short',
      max: 1,
      queries: [{ expr: `service_store_up{${ANY}}`, legend: '{{instance}}' }],
    },
    {
      kind: 'lines',
      title: 'Memory of Redis',
      description:
        'What data uses, and maxmemory (0: no limit but the machine’s). Full, it refuses writes: rooms freeze, and nobody gets in.',
      unit: 'bytes',
      queries: [
        { expr: `max by (server) (service_redis_used_memory_bytes{${CONTROL}})`, legend: '{{server}} used' },
        {
          expr: `max by (server) (service_redis_max_memory_bytes{${CONTROL}})`,
          legend: '{{server}} maxmemory',
        },
      ],
    },
    {
      kind: 'lines',
      title: 'Commands that Redis runs',
      description: 'As Redis counts them, for whomever; those that scripts run included.',
      unit: 'cps',
      queries: [
        {
          expr: `max by (server) (rate(service_redis_commands_total{${CONTROL}}[$__rate_interval]))`,
          legend: '{{server}}',
        },
      ],
    },
    {
      kind: 'lines',
      title: 'Connections and evictions',
      description:
        'Connections to Redis: two for each process, besides others. Evicted keys are lost data: it must be 0.',
      unit: 'short',
      queries: [
        { expr: `max by (server) (service_redis_clients{${CONTROL}})`, legend: '{{server}} connections' },
        {
          expr: `max by (server) (service_redis_evicted_keys_total{${CONTROL}})`,
          legend: '{{server}} evicted keys',
        },
      ],
    },
  ],
}
