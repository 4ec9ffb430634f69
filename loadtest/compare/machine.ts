import { readFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'

/** How much of the machine others use meanwhile, by what Linux says in /proc; where there is none, no one is seen. */

/** /proc counts in hundredths of a second. */
const TICK_SECONDS = 0.01

const read = (path: string): string | undefined => {
  try {
    return readFileSync(path, 'utf8')
  } catch {
    return undefined
  }
}

/** CPU time of a process with all its threads, in seconds. */
export function cpuSeconds(pid: number): number {
  // What follows the name, which may hold anything but ends with the last bracket: utime and stime are fields 14 and 15.
  const fields = read(`/proc/${pid}/stat`)
    ?.replace(/^.*\) /s, '')
    .split(' ')
  return (Number(fields?.[11] ?? 0) + Number(fields?.[12] ?? 0)) * TICK_SECONDS
}

/** CPU time of all processes; interrupts are no one's, and the network's are mostly our own. */
function allCpuSeconds(): number {
  const [user = 0, nice = 0, system = 0] = (read('/proc/stat')?.match(/^cpu +(.*)/)?.[1] ?? '')
    .split(' ')
    .map(Number)
  return (user + nice + system) * TICK_SECONDS
}

/** Begins to watch; called again it says which share of all cores processes other than these have used since. */
export function watchOthers(pids: readonly number[]): () => number {
  const used = (): number => allCpuSeconds() - pids.reduce((sum, pid) => sum + cpuSeconds(pid), 0)
  const [start, before] = [performance.now(), used()]
  return () => {
    const seconds = (performance.now() - start) / 1_000
    return Math.max(0, used() - before) / (seconds * availableParallelism())
  }
}
