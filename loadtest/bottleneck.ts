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
    holds: ({ event_loop_utilisation: eventLoopUtilisation }) => eventLoopUtilisation > STRAIN.utilisation,
    value: ({ event_loop_utilisation: eventLoopUtilisation }) => eventLoopUtilisation,
    text: (worst) =>
      `a thread was up to ${percent(worst)} busy (more --threads or another machine would help)`,
  },
  {
    holds: ({ event_loop_delay_ms: eventLoopDelayMs }) => eventLoopDelayMs > STRAIN.delay_ms,
    value: ({ event_loop_delay_ms: eventLoopDelayMs }) => eventLoopDelayMs,
    text: (worst) => `timers fired up to ${Math.round(worst)} ms late (99th percentile of a second)`,
  },
  {
    holds: ({ late_ms: lateMs }) => lateMs > STRAIN.late_ms,
    value: ({ late_ms: lateMs }) => lateMs,
    text: (worst) => `messages left up to ${Math.round(worst)} ms after they were due`,
  },
  {
    holds: ({ cpu_seconds: cpuSeconds }, cores) => cpuSeconds > STRAIN.cpu_share * cores,
    value: ({ cpu_seconds: cpuSeconds }) => cpuSeconds,
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
