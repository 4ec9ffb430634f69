import {
  ANY,
  areas,
  CONTROL,
  heatmap,
  lines,
  NODE,
  percentile,
  percentiles,
  type Row,
  rate,
} from '../panel.ts'

/** What everything hangs on. */
export const STORE: Row = {
  title: 'Redis and commits',
  panels: [
    lines('Commit latency', 's', {
      about: 'Writes of rooms. Acks of journal rooms wait for them.',
      of: percentiles('service_commit_duration_seconds'),
      red: 0.1,
      noValue: 'no room is kept',
    }),
    heatmap('Commits by latency', 's', {
      about: 'How many writes of rooms took how long.',
      of: { '{{le}}': rate(`service_commit_duration_seconds_bucket{${NODE}}`, 'le') },
      noValue: 'no room is kept',
    }),
    lines('Command latency (p99)', 's', {
      about:
        'From a command to the answer of Redis, as each process sees it: one that differs has its own trouble.',
      of: { '{{instance}}': percentile(0.99, 'service_store_command_duration_seconds', ANY, 'instance') },
      red: 0.1,
    }),
    areas('Commands', 'cps', {
      about: 'What nodes and control ask of Redis each second, by operation.',
      of: {
        '{{operation}}': rate(`service_store_commands_total{${ANY}}`, 'operation'),
      },
    }),
    lines('Commands that fail', 'cps', {
      about: 'By the class of the failure, each second: no answer in time, no memory left, an error reply.',
      of: {
        '{{instance}} {{failure}}': rate(`service_store_command_failures_total{${ANY}}`, 'instance, failure'),
      },
    }),
    lines('Can be reached', 'short', {
      about: '1 while the process has a connection to Redis.',
      of: { '{{instance}} {{worker}}': `service_store_up{${ANY}}` },
      max: 1,
    }),
    lines('Memory of Redis', 'bytes', {
      about:
        'What data uses, and maxmemory (0: no limit but the machine’s). Full, it refuses writes: rooms freeze, and no one gets in.',
      of: {
        '{{server}} used': `max by (server) (service_redis_used_memory_bytes{${CONTROL}})`,
        '{{server}} maxmemory': `max by (server) (service_redis_max_memory_bytes{${CONTROL}})`,
      },
    }),
    lines('Commands that Redis runs', 'cps', {
      about: 'As Redis counts them, of all its clients; those that scripts run included.',
      of: {
        '{{server}}': `max by (server) (rate(service_redis_commands_total{${CONTROL}}[$__rate_interval]))`,
      },
    }),
    lines('Connections and evictions', 'short', {
      about:
        'Connections to Redis: two for each process, besides others. Evicted keys are lost data: it must be 0.',
      of: {
        '{{server}} connections': `max by (server) (service_redis_clients{${CONTROL}})`,
        '{{server}} evicted keys': `max by (server) (service_redis_evicted_keys_total{${CONTROL}})`,
      },
    }),
  ],
}
