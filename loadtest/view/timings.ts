import type { Percentiles, Timing } from '../result.ts'

/** What is timed in a run, and in which order it is shown. */
export const TIMINGS: readonly { readonly name: Timing; readonly title: string; readonly meaning: string }[] =
  [
    { name: 'rtt', title: 'Round trip', meaning: 'from when a reliable message was due to its ack' },
    { name: 'connect', title: 'Connect', meaning: 'from the wish to connect to the welcome' },
    { name: 'join', title: 'Join', meaning: 'from the wish to join to the first snapshot' },
    { name: 'resume', title: 'Resume', meaning: 'from the loss of a connection to the session going on' },
    { name: 'pause', title: 'Pause', meaning: 'the longest time a player waited for an effect of its own' },
  ]

/** The timings of which there are values, in the order they are shown. */
export function timed(
  timings: Readonly<Partial<Record<Timing, Percentiles>>>,
): { readonly name: Timing; readonly values: Percentiles }[] {
  return TIMINGS.flatMap(({ name }) => {
    const values = timings[name]
    return values !== undefined && values.count > 0 ? [{ name, values }] : []
  })
}
