import { ANY, lines, NODE, percentile, type Row, rate } from '../panel.ts'

/** What it costs. */
export const PROCESSES: Row = {
  title: 'Processes',
  panels: [
    lines('CPU', 'short', {
      about:
        'Cores in use. One core is all that the event loop of a node can have; the rest is garbage collection and the network.',
      of: { '{{instance}}': rate(`service_process_cpu_seconds_total{${ANY}}`, 'instance') },
    }),
    lines('Event loop in use', 'percentunit', {
      about: 'Share of the last second in which it was busy. Above 80 % a node needs help.',
      of: { '{{instance}} {{worker}}': `service_event_loop_utilisation_ratio{${NODE}}` },
      max: 1,
      orange: 0.8,
    }),
    lines('Event loop delay (p99)', 's', {
      about: 'How late timers fire.',
      of: { '{{instance}}': percentile(0.99, 'service_event_loop_delay_seconds', NODE, 'instance') },
      orange: 0.025,
      red: 0.1,
    }),
    lines('Slowdown', 'short', {
      about:
        'How many times as long as asked for the intervals of flushes and ticks are. 1: the node keeps up. At 2.5, which is the most, old messages are dropped or refused.',
      of: { '{{instance}} {{worker}}': `service_slowdown_ratio{${NODE}}` },
      orange: 1.3,
      red: 2.4,
    }),
    lines('Shed by an overloaded node', 'cps', {
      about:
        'Messages dropped unread since newer ones came with them, those that had waited for too long, by what became of them, and newcomers refused with 1013.',
      of: {
        '{{instance}} unread': rate(`service_inputs_dropped_total{${NODE}}`, 'instance'),
        '{{instance}} {{how}}': rate(`service_inputs_shed_total{${NODE}}`, 'instance, how'),
        '{{instance}} newcomers': rate(`service_newcomers_refused_total{${NODE}}`, 'instance'),
      },
    }),
    lines('Memory', 'bytes', {
      about: 'Resident memory of each process.',
      of: {
        '{{instance}} {{worker}}': `service_process_resident_memory_bytes{${ANY}}`,
      },
    }),
    lines('Heap in use', 'bytes', {
      about: 'JavaScript objects. A saw is normal; a floor that rises for days is a leak.',
      of: { '{{instance}} {{worker}}': `service_nodejs_heap_size_used_bytes{${ANY}}` },
    }),
    lines('Garbage collection', 'percentunit', {
      about: 'Share of the time that is spent on it.',
      of: {
        '{{instance}}': rate(`service_nodejs_gc_duration_seconds_sum{${ANY}}`, 'instance'),
      },
    }),
    lines('How full', 'percentunit', {
      about:
        'Sessions of MAX_SESSIONS, rooms of MAX_ROOMS: at 100 % a node sends players, or new rooms, elsewhere.',
      of: {
        '{{instance}} sessions': `service_sessions{${NODE}} / (service_max_sessions{${NODE}} > 0)`,
        '{{instance}} rooms': `service_rooms{${NODE}} / (service_max_rooms{${NODE}} > 0)`,
      },
      orange: 0.9,
      noValue: 'no limits',
    }),
    lines('Files and sockets in use', 'percentunit', {
      about: 'Share of the file descriptors a process may have (ulimit -n). Each player needs one.',
      of: { '{{instance}} {{worker}}': `service_process_open_fds{${ANY}} / service_process_max_fds{${ANY}}` },
      orange: 0.8,
      noValue: 'known on Linux only',
    }),
    lines('Running for', 's', {
      about: 'Since the process was started; steps to 0 are restarts.',
      of: {
        '{{instance}} {{worker}}': `time() - service_process_start_time_seconds{${ANY}}`,
      },
    }),
  ],
}
