import { spawnSync } from 'node:child_process'
import { readFileSync, rmSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Redis } from 'ioredis'
import type { ContainerRuntimeClient, StartedTestContainer } from 'testcontainers'
import { freePort as claimPort } from '../../deploy/local/machine.ts'
import { Child } from '../../deploy/local/processes.ts'
import { systemRandom } from '../../shared/random.ts'
import { findOrInstall, mayInstall } from './debian-package.ts'

/** A real Redis server of one test, or of the run. Without settings for persistence, it stores nothing on disk. */
export interface RedisServer {
  /** `redis://host:port`. It does not change with `stop` and `start`. */
  readonly url: string
  /** Kills the server. Connections break, and data that is not on disk is lost. */
  stop(): Promise<void>
  /** Starts the server again at the same port. Resolves when it answers. */
  start(): Promise<void>
  /** `stop`, then `start`. */
  restart(): Promise<void>
  /** Suspends the server. Connections stay open, and it does not answer. */
  pause(): Promise<void>
  /** Ends `pause`. The server answers the commands that arrived in the pause. */
  resume(): Promise<void>
  /** Ends the server and removes its files. */
  close(): Promise<void>
}

/**
 * Starts a Redis for the caller: with a program in PATH, else in a container, else with the package of Debian or Ubuntu, which it installs as
 * root. Otherwise throws an error that names these ways.
 */
export async function startRedis(): Promise<RedisServer> {
  const program = findRedisProgram()
  if (program) return startRedisProcess(program)
  const container = await startRedisContainer()
  if (container) return container
  if (mayInstall()) return startRedisWith({})
  throw new Error(
    'the tests need a real Redis: put redis-server or valkey-server on PATH, or start a Docker engine (or set REDIS_URL, for tests that do not stop the server)',
  )
}

/** Starts a Redis process with settings, for servers that must reach each other. Throws if there is no program. */
export async function startRedisWith(options: RedisProcessOptions): Promise<RedisServer> {
  const program = findOrInstall('redis-server or valkey-server', ['redis-server'], findRedisProgram)
  return startRedisProcess(program, options)
}

/** Returns the name of a server program in PATH. */
export function findRedisProgram(): string | undefined {
  return ['redis-server', 'valkey-server'].find(
    (program) => spawnSync(program, ['--version'], { stdio: 'ignore' }).status === 0,
  )
}

/** Options of a Redis process. */
interface RedisProcessOptions {
  /** Settings of redis.conf, by name. */
  readonly settings?: Readonly<Record<string, string>>
  /** Text of redis.conf. `settings` and the address of the test override it. */
  readonly conf?: string
  /** Lines of the configuration of a Sentinel. The process then runs as a Sentinel. */
  readonly sentinel?: readonly string[]
}

/** Starts `program` at a free port, with a new folder. Without `settings` for it, there is no persistence. */
async function startRedisProcess(program: string, options: RedisProcessOptions = {}): Promise<RedisServer> {
  const folder = await mkdtemp(join(tmpdir(), 'roomful-redis-'))
  const server = new RedisProcess(program, await freePort(), folder, options)
  try {
    await server.start()
    return server
  } catch (error) {
    await server.close()
    throw error
  }
}

class RedisProcess implements RedisServer {
  readonly url: string
  readonly #child: Child
  readonly #port: number
  readonly #folder: string
  readonly #options: RedisProcessOptions
  /** Called if the run ends without closing the server. */
  readonly #onExit = () => {
    void this.#child.kill()
    rmSync(this.#folder, { recursive: true, force: true })
  }

  constructor(program: string, port: number, folder: string, options: RedisProcessOptions) {
    this.#options = options
    this.#port = port
    this.#folder = folder
    this.url = `redis://127.0.0.1:${port}`
    this.#child = new Child({
      name: 'redis',
      program,
      run: () => ({ words: this.#args, env: process.env }),
      ready: options.sentinel ? /Sentinel ID is/ : /Ready to accept connections/,
      logFile: join(folder, 'redis.log'),
      reaper: {
        watch: () => void process.once('exit', this.#onExit),
        release: () => void process.off('exit', this.#onExit),
      },
      onExit: () => undefined,
    })
  }

  async start(): Promise<void> {
    if (this.#child.pid !== undefined) return
    if (this.#options.sentinel) {
      const lines = Object.entries(this.#place).map(([name, value]) => `${name} ${value}`)
      await writeFile(this.#sentinelFile, [...lines, ...this.#options.sentinel, ''].join('\n'))
    }
    if (this.#options.conf !== undefined) await writeFile(this.#confFile, this.#options.conf)
    await this.#child.start()
  }

  stop(): Promise<void> {
    return this.#child.kill()
  }

  async restart(): Promise<void> {
    await this.stop()
    await this.start()
  }

  async pause(): Promise<void> {
    this.#child.pause()
  }

  async resume(): Promise<void> {
    this.#child.resume()
  }

  async close(): Promise<void> {
    await this.stop()
    await rm(this.#folder, { recursive: true, force: true })
  }

  get #place(): Readonly<Record<string, string>> {
    return { port: String(this.#port), bind: '127.0.0.1', dir: this.#folder }
  }

  /** A Sentinel writes its state to its configuration file. */
  get #sentinelFile(): string {
    return join(this.#folder, 'sentinel.conf')
  }

  get #confFile(): string {
    return join(this.#folder, 'redis.conf')
  }

  get #args(): string[] {
    const { sentinel, conf, settings } = this.#options
    if (sentinel) return [this.#sentinelFile, '--sentinel']
    const plain = { save: '', appendonly: 'no', 'maxmemory-policy': 'noeviction' }
    const all = { ...this.#place, ...(conf === undefined && plain), ...settings }
    const words = Object.entries(all).flatMap(([name, value]) => [`--${name}`, value])
    return conf === undefined ? words : [this.#confFile, ...words]
  }
}

const IMAGE = 'redis:7-alpine'
const PORT = 6379
const START_TIMEOUT_MS = 30_000

/** Starts a Redis in a container. Undefined: no Docker engine answers. */
async function startRedisContainer(): Promise<RedisServer | undefined> {
  const { GenericContainer, getContainerRuntimeClient } = await import('testcontainers')
  let engine: ContainerRuntimeClient
  try {
    engine = await getContainerRuntimeClient()
  } catch {
    return undefined
  }
  const hostPort = await freePort()
  const container = await new GenericContainer(IMAGE)
    .withExposedPorts({ container: PORT, host: hostPort })
    .withCommand(['redis-server', '--save', '', '--appendonly', 'no', '--maxmemory-policy', 'noeviction'])
    .start()
  return new RedisContainer(engine, container)
}

class RedisContainer implements RedisServer {
  readonly url: string
  readonly #container: StartedTestContainer
  readonly #handle: ReturnType<ContainerRuntimeClient['container']['getById']>

  constructor(engine: ContainerRuntimeClient, container: StartedTestContainer) {
    this.#container = container
    this.#handle = engine.container.getById(container.getId())
    this.url = `redis://${container.getHost()}:${container.getMappedPort(PORT)}`
  }

  async start(): Promise<void> {
    await this.#handle.start()
    await redisAnswers(this.url, START_TIMEOUT_MS)
  }

  async stop(): Promise<void> {
    await this.#handle.kill()
    await this.#handle.wait()
  }

  async restart(): Promise<void> {
    await this.stop()
    await this.start()
  }

  async pause(): Promise<void> {
    await this.#handle.pause()
  }

  async resume(): Promise<void> {
    await this.#handle.unpause()
  }

  async close(): Promise<void> {
    await this.#container.stop()
  }
}

/** User of each password in the files of `deploy/redis`, by the start of its placeholder `…_PASSWORD`. */
const PASSWORD_OF: Readonly<Record<string, string>> = {
  OPERATOR: 'operator',
  HEALTH: 'health',
  CONTROL: 'roomful-control',
  NODE: 'roomful-node',
  REPLICA: 'replica',
  SENTINEL: 'sentinel',
}

/**
 * Returns a file of `deploy/redis` with the passwords `password-of-<name of the user>`. `settings`: new values of lines, by the words before
 * them. Throws if the file has no such line.
 */
export function redisFile(
  name: 'users.acl' | 'redis.conf' | 'sentinel.conf',
  settings: Readonly<Record<string, string>> = {},
): string {
  const file = new URL(`../../deploy/redis/${name}`, import.meta.url)
  const text = readFileSync(file, 'utf8').replace(/\b([A-Z]+)_PASSWORD\b/g, (placeholder, start: string) => {
    const user = PASSWORD_OF[start]
    if (user === undefined) throw new Error(`${name} has ${placeholder}, and there is no such user`)
    return `password-of-${user}`
  })
  return Object.entries(settings).reduce((before, [setting, value]) => {
    const line = new RegExp(`^${setting} .*$`, 'm')
    if (!line.test(before)) throw new Error(`${name} has no line that starts with ${setting}`)
    return before.replace(line, () => `${setting} ${value}`)
  }, text)
}

/** Returns users.acl with the `default` that roomful shipped before: with `appendonly yes`, the server loses its data when it restarts. */
export const limitedUsersFile = (): string =>
  redisFile('users.acl', { 'user default': 'on nopass resetkeys resetchannels -@all +ping' })

/** Rules of the users in `deploy/redis/users.acl`, by name, with the passwords of `redisFile`. */
export const REDIS_USERS: ReadonlyMap<string, readonly string[]> = new Map(
  redisFile('users.acl')
    .trim()
    .split('\n')
    .map((line) => {
      const [, name, ...rules] = line.split(' ')
      return [name!, rules]
    }),
)

/** Returns the URL of the Redis at `url` for one of these users. */
export const asRedisUser = (
  url: string,
  name: 'operator' | 'health' | 'roomful-control' | 'roomful-node',
): string => url.replace('://', `://${name}:password-of-${name}@`)

/** Adds one of these users to the Redis at `url`, with `keyPrefix` instead of `roomful:`. Returns the URL for the user. */
export async function addRedisUser(
  url: string,
  name: 'roomful-control' | 'roomful-node',
  keyPrefix = 'roomful:',
): Promise<string> {
  const rules = REDIS_USERS.get(name)!.map((rule) => rule.replace(/^((?:%R)?[~&])roomful:/, `$1${keyPrefix}`))
  await asAdmin(url, (redis) => redis.call('ACL', 'SETUSER', name, 'reset', ...rules))
  return asRedisUser(url, name)
}

/** Runs `work` with a connection to the Redis at `url`, and closes the connection. A command waits at most 2 s. */
export async function asAdmin<T>(url: string, work: (redis: Redis) => Promise<T>): Promise<T> {
  const redis = new Redis(url, { commandTimeout: 2000, retryStrategy: () => 50, maxRetriesPerRequest: 3 })
  redis.on('error', () => undefined)
  try {
    return await work(redis)
  } finally {
    redis.disconnect()
  }
}

/** Calls `holds` every 20 ms until it resolves with true, also if it rejects. Rejects with `what` after `timeoutMs`. */
export async function until(what: string, holds: () => Promise<boolean>, timeoutMs = 180_000): Promise<void> {
  const end = performance.now() + timeoutMs
  let reason = ''
  while (performance.now() < end) {
    try {
      if (await holds()) return
    } catch (error) {
      reason = `: ${(error as Error).message}`
    }
    await new Promise((resolve) => setTimeout(resolve, 20))
  }
  throw new Error(`${what} did not happen within ${timeoutMs} ms${reason}`)
}

/** Returns a free port, which no other test gets while this process runs. */
export const freePort = (): Promise<number> => claimPort(systemRandom)

/** Resolves when the Redis at `url` answers. Rejects with the last reason after `timeoutMs`. */
export async function redisAnswers(url: string, timeoutMs: number): Promise<void> {
  const redis = new Redis(url, { retryStrategy: () => 50, maxRetriesPerRequest: null })
  let reason = 'no answer'
  redis.on('error', (error: NodeJS.ErrnoException) => {
    reason = error.message || error.code || error.name
  })
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(
      () =>
        reject(
          new Error(`the Redis at ${new URL(url).host} did not answer within ${timeoutMs} ms: ${reason}`),
        ),
      timeoutMs,
    )
  })
  try {
    await Promise.race([redis.ping(), late])
  } finally {
    clearTimeout(timer)
    redis.disconnect()
  }
}

const SLOTS = 16384
/** Time without an answer after which a node counts as failing, milliseconds. */
const CLUSTER_NODE_TIMEOUT_MS = 500

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
    nodes.push(...(await Promise.all(busPorts.map(startClusterNode))))
    await introduce(nodes, busPorts, masters)
    if (replicas > 0) await replicate(nodes, masters)
    return new Cluster(nodes)
  } catch (error) {
    await Promise.all(nodes.map((node) => node.close()))
    throw error
  }
}

const startClusterNode = (busPort: number): Promise<RedisServer> =>
  startRedisWith({
    settings: {
      'cluster-enabled': 'yes',
      'cluster-port': String(busPort),
      'cluster-node-timeout': String(CLUSTER_NODE_TIMEOUT_MS),
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
        await until('a replica follows', () => follows(node))
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
const MASTER_NAME = 'games'
/** Time without an answer after which the master counts as dead, milliseconds. */
const DOWN_AFTER_MS = 400
/** Time after which a failover is asked for again. The Sentinels give up earlier, after their `failover-timeout`. */
const FAILOVER_AGAIN_MS = 5000

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

/** Returns whether a replica is connected to its master. */
export const follows = (replica: RedisServer): Promise<boolean> =>
  asAdmin(replica.url, async (redis) => (await redis.info('replication')).includes('master_link_status:up'))

const startSentinel = (port: string): Promise<RedisServer> =>
  startRedisWith({
    sentinel: [
      `sentinel monitor ${MASTER_NAME} 127.0.0.1 ${port} 2`,
      `sentinel down-after-milliseconds ${MASTER_NAME} ${DOWN_AFTER_MS}`,
      `sentinel failover-timeout ${MASTER_NAME} 1200`,
    ],
  })

/** Shortens the intervals of a Sentinel from seconds to 200 ms, and waits until it knows the other Sentinels and the replicas. */
async function hurry(sentinel: RedisServer, replicas: number): Promise<void> {
  await asAdmin(sentinel.url, async (redis) => {
    const periods = { 'info-period': 200, 'publish-period': 200, 'ask-period': 100, 'ping-period': 100 }
    await redis.call('SENTINEL', 'DEBUG', ...Object.entries(periods).flat())
    await until('the Sentinels know each other', async () => {
      const state = (await redis.call('SENTINEL', 'MASTER', MASTER_NAME)) as string[] | Record<string, string>
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
    this.url = `redis+sentinel://${sentinels.map(({ url }) => new URL(url).host).join(',')}/${MASTER_NAME}`
  }

  async master(): Promise<RedisServer> {
    const [, port] = (await this.#ask('GET-MASTER-ADDR-BY-NAME')) as [string, string]
    const server = this.servers.find(({ url }) => new URL(url).port === port)
    if (!server) throw new Error(`the Sentinels name a master at port ${port}, which is none of the servers`)
    return server
  }

  async failover(): Promise<void> {
    const before = await this.master()
    let askAt = 0
    await until('the Sentinels promote another master', async () => {
      if ((await this.master()) !== before) return true
      // On a busy machine the Sentinels may give up a failover. They do not start it again by themselves.
      if (performance.now() >= askAt) {
        askAt = performance.now() + FAILOVER_AGAIN_MS
        await this.#ask('FAILOVER')
      }
      return false
    })
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
    return asAdmin(this.sentinels[0]!.url, (redis) => redis.call('SENTINEL', command, MASTER_NAME))
  }
}
