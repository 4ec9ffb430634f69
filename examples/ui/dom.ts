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
