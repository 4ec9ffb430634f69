import type { Clock } from '../../shared/clock.ts'

/** So often it is looked at how long a turn of the event loop takes, at most: to look costs as much as a small message. */
const LOOK_MS = 20
/** From then on a turn counts as long. */
const LONG_MS = 10
/** Sockets that rest are read again in groups, one for so many milliseconds: a timer for each would cost as much as to read it. */
const SLOT_MS = 20

/** A socket that is read when its data comes, unless it rests. */
export interface PolledSocket {
  /** The long turn in which it was read last; for `Polling` only. */
  readIn: number | undefined
  /** Nothing is to be read until `goOn`. */
  rest(): void
  goOn(): void
}

/**
 * When sockets are read. The event loop looks at 1,024 of them at once, and looks again for as long as that many had something, up to 48
 * times, before any timer comes due: of a few thousand clients who all send, that takes seconds, and the node loses its lease. So in a turn
 * that takes long no socket is read twice.
 *
 * To read a socket costs more than most messages. So a node that is overloaded reads each only every so many milliseconds, and gets several
 * messages at once.
 */
export class Polling {
  readonly #clock: Clock
  readonly #intervalMs: () => number
  readonly #defer: (callback: () => void) => void
  /** By the number of their slot. */
  readonly #resting = new Map<number, PolledSocket[]>()
  /** Until this turn ends. */
  #waiting: PolledSocket[] = []
  #turn = 0
  /** When the turn that is looked at, or was last, began to read. */
  #beganAt = Number.NEGATIVE_INFINITY
  #reading = false

  /** `intervalMs`: how often each socket is read at most; 0: whenever its data comes. `defer`: runs a callback when this turn has read its sockets. */
  constructor(
    clock: Clock,
    intervalMs: () => number,
    defer: (callback: () => void) => void = (callback) => setImmediate(callback),
  ) {
    this.#clock = clock
    this.#intervalMs = intervalMs
    this.#defer = defer
  }

  /** A socket was read, and may have to rest. */
  read(socket: PolledSocket): void {
    const now = this.#clock.monotonic()
    const intervalMs = this.#intervalMs()
    if (intervalMs > 0) {
      socket.rest()
      this.#group(Math.ceil((now + intervalMs) / SLOT_MS)).push(socket)
      return
    }
    const turn = this.#longTurn(now)
    if (turn !== undefined && socket.readIn === turn) {
      socket.rest()
      if (this.#waiting.push(socket) === 1) this.#defer(this.#endWait)
    }
    socket.readIn = turn
  }

  #group(slot: number): PolledSocket[] {
    const known = this.#resting.get(slot)
    if (known) return known
    const group: PolledSocket[] = []
    this.#resting.set(slot, group)
    this.#clock.schedule(slot * SLOT_MS - this.#clock.monotonic(), () => {
      this.#resting.delete(slot)
      for (const socket of group) socket.goOn()
    })
    return group
  }

  readonly #endWait = (): void => {
    const waiting = this.#waiting
    this.#waiting = []
    for (const socket of waiting) socket.goOn()
  }

  /** A number of this turn's own, once it takes long. */
  #longTurn(now: number): number | undefined {
    if (this.#reading) return now - this.#beganAt >= LONG_MS ? this.#turn : undefined
    if (now - this.#beganAt < LOOK_MS) return undefined
    this.#turn++
    this.#beganAt = now
    this.#reading = true
    this.#defer(() => {
      this.#reading = false
    })
    return undefined
  }
}
