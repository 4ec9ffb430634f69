import { $, setAttribute, setText } from './dom.js'

const OTHER_WAY = { ascending: 'descending', descending: 'ascending' }

/**
 * The order of a table, which the headings of its columns choose; kept for this tab. A heading with `data-column` has a button in it; its
 * `data-first` is the way that is chosen first (ascending unless it says descending). With `data-age` its cells tell how long ago the
 * column's time was, so the smallest is the latest.
 */
export class Order {
  #table
  #headings
  #by
  #way

  /** `by` and `way`: the order until somebody chooses another. `on_change` is called when that happens. */
  constructor(table, { by, way, on_change }) {
    this.#table = table
    spellOut(table)
    this.#headings = [...table.tHead.querySelectorAll('[data-column]')]
    const [kept_by, kept_way] = (sessionStorage.getItem(this.#place) ?? '').split(' ')
    const is_kept = OTHER_WAY[kept_way] && this.#headings.some(({ dataset }) => dataset.column === kept_by)
    this.#by = is_kept ? kept_by : by
    this.#way = is_kept ? kept_way : way
    for (const heading of this.#headings)
      heading.querySelector('button').addEventListener('click', () => {
        this.#choose(heading)
        on_change()
      })
    this.#show()
  }

  /** The column's name. */
  get by() {
    return this.#by
  }

  /** Whether the largest value of the column comes first; of a time, the latest. */
  get descending() {
    const { age } = this.#headings.find(({ dataset }) => dataset.column === this.#by).dataset
    return (this.#way === 'descending') !== (age !== undefined)
  }

  /** As the node wants to be asked. */
  get query() {
    return `${this.descending ? '-' : ''}${this.#by}`
  }

  get #place() {
    return `roomful.order.${this.#table.id}`
  }

  #choose({ dataset }) {
    this.#way = dataset.column === this.#by ? OTHER_WAY[this.#way] : (dataset.first ?? 'ascending')
    this.#by = dataset.column
    sessionStorage.setItem(this.#place, `${this.#by} ${this.#way}`)
    this.#show()
    const chosen = this.#headings.find((heading) => heading.dataset.column === this.#by)
    setText($('announcer'), `Sorted by ${chosen.textContent.trim()}, ${this.#way}`)
  }

  #show() {
    for (const heading of this.#headings)
      setAttribute(heading, 'aria-sort', heading.dataset.column === this.#by ? this.#way : null)
  }
}

/** Says which roles a table and its headings have: on a phone they are laid out as no table, for which some browsers take them away. */
function spellOut(table) {
  table.setAttribute('role', 'table')
  for (const group of [table.tHead, ...table.tBodies]) group.setAttribute('role', 'rowgroup')
  for (const row of table.tHead.rows) {
    row.setAttribute('role', 'row')
    for (const heading of row.cells) heading.setAttribute('role', 'columnheader')
  }
}

/** Whether somebody points at the rows of a table, or is in them with the keyboard. */
export const isInUse = (rows) =>
  rows.contains(document.activeElement) || (matchMedia('(hover: hover)').matches && rows.matches(':hover'))

/** `items` in the order in which their rows stand, so that nothing moves away from under a finger; those that are new come last. */
export function asTheyStand(rows, items, keyOf) {
  const places = new Map([...rows.children].map((row, at) => [row.dataset.key, at]))
  const placeOf = (item) => places.get(keyOf(item)) ?? Number.POSITIVE_INFINITY
  return items.toSorted((a, b) => {
    const [left, right] = [placeOf(a), placeOf(b)]
    return left === right ? 0 : left - right
  })
}
