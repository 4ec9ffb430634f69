import type { Point } from './move.ts'

const SIDE = 1000
/** CSS pixels that the camera may show beyond the floor, so that no button covers the player. */
const BORDER = { side: 72, top: 150, bottom: 120 }

/** The part of the floor that the window shows. It fills the window's longer side and follows the player along the shorter one. */
export class Camera {
  #centre: Point = { x: SIDE / 2, y: SIDE / 2 }
  #width = 1
  #height = 1
  /** CSS pixels per unit of the floor. */
  scale = 1

  /** The size of the window in CSS pixels. */
  resize(width: number, height: number): void {
    this.#width = width
    this.#height = height
    this.scale = Math.max(Math.max(width, height) / (SIDE + 40), 0.55)
  }

  /** Keeps `point` in view; call once a frame. */
  follow(point: Point, seconds: number): void {
    const part = Math.min(1, seconds * 6)
    const goal = this.#goal(point)
    this.#centre.x += (goal.x - this.#centre.x) * part
    this.#centre.y += (goal.y - this.#centre.y) * part
  }

  /** Jumps to `point`. */
  jump(point: Point): void {
    this.#centre = this.#goal(point)
  }

  /** From the floor to CSS pixels of the window. */
  toScreen(point: Point): Point {
    return {
      x: (point.x - this.#centre.x) * this.scale + this.#width / 2,
      y: (point.y - this.#centre.y) * this.scale + this.#height / 2,
    }
  }

  /** From CSS pixels of the window to the floor. */
  toFloor(point: Point): Point {
    return {
      x: (point.x - this.#width / 2) / this.scale + this.#centre.x,
      y: (point.y - this.#height / 2) / this.scale + this.#centre.y,
    }
  }

  /** The centre that shows `point` and no more than the border beyond the floor. */
  #goal({ x, y }: Point): Point {
    return {
      x: this.#within(x, this.#width, BORDER.side, BORDER.side),
      y: this.#within(y, this.#height, BORDER.top, BORDER.bottom),
    }
  }

  #within(value: number, pixels: number, before: number, after: number): number {
    const least = (pixels / 2 - before) / this.scale
    const most = SIDE - (pixels / 2 - after) / this.scale
    return least >= most ? (least + most) / 2 : Math.min(most, Math.max(least, value))
  }
}
