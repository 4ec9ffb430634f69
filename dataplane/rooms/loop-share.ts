import type { Clock } from '../../shared/clock.ts'
import type { TurnHook, TurnRoom, Turns } from '../watchdog/turns.ts'
import type { Defer } from './scheduler.ts'

/** What the inputs of all rooms together may take of one turn of the event loop, in milliseconds: flushes, sockets and the lease have theirs in between. */
const SHARE_MS = 10

/** Less than this is not worth a callback of its own at the end of the turn. */
const COUNTED_FROM_MS = 1

/** A room that waits is let on for this long at least before the next one is. */
const QUANTUM_MS = 0.25

/** A room that waits for its share of the event loop; `since`: the oldest of what waits with it, on the monotonic clock. */
interface WaitingRoom {
  readonly run: () => void
  readonly since: number
}

/** A turn of room logic that took long. */
export interface SlowTurn {
  readonly room: TurnRoom
  readonly hook: TurnHook
  /** Of the message; empty: none. */
  readonly type: string
  readonly ms: number
}

/** One turn of room logic that takes this long is told of, and its room has to rest. */
const SLOW_MS = 100

/**
 * What the inputs of the rooms of a node take of each turn of the event loop. While they ask for more than their share, rooms wait, and are
 * let on one after the other, each for as long as the others: flushes, sockets, timers and the lease of the node have theirs in between,
 * however many messages come and however long each takes.
 */
export class LoopShare implements Turns {
  readonly #clock: Clock
  readonly #defer: Defer
  readonly #turns: Turns
  readonly #onSlow: (turn: SlowTurn) => void
  #waiting: WaitingRoom[] = []
  #usedMs = 0
  /** Up to where the room that is let on may go. */
  #mostMs = SHARE_MS
  #deferred = false
  #depth = 0
  #room: TurnRoom | undefined
  #hook: TurnHook = 'create'
  #type = ''

  constructor(clock: Clock, defer: Defer, turns: Turns, onSlow: (turn: SlowTurn) => void) {
    this.#clock = clock
    this.#defer = defer
    this.#turns = turns
    this.#onSlow = onSlow
  }

  begin(room: TurnRoom, hook: TurnHook, subject: string, ref: number, type: string): void {
    if (this.#depth++ === 0) {
      this.#room = room
      this.#hook = hook
      this.#type = type
    }
    this.#turns.begin(room, hook, subject, ref, type)
  }

  end(): void {
    this.#depth--
    this.#turns.end()
  }

  awaits(roomType: string, change: 1 | -1): void {
    this.#turns.awaits(roomType, change)
  }

  /** Whether what can wait shall wait. */
  get used(): boolean {
    return this.#usedMs >= this.#mostMs
  }

  /** For how long the inputs that are next have waited, milliseconds. */
  get waitedMs(): number {
    const [first] = this.#waiting
    return first ? this.#clock.monotonic() - first.since : 0
  }

  /** Handling something took a room so long. */
  use(ms: number): void {
    if (ms >= SLOW_MS && this.#room)
      this.#onSlow({ room: this.#room, hook: this.#hook, type: this.#type, ms })
    this.#room = undefined
    this.#usedMs += ms
    if (this.#usedMs >= COUNTED_FROM_MS) this.#nextTurn()
  }

  /** Runs `run` in one of the next turns, after the rooms that wait already. */
  wait(run: () => void, since: number): void {
    this.#waiting.push({ run, since })
    this.#nextTurn()
  }

  #nextTurn(): void {
    if (this.#deferred) return
    this.#deferred = true
    this.#defer(() => {
      this.#deferred = false
      this.#usedMs = 0
      const quantumMs = Math.max(QUANTUM_MS, SHARE_MS / this.#waiting.length)
      while (this.#usedMs < SHARE_MS && this.#waiting.length > 0) {
        this.#mostMs = Math.min(SHARE_MS, this.#usedMs + quantumMs)
        this.#waiting.shift()!.run()
      }
      this.#mostMs = SHARE_MS
      if (this.#waiting.length > 0) this.#nextTurn()
    })
  }
}
