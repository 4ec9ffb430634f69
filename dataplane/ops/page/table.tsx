import type { ComponentChildren, RefObject } from 'preact'
import { useRef } from 'preact/hooks'

/** A column of a table: what its heading says and sorts by, and what its cells show. */
export interface Column<T> {
  readonly name: string
  readonly label: string
  /** `number`: at the right, and its heading as well. */
  readonly look?: 'number' | 'soft' | 'rooms'
  /** The way that is chosen first; default: ascending. */
  readonly first?: 'descending'
  /** Its cells tell how long ago the column's time was, so the smallest is the latest. */
  readonly isAge?: true
  /** What it is sorted by, where that happens here and not at the node. */
  readonly key?: (item: T) => string | number
  readonly title?: (item: T) => string | undefined
  readonly cell: (item: T) => ComponentChildren
}

type Way = 'ascending' | 'descending'

/** The order of a table, which the headings of its columns choose; kept for this tab. */
export class Order<T> {
  readonly columns: readonly Column<T>[]
  readonly #place: string
  #column: Column<T>
  #way: Way

  /** `by` and `way`: the order until another is chosen. */
  constructor(id: string, columns: readonly Column<T>[], by: string, way: Way) {
    this.columns = columns
    this.#place = `roomful.order.${id}`
    const [keptBy, keptWay] = (sessionStorage.getItem(this.#place) ?? '').split(' ')
    const kept = columns.find(({ name }) => name === keptBy)
    const isKept = kept && (keptWay === 'ascending' || keptWay === 'descending')
    this.#column = isKept ? kept : columns.find(({ name }) => name === by)!
    this.#way = isKept ? keptWay : way
  }

  /** The column that it is sorted by. */
  get by(): Column<T> {
    return this.#column
  }

  /** Whether the largest value of the column comes first; of a time, the latest. */
  get descending(): boolean {
    return (this.#way === 'descending') !== (this.#column.isAge ?? false)
  }

  /** As the node wants to be asked. */
  get query(): string {
    return `${this.descending ? '-' : ''}${this.by.name}`
  }

  /** What a heading says of itself to screen readers. */
  wayOf(column: Column<T>): Way | undefined {
    return column === this.#column ? this.#way : undefined
  }

  /** Sorts by a column, the other way round if it does already; returns that in words. */
  choose(column: Column<T>): string {
    const other = this.#way === 'ascending' ? 'descending' : 'ascending'
    this.#way = column === this.#column ? other : (column.first ?? 'ascending')
    this.#column = column
    sessionStorage.setItem(this.#place, `${this.by.name} ${this.#way}`)
    return `Sorted by ${column.label}, ${this.#way}`
  }
}

interface SteadyRows<T> {
  readonly items: readonly T[]
  readonly body: RefObject<HTMLTableSectionElement>
  /** The rows stand in another order than they should. */
  readonly isHeld: boolean
}

/**
 * Items in their order, unless a person points at their rows or is in them with the keyboard: then in the order in which the rows stand, so
 * that nothing moves away from under a finger; those that are new come last. With another `version` of the question they are not held.
 */
export function useSteadyRows<T>(
  items: readonly T[],
  keyOf: (item: T) => string,
  version: string,
): SteadyRows<T> {
  const body = useRef<HTMLTableSectionElement>(null)
  const shown = useRef({ version: '', places: new Map<string, number>() })
  const rows = body.current
  const inUse =
    rows !== null &&
    (rows.contains(document.activeElement) ||
      (matchMedia('(hover: hover)').matches && rows.matches(':hover')))
  const { places } = shown.current
  const placeOf = (item: T) => places.get(keyOf(item)) ?? Number.MAX_SAFE_INTEGER
  const hold = inUse && shown.current.version === version
  const laid = hold ? items.toSorted((a, b) => placeOf(a) - placeOf(b)) : items
  shown.current = { version, places: new Map(laid.map((item, at) => [keyOf(item), at])) }
  return { items: laid, body, isHeld: laid.some((item, at) => item !== items[at]) }
}

interface TableProps<T> {
  readonly id: string
  readonly name: { readonly 'aria-label': string } | { readonly 'aria-labelledby': string }
  readonly order: Order<T>
  readonly rows: SteadyRows<T>
  readonly keyOf: (item: T) => string
  readonly rowClass?: (item: T) => string
  /** Another order was chosen; in words. */
  readonly onSort: (words: string) => void
}

/** The role of an element, said once more: on a phone a table is laid out as none, for which some browsers take its roles away. */
const spoken = (role: 'table' | 'rowgroup' | 'row' | 'columnheader' | 'cell') => ({ role })

/** A table that is sorted by its headings. */
export function Table<T>({ id, name, order, rows, keyOf, rowClass, onSort }: TableProps<T>) {
  const { columns } = order
  return (
    <table id={id} {...spoken('table')} {...name} onKeyDown={(event) => moveFocus(event, '.open')}>
      <thead {...spoken('rowgroup')}>
        <tr {...spoken('row')}>
          {columns.map((column) => (
            <th
              key={column.name}
              {...spoken('columnheader')}
              scope="col"
              class={column.look === 'number' ? 'number' : undefined}
              aria-sort={order.wayOf(column)}
            >
              <button type="button" onClick={() => onSort(order.choose(column))}>
                {column.label}
              </button>
            </th>
          ))}
        </tr>
      </thead>
      <tbody {...spoken('rowgroup')} ref={rows.body}>
        {rows.items.map((item) => (
          <tr key={keyOf(item)} {...spoken('row')} class={rowClass?.(item)}>
            {columns.map((column) => (
              <td
                key={column.name}
                {...spoken('cell')}
                data-label={column.label}
                class={column.look}
                title={column.title?.(item)}
              >
                {column.cell(item)}
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  )
}

/** Moves the focus along what `selector` finds in the element that listens, with the arrow keys, Home and End; returns where to. */
export function moveFocus(
  event: KeyboardEvent & { readonly currentTarget: HTMLElement },
  selector: string,
  [back, forth] = ['ArrowUp', 'ArrowDown'],
): HTMLElement | undefined {
  const elements = [...event.currentTarget.querySelectorAll<HTMLElement>(selector)]
  const at = elements.indexOf(document.activeElement as HTMLElement)
  const places: Record<string, number> = {
    Home: 0,
    End: elements.length - 1,
    [back!]: at - 1,
    [forth!]: at + 1,
  }
  const to = elements[places[event.key] ?? -1]
  if (!to) return undefined
  event.preventDefault()
  to.focus()
  return to
}
