import { once } from 'node:events'
import { describe, expect, it } from 'vitest'
import { WebSocket } from 'ws'
import { type NodeProcess, sharedCluster } from '../support/cluster.ts'
import { expectIntact, type Player } from '../support/cluster-player.ts'
import { until } from '../support/redis-server.ts'

/** Long, so that a pause shows a player that waits until a lease expires. */
const LEASE_MS = 10_000
/** Shorter than a lease, and longer than a busy machine needs. */
const PAUSE_MS = 8000
const DURABILITIES = ['journal', 'snapshot', 'none']

describe('guarantee 7: deploys end no session', () => {
  const cluster = sharedCluster({ leaseMs: LEASE_MS, perTest: true })

  it('no player loses a message or its session when all nodes are replaced one after the other under load', async ({
    annotate,
  }) => {
    const nodes = await cluster.processes(3)
    const login = await cluster.login()
    const rooms = DURABILITIES.map((durability) => `ledger-${durability}:deployed`)
    const players: Player[][] = []
    for (const [i, roomId] of rooms.entries())
      players.push(await cluster.playersAt(login, roomId, [...nodes.slice(i), ...nodes.slice(0, i)]))
    const everyone = players.flat()
    const ids = everyone.map(({ id }) => id)
    const changes: unknown[] = []
    for (const { client } of everyone)
      client.onConnectionChange((status, error) => changes.push([status, error]))
    const stops = everyone.map((player) => player.play(50))
    await until('all play', async () => everyone.every(({ acked }) => acked > 5))
    const pauses: number[] = []

    // The last node drains after a request over HTTP, like from a hook of an orchestrator.
    for (const node of nodes) {
      const [next] = await cluster.processes(1)
      const acked = everyone.map((player) => player.acked)
      for (const player of everyone) player.resetWait()
      expect(await (node === nodes.at(-1) ? drainOverHttp(node) : node.drain())).toBe(0)
      await until('all continue', async () => everyone.every((player, i) => player.acked > acked[i]! + 10))
      pauses.push(...everyone.map(({ longestWaitMs }) => Math.round(longestWaitMs)))
      expect(next!.open).toBe(true)
    }
    await Promise.all(stops.map((stop) => stop()))

    for (const [i, roomId] of rooms.entries()) await expectIntact(cluster, roomId, players[i]!)
    expect(everyone.map(({ id }) => id)).toEqual(ids)
    expect(changes).toEqual([])
    pauses.sort((a, b) => a - b)
    await annotate(`pauses of players at a drain, in ms: ${pauses.join(', ')}`)
    expect(pauses.at(-1)).toBeLessThan(PAUSE_MS)
  })

  async function drainOverHttp(node: NodeProcess): Promise<number | null> {
    expect(await cluster.drainOverHttp(node)).toBe(202)
    return node.ended
  }

  it('a draining node takes no new clients, and a second SIGTERM ends it without a wait', async () => {
    const [node] = await cluster.processes(1, { env: { DRAIN_SECONDS: '60' } })
    const login = await cluster.login()
    // This client ignores `move`, so the drain waits for it.
    const deaf = new WebSocket(node!.wsUrl, ['roomful.v1.json'])
    const received: string[] = []
    deaf.on('message', (data) => received.push((JSON.parse(String(data)) as { t: string }).t))
    deaf.once('open', () =>
      deaf.send(JSON.stringify({ t: 'hello', project_id: login.projectId, token: login.token })),
    )
    await until('welcome has arrived', async () => received.includes('welcome'))

    const ended = node!.drain()
    await until('move has arrived', async () => received.includes('move'))
    expect((await fetch(`${node!.adminUrl}/readyz`)).status).toBe(503)
    const late = new WebSocket(node!.wsUrl, ['roomful.v1.json'])
    const [, { statusCode }] = await once(late, 'unexpected-response')
    expect(statusCode).toBe(503)
    const began = performance.now()
    void node!.drain()
    expect(await ended).toBe(1)
    expect(performance.now() - began).toBeLessThan(PAUSE_MS)
  })
})
