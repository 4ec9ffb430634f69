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

  /**
   * Pub/sub is at most once: what a node is told while its connection is deaf is gone, and nobody gets an error. For a moment: only the
   * numbers of the envelopes tell. For good: the bus has to be found dead.
   */
  it.each([
    { deaf: 'owner', time: 'a moment' },
    { deaf: 'edge', time: 'a moment' },
    { deaf: 'owner', time: 'good' },
    { deaf: 'edge', time: 'good' },
  ])('loses nothing when the bus swallows for $time what the $deaf should hear', async ({ deaf, time }) => {
    const proxy = await proxyRedis(cluster.redis_url)
    try {
      const through = { redis_url: proxy.url }
      const [owner] = await cluster.local(1, deaf === 'owner' ? through : {})
      const login = await cluster.login()
      const room_id = `ledger-journal:${deaf}-${time}`
      const at_owner = await cluster.player(login, room_id, owner)
      const [edge] = await cluster.local(1, deaf === 'edge' ? through : {})
      const players = [at_owner, await cluster.player(login, room_id, edge)]
      const stops = players.map((player) => player.play(15))
      await playOn(players)
      proxy.mute('subscribe')
      await playOn([at_owner], 3)
      if (time === 'a moment') proxy.unmute()
      await playOn(players)
      await Promise.all(stops.map((stop) => stop()))
      await expectIntact(cluster, room_id, players)
      await cluster.reset()
    } finally {
      await proxy.close()
    }
  })
})
