import type { Point } from './move.ts'

const KEYS: Readonly<Record<string, Point>> = {
  KeyW: { x: 0, y: -1 },
  ArrowUp: { x: 0, y: -1 },
  KeyS: { x: 0, y: 1 },
  ArrowDown: { x: 0, y: 1 },
  KeyA: { x: -1, y: 0 },
  ArrowLeft: { x: -1, y: 0 },
  KeyD: { x: 1, y: 0 },
  ArrowRight: { x: 1, y: 0 },
}

/** Inputs of a person, from any device. */
interface Wishes {
  /** Called for a click or touch, with its position in CSS pixels of the canvas. `dragging`: the pointer moves while it is down. */
  point(at: Point, dragging: boolean): void
  /** Called for the space key, and for the hit button of touch screens. */
  hit(): void
}

/** Keyboard, mouse and touch on the arena. */
export class Controls {
  readonly #held = new Set<string>()

  constructor(canvas: HTMLCanvasElement, hitButton: HTMLElement, wishes: Wishes) {
    addEventListener('keydown', (event) => {
      // If a button has the focus, Space presses the button. Shortcuts belong to the browser.
      const elsewhere = event.target instanceof Element && event.target.closest('a, button, input, summary')
      if (event.ctrlKey || event.metaKey || event.altKey) return
      if (event.code in KEYS) {
        this.#held.add(event.code)
        event.preventDefault()
      } else if (event.code === 'Space' && !elsewhere) {
        event.preventDefault()
        if (!event.repeat) wishes.hit()
      }
    })
    addEventListener('keyup', (event) => this.#held.delete(event.code))
    addEventListener('blur', () => this.#held.clear())

    const at = (event: PointerEvent): Point => ({ x: event.offsetX, y: event.offsetY })
    canvas.addEventListener('pointerdown', (event) => {
      if (event.button !== 0) return
      canvas.setPointerCapture(event.pointerId)
      wishes.point(at(event), false)
    })
    canvas.addEventListener('pointermove', (event) => {
      if (canvas.hasPointerCapture(event.pointerId)) wishes.point(at(event), true)
    })
    hitButton.addEventListener('click', () => wishes.hit())
  }

  /** The direction of the keys held down, each axis −1 to 1. */
  direction(): Point {
    const sum = { x: 0, y: 0 }
    for (const code of this.#held) {
      sum.x += KEYS[code]?.x ?? 0
      sum.y += KEYS[code]?.y ?? 0
    }
    return { x: Math.sign(sum.x), y: Math.sign(sum.y) }
  }
}
