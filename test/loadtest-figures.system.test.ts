import { readFileSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { RunResult, Second } from '../loadtest/result.ts'
import { startLoad } from './support/load-run.ts'
import { type ServiceProcesses, startServiceProcesses, whereIs } from './support/service-processes.ts'

/** The figures of a report beside those of the operating system for the same processes and time. */

const WORDS = ['steady', '--rooms', '10', '--members', '10', '--rate', '15', '--seconds', '9']
const GENERATOR = 'generator'
/** Of each other, at most: on a busy machine neither looks exactly when it says. */
const APART = 0.1
/** What the clock ticks of the system cannot tell apart, at each end. */
const TICKS_SECONDS = 0.02

interface Usage {
  readonly cpuSeconds: number
  /** The mean. */
  readonly rssBytes: number
}

describe.skipIf(process.platform !== 'linux')(
  'a report of a load test (needs /proc, which only Linux has)',
  () => {
    let service: ServiceProcesses
    let system: SystemFigures
    let report: RunResult
    let pids: Readonly<Record<string, number>>

    beforeAll(async () => {
      service = await startServiceProcesses(2)
      const run = await startLoad([...WORDS, ...whereIs(service)])
      const byAddress = service.metrics.map(({ name, url }) => [new URL(url).host, service.pids[name]!])
      pids = { ...Object.fromEntries(byAddress), [GENERATOR]: run.program.child.pid! }
      system = new SystemFigures(Object.values(pids))
      report = (await run.outcome).report()
      system.stop()
    })
    afterAll(() => service.close())

    /** The seconds in which all played, without the first. */
    const played = (): readonly Second[] => {
      const { at } = report.seconds_log.find(({ phase }) => phase === 'play')!
      return report.seconds_log.filter((second) => second.phase === 'play' && second.at > at)
    }
    const moment = (second: Second): number => Date.parse(report.started_at) + second.at * 1000

    const reported = (name: string): Usage => {
      const figures = played().map((second) =>
        name === GENERATOR ? second.generator : second.servers.find((server) => server.name.includes(name))!,
      )
      return {
        cpuSeconds: sum(figures.slice(1).map((each) => each.cpu_seconds)),
        rssBytes: mean(figures.map((each) => each.rss_bytes)),
      }
    }
    const measured = (name: string): Usage => {
      const [pid, moments] = [pids[name]!, played().map(moment)]
      return {
        cpuSeconds: system.cpuSeconds(pid, moments[0]!, moments.at(-1)!),
        rssBytes: mean(moments.map((at) => system.rssBytes(pid, at))),
      }
    }

    it('agrees with the system on the CPU seconds and the memory of every process', () => {
      const names = Object.keys(pids)
      expect(names).toHaveLength(5)
      for (const name of names) {
        const [told, true_] = [reported(name), measured(name)]
        const seen = `${name}: ${JSON.stringify({ told, true_ })}`
        expect(Math.abs(told.cpuSeconds - true_.cpuSeconds), seen).toBeLessThan(
          TICKS_SECONDS + APART * true_.cpuSeconds,
        )
        expect(Math.abs(told.rssBytes / true_.rssBytes - 1), seen).toBeLessThan(APART)
      }
    })

    it('is about enough work for that to mean something', () => {
      expect(played().length).toBeGreaterThanOrEqual(5)
      expect(measured(GENERATOR).cpuSeconds).toBeGreaterThan(0.5)
    })
  },
)

const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0)
const mean = (values: readonly number[]): number => sum(values) / values.length

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

/** Looks at processes all the time, to compare what they say of themselves. */
class SystemFigures {
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
