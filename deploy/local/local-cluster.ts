import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { type NodeAddress, Nodes } from '../../examples/backend/nodes.ts'
import type { Clock } from '../../shared/clock.ts'
import { randomToken } from '../../shared/ids.ts'
import type { Random } from '../../shared/random.ts'
import { haproxyAt } from '../balancer/configuration.ts'
import { startForwarder } from './forwarder.ts'
import { choosePorts, type Ports } from './ports.ts'
import { type Child, Children, ClusterError, describeExit, type Exit } from './processes.ts'
import { findProgram } from './programs.ts'
import { RedisView } from './redis.ts'

/** Size of a cluster, and what stands before it. */
export interface ClusterOptions {
  readonly nodes: number
  readonly controls: number
  /** `auto`: haproxy where it is installed, else a forwarder. `none`: clients connect to the nodes. `outside`: the caller starts one. */
  readonly balancer: 'auto' | 'none' | 'outside'
  /** Take ports that are free instead of the documented ones. */
  readonly freePorts: boolean
  /** Give each node an address (ADVERTISE_URL), so that clients go to the node of their rooms. */
  readonly advertise: boolean
}

interface LocalClusterParts {
  readonly options: ClusterOptions
  readonly env: NodeJS.ProcessEnv
  /** The words behind `node` that run the command line of roomful. */
  readonly roomful: readonly string[]
  /** Where nodes find the control API, if not at an address of this cluster. */
  readonly controlUrl?: string | undefined
  readonly clock: Clock
  readonly random: Random
  /** Called with a line about each process that has ended. `asked`: this process wanted it. */
  readonly tell: (line: string, asked: boolean) => void
}

const HOST = '127.0.0.1'
const EXAMPLES = fileURLToPath(new URL('../../examples', import.meta.url))
/** Shorter than the default, so that clients of a node that hangs look for another while someone watches. */
const HEARTBEAT_SECONDS = '2'
/** Time for a process to end in order when everything ends, and for the load balancer to find control. */
const PATIENCE_MS = 8000

/** Redis, control processes, nodes and a load balancer, on this machine. */
export class LocalCluster {
  /** Folder of the logs and of the data of Redis. */
  readonly folder: string
  readonly ports: Ports
  readonly secrets: Secrets
  readonly nodes: Nodes
  readonly redis: RedisView
  readonly redisUrl: string
  /** Precedes every key of the run in Redis. */
  readonly keyPrefix: string
  /** Folder of the room types of the nodes. */
  readonly roomsDir: string
  /** Kind of load balancer. */
  readonly balancer: 'haproxy' | 'forwarder' | 'none' | 'outside'
  /** Address of the control API: that of the load balancer, or of the first control process. */
  readonly controlUrl: string
  readonly #parts: LocalClusterParts
  readonly #children: Children
  #ending = false

  private constructor(parts: LocalClusterParts, { folder, ports, redis, haproxy }: Machine) {
    const { env, clock, random, options, tell } = parts
    const { balancer } = options
    this.#parts = parts
    this.roomsDir = env.ROOMS_DIR ?? EXAMPLES
    this.folder = folder
    this.ports = ports
    this.balancer = balancer === 'auto' ? (haproxy ? 'haproxy' : 'forwarder') : balancer
    const apiPort = balancer === 'none' ? ports.controls[0] : ports.api
    this.controlUrl = parts.controlUrl ?? `http://${HOST}:${apiPort}`
    const onExit = ({ name, logFile }: Child, exit: Exit, asked: boolean): void => {
      const how = describeExit(exit)
      if (this.#ending) return
      tell(
        asked ? `${name} is gone (${how})` : `${name} has ended by itself (${how}); ${logFile} may say why`,
        asked,
      )
    }
    this.#children = new Children({ folder, clock, onExit })
    this.secrets = {
      internalToken: env.INTERNAL_TOKEN?.split(',')[0] || randomToken(random, 32),
      keyringSecret: randomToken(random, 43),
      operatorToken: env.CONTROL_API_TOKENS?.split(',')[0] || randomToken(random, 32),
    }
    this.redisUrl = env.REDIS_URL ?? `redis://${here(ports.redis)}`
    // The keys of this run are sealed under a secret of this run: it must not find those of an earlier run.
    this.keyPrefix = `roomful-local-${randomToken(random, 8)}:`
    this.redis = new RedisView(this.redisUrl, this.keyPrefix)
    const { internalToken, keyringSecret, operatorToken } = this.secrets
    this.nodes = new Nodes({ addresses: this.addresses, internal_token: internalToken, clock })

    if (redis !== undefined)
      this.#children.add('redis', { program: redis, args: this.#redisWords(), env, ready: /Ready to accept/ })
    const add = (name: string, command: string, own: NodeJS.ProcessEnv): void => {
      const said: NodeJS.ProcessEnv = {
        REDIS_URL: this.redisUrl,
        KEY_PREFIX: this.keyPrefix,
        INTERNAL_TOKEN: internalToken,
        LOG_FORMAT: 'json',
        ...own,
      }
      const all: NodeJS.ProcessEnv = { ...env, ...said }
      // A file that the person at the terminal names for one of these would contradict it; npm is none of the processes' business.
      for (const variable of Object.keys(said)) delete all[`${variable}_FILE`]
      delete all.npm_lifecycle_event
      this.#children.addRoomful(name, [...parts.roomful, command], all)
    }
    for (const [index, port] of ports.controls.entries())
      add(`control-${index + 1}`, 'control', {
        CONTROL_HOST: HOST,
        CONTROL_PORT: String(port),
        CONTROL_API_TOKENS: operatorToken,
        KEYRING_SECRET: keyringSecret,
      })
    for (const [index, { websocket, admin }] of ports.nodes.entries())
      add(`node-${index + 1}`, 'dataplane', {
        NODE_ID: `node-${index + 1}`,
        ROOMS_DIR: this.roomsDir,
        WS_HOST: HOST,
        WS_PORT: String(websocket),
        ADMIN_HOST: HOST,
        ADMIN_PORT: String(admin),
        CONTROL_URL: this.controlUrl,
        HEARTBEAT_SECONDS: env.HEARTBEAT_SECONDS ?? HEARTBEAT_SECONDS,
        ...(options.advertise && { ADVERTISE_URL: `ws://${here(websocket)}` }),
      })
    if (haproxy !== undefined)
      this.#children.add('haproxy', { program: haproxy, args: ['-db', '-f', this.#haproxyFile], env })
  }

  /** Looks at what this machine has, and prepares everything; only the reaper runs yet. Rejects with a ClusterError. */
  static async prepare(parts: LocalClusterParts): Promise<LocalCluster> {
    const { options, env } = parts
    const redis = env.REDIS_URL ? undefined : findProgram(['redis-server', 'valkey-server'], env.PATH)
    if (!env.REDIS_URL && redis === undefined)
      throw new ClusterError(
        'there is no redis-server (or valkey-server) in PATH: install one (apt install redis-server, brew install redis), or set REDIS_URL to a Redis that runs',
      )
    if (env.REDIS_URL && !/^rediss?:\/\//.test(env.REDIS_URL))
      throw new ClusterError('REDIS_URL must name one Redis here: redis://… or rediss://…')
    const haproxy = options.balancer === 'auto' ? findProgram(['haproxy'], env.PATH) : undefined
    const folder = await mkdtemp(join(tmpdir(), 'roomful-cluster-'))
    await mkdir(join(folder, 'redis'))
    const ports = await choosePorts(options, parts.random)
    return new LocalCluster(parts, { folder, ports, redis, haproxy })
  }

  /** Starts everything; resolves when it serves. Rejects when a part does not. */
  async start(): Promise<void> {
    await this.children.get('redis')?.start()
    await this.redis.reach().catch((error: Error) => {
      throw new ClusterError(`the Redis at ${new URL(this.redisUrl).host} does not answer: ${error.message}`)
    })
    const processes = [...this.children.values()].filter(({ name }) => /^(control|node)-/.test(name))
    await Promise.all(processes.map((child) => child.start()))
    const { websocket, api, nodes, controls } = this.ports
    if (this.balancer === 'haproxy') await this.#startHaproxy()
    else if (this.balancer === 'forwarder')
      await Promise.all([
        startForwarder(
          websocket,
          nodes.map((node) => node.websocket),
        ),
        startForwarder(api, controls),
      ])
  }

  /** Every process by its name, in the order of their start. */
  get children(): ReadonlyMap<string, Child> {
    return this.#children.all
  }

  /** The node, control process, `redis` or `haproxy` of this name. */
  child(name: string): Child | undefined {
    return this.children.get(name)
  }

  /** Ends everything in order: first the load balancer, then nodes, which save their rooms, control, and Redis. */
  async close(): Promise<void> {
    this.#ending = true
    const all = [...this.children.values()]
    for (const group of [/^haproxy$/, /^node-/, /^control-/])
      await Promise.all(
        all.filter(({ name }) => group.test(name)).map((child) => child.endWithin(PATIENCE_MS)),
      )
    if (!this.children.has('redis')) await this.redis.clear().catch(() => undefined)
    this.redis.close()
    await this.children.get('redis')?.endWithin(PATIENCE_MS)
    await this.#children.close()
    await rm(join(this.folder, 'redis'), { recursive: true, force: true })
  }

  /** Kills every process, without waiting for anything. */
  abandon(): void {
    this.#ending = true
    this.#children.abandon()
  }

  get #haproxyFile(): string {
    return join(this.folder, 'haproxy.cfg')
  }

  /** Admin address of each node. */
  get addresses(): readonly NodeAddress[] {
    return this.ports.nodes.map(({ admin }, index) => ({
      admin_url: `http://${HOST}:${admin}`,
      node_id: `node-${index + 1}`,
    }))
  }

  /** Everything is kept on disk, so that a Redis that comes back has it. */
  #redisWords(): string[] {
    const settings = {
      port: String(this.ports.redis),
      bind: HOST,
      dir: join(this.folder, 'redis'),
      appendonly: 'yes',
      save: '',
      'maxmemory-policy': 'noeviction',
    }
    return Object.entries(settings).flatMap(([name, value]) => [`--${name}`, value])
  }

  /** Resolves when control answers through haproxy, which runs the configuration for production at these ports. */
  async #startHaproxy(): Promise<void> {
    const { websocket, api, balancer, nodes, controls } = this.ports
    const { clock } = this.#parts
    const haproxy = this.children.get('haproxy')!
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
    const deadline = clock.monotonic() + PATIENCE_MS
    while (!(await fetch(`http://${here(api)}/readyz`).catch(() => undefined))?.ok) {
      if (haproxy.exit)
        throw new ClusterError(`haproxy ended (${describeExit(haproxy.exit)}); ${haproxy.logFile} says why`)
      if (clock.monotonic() > deadline)
        throw new ClusterError(`haproxy does not reach control; the logs in ${this.folder} say why`)
      await setTimeout(50)
    }
  }
}

/** What a run found on the machine. */
interface Machine {
  readonly folder: string
  readonly ports: Ports
  /** Paths of programs; undefined: not there, or not wanted. */
  readonly redis: string | undefined
  readonly haproxy: string | undefined
}

/** Secrets of one run, made up unless INTERNAL_TOKEN and CONTROL_API_TOKENS are set; of several, the first. */
interface Secrets {
  readonly internalToken: string
  readonly keyringSecret: string
  readonly operatorToken: string
}

const here = (port: number): string => `${HOST}:${port}`
