/** The element of the page with this id. Throws when the page has none of that kind: page and script belong together. */
export function byId<T extends Element>(id: string, kind: new () => T): T {
  const element = document.getElementById(id)
  if (!(element instanceof kind)) throw new Error(`the page has no ${kind.name} with the id ${id}`)
  return element
}

/** A new element with classes, text and attributes. */
export function create<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  { text, ...attributes }: { text?: string } & Record<string, string> = {},
  ...children: Node[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag)
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value)
  if (text !== undefined) element.textContent = text
  element.append(...children)
  return element
}

/** Whether the person at the screen has asked for less movement. */
export const prefersCalm = (): boolean => matchMedia('(prefers-reduced-motion: reduce)').matches

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
