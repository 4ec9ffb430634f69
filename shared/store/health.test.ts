import { pino } from 'pino'
import { Registry } from 'prom-client'
import { describe, expect, it } from 'vitest'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { SeededRandom } from '../../test/kit/seeded-random.ts'
import { TestRecords } from '../../test/support/test-store.ts'
import { ClockOffset, StoreDataWatch, storeMetrics, storeServerMetrics } from './health.ts'
import { memoryStore } from './memory/memory.ts'
import { type StoreObserver, type StoreServer, StoreUnavailable } from './port.ts'

/** A process whose clock is `aheadMs` ahead of the store's clock. The store takes `rttMs` to answer. */
function compared(aheadMs: number, rttMs = 0) {
  const clock = new FakeClock()
  const lines: string[] = []
  const store = { aheadMs, fails: false }
  const time = async (): Promise<number> => {
    if (store.fails) throw new Error('gone')
    const answer = clock.now() - store.aheadMs
    if (rttMs > 0) clock.advance(rttMs)
    return answer
  }
  const log = pino({ base: null }, { write: (line) => void lines.push(JSON.parse(line).msg) })
  return { clock, lines, store, offset: new ClockOffset({ store: { time }, clock, log }) }
}

const nextTurn = () => new Promise((resolve) => setImmediate(resolve))

describe('ClockOffset', () => {
  it.each([
    [0, undefined],
    [30_000, undefined],
    [-29_000, undefined],
    [31_000, "the clock of this process is 31 s ahead of the store's: set both by NTP"],
    [-3_600_000, "the clock of this process is 3600 s behind the store's: set both by NTP"],
  ])('of %d ms is wrong: %s', async (aheadMs, wrong) => {
    const { offset } = compared(aheadMs)
    await offset.measure()
    expect([offset.ms, offset.wrong]).toEqual([aheadMs, wrong])
  })

  it('does not treat a slow answer as a wrong clock', async () => {
    const { offset } = compared(0, 40_000)
    await offset.measure()
    expect([Math.abs(offset.ms), offset.wrong]).toEqual([0, undefined])
  })

  it('is logged when it exceeds 30 s, because the process is then not ready', async () => {
    const { lines, store, offset } = compared(6000)
    for (const aheadMs of [6000, -40_000, 40_000, 20_000]) {
      store.aheadMs = aheadMs
      await offset.measure()
    }
    expect(lines).toEqual([
      "clock differs from the store's: set both by NTP",
      'clock is wrong, the process is not ready: set both by NTP',
      "clock differs from the store's: set both by NTP",
    ])
  })

  it('is measured every 10 s, and logged when it exceeds 5 s and when it ends', async () => {
    const { clock, lines, store, offset } = compared(6000)
    offset.start()
    await nextTurn()
    store.fails = true
    clock.advance(10_000)
    await nextTurn()
    expect([offset.ms, lines]).toEqual([6000, ["clock differs from the store's: set both by NTP"]])
    store.fails = false
    store.aheadMs = 0
    clock.advance(10_000)
    await nextTurn()
    expect(offset.ms).toBe(0)
    expect(lines.at(-1)).toBe("clock agrees with the store's again")
    offset.stop()
    store.aheadMs = 60_000
    clock.advance(60_000)
    await nextTurn()
    expect(offset.ms).toBe(0)
  })
})

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
  const flush = async () => {
    for (let i = 0; i < 100; i++) await Promise.resolve()
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
    await flush()
  }
  const back = async () => {
    for (const callback of returns) callback()
    await flush()
  }
  return { watching, records, first, empty, pass, back, flush }
}

describe('StoreDataWatch', () => {
  it('reports no loss at the first start of a deployment, nor after an outage without a loss', async () => {
    const { watching, records, back, pass } = setup()
    const { watch, errors } = watching(1)
    await watch.start()
    records.down = true
    await pass(MINUTE_MS)
    records.down = false
    await back()
    expect([watch.lost, errors()]).toEqual([false, []])
  })

  it('reports in every process that the store has come back without its data', async () => {
    const { watching, records, empty, back } = setup()
    const processes = [watching(1), watching(2)]
    for (const { watch } of processes) await watch.start()
    records.replace(empty())
    await back()
    for (const { watch, errors } of processes)
      expect([watch.lost, errors()]).toEqual([true, ['the store lost its data']])
  })

  it('reports a store that was emptied while it ran within 10 s, and again after the next loss', async () => {
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

  it('ends the report when the data is back, or after an hour', async () => {
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

  it('reports the loss in a process that starts after it, and ends the report when an operator deletes the note', async () => {
    const { watching, records, empty, pass, back } = setup()
    const earlier = watching(1)
    await earlier.watch.start()
    records.replace(empty())
    await back()
    const later = watching(2)
    await later.watch.start()
    expect([later.watch.lost, later.errors()]).toEqual([true, ['the store lost its data']])

    await records.write([{ remove: '{control}:data-lost' }])
    await pass(10_000)
    expect([earlier.watch.lost, later.watch.lost]).toEqual([false, false])
  })

  it('ends the report when the data is back, also in a process that has started after the loss', async () => {
    const { watching, records, first, empty, back } = setup()
    await watching(1).watch.start()
    for (const seed of [2, 3]) {
      records.replace(empty())
      await back()
      const later = watching(seed)
      await later.watch.start()
      expect(later.watch.lost).toBe(true)
    }
    const last = watching(4)
    await last.watch.start()
    records.replace(first)
    await back()
    expect([last.watch.lost, await watching(5).watch.checkLost()]).toEqual([false, false])
  })

  it('notes a loss although another process, which knew nothing, has written the new mark', async () => {
    const { watching, records, first, empty, back } = setup()
    const knowing = watching(1)
    await knowing.watch.start()
    records.replace(empty())
    const fresh = watching(2)
    await fresh.watch.start()
    expect(fresh.watch.lost).toBe(false)
    await back()
    expect([await fresh.watch.checkLost(), knowing.watch.lost]).toEqual([true, true])
    records.replace(first)
    await back()
    expect([fresh.watch.lost, knowing.watch.lost]).toEqual([false, false])
  })

  it('writes the note later if the store has failed after the loss was found', async () => {
    const { watching, records, empty, pass, back } = setup()
    const { watch, errors } = watching(1)
    await watch.start()
    const after = empty()
    let fails = true
    records.replace({
      read: (keys) => after.read(keys),
      write: async (writes) => {
        const isNote = writes.some((write) => 'put' in write && write.put.endsWith('-lost'))
        if (fails && isNote) throw new StoreUnavailable('gone')
        return after.write(writes)
      },
      renewLease: (renewal) => after.renewLease(renewal),
      page: (index, options) => after.page(index, options),
    })
    await back()
    fails = false
    await pass(10_000)
    expect([watch.lost, errors()]).toEqual([true, ['the store lost its data']])
    const later = watching(2)
    await later.watch.start()
    expect(later.watch.lost).toBe(true)
  })

  it('deletes the note that a restored backup contains', async () => {
    const { watching, records, first, empty, back } = setup()
    const { watch } = watching(1)
    await watch.start()
    await first.write([{ put: '{control}:data-lost', value: new TextEncoder().encode('earlier') }])
    records.replace(empty())
    await back()
    records.replace(first)
    await back()
    expect(await watch.checkLost()).toBe(false)
    expect(await first.read(['{control}:data-lost'])).toEqual([undefined])
  })

  it('reads the store once for many questions at a time', async () => {
    const { watching, records } = setup()
    const { watch } = watching(1)
    await watch.start()
    const before = records.reads
    await Promise.all(Array.from({ length: 100 }, () => watch.checkLost()))
    expect(records.reads - before).toBe(2)
  })
})

const SERVER: StoreServer = {
  name: 'redis:6379',
  usedMemoryBytes: 1000,
  maxMemoryBytes: 4000,
  connectedClients: 12,
  commandsProcessed: 500,
  evictedKeys: 0,
  goodReplicas: 1,
  restartLosesData: true,
}

/** A store that the test controls, and the registered metrics. */
function observed() {
  const clock = new FakeClock()
  const registry = new Registry()
  const told: { reachable: boolean; fails: boolean; asked: number; goodReplicas: number | undefined } = {
    reachable: true,
    fails: false,
    asked: 0,
    goodReplicas: 1,
  }
  let observer: StoreObserver | undefined
  let back = () => {}
  const vitals = {
    get reachable() {
      return told.reachable
    },
    observe: (one: StoreObserver) => {
      observer = one
      return () => {}
    },
    servers: async (): Promise<StoreServer[]> => {
      told.asked++
      if (told.fails) throw new StoreUnavailable('gone')
      return [{ ...SERVER, usedMemoryBytes: 1000 * told.asked, goodReplicas: told.goodReplicas }]
    },
  }
  const onReturn = (callback: () => void) => {
    back = callback
    return () => {}
  }
  storeMetrics(registry, { vitals, onReturn }, { clockOffset: { ms: -8000 }, dataWatch: { lost: true } })
  storeServerMetrics(registry, vitals, clock)
  return { clock, registry, told, observer: observer!, back: () => back() }
}

describe('metrics of a store', () => {
  it('count commands and failures by operation, with durations', async () => {
    const { registry, observer, back, told } = observed()
    observer.answered('commit', 0.0002)
    observer.answered('commit', 0.004)
    observer.answered('read', 0.0002)
    observer.failed('read', 2, 'store_unreachable')
    observer.failed('commit', 0.0002, 'store_full')
    told.reachable = false
    back()
    const text = await registry.metrics()
    for (const line of [
      'service_store_up 0',
      'service_store_data_lost 1',
      'service_store_returns_total 1',
      'service_store_commands_total{operation="commit"} 2',
      'service_store_commands_total{operation="read"} 1',
      'service_store_command_failures_total{failure="store_unreachable"} 1',
      'service_store_command_failures_total{failure="store_full"} 1',
      'service_store_command_failures_total{failure="store_refused"} 0',
      'service_clock_offset_seconds -8',
      'service_store_command_duration_seconds_bucket{le="0.00025"} 2',
      'service_store_command_duration_seconds_count 3',
    ])
      expect(text).toContain(line)
  })

  it('request the servers’ values at a scrape, at most every 5 s', async () => {
    const { registry, clock, told } = observed()
    const used = async () =>
      /^service_redis_used_memory_bytes{server="redis:6379"} (\d+)$/m.exec(await registry.metrics())?.[1]
    expect([await used(), await used()]).toEqual(['1000', '1000'])
    clock.advance(5000)
    expect([await used(), told.asked]).toEqual(['2000', 2])
    expect(await registry.metrics()).toContain('service_redis_commands_total{server="redis:6379"} 500')
    expect(await registry.metrics()).toContain('service_redis_restart_loses_data{server="redis:6379"} 1')
  })

  it('count good replicas only if the server reports them', async () => {
    const { registry, clock, told } = observed()
    const good = async () =>
      /^service_redis_good_replicas\{server="redis:6379"\} (\d)$/m.exec(await registry.metrics())?.[1]
    expect(await good()).toBe('1')
    told.goodReplicas = undefined
    clock.advance(5000)
    expect([await good(), told.asked]).toEqual([undefined, 2])
  })

  it('exist without the servers’ values if the servers do not answer, and an unreachable store gets no request', async () => {
    const { registry, clock, told } = observed()
    told.fails = true
    expect(await registry.metrics()).not.toContain('service_redis_used_memory_bytes{')
    told.reachable = false
    clock.advance(5000)
    expect(await registry.metrics()).toContain('service_store_up 0')
    expect(told.asked).toBe(1)
  })
})
