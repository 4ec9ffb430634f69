/**
 * `roomful/client/motion`: smooth movement. `predict` shows the inputs of this page's player before the server has answered. `interpolate`
 * draws the other objects smoothly between two updates.
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

/** Clock in milliseconds. Default: `performance.now()`. */
export type MotionClock = Pick<Clock, 'monotonic'>

/** `T` with all properties writable, at every depth. */
export type Mutable<T> = T extends object ? { -readonly [K in keyof T]: Mutable<T[K]> } : T

/** Keys of `T` whose values are numbers. */
export type NumericKey<T> = { [K in keyof T]: T[K] extends number ? K : never }[keyof T] & string

/** Options of `predict`. */
export interface PredictOptions<R extends TypedRoom, Own> {
  /** Returns the part of the state that belongs to this player, or undefined if there is none. */
  readonly own: (state: VisibleState<R>, memberId: string) => Own | undefined
  /**
   * Functions that apply a message to this part, by message type. Use the same functions in the room. Messages of other types are not
   * predicted.
   */
  readonly apply: {
    readonly [K in keyof RoomMessages<R> & string]?: (
      own: Mutable<NoInfer<Own>>,
      data: RoomMessages<R>[K],
    ) => void
  }
  /** Names of the coordinates that `at` moves smoothly when the server corrects them. */
  readonly smooth: readonly NumericKey<NoInfer<Own>>[]
  /**
   * If a correction is larger than this distance, `at` jumps to the correct position, for example after a respawn. Default: `at` never
   * jumps.
   */
  readonly snap?: number
  /** Time constant of corrections in milliseconds. After this time, 37 % of a difference is left, and after three times as long 5 %. Default 100. */
  readonly smoothMs?: number
  /** Clock for `at` and for corrections. */
  readonly clock?: MotionClock
}

/** Options of `interpolate`. */
export interface InterpolateOptions<R extends TypedRoom, T> {
  /** Returns the moving objects of a state, by id. */
  readonly select: (state: VisibleState<R>) => { readonly [id: string]: T }
  /** Names of the coordinates to interpolate. All other fields have the value of the last update before the displayed time. */
  readonly fields: readonly NumericKey<NoInfer<T>>[]
  /** If an object moves farther than this distance between two updates, `at` jumps. Default: `at` never jumps. */
  readonly snap?: number
  /**
   * Updates that the room sends per second: its `sync.rate`. Default 20. A room with `sync.rate` 0 sends each change immediately: pass its usual
   * number of changes per second, such as `tick.rate`, and pass `time`. `interpolate` throws a RangeError if `rate` is not above 0.
   */
  readonly rate?: number
  /**
   * Returns the server's time of a state in milliseconds, for example from a field `now` that each tick sets to `ctx.now`. Pass it if
   * updates come at irregular intervals: objects then move at an even speed. Default: updates are assumed to come at equal intervals.
   */
  readonly time?: (state: VisibleState<R>) => number
  /** Minimum display delay in milliseconds. Default: twice the interval between two updates, 100 ms at 20 updates per second. The delay grows if updates arrive late. */
  readonly delayMs?: number
  /** Maximum display delay in milliseconds. Default 500. */
  readonly maxDelayMs?: number
  /** Clock for `at` and for the arrival times of updates. */
  readonly clock?: MotionClock
}

/**
 * Shows the inputs of this page's player immediately. `predict` takes the server's state and applies all inputs that the server has not
 * acknowledged. When the server acknowledges an input, the effect of this input is already in the state. The method is client-side
 * prediction with server reconciliation: G. Gambetta, "Fast-Paced Multiplayer", part II (https://www.gabrielgambetta.com). Corrections are
 * smoothed as in Valve, "Source Multiplayer Networking" (Valve Developer Community).
 */
export const predict = <R extends TypedRoom, Own extends object>(
  room: Room<R>,
  options: PredictOptions<R, Own>,
): Prediction<R, Own> => new Prediction(room, options)

/**
 * Shows moving objects slightly in the past, between two updates that have arrived. Without updates, objects stop. The method is entity
 * interpolation: G. Gambetta, "Fast-Paced Multiplayer", part III (https://www.gabrielgambetta.com), and Valve, "Source Multiplayer
 * Networking". The delay adapts to the network as in an adaptive playout buffer (R. Ramjee et al., INFOCOM 1994).
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

/** This player's part of the state with all inputs applied, created by `predict`. */
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

  /**
   * Sends a reliable message and applies it immediately. Resolves and rejects as `room.send` does. If the room refuses the message, its
   * effect is undone.
   */
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
   * Shows the effect of a message without sending it, until the next call of `preview` or `send`. Use it in the frames between two
   * messages.
   */
  preview<K extends keyof RoomMessages<R> & string>(
    type: K,
    ...[data]: RequestArguments<RoomMessages<R>[K]>
  ): void {
    this.#preview = this.#input(type, data)
    this.#replay()
  }

  /** Value after all inputs, without smoothing. Compute the next input from it. */
  get value(): Own | undefined {
    this.#reconcile(this.#clock.monotonic())
    return this.#value
  }

  /**
   * Returns the value to draw at the time `nowMs` of the clock (default: now). Returns undefined if `own` does. The value is never changed
   * in place.
   */
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

/** Moving objects, created by `interpolate`. */
export class Interpolation<R extends TypedRoom, T extends object> {
  /** Stops listening to the room. */
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
    const { rate = 20 } = options
    if (!(rate > 0)) throw new RangeError(`rate is ${rate}: pass the number of updates per second, above 0`)
    this.#intervalMs = 1000 / rate
    const nowMs = this.#clock.monotonic()
    const stampMs = options.time?.(room.state)
    if (stampMs !== undefined) this.#offsetMs = nowMs - stampMs
    this.#updates = [{ atMs: nowMs, cameMs: nowMs, stampMs, things: options.select(room.state) }]
    this.#askedMs = nowMs
    this.#shownMs = nowMs - this.delayMs
    this.stop = room.onStateChange((state) => this.#see(options.select(state), options.time?.(state)))
  }

  /** Current display delay in milliseconds. It is long enough for the most delayed of the latest 64 updates, but at most `maxDelayMs`. */
  get delayMs(): number {
    const { delayMs = 2 * this.#intervalMs, maxDelayMs = 500 } = this.#options
    const late = Math.max(...this.#updates.map(({ atMs, cameMs }) => cameMs - atMs))
    return Math.min(maxDelayMs, Math.max(delayMs, late + this.#intervalMs))
  }

  /**
   * Returns the objects to draw at the time `nowMs` of the clock (default: now), by id. They are the objects that exist at the displayed
   * time.
   */
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
