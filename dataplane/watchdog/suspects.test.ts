import { setImmediate as nextTurn } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { memoryStore } from '../../shared/store/memory/memory.ts'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { SuspectRecord, Suspects, withoutRunning, withRunning, withStuck } from './suspects.ts'
import type { Turn, TurnHook } from './turns.ts'

const turn = (change: Partial<Turn> = {}): Turn => ({
  room: { name: 'prj_a/duel:1', epoch: 1 },
  hook: 'onMessage',
  subject: 'mem_1',
  ref: 1,
  type: 'strike',
  principal: 'ada',
  ...change,
})

/** Hash of the code of every room type. */
const code = () => 'a1'

/** Nodes that share one store. Each knows the record that it has read. */
async function nodes(count: number, limitAllMs?: number) {
  const clock = new FakeClock()
  const store = memoryStore({ clock })
  const counted: string[] = []
  /** `hash`: hash of the code of its room types. */
  const start = async (hash = 'a1') => {
    const suspects = new Suspects({
      store,
      clock,
      hashes: () => hash,
      turnLimitMs: 800,
      limitAllMs: limitAllMs === undefined ? undefined : () => limitAllMs,
      onCount: (roomType, hook, more) => void counted.push(`${roomType} ${hook} ${more}`),
    })
    await suspects.start()
    return suspects
  }
  const started: Suspects[] = []
  for (let n = 0; n < count; n++) started.push(await start())
  const pass = async (ms: number) => {
    clock.advance(ms)
    await nextTurn()
  }
  const { records } = store
  return { clock, counted, records, record: new SuspectRecord(store), start, started, pass }
}

describe('a handler that did not return', () => {
  it('is cut off after 200 ms on every node, for an hour', async () => {
    const { started, pass } = await nodes(2)
    const [first, second] = started
    await first!.stuck(turn(), 'guard')
    expect(first!.limitOf(turn())).toBe(200)
    await pass(0)
    expect(second!.limitOf(turn())).toBe(200)
    expect(second!.limitOf(turn({ type: 'look' }))).toBeUndefined()
    await pass(3_600_000)
    expect(second!.limitOf(turn())).toBeUndefined()
  })

  it('is not started any more after only the end of its process has stopped it', async () => {
    const { started } = await nodes(1)
    await started[0]!.stuck(turn(), 'refuse')
    await started[0]!.stuck(turn(), 'guard')
    expect(started[0]!.limitOf(turn())).toBe(0)
  })

  it.each(['admit', 'load', 'save', 'task'] as const)(
    'is not started if it may continue after an await: %s',
    async (hook: TurnHook) => {
      const { started } = await nodes(1)
      await started[0]!.stuck(turn({ hook, type: '' }), 'guard')
      expect(started[0]!.limitOf(turn({ hook, type: '' }))).toBe(0)
    },
  )

  it('makes all code of its room type a suspect, together with a second handler', async () => {
    const { started } = await nodes(1)
    const [node] = started
    await node!.stuck(turn(), 'guard')
    await node!.stuck(turn({ hook: 'onTick', type: '' }), 'refuse')
    const other = turn({ hook: 'create', type: '' })
    expect(node!.limitOf(other)).toBe(200)
    await node!.stuck(turn({ hook: 'onJoin', type: '' }), 'refuse')
    expect(node!.limitOf(other)).toBe(0)
  })

  it('has code of other types guarded for its first 1,000 turns, together with a second handler', async () => {
    const { started } = await nodes(1)
    const [node] = started
    const chess = turn({ room: { name: 'prj_a/chess:1', epoch: 1 } })
    await node!.stuck(turn(), 'guard')
    expect(node!.limitOf(chess)).toBeUndefined()
    await node!.stuck(turn({ room: { name: 'prj_a/go:1', epoch: 1 } }), 'guard')
    const limits = Array.from({ length: 1001 }, () => node!.limitOf(chess))
    expect(new Set(limits.slice(0, 1000))).toEqual(new Set([680]))
    expect(limits.at(-1)).toBeUndefined()
  })

  it('is counted once by each node, also if it is written twice, and by a node that starts later', async () => {
    const { counted, record, start, pass } = await nodes(1)
    for (let n = 0; n < 2; n++)
      await record.change((shared) => withStuck(shared, turn(), code, { mode: 'guard', now: 0 }))
    await pass(0)
    await pass(0)
    expect(counted).toEqual(['duel onMessage 1'])
    await start()
    expect(counted).toEqual(['duel onMessage 1', 'duel onMessage 1'])
  })
})

describe('the counts of turns that did not return', () => {
  it('do not rise when the store loses its data and a backup restores them, but by later turns', async () => {
    const { counted, records, started, pass } = await nodes(1)
    const [node] = started
    await node!.stuck(turn(), 'guard')
    await pass(0)
    const [backup] = await records.read(['{nodes}:suspects'])
    await records.write([{ remove: '{nodes}:suspects' }])
    await pass(5000)
    await node!.stuck(turn({ hook: 'onTick' }), 'guard')
    await records.write([{ put: '{nodes}:suspects', value: backup!.value }])
    await pass(5000)
    expect(counted).toEqual(['duel onMessage 1', 'duel onTick 1'])
    await node!.stuck(turn(), 'guard')
    expect(counted.slice(2)).toEqual(['duel onMessage 1'])
  })

  it('do not rise by a turn that was running when the backup was made', async () => {
    const { counted, records, record, started, clock, pass } = await nodes(1)
    await record.change((shared) => withRunning(shared, turn(), code, clock.now()))
    const [backup] = await records.read(['{nodes}:suspects'])
    await record.change((shared) => withoutRunning(shared, turn(), code))
    await pass(1_800_000)
    await records.write([{ put: '{nodes}:suspects', value: backup!.value }])
    for (let n = 0; n < 3; n++) await pass(5000)
    expect([counted, started[0]!.limitOf(turn())]).toEqual([[], undefined])
  })
})

describe('repaired code', () => {
  it('is not a suspect on the nodes that have it, also if its handlers and players were', async () => {
    const { clock, started, start } = await nodes(1)
    const [broken] = started
    for (let n = 0; n < 3; n++, clock.advance(200)) await broken!.stuck(turn(), 'refuse')
    await broken!.stuck(turn({ hook: 'onTick', type: '' }), 'refuse')
    const repaired = await start('b2')
    const known = (node: Suspects) => [
      node.limitOf(turn()),
      node.limitOf(turn({ hook: 'create', type: '' })),
      node.blocks('prj_a', 'ada', 'duel', 'strike'),
      node.blocked,
    ]
    expect(known(broken!)).toEqual([0, 0, true, 1])
    expect(known(repaired)).toEqual([undefined, undefined, false, 0])
  })

  it('is a suspect if it does not return either', async () => {
    const { started, start, pass } = await nodes(1)
    const repaired = await start('b2')
    await started[0]!.stuck(turn(), 'refuse')
    await repaired.stuck(turn(), 'guard')
    await pass(0)
    expect([started[0]!.limitOf(turn()), repaired.limitOf(turn())]).toEqual([0, 200])
  })
})

describe('a turn that takes long', () => {
  it('limits turns of its handler on other nodes to nearly the limit of all turns, until it has returned', async () => {
    const { clock, record, started, pass } = await nodes(1)
    await record.change((shared) => withRunning(shared, turn(), code, clock.now()))
    await pass(0)
    expect(started[0]!.limitOf(turn())).toBeUndefined()
    await pass(400)
    expect(started[0]!.limitOf(turn())).toBe(680)
    await record.change((shared) => withoutRunning(shared, turn(), code))
    await pass(0)
    expect(started[0]!.limitOf(turn())).toBeUndefined()
  })

  // The process ran out of memory, and could not write any more.
  it('counts as one that did not return when its node is gone', async () => {
    const { clock, counted, record, started, pass } = await nodes(1)
    await record.change((shared) => withRunning(shared, turn(), code, clock.now()))
    await pass(60_001)
    await pass(5000)
    expect([started[0]!.limitOf(turn()), counted]).toEqual([200, ['duel onMessage 1']])
  })
})

describe('a player whose messages did not return three times', () => {
  it('cannot send messages of that type for ten minutes, in its project only', async () => {
    const { clock, started, pass } = await nodes(2)
    const [first, second] = started
    for (let n = 0; n < 3; n++, clock.advance(200)) {
      expect(first!.blocks('prj_a', 'ada', 'duel', 'strike')).toBe(false)
      await first!.stuck(turn(), 'guard')
    }
    await pass(0)
    const blocks = (project: string, player: string, type: string) =>
      second!.blocks(project, player, 'duel', type)
    expect(blocks('prj_a', 'ada', 'strike')).toBe(true)
    expect([
      blocks('prj_b', 'ada', 'strike'),
      blocks('prj_a', 'bob', 'strike'),
      blocks('prj_a', 'ada', 'look'),
    ]).toEqual([false, false, false])
    await pass(600_000)
    expect(blocks('prj_a', 'ada', 'strike')).toBe(false)
  })
})

describe('in development', () => {
  it('every turn is cut off after the common limit', async () => {
    const { started } = await nodes(1, 2000)
    expect(started[0]!.limitOf(turn())).toBe(2000)
  })
})
