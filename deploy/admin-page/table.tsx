import type { ComponentChildren } from 'preact'
import { useRef, useState } from 'preact/hooks'

/** Tables, and figures as texts. */

const COUNT = new Intl.NumberFormat('en')
const TIME = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit', second: '2-digit' })

/** Formats 12345 as 12,345. */
export const count = (number: number): string => COUNT.format(number)

/** Formats "1 room" and "2 rooms". */
export const counted = (number: number, noun: string): string =>
  `${count(number)} ${noun}${number === 1 ? '' : 's'}`

export const percent = (share: number): string => `${Math.round(share * 100)} %`

export function bytes(size: number): string {
  if (size < 1024) return `${size} B`
  if (size < 1024 ** 2) return `${(size / 1024).toFixed(1)} KB`
  return size < 1024 ** 3 ? `${(size / 1024 ** 2).toFixed(0)} MB` : `${(size / 1024 ** 3).toFixed(2)} GB`
}

/** Formats milliseconds in the two largest units. */
export function duration(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1000))
  if (seconds < 60) return `${seconds} s`
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`
  return `${Math.floor(seconds / 86_400)} d ${Math.floor((seconds % 86_400) / 3600)} h`
}

/** Formats the time of day of milliseconds since 1970. */
export const timeOfDay = (ms: number): string => TIME.format(ms)

/** A column of a table. */
export interface Column<T> {
  /** Heading. */
  readonly label: string
  /** Value by which the table is sorted. Absent: the column cannot sort it. */
  readonly key?: (item: T) => string | number
  /** `number`: aligned right; the first click sorts the largest first. */
  readonly look?: 'number' | 'soft' | 'rooms' | 'wide' | undefined
  readonly cell: (item: T) => ComponentChildren
}

/** Names of the properties of `T` whose values are of type `V`. */
type PropertiesOf<T, V> = { [K in keyof T]-?: T[K] extends V ? K : never }[keyof T]

/** Returns a column of texts. */
export const text = <T,>(
  label: string,
  name: PropertiesOf<T, string | null | undefined>,
  look?: Column<T>['look'],
): Column<T> => {
  const of = (item: T) => item[name] as string | null | undefined
  return { label, key: (item) => of(item) ?? '', look, cell: (item) => of(item) ?? '–' }
}

/** Returns a column of numbers. `say`: returns another text for the cell. */
export const number = <T,>(
  label: string,
  name: PropertiesOf<T, number | null>,
  say?: Column<T>['cell'],
): Column<T> => {
  const key = (item: T) => (item[name] as number | null) ?? -1
  return { label, key, look: 'number', cell: say ?? ((item) => count(key(item))) }
}

/** Returns a column of the ages of RFC 3339 times. The newest comes first, or with `oldestFirst` the oldest. */
export const age = <T,>(
  label: string,
  name: PropertiesOf<T, string | null>,
  say: (since: string, item: T) => ComponentChildren,
  oldestFirst = false,
): Column<T> => {
  const of = (item: T) => item[name] as string | null
  const key = (item: T) => Date.parse(of(item) ?? '9999-01-01') * (oldestFirst ? -1 : 1)
  return { label, key, look: 'number', cell: (item) => (of(item) === null ? '–' : say(of(item)!, item)) }
}

interface TableProps<T> {
  readonly id: string
  readonly name: string
  readonly columns: readonly Column<T>[]
  readonly items: readonly T[]
  readonly keyOf: (item: T) => string
  /** Label of the column that sorts the table first. */
  readonly by: string
  readonly rowClass?: (item: T) => string
}

/** Explicit role of an element. On a phone, CSS lays the table out as blocks, and some browsers then drop the implicit roles. */
const spoken = (role: 'table' | 'rowgroup' | 'row' | 'columnheader' | 'cell') => ({ role })

/** A touched row stays `:hover` until something else is touched. */
const IN_USE = matchMedia('(hover: hover)').matches ? ':focus-within, :hover' : ':focus-within'

/** A table that is sorted by its headings. While its rows have the pointer or the focus, their order does not change. */
export function Table<T>({ id, name, columns, items, keyOf, by, rowClass }: TableProps<T>) {
  const place = `roomful.order.${id}`
  const [order, setOrder] = useState(() => sessionStorage.getItem(place) ?? by)
  const body = useRef<HTMLTableSectionElement>(null)
  const shown = useRef<readonly string[]>([])
  const isReversed = order.startsWith('-')
  const column = columns.find(({ label }) => label === order.replace('-', '')) ?? columns[0]!
  const descends = (column.look === 'number') !== isReversed
  const choose = ({ label }: Column<T>) => {
    const next = label === order ? `-${label}` : label
    sessionStorage.setItem(place, next)
    shown.current = []
    setOrder(next)
  }
  const sorted = items.toSorted((a, b) => {
    const [left, right] = [column.key?.(a) ?? 0, column.key?.(b) ?? 0]
    return left === right ? 0 : left < right === descends ? 1 : -1
  })
  const inUse = body.current?.matches(IN_USE) ?? false
  const placeOf = (item: T) => {
    const at = shown.current.indexOf(keyOf(item))
    return at < 0 ? items.length : at
  }
  const rows = inUse && shown.current.length > 0 ? sorted.toSorted((a, b) => placeOf(a) - placeOf(b)) : sorted
  shown.current = rows.map(keyOf)
  return (
    <table id={id} {...spoken('table')} aria-label={name} onKeyDown={(event) => moveFocus(event, '.open')}>
      <thead {...spoken('rowgroup')}>
        <tr {...spoken('row')}>
          {columns.map((one) => (
            <th
              key={one.label}
              {...spoken('columnheader')}
              scope="col"
              data-label={one.label}
              class={one.look === 'number' ? 'number' : undefined}
              aria-sort={one === column ? (descends ? 'descending' : 'ascending') : undefined}
            >
              {one.key ? (
                <button type="button" onClick={() => choose(one)}>
                  {one.label}
                  <span aria-hidden="true">{one === column && (descends ? ' ▾' : ' ▴')}</span>
                </button>
              ) : (
                one.label
              )}
            </th>
          ))}
        </tr>
      </thead>
      <tbody {...spoken('rowgroup')} ref={body}>
        {rows.map((item) => (
          <tr key={keyOf(item)} {...spoken('row')} class={rowClass?.(item)}>
            {columns.map((one) => (
              <td key={one.label} {...spoken('cell')} data-label={one.label} class={one.look}>
                {one.cell(item)}
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  )
}

/** Moves the focus along the elements of `selector` with the arrow keys. Returns the next element. */
export function moveFocus(
  event: KeyboardEvent & { readonly currentTarget: HTMLElement },
  selector: string,
  [back, forth] = ['ArrowUp', 'ArrowDown'],
): HTMLElement | undefined {
  const elements = [...event.currentTarget.querySelectorAll<HTMLElement>(selector)]
  const at = elements.indexOf(document.activeElement as HTMLElement)
  const to = event.key === back ? elements[at - 1] : event.key === forth ? elements[at + 1] : undefined
  if (to) event.preventDefault()
  to?.focus()
  return to
}
