import { pino } from 'pino'
import { describe, expect, it } from 'vitest'
import { memoryStore } from '../../shared/store/memory/memory.ts'
import { type Records, StoreUnavailable } from '../../shared/store/port.ts'
import { nodeInfo } from '../../test/support/cluster/node-info.ts'
import { FakeClock } from '../../test/support/fake-clock.ts'
import { leaseKey, NODES, NodeLease } from './lease.ts'
import { noClusterMetrics } from './metrics.ts'
import { decodeNodeInfo } from './node-info.ts'

const log = pino({ level: 'silent' })

function parts() {
  const clock = new FakeClock()
  const store = memoryStore({ clock })
  const line = { cut: false, regained: 0, rooms: 0, back: () => {} }
  const records: Records = {
    read: (keys) => store.records.read(keys),
    page: (index, options) => store.records.page(index, options),
    write: async (writes) => {
      if (line.cut) throw new StoreUnavailable('cut')
      return store.records.write(writes)
    },
  }
  const onReturn = (callback: () => void) => {
    line.back = callback
    return () => {
      line.back = () => {}
    }
  }
  const lease = new NodeLease({
    node_id: 'node_a',
    store: { records, onReturn },
    clock,
    log,
    metrics: noClusterMetrics,
    ttl_ms: 2000,
    info: () => nodeInfo('node_a', { rooms: line.rooms }),
    on_regained: () => line.regained++,
  })
  const read = async () => {
    const [record] = await store.records.read([leaseKey('node_a')])
    return record && decodeNodeInfo(record.value)
  }
  const listed = () => store.records.page(NODES, { limit: 10 })
  const recorded = async () => (await read()) !== undefined
  const advance = async (ms: number) => {
    for (let left = ms; left > 0; left -= 50) {
      clock.advance(50)
      for (let i = 0; i < 10; i++) await Promise.resolve()
    }
  }
  return { clock, store, lease, line, read, listed, recorded, advance }
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

  it('is as old as its last renewal', async () => {
    const { lease, line, advance } = parts()
    await lease.start()
    await advance(400)
    expect(lease.age_ms).toBe(400)
    await advance(200)
    expect(lease.age_ms).toBe(100)
    line.cut = true
    await advance(1800)
    expect(lease.age_ms).toBe(1900)
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

  it('tells what the node is at each renewal, or at once when asked to', async () => {
    const { lease, line, read, listed, advance } = parts()
    await lease.start()
    expect([await read(), await listed()]).toEqual([nodeInfo('node_a'), ['node_a']])
    line.rooms = 7
    await advance(450)
    expect(await read()).toMatchObject({ rooms: 0 })
    await advance(100)
    expect(await read()).toMatchObject({ rooms: 7 })
    line.rooms = 8
    await lease.renewNow()
    expect(await read()).toMatchObject({ rooms: 8 })
    await lease.stop()
    await lease.renewNow()
    expect([await read(), await listed()]).toEqual([undefined, []])
  })

  it('is there again at once when the store is back, be it empty', async () => {
    const { lease, line, store, listed, recorded } = parts()
    await lease.start()
    await store.records.write([{ remove: leaseKey('node_a') }, { index: NODES, drop: 'node_a' }])
    line.back()
    await Promise.resolve()
    expect([await recorded(), await listed()]).toEqual([true, ['node_a']])
  })

  it('cannot begin without the store', async () => {
    const { lease, line } = parts()
    line.cut = true
    await expect(lease.start()).rejects.toThrow(StoreUnavailable)
  })
})
