import { expect, it } from 'vitest'
import type { NodeView } from '../../examples/backend/nodes.ts'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { roomDescription } from '../../test/support/descriptions.ts'
import { News } from './console.ts'

const LOOK_MS = 150

/** Rooms by owner and epoch: `{ 'node-1': { a: 1 } }`. */
type Owned = Record<string, Record<string, number>>

const views = (owned: Owned): NodeView[] =>
  Object.entries(owned).map(([nodeId, rooms]) => ({
    node_id: nodeId,
    state: 'ready',
    rooms: Object.entries(rooms).map(([key, epoch]) => roomDescription(`arena:${key}`, { epoch })),
    sessions: 0,
  }))

function setup() {
  const clock = new FakeClock()
  const lines: string[] = []
  let now: Owned = {}
  const news = new News({
    look: async () => views(now),
    clock,
    tell: (line) => void lines.push(line),
  })
  void news.start()
  return {
    news,
    clock,
    /** Returns the news after a change to these owners. */
    async told(owned: Owned): Promise<string[]> {
      now = owned
      await Promise.resolve()
      clock.advance(LOOK_MS)
      await new Promise((resolve) => setImmediate(resolve))
      return lines.splice(0)
    },
  }
}

it('reports where a room opens, and its next owner with the time since the fault', async () => {
  const { news, clock, told } = setup()
  expect(await told({ 'node-1': { a: 5 } })).toEqual(['room arena:a opened on node-1 (epoch 5)'])
  expect(await told({ 'node-1': { a: 5 } })).toEqual([])
  news.fault('node-1')
  clock.advance(750)
  await told({ 'node-1': { a: 5 } })
  expect(await told({ 'node-2': { a: 6 } })).toEqual([
    'room arena:a went from node-1 to node-2, 1.1 s later (epoch 6)',
  ])
})

it('ignores a node that does not know yet that it lost its room', async () => {
  const { told } = setup()
  await told({ 'node-1': { a: 5 }, 'node-2': {} })
  await told({ 'node-1': { a: 5 }, 'node-2': { a: 6 } })
  expect(await told({ 'node-1': { a: 5 }, 'node-2': {} })).toEqual([])
})

it('counts rooms that move together', async () => {
  const { told } = setup()
  await told({ 'node-1': { a: 1, b: 1, c: 1, d: 1 } })
  expect(await told({ 'node-2': { a: 2, b: 2, c: 2, d: 2 } })).toEqual(['4 rooms went from node-1 to node-2'])
})
