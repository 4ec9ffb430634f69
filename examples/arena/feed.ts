import { create } from '../ui/dom.ts'

const SHOWN_MS = 4500
const FADE_MS = 700
const MOST = 4

/** List of the latest knockouts, also for screen readers. */
export class Feed {
  readonly #list: HTMLElement

  constructor(list: HTMLElement) {
    this.#list = list
  }

  add(text: string): void {
    const line = create('li', { text })
    this.#list.append(line)
    while (this.#list.children.length > MOST) this.#list.firstChild?.remove()
    setTimeout(() => line.classList.add('gone'), SHOWN_MS)
    setTimeout(() => line.remove(), SHOWN_MS + FADE_MS)
  }
}
