import { describe, expect, it, onTestFinished } from 'vitest'
import { leaseKey } from '../shared/node-registry.ts'
import { sharedCluster, TestCluster } from './support/cluster.ts'
import { expectIntact } from './support/cluster-player.ts'
import { asAdmin, until } from './support/redis-server.ts'

describe('a live node that another node counts as dead', () => {
  const cluster = sharedCluster()

  it('keeps its clients in their rooms, and they miss no update', async () => {
    const roomId = 'ledger-journal:far'
    const nodes = await cluster.local(2)
    const login = await cluster.login()
    const [host] = await cluster.playersAt(login, roomId, nodes.slice(0, 1))
    const [owner, other] = await cluster.ownerFirst(login, roomId, nodes)
    const guest = await cluster.player(login, roomId, other)
    const seatOfGuest = async () =>
      (await cluster.room(roomId))?.members.find(({ member_id: memberId }) => memberId === guest.id)

    // As if the guest's node had been suspended for longer than its lease.
    await until('the owner counts the node as dead', async () => {
      await cluster.store.records.write([{ remove: leaseKey(other!.nodeId) }])
      return (await seatOfGuest())?.connected === false
    })
    await until('the guest is in the room again', async () => (await seatOfGuest())?.connected === true)
    expect((await seatOfGuest())?.node_id).toBe(other!.nodeId)
    await host!.add()
    await guest.add()
    await until('the guest has both entries', async () => guest.room.state.total === 2)
    expect(guest.client.stats.reconnects).toBe(0)
    expect(owner!.nodeId).not.toBe(other!.nodeId)
    await expectIntact(cluster, roomId, [host!, guest])
  })

  /** No node can take over a room with durability none: its state would be lost. */
  it('keeps its rooms with durability none while its lease is valid', async () => {
    const own = await TestCluster.start({ redis: 'memory', leaseMs: 4000 })
    onTestFinished(() => own.close())
    const roomId = 'ledger-none:near'
    const nodes = await own.local(2)
    const login = await own.login()
    const players = await own.playersAt(login, roomId, nodes)
    await players[0]!.add()
    const [owner, other] = await own.ownerFirst(login, roomId, nodes)
    // Cuts the subscriptions of all nodes, so that nothing reaches the owner for a moment.
    await asAdmin(own.redisUrl, async (redis) => {
      await until('the owner counts as gone', async () => {
        await redis.call('CLIENT', 'KILL', 'TYPE', 'pubsub')
        return (await own.metric(other!, 'service_nodes_gone_total')) > 0
      })
    })
    await players[1]!.add()
    expect(players[0]!.room.status).toBe('joined')
    expect((await own.owner(login, roomId)).nodeId).toBe(owner!.nodeId)
    await expectIntact(own, roomId, players)
  })
})
