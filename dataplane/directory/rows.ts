import type { RoomQuery } from './query.ts'
import { type StoredRow, takenSeats } from './row.ts'

/** A query as it is run. */
export interface Search {
  readonly matches: (row: StoredRow) => boolean
  readonly order: NonNullable<RoomQuery['order']>
  readonly limit: number
}

/** The fields of a row that decide its place in every order. */
export type Position = Pick<StoredRow, 'members' | 'reserved' | 'created_at' | 'room_id'>

type Compare = (one: Position, other: Position) => number

const byAge: Compare = (one, other) =>
  compareText(one.created_at, other.created_at) || compareText(one.room_id, other.room_id)
// For equally full rooms, 'fullest' returns the oldest first, so that old rooms fill before new ones.
const bySeats: Compare = (one, other) => takenSeats(one) - takenSeats(other) || byAge(other, one)

const compareText = (one: string, other: string): number => (one < other ? -1 : one > other ? 1 : 0)

/** Returns whether `one` comes before `other` in an order. */
export function isBefore(order: Search['order'], one: Position, other: Position): boolean {
  const sign = isBackward(order) ? -1 : 1
  return sign * (isBySeats(order) ? bySeats : byAge)(one, other) < 0
}

const isBySeats = (order: Search['order']): boolean => order === 'fullest' || order === 'emptiest'
const isBackward = (order: Search['order']): boolean => order === 'fullest' || order === 'newest'

/** Rows of one list, sorted for every order of a query. */
export class Rows {
  readonly #rows = new Map<string, StoredRow>()
  readonly #bySeats = new Sorted(bySeats)
  readonly #byAge = new Sorted(byAge)

  get size(): number {
    return this.#rows.size
  }

  get(roomId: string): StoredRow | undefined {
    return this.#rows.get(roomId)
  }

  values(): Iterable<StoredRow> {
    return this.#rows.values()
  }

  /** Replaces the row of a room. Undefined removes it. */
  set(roomId: string, row: StoredRow | undefined): void {
    const before = this.#rows.get(roomId)
    if (before === row) return
    if (before) {
      this.#bySeats.remove(before)
      this.#byAge.remove(before)
      this.#rows.delete(roomId)
    }
    if (!row) return
    this.#bySeats.add(row)
    this.#byAge.add(row)
    this.#rows.set(roomId, row)
  }

  /** Returns the rows that match, in order. `after`: only rows behind this position. */
  find({ matches, order, limit }: Search, after?: Position): StoredRow[] {
    const { rows, placeOf } = isBySeats(order) ? this.#bySeats : this.#byAge
    const step = isBackward(order) ? -1 : 1
    const found: StoredRow[] = []
    let at = step > 0 ? 0 : rows.length - 1
    if (after) {
      const place = placeOf(after)
      at = step < 0 ? place - 1 : rows[place]?.room_id === after.room_id ? place + 1 : place
    }
    for (; at >= 0 && at < rows.length && found.length < limit; at += step)
      if (matches(rows[at]!)) found.push(rows[at]!)
    return found
  }
}

/** Rows in one order. */
class Sorted {
  readonly rows: StoredRow[] = []
  readonly #compare: Compare

  constructor(compare: Compare) {
    this.#compare = compare
  }

  add(row: StoredRow): void {
    this.rows.splice(this.placeOf(row), 0, row)
  }

  remove(row: StoredRow): void {
    this.rows.splice(this.placeOf(row), 1)
  }

  /** Returns the index of the first row that does not come before `position`. */
  readonly placeOf = (position: Position): number => {
    let [low, high] = [0, this.rows.length]
    while (low < high) {
      const middle = (low + high) >>> 1
      if (this.#compare(this.rows[middle]!, position) < 0) low = middle + 1
      else high = middle
    }
    return low
  }
}
