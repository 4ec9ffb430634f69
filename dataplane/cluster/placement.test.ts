import { describe, expect, it } from 'vitest'
import type { NodeInfo } from '../../shared/node-registry.ts'
import { SeededRandom } from '../../test/kit/seeded-random.ts'
import { nodeInfo } from '../../test/support/descriptions.ts'
import { place } from './placement.ts'

const random = new SeededRandom(3)
const a = nodeInfo('node_a')
const b = nodeInfo('node_b')
const c = nodeInfo('node_c')

const room = { roomType: 'arena', stateVersion: 1 }
const common = { self: 'node_a', random, room, hasSpare: false }
const create = (nodes: readonly NodeInfo[]) => place({ ...common, nodes, reason: 'create' })
const takeOver = (nodes: readonly NodeInfo[]) => place({ ...common, nodes, reason: 'take_over' })
const successorOf = (nodes: readonly NodeInfo[], preferred?: string) =>
  place({ ...common, nodes, reason: 'hand_over', ...(preferred !== undefined && { preferred }) })

/** Number of times that each node was chosen in `count` rounds. */
function tally(count: number, choose: () => string | undefined): Record<string, number> {
  const chosen: Record<string, number> = {}
  for (let i = 0; i < count; i++) {
    const node = String(choose())
    chosen[node] = (chosen[node] ?? 0) + 1
  }
  return chosen
}

/** Places `count` rooms; each node learns of them `lag` placements later. Returns by how many rooms the fullest node exceeds the average. */
function spread(start: readonly NodeInfo[], count: number, lag: number, choose: typeof create): number {
  const nodes = start.map((node) => ({ ...node }))
  let known = nodes.map((node) => ({ ...node }))
  const own = known.findIndex(({ node_id: nodeId }) => nodeId === 'node_a')
  for (let i = 0; i < count; i++) {
    if (i % lag === 0) known = nodes.map((node) => ({ ...node }))
    if (own >= 0) known[own] = nodes[own]!
    const chosen = choose(known)
    nodes.find(({ node_id: nodeId }) => nodeId === chosen)!.rooms++
  }
  const rooms = nodes.filter(({ draining }) => !draining).map((node) => node.rooms)
  return Math.max(...rooms) / (rooms.reduce((sum, one) => sum + one, 0) / rooms.length)
}

describe('a new room', () => {
  it('stays at the node that asks for it in a quiet cluster', () => {
    expect(create([a])).toBe('node_a')
    expect(tally(100, () => create([{ ...a, rooms: 9 }, b, c]))).toEqual({ node_a: 100 })
    expect(tally(100, () => create([{ ...a, load: 0.2 }, b, c]))).toEqual({ node_a: 100 })
  })

  it('goes to a node that is not cordoned, and to none if all are', () => {
    const cordoned = { ...a, cordoned: true }
    for (const reason of ['create', 'take_over', 'hand_over'] as const) {
      const choose = (nodes: readonly NodeInfo[]) => place({ ...common, nodes, reason, preferred: 'node_c' })
      expect(choose([cordoned, b, { ...c, cordoned: true }])).toBe('node_b')
      expect(choose([cordoned, { ...b, cordoned: true }])).toBeUndefined()
    }
  })

  it('stays at a full node with a spare place for its project only if all nodes are full', () => {
    const [full, alsoFull] = [a, b].map((node) => ({ ...node, rooms: 100, max_rooms: 100 })) as [
      NodeInfo,
      NodeInfo,
    ]
    const choose = (
      reason: 'create' | 'take_over' | 'hand_over',
      nodes: readonly NodeInfo[],
      hasSpare = true,
    ) => place({ ...common, nodes, reason, hasSpare })
    expect(choose('create', [full, b])).toBe('node_b')
    expect(choose('create', [full, alsoFull])).toBe('node_a')
    expect(choose('take_over', [full, alsoFull])).toBe('node_a')
    expect(choose('hand_over', [full, alsoFull])).toBeUndefined()
    expect(choose('create', [full, alsoFull], false)).toBeUndefined()
    for (const closed of [{ cordoned: true }, { draining: true }, { overloaded: true }])
      expect(choose('create', [{ ...full, ...closed }, alsoFull])).toBeUndefined()
  })

  it('goes to another node if this one has more than its share of rooms or load', () => {
    expect(tally(100, () => create([{ ...a, rooms: 500 }, b, c])).node_a).toBeUndefined()
    expect(tally(100, () => create([{ ...a, load: 0.9 }, b, c])).node_a).toBeUndefined()
  })

  it('goes to the less loaded of two other nodes', () => {
    const nodes = [{ ...a, rooms: 500 }, { ...b, rooms: 100 }, c, { ...nodeInfo('node_d'), load: 0.8 }]
    const chosen = tally(3000, () => create(nodes))
    // Each node is one of the two at least half of the time. The one with the most rooms never wins.
    expect(Object.keys(chosen).sort()).toEqual(['node_b', 'node_c'])
    expect(chosen.node_c!).toBeGreaterThan(1800)
  })

  it('goes to no node that drains or is full, and to none if all are', () => {
    const full = { rooms: 1000, max_rooms: 1000 }
    expect(create([{ ...a, ...full }, { ...b, draining: true }, c])).toBe('node_c')
    expect(
      create([
        { ...a, ...full },
        { ...b, draining: true },
        { ...c, ...full },
      ]),
    ).toBeUndefined()
    expect(create([a, { ...b, ...full }])).toBe('node_a')
    expect(create([{ ...a, draining: true }, b])).toBe('node_b')
    expect(create([{ ...a, rooms: 5, max_rooms: 0 }])).toBe('node_a')
  })

  it('goes to a node that also accepts sessions, or else to one without space for sessions', () => {
    const busy = { sessions: 10, max_sessions: 10 }
    expect(create([{ ...a, ...busy }, b])).toBe('node_b')
    expect(create([{ ...a, sessions: 10, max_sessions: 0 }, b])).toBe('node_a')
    expect(
      create([
        { ...a, ...busy },
        { ...b, ...busy },
      ]),
    ).toBe('node_a')
  })

  it('is one of ten thousand that spread evenly, although one node asks for all of them', () => {
    const nodes = ['node_a', 'node_b', 'node_c', 'node_d', 'node_e'].map((id) =>
      nodeInfo(id, { max_rooms: 1e6 }),
    )
    expect(spread(nodes, 10_000, 1, create)).toBeLessThan(1.2)
    expect(spread(nodes, 10_000, 200, create)).toBeLessThan(1.25)
  })
})

describe('a room of a dead node', () => {
  it('goes to the node that finds it, unless that node is full or drains', () => {
    expect(takeOver([{ ...a, rooms: 900, load: 0.9 }, b])).toBe('node_a')
    expect(takeOver([{ ...a, rooms: 1000 }, b])).toBe('node_b')
    expect(takeOver([{ ...a, draining: true }, b])).toBe('node_b')
    expect(takeOver([{ ...a, draining: true }])).toBeUndefined()
  })
})

describe('a room that is handed over', () => {
  it('leaves this node, and goes to the node of its members', () => {
    expect(tally(100, () => successorOf([a, b, c], 'node_c'))).toEqual({ node_c: 100 })
    expect(tally(100, () => successorOf([a, b, c], 'node_a')).node_a).toBeUndefined()
    expect(successorOf([a])).toBeUndefined()
  })

  it('does not go to its members’ node if that is full, drains, or has far more than the others', () => {
    expect(successorOf([a, { ...b, draining: true }, c], 'node_b')).toBe('node_c')
    expect(successorOf([a, { ...b, rooms: 1000 }, c], 'node_b')).toBe('node_c')
    expect(successorOf([a, { ...b, load: 0.95 }, c], 'node_b')).toBe('node_c')
    expect(successorOf([a, b, c], 'node_x')).not.toBe('node_x')
  })

  it('is one of ten thousand that spread evenly', () => {
    const nodes = [
      nodeInfo('node_a', { draining: true, rooms: 10_000 }),
      ...['node_b', 'node_c', 'node_d', 'node_e'].map((id, i) =>
        nodeInfo(id, { rooms: i * 300, max_rooms: 1e6 }),
      ),
    ]
    expect(spread(nodes, 10_000, 1, successorOf)).toBeLessThan(1.02)
    expect(spread(nodes, 10_000, 200, successorOf)).toBeLessThan(1.1)
  })
})

describe('a node that is overloaded', () => {
  const full = { ...a, overloaded: true }

  it('gets no new room, from here or from elsewhere', () => {
    expect(tally(100, () => create([full, b]))).toEqual({ node_b: 100 })
    expect(tally(100, () => create([{ ...a, rooms: 500 }, { ...b, overloaded: true }, c]))).toEqual({
      node_c: 100,
    })
    expect(create([full, { ...b, overloaded: true }])).toBeUndefined()
  })

  it('gets rooms of a dead node only if no other node can take them', () => {
    expect(takeOver([full, b])).toBe('node_b')
    expect(takeOver([full, { ...b, overloaded: true }])).toBe('node_a')
  })
})

describe('a room whose state has a version', () => {
  const running = (node: NodeInfo, arena?: number): NodeInfo => ({
    ...node,
    room_types: arena === undefined ? {} : { arena },
  })
  const nodes = [running({ ...a, rooms: 0 }, 1), running(b), running({ ...c, rooms: 500 }, 2)]
  const chosen = (reason: 'create' | 'take_over' | 'hand_over', stateVersion: number, known = nodes) =>
    place({ ...common, nodes: known, reason, preferred: 'node_b', room: { roomType: 'arena', stateVersion } })

  it('goes to a node whose code is not older, however full it is and wherever the members are', () => {
    expect([chosen('take_over', 2), chosen('hand_over', 2), chosen('create', 2)]).toEqual(
      Array(3).fill('node_c'),
    )
    expect([chosen('take_over', 1), chosen('hand_over', 1)]).toEqual(['node_a', 'node_c'])
  })

  it('goes nowhere while all nodes are older; a room of an unknown type goes to a node that can answer so', () => {
    expect(chosen('take_over', 3)).toBeUndefined()
    expect(chosen('create', 1, [running(a), running(b)])).toBe('node_a')
    expect(chosen('take_over', 2, [a])).toBe('node_a')
  })
})
