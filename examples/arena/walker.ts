import type { Room } from 'roomful/client'
import { type Prediction, predict } from 'roomful/client/motion'
import { move, type Point } from './move.ts'
import type arena from './room.ts'
import type { Player } from './room.ts'

const SIDE = 1000
/** Units a second. */
const SPEED = 330
const ARRIVED = 4
const SEND_MS = 50
/** Maximum number of moves that the server has not acknowledged. During an outage, the page sends no more, because only the last position matters. */
const MOST_WAITING = 10

/** If the distance between two updates is longer, the player has jumped, for example after a knockout. */
export const LEAP = 220

const clamp = (value: number): number => Math.min(SIDE, Math.max(0, value))
const round = (value: number): number => Math.round(value * 10) / 10

/** Predicts the movement of this page's player before the server has answered. */
export const predictMe = (room: Room<typeof arena>): Prediction<typeof arena, Readonly<Player>> =>
  predict(room, {
    own: (state, memberId) => state.players[memberId],
    apply: { move },
    smooth: ['x', 'y'],
    snap: LEAP,
  })

/** Moves a player in a direction or to a goal. It makes one step per frame and sends 20 moves a second. */
export class Walker {
  readonly #me: Pick<ReturnType<typeof predictMe>, 'value' | 'send' | 'preview'>
  #goal: Point | undefined
  #movedMs = Number.NEGATIVE_INFINITY
  #sentMs = Number.NEGATIVE_INFINITY
  #waiting = 0
  #unsent: Point | undefined
  /** Direction of the last step, in radians. */
  facing = 0

  constructor(me: Pick<ReturnType<typeof predictMe>, 'value' | 'send' | 'preview'>) {
    this.#me = me
  }

  /** Current goal, if any. */
  get goal(): Readonly<Point> | undefined {
    return this.#goal
  }

  /** True if the last step moved the player. */
  isWalking(nowMs: number): boolean {
    return nowMs - this.#movedMs < 80
  }

  /** Sets a goal. */
  walkTo(point: Point): void {
    this.#goal = { x: clamp(point.x), y: clamp(point.y) }
  }

  /** Moves the player to a position without walking. */
  putAt({ x, y }: Point, nowMs: number): void {
    this.#goal = undefined
    this.#unsent = { x, y }
    this.#send(nowMs)
  }

  /** Makes one step in `direction` (each axis −1 to 1). If `direction` is zero, makes one step towards the goal. */
  step(direction: Point, seconds: number, nowMs: number): void {
    const place = this.#me.value
    if (!place) return
    const keys = direction.x !== 0 || direction.y !== 0
    if (keys) this.#goal = undefined
    const goal = this.#goal ?? place
    const way = keys ? direction : { x: goal.x - place.x, y: goal.y - place.y }
    const length = Math.hypot(way.x, way.y)
    const units = keys ? SPEED * seconds : Math.min(length, SPEED * seconds)
    if (length - units < ARRIVED) this.#goal = undefined
    if (length > 0 && units > 0) {
      const to = {
        x: clamp(place.x + (way.x / length) * units),
        y: clamp(place.y + (way.y / length) * units),
      }
      this.facing = Math.atan2(way.y, way.x)
      this.#movedMs = nowMs
      if (to.x !== place.x || to.y !== place.y) {
        this.#unsent = to
        this.#me.preview('move', to)
      }
    }
    if (nowMs - this.#sentMs >= SEND_MS && this.#waiting < MOST_WAITING) this.#send(nowMs)
  }

  #send(nowMs: number): void {
    if (!this.#unsent) return
    const answered = (): void => void this.#waiting--
    this.#me.send('move', { x: round(this.#unsent.x), y: round(this.#unsent.y) }).then(answered, answered)
    this.#waiting++
    this.#unsent = undefined
    this.#sentMs = nowMs
  }
}
