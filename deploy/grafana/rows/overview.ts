import type { Row } from '../panel.ts'
import { ANY, CONTROL, NODE, percentile, rate } from '../query.ts'

/** Whether all is well, in one look. */
export const OVERVIEW: Row = {
  title: 'Overview',
  panels: [
    {
      kind: 'number',
      title: 'Players online',
      description: 'Open websockets with a session.',
      unit: 'short',
      queries: [{ expr: `sum(service_connections{${NODE}})`, legend: 'players' }],
    },
    {
      kind: 'number',
      title: 'Rooms',
      description: 'Rooms that these nodes run.',
      unit: 'short',
      queries: [{ expr: `sum(service_rooms{${NODE}})`, legend: 'rooms' }],
    },
    {
      kind: 'number',
      title: 'Members',
      description: 'Seats in all rooms, those of players who may still come back included.',
      unit: 'short',
      queries: [{ expr: `sum(service_members{${NODE}})`, legend: 'members' }],
    },
    {
      kind: 'number',
      title: 'Nodes',
      description: 'Nodes alive, as the node sees it that sees the fewest.',
      unit: 'short',
      queries: [{ expr: `min(service_nodes_alive{${NODE}})`, legend: 'nodes' }],
    },
    {
      kind: 'number',
      title: 'Control processes',
      description: 'Control processes that Prometheus reaches.',
      unit: 'short',
      queries: [{ expr: `count(service_control_info{${CONTROL}})`, legend: 'processes' }],
    },
    {
      kind: 'number',
      title: 'Errors',
      description: 'Errors told to players, each second: error messages, and connections closed for a fault.',
      unit: 'cps',
      queries: [{ expr: rate(`service_websocket_errors_total{${NODE}}`), legend: 'errors' }],
    },
    {
      kind: 'number',
      title: 'Frozen rooms',
      description: 'Rooms that stand still: their node may not act, or Redis does not answer. Should be 0.',
      unit: 'short',
      queries: [{ expr: `sum(service_rooms_frozen{${NODE}})`, legend: 'rooms' }],
      thresholds: [{ value: 1, color: 'red' }],
    },
    {
      kind: 'number',
      title: 'State drift',
      description:
        'How often a player’s state was not that of the room, in the last hour; it was put right each time. Should be 0.',
      unit: 'short',
      queries: [
        {
          expr: `round(sum(increase(service_resyncs_total{${NODE},reason="checksum"}[1h])))`,
          legend: 'drifts',
        },
      ],
      thresholds: [{ value: 1, color: 'red' }],
    },
    {
      kind: 'number',
      title: 'Slowest acks',
      description:
        'It lags: what 1 % of the acks take at least. If one of the next three is red as well, it is the cause; if none is, look at room logic, and outside.',
      unit: 's',
      width: 6,
      queries: [{ expr: percentile(0.99, 'service_message_ack_duration_seconds', NODE), legend: 'acks' }],
      noValue: 'no reliable messages',
      thresholds: [{ value: 0.25, color: 'red' }],
    },
    {
      kind: 'number',
      title: 'Slowest commits',
      description:
        'What 1 % of the writes of rooms take at least. Slow at all nodes: Redis. At one: that node.',
      unit: 's',
      width: 6,
      queries: [{ expr: percentile(0.99, 'service_commit_duration_seconds', NODE), legend: 'commits' }],
      noValue: 'no room is kept',
      thresholds: [{ value: 0.1, color: 'red' }],
    },
    {
      kind: 'number',
      title: 'Slowest commands of Redis',
      description: 'What 1 % of the commands take at least, to the answer.',
      unit: 's',
      width: 6,
      queries: [
        { expr: percentile(0.99, 'service_store_command_duration_seconds', ANY), legend: 'commands' },
      ],
      thresholds: [{ value: 0.1, color: 'red' }],
    },
    {
      kind: 'number',
      title: 'Busiest node',
      description:
        'How busy the event loop is of the node with the least left. Processes, below, says which it is.',
      unit: 'percentunit',
      width: 6,
      queries: [{ expr: `max(service_event_loop_utilisation_ratio{${NODE}})`, legend: 'busy' }],
      thresholds: [
        { value: 0.8, color: 'orange' },
        { value: 0.95, color: 'red' },
      ],
    },
    {
      kind: 'areas',
      title: 'Players by node',
      description:
        'They are spread by the load balancer. After a drain they come back to where it sends them.',
      unit: 'short',
      queries: [{ expr: `service_connections{${NODE}}`, legend: '{{instance}}' }],
    },
    {
      kind: 'areas',
      title: 'Rooms by node',
      description:
        'A new room goes to the less loaded of two nodes; a room stays where it is until its node ends.',
      unit: 'short',
      queries: [{ expr: `service_rooms{${NODE}}`, legend: '{{instance}}' }],
    },
    {
      kind: 'lines',
      title: 'Members and sessions',
      description: 'Sessions without a connection wait to be resumed, for SESSION_RESUME_TTL.',
      unit: 'short',
      queries: [
        { expr: `sum(service_members{${NODE}})`, legend: 'members' },
        { expr: `sum(service_sessions{${NODE}})`, legend: 'sessions' },
        { expr: `sum(service_connections{${NODE}})`, legend: 'of them connected' },
      ],
    },
  ],
}
