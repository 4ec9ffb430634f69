import type { Row } from '../panel.ts'
import { NODE, percentile, percentiles, rate, share } from '../query.ts'

/** Sessions that lost their connection, and states that were not those of their rooms. */
export const COMING_BACK: Row = {
  title: 'Coming back',
  panels: [
    {
      kind: 'lines',
      title: 'Resumes',
      description: 'Sessions that came back each second; failed: unknown, expired, or taken over.',
      unit: 'cps',
      queries: [{ expr: rate(`service_resumes_total{${NODE}}`, 'result'), legend: '{{result}}' }],
    },
    {
      kind: 'lines',
      title: 'Resumes that succeed',
      description: 'Share of the sessions that want to be resumed and are.',
      unit: 'percentunit',
      max: 1,
      queries: [{ expr: share('service_resumes_total', NODE, 'result="resumed"'), legend: 'resumed' }],
      noValue: 'no one had to come back',
    },
    {
      kind: 'areas',
      title: 'Rooms of resumed sessions',
      description:
        'frames: everything that was missed was sent. resync: it was too much, a whole state was. lost: the seat was gone.',
      unit: 'cps',
      queries: [{ expr: rate(`service_room_resumes_total{${NODE}}`, 'result'), legend: '{{result}}' }],
    },
    {
      kind: 'areas',
      title: 'Whole states sent again',
      description:
        'checksum is drift and should stay at 0. sequence and stalled tell of poor networks, resume of long absences.',
      unit: 'cps',
      queries: [{ expr: rate(`service_resyncs_total{${NODE}}`, 'reason'), legend: '{{reason}}' }],
    },
    {
      kind: 'lines',
      title: 'State drift by room type',
      description: 'Wrong checksums in the last hour. Anything but 0 is a fault of roomful, or of a client.',
      unit: 'short',
      queries: [
        {
          expr: `round(sum by (room_type) (increase(service_resyncs_total{${NODE},reason="checksum"}[1h])))`,
          legend: '{{room_type}}',
        },
      ],
    },
    {
      kind: 'lines',
      title: 'Sessions that wait to come back',
      description: 'Sessions without a connection, for SESSION_RESUME_TTL at most.',
      unit: 'short',
      queries: [{ expr: `service_sessions{${NODE}} - service_connections{${NODE}}`, legend: '{{instance}}' }],
    },
  ],
}

/** Who owns which rooms, and how that changes. */
export const OWNERSHIP: Row = {
  title: 'Ownership',
  panels: [
    {
      kind: 'lines',
      title: 'Age of leases',
      description:
        'Since the last renewal, as a share of NODE_LEASE_MS. Renewed at a quarter; at 90 % a node freezes its rooms, at 100 % others take them.',
      unit: 'percentunit',
      queries: [
        {
          expr: `service_lease_age_seconds{${NODE}} / service_lease_ttl_seconds{${NODE}}`,
          legend: '{{instance}}',
        },
      ],
      thresholds: [
        { value: 0.5, color: 'orange' },
        { value: 0.9, color: 'red' },
      ],
    },
    {
      kind: 'lines',
      title: 'Between renewals of leases',
      description: 'The longer times are those of a busy event loop, or of a slow Redis.',
      unit: 's',
      queries: percentiles('service_lease_renewal_interval_seconds', NODE),
    },
    {
      kind: 'lines',
      title: 'Nodes alive',
      description: 'As each node sees it. They should agree.',
      unit: 'short',
      queries: [{ expr: `service_nodes_alive{${NODE}}`, legend: '{{instance}}' }],
    },
    {
      kind: 'areas',
      title: 'Claims of rooms',
      description:
        'claimed: new or handed over. taken_over: from a dead node. elsewhere: somebody was faster. unavailable: Redis is silent.',
      unit: 'cps',
      queries: [{ expr: rate(`service_claims_total{${NODE}}`, 'result'), legend: '{{result}}' }],
    },
    {
      kind: 'lines',
      title: 'Take-overs, fenced writes, nodes gone',
      description:
        'Each second. Around a failure or a restart some are normal. Fenced writes are those of a node that was no longer the owner: they changed nothing.',
      unit: 'cps',
      queries: [
        { expr: rate(`service_claims_total{${NODE},result="taken_over"}`), legend: 'rooms taken over' },
        { expr: rate(`service_fenced_writes_total{${NODE}}`), legend: 'fenced writes' },
        { expr: rate(`service_nodes_gone_total{${NODE}}`), legend: 'nodes gone' },
      ],
    },
    {
      kind: 'lines',
      title: 'Frozen rooms by node',
      description:
        'Rooms that stand still now. They go on by themselves when Redis answers and the lease stands.',
      unit: 'short',
      queries: [{ expr: `service_rooms_frozen{${NODE}}`, legend: '{{instance}}' }],
    },
    {
      kind: 'lines',
      title: 'Freezes',
      description: 'How often rooms came to a stop, each second.',
      unit: 'cps',
      queries: [{ expr: rate(`service_room_freezes_total{${NODE}}`, 'room_type'), legend: '{{room_type}}' }],
    },
    {
      kind: 'lines',
      title: 'Time to open and to hand over (p99)',
      description:
        'open: a claim that succeeds, waiting included. hand over: the time in which nobody acts for a room that moves in a drain.',
      unit: 's',
      queries: [
        { expr: percentile(0.99, 'service_claim_duration_seconds', NODE), legend: 'open' },
        { expr: percentile(0.99, 'service_hand_over_duration_seconds', NODE), legend: 'hand over' },
      ],
      noValue: 'no room moved',
    },
    {
      kind: 'lines',
      title: 'Between nodes',
      description:
        'Messages to other nodes and the envelopes they travel in, each second, and envelopes that went wrong (of which there should be few).',
      unit: 'cps',
      queries: [
        { expr: rate(`service_peer_messages_total{${NODE}}`), legend: 'messages' },
        { expr: rate(`service_peer_publishes_total{${NODE}}`), legend: 'envelopes' },
        { expr: rate(`service_peer_faults_total{${NODE}}`, 'fault'), legend: '{{fault}}' },
      ],
    },
  ],
}

/** Players who read more slowly than their rooms send. */
export const SLOW_READERS: Row = {
  title: 'Outboxes and slow readers',
  panels: [
    {
      kind: 'areas',
      title: 'Bytes that wait',
      description: 'What waits in all outboxes of a node, in its memory.',
      unit: 'bytes',
      queries: [{ expr: `service_outbox_bytes{${NODE}}`, legend: '{{instance}}' }],
    },
    {
      kind: 'lines',
      title: 'Bytes that wait for a player',
      description:
        'On average. Above OUTBOX_HIGH_WATER_BYTES a player gets no more patches, but one resync later.',
      unit: 'bytes',
      queries: [
        {
          expr: `service_outbox_bytes{${NODE}} / (service_connections{${NODE}} > 0)`,
          legend: '{{instance}}',
        },
      ],
      noValue: 'no one is here',
      thresholds: [{ value: 65536, color: 'orange' }],
    },
    {
      kind: 'lines',
      title: 'Slow readers',
      description:
        'stalled: patches stopped until the player has read. closed: OUTBOX_LIMIT_BYTES waited, and it was cut off.',
      unit: 'cps',
      queries: [{ expr: rate(`service_slow_consumers_total{${NODE}}`, 'action'), legend: '{{action}}' }],
    },
  ],
}

/** What was turned away because there is a bound to it; which variable sets it is in docs/operations.md. */
export const BOUNDS: Row = {
  title: 'Bounds',
  panels: [
    {
      kind: 'lines',
      title: 'Clients at a bound',
      description:
        'Of each node, or of one player or token. node, pending and address: connections that were dropped. Steady values are a flood, or a bound that is too low.',
      unit: 'cps',
      queries: [
        { expr: rate(`service_connections_dropped_total{${NODE}}`, 'reason'), legend: '{{reason}}' },
        { expr: rate(`service_resume_waits_refused_total{${NODE}}`), legend: 'resumes refused' },
        { expr: rate(`service_sessions_evicted_total{${NODE}}`), legend: 'sessions evicted' },
        { expr: rate(`service_unacked_refused_total{${NODE}}`), legend: 'unacked messages refused' },
        { expr: rate(`service_states_delayed_total{${NODE}}`), legend: 'states delayed' },
      ],
    },
    {
      kind: 'lines',
      title: 'Rooms at a bound',
      description:
        'tasks and state: turns that failed. Backlog: what could not wait for a room. History: updates that members may miss without getting them again.',
      unit: 'cps',
      queries: [
        { expr: rate(`service_room_limits_reached_total{${NODE}}`, 'limit'), legend: '{{limit}}' },
        { expr: rate(`service_room_backlog_full_total{${NODE}}`), legend: 'backlog' },
        { expr: rate(`service_history_updates_dropped_total{${NODE}}`), legend: 'history' },
      ],
    },
    {
      kind: 'lines',
      title: 'Rooms that loop or are put aside',
      description:
        'In the last hour. Hooks: turns that did not return, each of which ended a node. damaged and looping: rooms put in quarantine.',
      unit: 'short',
      queries: [
        {
          expr: `round(sum by (room_type, hook) (increase(service_room_turns_stuck_total{${NODE}}[1h])))`,
          legend: '{{room_type}} {{hook}}',
        },
        {
          expr: `round(sum by (room_type, cause) (increase(service_rooms_quarantined_total{${NODE}}[1h])))`,
          legend: '{{room_type}} {{cause}}',
        },
      ],
    },
  ],
}
