import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { RunResult, Second } from '../loadtest/result.ts'
import { startLoad } from './support/load-run.ts'
import { type ServiceProcesses, startServiceProcesses, whereIs } from './support/service-processes.ts'
import { hasProc, SystemFigures } from './support/system-figures.ts'

/** The figures of a report beside those of the operating system for the same processes and time. */

const WORDS = ['steady', '--rooms', '10', '--members', '10', '--rate', '15', '--seconds', '9']
const GENERATOR = 'generator'
/** Of each other, at most. */
const APART = 0.05
/** What the clock ticks of the system cannot tell apart, at each end. */
const TICKS_SECONDS = 0.02

interface Usage {
  readonly cpuSeconds: number
  /** The mean. */
  readonly rssBytes: number
}

describe.skipIf(!hasProc())('a report of a load test (needs /proc, which only Linux has)', () => {
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
})

const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0)
const mean = (values: readonly number[]): number => sum(values) / values.length
