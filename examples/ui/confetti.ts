import { create, prefersCalm } from './dom.ts'

const COLOURS = ['#ffd166', '#ff7b6b', '#3ddc97', '#8d7dff', '#57b8ff']
const GRAVITY = 1500
const DRAG = 1.6
const LIFE_S = 2.6

interface Piece {
  x: number
  y: number
  vx: number
  vy: number
  angle: number
  spin: number
  size: number
  colour: string
  ageS: number
}

/** Confetti over the whole window. Does nothing if the user prefers reduced motion. */
export class Confetti {
  readonly #canvas = create('canvas', { class: 'confetti', 'aria-hidden': 'true' })
  #pieces: Piece[] = []
  #lastMs = 0
  #running = false

  constructor(parent: HTMLElement) {
    parent.append(this.#canvas)
  }

  /** Throws `count` pieces from a point of the window, in CSS pixels. */
  burst(x: number, y: number, count = 120): void {
    if (prefersCalm()) return
    for (let index = 0; index < count; index++) {
      const direction = -Math.PI / 2 + (Math.random() - 0.5) * 2.6
      const speed = 350 + Math.random() * 900
      this.#pieces.push({
        x,
        y,
        vx: Math.cos(direction) * speed,
        vy: Math.sin(direction) * speed,
        angle: Math.random() * Math.PI,
        spin: (Math.random() - 0.5) * 16,
        size: 6 + Math.random() * 7,
        colour: COLOURS[index % COLOURS.length] ?? '#fff',
        ageS: 0,
      })
    }
    if (this.#running) return
    this.#running = true
    this.#lastMs = performance.now()
    requestAnimationFrame((now) => this.#frame(now))
  }

  #frame(now: number): void {
    const seconds = Math.min(0.05, Math.max(0, (now - this.#lastMs) / 1000))
    this.#lastMs = now
    const ratio = Math.min(2, devicePixelRatio)
    this.#canvas.width = innerWidth * ratio
    this.#canvas.height = innerHeight * ratio
    const paper = this.#canvas.getContext('2d')
    if (!paper) return

    for (const piece of this.#pieces) {
      piece.ageS += seconds
      piece.vx *= 1 - DRAG * seconds
      piece.vy = piece.vy * (1 - DRAG * seconds) + GRAVITY * seconds
      piece.x += piece.vx * seconds
      piece.y += piece.vy * seconds
      piece.angle += piece.spin * seconds
      paper.setTransform(ratio, 0, 0, ratio, piece.x * ratio, piece.y * ratio)
      paper.rotate(piece.angle)
      // Scales the width, so that a piece seems to turn.
      paper.scale(1, Math.cos(piece.ageS * piece.spin))
      paper.globalAlpha = Math.min(1, (LIFE_S - piece.ageS) * 2)
      paper.fillStyle = piece.colour
      paper.fillRect(-piece.size / 2, -piece.size / 3, piece.size, piece.size * 0.66)
    }
    this.#pieces = this.#pieces.filter((piece) => piece.ageS < LIFE_S && piece.y < innerHeight + 40)
    this.#running = this.#pieces.length > 0
    if (this.#running) requestAnimationFrame((next) => this.#frame(next))
    else this.#canvas.width = 0
  }
}
