import { beforeAll, describe, expect, it, onTestFinished } from 'vitest'
import { leaseKey } from '../../shared/node-registry.ts'
import { expectIntact } from '../players/ledger.ts'
import { type Login, type NodeProcess, sharedCluster, TestCluster } from '../support/cluster.ts'
import { asAdmin, until } from '../support/redis-server.ts'

describe('guarantee 2: a room continues long before the lease of its dead owner expires', () => {
  const cluster = sharedCluster({ leaseMs: 20_000 })

  it('with all members, states and events', async ({ annotate }) => {
    const nodes = await cluster.processes(4)
    const login = await cluster.login()
    const roomId = 'ledger-journal:outlives'
    const elsewhere = await cluster.playersAt(login, roomId, nodes)
    const [owner, ...others] = await cluster.ownerFirst(login, roomId, nodes)
    // The owner is also an edge. Its members connect to another node, and keep their seats.
    const atOwner = [
      ...elsewhere.splice(nodes.indexOf(owner!), 1),
      await cluster.player(login, roomId, owner),
    ]
    const away = await cluster.player(login, roomId, others[0])
    const everyone = [...atOwner, ...elsewhere, away]
    // Only this player sends messages to its room.
    const alone = await cluster.player(login, 'ledger-journal:alone', owner)
    await alone.add()
    const ids = everyone.map(({ id }) => id)
    const before = await cluster.owner(login, roomId)
    const playing = [...atOwner, ...elsewhere]
    const stops = playing.map((player) => player.play(20))
    await until('all play', async () => elsewhere.every(({ acked }) => acked > 10))

    // This player is disconnected when the owner dies, and resumes at the new owner.
    away.cut()
    owner!.kill()
    for (const player of everyone) player.resetWait()
    const enough = elsewhere.map(({ acked }) => acked + 30)
    await until('all continue', async () => elsewhere.every(({ acked }, i) => acked > enough[i]!))
    const [lease] = await cluster.store.records.read([leaseKey(owner!.nodeId)])
    expect(lease).toBeDefined()
    await Promise.all(stops.map((stop) => stop()))
    await away.add()

    await expectIntact(cluster, roomId, everyone)
    await alone.add()
    await expectIntact(cluster, alone.room.id, [alone])
    expect(everyone.map(({ id }) => id)).toEqual(ids)
    for (const { room } of everyone) expect(room.members.map(({ id }) => id).sort()).toEqual([...ids].sort())
    const after = await cluster.owner(login, roomId)
    expect(after.nodeId).not.toBe(owner!.nodeId)
    expect(after.epoch).toBeGreaterThan(before.epoch)
    const pauses = playing.map(({ longestWaitMs }) => Math.round(longestWaitMs))
    await annotate(`pauses of members at the owner and elsewhere, in ms: ${pauses.join(', ')}`)
  })
})

describe('guarantee 2: rooms survive their node', () => {
  const cluster = sharedCluster({ leaseMs: 2000 })
  let nodes: NodeProcess[]
  let login: Login
  beforeAll(async () => {
    nodes = await cluster.processes(4)
    login = await cluster.login()
  })

  it('members of a dead edge are not shown as disconnected, and keep the data of their tokens', async () => {
    const roomId = 'ledger-journal:present'
    const known = await cluster.login({ data: { level: 3 } })
    const [home, elsewhere] = await cluster.processes(2)
    const players = await cluster.playersAt(known, roomId, [home!, home!, elsewhere!])
    const witness = players[2]!
    const seen: string[] = []
    witness.room.onMembersChange((members) =>
      seen.push(members.map(({ connected }) => (connected ? 'here' : 'away')).join(' ')),
    )
    home!.kill()
    await Promise.all(players.map((player) => player.add()))
    for (const { room } of players) expect(await room.request('whoami')).toEqual({ level: 3 })
    expect(seen).toEqual([])
    players[0]!.cut()
    await players[0]!.add()
    await until('it was disconnected, and has resumed', async () => seen.at(-1) === 'here here here')
    expect(seen).toEqual(['away here here', 'here here here'])
    elsewhere!.kill()
  })

  it('a room without members opens on another node when its timer is due, fires the timer once, and keeps its reservations', async () => {
    const roomId = 'ledger-journal:timed'
    const [home, elsewhere] = await cluster.processes(2)
    const setter = await cluster.player(login, roomId, home)
    for (const [i, name] of ['first', 'second'].entries())
      await setter.room.send('ringAfter', { ms: 3000 + 500 * i, name })
    for (const [sub, seconds] of [['ada', 600] as const, ['bob', 3] as const])
      expect(await setter.room.request('reserve', { sub, seconds })).toBe(true)
    const [owner] = await cluster.ownerFirst(login, roomId, [
      ...nodes.filter(({ open }) => open),
      home!,
      elsewhere!,
    ])
    await setter.room.leave()
    owner!.kill()
    await cluster.ownedBy(login, roomId, (nodeId) => nodeId !== owner!.nodeId)

    const late = await cluster.player(login, roomId, owner === elsewhere ? home : elsewhere)
    await until('both have fired', async () => late.room.state.rung.length >= 2)
    await until("the next owner has ended bob's reservation, and has ada's", async () => {
      const room = await cluster.room(roomId)
      return room?.reservations.map(({ sub }) => sub).join() === 'ada'
    })
    await late.room.send('ringAfter', { ms: 0, name: 'last' })
    await until('the last has fired', async () => late.room.state.rung.includes('last'))
    expect(late.room.state.rung).toEqual(['first', 'second', 'last'])
    for (const node of [home!, elsewhere!]) node.kill()
  })

  it('a snapshot room continues with the state of its last snapshot', async () => {
    const roomId = 'ledger-snapshot:outlives'
    const living = nodes.filter(({ open }) => open)
    const members = await cluster.playersAt(login, roomId, living)
    const ids = members.map(({ id }) => id)
    const [owner] = await cluster.ownerFirst(login, roomId, living)
    // Acknowledged messages before each version of the record. The snapshot after it contains them.
    const acked = new Map<number, number[]>()
    const stops = members.map((player) => player.play(20))
    await until('all have played, and three snapshots are stored', async () => {
      const counts = members.map((player) => player.acked)
      const { version } = (await cluster.inspect(login, roomId))!
      if (!acked.has(version)) acked.set(version, counts)
      return acked.size > 3 && members.every((player) => player.acked > 100)
    })
    owner!.kill()
    await cluster.ownedBy(login, roomId, (nodeId) => nodeId !== owner!.nodeId)
    const then = members.map((player) => player.acked)
    await until('all continue', async () => members.every((player, i) => player.acked > then[i]! + 20))
    await Promise.all(stops.map((stop) => stop()))

    const beforeLastSnapshot = [...acked.values()].at(-2)!
    for (const [i, player] of members.entries()) {
      expect(player.errors).toEqual([])
      expect(player.id).toBe(ids[i])
      const { count, last } = player.account!
      // Only messages that were acknowledged after the last snapshot may be lost. No message is applied twice.
      expect(count).toBeLessThanOrEqual(player.sent)
      expect(last).toBe(player.sent)
      expect(player.sent - count).toBeLessThanOrEqual(then[i]! - beforeLastSnapshot[i]!)
    }
  })

  it('a room with durability none ends, and its members join a new room as new members', async () => {
    const roomId = 'ledger-none:outlives'
    const living = nodes.filter(({ open }) => open)
    const members = await cluster.playersAt(login, roomId, living)
    await Promise.all(members.map((player) => player.add()))
    const [owner, other] = await cluster.ownerFirst(login, roomId, living)
    const ids = members.map(({ room }) => room.memberId)
    owner!.kill()
    await until('all are members again', async () =>
      members.every(({ room }, i) => room.status === 'joined' && room.memberId !== ids[i]),
    )
    for (const { errors } of members) expect(errors).toEqual([])
    const again = await cluster.player(login, roomId, other)
    await again.add()
    expect(again.room.state.total).toBe(1)
  })
})

describe('guarantee 2: a live node that another node counts as dead', () => {
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
