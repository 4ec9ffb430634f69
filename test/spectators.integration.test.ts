import { type Client, connect, type Room } from 'roomful/client'
import { describe, expect, it, onTestFinished } from 'vitest'
import { inTurn, Network } from './players/network.ts'
import { type ClusterNode, type Login, sharedCluster } from './support/cluster.ts'
import type quiz from './support/cluster-rooms/quiz.ts'

const PLAYERS = 10
const ROOMS = 3
const SPECTATORS = 20

type Seat = Room<typeof quiz>

describe('A game for 4 players and 20 spectators at two nodes', () => {
  const cluster = sharedCluster({ perTest: true })

  /** Connects a client of the player `sub` to a node. After a loss, the client tries the open nodes in turn. */
  async function enter({ projectId }: Login, sub: string, node: ClusterNode): Promise<Client<[typeof quiz]>> {
    const { token = '' } = await cluster.call('POST', '/tokens', { project_id: projectId, sub })
    const { WebSocket } = new Network({ to: inTurn(cluster.doorsFrom(node)) })
    const client = await connect<[typeof quiz]>('ws://nowhere.invalid', { projectId, token, WebSocket })
    onTestFinished(() => client.close())
    return client
  }

  it('seats ten players in three rooms, and gives the place of one who leaves to a spectator while the owner crashes', async () => {
    const nodes = await cluster.processes(2)
    const login = await cluster.login()
    const enterAll = (name: string, count: number) =>
      Promise.all(Array.from({ length: count }, (_, i) => enter(login, `${name}-${i}`, nodes[i % 2]!)))

    const clients = await enterAll('player', PLAYERS)
    const began = performance.now()
    const players: Seat[] = await Promise.all(clients.map((client) => client.joinOrCreate('quiz')))
    const ms = Math.round(performance.now() - began)
    const ids = [...new Set(players.map(({ id }) => id))]
    expect([players.length, ids.length], `${ms} ms`).toEqual([PLAYERS, ROOMS])

    const watching = new Map<string, Seat[]>()
    for (const id of ids) {
      const key = id.slice('quiz:'.length)
      const audience = await enterAll(`watcher-${key}`, SPECTATORS)
      // One after the other, so that the first one is known.
      const seats: Seat[] = []
      for (const client of audience) seats.push(await client.join('quiz', { key }, { watch: true }))
      watching.set(id, seats)
    }
    for (const seat of [...players, ...watching.values()].flat())
      await expect.poll(() => seat.spectators).toBe(SPECTATORS)
    const late = await enter(login, 'late', nodes[0]!)
    await expect(late.join('quiz', { key: players[0]!.key }, { watch: true })).rejects.toMatchObject({
      code: 'room_full',
    })
    await expect
      .poll(async () => (await late.rooms('quiz', { full: true })).map(({ spectators }) => spectators))
      .toEqual(ids.map(() => SPECTATORS))

    const full = players.find(({ players }) => players.length === 4)!
    const audience = watching.get(full.id)!
    const others = players.filter((player) => player.id === full.id && player !== full)
    const everyone = [...others, ...audience]
    const seatsBefore = everyone.map(({ memberId }) => memberId)
    const [owner] = await cluster.ownerFirst(login, full.id, nodes)
    const left = full.leave()
    owner!.kill()
    await left

    const inIt = [...others, audience[0]!].map(({ memberId }) => memberId).sort()
    for (const seat of everyone) {
      await expect.poll(() => seat.players.map(({ id }) => id).sort()).toEqual(inIt)
      await expect.poll(() => seat.spectators).toBe(SPECTATORS - 1)
    }
    expect(everyone.map(({ memberId }) => memberId)).toEqual(seatsBefore)
    expect(everyone.filter(({ spectator }) => !spectator)).toEqual([...others, audience[0]])
    expect(full.status).toBe('left')
    for (const seat of everyone) expect([seat.status, seat.state.left]).toEqual(['joined', 1])
  })
})
