import { setImmediate as nextTurn } from 'node:timers/promises'
import { describe, expect, it } from 'vitest'
import { FakeClock } from '../test/kit/fake-clock.ts'
import { Slices } from './slices.ts'

describe('Slices', () => {
  /** Adds work that takes `ms`. `inTurns`: returns the work of each turn until all is done. */
  function queued(pieces?: number) {
    const clock = new FakeClock()
    const slices = new Slices(clock, pieces)
    const done: string[] = []
    const add = (name: string, { urgent = false, ms = 0 } = {}): Promise<string> =>
      slices.run(
        () => {
          clock.pause(ms)
          done.push(name)
          return name
        },
        { urgent },
      )
    const inTurns = async (): Promise<string[][]> => {
      const turns: string[][] = []
      while (slices.size > 0) {
        await nextTurn()
        turns.push(done.splice(0))
      }
      return turns
    }
    return { slices, add, inTurns }
  }

  it('runs a few pieces in each turn: one that is not urgent, then urgent ones, then the others', async () => {
    const { add, inTurns } = queued(4)
    for (const name of ['new 1', 'new 2', 'new 3']) void add(name)
    for (let n = 1; n <= 5; n++) void add(`resume ${n}`, { urgent: true })
    expect(await inTurns()).toEqual([
      ['new 1', 'resume 1', 'resume 2', 'resume 3'],
      ['new 2', 'resume 4', 'resume 5', 'new 3'],
    ])
  })

  it('runs a piece that is not urgent in each turn, however long the urgent ones take', async () => {
    const { add, inTurns } = queued(4)
    for (let n = 1; n <= 4; n++) void add(`resume ${n}`, { urgent: true, ms: 5 })
    for (const name of ['new 1', 'new 2']) void add(name)
    expect(await inTurns()).toEqual([
      ['new 1', 'resume 1'],
      ['new 2', 'resume 2'],
      ['resume 3'],
      ['resume 4'],
    ])
  })

  it('ends a slice after 5 ms', async () => {
    const { add, inTurns } = queued()
    for (const name of ['a', 'b', 'c', 'd']) void add(name, { ms: 3 })
    void add('e')
    expect(await inTurns()).toEqual([['a', 'b'], ['c', 'd'], ['e']])
  })

  it('runs work that is added during a slice in a later turn', async () => {
    const { slices, add, inTurns } = queued()
    void slices.run(() => void add('later'))
    expect(await inTurns()).toEqual([[], ['later']])
  })

  it('resolves with the result, and rejects with the error. The next piece runs', async () => {
    const { slices, add } = queued(1)
    const failed = slices.run(() => {
      throw new Error('planted')
    })
    const next = add('the next')
    await expect(failed).rejects.toThrow('planted')
    expect(await next).toBe('the next')
  })
})
