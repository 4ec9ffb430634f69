import { create } from '../ui/dom.ts'
import type { Mark } from './board.ts'

const SVG = 'http://www.w3.org/2000/svg'
const ROWS = ['top', 'middle', 'bottom'] as const
const COLUMNS = ['left', 'centre', 'right'] as const

const ARROWS: Readonly<Record<string, number>> = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -3, ArrowDown: 3 }

function svg(
  viewBox: string,
  ...shapes: [name: string, attributes: Record<string, string>][]
): SVGSVGElement {
  const picture = document.createElementNS(SVG, 'svg')
  picture.setAttribute('viewBox', viewBox)
  picture.setAttribute('aria-hidden', 'true')
  for (const [name, attributes] of shapes) {
    const shape = document.createElementNS(SVG, name)
    for (const [key, value] of Object.entries({ ...attributes, pathLength: '1' }))
      shape.setAttribute(key, value)
    picture.append(shape)
  }
  return picture
}

const picture = (mark: Mark): SVGSVGElement =>
  mark === 'X'
    ? svg('0 0 100 100', ['path', { d: 'M28 28l44 44' }], ['path', { d: 'M72 28l-44 44' }])
    : svg('0 0 100 100', ['circle', { cx: '50', cy: '50', r: '24', transform: 'rotate(-90 50 50)' }])

/** The viewer of the board: `mark` if the viewer plays; `turn` if it is the viewer's turn. */
interface Beholder {
  mark: Mark | undefined
  turn: boolean
}

/** Nine buttons, and the winning line after the game. */
export class BoardView {
  readonly #board: HTMLElement
  readonly #cells: HTMLButtonElement[]
  #line: SVGSVGElement | undefined
  /** The cells of `#line`. */
  #won = ''

  /** Calls `chosen` with a cell 0–8. Every cell can be chosen: the room decides whether the move is legal. */
  constructor(board: HTMLElement, chosen: (cell: number) => void) {
    this.#board = board
    this.#cells = Array.from({ length: 9 }, (_, cell) => {
      const button = create('button', { class: 'cell free', type: 'button' })
      button.addEventListener('click', () => chosen(cell))
      button.addEventListener('keydown', (event) => this.#walk(event, cell))
      return button
    })
    board.replaceChildren(...this.#cells)
  }

  show(
    board: readonly (Mark | null)[],
    line: readonly number[] | undefined,
    over: boolean,
    { mark, turn }: Beholder,
  ): void {
    this.#board.className = `board${over ? ' over' : ''}${turn ? ' mine' : ''}${mark ? ` as-${mark.toLowerCase()}` : ''}`
    for (const [cell, button] of this.#cells.entries())
      this.#showCell(button, cell, board[cell] ?? null, line)
    const won = String(line ?? '')
    // A new element would be drawn again.
    if (won === this.#won) return
    this.#won = won
    this.#line?.remove()
    this.#line = line && this.#winningLine(line)
    if (this.#line) this.#board.append(this.#line)
  }

  /** Shakes a cell whose move was refused. */
  refuse(cell: number): void {
    const button = this.#cells[cell]
    button?.classList.add('refused')
    button?.addEventListener('animationend', () => button.classList.remove('refused'), { once: true })
  }

  #showCell(
    button: HTMLButtonElement,
    cell: number,
    mark: Mark | null,
    line: readonly number[] | undefined,
  ): void {
    const place = `${ROWS[Math.floor(cell / 3)]} ${COLUMNS[cell % 3]}`
    button.setAttribute('aria-label', `${place}: ${mark ?? 'empty'}`)
    button.classList.toggle('won', line?.includes(cell) ?? false)
    if ((button.dataset.mark ?? '') === (mark ?? '')) return
    button.dataset.mark = mark ?? ''
    button.classList.toggle('free', mark === null)
    button.classList.toggle('x', mark === 'X')
    button.classList.toggle('o', mark === 'O')
    button.replaceChildren(...(mark ? [picture(mark)] : []))
  }

  #winningLine(line: readonly number[]): SVGSVGElement {
    const middle = (cell: number) => ({
      x: 50 / 3 + ((cell % 3) * 100) / 3,
      y: 50 / 3 + (Math.floor(cell / 3) * 100) / 3,
    })
    const [from, to] = [middle(line[0] ?? 0), middle(line[2] ?? 0)]
    // Extends the line beyond the centres of the outer cells.
    const over = { x: (to.x - from.x) * 0.16, y: (to.y - from.y) * 0.16 }
    const d = `M${from.x - over.x} ${from.y - over.y}L${to.x + over.x} ${to.y + over.y}`
    const drawn = svg('0 0 100 100', ['path', { d }])
    drawn.setAttribute('class', 'line')
    return drawn
  }

  #walk(event: KeyboardEvent, cell: number): void {
    const step = ARROWS[event.key]
    if (step === undefined) return
    event.preventDefault()
    this.#cells[(cell + step + 9) % 9]?.focus()
  }
}
