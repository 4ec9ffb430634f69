import { describe, expect, it } from 'vitest'
import { SeededRandom } from '../kit/seeded-random.ts'
import { expectGapFree, expectIntact } from '../players/ledger.ts'
import { sharedCluster, type TestCluster } from '../support/cluster.ts'
import { until } from '../support/redis-server.ts'

const NODES = 5

describe('guarantee 3: acked means committed', () => {
  const cluster = sharedCluster({ leaseMs: 500, perTest: true })

  it('a room keeps all acknowledged messages and delivered updates when its owner is killed repeatedly under load', async () => {
    const random = new SeededRandom(3)
    const nodes = await cluster.processes(NODES)
    const login = await cluster.login()
    const roomId = 'ledger-journal:acked'
    const players = await cluster.playersAt(login, roomId, nodes.slice(0, 3))
    const stops = players.map((player) => player.play(10))
    for (let living = NODES; living > 1; living--) {
      const enough = Math.floor(random.float() * 40)
      const soFar = players.map(({ acked }) => acked)
      await until('all play', async () => players.every(({ acked }, i) => acked > soFar[i]! + enough))
      const [owner] = await cluster.ownerFirst(login, roomId, nodes)
      owner!.kill()
      const promised = players.map(({ acked }) => acked)
      const seen = Math.max(...players.map(({ position }) => position.seq))
      await cluster.ownedBy(login, roomId, (nodeId) => nodeId !== owner!.nodeId)
      const kept = await restored(roomId)
      players.forEach(({ id }, i) => {
        expect(kept.accounts[id]!.count).toBeGreaterThanOrEqual(promised[i]!)
      })
      expect(kept.seq).toBeGreaterThanOrEqual(seen)
    }
    await Promise.all(stops.map((stop) => stop()))
    await expectIntact(cluster, roomId, players)
    await cluster.reset()
    expectGapFree(await cluster.stored(login, roomId))
  })

  /** Waits for a new owner. Returns the accounts and the seq that it restored. */
  async function restored(roomId: string) {
    let found: Awaited<ReturnType<TestCluster['room']>>
    await until('the new owner runs the room', async () => {
      found = await cluster.room(roomId)
      return found !== undefined
    })
    const { accounts } = found!.state as { accounts: Record<string, { count: number }> }
    return { accounts, seq: found!.seq }
  }

  it('a room sends no ack and no update while the store does not answer, and all of them when it answers', async () => {
    const [a] = await cluster.local(1)
    const login = await cluster.login()
    const roomId = 'ledger-journal:silent'
    const players = await cluster.playersAt(login, roomId, [a!, a!])
    for (const player of players) await player.add()
    const [one] = players
    await until('both are at one seq', async () => players[0]!.position.seq === players[1]!.position.seq)
    const freezes = () => cluster.metric(a!, 'service_room_freezes_total')
    const frozen = await freezes()

    a!.link.hold(true)
    const { seq } = one!.position
    const stops = players.map((player) => player.play(20))
    // The room freezes when the lease of its node expires.
    await until('the room freezes', async () => (await freezes()) > frozen)
    expect(players.map(({ acked }) => acked)).toEqual([1, 1])
    expect(players.map(({ position }) => position.seq)).toEqual([seq, seq])
    expect(players.map(({ room }) => room.state.total)).toEqual([2, 2])
    a!.link.hold(false)
    await until('all messages are acknowledged', async () => players.every(({ acked }) => acked > 20))
    await Promise.all(stops.map((stop) => stop()))
    await expectIntact(cluster, roomId, players)
  })
})
