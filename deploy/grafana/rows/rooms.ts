import { areas, lines, NODE, percentile, percentiles, type Row, rate, share } from '../panel.ts'

/** Sessions that lost their connection, and states that were not those of their rooms. */
export const COMING_BACK: Row = {
  title: 'Coming back',
  panels: [
    lines('Resumes', 'cps', {
      about: 'Sessions that came back each second; failed: unknown, expired, or taken over.',
      of: {
        '{{result}}': rate(`service_resumes_total{${NODE}}`, 'result'),
      },
    }),
    lines('Resumes that succeed', 'percentunit', {
      about: 'Share of the sessions that want to be resumed and are.',
      of: { resumed: share('service_resumes_total', NODE, 'result="resumed"') },
      max: 1,
      noValue: 'no one had to come back',
    }),
    areas('Rooms of resumed sessions', 'cps', {
      about:
        'frames: everything that was missed was sent. resync: it was too much, a whole state was. lost: the seat was gone.',
      of: { '{{result}}': rate(`service_room_resumes_total{${NODE}}`, 'result') },
    }),
    areas('Whole states sent again', 'cps', {
      about:
        'checksum is drift and should stay at 0. sequence and stalled tell of poor networks, resume of long absences.',
      of: { '{{reason}}': rate(`service_resyncs_total{${NODE}}`, 'reason') },
    }),
    lines('State drift by room type', 'short', {
      about: 'Wrong checksums in the last hour. Anything but 0 is a fault of roomful, or of a client.',
      of: {
        '{{room_type}}': `round(sum by (room_type) (increase(service_resyncs_total{${NODE},reason="checksum"}[1h])))`,
      },
    }),
    lines('Sessions that wait to come back', 'short', {
      about: 'Sessions without a connection, for SESSION_RESUME_TTL at most.',
      of: { '{{instance}} {{worker}}': `service_sessions{${NODE}} - service_connections{${NODE}}` },
    }),
  ],
}

/** Who owns which rooms, and how that changes. */
export const OWNERSHIP: Row = {
  title: 'Ownership',
  panels: [
    lines('Age of leases', 'percentunit', {
      about:
        'Since the last renewal, as a share of NODE_LEASE_MS. Renewed at a quarter; at 90 % a node freezes its rooms, at 100 % others take them.',
      of: {
        '{{instance}} {{worker}}': `service_lease_age_seconds{${NODE}} / service_lease_ttl_seconds{${NODE}}`,
      },
      orange: 0.5,
      red: 0.9,
    }),
    lines('Between renewals of leases', 's', {
      about: 'The longer times are those of a busy event loop, or of a slow Redis.',
      of: percentiles('service_lease_renewal_interval_seconds'),
    }),
    lines('Nodes alive', 'short', {
      about: 'As each node sees it. They should agree.',
      of: {
        '{{instance}} {{worker}}': `service_nodes_alive{${NODE}}`,
      },
    }),
    areas('Claims of rooms', 'cps', {
      about:
        'claimed: new or handed over. taken_over: from a dead node. elsewhere: another node was faster. unavailable: Redis is silent.',
      of: { '{{result}}': rate(`service_claims_total{${NODE}}`, 'result') },
    }),
    lines('Take-overs, fenced writes, nodes gone', 'cps', {
      about:
        'Each second. Around a failure or a restart some are normal. Fenced writes are those of a node that was no longer the owner: they changed nothing.',
      of: {
        'rooms taken over': rate(`service_claims_total{${NODE},result="taken_over"}`),
        'fenced writes': rate(`service_fenced_writes_total{${NODE}}`),
        'nodes gone': rate(`service_nodes_gone_total{${NODE}}`),
      },
    }),
    lines('Frozen rooms by node', 'short', {
      about: 'Rooms that stand still now. They go on by themselves when Redis answers and the lease stands.',
      of: { '{{instance}} {{worker}}': `service_rooms_frozen{${NODE}}` },
    }),
    lines('Rooms that fall asleep', 'cps', {
      about: 'Empty rooms that were saved and given up until they are joined again.',
      of: { '{{room_type}}': rate(`service_rooms_asleep_total{${NODE}}`, 'room_type') },
      noValue: 'no room type sleeps',
    }),
    lines('Freezes', 'cps', {
      about: 'How often rooms came to a stop, each second.',
      of: {
        '{{room_type}}': rate(`service_room_freezes_total{${NODE}}`, 'room_type'),
      },
    }),
    lines('Time to open and to hand over (p99)', 's', {
      about:
        'open: a claim that succeeds, waiting included. hand over: the time in which no node acts for a room that moves in a drain.',
      of: {
        open: percentile(0.99, 'service_claim_duration_seconds', NODE),
        'hand over': percentile(0.99, 'service_hand_over_duration_seconds', NODE),
      },
      noValue: 'no room moved',
    }),
    lines('Between nodes', 'cps', {
      about:
        'Messages to other nodes and the envelopes they travel in, each second, and envelopes that went wrong (of which there should be few).',
      of: {
        messages: rate(`service_peer_messages_total{${NODE}}`),
        envelopes: rate(`service_peer_publishes_total{${NODE}}`),
        '{{fault}}': rate(`service_peer_faults_total{${NODE}}`, 'fault'),
      },
    }),
    lines('What crosses from node to node', 'percentunit', {
      about:
        'Share of the messages to rooms (input), and of the updates to edges, that go over the store since the player is at another node than the room. With ADVERTISE_URL set it should be low.',
      of: {
        input: share('service_room_traffic_total', `${NODE},what="input"`, 'way="bus"'),
        update: share('service_room_traffic_total', `${NODE},what="update"`, 'way="bus"'),
      },
      max: 1,
      noValue: 'nothing was sent',
    }),
    lines('Players sent to the nodes of their rooms', 'cps', {
      about:
        'told: they were given the address. arrived: they resumed there. elsewhere, stayed: they did not get there, and the address should be tried.',
      of: { '{{outcome}}': rate(`service_reroutes_total{${NODE}}`, 'outcome') },
    }),
  ],
}

/** Players who read more slowly than their rooms send. */
export const SLOW_READERS: Row = {
  title: 'Outboxes and slow readers',
  panels: [
    areas('Bytes that wait', 'bytes', {
      about: 'What waits in all outboxes of a node, in its memory.',
      of: {
        '{{instance}} {{worker}}': `service_outbox_bytes{${NODE}}`,
      },
    }),
    lines('Bytes that wait for a player', 'bytes', {
      about: 'On average. Above 256 KiB a player gets no more patches, but one resync later.',
      of: { '{{instance}} {{worker}}': `service_outbox_bytes{${NODE}} / (service_connections{${NODE}} > 0)` },
      orange: 65536,
      noValue: 'no one is here',
    }),
    lines('Slow readers', 'cps', {
      about:
        'stalled: patches stopped until the player has read. closed: more than 1 MiB waited, and it was cut off.',
      of: { '{{action}}': rate(`service_slow_consumers_total{${NODE}}`, 'action') },
    }),
  ],
}

/** What was turned away because there is a bound to it; which variable sets it is in docs/operations.md. */
export const BOUNDS: Row = {
  title: 'Bounds',
  panels: [
    lines('Clients at a bound', 'cps', {
      about:
        'Of each node, or of one player or token. node, pending and address: connections that were dropped. Steady values are a flood, or a bound that is too low.',
      of: {
        '{{reason}}': rate(`service_connections_dropped_total{${NODE}}`, 'reason'),
        'resumes refused': rate(`service_resume_waits_refused_total{${NODE}}`),
        'sessions evicted': rate(`service_sessions_evicted_total{${NODE}}`),
        'unacked messages refused': rate(`service_unacked_refused_total{${NODE}}`),
        'states delayed': rate(`service_states_delayed_total{${NODE}}`),
      },
    }),
    lines('Rooms at a bound', 'cps', {
      about:
        'tasks and state: turns that failed. Backlog: what could not wait for a room. History: updates that members may miss without getting them again.',
      of: {
        '{{limit}}': rate(`service_room_limits_reached_total{${NODE}}`, 'limit'),
        backlog: rate(`service_room_backlog_full_total{${NODE}}`),
        history: rate(`service_history_updates_dropped_total{${NODE}}`),
      },
    }),
    lines('Slow turns of room logic', 'cps', {
      about: 'Turns of 100 ms or longer, in which the node did nothing else. The log names the rooms.',
      of: {
        '{{room_type}} {{hook}}': `${rate(`service_room_turns_slow_total{${NODE}}`, 'room_type, hook')} > 0`,
      },
      noValue: 'no turn was slow',
    }),
    lines('Timers', 'cps', {
      about:
        'Timers of room logic that have fired, by room type; and rooms that no node may run whose timer is due, by what came of it.',
      of: {
        '{{room_type}}': rate(`service_room_timers_fired_total{${NODE}}`, 'room_type'),
        'rooms to be woken, {{result}}': rate(`service_room_wakeups_total{${NODE}}`, 'result'),
      },
      noValue: 'no room has set one',
    }),
    lines('Databases and versions of room types', 'cps', {
      about:
        'Loads, saves and migrations that room types make of their rooms. Those that fail or take too long come again.',
      of: {
        '{{room_type}} migration {{outcome}}': rate(
          `service_room_migrations_total{${NODE}}`,
          'room_type, outcome',
        ),
        '{{room_type}} load {{outcome}}': rate(`service_room_loads_total{${NODE}}`, 'room_type, outcome'),
        '{{room_type}} save {{outcome}}': rate(`service_room_saves_total{${NODE}}`, 'room_type, outcome'),
      },
      noValue: 'no room type has one',
    }),
    lines('Rooms that loop or are put aside', 'short', {
      about:
        'In the last hour. Hooks: turns that did not return, in the whole cluster. damaged: rooms put in quarantine.',
      of: {
        '{{room_type}} {{hook}}': `round(max by (room_type, hook) (increase(service_room_turns_stuck_total{${NODE}}[1h]))) > 0`,
        '{{room_type}} damaged': `round(sum by (room_type) (increase(service_rooms_quarantined_total{${NODE}}[1h]))) > 0`,
      },
      noValue: 'no room',
    }),
  ],
}
