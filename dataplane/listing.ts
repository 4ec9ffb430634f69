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
  readonly fits: (item: T) => boolean
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
  const fitting: T[] = []
  for (const item of items) if (fits(item)) fitting.push(item)
  const chosen = ranking ? firstOf(fitting, limit, ranking) : fitting.slice(0, limit)
  return { chosen, found: fitting.length }
}

/** An item with its key, which is asked for once. */
interface Ranked<T> {
  readonly item: T
  readonly key: string | number | null
}

/** Sorts little more than it gives: of ten thousand items, a page of fifty costs about one comparison each. */
function firstOf<T>(items: readonly T[], limit: number, ranking: Ranking<T>): T[] {
  if (limit === 0) return []
  const compare = comparison(ranking)
  const enough = 4 * limit + 100
  const kept: Ranked<T>[] = []
  let last: Ranked<T> | undefined
  for (const item of items) {
    const ranked = { item, key: ranking.key(item) }
    if (last && compare(ranked, last) >= 0) continue
    kept.push(ranked)
    if (kept.length < enough) continue
    kept.sort(compare)
    kept.length = limit
    last = kept.at(-1)
  }
  return kept
    .sort(compare)
    .slice(0, limit)
    .map(({ item }) => item)
}

function comparison<T>({ name, descending }: Ranking<T>): (a: Ranked<T>, b: Ranked<T>) => number {
  const way = descending ? -1 : 1
  return (a, b) => {
    if (a.key !== b.key) {
      if (a.key === null) return 1
      if (b.key === null) return -1
      return a.key < b.key ? -way : way
    }
    const left = name(a.item)
    const right = name(b.item)
    return left < right ? -1 : Number(left > right)
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
