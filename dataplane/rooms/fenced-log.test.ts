import { pino } from 'pino'
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import { memoryStore } from '../../shared/store/memory/memory.ts'
import { StoreUnavailable } from '../../shared/store/port.ts'
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
  const environment = {
    nodeId: 'node_a',
    clock,
    random: new SeededRandom(1),
    records: store.rooms,
    notices: store.notices,
    wakeups: store.wakeups,
    limits: { recordTtlMs: TTL_MS },
    metrics: { commitDuration: { observe: () => undefined } },
    rewritesAllowedAt: () => 0,
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
  return { clock, store, environment, fence, log }
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
})
