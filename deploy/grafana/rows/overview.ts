import { ANY, areas, CONTROL, lines, NODE, number, percentile, type Row, rate } from '../panel.ts'

/** Whether all is well, in one look. */
export const OVERVIEW: Row = {
  title: 'Overview',
  panels: [
    number('Players online', 'short', {
      about: 'Open websockets with a session.',
      of: {
        players: `sum(service_connections{${NODE}})`,
      },
    }),
    number('Rooms', 'short', {
      about: 'Rooms that these nodes run.',
      of: { rooms: `sum(service_rooms{${NODE}})` },
    }),
    number('Members', 'short', {
      about: 'Seats in all rooms, those of players who may still come back included.',
      of: {
        members: `sum(service_members{${NODE}})`,
      },
    }),
    number('Nodes', 'short', {
      about: 'Nodes alive, as the node sees it that sees the fewest.',
      of: {
        nodes: `min(service_nodes_alive{${NODE}})`,
      },
    }),
    number('Control processes', 'short', {
      about: 'Control processes that Prometheus reaches.',
      of: {
        processes: `count(service_control_info{${CONTROL}})`,
      },
    }),
    number('Errors', 'cps', {
      about: 'Errors told to players, each second: error messages, and connections closed for a fault.',
      of: { errors: rate(`service_websocket_errors_total{${NODE}}`) },
    }),
    number('Frozen rooms', 'short', {
      about: 'Rooms that stand still: their node may not act, or Redis does not answer. Should be 0.',
      of: { rooms: `sum(service_rooms_frozen{${NODE}})` },
      red: 1,
    }),
    number('State drift', 'short', {
      about:
        'How often a player’s state was not that of the room, in the last hour; it was put right each time. Should be 0.',
      of: { drifts: `round(sum(increase(service_resyncs_total{${NODE},reason="checksum"}[1h])))` },
      red: 1,
    }),
    number('Slowest acks', 's', {
      about:
        'It lags: what 1 % of the acks take at least. If one of the next three is red as well, it is the cause; if none is, look at room logic, and outside.',
      of: { acks: percentile(0.99, 'service_message_ack_duration_seconds', NODE) },
      width: 6,
      red: 0.25,
      noValue: 'no reliable messages',
    }),
    number('Slowest commits', 's', {
      about: 'What 1 % of the writes of rooms take at least. Slow at all nodes: Redis. At one: that node.',
      of: { commits: percentile(0.99, 'service_commit_duration_seconds', NODE) },
      width: 6,
      red: 0.1,
      noValue: 'no room is kept',
    }),
    number('Slowest commands of Redis', 's', {
      about: 'What 1 % of the commands take at least, to the answer.',
      of: { commands: percentile(0.99, 'service_store_command_duration_seconds', ANY) },
      width: 6,
      red: 0.1,
    }),
    number('Busiest node', 'percentunit', {
      about:
        'How busy the event loop is of the node with the least left. Processes, below, says which it is.',
      of: { busy: `max(service_event_loop_utilisation_ratio{${NODE}})` },
      width: 6,
      orange: 0.8,
      red: 0.95,
    }),
    areas('Players by node', 'short', {
      about: 'They are spread by the load balancer. After a drain they come back to where it sends them.',
      of: { '{{instance}} {{worker}}': `service_connections{${NODE}}` },
    }),
    areas('Rooms by node', 'short', {
      about: 'A new room goes to the less loaded of two nodes; a room stays where it is until its node ends.',
      of: { '{{instance}} {{worker}}': `service_rooms{${NODE}}` },
    }),
    lines('Members and sessions', 'short', {
      about: 'Sessions without a connection wait to be resumed, for SESSION_RESUME_TTL.',
      of: {
        members: `sum(service_members{${NODE}})`,
        sessions: `sum(service_sessions{${NODE}})`,
        'of them connected': `sum(service_connections{${NODE}})`,
      },
    }),
  ],
}
