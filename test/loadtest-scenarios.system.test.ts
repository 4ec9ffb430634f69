import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { RunResult } from '../loadtest/result.ts'
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
})

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
