import { describe, expect, it } from 'vitest'
import { counting } from '../../test/support/rooms/counting-room.ts'
import { RoomBench } from '../../test/support/rooms/room-bench.ts'
import { HistoryBudget, type Shrinkable } from './history.ts'

/** A history of entries of these sizes, oldest first. */
class TestHistory implements Shrinkable {
  entries: number[] = []
  get bytes(): number {
    return this.entries.reduce((sum, bytes) => sum + bytes, 0)
  }
  dropOldest(): boolean {
    return this.entries.shift() !== undefined
  }
}

describe('the budget of all histories', () => {
  it('is kept: the history that was used least recently loses its oldest entries first', () => {
    let dropped = 0
    const budget = new HistoryBudget(100, (entries) => (dropped += entries))
    const [idle, busy] = [new TestHistory(), new TestHistory()]
    for (let i = 0; i < 4; i++) {
      idle.entries.push(10)
      budget.used(idle)
    }
    for (let i = 0; i < 8; i++) {
      busy.entries.push(10)
      budget.used(busy)
      expect(budget.bytes).toBe(idle.bytes + busy.bytes)
    }
    expect([idle.entries.length, busy.entries.length, dropped]).toEqual([2, 8, 2])
    busy.entries.push(70)
    budget.used(busy)
    expect([idle.entries, busy.entries, budget.bytes]).toEqual([[], [10, 10, 10, 70], 100])
    busy.entries.push(200)
    budget.used(busy)
    expect([busy.entries, budget.bytes]).toEqual([[], 0])
  })

  it('counts a history no more whose room is gone', () => {
    const budget = new HistoryBudget(100, () => undefined)
    const history = new TestHistory()
    history.entries.push(60)
    budget.used(history)
    budget.forget(history)
    budget.forget(history)
    expect(budget.bytes).toBe(0)
  })
})

describe('the histories of all rooms of a node', () => {
  it('stay within their bound: who was away from a quiet room gets its whole state, who was away from a busy one what they missed', async () => {
    const bench = new RoomBench([counting('journal')], { limits: { historyBytes: 6000 } })
    const quiet = await bench.join('counter', 'ann', { key: 'quiet' })
    const busy = await bench.join('counter', 'bob', { key: 'busy' })
    for (const [member, key] of [
      ['ann', 'quiet'],
      ['bob', 'busy'],
    ] as const) {
      bench.send('counter', member, { kind: 'detach' }, key)
      for (let ref = 1; ref <= 12; ref++) {
        bench.message('counter', member, 'inc', null, ref, key)
        await bench.settle()
        expect(bench.host.historyBytes).toBeLessThanOrEqual(6000)
      }
    }
    expect(bench.counts.history_dropped).toBeGreaterThan(3)
    for (const [member, key] of [
      [quiet, 'quiet'],
      [busy, 'busy'],
    ] as const) {
      const { memberId, sessionId, codec, epoch, seq } = member
      const asked = {
        kind: 'attach',
        ask: 1,
        edge: 'node_a',
        turn: 0,
        codec,
        session_id: sessionId,
        epoch,
        seq,
      } as const
      bench.send('counter', memberId, asked, key)
    }
    await bench.settle()
    expect([quiet.state, busy.state, quiet.faults, busy.faults]).toEqual([
      { count: 12 },
      { count: 12 },
      [],
      [],
    ])
    expect(bench.sentOf('attached').map(({ resumed }) => resumed)).toEqual([false, true])
    await bench.host.close()
    expect(bench.host.historyBytes).toBe(0)
  })
})
