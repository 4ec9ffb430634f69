import { join } from 'node:path'
import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import { loadRooms } from '../../dataplane/rooms/loader.ts'
import { SERVER_OPCODES } from '../../shared/protocol/messages.ts'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { SeededRandom } from '../../test/kit/seeded-random.ts'
import { type FaultyFront, faultyFront } from '../../test/support/faulty-front.ts'
import { startService, type TestService } from '../../test/support/service.ts'
import { ControlIssuer } from '../issuer.ts'
import { preflight } from '../loadtest.ts'
import type { Credentials } from './client.ts'
import { LoadWorker } from './worker.ts'

/** What a load test does about a service that takes what it is told, and never answers. */

const ROOMS = join(import.meta.dirname, '../rooms')
const ALONE = { index: 0, of: 1 }
const ONE = 1
const LONG_MS = 30_000

let clock: FakeClock
let service: TestService
let front: FaultyFront
let worker: LoadWorker
let credentials: Credentials
/** What is not passed on, and how much of that there was. */
const held = new Set<number>()
let kept = 0

beforeEach(async () => {
  clock = new FakeClock()
  held.clear()
  kept = 0
  service = await startService({ rooms: await loadRooms(ROOMS) })
  front = await faultyFront(service.wsUrl, {
    toClient: (frame) => {
      if (!held.has(frame[1]!)) return [frame]
      kept += 1
      return []
    },
  })
  const settings = { wsUrls: [front.wsUrl], roomType: 'load', message: undefined, seed: 1 }
  worker = new LoadWorker(settings, ALONE, clock, new SeededRandom(1))
  credentials = await new ControlIssuer({ controlUrl: service.controlUrl, controlToken: undefined }).issue()
})
afterEach(async () => {
  await worker.close()
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
  await worker.connect(1, ONE, credentials)
  const joining = worker.join({ rooms: 1, perSecond: ONE })
  const watching = worker.watch(1, ONE, credentials, 'load-0')
  await inVain(2)
  await Promise.all([joining, watching])
  const { failures, online } = await worker.report()
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
  await worker.connect(1, ONE, credentials)
  await worker.join({ rooms: 1, perSecond: ONE })
  held.add(SERVER_OPCODES.left)
  const moving = worker.churn({ rooms: 2, seconds: 1, perSecond: ONE })
  await inVain(1)
  await moving
  const { failures, counts } = await worker.report()
  expect(failures).toMatchObject([{ code: 'leave_unanswered', count: 1 }])
  expect(counts).toMatchObject({ joins: 1, leaves: 0 })
})

it('ends to wait for a client that does not come back when its socket was cut, and counts it', async () => {
  await worker.connect(1, ONE, credentials)
  await worker.join({ rooms: 1, perSecond: ONE })
  const cutting = worker.cut({ share: 1 })
  front.close()
  clock.advance(LONG_MS)
  await cutting
  const { failures } = await worker.report()
  expect(failures).toEqual([
    { code: 'connection_lost', count: 1, example: 'client 0 was not back within 30 s' },
  ])
})

it('does not begin where a first client has no answer to its join', async () => {
  held.add(SERVER_OPCODES['state.snapshot'])
  const looking = preflight({ wsUrls: [front.wsUrl], roomType: 'load', credentials, clock })
  const refused = expect(looking).rejects.toThrow(
    `A first client could not join a room at ${front.wsUrl}: it had no answer within 30 s.`,
  )
  await inVain(1)
  await refused
})
