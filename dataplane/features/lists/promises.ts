import type { Clock } from '../../../shared/clock.ts'
import { type Rate, RateLimits } from '../../../shared/rate-limit.ts'
import type { Session } from '../../gateway/session.ts'
import { Counts } from '../../metrics.ts'
import type { ListMetrics } from './metrics.ts'

/** Time for a join after `found`. The placer keeps a promise for as long. */
const COME_WITHIN_MS = 3000
/** Promises of a player that may be broken: three in a row, and then one a minute. */
const BROKEN: Rate = { perSecond: 1 / 60, burst: 3 }
/** Number of players for whom clients with one token without `sub` and one address count. */
const PLAYERS_OF_GUESTS = 8
const BROKEN_BY_GUESTS: Rate = {
  perSecond: BROKEN.perSecond * PLAYERS_OF_GUESTS,
  burst: BROKEN.burst * PLAYERS_OF_GUESTS,
}

/** A seat that the placer keeps free for a player. */
interface OpenPromise {
  readonly sessionId: string
  readonly requestId: number
  readonly roomType: string
  readonly guests: string | undefined
  /** Undefined: the placer has not answered yet. */
  roomId: string | undefined
  /** Time of the answer, on the monotonic clock. */
  at: number
}

/** The promise for a `find`. */
interface Asked {
  /** False: the placer must promise no seat. */
  readonly isPromised: boolean
  /** Request of the same session or of another one of the player whose promise for this room type ends. */
  readonly instead: { readonly sessionId: string; readonly requestId: number } | undefined
}

/**
 * The seats that `find` has promised to players of this node, and whether they come. A player has one open promise; its next `find` breaks it. A
 * promise is kept if a join of its room arrives in time, whatever the room answers. A player who has broken too many gets rooms, but no promises.
 * Clients with one token without `sub` are players of their own, and have a bound together if they have one address.
 */
export class SeatPromises {
  readonly #clock: Clock
  readonly #metrics: ListMetrics
  /** By player (`Session.player`). */
  readonly #open = new Map<string, OpenPromise>()
  readonly #ofGuests = new Counts()
  readonly #broken: RateLimits
  readonly #brokenByGuests: RateLimits

  constructor(clock: Clock, metrics: ListMetrics) {
    this.#clock = clock
    this.#metrics = metrics
    this.#broken = new RateLimits(clock, BROKEN)
    this.#brokenByGuests = new RateLimits(clock, BROKEN_BY_GUESTS)
  }

  /** The player asks for a room. Call `answered` with the result. A repeated request keeps its promise. */
  ask({ player, guests, sessionId }: Session, requestId: number, roomType: string): Asked {
    const before = this.#open.get(player)
    if (before?.sessionId === sessionId && before.requestId === requestId)
      return { isPromised: true, instead: undefined }
    if (before) this.#break(player, before)
    const isPromised = this.#mayPromise(player, guests)
    if (isPromised) {
      this.#open.set(player, { sessionId, requestId, roomType, guests, roomId: undefined, at: 0 })
      if (guests !== undefined) this.#ofGuests.add(guests, 1)
    } else this.#metrics.seatPromises.inc({ result: 'withheld' })
    const instead = before?.roomType === roomType ? before : undefined
    return { isPromised, instead: instead && { sessionId: instead.sessionId, requestId: instead.requestId } }
  }

  /** The placer has answered a request. `roomId` undefined: with no room. */
  answered({ player, sessionId }: Session, requestId: number, roomId: string | undefined): void {
    const open = this.#open.get(player)
    if (open?.sessionId !== sessionId || open.requestId !== requestId) return
    open.roomId = roomId
    open.at = this.#clock.monotonic()
    if (roomId === undefined) this.#end(player, open)
  }

  /** The player joins a room. */
  joins({ player }: Session, roomId: string): void {
    const open = this.#open.get(player)
    if (open?.roomId !== roomId) return
    this.#end(player, open)
    this.#metrics.seatPromises.inc({ result: 'kept' })
  }

  /** Ends the promises whose time is over. To be called about once a second. */
  sweep(): void {
    const now = this.#clock.monotonic()
    for (const [player, open] of this.#open)
      if (open.roomId !== undefined && now - open.at >= COME_WITHIN_MS) this.#break(player, open)
  }

  #mayPromise(player: string, guests: string | undefined): boolean {
    if (this.#broken.of(player).waitMs() > 0) return false
    if (guests === undefined) return true
    return this.#ofGuests.of(guests) < PLAYERS_OF_GUESTS && this.#brokenByGuests.of(guests).waitMs() === 0
  }

  #break(player: string, open: OpenPromise): void {
    this.#end(player, open)
    this.#broken.take(player)
    if (open.guests !== undefined) this.#brokenByGuests.take(open.guests)
    this.#metrics.seatPromises.inc({ result: 'broken' })
  }

  #end(player: string, { guests }: OpenPromise): void {
    this.#open.delete(player)
    if (guests !== undefined) this.#ofGuests.add(guests, -1)
  }
}
