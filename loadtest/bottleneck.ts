import { type GeneratorSecond, lengthOf, type Second } from './result.ts'

/** From where on the generator may distort what it measures. */
export const STRAIN = { utilisation: 0.85, delay_ms: 20, late_ms: 50, cpu_share: 0.95 } as const

/** A single second of garbage collection or compiling is no reason. */
const SECONDS = 2

interface Reason {
  readonly holds: (second: GeneratorSecond, cores: number) => boolean
  readonly value: (second: GeneratorSecond) => number
  readonly text: (worst: number, cores: number) => string
}

const percent = (share: number): string => `${Math.round(share * 100)} %`

const REASONS: readonly Reason[] = [
  {
    holds: (second) => second.event_loop_utilisation > STRAIN.utilisation,
    value: (second) => second.event_loop_utilisation,
    text: (worst) =>
      `a thread was up to ${percent(worst)} busy (more --threads or another machine would help)`,
  },
  {
    holds: (second) => second.event_loop_delay_ms > STRAIN.delay_ms,
    value: (second) => second.event_loop_delay_ms,
    text: (worst) => `timers fired up to ${Math.round(worst)} ms late (99th percentile of a second)`,
  },
  {
    holds: (second) => second.late_ms > STRAIN.late_ms,
    value: (second) => second.late_ms,
    text: (worst) => `messages left up to ${Math.round(worst)} ms after they were due`,
  },
  {
    holds: (second, cores) => second.cpu_seconds > STRAIN.cpu_share * cores,
    value: (second) => second.cpu_seconds,
    text: (worst, cores) => `it used ${worst.toFixed(1)} of the ${cores} cores of this machine`,
  },
]

/** Whether there was any client whose times could be distorted: while the threads start, being busy is no harm. */
export const wasMeasured = ({ online, counts }: Second): boolean =>
  online > 0 || Object.values(counts).some((count) => count > 0)

/** Why the generator, not the service, may have been the limit; empty: it was not. */
export function bottlenecks(log: readonly Second[], cores: number): string[] {
  // A second that was told late is longer than one.
  const seconds = log.flatMap((second, index) => {
    const { generator } = second
    const cpuSeconds = generator.cpu_seconds / lengthOf(log, index)
    return wasMeasured(second) ? [{ ...generator, cpu_seconds: cpuSeconds }] : []
  })
  return REASONS.flatMap(({ holds, value, text }) => {
    const strained = seconds.filter((second) => holds(second, cores))
    if (strained.length < SECONDS) return []
    return [
      `${text(Math.max(...strained.map(value)), cores)}, in ${strained.length} of ${seconds.length} seconds`,
    ]
  })
}
