/** How the things of a node are chosen and put in order for operators: rooms and sessions alike. */

/** By which column, and which way. */
export interface Order<Column extends string> {
  readonly by: Column
  readonly descending: boolean
}

/** What decides the order of items. */
export interface Ranking<T> {
  /** Null: it has none, and comes last either way. */
  readonly key: (item: T) => string | number | null
  readonly descending: boolean
  /** What items of equal keys go by, so that rows with equal values stay where they are. */
  readonly name: (item: T) => string
}

/** What is to be chosen. */
export interface Choice<T> {
  /** Undefined: all do. */
  readonly fits: ((item: T) => boolean) | undefined
  /** Undefined: in the order in which they come. */
  readonly ranking: Ranking<T> | undefined
  /** How many at most; undefined: all. */
  readonly limit: number | undefined
}

/** The first `limit` of those that fit, in order, and how many fit. */
export function choose<T>(
  items: Iterable<T>,
  { fits, ranking, limit = Number.POSITIVE_INFINITY }: Choice<T>,
): { readonly chosen: readonly T[]; readonly found: number } {
  const first = ranking ? new Ranked(ranking, limit) : new AsTheyCome<T>(limit)
  let found = 0
  for (const item of items) {
    if (fits && !fits(item)) continue
    found++
    first.offer(item)
  }
  return { chosen: first.take(), found }
}

/** The first few in the order in which they come. */
class AsTheyCome<T> {
  readonly #limit: number
  readonly #items: T[] = []

  constructor(limit: number) {
    this.#limit = limit
  }

  offer(item: T): void {
    if (this.#items.length < this.#limit) this.#items.push(item)
  }

  take(): readonly T[] {
    return this.#items
  }
}

type Key = string | number | null

/**
 * The first few by rank. It sorts little more than it gives: of ten thousand items, a page of fifty costs about one comparison each.
 */
class Ranked<T> {
  readonly #ranking: Ranking<T>
  readonly #limit: number
  /** How many are gathered before they are sorted, and those behind the limit let go. */
  readonly #enough: number
  readonly #kept: { readonly item: T; readonly key: Key }[] = []
  /** The last within the limit; undefined: there are fewer yet. */
  #last: { readonly item: T; readonly key: Key } | undefined

  constructor(ranking: Ranking<T>, limit: number) {
    this.#ranking = ranking
    this.#limit = limit
    this.#enough = 4 * limit + 100
  }

  offer(item: T): void {
    const key = this.#ranking.key(item)
    const last = this.#last
    if (last && this.#compare(item, key, last.item, last.key) >= 0) return
    this.#kept.push({ item, key })
    if (this.#kept.length < this.#enough) return
    this.#cut()
    this.#last = this.#kept.at(-1)
  }

  take(): readonly T[] {
    this.#cut()
    return this.#kept.map(({ item }) => item)
  }

  #cut(): void {
    this.#kept.sort((a, b) => this.#compare(a.item, a.key, b.item, b.key))
    if (this.#kept.length > this.#limit) this.#kept.length = this.#limit
  }

  #compare(a: T, aKey: Key, b: T, bKey: Key): number {
    const { name, descending } = this.#ranking
    if (aKey !== bKey) {
      if (aKey === null) return 1
      if (bKey === null) return -1
      return aKey < bKey === descending ? 1 : -1
    }
    const left = name(a)
    const right = name(b)
    if (left === right) return 0
    return left < right ? -1 : 1
  }
}

/** Describes each item only when it is come to. */
export const lazily = <T, D>(items: readonly T[], describe: (item: T) => D): Iterable<D> => ({
  *[Symbol.iterator]() {
    for (const item of items) yield describe(item)
  },
})

/** Tells whether a text has `q` in it, whatever the case; undefined: without a `q` everything has. */
export function textFinder(q: string | undefined): ((text: string) => boolean) | undefined {
  if (q === undefined || q === '') return undefined
  // Many times as fast as to lower the case of every name of ten thousand sessions.
  const pattern = new RegExp(q.replace(/[\\^$.*+?()[\]{}|/-]/g, '\\$&'), 'i')
  return (text) => pattern.test(text)
}
