import type { Check, Figure, Percentiles, Timing } from './result.ts'

/** One kind of load. Each is one file in scenarios/, which reads from top to bottom as what happens. */
export interface Scenario {
  /** As it is typed: `connect-storm`. */
  readonly name: string
  /** One sentence. */
  readonly meaning: string
  /** Its own options besides those of every scenario, by the name they are typed with (`rooms` for `--rooms`). */
  readonly options: Readonly<Record<string, ScenarioOption>>
  /** Whether it does something to the processes of the service, which only works with those it started (`--local`). */
  readonly needs_local: boolean
  run(stage: Stage): Promise<void>
}

export interface ScenarioOption {
  readonly meaning: string
  readonly kind: 'count' | 'number' | 'seconds' | 'share' | 'text'
  readonly default: number | string
}

/** What a scenario acts with. Every promise rejects when the run is interrupted. */
export interface Stage {
  /** The value of a numeric option. */
  number(option: string): number
  text(option: string): string
  /** The clients, over all threads. */
  readonly crowd: Crowd
  /** The processes of the service, with `--local`. Throws without. */
  readonly local: LocalService
  /** Runs one phase; the report shows when it was, and the live view how far it is. `seconds`: how long it is expected to take. */
  phase<T>(name: string, seconds: number, work: () => Promise<T>): Promise<T>
  /** Writes down that something happened. */
  incident(text: string): void
  /** Adds a figure to the report. */
  figure(figure: Figure): void
  /** Adds a promise of the service that the scenario itself has checked. */
  check(check: Check): void
  /** What was timed in the phase of this name, up to now when it has not ended. */
  timed(timing: Timing, phase: string): Percentiles
  /** Passes the time of the run. */
  pass(seconds: number): Promise<void>
}

/** What all clients of a run do, spread over the threads evenly. Clients are numbered from 0. */
export interface Crowd {
  /** Connects `count` more clients, `per_second` of them each second. Resolves when all are connected or have failed. */
  connect(options: { readonly count: number; readonly per_second: number }): Promise<void>
  /**
   * Connects spectators: they read what arrives and look at the sequence numbers, but keep no state and send nothing; many fit in one
   * thread. Each joins the room `room` right away.
   */
  watch(options: {
    readonly count: number
    readonly per_second: number
    readonly room: string
  }): Promise<void>
  /** Client i joins the room i mod `rooms` (key `load-<n>`). Resolves when all have joined or failed. */
  join(options: { readonly rooms: number; readonly per_second: number }): Promise<void>
  /** Each member sends `rate` reliable messages per second, evenly spread, for `seconds`. Resolves when the time is over. */
  play(options: { readonly rate: number; readonly seconds: number }): Promise<void>
  /** Sends on until `stop`. Each message carries `bytes` of text for all members to see; default 0. */
  start(options: { readonly rate: number; readonly bytes?: number }): Promise<void>
  stop(): Promise<void>
  /** Every client leaves its room and joins the next one, `per_second` of them each second, for `seconds`. */
  churn(options: {
    readonly per_second: number
    readonly rooms: number
    readonly seconds: number
  }): Promise<void>
  /** Cuts the sockets of this share (0–1) of all clients at once, without a goodbye. Resolves when all of them are back or have given up. */
  cut(options: { readonly share: number }): Promise<void>
  /** This share of the clients stops reading, and sending, for `seconds`. Resolves with how many players the service closed for it (4007), which is no failure. */
  stall(options: { readonly share: number; readonly seconds: number }): Promise<number>
  /** Forgets the longest pause of each player: the next `pauses` counts from here. */
  markPauses(): Promise<void>
  /** Writes each player's longest pause since the mark down as the timing `pause`. */
  takePauses(): Promise<void>
  /** Waits until everything sent is acked, and looks whether the rooms have applied each message once. Resolves after `within_seconds` at most. */
  settle(options: { readonly within_seconds: number }): Promise<void>
  /** Issues the tokens of what connects from here on under a key of its own; resolves with what revokes it. Sessions that end by it are expected, and no failures. */
  underKey(): Promise<RevocableKey>
  /** Waits until every client of the revoked key is closed; resolves with how long each took. */
  awaitRevoked(options: { readonly within_seconds: number }): Promise<readonly Closed[]>
}

/** When a session was closed, in milliseconds since its key was revoked. */
export interface Closed {
  /** When the generator saw it. */
  readonly seen_ms: number
  /** When the generator had looked before that, and it was open still: what is between the two may be the generator's own delay. */
  readonly open_ms: number
}

export interface RevocableKey {
  revoke(): Promise<void>
}

/** The processes that `--local` has started. */
export interface LocalService {
  /** `node-1` … */
  readonly nodes: readonly string[]
  /** Tells a node to end (SIGTERM) and starts it anew when it has ended; resolves when it serves again. */
  restart(node: string): Promise<void>
  /** Ends a node at once (SIGKILL); resolves when it is gone. */
  kill(node: string): Promise<void>
  /** Starts a node that has ended; resolves when it serves. */
  start(node: string): Promise<void>
}
