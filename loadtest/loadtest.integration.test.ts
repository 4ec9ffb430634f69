import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { loadRooms } from '../dataplane/room/loader.ts'
import { systemClock } from '../shared/clock.ts'
import { startService, type TestService } from '../test/support/cluster.ts'
import { ControlIssuer, givenCredentials } from './issuer.ts'
import { LoadTest, type Target } from './loadtest.ts'
import { parseRun } from './options.ts'
import type { RunResult, Second } from './result.ts'
import { SCENARIOS } from './scenarios/index.ts'

const ROOMS = join(import.meta.dirname, 'rooms')

let service: TestService
let target: Target
beforeAll(async () => {
  service = await startService({
    rooms: await loadRooms(ROOMS),
    node: { sessionMessagesPerSecond: 100_000, newRoomsPerMinute: 0 },
  })
  target = {
    issuer: new ControlIssuer({ controlUrl: service.controlUrl, controlToken: undefined }),
    wsUrls: [service.wsUrl],
    metrics: [{ name: 'node-1', url: service.adminUrl }],
    local: undefined,
    description: service.wsUrl,
  }
})
afterAll(() => service.close())

/** Visible output of a run. */
class Seen {
  readonly seconds: Second[] = []
  readonly progress: number[] = []
  readonly phases: [name: string, seconds: number, runSeconds: number][] = []
  readonly incidents: string[] = []

  phase(name: string, seconds: number, runSeconds: number): void {
    this.phases.push([name, seconds, runSeconds])
  }
  update(second: Second, progress: number): void {
    this.seconds.push(second)
    this.progress.push(progress)
  }
  incident(text: string): void {
    this.incidents.push(text)
  }
}

/** Runs a scenario with these words. */
async function run(
  words: string,
  { on = target, seen = new Seen(), interruption = new AbortController() } = {},
): Promise<RunResult> {
  const request = parseRun(words.split(' '), SCENARIOS, {}, 2)
  if (request.kind !== 'run') throw new Error(JSON.stringify(request))
  return new LoadTest({
    options: request.options,
    target: on,
    view: seen,
    clock: systemClock,
    machine: { cores: 2, node: process.version, roomful: 'test' },
    signal: interruption.signal,
  }).run()
}

describe('a run', () => {
  it('reports its actions for each second and in total', async () => {
    const seen = new Seen()
    const words =
      'steady --rooms 2 --members 3 --rate 10 --seconds 2 --ramp 100 --max-rtt-p99 60s --max-errors 0'
    const result = await run(words, { seen })
    // Compared first, because the examples of a violation explain it.
    expect(result.checks.map(({ name, violations, examples }) => [name, violations, examples])).toEqual([
      ['sequence gaps', 0, []],
      ['checksum mismatches', 0, []],
      ['lost events', 0, []],
      ['lost acks', 0, []],
      ['acked but not applied', 0, []],
      ['applied twice', 0, []],
    ])
    expect(result).toMatchObject({
      scenario: 'steady',
      options: { rooms: '2', members: '3', rate: '10', seconds: '2', 'max-rtt-p99': '60s' },
      interrupted: false,
      failure: undefined,
      totals: { connects: 6, joins: 6, errors: 0 },
      failures: [],
      passed: true,
    })
    const { sends, acks } = result.totals
    expect(sends).toBeGreaterThanOrEqual(6 * 10 * 2 - 6)
    expect(acks).toBe(sends)
    expect(result.timings.rtt?.count).toBe(sends)
    expect(result.verdicts.map(({ held }) => held)).toEqual([true, true])
    const log = result.seconds_log
    expect(log.reduce((sum, { counts }) => sum + counts.sends, 0)).toBe(sends)
    expect(log.some(({ servers }) => servers[0]!.sessions === 6 && servers[0]!.messages_in > 0)).toBe(true)
    expect(seen.seconds).toEqual(log)
    expect(seen.phases.map(([name]) => name)).toEqual(['connect', 'join', 'play', 'answers'])
    expect(new Set(seen.phases.map(([, , runSeconds]) => runSeconds))).toEqual(new Set([3.12]))
    expect(seen.progress.every((progress) => progress >= 0 && progress <= 1)).toBe(true)
  })

  it('uses the project of earlier runs', async () => {
    const { controlUrl } = service
    const issuers = [1, 2].map(() => new ControlIssuer({ controlUrl, controlToken: undefined }))
    const [first, second] = [await issuers[0]!.issue(), await issuers[1]!.issue()]
    expect(second.projectId).toBe(first.projectId)
  })

  it('spreads many clients over threads', async () => {
    const result = await run('connect-storm --clients 32 --per-second 1000 --rooms 8 --seconds 1 --threads 2')
    expect(result.totals).toMatchObject({ connects: 32, joins: 32, errors: 0 })
    expect(result.failures).toEqual([])
  })

  it('ends after an interruption while a service does not answer', async () => {
    const interruption = new AbortController()
    const silent = createServer(() => undefined)
    await new Promise<void>((resolve) => silent.listen(0, '127.0.0.1', resolve))
    const controlUrl = `http://127.0.0.1:${(silent.address() as AddressInfo).port}`
    silent.once('connection', () => interruption.abort(new Error('interrupted')))
    const on = { ...target, issuer: new ControlIssuer({ controlUrl, controlToken: undefined }) }
    const result = await run('steady', { on, interruption })
    expect(result).toMatchObject({ interrupted: true, failure: undefined, totals: { connects: 0 } })
    // The run was planned for longer.
    expect(result.seconds).toBeLessThan(result.planned_seconds)
    silent.closeAllConnections()
    silent.close()
  })

  it('uses a custom room type, whose messages cannot be counted', async () => {
    const words = 'steady --rooms 1 --members 2 --seconds 1 --room-type load --max-rtt-p99 60s'
    const result = await run(`${words} --message op:{"n":7}`)
    expect(result.passed).toBe(true)
    expect(result.checks.map(({ violations }) => violations)).toEqual([
      0,
      0,
      undefined,
      0,
      undefined,
      undefined,
    ])
  })
})

describe('a run that cannot continue reports the reason', () => {
  const failure = async (words: string, on: Partial<Target>): Promise<string | undefined> => {
    const result = await run(words, { on: { ...target, ...on } })
    expect(result.passed).toBe(false)
    return result.failure
  }

  it('if the service lacks the room type', async () => {
    expect(await failure('steady --room-type other --message op:1', {})).toContain('no room type "other"')
  })

  it('if nothing listens at the address', async () => {
    const gone = 'ws://127.0.0.1:9'
    expect(await failure('steady', { wsUrls: [gone] })).toContain(`No client can connect to ${gone}`)
  })

  it('if an address of metrics has none', async () => {
    const at = (url: string) => failure('steady', { metrics: [{ name: 'node-1', url }] })
    expect(await at('http://127.0.0.1:9')).toMatch(
      /^There are no metrics at http:\/\/127\.0\.0\.1:9\/metrics \(.*\)\. After/,
    )
    expect(await at(service.wsUrl.replace('ws', 'http'))).toContain('(it answers with 426)')
  })

  it('if a token is not, or no longer, valid for the service', async () => {
    const { projectId, token } = await service.login()
    const elsewhere = givenCredentials({ projectId: 'prj_other', token })
    expect(await failure('steady', { issuer: elsewhere })).toMatch(
      /The token is for another project\. \(unauthenticated\) Do --ws and --control, or --project and --token, belong/,
    )
    const nonsense = givenCredentials({ projectId, token: 'abc' })
    expect(await failure('steady', { issuer: nonsense })).toContain('v4.public. (unauthenticated)')
  })

  it('if there is no control API', async () => {
    const issuer = new ControlIssuer({ controlUrl: 'http://127.0.0.1:9', controlToken: undefined })
    expect(await failure('steady', { issuer })).toMatch(
      /^control does not answer at http:\/\/127.0.0.1:9 \(.+\): is the service running\?/,
    )
    const node = new ControlIssuer({ controlUrl: service.adminUrl, controlToken: undefined })
    expect(await failure('steady', { issuer: node })).toContain(
      '404 not_found: There is nothing at /projects. Is --control',
    )
  })
})
