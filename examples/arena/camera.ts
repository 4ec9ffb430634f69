import type { Point } from './move.ts'

const SIDE = 1000
/** Width of the border around the floor that the camera may show, in CSS pixels. With the border, the names of players at a wall are visible. */
const BORDER = 60

/** The part of the floor that the field of the page shows. The floor fills the longer side of the field. Along the other side, the camera follows the player. */
export class Camera {
  #centre: Point = { x: SIDE / 2, y: SIDE / 2 }
  #width = 1
  #height = 1
  /** CSS pixels per unit of the floor. */
  scale = 1

  /** The size of the field in CSS pixels. */
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

  /** Converts a point of the floor to CSS pixels of the field. */
  toScreen(point: Point): Point {
    return {
      x: (point.x - this.#centre.x) * this.scale + this.#width / 2,
      y: (point.y - this.#centre.y) * this.scale + this.#height / 2,
    }
  }

  /** Converts CSS pixels of the field to a point of the floor. */
  toFloor(point: Point): Point {
    return {
      x: (point.x - this.#width / 2) / this.scale + this.#centre.x,
      y: (point.y - this.#height / 2) / this.scale + this.#centre.y,
    }
  }

  /** Returns the centre of the view for a player at `point`. The view shows at most the border around the floor. */
  #goal({ x, y }: Point): Point {
    return {
      x: this.#within(x, this.#width),
      y: this.#within(y, this.#height),
    }
  }

  #within(value: number, pixels: number): number {
    const least = (pixels / 2 - BORDER) / this.scale
    const most = SIDE - least
    return least >= most ? SIDE / 2 : Math.min(most, Math.max(least, value))
  }
}
