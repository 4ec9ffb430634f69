import { describe, expect, it, onTestFinished } from 'vitest'
import { expectIntact } from './players/ledger.ts'
import { TestCluster } from './support/cluster.ts'
import {
  asAdmin,
  type RedisCluster,
  startRedisCluster,
  startRedisSentinel,
  until,
} from './support/redis-server.ts'

const MASTERS = 3
const JOURNALS = ['ledger-journal:a', 'ledger-journal:b', 'ledger-journal:c']

/** Returns ids of rooms, one for each master of a Cluster. */
async function oneOnEach(redis: RedisCluster, projectId: string): Promise<string[]> {
  const rooms = new Map<object, string>()
  for (let i = 0; rooms.size < MASTERS; i++) {
    const roomId = `ledger-journal:r${i}`
    const slot = await asAdmin(redis.nodes[0]!.url, (admin) =>
      admin.cluster('KEYSLOT', `{room:${projectId}/${roomId}}`),
    )
    rooms.set(await redis.masterOf(slot), roomId)
  }
  return [...rooms.values()]
}

/** Waits until each master gets journals and sharded messages of nodes. Expects no messages to all servers. */
async function spread(redis: RedisCluster): Promise<void> {
  const read = () =>
    Promise.all(
      redis.nodes.slice(0, MASTERS).map(async ({ url }) => {
        const stats = await asAdmin(url, (admin) => admin.info('commandstats'))
        return (command: string) =>
          Number(new RegExp(`^cmdstat_${command}:calls=(\\d+)`, 'm').exec(stats)?.[1] ?? 0)
      }),
    )
  const before = await read()
  await until('each master has its share', async () =>
    (await read()).every((calls, i) =>
      ['rpush', 'spublish'].every((command) => calls(command) > before[i]!(command)),
    ),
  )
  for (const calls of await read()) expect(calls('publish')).toBe(0)
}

/** Deployments of Redis. In the test, a master is killed, and its replica takes over. */
const SHAPES = {
  'a Redis Cluster of three masters': async () => {
    const redis = await startRedisCluster({ masters: MASTERS, replicas: 1 })
    return {
      redis,
      rooms: (projectId: string) => oneOnEach(redis, projectId),
      isSpread: () => spread(redis),
      kill: () => redis.kill(0),
    }
  },
  'three Sentinels': async () => {
    const redis = await startRedisSentinel()
    return { redis, rooms: async () => JOURNALS, isSpread: async () => {}, kill: () => redis.killMaster() }
  },
}

describe.each(Object.entries(SHAPES))('nodes on %s', (_, start) => {
  it('share rooms, and continue automatically when a master is killed', async () => {
    const { redis, rooms, isSpread, kill } = await start()
    onTestFinished(() => redis.close())
    // Longer than a pause of a busy machine: a node that is late by more than a lease loses its rooms to a node that reads the replica's data.
    const cluster = await TestCluster.start({ redis: { url: redis.url }, leaseMs: 4000 })
    onTestFinished(() => cluster.close())
    const nodes = await cluster.processes(2)
    const login = await cluster.login()
    const all = [...(await rooms(login.projectId)), 'ledger-snapshot:d']
    const players = await Promise.all(
      all.map(async (roomId) => ({ room_id: roomId, here: await cluster.playersAt(login, roomId, nodes) })),
    )
    const everyone = players.flatMap(({ here }) => here)
    const stops = everyone.map((player) => player.play(50))
    const farther = (by: number) => {
      const goals = new Map(everyone.map((player) => [player, player.acked + by]))
      // Sentinels that do not agree in the first vote repeat it some seconds later.
      const agreedMs = 40_000
      return until(
        'all continue',
        async () => everyone.every((player) => player.acked >= goals.get(player)!),
        agreedMs,
      )
    }
    await farther(20)
    await isSpread()
    const owners = () => Promise.all(all.map((roomId) => cluster.owner(login, roomId)))
    const before = await owners()
    await kill()
    await farther(40)
    expect(await owners()).toEqual(before)
    await Promise.all(stops.map((stop) => stop()))
    for (const { room_id: roomId, here } of players) await expectIntact(cluster, roomId, here)
    for (const { errors } of everyone) expect(errors).toEqual([])
  })
})
