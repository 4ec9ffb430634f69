import { readFile } from 'node:fs/promises'

/** What the processors of the machine did since its start, in ticks of the kernel. */
export interface MachineTimes {
  /** Of all processes, the kernel's work and other guests of the machine included. */
  readonly busy: number
  readonly total: number
  /** Of this process and of its children that have ended. */
  readonly own: number
}

/** Undefined where the system does not tell (anything but Linux). */
export async function machineTimes(): Promise<MachineTimes | undefined> {
  try {
    return parseTimes(await readFile('/proc/stat', 'utf8'), await readFile('/proc/self/stat', 'utf8'))
  } catch {
    return undefined
  }
}

/** See proc(5): `stat` of the system, and `stat` of a process. */
export function parseTimes(system: string, process: string): MachineTimes {
  const [user = 0, nice = 0, kernel = 0, idle = 0, wait = 0, irq = 0, soft = 0, steal = 0] = (
    /^cpu +(.*)$/m.exec(system)?.[1] ?? ''
  )
    .split(' ')
    .map(Number)
  const busy = user + nice + kernel + irq + soft + steal
  // The name of a program, in parentheses, may contain anything; utime, stime, cutime and cstime are fields 14 to 17.
  const fields = process.slice(process.lastIndexOf(')') + 2).split(' ')
  const own = fields.slice(11, 15).reduce((sum, ticks) => sum + Number(ticks), 0)
  return { busy, total: busy + idle + wait, own }
}

/** The share of the machine that others took between two readings, 0–1; all children of this process have ended at both. */
export const shareOfOthers = (before: MachineTimes, after: MachineTimes): number =>
  Math.max(0, after.busy - before.busy - (after.own - before.own)) / (after.total - before.total)
