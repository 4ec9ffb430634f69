import type { Point } from './motion.ts'

const SIDE = 1000
/** Units a second. */
const SPEED = 330
const ARRIVED = 4
/** Standing this long, the walker believes the server about where it is. */
const SETTLED_MS = 600
const REPORT_MS = 50

const clamp = (value: number): number => Math.min(SIDE, Math.max(0, value))

/**
 * The player of this page, who walks at once instead of waiting for the server to agree. It reports where it is 20 times a
 * second, and comes back to what the server says when it stands.
 */
export class Walker {
  #place: Point
  #goal: Point | undefined
  #movedMs = 0
  #reportedMs = 0
  #reported: Point
  /** The direction last walked in, in radians. */
  facing = 0

  constructor(place: Point) {
    this.#place = { ...place }
    this.#reported = { ...place }
  }

  get place(): Readonly<Point> {
    return this.#place
  }

  /** Where the walker is on its way to, while it is. */
  get goal(): Readonly<Point> | undefined {
    return this.#goal
  }

  /** Whether it has moved just now. */
  isWalking(nowMs: number): boolean {
    return nowMs - this.#movedMs < 80
  }

  /** Sends the walker to a point of the floor. */
  walkTo(point: Point): void {
    this.#goal = { x: clamp(point.x), y: clamp(point.y) }
  }

  /** Puts the walker somewhere else at once, as a respawn does. */
  putAt(place: Point): void {
    this.#place = { ...place }
    this.#reported = { ...place }
    this.#goal = undefined
  }

  /** One step: in `direction` (each axis −1 to 1; it overrides the goal), or towards the goal. */
  step(direction: Point, seconds: number, nowMs: number): void {
    const length = Math.hypot(direction.x, direction.y)
    if (length > 0) {
      this.#goal = undefined
      this.#walk(direction.x / length, direction.y / length, SPEED * seconds, nowMs)
      return
    }
    if (!this.#goal) return
    const x = this.#goal.x - this.#place.x
    const y = this.#goal.y - this.#place.y
    const left = Math.hypot(x, y)
    if (left > 0) this.#walk(x / left, y / left, Math.min(left, SPEED * seconds), nowMs)
    if (left < ARRIVED) this.#goal = undefined
  }

  /** Compares with the server's word; a walker that stands drifts there. */
  believe(truth: Point, seconds: number, nowMs: number): void {
    if (nowMs - this.#movedMs < SETTLED_MS) return
    const part = Math.min(1, seconds * 8)
    this.#place = {
      x: this.#place.x + (truth.x - this.#place.x) * part,
      y: this.#place.y + (truth.y - this.#place.y) * part,
    }
    this.#reported = { ...truth }
  }

  /** The position to send now, or undefined when there is nothing new to tell yet. */
  report(nowMs: number): Point | undefined {
    if (nowMs - this.#reportedMs < REPORT_MS) return undefined
    const x = Math.round(this.#place.x * 10) / 10
    const y = Math.round(this.#place.y * 10) / 10
    if (Math.hypot(x - this.#reported.x, y - this.#reported.y) < 0.2) return undefined
    this.#reportedMs = nowMs
    this.#reported = { x, y }
    return this.#reported
  }

  #walk(dx: number, dy: number, units: number, nowMs: number): void {
    this.#place = { x: clamp(this.#place.x + dx * units), y: clamp(this.#place.y + dy * units) }
    this.facing = Math.atan2(dy, dx)
    this.#movedMs = nowMs
  }
}
