import { type GeneratorSecond, lengthOf, type Second } from './result.ts'

/** A way in which the generator distorts its measurements. */
interface Strain {
  readonly value: (second: GeneratorSecond) => number
  readonly most: (cores: number) => number
  readonly text: (value: number, cores: number) => string
}

const STRAINS: readonly Strain[] = [
  {
    value: (second) => second.event_loop_utilisation,
    most: () => 0.85,
    text: (value) =>
      `a thread was up to ${Math.round(100 * value)} % busy (more --threads or another machine would help)`,
  },
  {
    value: (second) => second.event_loop_delay_ms,
    most: () => 20,
    text: (value) => `timers fired up to ${Math.round(value)} ms late (99th percentile of a second)`,
  },
  {
    value: (second) => second.late_ms,
    most: () => 50,
    text: (value) => `messages left up to ${Math.round(value)} ms after they were due`,
  },
  {
    value: (second) => second.cpu_seconds,
    most: (cores) => 0.95 * cores,
    text: (value, cores) => `it used ${value.toFixed(1)} of the ${cores} cores of this machine`,
  },
]

/** A single second may be garbage collection or compilation. */
const SECONDS = 2

/** Why the generator may have been the limit, instead of the service; empty: it was not. */
export function bottlenecks(log: readonly Second[], cores: number): string[] {
  // Without clients there are no times to distort: while threads start, they may be busy.
  const measured = log.flatMap(({ online, counts, generator }, i) =>
    online > 0 || Object.values(counts).some((count) => count > 0)
      ? [{ ...generator, cpu_seconds: generator.cpu_seconds / lengthOf(log, i) }]
      : [],
  )
  return STRAINS.flatMap(({ value, most, text }) => {
    const strained = measured.map(value).filter((each) => each > most(cores))
    if (strained.length < SECONDS) return []
    return [`${text(Math.max(...strained), cores)}, in ${strained.length} of ${measured.length} seconds`]
  })
}
