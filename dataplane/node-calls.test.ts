import * as v from 'valibot'
import { describe, expect, it } from 'vitest'
import { createLog } from '../shared/log.ts'
import { memoryStore } from '../shared/store/memory/memory.ts'
import { FakeClock } from '../test/kit/fake-clock.ts'
import { SeededRandom } from '../test/kit/seeded-random.ts'
import { NodeCalls } from './node-calls.ts'

const clock = new FakeClock()
const { bus } = memoryStore({ clock })
const logged: string[] = []
const log = createLog({ logLevel: 'info' }, {}, { write: (line) => void logged.push(line) })

async function node(nodeId: string, respond: (text: string) => number | Promise<number>) {
  const topic = { name: 'length', question: v.string(), answer: v.number() }
  const random = new SeededRandom(nodeId.length)
  const calls = new NodeCalls(topic, { nodeId, bus, clock, random, log }, respond)
  await calls.start()
  return calls
}

describe('NodeCalls', () => {
  it('returns the answer of the asked node, to each question its own answer', async () => {
    const one = await node('one', () => -1)
    const three = await node('three', (text) => text.length)
    expect(await Promise.all([one.ask('three', 'ab', 1000), one.ask('three', 'abc', 1000)])).toEqual([2, 3])
    expect(clock.pending).toBe(0)
    await Promise.all([one.stop(), three.stop()])
  })

  it('returns undefined if the node does not listen, answers too late or fails, or if this node stops', async () => {
    const one = await node('one', () => -1)
    expect(await one.ask('nobody', 'ab', 1000)).toBe(undefined)
    let answer = (_: number): void => {}
    const slow = await node('slow', () => new Promise((resolve) => (answer = resolve)))
    const late = one.ask('slow', 'ab', 1000)
    clock.advance(1000)
    expect(await late).toBe(undefined)
    answer(2)
    const failing = await node('failing', () => Promise.reject(new Error('no')))
    const failed = one.ask('failing', 'ab', 1000)
    const stopped = one.ask('slow', 'ab', 1000)
    await one.stop()
    expect([await failed, await stopped, clock.pending]).toEqual([undefined, undefined, 0])
    expect(logged).toEqual([expect.stringContaining('call of another node failed')])
    await Promise.all([slow.stop(), failing.stop()])
  })
})
