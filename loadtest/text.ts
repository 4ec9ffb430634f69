/** Formats figures in the same way in the terminal and on the page. */

/** Stands for a missing value. */
export const NONE = '–'

/** Three digits, or all digits of a larger integer: `0.42`, `4.27`, `42.7`, `427`, `81,204`. */
export function digits(value: number): string {
  const size = Math.abs(value)
  if (size >= 100 || Number.isInteger(value)) return count(value)
  return value.toFixed(size >= 10 ? 1 : 2)
}

/** An integer with separated thousands: `81,204`. */
export const count = (value: number): string => Math.round(value).toLocaleString('en-US')

/** From milliseconds: `0.42 ms`, `427 ms`, `4.27 s`, `12:05 min`. */
export function duration(ms: number): string {
  if (ms < 999.5) return `${digits(ms)} ms`
  if (ms < 120_000) return `${digits(ms / 1000)} s`
  return `${clock(ms / 1000)} ${ms < 3_600_000 ? 'min' : 'h'}`
}

/** A time of a run, from seconds: `0:07`, `12:05`, `1:02:03`. */
export function clock(seconds: number): string {
  const whole = Math.round(seconds)
  const parts = [Math.floor(whole / 60) % 60, whole % 60].map((part) => String(part).padStart(2, '0'))
  return whole < 3600
    ? `${Math.floor(whole / 60)}:${parts[1]}`
    : `${Math.floor(whole / 3600)}:${parts.join(':')}`
}

/** `0 B`, `12.3 KB`, `148 MB`, in steps of 1024. */
export function bytes(value: number): string {
  const step = [1, 1024, 1024 ** 2, 1024 ** 3].findLast((size) => value >= size) ?? 1
  const unit = { 1: 'B', 1024: 'KB', 1048576: 'MB', 1073741824: 'GB' }[step]
  return `${digits(value / step)} ${unit}`
}

/** From a fraction of 1: `8.2%`, `93%`, `140%`. */
export function percent(share: number): string {
  const value = 100 * share
  return `${value >= 10 ? Math.round(value) : value.toFixed(1).replace(/\.0$/, '')}%`
}

/** Formats of the units of a result. */
const UNITS = {
  '': digits,
  ms: duration,
  s: (value: number) => duration(1000 * value),
  '%': (value: number) => percent(value / 100),
  bytes,
  '/s': (value: number) => `${digits(value)}/s`,
  'bytes/s': (value: number) => `${bytes(value)}/s`,
} as const
export type Unit = keyof typeof UNITS

/** A value with its unit: one of `Unit`, or any word. */
export const inUnit = (value: number, unit: string): string =>
  Object.hasOwn(UNITS, unit) ? UNITS[unit as Unit](value) : `${digits(value)} ${unit}`

/** `1 failure`, `1,204 failures`. */
export const plural = (number: number, noun: string): string =>
  `${count(number)} ${noun}${number === 1 ? '' : 's'}`

/** Foreign text on one line, without control characters. */
export const oneLine = (text: string): string => text.replaceAll(/[\s\p{Cc}]+/gu, ' ').trim()

/** Aligns rows of cells: the first column to the left, all others to the right. */
export function alignedRows(rows: readonly (readonly string[])[], separator = '  '): string[] {
  const widths = rows[0]?.map((_, i) => Math.max(...rows.map((row) => row[i]?.length ?? 0))) ?? []
  return rows.map((row) =>
    row
      .map((cell, i) => (i === 0 ? cell.padEnd(widths[i]!) : cell.padStart(widths[i]!)))
      .join(separator)
      .trimEnd(),
  )
}

/** Returns the smallest value that this fraction (0 to 1) of all values does not exceed. `none`: the result without values. */
export function quantile(values: readonly number[], share: number, none = Number.NaN): number {
  const sorted = values.toSorted((a, b) => a - b)
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? none
}
