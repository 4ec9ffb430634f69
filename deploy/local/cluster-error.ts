/** Something of this machine keeps a part of the cluster from running; the message says what, and what to do about it. */
export class ClusterError extends Error {}
