import { readFileSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { RunResult, Second } from '../loadtest/result.ts'
import { startLoad } from './support/load-run.ts'
import { type ServiceProcesses, startServiceProcesses, whereIs } from './support/service-processes.ts'

/** Every scenario, short, against real processes: two nodes, two control processes and a load balancer. */

const PLAYERS = ['--clients', '24', '--rooms', '4', '--rate', '5', '--ramp', '100', '--threads', '1']

/** A member's tenth message is the first with an event: some runs end before. */
const NO_EVENTS = 'there were no events to players'

/** The report of a run that found nothing wrong. */
async function passing(words: readonly string[], env?: Record<string, string>): Promise<RunResult> {
  const { exit_code: exitCode, output, report } = await (await startLoad(words, env)).outcome
  const result = report()
  const { passed, failures, checks } = result
  expect(
    checks.filter(({ violations, note }) => violations !== 0 && note !== NO_EVENTS),
    output,
  ).toEqual([])
  expect({ passed, failures, exit_code: exitCode }, output).toEqual({
    passed: true,
    failures: [],
    exit_code: 0,
  })
  return result
}

const figure = ({ figures }: RunResult, name: string): number | undefined =>
  figures.find((each) => each.name === name)?.value

const told = ({ incidents }: RunResult): string[] => incidents.map(({ text }) => text)

describe('against a service that runs', () => {
  let service: ServiceProcesses
  beforeAll(async () => {
    service = await startServiceProcesses(2)
  })
  afterAll(() => service.close())

  it('resume-storm cuts all sockets, and every session goes on', async () => {
    const storms = ['--storms', '2', '--calm', '0.5']
    const report = await passing(['resume-storm', ...PLAYERS, ...storms, ...whereIs(service)])
    expect(report.totals.resumes).toBe(2 * 24)
    expect(report.timings.resume?.count).toBe(2 * 24)
    expect(figure(report, 'worst pause of a player')).toBeGreaterThan(0)
    expect(told(report).filter((text) => text === 'all sockets are cut')).toHaveLength(2)
  })

  it('churn moves players from room to room', async () => {
    const moves = ['--moves', '25', '--seconds', '2']
    const { totals } = await passing(['churn', ...PLAYERS, ...moves, ...whereIs(service)])
    expect(totals.leaves).toBeGreaterThan(30)
    expect(totals.joins).toBe(24 + totals.leaves)
  })

  it('big-room shows every update to all', async () => {
    const size = ['--spectators', '60', '--players', '3', '--rate', '5', '--seconds', '2', '--ramp', '100']
    const { totals, seconds_log: secondsLog } = await passing(['big-room', ...size, ...whereIs(service)])
    expect(totals.updates).toBeGreaterThan(totals.sends * 60)
    const served = secondsLog.find(({ phase }) => phase === 'play')!.servers
    const sessions = served.filter((server) => server.sessions > 0)
    expect(sessions).toHaveLength(2)
    expect(sessions.reduce((sum, server) => sum + server.sessions, 0)).toBe(63)
  })

  it('slow-consumers lets clients stop reading, and they see the same in the end', async () => {
    const slow = ['--share', '1', '--seconds', '2.5', '--calm', '1', '--bytes', '8000']
    const report = await passing(['slow-consumers', ...PLAYERS, ...slow, ...whereIs(service)])
    expect(told(report)).toEqual(expect.arrayContaining(['100 % stop reading', 'all read again']))
    const silent = report.seconds_log.filter(({ phase }) => phase === 'some do not')
    expect(silent.map(({ counts }) => counts.sends)).toContain(0)
    expect(figure(report, 'round trip p99, all read again')).toBeGreaterThan(0)
  })

  it('revoke closes the sessions of a key within a second, and no other', async () => {
    const revoked = ['--revoked', '20', '--calm', '0.5']
    const report = await passing(['revoke', ...PLAYERS, ...revoked, ...whereIs(service)])
    expect(report.checks.find(({ name }) => name === 'revocation')?.note).toBe('20 of 20 sessions closed')
    expect(figure(report, 'slowest close after the revocation')).toBeLessThan(1000)
    expect(report.seconds_log.at(-1)?.online).toBe(24)
  })

  it.skipIf(process.platform !== 'linux')(
    'tells the CPU time and the memory that the system knows of each process (needs /proc, which only Linux has)',
    async () => {
      const size = ['--rooms', '10', '--members', '10', '--rate', '15', '--seconds', '9']
      const { program, outcome } = await startLoad(['steady', ...size, ...whereIs(service)])
      const pids = [program.child.pid!, ...service.metrics.map(({ name }) => service.pids[name]!)]
      const look = () => pids.map(usageOf)
      await program.said(/phase play/)
      const before = look()
      await program.said(/phase settle/)
      const after = look()

      const played = (await outcome).report().seconds_log.filter(({ phase }) => phase === 'play')
      expect(played.length).toBeGreaterThanOrEqual(8)
      const reported: ((second: Second) => { readonly cpu_seconds: number; readonly rss_bytes: number })[] = [
        ({ generator }) => generator,
        ...service.metrics.map(
          ({ url }) =>
            ({ servers }: Second) =>
              servers.find(({ name }) => url.includes(name))!,
        ),
      ]
      reported.forEach((figures, i) => {
        const used = after[i]!.cpuSeconds - before[i]!.cpuSeconds
        const told = played.reduce((sum, second) => sum + figures(second).cpu_seconds, 0)
        // Of seconds that begin and end somewhat elsewhere, on a busy machine.
        expect(Math.abs(told - used), `${told} s of ${used} s`).toBeLessThan(0.1 + 0.2 * used)
        expect(Math.abs(figures(played.at(-1)!).rss_bytes / after[i]!.rssBytes - 1)).toBeLessThan(0.15)
      })
      expect(after[0]!.cpuSeconds - before[0]!.cpuSeconds).toBeGreaterThan(0.5)
    },
  )
})

/** `/proc/<pid>/stat`: behind the name, which may hold anything, are utime, stime and rss. */
function usageOf(pid: number): { readonly cpuSeconds: number; readonly rssBytes: number } {
  const text = readFileSync(`/proc/${pid}/stat`, 'utf8')
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
  return { cpuSeconds: (Number(fields[11]) + Number(fields[12])) / 100, rssBytes: Number(fields[21]) * 4096 }
}

describe('with processes of its own', () => {
  const local = ['--local', '2', ...PLAYERS, '--calm', '0.5']
  const env = { DRAIN_SECONDS: '2' }

  it('rolling-restart ends and starts each node, and no one loses anything', async () => {
    const report = await passing(['rolling-restart', ...local], env)
    expect(told(report)).toEqual(
      expect.arrayContaining(['node-1 is told to end', 'node-2 is told to end', 'node-2 serves again']),
    )
    expect(figure(report, 'worst pause of a player')).toBeGreaterThan(0)
    expect(report.totals.resumes).toBeGreaterThanOrEqual(24)
  })

  it('node-kill ends each node at once, and its rooms go on', async () => {
    const report = await passing(['node-kill', ...local], env)
    expect(told(report)).toEqual(expect.arrayContaining(['node-1 is killed', 'node-2 is killed']))
    expect(figure(report, 'worst pause of a player')).toBeGreaterThan(0)
  })
})
