import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { loadRooms } from '../../dataplane/rooms/loader.ts'
import { systemClock } from '../../shared/clock.ts'
import { SeededRandom } from '../../test/kit/seeded-random.ts'
import { FAULTS, type FaultName, type FaultyFront, faultyFront } from '../../test/support/faulty-front.ts'
import { startService, type TestService } from '../../test/support/service.ts'
import { checksOf } from '../checks.ts'
import { ControlIssuer } from '../issuer.ts'
import type { Check } from '../result.ts'
import { LoadWorker } from './worker.ts'

/** The check that must find each fault. */
const FOUND_BY: Readonly<Record<FaultName, string>> = {
  'skipped patch': 'sequence gaps',
  'wrong checksum': 'checksum mismatches',
  'lost event': 'lost events',
  'lost ack': 'lost acks',
  'acked but not applied': 'acked but not applied',
  'applied twice': 'applied twice',
}
const NAMES = Object.keys(FAULTS) as FaultName[]
/** Many players who seldom send: no next message makes up for what happened to the one before. */
const PLAYERS = { count: 24, rate: 2, seconds: 6 }

describe('a service with a planted fault', () => {
  let service: TestService
  const fronts: FaultyFront[] = []
  const checks = new Map<FaultName | 'none', readonly Check[]>()

  beforeAll(async () => {
    service = await startService({
      rooms: await loadRooms(join(import.meta.dirname, '../rooms')),
      node: { sessionMessagesPerSecond: 100_000, newRoomsPerMinute: 0, playerPointsPerSecond: 1_000_000 },
    })
    const { controlUrl } = service
    const credentials = await new ControlIssuer({ controlUrl, controlToken: undefined }).issue()
    const play = async (name: FaultName | 'none'): Promise<void> => {
      const front = await faultyFront(service.wsUrl, name === 'none' ? {} : FAULTS[name]())
      fronts.push(front)
      const keyPrefix = name.replaceAll(' ', '-')
      const settings = { wsUrls: [front.wsUrl], roomType: 'load', keyPrefix, message: undefined, seed: 1 }
      const worker = new LoadWorker(settings, { index: 0, of: 1 }, systemClock, new SeededRandom(1))
      const { count, rate, seconds } = PLAYERS
      await worker.connect({ count, perSecond: 100, credentials })
      await worker.join({ rooms: 1, perSecond: 100 })
      await worker.start({ rate })
      // Players without messages: waits, and sends nothing.
      await worker.stall({ share: 0, seconds })
      await worker.stop()
      await worker.settle({ withinSeconds: 5 })
      checks.set(name, checksOf((await worker.report()).findings, false))
      await worker.close()
    }
    await Promise.all([...NAMES, 'none' as const].map(play))
  }, 60_000)
  afterAll(async () => {
    for (const front of fronts) front.close()
    await service.close()
  })

  const broken = (name: FaultName | 'none') =>
    checks
      .get(name)!
      .flatMap(({ name, violations, examples }) => (violations ? [{ name, violations, examples }] : []))

  it.each(NAMES)('%s: its check finds it, once', (name) => {
    expect(broken(name)).toContainEqual({
      name: FOUND_BY[name],
      violations: 1,
      examples: [expect.any(String)],
    })
  })

  it('none: every check has looked at something, and found nothing', () => {
    expect(checks.get('none')!.map(({ violations }) => violations)).toEqual([0, 0, 0, 0, 0, 0])
  })
})
