/** Pieces of HTML. */

/** Text as it may stand in an element or a quoted attribute. */
export const escaped = (text: string): string =>
  text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;')
    .replaceAll("'", '&#39;')

/** The same, with figures and their units kept on one line. */
export const unbroken = (text: string): string =>
  escaped(text).replaceAll(/(\d) (ms|s|min|h|B|KB|MB|GB)\b/g, '$1\u00a0$2')

/** A value as JSON that may stand in a script element: nothing in it can end the element. */
export const jsonData = (value: unknown): string =>
  JSON.stringify(value)
    .replaceAll('<', '\\u003c')
    .replaceAll('\u2028', '\\u2028')
    .replaceAll('\u2029', '\\u2029')

/** A cell: its content; whether it is a figure; and, where rows are stacked on a phone, what it is of. */
export interface Cell {
  readonly html: string
  readonly number?: boolean
  readonly of?: string
}

/** A cell of foreign text. */
export const text = (content: string): Cell => ({ html: escaped(content) })

/** A cell of a figure, to the right of its column. */
export const figure = (content: string): Cell => ({ html: escaped(content), number: true })

/** A table that scrolls sideways where it is too wide; the first cell of each row is its heading. Without rows it is empty. */
export function table(head: readonly Cell[], rows: readonly (readonly Cell[])[], caption: string): string {
  const stacked = rows.some((row) => row.some(({ of }) => of !== undefined))
  if (rows.length === 0) return ''
  const cell = (tag: string, { html, number, of }: Cell) =>
    `<${tag}${number ? ' class="number"' : ''}${tag === 'th' ? ' scope="row"' : ''}${of ? ` data-of="${escaped(of)}"` : ''}>${html}</${tag}>`
  const columns = head.map(
    ({ html, number }) => `<th scope="col"${number ? ' class="number"' : ''}>${html}</th>`,
  )
  const body = rows.map(
    (row) => `<tr>${row.map((each, i) => cell(i === 0 ? 'th' : 'td', each)).join('')}</tr>`,
  )
  return `<div class="scroll" tabindex="0" role="region" aria-label="${escaped(caption)}"><table${stacked ? ' class="stacked"' : ''}><caption class="unseen">${escaped(caption)}</caption><thead><tr>${columns.join('')}</tr></thead><tbody>${body.join('\n')}</tbody></table></div>`
}
