import { pino } from 'pino'
import { Registry } from 'prom-client'
import { describe, expect, inject, it, onTestFinished, vi } from 'vitest'
import { systemClock } from '../../shared/clock.ts'
import { registerMetrics } from '../../shared/metrics.ts'
import { redisStore } from '../../shared/store/redis/redis.ts'
import { nodeInfo } from '../../test/support/descriptions.ts'
import { FaultyLink } from '../../test/support/faulty-link.ts'
import { freshPrefix } from '../../test/support/redis-prefix.ts'
import { NodeLease } from './lease.ts'
import { NodeLinks, type PeerMessage } from './links.ts'
import { CLUSTER_METRICS } from './metrics.ts'
import { ClusterNodes } from './nodes.ts'

/** So long that nothing here can be due to its end. */
const LEASE_MS = 8000
const log = pino({ level: 'silent' })
const about = (sessionId: string): PeerMessage => ({ to: 'gateway', session_id: sessionId })

/** A node whose connections to the store go over a link of its own. */
async function node(nodeId: string, keyPrefix: string) {
  const link = await FaultyLink.open(inject('redisUrl'))
  const redis = await redisStore({ url: link.url, keyPrefix, log })
  const store = {
    records: redis.records,
    bus: redis.bus,
    onReturn: (callback: () => void) => redis.onReturn(callback),
    // As if it had been there for long: a young one makes all nodes wait.
    uptime: async () => 3_600_000,
    time: () => redis.time(),
  }
  const heard: string[] = []
  const common = {
    nodeId,
    store,
    clock: systemClock,
    log,
    metrics: registerMetrics(new Registry(), CLUSTER_METRICS),
    info: () => nodeInfo(nodeId),
  }
  const peers = new NodeLinks({
    ...common,
    bus: store.bus,
    onMessage: (message, from) =>
      heard.push(`${from}: ${message.to === 'gateway' ? message.session_id : ''}`),
    onGap: (from) => heard.push(`gap ${from}`),
  })
  const lease = new NodeLease({
    ...common,
    ttlMs: LEASE_MS,
    onRegained: () => {},
    onReplaced: (replaced) => heard.push(replaced.message),
  })
  const members = new ClusterNodes({
    ...common,
    leaseMs: LEASE_MS,
    onGone: (other) => heard.push(`gone ${other}`),
    onJoined: (other) => heard.push(`joined ${other.node_id}`),
  })
  onTestFinished(async () => {
    members.stop()
    await link.close()
    await redis.close()
    await lease.stop()
  })
  await peers.start()
  await lease.start()
  await members.start()
  return { link, peers, members, heard }
}

describe('nodes on a Redis', () => {
  it('miss one whose connections are gone long before its lease has run out, and know it again when it is back', async () => {
    const keyPrefix = freshPrefix()
    const b = await node('node_b', keyPrefix)
    const a = await node('node_a', keyPrefix)
    expect(a.members.isGone('node_b')).toBe(false)
    const killedAt = systemClock.monotonic()
    await b.link.close()
    await vi.waitFor(() => expect(a.members.isGone('node_b')).toBe(true), { timeout: 5000, interval: 5 })
    expect(systemClock.monotonic() - killedAt).toBeLessThan(2000)
    expect(await a.members.judge('node_b')).toBe('dead')
    expect(a.heard).toEqual(['joined node_b', 'gone node_b'])
    const again = await node('node_b', keyPrefix)
    await vi.waitFor(() => expect(a.members.isGone('node_b')).toBe(false), { timeout: 5000, interval: 5 })
    expect(again.members.get('node_a')).toMatchObject({ node_id: 'node_a' })
  })

  it('judge no one dead for a lease after their own connections were cut', async () => {
    const keyPrefix = freshPrefix()
    const b = await node('node_b', keyPrefix)
    const a = await node('node_a', keyPrefix)
    a.link.cut()
    await vi.waitFor(() => expect(a.members.settled).toBe(false), { timeout: 5000, interval: 5 })
    expect(a.members.claimsAllowedAt).toBeGreaterThan(systemClock.monotonic() + LEASE_MS / 2)
    expect(b.members.settled).toBe(true)
  })

  it('hear each other, and of gaps when their connections were cut', async () => {
    const keyPrefix = freshPrefix()
    const b = await node('node_b', keyPrefix)
    const a = await node('node_a', keyPrefix)
    b.heard.length = 0
    for (let i = 0; i < 100; i++) {
      a.peers.send('node_b', about(`${i}`))
      if (i % 10 === 9) await new Promise((resolve) => setImmediate(resolve))
    }
    const all = Array.from({ length: 100 }, (_, i) => `node_a: ${i}`)
    await vi.waitFor(() => expect(b.heard.filter((text) => text.startsWith('node_a'))).toEqual(all), 60_000)
    expect(b.heard).not.toContain('gap node_a')
    b.link.cut()
    await vi.waitFor(() => expect(b.heard).toContain('gap undefined'), { timeout: 60_000 })
    a.peers.send('node_b', about('after'))
    await vi.waitFor(() => expect(b.heard).toContain('node_a: after'), { timeout: 60_000 })
    await a.peers.close()
    await b.peers.close()
  })
})
