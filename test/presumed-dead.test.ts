import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { leaseKey } from '../dataplane/cluster/lease.ts'
import { TestCluster } from './support/cluster.ts'
import { expectIntact } from './support/cluster-verdict.ts'
import { until } from './support/redis-admin.ts'

describe('a node that another one takes for dead, and that lives', () => {
  let cluster: TestCluster
  beforeAll(async () => {
    cluster = await TestCluster.start()
  })
  afterAll(() => cluster.close())

  it('keeps its clients in their rooms: they miss nothing of what happens there', async () => {
    const room_id = 'ledger-journal:far'
    const nodes = await cluster.local(2)
    const login = await cluster.login()
    const [host] = await cluster.playersAt(login, room_id, nodes.slice(0, 1))
    const [owner, other] = await cluster.ownerFirst(login, room_id, nodes)
    const guest = await cluster.player(login, room_id, other)
    const seatOfGuest = async () =>
      (await cluster.room(room_id))?.members.find(({ member_id }) => member_id === guest.id)

    // What the owner would see if the guest's node stood still for longer than its lease.
    await until('the owner takes the node for dead', async () => {
      await cluster.store.records.write([{ remove: leaseKey(other!.node_id) }])
      return (await seatOfGuest())?.connected === false
    })
    await until('the guest is in the room again', async () => (await seatOfGuest())?.connected === true)
    expect((await seatOfGuest())?.node_id).toBe(other!.node_id)
    await host!.add()
    await guest.add()
    await until('the guest has heard of it', async () => guest.room.state.total === 2)
    expect(guest.client.stats.reconnects).toBe(0)
    expect(owner!.node_id).not.toBe(other!.node_id)
    await expectIntact(cluster, room_id, [host!, guest])
  })
})
