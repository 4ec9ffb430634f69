import { afterAll, beforeAll, describe, expect, it, type TestContext } from 'vitest'
import { expectIntact, type Player } from '../players/ledger.ts'
import { type ClusterOptions, type LocalNode, type Login, TestCluster } from '../support/cluster.ts'
import { asAdmin, until } from '../support/redis-server.ts'

const ROOMS = ['one', 'two', 'three'].map((key) => `ledger-journal:${key}`)
const OUTAGE_MS = 5000
/** Long beside the pauses of a busy machine: a node that is late by more than a lease loses its rooms, as it must. */
const LEASE_MS = 6000
/** Longer than the interval in which nodes read the leases of the others, and much shorter than a lease. */
const LATE_MS = LEASE_MS / 3

/** Starts three nodes that own a room each, with a member of each room at each node. */
async function playing(options: ClusterOptions) {
  const cluster = await TestCluster.start({ leaseMs: LEASE_MS, ...options, control: 'apart' })
  const nodes = await cluster.local(3)
  const login = await cluster.login()
  const players: Player[][] = []
  for (const [i, roomId] of ROOMS.entries()) {
    const homeFirst = [...nodes.slice(i), ...nodes.slice(0, i)]
    players.push(await cluster.playersAt(login, roomId, homeFirst))
  }
  return { cluster, nodes, login, players, everyone: players.flat() }
}

describe('guarantee 6: a store outage freezes, never splits', () => {
  const status = async ({ adminUrl }: LocalNode, path: string) => (await fetch(`${adminUrl}${path}`)).status

  /** Returns whether no node is ready. Expects that all nodes are healthy. */
  const allFrozen = async (nodes: readonly LocalNode[]): Promise<boolean> => {
    for (const node of nodes) expect(await status(node, '/healthz')).toBe(200)
    const ready = await Promise.all(nodes.map((node) => status(node, '/readyz')))
    return ready.every((code) => code === 503)
  }

  const owners = (cluster: TestCluster, login: Login) =>
    Promise.all(ROOMS.map((roomId) => cluster.owner(login, roomId)))

  /** Returns the number of sessions in Redis. */
  const sessions = ({ redisUrl }: TestCluster): Promise<number> =>
    asAdmin(redisUrl, async (redis) => (await redis.keys('*session:*')).length)

  /** Plays through an outage, and expects that no session and no message is lost. Returns the owners before and after. */
  async function through(
    { cluster, nodes, login, players, everyone }: Awaited<ReturnType<typeof playing>>,
    away: () => Promise<void>,
    back: () => Promise<void>,
    { annotate }: Pick<TestContext, 'annotate'>,
    atLeastMs = 0,
  ) {
    const stops = everyone.map((player) => player.play(50))
    await until('all play', async () => everyone.every(({ acked }) => acked > 5))
    const before = await owners(cluster, login)
    const reconnects = everyone.map(({ client }) => client.stats.reconnects)

    const began = performance.now()
    await away()
    await until('all nodes are frozen', () => allFrozen(nodes))
    const acked = everyone.map((player) => player.acked)
    const seen = everyone.map(({ position }) => position.seq)
    await until('the outage has lasted long enough', async () => performance.now() - began >= atLeastMs)
    expect(everyone.map((player) => player.acked)).toEqual(acked)
    expect(everyone.map(({ position }) => position.seq)).toEqual(seen)
    await back()
    const returned = performance.now()
    await until('all continue', async () => everyone.every((player, i) => player.acked > acked[i]! + 5))
    await annotate(`thawed after ${Math.round(performance.now() - returned)} ms`)
    for (const node of nodes)
      await until('the node is ready', async () => (await status(node, '/readyz')) === 200)
    expect(everyone.map(({ client }) => client.stats.reconnects)).toEqual(reconnects)
    const after = await owners(cluster, login)

    // The sessions are stored again, so a disconnected client can resume at another node.
    await until('all sessions are stored', async () => (await sessions(cluster)) === everyone.length)
    for (const player of everyone) player.cut()
    await until('all have resumed', async () =>
      everyone.every(({ client }, i) => client.stats.reconnects > reconnects[i]!),
    )
    await Promise.all(stops.map((stop) => stop()))
    for (const [i, roomId] of ROOMS.entries()) await expectIntact(cluster, roomId, players[i]!)
    return { before, after }
  }

  describe('with a Redis that keeps its data', () => {
    let here: Awaited<ReturnType<typeof playing>>
    beforeAll(async () => {
      here = await playing({ redis: 'disk' })
    })
    afterAll(() => here.cluster.close())

    it('rooms freeze while Redis hangs for five seconds, and continue at their owners', async (context) => {
      const { redis } = here.cluster
      const { before, after } = await through(
        here,
        () => redis.pause(),
        () => redis.resume(),
        context,
        OUTAGE_MS,
      )
      expect(after).toEqual(before)
    })

    /** The first nodes that reach Redis again find no lease of the late node, and must not take over its rooms. */
    it('rooms freeze while Redis is down, and continue at their owners when one node reaches Redis later', async (context) => {
      const { cluster, nodes, login, players } = here
      const [late] = await cluster.ownerFirst(login, ROOMS[0]!, nodes)
      const owned = await owners(cluster, login)
      const elsewhere = players.flatMap((members, i) =>
        members.filter((player) => owned[i]!.nodeId !== late!.nodeId && player.door !== late!.wsUrl),
      )
      const { before, after } = await through(
        here,
        () => cluster.redis.stop(),
        async () => {
          late!.link.hold(true)
          await cluster.redis.start()
          const acked = elsewhere.map((player) => player.acked)
          const returned = performance.now()
          await until('the others have continued for a while', async () => {
            const continued = elsewhere.every((player, i) => player.acked > acked[i]!)
            return continued && performance.now() - returned >= LATE_MS
          })
          late!.link.hold(false)
        },
        context,
        1.2 * LEASE_MS,
      )
      expect(after).toEqual(before)
    })
  })

  /** The owners write the lost records again before another node may claim the rooms. */
  it('rooms continue at their owners when Redis restarts without data', async (context) => {
    const here = await playing({ redis: 'memory', leaseMs: 2000 })
    try {
      const { redis } = here.cluster
      const { before, after } = await through(
        here,
        () => redis.stop(),
        () => redis.start(),
        context,
      )
      expect(after.map(({ nodeId }) => nodeId)).toEqual(before.map(({ nodeId }) => nodeId))
      for (const [i, { epoch }] of after.entries()) expect(epoch).toBeGreaterThan(before[i]!.epoch)
    } finally {
      await here.cluster.close()
    }
  })

  /** No message writes the record of this room, and no lease expires. Only the lost connection shows that the record may be lost. */
  it('an idle room is stored again when Redis restarts without data within a lease', async () => {
    const roomId = 'ledger-journal:quiet'
    const cluster = await TestCluster.start({ redis: 'memory', control: 'apart', leaseMs: 4000 })
    try {
      const nodes = await cluster.local(2)
      const login = await cluster.login()
      const [first] = await cluster.playersAt(login, roomId, nodes)
      await first!.add()
      const before = await cluster.owner(login, roomId)
      await cluster.redis.stop()
      await cluster.redis.start()
      await until('the room is stored again', async () => {
        const found = await cluster.inspect(login, roomId)
        return found?.owner === before.nodeId && found.version > 0
      })
      const late = await cluster.player(login, roomId, nodes[1]!)
      expect(late.room.state.total).toBe(1)
      expect((await cluster.owner(login, roomId)).nodeId).toBe(before.nodeId)
    } finally {
      await cluster.close()
    }
  })
})
