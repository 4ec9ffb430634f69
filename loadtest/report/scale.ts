/** Where a value stands on the upright axis of a chart, and which values are marked there. */
export interface Scale {
  /** 0 at the bottom, 1 at the top. */
  at(value: number): number
  readonly ticks: readonly number[]
}

const STEPS = [1, 2, 2.5, 5, 10]
/** Three to a power of ten. */
const MOST_LOG_TICKS = 8

/** From 0 to a round number above `most`. `base`: of what round numbers are made, 10 or (for bytes) 1024. */
export function linear(most: number, base: 10 | 1024 = 10): Scale {
  const top = most > 0 ? most : 1
  const unit = base === 10 ? 1 : 1024 ** Math.max(0, Math.floor(Math.log(top) / Math.log(1024)))
  const rough = top / unit / 4
  const power = 10 ** Math.floor(Math.log10(rough))
  const step = power * STEPS.find((size) => size * power >= rough * 0.999)! * unit
  const count = Math.max(1, Math.ceil(top / step - 0.001))
  const end = count * step
  return {
    at: (value) => clamp(value / end),
    ticks: Array.from({ length: count + 1 }, (_, i) => i * step),
  }
}

/**
 * Logarithmic, from a 1, 2 or 5 of some power of ten below `least` to one above `most`; over many powers of ten, from one of them to
 * another. Values of 0 stand at the bottom.
 */
export function logarithmic(least: number, most: number): Scale {
  const low = rounded(least > 0 ? least : 0.1, 'down')
  const high = Math.max(rounded(most, 'up'), rounded(low * 1.01, 'up'))
  const decades = Math.log10(high / low) > MOST_LOG_TICKS / 3
  return decades
    ? between(
        10 ** Math.floor(Math.log10(low) + 1e-9),
        10 ** Math.ceil(Math.log10(high) - 1e-9),
        (tick) => tick * 10,
      )
    : between(low, high, (tick) => rounded(tick * 1.01, 'up'))
}

function between(low: number, high: number, next: (tick: number) => number): Scale {
  const ticks: number[] = []
  for (let tick = low; tick <= high * 1.001; tick = next(tick)) ticks.push(tick)
  const span = Math.log(high / low)
  return { at: (value) => (value <= low ? 0 : clamp(Math.log(value / low) / span)), ticks }
}

/** The next of 1, 2, 5 × 10ⁿ. */
function rounded(value: number, direction: 'up' | 'down'): number {
  const power = 10 ** Math.floor(Math.log10(value) + 1e-9)
  const steps = [1, 2, 5, 10].map((size) => Number((size * power).toPrecision(6)))
  return direction === 'up'
    ? steps.find((step) => step >= value * 0.999_999)!
    : steps.findLast((step) => step <= value * 1.000_001)!
}

const clamp = (share: number): number => Math.min(1, Math.max(0, share))
