/** The element of an id; the page has every one that is asked for. */
export const $ = (id) => document.getElementById(id)

/** A new element with properties, or attributes where the name has a dash or is `role`, and children: elements or text. */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag)
  for (const [name, value] of Object.entries(properties))
    if (name.includes('-') || name === 'role') element.setAttribute(name, value)
    else element[name] = value
  element.append(...children)
  return element
}

/** Only what has changed is written, so that selections stay and screen readers are not told twice. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text
}

/** As `setText`, for an attribute; null takes it away. */
export function setAttribute(element, name, value) {
  if (value === null) element.removeAttribute(name)
  else if (element.getAttribute(name) !== value) element.setAttribute(name, value)
}

/**
 * Brings the children of `parent` in line with `items`, in their order. Elements of a key (unique text) that stay are kept, so that
 * focus, selections and what is open survive; `create` makes the others, `update` is told whether it did.
 */
export function showKeyed(parent, items, keyOf, create, update) {
  const old = new Map([...parent.children].map((child) => [child.dataset.key, child]))
  const keys = new Set(items.map(keyOf))
  for (const [key, child] of old) if (!keys.has(key)) child.remove()
  let place = parent.firstElementChild
  for (const item of items) {
    const key = keyOf(item)
    const kept = old.get(key)
    const element = kept ?? create(item)
    element.dataset.key = key
    update(element, item, kept === undefined)
    if (element === place) place = place.nextElementSibling
    else parent.insertBefore(element, place)
  }
}

/** Moves the focus along `elements` with the arrow keys, Home and End. False: the key is another, or there is nowhere to go. */
export function moveFocus(event, elements, [back, forth] = ['ArrowUp', 'ArrowDown']) {
  const at = elements.indexOf(document.activeElement)
  const to = { [back]: at - 1, [forth]: at + 1, Home: 0, End: elements.length - 1 }[event.key]
  if (to === undefined || !elements[to]) return false
  event.preventDefault()
  elements[to].focus()
  return true
}
