import { join } from 'node:path'
import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import { loadRooms } from '../../dataplane/rooms/loader.ts'
import { SERVER_OPCODES } from '../../shared/protocol/messages.ts'
import { FakeClock } from '../../test/support/fake-clock.ts'
import { type FaultyFront, faultyFront } from '../../test/support/faulty-front.ts'
import { SeededRandom } from '../../test/support/seeded-random.ts'
import { startService, type TestService } from '../../test/support/service.ts'
import { ControlIssuer } from '../control-issuer.ts'
import { preflight } from '../preflight.ts'
import type { Credentials } from './client-parts.ts'
import { Squad } from './squad.ts'

/** What a load test does about a service that takes what it is told, and never answers. */

const ROOMS = join(import.meta.dirname, '../rooms')
const ONE = { per_second: 1, offset: 0 }
const LONG_MS = 30_000

let clock: FakeClock
let service: TestService
let front: FaultyFront
let squad: Squad
let credentials: Credentials
/** What is not passed on, and how much of that there was. */
const held = new Set<number>()
let kept = 0

beforeEach(async () => {
  clock = new FakeClock()
  held.clear()
  kept = 0
  service = await startService({ rooms: await loadRooms(ROOMS) })
  front = await faultyFront(service.ws_url, {
    to_client: (frame) => {
      if (!held.has(frame[1]!)) return [frame]
      kept += 1
      return []
    },
  })
  const settings = { ws_urls: [front.ws_url], room_type: 'load', message: undefined, seed: 1 }
  squad = new Squad(settings, clock, new SeededRandom(1))
  const { control_url } = service
  credentials = await new ControlIssuer({ control_url, control_token: undefined }).issue()
})
afterEach(async () => {
  await squad.close()
  front.close()
  await service.close()
})

/** So many answers were held back, and so much time has passed since. */
async function inVain(answers: number): Promise<void> {
  await vi.waitFor(() => expect(kept).toBe(answers), { timeout: 10_000, interval: 20 })
  clock.advance(LONG_MS)
}

it('ends to wait for a join that is never answered, of players and of spectators, and counts it', async () => {
  held.add(SERVER_OPCODES['state.snapshot'])
  await squad.connect([0], ONE, credentials)
  const joining = squad.join(1, ONE)
  const watching = squad.watch([1], ONE, credentials, 'load-0')
  await inVain(2)
  await Promise.all([joining, watching])
  const { failures, online } = await squad.report()
  expect(failures).toEqual([
    {
      code: 'join_unanswered',
      count: 2,
      example: 'client 0 had no answer to its join within 30 s',
    },
  ])
  expect(online).toBe(0)
})

it('ends to wait for a leave that is never answered, and counts it', async () => {
  await squad.connect([0], ONE, credentials)
  await squad.join(1, ONE)
  held.add(SERVER_OPCODES.left)
  const moving = squad.churn(2, 1, ONE)
  await inVain(1)
  await moving
  const { failures, counts } = await squad.report()
  expect(failures).toMatchObject([{ code: 'leave_unanswered', count: 1 }])
  expect(counts).toMatchObject({ joins: 1, leaves: 0 })
})

it('ends to wait for a client that does not come back when its socket was cut, and counts it', async () => {
  await squad.connect([0], ONE, credentials)
  await squad.join(1, ONE)
  const cutting = squad.cut(1)
  front.close()
  clock.advance(LONG_MS)
  await cutting
  const { failures } = await squad.report()
  expect(failures).toEqual([
    { code: 'connection_lost', count: 1, example: 'client 0 was not back within 30 s' },
  ])
})

it('does not begin where a first client has no answer to its join', async () => {
  held.add(SERVER_OPCODES['state.snapshot'])
  const looking = preflight({ ws_urls: [front.ws_url], room_type: 'load', credentials, clock })
  const refused = expect(looking).rejects.toThrow(
    `A first client could not join a room at ${front.ws_url}: it had no answer within 30 s.`,
  )
  await inVain(1)
  await refused
})
