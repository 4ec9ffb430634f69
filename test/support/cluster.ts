import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { pino } from 'pino'
import { afterAll, afterEach, beforeAll, inject } from 'vitest'
import { type RunningControl, startControl } from '../../control/main.ts'
import type { RoomDescription } from '../../dataplane/descriptions.ts'
import { type NodeOptions, type RunningNode, startNode } from '../../dataplane/node.ts'
import { JournalFormat } from '../../dataplane/rooms/journal.ts'
import { loadRooms } from '../../dataplane/rooms/loader.ts'
import { type RestoredRoom, restore } from '../../dataplane/rooms/restore.ts'
import { LocalCluster, type ClusterOptions as LocalClusterOptions } from '../../deploy/local/local-cluster.ts'
import { systemClock } from '../../shared/clock.ts'
import { nodeName, randomToken } from '../../shared/ids.ts'
import { systemRandom } from '../../shared/random.ts'
import { openStore } from '../../shared/store/open.ts'
import type { RoomOwner, Store } from '../../shared/store/port.ts'
import { callControl, loginAt, metricOf, runtimeOf } from './calls.ts'
import { Player, type PlayerOptions } from './cluster-player.ts'
import { ledgerRoom } from './cluster-room.ts'
import { FaultyLink } from './faulty-link.ts'
import { asAdmin, type RedisServer, startRedis, startRedisWith, until } from './redis-server.ts'
import { runEnvironment } from './run-folder.ts'

/** What a test may choose. */
export interface ClusterOptions {
  /**
   * `shared` (default): the Redis of the run, under a prefix of this cluster's own. `disk`: a Redis of its own that keeps its data across
   * `stop` and `start`. `memory`: one of its own that loses it. With `url`: one that the test has started. `none`: a store in the memory of
   * this process, for local nodes only.
   */
  readonly redis?: 'shared' | 'disk' | 'memory' | 'none' | { readonly url: string }
  /** `together` (default): control's data is in the same Redis. `apart`: it survives whatever happens to that. */
  readonly control?: 'together' | 'apart'
  /** Of every node, in milliseconds; default 1000. */
  readonly leaseMs?: number
}

/** A project with a token for its players. */
export interface Login {
  readonly projectId: string
  readonly token: string
}

const INTERNAL_TOKEN = 'internal-token-of-the-cluster-tests'
/** Ledgers of every durability, for nodes in this process. */
const ROOMS: NodeOptions['rooms'] = [ledgerRoom('journal'), ledgerRoom('snapshot'), ledgerRoom('none')]

/** A control and any number of nodes over one real Redis. */
export class TestCluster {
  readonly control: RunningControl
  /** A connection of the test's own to the cluster's Redis, past every fault. */
  readonly store: Store
  readonly #redis: RedisServer | undefined
  readonly #place: Omit<NodePlace, 'nodeId'>
  readonly #controlStore: Store
  readonly #nodes: ClusterNode[] = []
  readonly #players: Player[] = []
  #started = 0
  /** Nodes that are processes: a cluster for each call of `processes`. */
  readonly #processes: LocalCluster[] = []

  private constructor(
    redis: RedisServer | undefined,
    place: Omit<NodePlace, 'nodeId'>,
    control: RunningControl,
    stores: { readonly own: Store; readonly control: Store },
  ) {
    this.#redis = redis
    this.#place = place
    this.control = control
    this.store = stores.own
    this.#controlStore = stores.control
  }

  /** Starts Redis and control; nodes are started one by one. */
  static async start(options: ClusterOptions = {}): Promise<TestCluster> {
    const redis = await startRedisFor(options)
    const given = typeof options.redis === 'object' ? options.redis.url : undefined
    const inMemory = options.redis === 'none'
    const redisUrl = inMemory ? '' : (given ?? redis?.url ?? inject('redisUrl'))
    const keyPrefix = `test-${randomToken(systemRandom, 12)}:`
    const parts = { clock: systemClock, random: systemRandom, log: pino({ level: 'silent' }) }
    const open = () => openStore(inMemory ? parts : { redisUrl, keyPrefix, ...parts })
    const own = await open()
    const controlStore = inMemory ? own : await (options.control === 'apart' ? openStore(parts) : open())
    const control = await startControl({
      config: {
        controlPort: 0,
        internalToken: INTERNAL_TOKEN,
      },
      store: controlStore,
      ...parts,
    })
    const place = {
      redisUrl,
      keyPrefix,
      controlUrl: control.url,
      internalToken: INTERNAL_TOKEN,
      leaseMs: options.leaseMs ?? 1000,
      ...(inMemory && { store: own }),
    }
    return new TestCluster(redis, place, control, { own, control: controlStore })
  }

  /** Where the cluster's Redis is. */
  get redisUrl(): string {
    return this.#place.redisUrl
  }

  /** What opens the admin calls of every node. */
  get internalToken(): string {
    return this.#place.internalToken
  }

  /** The Redis of this cluster alone. */
  get redis(): RedisServer {
    if (!this.#redis) throw new Error("the Redis is not this cluster's own")
    return this.#redis
  }

  /** Starts nodes in this process. */
  async local(count: number, options: Partial<NodeOptions> = {}): Promise<LocalNode[]> {
    const start = () => startLocalNode(this.#nextPlace(), options.rooms ?? ROOMS, options)
    return this.#add(await Promise.all(Array.from({ length: count }, start)))
  }

  /** Starts nodes as processes. Resolves when they serve. `env` replaces variables of the cluster, but not its ports. */
  async processes(
    count: number,
    { env = {}, advertise = false }: Partial<Pick<LocalClusterOptions, 'env' | 'advertise'>> = {},
  ): Promise<NodeProcess[]> {
    const places = Array.from({ length: count }, () => this.#nextPlace())
    const started = await LocalCluster.prepare({
      nodes: count,
      controls: 0,
      balancer: 'none',
      advertise,
      controlUrl: this.control.url,
      // That of the run: those of nodes may be several servers, or out of order.
      env: {
        ...runEnvironment(),
        REDIS_URL: inject('redisUrl'),
        INTERNAL_TOKEN,
        ROOMS_DIR,
        DRAIN_SECONDS: '1',
      },
      envOf: (name) => {
        const { nodeId, redisUrl, keyPrefix, leaseMs } = places[Number(name.replace('node-', '')) - 1]!
        const place = { NODE_ID: nodeId, REDIS_URL: redisUrl, KEY_PREFIX: keyPrefix }
        return { ...place, NODE_LEASE_MS: String(leaseMs), HEARTBEAT_SECONDS: '10', ...env }
      },
    })
    this.#processes.push(started)
    await started.start()
    const nodes = started.nodes.map((node, index) => nodeProcess({ ...node, nodeId: places[index]!.nodeId }))
    return this.#add(nodes)
  }

  /** Calls the control API; throws what it answers when that is not a success. */
  call(method: 'GET' | 'POST' | 'PUT', path: string, body?: object): Promise<Record<string, string>> {
    return callControl(this.control.url, method, path, body)
  }

  /** A project of its own with a token for players. */
  login(claims: { readonly data?: object } = {}): Promise<Login> {
    return loginAt(this.control.url, { ttl_seconds: 3600, ...claims })
  }

  /** Where clients may connect at this moment, in the order in which the nodes were started. */
  readonly doors = (): string[] => this.#nodes.filter(({ open }) => open).map(({ wsUrl }) => wsUrl)

  /** One player in `type:key` at each of some nodes; the first makes the room, if there is none. */
  async playersAt(login: Login, roomId: string, nodes: readonly ClusterNode[]): Promise<Player[]> {
    const players: Player[] = []
    for (const node of nodes) players.push(await this.player(login, roomId, node))
    return players
  }

  /** A player in `type:key`, connected to `at` first, and after a loss to whichever open node comes next. */
  async player(
    { projectId, token }: Login,
    roomId: string,
    at?: ClusterNode,
    options: Pick<PlayerOptions, 'tamper' | 'connect'> = {},
  ): Promise<Player> {
    const [roomType = '', key = ''] = roomId.split(':')
    let first = at?.wsUrl
    const doors = (): readonly string[] => {
      const all = first === undefined ? this.doors() : [first]
      first = undefined
      return all
    }
    const player = await Player.join({ projectId, token, roomType, key, doors, ...options })
    this.#players.push(player)
    return player
  }

  /** What is recorded of a room's owner. */
  async inspect({ projectId }: Login, roomId: string): Promise<RoomOwner | undefined> {
    const found = await this.store.rooms.inspect(`${projectId}/${roomId}`)
    return found && { ...found, owner: found.owner && nodeName(found.owner) }
  }

  /** The id of the node that is recorded as a room's owner, and the epoch. */
  async owner(login: Login, roomId: string): Promise<{ nodeId: string; epoch: number }> {
    const found = await this.inspect(login, roomId)
    if (!found?.owner) throw new Error(`${roomId} has no owner`)
    return { nodeId: found.owner, epoch: found.epoch }
  }

  /** Some nodes, with the owner of a room before the others. */
  async ownerFirst<N extends ClusterNode>(login: Login, roomId: string, nodes: readonly N[]): Promise<N[]> {
    const { nodeId } = await this.owner(login, roomId)
    const owner = nodes.find((node) => node.nodeId === nodeId)
    if (!owner) throw new Error(`${nodeId}, which owns ${roomId}, is none of these nodes`)
    return [owner, ...nodes.filter((node) => node !== owner)]
  }

  /** Resolves when a room has an owner that `holds` says yes to. */
  async ownedBy(login: Login, roomId: string, holds: (nodeId: string) => boolean): Promise<string> {
    let nodeId = ''
    await until(`${roomId} has another owner`, async () => {
      nodeId = (await this.owner(login, roomId)).nodeId
      return holds(nodeId)
    })
    return nodeId
  }

  /** Resolves when a snapshot room has been saved as it is now. */
  async saved({ projectId }: Login, roomId: string): Promise<void> {
    const { keyPrefix } = this.#place
    const key = `${keyPrefix}{room:${projectId}/${roomId}}:snapshot`
    await asAdmin(this.redisUrl, (redis) =>
      until(`${roomId} is saved`, async () => {
        const snapshot = await redis.getBuffer(key)
        const room = await this.room(roomId)
        return snapshot !== null && new JournalFormat().readSnapshot(snapshot).seq === room?.seq
      }),
    )
  }

  /** What a node says of its rooms and sessions. */
  runtime({ adminUrl }: ClusterNode) {
    return runtimeOf(adminUrl, INTERNAL_TOKEN)
  }

  /** The room as its owner describes it; undefined: no open node runs it. */
  async room(roomId: string): Promise<RoomDescription | undefined> {
    const open = this.#nodes.filter((node) => node.open)
    const found = await Promise.all(open.map((node) => this.runtime(node)))
    return found.flatMap(({ rooms }) => rooms).find((room) => room.room_id === roomId)
  }

  /** The sum of a metric over all series of a node that have the labels of `series`, such as `name{label="x"}`; 0: none yet. */
  metric({ adminUrl }: ClusterNode, series: string): Promise<number> {
    return metricOf(adminUrl, series)
  }

  /** What `POST /admin/drain` of a node answers. */
  async drainOverHttp({ adminUrl }: ClusterNode): Promise<number> {
    const headers = { 'x-service-internal-token': INTERNAL_TOKEN }
    return (await fetch(`${adminUrl}/admin/drain`, { method: 'POST', headers })).status
  }

  /** Everything that is kept of a journal room, read as its next owner would. For rooms whose nodes have ended. */
  async kept({ projectId }: Login, roomId: string): Promise<RestoredRoom> {
    const name = `${projectId}/${roomId}`
    const { rooms } = this.store
    const epoch = (await rooms.inspect(name))?.epoch ?? 0
    const claim = await rooms.claim(name, 'node-of-the-test', epoch, 60_000)
    const found = claim && restore(claim, new JournalFormat())
    if (!found) throw new Error(`nothing is kept of ${roomId}`)
    return found
  }

  /** Ends every player and every node; the cluster can be used for the next test. */
  async reset(): Promise<void> {
    for (const player of this.#players.splice(0)) player.close()
    await Promise.all(this.#nodes.splice(0).map((node) => node.close()))
    await Promise.all(this.#processes.splice(0).map((processes) => processes.close()))
  }

  async close(): Promise<void> {
    await this.reset()
    await this.control.close()
    if (this.#controlStore !== this.store) await this.#controlStore.close()
    await this.store.close()
    await this.#redis?.close()
  }

  #nextPlace(): NodePlace {
    this.#started += 1
    return { ...this.#place, nodeId: `node-${this.#started}` }
  }

  #add<N extends ClusterNode>(nodes: N[]): N[] {
    this.#nodes.push(...nodes)
    return nodes
  }
}

/**
 * The cluster of a group of tests, there from before the first of them until behind the last. `perTest`: each test ends its players and nodes.
 * To be called in the group, before its own hooks.
 */
export function sharedCluster({
  perTest = false,
  ...options
}: ClusterOptions & { readonly perTest?: boolean } = {}) {
  let cluster: TestCluster | undefined
  beforeAll(async () => {
    cluster = await TestCluster.start(options)
  })
  if (perTest) afterEach(() => cluster?.reset())
  afterAll(() => cluster?.close())
  return new Proxy({} as TestCluster, {
    get(_, name) {
      const value: unknown = Reflect.get(cluster!, name, cluster)
      return typeof value === 'function' ? value.bind(cluster) : value
    },
  })
}

function startRedisFor({ redis = 'shared' }: ClusterOptions): Promise<RedisServer> | undefined {
  if (redis === 'shared' || redis === 'none' || typeof redis === 'object') return undefined
  return redis === 'memory' ? startRedis() : startRedisWith({ settings: { appendonly: 'yes' } })
}

/** Where a node finds the rest of its cluster. */
interface NodePlace {
  readonly nodeId: string
  readonly redisUrl: string
  readonly keyPrefix: string
  readonly controlUrl: string
  readonly internalToken: string
  readonly leaseMs: number
  /** The store of all local nodes. Undefined: each opens one at `redisUrl`. */
  readonly store?: Store
}

/** Any node of a test's cluster. */
export interface ClusterNode {
  readonly nodeId: string
  readonly wsUrl: string
  readonly adminUrl: string
  /** Whether new connections should go there. */
  readonly open: boolean
  /** Ends it, whatever state it is in. */
  close(): Promise<void>
}

/** A node in the process of the test, with a store connection of its own over a link that can be broken. */
export interface LocalNode extends ClusterNode {
  readonly running: RunningNode
  readonly store: Store
  readonly link: FaultyLink
  /** Drains it, as SIGTERM does. */
  drain(): Promise<void>
}

/** A node that is a process of its own: `roomful dataplane`. */
export interface NodeProcess extends ClusterNode {
  /** Its exit code once it has ended; null when a signal ended it. */
  readonly ended: Promise<number | null>
  /** Everything it has printed. */
  output(): string
  /** As a machine that loses power. */
  kill(): void
  /** Hangs (SIGSTOP) until `cont`. */
  stop(): void
  cont(): void
  /** Tells it to drain (SIGTERM); resolves with its exit code. */
  drain(): Promise<number | null>
}

const ROOMS_DIR = `${import.meta.dirname}/cluster-rooms`

/** Starts a node in this process. */
async function startLocalNode(
  place: NodePlace,
  rooms: NodeOptions['rooms'],
  options: Partial<NodeOptions> = {},
): Promise<LocalNode> {
  const { nodeId, redisUrl, keyPrefix, controlUrl, internalToken, leaseMs } = place
  const parts = {
    clock: options.clock ?? systemClock,
    random: systemRandom,
    log: pino({ level: process.env.TEST_LOG_LEVEL ?? 'silent' }).child({ node_id: nodeId }),
  }
  const link = place.store ? undefined : await FaultyLink.open(redisUrl)
  const store = place.store ?? (await openStore({ redisUrl: link!.url, keyPrefix, ...parts }))
  const running = await startNode({
    nodeId,
    wsPort: 0,
    adminPort: 0,
    drainSeconds: 0.5,
    nodeLeaseMs: leaseMs,
    ...parts,
    ...options,
    rooms,
    store,
    controlUrl,
    internalToken,
  })
  let open = true
  const drain = (): Promise<void> => {
    open = false
    return running.close()
  }
  return {
    nodeId,
    wsUrl: running.wsUrl,
    adminUrl: running.adminUrl,
    get open() {
      return open
    },
    running,
    store,
    get link() {
      if (!link) throw new Error('a store in memory has no link')
      return link
    },
    drain,
    async close() {
      link?.hold(false)
      await drain()
      if (store !== place.store) await store.close()
      await link?.close()
    },
  }
}

/** A process of `LocalCluster` under the id of its node. */
export function nodeProcess({
  nodeId,
  child,
  wsUrl,
  adminUrl,
}: LocalCluster['nodes'][number] & { readonly nodeId: string }): NodeProcess {
  return {
    nodeId,
    wsUrl,
    adminUrl,
    get open() {
      return child.state === 'ready'
    },
    get ended() {
      return child.ended.then(({ code }) => code)
    },
    output: () => readFileSync(child.logFile, 'utf8'),
    kill: () => void child.kill(),
    stop: () => child.pause(),
    cont: () => child.resume(),
    drain: () => {
      child.end()
      return child.ended.then(({ code }) => code)
    },
    close: () => child.kill(),
  }
}

/** What a test may choose. */
interface ServiceOptions {
  readonly store?: 'memory' | 'redis'
  /** Default: the examples. */
  readonly rooms?: NodeOptions['rooms']
  /** Other options of the node. */
  readonly node?: Partial<NodeOptions>
}

/** Both planes in this process, at free ports of this machine. */
export interface TestService extends Pick<TestCluster, 'call' | 'internalToken'> {
  readonly wsUrl: string
  readonly controlUrl: string
  readonly adminUrl: string
  readonly store: Store
  /** A new project, with a token for a player. */
  login(claims?: {
    sub?: string
    rooms?: string[]
    ttl_seconds?: number
  }): Promise<{ projectId: string; token: string }>
  /** As `TestCluster.metric`, of the node. */
  metric(series: string): Promise<number>
  close(): Promise<void>
}

const EXAMPLES = join(import.meta.dirname, '../../examples')

/** Starts a cluster of one node; `close` ends it. */
export async function startService({
  store = 'memory',
  rooms,
  node: options,
}: ServiceOptions = {}): Promise<TestService> {
  const cluster = await TestCluster.start({
    redis: store === 'redis' ? 'shared' : 'none',
    leaseMs: 2000,
  })
  const all = { drainSeconds: 0, ...options, rooms: rooms ?? (await loadRooms(EXAMPLES)) }
  const [node] = await cluster.local(1, all)
  const { wsUrl, adminUrl } = node!
  return {
    wsUrl,
    adminUrl,
    controlUrl: cluster.control.url,
    internalToken: cluster.internalToken,
    store: cluster.store,
    call: (...call) => cluster.call(...call),
    login: (claims) => loginAt(cluster.control.url, claims),
    metric: (series) => cluster.metric(node!, series),
    close: () => cluster.close(),
  }
}
