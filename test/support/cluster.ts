import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { pino } from 'pino'
import { afterAll, afterEach, beforeAll, inject } from 'vitest'
import { type RunningControl, startControl } from '../../control/main.ts'
import type { RoomDescription } from '../../dataplane/descriptions.ts'
import { type NodeOptions, type RunningNode, startNode } from '../../dataplane/node.ts'
import { JournalFormat } from '../../dataplane/room/journal.ts'
import { loadRooms } from '../../dataplane/room/loader.ts'
import { type RestoredRoom, restore } from '../../dataplane/room/restore.ts'
import { LocalCluster, type ClusterOptions as LocalClusterOptions } from '../../deploy/local/local-cluster.ts'
import { systemClock } from '../../shared/clock.ts'
import { nodeName, randomToken } from '../../shared/ids.ts'
import { systemRandom } from '../../shared/random.ts'
import { openStore } from '../../shared/store/open.ts'
import type { RoomOwner, Store } from '../../shared/store/port.ts'
import { NO_LOAD } from '../kit/process.ts'
import { Player, type PlayerOptions } from '../players/ledger.ts'
import { callControl, loginAt, metricOf, runtimeOf } from './calls.ts'
import { ledgerRoom } from './cluster-room.ts'
import { FaultyLink } from './faulty-link.ts'
import { asAdmin, type RedisServer, startRedis, startRedisWith, until } from './redis-server.ts'
import { runEnvironment } from './run-folder.ts'

/** Options of `TestCluster.start`. */
export interface ClusterOptions {
  /**
   * `shared` (default): the Redis of the run, with a key prefix for this cluster. `disk`: a Redis for this cluster that keeps its data across
   * `stop` and `start`. `memory`: a Redis for this cluster that loses its data. With `url`: a Redis that the test has started. `none`: a
   * store in the memory of this process, for local nodes only.
   */
  readonly redis?: 'shared' | 'disk' | 'memory' | 'none' | { readonly url: string }
  /** `together` (default): control uses the same Redis. `apart`: control has a store in memory, and keeps its data when Redis loses its data. */
  readonly control?: 'together' | 'apart'
  /** Lease of every node, in milliseconds. Default 1000. */
  readonly leaseMs?: number
  /** Tokens of operators. Default: none, and control is open to everyone. Then `login` works. */
  readonly controlApiTokens?: readonly string[]
  /** Values of `NOTIFY_SECRET` of control. Default: none. */
  readonly notifySecret?: readonly string[]
}

/** A project and a token for its players. */
export interface Login {
  readonly projectId: string
  readonly token: string
}

const INTERNAL_TOKEN = 'internal-token-of-the-cluster-tests'
/** Room types of nodes in this process: a ledger of each durability. */
const ROOMS: NodeOptions['rooms'] = [ledgerRoom('journal'), ledgerRoom('snapshot'), ledgerRoom('none')]

/** A control and any number of nodes with one real Redis. */
export class TestCluster {
  readonly control: RunningControl
  /** The test's connection to the cluster's Redis. It bypasses all injected faults. */
  readonly store: Store
  readonly #redis: RedisServer | undefined
  readonly #place: Omit<NodePlace, 'nodeId'>
  readonly #controlStore: Store
  readonly #nodes: ClusterNode[] = []
  readonly #players: Player[] = []
  #started = 0
  /** Nodes that are processes, one cluster for each call of `processes`. */
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

  /** Starts Redis and control, without nodes. */
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
    const { controlApiTokens, notifySecret } = options
    const control = await startControl({
      config: {
        controlPort: 0,
        internalToken: INTERNAL_TOKEN,
        ...(controlApiTokens && { controlApiTokens }),
        ...(notifySecret && { notifySecret }),
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

  /** Address of the cluster's Redis. */
  get redisUrl(): string {
    return this.#place.redisUrl
  }

  /** Token for the admin routes of every node. */
  get internalToken(): string {
    return this.#place.internalToken
  }

  /** The Redis that only this cluster uses. Throws for a shared Redis. */
  get redis(): RedisServer {
    if (!this.#redis) throw new Error('the cluster shares its Redis: start it with redis disk or memory')
    return this.#redis
  }

  /** Starts nodes in this process. */
  async local(count: number, options: Partial<NodeOptions> = {}): Promise<LocalNode[]> {
    const start = () => startLocalNode(this.#nextPlace(), options.rooms ?? ROOMS, options)
    return this.#add(await Promise.all(Array.from({ length: count }, start)))
  }

  /** Starts nodes as processes. Resolves when they are ready. `env` replaces variables of the cluster, except its ports. */
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
      // The Redis of the run. The Redis of the nodes may be several servers, or not running.
      env: {
        ...runEnvironment(),
        REDIS_URL: inject('redisUrl'),
        INTERNAL_TOKEN,
        ROOMS_DIR: inject('clusterRooms'),
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

  /** Calls the control API. Rejects if the status is not 2xx. The error contains the answer. */
  call(method: 'GET' | 'POST' | 'PUT', path: string, body?: object): Promise<Record<string, string>> {
    return callControl(this.control.url, method, path, body)
  }

  /** Creates a project and a token for its players. */
  login(claims: { readonly data?: object } = {}): Promise<Login> {
    return loginAt(this.control.url, { ttl_seconds: 3600, ...claims })
  }

  /** Websocket addresses of the open nodes, in the order in which they were started. */
  readonly doors = (): string[] => this.#nodes.filter(({ open }) => open).map(({ wsUrl }) => wsUrl)

  /** Returns the `doors` of a client that connects to `at` first, and after a lost connection to the open nodes in turn. */
  doorsFrom(at?: ClusterNode): () => readonly string[] {
    let first = at?.wsUrl
    return () => {
      const all = first === undefined ? this.doors() : [first]
      first = undefined
      return all
    }
  }

  /** Connects one player to each of the nodes and joins `type:key`. The first player creates the room if it does not exist. */
  async playersAt(login: Login, roomId: string, nodes: readonly ClusterNode[]): Promise<Player[]> {
    const players: Player[] = []
    for (const node of nodes) players.push(await this.player(login, roomId, node))
    return players
  }

  /** A player in `type:key`, with `doorsFrom(at)`. */
  async player(
    { projectId, token }: Login,
    roomId: string,
    at?: ClusterNode,
    options: Pick<PlayerOptions, 'tamper' | 'connect'> = {},
  ): Promise<Player> {
    const [roomType = '', key = ''] = roomId.split(':')
    const doors = this.doorsFrom(at)
    const player = await Player.join({ projectId, token, roomType, key, doors, ...options })
    this.#players.push(player)
    return player
  }

  /** Returns the owner and the epoch of a room's record. */
  async inspect({ projectId }: Login, roomId: string): Promise<RoomOwner | undefined> {
    const found = await this.store.rooms.inspect(`${projectId}/${roomId}`)
    return found && { ...found, owner: found.owner && nodeName(found.owner) }
  }

  /** Returns the id of the owner and the epoch of a room's record. Throws if the room has no owner. */
  async owner(login: Login, roomId: string): Promise<{ nodeId: string; epoch: number }> {
    const found = await this.inspect(login, roomId)
    if (!found?.owner) throw new Error(`${roomId} has no owner`)
    return { nodeId: found.owner, epoch: found.epoch }
  }

  /** Returns the nodes with the owner of a room in front. Throws if the owner is none of them. */
  async ownerFirst<N extends ClusterNode>(login: Login, roomId: string, nodes: readonly N[]): Promise<N[]> {
    const { nodeId } = await this.owner(login, roomId)
    const owner = nodes.find((node) => node.nodeId === nodeId)
    if (!owner) throw new Error(`${roomId} is owned by ${nodeId}, which is none of the given nodes`)
    return [owner, ...nodes.filter((node) => node !== owner)]
  }

  /** Resolves with the id of the owner when `accepts` returns true for it. */
  async ownedBy(login: Login, roomId: string, accepts: (nodeId: string) => boolean): Promise<string> {
    let nodeId = ''
    await until(`${roomId} has another owner`, async () => {
      nodeId = (await this.owner(login, roomId)).nodeId
      return accepts(nodeId)
    })
    return nodeId
  }

  /** Resolves when the stored snapshot of a room has the room's current seq. */
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

  /** Returns the rooms and sessions of a node. */
  runtime({ adminUrl }: ClusterNode) {
    return runtimeOf(adminUrl, INTERNAL_TOKEN)
  }

  /** Returns the owner's description of a room. Undefined: no open node runs the room. */
  async room(roomId: string): Promise<RoomDescription | undefined> {
    const open = this.#nodes.filter((node) => node.open)
    const found = await Promise.all(open.map((node) => this.runtime(node)))
    return found.flatMap(({ rooms }) => rooms).find((room) => room.room_id === roomId)
  }

  /** As `metricOf`. */
  metric({ adminUrl }: ClusterNode, series: string): Promise<number> {
    return metricOf(adminUrl, series)
  }

  /** Calls `POST /admin/drain` of a node. Returns the status. */
  async drainOverHttp({ adminUrl }: ClusterNode): Promise<number> {
    const headers = { 'x-service-internal-token': INTERNAL_TOKEN }
    return (await fetch(`${adminUrl}/admin/drain`, { method: 'POST', headers })).status
  }

  /** Claims a journal room and restores it from the store, like the next owner. The room's node must have ended. */
  async stored({ projectId }: Login, roomId: string): Promise<RestoredRoom> {
    const name = `${projectId}/${roomId}`
    const { rooms } = this.store
    const epoch = (await rooms.inspect(name))?.epoch ?? 0
    const claim = await rooms.claim(name, 'node-of-the-test', epoch, 60_000)
    const found = claim && restore(claim, new JournalFormat())
    if (!found) throw new Error(`the store has no ${roomId}, or its owner is alive`)
    return found
  }

  /** Ends all players and nodes. The next test can use the cluster. */
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
 * Starts a cluster before the first test of a group and ends it after the last test. `perTest`: players and nodes end after each test. Call it
 * in the group, before the group's hooks.
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

/** Settings of a node that its cluster decides. */
interface NodePlace {
  readonly nodeId: string
  readonly redisUrl: string
  readonly keyPrefix: string
  readonly controlUrl: string
  readonly internalToken: string
  readonly leaseMs: number
  /** The store of all local nodes. Undefined: each node opens a store at `redisUrl`. */
  readonly store?: Store
}

/** A node of a test's cluster. */
export interface ClusterNode {
  readonly nodeId: string
  readonly wsUrl: string
  readonly adminUrl: string
  /** True while the node takes new connections. */
  readonly open: boolean
  /** Ends the node, in whatever state it is. */
  close(): Promise<void>
}

/** A node in the process of the test. Its connection to the store goes through a link that a test can break. */
export interface LocalNode extends ClusterNode {
  readonly running: RunningNode
  readonly store: Store
  readonly link: FaultyLink
  /** Drains the node, like SIGTERM. */
  drain(): Promise<void>
}

/** A node in a process: `roomful dataplane`. */
export interface NodeProcess extends ClusterNode {
  /** Resolves with the exit code. Null: a signal ended the process. */
  readonly ended: Promise<number | null>
  /** All output of the process. */
  output(): string
  /** Ends the process with SIGKILL. */
  kill(): void
  /** Suspends the process (SIGSTOP) until `cont`. */
  stop(): void
  cont(): void
  /** Sends SIGTERM, which drains the node. Resolves with the exit code. */
  drain(): Promise<number | null>
}

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
    loadClock: NO_LOAD,
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

/** Returns a node of `LocalCluster` as a node of a test's cluster. */
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

/** Options of `startService`. */
interface ServiceOptions {
  readonly store?: 'memory' | 'redis'
  /** Default: the examples. */
  readonly rooms?: NodeOptions['rooms']
  /** Other options of the node. */
  readonly node?: Partial<NodeOptions>
}

/** Control and one node in this process, at free ports. */
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
  /** As `metricOf`, for the node. */
  metric(series: string): Promise<number>
  close(): Promise<void>
}

const EXAMPLES = join(import.meta.dirname, '../../examples')

/** Starts a cluster of one node. `close` ends it. */
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
