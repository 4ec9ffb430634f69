/**
 * Movement that is smooth in spite of the network: `roomful/client/motion`.
 *
 *     const me = predict(room, { own: (state, id) => state.players[id], apply: { move }, smooth: ['x', 'y'], snap: 200 })
 *     const others = interpolate(room, { select: (state) => state.players, fields: ['x', 'y'], snap: 200 })
 *
 *     me.send('move', { dx: 5, dy: 0 }) // Applied at once.
 *     draw(me.at(), others.at()) // Once in each frame.
 * @module roomful/client/motion
 */
import type { Clock } from '../shared/clock.ts'
import type { Immutable, RoomMessages, RoomState, TypedRoom } from '../shared/room-types.ts'
import type { Unsubscribe } from './listeners.ts'
import type { RequestArguments, Room, SendArguments } from './room.ts'

/** Tells the time as `performance.now()` does; default: that. */
export type MotionClock = Pick<Clock, 'monotonic'>

/** `T` as room code has it: with everything in it writable, all the way down. */
export type Mutable<T> = T extends object ? { -readonly [K in keyof T]: Mutable<T[K]> } : T

/** The keys of `T` whose values are numbers. */
export type NumericKey<T> = { [K in keyof T]: T[K] extends number ? K : never }[keyof T] & string

/** How one's own part of a state is predicted. */
export interface PredictOptions<R extends TypedRoom, Own> {
  /** One's own part of the state; undefined: there is none now. */
  readonly own: (state: Immutable<RoomState<R>>, memberId: string) => Own | undefined
  /** What a message changes in it, by message type: the same functions that the room's handlers call. Messages of other types are only sent. */
  readonly apply: {
    readonly [K in keyof RoomMessages<R> & string]?: (
      own: Mutable<NoInfer<Own>>,
      data: RoomMessages<R>[K],
    ) => void
  }
  /** The coordinates, where a correction by the server is not a jump. */
  readonly smooth: readonly NumericKey<NoInfer<Own>>[]
  /** A correction over a longer distance than this is a jump all the same, as a respawn should be; default: none is. */
  readonly snap?: number
  /** A correction has 37 % of its distance left after this; default 100 ms. */
  readonly smoothMs?: number
  /** What `at` and corrections go by. */
  readonly clock?: MotionClock
}

/** How others' part of a state is interpolated. */
export interface InterpolateOptions<R extends TypedRoom, T> {
  /** What moves, by id. */
  readonly select: (state: Immutable<RoomState<R>>) => { readonly [id: string]: T }
  /** The coordinates. What else there is changes when the shown time has come to its update. */
  readonly fields: readonly NumericKey<NoInfer<T>>[]
  /** A longer distance than this in one update is a jump; default: none is. */
  readonly snap?: number
  /** The `sync.rate` of the room; default 20. */
  readonly rate?: number
  /**
   * The server's time of a state, in milliseconds, where the room keeps it, such as a `now` that each tick sets to `ctx.now`: things are
   * then where they were by the server's clock, however irregular updates are. Default: by the rhythm in which they come.
   */
  readonly time?: (state: Immutable<RoomState<R>>) => number
  /** How far in the past things are shown at least; default: two updates. Grows to what the network needs. */
  readonly delayMs?: number
  /** And at most; default 500 ms. */
  readonly maxDelayMs?: number
  /** What `at` and arrivals go by. */
  readonly clock?: MotionClock
}

/**
 * Shows one's own inputs at once. What the server says is the basis; the inputs that it has not answered yet are applied on top of it
 * again, in their order. An input is answered by the ack of its message, which comes behind the patch with its effect, so nothing else is
 * on the wire for it. Client-side prediction and server reconciliation after G. Gambetta, "Fast-Paced Multiplayer", part II
 * (https://www.gabrielgambetta.com), with Valve's smoothing of prediction errors ("Source Multiplayer Networking", Valve Developer
 * Community).
 */
export const predict = <R extends TypedRoom, Own extends object>(
  room: Room<R>,
  options: PredictOptions<R, Own>,
): Prediction<R, Own> => new Prediction(room, options)

/**
 * Shows others as they were a moment ago, between two updates that are here. Entity interpolation after G. Gambetta, "Fast-Paced
 * Multiplayer", part III (https://www.gabrielgambetta.com), and Valve, "Source Multiplayer Networking"; the delay follows the network as
 * in an adaptive playout buffer (R. Ramjee et al., INFOCOM 1994). Nothing is shown beyond what was seen: where no update comes, things
 * stand.
 */
export const interpolate = <R extends TypedRoom, T extends object>(
  room: Room<R>,
  options: InterpolateOptions<R, T>,
): Interpolation<R, T> => new Interpolation(room, options)

const machineClock: MotionClock = { monotonic: () => performance.now() }

interface Input<Own> {
  readonly apply: (own: Mutable<Own>) => void
  /** Acked, which comes behind the state that has its effect; or refused. */
  answered: boolean
}

/** One's own part of a state, ahead of the server. Made by `predict`. */
export class Prediction<R extends TypedRoom, Own extends object> {
  readonly #room: Room<R>
  readonly #options: PredictOptions<R, Own>
  readonly #clock: MotionClock
  readonly #smoothMs: number
  #memberId = ''
  #basis: Own | undefined
  /** As many as wait for their ack, which the client bounds (`maxUnacked`). */
  #inputs: Input<Own>[] = []
  #preview: Input<Own> | undefined
  #value: Own | undefined
  /** What was shown less what should have been, in each coordinate, when that was last compared. */
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

  /** Sends a reliable message and applies it at once. Resolves and rejects as `room.send` does; a message that was refused is undone. */
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
   * Shows what a message would do, without sending it, until the next `preview` or `send`: for movement between messages, of which fewer go out than
   * there are frames.
   */
  preview<K extends keyof RoomMessages<R> & string>(
    type: K,
    ...[data]: RequestArguments<RoomMessages<R>[K]>
  ): void {
    this.#preview = this.#input(type, data)
    this.#replay()
  }

  /** What will be when the server has applied all inputs, as far as is known, and without smoothing: what the next input goes on from. */
  get value(): Own | undefined {
    this.#reconcile(this.#clock.monotonic())
    return this.#value
  }

  /** What to draw at `nowMs` of the clock, default now; undefined: there is nothing of one's own. Never changed in place. */
  at(nowMs = this.#clock.monotonic()): Own | undefined {
    this.#reconcile(nowMs)
    return this.#shown(nowMs)
  }

  /** Takes what the server has said since it was last asked. */
  #reconcile(nowMs: number): void {
    const { memberId, state, resyncing } = this.#room
    // While a resync is awaited the state lacks what acks speak of: what was known before goes on, with all inputs since.
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

/** An update, where it is in time. */
interface Update<T> {
  /** When it would have come without what delayed it. */
  atMs: number
  readonly cameMs: number
  /** By the server's clock, where that is known. */
  readonly stampMs: number | undefined
  readonly things: { readonly [id: string]: T }
}

/** How many updates are kept: those that are still to be shown, and as many of the past as the delay goes by. */
const KEPT = 64
/** After a pause of more updates than this, what moves has stood until one update ago. */
const PAUSE = 3.5
/** The shown time runs at most this much faster or slower than time. */
const SLEW = 0.15
/** What it is behind by, it makes up for with this time constant: slowly, since a network that was late will soon be so again. */
const CATCH_UP_MS = 5000
/** More than this behind, it leaps: the page was hidden, or the connection lost. */
const LEAP_MS = 1000

/** What moves, smoothly and a little in the past. Made by `interpolate`. */
export class Interpolation<R extends TypedRoom, T extends object> {
  /** Takes no more updates. */
  readonly stop: Unsubscribe
  readonly #options: InterpolateOptions<R, T>
  readonly #clock: MotionClock
  readonly #intervalMs: number
  /** Oldest first; never empty. */
  #updates: Update<T>[]
  /** The time that is shown. */
  #shownMs: number
  #askedMs: number
  /** How far the page's clock is ahead of the stamps, with the smallest delay of the way. */
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

  /** How far in the past things are shown at present: so that the latest of the last updates would have come in time. */
  get delayMs(): number {
    const { delayMs = 2 * this.#intervalMs, maxDelayMs = 500 } = this.#options
    const late = Math.max(...this.#updates.map(({ atMs, cameMs }) => cameMs - atMs))
    return Math.min(maxDelayMs, Math.max(delayMs, late + this.#intervalMs))
  }

  /** What to draw at `nowMs` of the clock, default now, by id: who has come, and is not gone, at the time that is shown. */
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

  /** Lets the shown time pass, towards what the delay says. */
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

  /** Takes an update. What is being shown stays what it is, whatever becomes of its time. */
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
   * The room makes an update in each interval: where they come closer together, all but the last of them were late, and their places in
   * time move back.
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

  /** Where a stamp is in time: the update of those that are kept which was the quickest was not delayed. */
  #placeOf(stampMs: number, cameMs: number): number {
    const ways = this.#updates.map((update) => update.cameMs - (update.stampMs ?? Number.NEGATIVE_INFINITY))
    const offsetMs = Math.min(cameMs - stampMs, ...ways)
    for (const update of this.#updates) update.atMs += offsetMs - this.#offsetMs
    this.#offsetMs = offsetMs
    return stampMs + offsetMs
  }

  /** The last update that the shown time has come to; before all of them, the first. */
  #index(): number {
    return Math.max(
      0,
      this.#updates.findLastIndex(({ atMs }) => atMs <= this.#shownMs),
    )
  }

  /** The update at `index`, the one behind it, and how much of the way between them is behind the shown time. */
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

/** How far `one` is from `other`, in each coordinate. */
const differences = (one: object, other: object, keys: readonly string[]): number[] =>
  keys.map((key) => coordinate(one, key) - coordinate(other, key))
