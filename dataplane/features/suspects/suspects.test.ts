import { setImmediate as nextTurn } from 'node:timers/promises'
import { Registry } from 'prom-client'
import { describe, expect, it } from 'vitest'
import type { Logger } from '../../../shared/log.ts'
import { registerMetrics } from '../../../shared/metrics.ts'
import { memoryStore } from '../../../shared/store/memory/memory.ts'
import { FakeClock } from '../../../test/kit/fake-clock.ts'
import type { Turn } from '../../room/hooks.ts'
import { SuspectRecord, withLast, withoutRunning, withRunning, withStuck } from './suspect-record.ts'
import { SUSPECT_METRICS, Suspects } from './suspects.ts'

const turn = (change: Partial<Turn> = {}): Turn => ({
  room: { name: 'prj_a/duel:1', epoch: 1, createdAt: 0 },
  hook: 'onMessage',
  subject: 'mem_1',
  ref: 1,
  type: 'strike',
  principal: 'ada',
  ...change,
})

/** A player. */
const ADA = { projectId: 'prj_a', principal: 'ada', since: 0 }

/** Hash of the code of every room type. */
const code = () => 'a1'

/** Nodes that share one store. Each knows the record that it has read. */
async function nodes(count: number, limitAllMs?: number) {
  const clock = new FakeClock()
  const store = memoryStore({ clock })
  const counted: string[] = []
  const lines: string[] = []
  const log = { error: (_fields: object, text: string) => void lines.push(text) } as unknown as Logger
  /** `hash`: hash of the code of its room types. */
  const start = async (hash = 'a1') => {
    const suspects = new Suspects({
      store,
      clock,
      log,
      hashes: () => hash,
      turnLimitMs: 800,
      limitAllMs: limitAllMs === undefined ? undefined : () => limitAllMs,
      metrics: {
        ...registerMetrics(new Registry(), SUSPECT_METRICS),
        turnsStuck: {
          inc: ({ room_type: roomType, hook }, more) => void counted.push(`${roomType} ${hook} ${more}`),
        },
      },
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
  return { clock, counted, lines, records, record: new SuspectRecord(store), start, started, pass }
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

  it('keeps the place in its code that the watchdog has found, on every node', async () => {
    const { started, record, clock, pass } = await nodes(1)
    const found = { mode: 'guard', now: clock.now(), at: 'rooms/duel.ts:7:3' } as const
    await record.change((shared) => withStuck(shared, turn(), code, found))
    await pass(0)
    expect(started[0]!.placeOf(turn())).toBe('rooms/duel.ts:7:3')
    await started[0]!.stuck(turn(), 'guard')
    expect(started[0]!.placeOf(turn())).toBe('rooms/duel.ts:7:3')
    expect(started[0]!.placeOf(turn({ type: 'look' }))).toBeUndefined()
  })

  it('is cut off earlier while its cut-offs use more than 5 % of the node', async () => {
    const { started, clock } = await nodes(1)
    const limits: (number | undefined)[] = []
    for (let n = 0; n < 30; n++, clock.advance(10)) {
      const room = { name: `prj_a/duel:${n}`, epoch: 1 }
      await started[0]!.stuck(turn({ room, principal: `player-${n}` }), 'guard')
      limits.push(started[0]!.limitOf(turn()))
    }
    expect([limits[1], limits[2], limits[4], limits[5], limits[9], limits[10], limits[29]]).toEqual([
      200, 100, 100, 50, 50, 20, 20,
    ])
    clock.advance(10_000)
    expect(started[0]!.limitOf(turn())).toBe(200)
  })

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

  it('is not a suspect in other projects: there, only its first 1,000 turns are cut off, near the limit of all turns', async () => {
    const { started } = await nodes(1)
    const [node] = started
    for (const hook of ['onMessage', 'onTick', 'onJoin'] as const)
      for (let n = 0; n < 3; n++) await node!.stuck(turn({ hook }), n === 0 ? 'refuse' : 'guard')
    const room = { name: 'prj_b/duel:1', epoch: 1 }
    const limits = Array.from({ length: 1001 }, () => node!.limitOf(turn({ room })))
    expect([limits[0], limits[999], limits[1000]]).toEqual([680, 680, undefined])
    expect(node!.limitOf(turn({ room, hook: 'create' }))).toBeUndefined()
    expect(node!.verdict({ ...ADA, projectId: 'prj_b', since: 0 }, 'duel', 'strike')).toBe('pass')
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

describe('a handler that only the end of a process has stopped', () => {
  it('is refused for 1, 2 and 4 minutes, in its project, and says so', async () => {
    const { started, lines, pass, clock } = await nodes(1)
    const [node] = started
    for (const minutes of [1, 2, 4]) {
      const until = new Date(clock.now() + minutes * 60_000).toISOString()
      await node!.stuck(turn(), 'refuse')
      const text = `messages strike of duel are refused in project prj_a until ${until}`
      expect([lines.at(-1), node!.problems]).toEqual([text, [{ code: 'handler_refused', detail: text }]])
      const labels = { project_id: 'prj_a', room_type: 'duel', hook: 'onMessage', message_type: 'strike' }
      expect(node!.refusals).toEqual([[labels, Date.parse(until) / 1000]])
      await pass(minutes * 60_000 - 1)
      expect(node!.limitOf(turn())).toBe(0)
      await pass(1)
      expect([node!.limitOf(turn()), node!.refusals]).toEqual([200, []])
    }
    expect(lines).toHaveLength(3)
  })

  it('is refused once for nodes that end at the same time', async () => {
    const { started, pass } = await nodes(2)
    await started[0]!.stuck(turn(), 'refuse')
    await pass(300)
    await started[1]!.stuck(turn({ principal: 'bob' }), 'refuse')
    await pass(60_000)
    expect(started[0]!.limitOf(turn())).toBe(200)
  })

  it('is tried again with players and rooms that are at least a minute old', async () => {
    const { started, pass, clock } = await nodes(1)
    const [node] = started
    await node!.stuck(turn(), 'refuse')
    await node!.stuck(turn({ hook: 'onTick', type: '', principal: '' }), 'refuse')
    await pass(60_000)
    const verdict = (age: number, principal = 'bob') =>
      node!.verdict({ projectId: 'prj_a', principal, since: clock.now() - age }, 'duel', 'strike')
    expect([verdict(59_999), verdict(60_000), verdict(60_000, 'ada')]).toEqual(['refuse', 'pass', 'refuse'])
    const tick = (age: number) =>
      node!.limitOf(
        turn({
          room: { name: 'prj_a/duel:2', epoch: 1, createdAt: clock.now() - age },
          hook: 'onTick',
          type: '',
        }),
      )
    expect([tick(59_999), tick(60_000)]).toEqual([0, 200])
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
    await record.change((shared) => withRunning(shared, turn(), code, { now: clock.now() }))
    const [backup] = await records.read(['{nodes}:suspects'])
    await record.change((shared) => withoutRunning(shared, turn(), code))
    await pass(1_800_000)
    await records.write([{ put: '{nodes}:suspects', value: backup!.value }])
    for (let n = 0; n < 3; n++) await pass(5000)
    expect([counted, started[0]!.limitOf(turn())]).toEqual([[], undefined])
  })
})

describe('a turn that did not return', () => {
  const next = (change: Partial<Turn> = {}) => turn({ room: { ...turn().room, epoch: 2 }, ...change })

  it('is not started by the next owner of its room, on any node, for an hour', async () => {
    const { started, pass } = await nodes(2)
    const [first, second] = started
    await first!.stuck(turn(), 'guard')
    await second!.current()
    for (const node of started) {
      expect([node.limitOf(next()), node.hung(next())]).toEqual([0, true])
      // Its own owner may read what it has thrown.
      expect(node.limitOf(turn())).toBe(200)
      expect(node.limitOf(next({ ref: 2 }))).toBe(200)
    }
    await pass(3_600_000)
    expect(second!.limitOf(next())).toBeUndefined()
  })

  it('is not started if its process ended while it was running, or a moment later, but may be if it returned', async () => {
    const { record, started, clock, pass } = await nodes(1)
    const [node] = started
    const [slow, last] = [turn({ subject: 'slow' }), turn({ subject: 'last' })]
    await record.change((shared) => withRunning(shared, slow, code, { now: clock.now() }))
    await record.change((shared) => withoutRunning(shared, slow, code))
    await record.change((shared) => withRunning(shared, turn(), code, { now: clock.now() }))
    await record.change((shared) => withLast(shared, last, code, clock.now()))
    await pass(0)
    const hung = ['slow', 'mem_1', 'last'].map((subject) => node!.hung(next({ subject })))
    expect([hung, node!.blocked]).toEqual([[false, true, true], 0])
  })

  it('is recorded once, if it was running before', async () => {
    const { record, clock } = await nodes(1)
    await record.change((shared) => withRunning(shared, turn(), code, { now: clock.now() }))
    const { charges } = await record.change((shared) =>
      withStuck(shared, turn(), code, { mode: 'guard', now: clock.now() }),
    )
    expect(charges).toMatchObject([{ by: 'prj_a/ada', subject: 'mem_1', ref: 1 }])
  })

  it.each([
    ['a message without a ref', { ref: 0 }],
    ['a tick', { hook: 'onTick', subject: '', ref: 0, type: '' }],
  ] as const)(
    '(%s) does not keep later ones from starting, until there were three within a minute',
    async (_, change) => {
      const { started, clock } = await nodes(1)
      const [node] = started
      for (let epoch = 1; epoch <= 3; epoch++, clock.advance(1)) {
        await node!.stuck(turn({ ...change, room: { ...turn().room, epoch } }), 'guard')
        const later = turn({ ...change, room: { ...turn().room, epoch: epoch + 1 } })
        expect(node!.limitOf(later) === 0).toBe(epoch === 3)
      }
      expect(node!.limitOf(turn({ ...change, room: { name: 'prj_a/duel:2', epoch: 4 } }))).toBe(100)
      clock.advance(60_000)
      expect(node!.limitOf(turn({ ...change, room: { ...turn().room, epoch: 4 } }))).toBe(200)
    },
  )

  it('(onDispose) is not started again for its room, but for a later room with the name', async () => {
    const { started, clock } = await nodes(1)
    const [node] = started
    clock.advance(1000)
    const dispose = { hook: 'onDispose', subject: '', ref: 0, type: '' } as const
    await node!.stuck(turn(dispose), 'guard')
    expect(node!.limitOf(next(dispose))).toBe(0)
    const room = { ...turn().room, epoch: 2, createdAt: clock.now() + 1 }
    expect(node!.limitOf(turn({ ...dispose, room }))).toBe(200)
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
      node.verdict({ ...ADA, since: clock.now() - 60_000 }, 'duel', 'strike'),
      node.blocked,
    ]
    expect(known(broken!)).toEqual([0, 0, 'refuse', 1])
    expect(known(repaired)).toEqual([undefined, undefined, 'pass', 0])
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
    await record.change((shared) => withRunning(shared, turn(), code, { now: clock.now() }))
    await pass(0)
    expect(started[0]!.limitOf(turn())).toBeUndefined()
    await pass(400)
    expect(started[0]!.limitOf(turn())).toBe(680)
    await record.change((shared) => withoutRunning(shared, turn(), code))
    await pass(0)
    expect(started[0]!.limitOf(turn())).toBeUndefined()
  })

  it('is not started on other nodes while it blocks the event loop after its turn, for 10 s at most', async () => {
    const { clock, record, started, pass } = await nodes(1)
    const [node] = started
    const block = () =>
      record.change((shared) => withRunning(shared, turn(), code, { now: clock.now(), outside: true }))
    await block()
    await pass(0)
    expect(node!.limitOf(turn())).toBe(0)
    await record.change((shared) => withoutRunning(shared, turn(), code))
    await pass(0)
    expect(node!.limitOf(turn())).toBeUndefined()
    await node!.stuck(turn(), 'guard')
    await block()
    await pass(9999)
    expect(node!.limitOf(turn())).toBe(0)
    await pass(1)
    expect(node!.limitOf(turn())).toBe(200)
    await block()
    await record.change((shared) => withoutRunning(shared, turn(), code))
    await pass(0)
    expect(node!.limitOf(turn())).toBe(200)
  })

  // The process ran out of memory, and could not write any more.
  it('counts as one that did not return when its node is gone', async () => {
    const { clock, counted, record, started, pass } = await nodes(1)
    await record.change((shared) => withRunning(shared, turn(), code, { now: clock.now() }))
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
      expect(first!.verdict(ADA, 'duel', 'strike')).toBe('pass')
      await first!.stuck(turn(), 'guard')
    }
    await pass(0)
    const verdict = (change: object, type = 'strike') => second!.verdict({ ...ADA, ...change }, 'duel', type)
    expect(verdict({})).toBe('refuse')
    expect([verdict({ projectId: 'prj_b' }), verdict({ principal: 'bob' }), verdict({}, 'look')]).toEqual([
      'pass',
      'pass',
      'pass',
    ])
    await pass(600_000)
    expect(verdict({})).toBe('pass')
  })
})

describe('a handler whose cut-offs use more than 5 % of a node at the shortest limit', () => {
  it('refuses players with one of them, and lets young players wait, on every node, for 10 s', async () => {
    const { clock, started, pass } = await nodes(2)
    for (let n = 0; n < 26; n++) await started[0]!.stuck(turn({ principal: `player-${n}`, ref: n }), 'guard')
    await pass(0)
    const verdict = (principal: string, age: number) =>
      started[1]!.verdict({ projectId: 'prj_a', principal, since: clock.now() - age }, 'duel', 'strike')
    expect([verdict('player-7', 90_000), verdict('bob', 59_999), verdict('bob', 60_000)]).toEqual([
      'refuse',
      'wait',
      'pass',
    ])
    await pass(10_000)
    expect([verdict('player-7', 90_000), verdict('bob', 0)]).toEqual(['pass', 'pass'])
  })
})

describe('in development', () => {
  it('every turn is cut off after the common limit', async () => {
    const { started } = await nodes(1, 2000)
    expect(started[0]!.limitOf(turn())).toBe(2000)
  })
})
