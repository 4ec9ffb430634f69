import { readFileSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { ControlIssuer } from '../loadtest/issuer.ts'
import { LoadTest, type Target } from '../loadtest/loadtest.ts'
import { LocalService } from '../loadtest/local.ts'
import { parseRun } from '../loadtest/options.ts'
import type { RunResult, Second } from '../loadtest/result.ts'
import { SCENARIOS } from '../loadtest/scenarios/index.ts'
import { systemClock } from '../shared/clock.ts'

/** A member's tenth message is the first with an event. Some runs end before. */
const NO_EVENTS = 'there were no events to players'

let service: LocalService
beforeAll(async () => {
  service = await LocalService.start({
    nodes: 2,
    env: { ...process.env, DRAIN_SECONDS: '2' },
    tell: () => undefined,
  })
}, 120_000)
afterAll(async () => {
  await service.cluster.close()
  await rm(service.cluster.folder, { recursive: true, force: true, maxRetries: 3 })
})

/** Runs a scenario, and expects no violations. `own`: it may end processes of the service. `plays` false: it plays no rooms with checks. */
async function passing(
  words: string,
  { own = false, plays = true, phase = (_name: string) => {} } = {},
): Promise<RunResult> {
  const request = parseRun([...words.split(' '), ...(own ? ['--local', '2'] : [])], SCENARIOS, {}, 1)
  if (request.kind !== 'run') throw new Error(JSON.stringify(request))
  const { controlUrl, secrets } = service.cluster
  const target: Target = {
    issuer: new ControlIssuer({ controlUrl, controlToken: secrets.operatorToken }),
    wsUrls: service.wsUrls,
    metrics: service.metrics,
    local: own ? service : undefined,
    description: service.describe,
  }
  const result = await new LoadTest({
    options: request.options,
    target,
    view: { phase, update: () => undefined, incident: () => undefined },
    clock: systemClock,
    machine: { cores: 2, node: process.version, roomful: 'test' },
    signal: new AbortController().signal,
  }).run()
  const { passed, failure, failures, checks } = result
  const isUnchecked = (note: string) => (plays ? note === NO_EVENTS : note.startsWith('there were no '))
  expect(checks.filter(({ violations, note }) => violations !== 0 && !isUnchecked(note))).toEqual([])
  expect({ passed, failure, failures }).toEqual({ passed: true, failure: undefined, failures: [] })
  return result
}

const CLIENTS = 12
const PLAYERS = `--clients ${CLIENTS} --rooms 3 --rate 5 --ramp 100`

const figure = ({ figures }: RunResult, name: string): number | undefined =>
  figures.find((each) => each.name === name)?.value
const incidentsOf = ({ incidents }: RunResult): string[] => incidents.map(({ text }) => text)

describe.concurrent('a scenario against a shared service', () => {
  it('resume-storm cuts all sockets, and every session resumes', async () => {
    const report = await passing(`resume-storm ${PLAYERS} --storms 2 --calm 0.5`)
    expect(report.totals.resumes).toBe(2 * CLIENTS)
    expect(report.timings.resume?.count).toBe(2 * CLIENTS)
    expect(figure(report, 'worst pause of a player')).toBeGreaterThan(0)
    expect(incidentsOf(report).filter((text) => text === 'all sockets are cut')).toHaveLength(2)
  })

  it('churn moves players from room to room', async () => {
    const { totals } = await passing(`churn ${PLAYERS} --moves 25 --seconds 4`)
    // 100 on a fast machine.
    expect(totals.leaves).toBeGreaterThan(0)
    expect(totals.joins).toBe(CLIENTS + totals.leaves)
  })

  it('big-room delivers every update to all clients, through both nodes', async () => {
    const { totals, seconds_log: log } = await passing(
      'big-room --spectators 30 --players 3 --rate 5 --seconds 2 --ramp 100',
    )
    // The checks of the run compare the updates of all clients. A late node combines several changes in one update.
    expect(totals.sends).toBeGreaterThan(0)
    expect(totals.updates).toBeGreaterThan(33)
    const served = log.find(({ phase }) => phase === 'play')!.servers
    expect(served.filter((server) => server.sessions > 0)).toHaveLength(2)
  })

  it('slow-consumers stops reading for a while, and all clients have the same state at the end', async () => {
    const report = await passing(`slow-consumers ${PLAYERS} --share 1 --seconds 2.5 --calm 1 --bytes 8000`)
    expect(incidentsOf(report)).toEqual(expect.arrayContaining(['100 % stop reading', 'all read again']))
    const silent = report.seconds_log.filter(({ phase }) => phase === 'some do not')
    expect(silent.map(({ counts }) => counts.sends)).toContain(0)
    expect(figure(report, 'round trip p99, all read again')).toBeGreaterThan(0)
  })
})

describe('a scenario that runs alone', () => {
  it('revoke closes the sessions of a key, and no others', async () => {
    const report = await passing(`revoke ${PLAYERS} --revoked 10 --calm 0.5`)
    expect(report.checks.find(({ name }) => name === 'revocation')?.note).toBe('10 of 10 sessions closed')
    expect(figure(report, 'slowest close after the revocation')).toBeGreaterThan(0)
    expect(report.seconds_log.at(-1)?.online).toBe(CLIENTS)
  })

  it.skipIf(process.platform !== 'linux')(
    'steady reports the CPU time and the memory of each process as the system does (needs /proc of Linux)',
    async () => {
      const names = service.metrics.map(({ name }) => name)
      const pids = names.map((name) => service.cluster.child(name).pid!)
      let before: ReturnType<typeof usageOf>[] = []
      let after: ReturnType<typeof usageOf>[] = []
      const { seconds_log: log } = await passing('steady --rooms 4 --members 5 --rate 15 --seconds 3', {
        phase: (name) => {
          if (name === 'play') before = pids.map(usageOf)
          if (name === 'answers') after = pids.map(usageOf)
        },
      })
      const played = log.filter(({ phase }) => phase === 'play')
      expect(played.length).toBeGreaterThanOrEqual(2)
      names.forEach((name, i) => {
        const figures = ({ servers }: Second) => servers.find((server) => server.name === name)!
        const used = after[i]!.cpuSeconds - before[i]!.cpuSeconds
        const reported = played.reduce((sum, second) => sum + figures(second).cpu_seconds, 0)
        // The seconds of the report start and end at other times than this measurement.
        expect(Math.abs(reported - used), `${reported} s of ${used} s`).toBeLessThan(0.2 + 0.25 * used)
        expect(Math.abs(figures(played.at(-1)!).rss_bytes / after[i]!.rssBytes - 1)).toBeLessThan(0.15)
      })
    },
  )

  it('lobby lists rooms, and places players that join at the same time', async () => {
    const sizes = '--rooms 60 --maps 5 --watchers 10 --burst 20 --bursts 1 --seconds 1 --calm 4'
    const { figures, checks } = await passing(`lobby ${sizes}`, { own: true, plays: false })
    expect(figures.find(({ name }) => name === 'rooms of a burst')?.value).toBeGreaterThanOrEqual(5)
    expect(checks.find(({ name }) => name === 'ended rooms in lists')?.note).not.toBe('0 lists')
  })

  it('calls sends calls and requests to rooms, which apply each once, and the same calls through proxies', async () => {
    const sizes = '--projects 2 --rooms 3 --rate 15 --seconds 0.5'
    const { figures, checks } = await passing(`calls ${sizes}`, { own: true, plays: false })
    // 15 in the warm-up, and 15 in the measurement.
    expect(checks.find(({ name }) => name === 'calls: effects')?.note).toBe('30 answers of 6 rooms')
    const proxies = figures.filter(({ name }) => name.startsWith('CPU of two '))
    expect(proxies).toHaveLength(2)
    for (const { name, value } of proxies) expect(value, name).toBeGreaterThan(0)
  })

  it('bans measures handshakes and the start of control, without bans and with them', async () => {
    const { figures } = await passing('bans --bans 50 --per-second 5 --seconds 1 --runs 1', {
      own: true,
      plays: false,
    })
    expect(figures).toHaveLength(4)
    for (const { name, value } of figures) expect(value, name).toBeGreaterThan(0)
  })

  it('matchmaking matches the tickets that fit, and keeps the others', async () => {
    const sizes = '--waiting 30 --cancelled 10 --pairs 5 --rate 10 --seconds 0.5 --calm 0.5'
    const { figures, checks } = await passing(`matchmaking ${sizes}`, { own: true, plays: false })
    const times = figures.flatMap(({ samples }) => samples?.count ?? [])
    expect(times).toEqual([5, 5])
    expect(checks.find(({ name }) => name === 'lost tickets')?.note).toBe('20 matched players')
  })

  it('rolling-restart drains and starts each node, and no player loses a message', async () => {
    const report = await passing(`rolling-restart ${PLAYERS} --calm 0.5`, { own: true })
    expect(incidentsOf(report)).toEqual(
      expect.arrayContaining(['node-1 drains', 'node-2 drains', 'node-2 serves again']),
    )
    expect(figure(report, 'worst pause of a player')).toBeGreaterThan(0)
    // Players of a draining node move. Only late ones lose their connection.
    expect(report.totals.resumes).toBeLessThan(CLIENTS)
  })

  it('crowd brings spectators into a room, and kills its owner', async () => {
    const sizes = '--spectators 30 --within 1 --players 3 --rate 5 --calm 2'
    const report = await passing(`crowd ${sizes}`, { own: true })
    const counts = ['player', 'spectator'].map(
      (kind) => report.figures.find(({ name }) => name === `pause of ${kind}s`)?.samples?.count,
    )
    expect(counts).toEqual([3, 30])
    expect(figure(report, 'flushes while spectators join')).toBeGreaterThan(0)
  })

  it('node-kill kills each node, and its rooms continue', async () => {
    const report = await passing(`node-kill ${PLAYERS} --calm 0.5`, { own: true })
    expect(incidentsOf(report)).toEqual(expect.arrayContaining(['node-1 is killed', 'node-2 is killed']))
    expect(figure(report, 'worst pause of a player')).toBeGreaterThan(0)
  })
})

/** Reads utime, stime and rss from `/proc/<pid>/stat`. They follow the name, which may contain any character. */
function usageOf(pid: number): { readonly cpuSeconds: number; readonly rssBytes: number } {
  const text = readFileSync(`/proc/${pid}/stat`, 'utf8')
  const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
  return { cpuSeconds: (Number(fields[11]) + Number(fields[12])) / 100, rssBytes: Number(fields[21]) * 4096 }
}
