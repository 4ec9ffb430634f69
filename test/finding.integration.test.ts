import { connect } from 'roomful/client'
import { describe, expect, it } from 'vitest'
import { nodeName } from '../shared/ids.ts'
import { inTurn, Network } from './players/network.ts'
import { type ClusterNode, sharedCluster } from './support/cluster.ts'
import duel from './support/cluster-rooms/duel.ts'
import { until } from './support/redis-server.ts'

const SEATS = 4
/** 200 players fill 50 rooms. A fifth more is allowed. */
const MOST_ROOMS = 60

describe('joinOrCreate of 200 clients at one moment at three nodes', () => {
  const cluster = sharedCluster({ perTest: true })

  /** Connects clients, each of another player, to the nodes in turn. After a loss, a client tries the next open node. */
  async function clients(projectId: string, nodes: readonly ClusterNode[], count: number) {
    const one = async (i: number) => {
      const sub = `player-${i}`
      const { token = '' } = await cluster.call('POST', '/tokens', { project_id: projectId, sub })
      const { WebSocket } = new Network({ to: inTurn(cluster.doorsFrom(nodes[i % nodes.length])) })
      return connect<{ duel: typeof duel }>('ws://nowhere.invalid', { projectId, token, WebSocket })
    }
    const all: Awaited<ReturnType<typeof one>>[] = []
    // Ten at a time: a handshake has a limit of 10 s, also on a busy machine.
    while (all.length < count)
      all.push(...(await Promise.all(Array.from({ length: 10 }, (_, i) => one(all.length + i)))))
    return all
  }

  type Connected = Awaited<ReturnType<typeof clients>>
  const joinOrCreate = (players: Connected) =>
    players.map((client) => client.joinOrCreate('duel', { map: 'desert' }, { where: { map: 'desert' } }))

  it('fills at most 60 rooms of 4, and no owner refuses a client', async () => {
    const nodes = await cluster.local(3, { rooms: [duel] })
    const { projectId } = await cluster.login()
    const players = await clients(projectId, nodes, 200)
    const rooms = await Promise.all(joinOrCreate(players))
    expect(new Set(rooms.map(({ id }) => id)).size).toBeLessThanOrEqual(MOST_ROOMS)
    for (const node of nodes)
      expect(await cluster.metric(node, 'service_joins_total{result="room_full"}')).toBe(0)
    for (const client of players) client.close()
  })

  it('fills at most 60 rooms of 4 when the placer is killed, and each client has a seat', async () => {
    const nodes = await cluster.processes(3)
    const { projectId } = await cluster.login()
    const players = await clients(projectId, nodes, 200)
    const early = joinOrCreate(players.slice(0, 100))
    await Promise.race(early)
    const [lease] = await cluster.store.records.read([`{list:${projectId}/duel}:placer`])
    const placer = nodeName(new TextDecoder().decode(lease!.value))
    nodes.find(({ nodeId }) => nodeId === placer)!.kill()
    const rooms = await Promise.all([...early, ...joinOrCreate(players.slice(100))])
    expect(new Set(rooms.map(({ id }) => id)).size).toBeLessThanOrEqual(MOST_ROOMS)
    await until('every client has joined', async () => rooms.every(({ status }) => status === 'joined'))
    for (const { members } of rooms) expect(members.length).toBeLessThanOrEqual(SEATS)
    for (const client of players) client.close()
  })
})
