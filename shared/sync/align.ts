/**
 * A range in which two arrays differ: `previous[previous … previousEnd)` became `next[next … nextEnd)`. Its elements correspond in order
 * from the start. The remaining elements of the longer side were removed or inserted.
 */
export interface Gap {
  readonly previous: number
  readonly previousEnd: number
  readonly next: number
  readonly nextEnd: number
}

/**
 * Returns the ranges in which two arrays differ, in ascending order. Elements correspond if they are identical (or equal primitives):
 * unchanged elements are still the same objects. Two readings are compared, and the cheaper is used: one splice with elements changed in
 * place around it, or any number of splices between the elements that kept their order.
 */
export function gaps(previous: readonly unknown[], next: readonly unknown[]): Gap[] {
  let start = 0
  let previousEnd = previous.length
  let nextEnd = next.length
  const shorter = Math.min(previousEnd, nextEnd)
  while (start < shorter && previous[start] === next[start]) start++
  while (previousEnd > start && nextEnd > start && previous[previousEnd - 1] === next[nextEnd - 1]) {
    previousEnd--
    nextEnd--
  }
  const middle = { previous: start, previousEnd, next: start, nextEnd }
  if (start === previousEnd || start === nextEnd)
    return start === previousEnd && start === nextEnd ? [] : [middle]

  const single = oneSplice(previous, next, middle)
  if (cost(single, previous, next) <= 1) return single
  const several = betweenKept(previous, next, middle)
  return cost(several, previous, next) < cost(single, previous, next) ? several : single
}

/** Number of elements that a reading has to write. */
function cost(found: readonly Gap[], previous: readonly unknown[], next: readonly unknown[]): number {
  let sum = 0
  for (const gap of found) {
    const old = gap.previousEnd - gap.previous
    const young = gap.nextEnd - gap.next
    sum += Math.max(old, young)
    for (let i = Math.min(old, young) - 1; i >= 0; i--)
      if (previous[gap.previous + i] === next[gap.next + i]) sum--
  }
  return sum
}

/** The reading with one splice, at the position where most elements before and after it are unchanged. */
function oneSplice(previous: readonly unknown[], next: readonly unknown[], middle: Gap): Gap[] {
  const old = middle.previousEnd - middle.previous
  const young = middle.nextEnd - middle.next
  if (old === young) return [middle]
  const pairs = Math.min(old, young)
  const same = (i: number, j: number) => previous[middle.previous + i] === next[middle.next + j]
  // Before the splice, element i corresponds to i. After it, the elements correspond counted from the end.
  let kept = 0
  for (let i = 0; i < pairs; i++) if (same(i + old - pairs, i + young - pairs)) kept++
  let best = kept
  let split = 0
  for (let i = 0; i < pairs; i++) {
    if (same(i + old - pairs, i + young - pairs)) kept--
    if (same(i, i)) kept++
    // On a tie the splice is at the end, where it moves no element.
    if (kept >= best) {
      best = kept
      split = i + 1
    }
  }
  const previousSplit = middle.previous + split + old - pairs
  const nextSplit = middle.next + split + young - pairs
  const before = { ...middle, previousEnd: previousSplit, nextEnd: nextSplit }
  const behind = { ...middle, previous: previousSplit, next: nextSplit }
  return split < pairs ? [before, behind] : [before]
}

/** The reading with a gap between each two neighbours in the longest run of elements that kept their order. */
function betweenKept(previous: readonly unknown[], next: readonly unknown[], middle: Gap): Gap[] {
  const found: Gap[] = []
  let gap = middle
  for (const [i, j] of longestCommonRun(previous, next, middle)) {
    if (i > gap.previous || j > gap.next) found.push({ ...gap, previousEnd: i, nextEnd: j })
    gap = { ...middle, previous: i + 1, next: j + 1 }
  }
  if (gap.previous < gap.previousEnd || gap.next < gap.nextEnd) found.push(gap)
  return found
}

/**
 * Returns the index pairs (i, j) with `previous[i] === next[j]`, ascending in both. The n-th occurrence of a value matches its n-th
 * occurrence on the other side. Then the longest increasing subsequence is selected (patience sorting; C. Schensted, 1961): O(n log n).
 */
function longestCommonRun(
  previous: readonly unknown[],
  next: readonly unknown[],
  middle: Gap,
): [number, number][] {
  const first = new Map<unknown, number>()
  const following = new Map<number, number>()
  for (let i = middle.previousEnd - 1; i >= middle.previous; i--) {
    const later = first.get(previous[i])
    if (later !== undefined) following.set(i, later)
    first.set(previous[i], i)
  }
  const matches: { i: number; j: number; before: number }[] = []
  /** `tails[n]`: of the matches that end a run of length n + 1, the one with the smallest i. */
  const tails: number[] = []
  for (let j = middle.next; j < middle.nextEnd; j++) {
    const i = first.get(next[j])
    if (i === undefined) continue
    const later = following.get(i)
    if (later === undefined) first.delete(next[j])
    else first.set(next[j], later)
    let low = 0
    let high = tails.length
    while (low < high) {
      const half = (low + high) >> 1
      if (matches[tails[half]!]!.i < i) low = half + 1
      else high = half
    }
    matches.push({ i, j, before: low > 0 ? tails[low - 1]! : -1 })
    tails[low] = matches.length - 1
  }
  const run: [number, number][] = []
  for (let at = tails.at(-1) ?? -1; at >= 0; at = matches[at]!.before)
    run.push([matches[at]!.i, matches[at]!.j])
  return run.reverse()
}
