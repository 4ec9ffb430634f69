import { setImmediate as nextTurn } from 'node:timers/promises'
import { pino } from 'pino'
import { Registry } from 'prom-client'
import { describe, expect, it } from 'vitest'
import { sleep } from '../../shared/clock.ts'
import { registerMetrics } from '../../shared/metrics.ts'
import { leaseKey, NODES, type NodeInfo } from '../../shared/node-registry.ts'
import { memoryStore } from '../../shared/store/memory/memory.ts'
import { StoreUnavailable } from '../../shared/store/port.ts'
import { FakeClock } from '../../test/kit/fake-clock.ts'
import { nodeInfo } from '../../test/support/descriptions.ts'
import { TestRecords } from '../../test/support/test-store.ts'
import { NodeLease } from './lease.ts'
import { nodeChannel } from './links.ts'
import { CLUSTER_METRICS } from './metrics.ts'
import { ClusterNodes } from './nodes.ts'

const LEASE_MS = 2000

/** A cluster on one store, whose nodes can be stopped, silenced and killed. */
function parts({ uptime_ms: uptimeMs = Number.POSITIVE_INFINITY } = {}) {
  const clock = new FakeClock()
  const memory = memoryStore({ clock })
  const warned: string[] = []
  const log = pino({ level: 'silent' })
  log.warn = (_: unknown, message?: string) => void warned.push(String(message))
  const records = new TestRecords(memory.records, clock)
  const line = { mute: false, polls: 0, answerMs: 0 }
  const returns = new Set<() => void>()
  const began = clock.monotonic()
  const answer = <T>(value: () => Promise<T>): Promise<T> =>
    records.down ? Promise.reject(new StoreUnavailable('cut')) : value()
  const store = {
    records,
    bus: {
      publish: (channel: string, message: Uint8Array) => memory.bus.publish(channel, message),
      subscribe: (channel: string, onMessage: (message: Uint8Array) => void) =>
        memory.bus.subscribe(channel, onMessage),
      listeners: (channels: readonly string[]) => {
        line.polls++
        return answer(async () => {
          const counts = line.mute ? undefined : await memory.bus.listeners(channels)
          if (line.answerMs > 0) await sleep(clock, line.answerMs)
          return counts
        })
      },
    },
    uptime: () => answer(async () => uptimeMs + clock.monotonic() - began),
    time: () => answer(async () => clock.now()),
    onReturn: (callback: () => void) => {
      returns.add(callback)
      return () => void returns.delete(callback)
    },
  }

  const node = async (nodeId: string) => {
    const news: string[] = []
    const self = { info: nodeInfo(nodeId), regained: () => {} }
    const info = (): NodeInfo => self.info
    let silence = await store.bus.subscribe(nodeChannel(nodeId), () => {})
    const environment = {
      nodeId,
      store,
      clock,
      log,
      metrics: registerMetrics(new Registry(), CLUSTER_METRICS),
      leaseMs: LEASE_MS,
      onReplaced: (replaced: Error) => void news.push(replaced.name),
    }
    const lease = new NodeLease(environment, { info })
    const nodes = new ClusterNodes(environment, { info })
    nodes.observe({
      gone: (other) => news.push(`gone ${other}`),
      joined: (other) => news.push(`joined ${other.node_id}`),
    })
    self.regained = () => nodes.hold()
    await lease.start(() => self.regained())
    await nodes.start()
    return {
      nodes,
      lease,
      news,
      self,
      alive: () =>
        nodes
          .nodes()
          .map((other) => other.node_id)
          .sort()
          .join(),
      /** Its process ends: it renews nothing and does not listen. */
      kill: async () => {
        nodes.stop()
        await silence()
        lease.renewNow = async () => {}
      },
      /** Its process is suspended: connections stay open, and it renews nothing. */
      freeze: () => {
        lease.renewNow = async () => {}
      },
      deafen: () => silence(),
      listen: async () => {
        silence = await store.bus.subscribe(nodeChannel(nodeId), () => {})
      },
    }
  }
  const elapse = async (ms: number) => {
    for (let left = ms; left > 0; left -= 10) {
      clock.advance(10)
      await nextTurn()
    }
  }
  const back = async () => {
    for (const callback of returns) callback()
    await nextTurn()
  }
  return { clock, memory, records, line, warned, node, elapse, back }
}

describe('the nodes of a cluster', () => {
  it('know each other by their leases, with the data of each node', async () => {
    const { node, elapse } = parts()
    const a = await node('node_a')
    const b = await node('node_b')
    await elapse(600)
    expect([a.alive(), b.alive()]).toEqual(['node_a,node_b', 'node_a,node_b'])
    expect([a.news, b.news]).toEqual([['joined node_b'], ['joined node_a']])
    b.self.info = nodeInfo('node_b', { draining: true, rooms: 3 })
    await b.lease.renewNow()
    await elapse(600)
    expect(a.nodes.get('node_b')).toEqual(b.self.info)
    expect(a.nodes.isGone('node_b')).toBe(false)
    expect(a.nodes.get('node_x')).toBeUndefined()
    expect(a.nodes.isGone('node_x')).toBe(true)
    await elapse(60_000)
    expect(a.news).toEqual(['joined node_b'])
  })

  it('presume a killed node dead within 0.4 s, and report it once', async () => {
    const { node, elapse } = parts()
    const a = await node('node_a')
    const b = await node('node_b')
    await elapse(600)
    expect(a.nodes.isAlive('node_b')).toBe(true)
    await b.kill()
    expect(a.nodes.isGone('node_b')).toBe(false)
    await elapse(250)
    expect([a.nodes.isAlive('node_b'), a.nodes.isGone('node_b')]).toEqual([false, false])
    await elapse(130)
    expect([a.alive(), a.nodes.isGone('node_b')]).toEqual(['node_a', true])
    expect(await a.nodes.judge('node_b')).toBe('dead')
    expect(await a.nodes.judge('node_b', true)).toBe('alive')
    await elapse(60_000)
    expect(await a.nodes.judge('node_b', true)).toBe('dead')
    expect(a.news).toEqual(['joined node_b', 'gone node_b'])
  })

  it.each([
    ['', 0],
    [', and the store is slow', 90],
  ])('do not presume a node dead whose connection is lost for a moment%s', async (_, answerMs) => {
    const { node, elapse, line } = parts()
    line.answerMs = answerMs
    const a = await node('node_a')
    const b = await node('node_b')
    await elapse(600)
    for (let i = 0; i < 5; i++) {
      await b.deafen()
      await elapse(150 + answerMs)
      await b.listen()
      await elapse(150 + 2 * answerMs)
    }
    expect(a.news).toEqual(['joined node_b'])
  })

  it('do not count a silence as long whose end they could not see', async () => {
    const { node, elapse, records } = parts()
    const a = await node('node_a')
    const b = await node('node_b')
    await elapse(600)
    await b.deafen()
    await elapse(110)
    records.down = true
    await elapse(1000)
    records.down = false
    await elapse(150)
    expect(a.nodes.isGone('node_b')).toBe(false)
    await elapse(250)
    expect(a.nodes.isGone('node_b')).toBe(true)
  })

  it('count a node that was presumed dead as alive when it listens again, not before', async () => {
    const { node, elapse } = parts()
    const a = await node('node_a')
    const b = await node('node_b')
    await elapse(600)
    await b.deafen()
    await elapse(5000)
    expect(a.news).toEqual(['joined node_b', 'gone node_b'])
    await b.listen()
    await elapse(250)
    expect(a.news.slice(2)).toEqual(['joined node_b'])
    expect(await a.nodes.judge('node_b')).toBe('alive')
  })

  // Found by the explorer: a room was claimed from a node that listened again and had just claimed it. That node had no reason to read the owner.
  it('judge a node that was presumed dead by whether it listens now', async () => {
    const { node, elapse } = parts()
    const a = await node('node_a')
    const b = await node('node_b')
    await elapse(600)
    await b.deafen()
    await elapse(1000)
    expect(await a.nodes.judge('node_b')).toBe('dead')
    await b.listen()
    expect(await a.nodes.judge('node_b')).toBe('alive')
  })

  it('presume a process dead that was replaced by another one of the same name, however fast', async () => {
    const { node, elapse, memory } = parts()
    const a = await node('node_a')
    const b = await node('node_b~1')
    await elapse(600)
    b.freeze()
    await memory.records.write([{ remove: leaseKey('node_b') }])
    await node('node_b~2')
    await elapse(600)
    expect(a.news).toEqual(['joined node_b~1', 'gone node_b~1', 'joined node_b~2'])
    expect(a.alive()).toBe('node_a,node_b~2')
    expect(a.nodes.isGone('node_b~1')).toBe(true)
    expect(a.nodes.describe().map(({ node_id: nodeId, alive }) => [nodeId, alive])).toEqual([
      ['node_a', true],
      ['node_b', true],
    ])
  })

  it('are described with what is wrong with their clocks, leases, and the view of the node that describes them', async () => {
    const { node, elapse, records } = parts()
    const a = await node('node_a')
    const b = await node('node_b')
    const c = await node('node_c')
    b.self.info = nodeInfo('node_b', { clock_wrong: 'it is ahead' })
    await elapse(1000)
    const described = (nodeId: string) => a.nodes.describe().find(({ node_id: id }) => id === nodeId)
    expect(described('node_b')).toMatchObject({ alive: true, clock_wrong: 'it is ahead' })
    expect(described('node_c')).toEqual({ ...nodeInfo('node_c'), self: false, alive: true })
    records.down = true
    await elapse(1000)
    expect(described('node_c')).toMatchObject({ alive: true, outdated: true })
    records.down = false
    await elapse(1000)
    c.freeze()
    await elapse(LEASE_MS - 500)
    // No node is judged dead now, so the node without a lease is not gone yet.
    a.nodes.hold()
    await elapse(LEASE_MS - 500)
    expect(described('node_c')).toEqual({ ...nodeInfo('node_c'), self: false, alive: true, lease_lost: true })
    await elapse(LEASE_MS)
    expect(described('node_c')).toEqual({ ...nodeInfo('node_c'), self: false, alive: false })
  })

  it('do not take a later process of a name for the earlier one', async () => {
    const { node, elapse, memory } = parts()
    const b = await node('node_b~1')
    b.freeze()
    await elapse(2500)
    await node('node_b~2')
    const a = await node('node_a')
    for (const byLease of [false, true]) {
      expect(await a.nodes.judge('node_b~1', byLease)).toBe('dead')
      expect(await a.nodes.judge('node_b~2', byLease)).toBe('alive')
    }
    expect(a.nodes.isGone('node_b~1')).toBe(true)
    expect(await memory.records.page(NODES, { limit: 10 })).toEqual(['node_b', 'node_a'])
  })

  it('are judged by the current answer of the store', async () => {
    const { node, elapse, memory } = parts()
    const a = await node('node_a')
    await node('node_b')
    expect(await a.nodes.judge('node_b')).toBe('alive')
    await memory.records.write([{ remove: leaseKey('node_b') }])
    expect(await a.nodes.judge('node_b')).toBe('dead')
    expect(a.news).toEqual(['joined node_b', 'gone node_b'])
    await elapse(600)
    expect(a.alive()).toBe('node_a,node_b')
    expect(await a.nodes.judge('node_x')).toBe('dead')
  })

  it('are not judged dead for one lease after the store was unavailable', async () => {
    const { node, elapse, records, warned, memory, back } = parts()
    const a = await node('node_a')
    const b = await node('node_b')
    await elapse(600)
    records.down = true
    await elapse(10_000)
    // Killed during the outage, in which its lease has expired.
    await b.kill()
    await memory.records.write([{ remove: leaseKey('node_b') }])
    records.down = false
    await back()
    expect(a.nodes.canJudge).toBe(false)
    await elapse(LEASE_MS - 100)
    expect([a.alive(), await a.nodes.judge('node_b')]).toEqual(['node_a,node_b', 'alive'])
    expect(a.nodes.isGone('node_x')).toBe(false)
    await elapse(700)
    expect([a.alive(), a.nodes.canJudge]).toEqual(['node_a', true])
    expect(warned.filter((text) => text === 'the other nodes cannot be read')).toHaveLength(2)
  })

  it('are not judged by their silence from before an outage of the store', async () => {
    const { node, elapse, records, back } = parts()
    const a = await node('node_a')
    const b = await node('node_b')
    await elapse(600)
    await b.deafen()
    await elapse(500)
    expect(a.nodes.isGone('node_b')).toBe(true)
    records.down = true
    await b.listen()
    await elapse(1050)
    records.down = false
    await back()
    await elapse(LEASE_MS)
    expect(a.nodes.canJudge).toBe(true)
    expect(await a.nodes.judge('node_b')).toBe('alive')
  })

  it('delay claims for one lease after an outage of the store, or after their own lease had expired', async () => {
    const { node, elapse, clock, records, back } = parts()
    const a = await node('node_a')
    expect(a.nodes.claimsAllowedAt).toBeLessThanOrEqual(clock.monotonic())
    await back()
    const returnedAt = clock.monotonic()
    // Its age must be read first.
    expect(a.nodes.claimsAllowedAt).toBe(Number.POSITIVE_INFINITY)
    await elapse(LEASE_MS)
    expect(a.nodes.claimsAllowedAt).toBe(returnedAt + LEASE_MS)
    records.down = true
    await elapse(5000)
    records.down = false
    await elapse(600)
    expect(a.nodes.claimsAllowedAt).toBeGreaterThan(clock.monotonic() + 1000)
  })

  it('claim nothing, and judge no node dead, while the store is younger than a lease and a second', async () => {
    const { node, elapse, clock, back, records } = parts({ uptime_ms: 500 })
    const a = await node('node_a')
    expect(a.nodes.claimsAllowedAt).toBe(2500)
    expect(await a.nodes.judge('node_x')).toBe('alive')
    records.down = true
    await back()
    expect(a.nodes.claimsAllowedAt).toBe(Number.POSITIVE_INFINITY)
    records.down = false
    await elapse(600)
    expect(a.nodes.claimsAllowedAt).toBe(2500)
    await elapse(2000)
    expect(a.nodes.claimsAllowedAt).toBeLessThan(clock.monotonic())
    expect(await a.nodes.judge('node_x')).toBe('dead')
  })

  it('count a young store as behind while some node ran before it, this one or another', async () => {
    const { node, elapse, clock } = parts({ uptime_ms: -5000 })
    const a = await node('node_a')
    await elapse(8000)
    const b = await node('node_b')
    b.self.info = nodeInfo('node_b', { started_at: new Date(clock.now()).toISOString() })
    for (const { nodes } of [a, b]) expect(await nodes.storeIsBehind(10_000)).toBe(true)
    expect(await a.nodes.storeIsBehind(3000)).toBe(false)
    a.self.info = nodeInfo('node_a', { started_at: b.self.info.started_at })
    await a.lease.renewNow()
    await elapse(600)
    for (const { nodes } of [a, b]) expect(await nodes.storeIsBehind(10_000)).toBe(false)
  })

  it('use only the leases if the store cannot count listeners', async () => {
    const { node, elapse, line } = parts()
    line.mute = true
    const a = await node('node_a')
    const b = await node('node_b')
    await elapse(600)
    await b.kill()
    await elapse(1000)
    expect(a.nodes.isGone('node_b')).toBe(false)
    expect(line.polls).toBeLessThan(5)
    await elapse(1600)
    expect(a.nodes.isGone('node_b')).toBe(true)
  })

  it('know when another node last listened', async () => {
    const { node, elapse, clock } = parts()
    const a = await node('node_a')
    const b = await node('node_b')
    await elapse(5000)
    const diedAt = clock.monotonic()
    await b.kill()
    await elapse(3000)
    expect(a.nodes.listenedAt('node_b')).toBeLessThanOrEqual(diedAt)
    expect(a.nodes.listenedAt('node_b')).toBeGreaterThan(diedAt - 500)
    expect(a.nodes.listenedAt('node_x')).toBeUndefined()
  })

  it('send one poll for all other nodes, and none if there are no others', async () => {
    const { node, elapse, line, records } = parts()
    await node('node_a')
    await elapse(1000)
    expect(line.polls).toBe(0)
    await node('node_b')
    await node('node_c')
    await elapse(600)
    line.polls = records.reads = records.writes = 0
    await elapse(1000)
    expect(line.polls).toBeLessThanOrEqual(3 * 5)
    expect(records.reads).toBeLessThanOrEqual(3 * 2)
    expect(records.writes).toBeLessThanOrEqual(3 * 2)
  })

  it('are forgotten long after they have died', async () => {
    const { node, elapse, memory } = parts()
    const a = await node('node_a')
    const b = await node('node_b')
    await elapse(600)
    await b.kill()
    await elapse(3000)
    expect(await memory.records.page(NODES, { limit: 10 })).toEqual(['node_b', 'node_a'])
    await elapse(12 * LEASE_MS)
    expect(await memory.records.page(NODES, { limit: 10 })).toEqual(['node_a'])
    expect(a.nodes.isGone('node_b')).toBe(true)
    a.nodes.hold()
    expect(a.nodes.get('node_b')).toBeUndefined()
    a.nodes.stop()
  })
})
