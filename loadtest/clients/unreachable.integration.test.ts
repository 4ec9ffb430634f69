import { join } from 'node:path'
import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import { loadRooms } from '../../dataplane/rooms/loader.ts'
import { systemClock } from '../../shared/clock.ts'
import { SeededRandom } from '../../test/kit/seeded-random.ts'
import { FaultyLink } from '../../test/support/faulty-link.ts'
import { startService, type TestService } from '../../test/support/service.ts'
import { ControlIssuer } from '../issuer.ts'
import { Failures } from './tally.ts'
import { LoadWorker, type WorkerReport } from './worker.ts'

/** What a load test says of a service that cannot be reached for a while. */

const ROOMS = join(import.meta.dirname, '../rooms')
const PLAYERS = 3
const ALONE = { index: 0, of: 1 }
const FAST = 1000
const PATIENCE = { timeout: 60_000, interval: 50 }

let service: TestService
let link: FaultyLink
let worker: LoadWorker
const seen: WorkerReport[] = []

beforeEach(async () => {
  service = await startService({
    rooms: await loadRooms(ROOMS),
    node: { sessionMessagesPerSecond: 100_000, sessionResumeTtl: 1 },
  })
  link = await FaultyLink.open(service.wsUrl)
  const settings = { wsUrls: [link.url], roomType: 'load', keyPrefix: '', message: undefined, seed: 1 }
  worker = new LoadWorker(settings, ALONE, systemClock, new SeededRandom(1))
  seen.length = 0
  const credentials = await new ControlIssuer({
    controlUrl: service.controlUrl,
    controlToken: undefined,
  }).issue()
  await worker.connect({ count: PLAYERS, perSecond: FAST, credentials })
  await worker.join({ rooms: 1, perSecond: FAST })
  await worker.start({ rate: 20 })
  await until(({ acks }) => acks > 10)
  link.refuse(true)
})
afterEach(async () => {
  await worker.close()
  await link.close()
  await service.close()
})

/** Looks until the counts of all looks together are as they should be. */
const until = (reached: (counts: { acks: number; sends: number; online: number }) => boolean) =>
  vi.waitFor(async () => {
    seen.push(await worker.report())
    const online = seen.at(-1)!.online
    expect(reached({ acks: total('acks'), sends: total('sends'), online })).toBe(true)
  }, PATIENCE)

const total = (name: keyof WorkerReport['counts']): number =>
  seen.reduce((sum, { counts }) => sum + counts[name], 0)

/** Everything is over: what failed, and how often. */
async function end(settleSeconds: number): Promise<Record<string, number>> {
  await worker.stop()
  await worker.settle({ withinSeconds: settleSeconds })
  await worker.giveUp()
  seen.push(await worker.report())
  const failures = new Failures()
  for (const report of seen) for (const failure of report.failures) failures.add(failure)
  return Object.fromEntries(failures.list.map(({ code, count }) => [code, count]))
}

async function expectKeptPromises(): Promise<void> {
  for (const { count, examples } of Object.values((await worker.report()).findings.violations))
    expect({ count, examples }).toEqual({ count: 0, examples: [] })
}

it('counts one lost session for each player, and how many messages are unknown', async () => {
  await vi.waitFor(async () => expect(await service.metric('service_sessions')).toBe(0), PATIENCE)
  link.refuse(false)
  await until(({ online }) => online === PLAYERS)
  const acks = total('acks')
  await until((counts) => counts.acks > acks + 10)
  const { session_lost: sessionLost, fate_unknown: fateUnknown, ...others } = await end(10)
  expect({ session_lost: sessionLost, others, resumes: total('resumes') }).toEqual({
    session_lost: PLAYERS,
    others: {},
    resumes: 0,
  })
  expect(fateUnknown).toBe(total('sends') - total('acks'))
  expect(fateUnknown).toBeGreaterThan(PLAYERS)
  await expectKeptPromises()
})

it('counts a lost session also where the run ends before the next one', async () => {
  await vi.waitFor(async () => expect(await service.metric('service_sessions')).toBe(0), PATIENCE)
  link.refuse(false)
  await vi.waitFor(async () => {
    seen.push(await worker.report())
    expect(seen.at(-1)!.failures.map(({ code }) => code)).toContain('fate_unknown')
  }, PATIENCE)
  link.refuse(true)
  const { session_lost: sessionLost } = await end(0)
  expect(sessionLost).toBeGreaterThan(0)
})

it('takes messages for unanswered, not for acks that were lost, when it ends before the service is back', async () => {
  await until(({ sends }) => sends > total('acks') + 20)
  const failures = await end(0.1)
  expect(failures).toEqual({ unanswered: total('sends') - total('acks') })
  const examples = seen.at(-1)!.failures.map(({ example }) => example)
  expect(examples[0]).toMatch(
    /^client \d had no answer to \d+ of \d+ messages by the end; it was not connected$/,
  )
  await expectKeptPromises()
})
