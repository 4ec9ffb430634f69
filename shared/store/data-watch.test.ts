import { pino } from 'pino'
import { describe, expect, it } from 'vitest'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { SeededRandom } from '../../test/kit/seeded-random.ts'
import { TestRecords } from '../../test/support/test-records.ts'
import { StoreDataWatch } from './data-watch.ts'
import { memoryStore } from './memory/memory.ts'

const MINUTE_MS = 60_000

function setup() {
  const clock = new FakeClock()
  const empty = () => memoryStore({ clock }).records
  const first = empty()
  const records = new TestRecords(first, clock)
  const returns = new Set<() => void>()
  const store = {
    records,
    onReturn: (callback: () => void) => {
      returns.add(callback)
      return () => void returns.delete(callback)
    },
  }
  const settled = async () => {
    for (let i = 0; i < 20; i++) await Promise.resolve()
  }
  const watching = (seed: number) => {
    const logged: { level: number; msg: string }[] = []
    const log = pino({ level: 'debug' }, { write: (line: string) => logged.push(JSON.parse(line)) })
    const random = new SeededRandom(seed)
    const watch = new StoreDataWatch({ store, key: '{control}:data', clock, random, log })
    const errors = () => logged.filter(({ level }) => level >= 50).map(({ msg }) => msg)
    return { watch, errors }
  }
  const pass = async (ms: number) => {
    clock.advance(ms)
    await settled()
  }
  const back = async () => {
    for (const callback of returns) callback()
    await settled()
  }
  return { watching, records, first, empty, pass, back, settled }
}

describe('StoreDataWatch', () => {
  it('reports no loss at the first start of a deployment, nor for a store that was away and kept its data', async () => {
    const { watching, records, back, pass } = setup()
    const { watch, errors } = watching(1)
    await watch.start()
    records.down = true
    await pass(MINUTE_MS)
    records.down = false
    await back()
    expect([watch.lost, errors()]).toEqual([false, []])
  })

  it('reports in every process that the store is back without its data', async () => {
    const { watching, records, empty, back } = setup()
    const processes = [watching(1), watching(2)]
    for (const { watch } of processes) await watch.start()
    records.replace(empty())
    await back()
    for (const { watch, errors } of processes)
      expect([watch.lost, errors()]).toEqual([true, ['the store lost its data']])
  })

  it('reports a store that was emptied while it ran within 10 s, and the next time again', async () => {
    const { watching, records, empty, pass } = setup()
    const { watch, errors } = watching(1)
    await watch.start()
    for (const times of [1, 2]) {
      records.replace(empty())
      await pass(10_000)
      expect(errors()).toEqual(Array(times).fill('the store lost its data'))
    }
    expect(watch.lost).toBe(true)
  })

  it('ends the report when the data is back, else after an hour', async () => {
    const { watching, records, first, empty, pass, back } = setup()
    const { watch } = watching(1)
    await watch.start()
    records.replace(empty())
    await back()
    records.replace(first)
    await back()
    expect(watch.lost).toBe(false)

    records.replace(empty())
    await back()
    await pass(59 * MINUTE_MS)
    expect(watch.lost).toBe(true)
    await pass(MINUTE_MS)
    expect(watch.lost).toBe(false)
  })
})
