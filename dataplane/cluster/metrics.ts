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
    'Envelopes to other nodes, including beats of idle links.',
  ),
  peerMessages: counter('service_peer_messages_total', 'Messages in envelopes to other nodes.'),
  peerBytes: counter('service_peer_bytes_total', 'Bytes of envelopes to other nodes.'),
  peerFaults: counter(
    'service_peer_faults_total',
    'Envelopes that failed. unpublished: the store rejected them. gap: lost.',
    { fault: ['unpublished', 'gap', 'unreadable'] },
  ),
  roomTraffic: ROOM_TRAFFIC,
  claims: counter(
    'service_claims_total',
    'Claims of rooms. taken_over: the owner was dead; elsewhere: a living node owns it; newer: this code is too old.',
    { result: CLAIM_OUTCOMES },
  ),
  claimDuration: histogram(
    'service_claim_duration_seconds',
    'Time of a successful claim, including the wait before it may claim.',
  ),
  roomWakeups: counter(
    'service_room_wakeups_total',
    'Due timers of rooms that no node ran. no_code: no node has the room’s code; unavailable: roomful tries again.',
    { result: WAKEUP_RESULTS },
  ),
  leaseRenewalInterval: histogram(
    'service_lease_renewal_interval_seconds',
    'Time between two renewals of the lease of this node.',
  ),
  leaseAge: gauge(
    'service_lease_age_seconds',
    'Time since this node sent the last successful renewal of its lease.',
  ),
  leaseTtl: gauge(
    'service_lease_ttl_seconds',
    'Age at which the lease expires (NODE_LEASE_MS). The node stops acting at 90 % of it.',
  ),
  handOverDuration: histogram(
    'service_hand_over_duration_seconds',
    'Pause of a room in a handoff, until another node may claim it.',
  ),
  nodesGone: counter('service_nodes_gone_total', 'Other nodes that ended or were judged dead.'),
  nodesAlive: gauge('service_nodes_alive', 'Living nodes, as this node sees them, including itself.'),
}

export type ClusterMetrics = Metrics<typeof CLUSTER_METRICS>
