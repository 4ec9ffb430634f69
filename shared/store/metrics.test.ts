import { Registry } from 'prom-client'
import { describe, expect, it } from 'vitest'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { storeMetrics, storeServerMetrics } from './metrics.ts'
import { type StoreObserver, type StoreServer, StoreUnavailable } from './port.ts'

const SERVER: StoreServer = {
  name: 'redis:6379',
  usedMemoryBytes: 1000,
  maxMemoryBytes: 4000,
  connectedClients: 12,
  commandsProcessed: 500,
  evictedKeys: 0,
}

/** A store that does as it is told, and what was registered of it. */
function setup() {
  const clock = new FakeClock()
  const registry = new Registry()
  const told = { reachable: true, fails: false, asked: 0 }
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
      return [{ ...SERVER, usedMemoryBytes: 1000 * told.asked }]
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
  it('count commands by operation, how long they took, and those that failed', async () => {
    const { registry, observer, back, told } = setup()
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

  it('ask the servers at a scrape, but not at each', async () => {
    const { registry, clock, told } = setup()
    const used = async () =>
      /^service_redis_used_memory_bytes{server="redis:6379"} (\d+)$/m.exec(await registry.metrics())?.[1]
    expect([await used(), await used()]).toEqual(['1000', '1000'])
    clock.advance(5000)
    expect([await used(), told.asked]).toEqual(['2000', 2])
    expect(await registry.metrics()).toContain('service_redis_commands_total{server="redis:6379"} 500')
  })

  it('are there without those of the servers when they do not answer, and one that is away is not asked', async () => {
    const { registry, clock, told } = setup()
    told.fails = true
    expect(await registry.metrics()).not.toContain('service_redis_used_memory_bytes{')
    told.reachable = false
    clock.advance(5000)
    expect(await registry.metrics()).toContain('service_store_up 0')
    expect(told.asked).toBe(1)
  })
})
