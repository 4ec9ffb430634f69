import { make, setAttribute, setText, showKeyed } from './dom.js'
import { count } from './format.js'

/** So many children of a value are shown at once, and so many more each time somebody asks. */
const PAGE = 100
/** A state with no more values than this is shown unfolded. */
const SMALL = 40
const LONGEST_TEXT = 300
const LONGEST_PREVIEW = 60

const isFolder = (value) => typeof value === 'object' && value !== null
const childrenOf = (value) => (Array.isArray(value) ? value.keys() : Object.keys(value))
const sizeOf = (value) => (Array.isArray(value) ? value.length : Object.keys(value).length)
const below = (path, key) => `${path}/${String(key).replaceAll('~', '~0').replaceAll('/', '~1')}`

/** A JSON value as a tree (WAI-ARIA tree pattern) that stays as it was unfolded while the value changes, and marks what did. */
export class Tree {
  #element
  #open = new Set([''])
  #shown = new Map()
  #values = new Map()
  #value
  #rows = []
  #active = ''

  /** `element` has the role tree. */
  constructor(element) {
    this.#element = element
    element.addEventListener('keydown', (event) => this.#onKey(event))
    element.addEventListener('click', (event) => {
      const row = event.target.closest('[role=treeitem]')
      if (!row) return
      this.#focus(row.dataset.key)
      this.#toggle(this.#rowAt(row.dataset.key))
    })
  }

  /** Another value, of which nothing is unfolded yet. */
  restart() {
    this.#open = new Set([''])
    this.#shown.clear()
    this.#values.clear()
    this.#value = undefined
    this.#active = ''
    this.#element.replaceChildren()
  }

  /** The value as it is now. */
  show(value) {
    const is_first = this.#value === undefined
    this.#value = value
    if (is_first) this.#unfoldSmall(value, '', { left: SMALL })
    this.#render(!is_first)
  }

  /** Unfolds from the top, level by level of one branch, as long as the whole stays small. */
  #unfoldSmall(value, path, budget) {
    if (!isFolder(value)) return
    budget.left -= sizeOf(value)
    if (budget.left < 0 && path !== '') return
    this.#open.add(path)
    if (budget.left > 0)
      for (const key of childrenOf(value)) this.#unfoldSmall(value[key], below(path, key), budget)
  }

  #render(mark) {
    const rows = []
    this.#lay(rows, this.#value, { path: '', key: undefined, level: 1, at: 1, of: 1 })
    this.#rows = rows
    const before = this.#values
    this.#values = new Map(rows.map((row) => [row.path, row.value]))
    if (!this.#values.has(this.#active)) this.#active = ''
    showKeyed(
      this.#element,
      rows,
      (row) => row.path,
      () => make('div', { role: 'treeitem' }, make('span'), make('span'), make('span')),
      (element, row) => {
        const changed =
          mark && !row.more && (before.has(row.path) ? !this.#same(row, before.get(row.path)) : true)
        this.#dress(element, row, changed)
      },
    )
  }

  /** Whether there is nothing to mark: what changed inside an unfolded value is marked there. */
  #same(row, value) {
    if (isFolder(row.value) && isFolder(value) && row.open) return true
    return isEqual(row.value, value)
  }

  #lay(rows, value, place) {
    const { path, level } = place
    const folder = isFolder(value) && sizeOf(value) > 0
    const open = folder && this.#open.has(path)
    rows.push({ ...place, value, folder, open })
    if (!open) return
    const keys = [...childrenOf(value)]
    const most = this.#shown.get(path) ?? PAGE
    for (const [i, key] of keys.slice(0, most).entries())
      this.#lay(rows, value[key], {
        path: below(path, key),
        key: String(key),
        level: level + 1,
        at: i + 1,
        of: keys.length,
      })
    if (keys.length <= most) return
    rows.push({
      path: `more:${path}`,
      level: level + 1,
      at: most + 1,
      of: keys.length,
      more: keys.length - most,
      parent: path,
    })
  }

  #dress(element, row, changed) {
    setAttribute(element, 'aria-level', String(row.level))
    setAttribute(element, 'aria-posinset', String(row.at))
    setAttribute(element, 'aria-setsize', String(row.of))
    setAttribute(element, 'aria-expanded', row.folder ? String(row.open) : null)
    element.tabIndex = row.path === this.#active ? 0 : -1
    element.style.setProperty('--level', String(row.level - 1))
    element.classList.toggle('changed', changed)
    const [fold, key, value] = element.children
    fold.className = 'fold'
    key.className = 'key'
    value.className = `value ${row.more ? 'more' : kindOf(row.value)}`
    setText(key, row.key ?? (row.more ? '' : 'state'))
    setText(
      value,
      row.more ? `${count(row.more)} more: show ${count(Math.min(PAGE, row.more))}` : textOf(row),
    )
  }

  #onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return
    const at = this.#rows.findIndex((row) => row.path === this.#active)
    const row = this.#rows[at]
    if (!row) return
    const to = this.#target(event.key, row, at)
    if (to !== undefined) this.#focus(to.path)
    else if (event.key === 'Enter' || event.key === ' ') this.#toggle(row)
    else if (event.key === 'ArrowRight' && row.folder && !row.open) this.#toggle(row)
    else if (event.key === 'ArrowLeft' && row.open) this.#toggle(row)
    else if (!/^Arrow|^Home$|^End$/.test(event.key)) return
    event.preventDefault()
  }

  /** The row that a key leads to; undefined: it leads nowhere. */
  #target(key, row, at) {
    const rows = this.#rows
    if (key === 'ArrowDown') return rows[at + 1]
    if (key === 'ArrowUp') return rows[at - 1]
    if (key === 'Home') return rows[0]
    if (key === 'End') return rows.at(-1)
    if (key === 'ArrowRight' && row.open) return rows[at + 1]
    if (key === 'ArrowLeft' && !row.open) return rows.slice(0, at).findLast(({ level }) => level < row.level)
    // A letter: the next row whose name begins with it.
    if (key.length !== 1 || key === ' ' || key === '/') return undefined
    return [...rows.slice(at + 1), ...rows.slice(0, at)].find((each) =>
      each.key?.toLowerCase().startsWith(key.toLowerCase()),
    )
  }

  #toggle(row) {
    if (row.more) this.#shown.set(row.parent, (this.#shown.get(row.parent) ?? PAGE) + PAGE)
    else if (row.open) this.#open.delete(row.path)
    else if (row.folder) this.#open.add(row.path)
    else return
    this.#render(false)
    this.#focus(this.#active)
  }

  #focus(path) {
    this.#active = path
    for (const element of this.#element.children) {
      const is_active = element.dataset.key === path
      element.tabIndex = is_active ? 0 : -1
      if (is_active) element.focus()
    }
  }

  #rowAt(path) {
    return this.#rows.find((row) => row.path === path)
  }
}

const kindOf = (value) =>
  value === null ? 'null' : Array.isArray(value) ? 'folder' : isFolder(value) ? 'folder' : typeof value

/** What a row says of its value: a folded one shows how it begins. */
function textOf({ value, open }) {
  if (!isFolder(value)) return shorten(JSON.stringify(value), LONGEST_TEXT)
  const size = sizeOf(value)
  const [left, right] = Array.isArray(value) ? '[]' : '{}'
  if (size === 0) return left + right
  const amount = `${count(size)} ${Array.isArray(value) ? (size === 1 ? 'item' : 'items') : size === 1 ? 'key' : 'keys'}`
  return open ? amount : `${left} ${previewOf(value)} ${right}  ${amount}`
}

function previewOf(value) {
  let text = ''
  for (const key of childrenOf(value)) {
    const child = value[key]
    const short = Array.isArray(child) ? '[…]' : isFolder(child) ? '{…}' : shorten(JSON.stringify(child), 24)
    text += `${text && ', '}${Array.isArray(value) ? '' : `${key}: `}${short}`
    if (text.length > LONGEST_PREVIEW) return `${text.slice(0, LONGEST_PREVIEW)}…`
  }
  return text
}

const shorten = (text, most) =>
  text.length <= most ? text : `${text.slice(0, most)}… (${count(text.length)} characters)`

function isEqual(a, b) {
  if (a === b) return true
  if (!isFolder(a) || !isFolder(b) || Array.isArray(a) !== Array.isArray(b)) return false
  const keys = Object.keys(a)
  if (keys.length !== Object.keys(b).length) return false
  return keys.every((key) => Object.hasOwn(b, key) && isEqual(a[key], b[key]))
}
