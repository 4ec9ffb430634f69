import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import * as v from 'valibot'
import { expect, it } from 'vitest'
import { RoomBench } from '../../test/support/rooms/room-bench.ts'
import { defineRoom } from './definition.ts'

const MIB = 1024 * 1024
const ROOMS = 20
const LIMITS = { waitingMessages: 100, tasks: 20, stateBytes: 64 * 1024, historyBytes: 2 * MIB }

const store = defineRoom({
  type: 'store',
  maxPlayers: 4,
  messages: { put: { data: v.object({ at: v.string(), text: v.string() }) }, start: { data: v.null() } },
  durability: 'none',
  sync: { rate: 0 },
  create: (): { items: Record<string, string> } => ({ items: {} }),
  tasks: { never: { result: v.null(), handle: () => undefined } },
  onMessage(state, { type, data }, ctx) {
    if (type === 'start') ctx.task(() => new Promise<null>(() => undefined), 'never')
    else if (type === 'put') state.items[data.at] = data.text
  },
})

/** Heap and buffers that are in use, in MiB. */
function used(): number {
  setFlagsFromString('--expose-gc')
  const collect: () => void = runInNewContext('gc')
  collect()
  collect()
  const { heapUsed, arrayBuffers } = process.memoryUsage()
  return (heapUsed + arrayBuffers) / MIB
}

/** Exceeds every limit of a room: state, history, tasks, and all kinds of messages that wait while it cannot act. */
async function attack(bench: RoomBench, round: number): Promise<number> {
  const rooms = Array.from({ length: ROOMS }, (_, n) => `room ${n}`)
  // Strings that share nothing. Otherwise V8 would keep one for all.
  const text = (n: number, bytes: number) => Buffer.alloc(bytes, `${round} ${n} `).toString()
  for (let n = 0; n < 60; n++) {
    for (const key of rooms) {
      bench.message('store', 'first', 'put', { at: `${n}`, text: text(n, 2048) }, undefined, key)
      bench.message('store', 'first', 'start', null, undefined, key)
    }
    await bench.untilIdle()
    bench.sent.length = 0
  }
  bench.mayAct = false
  for (const key of rooms)
    for (let n = 0; n < 1100; n++) {
      const memberId = `${round} ${n}`
      const asked = { edge: 'node_a', turn: 0, codec: 'roomful.v1.msgpack', session_id: memberId } as const
      bench.message('store', 'first', 'put', { at: 'late', text: text(n, 512) }, undefined, key)
      bench.send('store', 'first', { kind: 'resync', reason: 'checksum' }, key)
      bench.send(
        'store',
        'first',
        { kind: 'refuse', from: n, through: n, code: 'forbidden', message: 'no' },
        key,
      )
      bench.send('store', memberId, { kind: 'leave', reason: 'left', request_id: n }, key)
      bench.send(
        'store',
        memberId,
        { kind: 'join', request_id: n, sub: null, principal: 'p', options: {}, ...asked },
        key,
      )
      bench.send(
        'store',
        memberId,
        { kind: 'attach', ask: n, epoch: 1, seq: 1, settled: 0, through: 0, ...asked },
        key,
      )
      bench.sent.length = 0
    }
  const peak = used()
  bench.mayAct = true
  bench.host.recheck()
  await bench.untilIdle()
  bench.sent.length = 0
  return peak
}

it('a node holds no more than the sum of its limits, with every queue of its rooms full, however long that lasts', async () => {
  const bench = new RoomBench([store], { limits: LIMITS })
  for (let n = 0; n < ROOMS; n++) {
    const asked = { edge: 'node_a', turn: 0, codec: 'roomful.v1.msgpack', session_id: 'first' } as const
    const join = { kind: 'join', request_id: 1, sub: null, principal: 'p', options: {}, ...asked } as const
    bench.send('store', 'first', join, `room ${n}`)
  }
  await bench.untilIdle()
  const before = used()
  const peaks: number[] = []
  for (let round = 0; round < 2; round++) peaks.push((await attack(bench, round)) - before)
  expect(bench.host.rooms.size).toBe(ROOMS)
  expect(bench.counts.backlog_full).toBeGreaterThan(ROOMS * 500)
  expect(bench.counts['limit state']).toBeGreaterThan(0)
  expect(bench.counts['limit tasks']).toBeGreaterThan(0)
  expect(bench.counts.history_dropped).toBeGreaterThan(0)
  // A waiting message takes its text and about 400 bytes. A state is kept twice, live and flushed.
  const roomMib = (100 * 1024 + 1000 * 600 + 3 * LIMITS.stateBytes) / MIB
  const bound = ROOMS * roomMib + LIMITS.historyBytes / MIB
  for (const peak of peaks) expect(peak).toBeLessThan(bound)
}, 60_000)
