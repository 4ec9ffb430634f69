import { create } from './dom.ts'

const SHOWN_MS = 3200

/** Short messages at the foot of the page, read out by screen readers. */
export class Toasts {
  readonly #list = create('div', { class: 'toasts', role: 'status', 'aria-live': 'polite' })

  constructor(parent: HTMLElement) {
    parent.append(this.#list)
  }

  /** Shows a note for a moment. */
  show(text: string): void {
    this.#add(text, 'note')
  }

  /** Says why something was refused, in the words of the error. */
  refuse(error: unknown): void {
    this.#add(error instanceof Error ? error.message : String(error), 'wrong')
  }

  /** The same text is never shown twice at once. */
  #add(text: string, kind: 'note' | 'wrong'): void {
    for (const shown of [...this.#list.children]) if (shown.textContent === text) shown.remove()
    const toast = create('div', { class: `toast ${kind}`, text })
    this.#list.append(toast)
    while (this.#list.children.length > 3) this.#list.firstChild?.remove()
    setTimeout(() => toast.remove(), SHOWN_MS)
  }
}
