/** Counters of a client since `connect`, for tests, dashboards and bug reports. */
export interface ClientStats {
  /** Applied patches. */
  readonly patches: number
  /** Snapshots that replaced the client's copy of a state, by reason. */
  readonly resyncs: {
    /** Requested because an update was missing. */
    readonly sequence: number
    /** Requested because the checksum after a patch differed from the server's. */
    readonly checksum: number
    /** Sent by the server unrequested: after a resume, or because this client read too slowly. */
    readonly unasked: number
  }
  /** Errors that no promise reports, such as refusals of unreliable messages and failures of `getToken`. */
  readonly errors: number
  /** Reconnects after a lost connection. */
  readonly reconnects: number
  /** Moves to the node of the client's rooms, without a lost connection. */
  readonly reroutes: number
  /** Seats that the server gave up, as when the client was away for longer than `reconnectSeconds`. The client joined again as a new member. */
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
  reroutes: 0,
  seatsLost: 0,
})
