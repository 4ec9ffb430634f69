/** Returns the element with this id. Throws if the page has no such element. */
export function byId<T extends Element>(id: string, kind: new () => T): T {
  const element = document.getElementById(id)
  if (!(element instanceof kind)) throw new Error(`the page has no ${kind.name} with the id ${id}`)
  return element
}

/** Creates an element with classes, text and attributes. */
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

/** Returns true if the user prefers reduced motion. */
export const prefersCalm = (): boolean => matchMedia('(prefers-reduced-motion: reduce)').matches

const SHOWN_MS = 3200

/** Short messages at the bottom of the page, also for screen readers. */
export class Toasts {
  readonly #list = create('div', { class: 'toasts', role: 'status', 'aria-live': 'polite' })

  constructor(parent: HTMLElement) {
    parent.append(this.#list)
  }

  /** Shows a short message. */
  show(text: string): void {
    this.#add(text, 'note')
  }

  /** Shows the message of an error. */
  refuse(error: unknown): void {
    this.#add(error instanceof Error ? error.message : String(error), 'wrong')
  }

  /** Does not repeat a text that is still shown. */
  #add(text: string, kind: 'note' | 'wrong'): void {
    for (const shown of [...this.#list.children]) if (shown.textContent === text) shown.remove()
    const toast = create('div', { class: `toast ${kind}`, text })
    this.#list.append(toast)
    while (this.#list.children.length > 3) this.#list.firstChild?.remove()
    setTimeout(() => toast.remove(), SHOWN_MS)
  }
}
