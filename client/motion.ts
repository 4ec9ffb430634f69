/**
 * `roomful/client/motion`: client-side prediction and interpolation for smooth movement.
 *
 *     const me = predict(room, {
 *       own: (state, id) => state.players[id],
 *       apply: { move },
 *       smooth: ['x', 'y'],
 *       snap: 200,
 *     })
 *     const others = interpolate(room, {
 *       select: (state) => state.players,
 *       fields: ['x', 'y'],
 *       snap: 200,
 *     })
 *
 *     me.send('move', { dx: 5, dy: 0 }) // Applied immediately.
 *     draw(me.at(), others.at()) // Once per frame.
 * @module roomful/client/motion
 */
import type { Clock } from '../shared/clock.ts'
import type { RoomMessages, TypedRoom, VisibleState } from '../shared/room-types.ts'
import type { Unsubscribe } from './listeners.ts'
import type { RequestArguments, Room, SendArguments } from './room.ts'

/** Clock. Default: `performance.now()`. */
export type MotionClock = Pick<Clock, 'monotonic'>

/** `T` with all properties writable, at every depth, as in room code. */
export type Mutable<T> = T extends object ? { -readonly [K in keyof T]: Mutable<T[K]> } : T

/** Keys of `T` whose values are numbers. */
export type NumericKey<T> = { [K in keyof T]: T[K] extends number ? K : never }[keyof T] & string

/** Options of `predict`. */
export interface PredictOptions<R extends TypedRoom, Own> {
  /** Returns the part of the state that belongs to this player, or undefined. */
  readonly own: (state: VisibleState<R>, memberId: string) => Own | undefined
  /** Functions that apply a message to this part, by message type. Use the same functions in the room. Other messages are not predicted. */
  readonly apply: {
    readonly [K in keyof RoomMessages<R> & string]?: (
      own: Mutable<NoInfer<Own>>,
      data: RoomMessages<R>[K],
    ) => void
  }
  /** Coordinates for which a correction by the server is smoothed. */
  readonly smooth: readonly NumericKey<NoInfer<Own>>[]
  /** Distance above which a correction is a jump, for example a respawn. Default: corrections never jump. */
  readonly snap?: number
  /** Time after which 37 % of a correction is left, in milliseconds. Default 100. */
  readonly smoothMs?: number
  /** Clock for `at` and for the smoothing of corrections. */
  readonly clock?: MotionClock
}

/** Options of `interpolate`. */
export interface InterpolateOptions<R extends TypedRoom, T> {
  /** Returns the moving objects, by id. */
  readonly select: (state: VisibleState<R>) => { readonly [id: string]: T }
  /** Coordinates to interpolate. Other fields change when the displayed time reaches their update. */
  readonly fields: readonly NumericKey<NoInfer<T>>[]
  /** An object that moves farther than this between two updates jumps. Default: movements never jump. */
  readonly snap?: number
  /** `sync.rate` of the room. Required if it is not 20. */
  readonly rate?: number
  /**
   * Returns the server's time of a state in milliseconds, for example a field `now` that each tick sets to `ctx.now`. Then irregular updates
   * do not disturb the movement. Default: updates are assumed to be evenly spaced.
   */
  readonly time?: (state: VisibleState<R>) => number
  /** Minimum display delay in milliseconds. Default: two updates. The delay grows as the network requires. */
  readonly delayMs?: number
  /** Maximum display delay in milliseconds. Default 500. */
  readonly maxDelayMs?: number
  /** Clock for `at` and for the arrival times of updates. */
  readonly clock?: MotionClock
}

/**
 * Shows this player's inputs immediately. It starts from the server's state and applies the unacknowledged inputs again, in order. An ack
 * arrives after the patch with its message's effect, so prediction needs no additional data on the wire. This is client-side prediction
 * and server reconciliation after G. Gambetta, "Fast-Paced Multiplayer", part II (https://www.gabrielgambetta.com), with Valve's smoothing
 * of prediction errors ("Source Multiplayer Networking", Valve Developer Community).
 */
export const predict = <R extends TypedRoom, Own extends object>(
  room: Room<R>,
  options: PredictOptions<R, Own>,
): Prediction<R, Own> => new Prediction(room, options)

/**
 * Shows other objects slightly in the past, between two updates that have arrived. This is entity interpolation after G. Gambetta,
 * "Fast-Paced Multiplayer", part III (https://www.gabrielgambetta.com), and Valve, "Source Multiplayer Networking". The delay follows the
 * network as in an adaptive playout buffer (R. Ramjee et al., INFOCOM 1994). Nothing is extrapolated: without updates, objects stop.
 */
export const interpolate = <R extends TypedRoom, T extends object>(
  room: Room<R>,
  options: InterpolateOptions<R, T>,
): Interpolation<R, T> => new Interpolation(room, options)

const machineClock: MotionClock = { monotonic: () => performance.now() }

interface Input<Own> {
  readonly apply: (own: Mutable<Own>) => void
  /** Acknowledged or refused. An ack arrives after the state with the effect. */
  answered: boolean
}

/** Predicted part of a state, created by `predict`. */
export class Prediction<R extends TypedRoom, Own extends object> {
  readonly #room: Room<R>
  readonly #options: PredictOptions<R, Own>
  readonly #clock: MotionClock
  readonly #smoothMs: number
  #memberId = ''
  #basis: Own | undefined
  /** Unacknowledged inputs. The client limits their number (`maxUnacked`). */
  #inputs: Input<Own>[] = []
  #preview: Input<Own> | undefined
  #value: Own | undefined
  /** Difference between the displayed and the correct value of each coordinate, at the last comparison. */
  #error: readonly number[] = []
  #comparedMs = 0

  /** See `predict`. */
  constructor(room: Room<R>, options: PredictOptions<R, Own>) {
    this.#room = room
    this.#options = options
    this.#clock = options.clock ?? machineClock
    this.#smoothMs = options.smoothMs ?? 100
    this.#reconcile(this.#clock.monotonic())
  }

  /** Sends a reliable message and applies it immediately. Resolves and rejects as `room.send` does. A refused message is undone. */
  send<K extends keyof RoomMessages<R> & string>(
    type: K,
    ...[data]: RequestArguments<RoomMessages<R>[K]>
  ): Promise<void> {
    const input = this.#input(type, data)
    this.#preview = undefined
    if (input) this.#inputs.push(input)
    this.#replay()
    const answered = (): void => {
      if (input) input.answered = true
    }
    const sent = this.#room.send(type, ...([data] as SendArguments<RoomMessages<R>[K]>))
    sent.then(answered, answered)
    return sent
  }

  /**
   * Shows the effect of a message without sending it, until the next `preview` or `send`. Use it in frames between two messages.
   */
  preview<K extends keyof RoomMessages<R> & string>(
    type: K,
    ...[data]: RequestArguments<RoomMessages<R>[K]>
  ): void {
    this.#preview = this.#input(type, data)
    this.#replay()
  }

  /** Predicted value after all inputs, without smoothing. The next input starts from it. */
  get value(): Own | undefined {
    this.#reconcile(this.#clock.monotonic())
    return this.#value
  }

  /** Returns the value to draw at `nowMs` of the clock (default: now), or undefined. It is never changed in place. */
  at(nowMs = this.#clock.monotonic()): Own | undefined {
    this.#reconcile(nowMs)
    return this.#shown(nowMs)
  }

  /** Applies the updates and acks since the last call. */
  #reconcile(nowMs: number): void {
    const { memberId, state, resyncing } = this.#room
    // During a resync the state may lack effects of acked inputs. Keep the previous basis and all inputs since.
    if (resyncing) return
    const basis = this.#options.own(state, memberId)
    const isSame = memberId === this.#memberId
    const left = this.#inputs.filter(({ answered }) => isSame && !answered)
    if (basis === this.#basis && left.length === this.#inputs.length) return
    const before = isSame ? this.#shown(nowMs) : undefined
    if (!isSame) this.#preview = undefined
    this.#memberId = memberId
    this.#basis = basis
    this.#inputs = left
    this.#replay()
    this.#comparedMs = nowMs
    this.#error = before && this.#value ? differences(before, this.#value, this.#options.smooth) : []
    if (Math.hypot(...this.#error) > (this.#options.snap ?? Number.POSITIVE_INFINITY)) this.#error = []
  }

  #replay(): void {
    if (!this.#basis) {
      this.#value = undefined
      return
    }
    const own = structuredClone(this.#basis)
    for (const { apply } of this.#inputs) apply(own as Mutable<Own>)
    this.#preview?.apply(own as Mutable<Own>)
    this.#value = own
  }

  #shown(nowMs: number): Own | undefined {
    const left = Math.exp((this.#comparedMs - nowMs) / this.#smoothMs)
    if (!this.#value || Math.hypot(...this.#error) * left < 1e-3) return this.#value
    const shown = { ...this.#value }
    this.#options.smooth.forEach((key, i) => {
      Reflect.set(shown, key, coordinate(shown, key) + (this.#error[i] ?? 0) * left)
    })
    return shown
  }

  #input<K extends keyof RoomMessages<R> & string>(type: K, data: unknown): Input<Own> | undefined {
    const apply = this.#options.apply[type]
    const copy = structuredClone(data ?? null) as RoomMessages<R>[K]
    return apply && { apply: (own) => apply(own, copy), answered: false }
  }
}

/** An update with its time. */
interface Update<T> {
  /** Arrival time without the network's extra delay. */
  atMs: number
  readonly cameMs: number
  /** Time by the server's clock, if known. */
  readonly stampMs: number | undefined
  readonly things: { readonly [id: string]: T }
}

/** Number of kept updates: those still to be displayed, and past ones from which the delay is computed. */
const KEPT = 64
/** After a pause of more update intervals than this, objects are assumed to have stood until the last interval. */
const PAUSE = 3.5
/** Maximum relative change of the displayed time's speed. */
const SLEW = 0.15
/** Time constant for reducing the delay. It is slow, because a late network is likely to be late again. */
const CATCH_UP_MS = 5000
/** Above this lag the displayed time jumps: the page was hidden, or the connection was lost. */
const LEAP_MS = 1000

/** Interpolated objects, created by `interpolate`. */
export class Interpolation<R extends TypedRoom, T extends object> {
  /** Stops the interpolation. */
  readonly stop: Unsubscribe
  readonly #options: InterpolateOptions<R, T>
  readonly #clock: MotionClock
  readonly #intervalMs: number
  /** Updates, oldest first; never empty. */
  #updates: Update<T>[]
  /** Displayed time. */
  #shownMs: number
  #askedMs: number
  /** Offset of the page's clock to the server's stamps, with the smallest network delay. */
  #offsetMs = 0

  /** See `interpolate`. */
  constructor(room: Room<R>, options: InterpolateOptions<R, T>) {
    this.#options = options
    this.#clock = options.clock ?? machineClock
    this.#intervalMs = 1000 / (options.rate ?? 20)
    const nowMs = this.#clock.monotonic()
    const stampMs = options.time?.(room.state)
    if (stampMs !== undefined) this.#offsetMs = nowMs - stampMs
    this.#updates = [{ atMs: nowMs, cameMs: nowMs, stampMs, things: options.select(room.state) }]
    this.#askedMs = nowMs
    this.#shownMs = nowMs - this.delayMs
    this.stop = room.onStateChange((state) => this.#see(options.select(state), options.time?.(state)))
  }

  /** Current display delay in milliseconds, large enough for the most delayed of the kept updates. */
  get delayMs(): number {
    const { delayMs = 2 * this.#intervalMs, maxDelayMs = 500 } = this.#options
    const late = Math.max(...this.#updates.map(({ atMs, cameMs }) => cameMs - atMs))
    return Math.min(maxDelayMs, Math.max(delayMs, late + this.#intervalMs))
  }

  /** Returns the objects to draw at `nowMs` of the clock (default: now), by id: those that exist at the displayed time. */
  at(nowMs = this.#clock.monotonic()): ReadonlyMap<string, T> {
    this.#advance(nowMs)
    const index = this.#index()
    const { from, to, part } = this.#between(index)
    const shown = new Map<string, T>()
    for (const [id, thing] of Object.entries(from.things)) {
      const next = Object.hasOwn(to.things, id) ? to.things[id]! : thing
      shown.set(id, this.#mix(thing, next, part))
    }
    return shown
  }

  /** Advances the displayed time towards the target delay. */
  #advance(nowMs: number): void {
    const passedMs = Math.max(0, nowMs - this.#askedMs)
    this.#askedMs = nowMs
    this.#shownMs += passedMs
    const behindMs = nowMs - this.delayMs - this.#shownMs
    const most = SLEW * passedMs
    if (Math.abs(behindMs) > LEAP_MS) this.#shownMs += behindMs
    else if (behindMs < 0) this.#shownMs += Math.max(-most, behindMs)
    else this.#shownMs += Math.min(most, (passedMs * behindMs) / CATCH_UP_MS)
  }

  /** Adds an update. The displayed positions do not jump, even if times are adjusted. */
  #see(things: Update<T>['things'], stampMs: number | undefined): void {
    const cameMs = this.#clock.monotonic()
    const updates = this.#updates
    const last = updates.at(-1)!
    if (last.things === things) return
    const { from, to, part } = this.#between(this.#index())
    const begun = this.#shownMs >= updates[0]!.atMs
    const waiting = from === last
    const atMs = stampMs === undefined ? cameMs : this.#placeOf(stampMs, cameMs)
    if (atMs - last.atMs > PAUSE * this.#intervalMs)
      updates.push({
        atMs: atMs - this.#intervalMs,
        cameMs: last.cameMs,
        stampMs: undefined,
        things: last.things,
      })
    const stood = updates.at(-1)!
    updates.push({ atMs: Math.max(atMs, stood.atMs), cameMs, stampMs, things })
    if (stampMs === undefined) this.#followRhythm()
    if (waiting) this.#shownMs = Math.min(this.#shownMs, stood.atMs)
    else if (begun) this.#shownMs = from.atMs + part * (to.atMs - from.atMs)
    this.#updates = updates.slice(-KEPT)
  }

  /**
   * The room makes one update per interval. If updates arrive closer together, all but the last were late, and their times are moved back.
   */
  #followRhythm(): void {
    const updates = this.#updates
    for (let i = updates.length - 2; i >= 0; i--) {
      const [update, next] = [updates[i]!, updates[i + 1]!]
      const latestMs = next.atMs - (update.things === next.things ? 0 : this.#intervalMs)
      if (update.atMs <= latestMs) break
      update.atMs = latestMs
    }
  }

  /** Converts a stamp to local time. The fastest of the kept updates counts as undelayed. */
  #placeOf(stampMs: number, cameMs: number): number {
    const ways = this.#updates.map((update) => update.cameMs - (update.stampMs ?? Number.NEGATIVE_INFINITY))
    const offsetMs = Math.min(cameMs - stampMs, ...ways)
    for (const update of this.#updates) update.atMs += offsetMs - this.#offsetMs
    this.#offsetMs = offsetMs
    return stampMs + offsetMs
  }

  /** Index of the last update before the displayed time, or 0. */
  #index(): number {
    return Math.max(
      0,
      this.#updates.findLastIndex(({ atMs }) => atMs <= this.#shownMs),
    )
  }

  /** Returns the update at `index`, the next one, and the fraction of the interval that the displayed time has passed. */
  #between(index: number): { from: Update<T>; to: Update<T>; part: number } {
    const from = this.#updates[index]!
    const to = this.#updates[index + 1] ?? from
    const span = to.atMs - from.atMs
    return { from, to, part: span > 0 ? Math.max(0, (this.#shownMs - from.atMs) / span) : 0 }
  }

  #mix(from: T, to: T, part: number): T {
    const { fields, snap = Number.POSITIVE_INFINITY } = this.#options
    if (from === to || part === 0) return from
    const ways = differences(to, from, fields)
    if (Math.hypot(...ways) > snap) return from
    const mixed = { ...from }
    fields.forEach((key, i) => {
      Reflect.set(mixed, key, coordinate(from, key) + (ways[i] ?? 0) * part)
    })
    return mixed
  }
}

const coordinate = (thing: object, key: string): number => Reflect.get(thing, key)

/** Difference of `one` and `other` in each coordinate. */
const differences = (one: object, other: object, keys: readonly string[]): number[] =>
  keys.map((key) => coordinate(one, key) - coordinate(other, key))
