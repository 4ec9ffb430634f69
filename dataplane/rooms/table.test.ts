import { describe, expect, it } from 'vitest'
import { SeededRandom } from '../../test/kit/seeded-random.ts'
import { type TableRows, Tables } from './table.ts'

type Timer = TableRows['timers'][number]
const NONE = new Tables(1).flushed
const timer = (id: string, due: number): Timer => ({ id, due, name: 'rings', data: null })
const idsOf = (rows: readonly { readonly id: string }[]) => rows.map(({ id }) => id)

/** Does with copied arrays what `Tables` does. */
class Model {
  rows: Timer[] = []
  flushed: Timer[] = []
  begun: Timer[] = []

  set(row: Timer): void {
    this.rows = [...this.rows.filter(({ id }) => id !== row.id), row]
  }

  delete(id: string): void {
    this.rows = this.rows.filter((row) => row.id !== id)
  }

  get next(): Timer | undefined {
    return this.rows.toSorted((one, other) => one.due - other.due)[0]
  }
}

describe('Tables', () => {
  it('have the rows, the flushed rows and the next due row of a model that copies, after random turns', () => {
    const random = new SeededRandom(11)
    const any = (n: number) => Math.floor(random.float() * n)
    for (let run = 0; run < 40; run++) {
      const tables = new Tables(1)
      const [model, heir] = [new Model(), new Tables(2)]
      for (let step = 0; step < 60; step++) {
        const id = `t${any(5)}`
        const action = any(8)
        if (action < 3) {
          const row = timer(id, any(4))
          tables.timers.set(row)
          model.set(row)
        } else if (action < 5) {
          expect(tables.timers.delete(id)).toBe(model.rows.some((row) => row.id === id))
          model.delete(id)
        } else if (action === 5) {
          tables.commit()
          model.begun = model.rows
        } else if (action === 6) {
          tables.rollback()
          model.rows = model.begun
        } else {
          tables.commit()
          const changes = tables.flush()
          if (changes) heir.apply(changes)
          model.begun = model.rows
          model.flushed = model.rows
          expect(heir.timers.rows).toEqual(model.rows)
        }
        const { timers, due } = tables
        expect([timers.rows, timers.flushed, timers.size]).toEqual([
          model.rows,
          model.flushed,
          model.rows.length,
        ])
        expect([timers.next, due]).toEqual([model.next, model.next?.due])
      }
    }
  })

  it('have no changes to flush after a turn that was rolled back, or that undid its own writes', () => {
    const tables = new Tables(1, { ...NONE, timers: [timer('a', 1)] })
    tables.commit()
    tables.timers.delete('a')
    tables.bans.set({ id: 'eve' })
    tables.rollback()
    expect([tables.flush(), tables.flushedDue]).toEqual([undefined, 1])
    tables.bans.set({ id: 'eve' })
    tables.bans.delete('eve')
    expect(tables.flush()).toBeUndefined()
  })

  it('flush only the rows that were written, for each table separately', () => {
    const tables = new Tables(1, { ...NONE, timers: [timer('a', 1)], bans: [{ id: 'eve' }] })
    tables.timers.set(timer('c', 9))
    tables.timers.set(timer('b', 9))
    tables.timers.set(timer('c', 9))
    tables.timers.delete('a')
    const changes = tables.flush()
    expect([idsOf(changes!.timers!.set), changes!.timers!.removed, changes!.bans]).toEqual([
      ['b', 'c'],
      ['a'],
      undefined,
    ])
    expect(idsOf(tables.flushed.bans)).toEqual(['eve'])
  })

  it('create ids that no other owner of the room creates', () => {
    expect([new Tables(70).newId('tmr'), new Tables(71).newId('tmr')]).toEqual(['tmr_1y_1', 'tmr_1z_1'])
  })
})
