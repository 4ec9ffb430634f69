import { describe, expect, it } from 'vitest'
import { JumpingClock } from '../chaos/node/clocks.ts'
import { expectGapFree, expectIntact } from '../players/ledger.ts'
import { sharedCluster } from '../support/cluster.ts'
import { until } from '../support/redis-server.ts'

const MINUTES_MS = 60_000

describe('guarantee 1: one owner commits', () => {
  const cluster = sharedCluster({ leaseMs: 1000, perTest: true })

  /** The owner is suspended, like a virtual machine that moves. When it continues, it still counts as the owner for itself. */
  it('a node takes over a room of a suspended owner, which then neither commits nor sends', async () => {
    const nodes = await cluster.processes(3)
    const login = await cluster.login()
    const roomId = 'ledger-journal:paused'
    const players = await cluster.playersAt(login, roomId, nodes)
    const [oldOwner] = await cluster.ownerFirst(login, roomId, nodes)
    const atOwner = players[nodes.indexOf(oldOwner!)]!
    const others = players.filter((player) => player !== atOwner)
    const stops = players.map((player) => player.play(20))
    await until('all play', async () => players.every(({ acked }) => acked > 10))

    oldOwner!.stop()
    const owner = await cluster.ownedBy(login, roomId, (nodeId) => nodeId !== oldOwner!.nodeId)
    const acked = others.map((player) => player.acked)
    await until('the others continue', async () => others.every((player, i) => player.acked > acked[i]! + 50))
    oldOwner!.cont()
    const ackedAtOwner = atOwner.acked
    await until('the member at the old owner continues', async () => atOwner.acked > ackedAtOwner + 50)
    await Promise.all(stops.map((stop) => stop()))

    await expectIntact(cluster, roomId, players)
    expect((await cluster.owner(login, roomId)).nodeId).toBe(owner)
    expect(atOwner.client.stats.reconnects).toBe(0)
    expect((await cluster.runtime(oldOwner!)).rooms).toEqual([])
    await cluster.reset()
    expectGapFree(await cluster.stored(login, roomId))
  })

  /** The network to the store stalls while the owner's commit is in flight. The commit arrives after another node has taken over. */
  it('the store fences a commit that arrives after another node has taken over', async () => {
    const nodes = await cluster.local(2)
    const login = await cluster.login()
    const roomId = 'ledger-journal:late'
    const players = await cluster.playersAt(login, roomId, nodes)
    const [a, b] = await cluster.ownerFirst(login, roomId, nodes)
    const [atOwner, other] = [players[nodes.indexOf(a!)]!, players[nodes.indexOf(b!)]!]
    for (const player of players) await player.add()
    const fenced = await cluster.metric(a!, 'service_fenced_writes_total')

    a!.link.hold(true)
    const seen = atOwner.position.seq
    const late = atOwner.add()
    await other.add()
    expect((await cluster.owner(login, roomId)).nodeId).toBe(b!.nodeId)
    expect(atOwner.position.seq, 'seq from the old owner').toBe(seen)
    a!.link.hold(false)
    await late
    for (const player of players) await player.add()

    await expectIntact(cluster, roomId, players)
    expect(await cluster.metric(a!, 'service_fenced_writes_total')).toBeGreaterThan(fenced)
    expect((await cluster.owner(login, roomId)).nodeId).toBe(b!.nodeId)
    await cluster.reset()
    expectGapFree(await cluster.stored(login, roomId))
  })

  /** In a snapshot room, an ack does not wait for a commit. Only the lease keeps the old owner from sending it. */
  it('an owner without a lease sends no ack in a snapshot room, and its members continue at the next owner', async () => {
    const nodes = await cluster.local(2)
    const login = await cluster.login()
    const roomId = 'ledger-snapshot:lapsed'
    const players = await cluster.playersAt(login, roomId, nodes)
    const [a, b] = await cluster.ownerFirst(login, roomId, nodes)
    const [atOwner, other] = [players[nodes.indexOf(a!)]!, players[nodes.indexOf(b!)]!]
    for (const player of players) await player.add()
    await cluster.saved(login, roomId)

    a!.link.hold(true)
    await cluster.ownedBy(login, roomId, (nodeId) => nodeId === b!.nodeId)
    const seen = atOwner.position.seq
    const late = atOwner.add()
    for (let i = 0; i < 20; i++) await other.add()
    expect(atOwner.acked).toBe(1)
    expect(atOwner.position.seq, 'seq from the old owner').toBe(seen)
    a!.link.hold(false)
    await late
    await expectIntact(cluster, roomId, players)
  })

  it('an owner keeps its room when the wall clocks of the nodes jump', async () => {
    const clocks = [new JumpingClock(), new JumpingClock()]
    const nodes = [
      ...(await cluster.local(1, { clock: clocks[0]! })),
      ...(await cluster.local(1, { clock: clocks[1]! })),
    ]
    const login = await cluster.login()
    const roomId = 'ledger-journal:clocks'
    const players = await cluster.playersAt(login, roomId, nodes)
    const before = await cluster.owner(login, roomId)
    const stops = players.map((player) => player.play(20))
    for (const jumpMs of [10 * MINUTES_MS, -30 * MINUTES_MS, 20 * MINUTES_MS]) {
      const acked = players.map((player) => player.acked)
      clocks[0]!.jump(jumpMs)
      clocks[1]!.jump(-jumpMs)
      await until('all continue', async () => players.every((player, i) => player.acked > acked[i]! + 25))
    }
    await Promise.all(stops.map((stop) => stop()))
    await expectIntact(cluster, roomId, players)
    expect(await cluster.owner(login, roomId)).toEqual(before)
    expect(players.map(({ client }) => client.stats.reconnects)).toEqual([0, 0])
  })
})
