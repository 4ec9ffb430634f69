/** What a client has seen since `connect`; for tests, dashboards and bug reports. */
export interface ClientStats {
  /** Patches applied. */
  readonly patches: number
  /** Whole states that replaced what the client held. */
  readonly resyncs: {
    /** Asked for, because a patch was missing. */
    readonly sequence: number
    /** Asked for, because the state after a patch had another checksum than the server's. */
    readonly checksum: number
    /** Sent by the server without being asked: after a resume, or because this client read too slowly. */
    readonly unasked: number
  }
  /** Failures that no promise carries: the server's refusals of unreliable messages, tokens that could not be fetched in time. */
  readonly errors: number
  /** Times the connection was back after a loss. */
  readonly reconnects: number
  /** Times the client went on at the node of its rooms, without a loss. */
  readonly reroutes: number
}

type Writable<T> = { -readonly [K in keyof T]: T[K] extends object ? Writable<T[K]> : T[K] }

/** The counters behind `client.stats`. */
export type Counters = Writable<ClientStats>

export const newCounters = (): Counters => ({
  patches: 0,
  resyncs: { sequence: 0, checksum: 0, unasked: 0 },
  errors: 0,
  reconnects: 0,
  reroutes: 0,
})
