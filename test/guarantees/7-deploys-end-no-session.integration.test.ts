import { once } from 'node:events'
import { describe, expect, it, vi } from 'vitest'
import { WebSocket } from 'ws'
import type { RoomDefinition } from '../../dataplane/room/definition.ts'
import { expectIntact, type Player } from '../players/ledger.ts'
import { type NodeProcess, sharedCluster } from '../support/cluster.ts'
import { type Ledger, ledgerRoom } from '../support/cluster-room.ts'
import { until } from '../support/redis-server.ts'

/** Long, so that a pause shows a player that waits until a lease expires. */
const LEASE_MS = 10_000
/** Shorter than a lease, and longer than a busy machine needs. */
const PAUSE_MS = 8000
const DURABILITIES = ['journal', 'snapshot', 'none']
const FIRST = ledgerRoom('journal')
/** The same room type with an additional field in its state. */
const SECOND: RoomDefinition = Object.freeze({
  ...FIRST,
  version: 2,
  migrate: { 1: (state: unknown) => ({ ...(state as Ledger), migrated: true }) },
})
const UPGRADED = ['a', 'b', 'c', 'd', 'e', 'f'].map((key) => `ledger-journal:${key}`)

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
    void node!.drain()
    expect(await ended).toBe(1)
  })
})

describe('guarantee 7: a rolling upgrade to a newer version of a state', () => {
  // Nodes read the leases of others four times per lease. An old node must know a new node before it drains, to move its rooms there.
  const cluster = sharedCluster({ leaseMs: 1000 })

  it('loses no message, and no old node claims a room that was migrated', async () => {
    const old = await cluster.local(3, { rooms: [FIRST] })
    const upgraded = () => cluster.local(1, { rooms: [SECOND] })
    const login = await cluster.login()
    const players = await Promise.all(
      UPGRADED.map((room, index) => cluster.player(login, room, old[index % old.length])),
    )
    const stops = players.map((player) => player.play(20))

    const owners = () => Promise.all(UPGRADED.map((room) => cluster.inspect(login, room)))
    /** Migrated rooms that an old node has claimed. It must stay empty. */
    const wrong: string[] = []
    for (const { store } of old) {
      const { rooms } = store
      const claim = rooms.claim.bind(rooms)
      vi.spyOn(rooms, 'claim').mockImplementation(async (room, ...rest) => {
        const claimed = await claim(room, ...rest)
        if (claimed && (await cluster.store.rooms.inspect(room))?.stateVersion === 2) wrong.push(room)
        return claimed
      })
    }

    const [first] = await upgraded()
    await old[0]!.drain()
    const [second] = await upgraded()
    await old[1]!.drain()
    // The upgrade is interrupted: while only an old node runs, no node runs the migrated rooms.
    await Promise.all([first!.drain(), second!.drain()])
    const resting = (await owners()).filter((owner) => owner?.stateVersion === 2)
    expect(resting.length).toBeGreaterThan(0)
    await upgraded()
    await old[2]!.drain()

    await Promise.all(stops.map((stop) => stop()))
    const found = await owners()
    expect(found.map((owner) => owner?.stateVersion)).toEqual(UPGRADED.map(() => 2))
    expect(wrong).toEqual([])
    for (const player of players) {
      const { sent, acked, errors, account, heard } = player
      expect(player.room.state).toMatchObject({ migrated: true, disorder: 0 })
      expect([acked, account]).toEqual([sent, { count: sent, last: sent }])
      expect(errors).toEqual([])
      expect(heard.filter(({ t }) => t === 'state.resync')).toEqual([])
    }
  })
})
