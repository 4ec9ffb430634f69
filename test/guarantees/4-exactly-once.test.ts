import { afterAll, afterEach, beforeAll, describe, it } from 'vitest'
import { TestCluster } from '../support/cluster.ts'
import type { Player } from '../support/cluster-player.ts'
import { expectIntact } from '../support/cluster-verdict.ts'
import { until } from '../support/redis-admin.ts'
import { proxyRedis } from '../support/redis-proxy.ts'

describe('guarantee 4: exactly once', { timeout: 60_000 }, () => {
  let cluster: TestCluster
  beforeAll(async () => {
    cluster = await TestCluster.start({ lease_ms: 1000 })
  })
  afterEach(() => cluster.reset())
  afterAll(() => cluster.close())

  const playOn = async (players: readonly Player[], by = 25): Promise<void> => {
    const acked = players.map((player) => player.acked)
    await until('everybody plays on', async () => players.every((player, i) => player.acked > acked[i]! + by))
  }

  it('applies every message once and in order, across reconnects, a kill, a drain and lost connections to the store', async () => {
    const [killed] = await cluster.processes(1)
    const [b, c, d] = await cluster.local(3)
    const login = await cluster.login()
    const room_id = 'ledger-journal:once'
    const players = await cluster.playersAt(login, room_id, [killed!, b!, c!, d!])
    const stops = players.map((player) => player.play(15))
    await playOn(players)

    for (let i = 0; i < 3; i++) {
      for (const player of players) player.cut()
      await playOn(players, 5)
    }
    for (const { link } of [b!, c!, d!]) {
      link.cut()
      await playOn(players, 5)
    }
    killed!.kill()
    await playOn(players)
    const { node_id } = await cluster.owner(login, room_id)
    const drained = [b!, c!, d!].find((node) => node.node_id === node_id)!
    await drained.drain()
    await playOn(players)
    await Promise.all(stops.map((stop) => stop()))
    await expectIntact(cluster, room_id, players)
  })

  /** Pub/sub is at most once: what a node is told while its connection is deaf is gone, and nobody gets an error. */
  it('loses nothing when the bus swallows messages without a word', async () => {
    const proxy = await proxyRedis(cluster.redis_url)
    try {
      const [owner] = await cluster.local(1)
      const [edge] = await cluster.local(1, { redis_url: proxy.url })
      const login = await cluster.login()
      const room_id = 'ledger-journal:deaf'
      const players = await cluster.playersAt(login, room_id, [owner!, edge!])
      const stops = players.map((player) => player.play(15))
      await playOn(players)
      proxy.mute('subscribe')
      await playOn(players)
      await Promise.all(stops.map((stop) => stop()))
      await expectIntact(cluster, room_id, players)
      await cluster.reset()
    } finally {
      await proxy.close()
    }
  })
})
