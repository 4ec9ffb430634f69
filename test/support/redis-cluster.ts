import { asAdmin, until } from './redis-admin.ts'
import { freePort } from './redis-port.ts'
import { type RedisServer, startRedisWith } from './redis-server.ts'

const SLOTS = 16384
/** After this long without an answer a node is taken for failing, milliseconds. */
const NODE_TIMEOUT_MS = 500

/** A real Redis Cluster of this machine that belongs to one test. It keeps nothing on disk but who is who. */
export interface RedisCluster {
  /** `redis+cluster://…` with every node. */
  readonly url: string
  /** Masters first, then their replicas in the same order. */
  readonly nodes: readonly RedisServer[]
  /** The node that holds `slot` now, as the first node that answers sees it. */
  masterOf(slot: number): Promise<RedisServer>
  /** Kills the master of `slot`, as a crash would; a replica takes over if there is one. Resolves with the dead one. */
  kill(slot: number): Promise<RedisServer>
  /** Gives `slot`, which must hold no key, to the master that `slot_there` belongs to. */
  move(slot: number, slotThere: number): Promise<void>
  close(): Promise<void>
}

/** Starts `masters` masters with an equal share of the slots each, and `replicas` replicas for each. */
export async function startRedisCluster({
  masters = 3,
  replicas = 0,
}: {
  masters?: number
  replicas?: number
} = {}): Promise<RedisCluster> {
  const count = masters * (1 + replicas)
  const nodes: RedisServer[] = []
  try {
    const busPorts = await Promise.all(Array.from({ length: count }, freePort))
    nodes.push(...(await Promise.all(busPorts.map(startNode))))
    await introduce(nodes, busPorts, masters)
    if (replicas > 0) await replicate(nodes, masters)
    return new Cluster(nodes)
  } catch (error) {
    await Promise.all(nodes.map((node) => node.close()))
    throw error
  }
}

const startNode = (busPort: number): Promise<RedisServer> =>
  startRedisWith({
    settings: {
      'cluster-enabled': 'yes',
      'cluster-port': String(busPort),
      'cluster-node-timeout': String(NODE_TIMEOUT_MS),
      'cluster-replica-validity-factor': '0',
      'repl-diskless-sync-delay': '0',
    },
  })

const portOf = (node: RedisServer): string => new URL(node.url).port

/** Shares the slots among the masters, and lets every node know every other. */
async function introduce(nodes: readonly RedisServer[], busPorts: readonly number[], masters: number) {
  const first = nodes[0]!
  for (const [n, node] of nodes.entries()) {
    await asAdmin(node.url, async (redis) => {
      await redis.cluster('SET-CONFIG-EPOCH', n + 1)
      const [from, to] = [n, n + 1].map((share) => Math.floor((share * SLOTS) / masters))
      if (n < masters) await redis.call('CLUSTER', 'ADDSLOTSRANGE', from!, to! - 1)
      if (n > 0) await redis.call('CLUSTER', 'MEET', '127.0.0.1', portOf(first), busPorts[0]!)
    })
  }
  const agrees = (node: RedisServer) =>
    asAdmin(node.url, async (redis) => {
      const info = String(await redis.cluster('INFO'))
      return info.includes('cluster_state:ok') && info.includes(`cluster_known_nodes:${nodes.length}`)
    })
  await Promise.all(nodes.map((node) => until('the nodes of the Cluster agree', () => agrees(node))))
}

/** Makes the nodes behind the masters replicas of one each. */
async function replicate(nodes: readonly RedisServer[], masters: number) {
  const ids = await Promise.all(
    nodes.map((node) => asAdmin(node.url, async (redis) => String(await redis.cluster('MYID')))),
  )
  await Promise.all(
    nodes.slice(masters).map((node, n) =>
      asAdmin(node.url, async (redis) => {
        await redis.cluster('REPLICATE', ids[n % masters]!)
        await until('a replica follows', async () =>
          (await redis.info('replication')).includes('master_link_status:up'),
        )
      }),
    ),
  )
  const replicaIds = ids.slice(masters)
  const knows = (node: RedisServer) =>
    asAdmin(node.url, async (redis) => {
      const lines = String(await redis.cluster('NODES')).split('\n')
      return replicaIds.every((id) => lines.some((line) => line.startsWith(id) && line.includes('slave')))
    })
  await Promise.all(nodes.map((node) => until('the masters know their replicas', () => knows(node))))
}

class Cluster implements RedisCluster {
  readonly url: string
  readonly nodes: readonly RedisServer[]
  readonly #dead = new Set<RedisServer>()

  constructor(nodes: readonly RedisServer[]) {
    this.nodes = nodes
    this.url = `redis+cluster://${nodes.map((node) => new URL(node.url).host).join(',')}`
  }

  async masterOf(slot: number): Promise<RedisServer> {
    const witness = this.nodes.find((node) => !this.#dead.has(node))!
    const ranges = await asAdmin(witness.url, (redis) => redis.cluster('SLOTS'))
    const [, , master] = ranges.find(([first, last]) => slot >= first && slot <= last) ?? []
    const node = this.nodes.find((node) => portOf(node) === String(master?.[1]))
    if (!node) throw new Error(`no node of the Cluster holds slot ${slot}`)
    return node
  }

  async kill(slot: number): Promise<RedisServer> {
    const node = await this.masterOf(slot)
    this.#dead.add(node)
    await node.stop()
    return node
  }

  async move(slot: number, slotThere: number): Promise<void> {
    const [from, to] = [await this.masterOf(slot), await this.masterOf(slotThere)]
    const id = (node: RedisServer) => asAdmin(node.url, async (redis) => String(await redis.cluster('MYID')))
    const [fromId, toId] = [await id(from), await id(to)]
    const set = (node: RedisServer, ...how: string[]) =>
      asAdmin(node.url, (redis) => redis.call('CLUSTER', 'SETSLOT', slot, ...how))
    await set(to, 'IMPORTING', fromId)
    await set(from, 'MIGRATING', toId)
    await set(to, 'NODE', toId)
    await set(from, 'NODE', toId)
  }

  async close(): Promise<void> {
    await Promise.all(this.nodes.map((node) => node.close()))
  }
}
