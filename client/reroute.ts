import type { Clock } from '../shared/clock.ts'
import type { DecodedMessage } from '../shared/protocol/codec.ts'
import type { ResumePosition } from '../shared/protocol/messages.ts'
import type { ClientConnection } from './connection.ts'

/** How long the server's next suggestion to go to another node is ignored after one that failed, twice as long after each more. */
const STAY_MS = 30_000
const LONGEST_STAY_MS = 3_600_000
/** How long a connection that was replaced may stay open: longer than the server keeps it. */
const REPLACED_MS = 10_000

/** What a page may have for a location; elsewhere there is none. */
const here = (): string | undefined => (typeof location === 'undefined' ? undefined : location.href)

const isSecure = (protocol: string): boolean => protocol === 'wss:' || protocol === 'https:'

/**
 * Whether a session may go on at `address`, as the server suggests: it takes its resume token there. So only to the host of `given`, the address
 * that the client was given, at any port and path, or to one of `hosts`; and never from a secure connection to one that is not.
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

/** Where a session may go on, and when. */
export class Reroutes {
  readonly #clock: Clock
  readonly #given: string
  readonly #hosts: readonly string[] | undefined
  /** On the monotonic clock. */
  #staysUntil = 0
  #failures = 0

  /** `given`: the address that the client was given; `hosts`: others than its own where it may go; undefined: it stays. */
  constructor(clock: Clock, given: string, hosts: readonly string[] | undefined) {
    this.#clock = clock
    this.#given = given
    this.#hosts = hosts
  }

  /** What a `hello` names. */
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

/** The connection before the present one, from the hello of that on, while it may have something to say. */
export class ReplacedConnection {
  readonly #connection: ClientConnection
  readonly #positions: ReadonlyMap<string, ResumePosition>
  readonly #cancelTimer: () => void

  /** `positions`: where the rooms stood at that hello; `over` is called when it has been there for long enough. */
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

  /** Whether what came on it is the rest of a flush that had begun; anything else comes on the present one. */
  counts(message: DecodedMessage): boolean {
    if (message.t !== 'event' && !isPresence(message)) return false
    const stood = this.#positions.get(message.room_id)
    return stood !== undefined && message.seq <= stood.seq
  }

  close(code?: number): void {
    this.#cancelTimer()
    this.#connection.close(code)
  }
}

const isPresence = (message: DecodedMessage) =>
  message.t === 'room.joined' || message.t === 'room.left' || message.t === 'room.presence'
