/** What the links to other nodes count. Called on the hot path: implementations must be cheap and must not throw. */
export interface PeerMetrics {
  /** An envelope left: how many messages were in it (0: a beat), and how many bytes it has. */
  published(messages: number, bytes: number): void
  /** An envelope could not be published. */
  unpublished(): void
  /** Envelopes from a node are missing, or the store may have lost some. */
  gap(): void
  /** An envelope that cannot be read was dropped. */
  unreadable(): void
}

/** How a claim ended. `rate_limited`, `project_full`: the room was not made. */
export type ClaimResult =
  | 'claimed'
  | 'taken_over'
  | 'elsewhere'
  | 'absent'
  | 'rate_limited'
  | 'project_full'
  | 'quarantined'
  | 'unavailable'

/** What the cluster part of a node counts; ops/ turns it into metrics. */
export interface ClusterMetrics extends PeerMetrics {
  /** A claim ended; `seconds` since it began. `taken_over`: the recorded owner was dead. */
  claim(result: ClaimResult, seconds: number): void
  /** The lease of this node was renewed; `seconds` since the renewal before was sent. */
  leaseRenewed(seconds: number): void
  /** How many nodes are alive, this one included. */
  nodesAlive(count: number): void
  /** A room was handed over to another node; `seconds` in which nobody acted for it. */
  handedOver(seconds: number): void
  /** Another node was found dead. */
  nodeGone(): void
}

/** Counts nothing. */
export const noClusterMetrics: ClusterMetrics = {
  published() {},
  unpublished() {},
  gap() {},
  unreadable() {},
  claim() {},
  leaseRenewed() {},
  nodesAlive() {},
  handedOver() {},
  nodeGone() {},
}
