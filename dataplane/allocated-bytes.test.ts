import { type HeapProfiler, Session } from 'node:inspector/promises'
import v8 from 'node:v8'
import * as v from 'valibot'
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest'
import { testRooms } from '../test/kit/index.ts'
import { defineRoom } from './index.ts'

// V8's optimizing compiler takes allocations out of the code, when it gets time on another thread: sooner or later. Without it, the count is that of the
// code as it is written.
beforeAll(() => v8.setFlagsFromString('--no-opt'))
afterAll(() => v8.setFlagsFromString('--opt'))

/** Limits in bytes. This measurement gives 2,950 and 1,530, on the oldest version of Node. */
const MOST = { input: 3700, update: 1950 }

const CLIENTS = 25
/** Inputs of each client in a round. */
const INPUTS = 20
const TICK_RATE = 60
/** One sample for about so many bytes. */
const SAMPLED_BYTES = 512
/** The first run of a function compiles it. */
const ROUNDS = 3

const place = () => ({ x: Math.floor(Math.random() * 1e5) / 100, y: Math.floor(Math.random() * 1e5) / 100 })

type Players = { players: Record<string, ReturnType<typeof place>> }

const inputRoom = defineRoom({
  type: 'inputs',
  messages: { move: { data: v.object({ x: v.number(), y: v.number() }) } },
  sync: { rate: 1 },
  durability: 'none',
  create: (): Players => ({ players: {} }),
  onJoin(state, { id }) {
    state.players[id] = place()
  },
  onMessage(state, { member, data }) {
    Object.assign(state.players[member.id]!, data)
  },
})

const tickRoom = defineRoom({
  type: 'ticks',
  sync: { rate: TICK_RATE },
  durability: 'none',
  create: (): Players => ({ players: {} }),
  onJoin(state, { id }) {
    state.players[id] = place()
  },
  tick: { rate: TICK_RATE },
  onTick(state) {
    for (const player of Object.values(state.players)) Object.assign(player, place())
  },
})

/** Returns the bytes that the node's code has allocated, and the functions of JavaScript that it has called. Sockets and clients are not part of it. */
function allocated(at: HeapProfiler.SamplingHeapProfileNode, isInside = false): number {
  const { url } = at.callFrame
  if (url.includes('/client/')) return 0
  const isSocket = url.startsWith('node:') || url.includes('/node_modules/ws/')
  const isOwn = /\/(dataplane|shared)\//.test(url) && !url.endsWith('.test.ts')
  const counts = isOwn || (isInside && !isSocket)
  return (counts ? at.selfSize : 0) + at.children.reduce((sum, child) => sum + allocated(child, counts), 0)
}

/** Returns the bytes that the node allocates in a `round`, for each of `number`: the least of some rounds. */
async function measure(number: number, round: () => Promise<void>): Promise<number> {
  const profiler = new Session()
  profiler.connect()
  onTestFinished(() => profiler.disconnect())
  let least = Number.POSITIVE_INFINITY
  for (let i = 0; i < ROUNDS; i++) {
    await profiler.post('HeapProfiler.startSampling', {
      samplingInterval: SAMPLED_BYTES,
      includeObjectsCollectedByMajorGC: true,
      includeObjectsCollectedByMinorGC: true,
    })
    await round()
    const { profile } = await profiler.post('HeapProfiler.stopSampling')
    least = Math.min(least, allocated(profile.head) / number)
  }
  return least
}

test('an input allocates few bytes on its way to room code, and in the state', async () => {
  const t = await testRooms([inputRoom])
  onTestFinished(() => t.close())
  const rooms = await t.join('inputs', CLIENTS)
  const bytes = await measure(CLIENTS * INPUTS, async () => {
    for (let i = 0; i < INPUTS; i++) for (const room of rooms) room.send('move', place(), { reliable: false })
    await t.advance(1000)
  })
  expect(bytes).toBeLessThan(MOST.input)
})

test('an update allocates few bytes for each member: a flush with its tick, divided by the members', async () => {
  const t = await testRooms([tickRoom])
  onTestFinished(() => t.close())
  await t.join('ticks', CLIENTS)
  const bytes = await measure(CLIENTS * TICK_RATE, () => t.advance(1000))
  expect(bytes).toBeLessThan(MOST.update)
})
