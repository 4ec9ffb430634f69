import { pino } from 'pino'
import { Registry } from 'prom-client'
import * as v from 'valibot'
import { describe, expect, it, vi } from 'vitest'
import { registerMetrics } from '../../shared/metrics.ts'
import { decodeNodeInfo, leaseKey, NODES } from '../../shared/node-registry.ts'
import { memoryStore } from '../../shared/store/memory/memory.ts'
import { StoreUnavailable } from '../../shared/store/port.ts'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { nodeInfo } from '../../test/support/descriptions.ts'
import { counting } from '../../test/support/rooms/counter-room.ts'
import { RoomBench } from '../../test/support/rooms/room-bench.ts'
import { TestRecords } from '../../test/support/test-store.ts'
import { type Durability, defineRoom } from '../room/definition.ts'
import { NodeLease } from './lease.ts'
import { CLUSTER_METRICS } from './metrics.ts'

function parts({ clock = new FakeClock(), store = memoryStore({ clock }), node_id: nodeId = 'node_a' } = {}) {
  const warnings: object[] = []
  const log = pino(
    { base: null, timestamp: false, level: 'warn' },
    {
      write: (text: string) => void warnings.push(JSON.parse(text)),
    },
  )
  const line = {
    regained: 0,
    rooms: 0,
    regain: () => {},
    back: () => {},
    replaced: [] as string[],
  }
  const records = new TestRecords(store.records, clock)
  const onReturn = (callback: () => void) => {
    line.back = callback
    return () => {
      line.back = () => {}
    }
  }
  const lease = new NodeLease(
    {
      nodeId,
      store: { records, onReturn },
      clock,
      log,
      metrics: registerMetrics(new Registry(), CLUSTER_METRICS),
      leaseMs: 2000,
      onReplaced: ({ message }) => line.replaced.push(message),
    },
    { info: () => nodeInfo(nodeId, { rooms: line.rooms }) },
  )
  const start = () =>
    lease.start(() => {
      line.regained++
      line.regain()
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
  return { warnings, clock, store, records, lease, start, line, read, listed, recorded, advance }
}

describe('a lease', () => {
  it('is valid as long as it is renewed, also if the wall clock changes, and is gone after it was ended', async () => {
    const { clock, lease, start, recorded, advance } = parts()
    expect(lease.valid()).toBe(false)
    await start()
    clock.now = () => {
      throw new Error('the time of day was asked for')
    }
    await advance(60_000)
    expect([lease.valid(), await recorded()]).toEqual([true, true])
    await lease.stop()
    expect([lease.valid(), await recorded()]).toEqual([false, false])
    await advance(5000)
    expect(await recorded()).toBe(false)
  })

  it('is valid while the store takes nearly a second for each answer', async () => {
    const { lease, start, records, advance } = parts()
    await start()
    records.delayMs = 400
    let trustedMs = 0
    for (let ms = 0; ms < 20_000; ms += 50) {
      await advance(50)
      if (lease.valid()) trustedMs += 50
    }
    expect(trustedMs).toBe(20_000)
  })

  it('has the age of its last renewal', async () => {
    const { lease, start, records, advance } = parts()
    await start()
    await advance(400)
    expect(lease.ageMs).toBe(400)
    await advance(200)
    expect(lease.ageMs).toBe(100)
    records.down = true
    await advance(1800)
    expect(lease.ageMs).toBe(1900)
  })

  it('is not trusted any more before other nodes may presume the node dead', async () => {
    const { lease, start, records, recorded, advance } = parts()
    await start()
    records.down = true
    let trustedMs = 0
    while (await recorded()) {
      if (lease.valid()) trustedMs += 50
      await advance(50)
    }
    expect(lease.valid()).toBe(false)
    expect(trustedMs).toBeGreaterThan(1500)
    expect(trustedMs).toBeLessThan(2000)
  })

  it('expires without a timer: a suspended process finds it expired', async () => {
    const { clock, lease, start } = parts()
    await start()
    clock.pause(2000)
    expect(lease.valid()).toBe(false)
  })

  it('reports once that it is valid again after it had expired', async () => {
    const { lease, start, records, line, advance } = parts()
    await start()
    records.down = true
    await advance(1000)
    records.down = false
    await advance(3000)
    expect([lease.valid(), line.regained]).toEqual([true, 0])
    records.down = true
    await advance(4000)
    expect(lease.valid()).toBe(false)
    records.down = false
    await advance(1000)
    expect([lease.valid(), line.regained]).toEqual([true, 1])
  })

  it('that has expired is logged with the reason, once in 10 s', async () => {
    const { start, records, warnings, advance } = parts()
    await start()
    records.down = true
    await advance(1500)
    expect(warnings).toEqual([])
    await advance(9000)
    const line = {
      level: 40,
      failure: 'store_unreachable',
      reason: expect.any(String),
      msg: 'the lease could not be renewed: the rooms of this node are frozen',
    }
    expect(warnings).toEqual([{ ...line, suppressed: 0 }])
    await advance(3000)
    expect(warnings).toEqual([
      { ...line, suppressed: 0 },
      { ...line, suppressed: expect.any(Number) },
    ])
  })

  it('writes the data of its node with each renewal, and immediately when asked to', async () => {
    const { lease, start, line, read, listed, advance } = parts()
    await start()
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

  it('is renewed immediately when the store is back, even if it is empty', async () => {
    const { start, line, store, listed, recorded } = parts()
    await start()
    await store.records.write([{ remove: leaseKey('node_a') }, { index: NODES, drop: 'node_a' }])
    line.back()
    await Promise.resolve()
    expect([await recorded(), await listed()]).toEqual([true, ['node_a']])
  })

  it('counts as expired if the store has lost it, or has let it expire by its own clock', async () => {
    const { lease, start, records, line, store, advance } = parts()
    await start()
    await advance(1000)
    await store.records.write([{ remove: leaseKey('node_a') }])
    await advance(500)
    expect([lease.valid(), line.regained]).toEqual([true, 1])
    await advance(5000)
    expect(line.regained).toBe(1)
    // Also if the lost answer is the one about the new lease.
    await store.records.write([{ remove: leaseKey('node_a') }])
    records.answersLost = 3
    await advance(600)
    records.answersLost = 0
    await advance(500)
    expect(line.regained).toBe(2)
  })

  it('cannot start without the store', async () => {
    const { start, records } = parts()
    records.down = true
    await expect(start()).rejects.toThrow(StoreUnavailable)
  })
})

describe('a lease that has expired only by the store’s clock', () => {
  /** A node that owns a room. Time passes for the store and the other nodes, but not for this node, because its machine is suspended. */
  async function suspended(durability: Durability) {
    const world = new FakeClock()
    const store = memoryStore({ clock: world })
    const { lease, start, line, clock, advance } = parts({ store })
    const bench = new RoomBench([counting(durability)], { store, clock })
    line.regain = () => bench.host.recheck()
    await start()
    await bench.join('counter', 'ann')
    bench.message('counter', 'ann', 'inc', null, 1)
    await bench.untilIdle()
    const wake = async () => {
      await advance(600)
      await bench.untilIdle()
    }
    return { world, store, lease, bench, wake }
  }

  it.each(['journal', 'snapshot', 'none'] as const)(
    'ends a %s room that another node has claimed, with the first renewal after it',
    async (durability) => {
      const { world, store, lease, bench, wake } = await suspended(durability)
      world.advance(2500)
      const next = new RoomBench([counting(durability)], { store, clock: world, nodeId: 'node_b' })
      await next.join('counter', 'bob')
      expect([next.host.rooms.size, lease.valid()]).toEqual([1, true])
      await wake()
      expect([bench.host.rooms.size, bench.counts.fenced, lease.valid()]).toEqual([0, 1, true])
      expect(next.host.rooms.size).toBe(1)
    },
  )
})

describe('the name of a node', () => {
  const pair = () => {
    const first = parts({ node_id: 'node_a~1' })
    const { clock, store } = first
    return { first, second: parts({ clock, store, node_id: 'node_a~2' }), advance: first.advance }
  }
  /** State of a start so far. */
  const watch = (starting: Promise<void>) => {
    const outcome = { text: 'waits' }
    starting.then(
      () => {
        outcome.text = 'started'
      },
      (error: Error) => {
        outcome.text = `${error.name}: ${error.message}`
      },
    )
    return outcome
  }

  it('is free one lease after its process was killed, however soon the next process starts', async () => {
    const { first, second, advance } = pair()
    await first.start()
    await advance(600)
    // The process renews nothing more, as after a crash.
    first.records.down = true
    const outcome = watch(second.start())
    await advance(2000)
    expect(outcome.text).toBe('started')
    expect([first.lease.valid(), second.lease.valid()]).toEqual([false, true])
    expect(second.line.regained).toBe(0)
  })

  it('is free if the lease of an earlier process expires while the next process reads it', async () => {
    const { second, advance } = pair()
    const { clock, store, records, start } = second
    const key = leaseKey('node_a')
    await store.records.renewLease({ key, holder: 'node_a~1', value: new Uint8Array(), ttlMs: 60_000 })
    const read = records.read.bind(records)
    const expiresAt = clock.monotonic() + 2000
    vi.spyOn(records, 'read').mockImplementation(async (keys) => {
      if (clock.monotonic() >= expiresAt) await store.records.write([{ remove: key }])
      return read(keys)
    })
    const outcome = watch(start())
    await advance(2500)
    expect(outcome.text).toBe('started')
  })

  it('is free immediately when its process has ended', async () => {
    const { first, second } = pair()
    await first.start()
    await first.lease.stop()
    await second.start()
    expect(second.lease.valid()).toBe(true)
  })

  it('goes to one of two processes after the store came back empty, and the other stops', async () => {
    const { first, second, advance } = pair()
    await first.start()
    first.records.down = true
    await advance(2500)
    await second.start()
    await first.store.records.write([{ remove: leaseKey('node_a') }])
    first.records.down = false
    await first.lease.renewNow()
    await advance(600)
    expect([first.lease.valid(), second.lease.valid()]).toEqual([true, false])
    expect([first.line.replaced.length, second.line.replaced.length]).toEqual([0, 1])
  })
})

describe('the lease of a node at full load', () => {
  it('is renewed, however many inputs arrive and however long each takes', async () => {
    const clock = new FakeClock()
    const { lease, start } = parts({ clock })
    let [handled, lapsed] = [0, 0]
    const slow = defineRoom({
      type: 'slow',
      messages: { work: { data: v.any() } },
      durability: 'none',
      create: () => ({}),
      onMessage() {
        handled++
        clock.pause(2)
        if (!lease.valid()) lapsed++
      },
    })
    const bench = new RoomBench([slow], { clock, limits: { waitingMessages: 10_000 } })
    await start()
    await bench.join('slow', 'ann')
    // Ten times the duration of the lease.
    for (let n = 0; n < 10_000; n++) bench.message('slow', 'ann', 'work', null)
    while (handled < 10_000) await bench.advance(50, 1)
    expect(lapsed).toBe(0)
    await lease.stop()
  })
})
