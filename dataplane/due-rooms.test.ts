import { pino } from 'pino'
import { expect, it } from 'vitest'
import { StoreUnavailable } from '../shared/store/port.ts'
import { FakeClock } from '../test/kit/fake-clock.ts'
import { SeededRandom } from '../test/kit/seeded-random.ts'
import { DueRooms } from './due-rooms.ts'

const EVERY_MS = 4000

/** Resolves when all callbacks of resolved promises have run. */
const flushed = () => new Promise((resolve) => setImmediate(resolve))

/** An index of two parts with `counts` due rooms, and a node that works on at most 3 rooms of a part. */
function bench(counts: readonly [number, number]) {
  const clock = new FakeClock()
  const index = counts.map((count, part) => Array.from({ length: count }, (_, i) => `${part}/${i}`))
  const reads: string[] = []
  const logged: unknown[] = []
  const running = new Map<string, (error?: Error) => void>()
  const rooms = new DueRooms({
    clock,
    random: new SeededRandom(3),
    log: pino({}, { write: (line: string) => void logged.push(JSON.parse(line).msg) }),
    parts: 2,
    maxRunning: 3,
    everyMs: EVERY_MS,
    take: async (part, limit) => {
      reads.push(`${part}: ${limit}`)
      return index[part]!.splice(0, limit).map((room) => ({ room }))
    },
    work: ({ room }) =>
      new Promise((resolve, reject) => running.set(room, (error) => (error ? reject(error) : resolve()))),
  })
  const end = async (room: string, error?: Error): Promise<void> => {
    running.get(room)!(error)
    running.delete(room)
    await flushed()
  }
  const start = async (): Promise<void> => {
    rooms.start()
    clock.advance(EVERY_MS)
    await flushed()
  }
  return { clock, index, reads, logged, rooms, start, end, running: () => [...running.keys()] }
}

it('DueRooms works on at most maxRunning rooms of a part at the same time, and takes the next when one ends', async () => {
  const { start, end, running } = bench([5, 2])
  await start()
  expect(running()).toEqual(['0/0', '0/1', '0/2', '1/0', '1/1'])
  await end('0/1')
  await end('1/0')
  expect(running()).toEqual(['0/0', '0/2', '1/1', '0/3'])
})

it('DueRooms reads each part at intervals between half of everyMs and everyMs', async () => {
  const { clock, reads, rooms } = bench([0, 0])
  rooms.start()
  for (let i = 0; i < 20; i++) {
    reads.length = 0
    clock.advance(EVERY_MS / 2 - 1)
    await flushed()
    const early = reads.length
    clock.advance(clock.due - clock.monotonic())
    await flushed()
    expect([early, reads.length]).toEqual([0, 2])
  }
  await rooms.stop()
  clock.advance(EVERY_MS)
  expect(reads).toHaveLength(2)
})

it('DueRooms reads a part again when look is called during a read, or when the read has found as many rooms as allowed', async () => {
  const { index, reads, rooms, start } = bench([0, 0])
  await start()
  index[0]!.push('0/a')
  rooms.look(0)
  rooms.look(0)
  rooms.look(0)
  await flushed()
  expect(reads.slice(2)).toEqual(['0: 3', '0: 2'])
  index[0]!.push('0/b', '0/c', '0/d')
  rooms.look(0)
  await flushed()
  expect(reads.slice(4)).toEqual(['0: 2'])
  expect(index[0]).toEqual(['0/d'])
})

it('DueRooms logs failed work, except that the store is away, and takes the next room', async () => {
  const { start, end, running, logged } = bench([5, 0])
  await start()
  await end('0/0', new StoreUnavailable('away'))
  expect(logged).toEqual([])
  await end('0/1', new Error('broken'))
  expect(logged).toEqual(['due room failed'])
  expect(running()).toEqual(['0/2', '0/3', '0/4'])
})

it('DueRooms takes no rooms after stop, which resolves when the work under way has ended', async () => {
  const { rooms, start, end, running } = bench([5, 0])
  await start()
  let isStopped = false
  const stopped = rooms.stop().then(() => {
    isStopped = true
  })
  await end('0/0')
  await end('0/1')
  rooms.look(0)
  await flushed()
  expect([running(), isStopped]).toEqual([['0/2'], false])
  await end('0/2')
  await stopped
})
