import { join } from 'node:path'
import { defineRoom } from 'roomful'
import * as v from 'valibot'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { loadRooms } from '../../dataplane/room/loader.ts'
import { systemClock } from '../../shared/clock.ts'
import { SERVER_OPCODES } from '../../shared/protocol/messages.ts'
import { SeededRandom } from '../../test/kit/seeded-random.ts'
import { startService, type TestService } from '../../test/support/cluster.ts'
import { FAULTS, type FaultName, type FaultyFront, faultyFront } from '../../test/support/faulty-front.ts'
import { FaultyLink } from '../../test/support/faulty-link.ts'
import { ControlIssuer, type Credentials } from '../issuer.ts'
import { type Check, noCounts } from '../result.ts'
import { checksOf, Failures } from './tally.ts'
import { LoadWorker, type WorkerReport } from './worker.ts'

const ROOMS = join(import.meta.dirname, '../rooms')
const SHOUT = 'loud '.repeat(12_000)
/** Every message, however short, causes a long event to all members, which cannot be omitted. */
const loud = defineRoom({
  type: 'loud',
  messages: { shout: { data: v.null(), rate: { perSecond: 1000, burst: 1000 } } },
  sync: { rate: 0 },
  durability: 'none',
  create: () => ({}),
  onMessage: (_state, _message, ctx) => void ctx.emit('heard', SHOUT),
})

const ALONE = { index: 0, of: 1 }
const FAST = 1000

let service: TestService
let worker: LoadWorker
let credentials: Credentials
beforeAll(async () => {
  service = await startService({
    rooms: [...(await loadRooms(ROOMS)), loud],
    node: {
      sessionMessagesPerSecond: 100_000,
      newRoomsPerMinute: 0,
      playerPointsPerSecond: 1_000_000,
      outboxHighWaterBytes: 200_000,
      // More than a reading client receives at one moment after this process has been blocked.
      outboxLimitBytes: 8_000_000,
    },
  })
})
afterAll(() => service.close())

const workerAt = (wsUrls: readonly string[]): LoadWorker =>
  new LoadWorker(
    { wsUrls, roomType: 'load', keyPrefix: '', message: undefined, seed: 1 },
    ALONE,
    systemClock,
    new SeededRandom(1),
  )

beforeEach(async () => {
  worker = workerAt([service.wsUrl])
  credentials = await new ControlIssuer({
    controlUrl: service.controlUrl,
    controlToken: undefined,
  }).issue()
  await worker.use(credentials)
})
afterEach(() => worker.close())

/** Waits until this many players are in rooms. */
async function gather(players: number, rooms: number): Promise<void> {
  await worker.connect({ count: players, perSecond: FAST })
  await worker.join({ rooms, perSecond: FAST })
}

/** Polls until this many messages have been sent. Returns all reports. */
async function untilSent(count: number): Promise<WorkerReport[]> {
  const all: WorkerReport[] = []
  const look = async (): Promise<void> => {
    all.push(await worker.report())
    expect(sum(all).counts.sends).toBeGreaterThanOrEqual(count)
  }
  await vi.waitFor(look, { timeout: 60_000, interval: 20 })
  return all
}

/** Lets all players send about `times` messages, and waits for all answers. */
async function play(players: number, times: number, bytes = 0): Promise<WorkerReport> {
  await worker.start({ rate: 40, bytes })
  const all = await untilSent(players * times)
  await worker.stop()
  await worker.awaitAnswers({ withinSeconds: 60 })
  all.push(await worker.report())
  return sum(all)
}

const sum = (reports: readonly WorkerReport[]): WorkerReport => ({
  ...reports.at(-1)!,
  failures: reports.flatMap(({ failures }) => failures),
  counts: reports.reduce(
    (total, { counts }) =>
      Object.fromEntries(
        Object.entries(counts).map(([name, value]) => [name, value + total[name as keyof typeof total]]),
      ) as WorkerReport['counts'],
    noCounts() as WorkerReport['counts'],
  ),
})

const broken = async (): Promise<string[]> =>
  Object.entries((await worker.report()).findings.violations).flatMap(([kind, { count }]) =>
    count > 0 ? [kind] : [],
  )

describe('players', () => {
  it('play, and all their messages are acked, shown to all in the room, and timed', async () => {
    await gather(6, 2)
    const { counts, failures, online } = await play(6, 10)
    expect(failures).toEqual([])
    expect(online).toBe(6)
    expect(counts.acks).toBe(counts.sends)
    expect(counts.events).toBeGreaterThanOrEqual(6 * 3)
    expect(await broken()).toEqual([])
    expect((await worker.report()).findings).toMatchObject({ countedMembers: 6, acks: counts.acks })
  })

  it('continue after their sockets were cut', async () => {
    await gather(4, 1)
    await play(4, 2)
    await worker.cut({ share: 0.5 })
    const { counts, online } = await play(4, 2)
    expect({ resumes: counts.resumes, errors: counts.errors, online }).toEqual({
      resumes: 2,
      errors: 0,
      online: 4,
    })
    expect(await broken()).toEqual([])
  })

  it('count unacked messages with the time for which they waited', async () => {
    const front = await faultyFront(service.wsUrl, {
      toClient: (frame) => (frame[1] === SERVER_OPCODES.ack ? [] : [frame]),
    })
    worker = workerAt([front.wsUrl])
    await worker.use(credentials)
    await gather(1, 1)
    await worker.start({ rate: 40 })
    const before = await untilSent(5)
    await worker.stop()
    // For a second after a join, acks may be late.
    await worker.awaitAnswers({ withinSeconds: 1.2 })
    await worker.giveUp()
    const { counts, timings, failures } = sum([...before, await worker.report()])
    expect(counts.acks).toBe(0)
    expect(timings.rtt).toHaveLength(counts.sends)
    expect(Math.min(...timings.rtt!)).toBeGreaterThan(500)
    expect(failures).toEqual([])
    expect(await broken()).toEqual(['lostAck'])
    front.close()
  })

  it('move from room to room', async () => {
    // Each moves once: a client that is still moving does not start again.
    await gather(10, 2)
    await worker.report()
    await worker.churn({ rooms: 2, seconds: 0.5, perSecond: 20 })
    const { counts } = await worker.report()
    expect({ leaves: counts.leaves, joins: counts.joins, errors: counts.errors }).toEqual({
      leaves: 10,
      joins: 10,
      errors: 0,
    })
    expect(await broken()).toEqual([])
  })

  it('time their longest wait for an effect as their pause', async () => {
    await gather(4, 1)
    await play(4, 2)
    await worker.markPauses()
    await worker.start({ rate: 40 })
    await worker.cut({ share: 0.5 })
    await worker.stop()
    await worker.awaitAnswers({ withinSeconds: 60 })
    await worker.takePauses()
    const { pause, rtt } = (await worker.report()).timings
    expect(pause!.length).toBeLessThanOrEqual(4)
    expect(Math.max(...pause!)).toBe(Math.max(...rtt!))
    await worker.markPauses()
    await worker.takePauses()
    expect((await worker.report()).timings.pause).toBeUndefined()
  })
})

describe('a player that reads too slowly', () => {
  it('is closed by the service, which is reported and is not a failure', async () => {
    const message = { type: 'shout', data: null }
    worker = new LoadWorker(
      { wsUrls: [service.wsUrl], roomType: 'loud', keyPrefix: '', message, seed: 1 },
      ALONE,
      systemClock,
      new SeededRandom(1),
    )
    await worker.use(credentials)
    await gather(4, 1)
    await worker.start({ rate: 20 })
    // Until the buffers of the sockets and the service are full, which takes longer on a busy machine.
    let seconds = 2
    const stall = (): Promise<number> => {
      seconds *= 2
      return worker.stall({ share: 0.25, seconds })
    }
    await expect.poll(stall).toBe(1)
    await worker.stop()
    await worker.awaitAnswers({ withinSeconds: 60 })
    expect((await worker.report()).failures).toEqual([])
  })
})

describe('players with a revoked key', () => {
  it('are closed, which is not a failure', async () => {
    const issuer = new ControlIssuer({ controlUrl: service.controlUrl, controlToken: undefined })
    const key = await issuer.issueUnderKey()
    await worker.use(key.credentials)
    await worker.connect({ count: 3, perSecond: FAST })
    await worker.join({ rooms: 1, perSecond: FAST })
    await key.revoke()
    const closed = await worker.awaitRevoked({ withinSeconds: 60 })
    expect(closed).toHaveLength(3)
    expect((await worker.report()).counts.errors).toBe(0)
  })
})

describe('spectators', () => {
  it('watch, so that they find no room without players', async () => {
    await worker.watch({ count: 1, perSecond: FAST, room: 'nobody' })
    expect((await worker.report()).failures.map(({ code }) => code)).toEqual(['room_not_found'])
  })

  it('see each update of the players, also after their sockets were cut', async () => {
    await gather(2, 1)
    await worker.watch({ count: 3, perSecond: FAST, room: 'load-0' })
    const { counts, online } = await play(2, 5)
    expect(online).toBe(5)
    expect(counts.updates).toBeGreaterThanOrEqual(counts.sends)
    await worker.cut({ share: 1 })
    const after = await play(2, 5)
    expect({ online: after.online, resumes: after.counts.resumes, errors: after.counts.errors }).toEqual({
      online: 5,
      resumes: 5,
      errors: 0,
    })
    expect(await broken()).toEqual([])
    const { updates, playerUpdates } = (await worker.report()).findings
    expect(updates / playerUpdates).toBeCloseTo(5 / 2, 0)
  })

  it('report a skipped update', async () => {
    let patches = 0
    const front = await faultyFront(service.wsUrl, {
      toClient: (frame) => (frame[1] === SERVER_OPCODES['state.patch'] && ++patches === 3 ? [] : [frame]),
    })
    await gather(2, 1)
    const watching = workerAt([front.wsUrl])
    await watching.use(credentials)
    await watching.watch({ count: 1, perSecond: FAST, room: 'load-0' })
    // On a busy machine, one update may have the changes of many messages.
    while (patches < 5) await play(2, 2)
    await vi.waitFor(
      async () => expect((await watching.report()).findings.violations.gap.count).toBe(1),
      60_000,
    )
    const { violations } = (await watching.report()).findings
    expect(violations.gap.examples[0]).toContain('spectator 0 in load:load-0: an update was missing')
    await watching.close()
    front.close()
  })

  it('report the last updates that others have seen, although no later frame shows the gap', async () => {
    let silent = false
    const front = await faultyFront(service.wsUrl, {
      toClient: (frame) => (silent && frame[1] === SERVER_OPCODES['state.patch'] ? [] : [frame]),
    })
    await gather(2, 1)
    const watching = workerAt([front.wsUrl])
    await watching.use(credentials)
    await watching.watch({ count: 2, perSecond: FAST, room: 'load-0' })
    await play(2, 5)
    await watching.catchUp(await worker.newest(), 10)
    expect((await watching.report()).findings.violations.gap.count).toBe(0)
    silent = true
    await play(2, 5)
    await watching.catchUp(await worker.newest(), 0)
    const { count, examples } = (await watching.report()).findings.violations.gap
    expect(count).toBe(2)
    expect(examples[0]).toMatch(
      /^spectator 0 in load:load-0: nothing came after seq \d+, and others have seen \d+ more$/,
    )
    await watching.close()
    front.close()
  })
})

it('report the failures of clients', async () => {
  await worker.use({ ...credentials, token: 'v4.public.nonsense' })
  await worker.connect({ count: 1, perSecond: FAST })
  const { counts, failures } = await worker.report()
  expect(counts.errors).toBe(1)
  expect(failures).toMatchObject([{ code: 'unauthenticated', count: 1 }])
})

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
/** Many players who rarely send, so that no next message hides a fault. */
const PLAYERS = { count: 24, rate: 2, seconds: 6 }

describe('a service with an injected fault', () => {
  const fronts: FaultyFront[] = []
  const checks = new Map<FaultName | 'none', readonly Check[]>()

  beforeAll(async () => {
    const { controlUrl } = service
    const credentials = await new ControlIssuer({ controlUrl, controlToken: undefined }).issue()
    const play = async (name: FaultName | 'none'): Promise<void> => {
      const front = await faultyFront(service.wsUrl, name === 'none' ? {} : FAULTS[name]())
      fronts.push(front)
      const keyPrefix = `${name.replaceAll(' ', '-')}-${fronts.length}`
      const settings = { wsUrls: [front.wsUrl], roomType: 'load', keyPrefix, message: undefined, seed: 1 }
      const worker = new LoadWorker(settings, { index: 0, of: 1 }, systemClock, new SeededRandom(1))
      const { count, rate, seconds } = PLAYERS
      await worker.use(credentials)
      await worker.connect({ count, perSecond: 100 })
      await worker.join({ rooms: 1, perSecond: 100 })
      await worker.start({ rate })
      // Players without messages: they wait and send nothing.
      await worker.stall({ share: 0, seconds })
      await worker.stop()
      await worker.awaitAnswers({ withinSeconds: 5 })
      checks.set(name, checksOf((await worker.report()).findings, false))
      await worker.close()
    }
    await Promise.all([...NAMES, 'none' as const].map(play))
    // On a busy machine, a late process can excuse a fault near it. Then the fault is played alone.
    for (const name of NAMES) if (broken(name).length === 0) await play(name)
  }, 120_000)
  afterAll(async () => {
    for (const front of fronts) front.close()
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

  it('none: every check has checked something, and found nothing', () => {
    expect(checks.get('none')!.map(({ violations }) => violations)).toEqual([0, 0, 0, 0, 0, 0])
  })
})

describe('a service that is unreachable for a while', () => {
  const PLAYERS = 3
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
    worker = workerAt([link.url])
    seen.length = 0
    const credentials = await new ControlIssuer({
      controlUrl: service.controlUrl,
      controlToken: undefined,
    }).issue()
    await worker.use(credentials)
    await worker.connect({ count: PLAYERS, perSecond: FAST })
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

  /** Polls until the sums of all reports are as expected. */
  const until = (reached: (counts: { acks: number; sends: number; online: number }) => boolean) =>
    vi.waitFor(async () => {
      seen.push(await worker.report())
      const online = seen.at(-1)!.online
      expect(reached({ acks: total('acks'), sends: total('sends'), online })).toBe(true)
    }, PATIENCE)

  const total = (name: keyof WorkerReport['counts']): number =>
    seen.reduce((sum, { counts }) => sum + counts[name], 0)

  /** Ends all clients. Returns the number of failures by code. */
  async function end(answersSeconds: number): Promise<Record<string, number>> {
    await worker.stop()
    await worker.awaitAnswers({ withinSeconds: answersSeconds })
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

  it('counts one lost session for each player, and the messages with an unknown outcome', async () => {
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

  it('counts a lost session also if the run ends before the next session', async () => {
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

  it('counts messages as unanswered, not as lost acks, if it ends before the service is back', async () => {
    await until(({ sends }) => sends > total('acks') + 20)
    const failures = await end(0.1)
    expect(failures).toEqual({ unanswered: total('sends') - total('acks') })
    const examples = seen.at(-1)!.failures.map(({ example }) => example)
    expect(examples[0]).toMatch(
      /^client \d had no answer to \d+ of \d+ messages by the end; it was not connected$/,
    )
    await expectKeptPromises()
  })
})
