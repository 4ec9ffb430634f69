import type { Plot } from './plot.ts'
import type { Labels } from './recording.ts'

/** A fault, and the alert that must tell of it. */
export interface PlantedFault {
  readonly alert: string
  readonly plant: (plot: Plot) => void
  /** Seconds from the fault to the alert, at most. */
  readonly within: number
  /** The labels of what fires, without severity. */
  readonly labels: Labels
  /** What the description says for the value. */
  readonly value?: string
  /** Other alerts that tell of the same fault. */
  readonly besides?: readonly string[]
}

const NODE = { job: 'roomful-node', instance: 'node-1:9100' }
const CONTROL = { job: 'roomful-control', instance: 'control-1:3000' }
const NODES = { job: 'roomful-node' }
const CONTROLS = { job: 'roomful-control' }
const REDIS = { server: 'redis:6379' }
const ARENA = { ...NODES, room_type: 'arena' }

/** One fault for each alert. */
export const PLANTED: readonly PlantedFault[] = [
  {
    alert: 'RoomfulNodesDown',
    plant: (plot) => plot.set('up', NODE, 0),
    within: 60,
    labels: NODES,
    value: '50%',
    besides: ['RoomfulNodeDown'],
  },
  {
    alert: 'RoomfulNodeDown',
    plant: (plot) => plot.set('up', NODE, 0),
    within: 60,
    labels: NODE,
    besides: ['RoomfulNodesDown'],
  },
  {
    // Prometheus has forgotten that they were ever there: it has nothing to scrape.
    alert: 'RoomfulNoNode',
    plant: (plot) => {
      for (const name of ['up', 'service_node_info', 'service_connections']) plot.end(name, NODES)
    },
    within: 90,
    labels: {},
  },
  {
    alert: 'RoomfulProcessRestarts',
    plant: (plot) => plot.alternate('service_process_start_time_seconds', CONTROL, [600, 660, 720, 780]),
    within: 180,
    labels: CONTROL,
    value: '4',
  },
  {
    alert: 'RoomfulNodesDisagree',
    plant: (plot) => plot.set('service_nodes_alive', NODE, 1),
    within: 60,
    labels: NODES,
    value: '1',
  },
  {
    alert: 'RoomfulDrainDoesNotEnd',
    plant: (plot) => plot.set('service_draining', NODE, 1),
    within: 120,
    labels: NODE,
  },
  {
    alert: 'RoomfulPlayersGone',
    plant: (plot) => plot.set('service_connections', NODES, 100),
    within: 120,
    labels: NODES,
    value: '2.5%',
  },
  {
    alert: 'RoomfulHandshakesFail',
    plant: (plot) => plot.raise('service_handshakes_total', { ...NODES, result: 'overloaded' }, 2),
    within: 300,
    labels: NODES,
    value: '24.48%',
  },
  {
    alert: 'RoomfulJoinsFail',
    plant: (plot) => plot.raise('service_joins_total', { ...NODES, result: 'room_unavailable' }, 1),
    within: 300,
    labels: NODES,
    value: '19.23%',
  },
  {
    alert: 'RoomfulResumesFail',
    plant: (plot) => plot.raise('service_resumes_total', { ...NODES, result: 'failed' }, 2),
    within: 600,
    labels: NODES,
    value: '50.62%',
  },
  {
    alert: 'RoomfulSeatsLost',
    plant: (plot) => plot.raise('service_room_resumes_total', { ...NODES, result: 'lost' }, 1),
    within: 600,
    labels: NODES,
    value: '32.48%',
  },
  {
    alert: 'RoomfulReadersClosed',
    plant: (plot) => plot.raise('service_slow_consumers_total', { ...NODES, action: 'closed' }, 0.5),
    within: 900,
    labels: NODES,
    value: '7.575%',
  },
  {
    alert: 'RoomfulOutboxesFill',
    plant: (plot) => plot.set('service_outbox_bytes', NODE, 4000 * 100 * 1024),
    within: 300,
    labels: NODE,
    value: '100ki',
  },
  {
    alert: 'RoomfulRoomsFrozen',
    plant: (plot) => plot.set('service_rooms_frozen', NODE, 12),
    within: 60,
    labels: NODE,
    value: '12',
  },
  {
    alert: 'RoomfulClaimsFail',
    plant: (plot) => plot.raise('service_claims_total', { ...NODE, result: 'unavailable' }, 0.1),
    within: 180,
    labels: NODES,
    value: '0.10',
  },
  {
    alert: 'RoomfulProjectFull',
    plant: (plot) => plot.raise('service_claims_total', { ...NODE, result: 'project_full' }, 0.1),
    within: 240,
    labels: NODES,
    value: '0.10',
  },
  {
    alert: 'RoomfulLeaseNotRenewed',
    plant: (plot) => plot.set('service_lease_age_seconds', NODE, 1.7),
    within: 30,
    labels: NODE,
    value: '85%',
  },
  {
    alert: 'RoomfulWritesFenced',
    plant: (plot) => plot.raise('service_fenced_writes_total', NODE, 0.01),
    within: 360,
    labels: NODES,
    value: '4',
  },
  {
    alert: 'RoomfulPeersLoseMessages',
    plant: (plot) => plot.raise('service_peer_faults_total', { ...NODES, fault: 'gap' }, 0.5),
    within: 420,
    labels: { ...NODES, fault: 'gap' },
    value: '1.00',
  },
  {
    alert: 'RoomfulRoomQuarantined',
    plant: (plot) =>
      plot.raise('service_rooms_quarantined_total', { ...NODE, room_type: 'arena', cause: 'damaged' }, 0.01),
    within: 60,
    labels: { ...ARENA, cause: 'damaged' },
    value: '1',
  },
  {
    alert: 'RoomfulStateDrifts',
    plant: (plot) =>
      plot.raise('service_resyncs_total', { ...NODE, room_type: 'arena', reason: 'checksum' }, 0.01),
    within: 60,
    labels: ARENA,
    value: '1',
  },
  {
    alert: 'RoomfulRoomTurnStuck',
    plant: (plot) =>
      plot.raise('service_room_turns_stuck_total', { ...NODE, room_type: 'arena', hook: 'on_message' }, 0.01),
    within: 60,
    labels: { ...ARENA, hook: 'on_message' },
    value: '1',
  },
  {
    alert: 'RoomfulRoomLogicFails',
    plant: (plot) => plot.raise('service_room_errors_total', { ...ARENA, code: 'room_logic_failed' }, 500),
    within: 420,
    labels: ARENA,
    value: '20.63%',
  },
  {
    alert: 'RoomfulAcksSlow',
    plant: (plot) => plot.slow('service_message_ack_duration_seconds', NODES, 0.25),
    within: 420,
    labels: NODES,
    value: '992.5ms',
  },
  {
    alert: 'RoomfulDeliverySlow',
    plant: (plot) => plot.slow('service_message_delivery_duration_seconds', ARENA, 1),
    within: 420,
    labels: ARENA,
    value: '2.485s',
  },
  {
    alert: 'RoomfulHandshakesSlow',
    plant: (plot) => plot.slow('service_handshake_duration_seconds', NODES, 2.5),
    within: 420,
    labels: NODES,
    value: '2.5s',
  },
  {
    alert: 'RoomfulJoinsSlow',
    plant: (plot) => plot.slow('service_join_duration_seconds', NODES, 2.5),
    within: 420,
    labels: NODES,
    value: '2.5s',
  },
  {
    alert: 'RoomfulCommitsSlow',
    plant: (plot) => plot.slow('service_commit_duration_seconds', NODES, 0.1),
    within: 420,
    labels: NODES,
    value: '248.5ms',
  },
  {
    alert: 'RoomfulEventLoopLate',
    plant: (plot) => plot.slow('service_event_loop_delay_seconds', NODE, 0.1),
    within: 420,
    labels: NODE,
    value: '248.5ms',
  },
  {
    alert: 'RoomfulNodeBusy',
    plant: (plot) => plot.set('service_event_loop_utilisation_ratio', NODE, 0.95),
    within: 600,
    labels: NODE,
    value: '95%',
  },
  {
    alert: 'RoomfulNodeFull',
    plant: (plot) => plot.set('service_sessions', NODE, 19_000),
    within: 300,
    labels: NODE,
    value: '95%',
  },
  {
    alert: 'RoomfulRoomsFull',
    plant: (plot) => plot.set('service_rooms', NODE, 9500),
    within: 300,
    labels: NODE,
    value: '95%',
  },
  {
    alert: 'RoomfulFilesRunOut',
    plant: (plot) => plot.set('service_process_open_fds', NODE, 60_000),
    within: 300,
    labels: NODE,
    value: '91.55%',
  },
  {
    alert: 'RoomfulStoreGone',
    plant: (plot) => plot.set('service_store_up', CONTROL, 0),
    within: 30,
    labels: CONTROL,
  },
  {
    alert: 'RoomfulStoreFails',
    plant: (plot) => plot.raise('service_store_command_failures_total', NODE, 30),
    within: 420,
    labels: NODE,
    value: '9.091%',
  },
  {
    alert: 'RoomfulStoreSlow',
    plant: (plot) => plot.slow('service_store_command_duration_seconds', CONTROLS, 0.1),
    within: 420,
    labels: CONTROLS,
    value: '248.5ms',
  },
  {
    alert: 'RoomfulRedisFillsUp',
    plant: (plot) => plot.set('service_redis_used_memory_bytes', REDIS, 435.2e6),
    within: 300,
    labels: REDIS,
    value: '85%',
  },
  {
    alert: 'RoomfulRedisFull',
    plant: (plot) => plot.set('service_redis_used_memory_bytes', REDIS, 506.88e6),
    within: 60,
    labels: REDIS,
    value: '99%',
  },
  {
    alert: 'RoomfulRedisEvicts',
    plant: (plot) => plot.raise('service_redis_evicted_keys_total', REDIS, 1),
    within: 60,
    labels: REDIS,
    value: '60',
  },
  {
    alert: 'RoomfulControlDown',
    plant: (plot) => plot.set('up', CONTROL, 0),
    within: 60,
    labels: CONTROL,
  },
  {
    alert: 'RoomfulNoControl',
    plant: (plot) => plot.end('service_control_info'),
    within: 90,
    labels: {},
  },
  {
    alert: 'RoomfulControlFails',
    plant: (plot) =>
      plot.raise('service_http_requests_total', { ...CONTROLS, route: '/tokens', status: '503' }, 1),
    within: 300,
    labels: CONTROLS,
    value: '19.24%',
  },
  {
    alert: 'RoomfulCallersRefused',
    plant: (plot) => {
      plot.raise('service_http_requests_total', { ...CONTROLS, route: '/tokens', status: '401' }, 2)
      plot.raise('service_http_refusals_total', { ...CONTROLS, code: 'unauthenticated' }, 2)
    },
    within: 420,
    labels: CONTROLS,
    value: '32.32%',
  },
  {
    alert: 'RoomfulControlSlow',
    plant: (plot) => plot.slow('service_http_request_duration_seconds', { ...CONTROLS, route: '/tokens' }, 1),
    within: 420,
    labels: CONTROLS,
    value: '2.485s',
  },
  {
    alert: 'RoomfulKeysUnchecked',
    plant: (plot) => plot.raise('service_key_checks_total', { ...NODE, result: 'unreachable' }, 0.1),
    within: 420,
    labels: NODES,
    value: '0.10',
  },
]

/** What a Redis that is silent for a while looks like, as a fail-over has it: everything pauses, and goes on. */
export function plantFailOver(plot: Plot): void {
  for (const labels of [NODES, CONTROLS]) {
    plot.set('service_store_up', labels, 0)
    plot.raise('service_store_command_failures_total', labels, 50)
    plot.slow('service_store_command_duration_seconds', labels, 2.5)
  }
  plot.set('service_rooms_frozen', NODES, 800)
  plot.set('service_lease_age_seconds', NODES, 20)
  plot.raise('service_claims_total', { ...NODES, result: 'unavailable' }, 5)
  plot.raise('service_handshakes_total', { ...NODES, result: 'overloaded' }, 4)
  plot.raise('service_joins_total', { ...NODES, result: 'room_unavailable' }, 4)
  plot.raise('service_key_checks_total', { ...NODES, result: 'unreachable' }, 0.5)
  plot.raise('service_peer_faults_total', { ...NODES, fault: 'unpublished' }, 50)
  plot.raise('service_http_requests_total', { ...CONTROLS, route: '/tokens', status: '503' }, 8)
  for (const of of ['message_ack', 'commit', 'handshake', 'join'])
    plot.slow(`service_${of}_duration_seconds`, NODES, 2.5)
}
