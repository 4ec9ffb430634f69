import type { Clock } from '../shared/clock.ts'
import type { DecodedMessage } from '../shared/protocol/codec.ts'
import type { ResumePosition } from '../shared/protocol/messages.ts'
import type { ClientConnection } from './connection.ts'

/** Time for which reroutes are ignored after a failed one. It doubles after each failure. */
const STAY_MS = 30_000
const LONGEST_STAY_MS = 3_600_000
/** Maximum time that a replaced connection stays open. It is longer than the server keeps it. */
const REPLACED_MS = 10_000

/** Location of a page. Undefined outside a browser. */
const here = (): string | undefined => (typeof location === 'undefined' ? undefined : location.href)

const isSecure = (protocol: string): boolean => protocol === 'wss:' || protocol === 'https:'

/**
 * Returns true if the session may continue at `address`, which would get its resume token. Allowed are the host of `given` (the client's
 * configured address), with any port and path, and `hosts`. A secure connection never moves to an insecure one.
 */
export function mayGoTo(address: string, given: string, hosts: readonly string[]): boolean {
  try {
    const to = new URL(address)
    const from = new URL(given, here())
    const known = to.hostname === from.hostname || hosts.includes(to.hostname)
    return known && (to.protocol === 'wss:' || (to.protocol === 'ws:' && !isSecure(from.protocol)))
  } catch {
    return false
  }
}

/** Decides where and when a session may move. */
export class Reroutes {
  readonly #clock: Clock
  readonly #given: string
  readonly #hosts: readonly string[] | undefined
  /** In milliseconds of the monotonic clock. */
  #staysUntil = 0
  #failures = 0

  /** `given`: the client's configured address; `hosts`: further allowed hosts. Undefined: reroutes are off. */
  constructor(clock: Clock, given: string, hosts: readonly string[] | undefined) {
    this.#clock = clock
    this.#given = given
    this.#hosts = hosts
  }

  /** Value for the `hello`. */
  get features(): readonly string[] {
    return this.#hosts ? ['reroute'] : []
  }

  allow(address: string): boolean {
    const may = this.#hosts !== undefined && mayGoTo(address, this.#given, this.#hosts)
    return may && this.#clock.monotonic() >= this.#staysUntil
  }

  failed(): void {
    this.#staysUntil = this.#clock.monotonic() + Math.min(LONGEST_STAY_MS, STAY_MS * 2 ** this.#failures)
    this.#failures += 1
  }

  succeeded(): void {
    this.#failures = 0
  }
}

/** The replaced connection, from the hello of the new one until its last frames have arrived. */
export class ReplacedConnection {
  readonly #connection: ClientConnection
  readonly #positions: ReadonlyMap<string, ResumePosition>
  readonly #cancelTimer: () => void

  /** `positions`: positions of the rooms at that hello. `over` is called when the time limit is reached. */
  constructor(
    connection: ClientConnection,
    positions: readonly ResumePosition[],
    clock: Clock,
    over: () => void,
  ) {
    this.#connection = connection
    this.#positions = new Map(positions.map((position) => [position.room_id, position]))
    this.#cancelTimer = clock.schedule(REPLACED_MS, over)
  }

  is(connection: ClientConnection): boolean {
    return this.#connection === connection
  }

  /** Returns true if a frame belongs to a flush that had already begun. All other frames arrive on the new connection. */
  counts(message: DecodedMessage): boolean {
    if (message.t !== 'event' && message.t !== 'member') return false
    const stood = this.#positions.get(message.room_id)
    return stood !== undefined && message.seq <= stood.seq
  }

  close(): void {
    this.#cancelTimer()
    this.#connection.close()
  }
}
