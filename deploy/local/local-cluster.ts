import { once } from 'node:events'
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { connect, createServer, type Server } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { Redis } from 'ioredis'
import { type NodeAddress, Nodes, type NodeView } from '../../examples/backend/nodes.ts'
import { systemClock } from '../../shared/clock.ts'
import { randomToken } from '../../shared/ids.ts'
import { systemRandom } from '../../shared/random.ts'
import { haproxyAt } from '../balancer/configuration.ts'
import { findProgram, freePort, isFree, roomfulProgram } from './machine.ts'
import { type Child, Children, ClusterError, describeExit, type Exit } from './processes.ts'

/** Size of a cluster, its load balancer, and the environment of its processes. */
export interface ClusterOptions {
  readonly nodes: number
  readonly controls: number
  /** `auto`: haproxy if it is installed, otherwise a forwarder. `none`: clients connect to the nodes. `outside`: the caller starts one. */
  readonly balancer: 'auto' | 'none' | 'outside'
  /** True: use the documented ports if they are free. Default: any free ports. */
  readonly documentedPorts?: boolean
  /** True: give each node an address (ADVERTISE_URL), so that clients move to the node of their rooms. */
  readonly advertise?: boolean
  /**
   * Variables of all processes. Without REDIS_URL, the cluster starts a Redis that keeps its data on disk. ROOMS_DIR is by default the
   * folder of the examples.
   */
  readonly env: NodeJS.ProcessEnv
  /** Returns additional variables for the next start of one process, such as `node-1`. They replace those of the cluster. */
  readonly envOf?: (name: string) => NodeJS.ProcessEnv
  /** Returns the words after `node` for the next start of one process. Default: the command line of roomful with this command. */
  readonly programOf?: (name: string, command: 'control' | 'dataplane') => readonly string[]
  /** Address at which nodes find the control API, if it is not at an address of this cluster. */
  readonly controlUrl?: string | undefined
  /** True: processes of roomful accept messages of this process. */
  readonly ipc?: boolean
  /** Folder of the logs and of the data of Redis. Default: a new one. */
  readonly folder?: string
  /** Called with a line about each process that has ended. `asked`: this process ended it. */
  readonly tell?: (line: string, asked: boolean) => void
}

/** Ports of a cluster. All are on 127.0.0.1. */
interface Ports {
  readonly games: number
  /** The control API, behind the load balancer. */
  readonly api: number
  /** The websocket, behind the load balancer. */
  readonly websocket: number
  /** Health and metrics of haproxy itself. */
  readonly balancer: number
  readonly redis: number
  readonly controls: readonly number[]
  readonly nodes: readonly { readonly websocket: number; readonly admin: number }[]
}

/** Secrets of one run. They are random unless INTERNAL_TOKEN and CONTROL_API_TOKENS are set. If these are lists, the first is used. */
interface Secrets {
  readonly internalToken: string
  readonly keyringSecret: string
  readonly operatorToken: string
}

/** A node of a cluster. */
interface LocalNode {
  readonly child: Child
  /** Address of the websocket at this node, not at the load balancer. */
  readonly wsUrl: string
  readonly adminUrl: string
}

const HOST = '127.0.0.1'
const EXAMPLES = fileURLToPath(new URL('../../examples', import.meta.url))
/** Shorter than the default, so that clients of a hanging node try another one while a person watches. */
const HEARTBEAT_SECONDS = '2'
/** Time limit for the orderly end of a process, and for the load balancer to find control. */
const PATIENCE_MS = 8000

/**
 * Redis, control processes, nodes and a load balancer, as processes of this machine. They end with this process, however it ends. A process
 * is found by its name (`node-1`, `control-1`, `redis`, `haproxy`) and can be killed, paused, ended and started again.
 */
export class LocalCluster {
  /** Folder of the logs and of the data of Redis. */
  readonly folder: string
  readonly ports: Ports
  readonly secrets: Secrets
  readonly nodes: readonly LocalNode[]
  readonly redisUrl: string
  /** Connection to Redis. Its commands fail within seconds while Redis is down, and work again afterwards. */
  readonly redis: Redis
  /** Precedes every key of the run in Redis. */
  readonly keyPrefix: string
  /** Folder of the room types of the nodes. */
  readonly roomsDir: string
  /** Kind of load balancer. */
  readonly balancer: 'haproxy' | 'forwarder' | 'none' | 'outside'
  /** Address of the websocket: that of the load balancer, or of the first node. */
  readonly wsUrl: string
  /** Address of the control API: that of the load balancer, or of the first control process. */
  readonly controlUrl: string
  readonly #children: Children
  readonly #runtimes: Nodes
  #ending = false

  private constructor(options: ClusterOptions, { folder, ports, redis, haproxy }: Machine) {
    const { env, balancer, tell = () => undefined } = options
    this.folder = folder
    this.roomsDir = env.ROOMS_DIR ?? EXAMPLES
    this.ports = ports
    this.balancer = balancer === 'auto' ? (haproxy ? 'haproxy' : 'forwarder') : balancer
    const isDirect = balancer === 'none'
    this.wsUrl = `ws://${here(isDirect ? ports.nodes[0]!.websocket : ports.websocket)}`
    this.controlUrl = options.controlUrl ?? `http://${here(isDirect ? ports.controls[0]! : ports.api)}`
    const onExit = ({ name, logFile, lastLine }: Child, exit: Exit, asked: boolean): void => {
      const how = describeExit(exit)
      if (this.#ending) return
      tell(
        asked
          ? `${name} is gone (${how})`
          : `${name} has ended by itself (${how}); ${logFile} ends with: ${lastLine}`,
        asked,
      )
    }
    this.#children = new Children({ folder, onExit })
    this.secrets = {
      internalToken: env.INTERNAL_TOKEN?.split(',')[0] || randomToken(systemRandom, 32),
      keyringSecret: randomToken(systemRandom, 43),
      operatorToken: env.CONTROL_API_TOKENS?.split(',')[0] || randomToken(systemRandom, 32),
    }
    this.redisUrl = env.REDIS_URL ?? `redis://${here(ports.redis)}`
    // The keys of this run are sealed with its secret, so it must not find those of an earlier run.
    this.keyPrefix = `roomful-local-${randomToken(systemRandom, 8)}:`
    this.redis = openRedis(this.redisUrl)
    if (redis !== undefined)
      this.#children.add('redis', {
        program: redis,
        args: redisWords(ports.redis, folder),
        env,
        ready: /Ready to accept/,
      })
    for (const [index, port] of ports.controls.entries())
      this.#add(options, `control-${index + 1}`, 'control', {
        CONTROL_HOST: HOST,
        CONTROL_PORT: String(port),
        CONTROL_API_TOKENS: this.secrets.operatorToken,
        KEYRING_SECRET: this.secrets.keyringSecret,
      })
    this.nodes = ports.nodes.map(({ websocket, admin }, index) => {
      const wsUrl = `ws://${here(websocket)}`
      const child = this.#add(options, `node-${index + 1}`, 'dataplane', {
        NODE_ID: `node-${index + 1}`,
        ROOMS_DIR: this.roomsDir,
        WS_HOST: HOST,
        WS_PORT: String(websocket),
        ADMIN_HOST: HOST,
        ADMIN_PORT: String(admin),
        CONTROL_URL: this.controlUrl,
        HEARTBEAT_SECONDS: env.HEARTBEAT_SECONDS ?? HEARTBEAT_SECONDS,
        ...(options.advertise && { ADVERTISE_URL: wsUrl }),
      })
      return { child, wsUrl, adminUrl: `http://${here(admin)}` }
    })
    const { internalToken } = this.secrets
    this.#runtimes = new Nodes({
      addresses: this.addresses,
      internal_token: internalToken,
      clock: systemClock,
    })
    if (haproxy !== undefined)
      this.#children.add('haproxy', { program: haproxy, args: ['-db', '-f', this.#haproxyFile], env })
  }

  /**
   * Finds the programs and ports of this machine, and prepares everything. Only the reaper runs afterwards. Rejects with a ClusterError.
   */
  static async prepare(options: ClusterOptions): Promise<LocalCluster> {
    const { env } = options
    const redis = env.REDIS_URL ? undefined : findProgram(['redis-server', 'valkey-server'], env.PATH)
    if (!env.REDIS_URL && redis === undefined)
      throw new ClusterError(
        'there is no redis-server (or valkey-server) in PATH: install one (apt install redis-server, brew install redis), or set REDIS_URL to a Redis that runs',
      )
    if (env.REDIS_URL && !/^rediss?:\/\//.test(env.REDIS_URL))
      throw new ClusterError('REDIS_URL must name one Redis here: redis://… or rediss://…')
    const haproxy = options.balancer === 'auto' ? findProgram(['haproxy'], env.PATH) : undefined
    const folder = options.folder ?? (await mkdtemp(join(tmpdir(), 'roomful-cluster-')))
    await mkdir(join(folder, 'redis'), { recursive: true })
    return new LocalCluster(options, { folder, ports: await choosePorts(options), redis, haproxy })
  }

  /** Starts all processes. Resolves when they serve. Rejects if one does not. */
  async start(): Promise<void> {
    await this.children.get('redis')?.start()
    const answer = this.redis.connect().then(() => this.redis.ping())
    await answer.catch((error: Error) => {
      throw new ClusterError(`the Redis at ${new URL(this.redisUrl).host} does not answer: ${error.message}`)
    })
    const processes = [...this.children.values()].filter(({ name }) => /^(control|node)-/.test(name))
    await Promise.all(processes.map((child) => child.start()))
    const { websocket, api, nodes, controls } = this.ports
    if (this.balancer === 'haproxy') await this.#startHaproxy()
    else if (this.balancer === 'forwarder') {
      await startForwarder(
        websocket,
        nodes.map((node) => node.websocket),
      )
      await startForwarder(api, controls)
    }
  }

  /** Every process by its name, in the order of their start. */
  get children(): ReadonlyMap<string, Child> {
    return this.#children.all
  }

  /** Returns the process with this name. Throws if there is none. */
  child(name: string): Child {
    const child = this.children.get(name)
    if (!child) throw new Error(`there is no ${name}; there are ${[...this.children.keys()].join(', ')}`)
    return child
  }

  /** Names and admin addresses of the nodes. */
  get addresses(): readonly NodeAddress[] {
    return this.nodes.map(({ child, adminUrl }) => ({ admin_url: adminUrl, node_id: child.name }))
  }

  /** Returns the last report of each node about its rooms, within 0.25 s. */
  look(): Promise<NodeView[]> {
    return this.#runtimes.look()
  }

  /** Ends everything in order: first the load balancer, then the nodes, which save their rooms, then control, and Redis. */
  async close(): Promise<void> {
    this.#ending = true
    const all = [...this.children.values()]
    for (const group of [/^haproxy$/, /^node-/, /^control-/])
      await Promise.all(
        all.filter(({ name }) => group.test(name)).map((child) => child.endWithin(PATIENCE_MS)),
      )
    if (!this.children.has('redis')) await this.#clear().catch(() => undefined)
    this.redis.disconnect()
    await this.children.get('redis')?.endWithin(PATIENCE_MS)
    await this.#children.close()
    await rm(join(this.folder, 'redis'), { recursive: true, force: true })
  }

  /** Kills every process without waiting. */
  abandon(): void {
    this.#ending = true
    this.#children.abandon()
  }

  #add(
    options: ClusterOptions,
    name: string,
    command: 'control' | 'dataplane',
    own: NodeJS.ProcessEnv,
  ): Child {
    const { env, envOf, programOf, ipc = false } = options
    return this.#children.addRoomful(name, () => {
      const set: NodeJS.ProcessEnv = {
        REDIS_URL: this.redisUrl,
        KEY_PREFIX: this.keyPrefix,
        INTERNAL_TOKEN: this.secrets.internalToken,
        ...own,
        ...envOf?.(name),
      }
      const all: NodeJS.ProcessEnv = { ...env, ...set }
      // Variables for files in the environment would contradict these.
      for (const variable of Object.keys(set)) delete all[`${variable}_FILE`]
      // The processes end with this process, so they need not watch npm.
      delete all.npm_lifecycle_event
      const words = programOf?.(name, command) ?? [...roomfulProgram().words, command]
      return { words, env: all, ipc }
    })
  }

  /** Removes every key of the cluster from a Redis that continues to run. */
  async #clear(): Promise<void> {
    for await (const keys of this.redis.scanStream({ match: `${this.keyPrefix}*`, count: 1000 }))
      if (keys.length > 0) await this.redis.unlink(keys)
  }

  get #haproxyFile(): string {
    return join(this.folder, 'haproxy.cfg')
  }

  /** Resolves when control answers through haproxy, which uses the production configuration with these ports. */
  async #startHaproxy(): Promise<void> {
    const { websocket, api, balancer, nodes, controls } = this.ports
    const haproxy = this.child('haproxy')
    const text = await readFile(new URL('../balancer/haproxy.cfg', import.meta.url), 'utf8')
    const placed = haproxyAt(text, {
      websocket: here(websocket),
      control: here(api),
      operations: here(balancer),
      nodes: nodes.map((node) => ({ address: here(node.websocket), healthPort: node.admin })),
      controls: controls.map((port) => ({ address: here(port) })),
    })
    await writeFile(this.#haproxyFile, placed)
    await haproxy.start()
    const deadline = systemClock.monotonic() + PATIENCE_MS
    while (!(await fetch(`http://${here(api)}/readyz`).catch(() => undefined))?.ok) {
      if (haproxy.exit)
        throw new ClusterError(`haproxy ended (${describeExit(haproxy.exit)}); ${haproxy.logFile} says why`)
      if (systemClock.monotonic() > deadline)
        throw new ClusterError(`haproxy does not reach control; the logs in ${this.folder} say why`)
      await setTimeout(50)
    }
  }
}

/** Programs, ports and folder of a run on this machine. */
interface Machine {
  readonly folder: string
  readonly ports: Ports
  /** Paths of programs. Undefined: not installed, or not wanted. */
  readonly redis: string | undefined
  readonly haproxy: string | undefined
}

const here = (port: number): string => `${HOST}:${port}`

/**
 * Chooses the ports. `documentedPorts`: the documented ports; each that another process uses is replaced with a free port. If another
 * process takes a port later, the start of its process fails with a message.
 */
async function choosePorts({ nodes, controls, documentedPorts }: ClusterOptions): Promise<Ports> {
  const choose = async (documented: number): Promise<number> =>
    documentedPorts && (await isFree(documented)) ? documented : freePort(systemRandom)
  const numbers = (count: number): number[] => Array.from({ length: count }, (_, index) => index + 1)
  return {
    games: await choose(8080),
    api: await choose(3000),
    websocket: await choose(4000),
    balancer: await choose(8404),
    redis: await choose(6390),
    controls: await Promise.all(numbers(controls).map((n) => choose(3000 + n))),
    nodes: await Promise.all(
      numbers(nodes).map(async (n) => ({ websocket: await choose(4000 + n), admin: await choose(9100 + n) })),
    ),
  }
}

/** Settings of Redis. All data is stored on disk, so that a restarted Redis has it. */
function redisWords(port: number, folder: string): string[] {
  const settings = {
    port: String(port),
    bind: HOST,
    dir: join(folder, 'redis'),
    appendonly: 'yes',
    save: '',
    'maxmemory-policy': 'noeviction',
  }
  return Object.entries(settings).flatMap(([name, value]) => [`--${name}`, value])
}

/** Time limit of the first answer of Redis. On a busy machine it takes more than a second. */
const ANSWER_MS = 3000

function openRedis(url: string): Redis {
  const redis = new Redis(url, {
    lazyConnect: true,
    enableOfflineQueue: false,
    maxRetriesPerRequest: 0,
    connectTimeout: ANSWER_MS,
    commandTimeout: ANSWER_MS,
    retryStrategy: () => 250,
  })
  redis.on('error', () => undefined)
  return redis
}

/**
 * One address for several servers of this machine without haproxy, for development only. Each connection goes to the next of `ports` that
 * accepts it. There are no health checks: a client that reaches a paused or draining node tries again and reaches another. Resolves when it
 * listens. Rejects if another process has the port.
 */
export async function startForwarder(port: number, ports: readonly number[]): Promise<Server> {
  let turn = 0
  const server = createServer({ noDelay: true }, (client) => {
    const first = turn++ % ports.length
    const order = [...ports.slice(first), ...ports.slice(0, first)]
    client.on('error', () => client.destroy())
    const forward = ([next, ...others]: readonly number[]): void => {
      if (next === undefined || client.destroyed) return void client.destroy()
      let connected = false
      const server = connect({ host: HOST, port: next, noDelay: true }, () => {
        connected = true
        client.pipe(server).pipe(client)
      })
      client.once('close', () => server.destroy())
      server.on('error', () => server.destroy())
      server.once('close', () => (connected ? client.destroy() : forward(others)))
    }
    forward(order)
  })
  server.listen(port, HOST)
  await once(server, 'listening')
  return server.unref()
}
