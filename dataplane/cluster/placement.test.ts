import { describe, expect, it } from 'vitest'
import { noSpan, noTracer } from '../../shared/tracing/tracer.ts'
import { nodeInfo } from '../../test/support/descriptions.ts'
import { FakeClock } from '../../test/support/fake-clock.ts'
import { SeededRandom } from '../../test/support/seeded-random.ts'
import type { NodeInfo } from '../descriptions.ts'
import type { RoomAddress } from '../traffic.ts'
import { handOver, type LeavingRoom, place } from './placement.ts'

const random = new SeededRandom(3)
const a = nodeInfo('node_a')
const b = nodeInfo('node_b')
const c = nodeInfo('node_c')

const create = (nodes: readonly NodeInfo[]) => place({ self: 'node_a', nodes, random, reason: 'create' })
const takeOver = (nodes: readonly NodeInfo[]) => place({ self: 'node_a', nodes, random, reason: 'take_over' })
const successorOf = (nodes: readonly NodeInfo[], preferred?: string) =>
  place({ self: 'node_a', nodes, random, reason: 'hand_over', ...(preferred !== undefined && { preferred }) })

/** How often each node was chosen in `count` rounds. */
function tally(count: number, choose: () => string | undefined): Record<string, number> {
  const chosen: Record<string, number> = {}
  for (let i = 0; i < count; i++) {
    const node = String(choose())
    chosen[node] = (chosen[node] ?? 0) + 1
  }
  return chosen
}

/** Places `count` rooms, of which each node knows after every `lag` placements; how many rooms the fullest has beside the average. */
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
  it('stays where it was asked for in a quiet cluster', () => {
    expect(create([a])).toBe('node_a')
    expect(tally(100, () => create([{ ...a, rooms: 9 }, b, c]))).toEqual({ node_a: 100 })
    expect(tally(100, () => create([{ ...a, load: 0.2 }, b, c]))).toEqual({ node_a: 100 })
  })

  it('goes to another node when this one has more than its share of rooms, or of load', () => {
    expect(tally(100, () => create([{ ...a, rooms: 500 }, b, c])).node_a).toBeUndefined()
    expect(tally(100, () => create([{ ...a, load: 0.9 }, b, c])).node_a).toBeUndefined()
  })

  it('goes to the less loaded of two others', () => {
    const nodes = [{ ...a, rooms: 500 }, { ...b, rooms: 100 }, c, { ...nodeInfo('node_d'), load: 0.8 }]
    const chosen = tally(3000, () => create(nodes))
    // Everyone is one of the two half of the time or more; who has most never wins.
    expect(Object.keys(chosen).sort()).toEqual(['node_b', 'node_c'])
    expect(chosen.node_c!).toBeGreaterThan(1800)
  })

  it('goes to no node that drains or is full, and to none when all are', () => {
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
  })

  it('goes where sessions can go too, but rather to a node that has enough of them than to none', () => {
    const busy = { sessions: 10, max_sessions: 10 }
    expect(create([{ ...a, ...busy }, b])).toBe('node_b')
    expect(
      create([
        { ...a, ...busy },
        { ...b, ...busy },
      ]),
    ).toBe('node_a')
  })

  it('is one of ten thousand that spread evenly, though all are asked for at one node', () => {
    const nodes = ['node_a', 'node_b', 'node_c', 'node_d', 'node_e'].map((id) =>
      nodeInfo(id, { max_rooms: 1e6 }),
    )
    expect(spread(nodes, 10_000, 1, create)).toBeLessThan(1.2)
    expect(spread(nodes, 10_000, 200, create)).toBeLessThan(1.25)
  })
})

describe('a room of a dead node', () => {
  it('is taken over by the node that finds it, unless that one is full or drains', () => {
    expect(takeOver([{ ...a, rooms: 900, load: 0.9 }, b])).toBe('node_a')
    expect(takeOver([{ ...a, rooms: 1000 }, b])).toBe('node_b')
    expect(takeOver([{ ...a, draining: true }, b])).toBe('node_b')
    expect(takeOver([{ ...a, draining: true }])).toBeUndefined()
  })
})

describe('a room that is handed over', () => {
  it('never stays, and goes where its members are', () => {
    expect(tally(100, () => successorOf([a, b, c], 'node_c'))).toEqual({ node_c: 100 })
    expect(tally(100, () => successorOf([a, b, c], 'node_a')).node_a).toBeUndefined()
    expect(successorOf([a])).toBeUndefined()
  })

  it('does not follow its members to a node that is full, drains, or has far more than the others', () => {
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

type Successor = Parameters<LeavingRoom['handOver']>[0]

/** A room that is saved when the test says so. */
class TestRoom implements LeavingRoom {
  readonly address: RoomAddress
  readonly mostlyAt: string | undefined
  successor: Successor | 'not asked' = 'not asked'
  #saved = () => {}

  constructor(key: string, mostlyAt?: string) {
    this.address = { projectId: 'prj_a', roomType: 'duel', key }
    this.mostlyAt = mostlyAt
  }

  handOver(successor?: Successor): Promise<void> {
    this.successor = successor
    return new Promise((resolve) => {
      this.#saved = resolve
    })
  }

  /** The room is saved and given up; `fenced`: another node had it by then. */
  async save({ fenced = false } = {}): Promise<void> {
    if (!fenced && this.successor !== 'not asked') this.successor?.take()
    this.#saved()
    await settled()
  }

  get asked(): boolean {
    return this.successor !== 'not asked'
  }
}

/** Everything that promises lead to by themselves has happened. */
const settled = () => new Promise((resolve) => setImmediate(resolve))

function handing(rooms: readonly TestRoom[], place: (preferred: string | undefined) => string | undefined) {
  const clock = new FakeClock()
  const asked: string[] = []
  const seconds: number[] = []
  const done = handOver(rooms, {
    place,
    ask: (nodeId, { key }) => asked.push(`${nodeId} ${key}`),
    handed: (took) => seconds.push(took),
    tracer: noTracer,
    span: noSpan,
    now: () => clock.monotonic(),
  })
  return { clock, asked, seconds, done }
}

describe('a hand-over', () => {
  it('asks the chosen node to claim a room once it is saved, and counts how long no one acted', async () => {
    const room = new TestRoom('one', 'node_b')
    const { clock, asked, seconds, done } = handing([room], (preferred) => preferred)
    expect(room.successor).toMatchObject({ nodeId: 'node_b' })
    expect(asked).toEqual([])
    clock.advance(40)
    await room.save()
    await done
    expect(asked).toEqual(['node_b one'])
    expect(seconds).toEqual([0.04])
  })

  it('asks no one to claim a room that turns out to be another node’s', async () => {
    const room = new TestRoom('one')
    const { asked, done } = handing([room], () => 'node_b')
    await room.save({ fenced: true })
    await done
    expect(asked).toEqual([])
  })

  it('saves a room that no node can take, for the first node that asks for it', async () => {
    const room = new TestRoom('one')
    const { asked, done } = handing([room], () => undefined)
    expect(room.asked).toBe(true)
    expect(room.successor).toBeUndefined()
    await room.save()
    await done
    expect(asked).toEqual([])
  })

  it('chooses again for each room, when its turn comes', async () => {
    const rooms = [new TestRoom('one', 'node_b'), new TestRoom('two', 'node_c'), new TestRoom('three')]
    const preferences: (string | undefined)[] = []
    const { asked, done } = handing(rooms, (preferred) => {
      preferences.push(preferred)
      return preferred ?? 'node_d'
    })
    for (const room of rooms) await room.save()
    await done
    expect(preferences).toEqual(['node_b', 'node_c', undefined])
    expect(asked).toEqual(['node_b one', 'node_c two', 'node_d three'])
  })

  it('has eight rooms on their way at once, and begins with the next when one is there', async () => {
    const rooms = Array.from({ length: 20 }, (_, i) => new TestRoom(String(i)))
    const { seconds, done } = handing(rooms, () => 'node_b')
    const begun = () => rooms.filter(({ asked }) => asked).length
    expect(begun()).toBe(8)
    await rooms[3]!.save()
    expect(begun()).toBe(9)
    for (const room of rooms) await room.save()
    await done
    expect(begun()).toBe(20)
    expect(seconds).toHaveLength(20)
  })

  it('is done at once when there are no rooms', async () => {
    const { seconds, done } = handing([], () => 'node_b')
    await done
    expect(seconds).toEqual([])
  })
})
