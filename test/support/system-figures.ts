import { readFileSync } from 'node:fs'

/** What Linux says of a process at a moment. */
interface SystemSample {
  /** Milliseconds since 1970. */
  readonly at: number
  /** Since its start, in user and kernel mode. */
  readonly cpuSeconds: number
  readonly rssBytes: number
}

const TICKS_PER_SECOND = 100
const PAGE_BYTES = 4096
const LOOK_MS = 50

/** Whether the system tells of its processes in `/proc`. */
export const hasProc = (): boolean => process.platform === 'linux'

/** Looks at processes all the time, to compare what they say of themselves. */
export class SystemFigures {
  readonly #samples = new Map<number, SystemSample[]>()
  readonly #timer: NodeJS.Timeout

  constructor(pids: readonly number[]) {
    for (const pid of pids) this.#samples.set(pid, [])
    this.#timer = setInterval(() => this.#look(), LOOK_MS)
  }

  /** CPU seconds that a process used between two moments, in milliseconds since 1970. */
  cpuSeconds(pid: number, from: number, to: number): number {
    return this.#at(pid, to).cpuSeconds - this.#at(pid, from).cpuSeconds
  }

  /** Resident memory at a moment. */
  rssBytes(pid: number, at: number): number {
    return this.#at(pid, at).rssBytes
  }

  stop(): void {
    clearInterval(this.#timer)
  }

  /** Between the samples around a moment, in proportion. */
  #at(pid: number, at: number): SystemSample {
    const samples = this.#samples.get(pid) ?? []
    const after = samples.findIndex((sample) => sample.at >= at)
    const [before, next] = [samples[after - 1], samples[after]]
    if (!before || !next)
      throw new Error(`process ${pid} was not looked at around ${new Date(at).toISOString()}`)
    const part = (at - before.at) / (next.at - before.at)
    const between = (a: number, b: number): number => a + (b - a) * part
    return {
      at,
      cpuSeconds: between(before.cpuSeconds, next.cpuSeconds),
      rssBytes: between(before.rssBytes, next.rssBytes),
    }
  }

  #look(): void {
    for (const [pid, samples] of this.#samples) {
      const sample = readStat(pid)
      if (sample) samples.push(sample)
    }
  }
}

/** `/proc/<pid>/stat`: behind the name, which may hold anything, are utime, stime and rss; undefined: there is no such process. */
function readStat(pid: number): SystemSample | undefined {
  let text: string
  try {
    text = readFileSync(`/proc/${pid}/stat`, 'utf8')
  } catch {
    return undefined
  }
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
  const [utime, stime, rss] = [11, 12, 21].map((index) => Number(fields[index]))
  return {
    at: Date.now(),
    cpuSeconds: (utime! + stime!) / TICKS_PER_SECOND,
    rssBytes: rss! * PAGE_BYTES,
  }
}
