import { counter, gauge, histogram, type Metrics } from '../../shared/metrics.ts'
import { ROOM_TRAFFIC } from '../metrics.ts'

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
    'Envelopes to other nodes: the messages of some milliseconds to one node, or a beat of an idle link.',
  ),
  peerMessages: counter(
    'service_peer_messages_total',
    'Messages in envelopes to other nodes. Divided by the publishes: messages per envelope.',
  ),
  peerBytes: counter('service_peer_bytes_total', 'Bytes of envelopes to other nodes.'),
  peerFaults: counter(
    'service_peer_faults_total',
    'Envelopes that the store rejected (unpublished), that were lost (gap), or that could not be decoded (unreadable).',
    { fault: ['unpublished', 'gap', 'unreadable'] },
  ),
  roomTraffic: ROOM_TRAFFIC,
  claims: counter(
    'service_claims_total',
    'Claims of rooms, by result: claimed, taken_over from a dead node, elsewhere (a living node owns it), absent, not created (rate_limited, project_full, too_many_rooms), newer, or unavailable.',
    { result: CLAIM_OUTCOMES },
  ),
  claimDuration: histogram(
    'service_claim_duration_seconds',
    'Time of a successful claim, including the wait until it was allowed.',
  ),
  roomWakeups: counter(
    'service_room_wakeups_total',
    'Rooms with a due timer in the store: opened here, already running here, owned or opened elsewhere, gone (absent), without a node that has their code (no_code: tried again after 5 minutes), or to be tried again (unavailable).',
    { result: WAKEUP_RESULTS },
  ),
  leaseRenewalInterval: histogram(
    'service_lease_renewal_interval_seconds',
    'Time from one renewal of the lease of this node to the next.',
  ),
  leaseAge: gauge(
    'service_lease_age_seconds',
    'Time since this node sent the last successful renewal of its lease.',
  ),
  leaseTtl: gauge(
    'service_lease_ttl_seconds',
    'Age of its lease at which others presume this node dead (NODE_LEASE_MS). The node stops a tenth earlier.',
  ),
  handOverDuration: histogram(
    'service_hand_over_duration_seconds',
    'Pause of a room during a handoff: from its last update here until another node may claim it.',
  ),
  nodesGone: counter('service_nodes_gone_total', 'Other nodes that ended or were presumed dead.'),
  nodesAlive: gauge('service_nodes_alive', 'Living nodes from the view of this node, including itself.'),
}

export type ClusterMetrics = Metrics<typeof CLUSTER_METRICS>
