import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { loadRooms } from '../dataplane/rooms/loader.ts'
import { FAULTS, type FaultName, type FaultyFront, faultyFront } from './support/faulty-front.ts'
import { type LoadOutcome, startLoad } from './support/load-run.ts'
import { startService, type TestService } from './support/service.ts'

/** What a load test says of a service that has a fault. */

const ROOMS = join(import.meta.dirname, '../loadtest/rooms')
/** Many who seldom say something: no one's next message makes up for what happened to the one before. */
const STEADY = ['--rooms', '1', '--members', '24', '--rate', '4', '--seconds', '3', '--threads', '1']

/** The check that has to find each fault. */
const FOUND_BY: Readonly<Record<FaultName, string>> = {
  'skipped patch': 'sequence gaps',
  'wrong checksum': 'checksum mismatches',
  'lost event': 'lost events',
  'lost ack': 'lost acks',
  'acked but not applied': 'acked but not applied',
  'applied twice': 'applied twice',
}
const NAMES = Object.keys(FAULTS) as FaultName[]

describe('a planted fault', () => {
  let service: TestService
  const fronts: FaultyFront[] = []
  const outcomes = new Map<FaultName | 'none', LoadOutcome>()

  const steady = async (wsUrl: string): Promise<LoadOutcome> => {
    const where = ['--control', service.controlUrl, '--ws', wsUrl, '--metrics', service.adminUrl]
    const run = await startLoad(['steady', ...STEADY, ...where])
    return run.outcome
  }

  beforeAll(async () => {
    service = await startService({
      rooms: await loadRooms(ROOMS),
      node: { sessionMessagesPerSecond: 100_000, newRoomsPerMinute: 0 },
    })
    const left: (FaultName | 'none')[] = ['none', ...NAMES]
    const oneAfterAnother = async (): Promise<void> => {
      for (let name = left.pop(); name !== undefined; name = left.pop()) {
        const front = await faultyFront(service.wsUrl, name === 'none' ? {} : FAULTS[name]())
        fronts.push(front)
        outcomes.set(name, await steady(front.wsUrl))
      }
    }
    await Promise.all([oneAfterAnother(), oneAfterAnother()])
  })
  afterAll(async () => {
    for (const front of fronts) front.close()
    await service.close()
  })

  const outcomeOf = (name: FaultName | 'none'): LoadOutcome => {
    const outcome = outcomes.get(name)
    if (!outcome) throw new Error(`there was no run with ${name}`)
    return outcome
  }

  it.each(NAMES)('of one %s is found, by its check, and decides the exit code', (name) => {
    const { exit_code: exitCode, output, report } = outcomeOf(name)
    const found = report().checks.find((check) => check.name === FOUND_BY[name])
    expect(found, output).toMatchObject({ name: FOUND_BY[name], violations: 1 })
    expect(found?.examples.length).toBe(1)
    expect(output).toContain(FOUND_BY[name])
    expect({ exit_code: exitCode, passed: report().passed }).toEqual({ exit_code: 1, passed: false })
  })

  it('is not found where there is none', () => {
    const { exit_code: exitCode, output, report } = outcomeOf('none')
    const { checks, failures, passed } = report()
    expect(
      checks.filter(({ violations }) => violations !== 0),
      output,
    ).toEqual([])
    expect({ failures, passed, exit_code: exitCode }).toEqual({ failures: [], passed: true, exit_code: 0 })
  })
})
