import { counter, gauge, histogram, OPEN } from '../shared/metrics.ts'

/** Metric of the gateway and of rooms. */
export const RATE_LIMITED = counter(
  'service_rate_limited_total',
  'Refusals above a rate: messages of a session or type, pings (control_frame), or hellos of a player.',
  { by: ['session', 'control_frame', 'hello', 'type'] },
)

/** Metric of the gateway and of the cluster. */
export const ROOM_TRAFFIC = counter(
  'service_room_traffic_total',
  'Messages between edges and owners. input: to the owner; update: to the edge; local: in this node; bus: by the store.',
  { what: ['input', 'update'], way: ['local', 'bus'] },
)

/** Metrics of a node as a whole. */
export const NODE_METRICS = {
  eventLoopDelay: histogram(
    'service_event_loop_delay_seconds',
    'Delay of timers.',
    {},
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5],
  ),
  eventLoopUtilisation: gauge(
    'service_event_loop_utilisation_ratio',
    'Share of the last second in which the event loop was busy.',
  ),
  slowdown: gauge(
    'service_slowdown_ratio',
    'Slowdown of flushes and ticks of all rooms. 2: half as many as configured.',
  ),
  overloaded: gauge(
    'service_overloaded',
    '1 while the node is overloaded: it drops old unreliable messages, and refuses new sessions.',
  ),
  maxSessions: gauge('service_max_sessions', 'Maximum number of sessions (MAX_SESSIONS). 0: no limit.'),
  maxRooms: gauge('service_max_rooms', 'Maximum number of rooms (MAX_ROOMS). 0: no limit.'),
  addressed: gauge('service_addressed', '1 if the node has an ADVERTISE_URL, so clients can move to it.'),
  cordoned: gauge('service_cordoned', '1 while the node is cordoned: no new rooms and sessions.'),
  draining: gauge('service_draining', '1 while the node drains.'),
  nodeInfo: gauge(
    'service_node_info',
    'Always 1. The labels name the node, its build, and the hash of its room types.',
    { node_id: OPEN, version: OPEN, commit: OPEN, rooms_hash: OPEN },
  ),
}

/** Number of projects with their own series in a metric. */
const SHOWN_PROJECTS = 50

/** Counts of one kind of item at this node, by the name of what has them. */
export class Counts {
  readonly #counts = new Map<string, number>()

  of(name: string): number {
    return this.#counts.get(name) ?? 0
  }

  add(name: string, change: 1 | -1): void {
    const count = this.of(name) + change
    if (count === 0) this.#counts.delete(name)
    else this.#counts.set(name, count)
  }

  /** Names and counts, largest first. */
  get sorted(): [name: string, count: number][] {
    return [...this.#counts].sort(([, a], [, b]) => b - a)
  }
}

/** Counts by project. */
export class ProjectCounts extends Counts {
  /** Series of a gauge: the projects with the largest counts, and the sum of the others as `other`. */
  get series(): (readonly [labels: { readonly project_id: string }, count: number])[] {
    const { sorted } = this
    const rest = sorted.slice(SHOWN_PROJECTS)
    if (rest.length > 0)
      sorted.splice(SHOWN_PROJECTS, rest.length, ['other', rest.reduce((sum, [, count]) => sum + count, 0)])
    return sorted.map(([projectId, count]) => [{ project_id: projectId }, count])
  }
}
