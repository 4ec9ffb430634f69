import type { Row } from '../panel.ts'
import { ANY, NODE, percentile, rate } from '../query.ts'

/** What it costs. */
export const PROCESSES: Row = {
  title: 'Processes',
  panels: [
    {
      kind: 'lines',
      title: 'CPU',
      description:
        'Cores in use. One core is all that the event loop of a node can have; the rest is garbage collection and the network.',
      unit: 'short',
      queries: [
        { expr: rate(`service_process_cpu_seconds_total{${ANY}}`, 'instance'), legend: '{{instance}}' },
      ],
    },
    {
      kind: 'lines',
      title: 'Event loop in use',
      description: 'Share of the last second in which it was busy. Above 80 % a node needs help.',
      unit: 'percentunit',
      max: 1,
      queries: [{ expr: `service_event_loop_utilisation_ratio{${NODE}}`, legend: '{{instance}}' }],
      thresholds: [{ value: 0.8, color: 'orange' }],
    },
    {
      kind: 'lines',
      title: 'Event loop delay (p99)',
      description: 'How late timers fire.',
      unit: 's',
      queries: [
        {
          expr: percentile(0.99, 'service_event_loop_delay_seconds', NODE, 'instance'),
          legend: '{{instance}}',
        },
      ],
      thresholds: [
        { value: 0.025, color: 'orange' },
        { value: 0.1, color: 'red' },
      ],
    },
    {
      kind: 'lines',
      title: 'Memory',
      description: 'Resident memory of each process.',
      unit: 'bytes',
      queries: [{ expr: `service_process_resident_memory_bytes{${ANY}}`, legend: '{{instance}}' }],
    },
    {
      kind: 'lines',
      title: 'Heap in use',
      description: 'JavaScript objects. A saw is normal; a floor that rises for days is a leak.',
      unit: 'bytes',
      queries: [{ expr: `service_nodejs_heap_size_used_bytes{${ANY}}`, legend: '{{instance}}' }],
    },
    {
      kind: 'lines',
      title: 'Garbage collection',
      description: 'Share of the time that is spent on it.',
      unit: 'percentunit',
      queries: [
        { expr: rate(`service_nodejs_gc_duration_seconds_sum{${ANY}}`, 'instance'), legend: '{{instance}}' },
      ],
    },
    {
      kind: 'lines',
      title: 'How full',
      description:
        'Sessions of MAX_SESSIONS, rooms of MAX_ROOMS: at 100 % a node sends players, or new rooms, elsewhere.',
      unit: 'percentunit',
      queries: [
        {
          expr: `service_sessions{${NODE}} / (service_max_sessions{${NODE}} > 0)`,
          legend: '{{instance}} sessions',
        },
        { expr: `service_rooms{${NODE}} / (service_max_rooms{${NODE}} > 0)`, legend: '{{instance}} rooms' },
      ],
      noValue: 'no limits',
      thresholds: [{ value: 0.9, color: 'orange' }],
    },
    {
      kind: 'lines',
      title: 'Files and sockets in use',
      description: 'Share of the file descriptors a process may have (ulimit -n). Each player needs one.',
      unit: 'percentunit',
      queries: [
        {
          expr: `service_process_open_fds{${ANY}} / service_process_max_fds{${ANY}}`,
          legend: '{{instance}}',
        },
      ],
      noValue: 'known on Linux only',
      thresholds: [{ value: 0.8, color: 'orange' }],
    },
    {
      kind: 'lines',
      title: 'Running for',
      description: 'Since the process was started; steps to 0 are restarts.',
      unit: 's',
      queries: [{ expr: `time() - service_process_start_time_seconds{${ANY}}`, legend: '{{instance}}' }],
    },
  ],
}
