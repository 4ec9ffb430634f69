import { pino } from 'pino'
import { describe, expect, it } from 'vitest'
import { memoryStore } from '../../shared/store/memory/memory.ts'
import { type Records, StoreUnavailable } from '../../shared/store/port.ts'
import { FakeClock } from '../../test/support/fake-clock.ts'
import { leaseKey, NodeLease } from './lease.ts'

const log = pino({ level: 'silent' })

function parts() {
  const clock = new FakeClock()
  const store = memoryStore({ clock })
  const line = { cut: false, regained: 0 }
  const records: Records = {
    read: (keys) => store.records.read(keys),
    page: (index, options) => store.records.page(index, options),
    write: async (writes) => {
      if (line.cut) throw new StoreUnavailable('cut')
      return store.records.write(writes)
    },
  }
  const lease = new NodeLease({
    node_id: 'node_a',
    records,
    clock,
    log,
    ttl_ms: 2000,
    on_regained: () => line.regained++,
  })
  const recorded = async () => (await store.records.read([leaseKey('node_a')]))[0] !== undefined
  const advance = async (ms: number) => {
    for (let left = ms; left > 0; left -= 50) {
      clock.advance(50)
      for (let i = 0; i < 10; i++) await Promise.resolve()
    }
  }
  return { clock, lease, line, recorded, advance }
}

describe('a lease', () => {
  it('stands as long as it is renewed, and is gone when it is ended', async () => {
    const { lease, recorded, advance } = parts()
    expect(lease.valid()).toBe(false)
    await lease.start()
    await advance(60_000)
    expect([lease.valid(), await recorded()]).toEqual([true, true])
    await lease.stop()
    expect([lease.valid(), await recorded()]).toEqual([false, false])
    await advance(5000)
    expect(await recorded()).toBe(false)
  })

  it('is no longer trusted before others may take the node for dead', async () => {
    const { lease, line, recorded, advance } = parts()
    await lease.start()
    line.cut = true
    let trusted_ms = 0
    while (await recorded()) {
      if (lease.valid()) trusted_ms += 50
      await advance(50)
    }
    expect(lease.valid()).toBe(false)
    expect(trusted_ms).toBeGreaterThan(1500)
    expect(trusted_ms).toBeLessThan(2000)
  })

  it('needs no timer to have run out: a stopped process finds it expired', async () => {
    const { clock, lease } = parts()
    await lease.start()
    clock.pause(2000)
    expect(lease.valid()).toBe(false)
  })

  it('says when it stands again after it had run out, and only then', async () => {
    const { lease, line, advance } = parts()
    await lease.start()
    line.cut = true
    await advance(1000)
    line.cut = false
    await advance(3000)
    expect([lease.valid(), line.regained]).toEqual([true, 0])
    line.cut = true
    await advance(4000)
    expect(lease.valid()).toBe(false)
    line.cut = false
    await advance(1000)
    expect([lease.valid(), line.regained]).toEqual([true, 1])
  })

  it('cannot begin without the store', async () => {
    const { lease, line } = parts()
    line.cut = true
    await expect(lease.start()).rejects.toThrow(StoreUnavailable)
  })
})
