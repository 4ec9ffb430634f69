import { counter, gauge, histogram, type Metrics } from '../../shared/metrics.ts'

/** Result of a claim. `taken_over`: the recorded owner was dead. `rate_limited`, `project_full`, `too_many_rooms`: the room was not created. */
export type ClaimOutcome = (typeof CLAIM_OUTCOMES)[number]
const CLAIM_OUTCOMES = [
  'claimed',
  'taken_over',
  'elsewhere',
  'absent',
  'rate_limited',
  'project_full',
  'too_many_rooms',
  'newer',
  'unavailable',
] as const

/** Result of a due timer of a room that this node did not run. */
export type WakeupResult = (typeof WAKEUP_RESULTS)[number]
const WAKEUP_RESULTS = ['opened', 'running', 'elsewhere', 'absent', 'no_code', 'unavailable'] as const

/** Metrics of the cluster part of a node. */
export const CLUSTER_METRICS = {
  peerPublishes: counter(
    'service_peer_publishes_total',
    'Envelopes to other nodes: all that gathered for one node in some milliseconds, or a beat of an idle link.',
  ),
  peerMessages: counter(
    'service_peer_messages_total',
    'Messages in envelopes to other nodes; divided by the publishes: how well they are gathered.',
  ),
  peerBytes: counter('service_peer_bytes_total', 'Bytes of envelopes to other nodes.'),
  peerFaults: counter(
    'service_peer_faults_total',
    'Envelopes that the store did not take (unpublished), that went missing (gap), or could not be read (unreadable).',
    { fault: ['unpublished', 'gap', 'unreadable'] },
  ),
  roomTraffic: counter(
    'service_room_traffic_total',
    'What went between the edges of this node and the owners of rooms: messages of members to owners (input), updates of owners to each edge with members (update); at one node (local), or over the store to another (bus).',
    { what: ['input', 'update'], way: ['local', 'bus'] },
  ),
  claims: counter(
    'service_claims_total',
    'Claims of rooms, by how they ended: claimed, taken_over from a dead node, elsewhere (a living node owns it), absent, not made (rate_limited, project_full, too_many_rooms), newer, or unavailable.',
    { result: CLAIM_OUTCOMES },
  ),
  claimDuration: histogram(
    'service_claim_duration_seconds',
    'Time a claim that succeeded takes, waiting until it was allowed included.',
  ),
  roomWakeups: counter(
    'service_room_wakeups_total',
    'Rooms whose timer was due as the store says: opened here, since no node ran them, already running here, owned or opened elsewhere, gone (absent), of a type or version that no node has code for (no_code: tried again after 5 minutes), or to be tried again (unavailable).',
    { result: WAKEUP_RESULTS },
  ),
  leaseRenewalInterval: histogram(
    'service_lease_renewal_interval_seconds',
    'Time from one renewal of the lease of this node to the next.',
  ),
  leaseAge: gauge(
    'service_lease_age_seconds',
    'Time since the last successful renewal of the lease of this node was sent.',
  ),
  leaseTtl: gauge(
    'service_lease_ttl_seconds',
    'Age at which others take this node for dead (NODE_LEASE_MS); it stops a tenth earlier.',
  ),
  handOverDuration: histogram(
    'service_hand_over_duration_seconds',
    'Time in which no one acts for a room, from its last update here until another node may claim it.',
  ),
  nodesGone: counter('service_nodes_gone_total', 'Other nodes found dead, or ended.'),
  nodesAlive: gauge('service_nodes_alive', 'Nodes alive as this one sees it, itself included.'),
}

export type ClusterMetrics = Metrics<typeof CLUSTER_METRICS>
