import { describe, expect, it, onTestFinished } from 'vitest'
import { TestCluster } from './support/cluster.ts'
import { expectIntact } from './support/cluster-player.ts'
import { until } from './support/redis-admin.ts'
import { startRedisCluster, startRedisSentinel } from './support/redis-shapes.ts'

/** Each plays a ledger over two nodes, while a master of the store is killed and its replica takes its place. */
const SHAPES = {
  'a Redis Cluster of three masters': async () => {
    const redis = await startRedisCluster({ masters: 3, replicas: 1 })
    // Of the rooms below, one is likely on each master; all of them have to go on.
    return { redis, kill: () => redis.kill(0) }
  },
  'three Sentinels': async () => {
    const redis = await startRedisSentinel()
    return { redis, kill: () => redis.killMaster() }
  },
}

describe.each(Object.entries(SHAPES))('nodes on %s', (_, start) => {
  it('play together, and go on by themselves when a master is killed', async () => {
    const { redis, kill } = await start()
    onTestFinished(() => redis.close())
    const cluster = await TestCluster.start({ redis: { url: redis.url }, leaseMs: 1000 })
    onTestFinished(() => cluster.close())
    const nodes = await cluster.processes(2)
    const login = await cluster.login()
    const rooms = ['ledger-journal:a', 'ledger-journal:b', 'ledger-journal:c', 'ledger-snapshot:d']
    const players = await Promise.all(
      rooms.map(async (roomId) => ({ room_id: roomId, here: await cluster.playersAt(login, roomId, nodes) })),
    )
    const everyone = players.flatMap(({ here }) => here)
    const stops = everyone.map((player) => player.play(20))
    const farther = (by: number) => {
      const goals = new Map(everyone.map((player) => [player, player.acked + by]))
      // Sentinels that do not agree at once vote again some seconds later.
      const agreedMs = 40_000
      return until(
        'everyone plays on',
        async () => everyone.every((player) => player.acked >= goals.get(player)!),
        agreedMs,
      )
    }
    await farther(20)
    await kill()
    await farther(40)
    await Promise.all(stops.map((stop) => stop()))
    for (const { room_id: roomId, here } of players) await expectIntact(cluster, roomId, here)
    for (const { errors } of everyone) expect(errors).toEqual([])
  })
})
