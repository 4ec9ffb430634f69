import { type GeneratorSecond, lengthOf, type Second } from './result.ts'

/** How the generator may distort what it measures. */
interface Strain {
  readonly value: (second: GeneratorSecond) => number
  /** From where on it may. */
  readonly most: (cores: number) => number
  readonly text: (value: number, cores: number) => string
}

const percent = (share: number): string => `${Math.round(share * 100)} %`

const STRAINS: readonly Strain[] = [
  {
    value: (second) => second.event_loop_utilisation,
    most: () => 0.85,
    text: (value) =>
      `a thread was up to ${percent(value)} busy (more --threads or another machine would help)`,
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

/** A single second of garbage collection or compiling is no reason. */
const SECONDS = 2

/** Why the generator, not the service, may have been the limit; empty: it was not. */
export function bottlenecks(log: readonly Second[], cores: number): string[] {
  const seconds = log.flatMap((second, index) => {
    const generator = measuring(second, lengthOf(log, index))
    return generator === undefined ? [] : [generator]
  })
  return STRAINS.flatMap(({ value, most, text }) => {
    const strained = seconds.map(value).filter((each) => each > most(cores))
    if (strained.length < SECONDS) return []
    return [`${text(Math.max(...strained), cores)}, in ${strained.length} of ${seconds.length} seconds`]
  })
}

/** The same of one second, which was so many seconds long; undefined: it kept up. */
export function bottleneckOf(second: Second, length: number, cores: number): string | undefined {
  const generator = measuring(second, length)
  const strain = STRAINS.findLast(({ value, most }) => generator && value(generator) > most(cores))
  return generator && strain?.text(strain.value(generator), cores)
}

/**
 * The generator in a second, with its CPU time of one second; undefined: there was no client whose times could be distorted. While the
 * threads start, being busy is no harm.
 */
function measuring({ online, counts, generator }: Second, length: number): GeneratorSecond | undefined {
  const measured = online > 0 || Object.values(counts).some((count) => count > 0)
  return measured ? { ...generator, cpu_seconds: generator.cpu_seconds / length } : undefined
}
