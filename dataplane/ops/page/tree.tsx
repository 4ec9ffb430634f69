import type { TargetedKeyboardEvent } from 'preact'
import { Component, createRef } from 'preact'
import type { Json, JsonArray, JsonObject } from '../../../shared/json.ts'
import { count } from './format.ts'

/** So many children of a value are shown at once, and so many more each time they are asked for. */
const PAGE = 100
/** A state with no more values than this is shown unfolded. */
const SMALL = 40
const LONGEST_TEXT = 300
const LONGEST_PREVIEW = 60

type Folder = JsonArray | JsonObject

/** A line of the tree: a value, or what stands for the children that are not shown. */
interface Row {
  readonly path: string
  readonly name: string
  readonly level: number
  readonly at: number
  readonly of: number
  readonly value: Json
  readonly folder: boolean
  readonly open: boolean
  /** How many children of `parent` are not shown. */
  readonly more?: number
  readonly parent?: string
}

const isFolder = (value: Json): value is Folder => typeof value === 'object' && value !== null
const entriesOf = (value: Folder): [string, Json][] => Object.entries(value)
const below = (path: string, key: string) => `${path}/${key.replaceAll('~', '~0').replaceAll('/', '~1')}`

/**
 * A JSON value as a tree (WAI-ARIA tree pattern) that stays as it was unfolded while the value changes, and marks what did. `title`: the id of
 * its heading.
 */
export class Tree extends Component<{ value: Json; title: string }> {
  readonly #element = createRef<HTMLDivElement>()
  readonly #open = new Set([''])
  readonly #shown = new Map<string, number>()
  #rows: readonly Row[] = []
  #marked: ReadonlySet<string> = new Set()
  #seen: Json | undefined
  #active = ''

  override render({ value, title }: { value: Json; title: string }) {
    const before =
      this.#seen === undefined ? undefined : new Map(this.#rows.map((row) => [row.path, row.value]))
    if (!before) this.#unfoldSmall(value, '', { left: SMALL })
    this.#rows = [...this.#lay(value, { path: '', name: 'state', level: 1, at: 1, of: 1 })]
    if (before && value !== this.#seen)
      this.#marked = new Set(this.#rows.filter((row) => hasChanged(row, before)).map(({ path }) => path))
    this.#seen = value
    if (!this.#rows.some(({ path }) => path === this.#active)) this.#active = ''
    return (
      <div class="tree" role="tree" aria-labelledby={title} ref={this.#element} onKeyDown={this.#onKey}>
        {this.#rows.map((row) => (
          // biome-ignore lint/a11y/useKeyWithClickEvents: the tree listens to keys
          <div
            key={row.path}
            role="treeitem"
            aria-level={row.level}
            aria-posinset={row.at}
            aria-setsize={row.of}
            aria-expanded={row.folder ? row.open : undefined}
            tabIndex={row.path === this.#active ? 0 : -1}
            class={this.#marked.has(row.path) ? 'changed' : ''}
            style={{ '--level': row.level - 1 }}
            onClick={() => {
              this.#active = row.path
              this.#toggle(row)
            }}
          >
            <span class="fold" />
            <span class="key">{row.name}</span>
            <span class={`value ${row.more ? 'more' : kindOf(row.value)}`}>{textOf(row)}</span>
          </div>
        ))}
      </div>
    )
  }

  /** Unfolds from the top, level by level of one branch, as long as the whole stays small. */
  #unfoldSmall(value: Json, path: string, budget: { left: number }): void {
    if (!isFolder(value)) return
    const entries = entriesOf(value)
    budget.left -= entries.length
    if (budget.left < 0 && path !== '') return
    this.#open.add(path)
    if (budget.left > 0)
      for (const [key, child] of entries) this.#unfoldSmall(child, below(path, key), budget)
  }

  *#lay(value: Json, place: Pick<Row, 'path' | 'name' | 'level' | 'at' | 'of'>): Generator<Row> {
    const { path } = place
    const entries = isFolder(value) ? entriesOf(value) : []
    const open = entries.length > 0 && this.#open.has(path)
    yield { ...place, value, folder: entries.length > 0, open }
    if (!open) return
    const level = place.level + 1
    const of = entries.length
    const most = this.#shown.get(path) ?? PAGE
    for (const [i, [key, child]] of entries.slice(0, most).entries())
      yield* this.#lay(child, { path: below(path, key), name: key, level, at: i + 1, of })
    if (of <= most) return
    const rest = { name: '', level, at: most + 1, of, value: null, folder: false, open: false }
    yield { ...rest, path: `more:${path}`, more: of - most, parent: path }
  }

  readonly #onKey = (event: TargetedKeyboardEvent<HTMLElement>): void => {
    if (event.ctrlKey || event.metaKey || event.altKey) return
    const { key } = event
    const at = this.#rows.findIndex((row) => row.path === this.#active)
    const row = this.#rows[at]
    if (!row) return
    const to = this.#target(key, row, at)
    if (to) this.#focus(to.path)
    else if (key === 'Enter' || key === ' ') this.#toggle(row)
    else if (key === 'ArrowRight' && row.folder && !row.open) this.#toggle(row)
    else if (key === 'ArrowLeft' && row.open) this.#toggle(row)
    else if (!/^Arrow|^Home$|^End$/.test(key)) return
    event.preventDefault()
  }

  /** The row that a key leads to; undefined: it leads nowhere. */
  #target(key: string, row: Row, at: number): Row | undefined {
    const rows = this.#rows
    if (key === 'ArrowDown') return rows[at + 1]
    if (key === 'ArrowUp') return rows[at - 1]
    if (key === 'Home') return rows[0]
    if (key === 'End') return rows.at(-1)
    if (key === 'ArrowRight' && row.open) return rows[at + 1]
    if (key === 'ArrowLeft' && !row.open) return rows.slice(0, at).findLast(({ level }) => level < row.level)
    // A letter: the next row whose name begins with it.
    if (key.length !== 1 || key === ' ' || key === '/') return undefined
    return [...rows.slice(at + 1), ...rows.slice(0, at)].find(
      ({ name, path }) => path !== '' && name.toLowerCase().startsWith(key.toLowerCase()),
    )
  }

  #toggle({ path, folder, open, more, parent = '' }: Row): void {
    if (more) this.#shown.set(parent, (this.#shown.get(parent) ?? PAGE) + PAGE)
    else if (open) this.#open.delete(path)
    else if (folder) this.#open.add(path)
    this.#marked = new Set()
    this.#focus(this.#active)
  }

  #focus(path: string): void {
    this.#active = path
    this.forceUpdate(() => this.#element.current?.querySelector<HTMLElement>('[tabindex="0"]')?.focus())
  }
}

/** Whether there is something to mark: what changed inside an unfolded value is marked there. */
function hasChanged(row: Row, before: ReadonlyMap<string, Json>): boolean {
  if (row.more) return false
  const value = before.get(row.path)
  if (value === undefined) return true
  return !(isFolder(row.value) && isFolder(value) && row.open) && !isEqual(row.value, value)
}

const kindOf = (value: Json) => (value === null ? 'null' : isFolder(value) ? 'folder' : typeof value)

/** What a row says of its value: a folded one shows how it begins. */
function textOf({ value, open, more }: Row): string {
  if (more) return `${count(more)} more: show ${count(Math.min(PAGE, more))}`
  if (!isFolder(value)) return shorten(JSON.stringify(value), LONGEST_TEXT)
  const size = entriesOf(value).length
  const [left, right] = Array.isArray(value) ? '[]' : '{}'
  if (size === 0) return `${left}${right}`
  const noun = Array.isArray(value) ? 'item' : 'key'
  const amount = `${count(size)} ${noun}${size === 1 ? '' : 's'}`
  return open ? amount : `${left} ${previewOf(value)} ${right}  ${amount}`
}

function previewOf(value: Folder): string {
  let text = ''
  for (const [key, child] of entriesOf(value)) {
    const short = Array.isArray(child) ? '[…]' : isFolder(child) ? '{…}' : shorten(JSON.stringify(child), 24)
    text += `${text && ', '}${Array.isArray(value) ? '' : `${key}: `}${short}`
    if (text.length > LONGEST_PREVIEW) return `${text.slice(0, LONGEST_PREVIEW)}…`
  }
  return text
}

const shorten = (text: string, most: number) =>
  text.length <= most ? text : `${text.slice(0, most)}… (${count(text.length)} characters)`

function isEqual(a: Json, b: Json): boolean {
  if (a === b) return true
  if (!isFolder(a) || !isFolder(b) || Array.isArray(a) !== Array.isArray(b)) return false
  const entries = entriesOf(a)
  if (entries.length !== Object.keys(b).length) return false
  const other = b as JsonObject
  return entries.every(([key, child]) => Object.hasOwn(b, key) && isEqual(child, other[key]!))
}
