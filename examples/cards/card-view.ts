import { create } from '../ui/dom.ts'
import { type Card, rankOf, type Suit, suitOf } from './rules.ts'

/** The names of suits, for those who hear the page. */
export const SUIT_NAMES: Readonly<Record<Suit, string>> = {
  '♠': 'spades',
  '♥': 'hearts',
  '♦': 'diamonds',
  '♣': 'clubs',
}
const RANK_NAMES: Readonly<Record<string, string>> = { A: 'ace', J: 'jack', Q: 'queen', K: 'king' }

export const isRed = (suit: Suit): boolean => suit === '♥' || suit === '♦'

/** A suit in its colour; the last character asks for text, where a font would rather draw a picture. */
export const suitMark = (suit: Suit, className = 'suit'): HTMLSpanElement =>
  create('span', { class: `${className}${isRed(suit) ? ' red' : ''}`, text: `${suit}\uFE0E` })

export const nameOfCard = (card: Card): string =>
  `${RANK_NAMES[rankOf(card)] ?? rankOf(card)} of ${SUIT_NAMES[suitOf(card)]}`

/** Puts the face of a card on an element. */
export function showFace(element: HTMLElement, card: Card): void {
  element.className = `playing-card${isRed(suitOf(card)) ? ' red' : ''}`
  element.setAttribute('aria-label', nameOfCard(card))
  const corner = create(
    'span',
    { class: 'corner' },
    create('b', { text: rankOf(card) }),
    suitMark(suitOf(card)),
  )
  element.replaceChildren(corner, suitMark(suitOf(card), 'middle'))
}

const ARROWS: Readonly<Record<string, number>> = { ArrowLeft: -1, ArrowRight: 1 }
/** More cards than this are held in two rows, so that a thumb finds each on a narrow screen. */
const ROW = 8

/** How far its cards lie over each other depends on how many they are. */
function rowOf(buttons: readonly HTMLButtonElement[]): HTMLDivElement {
  const row = create('div', { class: 'row' }, ...buttons)
  row.style.setProperty('--gaps', String(Math.max(1, buttons.length - 1)))
  return row
}

/** The player's own cards: buttons in one or two rows, which the arrow keys walk. */
export class HandView {
  readonly #place: HTMLElement
  readonly #chosen: (card: Card) => void
  readonly #buttons = new Map<Card, HTMLButtonElement>()
  #shown = ''

  /** `chosen` is called with any card of the hand: what is legal is for the room to say. */
  constructor(place: HTMLElement, chosen: (card: Card) => void) {
    this.#place = place
    this.#chosen = chosen
    place.addEventListener('keydown', (event) => this.#walk(event))
  }

  /** `playable`: those that stand out. */
  show(hand: readonly Card[], playable: (card: Card) => boolean): void {
    this.#lay(hand)
    for (const card of hand) this.#buttons.get(card)?.classList.toggle('playable', playable(card))
  }

  /** Shakes a card that was chosen in vain. */
  refuse(card: Card): void {
    const button = this.#buttons.get(card)
    button?.classList.add('refused')
    button?.addEventListener('animationend', () => button.classList.remove('refused'), { once: true })
  }

  #lay(hand: readonly Card[]): void {
    if (this.#shown === hand.join()) return
    this.#shown = hand.join()
    const before = [...this.#buttons.keys()]
    const focused = before.findIndex((card) => this.#buttons.get(card) === document.activeElement)
    for (const card of before) if (!hand.includes(card)) this.#buttons.delete(card)
    const ordered = hand.map((card) => [card, this.#buttons.get(card) ?? this.#button(card)] as const)
    this.#buttons.clear()
    for (const [card, button] of ordered) this.#buttons.set(card, button)
    const buttons = [...this.#buttons.values()]
    const perRow = buttons.length > ROW ? Math.ceil(buttons.length / 2) : ROW
    const rows = [buttons.slice(0, perRow), buttons.slice(perRow)].filter(({ length }) => length > 0)
    this.#place.replaceChildren(...rows.map((row) => rowOf(row)))
    if (focused >= 0) buttons[Math.min(focused, buttons.length - 1)]?.focus()
  }

  #button(card: Card): HTMLButtonElement {
    const button = create('button', { type: 'button', 'data-card': card })
    showFace(button, card)
    button.addEventListener('click', () => this.#chosen(card))
    return button
  }

  #walk(event: KeyboardEvent): void {
    const step = ARROWS[event.key]
    if (step === undefined) return
    event.preventDefault()
    const buttons = [...this.#buttons.values()]
    const at = buttons.findIndex((button) => button.matches(':focus'))
    buttons[(at + step + buttons.length) % buttons.length]?.focus()
  }
}
