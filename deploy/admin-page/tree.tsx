import type { TargetedKeyboardEvent } from 'preact'
import { Component, createRef } from 'preact'
import type { Json, JsonArray, JsonObject } from '../../shared/json.ts'
import { pointerPart } from '../../shared/sync/delta.ts'
import { count } from './table.tsx'

/** Number of children of a value that are shown first, and that each click on "more" adds. */
const PAGE = 100
/** Values with at most this many children are unfolded first, down to this level. */
const SMALL = 10
const UNFOLDED_LEVELS = 4
const LONGEST_TEXT = 300

/** A line of the tree: a value, or a placeholder for children that are not shown. */
interface Row {
  readonly path: string
  readonly name: string
  readonly level: number
  readonly at: number
  readonly of: number
  readonly value: Json
  readonly size: number
  readonly open: boolean
  /** Number of children of `parent` that are not shown. */
  readonly more?: number
  readonly parent?: string
}

const isFolder = (value: Json): value is JsonArray | JsonObject => typeof value === 'object' && value !== null

interface TreeProps {
  readonly value: Json
  /** The id of its heading. */
  readonly title: string
  /** Remarks on values, by their path (RFC 6901). */
  readonly marks?: ReadonlyMap<string, string>
  /** Returns a text of the value with the names of the ids in it. */
  readonly named?: (text: string) => string
}

/** A JSON value as a tree (WAI-ARIA tree pattern). Unfolded parts stay unfolded while the value changes. */
export class Tree extends Component<TreeProps> {
  readonly #element = createRef<HTMLDivElement>()
  readonly #open = new Map<string, boolean>()
  readonly #shown = new Map<string, number>()
  #rows: readonly Row[] = []
  #active = ''

  override render({ value, title, marks, named = (text) => text }: TreeProps) {
    this.#rows = [...this.#lay(value, { path: '', name: 'state', level: 1, at: 1, of: 1 })]
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
            aria-expanded={row.size > 0 ? row.open : undefined}
            tabIndex={row.path === this.#active ? 0 : -1}
            style={{ '--level': row.level }}
            onClick={() => {
              this.#active = row.path
              this.#toggle(row)
            }}
          >
            <span class="key">{named(row.name)}</span>{' '}
            <span class={row.more ? 'more' : isFolder(row.value) ? 'soft' : ''}>{named(textOf(row))}</span>
            {marks?.has(row.path) && <span class="tag mark">{named(marks.get(row.path)!)}</span>}
          </div>
        ))}
      </div>
    )
  }

  *#lay(value: Json, place: Pick<Row, 'path' | 'name' | 'level' | 'at' | 'of'>): Generator<Row> {
    const { path, level } = place
    const entries: [string, Json][] = isFolder(value) ? Object.entries(value) : []
    const of = entries.length
    const isSmall = level === 1 || (of <= SMALL && level < UNFOLDED_LEVELS)
    if (of > 0 && !this.#open.has(path)) this.#open.set(path, isSmall)
    const open = of > 0 && this.#open.get(path) === true
    yield { ...place, value, size: of, open }
    if (!open) return
    const most = this.#shown.get(path) ?? PAGE
    for (const [i, [key, child]] of entries.slice(0, most).entries())
      yield* this.#lay(child, { path: path + pointerPart(key), name: key, level: level + 1, at: i + 1, of })
    if (of <= most) return
    const rest = { name: '', level: level + 1, at: most + 1, of, value: null, size: 0, open: false }
    yield { ...rest, path: `more:${path}`, more: of - most, parent: path }
  }

  readonly #onKey = (event: TargetedKeyboardEvent<HTMLElement>): void => {
    if (event.ctrlKey || event.metaKey || event.altKey) return
    const { key } = event
    const at = this.#rows.findIndex((row) => row.path === this.#active)
    const row = this.#rows[at]
    if (!row) return
    const to = this.#target(key, row, at)
    const toggles =
      key === 'Enter' ||
      key === ' ' ||
      (key === 'ArrowRight' && row.size > 0 && !row.open) ||
      (key === 'ArrowLeft' && row.open)
    if (to) this.#focus(to.path)
    else if (toggles) this.#toggle(row)
    else if (!/^Arrow|^Home$|^End$/.test(key)) return
    event.preventDefault()
  }

  /** Returns the row to which a key moves the focus. Undefined: the focus stays. */
  #target(key: string, row: Row, at: number): Row | undefined {
    const rows = this.#rows
    if (key === 'ArrowDown') return rows[at + 1]
    if (key === 'ArrowUp') return rows[at - 1]
    if (key === 'Home') return rows[0]
    if (key === 'End') return rows.at(-1)
    if (key === 'ArrowRight' && row.open) return rows[at + 1]
    if (key === 'ArrowLeft' && !row.open) return rows.slice(0, at).findLast(({ level }) => level < row.level)
    return undefined
  }

  #toggle({ path, size, open, more, parent = '' }: Row): void {
    if (more) this.#shown.set(parent, (this.#shown.get(parent) ?? PAGE) + PAGE)
    else if (size > 0) this.#open.set(path, !open)
    this.#focus(this.#active)
  }

  #focus(path: string): void {
    this.#active = path
    this.forceUpdate(() => this.#element.current?.querySelector<HTMLElement>('[tabindex="0"]')?.focus())
  }
}

function textOf({ value, size, more }: Row): string {
  if (more) return `${count(more)} more: show ${count(Math.min(PAGE, more))}`
  if (isFolder(value)) {
    const noun = Array.isArray(value) ? 'item' : 'key'
    return size === 0
      ? Array.isArray(value)
        ? '[]'
        : '{}'
      : `${count(size)} ${noun}${size === 1 ? '' : 's'}`
  }
  const text = JSON.stringify(value)
  return text.length <= LONGEST_TEXT
    ? text
    : `${text.slice(0, LONGEST_TEXT)}… (${count(text.length)} characters)`
}
