import { join } from 'node:path'
import { defineRoom } from 'roomful'
import * as v from 'valibot'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { loadRooms } from '../../dataplane/rooms/loader.ts'
import { systemClock } from '../../shared/clock.ts'
import { SERVER_OPCODES } from '../../shared/protocol/messages.ts'
import { faultyFront } from '../../test/support/faulty-front.ts'
import { SeededRandom } from '../../test/support/seeded-random.ts'
import { startService, type TestService } from '../../test/support/service.ts'
import { ControlIssuer } from '../control-issuer.ts'
import type { Credentials } from './client-parts.ts'
import { Squad, type SquadReport } from './squad.ts'
import { noCounts } from './tally.ts'

const ROOMS = join(import.meta.dirname, '../rooms')
/** Everybody hears whatever is said, as an event, which nobody is spared. */
const loud = defineRoom({
  type: 'loud',
  messages: { shout: { data: v.string(), rate: { per_second: 1000, burst: 1000 } } },
  sync: { rate: 0 },
  durability: 'none',
  create: () => ({}),
  on_message: (_state, { data }, ctx) => void ctx.emit('heard', data),
})

/** All that has a `seq`. */
const STREAM = new Set<number>(
  (['state.patch', 'event', 'room.joined', 'room.left'] as const).map((type) => SERVER_OPCODES[type]),
)
const FAST = { per_second: 1000, offset: 0 }

let service: TestService
let squad: Squad
let credentials: Credentials
beforeAll(async () => {
  service = await startService({
    rooms: [...(await loadRooms(ROOMS)), loud],
    node: {
      session_messages_per_second: 100_000,
      new_rooms_per_minute: 0,
      outbox_high_water_bytes: 200_000,
      outbox_limit_bytes: 600_000,
    },
  })
})
afterAll(() => service.close())

const squadAt = (ws_urls: readonly string[]): Squad =>
  new Squad({ ws_urls, room_type: 'load', message: undefined, seed: 1 }, systemClock, new SeededRandom(1))

beforeEach(async () => {
  squad = squadAt([service.ws_url])
  credentials = await new ControlIssuer({
    control_url: service.control_url,
    control_token: undefined,
  }).issue()
})
afterEach(() => squad.close())

/** So many players in rooms. */
async function gather(players: number, rooms: number): Promise<void> {
  await squad.connect([...Array(players).keys()], FAST, credentials)
  await squad.join(rooms, FAST)
}

/** Looks again and again until so many messages have left; what every look has found. */
async function untilSent(count: number): Promise<SquadReport[]> {
  const all: SquadReport[] = []
  for (let sends = 0; sends < count; ) {
    await new Promise((resolve) => setTimeout(resolve, 20))
    const report = await squad.report()
    all.push(report)
    sends += report.counts.sends
  }
  return all
}

/** All have said about `times` things, and everything of it is settled. */
async function play(players: number, times: number, bytes = 0): Promise<SquadReport> {
  await squad.start(40, 0, bytes)
  const all = await untilSent(players * times)
  await squad.stop()
  await squad.settle(5)
  all.push(await squad.report())
  return sum(all)
}

const sum = (reports: readonly SquadReport[]): SquadReport => ({
  ...reports.at(-1)!,
  failures: reports.flatMap(({ failures }) => failures),
  counts: reports.reduce(
    (total, { counts }) =>
      Object.fromEntries(
        Object.entries(counts).map(([name, value]) => [name, value + total[name as keyof typeof total]]),
      ) as unknown as SquadReport['counts'],
    noCounts() as SquadReport['counts'],
  ),
})

const broken = async (): Promise<string[]> =>
  Object.entries((await squad.findings()).breaches).flatMap(([kind, { count }]) => (count > 0 ? [kind] : []))

describe('players', () => {
  it('play, and everything they send is acked, shown to all in the room, and timed', async () => {
    await gather(6, 2)
    const { counts, failures, online } = await play(6, 10)
    expect(failures).toEqual([])
    expect(online).toBe(6)
    expect(counts.acks).toBe(counts.sends)
    expect(counts.events).toBeGreaterThanOrEqual(6 * 3)
    expect(await broken()).toEqual([])
    expect(await squad.findings()).toMatchObject({ counted_members: 6, acks: counts.acks })
  })

  it('go on after their sockets were cut', async () => {
    await gather(4, 1)
    await play(4, 2)
    await squad.cut(0.5)
    const { counts, online } = await play(4, 2)
    expect({ resumes: counts.resumes, errors: counts.errors, online }).toEqual({
      resumes: 2,
      errors: 0,
      online: 4,
    })
    expect(await broken()).toEqual([])
  })

  it('count what is never acked with the time it was waited for', async () => {
    const front = await faultyFront(service.ws_url, {
      to_client: (frame) => (frame[1] === SERVER_OPCODES.ack ? [] : [frame]),
    })
    squad = squadAt([front.ws_url])
    await gather(1, 1)
    await squad.start(40, 0, 0)
    const before = await untilSent(5)
    await squad.stop()
    // For a second after a join acks may come later.
    await squad.settle(1.2)
    await squad.giveUp()
    const { counts, timings, failures } = sum([...before, await squad.report()])
    expect(counts.acks).toBe(0)
    expect(timings.rtt!.count).toBe(counts.sends)
    expect(timings.rtt!.min).toBeGreaterThan(500_000)
    expect(failures).toEqual([])
    expect(await broken()).toEqual(['lost_ack'])
    front.close()
  })

  it('move from room to room', async () => {
    await gather(4, 2)
    await squad.report()
    await squad.churn(2, 0.5, { per_second: 20, offset: 0 })
    const { counts } = await squad.report()
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
    await squad.markPauses()
    await squad.start(40, 0, 0)
    await squad.cut(0.5)
    await squad.stop()
    await squad.settle(5)
    await squad.takePauses()
    const { pause, rtt } = (await squad.report()).timings
    expect(pause!.count).toBeLessThanOrEqual(4)
    expect(pause!.max).toBe(rtt!.max)
    await squad.markPauses()
    await squad.takePauses()
    expect((await squad.report()).timings.pause).toBeUndefined()
  })
})

describe('a player that reads too slowly', () => {
  it('is closed by the service, which is told and is no failure', async () => {
    const message = { type: 'shout', data: 'loud '.repeat(3000) }
    squad = new Squad(
      { ws_urls: [service.ws_url], room_type: 'loud', message, seed: 1 },
      systemClock,
      new SeededRandom(1),
    )
    await gather(4, 1)
    await squad.start(50, 0, 0)
    expect(await squad.stall(0.25, 4)).toBe(1)
    await squad.stop()
    await squad.settle(5)
    const { counts, online, failures } = await squad.report()
    expect({ errors: counts.errors, failures, online }).toEqual({ errors: 0, failures: [], online: 3 })
  })
})

describe('players under a key that is revoked', () => {
  it('are closed, which is no failure', async () => {
    const issuer = new ControlIssuer({ control_url: service.control_url, control_token: undefined })
    const key = await issuer.issueUnderKey()
    await squad.connect([0, 1, 2], FAST, key.credentials)
    await squad.join(1, FAST)
    const began = systemClock.now()
    await key.revoke()
    const closed = await squad.awaitRevoked(5)
    expect(closed).toHaveLength(3)
    for (const { seen_at, open_at } of closed) {
      expect(seen_at - began).toBeLessThan(1500)
      expect(open_at).toBeGreaterThan(began - 1500)
      expect(open_at).toBeLessThanOrEqual(seen_at)
    }
    expect((await squad.report()).counts.errors).toBe(0)
  })
})

describe('spectators', () => {
  it('see each update of the players, also after their sockets were cut', async () => {
    await gather(2, 1)
    await squad.watch([2, 3, 4], FAST, credentials, 'load-0')
    const { counts, online } = await play(2, 5)
    expect(online).toBe(5)
    expect(counts.updates).toBeGreaterThanOrEqual(counts.sends)
    await squad.cut(1)
    const after = await play(2, 5)
    expect({ online: after.online, resumes: after.counts.resumes, errors: after.counts.errors }).toEqual({
      online: 5,
      resumes: 5,
      errors: 0,
    })
    expect(await broken()).toEqual([])
    const { updates, player_updates } = await squad.findings()
    expect(updates / player_updates).toBeCloseTo(5 / 2, 0)
  })

  it('miss an update that was skipped', async () => {
    let patches = 0
    const front = await faultyFront(service.ws_url, {
      to_client: (frame) => (frame[1] === SERVER_OPCODES['state.patch'] && ++patches === 3 ? [] : [frame]),
    })
    await gather(2, 1)
    const watching = squadAt([front.ws_url])
    await watching.watch([2], FAST, credentials, 'load-0')
    await play(2, 20)
    await vi.waitFor(async () => expect((await watching.findings()).breaches.gap.count).toBe(1), 60_000)
    const { breaches } = await watching.findings()
    expect(breaches.gap.examples[0]).toContain('spectator 2 in load:load-0: after seq')
    await watching.close()
    front.close()
  })

  it('miss the last updates where others have seen them, though nothing comes that would show the gap', async () => {
    let silent = false
    const front = await faultyFront(service.ws_url, {
      to_client: (frame) => (silent && STREAM.has(frame[1]!) ? [] : [frame]),
    })
    await gather(2, 1)
    const watching = squadAt([front.ws_url])
    await watching.watch([2, 3], FAST, credentials, 'load-0')
    await play(2, 5)
    await watching.catchUp(await squad.newest(), 10)
    expect((await watching.findings()).breaches.gap.count).toBe(0)
    silent = true
    await play(2, 5)
    await watching.catchUp(await squad.newest(), 0)
    const { count, examples } = (await watching.findings()).breaches.gap
    expect(count).toBe(2)
    expect(examples[0]).toMatch(
      /^spectator 2 in load:load-0: nothing came after seq \d+, and others have seen \d+ more$/,
    )
    await watching.close()
    front.close()
  })
})

it('tells what clients fail with', async () => {
  await squad.connect([0], FAST, { ...credentials, token: 'v4.public.nonsense' })
  const { counts, failures } = await squad.report()
  expect(counts.errors).toBe(1)
  expect(failures).toMatchObject([{ code: 'unauthenticated', count: 1 }])
})
