import { asAdmin, freePort, type RedisServer, startRedisWith, until } from './redis-server.ts'

const SLOTS = 16384
/** Time without an answer after which a node counts as failing, milliseconds. */
const NODE_TIMEOUT_MS = 500

/** A real Redis Cluster of one test. It stores only its topology on disk. */
export interface RedisCluster {
  /** `redis+cluster://…` with every node. */
  readonly url: string
  /** Masters first, then their replicas in the same order. */
  readonly nodes: readonly RedisServer[]
  /** Returns the master of `slot`, from the first live node. */
  masterOf(slot: number): Promise<RedisServer>
  /** Kills the master of `slot`. Resolves with the dead master. A replica takes over if there is one. */
  kill(slot: number): Promise<RedisServer>
  /** Moves `slot`, which must have no keys, to the master of `slotThere`. */
  move(slot: number, slotThere: number): Promise<void>
  close(): Promise<void>
}

/** Starts `masters` masters with equal shares of the slots, and `replicas` replicas of each. */
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

/** Divides the slots among the masters, and waits until all nodes know each other. */
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

/** Makes each node after the masters a replica of one master. */
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

/** The master's name for the Sentinels. */
const NAME = 'games'
/** Time without an answer after which the master counts as dead, milliseconds. */
const DOWN_AFTER_MS = 400

/** A real master of one test, with replicas and Sentinels. They store no data on disk. */
export interface RedisSentinel {
  /** `redis+sentinel://…/games` with every Sentinel. */
  readonly url: string
  readonly sentinels: readonly RedisServer[]
  /** Master and replicas. The first server is the first master. */
  readonly servers: readonly RedisServer[]
  /** Returns the current master, from the first Sentinel. */
  master(): Promise<RedisServer>
  /** Promotes a replica while the master is alive. Resolves when the Sentinels return the new master. */
  failover(): Promise<void>
  /** Kills the master. Resolves with the dead master. The Sentinels promote a replica within about 2 s. */
  killMaster(): Promise<RedisServer>
  close(): Promise<void>
}

/** Starts a master, `replicas` replicas and three Sentinels. `settings`: of the servers. */
export async function startRedisSentinel({
  replicas = 1,
  settings = {},
}: {
  replicas?: number
  settings?: Readonly<Record<string, string>>
} = {}): Promise<RedisSentinel> {
  const servers: RedisServer[] = []
  const sentinels: RedisServer[] = []
  try {
    const quick = { 'repl-diskless-sync-delay': '0', ...settings }
    const master = await startRedisWith({ settings: quick })
    servers.push(master)
    const { port } = new URL(master.url)
    for (let n = 0; n < replicas; n++) {
      const replica = await startRedisWith({ settings: { ...quick, replicaof: `127.0.0.1 ${port}` } })
      servers.push(replica)
      await until('the replica follows', () => follows(replica))
    }
    sentinels.push(...(await Promise.all([1, 2, 3].map(() => startSentinel(port)))))
    await Promise.all(sentinels.map((sentinel) => hurry(sentinel, replicas)))
    return new SentinelSet(servers, sentinels)
  } catch (error) {
    await Promise.all([...sentinels, ...servers].map((server) => server.close()))
    throw error
  }
}

const follows = (replica: RedisServer): Promise<boolean> =>
  asAdmin(replica.url, async (redis) => (await redis.info('replication')).includes('master_link_status:up'))

const startSentinel = (port: string): Promise<RedisServer> =>
  startRedisWith({
    sentinel: [
      `sentinel monitor ${NAME} 127.0.0.1 ${port} 2`,
      `sentinel down-after-milliseconds ${NAME} ${DOWN_AFTER_MS}`,
      `sentinel failover-timeout ${NAME} 1200`,
    ],
  })

/** Shortens the intervals of a Sentinel from seconds to 200 ms, and waits until it knows the other Sentinels and the replicas. */
async function hurry(sentinel: RedisServer, replicas: number): Promise<void> {
  await asAdmin(sentinel.url, async (redis) => {
    const periods = { 'info-period': 200, 'publish-period': 200, 'ask-period': 100, 'ping-period': 100 }
    await redis.call('SENTINEL', 'DEBUG', ...Object.entries(periods).flat())
    await until('the Sentinels know each other', async () => {
      const state = (await redis.call('SENTINEL', 'MASTER', NAME)) as string[] | Record<string, string>
      const fields = Array.isArray(state)
        ? Object.fromEntries(state.flatMap((key, n) => (n % 2 === 0 ? [[key, state[n + 1]]] : [])))
        : state
      return fields['num-other-sentinels'] === '2' && fields['num-slaves'] === String(replicas)
    })
  })
}

class SentinelSet implements RedisSentinel {
  readonly url: string
  readonly servers: readonly RedisServer[]
  readonly sentinels: readonly RedisServer[]

  constructor(servers: readonly RedisServer[], sentinels: readonly RedisServer[]) {
    this.servers = servers
    this.sentinels = sentinels
    this.url = `redis+sentinel://${sentinels.map(({ url }) => new URL(url).host).join(',')}/${NAME}`
  }

  async master(): Promise<RedisServer> {
    const [, port] = (await this.#ask('GET-MASTER-ADDR-BY-NAME')) as [string, string]
    const server = this.servers.find(({ url }) => new URL(url).port === port)
    if (!server) throw new Error(`the Sentinels name a master at port ${port}, which is none of the servers`)
    return server
  }

  async failover(): Promise<void> {
    const before = await this.master()
    await this.#ask('FAILOVER')
    await until('the Sentinels promote another master', async () => (await this.master()) !== before)
  }

  async killMaster(): Promise<RedisServer> {
    const master = await this.master()
    await master.stop()
    return master
  }

  async close(): Promise<void> {
    await Promise.all([...this.sentinels, ...this.servers].map((server) => server.close()))
  }

  #ask(command: string): Promise<unknown> {
    return asAdmin(this.sentinels[0]!.url, (redis) => redis.call('SENTINEL', command, NAME))
  }
}
