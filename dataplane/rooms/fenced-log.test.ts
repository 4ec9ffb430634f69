import { pino } from 'pino'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { memoryStore } from '../../shared/store/memory/memory.ts'
import { type RoomRecords, StoreUnavailable } from '../../shared/store/port.ts'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { SeededRandom } from '../../test/kit/seeded-random.ts'
import { FencedLog, type RecordedRoom } from './durability.ts'
import type { RoomEnvironment } from './environment.ts'

const ROOM = 'prj_a/duel:1'
const TTL_MS = 60_000
const NOTICE = new TextEncoder().encode('{"id":"a"}')

/** A log of a room that node_a owns, and its store. */
async function setup() {
  const clock = new FakeClock()
  const timer = setInterval(() => clock.advance(50), 1)
  onTestFinished(() => clearInterval(timer))
  const store = memoryStore({ clock })
  const nodes = { rewritesAllowedAt: 0 }
  const environment = {
    nodeId: 'node_a',
    clock,
    random: new SeededRandom(1),
    records: store.rooms,
    notices: store.notices,
    wakeups: store.wakeups,
    limits: { recordTtlMs: TTL_MS },
    metrics: { commitDuration: { observe: () => undefined } },
    cluster: { nodes },
  }
  const { fence } = (await store.rooms.claim(ROOM, 'node_a', 0, TTL_MS))!
  const room: RecordedRoom = {
    name: ROOM,
    log: pino({ level: 'silent' }),
    life: undefined,
    wakeAt: undefined,
    flushedVersion: 1,
    notices: { wrote: () => undefined },
    whole: () => new Uint8Array(1),
    renew: () => undefined,
    doubt: () => undefined,
  }
  const log = new FencedLog(environment as unknown as RoomEnvironment, room, fence)
  /** The store loses everything. No owner may write a room again before `rewritesAllowedAt`. */
  const empty = (rewritesAllowedAt: number) => {
    const { rooms, notices, wakeups } = memoryStore({ clock })
    nodes.rewritesAllowedAt = rewritesAllowedAt
    Object.assign(environment, { records: rooms, notices, wakeups })
    return rooms
  }
  return { clock, store, environment, fence, log, nodes, empty }
}

describe('FencedLog', () => {
  it('is not released if another node has the room, although the announcement before had to be repeated', async () => {
    const { store, fence, log } = await setup()
    vi.spyOn(store.notices, 'announce').mockRejectedValueOnce(new StoreUnavailable('down'))
    await store.rooms.claim(ROOM, 'node_b', fence.epoch, TTL_MS)
    expect(await log.release(true, { notices: [NOTICE] })).toBe(false)
  })

  it('writes the notices of the 30 s before the last one again when the store has lost the room, however long it was away', async () => {
    const { environment, log, clock } = await setup()
    const [old, first, last] = ['a', 'b', 'c'].map((id) => new TextEncoder().encode(`${id} {}`))
    const append = (...notices: Uint8Array[]) => log.append(new Uint8Array(1), notices)
    await append(old!)
    clock.advance(31_000)
    await append(first!)
    await append(last!)
    clock.advance(120_000)
    const empty = memoryStore({ clock })
    environment.records = empty.rooms
    environment.notices = empty.notices
    expect(await append()).toBe(true)
    expect(await empty.notices.count(ROOM)).toBe(2)
    expect(await empty.notices.oldest(ROOM)).toEqual(first)
  })

  describe('of a room that the store has lost', () => {
    /** The store takes the first `recall`, but its answer is lost. */
    const loseAnswerOfRecall = (rooms: RoomRecords) => {
      const recall = rooms.recall.bind(rooms)
      vi.spyOn(rooms, 'recall').mockImplementationOnce(async (...args) => {
        await recall(...args)
        throw new StoreUnavailable('the answer is lost')
      })
    }

    it.each([0, 2])(
      'waits for later owners, then writes under a new epoch, if the answer of recall is lost after %d writes',
      async (writes) => {
        const { clock, fence, log, empty } = await setup()
        for (let written = 0; written < writes; written++) await log.append(new Uint8Array(1), [])
        const allowedAt = clock.monotonic() + 5000
        const rooms = empty(allowedAt)
        loseAnswerOfRecall(rooms)
        expect(await log.append(new Uint8Array(1), [])).toBe(true)
        expect(clock.monotonic()).toBeGreaterThanOrEqual(allowedAt)
        expect(log.epoch).toBeGreaterThan(fence.epoch)
        expect(await rooms.inspect(ROOM)).toMatchObject({ epoch: log.epoch, owner: 'node_a' })
      },
    )

    it('leaves it to a later owner that recalls it in time, if an earlier owner was the first to recall it', async () => {
      const { fence, log, nodes, empty } = await setup()
      await log.append(new Uint8Array(1), [])
      const rooms = empty(Number.POSITIVE_INFINITY)
      await rooms.recall(ROOM, 'node_0', fence.epoch - 1, TTL_MS)
      const verified = log.verify()
      await vi.waitUntil(async () => (await rooms.inspect(ROOM))?.epoch === fence.epoch)
      await rooms.recall(ROOM, 'node_b', fence.epoch + 1, TTL_MS)
      nodes.rewritesAllowedAt = 0
      expect(await verified).toBe(false)
      expect(await rooms.inspect(ROOM)).toMatchObject({ epoch: fence.epoch + 1, owner: 'node_b' })
    })
  })
})
