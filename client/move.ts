import type { Clock } from '../shared/clock.ts'
import type { DecodedMessage } from '../shared/protocol/codec.ts'
import type { ResumePosition } from '../shared/protocol/messages.ts'

/** Time for which other addresses are ignored after a failed move. It doubles after each failure. */
const STAY_MS = 30_000
const LONGEST_STAY_MS = 3_600_000

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

/** Decides when a session may move to which other address. */
export class Reroutes {
  readonly #clock: Clock
  readonly #given: string
  readonly #hosts: readonly string[] | undefined
  /** In milliseconds of the monotonic clock. */
  #staysUntil = 0
  #failures = 0

  /** `given`: the client's configured address; `hosts`: further allowed hosts. Undefined: none is allowed. */
  constructor(clock: Clock, given: string, hosts: readonly string[] | undefined) {
    this.#clock = clock
    this.#given = given
    this.#hosts = hosts
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

/**
 * Returns true if a frame of the old connection belongs to a flush that had already begun at the hello of the new one, which named these
 * `positions`. All other frames arrive on the new connection.
 */
export function isRest(message: DecodedMessage, positions: readonly ResumePosition[]): boolean {
  if (message.t !== 'event' && message.t !== 'member') return false
  return positions.some(({ room_id, seq }) => room_id === message.room_id && message.seq <= seq)
}
