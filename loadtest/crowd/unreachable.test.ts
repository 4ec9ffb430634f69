import { join } from 'node:path'
import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import { loadRooms } from '../../dataplane/rooms/loader.ts'
import { systemClock } from '../../shared/clock.ts'
import { type Door, doorBefore } from '../../test/support/door.ts'
import { SeededRandom } from '../../test/support/seeded-random.ts'
import { startService, type TestService } from '../../test/support/service.ts'
import { ControlIssuer } from '../control-issuer.ts'
import { Squad, type SquadReport } from './squad.ts'
import { Failures } from './tally.ts'

/** What a load test says of a service that nobody can reach for a while. */

const ROOMS = join(import.meta.dirname, '../rooms')
const PLAYERS = 3
const FAST = { per_second: 1000, offset: 0 }
const PATIENCE = { timeout: 60_000, interval: 50 }

let service: TestService
let door: Door
let squad: Squad
const seen: SquadReport[] = []

beforeEach(async () => {
  service = await startService({
    rooms: await loadRooms(ROOMS),
    node: { session_messages_per_second: 100_000, session_resume_ttl: 1 },
  })
  door = await doorBefore(service.ws_url)
  const settings = { ws_urls: [door.ws_url], room_type: 'load', message: undefined, seed: 1 }
  squad = new Squad(settings, systemClock, new SeededRandom(1))
  seen.length = 0
  const { control_url } = service
  const credentials = await new ControlIssuer({ control_url, control_token: undefined }).issue()
  await squad.connect([...Array(PLAYERS).keys()], FAST, credentials)
  await squad.join(1, FAST)
  await squad.start(20, 0, 0)
  await until(({ acks }) => acks > 10)
  door.shut()
})
afterEach(async () => {
  await squad.close()
  door.close()
  await service.close()
})

/** Looks until the counts of all looks together are as they should be. */
const until = (reached: (counts: { acks: number; sends: number; online: number }) => boolean) =>
  vi.waitFor(async () => {
    seen.push(await squad.report())
    const online = seen.at(-1)!.online
    expect(reached({ acks: total('acks'), sends: total('sends'), online })).toBe(true)
  }, PATIENCE)

const total = (name: keyof SquadReport['counts']): number =>
  seen.reduce((sum, { counts }) => sum + counts[name], 0)

/** Everything is over: what failed, and how often. */
async function end(settle_seconds: number): Promise<Record<string, number>> {
  await squad.stop()
  await squad.settle(settle_seconds)
  await squad.giveUp()
  seen.push(await squad.report())
  const failures = new Failures()
  for (const report of seen) for (const failure of report.failures) failures.add(failure)
  return Object.fromEntries(failures.list.map(({ code, count }) => [code, count]))
}

async function expectKeptPromises(): Promise<void> {
  for (const { count, examples } of Object.values((await squad.findings()).breaches))
    expect({ count, examples }).toEqual({ count: 0, examples: [] })
}

it('counts one lost session for each player, and how many messages nobody knows about', async () => {
  await vi.waitFor(async () => expect(await service.metric('service_sessions')).toBe(0), PATIENCE)
  door.open()
  await until(({ online }) => online === PLAYERS)
  const acks = total('acks')
  await until((counts) => counts.acks > acks + 10)
  const { session_lost, fate_unknown, ...others } = await end(10)
  expect({ session_lost, others, resumes: total('resumes') }).toEqual({
    session_lost: PLAYERS,
    others: {},
    resumes: 0,
  })
  expect(fate_unknown).toBe(total('sends') - total('acks'))
  expect(fate_unknown).toBeGreaterThan(PLAYERS)
  await expectKeptPromises()
})

it('counts a lost session also where the run ends before the next one', async () => {
  await vi.waitFor(async () => expect(await service.metric('service_sessions')).toBe(0), PATIENCE)
  door.open()
  await vi.waitFor(async () => {
    seen.push(await squad.report())
    expect(seen.at(-1)!.failures.map(({ code }) => code)).toContain('fate_unknown')
  }, PATIENCE)
  door.shut()
  const { session_lost } = await end(0)
  expect(session_lost).toBeGreaterThan(0)
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
