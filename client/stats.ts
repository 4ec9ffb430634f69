/** Counters of a client since `connect`, for tests, dashboards and bug reports. */
export interface ClientStats {
  /** Changes of states that the client has applied. */
  readonly patches: number
  /** Complete states that replaced the client's copy, by reason. */
  readonly resyncs: {
    /** Requested by the client, because an update was missing. */
    readonly sequence: number
    /** Requested by the client, because the checksum of its copy differed from the server's. */
    readonly checksum: number
    /** Sent by the server, after a reconnect or because this client read too slowly. */
    readonly unasked: number
  }
  /** Errors that no awaited promise reports, such as refusals of unreliable messages and failures of `getToken`. */
  readonly errors: number
  /** Reconnects after a lost connection. */
  readonly reconnects: number
  /** Moves to another node (server process) that the server asked for: it is being stopped, or the client's rooms run there. No connection was lost. */
  readonly moves: number
  /**
   * Memberships that ended while the client was offline, for example for longer than `reconnectSeconds`. The client joined again as a new
   * member.
   */
  readonly seatsLost: number
}

type Writable<T> = { -readonly [K in keyof T]: T[K] extends object ? Writable<T[K]> : T[K] }

/** The counters behind `client.stats`. */
export type Counters = Writable<ClientStats>

export const newCounters = (): Counters => ({
  patches: 0,
  resyncs: { sequence: 0, checksum: 0, unasked: 0 },
  errors: 0,
  reconnects: 0,
  moves: 0,
  seatsLost: 0,
})
