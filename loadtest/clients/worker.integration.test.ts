import { join } from 'node:path'
import { defineRoom } from 'roomful'
import * as v from 'valibot'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { loadRooms } from '../../dataplane/rooms/loader.ts'
import { systemClock } from '../../shared/clock.ts'
import { SERVER_OPCODES } from '../../shared/protocol/messages.ts'
import { SeededRandom } from '../../test/kit/seeded-random.ts'
import { faultyFront } from '../../test/support/faulty-front.ts'
import { startService, type TestService } from '../../test/support/service.ts'
import { ControlIssuer, type Credentials } from '../issuer.ts'
import { noCounts } from '../result.ts'
import { LoadWorker, type WorkerReport } from './worker.ts'

const ROOMS = join(import.meta.dirname, '../rooms')
const SHOUT = 'loud '.repeat(12_000)
/** Every message, however short, is a long event to all members, which cannot be left out. */
const loud = defineRoom({
  type: 'loud',
  messages: { shout: { data: v.null(), rate: { perSecond: 1000, burst: 1000 } } },
  sync: { rate: 0 },
  durability: 'none',
  create: () => ({}),
  onMessage: (_state, _message, ctx) => void ctx.emit('heard', SHOUT),
})

/** All that has a `seq`. */
const STREAM = new Set<number>(
  (['state.patch', 'event', 'member'] as const).map((type) => SERVER_OPCODES[type]),
)
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
      outboxHighWaterBytes: 200_000,
      // More than comes at once for those who read, when all of this process has stood still.
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
})
afterEach(() => worker.close())

/** So many players in rooms. */
async function gather(players: number, rooms: number): Promise<void> {
  await worker.connect({ count: players, perSecond: FAST, credentials })
  await worker.join({ rooms, perSecond: FAST })
}

/** Looks until so many messages have left; what every look has found. */
async function untilSent(count: number): Promise<WorkerReport[]> {
  const all: WorkerReport[] = []
  const look = async (): Promise<void> => {
    all.push(await worker.report())
    expect(sum(all).counts.sends).toBeGreaterThanOrEqual(count)
  }
  await vi.waitFor(look, { timeout: 60_000, interval: 20 })
  return all
}

/** All have said about `times` things, and everything of it is settled. */
async function play(players: number, times: number, bytes = 0): Promise<WorkerReport> {
  await worker.start({ rate: 40, bytes })
  const all = await untilSent(players * times)
  await worker.stop()
  await worker.settle({ withinSeconds: 5 })
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
  it('play, and everything they send is acked, shown to all in the room, and timed', async () => {
    await gather(6, 2)
    const { counts, failures, online } = await play(6, 10)
    expect(failures).toEqual([])
    expect(online).toBe(6)
    expect(counts.acks).toBe(counts.sends)
    expect(counts.events).toBeGreaterThanOrEqual(6 * 3)
    expect(await broken()).toEqual([])
    expect((await worker.report()).findings).toMatchObject({ countedMembers: 6, acks: counts.acks })
  })

  it('go on after their sockets were cut', async () => {
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

  it('count what is never acked with the time it was waited for', async () => {
    const front = await faultyFront(service.wsUrl, {
      toClient: (frame) => (frame[1] === SERVER_OPCODES.ack ? [] : [frame]),
    })
    worker = workerAt([front.wsUrl])
    await gather(1, 1)
    await worker.start({ rate: 40 })
    const before = await untilSent(5)
    await worker.stop()
    // For a second after a join acks may come later.
    await worker.settle({ withinSeconds: 1.2 })
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
    // Each once: one that is still on its way does not set off again.
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

  it('have their longest wait for an effect timed as their pause', async () => {
    await gather(4, 1)
    await play(4, 2)
    await worker.markPauses()
    await worker.start({ rate: 40 })
    await worker.cut({ share: 0.5 })
    await worker.stop()
    await worker.settle({ withinSeconds: 5 })
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
  it('is closed by the service, which is told and is no failure', async () => {
    const message = { type: 'shout', data: null }
    worker = new LoadWorker(
      { wsUrls: [service.wsUrl], roomType: 'loud', keyPrefix: '', message, seed: 1 },
      ALONE,
      systemClock,
      new SeededRandom(1),
    )
    await gather(4, 1)
    await worker.start({ rate: 20 })
    // Until what the sockets and the service hold for it is full: longer on a machine that is busy.
    let seconds = 2
    const stall = (): Promise<number> => {
      seconds *= 2
      return worker.stall({ share: 0.25, seconds })
    }
    await expect.poll(stall).toBe(1)
    await worker.stop()
    await worker.settle({ withinSeconds: 5 })
    expect((await worker.report()).failures).toEqual([])
  })
})

describe('players under a key that is revoked', () => {
  it('are closed, which is no failure', async () => {
    const issuer = new ControlIssuer({ controlUrl: service.controlUrl, controlToken: undefined })
    const key = await issuer.issueUnderKey()
    await worker.connect({ count: 3, perSecond: FAST, credentials: key.credentials })
    await worker.join({ rooms: 1, perSecond: FAST })
    const began = systemClock.now()
    await key.revoke()
    const closed = await worker.awaitRevoked({ withinSeconds: 5 })
    expect(closed).toHaveLength(3)
    for (const at of closed) expect(at - began).toBeLessThan(1500)
    expect((await worker.report()).counts.errors).toBe(0)
  })
})

describe('spectators', () => {
  it('see each update of the players, also after their sockets were cut', async () => {
    await gather(2, 1)
    await worker.watch({ count: 3, perSecond: FAST, credentials, room: 'load-0' })
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

  it('miss an update that was skipped', async () => {
    let patches = 0
    const front = await faultyFront(service.wsUrl, {
      toClient: (frame) => (frame[1] === SERVER_OPCODES['state.patch'] && ++patches === 3 ? [] : [frame]),
    })
    await gather(2, 1)
    const watching = workerAt([front.wsUrl])
    await watching.watch({ count: 1, perSecond: FAST, credentials, room: 'load-0' })
    await play(2, 20)
    await vi.waitFor(
      async () => expect((await watching.report()).findings.violations.gap.count).toBe(1),
      60_000,
    )
    const { violations } = (await watching.report()).findings
    expect(violations.gap.examples[0]).toContain('spectator 0 in load:load-0: an update was missing')
    await watching.close()
    front.close()
  })

  it('miss the last updates where others have seen them, though nothing comes that would show the gap', async () => {
    let silent = false
    const front = await faultyFront(service.wsUrl, {
      toClient: (frame) => (silent && STREAM.has(frame[1]!) ? [] : [frame]),
    })
    await gather(2, 1)
    const watching = workerAt([front.wsUrl])
    await watching.watch({ count: 2, perSecond: FAST, credentials, room: 'load-0' })
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

it('tells what clients fail with', async () => {
  await worker.connect({
    count: 1,
    perSecond: FAST,
    credentials: { ...credentials, token: 'v4.public.nonsense' },
  })
  const { counts, failures } = await worker.report()
  expect(counts.errors).toBe(1)
  expect(failures).toMatchObject([{ code: 'unauthenticated', count: 1 }])
})
