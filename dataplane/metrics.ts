import { counter, gauge, histogram, OPEN } from '../shared/metrics.ts'

/** Counted by the gateway and by rooms. */
export const RATE_LIMITED = counter(
  'service_rate_limited_total',
  'Messages not applied because there are too many: of their session, or of their type; pings and pongs of the websocket itself; and tokens of players who come too often (hello).',
  { by: ['session', 'control_frame', 'hello', 'type'] },
)

/** Metrics of a node as a whole. */
export const NODE_METRICS = {
  eventLoopDelay: histogram(
    'service_event_loop_delay_seconds',
    'How late timers fire.',
    {},
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5],
  ),
  eventLoopUtilisation: gauge(
    'service_event_loop_utilisation_ratio',
    'Share of the last second in which the event loop was busy.',
  ),
  slowdown: gauge(
    'service_slowdown_ratio',
    'How many times as long as asked for the intervals of flushes and ticks of all rooms are, since the event loop is behind; 1: it keeps up.',
  ),
  overloaded: gauge(
    'service_overloaded',
    '1 while the node is asked for more than it can do, however slow its rooms are: it drops or refuses old messages, and takes no newcomers.',
  ),
  maxSessions: gauge('service_max_sessions', 'Sessions this node takes at most (MAX_SESSIONS); 0: no limit.'),
  maxRooms: gauge('service_max_rooms', 'Rooms this node runs at most (MAX_ROOMS); 0: no limit.'),
  addressed: gauge(
    'service_addressed',
    '1 where the node has an address of its own (ADVERTISE_URL), so that clients whose rooms are here may be sent to it.',
  ),
  cordoned: gauge('service_cordoned', '1 while the node is cordoned: it takes no new rooms and sessions.'),
  draining: gauge('service_draining', '1 while the node drains.'),
  nodeInfo: gauge(
    'service_node_info',
    'Always 1; says which node this is, which build of roomful it runs, and the hash of its room types.',
    { node_id: OPEN, version: OPEN, commit: OPEN, rooms_hash: OPEN },
  ),
}

/** Number of projects with their own series in a metric. */
const SHOWN_PROJECTS = 50

/** How many of something each project has at this node. */
export class ProjectCounts {
  readonly #counts = new Map<string, number>()

  of(projectId: string): number {
    return this.#counts.get(projectId) ?? 0
  }

  add(projectId: string, change: 1 | -1): void {
    const count = this.of(projectId) + change
    if (count === 0) this.#counts.delete(projectId)
    else this.#counts.set(projectId, count)
  }

  /** Series of a gauge: the projects with the largest counts, and the sum of the others as `other`. */
  get series(): (readonly [labels: { readonly project_id: string }, count: number])[] {
    const sorted = [...this.#counts].sort(([, a], [, b]) => b - a)
    const rest = sorted.slice(SHOWN_PROJECTS)
    if (rest.length > 0)
      sorted.splice(SHOWN_PROJECTS, rest.length, ['other', rest.reduce((sum, [, count]) => sum + count, 0)])
    return sorted.map(([projectId, count]) => [{ project_id: projectId }, count])
  }
}
